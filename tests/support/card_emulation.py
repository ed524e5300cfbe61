"""A card that is none: the host code of the operators for cards runs on the CPU, with a driver of the test.

The driver notes every launch. With `compute` it also runs the Triton kernel of that name in Triton's interpreter, on
the memory behind the pointers, so that whole graphs of these operators compute:

    with emulated_card() as card:
        session = card.session(graph)

Serving registers operators by a function, in place of which register_emulated_operators can be given.

The interpreter runs one program after the other: it shows neither races nor reads beyond the end of an array.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import subprocess
import tempfile
import threading
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from kernels.build import CARD_LIBRARY, FLAGS, build, find_compiler
from lingon.serving.runtime import card as runtime
from tests.support.card_kernels import use_interpreter

DRIVER_VARIABLE = "LINGON_CUDA_DRIVER"
SOURCE = Path(__file__).with_name("card_driver.cpp")
FAILED = 700  # what a launch returns whose kernel raises an error in the interpreter


def _parameters() -> dict[str, str]:
    """The parameters of every kernel, as the contract of kernels and host code says."""
    norms, rows, sizes, tops = ("layer", "rms"), ("m16", "m32"), ("d32", "d64", "d128"), ("t1", "t8", "t16")
    tiles, widths = (*rows, "m32n32"), ("k256", "k512", "k1024")
    linear = [f"linear_none_{tile}" for tile in tiles]
    linear += [f"linear_{norm}_{width}_{tile}" for norm in norms for width in widths for tile in tiles]
    choose = [f"choose_{top}_{row}{end}" for top in tops for row in rows for end in ("", "_logits")]
    return {
        **dict.fromkeys(linear, "ppppppppiiifiii"),
        **{f"norm_{norm}": "ppppiif" for norm in norms},
        **{f"step_attention_{size}": "ppppppiif" for size in sizes},
        **{f"cross_attention_{size}": "pppppiiif" for size in sizes},
        **{f"self_attention_{size}": "pppif" for size in sizes},
        "place_memory": "ppppiiiii",
        "embed": "pppppifi",
        **dict.fromkeys(choose, "pppppppiiii"),
        **{f"merge_{top}": "pppppii" for top in tops},
        "greedy_step": "pppppppppiii",
        **{f"beam_step_b{beams}": "ppppppppppppiiiiii" for beams in (2, 4, 8, 16)},
        "advance_step": "ppi",
    }


PARAMETERS = _parameters()
"""By kernel, one letter for each argument: p pointer, i int32, f float32."""

WARPS = {name: 1 + place % 8 for place, name in enumerate(PARAMETERS)}
SHARED = {name: 60_000 + place if name.startswith("choose") else place for place, name in enumerate(PARAMETERS)}
"""What the archive of this card says of its kernels: numbers that differ, so that a test sees whose they are."""

ARCHITECTURES = ("80", "86", "89", "90", "ptx")


class Launch(NamedTuple):
    """A launch; arguments without the two addresses of scratch memory that follow them."""

    kernel: str
    grid: tuple[int, ...]
    threads: int
    shared: int
    stream: int | None
    arguments: tuple[int | float | None, ...]


_ON_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_uint),
    *(ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)),
)
_TYPES: Mapping[str, Any] = {"p": ctypes.c_void_p, "i": ctypes.c_int32, "f": ctypes.c_float}


_interpreting = threading.Lock()  # Triton's interpreter keeps the indices of a program in a global


class EmulatedCard:
    """The driver and its launches.

    failure: the error of the kernel that failed last in the interpreter
    """

    def __init__(self, driver: ctypes.CDLL, path: Path, *, compute: bool) -> None:
        self.driver, self.path = driver, path
        self.launches: list[Launch] = []
        self.failure: Exception | None = None
        self._compute = compute
        self._on_launch = _ON_LAUNCH(self._launch)  # ctypes frees it with this object

    def start(self) -> None:
        """Become the card of the driver, without failures."""
        self.driver.card_driver_reset(self._on_launch)

    def fail(self, call: str, error: int = 700) -> None:
        """Let a function of the driver fail; also the calls `no card` and `no context`."""
        self.driver.card_driver_fail(call.encode(), error)

    def set_capability(self, major: int, minor: int) -> None:
        """Set the compute capability; 9.0 otherwise."""
        self.driver.card_driver_set_capability(major, minor)

    def reserved(self, kernel: str) -> int:
        """Return the bytes of shared memory that were reserved for a kernel beyond what every kernel may have."""
        return int(self.driver.card_driver_reserved(kernel.encode()))

    def operators(self) -> dict[str, str]:
        """Return what the library says of each operator for cards: its provider, and inputs in other memory."""
        self.driver.card_driver_operators.restype = ctypes.c_char_p
        lines = self.driver.card_driver_operators().decode().splitlines()
        return {name: rest for name, _, rest in (line.partition(" ") for line in lines)}

    def session(self, graph: bytes | str) -> ort.InferenceSession:
        """Return a session of a graph, or of the file of one, on the CPU."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.register_custom_ops_library(str(self.path))
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(
        self,
        session: ort.InferenceSession,
        feed: Mapping[str, np.ndarray],
        in_place: Mapping[str, str],
        host: Sequence[str] = (),
    ) -> list[np.ndarray]:
        """Return the outputs of a run, which changes the arrays that operators write; see bind. host: see RealCard."""
        binding = bind(session, feed, in_place)
        session.run_with_iobinding(binding)
        return [value.numpy() for value in binding.get_outputs()]

    def _launch(self, name: bytes, grid: Any, block: Any, shared: int, stream: int | None, addresses: Any) -> int:
        try:
            kernel = name.decode()
            kinds = PARAMETERS[kernel]
            values = [
                ctypes.cast(addresses[place], ctypes.POINTER(_TYPES[kind]))[0]
                for place, kind in enumerate(kinds + "pp")
            ]
            assert values[-2:] == [None, None], "the addresses of scratch memory are not null"
            assert block[1] == block[2] == 1, "a block has several dimensions"
            launch = Launch(kernel, tuple(grid[:3]), block[0], shared, stream, tuple(values[:-2]))
            self.launches.append(launch)
            if self._compute:
                with _interpreting:
                    interpret(launch)
        except Exception as error:  # it cannot pass through the driver
            traceback.print_exc()
            self.failure = error
            return FAILED
        return 0


def interpret(launch: Launch) -> None:
    """Run the kernel of a launch in Triton's interpreter."""
    import torch

    kernel = kernel_table()[launch.kernel]
    assert type(kernel.function).__name__ == "InterpretedFunction", "Triton was imported before, without interpreter"
    types = {"h": torch.float16, "f": torch.float32, "i": torch.int32, "l": torch.int64}

    def argument(kind: str, value: Any) -> Any:
        if kind not in types:
            return value
        if value is None:
            return torch.empty(0, dtype=types[kind])
        # One element is enough: kernels add offsets to the address.
        memory = (ctypes.c_char * types[kind].itemsize).from_address(value)
        return torch.frombuffer(memory, dtype=types[kind])

    arguments = [argument(kind, value) for kind, value in zip(kernel.signature.values(), launch.arguments, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of infinity, which kernels compute with
        kernel.function[launch.grid](*arguments, **kernel.constants)


@functools.cache
def kernel_table() -> Mapping[str, Any]:
    """Return the kernels of kernels/card/table.py, for the interpreter."""
    use_interpreter()
    from kernels.card.table import kernels

    return kernels()


def write_archive(path: Path, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> Path:
    """Write an archive of images that this driver loads, of all kernels and ARCHITECTURES; change: its manifest."""
    manifest: dict[str, Any] = {"triton": "none", "kernels": {}}
    with zipfile.ZipFile(path, "w") as archive:
        for name, parameters in PARAMETERS.items():
            image = f"image of {name}".encode()
            for architecture in ARCHITECTURES:
                suffix = "ptx" if architecture == "ptx" else "cubin"
                archive.writestr(f"{architecture}/{name}.{suffix}", image)
            manifest["kernels"][name] = {
                "parameters": parameters,
                "warps": WARPS[name],
                "shared": dict.fromkeys(ARCHITECTURES, SHARED[name]),
                "sha256": dict.fromkeys(ARCHITECTURES, hashlib.sha256(image).hexdigest()),
            }
        change(manifest)
        archive.writestr("manifest.json", json.dumps(manifest))
    return path


@functools.cache
def driver_library() -> Path:
    """Compile the driver, once for all tests of this process, and return its path."""
    build(CARD_LIBRARY, card=True)
    folder = tempfile.TemporaryDirectory(prefix="lingon-card-")
    _folders.append(folder)
    made = Path(folder.name, "libcuda.so")
    flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
    library = f'-DLINGON_CARD_LIBRARY="{CARD_LIBRARY}"'
    command = [*find_compiler(), *flags, "-Werror", "-shared", library, str(SOURCE), "-o", str(made), "-ldl"]
    subprocess.run(command, check=True)
    return made


_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


_cards: list[EmulatedCard] = []  # the last one is that of the driver


@contextlib.contextmanager
def emulated_card(*, compute: bool = True, kernels: bool = True) -> Iterator[EmulatedCard]:
    """Yield a card for the length of a block; its sessions must not run afterwards.

    compute: whether the kernels run; otherwise what they would write stays as it is
    kernels: whether the library has them, which lingon.serving.runtime.card.add_kernels adds otherwise
    """
    path = driver_library()
    runtime.library.cache_clear()  # it may have been asked for before the library was there
    library = runtime.library()
    assert library is not None
    before = os.environ.get(DRIVER_VARIABLE)
    os.environ[DRIVER_VARIABLE] = str(path)
    card = EmulatedCard(ctypes.CDLL(str(path)), path, compute=compute)
    _cards.append(card)
    card.start()
    library.lingon_card_clear()
    try:
        if kernels:
            add_emulated_kernels()
        yield card
    finally:
        library.lingon_card_clear()
        _cards.remove(card)
        if _cards:
            _cards[-1].start()
        if before is None:
            del os.environ[DRIVER_VARIABLE]
        else:
            os.environ[DRIVER_VARIABLE] = before


def add_emulated_kernels() -> None:
    """Hand images of all kernels to the library, as a server does."""
    with tempfile.TemporaryDirectory() as folder:
        runtime.add_kernels(archive=write_archive(Path(folder, "card_kernels.zip")))


def register_emulated_operators(options: ort.SessionOptions) -> None:
    """Make a session of the CPU know the operators; as lingon.serving.runtime.card.register_card_operators.

    Without an emulated card, one begins that lasts as long as the process.
    """
    if not _cards:
        _lasting.enter_context(emulated_card())
    add_emulated_kernels()
    options.register_custom_ops_library(str(_cards[-1].path))


def launched_kernels() -> list[str]:
    """Return the names of the kernels that were launched on the card of register_emulated_operators so far."""
    return [launch.kernel for launch in _cards[-1].launches] if _cards else []


_lasting = contextlib.ExitStack()


class RealCard:
    """The first card of this machine, with the interface of an emulated one: the kernels of the archive run on it."""

    def session(self, graph: bytes | str) -> ort.InferenceSession:
        """Return a session of a graph, or of the file of one."""
        options = ort.SessionOptions()
        runtime.register_card_operators(options)
        made = ort.InferenceSession(graph, options, providers=["CUDAExecutionProvider"])
        assert made.get_providers()[0] == "CUDAExecutionProvider", "ONNX Runtime cannot use the card"
        return made

    def run(
        self,
        session: ort.InferenceSession,
        feed: Mapping[str, np.ndarray],
        in_place: Mapping[str, str],
        host: Sequence[str] = (),
    ) -> list[np.ndarray]:
        """Return the outputs of a run, and change the arrays that operators write. host: inputs in main memory."""
        binding: Any = session.io_binding()
        values = {
            name: ort.OrtValue.ortvalue_from_numpy(array, "cpu" if name in host else "cuda", 0)
            for name, array in feed.items()
        }
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            if output.name in in_place:
                binding.bind_ortvalue_output(output.name, values[in_place[output.name]])
            else:
                binding.bind_output(output.name, "cuda")
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        for name, value in values.items():
            feed[name][...] = value.numpy()
        return [value.numpy() for value in binding.get_outputs()]


Card = EmulatedCard | RealCard


def bind(session: ort.InferenceSession, feed: Mapping[str, np.ndarray], in_place: Mapping[str, str]) -> Any:
    """Return a binding of a session to arrays; in_place: by output, the input in whose memory it is.

    The arrays are used where they are, and must be aligned. Other outputs are allocated.
    """
    binding: Any = session.io_binding()

    def place(bound: Callable[..., None], name: str, array: np.ndarray) -> None:
        bound(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    for name, array in feed.items():
        place(binding.bind_input, name, array)
    for output in session.get_outputs():
        if output.name in in_place:
            place(binding.bind_output, output.name, feed[in_place[output.name]])
        else:
            binding.bind_output(output.name, "cpu")
    return binding


def aligned(array: np.ndarray, alignment: int = 64, offset: int = 0) -> np.ndarray:
    """Return a copy whose address is a multiple of an alignment, and an offset more."""
    memory = np.empty(array.nbytes + alignment + offset, np.uint8)
    begin = -memory.ctypes.data % alignment + offset
    placed = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


def node_graph(
    op: str,
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[str],
    constant: Sequence[int] = (),
    **attributes: Any,
) -> bytes:
    """Return a graph of one node. Inputs are named in.N, those of None are missing; outputs out.N of these types."""
    from onnx import helper, numpy_helper

    from lingon.export.graphs.onnx_writer import IR_VERSION, KERNELS, OPSET

    def declared(name: str, dtype: Any, rank: int | None) -> Any:
        shape = None if rank is None else [f"{name}.{axis}" for axis in range(rank)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    given = {place: value for place, value in enumerate(inputs) if value is not None}
    names = [f"in.{place}" if place in given else "" for place in range(len(inputs))]
    results = [f"out.{place}" for place in range(len(outputs))]
    node = helper.make_node(op, names, results, domain=KERNELS, **attributes)
    graph = helper.make_graph(
        [node],
        op,
        [declared(f"in.{place}", value.dtype, value.ndim) for place, value in given.items() if place not in constant],
        [declared(name, dtype, None) for name, dtype in zip(results, outputs, strict=True)],
        [numpy_helper.from_array(value, f"in.{place}") for place, value in given.items() if place in constant],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(KERNELS, 1)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    return made
