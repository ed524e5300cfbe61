"""What of a line is translated, and what is kept around it: marks of lists, columns, escapes, separators of lists."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.segments.boundaries import is_blank
from lingon.segments.layout import Split, TextLayout, cells_of, cut
from lingon.segments.protection import KeptStrings, find_protected, uncut
from tests.support.repository import scaled
from tests.support.timing import LINEAR, growth_of

BULLETS = ["•", "·", "-", "–", "—", "*", "+", "#", "##", "»", ">", ">>", "▪", "‣", "■", "●", "→", "\uf0b7", "☐", "☑"]
BOXES = ["[ ]", "[x]", "[X]", "[]", "[-]"]
NUMBERS = ["1.", "12.", "1.2.", "1)", "12)", "(1)", "[1]", "3.-", "3-", "①", "⑫"]
LETTERS = ["a)", "Z)", "(a)", "(B)", "a.", "h.", "a.)", "ب)", "б)", "（a）"]
ROMANS = ["i.", "ii.", "iv.", "viii.", "IV.", "XII.", "iv)", "(iv)", "(X)"]
MARKS = [*BULLETS, *BOXES, *NUMBERS, *LETTERS, *ROMANS]
TEXTS = [
    "Please close the window.",
    "bread",
    "Öl und Brot",
    "Привет, мир",
    "مرحبا",
    "5 eggs",
    "“Go.”",
    "a house of wood",
]
BLANKS = [" ", "  ", "\t", "\xa0"]

NOT_MARKED = [
    "I. Newton was born here",
    "A. Rossi is here",
    "V. Woolf wrote it",
    "1. January is a holiday",
    "3. Oktober",
    "24. prosince",
    "-5 degrees",
    "−5 degrees",
    "+5 points",
    "#hashtag",
    "*emphasis* of a word",
    "**strong** words",
    "_low_ words",
    ">quoted",
    "-force option",
    "--force the door",
    "(s)he is here",
    "1.5 litres of milk",
    "1.2.3 is out",
    "d. 1990 in Boston",
    "i. e. the house",
    "e. g. a house",
    "z. B. ein Haus",
    "a. a. O. steht es",
    "# of users",
    "2019. godine",
    "[name] is here",
    "[X7X] is here",
    "○○さん",
    "» Hallo «",
]


def segments(text: str, split: Split = Split.SENTENCES, language: str = "en", *, collapses: bool = False) -> list[str]:
    return [text[begin:end] for begin, end in cut(text, split, language, collapses=collapses) if begin < end]


@pytest.mark.parametrize("mark", MARKS)
def test_the_mark_of_an_item_and_its_blanks_are_no_part_of_the_text(mark: str):
    texts = [text for text in TEXTS if not (len(mark) == 2 and mark[0].islower() and text[0].isdigit())]  # "d. 1990"
    for blanks, text in itertools.product(BLANKS, texts):
        assert segments(f"{mark}{blanks}{text}") == [text]


@settings(max_examples=scaled(100, 5_000))
@given(
    st.lists(st.sampled_from([*BULLETS, *BOXES]), max_size=3),
    st.sampled_from([*NUMBERS, *LETTERS, *ROMANS, ""]),
    st.sampled_from(TEXTS[:5]),
    st.sampled_from(["", " ", "\n", "One line.\n", "a\t"]),
)
def test_several_marks_in_a_row_are_cut_off_at_the_begin_of_every_line(
    signs: list[str], number: str, text: str, before: str
):
    found = segments(before + "".join(f"{mark} " for mark in [*signs, *([number] if number else [])]) + text)
    assert found[-1] == text


@pytest.mark.parametrize("text", NOT_MARKED)
def test_what_only_looks_like_a_mark_is_part_of_the_text(text: str):
    assert segments(text) == [text]
    assert segments(f"- {text}") == [text]


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_alone_is_nothing_to_translate(mark: str):
    assert segments(mark) == []
    assert segments(f"One\n{mark}\nTwo") == ["One", "Two"]


@pytest.mark.parametrize("dash", ["- ", "– ", "— ", "-", "—", "―"])
@pytest.mark.parametrize("split", [Split.SENTENCES, Split.NONEWLINES])
def test_two_voices_of_a_caption_keep_their_own_lines(dash: str, split: Split):
    assert segments(f"{dash}Yes?\n{dash}Come here.", split) == ["Yes?", "Come here."]


@pytest.mark.parametrize("dash", ["-", "–", "—"])
def test_two_voices_in_one_line_keep_their_dashes(dash: str):
    assert segments(f"{dash} Are you there? {dash} Come here.") == ["Are you there?", "Come here."]
    assert segments(f"He is {dash} as you know {dash} not here.") == [f"He is {dash} as you know {dash} not here."]


def test_lines_of_wrapped_text_are_items_if_two_of_them_have_the_same_mark():
    assert segments("We need\n- bread\n  and butter\n- milk\n\n- A dash", Split.NONEWLINES) == [
        "We need",
        "bread\n  and butter",
        "milk",
        "A dash",
    ]
    assert segments("The answer\n- if there is any -\nis here", Split.NONEWLINES) == [
        "The answer\n- if there is any -\nis here"
    ]


@pytest.mark.parametrize("gap", ["\t", "\t\t", " \t", "   ", "\xa0\xa0\xa0", " \u3000 ", " " * 40])
@given(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=6))
def test_tabs_and_columns_of_blanks_are_borders(gap: str, texts: list[str]):
    assert segments(gap.join(texts)) == texts


def test_two_blanks_are_no_border_and_neither_is_the_indentation_of_a_line():
    assert segments("one  two") == ["one  two"]
    assert segments("one\n        two", Split.NONEWLINES) == ["one\n        two"]
    assert segments("one    \ntwo", Split.NONEWLINES) == ["one    \ntwo"]


def test_in_html_only_hard_blanks_are_columns():
    assert segments("one \t  two\xa0\xa0\xa0three", collapses=True) == ["one \t  two", "three"]


@pytest.mark.parametrize("escape", [r"\n", r"\r\n", r"\r", r"\t", r"\n\n", r"\\n", r"\\r\\n", r"\n\t- ", r"\N"])
@given(st.lists(st.sampled_from([*TEXTS, "C", "Name:", "Saved."]), min_size=2, max_size=5))
def test_written_line_breaks_and_tabs_are_borders(escape: str, texts: list[str]):
    assert segments(escape.join(texts)) == texts
    assert segments(escape + f" {escape} ".join(texts) + escape) == texts


@pytest.mark.parametrize(
    "path",
    [
        r"C:\new\readme",
        r"C:\temp",
        r"D:\rest\new.txt",
        r"\\server\new\texts",
        r"..\new",
        r"%TEMP%\new",
        r"docs\main\new",
        r"docs\new\main",
        r"docs\test\run\Output",
        r"docs\new\readme.txt",
        r"\noindent",
        r"\textbf{word}",
        r"$\alpha\times\tau$",
    ],
)
def test_a_path_and_a_command_have_no_border(path: str):
    text = f"Open {path} and read it"
    assert segments(text) == [text]
    assert segments(f"{text}.\\nPlease go.") == [f"{text}.", "Please go."]


def test_a_path_may_begin_right_after_a_written_line_break():
    assert segments(r"Saved.\nC:\temp\new is there") == ["Saved.", r"C:\temp\new is there"]


CRUMBS = ["Home", "About us", "Contact", "Products for home and garden", "Über uns", "О нас", "家"]


@pytest.mark.parametrize("sign", [" > ", " | ", " · ", " › ", " » ", " / ", " • ", " → ", "  |  ", " >> ", " || "])
@given(st.lists(st.sampled_from(CRUMBS[:3] + CRUMBS[4:]), min_size=2, max_size=6))
def test_the_names_of_a_menu_are_texts_of_their_own(sign: str, names: list[str]):
    assert segments(sign.join(names)) == names


@pytest.mark.parametrize(
    "text",
    [
        "If the size > limit, close it.",
        "size > limit",
        "x > y",
        "he / she",
        "5 apples > 3 pears",
        "Temperature > 30 °C",
        "The price of the house is high > see the long list of all other houses",
        "P(A | B) is small",
        "Go to Home > Products.",
        "« Bonjour » dit-il",
    ],
)
def test_a_comparison_or_a_sentence_is_no_list_of_names(text: str):
    assert segments(text) == [text]


WITHOUT_LETTERS = [
    "12:30",
    "•",
    "©",
    "§ 5",
    "!!!",
    "_____",
    "---",
    "**",
    "$1,299.99",
    "5 > 3",
    "½",
    "Ⅳ",
    "①",
    "٣",
    "😀",
    "²",
]


@pytest.mark.parametrize("text", WITHOUT_LETTERS)
@pytest.mark.parametrize("split", [Split.SENTENCES, Split.NONEWLINES])
def test_a_text_without_letters_is_nothing_to_translate(text: str, split: Split):
    assert segments(text, split) == []
    assert segments(f"{text}\tName\t{text}", split) == ["Name"]
    assert segments(f"Name\n\n{text}\n\nAge", split) == ["Name", "Age"]


PIECES = [*MARKS, *TEXTS, *BLANKS, *CRUMBS, *WITHOUT_LETTERS, "\n", r"\n", " | ", " > ", "   ", "(", "“", "C:\\"]


@settings(max_examples=scaled(100, 10_000))
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.sampled_from(Split))
def test_the_texts_in_their_own_places_give_the_whole_back(text: str, split: Split):
    document = TextLayout.of(text, split, "en")
    own = [document.segment(index) for index in range(len(document.segments))]
    assert document.join(own).text == text
    assert document.join(own).spans == document.segments
    assert not any(is_blank(each[0]) or is_blank(each[-1]) for each in own)


KEPT = KeptStrings(["a | b", "Name\tAge", "- Go", "• x", "One\nTwo", "> 5", "[ ] Box", "{a   b}"])
CROSSING = [
    "a | b",
    "Name\tAge",
    "- Go",
    "• x",
    "One\nTwo",
    "> 5",
    "[ ] Box",
    "{a   b}",
    "#1 https://e.org/a",
    "☐ Go",
    "%s\t%d",
]


@settings(max_examples=scaled(100, 10_000))
@given(st.lists(st.sampled_from([*CROSSING, *MARKS, *TEXTS, " ", "\n", "\t", " | "]), max_size=20).map("".join))
def test_a_string_that_is_kept_is_whole_in_a_segment_or_outside_of_all(text: str):
    spans = find_protected(text, KEPT)
    inside = set[tuple[int, int]]()
    last = 0
    for (begin, end), own in uncut(cut(text, Split.SENTENCES, "en"), spans):
        assert last <= begin <= end
        assert all(0 <= span.begin < span.end <= end - begin for span in own)
        inside |= {(begin + span.begin, begin + span.end) for span in own}
        assert not any(span.begin < end and begin < span.end and span[:2] not in inside for span in spans)
        last = end


HOSTILE = [
    *MARKS,
    r"\n",
    "\\",
    r"a\n",
    "a\t",
    "   ",
    "a | ",
    "A > ",
    "A / ",
    "» ",
    "(",
    "- a\n",
    "1\n",
    "a   ",
    "½",
    "－",
    "x\\y",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_grows_linearly_with_the_text(piece: str):
    def prepare(size: int):
        text = piece * (size // len(piece))
        return lambda: sum(1 for paragraph in ((0, len(text)),) for _ in cells_of(text, paragraph))

    growth = growth_of(prepare, 2**11, worth=0.002, most=2**17)
    assert growth.ratio <= LINEAR or growth.twice < 0.05
