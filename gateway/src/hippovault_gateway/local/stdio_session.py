"""What a host waits for, and what the next gateway has to hear of it when one ends in mid-session."""

from __future__ import annotations

TYPE_CHECKING = False  # To import it takes longer than all of this.
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeGuard

READ_ONLY = frozenset(
    {
        "hippo_recall",
        "hippo_search",
        "hippo_get_entity",
        "hippo_list_recent",
        "hippo_scan",
        "hippo_history",
        "hippo_session_summary",
        "retrieve_memory",
        "list_memories",
        "ping",
    }
)
"""The tools whose calls may be sent again, whatever became of them."""
TRIES = 3
"""How often a request is sent again: one may be what ends the gateway, but one that is ending may still accept."""
LOOK_BYTES = 65_536
"""Of lines that wait to be looked at, at most."""
ANSWER = b'{"jsonrpc":"2.0","id":'
"""How every answer of the gateway begins."""
RESUMED = "hippovault-resumed"
"""Id of a handshake of which the host knows nothing."""
INTERNAL_ERROR = -32603
LOST = (
    "the gateway ended while it had this call, and may have carried it out; "
    "to remember or to forget once more changes nothing more, and a call with a request_id is asked again by itself"
)


class Session:
    """The requests of one session that have no answer yet.

    Lines are looked at when their answers have been passed on: nobody waits for that, nor for the import of json.
    """

    def __init__(self) -> None:
        self._unseen = bytearray()
        self._waiting: dict[int | str, tuple[bytes, int]] = {}
        """By the id of each request its line, and how often it may be sent again."""
        self._initialize: dict[str, Any] = {}
        self._initialized = b""

    def asked(self, lines: bytes) -> None:
        """Takes note of what the host said."""
        self._unseen += lines
        if len(self._unseen) > LOOK_BYTES:
            self._look()

    def answered(self, lines: bytes) -> None:
        """Takes note of what the gateway said."""
        self._look()
        for line in lines.split(b"\n"):
            if line.startswith(ANSWER):
                self._waiting.pop(_leading_id(line), None)

    def waits(self) -> bool:
        """Tells whether any request has no answer."""
        self._look()
        return bool(self._waiting)

    def for_host(self, lines: bytes) -> bytes:
        """Returns what the gateway said, less the answer to a handshake that the host did not make."""
        hidden = ANSWER + f'"{RESUMED}"'.encode()
        if not self._initialize or hidden not in lines:
            return lines
        return b"".join(line + b"\n" for line in lines.split(b"\n")[:-1] if not line.startswith(hidden))

    def resumption(self) -> bytes:
        """Returns what a new gateway has to hear: the handshake, and the requests that wait."""
        again = {request_id: line for request_id, (line, _) in self._waiting.items()}
        self._waiting = {request_id: (line, left - 1) for request_id, (line, left) in self._waiting.items()}
        if not self._initialize:
            return b"".join(again.values())
        first = again.pop(self._initialize["id"], b"") or _line({**self._initialize, "id": RESUMED})
        return b"".join([first, self._initialized, *again.values()])

    def lost(self) -> bytes:
        """Returns the errors for those requests that must not be sent again."""
        self._look()
        return self._refusals([request_id for request_id, (_, left) in self._waiting.items() if not left], LOST)

    def refused(self, reason: str) -> bytes:
        """Returns the errors for all requests."""
        self._look()
        return self._refusals(list(self._waiting), reason)

    def _refusals(self, request_ids: Iterable[int | str], reason: str) -> bytes:
        error = {"code": INTERNAL_ERROR, "message": f"Internal error: {reason}"}
        for request_id in request_ids:
            del self._waiting[request_id]
        return b"".join(_line({"jsonrpc": "2.0", "id": request_id, "error": error}) for request_id in request_ids)

    def _look(self) -> None:
        lines, self._unseen = bytes(self._unseen), bytearray()
        for line in lines.split(b"\n")[:-1]:
            self._note(line + b"\n", _parsed(line))

    def _note(self, line: bytes, message: dict[str, Any]) -> None:
        method, request_id, parameters = message.get("method"), message.get("id"), message.get("params")
        named: dict[str, Any] = parameters if isinstance(parameters, dict) else {}
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled" and isinstance(named.get("requestId"), int | str):
            self._waiting.pop(named["requestId"], None)  # By the protocol it is not answered any more.
        elif method and _is_id(request_id):
            if method == "initialize":
                self._initialize = message
            harmless = method != "tools/call" or _may_be_repeated(named)
            self._waiting[request_id] = (line, TRIES) if harmless else (b"", 0)


def _may_be_repeated(call: dict[str, Any]) -> bool:
    """Tells whether a call of a tool does no more the second time: it reads, or has a name by which it is done once."""
    arguments = call.get("arguments")
    return call.get("name") in READ_ONLY or (isinstance(arguments, dict) and bool(arguments.get("request_id")))


def _is_id(value: object) -> TypeGuard[int | str]:
    """Tells whether the gateway answers a request of this id by it."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    try:
        str(value).encode()
    except ValueError:  # A lone surrogate.
        return False
    return True


def _parsed(line: bytes) -> dict[str, Any]:
    """Returns the message; empty when it is none, which the gateway tells the host."""
    import json

    try:
        message = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _leading_id(answer: bytes) -> int | str:
    import json

    request_id: int | str = json.JSONDecoder().raw_decode(answer.decode(), len(ANSWER))[0]
    return request_id


def _line(message: dict[str, Any]) -> bytes:
    import json

    return json.dumps(message).encode() + b"\n"
