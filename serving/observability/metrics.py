"""The Prometheus metrics of a server. Label values come from closed sets, and every series exists from the start.

One declaration is the only source of a metric's name, kind, help text, labels and buckets. The Prometheus registry,
the attributes of an instance and the documentation are generated from it.
"""

from __future__ import annotations

import collections
import json
import logging
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from types import TracebackType
from typing import Any, TypeVar, cast

from google.rpc import code_pb2
from grpc._cython import cygrpc  # type: ignore[attr-defined]
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from lingon.errors import RequestError
from lingon.memories.keys import EXACT, IN_CONTEXT
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.scheduler import EngineLoad
from lingon.serving.guard import REASONS as GUARD_REASONS
from lingon.serving.observability.logs import event
from lingon.translation.v1 import translation_pb2 as pb

Metric = Counter | Gauge | Histogram


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric and all its series.

    kind: the class of prometheus_client
    help: meaning and unit; shown by /metrics and in the documentation
    labels: names of the labels, each with all its values; empty if they are known only at run time
    buckets: upper bounds, for a histogram
    """

    kind: type[Metric]
    name: str
    help: str
    labels: Mapping[str, Sequence[str]]
    buckets: Sequence[float] = ()

    @property
    def exported_name(self) -> str:
        """The name on /metrics. A histogram adds _bucket, _sum and _count to it."""
        return f"lingon_{self.name}_total" if self.kind is Counter else f"lingon_{self.name}"

    @property
    def type_name(self) -> str:
        """The type of the metric in Prometheus' words: counter, gauge or histogram."""
        return self.kind.__name__.lower()

    def register(self, registry: CollectorRegistry, *first_labels: str) -> Metric:
        """Add the metric to a registry; first_labels: labels before those of the declaration."""
        name, labels = f"lingon_{self.name}", (*first_labels, *self.labels)
        if self.kind is Histogram:
            return Histogram(name, self.help, labels, registry=registry, buckets=self.buckets)
        return self.kind(name, self.help, labels, registry=registry)

    def label_values(self) -> Iterator[tuple[str, ...]]:
        """Yield the label values of every series that is known before run time. A metric without labels has none."""
        return product(*self.labels.values()) if self.labels else iter(())


def counter(name: str, help: str, **labels: Sequence[str]) -> Counter:
    """Declare a counter. The return type is the type of the instance's attribute, as with `dataclasses.field`."""
    return cast(Counter, MetricFamily(Counter, name, help, labels))


def gauge(name: str, help: str, **labels: Sequence[str]) -> Gauge:
    """Declare a gauge; see `counter`."""
    return cast(Gauge, MetricFamily(Gauge, name, help, labels))


def histogram(name: str, help: str, buckets: Sequence[float], **labels: Sequence[str]) -> Histogram:
    """Declare a histogram; see `counter`."""
    return cast(Histogram, MetricFamily(Histogram, name, help, labels, buckets))


def declared(table: type) -> Iterator[tuple[str, MetricFamily]]:
    """Yield the families that a class declares, each with the name of its attribute."""
    for attribute, family in vars(table).items():
        if isinstance(family, MetricFamily):
            yield attribute, family


PHASES = ("checksums", "sessions", "checks", "golden_sentences", "warm_up")
"""The phases of a load, in this order. Every byte of the bundle is verified, ONNX Runtime builds the graphs, the graphs
are compared with the manifest and run at their limits, golden sentences are translated, the engine is warmed up."""

logger = logging.getLogger(__name__)


class LoadProgress:
    """The phases of a load, measured and logged. The load begins now. One thread loads, and any thread may read."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        """label: label of the model; clock: returns seconds."""
        self.label, self._clock = label, clock
        self._start = clock()
        self._begins: list[tuple[str, float]] = []  # each phase and its begin; the last phase is "" if the load ended

    @property
    def ended(self) -> bool:
        """Whether the load has succeeded or failed."""
        return bool(self._begins) and not self._begins[-1][0]

    @property
    def phase(self) -> str:
        """The current phase; empty before the first one and after the last one."""
        return self._begins[-1][0] if self._begins else ""

    def is_in(self, phase: str) -> bool:
        return self.phase == phase

    def begin(self, phase: str) -> None:
        """End the current phase and begin another one."""
        assert phase in PHASES, phase
        self._begins.append((phase, self._clock()))
        event(logger, logging.INFO, "loading", model=self.label, phase=phase, seconds=round(self.total(), 2))

    def end(self, **fields: object) -> None:
        """End a successful load; fields: values for the log."""
        self._begins.append(("", self._clock()))
        phases = {phase: round(self.seconds(phase), 2) for phase, _ in self._begins[:-1]}
        event(logger, logging.INFO, "loaded", model=self.label, **fields, seconds=round(self.total(), 2), **phases)

    def fail(self) -> None:
        """End the load, which failed in the current phase."""
        phase = self.phase
        self._begins.append(("", self._clock()))
        event(logger, logging.INFO, "loading failed", model=self.label, phase=phase, seconds=round(self.total(), 2))

    def seconds(self, phase: str) -> float:
        """Return the duration of a phase in seconds: up to now if it is running, 0 if it did not begin."""
        begins = self._begins.copy()  # the loading thread may add to it
        ends = [begin for _, begin in begins[1:]] + [self._clock()]
        return sum(end - begin for (name, begin), end in zip(begins, ends, strict=True) if name == phase)

    def total(self) -> float:
        """Return the duration of the load in seconds, up to now if it is running."""
        return (self._begins[-1][1] if self.ended else self._clock()) - self._start


class KeyUsage:
    """The usage of each key of the file. A key removed from the file loses its metrics. For the event loop only."""

    def __init__(self, requests: Counter, characters: Counter, last_used: Gauge) -> None:
        """requests: with the labels key and code; characters and last_used: with the label key."""
        self._requests, self._characters, self._last_used = requests, characters, last_used
        self._codes: dict[str, set[str]] = {}  # by key: the codes that have a series

    def set_names(self, names: Collection[str]) -> None:
        """Add the series of new keys, and remove the series of keys that left the file."""
        for name in self._codes.keys() - set(names):
            for code in self._codes.pop(name):
                self._requests.remove(name, code)
            self._characters.remove(name)
            self._last_used.remove(name)
        for name in names:
            if name not in self._codes:
                self._codes[name] = {"OK"}
                self._requests.labels(name, "OK")
                self._characters.labels(name)
                self._last_used.labels(name)

    def accepted(self, name: str, now: float) -> None:
        """Record that a key was accepted; now: seconds since 1970."""
        if name in self._codes:
            self._last_used.labels(name).set(now)

    def ended(self, name: str, code: str) -> None:
        """Count an ended call with a key, unless the key left the file meanwhile."""
        if name in self._codes:
            self._codes[name].add(code)
            self._requests.labels(name, code).inc()

    def charged(self, name: str, characters: int) -> None:
        """Count the characters of a request that was charged to a key."""
        if name in self._codes:
            self._characters.labels(name).inc(characters)


METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["TranslationService"].methods)
TIMED_METHODS = tuple(name for name in METHODS if name != "TranslateLive")  # which lasts as long as its speaker
CODES = tuple(code_pb2.Code.keys())
MODEL = ("model", "version")  # the first labels of every metric of a model
WATCHED_FILES = ("api_keys", "tls_certificate", "tls_client_ca", "tls_client_crl")  # settings whose files are reloaded
CALL_OUTCOMES = ("served", "refused")  # refused: the work of the call did not begin
CALL_KINDS = ("translation", "live", "health", "watch", "reflection")  # each has separate limits
LIVE_UPDATES = ("draft", "complete", "failed")  # kinds of updates of speakers
STORED = ("glossary", "memory")  # kinds of what callers store
LOOK_UPS = ("context", "exact", "fuzzy", "none")  # best matches of translation memories
RESTART_CAUSES = ("death", "hang")
CHANGES = ("loaded", "unloaded", "refused")  # outcomes of requests to change the served models
STATES = ("loaded", "loading", "cold")  # of a served model
LOADS = ("loaded", "failed")  # outcomes of loads for requests
KEPT_MODELS = 4  # unloaded models with kept counters, so that a late scrape still reads them
# The error of a quantile is at most the ratio of two neighbouring bounds, which is 2. Medians with one client are 0.03
# to 0.1 ms in the queue, and 0.1 to 1 ms for a decoder step of a small model.
LATENCY_SECONDS = (
    *(0.00001, 0.00002, 0.00003, 0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005),
    *(0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0),
)
RUN_SECONDS = (
    *(0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015),
    *(0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0),
)  # the longest runs, of many long sentences on a slow machine, take seconds
LAG_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
LOAD_SECONDS = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # the shipped model takes 60 ms
ANSWER_SECONDS = (0.03, 0.05, 0.1, 0.2, 0.4, 0.75, 1.5, 3.0, 5.0, 10.0, 20.0, 40.0)  # of a large model
ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512)

SECOND_REASONS = {
    number: name.removeprefix("SECOND_REASON_").lower() for name, number in pb.SecondReason.items() if number
}
SECOND_RESULTS = {
    number: name.removeprefix("SECOND_RESULT_").lower() for name, number in pb.SecondResult.items() if number
}
"""The values of the labels `reason` and `result` of the second translator, by their numbers in the API."""

AnyMetric = TypeVar("AnyMetric", Counter, Gauge, Histogram)


def reasons(kind: type[RequestError] = RequestError) -> list[str]:
    """Return the reasons of all errors that end a request or a text."""
    return [kind.reason, *(reason for child in kind.__subclasses__() for reason in reasons(child))]


REASONS = tuple(sorted(set(reasons())))


class TextOutcomes:
    """A count of the ended texts of one request by code, as a context manager around the request.

    At its end, texts without their own code get the code of the request.
    """

    def __init__(self, count: int, counters: Mapping[int, Counter], is_late: Callable[[], bool]) -> None:
        """counters: by code; is_late: whether the deadline, and not the caller, cancelled the request."""
        self._open, self._counters, self._is_late = count, counters, is_late
        self._codes: collections.Counter[int] = collections.Counter()

    def ended(self, codes: Sequence[int]) -> None:
        """Record the codes of more finished texts."""
        self._open -= len(codes)
        self._codes.update(codes)

    def __enter__(self) -> TextOutcomes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._codes[self._code_of(error)] += self._open
        # One increment per code, not per text, because a message of 4 MB can hold two million texts.
        for code, number in self._codes.items():
            self._counters[code].inc(number)

    def _code_of(self, error: BaseException | None) -> int:
        """Return the code of a request that ended with an error, or without one."""
        if error is None:
            return code_pb2.OK
        if isinstance(error, RequestError):
            return error.code
        if isinstance(error, Exception):
            return code_pb2.INTERNAL
        return code_pb2.DEADLINE_EXCEEDED if self._is_late() else code_pb2.CANCELLED


class Metrics:
    """The metrics of one server. The class body is the table of those without a model label."""

    requests = counter("requests", "Calls of TranslationService that ended.", method=METHODS, code=CODES)
    other_requests = counter(
        "other_requests",
        "Calls of other services (health, reflection), of unknown methods and of the admin port that ended.",
        code=CODES,
    )
    received_calls = counter(
        "received_calls",
        "Calls that gRPC received on any port by its own count, with those that it ended unread, and those by HTTP.",
    )
    texts = counter(
        "texts", "Texts and scored pairs that ended; those of calls that were refused unread are not known.", code=CODES
    )
    rejected = counter("rejected", "Calls of any service and port that were refused as a whole.", reason=REASONS)
    duration = histogram(
        "request_duration_seconds",
        "Time from the arrival of a call of TranslationService to its end, in seconds, without TranslateLive; refused: "
        "before its work began.",
        LATENCY_SECONDS,
        method=TIMED_METHODS,
        outcome=CALL_OUTCOMES,
    )
    in_flight = gauge("requests_in_flight", "Calls of TranslationService in progress.")
    ready = gauge("ready", "1 while the server's health is SERVING and its event loop runs, else 0; as /healthz.")
    loop_lag = histogram(
        "event_loop_lag_seconds", "Delay of the event loop at one moment in every 50 ms, in seconds.", LAG_SECONDS
    )
    waiting_calls = gauge("waiting_calls", "Calls of TranslationService that have arrived and wait to be read.")
    call_wait = histogram(
        "call_wait_seconds",
        "Time from the arrival of a call of TranslationService until it is read, in seconds; without refused calls.",
        LATENCY_SECONDS,
    )
    open_calls = gauge("open_calls", "Calls that count towards the limits of the gRPC port.", kind=CALL_KINDS)
    receiving_calls = gauge("receiving_calls", "Open calls whose request has not arrived whole.", kind=CALL_KINDS)
    live_speakers = gauge("live_speakers", "Calls of TranslateLive in progress.")
    live_lag = histogram(
        "live_lag_seconds",
        "Time from the arrival of a speaker's words to the answer that translates them, in seconds.",
        LATENCY_SECONDS,
    )
    live_updates = counter(
        "live_updates", "Updates of speakers: of a sentence that goes on, complete, or failed.", kind=LIVE_UPDATES
    )
    live_replaced = counter(
        "live_replaced_updates", "Updates of speakers that were not made, because later words came before their turn."
    )
    live_past_bytes = gauge("live_past_bytes", "Memory of the decoder's states that are kept for speakers, in bytes.")
    live_agreed_words = counter("live_agreed_words", "Words of speakers whose translation is agreed.")
    changes = counter(
        "model_changes", "Models loaded and unloaded while serving, and refused changes.", outcome=CHANGES
    )
    key_requests = counter(
        "key_requests",
        "Calls with a known API key that ended, on any port. A code other than OK has a series from its first call on.",
        key=(),
        code=(),
    )
    key_characters = counter("key_characters", "Characters of the requests that were charged to an API key.", key=())
    key_last_used = gauge(
        "key_last_used_timestamp_seconds",
        "When an API key was last accepted, in seconds since 1970; 0 if not since the start of the server.",
        key=(),
    )
    memory_need = gauge(
        "memory_need_bytes", "Memory that the server may need with its models, by the formula in its log, in bytes."
    )
    memory_limit = gauge("memory_limit_bytes", "Memory that the server may have, in bytes; 0 without a limit.")
    models = gauge(
        "models",
        "Served models by state. A cold model is loaded for its first request, see model_memory.",
        state=STATES,
    )
    model_memory = gauge("models_memory_bytes", "Memory of the loaded models, by their files and sessions, in bytes.")
    model_memory_limit = gauge("models_memory_limit_bytes", "The bound model_memory, in bytes; 0 without a bound.")
    pool_loads = counter("model_loads", "Loads of cold models for requests that ended.", outcome=LOADS)
    pool_load_duration = histogram(
        "cold_load_seconds", "Duration of a successful load of a cold model for requests, in seconds.", LOAD_SECONDS
    )
    pool_evictions = counter("model_evictions", "Models that were unloaded to make room for others.")
    cache_lookups = counter(
        "cache_lookups", "Texts that were looked up in the cache of translations.", outcome=("hit", "miss")
    )
    cache_evictions = counter("cache_evictions", "Translations that left the full cache for newer ones.")
    cache_bytes = gauge("cache_bytes", "Memory of the translations in the cache, in bytes; 0 without a cache.")
    stored = gauge("stored", "Glossaries and translation memories that callers have stored.", kind=STORED)
    stored_entries = gauge("stored_entries", "Terms of the glossaries and segments of the memories.", kind=STORED)
    stored_bytes = gauge(
        "stored_bytes", "Size of the stored glossaries and memories on the disk, in bytes.", kind=STORED
    )
    glossary_bytes = gauge("glossary_memory_bytes", "Memory of the glossaries that are loaded, in bytes.")
    memory_lookups = counter(
        "memory_lookups",
        "Sentences that were looked up in translation memories, by the best match; context: with the same neighbours.",
        result=LOOK_UPS,
    )
    second = counter(
        "second",
        "Sentences that were to be sent to the second translator, by why and by what came of it; see SecondOutcome.",
        reason=tuple(SECOND_REASONS.values()),
        result=tuple(SECOND_RESULTS.values()),
    )
    second_duration = histogram(
        "second_duration_seconds",
        "Duration of a question to the second translator, however it ended, in seconds.",
        ANSWER_SECONDS,
    )
    second_suspended = gauge(
        "second_suspended",
        "1 while the second translator is left alone because it failed several times in a row, else 0.",
    )
    models_to_load = gauge("models_to_load", "Models that are being loaded or wait for it.")
    versions_left_out = gauge(
        "versions_left_out",
        "Versions in whose place the start serves a lower one because they are not whole, until their model changes.",
    )
    file_unusable = gauge(
        "file_unusable",
        "1 while a file cannot be read or is invalid, so that its previous content is used, else 0.",
        what=WATCHED_FILES,
    )
    tls_not_after = gauge(
        "tls_not_after_timestamp_seconds",
        "When the first certificate of a file expires, or its first list of revoked ones is due to be replaced, in "
        "seconds since 1970; without TLS there is no series.",
        what=(),
    )
    build = gauge(
        "build_info", "Always 1; the labels hold the versions of the software.", version=(), onnxruntime=(), python=()
    )

    def __init__(self, onnxruntime: str = "") -> None:
        """onnxruntime: its version, for the label of `lingon_build_info`."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it would double the series of every counter
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        for attribute, family in declared(Metrics):
            metric = family.register(registry)
            setattr(self, attribute, metric)
            for values in family.label_values():
                metric.labels(*values)
        self.keys = KeyUsage(self.key_requests, self.key_characters, self.key_last_used)
        self.build.labels(version("lingon"), onnxruntime, platform.python_version()).set(1)
        self._model_families = {
            attribute: family.register(registry, *MODEL) for attribute, family in declared(ModelMetrics)
        }
        self._text_counters = {number: self.texts.labels(name) for name, number in code_pb2.Code.items()}
        self._unloaded: dict[tuple[str, ...], ModelMetrics] = {}  # models with kept counters, oldest first
        self._cold: dict[tuple[str, ...], ModelMetrics] = {}  # served models that are not loaded any more

    def model(self, name: str, number: int) -> ModelMetrics:
        """Return the metrics of one served model. Its counters continue if it was unloaded a short time ago."""
        labels = name, str(number)
        known = self._cold.pop(labels, None) or self._unloaded.pop(labels, None)
        return ModelMetrics(self._model_families, labels, was_known=known is not None)

    def forget(self, model: ModelMetrics) -> None:
        """Remove a model that failed to load. Its counters stay if it was loaded before."""
        if model.was_known:
            self.unload(model)
        else:
            model.remove_series(Counter, Gauge, Histogram)

    def unload(self, model: ModelMetrics) -> None:
        """Remove the gauges of a model that is served but not loaded any more. Its counters stay."""
        model.remove_series(Gauge)
        self._cold[model.labels] = model

    def remove_cold(self, name: str, number: int) -> None:
        """Remove a cold model, as `remove`, if it was loaded before."""
        model = self._cold.pop((name, str(number)), None)
        if model is not None:
            self._keep_a_while(model)

    def remove(self, model: ModelMetrics) -> None:
        """Remove the gauges of an unloaded model now, and its counters after KEPT_MODELS more models were unloaded."""
        model.remove_series(Gauge)
        self._keep_a_while(model)

    def _keep_a_while(self, model: ModelMetrics) -> None:
        self._unloaded[model.labels] = model
        for labels in list(self._unloaded)[:-KEPT_MODELS]:
            self._unloaded.pop(labels).remove_series(Counter, Histogram)

    def looked_up(self, score: int) -> None:
        """Count a sentence that was looked up in memories; score: of its best match, 0 without one."""
        results = {0: "none", EXACT: "exact", IN_CONTEXT: "context"}
        self.memory_lookups.labels(results.get(score, "fuzzy")).inc()

    def second_ended(self, reason: pb.SecondReason.ValueType, result: pb.SecondResult.ValueType) -> None:
        """Count a sentence that was to be sent to the second translator; reason, result: numbers of SecondOutcome."""
        self.second.labels(SECOND_REASONS[reason], SECOND_RESULTS[result]).inc()

    def count_texts(self, count: int, is_late: Callable[[], bool]) -> TextOutcomes:
        """Count the texts of a request; see TextOutcomes."""
        return TextOutcomes(count, self._text_counters, is_late)


MEANS = {
    number: name.removeprefix("TERM_MEANS_").lower()
    for name, number in pb.TermMeans.items()
    if number != pb.TERM_MEANS_UNSPECIFIED
}
"""The values of the label `means`: how terms came into translations, by their numbers in the API."""


class ModelMetrics:
    """The metrics of one served model, as the engine's Observer. The class body is their table.

    All of them have the labels `model` and `version`. The series of a model are looked up once, when it is loaded.
    """

    queue_duration = histogram(
        "queue_duration_seconds",
        "Time that a sentence or pair is in the queue, in seconds: until it is taken to be computed, or until it ends "
        "there because it is dropped, cancelled or late.",
        LATENCY_SECONDS,
    )
    encoder_duration = histogram("encoder_duration_seconds", "Duration of one encoder run, in seconds.", RUN_SECONDS)
    scorer_duration = histogram(
        "scorer_duration_seconds",
        "Duration of one run of the scorer, for pairs or alignments, in seconds.",
        RUN_SECONDS,
    )
    scored_pairs = counter("scored_pairs", "Pairs and hypotheses that the scorer computed.")
    step_duration = histogram("decoder_step_duration_seconds", "Duration of one decoder step, in seconds.", RUN_SECONDS)
    time_to_first_token = histogram(
        "time_to_first_token_seconds",
        "Time from submission to the engine until the first decoder step of a sentence, in seconds.",
        LATENCY_SECONDS,
    )
    batch_rows = histogram("batch_rows", "Rows of the batch that belong to a sentence, for each decoder step.", ROWS)
    computed_rows = counter("computed_rows", "Rows computed in all decoder steps, free rows included.")
    live_rows = counter("live_rows", "Rows computed for a sentence in all decoder steps.")
    source_tokens = counter("source_tokens", "Encoded source tokens, without those of scored pairs.")
    padded_tokens = counter("padded_tokens", "Encoded source tokens with padding, without those of scored pairs.")
    target_tokens = counter("target_tokens", "Target tokens of all finished hypotheses and of scored pairs.")
    past_copied = counter("past_copied_bytes", "Cached keys and values copied between rows, in bytes.")
    sentences = counter("sentences", "Sentences, parts of texts and scored pairs that ended.", outcome=("OK", *REASONS))
    translated = counter("translated_texts", "Translated texts.")
    truncated = counter("truncated", "Translated texts that were cut at the limit of their length.")
    split = counter("split", "Texts that were translated in parts.")
    degenerate = counter("degenerate", "Texts that the guard suspects or had tried again.", reason=tuple(GUARD_REASONS))
    terms = counter(
        "terms",
        "Terms that were found in translated texts, by how they came into the translation; missed: they did not.",
        means=tuple(MEANS.values()),
    )
    queue_depth = gauge("queue_depth", "Sentences and pairs in the queue.")
    queue_tokens = gauge("queue_tokens", "Tokens in the queue: of sources, and of targets to score.")
    queue_work = gauge(
        "queue_work_units", "Work in the queue; a unit is that of a source token of a greedy translation."
    )
    queue_limit = gauge("queue_limit", "Sentences and pairs that the queue can hold.")
    queue_tokens_limit = gauge("queue_tokens_limit", "Tokens that the queue can hold.")
    row_limit = gauge(
        "row_limit",
        "Sentences times beam size that are decoded together at most: max_rows, or less after a lack of memory.",
    )
    running = gauge("running_sentences", "Sentences and pairs that are being computed.")
    state_bytes = gauge("state_bytes", "Memory allocated for decoder states, in bytes.")
    graph_bytes = gauge("graph_bytes", "Size of the loaded graphs and weights, in bytes.")
    restarts = counter("engine_restarts", "Engines that died or hung.", cause=RESTART_CAUSES)
    fallback = gauge(
        "provider_fallback",
        "1 if the model runs on the CPU although it has graphs for a GPU and the machine has a GPU or the GPU build of "
        "ONNX Runtime, else 0.",
    )
    load_phase = gauge("model_load_phase", "1 during this phase of loading the model, else 0.", phase=PHASES)
    load_phase_duration = gauge(
        "model_load_phase_duration_seconds",
        "Duration of this phase of loading the model, in seconds; so far while it is under way.",
        phase=PHASES,
    )
    load_duration = gauge(
        "model_load_duration_seconds", "Duration of loading the model, in seconds; so far while it is under way."
    )
    info = gauge(
        "model_info",
        "Always 1; the labels describe the model. instruction_set is that of native operators, otherwise empty.",
        **dict.fromkeys(("source", "target", "precision", "provider", "architecture", "instruction_set"), ()),
    )

    def __init__(self, families: Mapping[str, Any], labels: tuple[str, str], *, was_known: bool = False) -> None:
        """families: the registered metrics, by attribute; labels: name and version of the model.

        was_known: whether it was served before and its counters continue
        """
        self.labels, self.was_known = labels, was_known
        self._series: list[tuple[Metric, tuple[str, ...]]] = []
        for attribute, family in declared(ModelMetrics):
            metric = families[attribute]
            setattr(self, attribute, metric if family.labels else self._child(metric))
        self._load_phases = {phase: self._child(self.load_phase, phase) for phase in PHASES}
        self._load_phase_durations = {phase: self._child(self.load_phase_duration, phase) for phase in PHASES}
        self._restarts = {cause: self._child(self.restarts, cause) for cause in RESTART_CAUSES}
        self._by_warning: dict[int, Counter] = {
            pb.WARNING_CODE_LENGTH: self.truncated,
            pb.WARNING_CODE_SPLIT: self.split,
            **{code: self._child(self.degenerate, reason) for reason, code in GUARD_REASONS.items()},
        }
        self._outcomes = {outcome: self._child(self.sentences, outcome) for outcome in ("OK", *REASONS)}
        self._terms = {number: self._child(self.terms, name) for number, name in MEANS.items()}

    def _child(self, metric: AnyMetric, *more: str) -> AnyMetric:
        self._series.append((metric, (*self.labels, *more)))
        return metric.labels(*self.labels, *more)

    def remove_series(self, *kinds: type[Metric]) -> None:
        """Remove this model's series of the metrics of these kinds."""
        for metric, labels in self._series:
            if isinstance(metric, kinds):
                metric.remove(*labels)

    def loading(self, progress: LoadProgress, limits: EngineLimits) -> None:
        """Set the limits, then read the progress of the load at every scrape. A share of a limit of 0 has no value."""
        self.queue_limit.set(limits.max_queue_texts)
        self.queue_tokens_limit.set(limits.max_queue_tokens)
        self.row_limit.set(limits.max_rows)
        self.load_duration.set_function(progress.total)
        for phase in PHASES:
            self._load_phases[phase].set_function(partial(progress.is_in, phase))
            self._load_phase_durations[phase].set_function(partial(progress.seconds, phase))

    def loaded(self, model: pb.Model, architecture: str, graph_bytes: int, instruction_set: str = "") -> None:
        """Set the metrics of a ready model; instruction_set: used by its native operators, or empty."""
        self.graph_bytes.set(graph_bytes)
        pair = (model.source_language_code, model.target_language_code)
        self._child(self.info, *pair, model.precision, model.provider, architecture, instruction_set).set(1)

    def restarted(self, cause: str) -> None:
        """Count an engine that died or hung; cause: one of RESTART_CAUSES."""
        self._restarts[cause].inc()

    def answered(self, results: Iterable[pb.TextResult]) -> None:
        translated = [result for result in results if result.status.code == code_pb2.OK]
        self.translated.inc(len(translated))
        for code in (warning.code for result in translated for warning in result.warnings):
            if code in self._by_warning:
                self._by_warning[code].inc()
        for means, count in collections.Counter(each.means for result in translated for each in result.terms).items():
            self._terms[means].inc(count)

    def watch(self, load: Callable[[], EngineLoad]) -> None:
        """Read the load at every scrape instead of at every request."""
        self.queue_depth.set_function(lambda: load().queued)
        self.queue_tokens.set_function(lambda: load().queued_tokens)
        self.queue_work.set_function(lambda: load().queued_work)
        self.running.set_function(lambda: load().running)

    def left_queue(self, waited: float) -> None:
        self.queue_duration.observe(waited)

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None:
        self.encoder_duration.observe(seconds)
        self.source_tokens.inc(tokens)
        self.padded_tokens.inc(padded_tokens)

    def scored(self, pairs: int, seconds: float) -> None:
        self.scorer_duration.observe(seconds)
        self.scored_pairs.inc(pairs)

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None:
        for _ in range(steps):
            self.step_duration.observe(seconds / steps)
            self.batch_rows.observe(live_rows)
        self.live_rows.inc(steps * live_rows)
        self.computed_rows.inc(steps * rows)
        if copied_bytes:
            self.past_copied.inc(copied_bytes)

    def first_token(self, seconds: float) -> None:
        self.time_to_first_token.observe(seconds)

    def states_changed(self, more_bytes: int) -> None:
        self.state_bytes.inc(more_bytes)

    def rows_limited(self, rows: int) -> None:
        self.row_limit.set(rows)

    def ended(self, outcome: str, target_tokens: int) -> None:
        self._outcomes[outcome].inc()
        self.target_tokens.inc(target_tokens)


def families() -> Iterator[tuple[MetricFamily, tuple[str, ...]]]:
    """Return every metric of a server with the names of all its labels, for the documentation."""
    for table, first_labels in ((Metrics, ()), (ModelMetrics, MODEL)):
        for _, family in declared(table):
            yield family, (*first_labels, *family.labels)


class ReceivedCalls:
    """A count of the calls of the gRPC servers that are created after this object, until `watch`.

    gRPC's own statistics (channelz) include calls that reach no handler and no interceptor. Either gRPC ends them
    because they violate its protocol, or their caller disconnects first. This uses internal names of grpc that the
    package grpcio-channelz uses too.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter, self._lock = counter, threading.Lock()
        self._earlier = {number for number, _ in _servers()}
        self._counts: dict[int, int] = {}  # by number of the server

    def watch(self) -> None:
        """Count the calls of the servers that were created since then."""
        self._counts = {number: 0 for number, _ in _servers() if number not in self._earlier}

    def update(self) -> None:
        """Add the calls since the last update to the counter. Safe for any thread."""
        with self._lock:
            for number, calls in _servers():
                if number in self._counts:
                    self._counter.inc(calls - self._counts[number])
                    self._counts[number] = calls


def _servers() -> Iterator[tuple[int, int]]:
    """Yield the number of each gRPC server in this process, with its received calls."""
    start = 0
    while True:
        page: dict[str, Any] = json.loads(cygrpc.channelz_get_servers(start))
        for server in page.get("server", ()):
            start = int(server["ref"]["serverId"]) + 1
            yield start - 1, int(server["data"].get("callsStarted", 0))
        if page.get("end", True):
            return
