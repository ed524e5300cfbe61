"""Incremental detokenisation yields the same text as detokenisation of all tokens at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.segments.layout import Split, TextLayout
from lingon.serving.translation.detokenizer import IncrementalDetokenizer, PartDetokenizer
from lingon.serving.translation.plans import text_of
from lingon.serving.translation.replies import join
from tests.support.echo_engine import tokenizer

TOKENS = st.lists(st.integers(4, tokenizer().target_vocab - 1), max_size=40)


@given(TOKENS)
def test_incremental_text_is_never_revised_and_ends_as_the_whole_text(tokens: list[int]):
    detokenizer, shown = PartDetokenizer(tokenizer()), ""
    for token in tokens:
        detokenizer.add(token)
        shown += detokenizer.take()
        assert text_of(tokenizer(), tokens).startswith(shown)
    assert shown + detokenizer.rest(text_of(tokenizer(), tokens)) == text_of(tokenizer(), tokens)


@given(st.lists(TOKENS, min_size=1, max_size=3), st.data())
@settings(max_examples=50)
def test_parts_are_emitted_in_order_whichever_is_decoded_first(parts: list[list[int]], data: st.DataObject):
    document = TextLayout.of("\tA first sentence.\n\nA\xa0second one. ", Split.SENTENCES)
    sentences = sorted(data.draw(st.integers(0, 1)) for _ in parts)
    detokenizer = IncrementalDetokenizer(tokenizer(), document, sentences)
    steps = [(index, token) for index, part in enumerate(parts) for token in [*part, None]]
    order = data.draw(st.permutations([index for index, _ in steps]))
    queues = {index: iter([*part, None]) for index, part in enumerate(parts)}
    whole = [text_of(tokenizer(), part) for part in parts]
    shown = ""
    for index in order:
        token = next(queues[index])
        if token is None:
            detokenizer.finish(index, whole[index])
        else:
            detokenizer.add(index, token)
        shown += detokenizer.take()
    joined = [join([text for text, of in zip(whole, sentences, strict=True) if of == index])[0] for index in (0, 1)]
    assert shown == document.join(joined).text


@given(st.lists(st.sampled_from(["", "a", "b c"]), max_size=5))
def test_join_returns_the_offset_of_each_part(parts: list[str]):
    joined, begins = join(parts)
    assert [joined[begin : begin + len(part)] for begin, part in zip(begins, parts, strict=True)] == parts
    assert joined == " ".join(filter(None, parts))
