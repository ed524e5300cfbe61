"""From matrices to words and to lines of a terminal."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from lingon.cli.attend.image import draw as draw_image
from lingon.cli.attend.labels import clusters, right_aligned, shortened, upright
from lingon.cli.attend.picture import Panel, Picture, make_picture
from lingon.cli.attend.terminal import Screen, draw
from lingon.cli.attend.words import Group, axes, by_piece, by_word, merge
from lingon.client.values.results import AttentionMatrix, Piece, ScoreResult


def pieces(text: str, *spans: tuple[int, int], unknown: tuple[int, ...] = ()) -> tuple[Piece, ...]:
    named = [Piece("<unk>" if place in unknown else f"p{place}", span) for place, span in enumerate(spans)]
    return (*named, Piece("</s>", (len(text), len(text))))


def labels(groups: list[Group]) -> list[str]:
    return [group.label for group in groups]


@pytest.mark.parametrize(
    ("text", "spans", "words"),
    [
        ("an old cow", [(0, 2), (3, 4), (4, 6), (7, 10)], ["an", "old", "cow"]),
        ("a Ω b", [(0, 1), (1, 2), (2, 3), (4, 5)], ["a", "Ω", "b"]),  # the second is the space alone
        ("a Ωb", [(0, 1), (2, 3), (2, 3), (3, 4)], ["a", "Ωb"]),  # two bytes of one character
        ("我家", [(0, 1), (0, 1), (0, 1), (1, 2)], ["我", "家"]),  # three bytes of the first character
        ("我喜欢 ok", [(0, 1), (1, 3), (4, 6)], ["我", "喜欢", "ok"]),
        ("안녕 하세", [(0, 1), (1, 2), (3, 5)], ["안녕", "하세"]),
        ("ไทยดี", [(0, 3), (3, 5)], ["ไทย", "ดี"]),
    ],
)
def test_words_end_at_spaces_and_at_characters_of_scripts_without_spaces(
    text: str, spans: list[tuple[int, int]], words: list[str]
) -> None:
    groups = by_word(text, pieces(text, *spans))
    assert labels(groups) == [*words, "</s>"]
    assert [place for group in groups for place in group.places] == list(range(len(spans) + 1))


def test_a_source_without_an_end_token_has_words_alone() -> None:
    groups = by_word("an old", pieces("an old", (0, 2), (3, 6))[:-1])
    assert [(group.label, group.places) for group in groups] == [("an", (0,)), ("old", (1,))]


def test_an_unknown_piece_shows_its_characters() -> None:
    assert labels(by_piece("a Ω", pieces("a Ω", (0, 1), (2, 3), unknown=(1,)))) == ["p0", "<unk> Ω", "</s>"]


def test_rows_of_words_sum_to_one_as_rows_of_pieces_do() -> None:
    draws = random.Random(0)
    rows = [Group("a", (0, 1)), Group("b", (2,)), Group("c", (3, 4, 5))]
    columns = [Group("x", (0,)), Group("y", (1, 2, 3)), Group("z", (4,))]
    weights = [[draws.random() for _ in range(5)] for _ in range(6)]
    weights = [[each / sum(row) for each in row] for row in weights]
    merged = merge(weights, rows, columns)
    assert [len(row) for row in merged] == [3] * 3
    assert all(sum(row) == pytest.approx(1) for row in merged)
    assert merged[0][1] == pytest.approx(sum(weights[0][1:4] + weights[1][1:4]) / 2)


def test_the_columns_of_a_decoder_begin_with_the_begin_token_and_have_no_end_token() -> None:
    result = ScoreResult(
        source_pieces=pieces("", (0, 0)), normalised_target="ab c", target_pieces=pieces("ab c", (0, 1), (1, 2), (3, 4))
    )
    rows, columns = axes("decoder", result, pieces=False)
    assert (labels(rows), labels(columns)) == (["ab", "c", "</s>"], ["<s>", "ab", "c"])
    assert [column.places for column in columns] == [(0,), (1, 2), (3,)]


def wide_picture(columns: int, label: str = "word") -> Picture:
    weights = tuple(tuple(1.0 if row == column else 0.0 for column in range(columns)) for row in range(3))
    names = tuple(f"{label}{place}" for place in range(columns))
    return Picture("cross", "m/1", ("one", "two", "three"), names, (Panel(0, 0, weights),))


@pytest.mark.parametrize("coloured", [True, False])
@pytest.mark.parametrize("width", [20, 33, 80])
@pytest.mark.parametrize("label", ["word", "我们"])
def test_no_line_of_a_long_sentence_exceeds_the_terminal_and_no_weight_is_lost(
    width: int, label: str, coloured: bool
) -> None:
    lines = [line.plain for line in draw(wide_picture(90, label), Screen(width, coloured))]
    assert max(cell_len(line) for line in lines[:-1]) <= width  # the last one says what is shown
    rows = [line for line in lines if line.lstrip().startswith("three ")]
    assert len(rows) > 1
    assert coloured or sum("█" in row for row in rows) == 1


def test_weights_are_numbers_in_percent_where_there_are_colours_and_shades_where_there_are_none() -> None:
    matrix = AttentionMatrix("cross", 0, 0, ((0.25, 0.75), (0.02, 0.98)))
    result = ScoreResult(
        normalised_source="a",
        normalised_target="b",
        source_pieces=pieces("a", (0, 1)),
        target_pieces=pieces("b", (0, 1)),
    )
    picture = make_picture(result, (matrix,), pieces=False, mean_of="")
    coloured, plain = ([line.plain for line in draw(picture, Screen(80, each))] for each in (True, False))
    assert [line.split() for line in coloured if line.endswith(("75 ", "98 "))] == [["b", "25", "75"], ["</s>", "98"]]
    assert [line.split() for line in plain if "▓▓" in line and "weight" not in line] == [["b", "░░", "▓▓"]]


def test_labels_count_cells_and_keep_combining_marks_together() -> None:
    assert clusters("e\u0301a") == ["e\u0301", "a"]
    assert shortened("我们在家", 5) == "我们…"
    assert cell_len(right_aligned("我们", 6)) == 6
    assert right_aligned("שלום", 6).endswith("ם\u200e")
    assert list(upright(["ab", "c"], 2, 5)) == ["a", "bc".replace("bc", "b c")]


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_an_image_is_valid_and_has_the_same_bytes_each_time(kind: str, heads: int) -> None:
    picture = wide_picture(5)
    picture = replace(picture, panels=tuple(Panel(0, head, picture.panels[0].weights) for head in range(heads)))
    content = draw_image(picture, kind)
    assert content == draw_image(picture, kind)
    if kind == "svg":
        assert ElementTree.fromstring(content).tag.endswith("svg")
    else:
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        assert min(struct.unpack(">II", content[16:24])) > 100


def test_an_svg_image_has_the_labels_as_text_and_a_dollar_sign_is_no_formula() -> None:
    picture = replace(wide_picture(2), columns=("$x$", "שלום"))
    root = ElementTree.fromstring(draw_image(picture, "svg"))
    texts = {"".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"$x$", "שלום", "one", "two", "three", "source", "target", "100"} <= texts


def test_a_png_image_without_a_glyph_is_one_warning(capfd: pytest.CaptureFixture[str]) -> None:
    draw_image(replace(wide_picture(2), columns=("\U000f0000", "\U000f0001")), "png")
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("lingon: warning: the fonts of this machine lack characters of the labels")
