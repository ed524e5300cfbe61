"""A small bundle of invented files for tests of the bundle format."""

from __future__ import annotations

from pathlib import Path

from lingon.bundle import Alignment, Bundle, Defaults, Limits, Manifest, Precision, State, write_bundle

FILES = {
    "MODEL_CARD.md": b"# A model\n",
    "tokenizer.model": b"pieces",
    "fp32/encoder.onnx": b"encoder",
    "fp32/decoder.onnx": b"decoder",
    "fp32/scorer.onnx": b"scorer",
    "weights/fp16.bin": bytes(range(256)) * 8,
    "weights/fp32.bin": b"the few that 16 bits do not hold",
    "shortlist.npz": b"pieces by piece",
}

MANIFEST = Manifest(
    name="en-de",
    version=1,
    created="2026-01-02T03:04:05Z",
    source_language="en",
    target_language="de",
    architecture="transformer é",
    source_vocab=4000,
    target_vocab=4000,
    special_ids={"pad": 0, "bos": 1, "eos": 2, "unk": 3},
    limits=Limits(128, 256, 1.5, 10, 8),
    defaults=Defaults(beam_size=4, num_hypotheses=1, length_penalty=0.6),
    candidates=16,
    states=(
        State(name="memory.0.key", kind="memory", shape=(4, "source_length", 64)),
        State(name="cache.0.key", kind="cache", shape=(4, "capacity", 64)),
    ),
    precisions={
        "fp32": Precision(
            "CPUExecutionProvider",
            "passed",
            ("fp16.bin", "fp32.bin"),
            {"greedy": {"sentences": 500, "excused": []}},
        ),
        "fp16": Precision("CUDAExecutionProvider", "not run on cuda", ("fp16.bin",)),
    },
    alignment=Alignment(layer=2, heads=(0, 3)),
    shortlist={"fp32": {"bleu": 40.5}},
)


def write_small_bundle(folder: Path) -> Bundle:
    """Publish the files above at folder."""
    return write_bundle(folder, MANIFEST, FILES)
