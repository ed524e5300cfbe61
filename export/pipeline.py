"""From a checkpoint to a published bundle: build, prove, write. Nothing appears where the proof fails."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from export.card import model_card
from export.graph import WeightFile
from export.parity import check_tensors, check_tokens
from export.quality import check_quality
from export.transformer import TransformerGraphs, states
from lingon import bundle as names
from lingon.bundle import Alignment, Bundle, Defaults, Limits, Manifest, Precision, versions, write_bundle
from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD, UNK
from serving.onnx_runner import CPU, CUDA, load_runner
from training.checkpoint import Checkpoint
from training.corpus import Pair

DTYPES: dict[str, tuple[type[np.floating[Any]], str]] = {"fp32": (np.float32, CPU), "fp16": (np.float16, CUDA)}
NOT_ON_CUDA = "not run on cuda"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSettings:
    """What is exported, and what of it is declared."""

    precisions: tuple[str, ...] = ("fp32", "fp16")
    beam_size: int = 4
    length_penalty: float = 1.0
    max_beam_size: int = 8
    output_factor: float = 2.0
    output_extra: int = 16
    alignment_layer: int | None = None  # the last but one where nothing is said
    card: str = ""  # text of the model card's own part
    attachments: tuple[Path, ...] = ()  # files that go beside the card, such as its pictures

    def __post_init__(self) -> None:
        unknown = [name for name in self.precisions if name not in DTYPES]
        if unknown or "fp32" not in self.precisions:
            raise SettingsError(
                f"--precision must name fp32, and of {', '.join(DTYPES)} only; got {','.join(self.precisions)}"
            )
        if not 1 <= self.beam_size <= self.max_beam_size:
            raise SettingsError(f"--beam-size must be 1 to {self.max_beam_size}, got {self.beam_size}")


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    pairs: Sequence[Pair],
    settings: ExportSettings,
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Publish the next version of a model below folder (models/NAME); returns it.

    pairs: what parity and quality are proven on. Raises ParityError where a graph does not answer as the checkpoint.
    """
    checkpoint.model.to("cpu").eval()
    files: dict[str, bytes] = dict(checkpoint.tokenizer.files()) | _attached(settings.attachments)
    manifest = _manifest(checkpoint, folder, settings)
    reports: dict[str, Precision] = {}
    for precision in settings.precisions:
        dtype, provider = DTYPES[precision]
        graphs = TransformerGraphs(checkpoint.model, dtype, manifest.candidates, WeightFile())
        built = graphs.files()
        files |= {f"{precision}/{name}": content for name, content in built.items()}
        say(f"{precision}: built, {sum(map(len, built.values())) / 1e6:.1f} MB")
        reports[precision] = _prove(checkpoint, manifest, precision, provider, built, pairs, settings, say)
    manifest = replace(manifest, precisions=reports)
    files[names.CARD] = model_card(checkpoint, manifest, settings.card).encode()
    return write_bundle(folder / str(manifest.version), manifest, files)


def _attached(paths: Sequence[Path]) -> dict[str, bytes]:
    for path in paths:
        if path.suffix not in (".svg", ".png", ".md", ".txt"):
            raise SettingsError(f"--attach takes .svg, .png, .md and .txt files, got {path}")
    try:
        return {path.name: path.read_bytes() for path in paths if path.name != names.CARD}
    except OSError as error:
        raise SettingsError(f"--attach {error.filename}: {error.strerror}") from None


def _manifest(checkpoint: Checkpoint, folder: Path, settings: ExportSettings) -> Manifest:
    model, tokenizer, data = checkpoint.model, checkpoint.tokenizer, checkpoint.config.data
    positions, layers = model.settings.max_positions, model.settings.decoder_layers
    layer = max(layers - 2, 0) if settings.alignment_layer is None else settings.alignment_layer
    if not 0 <= layer < layers:
        raise SettingsError(f"--alignment-layer must be 0 to {layers - 1}, got {layer}")
    found = versions(folder)
    return Manifest(
        name=folder.name,
        version=(found[-1] if found else 0) + 1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language=data.source_language,
        target_language=data.target_language,
        architecture="transformer",
        source_vocab=tokenizer.source_vocab,
        target_vocab=tokenizer.target_vocab,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(
            max_source_tokens=min(data.max_tokens, positions),
            max_target_tokens=positions,
            output_factor=settings.output_factor,
            output_extra=settings.output_extra,
            max_beam_size=settings.max_beam_size,
        ),
        defaults=Defaults(beam_size=settings.beam_size, length_penalty=settings.length_penalty),
        candidates=min(2 * settings.max_beam_size, tokenizer.target_vocab),
        states=states(model),
        precisions={},
        alignment=Alignment(layer, tuple(range(model.settings.heads))),
    )


def _prove(
    checkpoint: Checkpoint,
    manifest: Manifest,
    precision: str,
    provider: str,
    built: dict[str, bytes],
    pairs: Sequence[Pair],
    settings: ExportSettings,
    say: Callable[[str], None],
) -> Precision:
    """Run the gate of one precision; returns its report."""
    here = provider if provider in ort.get_available_providers() else CPU
    with tempfile.TemporaryDirectory() as scratch:
        tried = replace(manifest, precisions={precision: Precision(here, "being run")})
        trial = write_bundle(
            Path(scratch) / "trial", tried, {f"{precision}/{name}": content for name, content in built.items()}
        )
        runner = load_runner(trial, precision, threads=0)
    dtype = np.dtype(DTYPES[precision][0]).name
    report: dict[str, Any] = {"tensors": asdict(check_tensors(checkpoint.model, runner, dtype))}
    say(f"{precision}: {report['tensors']['shapes']} shapes compared on {here}")
    sources = [pair.source for pair in pairs]
    if precision == "fp32":
        report["sentences"] = len(pairs)
        for beam_size, penalty in ((1, 0.0), (4, settings.length_penalty)):
            tokens = check_tokens(checkpoint.model, runner, checkpoint.tokenizer, sources, beam_size, penalty)
            report["greedy" if beam_size == 1 else f"beam {beam_size}"] = asdict(tokens)
            say(f"{precision}: beam size {beam_size}: {tokens.identical} of {tokens.sentences} sentences identical")
    elif here != provider:
        report["checked_on"] = here
        return Precision(provider, NOT_ON_CUDA, report)
    else:
        report["quality"] = check_quality(checkpoint, runner, pairs, settings.length_penalty)
    return Precision(provider, "passed", report)
