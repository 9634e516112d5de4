"""What is logged of connections that cannot be accepted."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from hippovault_gateway.accepting import AcceptErrors


async def test_accept_errors_are_logged_once_a_second_and_others_always(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(AcceptErrors())
    full = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "full")}
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            loop.call_exception_handler(full)
        loop.call_exception_handler({"message": "another"})
        loop.call_exception_handler({"message": "another"})

    assert [record.message.splitlines()[0] for record in caplog.records] == [full["message"], "another", "another"]
