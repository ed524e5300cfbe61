"""`lingon inspect` prints everything that a bundle declares; exit code 1 names every changed file."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lingon.bundle.manifest import Alignment, Languages, Precision, SourceLanguage, TargetLanguage
from lingon.bundle.store import Bundle, write_bundle
from lingon.cli.inspect import MOST_NAMED
from lingon.cli.main import main
from tests.support.bundles import FILES, MANIFEST, write_small_bundle

INSPECT = EntryPoint("inspect", "lingon.cli.inspect:inspect", "lingon.verbs")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return write_small_bundle(tmp_path / "en-de" / "1")


def inspect(*arguments: object) -> int:
    return main(["inspect", *map(str, arguments)], [INSPECT])


def test_everything_that_a_bundle_declares_is_printed(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(bundle.folder.parent) == 0
    printed = capsys.readouterr().out
    digest = hashlib.sha256((bundle.folder / "manifest.json").read_bytes()).hexdigest()
    assert printed.startswith(f"{digest}  en-de/1/manifest.json\n")  # the line of a file of trusted bundles
    told = [
        "en-de/1",
        "en to de",
        "transformer é",
        "4000 source pieces",
        "pad 0, bos 1",
        "128 tokens",
        "1.5 x source + 10",
    ]
    told += ["4, at most 8", "0.6", "memory.0.key", "4 x capacity x 64", "CUDAExecutionProvider", "not run on cuda"]
    told += ["sentences 500, excused 0", "layer 2, heads 0, 3", *FILES, "2.05 kB", "7 B"]
    assert [entry for entry in told if entry not in printed] == []


@pytest.mark.parametrize(("count", "more"), [(20, ""), (23, "and3more")])
def test_at_most_twenty_languages_of_each_side_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, more: str
) -> None:
    targets = tuple(TargetLanguage(f"qaa-x-{number}", (), (4,)) for number in range(count))
    languages = Languages((SourceLanguage("en", (), ()), SourceLanguage("de", (), ())), targets)
    manifest = replace(MANIFEST, source_language="mul", target_language="mul", languages=languages)
    assert inspect(write_bundle(tmp_path / "1", manifest, FILES).folder) == 0
    printed = "".join(capsys.readouterr().out.split())  # a long line is folded anywhere
    shown = ",".join(f"qaa-x-{number}" for number in range(20))
    assert f"languagesen,deto{shown}{more}architecture" in printed


def test_a_model_without_attention_has_no_alignment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = replace(MANIFEST, alignment=Alignment(0, ()), architecture="rnnenc")
    assert inspect(write_bundle(tmp_path / "1", manifest, FILES).folder) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^ architecture +rnnenc *$", printed, re.MULTILINE)
    assert re.search(r"^ alignment +none *$", printed, re.MULTILINE)


def test_what_a_user_asks_comes_first_and_a_pipe_gets_no_lines_of_boxes(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(bundle.folder) == 0
    printed = capsys.readouterr().out
    places = [printed.index(f"\n{title}") for title in ("precisions", "parity of fp32", "files", "decoder states")]
    assert places == sorted(places)
    assert not re.search("[\u2500-\u257f]", printed)
    assert re.search(r"^ fp32 +2\.10 kB ", printed, re.MULTILINE), "the graphs and the weights that they read"


def test_json_holds_the_manifest_and_every_file(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(bundle.folder, "--json") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["manifest"] == json.loads((bundle.folder / "manifest.json").read_bytes())
    assert (values["bundle"], values["intact"]) == ("en-de/1", True)
    assert values["manifest_sha256"] == hashlib.sha256((bundle.folder / "manifest.json").read_bytes()).hexdigest()
    assert {file["name"]: (file["bytes"], file["state"]) for file in values["files"]} == {
        name: (len(content), "ok") for name, content in FILES.items()
    }


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_every_changed_file_is_named(options: list[str], bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle.folder / "fp32" / "encoder.onnx").write_bytes(b"encodes")
    (bundle.folder / "tokenizer.model").unlink()
    (bundle.folder / "notes[red].txt").write_text("mine")
    (bundle.folder / "link").symlink_to("nowhere")
    assert inspect(bundle.folder, *options) == 1
    printed, error = capsys.readouterr()
    wrong = [
        "fp32/encoder.onnx (altered)",
        "link (not listed)",
        "notes[red].txt (not listed)",
        "tokenizer.model (missing)",
    ]
    assert error == f"lingon: error: {bundle.folder}: not as published: {', '.join(wrong)}\n"
    assert "notes[red].txt" in printed
    if options:
        assert json.loads(printed)["intact"] is False


def test_an_altered_manifest_is_named(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    path = bundle.folder / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"4000", b"5000"))
    assert inspect(bundle.folder) == 1
    assert capsys.readouterr().err == f"lingon: error: {path}: was altered (its digest does not fit)\n"


def test_a_missing_bundle_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(tmp_path) == 1
    assert "no bundle" in capsys.readouterr().err


def test_the_base_install_is_enough(bundle: Bundle) -> None:
    code = (
        "import sys\nfor name in ('numpy', 'onnx', 'onnxruntime', 'sentencepiece', 'grpc', 'pydantic'):\n"
        "    sys.modules[name] = None\n"
        "from lingon.cli.inspect import inspect\nfrom pathlib import Path\ninspect(Path(sys.argv[1]), as_json=False)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(bundle.folder)], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_an_error_names_a_few_of_many_damaged_files(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(MOST_NAMED + 2):
        (bundle.folder / f"added-{number}").write_text("x")
    assert inspect(bundle.folder) == 1
    error = capsys.readouterr().err
    assert error.count("added-") == MOST_NAMED
    assert error.endswith(" and 2 more\n")


def test_no_character_of_a_bundle_controls_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precision = Precision(
        "CPUExecutionProvider", "\x9b31m \u202e", (), {"checks\x1b[2J": {"of\x07": "them\x1b]0;title"}}
    )
    bundle = write_bundle(tmp_path / "1", replace(MANIFEST, precisions={"fp32": precision}), FILES)
    (bundle.folder / "more\x1b[31m").write_bytes(b"")
    assert inspect(bundle.folder) == 1
    printed = capsys.readouterr()
    assert all(each.isprintable() or each == "\n" for each in printed.out + printed.err)
    assert "more\\x1b[31m (not listed)" in printed.err
