"""Values of attributes and CDATA sections: texts of their own, written so that a parser reads the translation."""

from __future__ import annotations

import html
import random
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.layout import Split, TextLayout
from lingon.segments.markup import Markup, PlainText, TranslatedBlock, WrittenMarkup, read_html, read_xml
from lingon.segments.markup_tokens import MarkupRules
from lingon.segments.placing_alignment import Aligned
from tests.support.documents import ANY_TEXT, WELL_FORMED
from tests.support.timing import LINEAR, growth_of, run_to_end

TEXTS = MarkupRules.of(attributes=["alt", "Title", "placeholder", "value", "content", "label", "aria-label"])
PARTS = [
    *(
        "<p title='Red Car'>",
        "</p>",
        '<b title="The Sea">',
        "</b>",
        "<img alt=Tom>",
        "<i>",
        "</i>",
        "Hello ",
        "two words ",
    ),
    *(
        "<img title='a &amp; \"b\"' alt=''>",
        "<br title=X>",
        "<code title='y'>z</code>",
        "<!-- c -->",
        ". ",
        "&amp;",
    ),
]


def written(markup: Markup, translate=str.swapcase) -> WrittenMarkup:
    results = []
    for block in markup.blocks:
        text = translate(block.text)
        segment = Aligned((0, len(block.text)), (0, len(text)))
        results.append(TranslatedBlock(text, (segment,), {place: place for place in block.kept}))
    return run_to_end(markup.write(results))


def values_in(page: str) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """The tags of a page with their attributes, as the parser of the standard library reads them."""
    found = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append((tag, attrs))

    parser = Tags()
    parser.feed(page)
    parser.close()
    return found


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<p title='Red car'>It is <b title=old>new</b></p>", ["Red car", "It is new", "old"]),
        ("<img ALT='Red &amp; old'>", ["Red & old"]),
        (
            "<input type=submit value=Save><input type='Button' value='Go'><input value=no><button value=no>",
            ["Save", "Go"],
        ),
        ("<meta name=description content='It is'><meta name=viewport content='width'><meta content=x>", ["It is"]),
        ("<meta property='og:title' content='Red car'>", ["Red car"]),
        (
            "<option label=Red>1<optgroup label='Old cars'><track label=English><p label=no>",
            ["Red", "1", "Old cars", "English"],
        ),
        ("<link title=no><style title=no></style><abbr title='Red car'>RC</abbr>", ["Red car", "RC"]),
        ("<p translate=no title=no>x</p><img translate=no alt=no><code title=no>x</code>", []),
        ("<div translate=no><p title=no>x</p></div>", []),
        ("<img alt='12'><img alt=''><img alt>", []),
        ("<textarea placeholder='Your name'></textarea>", ["Your name"]),
        ("<p class='Red car' data-title='Red car'>x</p>", ["x"]),
    ],
)
def test_the_values_of_the_attributes_that_the_caller_names_are_texts(page: str, texts: list[str]):
    assert [block.text for block in read_html(page, TEXTS).blocks] == texts
    assert run_to_end(read_html(page, TEXTS).write([None] * len(texts))).text == page
    assert written(read_html(page)).text.count("Red") == page.count("Red") - sum(
        "Red" in each.text for each in read_html(page).blocks
    )


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<p title="a">', "<p title=\"&amp; &lt;&gt; &quot;x&quot; 'y'&nbsp;z\">"),
        ("<p title='a'>", "<p title='&amp; &lt;&gt; \"x\" &#39;y&#39;&nbsp;z'>"),
        ("<p title=a class=b>", "<p title=\"&amp; &lt;&gt; &quot;x&quot; 'y'&nbsp;z\" class=b>"),
        ("<p class=b title=a>", "<p class=b title=\"&amp; &lt;&gt; &quot;x&quot; 'y'&nbsp;z\">"),
        ("<p\ttitle \n= a />", "<p\ttitle \n= \"&amp; &lt;&gt; &quot;x&quot; 'y'&nbsp;z\" />"),
    ],
)
def test_a_value_is_written_so_that_a_browser_reads_it_as_it_is(page: str, expected: str):
    text = "& <> \"x\" 'y'\xa0z"
    result = written(read_html(page, TEXTS), lambda _: text).text
    assert result == expected
    assert dict(values_in(result)[0][1])["title"] == text


@given(st.lists(st.sampled_from(PARTS), max_size=25).map("".join), st.randoms())
def test_each_value_stays_in_its_tag_wherever_that_is_placed(page: str, chance: random.Random):
    markup = read_html(page, TEXTS)
    results = []
    for block in markup.blocks:
        words = block.text.swapcase().split(" ")
        if block.tag < 0 and not block.kept:
            chance.shuffle(words)
        text = " ".join(words)
        results.append(TranslatedBlock(text, (Aligned((0, len(block.text)), (0, len(text))),), {}))
    result = run_to_end(markup.write(results))
    assert sorted(values_in(result.text)) == sorted(
        (tag, [(name, _translated(tag, name, value)) for name, value in found]) for tag, found in values_in(page)
    )
    for number, (block, translated) in enumerate(zip(markup.blocks, results, strict=True)):
        if block.tag >= 0:
            begin, end = result.span(number, 0, len(translated.text))
            assert html.unescape(result.text[begin:end]) == translated.text


def _translated(tag: str, name: str, value: str | None) -> str | None:
    return value.swapcase() if value and name in ("alt", "title") and tag != "code" else value


@given(ANY_TEXT)
def test_a_page_whose_texts_are_unchanged_is_the_same_byte_for_byte(text: str):
    rules = MarkupRules.of(attributes=["class", "src", "href", "b", "k"])
    markup = read_html(text, rules)
    assert written(markup, str).text == text
    begins = [block.begin for block in markup.blocks]
    assert begins == sorted(begins)


@given(WELL_FORMED)
def test_a_translation_of_xml_with_attributes_is_well_formed(text: str):
    rules = MarkupRules.of(attributes=["k"])
    plain = PlainText.of(read_xml(text, rules))
    document = TextLayout.of(plain.text, Split.NONEWLINES)
    translations = [f"<'{document.segment(number)}' & ]]>" for number in range(len(document.segments))]
    found = run_to_end(plain.write(document, document.join(translations), [None] * len(translations)))
    ElementTree.fromstring(f"<r>{found.text}</r>")


@pytest.mark.parametrize(
    ("text", "texts", "expected"),
    [
        ("<r><![CDATA[Red car]]></r>", ["Red car"], "<r><![CDATA[rED CAR]]></r>"),
        ("<r><![CDATA[a & <b>c</b> &amp;]]></r>", ["a & <b>c</b> &amp;"], "<r><![CDATA[A & <B>C</B> &AMP;]]></r>"),
        ("<r>A <![CDATA[b]]> c</r>", ["A ", "b", " c"], "<r>a <![CDATA[B]]> C</r>"),
        ("<r><![CDATA[<b>]]>a<![CDATA[</b>]]></r>", ["\ufffca\ufffc"], "<r><![CDATA[<b>]]>A<![CDATA[</b>]]></r>"),
        ("<r>a <![CDATA[<br>]]> b</r>", ["a \ufffc b"], "<r>A <![CDATA[<br>]]> B</r>"),
        ("<r translate='no'><![CDATA[Red]]></r>", [], "<r translate='no'><![CDATA[Red]]></r>"),
        ("<r><![CDATA[]]><![CDATA[ 1 ]]></r>", [], "<r><![CDATA[]]><![CDATA[ 1 ]]></r>"),
    ],
)
def test_a_cdata_section_with_words_is_a_text_of_its_own(text: str, texts: list[str], expected: str):
    markup = read_xml(text)
    assert [block.text for block in markup.blocks] == texts
    assert written(markup).text == expected


@given(st.lists(st.sampled_from(["]", "]]>", ">", "<", "&", "a", " ", "]]"]), max_size=12).map("".join))
def test_a_parser_reads_the_translation_of_a_cdata_section_as_it_is(text: str):
    result = written(read_xml("<r><![CDATA[x]]></r>"), lambda _: f"{text}x")
    assert ElementTree.fromstring(result.text).text == f"{text}x"
    begin, end = result.span(0, 0, len(text) + 1)
    assert result.text[begin:end].replace("]]]]><![CDATA[>", "]]>") == f"{text}x"


@pytest.mark.parametrize(
    "unit",
    [
        "<p title='a'>",
        "<b alt=a>x</b> ",
        '<img title="a b" alt=c>',
        "<b title='",
        " title=x",
        "<p title=a",
        "x<i title='a'>",
    ],
)
def test_reading_and_writing_values_takes_a_time_linear_in_the_text(unit: str):
    def work(size: int):
        text = "<p " + unit * (size // len(unit))
        return lambda: written(read_html(text, TEXTS))

    assert growth_of(work, 10_000).ratio <= LINEAR
