"""One error type for every process, and its two mappings: to google.rpc.Status on the wire and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Self, cast

import grpc
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from hippovault.memory.v1 import memory_pb2

DOMAIN = "hippovault"
STATUS_KEY = "grpc-status-details-bin"

MAX_MESSAGE_BYTES = 1000
"""UTF-8. From 8 KiB of metadata on gRPC may drop a failure; the message stands there twice, once escaped."""
MAX_VIOLATIONS_BYTES = 2400
"""Of the fields that are named one by one."""


class ServiceError(Exception):
    """A failure that a caller may be told about.

    Args:
        code: The gRPC status code.
        reason: UPPER_SNAKE_CASE, stable: what programs compare.
        message: What people read; the end of a very long one is left out. Names the field or file, the limit and the
            value; never a content or a secret.
        field: The request field to blame, where there is one, such as `tags[2]`.
        retry_seconds: When it may be worth another try; 0 says nothing of it.
    """

    def __init__(
        self, code: grpc.StatusCode, reason: str, message: str, *, field: str = "", retry_seconds: float = 0.0
    ) -> None:
        self.message = _bounded(message)
        super().__init__(self.message)
        self.code = code
        self.reason = reason
        self.field = field
        self.retry_seconds = retry_seconds
        self.violations: Sequence[ServiceError] = [self] if field else []
        """One a field that is to blame, the first one's first."""

    @classmethod
    def invalid_fields(cls, errors: Sequence[ServiceError]) -> Self:
        """Returns one INVALID_ARGUMENT for several fields that are wrong, at least one; it blames the first.

        Clients are told of as many as an answer can hold.
        """
        first = errors[0]
        more = f" ({len(errors) - 1} more fields are wrong)" if len(errors) > 1 else ""
        error = cls(first.code, first.reason, f"{first.message}{more}", field=first.field)
        error.violations = list(errors)
        return error

    @classmethod
    def invalid(cls, field: str, problem: str) -> Self:
        """Returns INVALID_ARGUMENT for one field; the message reads `field: problem`."""
        return cls(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", f"{field}: {problem}", field=field)

    @classmethod
    def not_found(cls, field: str, problem: str) -> Self:
        """Returns NOT_FOUND for what the field names."""
        return cls(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", f"{field}: {problem}", field=field)

    @classmethod
    def refused(cls, reason: str, problem: str) -> Self:
        """Returns FAILED_PRECONDITION: it would do what is asked once something else is as it must be."""
        return cls(grpc.StatusCode.FAILED_PRECONDITION, reason, problem)

    @classmethod
    def model_mismatch(cls, problem: str) -> Self:
        """Returns FAILED_PRECONDITION: vectors of a model meet those of another one."""
        advice = "serve the model that the store was made with, or begin a store in a new home"
        return cls.refused("MODEL_MISMATCH", f"{problem}, which cannot be compared; {advice}")

    @classmethod
    def busy(cls, reason: str, problem: str, retry_seconds: float) -> Self:
        """Returns RESOURCE_EXHAUSTED: it would do what is asked once it has done what it was asked before."""
        message = f"{problem}; try again in {retry_seconds:.1f} s"
        return cls(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, message, retry_seconds=retry_seconds)

    @classmethod
    def unavailable(cls, service: str, cause: str) -> Self:
        """Returns UNAVAILABLE naming the service that does not answer."""
        return cls(grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE", f"the {service} service is unavailable: {cause}")

    def to_status(self) -> status_pb2.Status:
        """Returns the google.rpc.Status with one ErrorInfo, BadRequest where fields are to blame, and RetryInfo."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=self.reason, domain=DOMAIN))
        if self.violations:
            status.details.add().Pack(self._bad_request())
        if self.retry_seconds:
            delay = duration_pb2.Duration()
            delay.FromTimedelta(timedelta(seconds=self.retry_seconds))
            status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        return status

    def _bad_request(self) -> error_details_pb2.BadRequest:
        told = error_details_pb2.BadRequest()
        for error in self.violations:
            told.field_violations.append(error._violation())  # noqa: SLF001  # Of its own class.
            if told.ByteSize() > MAX_VIOLATIONS_BYTES:
                del told.field_violations[-1]
                break
        return told

    def _violation(self) -> error_details_pb2.BadRequest.FieldViolation:
        problem = self.message.removeprefix(f"{self.field}: ")
        return error_details_pb2.BadRequest.FieldViolation(field=self.field, description=problem)

    def to_batch_error(self) -> memory_pb2.BatchError:
        """Returns what is told of one item of many."""
        return memory_pb2.BatchError(
            code=self.code.value[0], message=self.message, field=self.field, reason=self.reason
        )

    @classmethod
    def from_status(cls, status: status_pb2.Status) -> Self:
        """Returns the error that a status carries."""
        info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        for detail in status.details:
            for known in (info, bad_request, retry):
                detail.Unpack(known)
        code, reason = status_code(status.code), info.reason or code_pb2.Code.Name(status.code)
        error = cls(code, reason, status.message, retry_seconds=retry.retry_delay.ToTimedelta().total_seconds())
        error.violations = [
            cls(code, reason, f"{each.field}: {each.description}", field=each.field)
            for each in bad_request.field_violations
        ]
        error.field = error.violations[0].field if error.violations else ""
        return error

    @classmethod
    def from_rpc(cls, error: grpc.RpcError, service: str) -> Self:
        """Returns the error that a call to the named service failed with.

        UNAVAILABLE and DEADLINE_EXCEEDED that come from the transport name the service, so that the caller learns which
        one is down.
        """
        call = cast("grpc.Call", error)  # Every error that a stub raises has a call's accessors.
        for key, value in call.trailing_metadata() or ():
            if key == STATUS_KEY and isinstance(value, bytes):
                return cls.from_status(status_pb2.Status.FromString(value))
        if call.code() is grpc.StatusCode.UNAVAILABLE:
            return cls.unavailable(service, "it does not answer")
        if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return cls(call.code(), "DEADLINE_EXCEEDED", f"the {service} service did not answer in time")
        return cls(call.code(), call.code().name, f"the {service} service: {call.details()}")


def _bounded(message: str) -> str:
    """Returns a message as it can be sent: of bounded length, and of what UTF-8 can tell, which paths need not be."""
    encoded = message.encode(errors="backslashreplace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def told(error: BaseException) -> str:
    """Returns what people are told of a failure; of the system's without the number that it has for it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


def status_code(code: grpc.StatusCode | int | None) -> grpc.StatusCode:
    """Returns the status code of a number; of none, OK."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code or 0
    return next((known for known in grpc.StatusCode if known.value[0] == number), grpc.StatusCode.UNKNOWN)
