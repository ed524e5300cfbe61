"""A system of a corpus: its training, its bundle, and the files in which its finished parts are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingon.bench.attention.plan import Budget, Corpus, System
from lingon.bench.trained_runs import last_checkpoints, train
from lingon.bundle import Bundle, open_bundle, versions
from lingon.export.cli import held_out_pairs
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Texts
from lingon.files import make_folders, write_json
from lingon.training.checkpoint import load_checkpoint, load_progress, saved_steps
from lingon.training.config import Config, load_config

Row = dict[str, Any]


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
        """The settings of the training."""
        tiny = [f"model.{key}={value}" for key, value in self.system.tiny.items()] if self.budget.tiny else []
        changes = [*self.system.changes, *tiny, *self.budget.overrides(self.corpus, self.data, self.device)]
        return load_config(self.configs / f"{self.system.config}.toml", changes)

    def train(self) -> None:
        """Train to the end, from the last checkpoint if there is one. Raises Interrupted if a signal stops it."""
        saved = saved_steps(self.run)
        if not saved or load_progress(saved[-1]).validated < self.budget.steps:
            train(self.config(), self.run)

    def checkpoint(self) -> Path:
        """The last checkpoint with a validation. Raises CheckpointError without one."""
        return last_checkpoints(self.run, 1)[0]

    def kept(self, part: str, make: Callable[[], Row]) -> Row:
        """What `make` returns for the last checkpoint; made once and kept in a file."""
        found = self.read(part)
        if found is None:
            found = make()
            self.keep(part, found)
        return found

    def read(self, part: str) -> Row | None:
        """What was kept; None before."""
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
        """The bundle of the last checkpoint, in fp32 without a shortlist; exported once, with the exporter's gates."""
        folder = self._parts() / self.system.name
        if not versions(folder):
            loaded, count = load_checkpoint(self.checkpoint()), self.budget.parity_sentences
            settings = ExportSettings(
                precisions=("fp32",), shortlist=None, parity_sentences=count, gate_sentences=count
            )
            export_checkpoint(loaded, folder, Texts(held_out_pairs(loaded)[:count]), settings, log)
        return open_bundle(folder)

    def _parts(self) -> Path:
        """The folder of everything that is made of the last checkpoint."""
        return self.run.parent / self.checkpoint().name
