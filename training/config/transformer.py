"""The settings of the Transformer: its sizes, and the variants of its layers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from lingon.errors import SettingsError
from lingon.training.config.model import ModelSettings, Size

HEAD_STEP = 8  # dimensions; the operators of an exported step take heads of a multiple of these
Activation = Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu"]
Norms = Literal["post", "pre", "both"]


class TransformerSettings(ModelSettings):
    """The size and the variant of the Transformer; the preset gives the sizes that are not set."""

    kind: Literal["transformer"] = "transformer"
    preset: Literal["tiny", "small", "base", "big", "deep-encoder"] = "small"
    dim: Annotated[Size, Field(ge=2)]
    heads: Size
    head_dim: Size  # d_k, the width of a head; by default dim / heads
    ffn: Size
    encoder_layers: Size
    decoder_layers: Size
    norm: Norms = "post"  # of each layer: after the sum with its input, before it, or both
    query_norm: bool = False  # whether the norm before self-attention is that of its queries alone, as in Marian
    final_norm: bool = False  # whether one follows the last layer of each side; by default with norm = "pre"
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

    def check_export(self) -> None:
        """See ModelSettings; the operators of a step take heads of a multiple of HEAD_STEP dimensions."""
        if self.decoder_cell == "attention" and self.score == "scaled-dot" and self.head_dim % HEAD_STEP:
            raise SettingsError(
                f"an export needs model.dim / model.heads to be a multiple of {HEAD_STEP}, got {self.head_dim}"
            )

    def weightless(self) -> set[str]:
        """See ModelSettings; only learned positions are weights, all others are computed for any length."""
        computed = {"max_positions"} if self.positions != "learned" else set[str]()
        return {"preset", *super().weightless(), *computed}

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        filled = {**PRESETS.get(str(given.get("preset", "small")), {}), **given}
        filled.setdefault("final_norm", filled.get("norm") == "pre")
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
        if self.query_norm and self.norm == "post":
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
