"""The deltas of a stream are the whole translation, also with bytes, spaces and special tokens between the words."""

from __future__ import annotations

from functools import cache
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.layout import Split, TextLayout
from lingon.serving.translation.detokenizer import IncrementalDetokenizer, PartDetokenizer
from lingon.serving.translation.plans import text_of
from lingon.serving.translation.replies import join
from lingon.text import BOS, EOS, PAD, UNK
from tests.support.shipped_model import tokenizer


@cache
def byte_ids() -> list[int]:
    """The id of every byte piece, by the value of the byte."""
    return [tokenizer().target.piece_to_id(f"<0x{value:02X}>") for value in range(256)]


def spelled(text: str) -> list[int]:
    """The byte pieces that spell a text."""
    return [byte_ids()[value] for value in text.encode()]


SPACE = tokenizer().target.piece_to_id("\u2581")
WORDS = [token for token in range(UNK + 1, tokenizer().target_vocab) if token not in {*byte_ids(), SPACE}]
CHARACTERS = ["€", "😀", "ñ", "\u0301", "\u200b", "\ufeff", "\u00a0", "\u3000", "\u2028", "\x85", " ", "\n", "\0"]
CHUNKS = st.one_of(
    st.sampled_from(WORDS).map(lambda token: [token]),
    st.just([SPACE]),
    st.sampled_from([PAD, BOS, EOS, UNK]).map(lambda token: [token]),
    st.sampled_from(CHARACTERS).map(spelled),
    st.sampled_from(byte_ids()).map(lambda token: [token]),
    st.sampled_from([0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0xC3, 0xED, 0xA0, 0xC0, 0xE0]).map(
        lambda value: [byte_ids()[value]]
    ),
)
"""What models can generate; the last kind makes characters that are cut short or malformed."""

TOKENS = st.lists(CHUNKS, max_size=12).map(lambda chunks: [token for chunk in chunks for token in chunk])
READS = st.lists(st.booleans(), min_size=60, max_size=60)  # whether the client reads after each token


@given(TOKENS, READS)
def test_the_deltas_of_a_part_are_its_text(tokens: list[int], reads: list[bool]):
    """What is shown so far is always the text of all certain tokens, without the white space at its ends."""
    part, shown = PartDetokenizer(tokenizer()), ""
    for index, token in enumerate(tokens):
        part.add(token)
        if reads[index]:
            shown += part.take()
            whole = text_of(tokenizer(), tokens[: index + 1])
            assert whole.startswith(shown)
            assert "\ufffd" in whole[len(shown) :] or whole == shown  # only an unfinished character is held back
    whole = text_of(tokenizer(), tokens)
    assert shown + part.rest(whole) == whole


@given(st.lists(TOKENS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_the_deltas_of_all_parts_are_the_joined_text(parts: list[list[int]], random: Random):
    """Parts are decoded at the same time; their tokens arrive in any order, and an empty part adds no space."""
    sentence = TextLayout.of("One sentence.", Split.SENTENCES)
    detokenizer, shown = IncrementalDetokenizer(tokenizer(), sentence, [0] * len(parts)), ""
    waiting = [list(tokens) for tokens in parts]
    open_parts = list(range(len(parts)))
    while open_parts:
        part = random.choice(open_parts)
        if waiting[part]:
            detokenizer.add(part, waiting[part].pop(0))
        else:
            open_parts.remove(part)
            detokenizer.finish(part, text_of(tokenizer(), parts[part]))
        if random.random() < 0.5:
            shown += detokenizer.take()
    shown += detokenizer.take()
    assert shown == join([text_of(tokenizer(), tokens) for tokens in parts])[0]


def test_a_special_token_between_two_bytes_does_not_end_their_character():
    part = PartDetokenizer(tokenizer())
    first, second = spelled("ñ")
    part.add(first)
    part.add(UNK)
    assert part.take() == ""
    part.add(second)
    assert part.take() == "ñ"


def test_only_the_last_tokens_are_decoded_again():
    decoded: list[int] = []

    class Counting:
        target, moses = tokenizer().target, None

        decode_token = tokenizer().decode_token

        def decode(self, ids: list[int]) -> str:
            decoded.append(len(ids))
            return tokenizer().decode(ids)

    part = PartDetokenizer(Counting())  # type: ignore[arg-type]
    for token in WORDS[:500]:
        part.add(token)
        part.take()
    assert max(decoded) <= 2
