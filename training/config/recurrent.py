"""The settings of the recurrent systems."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lingon.training.config.model import ModelSettings, Size


class RecurrentSettings(ModelSettings):
    """What the settings of all recurrent kinds have."""

    cell: Literal["gru", "lstm"] = "gru"
    embedding_dim: Size = 256
    dim: Size = 256  # of a state of the decoder

    def weightless(self) -> set[str]:
        """See ModelSettings; recurrent models have no table of positions."""
        return {"max_positions", *super().weightless()}

    @property
    def output_dim(self) -> int:
        """The width of what the output matrix reads."""
        return self.dim

    @model_validator(mode="after")
    def _tied_widths(self) -> Self:
        if self.tie != "none" and self.output_dim != self.embedding_dim:
            raise ValueError(
                f"tie = '{self.tie}' needs embedding_dim = dim ({self.dim}), because the output matrix of this kind "
                f"reads states, got {self.embedding_dim}"
            )
        return self


class RnnencSettings(RecurrentSettings):
    """RNNenc: an encoder and a decoder without attention (Sutskever et al., 2014; Cho et al., 2014)."""

    kind: Literal["rnnenc"] = "rnnenc"
    layers: Size = 1  # of the encoder, and of the decoder
    reverse_source: bool = False

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """See ModelSettings."""
        return 0, 0


ScoreName = Literal["dot", "scaled-dot", "content", "additive", "general", "concat", "mlp"]


class RnnsearchSettings(RecurrentSettings):
    """RNNsearch: a bidirectional encoder, and a decoder that attends before each state (Bahdanau et al., 2015)."""

    kind: Literal["rnnsearch"] = "rnnsearch"
    encoder_dim: Size = 128  # of a state of each of the two directions of the encoder
    score: ScoreName = "additive"
    attention_dim: Size = 256  # of the hidden layer of the scores additive, concat and mlp

    without_weights: ClassVar = ("dot", "scaled-dot", "content")

    @property
    def output_dim(self) -> int:
        """The width of what the output matrix reads: the deep output is as wide as an embedding."""
        return self.embedding_dim

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        if self.score in self.without_weights and 2 * self.encoder_dim != self.dim:
            raise ValueError(
                f"score = '{self.score}' needs dim = 2 * encoder_dim ({2 * self.encoder_dim}), because it compares a "
                f"state with both directions of the encoder, got {self.dim}"
            )
        return self


class LuongSettings(RecurrentSettings):
    """The global and the local attention of Luong et al. (2015)."""

    kind: Literal["luong"] = "luong"
    cell: Literal["gru", "lstm"] = "lstm"
    layers: Size = 2  # of the encoder, and of the decoder
    score: ScoreName = "general"
    attention_dim: Size = 256  # of the hidden layer of the scores additive, concat and mlp
    alignment: Literal["global", "local-monotonic", "local-predictive"] = "global"
    window: Annotated[int, Field(ge=1)] = 10  # D: local attention sees D positions on each side of its centre
    input_feeding: bool = True
