"""The check of a published bundle where it will be served. It imports `serving` and modules of `export` without
torch.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from lingon.bundle.manifest import PASSED, Manifest
from lingon.bundle.names import CARD, MANIFEST
from lingon.bundle.store import Bundle, all_versions, publish_bundle, write_files
from lingon.errors import BundleError, LingonError, ParityError, SettingsError
from lingon.export.differences import EXACT, LOG_PROBS
from lingon.export.gates_text import (
    MAX_BLEU_LOSS,
    MAX_CHRF_LOSS,
    MAX_NEAR_TIES,
    MIN_IDENTICAL,
    SENTENCES,
    TOLERANCE,
    ExactSearch,
    LanguagePair,
    check_agreement,
    check_quality,
    check_scores,
    engine_search,
    engine_search_alone,
    search_name,
)
from lingon.files import read_parallel
from lingon.machine import usable_cores
from lingon.scoring import score
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.models.loading import MAX_DIFFERENT, check_golden, golden_of
from lingon.serving.runtime.device import CPU, DeviceChoice, onnxruntime_version
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle
from lingon.text import Tokenizer, normalise

# The sentences of a verification: those of the user, or the golden sentences of the bundle.

MOST_NAMED = 10  # pairs in a message

Pairs = Sequence[tuple[str, str]]
"""Sources and their reference translations."""


@dataclass(frozen=True, slots=True)
class VerifiedText:
    """Sentences that the model can read.

    tokenizer: writes the tokens of the pair of languages, if the bundle has several
    sources: ids as the tokenizer frames them
    references: of each source, or None for golden sentences, which have none
    language: of the translations, for the tokens of BLEU
    """

    tokenizer: Tokenizer
    sources: list[tuple[int, ...]]
    references: list[str] | None
    language: str

    @property
    def forced(self) -> tuple[int, ...]:
        """The target tokens that every translation begins with, and that are not part of it."""
        return self.tokenizer.languages.forced

    def first(self, count: int) -> VerifiedText:
        """Return the first sentences."""
        return replace(self, sources=self.sources[:count], references=self.references and self.references[:count])


def read_gate_data(source: Path, target: Path) -> Pairs:
    """Read pairs, without those that have an empty side. Raises CorpusError or SettingsError."""
    pairs = [(normalise(one), normalise(other)) for one, other in read_parallel(source, target)]
    found = [pair for pair in pairs if all(pair)]
    if not found:
        raise SettingsError(f"--gate-data {source}: has no pair of sentences")
    return found


def pair_of(bundle: Bundle, named: str | None) -> LanguagePair | None:
    """Return the pair to check of a bundle of several languages: the named one, else that of the first golden sentence.

    Without golden sentences it is the first pair of the manifest. None is the pair of a bundle of one.

    named: as in en:de. Raises SettingsError if the bundle does not serve it.
    """
    languages = bundle.manifest.languages
    if languages is None:
        if named is not None:
            raise SettingsError(f"--languages {named}: {bundle.label} is of one pair, so that none can be named")
        return None
    if named is None:
        golden = golden_of(bundle)
        return golden.languages[0] if golden and golden.languages else next(languages.pairs())
    for pair in languages.pairs():
        if ":".join(pair).lower() == named.lower():
            return pair
    pairs = [":".join(pair) for pair in islice(languages.pairs(), MOST_NAMED)]
    raise SettingsError(f"--languages {named}: {bundle.label} has no such pair; it has {', '.join(pairs)}, ...")


def text_of(bundle: Bundle, pairs: Pairs | None, count: int, languages: LanguagePair | None = None) -> VerifiedText:
    """Return at most `count` sentences that are not too long: the first of pairs, or golden sentences without pairs.

    languages: of a bundle of several languages, the pair of the sentences. Its golden sentences are those in the source
        language, whatever they are translated into

    Raises SettingsError if there is none.
    """
    tokenizer, longest = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    if languages is not None and bundle.manifest.languages is not None:
        tokenizer = tokenizer.for_languages(bundle.manifest.languages.tokens(*languages))
    given = [(text, "") for text in _golden_sentences(bundle, languages)] if pairs is None else pairs
    encoded = [(tuple(tokenizer.encode_source(normalise(source))), target) for source, target in given]
    readable = [(ids, target) for ids, target in encoded if len(ids) <= longest][:count]
    if not readable:
        raise SettingsError(f"--gate-data: none of {len(given):,} sources has at most {longest} tokens")
    references = None if pairs is None else [target for _, target in readable]
    language = languages[1] if languages else bundle.manifest.target_language
    return VerifiedText(tokenizer, [ids for ids, _ in readable], references, language)


def _golden_sentences(bundle: Bundle, languages: LanguagePair | None) -> Sequence[str]:
    golden = golden_of(bundle)
    if golden is None:
        raise BundleError(f"{bundle.folder}: has no golden sentences; give sentences with --gate-data SOURCE TARGET")
    if languages is None or not golden.pairs:
        return golden.sentences
    found = [
        text for text, (source, _) in zip(golden.sentences, golden.languages, strict=True) if source == languages[0]
    ]
    if not found:
        raise SettingsError(
            f"{bundle.folder}: has no golden sentences in {languages[0]}; give some with --gate-data SOURCE TARGET"
        )
    return found


# Batch invariance: a sentence gets the same translation alone as in a batch with others.

LEAST_IDENTICAL = 0.995  # share of the sentences, on a GPU, whose products add in an order that depends on the batch
MAX_BLEU_DIFFERENCE = 0.1  # points, on a GPU


@dataclass(frozen=True, slots=True)
class Invariance:
    """The number of sentences with the same translation alone and in a batch.

    alone_bleu, batch_bleu: None without references
    """

    sentences: int
    identical: int
    alone_bleu: float | None = None
    batch_bleu: float | None = None

    def __str__(self) -> str:
        scores = (
            "" if self.alone_bleu is None else f", BLEU {self.alone_bleu:.2f} alone, {self.batch_bleu:.2f} in batches"
        )
        return f"{self.identical} of {self.sentences} sentences identical{scores}"


def bound(provider: str) -> str:
    """Return the bound of a provider in words."""
    return "all, every bit" if provider == CPU else f"at least {LEAST_IDENTICAL:.1%}, BLEU within {MAX_BLEU_DIFFERENCE}"


def check_invariance(
    runner: OnnxRunner, provider: str, text: VerifiedText, beam_size: int, length_penalty: float
) -> Invariance:
    """Translate each sentence alone and all of them in batches, and compare.

    On the CPU tokens and scores must be equal to the last bit. On a GPU LEAST_IDENTICAL of the sentences must have
    the same tokens, and BLEU may differ by MAX_BLEU_DIFFERENCE.

    Raises ParityError if they differ more.
    """
    search = text.sources, beam_size, length_penalty
    alone = [best for best, *_ in engine_search_alone(runner, *search, text.forced)]
    together = [best for best, *_ in engine_search(runner, *search, forced=text.forced)]
    if provider == CPU:
        same = [one == other for one, other in zip(alone, together, strict=True)]
    else:
        same = [one.tokens == other.tokens for one, other in zip(alone, together, strict=True)]
    found = Invariance(len(same), sum(same), *_bleu(text, alone, together))
    _check(found, 1.0 if provider == CPU else LEAST_IDENTICAL, beam_size)
    return found


def _check(found: Invariance, least: float, beam_size: int) -> None:
    label = f"beam size {beam_size}"
    if found.identical < least * found.sentences:
        raise ParityError(
            f"{label}: {found.identical} of {found.sentences} sentences have the same translation alone and in a "
            f"batch, at least {least:.1%} must"
        )
    if found.alone_bleu is None or found.batch_bleu is None:
        return
    if abs(found.alone_bleu - found.batch_bleu) > MAX_BLEU_DIFFERENCE:
        raise ParityError(
            f"{label}: BLEU is {found.alone_bleu:.2f} alone and {found.batch_bleu:.2f} in batches; they may differ by "
            f"{MAX_BLEU_DIFFERENCE}"
        )


def _bleu(text: VerifiedText, *translations: list[Hypothesis]) -> list[float]:
    """Return the BLEU of each list of translations, nothing without references."""
    if text.references is None:
        return []
    decoded = ([text.tokenizer.decode(each.tokens) for each in found] for found in translations)
    return [score(found, text.references, text.language).bleu for found in decoded]


# All checks of a verification, in order. One that fails does not keep the others from running, unless they need it.

REFERENCE = "fp32"
BEAM_SIZE = 4  # if the default of the bundle is greedy search
COMPARED = 500  # first sentences, for all checks but quality, as for the tokens of an export


@dataclass(slots=True)
class CheckResult:
    """The result of one check; figures: for the manifest."""

    check: str
    bound: str
    result: str = ""
    passed: bool = False
    figures: dict[str, Any] | None = None


@dataclass(slots=True)
class Verification:
    """The results of all checks that ran."""

    rows: list[CheckResult] = field(default_factory=list)
    log: Callable[[str], None] = lambda line: None

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [row.check for row in self.rows if not row.passed]

    @property
    def report(self) -> dict[str, Any]:
        """The figures of every check, by its name."""
        return {row.check: row.figures if row.figures is not None else row.result for row in self.rows}

    @contextmanager
    def checking(self, check: str, bound: str) -> Iterator[CheckResult]:
        """Run a check in the block, which sets the result of the row. An error of ours is its failure."""
        row = CheckResult(check, bound)
        try:
            yield row
            row.passed = True
        except LingonError as error:
            row.result = str(error)
        self.rows.append(row)
        self.log(f"{check}: {row.result}")


def check_known(bundle: Bundle, precision: str) -> None:
    """Raise BundleError if a precision has no bounds, or the bundle has nothing to compare it with."""
    if precision not in LOG_PROBS:
        raise BundleError(f"{bundle.label}: there are no bounds for {precision}, only for {', '.join(LOG_PROBS)}")
    if REFERENCE not in bundle.manifest.precisions:
        raise BundleError(f"{bundle.label}: has no {REFERENCE} to compare {precision} with")


def verify_bundle(
    bundle: Bundle,
    choice: DeviceChoice,
    pairs: Pairs | None,
    sentences: int,
    log: Callable[[str], None] = lambda line: None,
    languages: LanguagePair | None = None,
) -> Verification:
    """Check a precision of a bundle on its provider.

    pairs: text to translate. None is the golden sentences
    sentences: of the text, at most
    languages: of the text, for a bundle of several. See `pair_of`

    Raises SettingsError or BundleError if the bundle has no golden sentences, or the text none that it can read.
    """
    check_known(bundle, choice.precision)
    found = Verification(log=log)
    with found.checking("checksums", "all match") as row:
        bundle.verify()
        row.result = f"{len(bundle.manifest.checksums)} files match"
    if found.failed:
        return found
    text = text_of(bundle, pairs, sentences, languages)
    runner: OnnxRunner | None = None
    with found.checking("graphs", "all load and run, every node on the provider") as row:
        runner = _load(bundle, choice.precision)
        graphs = sum(name.startswith(f"{choice.precision}/") for name in bundle.manifest.checksums)
        row.result = f"{graphs} graphs on {choice.provider.removesuffix('ExecutionProvider')}"
    if not found.failed and runner is not None:
        _Checks(bundle, choice, text.first(COMPARED), text, runner, found).run()
    return found


def _load(bundle: Bundle, precision: str) -> OnnxRunner:
    runner = load_runner(bundle, precision, threads=usable_cores())
    check_bundle(bundle, precision, runner)
    return runner


@dataclass(slots=True)
class _Checks:
    """The checks of loaded graphs; text: the first COMPARED sentences of all_text."""

    bundle: Bundle
    choice: DeviceChoice
    text: VerifiedText
    all_text: VerifiedText
    runner: OnnxRunner
    found: Verification

    def run(self) -> None:
        """Run all of them."""
        self._golden()
        if self.choice.precision != REFERENCE:
            exact = _load(self.bundle, REFERENCE)
            for search in self._searches():
                self._agreement(exact, *search)
            if self.choice.precision not in EXACT and self.all_text.references is not None:
                self._quality(exact, self.all_text.references)
        for beam_size, penalty in self._searches():
            self._scores(beam_size, penalty)
            self._invariance(beam_size, penalty)

    def _searches(self) -> tuple[tuple[int, float], ...]:
        """Return beam size and length penalty of greedy search, and of the beam search of the bundle's defaults."""
        defaults, limits = self.bundle.manifest.defaults, self.bundle.manifest.limits
        wide = defaults.beam_size if defaults.beam_size > 1 else min(BEAM_SIZE, limits.max_beam_size)
        return (1, 0.0), (wide, defaults.length_penalty)

    def _golden(self) -> None:
        golden = golden_of(self.bundle)
        own = golden is not None and self.choice.precision in golden.translations
        with self.found.checking(
            "golden sentences", "all equal" if own else f"at least {1 - MAX_DIFFERENT:.0%}"
        ) as row:
            check_golden(self.bundle, self.runner, self.choice.precision)
            row.result = f"{len(golden.sentences)} sentences" if golden else "the bundle has none"

    def _agreement(self, reference: OnnxRunner, beam_size: int, penalty: float) -> None:
        """Compare tokens and their log-probabilities with those of the fp32 graphs on the CPU."""
        precision, search = self.choice.precision, (beam_size, penalty)
        exact = precision in EXACT
        share = f"all but {MAX_NEAR_TIES:.1%} near ties" if exact else f"at least {MIN_IDENTICAL:.0%}"
        bounds = f"{share}, differences {LOG_PROBS[precision]}"
        with self.found.checking(f"tokens of {REFERENCE}, {search_name(beam_size)}", bounds) as row:
            mine, theirs = (_best(each, self.text, *search) for each in (self.runner, reference))
            expected = ExactSearch(reference, self.text.sources, theirs, *search, self.text.forced)
            agreement = check_agreement(precision, mine, expected, exact=exact)
            row.result, row.figures = str(agreement), asdict(agreement)

    def _scores(self, beam_size: int, penalty: float) -> None:
        precision = self.choice.precision
        with self.found.checking(f"scores, {search_name(beam_size)}", str(TOLERANCE[precision])) as row:
            sources, forced = self.text.sources[:SENTENCES], self.text.forced
            scores = check_scores(self.runner, sources, beam_size, penalty, precision, forced)
            row.result, row.figures = str(scores), asdict(scores)

    def _invariance(self, beam_size: int, penalty: float) -> None:
        with self.found.checking(f"alone and in batches, {search_name(beam_size)}", bound(self.choice.provider)) as row:
            same = check_invariance(self.runner, self.choice.provider, self.text, beam_size, penalty)
            row.result, row.figures = str(same), asdict(same)

    def _quality(self, reference: OnnxRunner, references: list[str]) -> None:
        """Compare BLEU and chrF with those of the fp32 graphs, by the default search of the bundle."""
        defaults, text = self.bundle.manifest.defaults, self.all_text
        search = defaults.beam_size, defaults.length_penalty
        bounds = f"BLEU at most {MAX_BLEU_LOSS} and chrF at most {MAX_CHRF_LOSS} below fp32, translations like its own"
        with self.found.checking("quality", bounds) as row:
            found, exact = (
                [text.tokenizer.decode(best.tokens) for best in _best(each, text, *search)]
                for each in (self.runner, reference)
            )
            figures = check_quality(self.choice.precision, found, exact, references, text.language)
            scores = ("BLEU {bleu:.2f}, fp32 {fp32_bleu:.2f}", "chrF {chrf:.2f}, fp32 {fp32_chrf:.2f}")
            row.result, row.figures = "; ".join(scores).format(**figures), figures


def _best(runner: OnnxRunner, text: VerifiedText, beam_size: int, penalty: float) -> list[Hypothesis]:
    return [best for best, *_ in engine_search(runner, text.sources, beam_size, penalty, forced=text.forced)]


# Publishes the next version of a verified bundle: the same graphs, with the report in the manifest.


def next_version(bundle: Bundle) -> Path:
    """Return the folder of the next version of a model. Raises SettingsError if none can be written."""
    folder, version = bundle.folder.absolute(), bundle.manifest.version
    if folder.name != str(version):
        raise SettingsError(f"--publish: {bundle.folder} is not the folder of version {version}; give NAME/{version}")
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        raise SettingsError(f"--publish: no permission to write in {folder.parent}")
    return bundle.folder.parent / str(max(all_versions(folder.parent)) + 1)


def publish_verified(bundle: Bundle, choice: DeviceChoice, report: dict[str, Any], target: Path) -> Bundle:
    """Write a bundle to the folder `target`, with `report` in the manifest, and return it.

    Every other file is the same byte for byte, but for the model card. Raises BundleError if it cannot be written.
    """
    entry = bundle.manifest.precisions[choice.precision]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"provider": choice.provider, "onnxruntime": onnxruntime_version(), "date": now, **report}
    verified = replace(entry, gate=PASSED, report={**entry.report, "verification": facts})
    precisions = {**bundle.manifest.precisions, choice.precision: verified}
    manifest = replace(bundle.manifest, version=int(target.name), created=now, precisions=precisions)
    with publish_bundle(target) as part:
        for name in bundle.manifest.checksums:
            content = bundle.read(name)
            if name == CARD:
                content = _card(content.decode(), bundle.manifest, manifest, choice).encode()
                sums = {**manifest.checksums, CARD: hashlib.sha256(content).hexdigest()}
                manifest = replace(manifest, checksums=sums)
            write_files(part, {name: content}, target)
        content = manifest.to_bytes()
        Manifest.from_bytes(content, target / MANIFEST)  # raises an error if a reader would refuse it
        write_files(part, {MANIFEST: content}, target)
    return Bundle(target, manifest)


def _card(text: str, old: Manifest, new: Manifest, choice: DeviceChoice) -> str:
    """Return the model card with the new version and a line about the verification."""
    title = f"# {old.name}, version {old.version}\n"
    if text.startswith(title):
        text = f"# {new.name}, version {new.version}\n" + text.removeprefix(title)
    return f"{text.rstrip()}\n- {choice.precision}: verified on {choice.provider} at {new.created}\n"
