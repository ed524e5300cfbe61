"""The kinds of models; the settings of a kind have its keys and no other."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lingon.training.config.model import ModelSettings
from lingon.training.config.recurrent import LuongSettings, RnnencSettings, RnnsearchSettings
from lingon.training.config.transformer import TransformerSettings

MODEL_KINDS: dict[str, type[ModelSettings]] = {
    "transformer": TransformerSettings,
    "rnnenc": RnnencSettings,
    "rnnsearch": RnnsearchSettings,
    "luong": LuongSettings,
}
AnyModelSettings = Annotated[
    TransformerSettings | RnnencSettings | RnnsearchSettings | LuongSettings, Field(discriminator="kind")
]
