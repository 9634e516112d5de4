"""A backup that arrives is in its file whole, or not at all."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import backup

CHUNKS = [b"first ", b"", b"second"]
WHOLE = b"".join(CHUNKS)
SHA256 = hashlib.sha256(WHOLE).hexdigest()
HEADER = pb.BackupHeader(name="m.db", size_bytes=len(WHOLE), keys=b"wrapped")


def parts(chunks: list[bytes], sha256: str = SHA256) -> Iterator[pb.BackupResponse]:
    for chunk in chunks:
        yield pb.BackupResponse(chunk=chunk)
    if sha256:
        yield pb.BackupResponse(trailer=pb.BackupTrailer(sha256=sha256))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "m.db.keys"


def test_what_arrives_whole_is_kept_with_its_keys_for_the_owner_alone(file: Path, keys: Path) -> None:
    file.with_name("m.db.partial").write_text("of a run that was killed, and longer than what comes")
    assert backup.receive(parts(CHUNKS), HEADER, file, keys) == SHA256
    assert (file.read_bytes(), keys.read_bytes()) == (WHOLE, b"wrapped")
    assert {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()} == {0o600}
    assert set(file.parent.iterdir()) == {file, keys}


@pytest.mark.parametrize(
    ("arriving", "problem"),
    [
        (parts(CHUNKS, ""), "without a trailer"),
        (parts(CHUNKS, "0" * 64), SHA256),
        (parts(CHUNKS[:2]), f"6 of {len(WHOLE)} bytes"),
        (parts([*CHUNKS, b"more"]), f"16 of {len(WHOLE)} bytes"),
        (parts([]), f"0 of {len(WHOLE)} bytes"),
    ],
)
def test_what_does_not_arrive_whole_is_not_kept(
    file: Path, keys: Path, arriving: Iterator[pb.BackupResponse], problem: str
) -> None:
    with pytest.raises(ServiceError) as caught:
        backup.receive(arriving, HEADER, file, keys)
    assert (caught.value.reason, problem in caught.value.message) == ("BACKUP_BROKEN", True)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError()])
def test_whatever_breaks_off_leaves_nothing(file: Path, keys: Path, error: BaseException) -> None:
    def breaking() -> Iterator[pb.BackupResponse]:
        yield pb.BackupResponse(chunk=b"first ")
        raise error

    with pytest.raises(type(error)) as caught:
        backup.receive(breaking(), HEADER, file, keys)
    assert list(file.parent.iterdir()) == []
    if isinstance(error, OSError):
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("name", ["m.db", "m.db.keys"])
def test_what_is_there_already_stays(file: Path, keys: Path, name: str) -> None:
    there = file.with_name(name)
    there.write_text("mine")
    with pytest.raises(ServiceError, match=f"{name} exists already; name a new file"):
        backup.receive(parts(CHUNKS), HEADER, file, keys)
    assert there.read_text() == "mine"
    assert list(file.parent.iterdir()) == [there]
