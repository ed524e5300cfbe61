"""The verbs of `lingon models`. Heavy imports happen when a verb runs.

get, available and mirror are about models of elsewhere; list, load, swap and unload about those of a running server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.backend import Credentials
from lingon.cli.options import OptionGroup, with_option_groups
from lingon.cli.output import is_terminal
from lingon.cli.stores import counted
from lingon.errors import LingonError

if TYPE_CHECKING:
    from lingon.admin.v1 import admin_pb2 as pb
    from lingon.client.client import ModelsClient
    from lingon.fetching.catalogue import Offer
    from lingon.fetching.sources import Fetched, Tools

ADMIN_VARIABLE = "LINGON_ADMIN"
POLL_INTERVAL = 0.25  # seconds between two looks at the models of a server that changes them
POLL_TIMEOUT = 2.0  # seconds for each look

RunningServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of the server's admin port. Without a port it is 50052.",
        show_default="$LINGON_ADMIN, else 127.0.0.1:50052",
    ),
]
PathArgument = Annotated[
    str,
    typer.Argument(
        help="Path of the bundle on the server's machine: models/NAME/VERSION, or models/NAME for the highest version."
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeOptions(OptionGroup):
    """How a running server is reached to change its models."""

    server: RunningServerOption = None
    timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="How long to wait for the answer; the server completes a change even if nothing waits for it.",
        ),
    ] = 600.0
    credentials: Credentials = field(default_factory=Credentials)


@with_option_groups
def list_models(
    server: RunningServerOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each model. Default: plain text.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Time limit of the call.")] = 10.0,
    *,
    credentials: Credentials,
) -> None:
    """List the models of a server: name, state, languages, precision, provider, size, requests in progress."""
    with _client(server, timeout, credentials) as client:
        models = client.models()
    for model in models:
        typer.echo(_json(model) if as_json else _line(model))


@with_option_groups
def load(path: PathArgument, *, options: ChangeOptions) -> None:
    """Load a bundle and serve it in addition to the models that are served."""
    with _changing(options) as client:
        model = client.load(path)
    typer.echo(_line(model))


@with_option_groups
def swap(path: PathArgument, *, options: ChangeOptions) -> None:
    """Load and check a bundle, then serve it in place of all other versions of its name. No request is lost."""
    with _changing(options) as client:
        model, unloaded = client.swap(path)
    typer.echo(f"{_line(model)}, in place of {', '.join(unloaded)}")


@with_option_groups
def unload(
    model: Annotated[
        str, typer.Argument(metavar="NAME/VERSION", help="Name and version as `lingon models list` prints them.")
    ],
    *,
    options: ChangeOptions,
) -> None:
    """Stop serving a version after its requests in progress are done."""
    name, slash, version = model.rpartition("/")
    if not (slash and name and version):
        raise typer.BadParameter(f"the model must be NAME/VERSION, got {model!r}")
    with _changing(options) as client:
        client.unload(name, version)
    typer.echo(f"{model} was unloaded")


FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="Where the model is: the URL or the folder of a mirror, which has it under its name; a repository "
        "OWNER/NAME[@REVISION] of the Hugging Face hub; the https URL of an archive; or a folder here.",
        show_default="the mirror of $LINGON_MIRROR, else the catalogue",
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="tiny|base-memory|base",
        help="Which of the models of a pair in the catalogue.",
        show_default="the one with the best published score",
    ),
]


def get(
    name: Annotated[
        str,
        typer.Argument(
            help="A model of the catalogue, as en-de, or OWNER/NAME of the hub; with --from, its name here."
        ),
    ],
    origin: FromOption = None,
    size: SizeOption = None,
    languages: Annotated[
        str | None,
        typer.Option(metavar="SOURCE:TARGET", help="As for `lingon import`. Default: what the catalogue or files say."),
    ] = None,
    gate_source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences of the source language for the gates, one a line. Default: dates, lists, amounts and names "
            "in this language, made from the locale data of Unicode."
        ),
    ] = None,
    gate_reference: Annotated[
        Path | None, typer.Option(help="Their translations, line by line. Default: none.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="As for `lingon import`. Default: fp32, int8 and int8-native, as far as they can run."),
    ] = None,
    least_log_prob: Annotated[
        float | None, typer.Option(max=0, help="As for `lingon import`.", show_default="-2.5")
    ] = None,
) -> None:
    """Download a model, import it with its gates, and write it as models/NAME, ready to serve."""
    from lingon.bundle.store import is_bundle, models_folder, open_bundle
    from lingon.fetching.sources import OfferedSource, fetch_bundle, one_at_a_time, source_to_get

    source = source_to_get(name, origin, size)
    folder = models_folder() / (name if origin and "/" not in name else source.name)
    with download_tools() as tools, one_at_a_time(str(folder.absolute()), tools):
        if is_bundle(folder):
            typer.echo(f"{open_bundle(folder).folder}: is there already; remove {folder} to get it again")
            return
        if isinstance(source, OfferedSource) and source.offer.form == "bundle":
            typer.echo(f"written: {fetch_bundle(source, folder, tools).folder}")
            return
        chosen = {
            "languages": languages,
            "gate_source": gate_source,
            "gate_reference": gate_reference,
            "precision": precision,
            "least_log_prob": least_log_prob,
        }
        given = {each: value for each, value in chosen.items() if value is not None}
        _importer(source.fetched(tools), folder, given)


def _importer(fetching: AbstractContextManager[Fetched], folder: Path, options: dict[str, Any]) -> None:
    """Fetch and import a model of another toolkit. What does it is above this package: an entry point names it."""
    from lingon.extras import find_entry_points, name_missing_extra

    entry = find_entry_points("lingon.importers").get("toolkit")
    if entry is None:
        raise LingonError("this installation has no importer of models (entry point lingon.importers: toolkit)")
    with name_missing_extra("lingon models get of a model that is no finished bundle", entry.extras):
        entry.load()(fetching, folder, **options)


def available(
    name: Annotated[str | None, typer.Argument(help="A language or a pair, as de or en-de. Default: all.")] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MIRROR",
            help="The URL or the folder of a mirror.",
            show_default="that of $LINGON_MIRROR, else the catalogue",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each model. Default: plain text.")
    ] = False,
) -> None:
    """List the models that `lingon models get` knows by name, the best of each pair first."""
    import json
    from dataclasses import asdict

    from lingon.fetching.catalogue import by_pair, chosen

    catalogue = chosen(origin)
    wanted = None if name is None else name.lower()
    found = [
        offer
        for offer in by_pair(catalogue.models)
        if wanted in (None, offer.pair.lower(), offer.name.lower(), *offer.pair.lower().split("-"))
    ]
    if name is not None and not found:
        raise catalogue.missing(name)
    for offer in found:
        typer.echo(json.dumps(asdict(offer), ensure_ascii=False) if as_json else _offer_line(offer))


def _offer_line(offer: Offer) -> str:
    scores = [f"{name} {value:g}" for name, value in offer.scores.items()]
    parts = [
        offer.pair,
        *filter(None, [offer.shape]),
        f"{offer.bytes / 1e6:.1f} MB",
        *scores,
        offer.licence or "no licence stated",
    ]
    return f"{offer.name}: {', '.join(parts)}"


def mirror(
    folder: Annotated[Path, typer.Argument(help="Folder of the mirror, new or an earlier one.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models of the catalogue, OWNER/NAME[@REVISION] of the Hugging Face hub, and paths of bundles such as "
            "models/en-de, which need no import.",
            show_default="all models of the catalogue",
        ),
    ] = None,
) -> None:
    """Write models into a folder that any server of static files can serve, or that is read as it is."""
    from lingon.fetching.mirror import make_mirror

    with download_tools() as tools:
        found = make_mirror(folder, names or [], tools)
    number = counted(len(found.models), "model")
    typer.echo(f"written: {folder}, {number}; use it with LINGON_MIRROR={folder}, or serve it")


@contextmanager
def download_tools() -> Iterator[Tools]:
    """Give what a download prints with: a bar for each file if standard error is a terminal, and lines."""
    from lingon.fetching.sources import Tools

    def log(line: str) -> None:
        typer.echo(line, err=True)

    if not is_terminal():
        yield Tools(log=log)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = Progress(*columns, console=Console(stderr=True), redirect_stdout=False, transient=True)
    bars: dict[str, Any] = {}

    def progress(name: str, done: int, total: int | None) -> None:
        """Show a file while it is downloaded. The work after it prints lines, between which no bar may stay."""
        if name not in bars:
            bars[name] = shown.add_task(name)
            shown.start()
        shown.update(bars[name], completed=done, total=total)
        if done == total:
            shown.remove_task(bars.pop(name))
            if not bars:
                shown.stop()

    try:
        yield Tools(log=log, progress=progress)
    finally:
        shown.stop()


models = typer.Typer(
    help="Get models of a catalogue or the Hugging Face hub; and list, load, swap and unload the models of a running "
    "server, through its admin port."
)
models.command("get")(get)
models.command("available")(available)
models.command("mirror")(mirror)
models.command("list")(list_models)
models.command("load")(load)
models.command("swap")(swap)
models.command("unload")(unload)


def _client(server: str | None, timeout: float, credentials: Credentials) -> ModelsClient:
    import os

    from lingon.client.client import DEFAULT_ADMIN, ModelsClient

    address = server or os.environ.get(ADMIN_VARIABLE) or DEFAULT_ADMIN
    return ModelsClient(address, timeout=timeout, **credentials.client_arguments())


@contextmanager
def _changing(options: ChangeOptions) -> Iterator[ModelsClient]:
    """Give a client of the server. Print on standard error, if it is a terminal, what the server does meanwhile."""
    with _client(options.server, options.timeout, options.credentials) as client:
        if not is_terminal():
            yield client
            return
        done = threading.Event()
        arguments = options.server, options.credentials, done
        watching = threading.Thread(target=_print_progress, args=arguments, daemon=True)
        watching.start()
        try:
            yield client
        finally:
            done.set()
            watching.join(POLL_TIMEOUT)  # so that no line comes after the result


def _print_progress(server: str | None, credentials: Credentials, done: threading.Event) -> None:
    """Print a line for every model that is loaded or unloaded and for every phase of its loading, until `done`."""
    seen: dict[str, tuple[str, str]] = {}
    with suppress(LingonError), _client(server, POLL_TIMEOUT, credentials) as client:
        while not done.wait(POLL_INTERVAL):
            for model in client.models():
                label, now = f"{model.name}/{model.version}", (_state(model), model.load_phase)
                if now[0] != "serving" and seen.get(label) != now and not done.is_set():
                    typer.echo(_line(model), err=True)
                seen[label] = now


def _line(model: pb.Model) -> str:
    served = [f"{model.precision} on {model.provider.removesuffix('ExecutionProvider')}"] if model.precision else []
    size = [f"{model.graph_bytes / 1e6:.1f} MB"] if model.graph_bytes else []
    phase = model.load_phase.replace("_", " ")
    state = f"{_state(model)} ({phase}, {model.load_seconds:.1f} s)" if phase else _state(model)
    parts = [state, _languages(model), *served, *size, f"{model.requests} requests"]
    return f"{model.name}/{model.version}: {', '.join(parts)}"


def _languages(model: pb.Model) -> str:
    """Return the languages of a model. A list of several is in brackets, since commas separate the parts of a line."""
    from lingon.bundle.manifest import shown_languages

    sides = (
        (model.source_language_code, model.source_language_codes),
        (model.target_language_code, model.target_language_codes),
    )
    source, target = (f"[{shown_languages(list(many))}]" if len(many) > 1 else one for one, many in sides)
    return f"{source} to {target}"


def _json(model: pb.Model) -> str:
    import json

    values = {field.name: getattr(model, field.name) for field in model.DESCRIPTOR.fields}
    values |= {name: list(values[name]) for name in ("source_language_codes", "target_language_codes")}
    return json.dumps({**values, "state": _state(model)}, ensure_ascii=False)


def _state(model: pb.Model) -> str:
    from lingon.admin.v1 import admin_pb2 as pb

    names = pb.ModelState.DESCRIPTOR.values_by_number
    number = int(model.state)
    return names[number].name.removeprefix("MODEL_STATE_").lower() if number in names else f"state {number}"
