"""Bulk translation: files here or in an object store, cut into shards that are each done once. It imports `lingon.cli`
and below, PyArrow and fsspec.

    from lingon.bulk import Translate, finish, missing, plan, run_shard

    with Translate(model="models/en-de", column="text", into="text_de") as translate:
        work = plan("in/*.parquet", "out", translate)
        for shard in missing(work):
            run_shard(work, shard, translate)
        finish(work)

The names are imported when they are first used, so that the command starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lingon.bulk.planning import Plan, plan
    from lingon.bulk.shards import Record, finish, missing, run_shard
    from lingon.bulk.translating import Translate

__all__ = ["Plan", "Record", "Translate", "finish", "missing", "plan", "run_shard"]

_MODULES = {
    "Plan": "planning",
    "Record": "shards",
    "Translate": "translating",
    "finish": "shards",
    "missing": "shards",
    "plan": "planning",
    "run_shard": "shards",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lingon.bulk' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"lingon.bulk.{_MODULES[name]}"), name)
