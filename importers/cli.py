"""The verb import. It imports PyTorch and ONNX only when it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lingon.cli.options.groups import with_option_groups
from lingon.importers.options import (
    CheckpointOption,
    FolderArgument,
    GateOptions,
    LanguagesOption,
    ReadingOptions,
    ReportOption,
    ShortlistOption,
    SourceArgument,
    TrimOption,
)

if TYPE_CHECKING:
    from lingon.export.settings import ExportSettings, Texts
    from lingon.importers.pipeline import Imported, ImportSettings


@with_option_groups
def import_model(
    *,
    source: SourceArgument,
    folder: FolderArgument = None,
    languages: LanguagesOption = None,
    gates: GateOptions,
    reading: ReadingOptions,
    shortlist: ShortlistOption = "own",
    trim: TrimOption = None,
    checkpoint: CheckpointOption = None,
    report: ReportOption = False,
) -> None:
    """Turn a model of another toolkit into a bundle, verified against it."""
    _check_arguments(folder, checkpoint, gates, trim or [], report=report)
    from lingon.export.report import print_report
    from lingon.importers import pipeline
    from lingon.importers.archive import folder_of
    from lingon.importers.witness.samples import check_samples
    from lingon.text import normalise
    from lingon.training.checkpoint import save_checkpoint

    def log(line: str) -> None:
        typer.echo(line, err=True)

    settings = _settings(languages, reading, shortlist, every_language=report and gates.gate_source is None)
    with folder_of(source) as files:
        imported = pipeline.read_source(files, settings, log)
        check_samples(imported.checkpoint, imported.source, files, log)
        texts = _texts(imported, gates, shortlist, log)
        if gates.gate_source is not None:
            sources = [normalise(pair.source) for pair in texts.held_out]
            pipeline.check_imported(imported, files, sources, settings, log)
    if trim:
        imported = pipeline.trim_imported(imported, trim, log)
        texts = _texts(imported, gates, shortlist, lambda line: None)  # more tokens in some of them
    loaded = imported.checkpoint
    if checkpoint is not None:
        save_checkpoint(checkpoint, loaded.config, loaded.tokenizer, loaded.model, loaded.progress)
        typer.echo(f"written: {checkpoint}")
    if folder is not None:
        export = _export_settings(imported, gates, shortlist)
        print_report(pipeline.export_imported(imported, folder, texts, export, log))


def _settings(
    languages: str | None, reading: ReadingOptions, shortlist: str, *, every_language: bool
) -> ImportSettings:
    """Return the settings of an import."""
    from lingon.importers.pipeline import ImportSettings

    return ImportSettings(
        languages=_languages(languages),
        every_language=every_language,
        longest=reading.max_source_tokens,
        pieces=(reading.source_pieces, reading.target_pieces or reading.source_pieces),
        source_end=reading.source_end,
        compare=reading.compare,
        least_log_prob=reading.least_log_prob,
        licence=reading.licence,
        shortlist=shortlist,
    )


def _texts(imported: Imported, gates: GateOptions, shortlist: str, log: Callable[[str], None]) -> Texts:
    """Return the text for the gates, and that to learn a shortlist from, whose targets may be missing."""
    from lingon.export.settings import Texts
    from lingon.importers.pipeline import gate_pairs
    from lingon.importers.shortlist import split_pairs

    if gates.gate_source is None:
        return Texts(())
    pairs = gate_pairs(imported, gates.gate_source, gates.gate_reference, log)
    held_out = max(gates.gate_sentences, gates.parity_sentences)
    return Texts(*split_pairs(pairs, held_out, shortlist, gates.gate_source))


def _export_settings(imported: Imported, gates: GateOptions, shortlist: str) -> ExportSettings:
    """Return the settings of an export; precisions for CUDA are written only if they are named, for their size."""
    from lingon.export.settings import ExportSettings, runnable
    from lingon.export.shortlist.build import ShortlistSettings
    from lingon.importers.shortlist import LEARN
    from lingon.serving.runtime.device import NATIVE

    if gates.precision is None:
        precisions = runnable(("fp32", "int8", NATIVE), typer.echo)
    else:
        precisions = tuple(name.strip() for name in gates.precision.split(","))
    facts, listed = imported.source.facts, shortlist == LEARN or imported.source.shortlist is not None
    return ExportSettings(
        precisions=precisions,
        shortlist=ShortlistSettings() if listed else None,
        shortlist_by_default=listed,
        beam_size=facts.beam_size,
        max_beam_size=gates.max_beam_size,
        length_penalty=facts.length_penalty,
        parity_sentences=gates.parity_sentences,
        gate_sentences=gates.gate_sentences,
    )


def _check_arguments(
    folder: Path | None, checkpoint: Path | None, gates: GateOptions, trim: list[Path], *, report: bool
) -> None:
    """Raise SettingsError unless one thing is to be written that can be; CorpusError if a text is missing."""
    from lingon.errors import SettingsError
    from lingon.lines import check_files

    if sum((folder is not None, checkpoint is not None, report)) != 1:
        raise SettingsError("name one of: the folder of a model (models/NAME), --checkpoint FOLDER, --report")
    if folder is not None and gates.gate_source is None:
        raise SettingsError("a bundle needs text for its gates: name sentences of the source language, --gate-source")
    if folder is not None:
        from lingon.export.manifest import check_folder

        check_folder(folder)
    if checkpoint is not None and checkpoint.exists():
        raise SettingsError(f"--checkpoint {checkpoint} exists already; choose a new folder")
    check_files(path for path in (gates.gate_source, gates.gate_reference, *trim) if path is not None)


def _languages(given: str | None) -> tuple[list[str], list[str]] | None:
    from lingon.errors import SettingsError

    if given is None:
        return None
    source, colon, target = given.partition(":")
    if not (source and colon and target) or ":" in target:
        raise SettingsError(f"--languages must be two languages with a colon between them, as en:de, got {given!r}")
    return source.split(","), target.split(",")
