"""Lingon: machine translation from a parallel corpus to a service.

This module exports the client of a server, and a model in this process, which has the same calls. `AsyncClient` and
`AsyncModel` are for asyncio.

    from lingon import Client, Model

    with Client("127.0.0.1:50051") as client:
        print(client.translate("Tom lives in Boston.", target="de").text)

    with Model("models/en-de") as model:
        print(model.translate("Tom lives in Boston.").text)

The names below are imported when they are first used, so that `import lingon` and the command start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lingon.client.client import AsyncClient, Client
    from lingon.client.model import AsyncModel, Model
    from lingon.client.retry import Retry
    from lingon.client.tls import Tls
    from lingon.client.values.attention import AttentionSelection
    from lingon.client.values.normalised_text import NormalisedText
    from lingon.client.values.options import Sampling, ScoreOptions, TranslateOptions
    from lingon.client.values.results import (
        AttentionMatrix,
        DetectedLanguage,
        DocumentResult,
        Link,
        ModelInfo,
        Piece,
        ScoreResult,
        Sentence,
        StreamEvent,
        StreamStart,
        TextDelta,
        TextDone,
        TextResult,
        TextWarning,
        Token,
        Translation,
    )
    from lingon.errors import LingonError, ServerError

__all__ = [
    "AsyncClient",
    "AsyncModel",
    "AttentionMatrix",
    "AttentionSelection",
    "Client",
    "DetectedLanguage",
    "DocumentResult",
    "LingonError",
    "Link",
    "Model",
    "ModelInfo",
    "NormalisedText",
    "Piece",
    "Retry",
    "Sampling",
    "ScoreOptions",
    "ScoreResult",
    "Sentence",
    "ServerError",
    "StreamEvent",
    "StreamStart",
    "TextDelta",
    "TextDone",
    "TextResult",
    "TextWarning",
    "Tls",
    "Token",
    "TranslateOptions",
    "Translation",
]

_MODULE_OF = {
    "AsyncClient": "lingon.client.client",
    "Client": "lingon.client.client",
    "AsyncModel": "lingon.client.model",
    "Model": "lingon.client.model",
    "AttentionSelection": "lingon.client.values.attention",
    "Tls": "lingon.client.tls",
    "LingonError": "lingon.errors",
    "ServerError": "lingon.errors",
    "Retry": "lingon.client.retry",
    "NormalisedText": "lingon.client.values.normalised_text",
    "Sampling": "lingon.client.values.options",
    "ScoreOptions": "lingon.client.values.options",
    "TranslateOptions": "lingon.client.values.options",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lingon' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULE_OF.get(name, "lingon.client.values.results")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
