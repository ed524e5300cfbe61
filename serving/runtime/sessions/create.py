"""A session of a graph: its options, its provider and the memory that sessions share."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon.errors import DeviceError
from lingon.serving.runtime.device import CPU, CUDA
from lingon.serving.runtime.kernels import LIBRARY, instruction_set
from lingon.serving.runtime.sessions.errors import GraphLoadError
from lingon.serving.runtime.sessions.placement import RECORD_PLACEMENT, misplaced, placement
from lingon.serving.runtime.sessions.weights import SharedWeights

TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}
"""The NumPy type of an input or output, by the name that ONNX Runtime has for it."""

NO_FOLDER = "/dev/null"
"""The folder for weights that are not given in memory. It cannot exist; the default is the server's own folder."""


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
    """Raise UnicodeDecodeError if an input or output has a name that is not UTF-8; ONNX Runtime takes any bytes."""
    for each in (*session.get_inputs(), *session.get_outputs()):
        _ = each.name, each.shape


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
        # Asks for sums of SkipLayerNormalization in float32.
        "enable_skip_layer_norm_strict_mode": "1",
        "enable_cuda_graph": str(int(recorded)),
    }


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
