"""CUDA graphs: the kernels of a run are recorded once and then started together, which takes the host far less time.

A recorded graph reads and writes the addresses of its recording, and ONNX Runtime does not check that a later run has
the same ones. So each graph belongs to one binding, whose arrays never change, and to one thread, because ONNX Runtime
keeps the graphs of each thread apart. A run on another thread, as in the warm-up of a server, starts its kernels one
by one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import onnxruntime as ort

GRAPH_ID = "gpu_graph_id"
EAGER = "-1"  # the graph id of a run that is neither recorded nor replayed
NO_WAIT = "disable_synchronize_execution_providers"
MOST_GRAPHS = 512  # ONNX Runtime keeps each one until its session ends; further bindings run eagerly
RECORDING_RUNS = 2  # times that ONNX Runtime computes a graph in the run that records it


@dataclass(eq=False, slots=True)
class BoundRun:
    """A session with a binding whose arrays never change.

    graph_id, thread: of its CUDA graph; None before it is recorded
    """

    session: ort.InferenceSession
    binding: Any
    graph_id: int | None = None
    thread: threading.Thread | None = None


@dataclass(slots=True)
class GraphRecorder:
    """Runs bindings as CUDA graphs, if it is enabled, else one kernel after the other.

    recorded: the number of graphs so far
    """

    enabled: bool = False
    recorded: int = 0
    _options: dict[tuple[int | None, bool], ort.RunOptions] = field(default_factory=dict)

    def run(self, bound: BoundRun, *, wait: bool = True) -> None:
        """Run a binding: replay its graph on the thread that recorded it, else start its kernels.

        wait: whether a replay has ended when this returns; only another replay of the same session may follow if not
        """
        if not self.enabled:
            bound.session.run_with_iobinding(bound.binding)
        elif bound.thread is threading.current_thread():
            bound.session.run_with_iobinding(bound.binding, self._options_of(bound.graph_id, wait=wait))
        else:
            bound.session.run_with_iobinding(bound.binding, self._options_of(None))

    def may_record(self, bound: BoundRun) -> bool:
        """Whether `record` would record a graph for the binding."""
        return self.enabled and bound.graph_id is None and self.recorded < MOST_GRAPHS

    def record(self, bound: BoundRun) -> None:
        """Record the graph of a binding on this thread; computes it RECORDING_RUNS times."""
        self.recorded += 1
        bound.graph_id, bound.thread = self.recorded, threading.current_thread()
        self.run(bound)

    def _options_of(self, graph_id: int | None, *, wait: bool = True) -> ort.RunOptions:
        key = graph_id, wait
        if key not in self._options:
            options = ort.RunOptions()
            options.add_run_config_entry(GRAPH_ID, EAGER if graph_id is None else str(graph_id))
            options.add_run_config_entry(NO_WAIT, str(int(not wait)))
            self._options[key] = options
        return self._options[key]
