"""The bind guard: loopback and Unix sockets only."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippovault_chassis import addresses, locks
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.home import Home


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:80", "localhost:1", "[::1]:65535", "unix:/tmp/x.sock"])
def test_what_stays_on_this_machine_passes(address: str) -> None:
    addresses.check_bind("listen", address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:1",
        "[::]:1",
        "192.168.0.1:1",
        "10.0.0.1:1",
        "example.org:1",
        "localhost.example.org:1",
        "[::ffff:0.0.0.0]:1",
    ],
)
def test_what_the_network_can_reach_is_refused(address: str) -> None:
    with pytest.raises(ServiceError, match="open to the network") as caught:
        addresses.check_bind("listen", address)
    assert caught.value.field == "listen"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1",
        ":1",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "unix:x",
        "::1:80",
        "unix:/a%41",
        "unix:/a?b",
        "unix:/a,/b",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ServiceError):
        addresses.check_bind("listen", address)


def test_a_lock_tells_its_holder(tmp_path: Path) -> None:
    holder = locks.lock_file(tmp_path / "x.lock", "the store is open")
    with pytest.raises(locks.LockHeldError, match=r"the store is open by another process already \(pid \d+"):
        locks.lock_file(tmp_path / "x.lock", "the store is open")
    holder.close()
    locks.lock_file(tmp_path / "x.lock", "the store is open").close()


def test_a_home_too_long_for_a_socket_is_refused_by_name() -> None:
    with pytest.raises(ServiceError, match=r"HIPPOVAULT_HOME.*at most 103"):
        Home(Path("/" + "h" * 100)).socket("gateway")


@pytest.mark.parametrize("name", ["a?b", "a#b", "a,b", "a%41"])
def test_a_home_that_a_target_cannot_name_is_refused(name: str) -> None:
    with pytest.raises(ServiceError, match="HIPPOVAULT_HOME"):
        Home(Path("/tmp") / name).socket("gateway")  # noqa: S108  # Nothing is made there.
