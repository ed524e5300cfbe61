"""The verb bulk."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.backend import BackendOptions
from lingon.cli.engine import EngineChoice, EngineOptions
from lingon.cli.options import (
    BeamSizeOption,
    GuardOption,
    KeepOption,
    LengthPenaltyOption,
    MaxOutputTokensOption,
    MemoryFiles,
    OptionGroup,
    ShortlistOption,
    SourceOption,
    TargetOption,
    TermOptions,
    TextFormat,
    with_option_groups,
)
from lingon.errors import LingonError, SettingsError

if TYPE_CHECKING:
    from lingon.bulk.runs import Estimate, ShardEngine


class ErrorChoice(StrEnum):
    """The handling of a row that cannot be translated."""

    COLUMN = "column"
    FAIL = "fail"


InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="A file, a quoted pattern such as 'in/*.parquet', or a folder: .parquet, .jsonl, .csv, .tsv or .txt, "
        "the last four also with .gz, .zst, .xz or .bz2; s3://, gs:// and az:// with the packages s3fs, gcsfs and "
        "adlfs.",
    ),
]
OutputArgument = Annotated[str, typer.Argument(help="Folder of the output, which may be in an object store too.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnOptions(OptionGroup):
    """The columns that are read and added."""

    column: Annotated[str, typer.Option(help="Column of the texts.")] = "text"
    into: Annotated[str, typer.Option(help="Column to add, with the translations.")] = "translation"
    language_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of the language of each text.", show_default="none")
    ] = None
    confidence: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column to add, with the confidence of each row.", show_default="none"),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the values as `Translate` takes them."""
        return {
            "column": self.column,
            "into": self.into,
            "language_column": self.language_column,
            "confidence_column": self.confidence,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOptions(OptionGroup):
    """The options of the translation."""

    source_language: SourceOption = None
    target_language: TargetOption = None
    beam_size: BeamSizeOption = None
    length_penalty: LengthPenaltyOption = None
    max_output_tokens: MaxOutputTokensOption = None
    shortlist: ShortlistOption = None
    written: Annotated[TextFormat, typer.Option("--format", help="How texts are written.")] = TextFormat.PLAIN
    guard: GuardOption = None
    keep: KeepOption = None
    wording: TermOptions = field(default_factory=TermOptions)

    def settings(self) -> dict[str, Any]:
        """Return the values as `Translate` takes them."""
        return {
            "source": self.source_language,
            "target": self.target_language,
            "beam_size": self.beam_size,
            "length_penalty": self.length_penalty,
            "max_output_tokens": self.max_output_tokens,
            "shortlist": self.shortlist,
            "format": None if self.written is TextFormat.PLAIN else self.written.value,
            "guard": self.guard and self.guard.value,
            "keep": self.keep,
            **self.wording.request(self.source_language, self.target_language),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions(OptionGroup):
    """Which rows are translated, and how they are divided into shards."""

    shard_rows: Annotated[int, typer.Option(min=1, help="Rows of a shard, and so of a file of the output.")] = 50_000
    errors: Annotated[
        ErrorChoice,
        typer.Option(
            help="What becomes of a row that cannot be translated: column gives the reason in a column INTO_error, "
            "fail ends the run before its shard is written."
        ),
    ] = ErrorChoice.COLUMN
    limit: Annotated[
        int | None, typer.Option(min=1, help="Rows to translate, from the first on.", show_default="all")
    ] = None
    quoted_tsv: Annotated[
        bool,
        typer.Option(
            "--quoted-tsv",
            help="Read and write .tsv with quotation marks as .csv; default: a quotation mark is a character as any "
            "other.",
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """Return the values as a plan takes them."""
        return {
            "shard_rows": self.shard_rows,
            "limit": self.limit,
            "fail_on_errors": self.errors is ErrorChoice.FAIL,
            "quoted_tsv": self.quoted_tsv,
        }


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Translate a sample, print what the run would take, and write nothing.")
]


RunMetricsPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port for Prometheus metrics of the run.", show_default="none")
]


@with_option_groups
def bulk(
    *,
    source: InputArgument,
    output: OutputArgument,
    columns: ColumnOptions,
    texts: TextOptions,
    memory: MemoryFiles,
    rows: RowOptions,
    dry_run: DryRun = False,
    engine: EngineOptions,
    metrics_port: RunMetricsPort = None,
    backend: BackendOptions,
) -> None:
    """Translate a column of many files, each row exactly once, with this machine, a server or a Ray cluster.

    OUTPUT gets a file for each shard, of the format of its input, with all columns and rows of it and the translations
    added, and _SUCCESS at the end. The names are in the order of the rows. The state of the run is in OUTPUT/_lingon.

    The same command continues a run that was ended at any time, and writes the same bytes.
    """
    from lingon.bulk.pairs import new_pairs
    from lingon.bulk.planning import plan
    from lingon.bulk.runs import estimate, run, watching
    from lingon.bulk.translating import Translate
    from lingon.cli.memory import add_pairs
    from lingon.cli.output import print_message

    if memory.memory is not None and engine.engine is not EngineChoice.LOCAL:
        raise SettingsError(f"--memory is on this machine: use --engine local, got {engine.engine.value}")
    chosen = _engine(engine, backend)
    with (
        Translate(backend=_absolute(backend), **columns.settings(), **texts.settings()) as translate,
        translate.with_memory(memory) as languages,
    ):
        work = plan(source, output, translate, **rows.settings(), write=not dry_run)
        if dry_run:
            _print_estimate(estimate(work, translate), backend.in_process)
            return
        with watching(metrics_port, print) as watch:
            manifest = run(work, chosen, translate, watch)
        if memory.write_memory is not None:
            add_pairs(memory.write_memory, new_pairs(work, translate.columns, translate.memory()), languages)
    print(
        f"{manifest['rows']:,} rows, {manifest['errors']:,} with an error, in {manifest['shards']:,} files in {output}"
    )
    if manifest["rows_without_terms"]:
        print_message(f"warning: the translations of {manifest['rows_without_terms']:,} rows lack a term")


def _engine(options: EngineOptions, backend: BackendOptions) -> ShardEngine:
    from lingon.extras import find_entry_points, name_missing_extra

    bounds, name = options.bounds(), options.engine.value
    entry = find_entry_points("lingon.bulk_engines").get(name)
    if entry is None:
        raise LingonError(f"this installation has no engine {name} (entry point lingon.bulk_engines)")
    with name_missing_extra(f"lingon bulk --engine {name}", entry.extras):
        make = entry.load()
    local = options.engine is EngineChoice.LOCAL
    found: ShardEngine = make(bounds and bounds[1]) if local else make(options.address, bounds, backend)
    return found


def _absolute(backend: BackendOptions) -> BackendOptions:
    """Return the options with the absolute path of a bundle, which workers find in any folder."""
    return replace(backend, model=str(Path(backend.model or "").resolve())) if backend.in_process else backend


def _print_estimate(found: Estimate, in_process: bool) -> None:
    from datetime import timedelta

    print(f"rows    {found.rows:,} in {found.files:,} files; {found.shards:,} shards")
    print(f"sample  {found.sampled:,} rows, {found.errors:,} of them with an error")
    print(f"tokens  about {found.source_tokens:,.0f} in the texts, {found.target_tokens:,.0f} in the translations")
    rate = found.rows / max(found.seconds, 1e-9)
    print(f"time    about {timedelta(seconds=round(found.seconds))} at {rate:,.0f} rows/s", end="")
    if in_process:
        import os

        cores = len(os.sched_getaffinity(0))
        print(f" on this machine, {found.seconds * cores / 3600:,.2f} core-hours")
    else:
        print(" by this server")
