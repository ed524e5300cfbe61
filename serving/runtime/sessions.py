"""ONNX Runtime sessions, and the choice between a session that uses all cores and one that uses a share of them."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np
import onnxruntime as ort

from lingon.errors import BundleError, DeviceError
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.kernels import LIBRARY, instruction_set
from lingon.serving.runtime.weights import SharedWeights

PROBES = 8  # steps of each number of rows that shared cores compute to tell whether such a step is short
SHORT_STEP = 150e-6  # seconds
STEP_GAP = 0.02  # seconds that a thread stays active after it computed: it is probably between two steps
TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
"""The NumPy type of an input or output, by the name that ONNX Runtime has for it."""

NO_FOLDER = "/dev/null"
"""The folder for weights that are not given in memory. It cannot exist; the default is the server's own folder."""

RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"
"""The option of a session that remembers where its nodes run."""

ON_HOST = {
    "Shape",
    "Size",
    "Concat",
    "Slice",
    "Gather",
    "Squeeze",
    "Unsqueeze",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Min",
    "Cast",
}
"""Operators of shape arithmetic: ONNX Runtime runs them on the host if they compute sizes of other values."""

LACK_OF_MEMORY = "allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc"
"""Parts of the messages of ONNX Runtime, CUDA and cuBLAS for a lack of memory."""

SessionT = TypeVar("SessionT")
ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class ActiveThreads:
    """The threads that compute at the moment and share the cores. Times are those of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_active: dict[int, float] = {}  # by thread id, in seconds of the clock; infinite while it computes

    def begin(self) -> bool:
        """Mark this thread as active until `end`; returns whether it is the only active thread."""
        own, recent = threading.get_ident(), self._clock() - STEP_GAP
        self._last_active[own] = math.inf
        return all(active < recent for thread, active in self._last_active.copy().items() if thread != own)

    def end(self) -> None:
        """Mark this thread as one that computed until now."""
        self._last_active[threading.get_ident()] = self._clock()


class SessionPair(Generic[SessionT]):
    """Two sessions of one graph: one for a single thread, one for each of several threads at the same time.

    Both give the same results, to the last bit.

    all_cores: the session that uses all cores
    shared_cores: the session that uses one thread's share of the cores
    """

    def __init__(self, all_cores: SessionT, shared_cores: SessionT, active_threads: ActiveThreads) -> None:
        self.all_cores, self.shared_cores, self._active_threads = all_cores, shared_cores, active_threads
        self._steps: dict[int, int] = {}  # by rows: the steps that the session of shared cores has computed
        self._shortest: dict[int, float] = {}  # by rows: the seconds of the shortest of them

    def __enter__(self) -> SessionT:
        """Return the session that this thread should use now; the thread counts as active inside the context."""
        return self.all_cores if self._active_threads.begin() else self.shared_cores

    def __exit__(self, *_: object) -> None:
        self._active_threads.end()

    def for_step(self, session: SessionT, rows: int) -> SessionT:
        """Return the session for a step of the decoder, where `session` is that of the context.

        A step that is short on shared cores uses no others: to wake their threads takes as long. The first steps of
        each number of rows tell.
        """
        if self._steps.get(rows, 0) < PROBES or self._shortest[rows] < SHORT_STEP:
            return self.shared_cores
        return session

    def measure_step(self, session: SessionT, rows: int, seconds: float) -> None:
        """Count a step that a session computed."""
        if session is self.shared_cores:
            self._steps[rows] = self._steps.get(rows, 0) + 1
            self._shortest[rows] = min(self._shortest.get(rows, math.inf), seconds)


class Placed(NamedTuple):
    """A node of a graph, its operator, and the provider that runs it."""

    name: str
    operator: str
    provider: str


class GraphLoadError(BundleError):
    """A graph that ONNX Runtime cannot load or run.

    public_message: our message without ONNX Runtime's text; safe to send to clients
    """

    def __init__(self, public_message: str, cause: str) -> None:
        super().__init__(f"{public_message} ({cause})")
        self.public_message = public_message


def create_session(
    graph: bytes,
    weights: SharedWeights,
    provider: str,
    threads: int,
    origin: os.PathLike[str],
    *,
    recorded: bool = False,
) -> ort.InferenceSession:
    """A session of a graph.

    weights: of the model; on the CPU, all its sessions share them
    threads: threads of one run
    origin: path of the graph, for error messages
    recorded: whether its runs on CUDA may be recorded as CUDA graphs

    Raises GraphLoadError if ONNX Runtime rejects the graph, DeviceError if the provider is not available.
    """
    if provider == CUDA:
        ort.preload_dlls()  # Loads CUDA and cuDNN from their pip packages.
    options = _session_options(weights.files, provider, threads)
    shared = weights.tensors(graph) if provider == CPU else {}
    for name, value in shared.items():
        options.add_initializer(name, value)
    try:
        session = ort.InferenceSession(
            graph,
            options,
            providers=[(provider, _provider_options(provider, recorded=recorded))],
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except Exception as error:
        raise GraphLoadError(f"{origin}: onnxruntime does not load it", str(error).splitlines()[0]) from None
    session.shared_weights = shared  # ONNX Runtime does not keep them alive
    session.disable_fallback()
    if provider not in session.get_providers():
        raise DeviceError(f"{origin}: {provider} is not available; see `lingon doctor`")
    if provider != CPU and (elsewhere := misplaced(placement(session), provider)):
        raise DeviceError(f"{origin}: {provider} does not run {', '.join(elsewhere)}; see `lingon doctor`")
    return session


def _session_options(weights: Mapping[str, bytes], provider: str, threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # Shapes change with every batch.
    if provider == CPU:
        if instruction_set():
            options.register_custom_ops_library(str(LIBRARY))
        _share_one_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Weights stay out of the shared arena, so that unloading a model frees them.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if provider != CPU:
        options.add_session_config_entry(RECORD_PLACEMENT, "1")
    # Threads of the encoder must not spin on the cores that the decoder needs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", NO_FOLDER)
    files = list(weights), list(weights.values()), [len(content) for content in weights.values()]
    options.add_external_initializers_from_files_in_memory(*files)
    return options


def _provider_options(provider: str, *, recorded: bool) -> dict[str, str]:
    if provider != CUDA:
        return {}
    return {
        # By default the arena doubles with every growth, and takes memory that other models or processes need.
        "arena_extend_strategy": "kSameAsRequested",
        # By default the inputs of float32 products are rounded to 10 bits, as in fp16.
        "use_tf32": "0",
        "enable_cuda_graph": str(int(recorded)),
    }


def raises_memory_error(function: Callable[ParametersT, ResultT]) -> Callable[ParametersT, ResultT]:
    """Make a function that runs graphs raise MemoryError if there was no memory for it.

    ONNX Runtime has no type for this error: its arena and CUDA only say so in the message.
    """

    @functools.wraps(function)
    def run(*args: ParametersT.args, **kwargs: ParametersT.kwargs) -> ResultT:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if any(text in str(error) for text in LACK_OF_MEMORY):
                raise MemoryError(str(error).splitlines()[0]) from None
            raise

    return run


def placement(session: ort.InferenceSession) -> list[Placed]:
    """Return where the nodes of a session run, if it was made with RECORD_PLACEMENT."""
    return [
        Placed(node.name, node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def misplaced(nodes: Iterable[Placed], provider: str) -> list[str]:
    """Return the nodes that run elsewhere than on their provider, but for shape arithmetic, which belongs on the host.

    Every one of them would copy values from the device and back in each run.
    """
    return [
        f"{node.name} ({node.operator})" for node in nodes if node.provider != provider and node.operator not in ON_HOST
    ]


@functools.cache
def _share_one_arena() -> None:
    """Make all sessions allocate from one arena, which grows by the size that is requested.

    If each session has its own arena, which grows by powers of two, a server whose model is swapped under load takes
    170 to 250 MB, by chance; with the shared arena it takes 170 to 215 MB. Without any arena, a base model with a
    shortlist is a fifth slower.
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
