"""The errors of ONNX Runtime as errors that a caller can tell apart: a graph it rejects, and a lack of memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from lingon.errors import BundleError

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
    """Turn every error but BundleError into GraphLoadError.

    ONNX Runtime has many error classes, and NumPy and the engine raise others for results that do not fit.
    """
    try:
        yield
    except BundleError:
        raise
    except Exception as error:
        raise GraphLoadError(message, f"{type(error).__name__}: {error}".splitlines()[0]) from None


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
