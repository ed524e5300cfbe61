"""`lingon bench attention`: trains, exports and scores each system, and repeats no finished step.

BLEU by length: Bahdanau et al. (2015), figure 2, train on sentences of up to 30 and up to 50 words. Tatoeba has few
sentences of more than 15 words, so that a text here is one or more of its sentences in random order: short and long
texts have the same words and are equally hard apart from their length.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from lingon.alignment import LinkCounts
from lingon.bench.attention_report import draw, length_table, table
from lingon.bench.decode import Rounds, measure_rounds
from lingon.bench.engines.base import Cell, Setting, Tokens
from lingon.bench.engines.lingon import Lingon, load
from lingon.bench.options import check_choice
from lingon.bench.results_file import Row, note, save, signature_lines, terminal
from lingon.bench.trained_runs import (
    corpus_files,
    corpus_overrides,
    last_checkpoints,
    train,
    training_figures,
    write_corpus,
    write_sample_corpus,
)
from lingon.bundle.store import Bundle, open_bundle, versions
from lingon.cli.aligning import Aligner, AlignmentHeads, JudgeLinks, LinkFile, attention_options
from lingon.cli.backend import BackendOptions, open_translator
from lingon.errors import CorpusError, Interrupted, LingonError, SettingsError
from lingon.export.cli import held_out_pairs
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.files import make_folders, read_lines, read_parallel, write_bytes, write_json
from lingon.scoring import score
from lingon.serving.in_process import translate_lines
from lingon.text import normalise
from lingon.training.checkpoint import load_checkpoint, load_progress, saved_steps
from lingon.training.config import Config, load_config

PAIR = "en-de"
ALIGNED = f"align-europarl.{PAIR}"
"""The pairs with word alignments that people made."""

TRAIN, VALID = "train", "valid"


@dataclass(frozen=True, slots=True)
class System:
    """One of the systems.

    config: name of a file in the folder of configs, without suffix
    changes: settings that differ from the file
    tiny: sizes of [model] in a trial run
    """

    name: str
    config: str
    tiny: Mapping[str, int]
    changes: tuple[str, ...] = ()


_RECURRENT = {"embedding_dim": 16, "dim": 16, "layers": 1}
_TRANSFORMER = {"dim": 16, "heads": 2, "ffn": 16, "encoder_layers": 1, "decoder_layers": 1}


def _transformer(variant: str = "") -> System:
    name = f"transformer{variant}"
    return System(name, name, _TRANSFORMER)


SYSTEMS = (
    System("rnnenc", "rnnenc", _RECURRENT),
    System("rnnsearch", "rnnsearch", {"embedding_dim": 16, "dim": 16, "encoder_dim": 8, "attention_dim": 8}),
    System("luong-global", "luong-global", _RECURRENT),
    System("luong-local", "luong-local", _RECURRENT),
    System("luong-monotonic", "luong-local", _RECURRENT, ('model.alignment="local-monotonic"',)),
    _transformer(),
    *(_transformer(variant) for variant in ("-window", "-additive", "-rotary", "-linear")),
)
"""All systems, the oldest first. luong-local predicts the centre of its window, luong-monotonic moves it by one."""

OF_LENGTH = ("rnnenc", "rnnsearch", "transformer")
"""The systems that are compared by the length of the source."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus to train on, with its test set.

    max_tokens: tokens of a training pair on each side at most
    """

    name: str
    test_set: str
    max_tokens: int = 80

    @property
    def prefix(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.name}.{PAIR}"

    def files(self, folder: Path, part: str) -> tuple[Path, Path]:
        """Return the source and the target file of a part."""
        return corpus_files(folder, self.prefix, part)


CORPORA = (Corpus("multi30k", "test2016"), Corpus("tatoeba", "test"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The size of every training and of its measurements.

    All systems have the same tokenizer, batches and steps on a corpus, so that all train on the same target tokens.
    """

    steps: int = 1200  # updates
    batch_tokens: int = 2000  # padded tokens of an update, on each side
    vocab_size: int = 4000  # pieces; the 10,000 of the configs need more text than a small budget has
    parity_sentences: int = 200  # of the gate of the export
    timed_sentences: int = 256  # test sentences whose decoding is timed
    rounds: int = 5  # of the timing, each with all systems
    tiny: bool = False  # tiny models
    longest: tuple[int, ...] = (15, 30)  # source words of the longest training texts of BLEU by length

    def __post_init__(self) -> None:
        if self.steps < 10:
            raise SettingsError(f"--steps must be at least 10, got {self.steps}")

    @classmethod
    def quick(cls) -> Budget:
        """Return the budget of a trial, about a second a system."""
        return cls(
            steps=12,
            batch_tokens=1000,
            vocab_size=400,
            parity_sentences=4,
            timed_sentences=4,
            rounds=1,
            tiny=True,
            longest=(15,),
        )

    def overrides(self, corpus: Corpus, data: Path, device: str) -> list[str]:
        """Return the settings of a training on a corpus below data that differ from the config.

        The learning rate has the schedule of the configs: 1/10 warm-up, 3/10 cool-down.
        """
        numbers = {
            "data.max_tokens": corpus.max_tokens,
            "model.max_positions": max(128, corpus.max_tokens + 32),
            "tokenizer.vocab_size": self.vocab_size,
            "training.batch_tokens": self.batch_tokens,
            "training.max_steps": self.steps,
            "training.warmup_steps": self.steps // 10,
            "training.cooldown_steps": 3 * self.steps // 10,
            "training.valid_every": self.steps if self.tiny else -(-self.steps // 3),
            "training.valid_sentences": 200,
            "training.log_every": min(25, self.steps // 3),
        }
        settings = [f"{key}={value}" for key, value in numbers.items()]
        return [*corpus_overrides(data, corpus.prefix), *settings, f'training.device="{device}"']


def selected(names: list[str] | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Return the selected names in the order of `known`, all without a selection."""
    check_choice(option, names or (), known)
    return tuple(name for name in known if not names or name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A system trained on a corpus, in a folder of its own.

    data: the folder of the corpus; work: the folder of all models; device: of the training
    """

    system: System
    corpus: Corpus
    configs: Path
    data: Path
    work: Path
    budget: Budget
    device: str

    @property
    def name(self) -> str:
        """Corpus and system, for messages."""
        return f"{self.corpus.name} {self.system.name}"

    @property
    def run(self) -> Path:
        """The folder of the training."""
        return self.work / self.corpus.name / self.system.name / "run"

    def config(self) -> Config:
        """Return the settings of the training."""
        tiny = [f"model.{key}={value}" for key, value in self.system.tiny.items()] if self.budget.tiny else []
        changes = [*self.system.changes, *tiny, *self.budget.overrides(self.corpus, self.data, self.device)]
        return load_config(self.configs / f"{self.system.config}.toml", changes)

    def train(self) -> None:
        """Train to the end, from the last checkpoint if there is one. Raise Interrupted if a signal stops it."""
        saved = saved_steps(self.run)
        if not saved or load_progress(saved[-1]).validated < self.budget.steps:
            train(self.config(), self.run)

    def checkpoint(self) -> Path:
        """Return the last checkpoint with a validation. Raise CheckpointError without one."""
        return last_checkpoints(self.run, 1)[0]

    def kept(self, part: str, make: Callable[[], Row]) -> Row:
        """Return a result of the last checkpoint. `make` makes it once, and a file keeps it."""
        found = self.read(part)
        if found is None:
            found = make()
            self.keep(part, found)
        return found

    def read(self, part: str) -> Row | None:
        """Return a kept result; None if there is none."""
        path = self._parts() / f"{part}.json"
        if not path.is_file():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    def keep(self, part: str, found: Row) -> None:
        """Keep a result of the last checkpoint."""
        make_folders(self._parts())
        write_json(self._parts() / f"{part}.json", found)

    def bundle(self, log: Callable[[str], None]) -> Bundle:
        """Return the bundle of the last checkpoint, in fp32 without a shortlist, exported once with all gates."""
        folder = self._parts() / self.system.name
        if not versions(folder):
            loaded, count = load_checkpoint(self.checkpoint()), self.budget.parity_sentences
            settings = ExportSettings(
                precisions=("fp32",), shortlist=None, parity_sentences=count, gate_sentences=count
            )
            export_checkpoint(loaded, folder, ExportTexts(held_out_pairs(loaded)[:count]), settings, log)
        return open_bundle(folder)

    def _parts(self) -> Path:
        """Return the folder of everything that is made of the last checkpoint."""
        return self.run.parent / self.checkpoint().name


BEAM_SIZE = 4
LENGTH_PENALTY = 1.0
PAIRS = 8  # pairs of a request for attention
HALVES = 2


@dataclass(frozen=True, slots=True)
class Translations:
    """The translations of a test set by a bundle, with the references."""

    sources: list[str]
    hypotheses: list[str]
    references: list[str]


def translate(bundle: Bundle, files: tuple[Path, Path]) -> Translations:
    """Translate a test set with the engine of `lingon serve`, in this process, on the CPU."""
    pairs = list(read_parallel(*files))
    sources, references = [each[0] for each in pairs], [each[1] for each in pairs]
    found = translate_lines(
        bundle.folder, sources, beam_size=BEAM_SIZE, length_penalty=LENGTH_PENALTY, device="cpu", precision="fp32"
    )
    return Translations(sources, found.lines, references)


def quality(found: Translations) -> dict[str, Any]:
    """Return BLEU and chrF of a test set, with the signatures of sacreBLEU."""
    scores = score(found.hypotheses, found.references)
    return {
        "bleu": round(scores.bleu, 2),
        "chrf": round(scores.chrf, 2),
        "signatures": {"bleu": scores.bleu_signature, "chrf": scores.chrf_signature},
    }


def alignment(bundle: Bundle, data: Path) -> dict[str, Any]:
    """Return the alignment error rate (AER) of a bundle's attention, which is None for a model without attention.

    Pairs with an even and with an odd number are two halves. The layer, the heads and the shift with the lowest rate on
    one half are measured on the other half. The figure counts both halves. Pairs that are too long are left out.
    """
    if not bundle.manifest.alignment.heads:
        return {"aer": None, "aer_pairs": 0, "aer_heads": []}
    source, target = (data / f"{ALIGNED}.test.{language}.gz" for language in PAIR.split("-"))
    pairs = list(read_parallel(source, target))
    halves, aligned = _judged(bundle, pairs, LinkFile.read(data / f"{ALIGNED}.test.align.gz"))
    total, chosen = LinkCounts(), list[str]()
    for half, other in zip(halves, reversed(halves), strict=True):
        best = min(half, key=lambda heads: half[heads].error_rate)
        total += other[best]
        chosen.append(" ".join(best.columns()))
    return {"aer": round(total.error_rate, 4), "aer_pairs": aligned, "aer_heads": chosen}


def _judged(
    bundle: Bundle, pairs: Sequence[tuple[str, str]], gold: LinkFile
) -> tuple[list[dict[AlignmentHeads, LinkCounts]], int]:
    """Return the agreement of all layers and heads with the right links for each half, and the number of pairs."""
    aligner = Aligner(options=attention_options(None))
    judges = [JudgeLinks(aligner=aligner, gold=gold, heads=None, as_json=False) for _ in range(HALVES)]
    options = BackendOptions(model=str(bundle.folder), device="cpu", precision="fp32")
    aligned = 0
    with open_translator(options) as translator:
        for begin in range(0, len(pairs), PAIRS):
            batch = list(pairs[begin : begin + PAIRS])
            results = aligner.answer(translator, batch)
            aligned += sum(result.error is None for result in results)
            for number, (pair, result) in enumerate(zip(batch, results, strict=True), start=begin + 1):
                judges[number % HALVES].render(number, pair, result)
    return [judge.totals for judge in judges], aligned


TOGETHER = 32  # sentences that are decoded together


def tokens_per_second(
    bundles: Mapping[str, Bundle], file: Path, sentences: int, rounds: int, show: Callable[[str], None]
) -> dict[str, float]:
    """Return the target tokens a second of each bundle: greedy, in fp32, on one thread, the median of the rounds.

    file: sources, of which `sentences` are taken at regular intervals, without those longer than the model reads
    """
    lines = [normalise(line) for line in read_lines(file)]
    lines = lines[:: max(len(lines) // sentences, 1)][:sentences]
    with ExitStack() as stack:
        measures = {}
        for name, bundle in bundles.items():
            engine = load(bundle.folder, Setting(precision="fp32", workers=1, threads=1))
            stack.callback(engine.close)
            measures[name] = partial(_measure, engine, bundle, lines)
        timed = measure_rounds(measures, Rounds(runs=rounds), show)
    return {
        name: round(1000 * sum(map(len, found.outputs)) / statistics.median(found.runs_ms), 1)
        for name, found in timed.items()
    }


def _measure(engine: Lingon, bundle: Bundle, lines: list[str], repeats: int) -> tuple[float, Tokens]:
    """Return the milliseconds of a translation of all lines, and the outputs."""
    tokenizer, longest = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    sources = [tokens for tokens in map(tokenizer.encode_source, lines) if len(tokens) <= longest]
    cell = Cell(workload="", batch=TOGETHER)
    begin = perf_counter()
    for _ in range(repeats):
        outputs = engine.translate(sources, cell)
    return 1000 * (perf_counter() - begin) / repeats, outputs


ORIGIN = "tatoeba"
LONGEST_TEST = 60  # source words of the longest test text
BUCKET = 10  # source words
MAX_TOKENS = 128  # of a training pair; a text of 60 words has 70 to 110
TEST = f"{ORIGIN}-up-to-{LONGEST_TEST}"

Pair = tuple[str, str]


def corpus_up_to(words: int) -> Corpus:
    """Return the corpus of joined sentences with at most this number of source words."""
    return Corpus(f"{ORIGIN}-up-to-{words}", "test", MAX_TOKENS)


def test_files(folder: Path) -> tuple[Path, Path]:
    """Source and reference of the test set of all lengths."""
    return corpus_files(folder, f"{TEST}.{PAIR}", "test")


def write_corpora(data: Path, folder: Path, longest: Sequence[int]) -> None:
    """Write the training, validation and test texts into folder, once, from the sentences of Tatoeba in data.

    longest: source words of the longest training texts
    """
    wanted = [(f"{ORIGIN}-up-to-{words}", words, part) for words in longest for part in (TRAIN, VALID)]
    for name, words, part in [*wanted, (TEST, LONGEST_TEST, "test")]:
        if not all(path.is_file() for path in corpus_files(folder, f"{name}.{PAIR}", part)):
            pairs = list(read_parallel(*corpus_files(data, f"{ORIGIN}.{PAIR}", part)))
            write_corpus(folder, f"{name}.{PAIR}", part, joined(pairs, words))


def joined(pairs: Sequence[Pair], longest: int, seed: int = 1) -> Iterator[Pair]:
    """Join sentences to texts of 1 to `longest` source words. Each wanted length is equally likely.

    Every sentence is used once. Sentences of more than `longest` words are left out.
    """
    draw = random.Random(seed)
    order = draw.sample(pairs, len(pairs))
    group: list[Pair] = []
    words, wanted = 0, draw.randint(1, longest)
    for pair in order:
        more = len(pair[0].split())
        if more > longest:
            continue
        if words + more > longest:
            yield _text(group)
            group, words, wanted = [], 0, draw.randint(1, longest)
        group.append(pair)
        words += more
        if words >= wanted:
            yield _text(group)
            group, words, wanted = [], 0, draw.randint(1, longest)
    if group:
        yield _text(group)


def _text(group: Sequence[Pair]) -> Pair:
    return " ".join(source for source, _ in group), " ".join(target for _, target in group)


def rows_by_length(found: Translations) -> list[dict[str, Any]]:
    """Return BLEU of the texts of each bucket of source words that has a text."""
    buckets: dict[int, list[int]] = {}
    for index, source in enumerate(found.sources):
        buckets.setdefault((len(source.split()) - 1) // BUCKET, []).append(index)
    rows = []
    for bucket, members in sorted(buckets.items()):
        scores = score([found.hypotheses[index] for index in members], [found.references[index] for index in members])
        words = [bucket * BUCKET + 1, (bucket + 1) * BUCKET]
        rows.append({"words": words, "texts": len(members), "bleu": round(scores.bleu, 2)})
    return rows


SPEED = "speed"


@dataclass(kw_only=True, slots=True)
class Comparison:
    """A comparison of systems.

    systems, corpora: names; data: folder of the corpora; work: folder of what is made
    train: whether runs are trained to their end, or measured as far as they are
    left_out: a line for each system that could not be measured, filled as they are found
    """

    systems: Sequence[str]
    corpora: Sequence[str]
    configs: Path
    data: Path
    work: Path
    budget: Budget
    device: str
    train: bool
    left_out: list[str] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Return a row for each corpus and system."""
        return [row for corpus in CORPORA if corpus.name in self.corpora for row in self._rows_of(corpus)]

    def length_rows(self) -> list[Row]:
        """Return a row for each system of OF_LENGTH, longest training text and bucket of test texts."""
        folder = self.work / "joined"
        write_corpora(self.data, folder, self.budget.longest)
        systems = [system for system in SYSTEMS if system.name in OF_LENGTH and system.name in self.systems]
        rows = []
        for words in self.budget.longest:
            measure = partial(self._by_length, folder)
            for model, found in self._measured(corpus_up_to(words), systems, folder, "lengths", measure):
                head = {"system": model.system.name, "trained_up_to": words}
                rows += [{**head, **row} for row in found["rows"]]
        return rows

    def _rows_of(self, corpus: Corpus) -> list[Row]:
        systems = [system for system in SYSTEMS if system.name in self.systems]
        measured = self._measured(corpus, systems, self.data, "scores", self._scores)
        speeds = self._speeds(corpus, [model for model, _ in measured])
        head = {"corpus": corpus.name, "set": corpus.test_set}
        return [
            {**head, "system": model.system.name, **found, **speeds[model.system.name]} for model, found in measured
        ]

    def _measured(
        self, corpus: Corpus, systems: Sequence[System], data: Path, part: str, measure: Callable[[Model], Row]
    ) -> list[tuple[Model, Row]]:
        """Train and export the models of a corpus, and return each with what `measure` returns.

        part: the name under which that is kept

        A model that fails is left out, so that the others are measured. The same command tries it again.
        """
        found = []
        for system in systems:
            model = Model(
                system=system,
                corpus=corpus,
                configs=self.configs,
                data=data,
                work=self.work,
                budget=self.budget,
                device=self.device,
            )
            try:
                if self.train:
                    note(f"{model.name}: training")
                    model.train()
                found.append((model, model.kept(part, partial(measure, model))))
            except (Interrupted, SettingsError, CorpusError):  # The last two would leave out every system.
                raise
            except LingonError as error:
                self.left_out.append(f"{model.name} is left out: {error}")
                note(self.left_out[-1])
        return found

    def _scores(self, model: Model) -> Row:
        """Return the scores of a model, and what its training took."""
        bundle = model.bundle(note)
        found = quality(translate(bundle, model.corpus.files(self.data, model.corpus.test_set)))
        note(f"{model.name}: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f}")
        weights = sum(each.numel() for each in load_checkpoint(model.checkpoint()).model.parameters())
        return {**found, "parameters": weights, **training_figures(model.run), **alignment(bundle, self.data)}

    def _by_length(self, folder: Path, model: Model) -> Row:
        """Return BLEU of a model by the length of the source."""
        rows = rows_by_length(translate(model.bundle(note), test_files(folder)))
        note(f"{model.name}: BLEU by length {', '.join(str(row['bleu']) for row in rows)}")
        return {"rows": rows}

    def _speeds(self, corpus: Corpus, models: Sequence[Model]) -> dict[str, Row]:
        """Return the decoding speed of each model. If one is missing, measure all in the same rounds."""
        kept = {model.system.name: model.read(SPEED) for model in models}
        if not models or all(kept.values()):
            return {name: found for name, found in kept.items() if found}
        note(f"{corpus.name}: decoding speed")
        bundles = {model.system.name: model.bundle(note) for model in models}
        file, budget = corpus.files(self.data, corpus.test_set)[0], self.budget
        measured = tokens_per_second(bundles, file, budget.timed_sentences, budget.rounds, lambda line: None)
        speeds = {name: {"decoding_tokens_per_second": value} for name, value in measured.items()}
        for model in models:
            model.keep(SPEED, speeds[model.system.name])
        return speeds


def write_samples(folder: Path) -> None:
    """Write the files that a trial run reads, with sample sentences and made-up word alignments."""
    for corpus in CORPORA:
        write_sample_corpus(folder, corpus.prefix, {TRAIN: 200, VALID: 4, corpus.test_set: 12})
    write_sample_corpus(folder, ALIGNED, {"test": 6})
    write_bytes(folder / f"{ALIGNED}.test.align.gz", gzip.compress(b"0-0\n" * 6, mtime=0))


def run(comparison: Comparison, results: Path, *, lengths: bool) -> bool:
    """Measure, show the tables, write results and chart, and return whether no system was left out.

    lengths: whether to compare the systems by the length of the source, too
    """
    console, rows = terminal(), comparison.rows()
    by_length = comparison.length_rows() if lengths else []
    console.print(table(rows))
    for line in (*signature_lines(rows), *comparison.left_out):
        print(line)
    facts = {"device": comparison.device, "left_out": comparison.left_out, "lengths": by_length}
    path = save("attention", rows, results, **facts)
    if by_length:
        console.print(length_table(by_length))
        draw(by_length, path.with_name(path.name.replace("attention.json", "bleu-by-length.svg")))
    return not comparison.left_out
