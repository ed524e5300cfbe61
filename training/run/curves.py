"""The curves of a run, as TensorBoard reads them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from lingon.files import naming


class Curves:
    """A file of events in a folder of TensorBoard, on disk after each call.

    The writer of TensorBoard itself writes in a thread. On a full disk that prints a traceback.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folder and a file; TensorBoard reads the files of a folder in the order of their names."""
        folder.mkdir(exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}"
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a point to each curve. Raises OSError with the name of the file."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        with naming(self._path), self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())
