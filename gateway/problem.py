"""The errors of HTTP requests, before an API formats them."""

from __future__ import annotations

from google.rpc import code_pb2

from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError, WontFinish

HTTP_STATUS: dict[int, int] = {
    code_pb2.CANCELLED: 499,
    code_pb2.INVALID_ARGUMENT: 400,
    code_pb2.DEADLINE_EXCEEDED: 504,
    code_pb2.NOT_FOUND: 404,
    code_pb2.ALREADY_EXISTS: 409,
    code_pb2.PERMISSION_DENIED: 403,
    code_pb2.RESOURCE_EXHAUSTED: 429,
    code_pb2.FAILED_PRECONDITION: 400,
    code_pb2.ABORTED: 409,
    code_pb2.OUT_OF_RANGE: 400,
    code_pb2.UNIMPLEMENTED: 501,
    code_pb2.UNAVAILABLE: 503,
    code_pb2.UNAUTHENTICATED: 401,
}
"""The HTTP status of a gRPC status, as in google/rpc/code.proto; 500 for the others."""

OVERLOADED = 503
"""The HTTP status of a request that would not finish in time. A later request may succeed."""

CODE: dict[int, int] = {
    400: code_pb2.INVALID_ARGUMENT,
    401: code_pb2.UNAUTHENTICATED,
    403: code_pb2.PERMISSION_DENIED,
    404: code_pb2.NOT_FOUND,
    405: code_pb2.UNIMPLEMENTED,
    408: code_pb2.DEADLINE_EXCEEDED,
    413: code_pb2.INVALID_ARGUMENT,
    415: code_pb2.INVALID_ARGUMENT,
    426: code_pb2.FAILED_PRECONDITION,
    429: code_pb2.RESOURCE_EXHAUSTED,
    501: code_pb2.UNIMPLEMENTED,
    503: code_pb2.UNAVAILABLE,
}
"""The gRPC status of an HTTP status that the gateway itself returns."""


class Problem(LingonError):
    """The error of a request.

    http_status: 400 to 599
    code: google.rpc.Code
    reason: machine-readable, of google.rpc.ErrorInfo; empty without one
    field: name of the invalid field, as in google.rpc.BadRequest; empty without one
    retry_after: seconds until a retry makes sense, or None if it never does
    """

    def __init__(
        self,
        http_status: int,
        message: str,
        *,
        code: int | None = None,
        reason: str = "",
        field: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.http_status, self.reason, self.field, self.retry_after = http_status, reason, field, retry_after
        self.code = CODE.get(http_status, code_pb2.UNKNOWN) if code is None else code

    @property
    def status(self) -> str:
        """The name of the code, such as INVALID_ARGUMENT."""
        return code_pb2.Code.Name(self.code)

    @property
    def http_status_of_pair(self) -> int:
        """The status in APIs without a model in their paths, where an unknown pair of languages is an invalid field."""
        return 400 if self.reason == "UNKNOWN_MODEL" else self.http_status

    @property
    def is_quota(self) -> bool:
        """Whether the quota of the key is used up. Another key may succeed."""
        return self.reason == "QUOTA_EXCEEDED"

    @property
    def is_overload(self) -> bool:
        """Whether the server is overloaded or out of memory, for any caller."""
        return self.code == code_pb2.RESOURCE_EXHAUSTED and not self.is_quota


def problem_of(error: ServerError) -> Problem:
    """Return the problem of an error of the server. The text of internal errors is not passed on."""
    internal = error.code in (code_pb2.INTERNAL, code_pb2.UNKNOWN, code_pb2.DATA_LOSS)
    message = "the server failed to answer; its log says why" if internal else str(error)
    return Problem(
        OVERLOADED if error.reason == WontFinish.reason else HTTP_STATUS.get(error.code, 500),
        message,
        code=error.code,
        reason=error.reason,
        field=error.violations[0][0] if error.violations else "",
        retry_after=error.retry_after,
    )


def problem_of_request(error: RequestError) -> Problem:
    """Return the problem of a request that the gateway itself refuses with an error of the server's kind."""
    return Problem(
        HTTP_STATUS.get(error.code, 500),
        str(error),
        code=error.code,
        reason=error.reason,
        field=error.field if isinstance(error, InvalidRequest) else "",
    )
