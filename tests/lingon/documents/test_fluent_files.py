"""Files of Fluent: which patterns are translated, how they are written, and that all else stays byte for byte."""

from __future__ import annotations

import pytest
from fluent.syntax import ast, parse
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.documents import other, rewritten, texts_of, translated

PARTS = [
    *("q", "q", " ", "a", "\u00e9", "<b>", "</b>", "%s", '"', "\\", "# ", "/", "=", ", ", "[x]", ".", "-> "),
    *("{ $name }", "{$a}", "{ NUMBER($n, minimumFractionDigits: 2) }", "{ -brand }", "{ other-message.title }"),
    *('{ "{" }', '{ "" }', '{ -brand(case: "genitive") }', "{ 5 }"),
]
LINES = st.lists(st.sampled_from(PARTS), max_size=5).map(lambda parts: "Tom " + "".join(parts) + "q.")
BRANCHES = """{{ $n ->
{0}    [0] {1}
{0}    [one] {2}
{0}   *[other]
{0}        {3}
{0}}}"""


@st.composite
def patterns(draw: st.DrawFn, indent: int) -> str:
    """Patterns of one line or several, with select expressions among them."""
    blanks = " " * indent
    lines = draw(st.lists(LINES, min_size=1, max_size=3))
    if draw(st.booleans()):
        lines = [
            *lines,
            BRANCHES.format(blanks, draw(LINES), draw(LINES), draw(LINES)) + draw(st.sampled_from(["", " q"])),
        ]
    begin = draw(st.sampled_from([" ", f"\n{blanks}", f"  \n\n{blanks}"]))
    return begin + draw(st.sampled_from([f"\n{blanks}", f"\n\n{blanks}", f"\n{blanks}  "])).join(lines)


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files of messages, terms, attributes and comments."""
    found = ["### q", "-brand = Tom q", "    .case = Tim q", ""]
    for number in range(draw(st.integers(1, 3))):
        found += draw(st.lists(st.sampled_from(["# Tom q", "", "## Group"]), max_size=1))
        found.append(f"m{number} ={draw(patterns(2 + number))}")
        found += [f"    .title ={draw(patterns(8))}"] if draw(st.booleans()) else []
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join("\n".join(found).split("\n")) + draw(st.sampled_from(["", end]))


def shape(text: str) -> list[str]:
    """Return what the messages of a file say; what is in braces is the kind of its expression."""
    found = list[str]()

    def read(pattern: ast.Pattern) -> str:
        parts = list[str]()
        for element in pattern.elements:
            if isinstance(element, ast.TextElement):
                parts.append(element.value)
            elif isinstance(element.expression, ast.SelectExpression):
                variants = element.expression.variants
                parts.append(f"<{'|'.join(f'{_key(each)}={read(each.value)}' for each in variants)}>")
            elif isinstance(element.expression, ast.StringLiteral):
                parts.append(element.expression.value)
            else:
                parts.append(type(element.expression).__name__)
        return "".join(parts)

    for entry in parse(text).body:
        assert not isinstance(entry, ast.Junk), entry.content
        if isinstance(entry, ast.Message):
            found += [read(entry.value)] if entry.value else []
            found += [f".{attribute.id.name} {read(attribute.value)}" for attribute in entry.attributes]
    return found


def _key(variant: ast.Variant) -> str:
    return variant.key.name if isinstance(variant.key, ast.Identifier) else variant.key.value


@given(files())
def test_a_file_whose_texts_stay_is_written_byte_for_byte(text: str):
    shape(text)
    assert translated("a.ftl", text) == text.encode()
    assert translated("a.ftl", text.encode("utf-8-sig")) == text.encode("utf-8-sig")


@given(files())
def test_any_text_is_written_so_that_fluent_reads_it(text: str):
    written = rewritten("a.ftl", text).decode()
    assert shape(written) == [other(each) for each in shape(text)]
    assert [line for line in written.splitlines() if line.startswith(("#", "-"))] == [
        line for line in text.splitlines() if line.startswith(("#", "-"))
    ]


@pytest.mark.parametrize("sign", [*"[*.{}"])
def test_a_line_that_would_begin_something_else_is_written_as_a_string(sign: str):
    for text in ("a =\n    Tom\n    Tim.\n", "a = Tom\n    Tim.\n"):
        written = translated("a.ftl", text, lambda each: f"{sign}x {each}".replace("/>", f"/>{sign}"))
        assert shape(written.decode()) == [f"{sign}x Tom\n{sign}Tim."]


TWO = "a =\n    { $n ->\n        [one] one file\n       *[other] { $n } files\n    }\n"


@pytest.mark.parametrize(
    ("target", "added"), [("de", []), ("", []), ("ru", ["few", "many"]), ("ar", ["zero", "two", "few", "many"])]
)
def test_variants_that_the_language_has_are_added(target: str, added: list[str]):
    lines = "".join(f"        [{form}] {{ $n }} FILES\n" for form in added)
    expected = (
        TWO.replace("one file", "ONE FILE")
        .replace("       *[other]", f"{lines}       *[other]")
        .replace("files", "FILES")
    )
    assert translated("a.ftl", TWO, str.upper, target).decode() == expected


def test_variants_within_a_sentence_are_texts_of_their_own():
    inner = "{ $m ->\n        [y] red file\n       *[z] blue file\n     }"
    text = f"a = You have {{ $n ->\n    [x] one {inner} here\n   *[other] files\n }} left.\n"
    assert texts_of("a.ftl", text) == ["red file", "blue file", "one {0} here", "files", "You have {0} left."]
    expected = text.replace("red file", "RED FILE").replace("blue file", "BLUE FILE").replace("one {", "ONE {")
    expected = (
        expected.replace("here", "HERE")
        .replace("files", "FILES")
        .replace("You have", "YOU HAVE")
        .replace("left", "LEFT")
    )
    assert translated("a.ftl", text, str.upper).decode() == expected


def test_terms_comments_keys_of_the_keyboard_and_patterns_without_words_stay():
    text = "-brand = Tom\n    .case = Tim\n# Tam\na = { -brand }\n    .accesskey = T\n    .label = Open\n"
    text += "b = { $x }: { 5 }\n"
    assert texts_of("a.ftl", text) == ["Open"]


def test_what_is_in_braces_may_move_and_is_never_lost():
    text = "a = From { $x } to { DATETIME($y) }\n"
    assert translated("a.ftl", text, lambda _: "{1} from {0}").decode() == ("a = { DATETIME($y) } from { $x }\n")
    assert translated("a.ftl", text, lambda _: "{1}").decode() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = Tom\nb\n", "the Fluent in the file is broken at line 2, column 2"),
        ("a = Tom\n\nb = { $n -> }\n", "the Fluent in the file is broken at line 3, column"),
        ("a = {" * 2 + "{" * 40, "braces are in more than 32 others"),
        ("a = b" * 1000, "the file has 5,000 characters; at most 4,096"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_the_place(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lingon.documents.fluent_files.MOST_CHARACTERS", 4096)
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.ftl", text.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_braces_in_strings_are_no_braces_around_others():
    assert texts_of("a.ftl", "a = Tom" + ' { "{" }' * 100 + "\n") != []
