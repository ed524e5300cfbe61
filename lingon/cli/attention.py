"""The attention of a pair as a person reads it: asked of a translator, by words or pieces, as a picture or as JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.alignment import AttentionKind
from lingon.cli.backend import BackendOptions, open_translator
from lingon.cli.output import reworded
from lingon.client.options import AttentionSelection
from lingon.client.results import AttentionMatrix, Piece, ScoreResult
from lingon.errors import LingonError, ServerError, SettingsError

BEGIN = "<s>"  # the begin token of a target, which is a column of the decoder's self-attention
UNKNOWN = "<unk>"

Weights = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class TokenGroup:
    """Tokens that are shown as one row or column; positions: their indices among the tokens."""

    label: str
    positions: tuple[int, ...]


def axes(kind: AttentionKind, result: ScoreResult, *, pieces: bool) -> tuple[list[TokenGroup], list[TokenGroup]]:
    """Return the rows and the columns of the matrices of a kind.

    pieces: whether each token is a row or column of its own; else each word is
    """
    group = by_piece if pieces else by_word
    source = group(result.normalised_source, result.source_pieces)
    target = group(result.normalised_target, result.target_pieces)
    if kind == "encoder":
        return source, source
    if kind == "cross":
        return target, source
    read = [TokenGroup(each.label, tuple(position + 1 for position in each.positions)) for each in target[:-1]]
    return target, [TokenGroup(BEGIN, (0,)), *read]


def by_piece(text: str, pieces: Sequence[Piece]) -> list[TokenGroup]:
    """Return a group for each token. An unknown one shows its characters too."""
    return [
        TokenGroup(f"{piece.piece} {_surface(text, [piece])}" if piece.piece == UNKNOWN else piece.piece, (position,))
        for position, piece in enumerate(pieces)
    ]


def by_word(text: str, pieces: Sequence[Piece]) -> list[TokenGroup]:
    """Return a group for each word, which spaces end. A character of a script without spaces is a word. The end token
    is last.

    text: the normalised text that the spans refer to
    """
    words: list[list[int]] = []
    for position, piece in enumerate(pieces):
        if position == 0 or _is_end(pieces, position) or _begins_word(text, pieces[position - 1], piece):
            words.append([])
        words[-1].append(position)
    return [TokenGroup(_surface(text, [pieces[position] for position in word]), tuple(word)) for word in words]


def merge(weights: Weights, rows: Sequence[TokenGroup], columns: Sequence[TokenGroup]) -> tuple[tuple[float, ...], ...]:
    """Return the mean over the tokens of each row, of the sums over the tokens of each column, so that sums of rows
    stay.
    """
    return tuple(
        tuple(
            sum(weights[row][column] for row in down.positions for column in across.positions) / len(down.positions)
            for across in columns
        )
        for down in rows
    )


def _is_end(pieces: Sequence[Piece], position: int) -> bool:
    """Return whether a token is the end token, which has no characters. The source of some models has none."""
    return position == len(pieces) - 1 and pieces[position].span[0] == pieces[position].span[1]


def _begins_word(text: str, before: Piece, piece: Piece) -> bool:
    if piece.span == before.span:  # the bytes of one character
        return False
    first, last = text[slice(*piece.span)].strip()[:1], text[slice(*before.span)].strip()[-1:]
    return text[before.span[1] : piece.span[1]].startswith(" ") or _without_spaces(first) or _without_spaces(last)


def _without_spaces(character: str) -> bool:
    """Return whether a letter is of a script that puts no spaces between words, such as Chinese, Japanese or Thai."""
    if not character.isalpha():
        return False
    wide = unicodedata.east_asian_width(character) in ("W", "F")
    name = unicodedata.name(character, "")
    return (wide and not name.startswith("HANGUL")) or name.startswith(("THAI", "LAO", "KHMER", "MYANMAR"))


def _surface(text: str, pieces: Sequence[Piece]) -> str:
    """Return the characters of adjacent tokens, without white space; the name of the first token if they have none."""
    found = text[pieces[0].span[0] : pieces[-1].span[1]].strip()
    return found or pieces[0].piece


NAMES: dict[AttentionKind, str] = {
    "cross": "cross-attention",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
}
AXES: dict[AttentionKind, tuple[str, str]] = {
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("predicted", "read"),
}
"""What rows and columns are."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix: of a head, or the mean of heads if head is None; weights: (rows, columns)."""

    layer: int
    head: int | None
    weights: tuple[tuple[float, ...], ...]

    @property
    def caption(self) -> str:
        """The layer, and the head if it is one."""
        return f"layer {self.layer}" if self.head is None else f"layer {self.layer}, head {self.head}"


@dataclass(frozen=True, slots=True)
class Picture:
    """Matrices of one kind with common labels; mean_of: the heads of a mean, in words."""

    kind: AttentionKind
    model: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    mean_of: str = "mean of the heads"

    @property
    def title(self) -> str:
        """The kind and the model."""
        return f"{NAMES[self.kind]} of {self.model}"

    @property
    def subtitle(self) -> str:
        """The layer and the heads of the only matrix."""
        (panel,) = self.panels
        return panel.caption if panel.head is not None else f"{panel.caption}, {self.mean_of}"


def make_picture(result: ScoreResult, matrices: tuple[AttentionMatrix, ...], *, pieces: bool, mean_of: str) -> Picture:
    """Return the picture of matrices of one kind, by words or by pieces."""
    kind = matrices[0].kind
    rows, columns = axes(kind, result, pieces=pieces)
    return Picture(
        kind,
        f"{result.model}/{result.version}",
        tuple(row.label for row in rows),
        tuple(column.label for column in columns),
        tuple(Panel(each.layer, each.head, merge(each.weights, rows, columns)) for each in matrices),
        mean_of,
    )


def as_json(picture: Picture, source: str, target: str) -> str:
    """Return one JSON object. Weights are rounded to six digits after the point."""
    panels = [
        {
            "layer": each.layer,
            "head": each.head,
            "weights": [[round(weight, 6) for weight in row] for row in each.weights],
        }
        for each in picture.panels
    ]
    values = {
        "source": source,
        "target": target,
        "model": picture.model,
        "kind": picture.kind,
        "rows": picture.rows,
        "columns": picture.columns,
        "matrices": panels,
    }
    return json.dumps(values, ensure_ascii=False)


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
class WantedMatrices:
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
        """Return the matrices to ask for: without a grid, those of all layers, if it is not known which one is the
        last.
        """
        if self.is_alignment:
            return AttentionSelection(alignment=True)
        return AttentionSelection(
            kinds=(self.kind,),
            layers=() if self.layer is None else (self.layer,),
            heads=() if self.head is None else (self.head,),
            mean_of_heads=self.mean or (self.head is None and not self.grid),
        )

    def shown(self, found: tuple[AttentionMatrix, ...]) -> tuple[AttentionMatrix, ...]:
        """Return the matrices of a grid, or that of the last layer."""
        return found if self.grid else found[-1:]


def ask(
    options: BackendOptions,
    pair: tuple[str, str | None],
    wanted: WantedMatrices,
    languages: tuple[str | None, str | None] = (None, None),
) -> tuple[Picture, str]:
    """Return the picture of a pair and its target, which is a translation of the source if the pair has none.

    languages: of the source and the target. None is the model's
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
