"""`lingon attend`: the real command in a process of its own, over a real socket, and on the bundle of the digits."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from lingon.cli.attend.ask import Wanted
from lingon.cli.main import main
from lingon.client.values.attention import AttentionSelection, read_matrices
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import ROOT
from tests.support.scripted_server import FakeService
from tests.support.scripted_server import matrices as answered
from tests.support.verbs import Command

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
    chosen = Wanted(**wanted)
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
