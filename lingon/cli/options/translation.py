"""The options of `translate` alone, and those that it shares with `score` and `align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.options.decoding import TextFormat

Texts = Annotated[
    list[str] | None, typer.Argument(help="Texts to translate.", show_default="the lines of standard input")
]
Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        metavar="FILE",
        help="Read the lines of this file, plain or .gz.",
        show_default="standard input",
    ),
]
NumHypotheses = Annotated[
    int | None,
    typer.Option(
        "--num-hypotheses",
        "--n-best",
        min=1,
        help="Translations of each text, at most --beam-size unless sampling. Above 1 each is a line "
        "N ||| TEXT ||| SCORE, where N counts the texts from 0.",
        show_default="the model's",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Divide the logits by this and draw tokens at random. Any of --temperature, --top-k, --top-p and "
        "--seed turns sampling on, which needs --beam-size 1.",
        show_default="1 if sampling",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(min=0, help="Draw from this many of the likeliest tokens; 0 means all.", show_default="0 if sampling"),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Draw from the smallest set of likeliest tokens with this probability.", show_default="1 if sampling"
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the random draws.", show_default="0 if sampling")]
TargetPrefix = Annotated[str | None, typer.Option(help="Text that every translation begins with.", show_default="none")]
MinOutputTokens = Annotated[
    int | None,
    typer.Option(min=0, help="Smallest number of tokens in a translation, the end token included.", show_default="0"),
]
NoRepeat = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="A run of this many tokens does not appear twice in a translation.",
        show_default="0, no such rule",
    ),
]
Repetition = Annotated[
    float | None,
    typer.Option(help="Above 1, tokens that a translation has already become less likely.", show_default="1"),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORD",
        help="A word or phrase that is in no translation, not even inside a longer word; may be repeated.",
        show_default="none",
    ),
]
Force = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WORD",
        help="A word or phrase that every translation has; may be repeated. Give --beam-size at least twice the "
        "number of their tokens. A line without such a word is named on standard error.",
        show_default="none",
    ),
]
SplitLong = Annotated[
    bool,
    typer.Option(
        "--split-long/--no-split-long",
        help="Translate a text that is longer than the model reads in parts, and name its line on standard error. "
        "With --no-split-long such a line is an error, and the exit code is 1.",
    ),
]
SplitSentences = Annotated[
    bool,
    typer.Option(
        "--split-sentences/--no-split-sentences",
        help="Translate each sentence of a line alone. With --no-split-sentences, or with --force, the model reads "
        "whole lines.",
    ),
]
Wrapped = Annotated[
    bool,
    typer.Option(
        "--wrapped",
        help="Read wrapped text: the lines up to a blank line are one text, which gives one line. Default: each "
        "line is a text.",
    ),
]
Format = Annotated[
    TextFormat,
    typer.Option(
        "--format",
        help="How the input is written. html and xml: it is one document; the text of its elements is translated, "
        "all else stays as it is, and tags inside a sentence are placed in its translation.",
    ),
]
IgnoreTag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="With --format html or xml: an element that stays as it is; may be given several times.",
        show_default="none",
    ),
]
Protect = Annotated[
    bool | None,
    typer.Option(
        "--protect/--no-protect",
        help="Keep URLs, e-mail addresses, placeholders, tags, long numbers and emoji as they are.",
        show_default="protect, but not with --force",
    ),
]
Scores = Annotated[bool, typer.Option("--scores", help="Add a column with the score. Default: no such column.")]
Tokens = Annotated[bool, typer.Option("--tokens", help="Add a column with the tokens. Default: no such column.")]

Batch = Annotated[int, typer.Option(min=1, max=1024, help="Largest number of lines in one request.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for each line. Default: plain text.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the results to this file, compressed if it ends in .gz. They are written to FILE.part, which is "
        "renamed to FILE at the end; after an error FILE is unchanged and FILE.part holds the lines so far.",
        show_default="standard output",
    ),
]
Alignment = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Add a column that aligns words: i-j means that source word i became target word j, from 0. "
        "Default: no such column.",
    ),
]
