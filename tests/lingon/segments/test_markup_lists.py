"""Elements beside each other: the items of a list are translated alone, and the parts of a sentence are not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.markup import Markup, TranslatedBlock, read_html
from lingon.segments.markup_tokens import MarkupRules
from lingon.segments.placing_alignment import Aligned
from tests.support.documents import ANY_TEXT
from tests.support.timing import LINEAR, growth_of, run_to_end

ITEMS = ["Home", "About us", "Contact", "Terms of use", "Red house", "The old man", "Save", "Delete all", "Price"]
SPACED_SIGNS = [
    "|",
    "·",
    "•",
    "/",
    ">",
    "&gt;",
    "›",
    "&rsaquo;",
    "»",
    "&raquo;",
    "→",
    "-",
    "–",
    "—",
    "&bull;",
    "&#124;",
]
GAPS = [
    "",
    " ",
    "\n  ",
    "&nbsp;",
    "<!-- x -->",
    "<img src=a>",
    "|",
    "&nbsp;|&nbsp;",
    *(f" {sign} " for sign in SPACED_SIGNS),
]


def texts_of(text: str) -> list[str]:
    return [block.text for block in read_html(text).blocks]


def seen_in(text: str) -> list[str]:
    return [each.strip() for each in texts_of(text)]


def written(markup: Markup) -> str:
    """The text with the words of each block in the other case."""
    results = []
    for block in markup.blocks:
        span = (0, len(block.text))
        results.append(
            TranslatedBlock(block.text.swapcase(), (Aligned(span, span),), {place: place for place in block.kept})
        )
    return run_to_end(markup.write(results)).text


def pages(names: list[str], gaps: list[str], seed: int) -> Iterator[tuple[list[str], str]]:
    """Yield items, and a page in which they are the elements of one name, with one gap between them."""
    chance = random.Random(seed)
    for name in names:
        for gap in gaps:
            items = chance.sample(ITEMS, chance.randint(2, 5))
            begin, end = chance.choice([("<nav>", "</nav>"), ("<div>", "</div>"), ("", ""), ("<p>\n", "\n</p>")])
            around, after = chance.choice([("", ""), ("<b>", "</b>"), ("<i class=x>", "</i>")])
            elements = (f"<{name} id='{number}'>{around}{item}{after}</{name}>" for number, item in enumerate(items))
            yield items, f"{begin}{gap.join(elements)}{end}"


@pytest.mark.parametrize(("items", "page"), [*pages(["a", "button", "span", "x-item", "time"], GAPS, 1)], ids=str)
def test_elements_with_nothing_or_separators_between_them_are_items(items: list[str], page: str):
    assert texts_of(page) == items
    markup = read_html(page)
    expected = page
    for item in items:
        expected = expected.replace(f">{item}<", f">{item.swapcase()}<")
    assert written(markup) == expected


@pytest.mark.parametrize("gap", [", ", "; ", " : ", "-", "/"])
def test_marks_of_sentences_separate_links_alone(gap: str):
    assert texts_of(gap.join(f"<a>{item}</a>" for item in ITEMS)) == ITEMS
    spans = gap.join(f"<span>{item}</span>" for item in ITEMS)
    assert len(texts_of(spans)) == (len(ITEMS) if gap == "/" else 1)


@pytest.mark.parametrize(
    "text",
    [
        "<p><b>Hello</b> <i>world</i>, how are you?</p>",
        "<p><b>He</b> <i>runs</i>.</p>",
        "<p><b>Read</b> <b>This</b></p>",
        "<span>He</span> <span>runs</span>.",
        "<span>He</span> <span>runs.</span>",
        "<span>I live in</span> <span>Boston.</span>",
        "<h1><span>Machine</span> <span>Translation</span></h1>",
        "<span>H</span><span>e</span><span>l</span><span>l</span><span>o</span>",
        "<span>H</span><span>E</span><span>L</span><span>L</span><span>O</span>",
        "<span>Hel</span><span>lo</span>",
        "<p>A <a>German</a> <a>composer</a> of songs</p>",
        "<td><a>American</a> <a>physicist</a></td>",
        "<p><a>Tom</a>, <a>Anna</a> and <a>Jim</a></p>",
        "<p>He likes <a>cats</a>, <a>dogs</a></p>",
        "<p>Two <a>cat</a>s, un<a>believ</a>able</p>",
        "<p>H<sub>2</sub>O, H<span>2</span>O, CO<span>2</span></p>",
        "<p><span>12</span>kg, <span>5</span>GB</p>",
        "<p>Java<b>Script</b></p>",
        "<p><span>O</span>nce upon a time</p>",
        "<p>the norm |<i>x</i>| is small</p>",
        "<p>« <b>Bonjour</b> » is French</p>",
        "<p>the force <i>F</i> = <i>m</i>·<i>a</i> is small</p>",
        "<p>the chance P(<i>A</i> | <i>B</i>) or P(<i>A</i>|<i>B</i>) is small</p>",
        "<p><a>Ord</a> + <a>copy</a></p>",
        "<p>If x > <b>5</b>, then</p>",
        "<p>[<a>edit</a>]</p>",
        "<p>at 12:<span>30</span></p>",
        "<p>the <b><a>German</a> <a>composer</a></b> of songs</p>",
        "<p>this <i>and | or</i> that</p>",
    ],
)
def test_the_parts_of_a_sentence_stay_together(text: str):
    assert len(texts_of(text)) == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<p>Messages<span class=badge>3</span></p>", ["Messages", "3"]),
        ("<p>Inbox<span>New</span></p>", ["Inbox", "New"]),
        ("<p><span>3</span>Messages</p>", ["3", "Messages"]),
        ("<div><span>Price:</span><span>12 dollars</span></div>", ["Price:", "12 dollars"]),
        ("<div><b>Price:</b>12 dollars</div>", ["Price:", "12 dollars"]),
        ("<div>Note:<b>The house is old</b></div>", ["Note:", "The house is old"]),
        ("<div><strong>Name</strong><em>Tom Smith</em></div>", ["Name", "Tom Smith"]),
        ("<div><a>Read more</a>Next page</div>", ["Read more", "Next page"]),
    ],
)
def test_no_blank_beside_an_element_is_a_border_where_no_word_goes_on(text: str, parts: list[str]):
    assert texts_of(text) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<a>Red house</a>|Green house", ["Red house", "Green house"]),
        ("Green house | <a>Red house</a>", ["Green house", "Red house"]),
        ("<b>Tom</b> • Anna", ["Tom", "Anna"]),
        ("Home &gt; <a>Products</a> &gt; Chairs", ["Home", "Products", "Chairs"]),
        ("<a>Home</a> / <a>Products</a> / Chairs", ["Home", "Products", "Chairs"]),
        ("<p>Follow us: <a>Facebook</a> <a>Twitter</a></p>", ["Follow us:", "Facebook", "Twitter"]),
        ("<p>See <a>Home</a><a>About us</a> for more</p>", ["See", "Home", "About us", "for more"]),
        ("<nav><a>home</a> <a>about us</a></nav>", ["home", "about us"]),
        ("<p><a>the cat</a> <a>the dog</a> <a>the cow</a></p>", ["the cat", "the dog", "the cow"]),
        ("<span class=i><b><a>Home</a></b></span> <span><a>About</a></span>", ["Home", "About"]),
        ("<i><span><a>Home</a> <a>About us</a></span></i>", ["Home", "About us"]),
        ("<p>It <code>x</code> | <code>y</code></p>", ["It \ufffc | \ufffc"]),
        ("<p><code>x</code> | <code>y</code></p>", []),
        ("<td>-</td><td>|</td><td> / </td>", []),
    ],
)
def test_what_is_between_the_items_of_a_list_is_no_text(text: str, parts: list[str]):
    assert seen_in(text) == parts


def test_elements_that_the_caller_says_do_not_split_are_no_items():
    page = "<div><a>Home</a><a>About us</a> <span>Help</span> <span><a>News</a></span></div>"
    rules = MarkupRules.of(non_splitting_tags=["A", "span"])
    assert [block.text for block in read_html(page, rules).blocks] == ["HomeAbout us Help News"]


@pytest.mark.parametrize(
    "name",
    [
        "button",
        "option",
        "optgroup",
        "label",
        "textarea",
        "legend",
        "summary",
        "figcaption",
        "td",
        "th",
        "dt",
        "dd",
        "li",
        "select",
        "datalist",
        "text",
    ],
)
def test_controls_and_cells_split_the_text_around_them(name: str):
    assert seen_in(f"before it <{name}>red house</{name}> after it") == ["before it", "red house", "after it"]
    assert seen_in(f"<{name}>one</{name}><{name}>two</{name}> <{name}>three</{name}>") == ["one", "two", "three"]


def test_a_field_splits_a_text_unless_it_is_hidden():
    assert seen_in("Show <input type=number> entries") == ["Show", "entries"]
    assert seen_in("Show <input value=1 type='hidden'> entries") == ["Show  entries"]


def test_the_lines_of_a_text_field_are_texts_whose_tags_are_text():
    page = "<textarea>\nRed house\n\n<b>Tom &amp; I\r\n</textarea>"
    assert texts_of(page) == ["Red house", "<b>Tom & I"]
    assert written(read_html(page)) == "<textarea>\nrED HOUSE\n\n&lt;B&gt;tOM &amp; i\r\n</textarea>"


@given(ANY_TEXT)
def test_items_of_any_text_are_written_in_their_places(text: str):
    markup = read_html(text)
    assert run_to_end(markup.write([None] * len(markup.blocks))).text == text
    ends = [place for block in markup.blocks for place in (block.begin, block.end)]
    assert ends == sorted(ends)


PARTS = [
    "<a>",
    "</a>",
    "<span>",
    "</span>",
    "<b>",
    "</b>",
    "Home",
    "us",
    " ",
    "|",
    " | ",
    " / ",
    "&bull;",
    "&nbsp;",
    "3",
    "<p>",
]


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join))
def test_every_letter_of_a_list_is_in_one_text(text: str):
    letters = "".join(filter(str.isalpha, "".join(texts_of(text))))
    bare = text
    for tag in sorted({*PARTS} - {"Home", "us", "3"}, key=len, reverse=True):
        bare = bare.replace(tag, "")
    assert letters == "".join(filter(str.isalpha, bare))
    assert written(read_html(text)).swapcase().lower().count("home") == text.count("Home")


@pytest.mark.parametrize(
    "unit",
    [
        "<a>x</a>",
        "<a>x</a> ",
        "<a>X</a> | ",
        "<span>X</span>",
        "<a>",
        "<span><a>X</a>",
        "|",
        " ",
        "&nbsp;",
        "a | ",
        "| <b>x</b>",
        "&bull; ",
        "<i>X:</i>",
        " / <a>x</a>",
        "<span>",
    ],
)
def test_reading_lists_takes_a_time_linear_in_the_text(unit: str):
    growth = growth_of(lambda size: lambda: read_html(unit * (size // len(unit))), 20_000)
    assert growth.ratio <= LINEAR, growth


@pytest.mark.parametrize(
    ("before", "after"), [("<span>", "</span>"), ("<a>X</a><i>", "</i>"), ("<i>a <a>B</a> <a>C</a>", "</i>")]
)
def test_reading_nested_lists_takes_a_time_linear_in_the_text(before: str, after: str):
    growth = growth_of(lambda size: lambda: read_html(before * size + "x" + after * size), 1_000)
    assert growth.ratio <= LINEAR, growth


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>The <ruby>house<rt>haus</rt></ruby> is old.</p>", "The house is old."),
        ("<p>The <ruby>house<rp>(</rp><rt>haus</rt><rp>)</rp></ruby> is old.</p>", "The house is old."),
        ("<p>The <ruby>house<rp>(<rt>haus<rp>)</ruby> is old.</p>", "The house is old."),
        ("<p>The <ruby><rb>red<rb>house<rt>rot<rt>haus</ruby> is old.</p>", "The redhouse is old."),
        ("<p>The <ruby>red<rt>rot</rt>house<rt>haus</rt></ruby> is old.</p>", "The redhouse is old."),
        ("<p>The <ruby><rb>house</rb><rtc><rt>haus</rt></rtc></ruby> is old.</p>", "The house is old."),
        ("<p>The <ruby><b>house</b><rt><i>haus</i></rt></ruby> is old.</p>", "The house is old."),
    ],
)
def test_a_reading_is_no_text_and_comes_after_all_the_words_that_it_is_for(page: str, text: str):
    markup = read_html(page)
    assert [block.text for block in markup.blocks] == [text]
    result = written(markup)
    assert "haus" in result
    assert result.index("HOUSE") < result.index("haus")
    assert result.index("haus") < result.index("</ruby>")
    assert run_to_end(markup.write([None])).text == page
