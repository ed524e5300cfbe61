"""The verb import. It imports PyTorch and ONNX only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lingon.export.settings import ExportSettings, Texts
    from lingon.importers.pipeline import Imported

SourceArgument = Annotated[
    Path, typer.Argument(help="Folder or archive (.zip, .tar, .tar.gz) with the files of a model of another toolkit.")
]
FolderArgument = Annotated[
    Path | None,
    typer.Argument(help="models/NAME; the next version is written below this folder. Default: no bundle is written."),
]
LanguagesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE:TARGET",
        help="The two languages, as en:de; of a model of several, those to serve, as en,de:fr,all, and first the pair "
        "of the text for the gates. Default: what the files say.",
    ),
]
GateSourceOption = Annotated[
    Path | None,
    typer.Option(
        help="Sentences of the source language, for the gates and the int8 ranges, one a line. Default: none, as "
        "--checkpoint and --report permit."
    ),
]
GateReferenceOption = Annotated[
    Path | None,
    typer.Option(help="Their translations: int8 is then compared by BLEU, and a confidence is fitted. Default: none."),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        help="Comma-separated precisions: fp32, int8, int8-native and fp32-native (CPU), fp32-cuda and fp16 (CUDA)."
    ),
]
GateSentencesOption = Annotated[int, typer.Option(min=1, help="Number of sentences for the gates of lossy precisions.")]
ParitySentencesOption = Annotated[
    int, typer.Option(min=1, help="Number of sentences whose tokens must equal those of PyTorch.")
]
MaxSourceTokensOption = Annotated[
    int | None,
    typer.Option(min=2, help="Source tokens that the model reads at once. Default: what the files of the model say."),
]
CompareOption = Annotated[
    bool | None,
    typer.Option(
        "--compare/--no-compare",
        help="Compare tokens with those of Transformers and CTranslate2. Default: with those that are installed.",
        show_default=False,
    ),
]
LeastLogProbOption = Annotated[
    float,
    typer.Option(max=0, help="Least mean log-probability of the tokens of its own translations, as a check."),
]
LicenceOption = Annotated[
    str, typer.Option(help="The licence of the model, for its card. Default: what the files say.", show_default=False)
]
TrimOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Text of all served languages, one sentence a line; may be given several times. The model keeps the "
        "pieces of this text, single characters and bytes: it gets smaller and faster. Default: it keeps all pieces.",
        show_default=False,
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(help="New folder for a checkpoint of Lingon, in the place of a bundle. Default: none is written."),
]
SourcePiecesOption = Annotated[
    Path | None,
    typer.Option(
        help="Sentencepiece model of the source, for a folder of CTranslate2. Default: source.spm or another one there."
    ),
]
TargetPiecesOption = Annotated[
    Path | None,
    typer.Option(help="Sentencepiece model of the target. Default: that of the source, or target.spm there."),
]
ShortlistOption = Annotated[
    str,
    typer.Option(
        metavar="own|learn|FILE|none",
        help="The shortlist, which requests use by default. own: that of the model's files, if they have one. learn: "
        "learned from the sentences of --gate-source after those of the gates, with their references or with "
        "translations by the model; tens of thousands are needed. FILE: a lexicon in a form of Marian, text or binary.",
    ),
]
ReportOption = Annotated[bool, typer.Option("--report", help="Say what the files hold, and write nothing.")]


def import_model(
    source: SourceArgument,
    folder: FolderArgument = None,
    languages: LanguagesOption = None,
    gate_source: GateSourceOption = None,
    gate_reference: GateReferenceOption = None,
    precision: PrecisionOption = "fp32,int8",
    gate_sentences: GateSentencesOption = 500,
    parity_sentences: ParitySentencesOption = 100,
    max_source_tokens: MaxSourceTokensOption = None,
    compare: CompareOption = None,
    least_log_prob: LeastLogProbOption = -2.5,
    licence: LicenceOption = "",
    source_pieces: SourcePiecesOption = None,
    target_pieces: TargetPiecesOption = None,
    shortlist: ShortlistOption = "own",
    trim: TrimOption = None,
    checkpoint: CheckpointOption = None,
    report: ReportOption = False,
) -> None:
    """Turn a model of another toolkit into a bundle, verified against it."""
    _check_arguments(folder, checkpoint, gate_source, trim or [], report=report)
    from lingon.export.report import print_report
    from lingon.importers import pipeline
    from lingon.importers.archive import folder_of
    from lingon.importers.witness.samples import check_samples
    from lingon.text import normalise
    from lingon.training.checkpoint import save_checkpoint

    def log(line: str) -> None:
        typer.echo(line, err=True)

    settings = pipeline.ImportSettings(
        languages=_languages(languages),
        longest=max_source_tokens,
        pieces=(source_pieces, target_pieces or source_pieces),
        compare=compare,
        least_log_prob=least_log_prob,
        licence=licence,
        shortlist=shortlist,
    )

    def texts_of(imported: pipeline.Imported) -> Texts:
        return _texts(imported, gate_source, gate_reference, max(gate_sentences, parity_sentences), shortlist)

    with folder_of(source) as files:
        imported = pipeline.read_source(files, settings, log)
        check_samples(imported.checkpoint, imported.source, files, log)
        texts = texts_of(imported)
        if gate_source is not None:
            sources = [normalise(pair.source) for pair in texts.held_out]
            pipeline.check_imported(imported, files, sources, settings, log)
    if trim:
        imported = pipeline.trim_imported(imported, trim, log)
        texts = texts_of(imported)  # more tokens in some of them
    loaded = imported.checkpoint
    if checkpoint is not None:
        save_checkpoint(checkpoint, loaded.config, loaded.tokenizer, loaded.model, loaded.progress)
        typer.echo(f"written: {checkpoint}")
    if folder is None:
        return
    export = _export_settings(imported, precision, parity_sentences, gate_sentences, shortlist)
    print_report(pipeline.export_imported(imported, folder, texts, export, log))


def _texts(
    imported: Imported, gate_source: Path | None, gate_reference: Path | None, gates: int, shortlist: str
) -> Texts:
    """Return the text for the gates, and that to learn a shortlist from, whose targets may be missing."""
    from lingon.export.settings import Texts
    from lingon.importers.pipeline import gate_pairs
    from lingon.importers.shortlist import split_pairs

    if gate_source is None:
        return Texts(())
    return Texts(*split_pairs(gate_pairs(imported, gate_source, gate_reference), gates, shortlist, gate_source))


def _export_settings(imported: Imported, precision: str, parity: int, gates: int, shortlist: str) -> ExportSettings:
    """Return the settings of an export; parity and gates: numbers of sentences."""
    from lingon.export.settings import ExportSettings
    from lingon.export.shortlist.build import ShortlistSettings
    from lingon.importers.shortlist import LEARN

    facts, listed = imported.source.facts, shortlist == LEARN or imported.source.shortlist is not None
    return ExportSettings(
        precisions=tuple(name.strip() for name in precision.split(",")),
        shortlist=ShortlistSettings() if listed else None,
        shortlist_by_default=listed,
        beam_size=facts.beam_size,
        max_beam_size=max(facts.beam_size, 8),
        length_penalty=facts.length_penalty,
        parity_sentences=parity,
        gate_sentences=gates,
    )


def _check_arguments(
    folder: Path | None, checkpoint: Path | None, gate_source: Path | None, trim: list[Path], *, report: bool
) -> None:
    """Raise SettingsError unless one thing is to be written that can be, or if a file to trim by is missing."""
    from lingon.errors import SettingsError
    from lingon.lines import check_files

    if sum((folder is not None, checkpoint is not None, report)) != 1:
        raise SettingsError("name one of: the folder of a model (models/NAME), --checkpoint FOLDER, --report")
    if folder is not None and gate_source is None:
        raise SettingsError("a bundle needs text for its gates: name sentences of the source language, --gate-source")
    if checkpoint is not None and checkpoint.exists():
        raise SettingsError(f"--checkpoint {checkpoint} exists already; choose a new folder")
    check_files(trim)


def _languages(given: str | None) -> tuple[list[str], list[str]] | None:
    from lingon.errors import SettingsError

    if given is None:
        return None
    source, colon, target = given.partition(":")
    if not (source and colon and target) or ":" in target:
        raise SettingsError(f"--languages must be two languages with a colon between them, as en:de, got {given!r}")
    return source.split(","), target.split(",")
