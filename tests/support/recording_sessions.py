"""Sessions that run on the CPU with the rules of recorded CUDA graphs."""

from __future__ import annotations

import threading
from typing import Any

import onnxruntime as ort

from lingon.serving.runtime.device_buffers import EAGER, GRAPH_ID, NO_WAIT, RECORDING_RUNS


class RecordingSession:
    """A session that runs on the CPU as one that records CUDA graphs.

    graphs: by id, the binding and the thread of each recording, and the number of its replays
    waited: of every run, whether the host waits for it
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session, self.eager = session, 0
        self.graphs: dict[str, list[Any]] = {}
        self.waited: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any, options: ort.RunOptions) -> None:
        graph_id, runs = options.get_run_config_entry(GRAPH_ID), 1
        self.waited.append(options.get_run_config_entry(NO_WAIT) == "0")
        if graph_id == EAGER:
            self.eager += 1
        elif graph_id in self.graphs:
            recorded, thread, _ = self.graphs[graph_id]
            assert binding is recorded
            assert threading.current_thread() is thread
            self.graphs[graph_id][2] += 1
        else:
            self.graphs[graph_id] = [binding, threading.current_thread(), 0]
            runs = RECORDING_RUNS
        for _ in range(runs):
            self._session.run_with_iobinding(binding)
