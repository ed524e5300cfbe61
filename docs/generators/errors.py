"""The errors that a server returns."""

from __future__ import annotations

from collections.abc import Iterator

from google.rpc import code_pb2

from docs.generators.markdown import code, plain, table
from lingon.errors import InvalidRequest, LingonError, QuotaExceeded, RequestError, UnknownModel
from lingon.status import retry_milliseconds


def errors() -> str:
    """The table of statuses: code, reason, meaning, when to retry."""
    rows = []
    for kind in _kinds(RequestError):
        meaning = plain((kind.__doc__ or "").split("\n\n")[0])
        rows.append((code(code_pb2.Code.Name(kind.code)), code(kind.reason), meaning, _retry(kind)))
    return table(("code", "reason", "meaning", "retry"), rows)


def exit_codes() -> str:
    """The table of the errors of the command with their exit codes."""
    kinds = [kind for kind in LingonError.__subclasses__() if kind.__module__ == LingonError.__module__]
    kinds.remove(RequestError)  # ends a call of a server, see errors()
    rows = [(code(kind.__name__), str(kind.exit_code), plain((kind.__doc__ or "").split("\n\n")[0])) for kind in kinds]
    return table(("error", "exit code", "meaning"), rows)


def _kinds(kind: type[RequestError]) -> Iterator[type[RequestError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _retry(kind: type[RequestError]) -> str:
    if issubclass(kind, QuotaExceeded):
        return "after the time in RetryInfo"
    error = kind("", "") if issubclass(kind, InvalidRequest | UnknownModel) else kind("")
    wait = retry_milliseconds(error)
    return f"after {wait} ms" if wait else "no"
