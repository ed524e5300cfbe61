"""All checks of a verification, in order. One that fails does not keep the others from running, unless they need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from lingon.bundle import Bundle
from lingon.errors import BundleError, LingonError
from lingon.export.differences import EXACT, LOG_PROBS
from lingon.export.gates.translations.decode import engine_search
from lingon.export.gates.translations.quality import (
    MAX_BLEU_LOSS,
    MAX_CHRF_LOSS,
    MAX_NEAR_TIES,
    MIN_IDENTICAL,
    ExactSearch,
    check_agreement,
    check_quality,
)
from lingon.export.gates.translations.scores import SENTENCES, TOLERANCE, check_scores
from lingon.export.verification.invariance import bound, check_invariance
from lingon.export.verification.text import LanguagePair, Pairs, Text, text_of
from lingon.machine import usable_cores
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.models.golden import MAX_DIFFERENT, check_golden, golden_of
from lingon.serving.runtime.device import DeviceChoice
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle

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
        """Run a check in the block, which sets the result of the row; an error of ours is its failure."""
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

    pairs: text to translate; None is the golden sentences
    sentences: of the text, at most
    languages: of the text, for a bundle of several; see `pair_of`

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
    text: Text
    all_text: Text
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
        with self.found.checking(f"tokens of {REFERENCE}, {_name(beam_size)}", bounds) as row:
            mine, theirs = (_best(each, self.text, *search) for each in (self.runner, reference))
            expected = ExactSearch(reference, self.text.sources, theirs, *search, self.text.forced)
            agreement = check_agreement(precision, mine, expected, exact=exact)
            row.result, row.figures = str(agreement), asdict(agreement)

    def _scores(self, beam_size: int, penalty: float) -> None:
        precision = self.choice.precision
        with self.found.checking(f"scores, {_name(beam_size)}", str(TOLERANCE[precision])) as row:
            sources, forced = self.text.sources[:SENTENCES], self.text.forced
            scores = check_scores(self.runner, sources, beam_size, penalty, precision, forced)
            row.result, row.figures = str(scores), asdict(scores)

    def _invariance(self, beam_size: int, penalty: float) -> None:
        with self.found.checking(f"alone and in batches, {_name(beam_size)}", bound(self.choice.provider)) as row:
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


def _best(runner: OnnxRunner, text: Text, beam_size: int, penalty: float) -> list[Hypothesis]:
    return [best for best, *_ in engine_search(runner, text.sources, beam_size, penalty, forced=text.forced)]


def _name(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"
