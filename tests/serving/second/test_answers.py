"""What is read from an answer of the second translator, and what is no answer."""

from __future__ import annotations

import json
import time

import pytest

from lingon.serving.second.answers import NoAnswer, NotTaken, Rejected, content_of, translation_in


def reply(content: object, **choice: object) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content}, **choice}]}).encode()


@pytest.mark.parametrize(
    "content",
    [
        '{"translation": "Guten Tag."}',
        ' {"translation":"Guten\\nTag."}\n',
        '```json\n{"translation": "Guten Tag."}\n```',
        '<think>\nA greeting: {"translation": "no"}</think>\n{"translation": "Guten Tag."}',
    ],
)
def test_the_translation_is_the_value_of_the_object(content):
    assert translation_in(content_of(reply(content)), 100) == "Guten Tag."


@pytest.mark.parametrize(
    "content",
    [
        "",
        "I'm sorry, but I can't help with that.",
        "Guten Tag.",
        '{"translation": " "}',
        '{"translation": 3}',
        '{"translation": "Guten Tag.", "note": "formal"}',
        '["Guten Tag."]',
        'Here it is: {"translation": "Guten Tag."}',
        '{"translation": "Guten \\ud800"}',
        "[" * 100_000,
    ],
)
def test_another_content_is_no_answer(content):
    with pytest.raises(NoAnswer):
        translation_in(content, 100)


def test_an_answer_of_many_lines_is_read_in_one_pass():
    begin = time.process_time()
    with pytest.raises(NoAnswer):
        translation_in("```" + "\n" * 100_000 + "x", 100)
    assert time.process_time() - begin < 1  # with a pass for each line it takes half a minute


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b"\xff",
        reply(None),
        reply("x", finish_reason="length"),
        reply("x", finish_reason="content_filter"),
    ],
)
def test_another_reply_is_no_answer(body):
    with pytest.raises(NoAnswer):
        content_of(body)


def test_an_answer_that_is_too_long_is_rejected_by_its_length():
    with pytest.raises(Rejected, match="the answer has 11 characters, more than 10"):
        translation_in('{"translation": "12345678901"}', 10)


def test_no_detail_has_the_text_of_the_answer():
    for content in ("secret", '{"translation": "secret secret"}', '{"secret": "x"}'):
        with pytest.raises(NotTaken) as error:
            translation_in(content, 5)
        assert "secret" not in str(error.value)
