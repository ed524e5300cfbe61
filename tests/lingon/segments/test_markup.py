"""HTML and XML as blocks and back: what is not translated is kept byte for byte, each tag comes exactly once."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import MarkupError, SettingsError
from lingon.segments.markup import Markup, TranslatedBlock, WrittenMarkup, read_html, read_xml
from lingon.segments.markup_blocks import STAND_IN, Block
from lingon.segments.markup_tokens import TEXT, MarkupRules, html_tokens
from lingon.segments.placing_alignment import Aligned, KeptCopy
from tests.support.documents import ANY_TEXT, WELL_FORMED
from tests.support.timing import run_to_end

PROLOG = "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY c 'Co>'>]>\n"
HOSTILE = [
    "<",
    "&",
    "<b>",
    '<a b="',
    "<a b='",
    "<a ",
    "<!",
    "</",
    "<!--",
    "<![CDATA[",
    "<p>x",
    "</b>",
    "<script>",
    "&amp",
    "<b><i>x</b></i>",
    "&x",
]


def translation_of(block: Block, text: str, segments: list[Aligned]) -> TranslatedBlock:
    """A translation in which STAND_IN stands, in each segment, for what is kept, in the same order."""
    kept: dict[int, int] = {}
    for (begin, end), (first, last), *_ in segments:
        inside = [place for place in block.kept if begin <= place < end]
        found = (at for at in range(first, last) if text[at] == STAND_IN)
        kept.update(zip(inside, found, strict=False))
    aligned = [segment._replace(kept=pairs_in(segment, kept)) for segment in segments]
    return TranslatedBlock(text, tuple(aligned), kept)


def pairs_in(segment: Aligned, kept: dict[int, int]) -> list[KeptCopy]:
    """What is kept in a segment, by the places of STAND_IN."""
    begin, end = segment.source
    return [KeptCopy((place, place + 1), (copy, copy + 1)) for place, copy in kept.items() if begin <= place < end]


def written(markup: Markup, translations: list[TranslatedBlock | None]) -> WrittenMarkup:
    """The text with its translations, in one go."""
    return run_to_end(markup.write(translations))


def translated(markup: Markup, translate=str.swapcase, *, every: int = 1) -> str:
    """The text with its blocks translated, each as one segment whose words stay in order."""
    results = []
    for number, block in enumerate(markup.blocks):
        text = translate(block.text) if number % every == 0 else block.text
        segment = Aligned((0, len(block.text)), (0, len(text)))
        results.append(translation_of(block, text, [segment]))
    return written(markup, results).text


def markup_of(text: str) -> Counter[str]:
    return Counter(text[begin:end] for kind, begin, end, _ in html_tokens(text) if kind != TEXT)


@given(ANY_TEXT)
def test_html_whose_text_comes_back_unchanged_is_the_same_byte_for_byte(text):
    markup = read_html(text)
    assert translated(markup, str) == text
    assert written(markup, [None] * len(markup.blocks)).text == text


@given(st.lists(WELL_FORMED, max_size=4).map("".join))
def test_xml_whose_text_comes_back_unchanged_is_the_same_byte_for_byte(text):
    assert translated(read_xml(text), str) == text


@given(ANY_TEXT)
def test_xml_that_is_not_well_formed_is_refused_in_one_line_that_names_the_place(text):
    try:
        read = translated(read_xml(text), str)
    except MarkupError as error:
        read, message = text, str(error)
    else:
        message = "line 1, column 1: "
    assert read == text
    assert re.fullmatch(r"line [1-9]\d*, column [1-9]\d*: .*", message)


@given(ANY_TEXT.filter(lambda text: STAND_IN not in text))
def test_a_translation_of_html_has_every_tag_and_comment_exactly_once(text):
    assert markup_of(translated(read_html(text))) == markup_of(text)


@given(st.lists(WELL_FORMED, max_size=4).map("".join))
def test_a_translation_of_xml_is_well_formed_and_has_each_element_in_the_same_ones(text):
    before, after = (f"<r>{each}</r>" for each in (text, translated(read_xml(text))))
    assert sorted(paths(ElementTree.fromstring(after))) == sorted(paths(ElementTree.fromstring(before)))


def paths(element: ElementTree.Element, above: str = "") -> Iterator[str]:
    yield above
    for child in element:
        yield from paths(child, f"{above}/{child.tag}")


@given(
    st.lists(st.sampled_from(["a & b", "x<y", "&amp;lt;", "a&", "lt;", "\xa0", "1 > 0", "&", "#1;", "b>"])).map("".join)
)
def test_a_browser_reads_the_translation_as_it_is(text):
    markup = read_html("<p>Hello <b>x &lt; y</b> a&b</p>")
    (block,) = markup.blocks
    written = translated(markup, lambda _: f"a {text} &", every=1)
    assert read_html(written).blocks[0].text == f"a {text} &".replace(block.text, block.text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>One.&nbspTwo.</p>", "<p>oNE.&nbsp;tWO.</p>"),
        ("<p>&copyOne</p>", "<p>&copy;oNE</p>"),
        ("<p>&#160One</p>", "<p>&#160;oNE</p>"),
        ("<p>A & b</p>", "<p>a &amp; B</p>"),
    ],
)
def test_a_reference_without_a_semicolon_stays_one(text: str, expected: str):
    markup = read_html(text)
    (block,) = markup.blocks
    changed = block.text.swapcase()
    spans = [found.span() for found in re.finditer(r"[^\s\xa0©]+", block.text)]
    result = translation_of(block, changed, [Aligned(span, span) for span in spans])
    assert written(markup, [result]).text == expected
    assert read_html(expected).blocks[0].text == changed


@pytest.mark.parametrize("kept", ["{x:>9}", "<%= x %>", "a>b"])
@pytest.mark.parametrize("around", ["Hi <b>{}</b>, you", "Hi {}, you <i>too</i>"])
def test_a_kept_string_keeps_its_spelling_beside_other_marks(kept: str, around: str):
    raw = around.format(kept.replace("<", "&lt;"))
    (block,) = (markup := read_html(raw)).blocks
    text = block.text.replace("Hi", "Salut").replace(",", ":")
    source, target = (each.index(kept) for each in (block.text, text))
    spans = (source, source + len(kept)), (target, target + len(kept))
    segment = Aligned((0, len(block.text)), (0, len(text)), None, [KeptCopy(*spans, [spans[0]])])
    result = written(markup, [TranslatedBlock(text, (segment,), {})]).text
    assert result.count(kept.replace("<", "&lt;")) == 1
    assert "&gt;" not in result


def test_words_and_segments_that_are_not_changed_keep_their_spelling():
    markup = read_html("<p>Mr&nbsp;Caf&eacute; &#97;sks. R&D is &lt; 5.</p>")
    (block,) = markup.blocks
    assert block.text == "Mr\xa0Café asks. R&D is < 5."
    text = "Herr\xa0Café fragt. R&D is < 5."
    result = translation_of(block, text, [Aligned((0, 13), (0, 16)), Aligned((14, 24), (17, 27))])
    assert written(markup, [result]).text == "<p>Herr&nbsp;Caf&eacute; fragt. R&D is &lt; 5.</p>"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("<p>one<p>two</p>three<br>four", ["one", "two", "three", "four"]),
        ("<p>a <b>b <i>c</i></b> <img src=x> d</p>", ["a b c  d"]),
        ("<a href=x><h1>head</h1>text</a>", ["head", "text"]),
        ("a <script>if (1 < 2) '</b>'</script> b", ["a  b"]),
        ("a <textarea>c <b>\n\r\nd</textarea> b", ["a ", "c <b>", "d", " b"]),
        ("a <code>x <b>y</b></code> b <pre>c</pre>", [f"a {STAND_IN} b "]),
        ("a <span translate='no'>x</span> <i class='k notranslate'>y</i> b", [f"a {STAND_IN} {STAND_IN} b"]),
        ("<p translate=no>a <b>b</b> <b translate=yes>c</b></p><p>d</p>", ["c", "d"]),
        ("<ul><li translate=no>a<li>b</ul>", ["b"]),
        ("a &lt;b&gt; &copy &notit; &unknown; &#x80;", ["a <b> © ¬it; &unknown; €"]),
        ("1 < 2 & 3 <4", ["1 < 2 & 3 <4"]),
        ("<title>a <b></title>c", ["a <b>", "c"]),
        ("<!-- a --><!doctype html><?php b ?><b></b>", []),
        ("<c-c>a</c-c> b<nobr>c", ["a bc"]),
        ("a <b title='", ["a "]),
    ],
)
def test_html_is_split_at_blocks_and_keeps_code_and_what_is_not_to_be_translated(text, blocks):
    assert [block.text for block in read_html(text).blocks] == blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("Hello <b>world</b>", ["Hello world"]),
        (f"{PROLOG}<r><s>Hi &c; <b>x</b></s> <s>y</s></r>", [f"Hi {STAND_IN} x", "y"]),
        ("<r><s translatable='false'>a</s><s>b &#38; <![CDATA[c]]></s></r>", ["b & ", "c"]),
        ("<r>a <g>b <h><i>c</i></h></g></r>", ["a b c"]),
        ("<r><a>Home</a> | <a>About us</a>\n• <a>Help</a></r>", ["Home", "About us", "Help"]),
        ("<r><a>Home</a> | Help <a>About us</a></r>", ["Home | Help About us"]),
        ("<r>|</r>", []),
    ],
)
def test_xml_is_split_at_elements_without_text_beside_them(text, blocks):
    assert [block.text for block in read_xml(text).blocks] == blocks


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("<p>The sea was calm<sup>1</sup>.</p>", "The sea was calm."),
        ("<p>It is calm.<a href='#n'><sup>12</sup></a> He sleeps.</p>", "It is calm. He sleeps."),
        ("<p>It is calm<sup><a href='#n'>*</a></sup> now.</p>", "It is calm now."),
        ("<p>It is calm<a href='#n'>[3]</a>, and dark.</p>", "It is calm, and dark."),
        ("<p>In <a href='#y'>2024</a> it was calm.</p>", "In 2024 it was calm."),
        ("<p>It costs $<a href='#y'>5</a> now.</p>", "It costs $5 now."),
        ("<p>The 4<sup>th</sup> of July.</p>", "The 4th of July."),
        ("<p>Room<a href='#y'>12<b>3</b></a> is here.</p>", "Room123 is here."),
        ("<p>Call<a href='#y'>123456789 123456</a> now.</p>", "Call123456789 123456 now."),
    ],
)
def test_a_mark_of_a_note_is_no_text_of_its_sentence_and_stays_as_it_is(text: str, block: str):
    markup = read_html(text)
    assert [each.text for each in markup.blocks] == [block]
    assert translated(markup, str) == text


def test_the_caller_says_which_elements_split_and_which_are_ignored():
    rules = MarkupRules.of(["Q"], ["b"], ["div", "br"])
    html = read_html("a<b>c</b><DIV>d<br>e</DIV><q>f</q>", rules)
    assert [block.text for block in html.blocks] == ["a", "c", f"de{STAND_IN}"]
    xml = read_xml("<r><q>a</q><s>b</s><s>c</s></r>", MarkupRules.of(["q"], [], ["s"]))
    assert [block.text for block in xml.blocks] == ["bc"]
    with pytest.raises(SettingsError, match="'a' is in splitting_tags and in non_splitting_tags"):
        MarkupRules.of([], ["a"], ["a"])


def test_what_is_kept_comes_where_the_translation_has_its_stand_in_or_else_where_it_is_aligned():
    markup = read_html("<p>Use <code>ls -l</code> <i>now</i></p>")
    assert translated(markup, lambda _: f"Nun {STAND_IN} nutzen") == "<p>Nun <code>ls -l</code> <i>nutzen</i></p>"
    assert translated(markup, lambda _: "Nutze nun") == "<p><code>ls -l</code> Nutze <i>nun</i></p>"


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("one <x/> two", "eins zwei", "eins <x/> zwei"),
        ("one <s></s> two", "eins zwei", "eins <s></s> zwei"),
        ("one <x/> <y/> two", "eins zwei", "eins <x/> <y/> zwei"),
        ("one two <x/>.", "eins zwei.", "eins zwei <x/>."),
        ("one<x/> two", "eins zwei", "eins<x/> zwei"),
        ("one <x/>two", "eins zwei", "eins <x/>zwei"),
        ("one <x/><y/>: two", "eins: zwei", "eins <x/><y/>: zwei"),
        ("one<x/><y/> two", "eins zwei", "eins<x/><y/> zwei"),
        ("one<x/> two", "eins.", "eins<x/>."),
        ("one <x/> two", "\u4e00\u3001\u4e8c", "<x/>\u4e00\u3001\u4e8c"),  # a script without spaces
    ],
)
def test_an_element_without_text_has_a_space_where_it_had_one(text: str, translation: str, expected: str):
    assert translated(read_xml(f"<p>{text}</p>"), lambda _: translation) == f"<p>{expected}</p>"


def test_spans_of_blocks_and_translations_are_found_in_the_texts_with_markup():
    text = "<p>a &amp; <b>bc</b> d</p>"
    markup = read_html(text)
    (block,) = markup.blocks
    assert text[slice(*block.map.raw_span(4, 8))] == "bc</b> d"
    result = written(markup, [translation_of(block, "X & YZ W", [Aligned((0, 8), (0, 8))])])
    assert result.text == "<p>X &amp; <b>YZ</b> W</p>"
    assert result.text[slice(*result.span(0, 4, 8))] == "YZ</b> W"
    assert written(markup, [None]).span(0, 4, 6) == block.map.raw_span(4, 6)


def test_elements_of_any_depth_are_read_and_the_deepest_split():
    text = "a " + "<b>" * 1000 + "x" + "</b>" * 1000 + " c"
    assert [block.text for block in read_html(text).blocks] == ["a ", "x", " c"]
    assert translated(read_html(text)) == text.swapcase().replace("B", "b")


def test_tags_are_those_that_the_standard_library_finds():
    class Names(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def handle_starttag(self, tag, attrs):
            self.names.append(tag)

        def handle_endtag(self, tag):
            self.names.append(f"/{tag}")

    text = "<!DOCTYPE html><P CLASS=\"a>b\" id='c>d' e=f/g h>x < y<br/>z</P\n><img alt='<b>'><!-- <i> -->"
    text += "<script>'<b>'</script>"
    parser = Names()
    parser.feed(text)
    ours = [("/" if text[begin + 1] == "/" else "") + name for _, begin, _, name in html_tokens(text) if name]
    assert ours == [name for name in parser.names if name != "/br"]


@pytest.mark.parametrize("standalone", ["", " standalone='yes'"])
@pytest.mark.parametrize("after", ["r", "r SYSTEM 'r.dtd'", "r PUBLIC '-' \"r.dtd\""])
def test_the_declarations_of_a_document_of_xml_stay_as_they_are_and_add_nothing(after, standalone):
    """A default attribute would be in each element, and an entity of another one in each attribute, without a byte."""
    declared = "<!ENTITY c 'Co>'><!ENTITY d '&c;&c;'><!ATTLIST b translate CDATA 'no' f CDATA '&d;'><!-- ] -->"
    text = f"<?xml version='1.0'{standalone}?><!DOCTYPE {after} [{declared}]>\n<r>a <b e='&d;'>c</b> &d; &x;</r>"
    assert [block.text for block in read_xml(text).blocks] == [f"a c {STAND_IN} {STAND_IN}"]
    assert translated(read_xml(text), str) == text
    for spoilt in (text.replace("</b>", "</c>"), text.replace("<!DOCTYPE r", "<!DOCTYPE <"), text + "</r>"):
        with pytest.raises(MarkupError, match=r"^line [12], column \d+: "):
            read_xml(spoilt)


def test_a_reference_to_a_character_may_have_any_number_of_zeros():
    text = f"<r>&#{'0' * 5000}65; &#x{'0' * 5000}42;</r>"
    assert [block.text for block in read_xml(text).blocks] == ["A B"]
    assert translated(read_xml(text), str) == text


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_html_takes_a_time_that_is_linear_in_its_length(part):
    """1 MB takes at most 1.5 s of CPU; quadratic time takes minutes for this length too."""
    text = part * (200_000 // len(part))
    start = time.process_time()
    markup = read_html(text)
    assert written(markup, [None] * len(markup.blocks)).text == text
    assert time.process_time() - start < 5
