"""Every error that Lingon raises on purpose, and the gRPC status each one becomes.

LingonError                     a message of one line. Exit code 1
|-- Interrupted                 a signal stopped the work, nothing is lost; exit code 130 or 143, printed as no error
|-- SettingsError               a setting is unknown, of the wrong type or out of bounds. Exit code 2
|-- CorpusError                 a corpus file cannot be read as parallel text
|-- MarkupError                 a text that should be XML is not well-formed
|-- CheckpointError             a checkpoint is missing, incomplete or does not fit
|-- SourceModelError            files of another toolkit are not a model that Lingon reads
|-- DownloadError               a file of a model cannot be downloaded, or is not the one that was expected
|-- BundleError                 a bundle is missing, altered, or in a format that this version does not read
|   `-- DamagedBundle           a file of a bundle is missing, altered or not listed, as while it is being copied
|-- ParityError                 the outputs of an exported graph differ from those of its checkpoint
|-- DeviceError                 the requested device cannot be used
|-- ServerError                 a server answered a client with an error status
`-- RequestError                a request is wrong, or the service cannot answer it now
    |-- InvalidRequest          INVALID_ARGUMENT    a field is out of bounds
    |   |-- TextTooLong         INVALID_ARGUMENT    more source tokens than the model reads
    |   `-- RequestTooLarge     INVALID_ARGUMENT    more sentences or tokens than a queue holds. Send it in several
    |-- UnknownModel            NOT_FOUND           no served model has this name or language pair
    |-- Unsupported             UNIMPLEMENTED       the model does not support an option
    |-- QueueFull               RESOURCE_EXHAUSTED  the queue is full; retry later
    |-- TooManyCalls            RESOURCE_EXHAUSTED  too many calls are open or hold too much. Retry later
    |-- QuotaExceeded           RESOURCE_EXHAUSTED  the quota of the API key is used up for now
    |-- Expired                 DEADLINE_EXCEEDED   the deadline passed before the work was done
    |   `-- NotBegun            DEADLINE_EXCEEDED   the deadline passed before the work began
    |       `-- WontFinish      DEADLINE_EXCEEDED   the work was estimated to end after the deadline and did not begin
    |-- Cancelled               CANCELLED           the caller cancelled or disconnected
    |-- Draining                UNAVAILABLE         starting or shutting down; safe to retry
    |   `-- ModelUnloaded       UNAVAILABLE         the model was unloaded or replaced. Safe to retry
    |-- ModelNotLoadable        UNAVAILABLE         the model could not be loaded; the next attempt is later
    |-- ModelTooLarge           FAILED_PRECONDITION the model needs more memory than the server may use for models
    |-- ModelMemoryFull         RESOURCE_EXHAUSTED  busy models have the memory that the model needs. Retry later
    |-- EngineLost              UNAVAILABLE         the engine failed and is restarted. Safe to retry
    |-- OutOfMemory             RESOURCE_EXHAUSTED  there was no memory to compute it. Safe to retry
    |-- Unauthenticated         UNAUTHENTICATED     the API key is missing or unknown
    |   `-- AuthenticationUnavailable UNAUTHENTICATED  the server's file of keys or authorities is unusable
    |-- Forbidden               PERMISSION_DENIED   the API key does not permit this call
    |-- ChangeRefused           FAILED_PRECONDITION a change of the served models is not possible
    |-- ChangeInProgress        ABORTED             another change of the served models is in progress
    |-- NotStored               NOT_FOUND           the caller has no glossary or memory of this name
    |-- AlreadyStored           ALREADY_EXISTS      the caller has one of this name, and wants to create it
    |-- StoredVersionChanged    ABORTED             somebody changed it since the caller read it
    |-- StoreFull               RESOURCE_EXHAUSTED  the caller would have more than the server keeps for it
    |-- DiskFull                RESOURCE_EXHAUSTED  the disk of the server has no room
    |-- StoreBusy               UNAVAILABLE         other changes of the caller's data take long. Safe to retry
    |-- StoredDamaged           DATA_LOSS           a stored glossary or memory cannot be read
    |-- Degenerate              FAILED_PRECONDITION the guard suspects the translation, and the request refuses such
    `-- EngineFault             INTERNAL            decoding failed. The cause is in the server's log
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.rpc import code_pb2


def first_of(names: Sequence[str], most: int) -> str:
    """Return names for a message of one line, the first `most` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class LingonError(Exception):
    """Base of all errors raised on purpose. Its message is one line that says what is wrong."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle and copy call `__init__` with the message only, but some subclasses take more arguments.
        # dataclasses.asdict copies the errors in results, and errors of worker processes are pickled.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[LingonError], values: tuple[Any, ...]) -> LingonError:
    """Return an error made without `__init__`. Pickle restores its attributes afterwards."""
    return kind.__new__(kind, *values)


class Interrupted(LingonError):
    """A signal stopped the work and nothing is lost. Its message says how to go on and is printed as no error.

    signal_number: the exit code is the one that a shell reports for a process that this signal ends
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class SettingsError(LingonError):
    """A setting is unknown, of the wrong type or out of bounds."""

    exit_code = 2


class CorpusError(LingonError):
    """A text file cannot be read. The message names file and line."""


class MarkupError(LingonError):
    """A text that should be XML is not well-formed. The message names line and column, which count from 1."""


class CheckpointError(LingonError):
    """A checkpoint is missing, incomplete or does not fit the model."""


class SourceModelError(LingonError):
    """The files of a model of another toolkit cannot be read, contradict each other, or are of an unknown form."""


class DownloadError(LingonError):
    """A file of a model cannot be downloaded, or is not the one that was expected. The message names the URL."""


class BundleError(LingonError):
    """A bundle is missing, altered, or in a format that this version does not read."""


class DamagedBundle(BundleError):
    """A bundle is not whole: a file is missing, unreadable, altered or not listed, as while it is being copied."""


class ParityError(LingonError):
    """The outputs of an exported graph differ from those of its checkpoint."""


class DeviceError(LingonError):
    """The requested device or provider cannot be used."""


class ServerError(LingonError):
    """A server answered a call, or one text of it, with an error status.

    code: the `google.rpc.Code` number, as in grpc.StatusCode; `status` is its name
    reason: the machine-readable reason of `google.rpc.ErrorInfo`, such as QUEUE_FULL, empty if there is none
    violations: the fields that are out of bounds and why, from `google.rpc.BadRequest`
    request_id: the ID of the request in the server's log, empty if the server did not send it
    retry_after: seconds to wait before a retry, from `google.rpc.RetryInfo`
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
    """A request is wrong, or the service cannot answer it now.

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


class TextTooLong(InvalidRequest):
    """A text has more tokens than the model reads, and splitting it was not requested or is not possible."""

    reason = "TEXT_TOO_LONG"


class RequestTooLarge(InvalidRequest):
    """The texts of a request have more sentences, tokens or characters together than the server queues, or the
    attention matrices of its result have more weights than a request may have.
    """

    reason = "REQUEST_TOO_LARGE"


class UnknownModel(RequestError):
    """No served model has this name, version or language pair.

    resource: the model that the request named, as in `google.rpc.ResourceInfo`
    """

    code = code_pb2.NOT_FOUND
    reason = "UNKNOWN_MODEL"

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class Unsupported(RequestError):
    """The model or the method does not support an option."""

    code = code_pb2.UNIMPLEMENTED
    reason = "UNSUPPORTED_OPTION"


class QueueFull(RequestError):
    """The queue is full. The caller should retry later."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "QUEUE_FULL"


class TooManyCalls(RequestError):
    """Too many calls are open, or their requests hold too much memory. The caller should retry later."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "TOO_MANY_CALLS"


class QuotaExceeded(RequestError):
    """The quota of an API key is used up for now.

    retry_after: seconds until the quota permits the request
    """

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "QUOTA_EXCEEDED"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(RequestError):
    """The deadline passed before the work was done."""

    code = code_pb2.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class NotBegun(Expired):
    """The deadline passed before the work began."""

    reason = "NOT_BEGUN"


class WontFinish(NotBegun):
    """The work was estimated to end after the deadline, so it did not begin."""

    reason = "WONT_FINISH"


class Cancelled(RequestError):
    """The caller cancelled the request or disconnected."""

    code = code_pb2.CANCELLED
    reason = "CANCELLED"


class Draining(RequestError):
    """The server is starting or shutting down, or the model is being replaced. The same call is safe to retry."""

    code = code_pb2.UNAVAILABLE
    reason = "DRAINING"


class ModelUnloaded(Draining):
    """The model was unloaded or replaced before the request was done. The same call is safe to retry."""

    reason = "MODEL_UNLOADED"

    def __init__(self, message: str = "the model was unloaded before the request was done; try again") -> None:
        super().__init__(message)


class ModelNotLoadable(RequestError):
    """A cold model could not be loaded, now or a short time ago.

    retry_after: seconds until the server tries again
    """

    code = code_pb2.UNAVAILABLE
    reason = "MODEL_NOT_LOADABLE"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelTooLarge(RequestError):
    """A cold model needs more memory than the server may use for models beside the pinned ones."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "MODEL_TOO_LARGE"


class ModelMemoryFull(RequestError):
    """Models with requests in flight have the memory that a cold model needs. The caller should retry later."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "MODEL_MEMORY_FULL"


class EngineLost(RequestError):
    """The engine failed with this request in it and is restarted. The same call is safe to retry."""

    code = code_pb2.UNAVAILABLE
    reason = "ENGINE_RESTARTING"


class OutOfMemory(RequestError):
    """There was no memory to compute this text beside the others. The same call is safe to retry."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "OUT_OF_MEMORY"


class Unauthenticated(RequestError):
    """The API key is missing or unknown."""

    code = code_pb2.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class AuthenticationUnavailable(Unauthenticated):
    """The server's file of API keys or client authorities has been unusable for too long. No caller is admitted."""

    reason = "AUTHENTICATION_UNAVAILABLE"


class Forbidden(RequestError):
    """The API key is known, but does not permit this call."""

    code = code_pb2.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class ChangeRefused(RequestError):
    """A change of the served models is not possible with this bundle or with the models served now."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "CHANGE_REFUSED"


class ChangeInProgress(RequestError):
    """A change of the served models is refused because another one is in progress."""

    code = code_pb2.ABORTED
    reason = "CHANGE_UNDER_WAY"


class NotStored(RequestError):
    """The server keeps no glossary or memory of this name for the caller, or none for these languages.

    kind: "glossary" or "memory"; resource: the name, as in `google.rpc.ResourceInfo`
    """

    code = code_pb2.NOT_FOUND
    reason = "NOT_STORED"

    def __init__(self, kind: str, resource: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.resource = kind, resource


class AlreadyStored(RequestError):
    """The caller wants to create a glossary or memory, and has one of this name."""

    code = code_pb2.ALREADY_EXISTS
    reason = "ALREADY_STORED"


class StoredVersionChanged(RequestError):
    """A glossary or memory does not have the version that the caller expects. The caller should read it again."""

    code = code_pb2.ABORTED
    reason = "VERSION_CHANGED"


class StoreFull(RequestError):
    """The caller would have more glossaries, memories, terms or bytes than the server keeps for it."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "STORE_FULL"


class DiskFull(RequestError):
    """The disk on which the server keeps glossaries and memories has no room. Nothing was changed."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "DISK_FULL"


class StoreBusy(RequestError):
    """Other changes of the caller's glossaries and memories take long. The same call is safe to retry."""

    code = code_pb2.UNAVAILABLE
    reason = "STORE_BUSY"


class StoredDamaged(RequestError):
    """The file of a glossary or memory cannot be read. It can be removed, and stored again."""

    code = code_pb2.DATA_LOSS
    reason = "STORED_DAMAGED"


class Degenerate(RequestError):
    """The guard suspects the translation of a text, and the request refuses such translations."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "DEGENERATE"


class EngineFault(RequestError):
    """Decoding failed inside the server. The cause is in the server's log, not in the message."""

    code = code_pb2.INTERNAL
    reason = "ENGINE_FAULT"
