"""The verb export. It imports PyTorch and ONNX only when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lingon.training.checkpoint import Checkpoint
    from lingon.training.data.corpus import Pair

Files = tuple[Path, Path] | None
CheckpointArgument = Annotated[Path, typer.Argument(help="Checkpoint, or folder of a run for its best checkpoint.")]
FolderArgument = Annotated[Path, typer.Argument(help="models/NAME; the next version is written below this folder.")]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated precisions: fp32 (CPU; always exported), fp32-cuda and fp16 (CUDA; only a Transformer), "
        "int8, int8-native and fp32-native (CPU). Default: all that the model can have."
    ),
]
TrainDataOption = Annotated[
    Files,
    typer.Option(help="Source and target file for the int8 ranges and the shortlist. Default: the training text."),
]
ShortlistOption = Annotated[
    bool, typer.Option(help="Export a shortlist: the likely target pieces of each source piece, for faster decoding.")
]
ShortlistByDefaultOption = Annotated[
    bool, typer.Option(help="Decode with the shortlist if a request does not set shortlist.")
]
GateDataOption = Annotated[
    Files, typer.Option(help="Source and target file for the gates. Default: the validation set of the checkpoint.")
]
GateSentencesOption = Annotated[
    int,
    typer.Option(
        min=1, help="Number of gate sentences for BLEU and chrF of fp16, int8 and the shortlist against fp32."
    ),
]
ParitySentencesOption = Annotated[
    int, typer.Option(min=1, help="Number of gate sentences whose tokens must equal those of the checkpoint.")
]
GateOnOption = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda",
        help="Where the gates of the precisions for CUDA run. auto: on CUDA if it is usable, else on the CPU, and the "
        "manifest says so. cuda: on CUDA, or the export fails before it begins.",
    ),
]
BeamSizeOption = Annotated[int, typer.Option(min=1, help="Default beam size of the bundle; the gates use it too.")]
LengthPenaltyOption = Annotated[
    float, typer.Option(min=0.0, help="Default length penalty of the bundle; the gates use it too.")
]
AlignmentLayerOption = Annotated[
    int | None,
    typer.Option(
        help="Decoder layer, from 0, whose cross-attention gives alignments. Default: the one that training guided, "
        "else the last but one, of two the last."
    ),
]
AlignmentHeadOption = Annotated[
    list[int] | None,
    typer.Option(
        help="Head of that layer, from 0, that gives alignments; the mean of several if repeated. Default: the heads "
        "that training guided, else all."
    ),
]
CardOption = Annotated[
    Path | None,
    typer.Option(help="File with the model card's own text, such as attribution and scores. Default: none."),
]
AttachOption = Annotated[
    list[Path] | None,
    typer.Option(help="Picture or text to put into the bundle with the card. May be repeated. Default: none."),
]


def export(
    checkpoint: CheckpointArgument,
    folder: FolderArgument,
    precision: PrecisionOption = None,
    train_data: TrainDataOption = None,
    shortlist: ShortlistOption = True,
    shortlist_by_default: ShortlistByDefaultOption = False,
    gate_data: GateDataOption = None,
    gate_sentences: GateSentencesOption = 2500,
    parity_sentences: ParitySentencesOption = 500,
    gate_on: GateOnOption = "auto",
    beam_size: BeamSizeOption = 4,
    length_penalty: LengthPenaltyOption = 1.0,
    alignment_layer: AlignmentLayerOption = None,
    alignment_head: AlignmentHeadOption = None,
    card: CardOption = None,
    attach: AttachOption = None,
) -> None:
    """Export a checkpoint as an ONNX bundle, verified against the checkpoint."""
    from lingon.lines import check_files

    check_files(path for files in (train_data, gate_data) for path in files or ())
    from lingon.export.graphs.precisions import check_heads, precisions_of
    from lingon.export.manifest import check_precisions
    from lingon.export.pipeline import check_gate_device, export_checkpoint
    from lingon.export.report import print_report
    from lingon.export.settings import ExportSettings, Texts
    from lingon.export.shortlist.build import ShortlistSettings
    from lingon.training.checkpoint import load_checkpoint

    names = () if precision is None else tuple(name.strip() for name in precision.split(","))
    check_gate_device(gate_on)
    loaded = load_checkpoint(checkpoint)
    check_heads(loaded)
    names = names or _available(precisions_of(loaded.model))
    settings = ExportSettings(
        precisions=names,
        shortlist=ShortlistSettings() if shortlist else None,
        shortlist_by_default=shortlist_by_default,
        beam_size=beam_size,
        length_penalty=length_penalty,
        alignment_layer=alignment_layer,
        alignment_heads=tuple(dict.fromkeys(alignment_head)) if alignment_head else None,
        parity_sentences=parity_sentences,
        gate_sentences=gate_sentences,
        gate_on=gate_on,
        card=_text(card) if card else "",
        attachments=tuple(attach or ()),
    )
    check_precisions(loaded.model, settings)  # before the text is read, which may take minutes
    held_out = held_out_pairs(loaded, gate_data)
    training = _training_pairs(loaded, train_data) if settings.reads_training_text else ()
    texts = Texts(held_out[: max(gate_sentences, parity_sentences)], training)
    bundle = export_checkpoint(loaded, folder, texts, settings, log=lambda line: typer.echo(line, err=True))
    print_report(bundle)


def held_out_pairs(checkpoint: Checkpoint, files: Files = None) -> Sequence[Pair]:
    """Return the pairs for the gates, without those whose source is longer than the training text had."""
    from lingon.errors import SettingsError
    from lingon.training.config import Corpus
    from lingon.training.data.corpus import read_pairs

    data, longest = checkpoint.config.data, checkpoint.config.max_source_tokens
    corpus = Corpus(source=files[0], target=files[1]) if files else data.valid
    if corpus is None:
        raise SettingsError(
            f"{checkpoint.folder}: an imported model has no validation text: name some with --gate-data"
        )
    pairs = [pair for pair in read_pairs(corpus) if pair.source and pair.target]
    readable = [pair for pair in pairs if len(checkpoint.tokenizer.encode_source(pair.source)) <= longest]
    if not readable:
        raise SettingsError(
            f"{corpus.files()[0]}: no sentence for the gates: of {len(pairs):,} pairs none has at most "
            f"data.max_tokens = {longest} source tokens"
        )
    return readable


def _training_pairs(checkpoint: Checkpoint, files: Files) -> Sequence[Pair]:
    """Return the pairs that the model was trained on, or those of files, without pairs that are too long."""
    from lingon.training.config import Corpus
    from lingon.training.data.batches import drop_long
    from lingon.training.data.corpus import read_training_text

    data = checkpoint.config.data
    corpora = (Corpus(source=files[0], target=files[1]),) if files else data.train
    text = read_training_text(data.model_copy(update={"train": corpora}))
    return drop_long(text, checkpoint.tokenizer, data.max_tokens).epoch()


def _text(path: Path) -> str:
    from lingon.errors import SettingsError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--card {path}: {error}") from None


def _available(precisions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the precisions whose gates can run here; without native operators lines say what is left out."""
    from lingon.serving.runtime.device import NATIVES
    from lingon.serving.runtime.kernels import kernels_missing

    missing = kernels_missing()
    left_out = [name for name in precisions if name in NATIVES]
    if missing is None or not left_out:
        return precisions
    for name in left_out:
        typer.echo(f"{name} is left out: {missing}")
    return tuple(name for name in precisions if name not in NATIVES)
