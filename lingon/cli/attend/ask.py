"""Asks a translator for a translation, if there is none yet, and for the attention of the pair."""

from __future__ import annotations

from dataclasses import dataclass

from lingon.attention_kinds import AttentionKind
from lingon.cli.attend.picture import Picture, make_picture
from lingon.cli.backend import open_translator
from lingon.cli.lines.wording import reworded
from lingon.cli.options.backend import BackendOptions
from lingon.client.values.attention import AttentionSelection
from lingon.client.values.results import AttentionMatrix
from lingon.errors import LingonError, ServerError, SettingsError

FLAGS = {
    "attention.kinds": "--of",
    "attention.alignment": "--of",
    "pairs[0].source": "the source",
    "pairs[0].target": "the target",
    "texts[0]": "the source",
    "select fewer kinds, layers or heads, set mean_of_heads, or send fewer pairs": "give --layer, --head or --mean",
}
"""Parts of the messages of a server, and what they are to this verb, besides those of all verbs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which matrices are shown, and how.

    layer, head: None is the last layer, and the mean of its heads; with grid it is all of them
    mean: whether the mean of all heads is shown, instead of the heads for alignments, or of each head of a grid
    """

    kind: AttentionKind = "cross"
    layer: int | None = None
    head: int | None = None
    mean: bool = False
    grid: bool = False
    pieces: bool = False

    def __post_init__(self) -> None:
        if self.mean and self.head is not None:
            raise SettingsError(f"--mean is over all heads; leave out --head {self.head}")

    @property
    def is_alignment(self) -> bool:
        """Whether the matrix from which the model makes alignments is shown: cross-attention, without a choice."""
        return self.kind == "cross" and self.layer is None and self.head is None and not self.mean and not self.grid

    def selection(self) -> AttentionSelection:
        """The matrices to ask for: without a grid, those of all layers, if it is not known which one is the last."""
        if self.is_alignment:
            return AttentionSelection(alignment=True)
        return AttentionSelection(
            kinds=(self.kind,),
            layers=() if self.layer is None else (self.layer,),
            heads=() if self.head is None else (self.head,),
            mean_of_heads=self.mean or (self.head is None and not self.grid),
        )

    def shown(self, found: tuple[AttentionMatrix, ...]) -> tuple[AttentionMatrix, ...]:
        """The matrices of a grid, or that of the last layer."""
        return found if self.grid else found[-1:]


def ask(
    options: BackendOptions,
    pair: tuple[str, str | None],
    wanted: Wanted,
    languages: tuple[str | None, str | None] = (None, None),
) -> tuple[Picture, str]:
    """The picture of a pair and its target, which is a translation of the source if the pair has none.

    languages: of the source and the target; None is the model's
    """
    source, target = pair
    model, (source_language, target_language) = options.server_model, languages
    try:
        with open_translator(options) as translator:
            if target is None:
                (translated,) = translator.translate(
                    [source],
                    model=model,
                    source=source_language,
                    target=target_language,
                    long_text="refuse",
                    split_sentences="off",
                    protect=False,  # what the model writes of the whole text, also of a number
                )
                target = translated.text
            (result,) = translator.score(
                [(source, target)],
                model=model,
                source=source_language,
                target=target_language,
                attention=wanted.selection(),
            )
            if result.error is not None:
                raise result.error
    except ServerError as error:
        raise LingonError(_reworded(str(error))) from error
    mean_of = "mean of the heads for alignments" if wanted.is_alignment else "mean of the heads"
    return make_picture(result, wanted.shown(result.attention), pieces=wanted.pieces, mean_of=mean_of), target


def _reworded(message: str) -> str:
    for field, flag in FLAGS.items():
        message = message.replace(field, flag)
    return reworded(message, translating=False)
