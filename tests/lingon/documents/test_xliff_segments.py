"""XLIFF of translation programs: segments, texts in codes, limits of length, and the marks of those programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon import Model
from lingon.documents import Document, read_document
from tests.support.repository import ROOT

ADDRESS = "urn:oasis:names:tc:xliff:document"
STATES = 'state="needs-review-translation" state-qualifier="mt-suggestion"'


def one(units: str, namespaces: str = "") -> str:
    return (
        f'<xliff xmlns="{ADDRESS}:1.2"{namespaces} version="1.2"><file source-language="en" target-language="de">'
        f"<body>{units}</body></file></xliff>"
    )


def two(units: str) -> str:
    slr = 'xmlns:slr="urn:oasis:names:tc:xliff:sizerestriction:2.0"'
    return f'<xliff xmlns="{ADDRESS}:2.0" {slr} version="2.0" trgLang="de"><file id="f">{units}</file></xliff>'


def read(text: str, name: str = "a.xlf") -> Document:
    return read_document(name, text.encode(), "de")


def translated(text: str, translate: Callable[[str], str] = str.upper, name: str = "a.xlf") -> str:
    document = read(text, name)
    return document.write([translate(each) for each in document.texts]).decode()


def seg(number: int, text: str) -> str:
    return f'<mrk mtype="seg" mid="{number}">{text}</mrk>'


def unit(source: str, target: str) -> str:
    plain = re.sub("<mrk[^>]*>|</mrk>", "", source)
    return f'<trans-unit id="u"><source>{plain}</source><seg-source>{source}</seg-source>{target}</trans-unit>'


def contents(text: str) -> list[str]:
    """Return what is in each segment of the first target."""
    root = ElementTree.fromstring(text)
    target = next(each for each in root.iter() if each.tag.endswith("}target"))
    return ["".join(each.itertext()) for each in target.iter() if each.tag.endswith("}mrk")]


WRAPS = ["{}", '<g id="1">{}</g>', '<g id="1"><g id="2">{}</g></g>', '<x id="9"/>{}<x id="8"/>']


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("empty", ['<mrk mtype="seg" mid="{}"/>', '<mrk mtype="seg" mid="{}"></mrk>'])
@given(filled=st.lists(st.booleans(), min_size=1, max_size=6))
def test_each_segment_without_text_is_filled_and_each_other_one_stays(wrap: str, empty: str, filled: list[bool]):
    source = wrap.format(" ".join(seg(number, f"Text {chr(97 + number)}.") for number in range(len(filled))))
    inside = [seg(number, f"Da {number}") if done else empty.format(number) for number, done in enumerate(filled)]
    text = one(unit(source, f"<target>{wrap.format(' '.join(inside))}</target>"))
    expected = [f"Da {number}" if done else f"TEXT {chr(65 + number)}." for number, done in enumerate(filled)]
    result = translated(text)
    assert contents(result) == expected
    assert len(read(text).texts) == filled.count(False)
    if all(filled):
        assert result == text


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("target", ["", "<target/>", '<target><g id="1"/></target>', '<target state="new"></target>'])
def test_a_target_without_text_becomes_the_source_with_each_segment_translated_alone(wrap: str, target: str):
    source = wrap.format(f"{seg(1, 'One.')}\n {seg(2, 'Two.')}")
    text = one(unit(source, target))
    assert read(text).texts == ["One.", "Two."]
    assert f"{STATES}>{source}</target>" in translated(text, str)


@given(st.lists(st.booleans(), min_size=2, max_size=6).filter(any))
def test_a_segment_that_the_target_lacks_comes_between_those_beside_it(there: list[bool]):
    source = " ".join(seg(number, f"Text {number}.") for number in range(len(there)))
    target = " ".join(seg(number, f"Da {number}") for number, each in enumerate(there) if each)
    result = translated(one(unit(source, f"<target>{target}</target>")))
    assert contents(result) == [f"Da {n}" if each else f"TEXT {n}." for n, each in enumerate(there)]


def test_in_a_target_to_be_translated_a_copy_of_the_source_has_no_translation():
    target = f'<target state="needs-translation">{seg(1, "One.")} {seg(2, "Zwei.")}</target>'
    text = one(unit(f"{seg(1, 'One.')} {seg(2, 'Two.')}", target))
    assert contents(translated(text)) == ["ONE.", "Zwei."]


def test_empty_segments_that_the_source_does_not_have_stay_and_are_said():
    target = f"<target>{seg(1, 'Eins.')} {seg(2, '')}</target>"
    text = one(f"<trans-unit id='u'><source>One. Two.</source>{target}</trans-unit>")
    document = read(text)
    assert document.write([]).decode() == text
    said = "1 unit has empty segments, which stay as the source is not cut into segments; the first is 'u'"
    assert said in document.notes
    assert read(text.replace("<source>One. Two.", f"<source>{seg(1, 'One.')} {seg(2, 'Two.')}")).texts == ["Two."]


def test_letters_outside_of_segments_are_translated_with_them():
    text = one(unit(f"Before {seg(1, 'one.')} after", "<target/>"))
    assert len(read(text).texts) == 1
    assert "BEFORE" in translated(text, lambda each: each.replace("Before", "BEFORE"))


@pytest.mark.parametrize("codes", ['<x id="1"/>', '<ph id="1">&lt;br/></ph>', '<g id="1"><x id="2"/></g> ', "<bpt/>"])
def test_a_target_that_has_only_codes_is_none(codes: str):
    text = one(f"<trans-unit><source>{codes}The door is open.</source><target>{codes}</target></trans-unit>")
    assert "THE DOOR" in translated(text, lambda each: each.replace("The door", "THE DOOR"))
    pc = '<ph id="1"/>'
    text = two(f"<unit><segment><source>{pc}Tom</source><target>{pc}</target></segment></unit>")
    assert f"<target>{pc}TOM</target>" in translated(text)


@pytest.mark.parametrize("code", ["ph", "bpt", "it", "ept"])
def test_the_text_of_a_sub_in_a_code_is_translated_as_a_text_of_its_own(code: str):
    inside = f'<{code} id="1">&lt;img alt="<sub>A picture</sub>" title="<sub>The <g id="5">sea</g></sub>"></{code}>'
    text = one(f"<trans-unit><source>Look here {inside} now.</source></trans-unit>")
    assert sorted(read(text).texts)[0] == "A picture"
    assert len(read(text).texts) == 3
    result = translated(text, lambda each: each.replace("picture", "PICTURE").replace("sea", "SEA"))
    expected = inside.replace("picture", "PICTURE").replace(">sea<", ">SEA<")
    assert f"Look here {expected} now.</target>" in result


def test_a_unit_whose_only_text_is_in_a_code_is_translated():
    text = one("<trans-unit><source><ph>a=<sub>A picture</sub></ph></source></trans-unit>")
    assert "><ph>a=<sub>A PICTURE</sub></ph></target>" in translated(text)


@pytest.mark.parametrize("limit", ['maxwidth="4" size-unit="char"', 'maxwidth="4" size-unit="byte"', 'maxbytes="4"'])
@pytest.mark.parametrize("on_group", [False, True])
def test_a_translation_longer_than_its_limit_is_whole_and_marked_and_said(limit: str, on_group: bool):
    start = f'<group {limit}><trans-unit id="u">' if on_group else f'<group><trans-unit id="u" {limit}>'
    text = one(f"{start}<source>Tom</source></trans-unit></group>")
    for translation, qualifier in (("Anna", "mt-suggestion"), ("Annas", "rejected-length")):
        document = read(text)
        expected = f'<target state="needs-review-translation" state-qualifier="{qualifier}">{translation}</target>'
        assert expected in document.write([translation]).decode()
        assert bool(document.notes) == (translation == "Annas")
    assert "unit 'u' has 5 " in document.notes[0]


def test_a_limit_in_pixels_is_not_counted():
    text = one('<trans-unit maxwidth="1"><source>Tom</source></trans-unit>')
    assert "mt-suggestion" in translated(text)


@pytest.mark.parametrize(
    "limit", ["slr:sizeRestriction='1,4'", "slr:sizeRestriction='4'", "slr:storageRestriction='4'"]
)
def test_version_2_marks_a_translation_longer_than_its_limit(limit: str):
    text = two(f"<unit id='u' {limit}><segment><source>Tom</source></segment></unit>")
    assert '<segment state="translated" subState="lingon:too-long">' in translated(text, lambda _: "Annas")
    assert '<segment state="translated">' in translated(text, lambda _: "Anna")


def test_version_2_counts_all_segments_of_a_unit():
    segments = (
        "<segment><source>Tom</source></segment><ignorable><source>, </source></ignorable>"
        "<segment><source>Al</source><target>Max</target></segment><segment><source>me</source></segment>"
    )
    for limit, too_long in ((10, False), (9, True)):
        document = read(two(f"<unit id='u' slr:sizeRestriction='{limit}'>{segments}</unit>"))
        written = document.write(["Tim", "du"]).decode()
        assert written.count('subState="lingon:too-long"') == 2 * too_long
        assert document.notes == [NOTE.format(10, 9)] * too_long


NOTE = "1 translation is longer than the file allows, and marked in it: unit 'u' has {} characters, at most {}"


def test_a_text_in_cdata_is_written_in_cdata_and_its_tags_are_marks():
    text = one("<trans-unit><source><![CDATA[<b>Tom</b> & me]]></source></trans-unit>")
    assert read(text).texts == ['<s i="0">Tom</s> &amp; me']
    assert f"<target {STATES}><![CDATA[<b>Tom</b> & me]]></target>" in translated(text, str)


@pytest.mark.parametrize("tag", ["b", "strong", "a"])
def test_escaped_tags_of_html_are_marks(tag: str):
    source = f"A &lt;{tag}&gt;red&lt;/{tag}&gt; car"
    text = one(f"<trans-unit><source>{source}</source></trans-unit>")
    assert read(text).texts == ['A <s i="0">red</s> car']
    assert f">{source}</target>" in translated(text, str)


def test_what_a_mark_of_version_2_protects_stays():
    source = 'Go to <sm id="1" translate="no"/>Salt <ph id="2"/><em startRef="1"/> now'
    text = two(f"<unit><segment><source>{source}</source></segment></unit>")
    assert read(text).texts == ['Go to <v i="0"/> now']
    assert f"<target>{source}</target>" in translated(text, str)


def sdl(states: str, target: str = "") -> str:
    source = f"{seg(1, 'One.')} {seg(2, 'Two.')}"
    text = unit(source, target).replace("</trans-unit>", f"<sdl:seg-defs>{states}</sdl:seg-defs></trans-unit>")
    return one(text, ' xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"')


def test_segments_of_sdlxliff_say_that_they_are_machine_translation():
    text = sdl('<sdl:seg id="1"/><sdl:seg id="2" conf="Translated" />', f"<target>{seg(1, '')} {seg(2, '')}</target>")
    result = translated(text, name="a.sdlxliff")
    assert '<sdl:seg id="1" conf="Draft" origin="mt"/><sdl:seg id="2" conf="Translated" />' in result
    assert f"<target>{seg(1, 'ONE.')} {seg(2, '')}</target>" in result


@pytest.mark.parametrize("lock", ['locked="true"', 'conf="ApprovedSignOff"'])
def test_segments_of_sdlxliff_that_are_locked_or_confirmed_stay(lock: str):
    text = sdl(f'<sdl:seg id="1" {lock}/><sdl:seg id="2" {lock}/>')
    assert translated(text, name="a.sdlxliff") == text


def test_locked_units_of_mxliff_stay_and_its_codes_are_marks():
    units = (
        '<trans-unit id="a" m:locked="true"><source>Tom</source><target></target></trans-unit>'
        '<trans-unit id="b" m:locked="false"><source>A {b&gt;red&lt;b} car {1}</source><target></target>'
        "<alt-trans><target>Ein Auto</target></alt-trans></trans-unit>"
    )
    text = one(units, ' xmlns:m="http://www.memsource.com/mxlf/2.0"')
    assert read(text, "a.mxliff").texts == ['A <s i="0">red</s> car ']
    assert translated(text, str, "a.mxliff") == text.replace(
        "</source><target></target><alt", f"</source><target {STATES}>A {{b&gt;red&lt;b}} car {{1}}</target><alt"
    )


@pytest.fixture(scope="module")
def model():
    with Model(ROOT / "models" / "en-de") as found:
        yield found


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_model_translates_each_segment_as_it_translates_its_text(model: Model, wrap: str):
    sentences = ["The first house is here.", "The next house is small."]
    source = wrap.format(" ".join(seg(number, each) for number, each in enumerate(sentences)))
    target = wrap.format(" ".join(seg(number, "") for number in range(2)))
    result = model.translate_document("a.xlf", one(unit(source, f"<target>{target}</target>")).encode(), beam_size=1)
    assert contents(result.content.decode()) == [model.translate(each, beam_size=1).text for each in sentences]


UNIT = "<trans-unit id='1'><source>Tom</source>{}</trans-unit>"
OTHERS = [
    "<note>A note</note>",
    "<alt-trans><source>Tom</source><target>Tim</target></alt-trans>",
    '<context-group purpose="location"><context context-type="sourcefile">a.c</context></context-group>',
    "<prop-group><prop prop-type='a'>b</prop></prop-group>",
    '<x:any xmlns:x="x">Tom</x:any>',
    "<!-- a comment -->",
    "<?a b?>",
    "\n    ",
]
BESIDE = [
    "<bin-unit id='2' mime-type='a/b'><bin-source><internal-file>Tom</internal-file></bin-source></bin-unit>",
    "<trans-unit id='3' approved='yes'><source>Tom</source></trans-unit>",
    "<trans-unit id='4'><source>42</source></trans-unit>",
    "\r\n",
]


@given(
    st.lists(st.sampled_from(OTHERS), max_size=4).map("".join),
    st.lists(st.sampled_from(BESIDE), max_size=4).map("".join),
)
def test_all_but_the_target_stays(inside: str, beside: str):
    text = one(beside + UNIT.format(inside) + beside)
    assert translated(text).replace(f"<target {STATES}>TOM</target>", "") == text


def test_each_file_in_one_gets_its_language_and_its_targets():
    files = "".join(f"<file id='{each}'><trans-unit><source>Tom</source></trans-unit></file>" for each in "abc")
    written = translated(f"<xliff version='1.2'>{files}</xliff>")
    assert written.count('<file target-language="de" id=') == written.count(">TOM</target>") == 3


@pytest.mark.parametrize("version", ["1.2", "2.0"])
def test_a_file_that_says_another_language_keeps_it_and_that_is_said(version: str):
    make = two if version == "2.0" else one
    unit = "<unit><segment><source>Tom</source></segment></unit>" if version == "2.0" else UNIT.format("")
    for language, count in (("fr-CA", 1), ("de-AT", 0), ("deu", 0)):
        document = read(make(unit).replace('"de"', f'"{language}"'))
        assert f'"{language}"' in document.write(["Tim"]).decode()
        assert len(document.notes) == count


def test_paragraphs_of_html_in_a_text_are_sentences_of_their_own():
    html = "<p>One <b>red</b> car</p><ul><li>Two</li></ul>"
    text = one(f"<trans-unit><source><![CDATA[{html}]]></source></trans-unit>")
    (found,) = read(text).texts
    assert found == 'One <s i="0">red</s> car<b i="0"/><b i="1"/><b i="2"/>Two'
    assert html in translated(text, str).partition("<target")[2]
