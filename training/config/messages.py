"""The one line that explains a wrong setting."""

from __future__ import annotations

import difflib

from pydantic_core import ErrorDetails

from lingon.training.config.blocks import Corpus, DataSettings, OriginSettings, TokenizerSettings, TrainingSettings
from lingon.training.config.kinds import MODEL_KINDS
from lingon.training.config.languages import LanguageSettings, SourceSettings, TargetSettings
from lingon.training.config.model import ModelSettings, Settings

BLOCKS: dict[str, type[Settings]] = {
    "data": DataSettings,
    "tokenizer": TokenizerSettings,
    "model": ModelSettings,
    "training": TrainingSettings,
    "languages": LanguageSettings,
    "origin": OriginSettings,
}


def explain(error: ErrorDetails) -> str:
    """Return one line with the key, its rule and the value."""
    path, kind = _split_kind(error["loc"])
    key = ".".join(map(str, path))
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.replace("String should have", "must have")
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key}{_suggestion(path, kind)}"
        case "missing":
            return f"{key} is missing"
        case "too_short":
            return f"{key} needs at least one entry, got {error['input']!r}"
        case "value_error":
            return f"{key}: {message}" if key else message
        case "model_type" | "model_attributes_type" | "union_tag_not_found":
            return f"{key or 'the whole'} must be a block of settings, got {error['input']!r}"
        case "union_tag_invalid":
            *others, last = map(repr, MODEL_KINDS)
            return f"{key}.kind must be {', '.join(others)} or {last}, got {error['input'].get('kind')!r}"
    return f"{key} {message[0].lower()}{message[1:]}, got {error['input']!r}"


def _split_kind(location: tuple[int | str, ...]) -> tuple[tuple[int | str, ...], str]:
    """Return the path of a key as a config has it, and the kind of its model; pydantic puts the kind into the path."""
    if len(location) > 1 and location[0] == "model":
        return ("model", *location[2:]), str(location[1])
    return location, ""


def _suggestion(path: tuple[int | str, ...], kind: str) -> str:
    """Return a hint with the known key that is most similar to the last part of path, or with all known keys.

    kind: of the model, if path is a key of the model
    """
    if kind:
        known, known_to = _own_keys_first(kind), f" to kind '{kind}'"
    else:
        known, known_to = _known_keys(path), ""
    of_another_kind = kind and any(path[-1] in settings.model_fields for settings in MODEL_KINDS.values())
    close = [] if of_another_kind else difflib.get_close_matches(str(path[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known{known_to} are {', '.join(known)}"


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    if len(path) == 1:
        return list(BLOCKS)
    if len(path) == 2:
        return list(BLOCKS[str(path[0])].model_fields)
    entries: dict[str, type[Settings]] = {"sources": SourceSettings, "targets": TargetSettings}
    return list(entries.get(str(path[1]), Corpus).model_fields)  # the entries of [data] are corpora


def _own_keys_first(kind: str) -> list[str]:
    """Return the keys of a kind of model: kind, those that it declares, those that every kind has."""
    settings = MODEL_KINDS[kind]
    shared = [name for name in ModelSettings.model_fields if name != "kind"]
    return [name for name in settings.model_fields if name not in shared] + shared
