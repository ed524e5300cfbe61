"""Options that several verbs share, and groups of options: a verb declares one parameter for the options of a group."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lingon.client.options import TranslateOptions


class OptionGroup:
    """The base of a dataclass whose fields are options: the name, the type as typer reads it, and the default.

    A field may be a group too, `Group` or `Group | None`: its options are among those of the outer group.
    """

    __slots__ = ()


def with_option_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb with the options of a group instead of each parameter whose type is an OptionGroup."""
    signature = inspect.signature(verb, eval_str=True)
    groups, parameters = dict[str, type[OptionGroup]](), list[Parameter]()
    for name, each in signature.parameters.items():
        if group := _group_in(each.annotation):
            groups[name] = group
            parameters += _options_of(group)
        else:
            parameters.append(each.replace(kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        made = {name: _made(group, given) for name, group in groups.items()}
        verb(**given, **made)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer reads both
    return run


def _group_in(kind: Any) -> type[OptionGroup] | None:
    """Return the group that a type is, or that it is beside None, or None for the type of an option."""
    kinds = (kind, *typing.get_args(kind))
    return next((each for each in kinds if inspect.isclass(each) and issubclass(each, OptionGroup)), None)


def _options_of(group: Any) -> Iterator[Parameter]:
    """Yield the options of a group and of those in it, as parameters of a verb."""
    kinds = typing.get_type_hints(group, include_extras=True)
    for each in dataclasses.fields(group):
        if inner := _group_in(kinds[each.name]):
            yield from _options_of(inner)
        else:
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, annotation=kinds[each.name], default=each.default)


def _made(group: Any, given: dict[str, Any]) -> Any:
    """Return a group with the values of its options, which are taken out of those that are given."""
    kinds, values = typing.get_type_hints(group, include_extras=True), dict[str, Any]()
    for each in dataclasses.fields(group):
        if inner := _group_in(kinds[each.name]):
            values[each.name] = _made(inner, given)
        elif each.name in given:
            values[each.name] = given.pop(each.name)
    return group(**values)


class TextFormat(StrEnum):
    """How the input is written."""

    PLAIN = "plain"
    HTML = "html"
    XML = "xml"
    PIECES = "pieces"


class GuardChoice(StrEnum):
    """What is done about translations that are suspect."""

    OFF = "off"
    WARN = "warn"
    RETRY = "retry"
    REFUSE = "refuse"


SourceOption = Annotated[
    str | None,
    typer.Option("--source", "--source-language", help="Language of the texts, as en.", show_default="the model's"),
]
DetectedSourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        "--source-language",
        help="Language of the texts, such as en; auto detects it for each text, and leaves one that is in --target as "
        "it is.",
        show_default="the model's",
    ),
]
SameLanguageOption = Annotated[
    bool,
    typer.Option(
        "--same-language",
        help="With --source auto: the texts are in one language, and those beside a text tell it too, of each batch "
        "(--batch-size). Default: each text tells its own.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", "--target-language", help="Language of the translations, such as de.", show_default="the model's"
    ),
]

SourceLanguageOption = Annotated[
    str | None, typer.Option(help="Language of the sources, such as en.", show_default="the model's")
]
TargetLanguageOption = Annotated[
    str | None, typer.Option(help="Language of the targets, such as de.", show_default="the model's")
]
"""Where --source and --target are texts."""

MAX_BEAM_SIZE = 128
"""Of any bundle: the rule of lingon.bundle.manifest.BeamSize, which takes long to import. Most bundles allow less."""

BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_BEAM_SIZE, help="Beam size; 1 is greedy search.", show_default="the model's"),
]
OwnBeamSizeOption = Annotated[int, typer.Option(min=1, max=MAX_BEAM_SIZE, help="Beam size; 1 is greedy search.")]
"""With a default of the verb's own."""

LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(
        min=0, help="alpha in the score of a translation, log-probability / length^alpha.", show_default="the model's"
    ),
]
MaxOutputTokensOption = Annotated[
    int | None, typer.Option(min=1, help="Largest number of tokens in a translation.", show_default="the model's bound")
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        help="String that translations keep as it is, such as a name of a product; may be given several times.",
        metavar="STRING",
        show_default="none",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TermOptions(OptionGroup):
    """What words and phrases are translated to."""

    terms: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Terms, which a translation has where its text has their sources: a .tsv or .csv file with a source "
            "and a target in each row, .tbx or .tmx. A line or a sentence whose translation lacks one is named on "
            "standard error.",
            show_default="none",
        ),
    ] = None
    glossary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name of a glossary that the server keeps, see `lingon glossaries`; may be given several times, the "
            "most important one first. --terms goes before all.",
            show_default="none",
        ),
    ] = None

    def request(self, source: str | None, target: str | None) -> TranslateOptions:
        """Return the options as the client takes them; source, target: the languages, as the verb has them."""
        from lingon.source_language import AUTO
        from lingon.terms.files import read_terms
        from lingon.terms.term_list import TermList

        languages = "" if source in (None, AUTO) else source, target or ""
        terms = None if self.terms is None else TermList(read_terms(self.terms, *languages))
        return {"terms": terms, "glossaries": self.glossary}


GuardOption = Annotated[
    GuardChoice | None,
    typer.Option(
        help="What is done about a translation that is empty, loops, or has the wrong language or length: nothing, "
        "a warning, a second try, or an error in its place.",
        show_default="retry with --beam-size 1, else warn",
    ),
]
OwnDeviceOption = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
"""Of a verb that needs no server."""

ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        help="Restrict the target vocabulary to pieces that fit the source, which is faster.",
        show_default="the model's",
    ),
]


PairSourceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Source texts, one a line, plain or packed.", show_default="SOURCE<tab>TARGET lines"
    ),
]
PairTargetOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Translations of --source, line by line.", show_default="standard input"),
]
BatchSizeOption = Annotated[int, typer.Option(min=1, max=1024, help="Largest number of lines in one request.")]
JsonLinesOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for each line. Default: plain text.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the results to this file, compressed if it ends in .gz. They are written to FILE.part, which is "
        "renamed to FILE at the end; after an error FILE is unchanged and FILE.part holds the lines so far.",
        show_default="standard output",
    ),
]
AlignmentOption = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Add a column that aligns words: i-j means that source word i became target word j, from 0. "
        "Default: no such column.",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFiles(OptionGroup):
    """The files of translation memories."""

    memory: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Translation memory: a text or a sentence that it has, in the same case, gets its translation from "
            "there, and no model is asked. A .tmx, .xliff, .xlf, .sdlxliff, .csv or .tsv, plain or packed.",
            show_default="none",
        ),
    ] = None
    write_memory: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Add the new translations to this .tmx, .xliff, .xlf, .csv or .tsv, which may be --memory. It is "
            "replaced at the end of the run, and is unchanged after an error.",
            show_default="none",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.write_memory is not None:
            from lingon.cli.output import check_output
            from lingon.memories.files import WRITTEN, suffix_of  # takes a while

            suffix_of(self.write_memory.name, WRITTEN)
            check_output(self.write_memory, option="--write-memory")
