"""The settings of a model: what all models have, those of the Transformer, and those of the recurrent systems."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from lingon.bundle.manifest import BundleSize, TokenCount
from lingon.bundle.schema import unmet_rule
from lingon.errors import SettingsError

# The settings that all models have.


class SettingsBlock(BaseModel):
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


Size = Annotated[int, Field(ge=1), bundle_rule(BundleSize)]
"""A width, or a number of heads or of layers."""


class ModelSettings(SettingsBlock):
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
        """Return the keys whose change leaves the weights of a trained model right."""
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


# The settings of the Transformer: its sizes, and the variants of its layers.

HEAD_STEP = 8  # dimensions; the operators of an exported step take heads of a multiple of these
Activation = Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu"]
Norms = Literal["post", "pre", "both", "sandwich"]


class TransformerSettings(ModelSettings):
    """The size and the variant of the Transformer. The preset gives the sizes that are not set."""

    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big", "deep-encoder"] = "small"
    dim: Annotated[Size, Field(ge=2)]
    heads: Size
    head_dim: Size  # d_k, the width of a head; by default dim / heads
    ffn: Size
    encoder_layers: Size
    decoder_layers: Size
    norm: Norms = "post"  # of each layer: after the sum with its input, before it, both, or before it and of its output
    query_norm: bool = False  # whether the norm before self-attention is that of its queries alone, as in Marian
    final_norm: bool = False  # whether one follows the last layer of each side; by default with "pre" and "sandwich"
    norm_kind: Literal["layer", "rms"] = "layer"
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    embedding_norm: bool = False  # whether a norm follows the sum of piece and position
    activation: Activation = "relu"
    gated: bool = False  # whether a second product of the input multiplies what the activation returns
    bias: bool = True  # whether the products of the layers add one
    output_bias: bool = False  # whether the product of the output layer adds one
    scale_embedding: bool = True  # by sqrt(dim)
    positions: Literal["sinusoidal", "learned", "rotary", "relative", "none"] = "sinusoidal"
    sinusoids: Literal["interleaved", "halves", "inclusive-halves"] = "interleaved"  # order and rates; see `sinusoids`
    first_position: Annotated[int, Field(ge=0)] = 0  # of sinusoids: the position of the first token
    relative_buckets: Annotated[int, Field(ge=4)] = 32  # of distances, for relative positions
    relative_distance: Annotated[int, Field(ge=2)] = 128  # tokens; farther ones share the last bucket
    encoder_window: Annotated[int, Field(ge=0)] = 0  # radius of the encoder's self-attention in tokens; 0 is no bound
    decoder_window: Annotated[int, Field(ge=0)] = (
        0  # tokens before its own that a position of the decoder sees; 0 is all
    )
    full_attention_every: Annotated[int, Field(ge=0)] = 0  # of so many layers the last one has no window; 0 is none
    attention_softcap: Annotated[float, Field(ge=0)] = 0  # bound c of scores, as c * tanh(score / c); 0 is no bound
    output_softcap: Annotated[float, Field(ge=0)] = 0  # the same of logits
    encoder_attention: Literal["softmax", "linear"] = "softmax"  # the cost of linear grows with the length alone
    decoder_cell: Literal["attention", "ssru"] = "attention"  # what reads the target so far in each decoder layer
    score: Literal["scaled-dot", "additive"] = "scaled-dot"

    @property
    def attention_dim(self) -> int:
        """The width of all heads of an attention."""
        return self.heads * self.head_dim

    @property
    def attention_sizes(self) -> tuple[int, int]:
        """See ModelSettings."""
        return self.decoder_layers, self.heads

    def windows(self, side: Literal["encoder", "decoder"]) -> tuple[int, ...]:
        """Return the window of the self-attention of each layer of a side, 0 for a layer that has none."""
        layers, window, period = (
            getattr(self, f"{side}_layers"),
            getattr(self, f"{side}_window"),
            self.full_attention_every,
        )
        return tuple(0 if period and number % period == 0 else window for number in range(1, layers + 1))

    def check_export(self) -> None:
        """See ModelSettings. The operators of a step take heads of a multiple of HEAD_STEP dimensions."""
        if self.decoder_cell == "attention" and self.score == "scaled-dot" and self.head_dim % HEAD_STEP:
            raise SettingsError(
                f"an export needs model.dim / model.heads to be a multiple of {HEAD_STEP}, got {self.head_dim}"
            )

    def weightless(self) -> set[str]:
        """See ModelSettings. Only learned positions are weights, all others are computed for any length."""
        computed = {"max_positions"} if self.positions != "learned" else set[str]()
        return {"preset", *super().weightless(), *computed}

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        filled = {**PRESETS.get(str(given.get("preset", "small")), {}), **given}
        filled.setdefault("final_norm", filled.get("norm") in ("pre", "sandwich"))
        dim, heads = (_whole(filled.get(name)) for name in ("dim", "heads"))
        if "head_dim" in filled or not (isinstance(dim, int) and isinstance(heads, int) and heads > 0):
            return filled
        if dim % heads:
            raise ValueError(f"heads must divide dim ({dim}) unless head_dim is set, got {heads}")
        return {**filled, "head_dim": dim // heads}

    @model_validator(mode="after")
    def _even_widths(self) -> Self:
        if self.dim % 2:
            raise ValueError(f"dim must be even, got {self.dim}")
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(f"positions = 'rotary' needs an even head_dim, got {self.head_dim}")
        return self

    @model_validator(mode="after")
    def _norm_of_queries(self) -> Self:
        if self.query_norm and self.norm not in ("pre", "both"):
            raise ValueError(f"query_norm = true needs norm = 'pre' or 'both', got {self.norm!r}")
        return self

    @model_validator(mode="after")
    def _sinusoids(self) -> Self:
        """Raise ValueError if the settings of sinusoids stand beside other positions, or have no rates."""
        if self.sinusoids == "inclusive-halves" and self.dim < 4:
            raise ValueError(f"sinusoids = 'inclusive-halves' needs dim of 4 or more, got {self.dim}")
        if self.positions == "sinusoidal":
            return self
        for name, plain in (("sinusoids", "interleaved"), ("first_position", 0)):
            if getattr(self, name) != plain:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} needs positions = 'sinusoidal', got {self.positions!r}"
                )
        return self

    @model_validator(mode="after")
    def _relative_positions(self) -> Self:
        """Relative positions add to the scores of softmax attention, and need a bucket for each side and range."""
        if self.positions != "relative":
            return self
        if self.score != "scaled-dot":
            raise ValueError(f"positions = 'relative' needs score = 'scaled-dot', got {self.score!r}")
        if self.relative_buckets % 4:
            raise ValueError(f"relative_buckets must be a multiple of 4, got {self.relative_buckets}")
        if self.relative_distance <= self.relative_buckets // 2:
            least = self.relative_buckets // 2 + 1
            raise ValueError(f"relative_distance must be {least} or more, got {self.relative_distance}")
        return self

    @model_validator(mode="after")
    def _recurrent_decoder(self) -> Self:
        if self.decoder_cell == "ssru" and self.positions == "rotary":
            raise ValueError("decoder_cell = 'ssru' has no queries and keys to rotate: positions must not be 'rotary'")
        return self

    @model_validator(mode="after")
    def _windows_and_caps(self) -> Self:
        """A window and a bound of scores are those of products of queries and keys."""
        if self.decoder_window and self.decoder_cell != "attention":
            raise ValueError(f"decoder_window needs decoder_cell = 'attention', got {self.decoder_cell!r}")
        for name in ("decoder_window", "attention_softcap"):
            if getattr(self, name) and self.score != "scaled-dot":
                raise ValueError(f"{name} needs score = 'scaled-dot', got {self.score!r}")
        if self.full_attention_every and not (self.encoder_window or self.decoder_window):
            raise ValueError(
                f"full_attention_every needs encoder_window or decoder_window, got {self.full_attention_every}"
            )
        return self

    @model_validator(mode="after")
    def _linear_attention(self) -> Self:
        """Refuse what linear attention cannot have: it has no scores to hide beyond a window or to add up.

        The product of rotated heads depends on the difference of their positions, that of their feature maps does not.
        """
        if self.encoder_attention == "softmax":
            return self
        needs = "encoder_attention = 'linear' needs"
        if self.encoder_window:
            raise ValueError(f"{needs} encoder_window = 0, got {self.encoder_window}")
        if self.score != "scaled-dot":
            raise ValueError(f"{needs} score = 'scaled-dot', got '{self.score}'")
        if self.attention_softcap:
            raise ValueError(f"{needs} attention_softcap = 0, got {self.attention_softcap:g}")
        if self.positions in ("rotary", "relative"):
            raise ValueError(f"{needs} positions = 'sinusoidal', 'learned' or 'none', got {self.positions!r}")
        return self


def _preset(dim: int, heads: int, ffn: int, encoder_layers: int, decoder_layers: int) -> dict[str, int]:
    return dict(dim=dim, heads=heads, ffn=ffn, encoder_layers=encoder_layers, decoder_layers=decoder_layers)


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


def _whole(value: Any) -> Any:
    """Return a whole number that is written as 1e3 as an integer, and anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The settings of the recurrent systems.


class RecurrentSettings(ModelSettings):
    """What the settings of all recurrent kinds have."""

    cell: Literal["gru", "lstm"] = "gru"
    embedding_dim: Size = 256
    dim: Size = 256  # of a state of the decoder

    def weightless(self) -> set[str]:
        """See ModelSettings. Recurrent models have no table of positions."""
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


MODEL_KINDS: dict[str, type[ModelSettings]] = {
    "transformer": TransformerSettings,
    "rnnenc": RnnencSettings,
    "rnnsearch": RnnsearchSettings,
    "luong": LuongSettings,
}
AnyModelSettings = Annotated[
    TransformerSettings | RnnencSettings | RnnsearchSettings | LuongSettings, Field(discriminator="kind")
]
