"""`lingon attend`: the real command in a process of its own, over a real socket, and on the bundle of the digits."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from lingon.cli.attention import (
    Panel,
    Picture,
    TokenGroup,
    WantedMatrices,
    axes,
    by_piece,
    by_word,
    make_picture,
    merge,
)
from lingon.cli.attention_image import draw as draw_image
from lingon.cli.attention_text import Screen, clusters, draw, right_aligned, shortened, upright
from lingon.cli.main import main
from lingon.client.options import AttentionSelection, read_matrices
from lingon.client.results import AttentionMatrix, Piece, ScoreResult
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import ROOT
from tests.support.scripted_server import Command, FakeService
from tests.support.scripted_server import matrices as answered

DIGITS = ROOT / "tests" / "data" / "digits" / "1"

PICTURE = """\
cross-attention of en-de/1
layer 1, mean of the heads for alignments

          c
       h  o  <
       e  w  /
       r  i  s
       e  n  >
 HERE  ▓▓  · ░░
COWIN   · ▓▓ ░░
 </s>   ·  · ██

rows: target, columns: source; weight 0 ··░░▒▒▓▓██ 1
"""


def test_a_text_is_translated_and_its_matrix_is_drawn_without_colour_in_a_pipe(lingon: Command) -> None:
    assert lingon("attend", "here cowin") == (0, PICTURE, [])


def test_a_given_translation_is_not_translated_again(lingon: Command, service: FakeService) -> None:
    code, printed, _ = lingon("attend", "here cowin", "hier Kuh", "--json")
    assert (code, json.loads(printed)["target"]) == (0, "hier Kuh")
    (asked,) = service.requests
    assert isinstance(asked, pb.ScoreRequest)


@pytest.mark.parametrize(
    ("wanted", "selection", "matrices"),
    [
        ({}, {"alignment": True}, [(1, None)]),
        ({"mean": True}, {"kinds": ("cross",), "mean_of_heads": True}, [(1, None)]),
        ({"layer": 0}, {"kinds": ("cross",), "layers": (0,), "mean_of_heads": True}, [(0, None)]),
        ({"head": 1}, {"kinds": ("cross",), "heads": (1,)}, [(1, 1)]),
        ({"layer": 0, "head": 1}, {"kinds": ("cross",), "layers": (0,), "heads": (1,)}, [(0, 1)]),
        ({"kind": "encoder"}, {"kinds": ("encoder",), "mean_of_heads": True}, [(1, None)]),
        ({"grid": True}, {"kinds": ("cross",)}, [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ({"grid": True, "head": 0}, {"kinds": ("cross",), "heads": (0,)}, [(0, 0), (1, 0)]),
        ({"grid": True, "mean": True}, {"kinds": ("cross",), "mean_of_heads": True}, [(0, None), (1, None)]),
    ],
)
def test_the_options_choose_layers_and_heads(
    wanted: dict[str, Any], selection: dict[str, Any], matrices: list[tuple[int, int | None]]
) -> None:
    chosen = WantedMatrices(**wanted)
    asked = chosen.selection()
    assert asked == AttentionSelection(**selection)
    found = read_matrices(answered(pb.AttentionSelection(**asked.fields()), 3, 3))
    assert [(each.layer, each.head) for each in chosen.shown(found)] == matrices


def test_the_options_reach_the_server(lingon: Command, service: FakeService) -> None:
    options = ["--of", "decoder", "--layer", 1, "--head", 0, "--grid", "--model", "en-de/1"]
    code, printed, _ = lingon(
        "attend", "a cow", "eine Kuh", "--json", *options, "--server", lingon.environment["LINGON_SERVER"]
    )
    (asked,) = service.requests
    assert (code, json.loads(printed)["kind"], asked.model) == (0, "decoder", "en-de/1")
    assert asked.attention == pb.AttentionSelection(kinds=[pb.ATTENTION_KIND_DECODER], layers=[1], heads=[0])


def test_pieces_are_rows_and_columns_if_they_are_wanted(lingon: Command) -> None:
    shown = json.loads(lingon("attend", "a cowin", "Kuhla", "--of", "decoder", "--pieces", "--json")[1])
    assert (shown["rows"], shown["columns"]) == (["▁Kuh", "la", "</s>"], ["<s>", "▁Kuh", "la"])
    (matrix,) = shown["matrices"]
    assert [len(row) for row in matrix["weights"]] == [3] * 3


def test_a_grid_in_a_pipe_has_a_caption_for_each_head(lingon: Command) -> None:
    _, printed, _ = lingon("attend", "a cow", "eine Kuh", "--grid")
    assert [printed.count(f"layer {layer}, head {head}") for layer in (0, 1) for head in (0, 1)] == [1] * 4


def test_an_image_is_written_to_a_file(lingon: Command, tmp_path: Path) -> None:
    path = tmp_path / "attention.png"
    assert lingon("attend", "a cow", "eine Kuh", "--output", path) == (0, "", [])
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--output", "picture.pdf"], 2, "--output picture.pdf: the name must end in .png or .svg"),
        (["--output", "no/such/a.png"], 2, "--output no/such/a.png: No such file or directory"),
        (["--output", "a.png", "--json"], 2, "--output a.png is an image; leave out --json"),
        (["--mean", "--head", "1"], 2, "--mean is over all heads; leave out --head 1"),
    ],
)
def test_options_that_contradict_each_other_end_before_the_model_runs(
    options: list[str], code: int, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody = ["--server", "127.0.0.1:1"]
    assert run(["a", "b", *nobody, *options], capfd) == (code, "", [f"lingon: error: {error}"])


def test_without_matplotlib_the_error_names_the_extra(lingon: Command, tmp_path: Path) -> None:
    (tmp_path / "site" / "matplotlib.py").write_text("raise ModuleNotFoundError('none', name='matplotlib')")
    code, _, (error,) = lingon("attend", "a", "b", "--output", tmp_path / "a.png")
    assert code == 1
    assert "lingon attend --output needs what the extra 'plot' installs (matplotlib is missing): " in error


def test_a_text_that_is_too_long_is_named_without_fields_of_the_api(lingon: Command) -> None:
    expected = "lingon: error: the source has 9 tokens, the model reads 5 at most; shorten it"
    assert lingon("attend", "long") == (1, "", [expected])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--of", "encoder"], "--of: the model digits/1 has no encoder attention, only cross"),
        (["--layer", "3"], "--layer must be 0 to 0 for cross attention of this model, got 3"),
    ],
)
def test_what_a_bundle_does_not_have_is_an_error_of_one_line(
    options: list[str], expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["1 2", "2 1", "--model", str(DIGITS), *options], capfd) == (1, "", [f"lingon: error: {expected}"])


def run(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, list[str]]:
    """Run the verb in this process; returns the exit code, standard output and the errors."""
    code = main(["attend", *arguments], entry_points(group="lingon.verbs", name="attend"))
    printed = capfd.readouterr()
    return code, printed.out, [line for line in printed.err.splitlines() if "error" in line]


def pieces(text: str, *spans: tuple[int, int], unknown: tuple[int, ...] = ()) -> tuple[Piece, ...]:
    named = [Piece("<unk>" if place in unknown else f"p{place}", span) for place, span in enumerate(spans)]
    return (*named, Piece("</s>", (len(text), len(text))))


def labels(groups: list[TokenGroup]) -> list[str]:
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
    assert [position for group in groups for position in group.positions] == list(range(len(spans) + 1))


def test_a_source_without_an_end_token_has_words_alone() -> None:
    groups = by_word("an old", pieces("an old", (0, 2), (3, 6))[:-1])
    assert [(group.label, group.positions) for group in groups] == [("an", (0,)), ("old", (1,))]


def test_an_unknown_piece_shows_its_characters() -> None:
    assert labels(by_piece("a Ω", pieces("a Ω", (0, 1), (2, 3), unknown=(1,)))) == ["p0", "<unk> Ω", "</s>"]


def test_rows_of_words_sum_to_one_as_rows_of_pieces_do() -> None:
    draws = random.Random(0)
    rows = [TokenGroup("a", (0, 1)), TokenGroup("b", (2,)), TokenGroup("c", (3, 4, 5))]
    columns = [TokenGroup("x", (0,)), TokenGroup("y", (1, 2, 3)), TokenGroup("z", (4,))]
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
    assert [column.positions for column in columns] == [(0,), (1, 2), (3,)]


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
