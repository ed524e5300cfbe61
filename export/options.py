"""The options of `lingon export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.options.groups import OptionGroup

Files = tuple[Path, Path] | None
PAIR = "SOURCE TARGET"  # how help texts show two files
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
    typer.Option(
        metavar=PAIR,
        help="Source and target file for the int8 ranges and the shortlist. Default: the training text.",
    ),
]
ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        help="Export a shortlist: the likely target pieces of each source piece, for faster decoding.",
        show_default="shortlist, but none for several languages",
    ),
]
MaxBeamSizeOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=128,
        help="Largest beam size of a request, at most 128.",
        show_default="8, or the default beam size if that is larger",
    ),
]
ShortlistByDefaultOption = Annotated[
    bool, typer.Option(help="Decode with the shortlist if a request does not set shortlist.")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions(OptionGroup):
    """The text for the gates, how much of it they take, and where they run."""

    gate_data: Annotated[
        Files,
        typer.Option(
            metavar=PAIR,
            help="Source and target file for the gates. Default: the validation set of the checkpoint.",
        ),
    ] = None
    gate_sentences: Annotated[
        int,
        typer.Option(
            min=1, help="Number of gate sentences for BLEU and chrF of fp16, int8 and the shortlist against fp32."
        ),
    ] = 2500
    parity_sentences: Annotated[
        int, typer.Option(min=1, help="Number of gate sentences whose tokens must equal those of the checkpoint.")
    ] = 500
    gate_on: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu|cuda",
            help="Where the gates of the precisions for CUDA run. auto: on CUDA if it is usable, else on the CPU, and "
            "the manifest says so. cuda: on CUDA, or the export fails before it begins.",
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultOptions(OptionGroup):
    """What the bundle does unless a request says otherwise."""

    beam_size: Annotated[int, typer.Option(min=1, help="Default beam size of the bundle; the gates use it too.")] = 4
    max_beam_size: MaxBeamSizeOption = None
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="Default length penalty of the bundle; the gates use it too.")
    ] = 1.0
    alignment_layer: Annotated[
        int | None,
        typer.Option(
            help="Decoder layer, from 0, whose cross-attention gives alignments. Default: the one that training "
            "guided, else the last but one, of two the last."
        ),
    ] = None
    alignment_head: Annotated[
        list[int] | None,
        typer.Option(
            help="Head of that layer, from 0, that gives alignments; the mean of several if repeated. Default: the "
            "heads that training guided, else all."
        ),
    ] = None


CardOption = Annotated[
    Path | None,
    typer.Option(help="File with the model card's own text, such as attribution and scores. Default: none."),
]
AttachOption = Annotated[
    list[Path] | None,
    typer.Option(help="Picture or text to put into the bundle with the card. May be repeated. Default: none."),
]
