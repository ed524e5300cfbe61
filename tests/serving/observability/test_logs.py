"""Log lines: one event is one line, whatever its values hold; bursts of refusals are summarised."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re

import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from lingon.line_limit import LineLimit
from lingon.serving.observability.logs import CallLog, ConsoleFormatter, JsonFormatter, event, log_handler
from tests.support.echo_engine import EchoRunner, running
from tests.support.timing import eventually

BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x7f"]
FORGED = "x\n12:00:00 info ready\u2028level=error \x1b[2J\u202e\ud800"


def written(formatter: logging.Formatter, message: str, **fields: object) -> str:
    """The text that a handler writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("lingon.serving.test")
    logger.addHandler(handler)
    event(logger, logging.WARNING, message, **fields)
    return stream.getvalue()


def test_a_json_line_holds_time_level_message_and_fields():
    line = json.loads(written(JsonFormatter(), "call", code="OK", milliseconds=1.5, request_id="r1", trace_id="t1"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "lingon.serving.test",
        "message": "call",
        "code": "OK",
        "milliseconds": 1.5,
        "request_id": "r1",
        "trace_id": "t1",
    }


@given(st.text(st.characters(codec=None)) | st.sampled_from(BREAKS), st.text(st.characters(codec=None)))
def test_no_value_ends_a_line_or_moves_the_cursor(value: str, message: str):
    for formatter in (ConsoleFormatter(), JsonFormatter()):
        text = written(formatter, message, given=value, several=[value, value])
        assert text.endswith("\n")
        assert text[:-1].isprintable()
        text.encode("utf-8")
    assert json.loads(text)["given"] == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("models/en-de", "models/en-de"),
        (0.5, "0.5"),
        ("a b", '"a b"'),
        ("r1 code=OK", '"r1 code=OK"'),
        ("", '""'),
        ('say "no"', r'"say \"no\""'),
        (FORGED, r'"x\n12:00:00 info ready\u2028level=error \u001b[2J\u202e\ud800"'),
        (["a b", "c\nd"], r"['a b', 'c\nd']"),
        ("Grüße", "Grüße"),
    ],
)
def test_values_on_the_console_are_quoted_if_they_could_be_misread(value: object, shown: str):
    assert written(ConsoleFormatter(), "call", name=value).partition(" name=")[2] == f"{shown}\n"


def logged(level: int, calls: list[tuple[str, float]]) -> list[tuple[str, int]]:
    """The codes that are logged for calls that end at these times, each with the number of lines left out before."""
    found: list[tuple[str, int]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            fields = vars(record)["fields"]
            found.append((fields["code"], fields.get("left_out", 0)))

    logger = logging.Logger("lingon.serving.test", level)
    logger.addHandler(Listener())
    clock = [0.0]
    log = CallLog(logger, LineLimit(2, lambda: clock[0]))
    for code, clock[0] in calls:
        log.record(code, method="Translate")
    return found


def test_a_burst_of_refusals_is_a_few_lines_with_a_count():
    storm = [("RESOURCE_EXHAUSTED", 5.0 + index / 1000) for index in range(500)]
    after = [("UNAVAILABLE", 5.9), ("RESOURCE_EXHAUSTED", 8.0), ("RESOURCE_EXHAUSTED", 8.1), ("OK", 8.2)]
    assert logged(logging.INFO, [*storm, *after]) == [
        ("RESOURCE_EXHAUSTED", 0),
        ("RESOURCE_EXHAUSTED", 0),
        ("UNAVAILABLE", 0),
        ("RESOURCE_EXHAUSTED", 498),
        ("RESOURCE_EXHAUSTED", 0),
    ]


def test_every_call_is_logged_at_debug_and_only_failures_of_the_server_at_info():
    calls = [(code, 1.0) for code in ("OK", "CANCELLED", "INVALID_ARGUMENT", *["UNAVAILABLE"] * 5)]
    assert logged(logging.DEBUG, calls) == [(code, 0) for code, _ in calls]
    assert logged(logging.INFO, calls) == [("UNAVAILABLE", 0)] * 2
    assert logged(logging.WARNING, calls) == []


async def test_a_call_that_failed_is_found_by_its_request_id(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "lingon.serving.rpc.interceptors")
    async with running(EchoRunner(dies_at=3)) as server:
        call = server.call("Tom lives", "the sea")
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        request_id = dict(await call.trailing_metadata())["x-request-id"]
    (line,) = (record.fields for record in caplog.records if record.message == "call")
    assert (line["code"], line["method"], line["request_id"]) == ("UNAVAILABLE", "Translate", request_id)
    assert "trace_id" not in line


async def test_an_uncaught_error_is_logged_without_its_message(caplog: pytest.LogCaptureFixture):
    async with running():
        loop = asyncio.get_running_loop()

        def fail() -> None:
            raise ValueError("canary")

        loop.call_soon(fail)
        await eventually(lambda: "an error reached the event loop" in caplog.text)
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.fields["error"] == "ValueError"
    assert "canary" not in ConsoleFormatter().format(record) + caplog.text


async def test_grpc_logs_nothing_about_replies_that_cannot_be_sent():
    async def fail_to_send(request: bytes, context: object) -> bytes:
        raise ExecuteBatchError("Failed grpc_call_start_batch")  # as gRPC raises it for a caller that vanished

    stream = io.StringIO()
    handler, logger = log_handler("console", stream), logging.getLogger("grpc._cython.cygrpc")
    logger.addHandler(handler)
    try:
        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(fail_to_send)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("some", {"Method": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/some/Method")(b"", timeout=0.2)
        await server.stop(0)
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue() == ""
