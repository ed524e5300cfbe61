"""Lingon on a Ray cluster: bulk translation by actors, and the gRPC service on Ray Serve. It imports `lingon.bulk` and
`lingon.serving`.

    lingon bulk 's3://in/*.parquet' s3://out --model models/en-de --engine ray --address auto
    serve run lingon.ray:app models=models/en-de

    dataset.map_batches(lingon.ray.Translate, fn_constructor_kwargs={...}, batch_format="pyarrow", compute=...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lingon.bulk.translating import Translate
    from lingon.ray.serve import app

__all__ = ["Translate", "app"]

_MODULES = {"Translate": "lingon.bulk.translating", "app": "lingon.ray.serve"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lingon.ray' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
