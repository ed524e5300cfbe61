"""The settings that all models have."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from lingon import bundle
from lingon.bundle import TokenCount
from lingon.bundle.schema import unmet_rule


class Settings(BaseModel):
    """A frozen block of settings that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def bundle_rule(kind: Any) -> AfterValidator:
    """Apply the rule of a field of a bundle, so that no training makes a model that cannot be exported."""

    def check(value: Any) -> Any:
        if rule := unmet_rule(kind, value):
            raise PydanticCustomError("bundle", "must be {rule}", {"rule": rule})
        return value

    return AfterValidator(check)


DROPOUT_STEPS = 2**16  # on a CPU the rate of dropout is rounded to a multiple of 1 / DROPOUT_STEPS


Size = Annotated[int, Field(ge=1), bundle_rule(bundle.Size)]
"""A width, or a number of heads or of layers."""


class ModelSettings(Settings):
    """What the settings of every kind have."""

    kind: str
    max_positions: Annotated[int, Field(ge=2), bundle_rule(TokenCount)] = 256  # most tokens on each side
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    tie: Literal["all", "decoder", "none"] = "all"
    never_generated: tuple[Annotated[int, Field(ge=0)], ...] = ()  # target pieces, besides pad, bos and unk

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """The layers and the heads of the attention from target to source; 0 and 0 without attention."""
        return 1, 1

    def check_export(self) -> None:
        """Raise SettingsError if no graph can compute such a model."""

    def weightless(self) -> set[str]:
        """The keys whose change leaves the weights of a trained model right."""
        return {"dropout", "never_generated"}

    @model_validator(mode="after")
    def _dropout_in_steps(self) -> Self:
        if self.dropout and not 1 <= DROPOUT_STEPS * self.dropout <= DROPOUT_STEPS - 1:
            bounds = f"1/{DROPOUT_STEPS} to {DROPOUT_STEPS - 1}/{DROPOUT_STEPS}"
            raise ValueError(f"dropout must be 0 or from {bounds}, got {self.dropout}")
        return self


def default_layer(settings: ModelSettings) -> int:
    """Return the decoder layer whose attention gives alignments by default: the last but one, else the only one."""
    return max(settings.attention_sizes[0] - 2, 0)
