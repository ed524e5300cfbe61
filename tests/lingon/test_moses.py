"""Moses tokens and byte-pair merges behind the methods of a sentencepiece model."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon.errors import BundleError
from lingon.moses import MosesPieces, apply_merges, serialised
from lingon.serving.translation.detokenizer import PartDetokenizer
from lingon.serving.translation.replies import generated_spans, source_spans
from lingon.text import UNK, Tokenizer, normalise
from tests.support.foreign_models import HEAD, lines, moses_tokens
from tests.support.tokenizers import END, learn_merges, pieces_of, slow_pieces

MARKS = [
    "&apos;",
    "&quot;",
    "&apos;s",
    "&amp;",
    "@-@",
    ",",
    ".",
    "(",
    ")",
    "$",
    "%",
    "«",
    "»",
    "“",
    "Tom",
    "1",
    "?",
    "!",
]
TOKENS = moses_tokens("en") + moses_tokens("de") + Counter(dict.fromkeys(MARKS, 1000))
MERGES = learn_merges(TOKENS, 150)
WORDS = sorted(TOKENS)[::40]
PIECES = ["<pad>", "<s>", "</s>", "<unk>", *pieces_of(TOKENS, MERGES), ">>de<<"]


def content(language: str = "en", **changed: Any) -> bytes:
    written = serialised(language, PIECES, [len(PIECES) - 1], [" ".join(pair) for pair in MERGES])
    return json.dumps(json.loads(written) | changed).encode() if changed else written


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(content("en"), content("de"))


@given(
    st.text("abc", min_size=1, max_size=30),
    st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=3), st.text("abc", min_size=1, max_size=3)),
        max_size=12,
        unique=True,
    ),
)
@example("ababc", [("ab", "a"), ("a", "b")])
def test_merges_are_applied_by_their_definition(word: str, merges: list[tuple[str, str]]) -> None:
    """Also where a later merge makes a symbol that an earlier one takes."""
    merges = [*merges, *((first, second + END) for first, second in merges)]
    found = apply_merges([*word[:-1], word[-1] + END], {pair: rank for rank, pair in enumerate(merges)})
    assert found == slow_pieces(word, merges)


def test_a_long_word_takes_no_time_that_grows_with_its_square(tokenizer: Tokenizer) -> None:
    began = time.process_time()
    assert len(tokenizer.source.encode("xy" * 20_000)) > 20_000
    assert time.process_time() - began < 20  # the definition takes minutes


def test_pieces_of_a_text_cover_it(tokenizer: Tokenizer) -> None:
    for text in map(normalise, [*lines("en")[:60], "”Tom” – isn’t “here”… e.g. a-b & <b>x</b>"]):
        segmented = tokenizer.source.encode(text, return_type="proto")
        assert "".join(piece.surface for piece in segmented.pieces) == text
        assert len(segmented.pieces) == len(tokenizer.source.encode(text))
        spans = source_spans(tokenizer, text)
        assert spans == sorted(spans)


def test_spans_are_those_of_the_words(tokenizer: Tokenizer) -> None:
    text = "Tom isn't a well-known man."
    words: list[list[tuple[int, int]]] = [[]]
    pieces = tokenizer.source.encode(text, return_type="proto").pieces
    for piece, span in zip(pieces, source_spans(tokenizer, text), strict=True):
        words[-1].append(span)
        if piece.piece.endswith(END):
            words.append([])
    shown = [text[word[0][0] : word[-1][1]] for word in words[:-1]]
    assert shown == ["Tom", "isn", "'t", "a", "well", "-", "known", "man", "."]


def test_a_code_of_a_language_in_a_text_stays_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.source.piece_to_id(">>de<<") == len(PIECES) - 1
    for text in (">>de<<", "Tom >>de<< Tom", "<unk>", "</s>"):
        assert not {0, 1, 2, len(PIECES) - 1}.intersection(tokenizer.source.encode(text))


@given(st.sampled_from(["de", "fr", "cs"]), st.lists(st.sampled_from([*MARKS, *WORDS]), max_size=20))
@example("de", ["Tom", "?", "@-@", "Tom"])
@example("cs", ["Tom", "Tom", "1", ","])
def test_streams_add_up_to_the_text(language: str, tokens: list[str]) -> None:
    tokenizer = TOKENIZERS[language]
    ids = [tokenizer.target.piece_to_id(piece) for token in tokens for piece in slow_pieces(token, MERGES)]
    assert UNK not in ids
    detokenizer, shown = PartDetokenizer(tokenizer), ""
    for token in ids:
        detokenizer.add(token)
        shown += detokenizer.take()
    text = tokenizer.decode(ids).strip()
    assert shown + detokenizer.rest(text) == text
    spans = generated_spans(tokenizer, ids)
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)


def test_a_stream_shows_text_before_its_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_target("Tom hat gesagt, dass er das nicht gemacht hat.")
    detokenizer = PartDetokenizer(tokenizer)
    for token in ids[:-1]:
        detokenizer.add(token)
    assert len(detokenizer.take()) > 20


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "other"}, "kind must be 'moses-bpe' and language a code of Moses"),
        ({"pieces": [*HEAD, "a", "a"]}, "pieces must be different texts that are not empty"),
        ({"pieces": [*HEAD, "a", "\ud800"]}, "pieces must be Unicode, which has no lone surrogates"),
        ({"pieces": ["<pad>"], "controls": []}, "must have more than 3 pieces, has 1"),
        ({"pieces": "abc"}, "pieces must be a list of texts"),
        ({"controls": [10**6]}, f"controls must be ids of pieces, 0 to {len(PIECES) - 1:,}"),
        ({"merges": ["a  b"]}, "a merge must be two pieces with a space between them, is 'a  b'"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BundleError) as raised:
        MosesPieces(content(**changed), "source.model", UNK)
    assert str(raised.value) == f"source.model: {said}"


def test_a_file_that_is_cut_off_is_refused() -> None:
    with pytest.raises(BundleError, match=r"source.model: not a vocabulary of Moses pieces \(it is not JSON\)"):
        Tokenizer(content()[:-10], content())


TOKENIZERS = {language: Tokenizer(content("en"), content(language)) for language in ("de", "fr", "cs")}
