"""Sessions of ONNX Runtime: their errors, their weights, the providers of their nodes, and the cores of a run.

It imports of `lingon` only `errors`, and of `serving.runtime` only `device`.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from mmap import MADV_DONTNEED, mmap
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np
import onnxruntime as ort
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from lingon.errors import BundleError, DeviceError
from lingon.serving.runtime.device import CPU, CUDA, LIBRARY, helper_switch, instruction_set, pages_given_back

FileContent = bytes | mmap
"""Of a weight file: read, or mapped into memory."""

LACK_OF_MEMORY = "allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc"
"""Parts of the messages of ONNX Runtime, CUDA and cuBLAS for a lack of memory."""

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


class GraphLoadError(BundleError):
    """A graph that ONNX Runtime cannot load or run.

    public_message: our message without ONNX Runtime's text; safe to send to clients
    """

    def __init__(self, public_message: str, cause: str) -> None:
        super().__init__(f"{public_message} ({cause})")
        self.public_message = public_message


@contextmanager
def as_graph_load_error(message: str) -> Iterator[None]:
    """Convert every error but BundleError to GraphLoadError.

    ONNX Runtime has many error classes, and NumPy and the engine raise others for invalid results.
    """
    try:
        yield
    except BundleError:
        raise
    except Exception as error:
        raise GraphLoadError(message, f"{type(error).__name__}: {error}".splitlines()[0]) from None


def raises_memory_error(function: Callable[ParametersT, ResultT]) -> Callable[ParametersT, ResultT]:
    """Make a function that runs graphs raise MemoryError if it lacked memory.

    ONNX Runtime has no type for this error. Its arena and CUDA report it only in the message.
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


MOST_DIGITS = 20  # digits of an offset or a length in a file
EXTERNAL = 1  # the data_location of weights in a file
KERNELS = b"lingon"  # the domain of our operators
WEIGHT_TYPES = {1: np.float32, 3: np.int8, 10: np.float16}
"""The NumPy types of weights, by their number in ONNX."""

FIELDS = {
    "Model": {"graph": (7, "Graph")},
    "Graph": {"node": (1, "[Node]"), "initializer": (5, "[Tensor]"), "output": (12, "[Value]")},
    "Node": {"input": (1, "[bytes]"), "attribute": (5, "[Attribute]"), "domain": (7, "bytes")},
    "Attribute": {"g": (6, "Graph")},
    "Value": {"name": (1, "bytes")},
    "Tensor": {
        "dims": (1, "[int64]"),
        "data_type": (2, "int32"),
        "name": (8, "string"),
        "external_data": (13, "[Entry]"),
        "data_location": (14, "int32"),
    },
    "Entry": {"key": (1, "string"), "value": (2, "string")},
}
"""The messages of ONNX with the locations of weights, and with what reads them. Each field has its number and type, in
brackets if repeated.

Protocol buffers keep all other fields as they are. The package `onnx` would take more memory than the weights.
"""


RELEASED = 4 << 20  # bytes of a file that are returned at once; it holds the lock of Python for 0.4 ms meanwhile


class SharedWeights:
    """The weight files of a model in main memory, and the requested tensors in them.

    The sessions of all its graphs share them. ONNX Runtime would otherwise copy the weights for each session. The
    shipped model has seven sessions.
    """

    def __init__(self, files: Mapping[str, FileContent]) -> None:
        """files: contents by the names that the graphs use; mapped files take no memory for what is not read."""
        self.files = files
        self._tensors: dict[tuple[object, ...], ort.OrtValue] = {}

    def release_pages(self) -> None:
        """Return the memory of mapped files to the system. What is read again is mapped again, without a disk's read.

        The native operators keep most weights in another order, so that most of a file is read once.
        """
        for content in self.files.values():
            if isinstance(content, mmap):
                for first in range(0, len(content), RELEASED):
                    content.madvise(MADV_DONTNEED, first, min(RELEASED, len(content) - first))

    def tensors(self, graph: bytes) -> dict[str, ort.OrtValue]:
        """Return the weights that a graph reads from the files, by name. They must live as long as its sessions.

        Weights with a wrong location are left out, so that ONNX Runtime refuses the graph with its reason. So are those
        that nothing reads: ONNX Runtime drops them, and then refuses to be given them.
        """
        model = _parsed(graph)
        found = {each.name: self._tensor(each) for each in _external(model)}
        return {name: value for name, value in found.items() if value is not None}

    def _tensor(self, tensor: Any) -> ort.OrtValue | None:
        """Return a tensor of a graph, or None if the files do not have it."""
        entries = {each.key: each.value for each in tensor.external_data}
        content, dtype = self.files.get(entries.get("location", "")), WEIGHT_TYPES.get(tensor.data_type)
        offset, size = entries.get("offset", "0"), entries.get("length", "")
        if content is None or dtype is None or not all(map(_is_number, (offset, size))):
            return None
        shape, place = tuple(tensor.dims), int(offset)
        count = math.prod(shape)
        item = np.dtype(dtype).itemsize
        if min(shape, default=1) < 1 or place % item or int(size) != count * item or place + int(size) > len(content):
            return None
        key = entries["location"], place, shape, dtype
        if key not in self._tensors:
            values = np.frombuffer(content, dtype, count, place).reshape(shape)
            self._tensors[key] = ort.OrtValue.ortvalue_from_numpy(values)
        return self._tensors[key]


class UncopiedWeights(NamedTuple):
    """A graph with weights that ONNX Runtime never reads itself, so that it makes no copy of them.

    graph: these weights are in the file EMPTY of the folder DEVICES
    names: of these weights
    """

    graph: bytes
    names: frozenset[str]

    @classmethod
    def of(cls, graph: bytes, shared: Container[str]) -> UncopiedWeights:
        """Return a graph whose weights of our operators are given in memory; shared: the names of what is given.

        ONNX Runtime reads weights while it optimises standard nodes, but not those of custom operators. It looks that
        the file of a weight exists, and takes the memory that it is given. It would report an error if it read from
        EMPTY. A graph that lacks a weight stays as it is, so that it is refused.
        """
        model = _parsed(graph)
        external = _external(model)
        if any(each.name not in shared for each in external):
            return cls(graph, frozenset())
        read = _read_values(model.graph, ours=False)
        unread = [each for each in external if each.name.encode() not in read]
        for each in unread:
            for entry in each.external_data:
                if entry.key == "location":
                    entry.value = EMPTY
        return cls(model.SerializeToString(), frozenset(each.name for each in unread))


def _parsed(graph: bytes) -> Any:
    """Return the message of a graph, an empty one if it is none."""
    model = _MODEL()
    try:
        model.ParseFromString(graph)
    except DecodeError:
        return _MODEL()
    return model


def _external(model: Any) -> list[Any]:
    """Return the weights in files that something reads."""
    read = _read_values(model.graph)
    return [each for each in model.graph.initializer if each.data_location == EXTERNAL and each.name.encode() in read]


def _read_values(graph: Any, *, ours: bool = True) -> set[bytes]:
    """Return the names of the values that the nodes of a graph, or of a graph inside one, read or that it returns.

    They are bytes, because ONNX Runtime says it of names that are not UTF-8.

    ours: whether our operators count
    """
    found = {each.name for each in graph.output}
    for node in graph.node:
        if ours or node.domain != KERNELS:
            found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _read_values(attribute.g, ours=ours)
    return found


def _is_number(text: str) -> bool:
    """Return whether a text can be an offset or a length. Python refuses to read a number of thousands of digits."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _message_class(name: str) -> Any:
    """Return the class of a message of FIELDS."""
    file = descriptor_pb2.FileDescriptorProto(name="lingon/onnx_weights.proto", package="lingon.onnx", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in FIELDS.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            kind, repeated = kind.strip("[]"), kind.startswith("[")
            added = described.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".lingon.onnx.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lingon.onnx.{name}"))


_MODEL = _message_class("Model")


RECORD_PLACEMENT = "session.record_ep_graph_assignment_info"
"""The option of a session that records the providers of its nodes."""

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
"""Operators of shape arithmetic. ONNX Runtime runs them on the host if they compute sizes of other values."""


class Placed(NamedTuple):
    """A node of a graph, its operator, and its provider."""

    name: str
    operator: str
    provider: str


def placement(session: ort.InferenceSession) -> list[Placed]:
    """Return the providers of the nodes of a session that was made with RECORD_PLACEMENT."""
    return [
        Placed(node.name, node.op_type, part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


def misplaced(nodes: Iterable[Placed], provider: str) -> list[str]:
    """Return the nodes that do not run on their provider, except shape arithmetic, which belongs on the host.

    Each of them copies values from the device and back in each run.
    """
    return [
        f"{node.name} ({node.operator})" for node in nodes if node.provider != provider and node.operator not in ON_HOST
    ]


TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
"""The NumPy type of an input or output, by ONNX Runtime's name for it."""

NO_FOLDER = "/dev/null"
"""The folder for weights that are not given in memory. It cannot exist. The default is the server's own folder."""

DEVICES, EMPTY = "/dev", "null"
"""A folder and a file that exist everywhere, see UncopiedWeights. ONNX Runtime reads regular files alone."""


def create_session(
    graph: bytes,
    weights: SharedWeights,
    provider: str,
    threads: int,
    origin: os.PathLike[str],
    *,
    recorded: bool = False,
    few_shapes: bool = False,
    register: Callable[[ort.SessionOptions], None] | None = None,
) -> ort.InferenceSession:
    """Return a session of a graph.

    weights: weight files of the model; on the CPU, all its sessions share them
    threads: threads of one run
    origin: path of the graph, for error messages
    recorded: whether its runs on CUDA may be recorded as CUDA graphs
    few_shapes: whether its inputs have so few shapes that the places of all values of a run may be kept for each
    register: adds the operators of the graph; by default those for the CPU, on the CPU

    Raises GraphLoadError if ONNX Runtime rejects the graph, DeviceError if the provider is not available.
    """
    if provider == CUDA:
        ort.preload_dlls()  # loads CUDA and cuDNN from their pip packages
    options = _session_options(provider, threads, few_shapes=few_shapes)
    register = register or (_register_native_operators if provider == CPU else None)
    if register is not None:
        register(options)
    shared = weights.tensors(graph) if provider == CPU else {}
    if provider != CPU:
        _add_files(options, weights.files)
    graph, uncopied = UncopiedWeights.of(graph, shared)
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", DEVICES if uncopied else NO_FOLDER
    )
    # The first call keeps ONNX Runtime from reading the files, but it copies the tensors while the session is made. The
    # second one keeps it from copying them for each session until the model is unloaded.
    copied = [name for name in shared if name not in uncopied]
    options.add_external_initializers(copied, [shared[name] for name in copied])
    for name, value in shared.items():
        options.add_initializer(name, value)
    try:
        with pages_given_back(each for each in weights.files.values() if isinstance(each, mmap)):
            session = ort.InferenceSession(
                graph,
                options,
                providers=[(provider, _provider_options(provider, recorded=recorded))],
                disabled_optimizers=["SkipLayerNormFusion"],
            )
        _read_names(session)
    except Exception as error:
        raise GraphLoadError(f"{origin}: onnxruntime does not load it", str(error).splitlines()[0]) from None
    session.shared_weights = shared  # ONNX Runtime does not keep them alive
    session.disable_fallback()
    if provider not in session.get_providers():
        raise DeviceError(f"{origin}: {provider} is not available; see `lingon doctor`")
    if provider != CPU and (elsewhere := misplaced(placement(session), provider)):
        raise DeviceError(f"{origin}: {provider} does not run {', '.join(elsewhere)}; see `lingon doctor`")
    return session


def _read_names(session: ort.InferenceSession) -> None:
    """Raise UnicodeDecodeError if an input or output has a name that is not UTF-8. ONNX Runtime accepts any bytes."""
    for each in (*session.get_inputs(), *session.get_outputs()):
        _ = each.name, each.shape


def _add_files(options: ort.SessionOptions, files: Mapping[str, FileContent]) -> None:
    """Add the weight files from which ONNX Runtime reads the tensors of a graph."""
    contents = [bytes(content) for content in files.values()]
    options.add_external_initializers_from_files_in_memory(list(files), contents, [*map(len, contents)])


def _session_options(provider: str, threads: int, *, few_shapes: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # With the places of all values a run allocates memory once, and not for each node: a decoder step of a student of
    # 37 nodes takes 15.0 instead of 19.7 µs. ONNX Runtime never drops the places of a shape, some 3 kB.
    options.enable_mem_pattern = few_shapes and provider == CPU
    if provider == CPU:
        _share_one_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Weights stay out of the shared arena, so that unloading a model frees them.
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    if provider != CPU:
        options.add_session_config_entry(RECORD_PLACEMENT, "1")
    # Threads of the encoder must not spin on the cores that the decoder needs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _register_native_operators(options: ort.SessionOptions) -> None:
    if instruction_set():
        options.register_custom_ops_library(str(LIBRARY))


def _provider_options(provider: str, *, recorded: bool) -> dict[str, str]:
    if provider != CUDA:
        return {}
    return {
        # By default the arena doubles with every growth, and takes memory that other models or processes need.
        "arena_extend_strategy": "kSameAsRequested",
        # By default the inputs of float32 products are rounded to 10 bits, as in fp16.
        "use_tf32": "0",
        # SkipLayerNormalization then sums in float32.
        "enable_skip_layer_norm_strict_mode": "1",
        "enable_cuda_graph": str(int(recorded)),
    }


@functools.cache
def _share_one_arena() -> None:
    """Make all sessions allocate from one arena, which grows by the requested size.

    If each session has its own arena, which grows by powers of two, a server whose model is swapped under load takes
    170 to 250 MB, at random. With the shared arena it takes 170 to 215 MB. Without any arena, a base model with a
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


PROBES = 8  # measured steps on shared cores for each number of rows, which show whether such a step is short
SHORT_STEP = 150e-6  # seconds
STEP_GAP = 0.02  # seconds; a thread stays active for so long after it computed, because it is between two steps
MOST_KNOWN = 64  # threads; beyond them, inactive ones are forgotten

SessionT = TypeVar("SessionT")


class LateSession:
    """A session that is made on its first use, or before it is used. Safe for use from several threads."""

    def __init__(self, make: Callable[[], ort.InferenceSession]) -> None:
        """make: its errors are those of `get`."""
        self._make: Callable[[], ort.InferenceSession] | None = make
        self._session: ort.InferenceSession | None = None
        self._lock = threading.Lock()

    def get(self) -> ort.InferenceSession:
        """Return the session. The first call makes it."""
        if self._session is None:
            with self._lock:
                if self._make is not None:
                    self._session = self._make()
                    self._make = None  # it holds the files of the model
        return self._session


class ActiveThreads:
    """The threads that compute now and share the cores. Times are those of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_active: dict[int, float] = {}  # seconds of the clock by thread id; infinite while it computes

    def begin(self) -> bool:
        """Mark this thread as active until `end`, and return whether it is the only active thread."""
        own, recent = threading.get_ident(), self._clock() - STEP_GAP
        self._last_active[own] = math.inf
        known = self._last_active.copy()
        if len(known) > MOST_KNOWN:
            for thread, active in known.items():
                if active < recent:
                    self._last_active.pop(thread, None)
        return all(active < recent for thread, active in known.items() if thread != own)

    def end(self) -> None:
        """Mark this thread as one that computed until now."""
        self._last_active[threading.get_ident()] = self._clock()


class SessionPair(Generic[SessionT]):
    """Two sessions of one graph: one for a single active thread, one for each of several active threads.

    Both give the same results, to the last bit.

    all_cores: the session that uses all cores
    shared_cores: the session that uses one thread's share of the cores
    chooses: whether the duration of steps selects the session, see `for_step`
    """

    chooses = True

    def __init__(self, all_cores: SessionT, shared_cores: SessionT, active_threads: ActiveThreads) -> None:
        self.all_cores, self.shared_cores, self._active_threads = all_cores, shared_cores, active_threads
        self._steps: dict[int, int] = {}  # by rows: steps computed by the session of shared cores
        self._shortest: dict[int, float] = {}  # by rows: seconds of the shortest of these steps

    def __enter__(self) -> SessionT:
        """Return the session for this thread now. The thread counts as active inside the context."""
        return self.all_cores if self._active_threads.begin() else self.shared_cores

    def __exit__(self, *_: object) -> None:
        self._active_threads.end()

    def around(self, session: SessionT) -> SessionPair[SessionT]:
        """Return a pair like this one in which both sessions are this session."""
        return SessionPair(session, session, self._active_threads)

    def for_step(self, session: SessionT, rows: int) -> SessionT:
        """Return the session for a step of the decoder; session: the session of the context.

        A step that is short on shared cores uses no others, because notifying their threads takes as long. The first
        steps of each number of rows are measured to decide this.
        """
        if self._steps.get(rows, 0) < PROBES or self._shortest[rows] < SHORT_STEP:
            return self.shared_cores
        return session

    def measure_step(self, session: SessionT, rows: int, seconds: float) -> None:
        """Count a computed step of a session."""
        if session is self.shared_cores:
            self._steps[rows] = self._steps.get(rows, 0) + 1
            self._shortest[rows] = min(self._shortest.get(rows, math.inf), seconds)


class HelpedSession(SessionPair[SessionT]):
    """A session of native operators that uses helper threads while no other thread computes.

    Helpers begin at once, so that a short step uses them too. Results are the same with and without them, to the last
    bit.

    helpers: the threads beside the one that runs the graph
    """

    chooses = False

    def __init__(self, session: SessionT, active_threads: ActiveThreads, helpers: int) -> None:
        super().__init__(session, session, active_threads)
        self._helpers, self._use = helpers, helper_switch()
        self._use(helpers)  # starts them here, because a check at low priority would give them that permanently
        self._use(0)

    def __enter__(self) -> SessionT:
        if self._active_threads.begin():
            self._use(self._helpers)
        return self.all_cores

    def __exit__(self, *_: object) -> None:
        self._use(0)
        self._active_threads.end()

    def around(self, session: SessionT) -> HelpedSession[SessionT]:
        """Return another session with the same helpers."""
        return HelpedSession(session, self._active_threads, self._helpers)
