"""Every error that Lingon raises on purpose, and the gRPC status each one becomes.

LingonError                     one clear line for a person; exit code 1
|-- SettingsError               a setting is unknown, of the wrong kind or out of bounds; exit code 2
|-- CorpusError                 a corpus file cannot be read as parallel text
|-- CheckpointError             a checkpoint is missing, incomplete or does not fit
|-- BundleError                 a bundle is missing, altered, or of a format this version does not read
|-- ParityError                 an exported graph does not answer as its checkpoint does
|-- DeviceError                 the device asked for cannot serve
|-- ServerError                 a server answered a client with an error status
`-- RequestError                what a caller of the service got wrong, or what the service cannot do now
    |-- InvalidRequest          INVALID_ARGUMENT    a field is out of bounds
    |   |-- EmptyText           INVALID_ARGUMENT    nothing to translate
    |   `-- TextTooLong         INVALID_ARGUMENT    more source tokens than the model reads
    |-- UnknownModel            NOT_FOUND           no such model or language pair
    |-- Unsupported             UNIMPLEMENTED       the model cannot do what the option asks
    |-- QueueFull               RESOURCE_EXHAUSTED  too much is waiting; try again later
    |-- QuotaExceeded           RESOURCE_EXHAUSTED  the key has used up what it may have for now
    |-- Expired                 DEADLINE_EXCEEDED   the deadline passed before the work was done
    |   `-- NotBegun            DEADLINE_EXCEEDED   the deadline passed before the work was begun
    |       `-- WontFinish      DEADLINE_EXCEEDED   the deadline would pass before the work is done: it was not begun
    |-- Cancelled               CANCELLED           the caller went away
    |-- Draining                UNAVAILABLE         starting or shutting down; safe to retry
    |   `-- ModelUnloaded       UNAVAILABLE         the model was unloaded or replaced; safe to retry
    |-- EngineLost              UNAVAILABLE         the engine failed and is started anew; safe to retry
    |-- Unauthenticated         UNAUTHENTICATED     no key, or none that is known
    |-- Forbidden               PERMISSION_DENIED   the key does not open this door
    |-- ChangeRefused           FAILED_PRECONDITION  a change to the models that the bundle or what is served forbids
    |-- ChangeInProgress          ABORTED             another change to the models is not done yet
    `-- EngineFault             INTERNAL            decoding failed; the cause is in the server's log
"""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2


class LingonError(Exception):
    """Base of all errors raised on purpose; its text is one line that a person can act on."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the text alone, which some want more than. A result that holds an error is
        # copied (dataclasses.asdict), an error of a worker pickled.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[LingonError], values: tuple[Any, ...]) -> LingonError:
    """An error without what its __init__ sets, which comes after."""
    return kind.__new__(kind, *values)


class SettingsError(LingonError):
    """A setting is unknown, of the wrong kind or out of bounds."""

    exit_code = 2


class CorpusError(LingonError):
    """A corpus file cannot be read as parallel text; the message names file and line."""


class CheckpointError(LingonError):
    """A checkpoint is missing, incomplete or does not fit the model."""


class BundleError(LingonError):
    """A bundle is missing, altered, or of a format that this version does not read."""


class ParityError(LingonError):
    """An exported graph does not answer as the checkpoint it was made from."""


class DeviceError(LingonError):
    """The device or provider that was asked for cannot serve."""


class ServerError(LingonError):
    """A server ended a call, or refused one text of it, with an error status.

    code: the `google.rpc.Code` number, as in grpc.StatusCode; `status` is its name
    reason: the machine-readable reason of `google.rpc.ErrorInfo`, such as QUEUE_FULL; empty where there is none
    violations: the fields that are out of bounds and why, from `google.rpc.BadRequest`
    request_id: what the server's log calls this request; empty where it did not say
    retry_after: seconds to wait before another try, from `google.rpc.RetryInfo`
    """

    def __init__(
        self,
        message: str,
        code: int,
        *,
        reason: str = "",
        violations: tuple[tuple[str, str], ...] = (),
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.violations = violations
        self.request_id = request_id
        self.retry_after = retry_after

    @property
    def status(self) -> str:
        """The name of the code, such as INVALID_ARGUMENT."""
        return code_pb2.Code.Name(self.code) if self.code in code_pb2.Code.values() else f"CODE_{self.code}"


class RequestError(LingonError):
    """What a caller of the service got wrong, or what the service cannot do now.

    code: the `google.rpc.Code` of the reply
    reason: the machine-readable reason of `google.rpc.ErrorInfo`
    """

    code: int = code_pb2.UNKNOWN
    reason: str = "UNKNOWN"


class InvalidRequest(RequestError):
    """A field of the request is out of bounds.

    field: the path of the field in the request, as in `google.rpc.BadRequest`
    """

    code = code_pb2.INVALID_ARGUMENT
    reason = "INVALID_FIELD"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class EmptyText(InvalidRequest):
    """A text holds nothing to translate."""

    reason = "EMPTY_TEXT"


class TextTooLong(InvalidRequest):
    """A text has more tokens than the model reads, and splitting was not allowed or cannot help."""

    reason = "TEXT_TOO_LONG"


class UnknownModel(RequestError):
    """No served model has this name, version or language pair.

    resource: what the request named, as in `google.rpc.ResourceInfo`
    """

    code = code_pb2.NOT_FOUND
    reason = "UNKNOWN_MODEL"

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class Unsupported(RequestError):
    """The model or the method cannot do what an option asks."""

    code = code_pb2.UNIMPLEMENTED
    reason = "UNSUPPORTED_OPTION"


class QueueFull(RequestError):
    """Too much is waiting already; the caller should come back later."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"


class QuotaExceeded(RequestError):
    """A key has used up what it may have for now.

    retry_after: seconds until there is enough again
    """

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "QUOTA_EXCEEDED"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(RequestError):
    """The deadline of the caller passed before the work was done."""

    code = code_pb2.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class NotBegun(Expired):
    """The deadline of the caller passed before the work was begun."""

    reason = "NOT_BEGUN"


class WontFinish(NotBegun):
    """The deadline of the caller would pass before the work is done, as things stand; it was not begun."""

    reason = "WONT_FINISH"


class Cancelled(RequestError):
    """The caller went away."""

    code = code_pb2.CANCELLED
    reason = "CANCELLED"


class Draining(RequestError):
    """The server is starting or shutting down, or the model is being replaced; the same call is safe to retry."""

    code = code_pb2.UNAVAILABLE
    reason = "DRAINING"


class ModelUnloaded(Draining):
    """The model was unloaded or replaced before the request was done; the same call is safe to retry."""

    reason = "MODEL_UNLOADED"

    def __init__(self, message: str = "the model was unloaded before the request was done; try again") -> None:
        super().__init__(message)


class EngineLost(RequestError):
    """The engine failed with this request in it and is started anew; the same call is safe to retry."""

    code = code_pb2.UNAVAILABLE
    reason = "ENGINE_RESTARTING"


class Unauthenticated(RequestError):
    """The caller brought no key, or none that is known."""

    code = code_pb2.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class Forbidden(RequestError):
    """The caller is known, but may not do this."""

    code = code_pb2.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class ChangeRefused(RequestError):
    """A change to what is served is not made: the bundle, or what is served already, does not allow it."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "CHANGE_REFUSED"


class ChangeInProgress(RequestError):
    """A change to what is served is not made because another one is not done yet."""

    code = code_pb2.ABORTED
    reason = "CHANGE_UNDER_WAY"


class EngineFault(RequestError):
    """Decoding failed inside the server; the text says no more than that, the log says why."""

    code = code_pb2.INTERNAL
    reason = "ENGINE_FAULT"
