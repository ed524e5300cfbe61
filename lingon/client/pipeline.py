"""`lingon.pipeline`: the calls and the answers of the translation pipeline that Transformers had before version 5.

A thin layer over `lingon.Model`. Names of options are those of Transformers, with their meanings; the options of
`Model.translate` can be given too. An option that would change translations in a way that Lingon cannot is an error.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lingon.client.model import Model
from lingon.client.options import Sampling, TranslateOptions
from lingon.client.results import TextResult
from lingon.errors import SettingsError

TASK = re.compile(r"translation(?:_(?P<source>[^_]+)_to_(?P<target>[^_]+))?")
DEVICES = {"-1": "cpu", "0": "cuda", "cuda:0": "cuda"}  # numbers and names of Transformers; the others are ours
TOP_K = 50  # tokens that Transformers draws from if do_sample says nothing else

RENAMED = {
    "src_lang": "source",
    "tgt_lang": "target",
    "num_beams": "beam_size",
    "num_return_sequences": "num_hypotheses",
    "max_new_tokens": "max_output_tokens",
    "min_new_tokens": "min_output_tokens",
}
"""Options of Transformers by the names that they have here. Others, such as length_penalty, have the same name."""

WITH_START = {"max_length": "max_output_tokens", "min_length": "min_output_tokens"}
"""Options that count the token with which a decoder starts too."""

SAMPLED = ("temperature", "top_k", "top_p")
WITHOUT_EFFECT = {
    "batch_size": "sentences are batched as they come",
    "num_workers": "sentences are batched as they come",
    "truncation": "a long text is split, and nothing of it is cut",
    "clean_up_tokenization_spaces": "there are no spaces to clean up",
    "early_stopping": "a beam search ends with as many translations as beams",
    "use_cache": "keys and values are always cached",
    "framework": "there is one engine",
    "use_fast": "there is one tokenizer",
    "torch_dtype": "name a precision of the model, such as precision='int8'",
    "dtype": "name a precision of the model, such as precision='int8'",
}
"""Options that change no translation, and why. A warning says so once for each call, but for those of SILENT."""

SILENT = {"batch_size", "num_workers", "truncation", "use_cache", "framework", "use_fast"}
CHANGES = {"return_text": True, "return_tensors": False}
"""Options that have this value alone."""

OPTIONS = TranslateOptions.__annotations__.keys()


def pipeline(
    task: str = "translation",
    model: str | Path | None = None,
    *,
    tokenizer: str | Path | None = None,
    device: int | str | None = None,
    precision: str | None = None,
    engines: int | None = None,
    threads: int | None = None,
    **options: Any,
) -> TranslationPipeline:
    """Load a model, and return a function that translates with it, as Transformers' `pipeline` did.

        translator = lingon.pipeline("translation", model="Helsinki-NLP/opus-mt-en-de")
        translator("How are you?")  # [{"translation_text": "Wie geht es dir?"}]

    task: "translation", or "translation_XX_to_YY", which names the languages, and the model XX-YY if none is given
    model: what `lingon.Model` takes: a path, the name of a model that is here, or the repository that it came from.
        Nothing is downloaded: `lingon models get` does that
    tokenizer: None or the model itself, which has its tokenizer
    device: None, "cpu", "cuda", -1 for the CPU, or 0 for the card
    precision, engines, threads: see `lingon.Model`
    options: those of calls, as their defaults: src_lang, tgt_lang, num_beams and so on

    Raises LingonError if there is no such model, or it cannot run here, and SettingsError for an option that is not
    known.
    """
    named = TASK.fullmatch(task)
    if named is None:
        raise SettingsError(f"task must be translation or translation_XX_to_YY, got {task!r}")
    languages = {"src_lang": named["source"], "tgt_lang": named["target"]} if named["source"] else {}
    if model is None and not languages:
        raise SettingsError('name a model, such as pipeline("translation", model="en-de")')
    if tokenizer is not None and str(tokenizer) != str(model):
        raise SettingsError(f"a model has its own tokenizer; leave tokenizer={str(tokenizer)!r} out")
    options = {**languages, **options}
    _read(options)  # before the model is loaded, which takes a second
    path = f"{named['source']}-{named['target']}" if model is None else model
    place = "auto" if device is None else DEVICES.get(str(device), str(device))
    loaded = Model(path, device=place, precision=precision, engines=engines, threads=threads)
    return TranslationPipeline(loaded, task, options)


class TranslationPipeline:
    """A function that translates, with the answers of Transformers. Threads may share one."""

    def __init__(self, model: Model, task: str = "translation", options: Mapping[str, Any] | None = None) -> None:
        """Keep a model, which `close` frees. options: the defaults of those of calls."""
        self.model, self.task, self._options = model, task, dict(options or {})

    def __call__(self, texts: str | Sequence[str] | Iterable[str], **options: Any) -> Any:
        """Translate texts; options: see `pipeline`.

        Returns for a text a list of {"translation_text": str}, one for each of num_return_sequences. For a list of
        texts a list of these, or, with several for each text, a list of lists. For another iterable an iterator over
        the lists of its texts, which reads it as results are taken.

        Raises ServerError if a text cannot be translated, and SettingsError for an option that does not fit.
        """
        given = {**self._options, **options}
        read, several = _read(given), given.get("num_return_sequences", 1) != 1
        if isinstance(texts, str):
            return _answers(self.model.translate(texts, **read))
        if isinstance(texts, list | tuple):
            found = [_answers(result) for result in self.model.translate(texts, **read)]
            return found if several else [answer for answers in found for answer in answers]
        return self._iterate(texts, read)

    def _iterate(self, texts: Iterable[str], read: TranslateOptions) -> Iterator[list[dict[str, str]]]:
        return (_answers(result) for result in self.model.translate_iterable(texts, **read))

    def close(self) -> None:
        """Free the model. At the end of the program this happens by itself."""
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answers(result: TextResult) -> list[dict[str, str]]:
    """Return the translations of a text. Raises its error."""
    _ = result.best
    return [{"translation_text": each.text} for each in result.translations]


def _read(given: Mapping[str, Any]) -> TranslateOptions:
    """Return options of Transformers as those of `Model.translate`. Raises SettingsError for an unknown one."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or name == "do_sample":
            continue
        if name in RENAMED:
            found[RENAMED[name]] = value
        elif name in WITH_START:
            found.setdefault(WITH_START[name], max(value - 1, 1))  # max_new_tokens comes first, as in Transformers
        elif name in OPTIONS:
            found[name] = value
        elif name in CHANGES:
            if value is not CHANGES[name]:
                raise SettingsError(f"{name} must be {CHANGES[name]}, got {value!r}")
        elif name in WITHOUT_EFFECT:
            if name not in SILENT:
                warnings.warn(f"{name} has no effect: {WITHOUT_EFFECT[name]}", stacklevel=3)
        elif name not in SAMPLED:
            raise SettingsError(f"{name} is no option of this pipeline; it takes {', '.join(_names())}")
    return TranslateOptions(**{**_sampled(given), **found})  # type: ignore[typeddict-item]


def _sampled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option `sampling`, if translations are to be drawn. Without do_sample its options have no effect."""
    options = {name: given[name] for name in SAMPLED if given.get(name) is not None}
    if not given.get("do_sample"):
        if options:
            warnings.warn(f"{', '.join(options)}: no effect without do_sample=True", stacklevel=4)
        return {}
    return {"sampling": Sampling(**{"top_k": TOP_K, **options})}


def _names() -> list[str]:
    """Return the names of all options."""
    return sorted({*RENAMED, *WITH_START, *SAMPLED, "do_sample", *CHANGES, *WITHOUT_EFFECT, *OPTIONS})
