"""The tree of errors and the gRPC status of each."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import asdict

import grpc
import pytest
from google.rpc import code_pb2

from lingon import errors
from lingon.client.results import TextResult
from lingon.errors import InvalidRequest, LingonError, RequestError, ServerError

TABLE = {
    "InvalidRequest": "INVALID_ARGUMENT",
    "TextTooLong": "INVALID_ARGUMENT",
    "RequestTooLarge": "INVALID_ARGUMENT",
    "UnknownModel": "NOT_FOUND",
    "Unsupported": "UNIMPLEMENTED",
    "QueueFull": "RESOURCE_EXHAUSTED",
    "TooManyCalls": "RESOURCE_EXHAUSTED",
    "Expired": "DEADLINE_EXCEEDED",
    "NotBegun": "DEADLINE_EXCEEDED",
    "Cancelled": "CANCELLED",
    "Draining": "UNAVAILABLE",
    "QuotaExceeded": "RESOURCE_EXHAUSTED",
    "WontFinish": "DEADLINE_EXCEEDED",
    "EngineLost": "UNAVAILABLE",
    "OutOfMemory": "RESOURCE_EXHAUSTED",
    "ModelUnloaded": "UNAVAILABLE",
    "Unauthenticated": "UNAUTHENTICATED",
    "AuthenticationUnavailable": "UNAUTHENTICATED",
    "Forbidden": "PERMISSION_DENIED",
    "ChangeRefused": "FAILED_PRECONDITION",
    "ChangeInProgress": "ABORTED",
    "ModelTooLarge": "FAILED_PRECONDITION",
    "ModelMemoryFull": "RESOURCE_EXHAUSTED",
    "ModelNotLoadable": "UNAVAILABLE",
    "NotStored": "NOT_FOUND",
    "AlreadyStored": "ALREADY_EXISTS",
    "StoredVersionChanged": "ABORTED",
    "StoreFull": "RESOURCE_EXHAUSTED",
    "DiskFull": "RESOURCE_EXHAUSTED",
    "StoreBusy": "UNAVAILABLE",
    "StoredDamaged": "DATA_LOSS",
    "Degenerate": "FAILED_PRECONDITION",
    "EngineFault": "INTERNAL",
}


MORE = {
    "signal_number": 2,  # arguments of errors other than the message
    "code": code_pb2.RESOURCE_EXHAUSTED,
    "reason": "QUEUE_FULL",
    "violations": (("texts[0]", "is empty"),),
    "request_id": "request-7",
    "retry_after": 0.5,
    "field": "texts[0]",
    "resource": "en-fr",
    "kind": "glossary",
}


def tree(root: type[LingonError]) -> list[type[LingonError]]:
    """The classes of errors.py below root; other modules may refine them."""
    below = [kind for child in root.__subclasses__() for kind in (child, *tree(child))]
    return [kind for kind in below if kind.__module__ == errors.__name__]


def test_every_request_error_has_its_status_and_there_is_no_other() -> None:
    found = {
        kind.__name__: code_pb2.Code.Name(kind.code) for kind in tree(RequestError) if issubclass(kind, RequestError)
    }
    assert found == TABLE


def test_every_status_is_one_of_grpc() -> None:
    known = {code.name: code.value[0] for code in grpc.StatusCode}
    assert all(known[name] == code_pb2.Code.Value(name) for name in TABLE.values())


def test_every_request_error_has_its_own_reason() -> None:
    reasons = [kind.reason for kind in tree(RequestError) if issubclass(kind, RequestError)]
    assert len(set(reasons)) == len(reasons)
    assert all(reason.isupper() and reason.replace("_", "").isalpha() for reason in reasons)


def test_the_tree_in_the_docstring_names_every_error_with_its_status() -> None:
    drawing = (errors.__doc__ or "").splitlines()
    for kind in tree(LingonError):
        (line,) = [line for line in drawing if f"|-- {kind.__name__} " in line or f"`-- {kind.__name__} " in line]
        assert TABLE.get(kind.__name__, "") in line


def test_only_settings_errors_have_exit_code_2() -> None:
    assert {kind.__name__: kind.exit_code for kind in tree(LingonError) if kind.exit_code != 1} == {"SettingsError": 2}


def test_an_invalid_request_names_its_field() -> None:
    error = InvalidRequest("options.beam_size", "beam_size must be at most 8, got 9")
    assert (error.field, str(error)) == ("options.beam_size", "beam_size must be at most 8, got 9")


@pytest.mark.parametrize(("code", "name"), [(3, "INVALID_ARGUMENT"), (14, "UNAVAILABLE"), (99, "CODE_99")])
def test_a_server_error_has_the_name_of_its_code(code: int, name: str) -> None:
    error = ServerError("no", code)
    assert (error.status, error.reason, error.violations, error.retry_after) == (name, "", (), None)


@pytest.mark.parametrize("kind", [LingonError, *tree(LingonError)], ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_and_copying(kind: type[LingonError]) -> None:
    own = inspect.isfunction(kind.__init__)
    known = {name: MORE[name] for name in inspect.signature(kind.__init__).parameters if own and name in MORE}
    error = kind(message="no", **known) if known else kind("no")
    error.add_note("seen twice")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - our own bytes
        assert (type(again), str(again), again.args, vars(again)) == (kind, "no", ("no",), vars(error))


def test_a_result_that_holds_an_error_becomes_a_dictionary() -> None:
    found = asdict(TextResult(error=ServerError("no", 3, reason="TEXT_TOO_LONG")))["error"]
    assert (str(found), found.code, found.reason) == ("no", 3, "TEXT_TOO_LONG")
