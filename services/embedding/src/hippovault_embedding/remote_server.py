"""Talks to a server with OpenAI's API of embeddings: one batch of texts, as many tries as its time allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import grpc
import httpx2
import structlog
import tenacity

from hippovault_chassis import deadline
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.remote_answer import AnswerError, Matrix, unit_vectors
from hippovault_embedding.remote_model import MAX_DIMENSIONS, RemoteModel

log = structlog.get_logger()

ATTEMPTS = 4
BACKOFF = tenacity.wait_exponential_jitter(multiplier=0.2, jitter=0.1)
"""Seconds between tries where the server names none; a query that gets no vector is better told soon."""
CONNECT_SECONDS = 10.0
SILENT_SECONDS = 2.0
"""Without an answer, from which on a server is told to fail; callers who leave earlier say nothing of it."""
MAX_PAUSE_SECONDS = 3600
NUMBER_BYTES = 32
"""More than JSON has of a number, and of what stands between two."""
ITEM_BYTES = 1024
"""More than it has of a vector besides."""
BODY_BYTES = 64 * 1024
"""More than it has of all besides."""

OK = 200
REFUSING = {400, 413, 422}
"""How servers say that they take no such texts: too many, or too long."""
PASSING = {408, 425, 429}
"""How they say that another try may go well, beside 5xx."""
HINTS = {
    404: "there may be no such model, or the base URL may be another",
    429: "it is asked too often, or its quota is used up",
}


class RefusedError(Exception):
    """The server takes no such texts; the message says so."""


class _PassingError(Exception):
    """Another try may go well.

    Args:
        problem: What is told of the server.
        seconds: That the server wants to be left alone for; 0 where it names none.
    """

    def __init__(self, problem: str, seconds: float = 0.0) -> None:
        super().__init__(problem)
        self.seconds = seconds


class RemoteServer:
    """A client of the server, with connections of its own.

    Args:
        model: What it computes, and where.
        requests: At a time, at most.
        report: Told after each request why there are no vectors; nothing when there are.

    Raises:
        ModelError: There is no key.
    """

    def __init__(self, model: RemoteModel, requests: int, report: Callable[[str], None]) -> None:
        self._model = model
        self._report = report
        self._url = httpx2.URL(f"{model.server}/embeddings")
        key = model.key()
        self._client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            # How long an answer may take, the deadline of its call says.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=requests, max_keepalive_connections=requests),
            # The texts and the key are for this server alone; in the clear not even for a proxy.
            follow_redirects=False,
            trust_env=self._url.scheme == "https",
        )
        self._rests_until = 0.0
        """When the server wants to be asked again."""

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def embed(self, texts: Sequence[str], dimensions: int) -> Matrix:
        """Returns a vector of L2 norm 1 for each text, in order.

        Args:
            texts: Of one request.
            dimensions: That a vector should have; 0 where that is not known.

        Raises:
            RefusedError: The server takes no such texts.
            ServiceError: UNAVAILABLE, it gives no vectors; DEADLINE_EXCEEDED, not in time.
        """
        # To read what is larger would hold up every other call.
        most = BODY_BYTES + len(texts) * (ITEM_BYTES + NUMBER_BYTES * (dimensions or MAX_DIMENSIONS))
        body = await self._body(texts, most, deadline.remaining())
        try:
            # Numbers as text take milliseconds, which other calls need not wait for.
            vectors = await asyncio.to_thread(unit_vectors, body, len(texts))
        except AnswerError as error:
            raise self.unavailable(f"answers {error}") from error
        self._report("")
        return vectors

    def unavailable(self, problem: str, retry_seconds: float = 0.0) -> ServiceError:
        """Returns what callers are told when the server gives no vectors."""
        log.warning("the server gives no vectors", server=self._model.server, problem=problem)
        cause = f"the server {self._model.server} {problem}"
        self._report(cause)
        error = ServiceError.unavailable("embedding", cause)
        error.retry_seconds = retry_seconds
        return error

    async def _body(self, texts: Sequence[str], most: int, seconds: float) -> bytes:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_PassingError),
            wait=_wait,
            stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_before_delay(seconds),
            before_sleep=self._tell,
            reraise=True,
        )
        started = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                return await retrying(self._attempt, texts, most)
        except _PassingError as error:
            raise self.unavailable(str(error), error.seconds) from error
        except asyncio.CancelledError:
            log.info("the server is given up, nobody waits any more", server=self._model.server)
            self._report_silence(time.monotonic() - started)
            raise
        except TimeoutError:
            log.warning("the server did not answer in time", server=self._model.server, seconds=round(seconds, 1))
            self._report_silence(time.monotonic() - started)
            problem = f"the server {self._model.server} did not answer in time"
            raise ServiceError(grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", problem) from None

    def _report_silence(self, seconds: float) -> None:
        if seconds >= SILENT_SECONDS:
            self._report(f"the server {self._model.server} did not answer within {seconds:.1f} s")

    async def _attempt(self, texts: Sequence[str], most: int) -> bytes:
        rest = self._rests_until - time.monotonic()
        if rest > 0:  # It told another request so.
            raise _PassingError(f"wants to be left alone for {rest:.1f} s", rest)
        model = self._model
        # Base64 is a quarter of the bytes of numbers as text; a server that does not know it answers numbers.
        request: dict[str, Any] = {"model": model.model, "input": texts, "encoding_format": "base64"}
        if model.dimensions:
            request["dimensions"] = model.dimensions
        try:
            async with self._client.stream("POST", self._url, json=request) as response:
                if response.status_code != OK:
                    raise self._failure(response)
                return await self._read(response, most)
        except httpx2.DecodingError as error:
            raise self.unavailable("answers in a broken encoding") from error
        except httpx2.RequestError as error:
            # Only this kind's words are the system's own; those of others might quote what was sent.
            why = f": {error}" if isinstance(error, httpx2.ConnectError) and str(error) else ""
            raise _PassingError(f"cannot be reached ({type(error).__name__}{why})") from error

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > most:
                raise self.unavailable(f"answers more than {most} bytes")
        return bytes(body)

    def _failure(self, response: httpx2.Response) -> Exception:
        """Returns what a status means; what the server says beside it may quote the texts and is not read."""
        status = response.status_code
        if status in REFUSING:
            why = "too long, or its model has no choice of dimensions" if self._model.dimensions else "too long"
            return RefusedError(f"the server {self._model.server} refused it with HTTP {status}; it may be {why}")
        problem = f"answers HTTP {status}" + (f": {hint}" if (hint := self._hint(status)) else "")
        if status not in PASSING and status < 500:  # noqa: PLR2004  # HTTP's own limit.
            return self.unavailable(problem)
        seconds = _retry_after(response.headers.get("Retry-After", ""))
        self._rests_until = max(self._rests_until, time.monotonic() + seconds)
        return _PassingError(problem, seconds)

    def _hint(self, status: int) -> str:
        if status in {401, 403}:
            variable = self._model.key_variable
            wanted = "it may want a key; name the environment variable that has it as key_variable"
            return f"it refuses the key in the environment variable {variable}" if variable else wanted
        return "redirects are not followed" if 300 <= status < 400 else HINTS.get(status, "")  # noqa: PLR2004  # HTTP's.

    def _tell(self, state: tenacity.RetryCallState) -> None:
        log.info(
            "the server is asked again",
            server=self._model.server,
            problem=str(state.outcome.exception()) if state.outcome else "",
            seconds=round(state.upcoming_sleep, 2),
        )


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return (error.seconds if isinstance(error, _PassingError) else 0.0) or BACKOFF(state)


def _retry_after(value: str) -> float:
    """Returns the seconds that a Retry-After names, as a number or as a date; 0 where it names none to come."""
    if value.isascii() and value.isdigit():
        return float(min(int(value[:9]), MAX_PAUSE_SECONDS))
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return 0.0
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_PAUSE_SECONDS)
