"""The parts of a cell: how long the encoder, the decoder steps and the host take, and which kernels a step starts.

Parts are timed in rounds of their own, with a clock and not with events: after every run of a graph the host waits
until the device has computed it. So the time of a part contains the start of its kernels, and a round takes a little
longer than one that does not wait. `encoder` is the run of the encoder and the writing of its output into the states
(placing); `steps` are the runs of the graphs of decoder steps and of copies of pasts; the host has what remains of the
round: scheduling, search, copies of tokens and candidates, and results.

Kernels are counted by the profiler of PyTorch, in processes whose cells have all been timed, because a profiler slows
later runs. A step has the difference of two runs whose outputs differ in length alone.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lingon.bench.engines.base import BenchEngine
from lingon.errors import LingonError

if TYPE_CHECKING:
    from lingon.serving.runtime.onnx_runner import OnnxRunner

ENCODER, STEPS = "encoder", "steps"


@dataclass(slots=True)
class Stopwatch:
    """The seconds of each part of a run.

    enabled: otherwise parts are neither timed nor waited for
    """

    enabled: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: {ENCODER: 0.0, STEPS: 0.0})

    @contextmanager
    def part(self, name: str, wait: Callable[[], object]) -> Iterator[None]:
        """Time a block; wait: returns when the device has done its work."""
        if not self.enabled:
            yield
            return
        start = time.perf_counter()
        yield
        wait()
        self.seconds[name] += time.perf_counter() - start

    @contextmanager
    def round(self) -> Iterator[None]:
        """Time the parts of a block."""
        self.seconds = {ENCODER: 0.0, STEPS: 0.0}
        self.enabled = True
        try:
            yield
        finally:
            self.enabled = False


@runtime_checkable
class EngineOfParts(BenchEngine, Protocol):
    """An engine whose parts can be timed."""

    stopwatch: Stopwatch


class TimedSession:
    """A session of ONNX Runtime whose runs with a binding are a part."""

    def __init__(self, session: Any, name: str, stopwatch: Stopwatch) -> None:
        self._session, self._name, self._stopwatch = session, name, stopwatch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        """Run the graph."""
        with self._stopwatch.part(self._name, binding.synchronize_outputs):
            self._session.run_with_iobinding(binding, options)


def time_parts(runner: OnnxRunner, stopwatch: Stopwatch) -> None:
    """Time the graphs of a runner whose states are on a device. Graphs in main memory belong to the host."""
    graphs = runner.state_graphs
    assert graphs is not None
    runner.encoder = runner.encoder.around(_timed(runner.encoder.all_cores, ENCODER, stopwatch))
    runner.decoder = runner.decoder.around(_timed(runner.decoder.all_cores, STEPS, stopwatch))
    of_steps = ("copy_memory_session", "copy_rows_session", "greedy", "several_greedy", "several_beams")
    timed = {name: _timed(getattr(graphs, name), STEPS, stopwatch) for name in of_steps if hasattr(graphs, name)}
    runner.state_graphs = replace(graphs, place_session=_timed(graphs.place_session, ENCODER, stopwatch), **timed)


def _timed(session: Any, name: str, stopwatch: Stopwatch) -> Any:
    return TimedSession(session, name, stopwatch)


Kernels = dict[str, tuple[float, float]]
"""By name of a kernel, how often it runs and how many microseconds it takes in all."""

NO_KERNELS = "Memcpy", "Memset"
"""How the profiler begins the names of copies, which are no kernels."""


def kernels_of(work: Callable[[], object], operators: str = "") -> Kernels:
    """Return the kernels that run on CUDA during some work. Raises LingonError if the profiler sees none.

    operators: the module of emulated operators, see lingon.bench.engines.base.Setting; it counts its launches
    """
    if operators:
        return _emulated_kernels(work, importlib.import_module(operators))
    import torch
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        work()
        torch.cuda.synchronize()
    kernels: Kernels = {}
    for event in found.events():
        if event.device_type == DeviceType.CUDA and not event.name.startswith(NO_KERNELS):
            count, microseconds = kernels.get(event.name, (0.0, 0.0))
            kernels[event.name] = count + 1, microseconds + event.time_range.elapsed_us()
    if not kernels:
        raise LingonError("the profiler has seen no kernel")
    return kernels


def _emulated_kernels(work: Callable[[], object], emulation: Any) -> Kernels:
    before = len(emulation.launched_kernels())
    work()
    kernels: Kernels = {}
    for name in emulation.launched_kernels()[before:]:
        kernels[name] = kernels.get(name, (0.0, 0.0))[0] + 1, 0.0
    return kernels


def kernels_a_step(shorter: Kernels, longer: Kernels, steps: int) -> Kernels:
    """Return the kernels of one step, from those of two runs of which the longer one has so many steps more."""
    found: Kernels = {}
    for name, (count, microseconds) in longer.items():
        fewer = shorter.get(name, (0.0, 0.0))
        if count > fewer[0]:
            found[name] = (count - fewer[0]) / steps, (microseconds - fewer[1]) / steps
    return found
