"""The graphs of a bundle for its gates: those of one precision are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from lingon.bundle.manifest import PASSED, Precision
from lingon.bundle.store import Bundle
from lingon.errors import ParityError
from lingon.export.calibration import gate_languages
from lingon.export.differences import EXACT
from lingon.export.gates_checkpoint import (
    CaseReference,
    check_attention,
    check_tensors,
    check_tokens,
    draw_grid,
)
from lingon.export.gates_text import (
    SENTENCES,
    ExactSearch,
    Searches,
    check_agreement,
    check_likeness,
    check_quality,
    check_scores,
    check_shortlist_steps,
    search_name,
)
from lingon.export.graphs.precisions import PRECISION_KINDS, STAND_INS, Emulation
from lingon.export.graphs.quantisation import disturb
from lingon.export.settings import ExportSettings
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle
from lingon.text import Tokenizer
from lingon.training.checkpoint import Checkpoint
from lingon.training.config import LanguagePair, pair_name
from lingon.training.corpus import Pair
from lingon.training.models.interface import AnyModel
from lingon.training.search import Hypothesis, PairIds


class Runners(Mapping[str, OnnxRunner]):
    """The graphs by precision, loaded as a server loads them when they are asked for; the first time with its checks.

    The graphs that were asked for last stay loaded; others only as long as they are used elsewhere.
    """

    def __init__(self, bundle: Bundle, names: Sequence[str]) -> None:
        self._bundle, self._names = bundle, tuple(names)
        self._loaded: dict[str, OnnxRunner] = {}
        self._checked = set[str]()  # precisions that passed the checks, which take most memory with the longest texts

    def __getitem__(self, name: str) -> OnnxRunner:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self.unload()  # before the others take memory
            runner = load_runner(self._bundle, name, threads=0, on_demand=True)
            if name not in self._checked:
                check_bundle(self._bundle, name, runner)
                self._checked.add(name)
            self._loaded[name] = runner
        return self._loaded[name]

    def unload(self) -> None:
        """Drop the loaded graphs and what their runs keep. They are loaded again when they are asked for."""
        for runner in self._loaded.values():
            runner.free_memory()
        self._loaded.clear()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def only(self, names: Sequence[str]) -> Runners:
        """Return those of some precisions. Nothing is loaded again."""
        kept = Runners(self._bundle, names)
        kept._loaded = {name: runner for name, runner in self._loaded.items() if name in names}
        kept._checked = self._checked.intersection(names)
        return kept


# All gates of an export, on the graphs as a server loads them.
# Every precision passes the gates of tensors, attention and scores. fp32 must also find the tokens of the reference
# search, exact precisions for other providers those of fp32, and lossy parts must keep the quality of fp32.

NOT_ON_CUDA = "not run on cuda"
BEAM_SIZE = 4  # of the token gate, if the default of the bundle is greedy search


@dataclass(slots=True)
class GatedBundle:
    """A check of a bundle against its checkpoint.

    trial: the unpublished bundle, with each precision on a provider that this machine has
    runners: its graphs, by precision
    pairs: held-out text. Where a target is empty, lossy parts are compared with fp32 and not with references
    settings: the number of sentences for each gate, and the default search
    emulations: by precision, what returns a model that computes what 8-bit graphs compute
    others: see `ExportTexts`
    greedy: see `Known`
    """

    checkpoint: Checkpoint
    trial: Bundle
    runners: Runners
    pairs: Sequence[Pair]
    settings: ExportSettings
    log: Callable[[str], None]
    emulations: Mapping[str, Emulation] = field(default_factory=dict)
    others: Mapping[LanguagePair, Sequence[str]] = field(default_factory=dict)
    greedy: Mapping[PairIds, Hypothesis] = field(default_factory=dict)
    _found: dict[tuple[str, bool], Searches] = field(default_factory=dict)
    _others: dict[tuple[str, LanguagePair], Searches] = field(default_factory=dict)
    _grid: list[CaseReference] = field(default_factory=list)

    def verify_precisions(self) -> dict[str, Precision]:
        """Run the gate of every precision and return the entries of those that pass.

        Raises ParityError if one fails, with the option that leaves it out, unless it is optional: it is left out then.
        """
        passed: dict[str, Precision] = {}
        names = list(self.trial.manifest.precisions)
        for number, name in enumerate(names, start=1):
            self.log(f"checking {name}, {number} of {len(names)} precisions")
            try:
                passed[name] = self._by_stand_in(name, passed) or self.verify_precision(name)
            except ParityError as error:
                if name not in self.settings.optional:
                    raise ParityError(f"{error}{self._without(name)}") from None
                self.log(f"{error}; the bundle has no {name}")
        self.runners = self.runners.only(list(passed))
        self._grid.clear()
        return passed

    def _by_stand_in(self, name: str, passed: Mapping[str, Precision]) -> Precision | None:
        """Return the entry of a precision with operators that this machine cannot run, or None if it can run them.

        The results are those of the precision that takes its place, which has the same weights and the same arithmetic
        up to rounding. Nothing is known of the operators.

        passed: the entries so far
        """
        kind, entry = PRECISION_KINDS[name], self.trial.manifest.precisions[name]
        if name not in STAND_INS or entry.provider == kind.provider:
            return None
        stand_in = STAND_INS[name]
        if stand_in not in passed:
            raise ParityError(f"{name}: {stand_in}, which takes its place here, did not pass its gate")
        self.log(f"{name}: the results are those of {stand_in}")
        where = {"checked_on": self.trial.manifest.precisions[stand_in].provider, "checked_by": stand_in}
        return Precision(kind.provider, NOT_ON_CUDA, entry.weights, {**passed[stand_in].report, **where})

    def _without(self, name: str) -> str:
        """Return the end of a message: how to export without a precision, empty for fp32, which every bundle has."""
        others = [other for other in self.settings.build_order if other != name]
        return "" if name == "fp32" else f"; export without {name}: --precision {','.join(others)}"

    def verify_precision(self, name: str) -> Precision:
        """Run the gate of a precision and return its entry of the manifest. Raises ParityError if it fails."""
        kind, entry = PRECISION_KINDS[name], self.trial.manifest.precisions[name]
        report = self._tensors(name) | self._scores(name)
        if name == "fp32":
            report |= self._tokens()
            if "scores" in self.settings.gate_sentence_counts:  # now, so that these graphs need not be loaded again
                self._translated(name, shortlist=False)
                self._in_other_languages(name)
        elif name in EXACT:
            report |= self._agreement(name)
        else:
            report["quality"] = self._quality(name, shortlist=False) | self._quality_of_others(name)
        if entry.provider != kind.provider:
            return Precision(kind.provider, NOT_ON_CUDA, entry.weights, {**report, "checked_on": entry.provider})
        return replace(entry, gate=PASSED, report=report)

    def verify_shortlist(self) -> dict[str, Any]:
        """Return the scores of every CPU precision with the shortlist.

        Raises ParityError if steps with the shortlist are not those without over fewer pieces, or if the scores are too
        low, then with the option that leaves the shortlist out, unless it is optional.
        """
        served = [name for name in self.runners if PRECISION_KINDS[name].provider == CPU]
        for name in served:
            self._translated(name, shortlist=True)  # now, so that these graphs need not be loaded again
            # Translations after forced tokens are no use: the check takes the same steps without them.
            found = None if self._forced else self._translations(name, shortlist=True).best((1, 0.0), SENTENCES)
            check_shortlist_steps(self.runners[name], self._sources(SENTENCES), name, found)
        try:
            return {name: self._quality(name, shortlist=True) for name in served}
        except ParityError as error:
            if "shortlist" in self.settings.optional:
                raise
            raise ParityError(f"{error}; export without it: --no-shortlist") from None

    def _tensors(self, name: str) -> dict[str, Any]:
        """Compare steps, scores and attention with the checkpoint over the grid of shapes, which is computed once."""
        emulated = self._emulated_grid(name)
        runner = self.runners[name]  # first: graphs that no server loads fail before anything is computed
        if not self._grid:
            self._grid = draw_grid(self.checkpoint.model, self.trial.manifest.limits, folder=self.trial.folder)
        tensors = asdict(
            check_tensors(runner, name, self._grid, emulated, disturbed=partial(self._disturbed_grid, name))
        )
        emulation = {key: tensors.pop(key) for key in ("exact_rows", "of_disturbance")}
        report, heads = {"tensors": tensors}, 0
        if self._grid[0].rows[0].attention:
            attention = check_attention(runner, name, self._grid)
            report["attention"], heads = asdict(attention), attention.heads
        provider = self.trial.manifest.precisions[name].provider
        self.log(f"{name}: {tensors['shapes']} shapes and {heads} attention heads compared on {provider}")
        if emulated:
            report["emulation"] = {key: value for key, value in emulation.items() if value is not None}
        return report

    def _emulated_grid(self, name: str) -> list[CaseReference]:
        """Return what 8-bit products give over the grid of shapes; nothing for other precisions.

        The emulating model is as large as the checkpoint, so that no graphs are in memory while it is.
        """
        if name not in self.emulations:
            return []
        self.runners.unload()
        return self._drawn(self.emulations[name]())

    def _disturbed_grid(self, name: str) -> list[CaseReference]:
        """Return what 8-bit products give over the grid with errors of rounding."""
        return self._drawn(disturb(self.emulations[name]()))

    def _drawn(self, model: AnyModel) -> list[CaseReference]:
        return draw_grid(model, self.trial.manifest.limits, attention=False, folder=self.trial.folder)

    def _scores(self, name: str) -> dict[str, Any]:
        """Compare scores of the engine's own translations with those of the search, greedy and beam."""
        sources, report = self._sources(SENTENCES), {}
        for beam_size, penalty in self._searches():
            found = self._translations(name).hypotheses((beam_size, penalty), SENTENCES, beam_size)
            scores = check_scores(self.runners[name], sources, beam_size, penalty, name, self._forced, found)
            report[f"scores, {search_name(beam_size)}"] = asdict(scores)
            self.log(f"{name}: beam size {beam_size}: {scores}")
        return report

    def _searches(self) -> tuple[tuple[int, float], ...]:
        """Return beam size and length penalty of greedy search and of beam search."""
        beam_size = self.settings.beam_size
        wide = beam_size if beam_size > 1 else min(BEAM_SIZE, self.settings.largest_beam)
        return (1, 0.0), (wide, self.settings.length_penalty)

    def _sources(self, count: int) -> list[tuple[int, ...]]:
        """Return the ids of the first held-out sources."""
        return [tuple(self.checkpoint.tokenizer.encode_source(pair.source)) for pair in self.pairs[:count]]

    @property
    def _forced(self) -> tuple[int, ...]:
        """The target tokens that every translation begins with."""
        return self.checkpoint.tokenizer.languages.forced

    def _tokens(self) -> dict[str, Any]:
        texts = [pair.source for pair in self.pairs[: self.settings.parity_sentences]]
        report: dict[str, Any] = {"sentences": len(texts)}
        for beam_size, penalty in self._searches():
            model, tokenizer, runner = self.checkpoint.model, self.checkpoint.tokenizer, self.runners["fp32"]
            found = self._translations("fp32").hypotheses((beam_size, penalty), len(texts))
            tokens = check_tokens(model, runner, tokenizer, texts, beam_size, penalty, found, self.greedy)
            report[search_name(beam_size)] = asdict(tokens)
            self.log(f"fp32: beam size {beam_size}: {tokens}")
        return report

    def _agreement(self, name: str) -> dict[str, Any]:
        """Compare the tokens of an exact precision with those of fp32, which are those of the reference search."""
        sources, report = self._sources(self.settings.parity_sentences), {}
        for search in self._searches():
            exact, found = (self._translations(each).best(search, len(sources)) for each in ("fp32", name))
            expected = ExactSearch(self.runners["fp32"], sources, exact, *search, self._forced)
            agreement = check_agreement(name, found, expected, exact=True)
            report[f"tokens, {search_name(search[0])}"] = asdict(agreement)
            self.log(f"{name}: beam size {search[0]}: {agreement}")
        return report

    def _quality(self, name: str, *, shortlist: bool) -> dict[str, Any]:
        label = f"{name} with shortlist" if shortlist else name
        exact = self._translated("fp32", shortlist=False)
        found = self._translated(name, shortlist=shortlist)
        language = self.checkpoint.config.data.target_language
        if not all(pair.target for pair in self.pairs[: len(exact)]):
            likeness = check_likeness(label, found, exact, language)
            self.log(f"{label}: BLEU {likeness['bleu_against_fp32']:.2f} against fp32, {len(exact)} sentences")
            return likeness
        report = check_quality(label, found, exact, [pair.target for pair in self.pairs[: len(exact)]], language)
        self.log(f"{label}: BLEU {report['bleu']:.2f}, fp32 {report['fp32_bleu']:.2f}, {report['sentences']} sentences")
        return report

    def _quality_of_others(self, name: str) -> dict[str, Any]:
        """Compare translations in the other pairs of a model of several languages with those of fp32."""
        found, exact = (self._in_other_languages(each) for each in (name, "fp32"))
        report, own = {}, self.checkpoint.config.data.source_language
        for pair, texts in found.items():
            label, into = (pair[1], "into ") if pair[0] == own else (pair_name(pair), "")
            what = f"{name} {into}{label}"
            report[label] = likeness = check_likeness(what, texts, exact[pair], pair[1])
            self.log(f"{what}: BLEU {likeness['bleu_against_fp32']:.2f} against fp32")
        return {"languages": report} if report else {}

    def _in_other_languages(self, name: str) -> dict[LanguagePair, list[str]]:
        """Return translations of the first sources in each other pair, or none if all precisions are exact."""
        if set(self.trial.manifest.precisions) <= set(EXACT):
            return {}
        search, longest = (self.settings.beam_size, self.settings.length_penalty), self.trial.manifest.limits
        found = {}
        for pair, tokenizer, texts in self._other_pairs():
            sources = [tuple(tokenizer.encode_source(text)) for text in texts]
            sources = [source for source in sources if len(source) <= longest.max_source_tokens]
            key = name, pair
            if key not in self._others:
                self._others[key] = Searches(self.runners, name, sources, tokenizer.languages.forced)
            found[pair] = [tokenizer.decode(each.tokens) for each in self._others[key].best(search, len(sources))]
        return found

    def _other_pairs(self) -> Iterator[tuple[LanguagePair, Tokenizer, Sequence[str]]]:
        """Yield the other pairs of languages with their first sources: those of held-out text, then `others`."""
        config, tokenizer = self.checkpoint.config, self.checkpoint.tokenizer
        count = min(SENTENCES, self.settings.gate_sentences)
        sources = [pair.source for pair in self.pairs[:count]]
        for language, into in gate_languages(self.checkpoint).items():
            yield (config.data.source_language, language), into, sources
        for pair, texts in self.others.items():
            yield pair, config.tokenizer_of_pair(tokenizer, pair), texts[:count]

    def _translated(self, name: str, *, shortlist: bool) -> list[str]:
        """Return translations of the held-out sources, by the default search of the bundle."""
        search = self.settings.beam_size, self.settings.length_penalty
        found = self._translations(name, shortlist=shortlist).best(search, self.settings.gate_sentences)
        return [self.checkpoint.tokenizer.decode(best.tokens) for best in found]

    def _translations(self, name: str, *, shortlist: bool = False) -> Searches:
        """Return the searches by a precision for the sources of all gates."""
        if (name, shortlist) not in self._found:
            sources = self._sources(max(SENTENCES, *self.settings.gate_sentence_counts.values()))
            self._found[name, shortlist] = Searches(self.runners, name, sources, self._forced, shortlist)
        return self._found[name, shortlist]
