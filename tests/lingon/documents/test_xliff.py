"""XLIFF: which units are translated, and that codes, states and all else in a file are as they should be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document, suffix_of
from lingon.documents.xml_tree import read_tree

ADDRESS = "urn:oasis:names:tc:xliff:document"
STATES = 'state="needs-review-translation" state-qualifier="mt-suggestion"'


def one(units: str, file: str = 'target-language="de"') -> str:
    return f'<xliff xmlns="{ADDRESS}:1.2" version="1.2"><file {file}><body>{units}</body></file></xliff>'


def two(units: str, root: str = 'trgLang="de"') -> str:
    return f'<xliff xmlns="{ADDRESS}:2.0" version="2.0" {root}><file id="f">{units}</file></xliff>'


def translated(text: str, translate: Callable[[str], str] = str.upper, target: str = "de") -> str:
    document = read_document("a.xlf", text.encode(), target)
    return document.write(list(map(translate, document.texts))).decode()


def texts_of(text: str) -> list[str]:
    return list(read_document("a.xliff", text.encode()).texts)


def test_a_source_without_a_target_gets_one_that_is_indented_as_it_is():
    unit = "<trans-unit id='1'>\n  <source>Salt &amp; more</source>{}\n  <note>A note</note></trans-unit>"
    target = f"\n  <target {STATES}>SALT &amp; MORE</target>"
    assert translated(one(unit.format("")), lambda _: "SALT &amp; MORE") == one(unit.format(target))


def test_the_names_of_elements_keep_their_prefix():
    text = f'<x:xliff xmlns:x="{ADDRESS}:1.2"><x:trans-unit><x:source>Tom</x:source></x:trans-unit></x:xliff>'
    assert f"</x:source><x:target {STATES}>TOM</x:target>" in translated(text)


@pytest.mark.parametrize(
    "target", ["<target/>", '<target state="new"></target>', '<target state="needs-translation">Tim</target>']
)
def test_a_target_that_waits_for_its_translation_is_replaced(target: str):
    text = one(f"<trans-unit><source>Tom</source>{target}</trans-unit>")
    assert translated(text) == text.replace(target, f"<target {STATES}>TOM</target>")


@pytest.mark.parametrize(
    "unit",
    [
        "<trans-unit><source>Tom</source><target>Tim</target></trans-unit>",
        '<trans-unit><source>Tom</source><target state="needs-review-translation">Tim</target></trans-unit>',
        '<trans-unit><source>Tom</source><target state="final"/></trans-unit>',
        '<trans-unit approved="yes"><source>Tom</source></trans-unit>',
        '<trans-unit translate="no"><source>Tom</source></trans-unit>',
        '<group translate="no"><trans-unit><source>Tom</source></trans-unit></group>',
        "<trans-unit><source>42</source></trans-unit>",
        '<trans-unit><note>A note</note><x:source xmlns:x="x">Tom</x:source></trans-unit>',
    ],
)
def test_a_unit_that_somebody_has_translated_or_protected_stays(unit: str):
    text = one(unit, file="")
    assert (texts_of(text), translated(text)) == ([], text)


def test_a_unit_in_a_group_that_is_not_translated_may_be_translated():
    text = one('<group translate="no"><trans-unit translate="yes"><source>Tom</source></trans-unit></group>')
    assert texts_of(text) == ["Tom"]


def test_codes_become_tags_and_are_written_as_they_were():
    codes = '<g id="1">red car</g> in <bpt id="2">&lt;b></bpt>Boston<ept id="2">&lt;/b></ept><x id="3"/> now'
    text = one(f"<trans-unit><source>A {codes}.</source></trans-unit>")
    (found,) = texts_of(text)
    assert found == 'A <s i="0">red car</s> in <s i="1">Boston</s><v i="0"/> now.'
    moved = '<x id="3"/><bpt id="2">&lt;b></bpt>B<ept id="2">&lt;/b></ept> <g id="1">A</g>.'
    assert moved in translated(text, lambda _: '<v i="0"/><s i="1">B</s> <s i="0">A</s>.')


def test_codes_that_cross_each_other_or_have_no_end_are_kept_one_by_one():
    source = '<bx id="1"/>a <bx id="2"/>b <ex id="3" rid="1"/>c<ex id="4" rid="2"/> <bx id="5"/>d'
    text = one(f"<trans-unit><source>x {source} y</source></trans-unit>")
    assert source in translated(text, str).partition("<target")[2]


def test_segments_that_a_tool_has_cut_stay_segments():
    segments = '<mrk mtype="seg" mid="1">Yes.</mrk> <mrk mtype="seg" mid="2">No <ph id="1">{0}</ph>.</mrk>'
    text = one(f"<trans-unit><source>Yes. No.</source><seg-source>{segments}</seg-source></trans-unit>")
    assert f"</seg-source><target {STATES}>{segments}</target>" in translated(text, str)


def test_a_segment_of_version_2_gets_a_target_and_the_state_translated():
    codes = (
        '<pc id="1">Tom</pc><ph id="2"/> and <sc id="3"/>me<ec startRef="3"/> and <mrk id="m" translate="no">I</mrk> go'
    )
    text = two(f"<unit><segment><source>{codes}</source></segment></unit>")
    assert texts_of(text) == ['<s i="0">Tom</s><v i="0"/> and <s i="1">me</s> and <v i="1"/> go']
    expected = text.replace("<segment>", '<segment state="translated">')
    assert translated(text, str) == expected.replace("</source>", f"</source><target>{codes}</target>")


@pytest.mark.parametrize(
    ("segment", "found"),
    [
        ('<segment state="initial" subState="a:b"><source>Tom</source><target>Tim</target></segment>', ["Tom"]),
        ("<segment><source>Tom</source><target/></segment>", ["Tom"]),
        ("<segment><source>Tom</source><target>Tim</target></segment>", []),
        ('<segment state="reviewed"><source>Tom</source></segment>', []),
        ("<ignorable><source>Tom</source></ignorable>", []),
    ],
)
def test_a_segment_of_version_2_that_has_a_translation_stays(segment: str, found: list[str]):
    text = two(f"<unit>{segment}</unit>")
    assert texts_of(text) == found
    result = '<segment state="translated"><source>Tom</source><target>TOM</target></segment>'
    assert translated(text) == (two(f"<unit>{result}</unit>") if found else text)


def test_the_target_language_is_set_where_it_is_missing_and_known():
    first = one("<trans-unit><source>Tom</source></trans-unit>", file='original="a"')
    second = two("<unit><segment><source>Tom</source></segment></unit>", root='srcLang="en"')
    assert '<file target-language="de" original="a">' in translated(first)
    assert '<xliff trgLang="de" xmlns=' in translated(second)
    assert "target-language" not in translated(first, target="")
    assert 'target-language="de-AT"' in translated(first.replace("original", 'target-language="de-AT" original'))


def test_a_line_break_between_two_words_of_a_sentence_does_not_end_it():
    text = one("<trans-unit><source>\n  The old\n  man.\n  The sea.\n</source></trans-unit>")
    assert texts_of(text) == ['The old <v i="0"/>man.<b i="1"/>The sea.']
    assert ">\n  The old\n  man.\n  The sea.\n</target>" in translated(text, str)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a/>", "the file is not XLIFF of version 1.2 or 2"),
        ('<xliff version="3.0"/>', "the file is not XLIFF of version 1.2 or 2"),
        (one("<trans-unit>"), "the XML in the file is not well-formed at line 1"),
        (one("<group>" * 70 + "</group>" * 70), "has elements in more than 64 others"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><xliff version="1.2">&b;</xliff>', "has a document type"),
        (one("<a/>" * 100), "the file has 106 tags; at most 100"),
    ],
)
def test_a_broken_or_hostile_file_is_refused_in_one_line(text: str, message: str, monkeypatch: pytest.MonkeyPatch):
    if "100" in message:
        monkeypatch.setattr("lingon.documents.document.MOST_TAGS", 100)
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.xlf", text.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_without_a_name_is_known_by_its_root():
    content = b'<?xml version="1.0"?>\n' + one("").encode()
    assert suffix_of(content) == ".xlf"


CODES = st.recursive(
    st.sampled_from(["Tom ", "&lt;", "\n", '<x id="1"/>', '<bx id="2"/>', '<ex id="3" rid="2"/>', "<ph>{0}</ph>"]),
    lambda inside: st.lists(inside, max_size=4).map(lambda each: f'<g id="4">{"".join(each)}</g>'),
)


@given(st.lists(CODES, max_size=6).map("".join))
def test_a_translation_that_is_the_text_gives_a_target_that_is_the_source(source: str):
    text = one(f"<trans-unit><source>{source}</source></trans-unit>")
    if texts_of(text):
        assert f"{STATES}>{source}</target>" in translated(text, str)


SIGNS = st.sampled_from(["", "<", ">", "</", '"', "&", "/"])
WHOLE = two('<unit><segment state="initial"><source>A <pc id="1">b</pc></source><target/></segment></unit>')


@given(st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 9), SIGNS), max_size=3))
def test_altered_files_are_read_and_written_well_formed_or_refused(changes: list[tuple[int, int, str]]):
    altered = WHOLE
    for place, count, sign in changes:
        altered = altered[:place] + sign + altered[place + count :]
    with suppress(UnreadableDocument):
        document = read_document("a.xlf", altered.encode(), "de")
        read_tree(document.write(document.texts), {}, ())


def test_a_new_state_replaces_an_old_one_and_nothing_inside_of_a_value():
    target = '<target resname=\' state="a"\' state = "new"\n/>'
    unit = f'<trans-unit id="1"><source>Tom</source>{target}</trans-unit>'
    assert f"<target resname=' state=\"a\"' {STATES}>TOM</target>" in translated(one(unit))
