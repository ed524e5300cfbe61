"""The verb align. Heavy imports happen when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.backend import BackendOptions
from lingon.cli.options import (
    BatchSizeOption,
    JsonLinesOption,
    OutputOption,
    PairSourceOption,
    PairTargetOption,
    SourceLanguageOption,
    TargetLanguageOption,
    with_option_groups,
)

GoldOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Right links of the pairs, line by line, plain or packed: i-j is sure, ipj possible. Instead of links, "
        "print the alignment error rate (AER), precision and recall of all pairs.",
        show_default="none",
    ),
]
ChooseOption = Annotated[
    bool,
    typer.Option(
        "--choose",
        help="With --gold, print these figures for every layer and head, for the mean of the heads of each layer, and "
        "for each of these with --shift; the best first. Default: only for the selected heads.",
    ),
]
LinkLayerOption = Annotated[
    int | None,
    typer.Option(min=0, help="Decoder layer, from 0, whose attention makes the links.", show_default="the bundle's"),
]
HeadsOption = Annotated[
    list[int] | None,
    typer.Option(
        min=0,
        help="Head of --layer, from 0; the mean of several if repeated.",
        show_default="all heads of --layer, else the bundle's",
    ),
]
ShiftOption = Annotated[
    bool,
    typer.Option(
        "--shift",
        help="Link a target token by the attention of the step that reads it. Default: of the step that predicts it.",
    ),
]
ReverseOption = Annotated[
    bool,
    typer.Option(
        "--reverse", help="The model translates from target to source. Default: it translates from source to target."
    ),
]
OtherOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Links of the same pairs made in another way, such as with a model of the other direction and --reverse, "
        "line by line, plain or packed. They are combined with those of attention as --symmetrisation says.",
        show_default="none",
    ),
]
SymmetrisationOption = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="How links are combined with those of --other: intersection, union or grow-diag-final-and.",
    ),
]


@with_option_groups
def align(
    source: PairSourceOption = None,
    target: PairTargetOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    output_file: OutputOption = None,
    gold: GoldOption = None,
    choose: ChooseOption = False,
    layer: LinkLayerOption = None,
    head: HeadsOption = None,
    shift: ShiftOption = False,
    reverse: ReverseOption = False,
    other: OtherOption = None,
    symmetrisation: SymmetrisationOption = "grow-diag-final-and",
    as_json: JsonLinesOption = False,
    batch_size: BatchSizeOption = 32,
    *,
    backend: BackendOptions,
) -> None:
    """Align the words of given translations: of two files, or of SOURCE<tab>TARGET on standard input.

    Prints a line of links for each pair: i-j means that source word i and target word j translate each other, counted
    from 0, words separated by white space.
    """
    from lingon.cli.aligning import Aligner, AlignmentHeads, JudgeLinks, LinkFile, PrintLinks, attention_options
    from lingon.cli.input import input_pairs
    from lingon.cli.lines import LineWork, run
    from lingon.client.options import ScoreOptions
    from lingon.client.results import ScoreResult

    check_choice(gold=gold, choose=choose, layer=layer, head=head, shift=shift, symmetrisation=symmetrisation)
    heads = None if choose else AlignmentHeads(layer, tuple(sorted(set(head or ()))), shift)
    languages: ScoreOptions = {"source": source_language, "target": target_language}
    asking: ScoreOptions = {"model": backend.server_model, **languages, **attention_options(heads)}
    further = LinkFile.read(other) if other is not None else None
    aligner = Aligner(options=asking, reverse=reverse, other=further, symmetrisation=symmetrisation)
    work: LineWork[tuple[str, str], ScoreResult] = PrintLinks(aligner=aligner, shift=shift, as_json=as_json)
    if gold is not None:
        work = JudgeLinks(aligner=aligner, gold=LinkFile.read(gold), heads=heads, as_json=as_json)
    pairs = input_pairs(source, target, output_file)
    if not run(backend, pairs, work, output_file, batch_size, full_batches=False):
        raise typer.Exit(1)


def check_choice(
    *, gold: Path | None, choose: bool, layer: int | None, head: list[int] | None, shift: bool, symmetrisation: str
) -> None:
    """Raise SettingsError for an unknown method, and for options that do not go together."""
    from lingon.alignment import SYMMETRISATIONS
    from lingon.errors import SettingsError

    if symmetrisation not in SYMMETRISATIONS:
        raise SettingsError(f"--symmetrisation must be {', '.join(SYMMETRISATIONS)}, got {symmetrisation!r}")
    if choose and gold is None:
        raise SettingsError("--choose needs --gold FILE, by which it chooses")
    given = {"--layer": layer is not None, "--head": bool(head), "--shift": shift}
    if choose and (named := [name for name, is_given in given.items() if is_given]):
        raise SettingsError(f"--choose tries every layer and head, with and without --shift; leave out {named[0]}")
    if head and layer is None:
        raise SettingsError("--head needs --layer, since each layer has heads of its own")
