"""The reference pages, from the declarations in the code: settings, options, errors, metrics, models, commands."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer.main
from babel import Locale
from google.rpc import code_pb2
from prometheus_client import CollectorRegistry
from pydantic.fields import FieldInfo

from lingon import LiveOptions, ScoreOptions, TranslateOptions
from lingon.bulk.runs import RunMetrics
from lingon.bundle import names
from lingon.bundle.manifest import (
    Alignment,
    Confidence,
    Defaults,
    LengthRange,
    Limits,
    Manifest,
    Origin,
    Precision,
    ReliabilityBin,
    State,
    TextData,
)
from lingon.cli.main import build
from lingon.errors import InvalidRequest, LingonError, NotStored, QuotaExceeded, RequestError, UnknownModel
from lingon.fetching.catalogue import Offer, by_pair, packaged
from lingon.gateway.metrics import GatewayMetrics
from lingon.segments.kept_forms import Kind
from lingon.segments.protection import TABLE
from lingon.serving.observability.metrics import families
from lingon.serving.settings import SettingInfo, describe_settings
from lingon.status import retry_milliseconds
from lingon.terms.annotation import AnnotationForm
from lingon.training.model_settings import MODEL_KINDS


def settings() -> str:
    """Return the table of all settings: name, flag, default, meaning. A variable is LINGON_ and the name."""
    rows = [
        (code(setting.name), code(_flags(setting)), _setting_default(setting), plain(setting.description))
        for setting in describe_settings()
    ]
    return table(("setting", "flag", "default", "meaning"), rows)


def _flags(setting: SettingInfo) -> str:
    if setting.name == "models":
        return "MODELS..."
    return f"{setting.flag} --no-{setting.flag.removeprefix('--')}" if setting.kind is bool else setting.flag


def _setting_default(setting: SettingInfo) -> str:
    return ", ".join(map(code, setting.default.split(","))) if setting.default else "not set"


def translate_options() -> str:
    """Return the table of the options of `translate`."""
    return _table(TranslateOptions)


def score_options() -> str:
    """Return the table of the options of `score`. Options of `translate` mean the same."""
    return _table(ScoreOptions, _meanings(TranslateOptions))


def live_options() -> str:
    """Return the table of the options of `live`."""
    return _table(LiveOptions)


def _table(kind: type, known: Mapping[str, str] = MappingProxyType({})) -> str:
    meanings = {**known, **{name: text for name, text in _meanings(kind).items() if text}}
    types = {name: annotation.removesuffix(" | None") for name, annotation, _ in _fields(kind)}
    rows = [(code(name), code(annotation), plain(meanings.get(name, ""))) for name, annotation in types.items()]
    return table(("option", "type", "meaning"), rows)


def _fields(kind: type) -> list[tuple[str, str, str]]:
    """Name, type and comment of each."""
    _, _, declarations = inspect.getsource(kind).split('"""')
    return re.findall(r"(?m)^    (\w+): (.*?)(?:  # (.*))?$", declarations)


def _meanings(kind: type) -> dict[str, str]:
    """Return the comment of each, and its meaning in the docstring."""
    more = dict(re.findall(r"(?ms)^(\w+): (.*?)(?=^\w+: |\Z)", inspect.getdoc(kind) or ""))
    more = {name: f". {text[0].upper()}{text[1:]}" for name, text in more.items()}
    return {name: comment + more.get(name, "") for name, _, comment in _fields(kind)}


def errors() -> str:
    """Return the table of statuses: code, reason, meaning, when to retry."""
    rows = []
    for kind in _kinds(RequestError):
        meaning = plain((kind.__doc__ or "").split("\n\n")[0])
        rows.append((code(code_pb2.Code.Name(kind.code)), code(kind.reason), meaning, _retry(kind)))
    return table(("code", "reason", "meaning", "retry"), rows)


def exit_codes() -> str:
    """Return the table of the errors of the command with their exit codes."""
    kinds = [kind for kind in LingonError.__subclasses__() if kind.__module__ == LingonError.__module__]
    kinds.remove(RequestError)  # ends a call of a server, see errors()
    rows = [(code(kind.__name__), str(kind.exit_code), plain((kind.__doc__ or "").split("\n\n")[0])) for kind in kinds]
    return table(("error", "exit code", "meaning"), rows)


def _kinds(kind: type[RequestError]) -> Iterator[type[RequestError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _kinds(child)


def _retry(kind: type[RequestError]) -> str:
    if issubclass(kind, QuotaExceeded):
        return "after the time in RetryInfo"
    arguments = 3 if issubclass(kind, NotStored) else 2 if issubclass(kind, InvalidRequest | UnknownModel) else 1
    error = kind(*[""] * arguments)
    wait = retry_milliseconds(error)
    return f"after {wait} ms" if wait else "no"


SUFFIXES = {"histogram": ("_bucket", "_sum", "_count", "")}


def metrics() -> str:
    """Return the table of all metrics: name, type, labels, meaning."""
    rows = [
        (code(family.exported_name), family.type_name, ", ".join(map(code, labels)), plain(family.help))
        for family, labels in families()
    ]
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


def metric_names() -> set[str]:
    """Return the names of all series, also of the HTTP APIs and of bulk runs, with the suffixes of histograms."""
    declared = [(family.exported_name, family.type_name) for family, _ in families()]
    registry = CollectorRegistry()
    GatewayMetrics(registry)
    RunMetrics(registry)
    for family in registry.collect():
        declared.append((f"{family.name}_total" if family.type == "counter" else family.name, family.type))
    return {f"{name}{suffix}" for name, kind in declared for suffix in SUFFIXES.get(kind, ("",))}


CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXPLAINED = {
    "transformer": "en-de.toml",
    "rnnenc": "attention/rnnenc.toml",
    "rnnsearch": "attention/rnnsearch.toml",
    "luong": "attention/luong-global.toml",
}
"""The config of each kind that has a comment for every key."""


def model_settings() -> str:
    """Return a section for every kind: its meaning, and a table of its keys with default and meaning."""
    return "\n\n".join(_kind_section(kind) for kind in MODEL_KINDS)


def meanings(config: str) -> dict[str, str]:
    """Return the comments of the keys in the block [model] of a config. A key may be commented out."""
    text = (CONFIGS / config).read_text(encoding="utf-8")
    block = re.search(r"^\[model\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    assert block, f"{config} has no block [model]"
    return dict(re.findall(r"^(?:# )?(\w+) = [^#\n]*# (.+)$", block[1], re.MULTILINE))


def _kind_section(kind: str) -> str:
    settings, meaning = MODEL_KINDS[kind], meanings(EXPLAINED[kind])
    keys = {name: field for name, field in settings.model_fields.items() if name != "kind"}
    assert meaning.keys() - {"kind"} == keys.keys(), f"{EXPLAINED[kind]} must explain every key of kind {kind}"
    rows = [(code(name), _key_default(keys[name]), plain(text)) for name, text in meaning.items() if name in keys]
    head = f'## kind = "{kind}"\n\n{plain((settings.__doc__ or "").strip())}'
    return f"{head}\n\n{table(('key', 'default', 'meaning'), rows)}"


def _key_default(field: FieldInfo) -> str:
    return "that of the preset" if field.is_required() else code(json.dumps(field.default))


_HEADINGS: tuple[tuple[str, frozenset[Kind]], ...] = (
    ("Addresses and paths", frozenset({Kind.URL, Kind.EMAIL, Kind.PATH})),
    ("Placeholders", frozenset({Kind.PLACEHOLDER})),
    ("Numbers", frozenset({Kind.NUMBER})),
    ("Marks around words, and messages", frozenset({Kind.OPENING, Kind.SKELETON})),
    ("Tags, escapes, code and signs", frozenset(Kind) - {Kind.KEEP, Kind.FIGURE, Kind.CLOSING}),
)


def forms() -> str:
    """Return the table of forms under its headings: name, examples, what may change, what may be beside it."""
    parts, done = list[str](), set[Kind]()
    for heading, kinds in _HEADINGS:
        own = [form for form in TABLE if form.kind in kinds - done]
        done |= kinds
        rows = [(plain(form.name), _examples(form.examples), form.changes, form.around) for form in own]
        parts.append(f"## {heading}\n\n{table(('form', 'examples', 'what may change', 'right beside it'), rows)}")
    return "\n\n".join(parts)


def _examples(examples: Iterable[str]) -> str:
    """Return the examples as code. The lines of one are joined."""
    return ", ".join(_example_code(" ".join(example.split("\n"))) for example in examples)


def _example_code(example: str) -> str:
    """Return an example as inline code of a table, between more backticks than it has in a row."""
    fence = "`" * (max(map(len, re.findall("`+", example)), default=0) + 1)
    blank = " " if "`" in example else ""
    return f"{fence}{blank}{example}{blank}{fence}".replace("|", "\\|")


def commands() -> dict[str, Any]:
    """Return every command by its words, as `lingon serve` or `lingon bench decode`."""
    group: Any = typer.main.get_command(build(entry_points(group="lingon.verbs")))
    return dict(_commands("lingon", group))


def command_line() -> str:
    """Return a section for each command."""
    return "\n\n".join(_command_section(name, command) for name, command in commands().items())


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield f"{path} {name}", child
        yield from _commands(f"{path} {name}", child)


def _command_section(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * len(name.split())} {name}", plain(command.help or ""), fence(usage)]
    rows = [(code(names), plain(text)) for names, text in _parameters(command, context)]
    return "\n\n".join([*parts, table(("argument or option", "meaning"), rows)] if rows else parts)


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield names and help text of the arguments and options, as `--help` prints them."""
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None:
            yield record


DECLARED = (
    Manifest,
    Limits,
    Defaults,
    State,
    Precision,
    Alignment,
    Origin,
    AnnotationForm,
    TextData,
    LengthRange,
    Confidence,
    ReliabilityBin,
)


def layout() -> str:
    """Return the table of a bundle's files from a docstring: a name, two spaces or more, its meaning."""
    listed = re.findall(r"(?m)^    +(\S.*?)(?:  +(\S.*))?$", names.__doc__ or "")
    assert listed, "the docstring of lingon/bundle/names.py lists the files"
    return table(("file", "content"), [(code(name), plain(meaning)) for name, meaning in listed])


def declarations() -> str:
    """Return a section for the manifest and for each of its parts: fields, types, bounds, meanings."""
    return "\n\n".join(_declared_section(kind) for kind in DECLARED)


def tensors() -> str:
    """Return the table of the graphs' inputs and outputs, with the comments beside their names."""
    rows = []
    for line in inspect.getsource(names).splitlines():
        found = re.match(r'([A-Z_, ]+) = ("[a-z_", ]+)  # (\(.*)', line)
        if found:
            tensors_named = re.findall(r'"(\w+)"', found[2])
            rows.append((", ".join(map(code, tensors_named)), plain(found[3])))
    return table(("tensor", "shape and meaning"), rows)


def _declared_section(kind: type) -> str:
    types = get_type_hints(kind, include_extras=True)
    meanings, prose = _documented(kind)
    rows = []
    for field in dataclasses.fields(kind):
        default = "" if field.default is dataclasses.MISSING else code(str(field.default))
        rows.append((code(field.name), _type(types[field.name]), default, plain(meanings.get(field.name, ""))))
    return f"### {kind.__name__}\n\n{plain(prose)}\n\n{table(('field', 'type and bounds', 'default', 'meaning'), rows)}"


def _documented(kind: type) -> tuple[dict[str, str], str]:
    """Return the meanings of the fields of a class, from lines `name: meaning` or comments, and its first paragraph."""
    prose, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
    meanings = {}
    for found in re.finditer(r"(?ms)^(\w+(?:, \w+)*):[ \n](.*?)(?=^\w+(?:, \w+)*:[ \n]|\Z)", rest):
        meaning = re.sub(r"\n?    (\w+)  +", r"; `\1`: ", found[2]).removeprefix("; ")
        meanings |= dict.fromkeys(found[1].split(", "), meaning)
    for found in re.finditer(r"(?m)^    (\w+): .*  # (.*)$", inspect.getsource(kind)):
        meanings.setdefault(found[1], found[2])
    return meanings, prose


def _type(kind: Any) -> str:
    """Return a declared type in words, with its bounds."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = "; ".join(_bound(each) for each in arguments[1:])
        return f"{_type(arguments[0])}, {bounds}"
    if origin is Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin is tuple:
        return f"list of ({_type(arguments[0])})"
    if origin is dict:
        return f"map from ({_type(arguments[0])}) to ({_type(arguments[1])})"
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in arguments)
    return code({"Any": "any JSON", "NoneType": "null"}.get(kind.__name__, kind.__name__))


def _bound(bound: Any) -> str:
    """Return the limits of a value, as its declaration has them."""
    values = [getattr(bound, field.name) for field in dataclasses.fields(bound)]
    match type(bound).__name__:
        case "Range":
            return f"{values[0]:,} to {values[1]:,}"
        case "MaxLength":
            return f"at most {values[0]:,} entries"
        case _:
            return plain(str(values[-1]))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Return text of the code as Markdown: one line in which no character has a meaning, apart from `code`."""
    parts = re.split(r"(`+[^`]+`+)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts).replace("|", "\\|")


def code(text: str) -> str:
    """Return text as inline code, for a table too."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def fence(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def _escaped(text: str) -> str:
    return re.sub(r"([\\*<>\[\]])", r"\\\1", text)


OFFER_COLUMNS = ("from", "to", "model", "shape", "download", "BLEU", "COMET")


def catalogue() -> str:
    """Return a table with a row for each model, by the names of its languages, the best one of a pair first."""
    offers = sorted(by_pair(packaged().models), key=lambda each: (_offer_language(each, 0), _offer_language(each, 1)))
    return table(OFFER_COLUMNS, map(_offer_row, offers))


def _offer_row(offer: Offer) -> tuple[str, ...]:
    scores = [offer.scores.get(name) for name in ("flores-bleu", "flores-comet")]
    shown = ["not published" if score is None else f"{score:g}" for score in scores]
    size = f"{offer.bytes / 1e6:.0f} MB"
    return _offer_language(offer, 0), _offer_language(offer, 1), code(offer.name), plain(offer.shape), size, *shown


def _offer_language(offer: Offer, side: int) -> str:
    """Return the English name of the source (0) or the target language (1), and its tag."""
    tag = (offer.source_language, offer.target_language)[side]
    return f"{Locale.parse(tag, sep='-').get_display_name('en')} ({tag})"
