"""Logs tell where an exception came from, and never what it said."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import asyncio, logging, sys
import structlog
from hippovault_chassis import logs

logs.configure("test", "info")

def fail():
    try:
        raise KeyError("secret cause")
    except KeyError as error:
        raise ExceptionGroup("secret group", [ValueError("secret member")]) from error

try:
    fail()
except Exception as error:
    structlog.get_logger().error("ours", exc_info=True)
    structlog.get_logger().error("ours", exc_info=error)
    logging.getLogger("library").exception("it said %s", error)
    logging.getLogger("library").warning("it failed", exc_info=error)

async def forgotten():
    asyncio.get_running_loop().create_task(asyncio.sleep(0)).add_done_callback(lambda _: fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

asyncio.run(forgotten())
logging.getLogger("library").warning("no exception here: %s", exc_info=True, *["an argument"])
"""


def test_an_exception_is_told_by_type_and_place_alone() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]

    assert "secret" not in ended.stderr + ended.stdout
    assert len(lines) == 6
    for line in lines[:-1]:
        assert line["type"] == "ExceptionGroup"
        assert any("fail" in place for place in line["at"])
        assert {cause["type"] for cause in line["causes"]} == {"KeyError", "ValueError"}
    assert [line["event"] for line in lines[:2]] == ["ours", "ours"]
    assert lines[2]["event"].startswith("exception logged by library at <string>:")
    assert lines[-1]["event"] == "no exception here: an argument"
    assert {line["service"] for line in lines} == {"test"}
