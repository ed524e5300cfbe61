"""Tags of HTML in the texts of files: each is one, but for those in what a text keeps."""

from __future__ import annotations

import html

import pytest

from lingon.documents import read_document
from lingon.documents.marks import tags_of

KEPT = [
    "%<name>s",
    "%<count>.2f",
    "<<name>>",
    "`<b>`",
    "`the guide <guide>`_",
    ":ref:`the guide <guide>`",
    "<%= name %>",
]


@pytest.mark.parametrize("kept", KEPT)
def test_a_kept_string_has_no_tags(kept: str):
    text = f"<b>Open</b> {kept} <i>now</i><br>{kept}."
    assert [tag[0] for tag in tags_of(text)] == ["<b>", "</b>", "<i>", "</i>", "<br>"]
    assert [tag[0] for tag in tags_of(kept)] == []


@pytest.mark.parametrize("kept", KEPT)
def test_a_kept_string_is_whole_in_the_texts_of_files(kept: str):
    written = html.escape(kept, quote=False)
    plain = kept.replace('"', '\\"')
    unit = f"<trans-unit><source>Open {written} now.</source></trans-unit>"
    files = {
        "a.xlf": f'<xliff version="1.2"><file>{unit}</file></xliff>',
        "strings.xml": f'<resources><string name="a">Open {written} now.</string></resources>',
        "a.json": f'{{"a": "Open {plain} now."}}',
        "a.po": f'msgid "Open {plain} now."\nmsgstr ""\n',
    }
    for name, content in files.items():
        (text,) = read_document(name, content.encode(), "de").texts
        assert written in text or kept in text, name


@pytest.mark.parametrize("kept", ["%NAME%", "50%", "%<name>s", "%s%"])
@pytest.mark.parametrize("name", ["a.po", "a.json"])
def test_a_tag_right_around_a_kept_string_is_around_it(kept: str, name: str):
    text = f"Open <b>{kept}</b> now."
    content = {"a.po": f'msgid "{text}"\nmsgstr ""\n', "a.json": f'{{"a": "{text}"}}'}[name]
    assert read_document(name, content.encode(), "de").texts == [
        f'Open <s i="0">{kept.replace("<", "&lt;").replace(">", "&gt;")}</s> now.'
    ]


def test_tags_of_any_text_are_found_in_a_time_that_grows_with_it():
    assert len(list(tags_of("<b>%<a>s</b> `<i>` " * 1_000))) == 2_000
