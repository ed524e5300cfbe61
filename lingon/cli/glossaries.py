"""The verbs of `lingon glossaries`: what a server keeps for the caller. Heavy imports happen when a verb runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.options import with_option_groups
from lingon.cli.stores import (
    CreateOption,
    ExpectedVersionOption,
    JsonOption,
    LabelOption,
    NameArgument,
    SomeSourceOption,
    SomeTargetOption,
    SourceLanguageOption,
    StoreOptions,
    TargetLanguageOption,
    counted,
    json_of,
    open_client,
    shown_time,
)

if TYPE_CHECKING:
    from lingon.client.stores import StoredGlossary


@with_option_groups
def add(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="Terms: a .tsv, .csv, .tbx or .tmx file.")],
    source: SourceLanguageOption,
    target: TargetLanguageOption,
    label: LabelOption = "",
    merge: Annotated[
        bool,
        typer.Option(
            "--merge",
            help="Add the terms to those that are there, in place of those with the same source. Default: replace all "
            "terms of the two languages.",
        ),
    ] = False,
    create: CreateOption = False,
    expected_version: ExpectedVersionOption = None,
    *,
    options: StoreOptions,
) -> None:
    """Store the terms of a file, all or none, for two languages of a glossary."""
    from lingon.terms.files import read_terms

    terms = list(read_terms(file, source, target))
    with open_client(options) as client:
        stored = client.put_glossary(
            name,
            terms,
            source=source,
            target=target,
            label=label,
            merge=merge,
            create=create,
            expected_version=expected_version or 0,
            timeout=options.timeout,
        )
    typer.echo(_line(stored))


@with_option_groups
def list_glossaries(as_json: JsonOption = False, *, options: StoreOptions) -> None:
    """List the glossaries: name, languages with numbers of terms, time of the last change, version, label."""
    with open_client(options) as client:
        found = client.glossaries()
    for each in found:
        typer.echo(json_of(each) if as_json else _line(each))


@with_option_groups
def show(
    name: NameArgument,
    source: SomeSourceOption = None,
    target: SomeTargetOption = None,
    as_json: JsonOption = False,
    *,
    options: StoreOptions,
) -> None:
    """Print the terms of a glossary: SOURCE<tab>TARGET lines, or with --json all of each."""
    from lingon.text import printable

    with open_client(options) as client:
        pair = _pair(client.glossary(name), source, target)
        terms = client.read_glossary(name, source=pair[0], target=pair[1])
    for term in terms:
        typer.echo(json_of(term) if as_json else f"{printable(term.source)}\t{printable(term.target)}")


@with_option_groups
def remove(
    name: NameArgument,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            "--source-language",
            metavar="TAG",
            help="With --target: remove only the terms of a pair.",
            show_default="all",
        ),
    ] = "",
    target: Annotated[
        str, typer.Option("--target", "--target-language", metavar="TAG", help="With --source.", show_default="all")
    ] = "",
    *,
    options: StoreOptions,
) -> None:
    """Remove a glossary, or its terms for two languages."""
    with open_client(options) as client:
        client.remove_glossary(name, source=source, target=target)
    typer.echo(f"{name}: removed{f' from {source} to {target}' if source else ''}")


glossaries = typer.Typer(help="List, store, print and remove the glossaries that a server keeps for you.")
glossaries.command("add")(add)
glossaries.command("list")(list_glossaries)
glossaries.command("show")(show)
glossaries.command("remove")(remove)


def _pair(glossary: StoredGlossary, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the pair of languages to print. Raises typer.BadParameter if there are several for what was given."""
    from lingon.language_tags import is_same_tag

    found = [
        (each.source, each.target)
        for each in glossary.dictionaries
        if is_same_tag(source or each.source, each.source) and is_same_tag(target or each.target, each.target)
    ]
    if len(found) != 1:
        there = ", ".join(f"{each.source} to {each.target}" for each in glossary.dictionaries) or "no languages"
        raise typer.BadParameter(f"{glossary.name} has {there}; choose one pair with --source and --target")
    return found[0]


def _line(glossary: StoredGlossary) -> str:
    pairs = [f"{each.source} to {each.target} {counted(each.terms, 'term')}" for each in glossary.dictionaries]
    parts = [*(pairs or ["empty"]), shown_time(glossary.changed), f"version {glossary.version}"]
    return f"{glossary.name}: {', '.join([*parts, *filter(None, [glossary.label])])}"
