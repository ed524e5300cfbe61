"""Lingon: machine translation from a parallel corpus to a service.

This module exports the client of a server, and a model in this process, which has the same calls. `AsyncClient` and
`AsyncModel` are for asyncio.

    from lingon import Client, Model

    with Client("127.0.0.1:50051") as client:
        print(client.translate("Tom lives in Boston.", target="de").text)

    with Model("models/en-de") as model:
        print(model.translate("Tom lives in Boston.").text)

`pipeline` has the calls and the answers of the translation pipeline that Transformers had.

The names below are imported when they are first used, so that `import lingon` and the command start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lingon.client.client import AsyncClient, Client
    from lingon.client.connection import Tls
    from lingon.client.live import AsyncLiveCall, LiveCall
    from lingon.client.model import AsyncModel, Model
    from lingon.client.options import (
        AttentionSelection,
        LiveOptions,
        MemoryOptions,
        Sampling,
        ScoreOptions,
        SecondOptions,
        SecondServer,
        TranslateOptions,
    )
    from lingon.client.pipeline import TranslationPipeline, pipeline
    from lingon.client.results import (
        AttentionMatrix,
        DetectedLanguage,
        DocumentResult,
        Link,
        LiveDone,
        LiveReady,
        LiveUpdate,
        LiveWord,
        MemoryMatch,
        ModelInfo,
        NormalisedText,
        Piece,
        ScoreResult,
        SecondOutcome,
        Sentence,
        StreamEvent,
        StreamStart,
        TermOutcome,
        TextDelta,
        TextDone,
        TextResult,
        TextWarning,
        Token,
        Translation,
    )
    from lingon.client.steps import Retry
    from lingon.client.stores import StoredDictionary, StoredGlossary, StoredMemory
    from lingon.errors import LingonError, ServerError
    from lingon.terms.term import Term
    from lingon.terms.term_list import TermList

__all__ = [
    "AsyncClient",
    "AsyncLiveCall",
    "AsyncModel",
    "AttentionMatrix",
    "AttentionSelection",
    "Client",
    "DetectedLanguage",
    "DocumentResult",
    "LingonError",
    "Link",
    "LiveCall",
    "LiveDone",
    "LiveOptions",
    "LiveReady",
    "LiveUpdate",
    "LiveWord",
    "MemoryMatch",
    "MemoryOptions",
    "Model",
    "ModelInfo",
    "NormalisedText",
    "Piece",
    "Retry",
    "Sampling",
    "ScoreOptions",
    "ScoreResult",
    "SecondOptions",
    "SecondOutcome",
    "SecondServer",
    "Sentence",
    "ServerError",
    "StoredDictionary",
    "StoredGlossary",
    "StoredMemory",
    "StreamEvent",
    "StreamStart",
    "Term",
    "TermList",
    "TermOutcome",
    "TextDelta",
    "TextDone",
    "TextResult",
    "TextWarning",
    "Tls",
    "Token",
    "TranslateOptions",
    "Translation",
    "TranslationPipeline",
    "pipeline",
]

_NAMES_OF = {
    "lingon.client.client": ("AsyncClient", "Client"),
    "lingon.client.connection": ("Tls",),
    "lingon.client.live": ("AsyncLiveCall", "LiveCall"),
    "lingon.client.model": ("AsyncModel", "Model"),
    "lingon.client.options": (
        "AttentionSelection",
        "LiveOptions",
        "MemoryOptions",
        "Sampling",
        "ScoreOptions",
        "SecondOptions",
        "SecondServer",
        "TranslateOptions",
    ),
    "lingon.client.pipeline": ("TranslationPipeline", "pipeline"),
    "lingon.client.steps": ("Retry",),
    "lingon.client.stores": ("StoredDictionary", "StoredGlossary", "StoredMemory"),
    "lingon.errors": ("LingonError", "ServerError"),
    "lingon.terms.term": ("Term",),
    "lingon.terms.term_list": ("TermList",),
}
"""The names by their modules. All others are of lingon.client.results."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lingon' has no attribute {name!r}")
    import importlib

    module = next((module for module, names in _NAMES_OF.items() if name in names), "lingon.client.results")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
