"""The verb import. It imports PyTorch and ONNX only when it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.options import OptionGroup, with_option_groups
from lingon.export.cli import MaxBeamSizeOption

if TYPE_CHECKING:
    from lingon.export.settings import ExportSettings, ExportTexts
    from lingon.fetching.sources import Fetched, Published
    from lingon.importers.pipeline import Imported, ImportSettings

LEAST_LOG_PROB = -2.5  # mean natural logarithm of the probability of a token; see ImportSettings

# The options of `lingon import`.

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="Folder or archive (.zip, .argosmodel, .tar, .tar.gz) with the files of a model of another toolkit; or "
        "OWNER/NAME[@REVISION] of the Hugging Face hub, the https URL of an archive, or a name of the catalogue, as "
        "en-de (see `lingon models available`), which are downloaded."
    ),
]
BundleFolderArgument = Annotated[
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportGateOptions(OptionGroup):
    """The text for the gates, and how much of it they take."""

    gate_source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences of the source language, for the gates and the int8 ranges, one a line. Default: for a "
            "bundle, dates, lists, amounts and names in this language, made from the locale data of Unicode; for "
            "--checkpoint and --report none."
        ),
    ] = None
    gate_reference: Annotated[
        Path | None,
        typer.Option(
            help="Their translations, line by line: int8 is then compared by BLEU, and a confidence is fitted. A "
            "sentence whose line is blank is left out. Default: none."
        ),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated precisions: fp32, int8, int8-native and fp32-native (CPU), fp32-cuda and fp16 "
            "(CUDA). Default: fp32, int8 and, if the native operators are built, int8-native."
        ),
    ] = None
    gate_sentences: Annotated[
        int, typer.Option(min=1, help="Number of sentences for the gates of lossy precisions.")
    ] = 500
    parity_sentences: Annotated[
        int, typer.Option(min=1, help="Number of sentences whose tokens must equal those of PyTorch.")
    ] = 100
    max_beam_size: MaxBeamSizeOption = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReadingOptions(OptionGroup):
    """How the files are read, and what the model that they hold is compared with."""

    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=2**15 - 1,  # a bundle has 2**15 positions at most, one more than it reads
            help="Source tokens that the model reads at once. Default: what the files of the model say.",
        ),
    ] = None
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Compare tokens with those of the model's own toolkit: Transformers, CTranslate2, Marian's engine, "
            "which Node runs, or fxtranslate. Default: with those that are installed.",
            show_default=False,
        ),
    ] = None
    least_log_prob: Annotated[
        float,
        typer.Option(max=0, help="Least mean log-probability of the tokens of its own translations, as a check."),
    ] = LEAST_LOG_PROB
    licence: Annotated[
        str,
        typer.Option(help="The licence of the model, for its card. Default: what the files say.", show_default=False),
    ] = ""
    source_pieces: Annotated[
        Path | None,
        typer.Option(
            help="Sentencepiece model or merges of the source, for CTranslate2, OpenNMT-py and Eole. Default: a file "
            "there, such as source.spm."
        ),
    ] = None
    target_pieces: Annotated[
        Path | None,
        typer.Option(
            help="Sentencepiece model or merges of the target. Default: that of the source, or target.spm there."
        ),
    ] = None
    source_end: Annotated[
        bool | None,
        typer.Option(
            "--source-end/--no-source-end",
            help="Whether a source ends with the end token, for a folder of CTranslate2. Default: what its files say.",
            show_default=False,
        ),
    ] = None
    terms: Annotated[
        bool,
        typer.Option(
            "--terms",
            help="The model was trained with terms in the form of OpusTrainer, __source__ dog __target__ Hund "
            "__done__, so that it is given those of requests in this form. Default: it was not.",
            show_default=False,
        ),
    ] = False


ShortlistChoiceOption = Annotated[
    str,
    typer.Option(
        metavar="own|learn|FILE|none",
        help="The shortlist, which requests use by default. own: that of the model's files, if they have one. learn: "
        "learned from the sentences of --gate-source after those of the gates, with their references or with "
        "translations by the model; tens of thousands are needed. FILE: a lexicon in a form of Marian, text or binary.",
    ),
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
OWN_SHORTLIST, LEARNED = "own", "learn"
ReportOption = Annotated[bool, typer.Option("--report", help="Say what the files hold, and write nothing.")]


@with_option_groups
def import_model(
    *,
    source: SourceArgument,
    folder: BundleFolderArgument = None,
    languages: LanguagesOption = None,
    gates: ImportGateOptions,
    reading: ModelReadingOptions,
    shortlist: ShortlistChoiceOption = OWN_SHORTLIST,
    trim: TrimOption = None,
    checkpoint: CheckpointOption = None,
    report: ReportOption = False,
) -> None:
    """Turn a model of another toolkit into a bundle, verified against it."""
    _check_arguments(folder, checkpoint, gates, trim or [], shortlist, report=report)
    from lingon.cli.models import download_tools
    from lingon.fetching.sources import resolve

    with download_tools() as tools:
        outputs = Outputs(folder, checkpoint, report)
        _import(resolve(source).fetched(tools), outputs, languages, gates, reading, shortlist, trim or [])


@dataclass(frozen=True, slots=True)
class Outputs:
    """What an import writes: a bundle below a folder, a checkpoint, or only a report."""

    folder: Path | None = None
    checkpoint: Path | None = None
    report: bool = False


def import_fetched(
    fetching: AbstractContextManager[Fetched],
    folder: Path,
    *,
    languages: str | None = None,
    gate_source: Path | None = None,
    gate_reference: Path | None = None,
    precision: str | None = None,
    least_log_prob: float = LEAST_LOG_PROB,
) -> None:
    """Turn the files of a model into a bundle below folder (models/NAME), as `lingon models get` does.

    fetching: fetches the files when it is entered, after all that can be checked without them

    The options are those of `lingon import`. Raises LingonError.
    """
    gates = ImportGateOptions(gate_source=gate_source, gate_reference=gate_reference, precision=precision)
    _check_arguments(folder, None, gates, [], OWN_SHORTLIST, report=False)
    reading = ModelReadingOptions(least_log_prob=least_log_prob)
    _import(fetching, Outputs(folder), languages, gates, reading, OWN_SHORTLIST, [])


def _import(
    fetching: AbstractContextManager[Fetched],
    outputs: Outputs,
    languages: str | None,
    gates: ImportGateOptions,
    reading: ModelReadingOptions,
    shortlist: str,
    trim: list[Path],
) -> None:
    """Fetch, read, check and write a model. A package that is missing is an error before the download."""
    from lingon.export.cli import print_report
    from lingon.importers import pipeline
    from lingon.importers.archive import folder_of
    from lingon.importers.toolkits.comparison import check_samples
    from lingon.text import normalise
    from lingon.training.checkpoint import save_checkpoint

    def log(line: str) -> None:
        typer.echo(line, err=True)

    folder, checkpoint, own_text = outputs.folder, outputs.checkpoint, gates.gate_source is not None
    with fetching as fetched:
        settings = _settings(
            languages, reading, shortlist, fetched.published, every_language=outputs.report and not own_text
        )
        log(f"reading {fetched.path}")
        with folder_of(fetched.path) as files:
            imported = pipeline.read_source(files, settings, log)
            check_samples(imported.checkpoint, imported.source, files, log)
            texts = _texts(imported, gates, shortlist, log, made=folder is not None)
            if texts.held_out:
                sources = [normalise(pair.source) for pair in texts.held_out]
                pipeline.check_imported(imported, files, sources, settings, log)
        if trim:
            imported = pipeline.trim_imported(imported, trim, log)
            texts = _texts(
                imported, gates, shortlist, lambda line: None, made=folder is not None
            )  # more tokens in some
        loaded = imported.checkpoint
        if checkpoint is not None:
            save_checkpoint(checkpoint, loaded.config, loaded.tokenizer, loaded.model, loaded.progress)
            typer.echo(f"written: {checkpoint}")
        if folder is not None:
            export = _export_settings(imported, gates, shortlist)
            print_report(pipeline.export_imported(imported, folder, texts, export, log))


def _settings(
    languages: str | None,
    reading: ModelReadingOptions,
    shortlist: str,
    published: Published,
    *,
    every_language: bool,
) -> ImportSettings:
    """Return the settings of an import. What the user says comes before what the publisher says."""
    from lingon.importers.pipeline import ImportSettings

    pair = published.languages
    return ImportSettings(
        languages=_languages(languages) or (([pair[0]], [pair[1]]) if pair else None),
        every_language=every_language,
        longest=reading.max_source_tokens,
        pieces=(reading.source_pieces, reading.target_pieces or reading.source_pieces),
        source_end=reading.source_end,
        compare=reading.compare,
        least_log_prob=reading.least_log_prob,
        licence=reading.licence or published.licence,
        origin=published.source,
        scores=published.scores,
        shortlist=shortlist,
        terms=reading.terms,
    )


def _texts(
    imported: Imported, gates: ImportGateOptions, shortlist: str, log: Callable[[str], None], *, made: bool
) -> ExportTexts:
    """Return the text for the gates, and that to learn a shortlist from, whose targets may be missing.

    made: whether the text is made from locale data if the user names none
    """
    from lingon.export.settings import ExportTexts
    from lingon.importers.pipeline import gate_pairs, made_pairs, split_pairs

    if gates.gate_source is None:
        count = max(gates.gate_sentences, gates.parity_sentences)
        return ExportTexts(made_pairs(imported, count, log) if made else ())
    pairs = gate_pairs(imported, gates.gate_source, gates.gate_reference, log)
    held_out = max(gates.gate_sentences, gates.parity_sentences)
    return ExportTexts(*split_pairs(pairs, held_out, shortlist, gates.gate_source))


def _export_settings(imported: Imported, gates: ImportGateOptions, shortlist: str) -> ExportSettings:
    """Return the settings of an export. Precisions for CUDA are written only if they are named, for their size."""
    from lingon.export.settings import ExportSettings, runnable
    from lingon.export.shortlist import ShortlistSettings
    from lingon.importers.pipeline import LEARN
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
    folder: Path | None,
    checkpoint: Path | None,
    gates: ImportGateOptions,
    trim: list[Path],
    shortlist: str,
    *,
    report: bool,
) -> None:
    """Raise SettingsError unless one thing is to be written that can be; CorpusError if a text is missing."""
    from lingon.errors import SettingsError
    from lingon.files import check_files

    if sum((folder is not None, checkpoint is not None, report)) != 1:
        raise SettingsError("name one of: the folder of a model (models/NAME), --checkpoint FOLDER, --report")
    for name, given in (
        ("--gate-reference", gates.gate_reference),
        ("--shortlist learn", folder is not None and shortlist == LEARNED),
    ):
        if given and gates.gate_source is None:
            raise SettingsError(f"{name} needs sentences of the source language, --gate-source")
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
