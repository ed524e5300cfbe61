"""The words of a speaker as sentences: what is appended, revised, late, joined and complete."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import InvalidRequest
from lingon.serving.live.sources import LiveSource, Sentence

WORDS = st.lists(st.sampled_from(["Tom", "is", "here.", "Dr.", "Why?", "well,", "\u200b", "1.", "good."]), max_size=8)


def reads_all(text: str) -> bool:
    return True


def source(*words: str, language: str = "en", most_words: int = 60) -> LiveSource:
    found = LiveSource(language, most_words)
    found.replace(0, words)
    return found


def complete(source: LiveSource) -> list[str]:
    """Take all complete sentences, and return their texts."""
    texts = []
    while (sentence := source.sentence(reads_all)).is_complete and sentence.ends:
        texts.append(sentence.text)
        source.take(sentence)
    return texts


def test_a_sentence_is_complete_when_a_word_stands_behind_its_end():
    words = source("Tom", "is", "here.")
    assert words.sentence(reads_all) == Sentence(0, "Tom is here.", (3, 6, 12), is_complete=False)
    words.replace(3, ["He"])
    assert words.sentence(reads_all) == Sentence(0, "Tom is here.", (3, 6, 12), is_complete=True)


def test_an_abbreviation_ends_no_sentence():
    assert not source("Dr.", "Smith", "is").sentence(reads_all).is_complete


def test_a_pause_completes_all_words_so_far_and_no_later_ones():
    words = source("Tom", "is")
    words.pause()
    words.replace(2, ["here"])
    assert complete(words) == ["Tom is"]
    assert words.sentence(reads_all) == Sentence(2, "here", (4,), is_complete=False)


def test_a_revision_of_paused_words_opens_them_again():
    words = source("Tom", "is")
    words.pause()
    words.replace(1, ["was"])
    assert complete(words) == []
    assert words.sentence(reads_all).text == "Tom was"


def test_pauses_that_come_before_a_sentence_is_taken_end_a_sentence_each():
    words = source("Tom", "is")
    words.pause()
    words.pause()
    words.replace(2, ["so", "am"])
    words.pause()
    words.replace(4, ["she"])
    words.replace(3, ["was", "she"])
    words.pause()
    assert complete(words) == ["Tom is", "so was she"]


def test_a_revision_replaces_the_words_from_its_number_on():
    words = source("Tom", "is", "her")
    words.replace(1, ["was"])
    assert words.sentence(reads_all).text == "Tom was"
    assert words.count == 2


def test_words_of_complete_sentences_are_late_and_change_nothing():
    words = source("Tom", "is", "here.", "He")
    assert complete(words) == ["Tom is here."]
    words.replace(1, ["was", "there.", "She", "left"])
    assert words.take_late() == 2
    assert words.take_late() == 0
    assert words.sentence(reads_all).text == "She left"


def test_languages_without_blanks_are_joined_by_nothing():
    words = source("今日は", "雨です。", "明日", language="ja")
    assert words.sentence(reads_all).text == "今日は雨です。"


def test_an_end_inside_a_word_ends_no_sentence_before_that_word_ends():
    assert not source("雨です。明日", "は", language="ja").sentence(reads_all).is_complete


def test_a_long_sentence_without_an_end_is_cut_after_a_clause():
    words = source(*["so"] * 5, "well,", *["and"] * 7, most_words=10)
    assert complete(words)[0].endswith("well,")


@pytest.mark.parametrize("count", [1, 9, 40])
def test_a_sentence_has_at_most_the_words_that_it_may_have(count: int):
    words = source(*["and"] * count, most_words=8)
    assert all(len(text.split()) <= 8 for text in complete(words))
    assert words.open_words <= 8


def test_a_text_that_the_model_does_not_read_whole_is_cut():
    words = source(*["word"] * 6)
    sentence = words.sentence(lambda text: len(text) <= 15)
    assert sentence.is_complete
    assert len(sentence.text) <= 15


def test_words_of_invisible_characters_are_counted_and_have_no_text():
    sentence = source("\u200b", "Tom", "\u200b", "is").sentence(reads_all)
    assert (sentence.text, sentence.ends) == ("Tom is", (0, 3, 3, 6))
    assert [sentence.word_at(at) for at in range(6)] == [1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize(
    ("begin", "words", "message"),
    [
        (3, ["a"], "words.from must be at most 2, got 3"),
        (0, [""], "words[0].text must have 1 to 64 characters, got 0"),
        (0, ["a", "b" * 65], "words[1].text must have 1 to 64 characters, got 65"),
        (0, ["a b"], "words[0].text must have no white space inside, got 'a b'"),
    ],
)
def test_wrong_words_are_refused_and_change_nothing(begin: int, words: list[str], message: str):
    known = source("Tom", "is")
    with pytest.raises(InvalidRequest) as caught:
        known.replace(begin, words)
    assert str(caught.value) == message
    assert known.sentence(reads_all).text == "Tom is"


@given(st.lists(st.tuples(st.integers(0, 12), WORDS, st.booleans()), max_size=12))
def test_taken_sentences_are_the_words_in_their_order_each_once(changes: list[tuple[int, list[str], bool]]):
    words, taken, reached = LiveSource("en", 8), list[str](), 0
    for back, given_words, pauses in changes:
        words.replace(max(words.count - back, 0), given_words)
        if pauses:
            words.pause()
        while (sentence := words.sentence(reads_all)).is_complete and sentence.ends:
            assert sentence.first == reached
            words.take(sentence)
            taken.append(sentence.text)
            reached = sentence.end
    words.pause()
    while (sentence := words.sentence(reads_all)).ends:
        words.take(sentence)
        reached = sentence.end
    assert reached == words.count
    assert words.open_words == 0


@given(said=st.lists(st.tuples(WORDS, st.booleans()), max_size=6), most=st.integers(1, 9))
def test_the_complete_sentences_are_those_that_are_taken_one_after_the_other(said, most):
    words = LiveSource("en", 3)
    for texts, pauses in said:
        words.replace(words.count, texts)
        if pauses:
            words.pause()
    found = words.complete(reads_all, most)
    taken = []
    while len(taken) < most and (sentence := words.sentence(reads_all)).is_complete and sentence.ends:
        taken.append(sentence)
        words.take(sentence)
    assert found == taken
