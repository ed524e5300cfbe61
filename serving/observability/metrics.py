"""What Prometheus is told. Labels come from closed sets, and every series is there from the start."""

from __future__ import annotations

import collections
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TypeVar

from google.rpc import code_pb2
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from lingon.errors import RequestError
from lingon.serving.engine.policy import EngineLimits
from lingon.translation.v1 import translation_pb2 as pb

METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["TranslationService"].methods)
CODES = tuple(code_pb2.Code.keys())
MODEL = ("model", "version")
Family = TypeVar("Family", Counter, Gauge, Histogram)
REQUEST_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
STEP_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
CHANGES = ("loaded", "unloaded", "refused")  # outcomes of changes to what is served
KEPT = 4  # models that are gone whose counters stay, so that the last scrapes before and after they went find them
LAG_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


def reasons(kind: type[RequestError] = RequestError) -> list[str]:
    """The reasons of all errors that end a request or a text."""
    return [kind.reason, *(reason for child in kind.__subclasses__() for reason in reasons(child))]


class Texts:
    """Counts how the texts of one request ended."""

    def __init__(self, count: int) -> None:
        self.waiting = count
        self.codes: list[int] = []

    def ended(self, code: int) -> None:
        """One more text is done."""
        self.waiting -= 1
        self.codes.append(code)


class Metrics:
    """The figures of one server."""

    def __init__(self, onnxruntime: str = "") -> None:
        """onnxruntime: its version, for the label of `lingon_build_info`."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside every counter
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("lingon_requests", "Calls ended", ("method", "code"), registry=registry)
        self.texts = Counter("lingon_texts", "Texts and pairs ended", ("code",), registry=registry)
        self.rejected = Counter("lingon_rejected", "Calls refused as a whole", ("reason",), registry=registry)
        self.duration = Histogram(
            "lingon_request_duration_seconds",
            "From the arrival of a call to its end",
            ("method",),
            registry=registry,
            buckets=REQUEST_SECONDS,
        )
        self.in_flight = Gauge("lingon_requests_in_flight", "Calls that are being answered", registry=registry)
        self.ready = Gauge("lingon_ready", "1 while the server says SERVING", registry=registry)
        self.loop_lag = Histogram(
            "lingon_event_loop_lag_seconds",
            "How late the event loop is",
            registry=registry,
            buckets=LAG_SECONDS,
        )
        ProcessCollector(registry=registry)
        self.changes = Counter(
            "lingon_model_changes",
            "Models loaded and unloaded while the server serves, and changes refused",
            ("outcome",),
            registry=registry,
        )
        build = Gauge(
            "lingon_build_info",
            "1; what serves is in the labels",
            ("version", "onnxruntime", "python"),
            registry=registry,
        )
        build.labels(version("lingon"), onnxruntime, platform.python_version()).set(1)
        for method in METHODS:
            self.duration.labels(method)
            for code in CODES:
                self.requests.labels(method, code)
        for code in CODES:
            self.texts.labels(code)
        for reason in sorted(set(reasons())):
            self.rejected.labels(reason)
        for outcome in CHANGES:
            self.changes.labels(outcome)
        self._model = _ModelFamilies(registry)
        self._gone: dict[tuple[str, str], ModelMetrics] = {}  # the counters of these are still there, oldest first

    def model(self, name: str, number: int) -> ModelMetrics:
        """The observer of one served model's engine; its counters go on where it was served not long ago."""
        self._gone.pop((name, str(number)), None)
        return ModelMetrics(self._model, (name, str(number)))

    def gone(self, model: ModelMetrics) -> None:
        """A model is served no more: its gauges go at once, its counters when some more models went after it."""
        model.forget(Gauge)
        self._gone[model.labels] = model
        for labels in list(self._gone)[:-KEPT]:
            self._gone.pop(labels).forget(Counter, Histogram)

    @contextmanager
    def count_texts(self, count: int, is_late: Callable[[], bool]) -> Iterator[Texts]:
        """Count the texts of a request; those without a code of their own end with the request's.

        is_late: whether it was the deadline that ended a request which was cut short
        """
        texts = Texts(count)
        final: int | None = None
        try:
            yield texts
            final = code_pb2.OK
        except RequestError as error:
            final = error.code
            raise
        except Exception:
            final = code_pb2.INTERNAL
            raise
        finally:
            if final is None:
                final = code_pb2.DEADLINE_EXCEEDED if is_late() else code_pb2.CANCELLED
            for code, number in [*collections.Counter(texts.codes).items(), (final, texts.waiting)]:
                if number:  # in one step: a message of 4 MB has room for two million texts
                    self.texts.labels(code_pb2.Code.Name(code)).inc(number)


class _ModelFamilies:
    """The families with a series for each model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"lingon_{name}", text, (*MODEL, *labels), registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"lingon_{name}", text, (*MODEL, *labels), registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"lingon_{name}", text, MODEL, registry=registry, buckets=buckets)

        self.queue_duration = histogram("queue_duration_seconds", "A sentence waits for the batch", REQUEST_SECONDS)
        self.encoder_duration = histogram("encoder_duration_seconds", "One run of the encoder", STEP_SECONDS)
        self.step_duration = histogram("decoder_step_duration_seconds", "One step of the decoder", STEP_SECONDS)
        self.first_token = histogram("time_to_first_token_seconds", "From submission", REQUEST_SECONDS)
        self.batch_rows = histogram("batch_rows", "Rows that live in a step", ROWS)
        self.computed_rows = counter("computed_rows", "Rows computed over all steps, free ones included")
        self.live_rows = counter("live_rows", "Rows computed for a sentence over all steps")
        self.source_tokens = counter("source_tokens", "Tokens encoded")
        self.padded_tokens = counter("padded_tokens", "Tokens encoded, padding included")
        self.target_tokens = counter("target_tokens", "Tokens of finished translations")
        self.past_copied = counter("past_copied_bytes", "Cached keys and values copied between rows")
        self.sentences = counter("sentences", "Sentences, parts and scored pairs ended", "outcome")
        self.translated = counter("translated_texts", "Texts with a translation")
        self.truncated = counter("truncated", "Texts with a translation that hit the bound on its length")
        self.split = counter("split", "Texts that were translated in parts")
        self.queue_depth = gauge("queue_depth", "Sentences that wait")
        self.queue_tokens = gauge("queue_tokens", "Source tokens that wait")
        self.queue_limit = gauge("queue_limit", "Sentences that may wait")
        self.queue_tokens_limit = gauge("queue_tokens_limit", "Source tokens that may wait")
        self.running = gauge("running_sentences", "Sentences that are being decoded")
        self.state_bytes = gauge("state_bytes", "Room for the states of running batches")
        self.graph_bytes = gauge("graph_bytes", "Graphs and weights that were loaded")
        self.restarts = counter("engine_restarts", "Engines that died or hung", "cause")
        self.fallback = gauge("provider_fallback", "1 where it runs on the CPU though it has graphs for a card")
        self.load_duration = gauge("model_load_duration_seconds", "Reading, checking and warming up")
        self.info = gauge(
            "model_info",
            "1; what is served is in the labels",
            "source",
            "target",
            "precision",
            "provider",
            "architecture",
        )


class ModelMetrics:
    """The figures of one served model: see lingon.serving.engine.observer.Observer."""

    def __init__(self, families: _ModelFamilies, labels: tuple[str, str]) -> None:
        self.labels = labels
        self._families = families
        self._series: list[tuple[Counter | Gauge | Histogram, tuple[str, ...]]] = []
        self.queue_duration = self._child(families.queue_duration)
        self.encoder_duration = self._child(families.encoder_duration)
        self.step_duration = self._child(families.step_duration)
        self.time_to_first_token = self._child(families.first_token)
        self.batch_rows = self._child(families.batch_rows)
        self.computed_rows = self._child(families.computed_rows)
        self.live_rows = self._child(families.live_rows)
        self.source_tokens = self._child(families.source_tokens)
        self.padded_tokens = self._child(families.padded_tokens)
        self.target_tokens = self._child(families.target_tokens)
        self.past_copied = self._child(families.past_copied)
        self.translated = self._child(families.translated)
        self.truncated = self._child(families.truncated)
        self.split = self._child(families.split)
        self.queue_depth = self._child(families.queue_depth)
        self.queue_tokens = self._child(families.queue_tokens)
        self.queue_limit = self._child(families.queue_limit)
        self.queue_tokens_limit = self._child(families.queue_tokens_limit)
        self.running = self._child(families.running)
        self.state_bytes = self._child(families.state_bytes)
        self.graph_bytes = self._child(families.graph_bytes)
        self.load_duration = self._child(families.load_duration)
        self.fallback = self._child(families.fallback)
        self._restarts = {cause: self._child(families.restarts, cause) for cause in ("death", "hang")}
        self.outcomes = {name: self._child(families.sentences, name) for name in ["OK", *sorted(set(reasons()))]}

    def _child(self, family: Family, *more: str) -> Family:
        """This model's series of a family."""
        self._series.append((family, (*self.labels, *more)))
        return family.labels(*self.labels, *more)

    def forget(self, *kinds: type[Counter | Gauge | Histogram]) -> None:
        """Take the series of these kinds of families away."""
        for family, labels in self._series:
            if isinstance(family, kinds):
                family.remove(*labels)

    def loaded(
        self, model: pb.Model, architecture: str, limits: EngineLimits, seconds: float, graph_bytes: int
    ) -> None:
        """The model is ready to serve."""
        self.graph_bytes.set(graph_bytes)
        pair = (model.source_language_code, model.target_language_code)
        self._child(self._families.info, *pair, model.precision, model.provider, architecture).set(1)
        self.load_duration.set(seconds)
        self.queue_limit.set(limits.max_queue_texts)
        self.queue_tokens_limit.set(limits.max_queue_tokens)

    def restarted(self, cause: str) -> None:
        """The engine died or hangs."""
        self._restarts[cause].inc()

    def answered(self, result: pb.TextResult) -> None:
        """A text has its result."""
        codes = [warning.code for warning in result.warnings]
        self.translated.inc(result.status.code == code_pb2.OK)
        self.truncated.inc(codes.count(pb.WARNING_CODE_LENGTH))
        self.split.inc(codes.count(pb.WARNING_CODE_SPLIT))

    def queue_changed(self, jobs: int, source_tokens: int) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.queue_depth.set(jobs)
        self.queue_tokens.set(source_tokens)

    def admitted(self, waited: float) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.queue_duration.observe(waited)

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.encoder_duration.observe(seconds)
        self.source_tokens.inc(tokens)
        self.padded_tokens.inc(padded_tokens)

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.step_duration.observe(seconds)
        self.batch_rows.observe(live_rows)
        self.live_rows.inc(live_rows)
        self.computed_rows.inc(rows)
        self.past_copied.inc(copied_bytes)

    def first_token(self, seconds: float) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.time_to_first_token.observe(seconds)

    def states_changed(self, more_bytes: int) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.state_bytes.inc(more_bytes)

    def ended(self, outcome: str, target_tokens: int) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.outcomes[outcome].inc()
        self.target_tokens.inc(target_tokens)

    def running_changed(self, sentences: int) -> None:
        """See lingon.serving.engine.observer.Observer."""
        self.running.set(sentences)
