"""The words of a request: bounds, contradictions, and what is checked on texts."""

from __future__ import annotations

import re

import pytest

from lingon.errors import InvalidRequest
from lingon.serving.decoding.rules import (
    FORBIDDEN_WORDS,
    MAX_ALL_CHARACTERS,
    MAX_FORBIDDEN_WORDS,
    Vocabulary,
    checked_words,
)
from lingon.text import Tokenizer
from tests.support.echo_engine import CORPUS, tokenizer, vocabulary
from tests.support.tokenizers import train_sentencepiece


def test_words_are_normalised_and_counted_once() -> None:
    assert checked_words([" a \t b ", "a b", "u\u0308"], FORBIDDEN_WORDS, 9) == ["a b", "ü"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"] * 1000, "options.forbidden_words must have 64 words at most, got 1000"),
        (["a", "b" * 65], "options.forbidden_words[1] must have 1 to 64 characters, got 65"),
        (["a", " \u200b"], "options.forbidden_words[1] is empty"),
        (
            [f"{at:050}" for at in range(21)],
            "options.forbidden_words must have 1000 characters at most (in NFD), got 1050",
        ),
    ],
)
def test_bounds_are_named_with_their_value(words: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{re.escape(message)}$") as refused:
        checked_words(words, FORBIDDEN_WORDS, MAX_FORBIDDEN_WORDS)
    assert refused.value.field == FORBIDDEN_WORDS


def test_a_forced_word_that_the_model_cannot_write_is_refused() -> None:
    options = {"model_type": "unigram", "hard_vocab_limit": False}
    without_bytes = Vocabulary(Tokenizer(train_sentencepiece(CORPUS.splitlines(), 360, **options)))
    for each, word, what in ((vocabulary(), "\ufffd", "U+FFFD"), (without_bytes, "a日", "'日' at character 2")):
        message = f"options.forced_words[1] has {what}, which the model cannot write"
        with pytest.raises(InvalidRequest, match=f"^{re.escape(message)}$"):
            each.rules(forced=["Tom", word])


def test_a_forced_word_with_a_forbidden_one_in_it_is_refused() -> None:
    message = "options.forced_words[0] contains options.forbidden_words[1], so that both cannot hold"
    with pytest.raises(InvalidRequest, match=f"^{re.escape(message)}$"):
        vocabulary().rules(forced=["Boston"], forbidden=["x", "ton"])


def test_forced_words_need_a_text_that_is_read_whole() -> None:
    rules = vocabulary().rules(forced=["Tom"])
    rules.check_parts(1, "texts[3]")
    with pytest.raises(InvalidRequest, match=r"^texts\[3\] .* 2 parts; options.forced_words "):
        rules.check_parts(2, "texts[3]")


@pytest.mark.parametrize("prefix", ["der  Mann", "xder Mann.", "de\u0301r", "d\u00e9r"])
def test_a_prefix_with_a_forbidden_word_is_refused(prefix: str) -> None:
    rules = vocabulary().rules(forbidden=["der Mann", "dér"])
    with pytest.raises(InvalidRequest, match=r"^target_prefixes\[0\] has options.forbidden_words\[[01]\] in it$"):
        rules.check_prefix(prefix, "target_prefixes[0]")
    rules.check_prefix("der", "target_prefixes[0]")


def test_missing_words_are_those_that_are_not_in_the_text() -> None:
    rules = vocabulary().rules(forced=["der Mann", "Tom", "om"])
    assert rules.missing("Hier ist  der \n Mann.") == ["Tom", "om"]
    assert rules.missing("Tom, der Mann") == []


@pytest.mark.parametrize("spelling", ["pieces", "bytes", "decomposed"])
def test_a_forbidden_word_is_found_however_it_is_spelled(spelling: str) -> None:
    rules = vocabulary().rules(forbidden=["Grüße"]).of_part(0)
    pieces = vocabulary().pieces
    text = "Gru\u0308ße" if spelling == "decomposed" else "Grüße"
    if spelling == "pieces":
        tokens = tokenizer().encode_target(text)
    else:
        tokens = [pieces.token_of[byte] for byte in text.encode()]
    progress = rules.start(tokens[:-1])
    assert not rules.limits(progress, tokens[:-1], len(tokens) - 1, 20).permits(tokens[-1])
    others = vocabulary().rules(forbidden=["Gruss"]).of_part(0)
    assert others.limits(others.start(tokens[:-1]), tokens[:-1], 5, 20).permits(tokens[-1])


def test_the_largest_words_that_are_allowed_compile_in_little_memory() -> None:
    """A Hangul syllable takes 3 bytes composed and 9 decomposed."""
    count = MAX_ALL_CHARACTERS // 3
    letters = "".join(chr(0xAC01 + 28 * at) for at in range(count))
    words = [letters[at : at + 50] for at in range(0, count, 50)]
    rules = vocabulary().rules(forbidden=checked_words(words, FORBIDDEN_WORDS, MAX_FORBIDDEN_WORDS))
    assert rules.of_part(0) is rules.of_part(1), "no word has a space"
    spelling = rules.of_part(0).spelling
    state = spelling.start
    for byte in words[3].encode()[:-1]:
        state = spelling.read(state, vocabulary().pieces.token_of[byte])
    assert vocabulary().pieces.token_of[words[3].encode()[-1]] not in spelling.continuing(state, 9).members
