"""The engine processes for one bundle, of which some may be missing: what is missing has a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from lingon.bench.decode.plan import EngineSetting, unavailable_reason
from lingon.bench.decode.processes import LoadedEngine, Measure, load_engine, measure_of
from lingon.bench.engines.base import Cell
from lingon.bundle import Bundle
from lingon.errors import LingonError


@dataclass(slots=True)
class FallibleEngines:
    """The processes of engine settings for a bundle; used as a `with`.

    show: receives a line about the current activity, for a progress display
    missing: why an engine cannot run here at all, by setting
    """

    bundle: Bundle
    settings: Sequence[EngineSetting]
    cache: Path
    show: Callable[[str], None]
    missing: dict[EngineSetting, str] = field(default_factory=dict)
    loaded: dict[EngineSetting, LoadedEngine] = field(default_factory=dict)
    _stacks: dict[EngineSetting, ExitStack] = field(default_factory=dict)

    def __enter__(self) -> FallibleEngines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack in self._stacks.values():
            stack.close()

    def load(self) -> None:
        """Load all engines that are not loaded: at first all of them, later those that failed in a cell."""
        for each in self.settings:
            if each in self.loaded or each in self.missing:
                continue
            if reason := unavailable_reason(each, self.bundle):
                self.missing[each] = reason
                continue
            stack = self._stacks[each] = ExitStack()
            try:
                self.loaded[each] = load_engine(each, self.bundle, self.cache, self.show, stack)
            except LingonError as error:
                stack.close()
                self.missing[each] = str(error)

    def measures(
        self, cell: Cell, sources: Sequence[Sequence[int]]
    ) -> tuple[dict[EngineSetting, Measure], dict[EngineSetting, str]]:
        """The function that measures the cell, for each engine that can decode it; why the others cannot.

        Every engine decodes the cell once for that. One that fails, for example for want of memory, is stopped; it is
        loaded again for the next cell.
        """
        self.load()
        found: dict[EngineSetting, Measure] = {}
        reasons = dict(self.missing)
        for each, engine in list(self.loaded.items()):
            measure = measure_of(engine, cell, len(sources))
            try:
                engine.process.ask(do="sources", sources=sources)
                measure(1)
                found[each] = measure
            except LingonError as error:
                reasons[each] = str(error)
                del self.loaded[each]
                self._stacks.pop(each).close()
        return found, reasons
