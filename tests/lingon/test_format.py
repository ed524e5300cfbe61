"""Word alignments count the words of the texts to which the spans refer."""

from __future__ import annotations

from lingon.cli.lines.format import Columns, plain_line, score_line
from lingon.client.values.results import Link, ScoreResult, TextResult, Token, Translation

WANTED = Columns(alignment=True)


def test_words_of_a_translation_are_counted_as_the_model_wrote_it() -> None:
    """A model with byte fallback can write characters that a normalised text never has."""
    links = (Link((0, 2), (0, 3), 1.0), Link((2, 4), (3, 5), 1.0))
    translation = Translation("A\u00adB\tC", -1.0, "end", alignment=links)
    result = TextResult((translation,), normalised_text="ab c")
    assert plain_line(result, WANTED) == "A\u00adB C\t0-0 1-1"


def test_words_of_a_pair_are_counted_in_the_normalised_texts_of_the_server() -> None:
    links = (Link((0, 2), (0, 2), 1.0), Link((2, 4), (2, 4), 1.0))
    tokens = (Token("x", -1.0),)
    result = ScoreResult(-1.0, tokens, links, normalised_source="ab c", normalised_target="AB C")
    assert score_line(result, WANTED) == "-1.0000\t0-0 1-1"
