"""Encryption at rest: what the files of a store tell without its key, and what a start refuses."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hippovault.storage.v1 import storage_pb2 as pb
from support.processes import environment
from support.storage import (
    CREATED,
    EXISTED,
    SECONDS,
    Code,
    Ref,
    Store,
    connected,
    database,
    encrypted,
    entity,
    near,
    opened,
    refused,
    rows,
    serving,
    vector,
)

MODES = ("values", "file")
KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(1, 33))).decode()
SECRETS = {
    "content": "Quokkas deploy on Thursdays behind the aubergine gateway",
    "hint": "whither the marsupial rollout",
    "tag": "tarantella",
    "metadata": '{"witness": "Bartholomew"}',
    "key": "perihelion",
    "category": "zoology",
    "namespace": "menagerie",
}
WORDS = (
    *("Quokkas", "quokka", "deploy", "Thursdays", "thursdai", "aubergine", "whither", "marsupial", "rollout"),
    *("tarantella", "witness", "Bartholomew", "perihelion", "zoology", "menagerie"),
)


@contextlib.contextmanager
def store_of(home: Path, settings: Mapping[str, str], namespace: str = SECRETS["namespace"]) -> Iterator[Store]:
    with serving(home, environment=settings) as process, connected(process) as stub:
        yield Store(stub, namespace)
        assert process.stop() == 0


def fill(store: Store) -> int:
    """Puts the secrets, once changed and once deleted too."""
    memory_id = store.add(
        SECRETS["content"],
        near(0.5),
        hints=[SECRETS["hint"]],
        tags=[SECRETS["tag"]],
        metadata=SECRETS["metadata"],
        category=SECRETS["category"],
        key=SECRETS["key"],
    ).id
    store.add("draft of a quokka", key="draft", tags=[SECRETS["tag"]])
    store.add("Thursdays again", key="draft", metadata=SECRETS["metadata"])
    store.delete_id(store.add("aubergine to be deleted", near(0.1)).id)
    return memory_id


def snapshot(home: Path) -> dict[str, bytes]:
    """The data directory but for what every start writes: the lock."""
    return {path.name: path.read_bytes() for path in (home / "data").iterdir() if path.suffix != ".lock"}


def run(home: Path, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hippovault_storage"],
        env=environment(home, settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def found(home: Path, words: tuple[str, ...] = WORDS) -> list[tuple[str, str]]:
    """The words that a file of the data directory has, in any case."""
    files = {name: data.lower() for name, data in snapshot(home).items()}
    return [(name, word) for name, data in files.items() for word in words if word.lower().encode() in data]


# ------------------------------------------------------------------------------------------------- what the files tell


def test_of_a_database_behind_a_link_nothing_stays_readable_either(home: Path) -> None:
    with store_of(home, {}) as store:
        fill(store)
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir()
    database(home).rename(elsewhere / "real.db")
    database(home).symlink_to(elsewhere / "real.db")
    command = [sys.executable, "-m", "hippovault_storage.encrypt"]
    subprocess.run(command, env=environment(home, encrypted("file")), check=True, timeout=60, capture_output=True)
    files = [file.read_bytes().lower() for file in elsewhere.iterdir()]
    assert not [word for word in WORDS for data in files if word.lower().encode() in data]
    with store_of(home, encrypted("file")) as store:
        assert store.matching("quokka") == [SECRETS["content"]]


def test_no_file_of_an_encrypted_store_has_a_word_of_it(home: Path) -> None:
    with serving(home, environment=encrypted("file")) as process, connected(process) as stub:
        store = Store(stub, SECRETS["namespace"])
        fill(store)
        assert store.matching("quokka") == [SECRETS["content"]]
        assert (home / "data" / "memories.db-wal").stat().st_size
        assert found(home) == []
        process.kill()
    assert found(home) == []
    assert vector(1)[:16] not in b"".join(snapshot(home).values())
    with store_of(home, encrypted("file")) as store:
        assert store.matching("quokka") == [SECRETS["content"]]
        store.search(dense=vector(1), keyword="aubergine")
        assert found(home) == []
    assert found(home) == []
    assert not database(home).read_bytes().startswith(b"SQLite")


def test_sealed_values_tell_their_words_to_the_word_index_alone(home: Path) -> None:
    with serving(home, environment=encrypted("values")) as process, connected(process) as stub:
        fill(Store(stub, SECRETS["namespace"]))
        process.kill()
    whole = tuple(SECRETS[name] for name in ("content", "hint", "tag", "metadata"))
    assert found(home, (*whole, "Bartholomew", "witness")) == []
    with opened(database(home)) as file:
        tables = rows(file, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'")
        for (table,) in tables:
            if table.startswith(("hippo_fts", "sqlite_")):
                continue
            text = repr(rows(file, f'SELECT * FROM "{table}"')).lower()  # noqa: S608
            readable = [word for word in WORDS if word.lower() in text]
            assert set(readable) <= {"perihelion", "zoology", "menagerie"}, table
        hashes = rows(file, "SELECT content_hash FROM memories UNION SELECT content_hash FROM hippo_memories")
    with store_of(home, encrypted("values")) as store:
        assert store.get(entity(SECRETS["category"], SECRETS["key"])).content_hash not in {one for (one,) in hashes}


@pytest.mark.parametrize("mode", MODES)
def test_what_was_stored_comes_back(home: Path, mode: str) -> None:
    with store_of(home, encrypted(mode)) as store:
        memory_id = fill(store)
        assert store.put(SECRETS["content"], b"", tags=["more"]).outcome == EXISTED
        assert store.put(SECRETS["content"], category="other", key="other").outcome == CREATED
    with store_of(home, encrypted(mode)) as store:
        memory = store.get_id(memory_id)
        assert memory.content == SECRETS["content"]
        assert list(memory.hints) == [SECRETS["hint"]]
        assert list(memory.tags) == [SECRETS["tag"], "more"]
        assert json.loads(memory.metadata) == {"witness": "Bartholomew"}
        assert store.get(Ref(content_hash=memory.content_hash)).id == memory_id
        assert store.listed(tags_all=[SECRETS["tag"]]) == [SECRETS["content"]]
        assert store.listed(tags_any=["more", "none"]) == [SECRETS["content"]]
        assert {(count.tag, count.count) for count in store.summary().top_tags} == {(SECRETS["tag"], 1), ("more", 1)}
        assert store.matching("rolling out marsupials") == [SECRETS["content"]]
        assert store.find("Thursdays again", key="draft")
        stats = store.stub.GetStats(pb.GetStatsRequest())
        assert (stats.encryption, stats.live_memories) == (mode, 3)
    keys = home / "data" / "memories.keys"
    assert keys.stat().st_mode & 0o777 == 0o600
    assert database(home).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in keys.parent.iterdir()) == ["memories.db", "memories.keys", "memories.lock"]


# --------------------------------------------------------------------------------------------- what a start refuses


def test_another_key_is_refused_in_a_line(home: Path) -> None:
    mode = "values"
    with store_of(home, encrypted(mode)) as store:
        fill(store)
    before = snapshot(home)
    for settings in (encrypted(mode, bytes(32)), {**encrypted(mode), "HIPPOVAULT_STORAGE_KEY": KEY[:-8]}, {}):
        ended = run(home, settings)
        assert ended.returncode != 0
        assert len(ended.stderr.splitlines()) == 1
        assert settings.get("HIPPOVAULT_STORAGE_KEY", KEY) not in ended.stderr
        assert snapshot(home) == before


def key_file(home: Path, text: str) -> dict[str, str]:
    path = home.parent / "key"
    path.touch(0o600)
    path.write_text(text)
    return {"HIPPOVAULT_STORAGE_ENCRYPTION": "values", "HIPPOVAULT_STORAGE_KEY_FILE": str(path)}


def test_a_key_comes_from_a_private_file_or_a_command(home: Path) -> None:
    with store_of(home, key_file(home, f"{OTHER_KEY}\n")) as store:
        fill(store)
    with store_of(home, key_file(home, f"{KEY}\n{OTHER_KEY}\n")) as store:
        assert store.listed()
    command = f"{sys.executable} -c 'print(\"{OTHER_KEY}\")'"
    settings = {"HIPPOVAULT_STORAGE_ENCRYPTION": "values", "HIPPOVAULT_STORAGE_KEY_COMMAND": command}
    with serving(home, environment=settings) as process, connected(process) as stub:
        assert Store(stub, SECRETS["namespace"]).listed()
        assert OTHER_KEY not in process.log.read_text()


def test_the_help_does_not_tell_a_key(home: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "hippovault_storage", "--help"],
        env=environment(home, encrypted("file")),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "key-file" in shown.stdout
    assert KEY not in shown.stdout


# ------------------------------------------------------------------------------------------- what others wrote into it


def test_plaintext_among_sealed_values_is_told_and_not_returned(home: Path) -> None:
    with store_of(home, encrypted("values")) as store:
        memory_id, other = fill(store), store.add("unharmed", key="unharmed").id
    with opened(database(home)) as file:
        file.execute("UPDATE memories SET content = 'forged zebra', updated_at = 9e9 WHERE id = ?", (memory_id,))
        file.execute(
            "INSERT INTO memories (content_hash, content, created_at, updated_at) VALUES ('00', 'foreign zebra', 1, 1)"
        )
        foreign = file.last_insert_rowid()
    with serving(home, environment=encrypted("values")) as process, connected(process) as stub:
        store = Store(stub, SECRETS["namespace"])
        with refused(Code.DATA_LOSS, message=f"table memories, column content of memory {memory_id} is not encrypted"):
            store.get_id(memory_id)
        with refused(Code.DATA_LOSS, reason="VALUE_NOT_AUTHENTIC"):
            store.listed()
        assert store.matching("zebra") == Store(stub, "default").listed() == []
        assert store.get_id(other).content == "unharmed"
        with refused(Code.NOT_FOUND, "ref.id"):
            Store(stub, "default").get_id(foreign)
        told = [json.loads(line) for line in process.log.read_text().splitlines() if "cannot be memories" in line]
        assert [line["ids"] for line in told] == [[memory_id, foreign]]
        assert "zebra" not in process.log.read_text()


@pytest.mark.parametrize("page_size", [1, 9])
def test_what_cannot_be_read_holds_up_nothing_that_waits_for_vectors(home: Path, page_size: int) -> None:
    with store_of(home, encrypted("values")) as store:
        ids = [store.add(f"number {number}").id for number in range(4)]
    with opened(database(home)) as file:
        forge = "UPDATE memories SET content = 'forged', updated_at = 9e9 WHERE id IN (?, ?)"
        file.execute(forge, (ids[0], ids[2]))
    with store_of(home, encrypted("values")) as store:
        found, request = [], pb.ListUnembeddedRequest(page_size=page_size, token_encoding="sign")
        while page := store.stub.ListUnembedded(request, timeout=SECONDS).memories:
            found += [memory.content for memory in page]
            request.after_id = page[-1].id
    assert found == ["number 1", "number 3"]


def test_a_value_in_another_ones_place_is_told(home: Path) -> None:
    places = {"content": "memories", "tags": "memories", "metadata": "memories", "hints": "hippo_memories"}
    whole = {"hints": ["a hint"], "tags": ["t"], "metadata": '{"a": 1}'}
    with store_of(home, encrypted("values")) as store:
        ids = {column: store.add(column, near(0.5), key=column, **whole).id for column in (*places, "other")}
    with opened(database(home)) as file:
        for column, table in places.items():
            id_column = "id" if table == "memories" else "memory_id"
            taken = f"(SELECT {column} FROM {table} WHERE {id_column} = ?)"  # noqa: S608
            sql = f"UPDATE {table} SET {column} = {taken} WHERE {id_column} = ?"  # noqa: S608
            file.execute(sql, (ids["other"], ids[column]))
    with store_of(home, encrypted("values")) as store:
        for column, table in places.items():
            with refused(Code.DATA_LOSS, message=f"table {table}, column {column} of memory {ids[column]}"):
                store.get_id(ids[column])
        assert store.get_id(ids["other"]).content == "other"


def test_other_bytes_in_an_encrypted_file_are_noticed(home: Path) -> None:
    with store_of(home, encrypted("file")) as store:
        for number in range(50):
            store.add(f"memory {number} {os.urandom(400).hex()}")
    whole = bytearray(database(home).read_bytes())
    for at in range(8192 + 4096, len(whole), 8192):  # In every page but the first.
        whole[at] ^= 1
    database(home).write_bytes(whole)
    ended = run(home, encrypted("file"))
    assert ended.returncode != 0
    assert "memories.db is damaged" in ended.stderr
