"""The options of a model of Marian, which say what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import AliasEvent, Node, SafeLoader, YAMLError

from lingon.errors import SourceModelError
from lingon.training.config import Activation, Norms

NORM_EPSILON = 1e-6
"""Of the layer norms of Marian; the port of its models to Transformers has 1e-5."""

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "silu", "gelu": "quick-gelu"}
AS_PLAIN: dict[str, Any] = {
    "type": "transformer",
    "input-types": [],
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "right-left": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "ulr": False,
}
"""Options that change what a model computes, with the value that Lingon reads; absent ones have this value."""

PLAIN_DEPTHS = (0, 2)  # of the decoder's feed-forward layer; 0 is that of the encoder
MOST = 2**20
MOST_OPTIONS = 2**16  # bytes of a file of options; those in use have some thousands
MOST_NESTED = 10  # lists and objects of options inside each other
FOLLOWED = ("", "d", "n", "nd")  # values of transformer-postprocess-emb
NORMS: dict[tuple[str, str], Norms] = {("", "an"): "post", ("n", "a"): "pre", ("n", "an"): "both"}
"""By what is done before a layer and after it: a is the sum with its input, n is a norm."""

FINAL_NORMS = ("", "n")  # what is done after the last layer


@dataclass(frozen=True, slots=True)
class MarianOptions:
    """The options of a model, checked as they are read; path: of the model, for messages."""

    path: Path
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, path: Path, text: str) -> MarianOptions:
        """Read the options. Raises SourceModelError if they are of a model that Lingon does not compute."""
        options = cls(path, read_yaml(path, text))
        if problems := options._problems():
            raise SourceModelError(f"{path}: Lingon has no model with these options: {'; '.join(problems)}")
        return options

    def integer(self, name: str, least: int, most: int = MOST) -> int:
        """Return a whole number from least to most."""
        value = self.values.get(name)
        if type(value) is not int or not least <= value <= most:
            raise SourceModelError(f"{self.path}: {name} must be {least} to {most:,}, got {str(value)[:60]!r}")
        return value

    @property
    def norm(self) -> Norms:
        """Where the norms of the layers are."""
        return NORMS[self._without_dropout("transformer-preprocess"), self._without_dropout("transformer-postprocess")]

    @property
    def final_norm(self) -> bool:
        """Whether a norm follows the last layer."""
        return self._without_dropout("transformer-postprocess-top") == "n"

    @property
    def embedding_norm(self) -> bool:
        """Whether a norm follows the sum of piece and position."""
        return "n" in str(self.values.get("transformer-postprocess-emb", ""))

    @property
    def recurrent(self) -> bool:
        """Whether the decoder has SSRU cells in the place of self-attention."""
        return bool(self.values.get("transformer-decoder-autoreg", "self-attention") == "rnn")

    @property
    def activation(self) -> Activation:
        """The activation of feed-forward layers."""
        return ACTIVATIONS[self.values.get("transformer-ffn-activation", "swish")]

    @property
    def alignment_layer(self) -> int | None:
        """The decoder layer, from 0, whose first head was trained to align; None without guided alignment."""
        if str(self.values.get("guided-alignment", "none")) == "none":
            return None
        layer = self.values.get("transformer-guided-alignment-layer", "last")
        layers = self.integer("dec-depth", 1, 1000)
        return layers - 1 if layer == "last" else self.integer("transformer-guided-alignment-layer", 1, layers) - 1

    def _without_dropout(self, name: str) -> str:
        """Return what is done at one place, without dropout (d)."""
        return str(self.values.get(name, "")).replace("d", "")

    def _problems(self) -> list[str]:
        """Return all options that Lingon has no counterpart of, each with the value that it reads."""
        found = []
        for name, plain in AS_PLAIN.items():
            value = self.values.get(name, plain)
            allowed = PLAIN_DEPTHS if name == "transformer-decoder-ffn-depth" else (plain,)
            if value not in allowed:
                found.append(f"{name} must be {_shown(plain)}, is {_shown(value)}")
        around = "transformer-preprocess", "transformer-postprocess"
        if tuple(map(self._without_dropout, around)) not in NORMS:
            is_now = " and ".join(_shown(str(self.values.get(name, ""))) for name in around)
            found.append(f"{' and '.join(around)} must be '' and 'dan', 'n' and 'da', or 'n' and 'dan', are {is_now}")
        if self._without_dropout("transformer-postprocess-top") not in FINAL_NORMS:
            found += self._not_among("transformer-postprocess-top", FINAL_NORMS, "")
        found += self._not_among("transformer-postprocess-emb", FOLLOWED, "")
        found += self._not_among("transformer-ffn-activation", tuple(ACTIVATIONS), "swish")
        found += self._not_among("transformer-decoder-autoreg", ("self-attention", "rnn"), "self-attention")
        if self.recurrent:
            found += self._not_among("dec-cell", ("ssru",), "gru")
        width = self.values.get("transformer-decoder-dim-ffn", 0)
        if width not in (0, self.values.get("transformer-dim-ffn")):
            found.append(f"transformer-decoder-dim-ffn must be 0 or that of the encoder, is {_shown(width)}")
        return found

    def _not_among(self, name: str, allowed: tuple[str, ...], default: str) -> list[str]:
        value = self.values.get(name, default)
        return [] if value in allowed else [f"{name} must be {' or '.join(map(_shown, allowed))}, is {_shown(value)}"]


class _Loader(SafeLoader):
    """Reads plain YAML. With aliases, some hundred bytes can stand for gigabytes."""

    _nested = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(AliasEvent):
            raise YAMLError("has an alias")
        if self._nested > MOST_NESTED:
            raise YAMLError("is nested too deeply")
        self._nested += 1
        node: Node | None = super().compose_node(parent, index)
        self._nested -= 1
        return node


def read_yaml(path: Path, text: str) -> dict[str, Any]:
    """Read a YAML object. Raises SourceModelError, for one with aliases too."""
    try:
        found = _Loader(text).get_single_data()
    except (YAMLError, ValueError, RecursionError):
        raise SourceModelError(f"{path}: its options are not plain YAML") from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SourceModelError(f"{path}: its options must be names with values")
    return found


def _shown(value: Any) -> str:
    """Return a value for a message."""
    return repr(value)[:40] if isinstance(value, str | int | float | bool) or value == [] else type(value).__name__
