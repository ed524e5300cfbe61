"""Markdown: which texts are translated, and that marks, code, addresses and the structure stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.markdown import LINE_CHARACTERS
from tests.support.repository import ROOT

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def texts_of(text: str) -> list[str]:
    return list(read_document("a.md", text.encode()).texts)


def translated(text: str, answers: dict[str, str] | Callable[[str], str] = str) -> str:
    document = read_document("a.md", text.encode())
    answer = answers if callable(answers) else lambda text: answers.get(text, text)
    return document.write(list(map(answer, document.texts))).decode()


def shown(text: str) -> str:
    """What a program shows; line ends inside of a paragraph are blanks."""
    return " ".join(PARSER.render(text).split())


STAYING = [
    "---\ntitle: My page\n---\n",
    "+++\ntitle = 'My page'\n+++\n",
    "```python\nprint('Tom')\n```\n",
    "~~~\nTom\n",
    "    indented code\n",
    "- 1:\n\n  ```\n  in a list\n  ```\n",
    "<div>\nTom\n</div>\n",
    "<!-- A comment -->\n",
    "[page]: http://a.b 'A title'\n",
    "***\n",
    "| 1 | 2 |\n|---|---|\n| 3 | 4 |\n",
    "`code`\n",
    "<https://example.com/page>\n",
]


@pytest.mark.parametrize("text", STAYING)
def test_what_has_no_text_of_its_own_stays_byte_for_byte(text: str):
    assert (texts_of(text), translated(text)) == ([], text)


BLOCKS = [
    ("# Tom\n", ["Tom"]),
    ("## Tom ##\n", ["Tom"]),
    ("Tom\n===\n", ["Tom"]),
    ("- Tom\n  1) Ann\n     - [ ] Eve\n", ["Tom", "Ann", "Eve"]),
    ("> > Tom\n>\n> - Ann\n", ["Tom", "Ann"]),
    ("| Tom | Ann\\|e |\r\n|:--|--:|\r\n| Tom | `a` |\r\n| x\n", ["Tom", "Ann|e", "Tom", "x"]),
    ("> | Tom |\n> |---|\n> | a |\n", ["Tom", "a"]),
    ("[^1]: Tom said so.\n\n[^n]: Ann too.\n", ["Tom said so.", "Ann too."]),
    (":::note\nTom\n:::\n\n:::tip\n\nAnn\n\n:::\n", ["Tom", "Ann"]),
    ("> [!NOTE]\n> Tom\n", ["Tom"]),
    ("---\na: b\n---\nTom\n", ["Tom"]),
    ("\ufeff\tcode\n\nTom", ["Tom"]),
    ("*\tTom\n\n\tAnn\n", ["Tom", "Ann"]),
]


@pytest.mark.parametrize(("text", "found"), BLOCKS)
def test_the_texts_of_blocks_are_translated_where_they_are(text: str, found: list[str]):
    assert texts_of(text) == found
    assert translated(text) == text
    expected = text
    for each in dict.fromkeys(found):
        written = each.replace("|", "\\|")
        expected = expected.replace(written, written.swapcase())
    assert translated(text, str.swapcase) == expected


def test_a_paragraph_of_several_lines_is_one_text_and_its_lines_keep_what_is_before_them():
    text = "> The old man\n> and the sea\nare here.  \n> Tom\\\n> Ann\n"
    assert texts_of(text) == ['The old man and the sea are here.<b i="0"/>Tom<b i="1"/>Ann']
    long = "Der " + "alte " * 20 + 'Mann.<b i="0"/>Tom<b i="1"/>Ann'
    lines = translated(text, lambda _: long).splitlines()
    assert [line[:6] for line in lines] == ["> Der ", "> alte", "> Tom\\", "> Ann"]
    assert lines[1].endswith("Mann.  ")
    assert max(map(len, lines)) <= LINE_CHARACTERS + len("> ")


def test_marks_inside_a_text_become_tags_and_are_written_as_they_were():
    text = "A __red__ *car* in [Boston](<a b> 'The town') and `code`, ~~no~~ <http://a.b> <b>bold</b> or[^1] me.\n"
    found, title = texts_of(text)
    assert title == "The town"
    assert found == (
        'A <s i="0">red</s> <s i="1">car</s> in <s i="2">Boston</s> and <v i="0"/>, <s i="3">no</s> <v i="1"/> '
        '<s i="4">bold</s> or<v i="2"/> me.'
    )
    moved = (
        '<s i="4">fett</s> <v i="1"/> <s i="2">B</s> <s i="1">Auto</s> <s i="0">rotes</s> <v i="0"/> <s i="3">x</s>.'
    )
    expected = "<b>fett</b> <http://a.b> [B](<a b> 'Die \"Stadt\"') *Auto* __rotes__ `code` ~~x~~[^1].\n"
    expected = expected.replace('"', '\\"')
    assert translated(text, {found: moved.replace("</s>.", '</s><v i="2"/>.'), title: 'Die "Stadt"'}) == expected


@pytest.mark.parametrize("formula", ["$a_b + *c*$", "$$x^2$$", "$\\alpha_{i}\\$$", "$$\nx \\\\ *y*\n$$"])
def test_a_formula_is_a_point(formula: str):
    text = f"The value\n{formula}\nis large.\n"
    (found,) = texts_of(text)
    assert found == 'The value <v i="0"/> is large.'
    assert translated(text).split() == text.split()


@pytest.mark.parametrize(
    "text", ["It costs $5 or $10.", "Set $HOME/$USER now.", "US$5 and US$6", "a $ b$ c", "Now 5$, 6$"]
)
def test_signs_of_dollars_are_text(text: str):
    assert texts_of(text) == [text]
    assert translated(text) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The sea\n: Much water\n:   A large lake\n", 'The sea<b i="0"/>Much water<b i="1"/>A large lake'),
        ("> The sea\n> : Much water\n", 'The sea<b i="0"/>Much water'),
        (": Much water\n", "Much water"),
    ],
)
def test_a_definition_stays_in_its_line(text: str, found: str):
    assert texts_of(text) == [found]
    new = translated(text, lambda each: each.replace("water", "Wasser"))
    assert new.replace(" \n", "\n") == text.replace("water", "Wasser")


def test_pictures_have_an_alternative_text_and_keep_their_lines():
    text = '![A cat](cat.png)\n[![The build](b.svg "State")](x)\n'
    assert texts_of(text) == ["A cat", "The build", "State"]
    expected = '![Eine \\[Katze\\]](cat.png)\n[![The build](b.svg "Stand")](x)\n'
    assert translated(text, {"A cat": "Eine [Katze]", "State": "Stand"}) == expected


def test_a_link_that_is_the_name_of_a_reference_gets_the_name_beside_its_new_text():
    text = "See [the page], [the page][], [a page][The Page], ![the page].\n\n[the page]: x\n"
    assert translated(text) == text
    new = translated(text, lambda text: text.replace("the page", "die Seite").replace("a page", "eine"))
    assert new.startswith("See [die Seite][the page], [die Seite][the page], [eine][The Page], ![die Seite][the page].")


@pytest.mark.parametrize(
    ("text", "translation", "written"),
    [
        ("Five", "5. ist", "5\\. ist"),
        ("Five", "- ist", "\\- ist"),
        ("Five", "# ist", "\\# ist"),
        ("Five", "a *b* c", "a \\*b\\* c"),
        ("Five", "[the page]", "\\[the page\\]"),
        ("Five", "5 &lt; 6 &amp; 7_8", "5 < 6 & 7_8"),
        ("Five", "&lt;b>", "\\<b\\>"),
        ("Five", "&amp;lt;", "\\&lt;"),
        ("\\*Five\\* &amp;lt;", "*5* &amp;lt;", "\\*5\\* \\&lt;"),
        ("# Five", "5 #", "# 5 \\#"),
        ("a | b\nc\n-", "a | b", "a | b\n-"),
        ("a | b\n--|--\nc | 1", "1. c", "1\\. c | 1\\. c\n--|--\n1\\. c | 1"),
        ("a `b\n  c` d", 'A<v i="0"/>d', "A `b   c` d"),
        ("- a  \nb", 'a<b i="0"/>- b', "- a  \n\\- b"),
        ("a *b* c", 'a<s i="0">b </s>c', "a*b* c"),
        ("a _b_ c", 'a<s i="0">b</s>c', "a*b*c"),
        ("a **b** c", 'a<s i="0">.b</s>c', "a.bc"),
        ("a **b** c", 'a <s i="0"></s>c', "a c"),
        ("Five", "a $b$ c", "a \\$b\\$ c"),
    ],
)
def test_a_translation_means_what_it_says(text: str, translation: str, written: str):
    reference = "\n\n[the page]: x\n"
    assert translated(text + reference, lambda _: translation) == written + reference


def test_code_that_stands_alone_in_the_source_has_blanks_beside_words():
    text = "If `a` and `b`, (`c`), x`d` or.\n"
    answer = 'Wenn<v i="0"/>und (<v i="2"/>)<v i="1"/>x<v i="3"/>oder.'
    assert translated(text, lambda _: answer) == "Wenn `a` und (`c`)`b` x`d`oder.\n"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/how-to/documents.md", "docs/how-to/http.md", "docs/how-to/texts.md"]
)
def test_real_pages_show_the_same_if_their_translations_are_their_texts(page: str):
    text = Path(ROOT / page).read_text(encoding="utf-8")
    assert shown(translated(text)) == shown(text)
    assert texts_of(translated(text)) == texts_of(text)


MARKS = ["*", "_", "**", "`", "``", "[", "](u)", '](u "Ann")', "][a]", "![", "<b>", "</b>", "<u:v>", "\\", "~~", "[^1]"]
STARTS = ["> ", "- ", "1. ", "# ", "```\n", "\n[a]: x\n", "---\n", "\n", "    "]
OTHERS = ["Tom ", "&amp;", "&nbsp;", "\n", "  \n", "\r\n", "  ", "\t", "\u00e9", "$"]
PIECES = st.sampled_from([*MARKS, *OTHERS, *(f"\n{start}" for start in STARTS)])


@given(st.lists(PIECES, max_size=24).map("".join))
def test_a_file_whose_translations_are_its_texts_shows_the_same(text: str):
    assert shown(translated(text)) == shown(text)


@given(st.lists(PIECES, max_size=24).map("".join), st.sampled_from(["- ", "1. ", "*", "](", "`", "&lt;b>", "# "]))
def test_translations_with_marks_change_no_block(text: str, marks: str):
    def kinds(text: str) -> list[str]:
        return [token.type for token in PARSER.parse(text)]

    found = translated(text, lambda text: text.replace("Tom", f"{marks}Tim {marks}"))
    assert kinds(found) == kinds(text)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MOST_BYTES", "the file has 12 bytes; at most 3"),
        ("MOST_LINES", "the file has 4 lines; at most 3"),
        ("MOST_MARKS", "the file has 8 characters that may be marks; at most 3"),
    ],
)
def test_what_would_take_too_much_memory_is_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch):
    text = "*a*".replace("a", "") * 4 + "\n" * 4
    monkeypatch.setattr(f"lingon.documents.markdown.{name}", 3)
    with pytest.raises(UnreadableDocument, match=message):
        texts_of(text)


@pytest.mark.parametrize(
    "block",
    [
        "*a **b " * 500 + "c" + "** d*" * 500,
        "c <!-- a " * 3000 + "--->",
        "<b>" * 70 + "*a " * 70 + "c" + "*" * 70 + "</b>" * 70,
    ],
    ids=["emphasis", "comments", "tags and emphasis"],
)
def test_a_block_with_too_many_marks_stays_and_others_are_translated(block: str):
    document = read_document("a.md", f"Tom\n\n{block}\n\nand I\n".encode())
    assert document.texts[0] == "Tom"
    assert document.texts[-1] == "and I"
    translations = ["Tim", *document.texts[1:-1], "and you"]
    assert document.write(translations).decode() == f"Tim\n\n{block}\n\nand you\n"


def test_emphasis_links_brackets_and_tags_that_texts_have_are_read():
    text = "The interval [0, 1) of [a [b] *c **d ~~e~~ f** g* h](i) and ![j](k) is *not* [l <m in <b>n</b>. " * 200
    document = read_document("a.md", text.encode())
    assert len(document.texts) == 1 + 200
    assert document.write(document.texts).decode() == text


def test_cells_that_the_rows_of_tables_lack_are_counted():
    def table(columns: int, rows: int) -> str:
        return f"|{'a|' * columns}\n|{'-|' * columns}\n" + "b\n" * rows + "\n"

    assert len(read_document("a.md", table(10, 10).encode()).texts) == 20
    with pytest.raises(UnreadableDocument, match=r"9,900 cells; at most 1,605$"):
        read_document("a.md", table(100, 100).encode())


def test_a_title_in_many_lines_is_text():
    lines = "Tom and I.\n" * 200
    assert read_document("a.md", f'[a]: b "\n{lines}"\n'.encode()).texts
    short = '[a]: b "\nTom and I.\n"\n'
    assert read_document("a.md", short.encode()).texts == []


KEPT = [
    "{#first}",
    "{: #open .wide }",
    "{.note}",
    '{ width=50% title="A boat" }',
    "{% raw %}",
    "{{< figure >}}",
    r"\(a + b\)",
    r"\[x^2\]",
    "[[Main page]]",
    "![[picture.png]]",
]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(
    "frame",
    [
        "# The sea {}",
        "The sea {}\n=======",
        "The {} sea",
        "{} the sea",
        "- the sea {}",
        "> the **sea** {}",
        "|a|\n|-|\n|the sea {}|",
    ],
)
def test_what_is_for_programs_stays_in_its_place(kept: str, frame: str):
    content = f"{frame.format(kept)}\n"
    found = re.sub("<[^<>]*>", "", " ".join(texts_of(content)))
    assert kept not in found
    assert set(re.findall("[A-Za-z]+", found)) <= {"The", "the", "sea", "a"}
    assert translated(content) == content
    assert translated(content, lambda text: text.replace("sea", "Meer")) == content.replace("sea", "Meer", 1)


@pytest.mark.parametrize("word", ["H~2~O", "x^2^", "H~2~SO~4~", "2^10^", "~2~"])
def test_words_with_raised_and_lowered_characters_are_kept(word: str):
    document = read_document("a.md", f"Water is {word} here, a_b and ~5 of ~~them~~.\n".encode())
    (text,) = document.texts
    assert word in text
    assert list(document.options.keep) == [word]
    written = document.write([text.replace("Water is", "*Wasser* ist")]).decode()
    assert written.startswith(f"\\*Wasser\\* ist {word} here")


def test_marked_text_and_text_with_attributes_are_translated():
    content = "The [old *man*]{.big} is ==very== tired.\n"
    assert texts_of(content) == ['The <s i="0">old <s i="1">man</s></s> is <s i="2">very</s> tired.']
    assert translated(content, lambda _: '<s i="2">Sehr</s> müde ist <s i="0">der <s i="1">Alte</s></s>.') == (
        "==Sehr== müde ist [der *Alte*]{.big}.\n"
    )


def test_the_text_of_a_link_of_a_wiki_is_translated_and_its_page_stays():
    content = "See [[Main page|the page]] and [the sea](#sea){: .link }.\n"
    assert texts_of(content) == ['See <v i="0"/> and <s i="0">the sea</s><v i="1"/>.', "the page"]
    assert translated(content, lambda text: text.replace("the page", "die Seite")) == content.replace(
        "the page", "die Seite"
    )


@pytest.mark.parametrize("line", ["{: .note #house }", "{:toc}"])
def test_attributes_in_a_line_of_their_own_stay_there(line: str):
    for content in (
        f"The sea\nis near.\n{line}\n",
        f"{line}\nThe sea\nis near.\n",
        f"- The sea\n  is near.\n  {line}\n",
    ):
        assert texts_of(content) == ["The sea is near."]
        assert line in translated(content, lambda _: "Das Meer ist nah.").splitlines()[0 if content[0] == "{" else -1]


def test_definitions_in_lines_below_each_other_stay_in_their_lines():
    for mark in ("*[{}]: ", "[^{}]: "):
        content = f"{mark.format('A')}The sea\n{mark.format('B')}The house\n"
        assert texts_of(content) == ['The sea<b i="0"/>The house']
        assert translated(content, lambda _: 'Meer<b i="0"/>Haus') == content.replace("The sea", "Meer").replace(
            "The house", "Haus"
        )


def test_a_text_that_cannot_be_written_stays_and_that_is_said():
    document = read_document("a.md", b"The sea\n\nThe {#old} house\n\nA {#new} house\n")
    written = document.write(["Meer", 'Haus {#a<v i="0"/>', 'Haus {#<v i="0"/>a}'])
    assert written.startswith(b"Meer\n\n")
    for note in document.notes:
        assert "texts stay as they are, for their translations would mean something else: " in note


BODY = "    The sea\n    is near.\n\n    - The house\n\n    ```\n    the code\n    ```\n"


@pytest.mark.parametrize(
    ("start", "titles"),
    [
        ('!!! note "The title"\n\n', ["The title"]),
        ("!!! note\n", []),
        ('??? tip "The title"\n', ["The title"]),
        ('???+ tip inline end "The title"\n', ["The title"]),
        ('=== "The title"\n\n', ["The title"]),
        ("[^1]: The title\n\n", ["The title"]),
        ("Tom\n\n:   The title\n\n", ["Tom", "The title"]),
    ],
)
def test_the_body_of_a_note_is_translated_and_its_marks_stay(start: str, titles: list[str]):
    content = f"{start}{BODY}\nThe end\n\n    more code\n"
    assert texts_of(content) == [*titles, "The sea is near.", "The house", "The end"]
    assert translated(content, lambda text: text.replace("The", "Das")) == content.replace("The", "Das").replace(
        "Das sea\n    is near", "Das sea is near"
    )


def test_a_note_inside_a_note_and_code_that_looks_like_one():
    content = "!!! note\n\n    !!! tip\n\n        The sea\n\n    The house\n"
    assert texts_of(content) == ["The sea", "The house"]
    assert translated(content, str.upper) == content.replace("The sea", "THE SEA").replace("The house", "THE HOUSE")
    fenced = f"```\n{content}```\n\n    The code\n"
    assert texts_of(fenced) == []


@pytest.mark.parametrize(
    ("start", "title"),
    [
        (":::warning The title\n", True),
        ("::: tip The title\n", True),
        (":::note[The title]\n", True),
        (":::tip\n", False),
    ],
)
@pytest.mark.parametrize("blank", ["", "\n"])
def test_the_title_of_a_block_between_colons_is_translated(start: str, title: bool, blank: str):
    content = f"{start}{blank}The sea\n{blank}:::\n"
    assert texts_of(content) == ["The title"] * title + ["The sea"]
    assert translated(content, str.upper) == content.replace("The title", "THE TITLE").replace("The sea", "THE SEA")


def test_a_title_with_marks_that_would_end_it_stays():
    content = '!!! note "The title"\n'
    assert translated(content, lambda _: 'The "title"') == content
