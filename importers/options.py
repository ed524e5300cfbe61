"""The options of `lingon import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.options.groups import OptionGroup
from lingon.export.options import MaxBeamSizeOption

SourceArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder or archive (.zip, .argosmodel, .tar, .tar.gz) with the files of a model of another toolkit."
    ),
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


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions(OptionGroup):
    """The text for the gates, and how much of it they take."""

    gate_source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences of the source language, for the gates and the int8 ranges, one a line. Default: none, as "
            "--checkpoint and --report permit."
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
class ReadingOptions(OptionGroup):
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
            help="Compare tokens with those of the model's own toolkit: Transformers, CTranslate2 or Marian's engine, "
            "which Node runs. Default: with those that are installed.",
            show_default=False,
        ),
    ] = None
    least_log_prob: Annotated[
        float,
        typer.Option(max=0, help="Least mean log-probability of the tokens of its own translations, as a check."),
    ] = -2.5
    licence: Annotated[
        str,
        typer.Option(help="The licence of the model, for its card. Default: what the files say.", show_default=False),
    ] = ""
    source_pieces: Annotated[
        Path | None,
        typer.Option(
            help="Sentencepiece model of the source, for a folder of CTranslate2. Default: source.spm or another one "
            "there."
        ),
    ] = None
    target_pieces: Annotated[
        Path | None,
        typer.Option(help="Sentencepiece model of the target. Default: that of the source, or target.spm there."),
    ] = None
    source_end: Annotated[
        bool | None,
        typer.Option(
            "--source-end/--no-source-end",
            help="Whether a source ends with the end token, for a folder of CTranslate2. Default: what its files say.",
            show_default=False,
        ),
    ] = None


ShortlistOption = Annotated[
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
ReportOption = Annotated[bool, typer.Option("--report", help="Say what the files hold, and write nothing.")]
