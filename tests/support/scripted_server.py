"""A server that translates to upper case and fails as scripted, and the real command against it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from lingon.terms.matcher import Found, Matcher
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc
from tests.support import live_service
from tests.support.forked_commands import ForkedCommands
from tests.support.repository import ROOT

MODEL = {"model": "en-de", "version": "1"}


@dataclass
class ScriptedFault:
    """The error that ends a call instead of an answer. details: error details of the status."""

    code: grpc.StatusCode
    message: str = "scripted"
    details: tuple[Message, ...] = ()
    after_events: int = 0  # of a stream

    def end(self, context: grpc.ServicerContext) -> None:
        trailers: list[tuple[str, Any]] = [("x-request-id", "request-7")]
        if self.details:
            status = status_pb2.Status(code=self.code.value[0], message=self.message)
            for detail in self.details:
                status.details.add().Pack(detail)
            trailers.append(("grpc-status-details-bin", status.SerializeToString()))
        context.set_trailing_metadata(tuple(trailers))
        context.abort(self.code, self.message)


def queue_full(seconds: float) -> ScriptedFault:
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(int(1000 * seconds))
    info = error_details_pb2.ErrorInfo(reason="QUEUE_FULL", domain="lingon")
    return ScriptedFault(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much is waiting", (info, retry))


@dataclass
class FakeService(translation_pb2_grpc.TranslationServiceServicer):
    """faults: one is taken by each call, in order; delay: seconds before every answer; ending: set when the
    server ends, which no delay outlasts

    speakers_left: released when the call of a live speaker has ended
    """

    faults: list[ScriptedFault] = field(default_factory=list)
    max_texts: int = 4
    delay: float = 0.0
    requests: list[Any] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    metadata: list[tuple[str, Any]] = field(default_factory=list)
    listed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ending: threading.Event = field(default_factory=threading.Event)
    speakers_left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def Translate(self, request: pb.TranslateRequest, context: grpc.ServicerContext) -> pb.TranslateResponse:
        self._begin(request, context)
        results = [translated(text, request, position) for position, text in enumerate(request.texts)]
        return pb.TranslateResponse(results=results, **MODEL)

    def TranslateStream(
        self, request: pb.TranslateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.TranslateStreamResponse]:
        fault = self._begin(request, context)
        for number, event in enumerate(self._events(request)):
            if fault is not None and number == fault.after_events:
                fault.end(context)
            yield event

    def TranslateLive(
        self, requests: Iterator[pb.TranslateLiveRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.TranslateLiveResponse]:
        context.add_callback(self.speakers_left.release)
        start = next(requests)
        fault = self._begin(start, context)
        for number, answer in enumerate(live_service.talk(self._heard(start, requests), **MODEL)):
            if fault is not None and number == fault.after_events:
                fault.end(context)
            yield answer

    def _heard(
        self, start: pb.TranslateLiveRequest, rest: Iterator[pb.TranslateLiveRequest]
    ) -> Iterator[pb.TranslateLiveRequest]:
        yield start
        for request in rest:
            self.requests.append(request)
            yield request

    def Score(self, request: pb.ScoreRequest, context: grpc.ServicerContext) -> pb.ScoreResponse:
        self._begin(request, context)
        return pb.ScoreResponse(results=[scored(pair, request) for pair in request.pairs], **MODEL)

    def ListModels(self, request: pb.ListModelsRequest, context: grpc.ServicerContext) -> pb.ListModelsResponse:
        self.listed += 1
        model = pb.Model(
            name="en-de", version="1", source_language_code="en", target_language_code="de", precision="fp32"
        )
        return pb.ListModelsResponse(models=[model], max_texts=self.max_texts)

    def _begin(self, request: Any, context: grpc.ServicerContext) -> ScriptedFault | None:
        with self.lock:
            self.requests.append(request)
            self.arrivals.append(time.monotonic())
            self.metadata = list(context.invocation_metadata())
            fault = self.faults.pop(0) if self.faults else None
        self.ending.wait(self.delay)
        if fault is not None and fault.after_events == 0:
            fault.end(context)
        return fault

    @staticmethod
    def _events(request: pb.TranslateStreamRequest) -> Iterator[pb.TranslateStreamResponse]:
        yield pb.TranslateStreamResponse(start=pb.StreamStart(**MODEL))
        for position, text in enumerate(request.texts):
            result = translated(text, request, position)
            for character in result.hypotheses[0].text if result.hypotheses else "":
                yield pb.TranslateStreamResponse(delta=pb.TextDelta(text_index=position, text=character))
            yield pb.TranslateStreamResponse(done=pb.TextDone(text_index=position, result=result))


def translated(text: str, request: Any, position: int) -> pb.TextResult:
    """Translate to upper case. "bad" is an error, "long" is split or refused, a sampled text names seed and index."""
    if "bad" in text:
        status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="too many tokens")
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason="TEXT_TOO_LONG", domain="lingon"))
        return pb.TextResult(status=status)
    if "long" in text and request.options.long_text != pb.LONG_TEXT_POLICY_SPLIT:
        message = (
            f"texts[{position}] has 9 tokens, the model reads 5 at most; shorten it or set options.long_text to "
            "LONG_TEXT_POLICY_SPLIT"
        )
        status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=message)
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason="TEXT_TOO_LONG", domain="lingon"))
        return pb.TextResult(status=status)
    if not text.strip("\u200b "):
        status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="nothing to translate")
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason="EMPTY_TEXT", domain="lingon"))
        return pb.TextResult(status=status)
    options = request.options
    target = text.upper() + (f" {options.sampling.seed}+{position}" if options.HasField("sampling") else "")
    prefix = request.target_prefixes[position] if request.target_prefixes else ""
    words = target.split(" ")
    hypotheses = [
        pb.Hypothesis(
            text=prefix + target,
            score=-0.5 - rank,
            finish_reason=pb.FINISH_REASON_END,
            tokens=[pb.Token(piece=f"▁{word}", log_prob=-0.25) for word in words] if options.return_tokens else [],
            alignment=word_links(text) if options.return_alignment else [],
        )
        for rank in range(max(options.num_hypotheses, 1))
    ]
    warnings = [pb.Warning(code=pb.WARNING_CODE_SPLIT, message="translated in parts")] if "long" in text else []
    outcomes = [term_outcome(found, hypotheses[0].text) for found in matcher_of(request).find(text)]
    if missed := [each.source for each in outcomes if each.means == pb.TERM_MEANS_MISSED]:
        message = f"{len(missed)} of {len(outcomes)} terms are missed: {', '.join(missed)}"
        warnings.append(pb.Warning(code=pb.WARNING_CODE_TERM_MISSED, message=message))
    return pb.TextResult(
        hypotheses=hypotheses,
        warnings=warnings,
        terms=outcomes,
        usage=pb.Usage(source_tokens=3, target_tokens=4),
        normalised_text=text if options.return_alignment else "",
    )


def matcher_of(request: Any) -> Matcher:
    return Matcher([Term.of(each) for each in request.terms], "en")


def term_outcome(found: Found, translation: str) -> pb.TermOutcome:
    """A target is in a translation if its source is written so in capitals."""
    begin = translation.find(found.term.target)
    outcome = pb.TermOutcome(
        source=found.term.source,
        target=found.term.target,
        source_span=pb.Span(begin=found.begin, end=found.end),
        means=pb.TERM_MEANS_MISSED if begin < 0 else pb.TERM_MEANS_FREE,
    )
    if begin >= 0:
        outcome.target_span.CopyFrom(pb.Span(begin=begin, end=begin + len(found.term.target)))
    return outcome


def scored(pair: pb.ScorePair, request: pb.ScoreRequest) -> pb.ScoreResult:
    if "bad" in pair.source:
        return pb.ScoreResult(status=status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="too many tokens"))
    tokens = [pb.Token(piece=f"▁{word}", log_prob=-1.0) for word in pair.target.split()]
    tokens.append(pb.Token(piece="</s>", log_prob=-0.5))
    result = pb.ScoreResult(log_prob=sum(token.log_prob for token in tokens), tokens=tokens)
    if request.return_alignment:
        result.alignment.extend(word_links(pair.source))
        result.normalised_source, result.normalised_target = pair.source, pair.target
    if request.HasField("attention"):
        result.normalised_source, result.normalised_target = pair.source, pair.target
        result.source_pieces.extend(pieces_of(pair.source))
        result.target_pieces.extend(pieces_of(pair.target))
        result.attention.extend(matrices(request.attention, len(result.source_pieces), len(result.target_pieces)))
    return result


def pieces_of(text: str) -> list[pb.Piece]:
    """Return every word in pieces of three characters, then the end token."""
    found, begin = [], 0
    for word in text.split(" "):
        for start in range(0, len(word), 3):
            cut, position = word[start : start + 3], begin + start
            name = cut if start else f"▁{cut}"
            found.append(pb.Piece(piece=name, span=pb.Span(begin=position, end=position + len(cut))))
        begin += len(word) + 1
    return [*found, pb.Piece(piece="</s>", span=pb.Span(begin=len(text), end=len(text)))]


def matrices(selection: pb.AttentionSelection, source: int, target: int) -> list[pb.AttentionMatrix]:
    """Return two layers of two heads of each kind. Row i attends to column i, in later heads more, and to the last."""
    found = []
    for kind in selection.kinds or [pb.ATTENTION_KIND_CROSS]:
        rows = source if kind == pb.ATTENTION_KIND_ENCODER else target
        columns = target if kind == pb.ATTENTION_KIND_DECODER else source
        for layer in [1] if selection.alignment else selection.layers or (0, 1):
            for head in [None] if selection.alignment or selection.mean_of_heads else selection.heads or (0, 1):
                weights = [0.0] * (rows * columns)
                for row in range(rows):
                    own = 0.6 + 0.2 * layer + 0.1 * (head or 0)
                    weights[row * columns + min(row, columns - 1)] += own
                    weights[row * columns + columns - 1] += 1 - own
                found.append(
                    pb.AttentionMatrix(kind=kind, layer=layer, head=head, rows=rows, columns=columns, weights=weights)
                )
    return found


def word_links(text: str) -> list[pb.AlignmentLink]:
    """Link every word to the word at its index. Spans begin with the space before the word, as in sentencepiece."""
    links, begin = [], 0
    for word in text.split(" "):
        end = begin + len(word) + (begin > 0)
        span = pb.Span(begin=begin, end=end)
        links.append(pb.AlignmentLink(source=span, target=span, weight=0.5))
        begin = end
    return links


@contextmanager
def serving(service: FakeService, port: int = 0) -> Iterator[str]:
    """Serve and yield the address. health: `lingon.down` is NOT_SERVING, the whole server is SERVING."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(service, server)
    states = health.HealthServicer()
    states.set("model/en-de", health_pb2.HealthCheckResponse.SERVING)
    states.set("lingon.down", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(states, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    service.ending.clear()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        service.ending.set()
        server.stop(grace=None).wait()


ENTRY_POINTS = """
[lingon.verbs]
translate = lingon.cli.translate:translate
live = lingon.cli.live:live
score = lingon.cli.translate:score
attend = lingon.cli.attend:attend
healthcheck = lingon.cli.translate:healthcheck
models = lingon.cli.models:models

[lingon.translators]
local = fake_local:FakeLocal [serve]
"""

FAKE_LOCAL = """
import sys
from concurrent.futures import Future

import grpc
from lingon.errors import EngineLost, QueueFull
from tests.support.scripted_server import FakeService

class FakeLocal(FakeService):
    def __init__(self, path, *, device, precision, engines, threads, cache, second=None):
        super().__init__()
        print(f"opened {path} {device} {precision} {engines} {threads}", file=sys.stderr)
    def close(self): print("closed", file=sys.stderr)
    def call(self, method, request, timeout):
        answers = {"Translate": self.translate, "Score": self.score, "ListModels": self.list_models}
        return answers[method](request, timeout)
    def begin(self, method, request, timeout):
        reply = Future()
        try:
            reply.set_result(self.call(method, request, timeout))
        except Exception as error:
            reply.set_exception(error)
        return reply
    def translate(self, request, timeout):
        self.listed += 1
        if self.listed == 1:
            raise QueueFull("too much is waiting")
        if "the engine dies" in request.texts:
            raise EngineLost("the engine failed and is being restarted; try again")
        if "the disk fails" in request.texts:
            raise OSError(5, "Input/output error", "model.bin")
        if "how long" in request.texts:
            print(f"in {timeout:.0f} s", file=sys.stderr)
        return self.Translate(request, None)
    def score(self, request, timeout): return self.Score(request, None)
    def list_models(self, request, timeout): return self.ListModels(request, None)
    def _begin(self, request, context): return None
"""


class Command:
    """A way to run `python -m lingon` as if it was installed with the entry points above."""

    def __init__(self, folder: Path, address: str, forks: ForkedCommands) -> None:
        self.forks = forks
        (folder / "lingon-0.0.dist-info").mkdir()
        (folder / "lingon-0.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lingon\nVersion: 0.0\n")
        (folder / "lingon-0.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
        (folder / "fake_local.py").write_text(FAKE_LOCAL)
        path = os.pathsep.join([str(folder), str(ROOT)])
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.environment = {**inherited, "PYTHONPATH": path, "LINGON_SERVER": address, "LC_ALL": "C"}

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "lingon", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def __call__(self, *arguments: object, text: str | bytes = "") -> tuple[int, str, list[str]]:
        """Run to the end, and return the exit code, standard output and the lines of standard error."""
        content = text if isinstance(text, bytes) else text.encode()
        code, printed, errors = self.forks.run(*arguments, text=content, environment=self.environment)
        return code, printed.decode(), errors.decode().splitlines()
