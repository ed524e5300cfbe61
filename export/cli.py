"""The verb `export`. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or a run: its best one.")],
    folder: Annotated[Path, typer.Argument(help="models/NAME; the next version is written below it.")],
    precision: Annotated[
        str, typer.Option(help="Comma-separated: fp32 (CPU; always there), fp16 (CUDA), int8 (CPU).")
    ] = "fp32,fp16,int8",
    train_data: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Source and target file for the ranges of int8 and the shortlist; else the training text."),
    ] = None,
    shortlist: Annotated[
        bool, typer.Option(help="Learn which target pieces a source piece calls for, for faster decoding.")
    ] = True,
    shortlist_by_default: Annotated[
        bool, typer.Option(help="Decode with the shortlist where a request does not say.")
    ] = False,
    gate_data: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Source and target file for the gates; else the validation set."),
    ] = None,
    gate_sentences: Annotated[
        int, typer.Option(min=1, help="Of them, for the scores of lossy arithmetic, from the first.")
    ] = 2500,
    parity_sentences: Annotated[
        int, typer.Option(min=1, help="Of them, to check_golden equal tokens on, from the first.")
    ] = 500,
    beam_size: Annotated[int, typer.Option(min=1, help="Default of the bundle, and of its gates.")] = 4,
    length_penalty: Annotated[float, typer.Option(min=0.0, help="Default of the bundle.")] = 1.0,
    alignment_layer: Annotated[
        int | None, typer.Option(help="Decoder layer whose cross-attention tells alignments; else the last but one.")
    ] = None,
    card: Annotated[Path | None, typer.Option(help="Text for the model card: attribution, scores.")] = None,
    attach: Annotated[
        list[Path] | None, typer.Option(help="A picture or text to put beside the card; repeat it.")
    ] = None,
) -> None:
    """Export a checkpoint as a verified ONNX bundle."""
    from lingon.errors import SettingsError
    from lingon.export.pipeline import export_checkpoint
    from lingon.export.report import print_report
    from lingon.export.settings import ExportSettings, Texts
    from lingon.export.shortlist.build import ShortlistSettings
    from lingon.training.checkpoint import load_checkpoint
    from lingon.training.config import Corpus
    from lingon.training.data.batches import drop_long
    from lingon.training.data.corpus import Pair, read_pairs, read_training_text

    loaded = load_checkpoint(checkpoint)
    corpus = Corpus(source=gate_data[0], target=gate_data[1]) if gate_data else loaded.config.data.valid
    pairs = [pair for pair in read_pairs(corpus) if pair.source and pair.target]
    longest = loaded.config.data.max_tokens
    readable = [pair for pair in pairs if len(loaded.tokenizer.encode_source(pair.source)) <= longest]
    if not readable:
        raise SettingsError(
            f"{corpus.files()[0]}: no sentence to check_golden parity on: of {len(pairs):,} pairs none has at most "
            f"data.max_tokens = {longest} source tokens"
        )
    settings = ExportSettings(
        precisions=tuple(name.strip() for name in precision.split(",")),
        shortlist=ShortlistSettings() if shortlist else None,
        shortlist_by_default=shortlist_by_default,
        beam_size=beam_size,
        length_penalty=length_penalty,
        alignment_layer=alignment_layer,
        parity_sentences=parity_sentences,
        gate_sentences=gate_sentences,
        card=_text(card) if card else "",
        attachments=tuple(attach or ()),
    )
    training: list[Pair] = []
    if settings.reads_training_text:
        data = loaded.config.data
        given = [Corpus(source=train_data[0], target=train_data[1])] if train_data else data.train
        text = read_training_text(data.model_copy(update={"train": given}))
        training = drop_long(text, loaded.tokenizer, longest).epoch()  # the rest it has not learned from
    texts = Texts(readable[: max(gate_sentences, parity_sentences)], training)
    bundle = export_checkpoint(loaded, folder, texts, settings, log=lambda line: typer.echo(line, err=True))
    print_report(bundle)


def _text(path: Path) -> str:
    from lingon.errors import SettingsError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--card {path}: {error}") from None
