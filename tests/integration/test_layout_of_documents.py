"""Marks of lists, menus and written line breaks in the files of every kind, with a real model."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator

import pytest

from lingon import Model
from tests.support.documents import docx, files_of, paragraph, pptx, run, text_of, xlsx
from tests.support.shipped_model import MODEL

UNITS = [
    ("• ", ["Please close the window."]),
    ("a) ", ["Please close the window."]),
    ("IV. ", ["The old man", "is here."]),
    ("- ", ["Tom lives in Boston."]),
    ("", ["About us", "Contact"]),
    ("> - ", ["bread"]),
]
"""Marks, and the texts after them, which one of SIGNS separates."""
SIGNS = [r"\n", " | ", " · "]
BOLD = "<w:b/>"


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(MODEL) as opened:
        yield opened


def _word(text: str) -> bytes:
    return docx(paragraph(run(text)))


def _slides(text: str) -> bytes:
    return pptx(f"<a:p><a:r><a:t>{html.escape(text, quote=False)}</a:t></a:r></a:p>")


def _sheet(text: str) -> bytes:
    return xlsx(f"<si><t>{html.escape(text, quote=False)}</t></si>")


def _messages(text: str) -> bytes:
    quoted = json.dumps(text, ensure_ascii=False)
    return f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid {quoted}\nmsgstr ""\n'.encode()


def _captions(text: str) -> bytes:
    return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode()


def _page(text: str) -> bytes:
    return f"<table><tr><td>{html.escape(text, quote=False)}</td></tr></table>".encode()


def _translated_text(name: str, content: bytes) -> str:
    """Return the text of a translated file, without tags and escapes."""
    if name.endswith((".docx", ".pptx", ".xlsx")):
        return html.unescape("".join(map(text_of, files_of(content).values())))
    text = content.decode()
    return html.unescape(text.replace("\\\\", "\\")) if name.endswith(".po") else html.unescape(text)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.docx", _word),
        ("a.pptx", _slides),
        ("a.xlsx", _sheet),
        ("a.po", _messages),
        ("a.srt", _captions),
        ("a.html", _page),
        ("a.txt", str.encode),
    ],
)
@pytest.mark.parametrize(("mark", "texts"), UNITS)
def test_the_layout_of_a_unit_is_kept_in_a_file(
    model: Model, name: str, make: Callable[[str], bytes], mark: str, texts: list[str]
):
    for sign in SIGNS if len(texts) > 1 else [""]:
        result = model.translate_document(name, make(mark + sign.join(texts)), beam_size=1)
        expected = mark + sign.join(model.translate(text, beam_size=1).text for text in texts)
        assert expected in _translated_text(name, result.content)
        assert not result.failures


def test_a_mark_in_a_format_of_its_own_keeps_it(model: Model):
    content = docx(paragraph(run("a)", BOLD), run(" Please close the window.")))
    result = model.translate_document("a.docx", content, beam_size=1).content
    (body,) = [text for name, text in files_of(result).items() if name.endswith("document.xml")]
    text = model.translate("Please close the window.", beam_size=1).text
    assert body == files_of(docx(paragraph(run("a)", BOLD), run(f" {text}"))))["word/document.xml"]


def test_two_voices_of_a_caption_keep_their_lines(model: Model):
    for first, second in (("- Yes?", "- Come here."), ("-Yes?", "-Come here."), ("– Yes?", "– Come here.")):
        content = model.translate_document("a.srt", _captions(f"{first}\n{second}"), beam_size=1).content
        dash = first.removesuffix("Yes?")
        voices = [dash + model.translate(text, beam_size=1).text for text in ("Yes?", "Come here.")]
        assert content == _captions("\n".join(voices))
