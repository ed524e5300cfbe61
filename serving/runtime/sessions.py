"""Which threads compute now, so that one that is alone may use every core and several keep to their own."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import onnxruntime as ort

from lingon.errors import BundleError, DeviceError
from lingon.serving.runtime.device import CPU, CUDA

NOWHERE = "/dev/null"
"""Where a graph finds the weights that it was not given: a folder that cannot be, not the one the server runs in."""

Engine = TypeVar("Engine")

MOMENT = 0.02  # seconds: who computed so lately is between two steps


class ActiveThreads:
    """Threads that share cores. Times are on `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}  # by thread: when it last stopped computing; it may be in the future

    @contextmanager
    def computing(self) -> Iterator[bool]:
        """While this thread computes; tells whether it is alone in that."""
        me, since = threading.get_ident(), self._clock() - MOMENT
        self._until[me] = math.inf
        try:
            yield all(until < since for who, until in self._until.copy().items() if who != me)
        finally:
            self._until[me] = self._clock()


class SessionPair(Generic[Engine]):
    """One thing made twice: for a thread that has all cores, and for several that have a share of them each.

    Both answer alike, to the last bit.
    """

    def __init__(self, alone: Engine, apart: Engine, company: ActiveThreads) -> None:
        self.alone, self.apart, self._company = alone, apart, company

    @contextmanager
    def acquire(self) -> Iterator[Engine]:
        """The one to use now."""
        with self._company.computing() as alone:
            yield self.alone if alone else self.apart


class GraphLoadError(BundleError):
    """A graph that the runtime does not take.

    ours: what we say of it, without the runtime's own words, which are for whoever has the bundle in front of him
    """

    def __init__(self, ours: str, cause: str) -> None:
        super().__init__(f"{ours} ({cause})")
        self.ours = ours


def _session(
    graph: bytes, weights: dict[str, bytes], provider: str, threads: int, origin: os.PathLike[str]
) -> ort.InferenceSession:
    if provider == CUDA:
        ort.preload_dlls()  # CUDA and cuDNN as pip installs them
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # shapes change with every batch
    if provider == CPU:
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")  # weights go with theirs
    # The encoder's threads must not spin on the cores that the decoder's need.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NOWHERE)
    files = list(weights), list(weights.values()), [len(content) for content in weights.values()]
    options.add_external_initializers_from_files_in_memory(*files)
    try:
        session = ort.InferenceSession(
            graph, options, providers=[provider], disabled_optimizers=["SkipLayerNormFusion"]
        )
    except Exception as error:
        raise GraphLoadError(f"{origin}: onnxruntime does not load it", str(error).splitlines()[0]) from None
    session.disable_fallback()
    if provider not in session.get_providers():
        raise DeviceError(f"{origin}: {provider} was asked for and is not there; see `lingon doctor`")
    return session


@functools.cache
def _share_arena() -> None:
    """Have all sessions compute in one arena, which grows by what is asked for.

    With one of its own for each, that grows by powers of two, a server whose model is swapped under load had 170 to
    250 MB by chance; with this one 170 to 215. Without any, a base model with a shortlist was a fifth slower.
    """
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    same_as_requested, default = 1, -1
    arena = {
        "max_mem": 0,
        "arena_extend_strategy": same_as_requested,
        "initial_chunk_size_bytes": default,
        "max_dead_bytes_per_chunk": default,
        "initial_growth_chunk_size_bytes": default,
    }
    ort.create_and_register_allocator(info, ort.OrtArenaCfg(arena))
