"""The verbs of `lingon memories`: what a server keeps for the caller. Heavy imports happen when a verb runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.options import with_option_groups
from lingon.cli.output import is_terminal, progress_bar
from lingon.cli.stores import (
    CreateOption,
    ExpectedVersionOption,
    JsonOption,
    LabelOption,
    NameArgument,
    SourceLanguageOption,
    StoreOptions,
    TargetLanguageOption,
    counted,
    json_of,
    open_client,
    shown_time,
)

if TYPE_CHECKING:
    from lingon.client.stores import StoredMemory
    from lingon.memories.segment import Segment


@with_option_groups
def add(
    name: NameArgument,
    file: Annotated[
        Path, typer.Argument(help="Segments: a .tmx, .xliff, .xlf, .sdlxliff, .csv or .tsv file, plain or packed.")
    ],
    source: SourceLanguageOption,
    target: TargetLanguageOption,
    label: LabelOption = "",
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace all segments. Default: add them, in place of those with the same source and neighbours.",
        ),
    ] = False,
    create: CreateOption = False,
    expected_version: ExpectedVersionOption = None,
    *,
    options: StoreOptions,
) -> None:
    """Store the segments of a file, all or none, in a translation memory."""
    from lingon.memories.files import read_segments

    with open_client(options) as client, progress_bar(None, is_terminal(), "segments") as advance:
        stored = client.put_memory(
            name,
            _counted(read_segments(file, source, target), advance),
            source=source,
            target=target,
            label=label,
            replace=replace,
            create=create,
            expected_version=expected_version or 0,
            timeout=options.timeout,
        )
    typer.echo(_line(stored))


@with_option_groups
def list_memories(as_json: JsonOption = False, *, options: StoreOptions) -> None:
    """List the memories: name, languages, number of segments, time of the last change, version, label."""
    with open_client(options) as client:
        found = client.memories()
    for each in found:
        typer.echo(json_of(each) if as_json else _line(each))


@with_option_groups
def show(
    name: NameArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write a .tmx, .xliff, .csv or .tsv file.",
            show_default="SOURCE<tab>TARGET lines on standard output",
        ),
    ] = None,
    as_json: JsonOption = False,
    *,
    options: StoreOptions,
) -> None:
    """Print the segments of a memory, or write them to a file; with --json all of each."""
    from lingon.memories.files import write_segments
    from lingon.text import printable

    with open_client(options) as client:
        stored = client.memory(name)
        if output is not None:
            with progress_bar(None, is_terminal(), "segments") as advance:
                segments = _counted(client.read_memory(name), advance)
                count = write_segments(output, segments, stored.source, stored.target)
            typer.echo(f"written: {output}, {counted(count, 'segment')}")
            return
        for each in client.read_memory(name):
            typer.echo(json_of(each) if as_json else f"{printable(each.source)}\t{printable(each.target)}")


@with_option_groups
def look_up(
    name: NameArgument,
    texts: Annotated[list[str], typer.Argument(help="Texts, each looked up as one segment.", metavar="TEXT...")],
    min_score: Annotated[
        int | None,
        typer.Option(min=50, max=100, help="Lowest score of a match; 100 is an exact one.", show_default="70"),
    ] = None,
    max_matches: Annotated[
        int | None, typer.Option(min=1, max=20, help="Largest number of matches for a text.", show_default="1")
    ] = None,
    as_json: JsonOption = False,
    *,
    options: StoreOptions,
) -> None:
    """Print what a memory has for texts: SCORE<tab>SOURCE<tab>TARGET lines, the best match first."""
    import json
    from dataclasses import asdict

    from lingon.text import printable

    with open_client(options) as client:
        results = client.look_up(name, texts, min_score=min_score, max_matches=max_matches)
    for text, matches in zip(texts, results, strict=True):
        if as_json:
            found = {"text": text, "matches": [asdict(each) for each in matches]}
            typer.echo(json.dumps(found, ensure_ascii=False))
        else:
            for each in matches:
                typer.echo(f"{each.score}\t{printable(each.source)}\t{printable(each.target)}")


@with_option_groups
def remove(name: NameArgument, *, options: StoreOptions) -> None:
    """Remove a memory."""
    with open_client(options) as client:
        client.remove_memory(name)
    typer.echo(f"{name}: removed")


memories = typer.Typer(
    help="List, store, print, look up and remove the translation memories that a server keeps for you."
)
memories.command("add")(add)
memories.command("list")(list_memories)
memories.command("show")(show)
memories.command("look-up")(look_up)
memories.command("remove")(remove)


def _counted(segments: Iterable[Segment], advance: Callable[[int, int], None]) -> Iterator[Segment]:
    """Yield segments, and count each for a bar."""
    for segment in segments:
        advance(1, 0)
        yield segment


def _line(memory: StoredMemory) -> str:
    parts = [
        f"{memory.source} to {memory.target} {counted(memory.segments, 'segment')}",
        shown_time(memory.changed),
        f"version {memory.version}",
    ]
    return f"{memory.name}: {', '.join([*parts, *filter(None, [memory.label])])}"
