"""The verb export. It imports PyTorch and ONNX only when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lingon.cli.options.groups import with_option_groups
from lingon.export.options import (
    AttachOption,
    CardOption,
    CheckpointArgument,
    DefaultOptions,
    Files,
    FolderArgument,
    GateOptions,
    PrecisionOption,
    ShortlistByDefaultOption,
    ShortlistOption,
    TrainDataOption,
)

if TYPE_CHECKING:
    from lingon.export.shortlist.build import ShortlistSettings
    from lingon.training.checkpoint import Checkpoint
    from lingon.training.config import LanguagePair
    from lingon.training.data.corpus import Pair


@with_option_groups
def export(
    *,
    checkpoint: CheckpointArgument,
    folder: FolderArgument,
    precision: PrecisionOption = None,
    train_data: TrainDataOption = None,
    shortlist: ShortlistOption = None,
    shortlist_by_default: ShortlistByDefaultOption = False,
    gates: GateOptions,
    defaults: DefaultOptions,
    card: CardOption = None,
    attach: AttachOption = None,
) -> None:
    """Export a checkpoint as an ONNX bundle, verified against the checkpoint."""
    from lingon.lines import check_files

    check_files(path for files in (train_data, gates.gate_data) for path in files or ())
    from lingon.export.graphs.precisions import check_heads, precisions_of
    from lingon.export.manifest import check_folder, check_precisions
    from lingon.export.pipeline import check_gate_device, export_checkpoint
    from lingon.export.report import print_report
    from lingon.export.settings import ExportSettings, Texts, runnable
    from lingon.training.checkpoint import load_checkpoint

    names = () if precision is None else tuple(name.strip() for name in precision.split(","))
    check_gate_device(gates.gate_on)
    check_folder(folder)  # before anything is read, which may take minutes
    loaded = load_checkpoint(checkpoint)
    check_heads(loaded)
    names = names or runnable(precisions_of(loaded.model), typer.echo)
    settings = ExportSettings(
        precisions=names,
        shortlist=_shortlist(loaded, shortlist, by_default=shortlist_by_default),
        shortlist_by_default=shortlist_by_default,
        beam_size=defaults.beam_size,
        max_beam_size=defaults.max_beam_size,
        length_penalty=defaults.length_penalty,
        alignment_layer=defaults.alignment_layer,
        alignment_heads=tuple(dict.fromkeys(defaults.alignment_head or ())) or None,
        parity_sentences=gates.parity_sentences,
        gate_sentences=gates.gate_sentences,
        gate_on=gates.gate_on,
        card=_text(card) if card else "",
        attachments=tuple(attach or ()),
    )
    check_precisions(loaded.model, settings)
    held_out = held_out_pairs(loaded, gates.gate_data)
    training = _training_pairs(loaded, train_data) if settings.reads_training_text else ()
    others = {} if gates.gate_data else other_sources(loaded)
    texts = Texts(held_out[: max(gates.gate_sentences, gates.parity_sentences)], training, others)
    print_report(export_checkpoint(loaded, folder, texts, settings, log=lambda line: typer.echo(line, err=True)))


def _shortlist(checkpoint: Checkpoint, wanted: bool | None, *, by_default: bool) -> ShortlistSettings | None:
    """Return how to learn a shortlist; None, with a line, if none is asked for and the model serves several pairs."""
    from lingon.export.shortlist.build import ONE_PAIR, ShortlistSettings, check_one_pair, serves_one_pair

    languages = checkpoint.config.languages
    if wanted is None and not by_default and not serves_one_pair(languages):
        typer.echo(f"no shortlist: {ONE_PAIR}", err=True)
        return None
    if wanted is False:
        return None
    check_one_pair(languages)
    return ShortlistSettings()


def held_out_pairs(checkpoint: Checkpoint, files: Files = None) -> Sequence[Pair]:
    """Return the pairs for the gates, without those whose source is longer than the training text had.

    Those of the checkpoint are its validation text in the pair of languages of the block data.
    """
    from lingon.errors import SettingsError
    from lingon.training.config import Corpus, pair_name
    from lingon.training.data.corpus import read_pairs

    data, longest = checkpoint.config.data, checkpoint.config.max_source_tokens
    own = [corpus for corpus in data.valid if data.languages_of(corpus) == data.languages]
    corpora = [Corpus(source=files[0], target=files[1])] if files else own
    if not corpora:
        raise SettingsError(
            f"{checkpoint.folder}: its settings have no validation text of {pair_name(data.languages)}; name some with "
            "--gate-data"
        )
    pairs = [pair for corpus in corpora for pair in read_pairs(corpus) if pair.source and pair.target]
    readable = [pair for pair in pairs if len(checkpoint.tokenizer.encode_source(pair.source)) <= longest]
    if not readable:
        raise SettingsError(
            f"{corpora[0].files()[0]}: no sentence for the gates: of {len(pairs):,} pairs none has at most "
            f"data.max_tokens = {longest} source tokens"
        )
    return readable


def other_sources(checkpoint: Checkpoint) -> dict[LanguagePair, Sequence[str]]:
    """Return the validation sources in other languages than the source language of the block data, by pair.

    As for the gates, those that are longer than the training text had are left out.
    """
    from lingon.training.data.corpus import by_languages, read_validation_text

    config = checkpoint.config
    found: dict[LanguagePair, Sequence[str]] = {}
    others = config.tokenizers_of_others(checkpoint.tokenizer)
    for languages, pairs in by_languages(read_validation_text(config.data), config.data.languages).items():
        if languages[0] != config.data.source_language:
            encode = others[languages].encode_source
            texts = [each.source for each in pairs if each.source]
            found[languages] = [text for text in texts if len(encode(text)) <= config.max_source_tokens]
    return {languages: texts for languages, texts in found.items() if texts}


def _training_pairs(checkpoint: Checkpoint, files: Files) -> Sequence[Pair]:
    """Return the pairs that the model was trained on, or those of files, without pairs that are too long."""
    from lingon.training.config import Corpus
    from lingon.training.data.batches import drop_long
    from lingon.training.data.corpus import read_training_text

    data = checkpoint.config.data
    corpora = (Corpus(source=files[0], target=files[1]),) if files else data.train
    text = read_training_text(data.model_copy(update={"train": corpora}))
    others = checkpoint.config.tokenizers_of_others(checkpoint.tokenizer)
    return drop_long(text, checkpoint.tokenizer, data.max_tokens, others).epoch()


def _text(path: Path) -> str:
    from lingon.errors import SettingsError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--card {path}: {error}") from None
