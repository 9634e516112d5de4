"""Runs inside an environment that has mcp-memory-service: opens a file by its storage class and does what stdin says.

stdin has a JSON object: `path`, and `do`, a list of [action, argument]; stdout gets a JSON list of what each answered.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from typing import Any

if not hasattr(sqlite3.Connection, "enable_load_extension"):  # As this interpreter was built; theirs needs extensions.
    import pysqlite3
    import pysqlite3.dbapi2

    sys.modules["sqlite3"], sys.modules["sqlite3.dbapi2"] = pysqlite3, pysqlite3.dbapi2

from mcp_memory_service.models.memory import Memory
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage
from mcp_memory_service.utils.hashing import generate_content_hash


def shown(memory: Any) -> dict[str, Any]:
    return {
        "content": memory.content,
        "content_hash": memory.content_hash,
        "tags": memory.tags,
        "metadata": memory.metadata,
        "created_at": memory.created_at,
    }


async def do(storage: Any, action: str, argument: str) -> Any:
    if action == "all":
        return [shown(memory) for memory in await storage.get_all_memories()]
    if action == "tagged":
        return [memory.content for memory in await storage.search_by_tag([argument])]
    if action == "semantic":
        return [found.memory.content for found in await storage.retrieve(argument, 100)]
    if action == "words":
        hashes = [content_hash for content_hash, _ in await storage._search_bm25(argument, 100)]
        return [(await storage.get_by_hash(content_hash)).content for content_hash in hashes]
    if action == "store":
        memory = Memory(
            content=argument, content_hash=generate_content_hash(argument), tags=["theirs"], memory_type="note"
        )
        return await storage.store(memory)
    if action == "delete":
        return await storage.delete(generate_content_hash(argument))
    raise ValueError(action)


async def main() -> None:
    order = json.load(sys.stdin)
    storage = SqliteVecMemoryStorage(order["path"])
    await storage.initialize()
    answers = [await do(storage, action, argument) for action, argument in order["do"]]
    await storage.close()
    json.dump(answers, sys.stdout)


asyncio.run(main())
