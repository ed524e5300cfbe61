"""How the attention between tokens becomes weights between words."""

from __future__ import annotations

import numpy as np
import pytest

from lingon.serving.translation.attention import sentence_weights, word_weights


def test_a_target_word_has_its_share_of_the_attention_to_a_source_word() -> None:
    attention = np.array(
        [[0.6, 0.2, 0.1, 0.1], [0.2, 0.2, 0.5, 0.1], [0.0, 0.2, 0.4, 0.4], [0.1, 0.1, 0.1, 0.7]], np.float32
    )
    # sources: "ab" of two tokens, "c"; targets: "x", "yz" of two tokens; the last row and column are of end tokens
    found = word_weights(attention, [(0, 1), (1, 2), (3, 4)], [(0, 1), (2, 3), (3, 4)], "ab c", "x yz")
    assert np.array(found) == pytest.approx(np.array([[0.8 / 1.4, 0.1], [0.6 / 1.4, 0.9]]))
    assert np.array(found).sum(axis=0) == pytest.approx(np.ones(2))


def test_a_word_without_tokens_has_no_weight() -> None:
    found = word_weights(np.ones((2, 2), np.float32), [(0, 1)], [(0, 1)], "a b", "x y")
    assert found == [[1.0, 0.0], [0.0, 0.0]]


def test_a_token_of_white_space_belongs_to_the_word_after_it() -> None:
    attention = np.array([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.1, 0.9, 0], [0, 0, 1]], np.float32)
    found = word_weights(attention, [(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)], "a b", "x y")
    assert np.array(found) == pytest.approx(np.array([[0.9 / 1.1, 0.1 / 1.9], [0.2 / 1.1, 1.8 / 1.9]]))


def test_parts_follow_one_another_and_words_of_invisible_characters_are_left_out() -> None:
    parts = [("a b", "x", [[0.5, 1.0]]), ("c", "y z", [[0.25], [0.75]])]
    assert sentence_weights("a \u200b b c", parts) == [
        [0.5, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.25],
        [0.0, 0.0, 0.0, 0.75],
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [("a b", "x", None)],
        [("a b", "x y", [[0.5, 1.0]])],
        [("a", "x", [[1.0]])],
        [("a b c", "x", [[1.0, 1.0, 1.0]])],
    ],
)
def test_weights_that_do_not_fit_the_words_are_not_used(parts: list[tuple[str, str, list[list[float]] | None]]) -> None:
    assert sentence_weights("a b", parts) is None
