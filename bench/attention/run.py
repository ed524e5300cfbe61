"""`lingon bench attention` step by step: trains, exports and scores each system; whatever is done is not done again."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lingon.bench.attention.lengths import corpus_up_to, rows_by_length, test_files, write_corpora
from lingon.bench.attention.models import Model, Row
from lingon.bench.attention.plan import ALIGNED, CORPORA, OF_LENGTH, SYSTEMS, TRAIN, VALID, Budget, Corpus, System
from lingon.bench.attention.scores import alignment, quality, translate
from lingon.bench.attention.speed import tokens_per_second
from lingon.bench.trained_runs import training_figures
from lingon.bench.workloads.sample_corpus import write_sample_corpus
from lingon.errors import CorpusError, Interrupted, LingonError, SettingsError
from lingon.files import write_bytes
from lingon.training.checkpoint import load_checkpoint

SPEED = "speed"


@dataclass(kw_only=True, slots=True)
class Comparison:
    """A comparison of systems.

    systems, corpora: names; data: folder of the corpora; work: folder of what is made
    train: whether runs are trained to their end, or measured as far as they are
    write: receives a line about each step
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
    write: Callable[[str], None]
    left_out: list[str] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """A row for each corpus and system."""
        return [row for corpus in CORPORA if corpus.name in self.corpora for row in self._rows_of(corpus)]

    def length_rows(self) -> list[Row]:
        """A row for each system of OF_LENGTH, length of the longest training text and bucket of test texts."""
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
        """The models of a corpus, each trained and exported, with what `measure` returns.

        part: the name under which that is kept

        One that fails is left out, so that the others go on; the same command tries it again.
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
                    self.write(f"{model.name}: training")
                    model.train()
                found.append((model, model.kept(part, partial(measure, model))))
            except (Interrupted, SettingsError, CorpusError):  # The last two would leave out every system.
                raise
            except LingonError as error:
                self.left_out.append(f"{model.name} is left out: {error}")
                self.write(self.left_out[-1])
        return found

    def _scores(self, model: Model) -> Row:
        """The scores of a model, and what its training took."""
        bundle = model.bundle(self.write)
        found = quality(translate(bundle, model.corpus.files(self.data, model.corpus.test_set)))
        self.write(f"{model.name}: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f}")
        weights = sum(each.numel() for each in load_checkpoint(model.checkpoint()).model.parameters())
        return {**found, "parameters": weights, **training_figures(model.run), **alignment(bundle, self.data)}

    def _by_length(self, folder: Path, model: Model) -> Row:
        """BLEU of a model by the length of the source."""
        rows = rows_by_length(translate(model.bundle(self.write), test_files(folder)))
        self.write(f"{model.name}: BLEU by length {', '.join(str(row['bleu']) for row in rows)}")
        return {"rows": rows}

    def _speeds(self, corpus: Corpus, models: Sequence[Model]) -> dict[str, Row]:
        """The decoding speed of each model. If one is missing, all are measured: they are compared in turns."""
        kept = {model.system.name: model.read(SPEED) for model in models}
        if not models or all(kept.values()):
            return {name: found for name, found in kept.items() if found}
        self.write(f"{corpus.name}: decoding speed")
        bundles = {model.system.name: model.bundle(self.write) for model in models}
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
