"""The real mcp-memory-service on our files, and we on its files.

It is installed from a package index into the directory that HIPPOVAULT_TEST_CONFORMANCE names, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.storage import UPDATED, Store, assert_whole, in_process, opened, rows, unit

DIRECTORY = "HIPPOVAULT_TEST_CONFORMANCE"
PINNED = ("mcp-memory-service==12.4.0", "pysqlite3-binary==0.5.4.post2")
"""The second is for interpreters whose own sqlite3 takes no extensions."""
DRIVER = Path(__file__).with_name("mcp_memory_service_driver.py")
INSTALL_SECONDS = 600
SECONDS = 60

pytestmark = pytest.mark.timeout(INSTALL_SECONDS + SECONDS)


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """Of an environment that has their program."""
    directory = os.environ.get(DIRECTORY)
    if not directory:
        pytest.skip(f"{DIRECTORY} names no directory into which mcp-memory-service may be installed")
    python = Path(directory).absolute() / "mcp-memory-service-12.4.0" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True, timeout=SECONDS)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED]
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS, capture_output=True, text=True)
    except (subprocess.SubprocessError, OSError) as error:
        last = str(getattr(error, "stderr", "") or error).strip().rpartition("\n")[2]
        pytest.skip(f"mcp-memory-service cannot be installed here: {last}")
    return python


class Theirs:
    """Their program, which opens the file anew each time.

    Args:
        python: The interpreter that has it.
        path: The file.
    """

    def __init__(self, python: Path, path: Path) -> None:
        self._python = python
        self._path = path

    def do(self, *actions: tuple[str, str]) -> list[Any]:
        """Returns what each action answered."""
        # Without a model it makes vectors of hashes, which serve as well to find what is stored.
        variables = {"MCP_MEMORY_ALLOW_HASH_EMBEDDINGS": "1", "MCP_MEMORY_USE_ONNX": "0", "HF_HUB_OFFLINE": "1"}
        ended = subprocess.run(
            [str(self._python), str(DRIVER)],
            input=json.dumps({"path": str(self._path), "do": actions}),
            env={**os.environ, **variables, "HOME": str(self._path.parent)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        answers: list[Any] = json.loads(ended.stdout.splitlines()[-1])
        return answers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.db"


@pytest.fixture
def theirs(interpreter: Path, path: Path) -> Theirs:
    return Theirs(interpreter, path)


def contents(memories: Sequence[dict[str, Any]]) -> set[str]:
    return {memory["content"] for memory in memories}


def test_their_program_reads_our_file_and_we_read_it_after_theirs(path: Path, theirs: Theirs) -> None:
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        zebra = store.add("A Zebra crossed.", unit(0), tags=["road", "animal"], metadata='{"n": 1}', hints=["Who?"])
        milk = store.add("Oat milk is out.", unit(1), category="shopping", key="milk")
        store.delete_id(store.add("It was deleted.", unit(2)).id)

    seen, tagged, semantic, words = theirs.do(("all", ""), ("tagged", "road"), ("semantic", "x"), ("words", "zebra"))
    assert contents(seen) == set(semantic) == {zebra.content, milk.content}
    assert tagged == words == [zebra.content]
    (first,) = [memory for memory in seen if memory["content"] == zebra.content]
    assert (first["content_hash"], sorted(first["tags"])) == (zebra.content_hash, ["animal", "road"])
    assert first["metadata"]["n"] == 1
    assert first["created_at"] == pytest.approx(zebra.created_at.ToMicroseconds() / 1e6)

    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        again = store.get_id(zebra.id)
        assert (again.content, list(again.hints), again.version) == (zebra.content, ["Who?"], 1)
        assert again.content_hash == zebra.content_hash
        assert store.nearest(unit(0), 1) == store.matching("zebras") == [zebra.content]
        long = "Oat milk is out, and so are tea, bread, butter, cheese, apples and whatever else was on the list."
        assert store.put(long, unit(3), category="shopping", key="milk").outcome == UPDATED
        store.add("A new one of ours.", unit(4))
    assert_whole(path)

    seen, semantic, words = theirs.do(("all", ""), ("semantic", "x"), ("words", "butter"))
    assert contents(seen) == set(semantic) == {zebra.content, long, "A new one of ours."}
    assert words == [long]


def test_we_read_what_their_program_writes_into_our_file(path: Path, theirs: Theirs) -> None:
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        ours, kept = store.add("ours, which they delete", unit(0)), store.add("kept", unit(1))
    theirs.do(("store", "Theirs, In Capitals "), ("store", "gone"), ("delete", "gone"), ("delete", ours.content))
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        assert store.listed() == ["Theirs, In Capitals ", "kept"]
        assert store.matching("capital") == store.listed(tags_all=["theirs"]) == ["Theirs, In Capitals "]
        assert len(store.nearest(unit(1))) == 2
        assert store.put(ours.content, unit(0)).memory.id == ours.id
        assert store.get_id(kept.id) == kept
    ((all_of_them,),) = [theirs.do(("all", ""))]
    assert contents(all_of_them) == {"Theirs, In Capitals ", "kept", ours.content}


def test_a_file_of_theirs_is_read_and_written(path: Path, theirs: Theirs) -> None:
    theirs.do(("store", "The Heron nests."), ("store", "The ferry was sold."), ("delete", "the ferry was sold."))
    with opened(path) as file:
        hashes = rows(file, "SELECT id, content_hash FROM memories ORDER BY id")
    with in_process(path) as (stub, _):
        store = Store(stub, "default")
        assert store.listed() == store.matching("heron") == ["The Heron nests."]
        store.add("The Heron nests.", unit(0), tags=["ours"])
        store.add("the heron nests.", unit(1))  # Another memory for us, the same for them.
    with opened(path) as file:
        assert rows(file, "SELECT id, content_hash FROM memories ORDER BY id")[: len(hashes)] == hashes
    seen, tagged, semantic = theirs.do(("all", ""), ("tagged", "ours"), ("semantic", "x"))
    assert contents(seen) == set(semantic) == {"The Heron nests.", "the heron nests."}
    assert tagged == ["The Heron nests."]
