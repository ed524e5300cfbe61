"""optimum as a contestant: the model of lingon.bench.engines.transformers, exported by optimum and run on ONNX Runtime
by it.

The first step and the others are graphs of their own, without the `If` that joins them in one. `generate` is that of
`transformers`; what is said there of its search holds here.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

from lingon.bench.engines import transformers
from lingon.bench.engines.base import Setting
from lingon.bench.engines.batches import read_limits
from lingon.bundle import Bundle

TASK = "text2text-generation-with-past"
EXPORTED = "onnx"


def why_not() -> str | None:
    """Whether it is installed, with what it exports from."""
    if importlib.util.find_spec("optimum") is None or importlib.util.find_spec("optimum.onnxruntime") is None:
        return "optimum-onnx is not installed"
    return transformers.why_not()


def prepare(bundle: Bundle, folder: Path) -> None:
    """Write the model as transformers has it, then export it."""
    from optimum.exporters.onnx import onnx_export_from_model

    transformers.prepare(bundle, folder)
    model = transformers.network(folder)
    with warnings.catch_warnings():  # of the exporter, about itself
        warnings.simplefilter("ignore")
        onnx_export_from_model(model, folder / EXPORTED, task=TASK, do_validation=False, no_post_process=True)
    (folder / transformers.WEIGHTS).unlink()


def load(folder: Path, setting: Setting) -> transformers.Generating:
    """The graphs of a folder that `prepare` wrote, each session on as many threads as the setting says."""
    transformers.check(setting)
    import onnxruntime
    import torch
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    torch.set_num_threads(setting.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setting.threads
    # Otherwise the threads of a session that is done spin on the cores that the next one needs: half as fast.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    model = ORTModelForSeq2SeqLM.from_pretrained(
        folder / EXPORTED, use_merged=False, session_options=options, use_io_binding=False
    )
    return transformers.Generating(model, read_limits(folder))
