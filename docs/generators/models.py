"""The settings of the kinds of models: keys and defaults from the code, meanings from the comments of the configs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic.fields import FieldInfo

from docs.generators.markdown import code, plain, table
from lingon.training.config import MODEL_KINDS

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXPLAINED = {
    "transformer": "en-de.toml",
    "rnnenc": "attention/rnnenc.toml",
    "rnnsearch": "attention/rnnsearch.toml",
    "luong": "attention/luong-global.toml",
}
"""The config of each kind that has a comment for every key."""


def model_settings() -> str:
    """A section for every kind: what it is, and a table of its keys with default and meaning."""
    return "\n\n".join(_kind_section(kind) for kind in MODEL_KINDS)


def meanings(config: str) -> dict[str, str]:
    """The comments of the keys in the block [model] of a config; a key may be commented out."""
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
