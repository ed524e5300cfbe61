"""Everybody who takes part with one bundle: their processes, loaded once, and how each is asked for a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from lingon.bench.decode.plan import OURS, STAGGERED, EngineSetting, bytes_of, folder_of
from lingon.bench.decode.rounds import Measure, Tokens
from lingon.bench.engines.base import Cell
from lingon.bench.worker_process import Worker
from lingon.bundle import Bundle
from lingon.files import publish_folder

Name = tuple[str, EngineSetting]
"""How an engine was used, and the entrant that was."""


@dataclass(slots=True)
class Member:
    """An entrant that is loaded."""

    process: Worker
    load_s: float
    disk_mb: float
    peak_mb: float = 0.0


@dataclass(slots=True)
class Crew:
    """The processes of some entrants for a bundle; used as a `with`.

    told: is told what goes on, for a progress display
    """

    bundle: Bundle
    entrants: Sequence[EngineSetting]
    cache: Path
    told: Callable[[str], None]
    members: dict[EngineSetting, Member] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Crew:
        with ExitStack() as stack:
            for entrant in self.entrants:
                self.members[entrant] = self._loaded(entrant, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def give(self, sources: Sequence[Sequence[int]]) -> None:
        """What everybody translates from now on."""
        for member in self.members.values():
            member.process.ask(do="sources", sources=sources)

    def measures(self, cell: Cell, count: int) -> dict[Name, Measure]:
        """How to ask everybody who takes this cell for its first `count` sources."""
        found: dict[Name, Measure] = {}
        for entrant, member in self.members.items():
            if entrant.takes(cell):
                found[entrant.engine, entrant] = partial(_measure, member, cell, count, False)
                if entrant.engine == OURS and cell.exact_length and cell.batch > 1:
                    found[STAGGERED, entrant] = partial(_measure, member, cell, count, True)
        return found

    def _loaded(self, entrant: EngineSetting, stack: ExitStack) -> Member:
        folder = folder_of(entrant.engine, self.bundle, self.cache)
        if not folder.is_dir():
            self.told(f"writing the model files of {entrant.engine}")
            with publish_folder(folder) as part, _worker(entrant) as process:
                process.ask(do="prepare", bundle=str(self.bundle.folder), folder=str(part))
        self.told(f"loading {entrant.label}")
        process = stack.enter_context(_worker(entrant))
        load_s = process.ask(do="load", folder=str(folder), setting=asdict(entrant.setting))["load_s"]
        return Member(process, load_s, bytes_of(entrant, folder, self.bundle) / 2**20)


def _worker(entrant: EngineSetting) -> Worker:
    return Worker("lingon.bench.decode.worker", entrant.engine, label=entrant.label)


def _measure(member: Member, cell: Cell, count: int, staggered: bool, repeats: int) -> tuple[float, Tokens]:
    answer = member.process.ask(do="translate", cell=asdict(cell), count=count, repeats=repeats, staggered=staggered)
    member.peak_mb = answer["peak_mb"]
    return answer["ms"], answer["outputs"]
