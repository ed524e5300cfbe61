"""The texts of pieces agree with the tokenizer, and the states of UTF-8 with Python's decoder."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.constraints.pieces import BETWEEN, MISSING_BYTES, UTF8, Pieces
from lingon.text import UNK
from tests.support.echo_engine import tokenizer, vocabulary


def test_the_texts_of_pieces_joined_are_the_text_of_their_tokens() -> None:
    pieces, draw = vocabulary().pieces, random.Random(3)
    plain = [token for token in range(UNK + 1, len(pieces.texts)) if token not in pieces.bytes_of]
    spelled = tokenizer().encode_target("日本 ɷ 😀 Grüße")
    assert any(token in pieces.bytes_of for token in spelled)
    for _ in range(200):
        tokens = [*draw.choices(plain, k=draw.randint(0, 9)), *spelled, *draw.choices(plain, k=3)]
        joined = b"".join(pieces.texts[token] for token in tokens).decode()
        assert " ".join(joined.split()) == " ".join(tokenizer().decode(tokens).split())


def test_pieces_are_found_by_their_beginning_and_by_what_is_inside() -> None:
    pieces = vocabulary().pieces
    for part in (b"e", b" d", b"er", b" ", "ß".encode(), b"\xc3", b"zzz"):
        texts = enumerate(pieces.texts)
        assert sorted(pieces.beginning_with(part)) == [token for token, text in texts if text.startswith(part)]
        assert pieces.containing(part) == [token for token, text in enumerate(pieces.texts) if part in text]


def test_what_is_inside_the_first_and_the_last_piece_is_found() -> None:
    assert Pieces([b"ab", b"b", b"cab"], {}).containing(b"ab") == [0, 2]


def state_after(data: bytes) -> int | None:
    state = BETWEEN
    for byte in data:
        following = UTF8[state].following.get(byte)
        if following is None:
            return None
        state = following
    return state


def decodes(data: bytes) -> bool:
    try:
        return "\ufffd" not in data.decode()
    except UnicodeDecodeError:
        return False


@given(st.one_of(st.binary(max_size=5), st.text(max_size=3).map(str.encode)))
def test_bytes_are_accepted_if_and_only_if_they_are_utf8_without_the_replacement_character(data: bytes) -> None:
    assert (state_after(data) == BETWEEN) is decodes(data)


def test_every_character_is_accepted_but_the_replacement_character() -> None:
    points = (point for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    refused = [point for point in points if state_after(chr(point).encode()) != BETWEEN]
    assert refused == [0xFFFD]


def test_a_state_knows_how_many_bytes_complete_its_character() -> None:
    def missing(state: int) -> int:
        return 0 if state == BETWEEN else 1 + min(missing(after) for after in UTF8[state].following.values())

    assert [missing(state) for state in range(len(UTF8))] == list(MISSING_BYTES)
