"""The settings of the models: one class for each kind, which has the keys of that kind and no other."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lingon.bundle import TokenCount
from lingon.training.config.blocks import Settings, bundle_rule

DROPOUT_STEPS = 2**16  # on a CPU the rate of dropout is rounded to a multiple of 1 / DROPOUT_STEPS


class ModelSettings(Settings):
    """What the settings of every kind have."""

    kind: str
    max_positions: Annotated[int, Field(ge=2), bundle_rule(TokenCount)] = 256  # most tokens on each side
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    tie: Literal["all", "decoder", "none"] = "all"

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """The layers and the heads of the attention from target to source; 0 and 0 without attention."""
        return 1, 1

    def weightless(self) -> set[str]:
        """The keys whose change leaves the weights of a trained model right."""
        return {"dropout"}

    @model_validator(mode="after")
    def _dropout_in_steps(self) -> Self:
        if self.dropout and not 1 <= DROPOUT_STEPS * self.dropout <= DROPOUT_STEPS - 1:
            bounds = f"1/{DROPOUT_STEPS} to {DROPOUT_STEPS - 1}/{DROPOUT_STEPS}"
            raise ValueError(f"dropout must be 0 or from {bounds}, got {self.dropout}")
        return self


class TransformerSettings(ModelSettings):
    """The size and the variant of the Transformer; the preset gives the sizes that are not set."""

    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big", "deep-encoder"] = "small"
    dim: Annotated[int, Field(ge=2)]
    heads: Annotated[int, Field(ge=1)]
    ffn: Annotated[int, Field(ge=1)]
    encoder_layers: Annotated[int, Field(ge=1)]
    decoder_layers: Annotated[int, Field(ge=1)]
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    encoder_window: Annotated[int, Field(ge=0)] = 0  # radius of the encoder's self-attention in tokens; 0 is no bound
    encoder_attention: Literal["softmax", "linear"] = (
        "softmax"  # linear: the cost grows with the length, not its square
    )
    score: Literal["scaled-dot", "additive"] = "scaled-dot"

    @property
    def head_dim(self) -> int:
        """The width of a head, d_k."""
        return self.dim // self.heads

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """See ModelSettings."""
        return self.decoder_layers, self.heads

    def weightless(self) -> set[str]:
        """See ModelSettings; only learned positions are weights, all others are computed for any length."""
        computed = {"max_positions"} if self.positions != "learned" else set[str]()
        return {"preset", *super().weightless(), *computed}

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {**PRESETS.get(str(given.get("preset", "small")), {}), **given}

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.dim % self.heads:
            raise ValueError(f"heads must divide dim ({self.dim}), got {self.heads}")
        if self.dim % 2:
            raise ValueError(f"dim must be even, got {self.dim}")
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(f"positions = 'rotary' needs an even dim / heads, got {self.head_dim}")
        return self

    @model_validator(mode="after")
    def _linear_attention(self) -> Self:
        """Linear attention has no scores to hide beyond a window or to add up.

        The product of rotated heads depends on the difference of their positions, that of their feature maps does not.
        """
        if self.encoder_attention == "softmax":
            return self
        needs = "encoder_attention = 'linear' needs"
        if self.encoder_window:
            raise ValueError(f"{needs} encoder_window = 0, got {self.encoder_window}")
        if self.score != "scaled-dot":
            raise ValueError(f"{needs} score = 'scaled-dot', got '{self.score}'")
        if self.positions == "rotary":
            raise ValueError(f"{needs} positions = 'sinusoidal', 'learned' or 'none', got 'rotary'")
        return self


def _preset(dim: int, heads: int, ffn: int, encoder_layers: int, decoder_layers: int) -> dict[str, int]:
    return dict(dim=dim, heads=heads, ffn=ffn, encoder_layers=encoder_layers, decoder_layers=decoder_layers)


def default_layer(settings: ModelSettings) -> int:
    """Return the decoder layer whose attention gives alignments by default: the last but one, else the only one."""
    return max(settings.attention_sizes[0] - 2, 0)


PRESETS = {  # head_dim is 64 in all but tiny, which suits the fast attention kernels of ONNX Runtime
    "tiny": _preset(32, 2, 64, 2, 2),
    "small": _preset(256, 4, 1024, 3, 3),
    "base": _preset(512, 8, 2048, 6, 6),
    "big": _preset(1024, 16, 4096, 6, 6),
    "deep-encoder": _preset(512, 8, 2048, 12, 1),
}
PAPER_WARMUP_STEPS = {"base": 4000, "big": 4000}  # updates, of the models of Vaswani et al. (2017), section 5.3


def paper_learning_rate(dim: int, warmup_steps: int) -> float:
    """Return the peak of the learning rate of Vaswani et al. (2017), equation 3: (dim * warmup_steps) ** -0.5."""
    return float((dim * warmup_steps) ** -0.5)


class RecurrentSettings(ModelSettings):
    """What the settings of all recurrent kinds have."""

    cell: Literal["gru", "lstm"] = "gru"
    embedding_dim: Annotated[int, Field(ge=1)] = 256
    dim: Annotated[int, Field(ge=1)] = 256  # of a state of the decoder

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
    layers: Annotated[int, Field(ge=1)] = 1  # of the encoder, and of the decoder
    reverse_source: bool = False

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """See ModelSettings."""
        return 0, 0


ScoreName = Literal["dot", "scaled-dot", "content", "additive", "general", "concat", "mlp"]


class RnnsearchSettings(RecurrentSettings):
    """RNNsearch: a bidirectional encoder, and a decoder that attends before each state (Bahdanau et al., 2015)."""

    kind: Literal["rnnsearch"] = "rnnsearch"
    encoder_dim: Annotated[int, Field(ge=1)] = 128  # of a state of each of the two directions of the encoder
    score: ScoreName = "additive"
    attention_dim: Annotated[int, Field(ge=1)] = 256  # of the hidden layer of the scores additive, concat and mlp

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
    layers: Annotated[int, Field(ge=1)] = 2  # of the encoder, and of the decoder
    score: ScoreName = "general"
    attention_dim: Annotated[int, Field(ge=1)] = 256  # of the hidden layer of the scores additive, concat and mlp
    alignment: Literal["global", "local-monotonic", "local-predictive"] = "global"
    window: Annotated[int, Field(ge=1)] = 10  # D: local attention sees D positions on each side of its centre
    input_feeding: bool = True


MODEL_KINDS: dict[str, type[ModelSettings]] = {
    "transformer": TransformerSettings,
    "rnnenc": RnnencSettings,
    "rnnsearch": RnnsearchSettings,
    "luong": LuongSettings,
}
