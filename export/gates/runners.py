"""The graphs of a bundle for its gates: those of one precision are in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lingon.bundle import Bundle
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle


class Runners(Mapping[str, OnnxRunner]):
    """The graphs by precision, loaded as a server loads them and with the same checks, when they are asked for.

    The graphs that were asked for last stay loaded; others only as long as they are used elsewhere.
    """

    def __init__(self, bundle: Bundle, names: Sequence[str]) -> None:
        self._bundle, self._names = bundle, tuple(names)
        self._loaded: dict[str, OnnxRunner] = {}

    def __getitem__(self, name: str) -> OnnxRunner:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded.clear()  # before the others take memory
            runner = load_runner(self._bundle, name, threads=0)
            check_bundle(self._bundle, name, runner)
            self._loaded[name] = runner
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def only(self, names: Sequence[str]) -> Runners:
        """Return those of some precisions; nothing is loaded again."""
        kept = Runners(self._bundle, names)
        kept._loaded = {name: runner for name, runner in self._loaded.items() if name in names}
        return kept
