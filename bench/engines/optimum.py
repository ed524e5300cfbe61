"""optimum in the benchmarks: the model of lingon.bench.engines.transformers, exported to ONNX Runtime by optimum.

The first step and the later steps are two graphs, not one graph with an `If`. `transformers` has `generate` and
describes its search.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

from lingon.bench.engines import transformers
from lingon.bench.engines.base import Setting, read_limits
from lingon.bundle.store import Bundle

TASK = "text2text-generation-with-past"
EXPORTED = "onnx"


def unavailable_reason() -> str | None:
    """Return a reason if optimum or a package that it needs is not installed."""
    if importlib.util.find_spec("optimum") is None or importlib.util.find_spec("optimum.onnxruntime") is None:
        return "optimum-onnx is not installed"
    return transformers.unavailable_reason()


def prepare(bundle: Bundle, folder: Path) -> None:
    """Write the model for transformers, then export it."""
    from optimum.exporters.onnx import onnx_export_from_model

    transformers.prepare(bundle, folder)
    model = transformers.load_network(folder)
    with warnings.catch_warnings():  # The exporter warns about itself.
        warnings.simplefilter("ignore")
        onnx_export_from_model(model, folder / EXPORTED, task=TASK, do_validation=False, no_post_process=True)
    (folder / transformers.WEIGHTS).unlink()


def load(folder: Path, setting: Setting) -> transformers.GenerateEngine:
    """Load the graphs of a folder that `prepare` wrote. Each session runs on the threads of the setting."""
    transformers.check_setting(setting)
    import onnxruntime
    import torch
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    torch.set_num_threads(setting.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setting.threads
    # Without this, threads of an idle session spin on the cores that the next session needs, at half the speed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    model = ORTModelForSeq2SeqLM.from_pretrained(
        folder / EXPORTED, use_merged=False, session_options=options, use_io_binding=False
    )
    return transformers.GenerateEngine(model, read_limits(folder))
