"""The charges of a call's requests to the quota of its API key, and the count of the key's usage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2

from lingon.errors import NotBegun, RequestError
from lingon.serving.auth.quota import Quota
from lingon.serving.decoding.job import ended_hypotheses
from lingon.serving.engine.cost import ENCODE, SCORE, UNKNOWN_MODEL, ChargedModel, token_cost
from lingon.serving.observability.metrics import KeyUsage
from lingon.serving.settings import MAX_TEXTS
from lingon.serving.translation.options import MAX_PATIENCE
from lingon.serving.translation.translator import texts_read
from lingon.source_language import DETECTED_CHARACTERS
from lingon.translation.v1 import stores_pb2
from lingon.translation.v1 import translation_pb2 as pb

_OF_MODELS = (pb.TranslateRequest, pb.TranslateStreamRequest, pb.ScoreRequest)
_OF_STORES = tuple(
    GetMessageClass(method.input_type)
    for service in stores_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
_CHARGED = (*_OF_MODELS, pb.DetectLanguagesRequest, pb.TranslateLiveRequest, *_OF_STORES)
_NOT_SERVED = (code_pb2.UNAVAILABLE, code_pb2.RESOURCE_EXHAUSTED)

DETECT_TEXT = 1.0  # characters of a greedy translation; cost of language detection of a text of any length
DETECT = 0.004  # characters of a greedy translation; cost of a character that language detection reads
"""Measured with the included model on a core of Zen 3. Detection took 33 us for 32 characters and 284 us for 2,000. A
character of a greedy translation takes 47 us, and more with larger models.
"""

LIVE = 3.0  # characters of a greedy translation; cost of a character of a speaker, which several updates read
LOOK_UP = 0.05  # characters of a greedy translation; cost of a character that a translation memory looks up


ModelsOf = Callable[[Any], Sequence[ChargedModel]]
"""Returns the model of a request, or both models of a pivot translation."""


@dataclass(frozen=True, slots=True)
class Account:
    """The quota and the usage to charge; key: name of the key."""

    key: str
    quota: Quota
    usage: KeyUsage | None
    models_of: ModelsOf = lambda request: [UNKNOWN_MODEL]


account: ContextVar[Account | None] = ContextVar("account", default=None)
"""The account of the call that this task serves, set when its key was accepted; None without API keys."""


class Charge:
    """The charge of a request to the quota of a key, until it is known whether the server serves the request."""

    def __init__(self, charged_to: Account, request: Any) -> None:
        """Charge the request. Raises QuotaExceeded."""
        models = charged_to.models_of(request) if isinstance(request, _OF_MODELS) else [UNKNOWN_MODEL]
        self._to, self._request = charged_to, request
        self._weighted = sum(weighted_characters(request, model) for model in models)
        requests = 0 if isinstance(request, pb.TranslateLiveRequest) and not request.HasField("start") else 1
        self._charges = charged_to.quota.take(self._weighted, time.monotonic_ns(), requests)
        texts_read.set(False)

    def settle(self, error: BaseException | None) -> None:
        """Keep the charge, or refund it if the server refused the request with this error."""
        kept = True
        if isinstance(error, RequestError) and (error.code in _NOT_SERVED or isinstance(error, NotBegun)):
            read = sum(characters_of(self._request)) if texts_read.get() else 0
            kept = not self._to.quota.refunds.take(read, time.monotonic_ns())
        self._to.quota.settle(self._charges, kept=kept)
        if kept and self._to.usage is not None:
            self._to.usage.charged(self._to.key, self._weighted)


def charge(request: Any) -> Charge | None:
    """Charge a request to the quota of the caller's key before it is served. Returns None if nothing is charged.

    Refunds are limited, see RefundLimit. ListModels is free, because clients call it automatically. A call that stores
    data is charged by the service, see `lingon.serving.rpc.stores`.
    """
    charged_to = account.get()
    return None if charged_to is None or not isinstance(request, _CHARGED) else Charge(charged_to, request)


@contextmanager
def charged(request: Any) -> Iterator[None]:
    """Charge a request for the duration of the block; see `charge`."""
    charge_of_request = charge(request)
    try:
        yield
    except BaseException as error:
        if charge_of_request is not None:
            charge_of_request.settle(error)
        raise
    if charge_of_request is not None:
        charge_of_request.settle(None)


def characters_of(request: Any) -> tuple[int, int]:
    """Return the characters (code points) of the sources of a request, and of its given targets.

    For language detection, only the characters that are read count. Calls about what is stored have no characters, but
    for texts that are looked up.

    A request with more than MAX_TEXTS texts, which every server refuses, counts with its size in bytes. A message of 4
    MB can hold two million texts, and counting their characters would block the event loop.
    """
    if isinstance(request, pb.ScoreRequest):
        if len(request.pairs) > MAX_TEXTS:
            return int(request.ByteSize()), 0
        return sum(len(pair.source) for pair in request.pairs), sum(len(pair.target) for pair in request.pairs)
    if isinstance(request, pb.DetectLanguagesRequest):
        if len(request.texts) > MAX_TEXTS:
            return int(request.ByteSize()), 0
        return sum(min(len(text), DETECTED_CHARACTERS) for text in request.texts), 0
    if isinstance(request, pb.TranslateLiveRequest):
        return sum(len(word.text) + 1 for word in request.words.words), 0
    if isinstance(request, stores_pb2.LookUpRequest):
        return sum(map(len, request.texts)), 0
    if isinstance(request, _OF_STORES):
        return 0, 0
    if max(len(request.texts), len(request.target_prefixes)) > MAX_TEXTS:
        return int(request.ByteSize()), 0
    return sum(map(len, request.texts)), sum(map(len, request.target_prefixes))


def weighted_characters(request: Any, model: ChargedModel = UNKNOWN_MODEL) -> int:
    """Return the charge of a request: the characters of a greedy translation of the same cost.

    The cost is that of `lingon.serving.engine.cost`, in characters instead of tokens. A translation counts as long as
    its source.
    """
    sources, targets = characters_of(request)
    if isinstance(request, pb.ScoreRequest):
        return round(ENCODE * sources + SCORE * targets)
    if isinstance(request, pb.DetectLanguagesRequest):
        return round(DETECT_TEXT * len(request.texts) + DETECT * sources)
    if isinstance(request, pb.TranslateLiveRequest):
        return round(LIVE * sources)
    if isinstance(request, _OF_STORES):
        return round(LOOK_UP * sources)
    options, defaults, decoded = request.options, model.defaults, sources + targets
    samples = options.HasField("sampling")
    beam_size = max(int(options.beam_size if options.HasField("beam_size") else defaults.beam_size), 1)
    hypotheses = min(defaults.num_hypotheses, sys.maxsize if samples else beam_size)
    if options.HasField("num_hypotheses"):
        hypotheses = max(int(options.num_hypotheses), 1)
    token = token_cost(sampled=samples, restricted=_restricts(options), forced=bool(options.forced_words))
    if options.alternatives:
        hypotheses = int(options.alternatives)
        work = hypotheses * (ENCODE * sources + token * decoded * beam_size)
    elif samples:
        work = hypotheses * (ENCODE * sources + token * decoded)
    else:
        work = ENCODE * sources + token * decoded * beam_size
    if options.coverage_penalty > 0:  # every hypothesis of the search needs its attention
        patience = options.patience if 0 < options.patience <= MAX_PATIENCE else 1.0
        hypotheses = max(hypotheses, ended_hypotheses(beam_size, patience))
    if (options.return_alignment or options.coverage_penalty > 0) and not model.steps_attend:
        work += hypotheses * (ENCODE * sources + SCORE * decoded)
    return round(work)


def _restricts(options: pb.DecodingOptions) -> bool:
    numbers = options.min_output_tokens > 1 or options.no_repeat_ngram_size > 0 or options.repetition_penalty > 1
    soft = 0 < options.prefix_bias < 1
    return bool(numbers or options.forbidden_words or options.forced_words or soft or options.alternatives)
