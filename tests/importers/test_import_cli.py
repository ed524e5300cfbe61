"""`lingon import`: from files to a bundle that is served, a checkpoint that is trained further, or a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.bundle.store import open_bundle
from lingon.cli.main import main
from lingon.serving.in_process import LocalTranslator
from lingon.training.checkpoint import load_checkpoint
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.bundles import write_small_bundle
from tests.support.foreign_models import DATA, lines, save_multilingual, save_opus_mt, save_t5
from tests.support.random_models import accept_any_quality

GATES = ("--gate-source", str(DATA / "tatoeba.en"), "--gate-sentences", "40", "--parity-sentences", "20")


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "opus", seed=6)


def test_a_bundle_is_verified_and_served(opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = tmp_path / "models" / "opus"
    code = main(["import", str(opus), str(models), *GATES, "--least-log-prob", "-9", "--licence", "CC BY 4.0"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "all tensors used" in shown.err
    assert "tokens of 40 of 40 texts are the same" in shown.err
    bundle = open_bundle(models)
    assert bundle.manifest.precisions["fp32"].gate == "passed"
    assert (bundle.manifest.defaults.beam_size, bundle.manifest.alignment.heads) == (3, (0,))
    card = (bundle.folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "imported: Hugging Face MarianMTModel (OPUS-MT)" in card
    assert "licence: CC BY 4.0" in card
    with LocalTranslator(models) as translator:
        reply = translator.translate(pb.TranslateRequest(texts=lines("en")[:5]))
    assert all(result.hypotheses for result in reply.results)


def test_8_bits_with_native_operators_alone_have_their_ranges_from_the_text_for_the_gates(
    opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    command = ["import", str(opus), str(tmp_path / "opus"), *GATES, "--precision", "fp32,int8-native"]
    code = main([*command, "--least-log-prob", "-9", "--no-compare"])
    shown = capsys.readouterr().err
    assert code == 0, shown
    assert "int8-native: ranges from translations of 200 sentences by the model itself" in shown
    assert list(open_bundle(tmp_path / "opus").manifest.precisions) == ["fp32", "int8-native"]


def test_a_sentence_with_a_blank_reference_is_left_out_with_a_line(
    opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    references = tmp_path / "references.de"
    references.write_text("\n".join(["", " ", *lines("de")[2:]]) + "\n", encoding="utf-8")
    command = ["import", str(opus), str(tmp_path / "opus"), *GATES, "--gate-reference", str(references)]
    code = main([*command, "--least-log-prob", "-9", "--no-compare"])
    shown = capsys.readouterr().err
    assert code == 0, shown
    assert shown.count(f"{references}: 2 of 500 references are blank, their sentences are left out") == 1
    assert "fp32_bleu" in open_bundle(tmp_path / "opus").manifest.precisions["int8"].report["quality"]


@pytest.mark.parametrize("option", ["--gate-source", "--gate-reference"])
def test_text_for_the_gates_that_is_missing_is_named_before_a_model_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    command = ["import", str(tmp_path / "no model"), str(tmp_path / "models"), *GATES, option, str(tmp_path / "text")]
    assert main(command) == 1
    assert capsys.readouterr().err == f"lingon: error: {tmp_path / 'text'}: No such file or directory\n"


def test_blank_references_alone_are_no_text_for_the_gates(
    opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blank").write_text("\n" * 500, encoding="utf-8")
    command = ["import", str(opus), str(tmp_path / "opus"), *GATES, "--gate-reference", str(tmp_path / "blank")]
    assert main(command) == 2
    message = "no sentence for the gates: none has 2 to 128 source tokens and a reference"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "opus").exists()


def test_int8_is_left_out_with_a_line_if_it_costs_too_much(
    opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingon.export.gates_text.LEAST_LIKE_BLEU", 100.5)
    models = tmp_path / "models" / "opus"
    assert main(["import", str(opus), str(models), *GATES, "--least-log-prob", "-9", "--no-compare"]) == 0
    assert "; the bundle has no int8" in capsys.readouterr().err
    bundle = open_bundle(models)
    assert list(bundle.manifest.precisions) == ["fp32"]
    assert [path.name for path in models.iterdir()] == ["1"]
    found = {str(path.relative_to(bundle.folder)) for path in bundle.folder.rglob("*")}
    assert found == {
        *("manifest.json", "MODEL_CARD.md", "golden.json", "source.model", "target.model", "fp32", "weights"),
        *("fp32/encoder.onnx", "fp32/decoder.onnx", "fp32/scorer.onnx", "weights/fp32.bin"),
    }


def test_a_checkpoint_is_written_instead_of_a_bundle(opus: Path, tmp_path: Path) -> None:
    options = ["--languages", "sv:nb", "--max-source-tokens", "64"]
    assert main(["import", str(opus), "--checkpoint", str(tmp_path / "saved"), *options]) == 0
    config = load_checkpoint(tmp_path / "saved").config
    assert (config.data.source_language, config.data.target_language) == ("sv", "nb")
    assert (config.max_source_tokens, config.model.max_positions) == (64, 129)


def test_a_report_writes_nothing(opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in opus.iterdir())
    assert main(["import", str(opus), "--report"]) == 0
    assert "renumbered" in capsys.readouterr().err
    assert sorted(path.name for path in opus.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "sources"), [("nllb", "de, en, fr, zh, zh-Hant to de, en, fr, zh, "), ("madlad", "mul to ")]
)
def test_a_report_lists_all_languages_of_a_model_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, sources: str
) -> None:
    save = save_t5 if kind == "madlad" else save_multilingual
    folder = save(tmp_path / "files", kind, seed=3)
    assert main(["import", str(folder), "--report"]) == 0
    shown = capsys.readouterr().err
    assert sources in shown
    assert "gates" not in shown
    assert main(["import", str(folder), str(tmp_path / "models" / "many"), *GATES]) == 2
    assert "--report lists all" in capsys.readouterr().err


def test_the_folder_of_a_version_is_refused_before_the_model_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version = write_small_bundle(tmp_path / "models" / "opus" / "1").folder
    assert main(["import", str(tmp_path / "no model"), str(version), *GATES]) == 2
    shown = capsys.readouterr().err
    assert f"name the folder of the model, {version.parent}: the next version is written below it" in shown
    assert len(shown.splitlines()) == 1
    open_bundle(version).verify()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name one of: the folder of a model (models/NAME), --checkpoint FOLDER, --report"),
        (["models/x", "--report"], "name one of: the folder of a model"),
        (
            ["models/x", "--languages", "xx:nb"],
            "the locale data have none in xx: name sentences of the source language",
        ),
        (["models/x", "--gate-reference", GATES[1]], "--gate-reference needs sentences of the source language"),
        (["models/x", "--shortlist", "learn"], "--shortlist learn needs sentences of the source language"),
        (["--report", "--languages", "en-de"], "--languages must be two languages with a colon between them"),
        (["--report", "--languages", "en:d"], "each a BCP-47 language tag, got 'd'"),
        (["--report", "--shortlist", "own-one"], "--shortlist must be own, learn, none or a file, got 'own-one'"),
        (
            ["models/x", *GATES, "--gate-sentences", "500", "--shortlist", "learn"],
            "after the 500 of the gates, has 500",
        ),
        (["--report", "--max-source-tokens", "1"], "--max-source-tokens': must be greater than or equal to 2, got 1"),
        (["--report", "--max-source-tokens", "32768"], "must be less than or equal to 32767, got 32768"),
    ],
)
def test_a_wrong_command_is_one_line(
    opus: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(opus), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_what_is_no_model_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "source").mkdir()
    assert main(["import", str(tmp_path / "source"), str(tmp_path / "models" / "x"), *GATES]) == 1
    assert "has no config.json and no model of Marian, so it is none that Lingon imports" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_an_imported_model_is_trained_further(opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(opus), "--checkpoint", str(tmp_path / "saved")]) == 0
    model = load_checkpoint(tmp_path / "saved").config.model.model_dump()
    keys = [f"{key} = {json.dumps(value)}" for key, value in model.items()]
    blocks = []
    for name, part in (("train", slice(0, 450)), ("valid", slice(450, 500))):
        for language in ("en", "de"):
            lines = (DATA / f"tatoeba.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
            (tmp_path / f"{name}.{language}").write_text("".join(lines[part]), encoding="utf-8")
        blocks.append(f'source = "{name}.en"\ntarget = "{name}.de"')
    training = "batch_tokens = 2000\nmax_steps = 3\nwarmup_steps = 1\nvalid_every = 3\nvalid_sentences = 4"
    data = '[data]\nsource_language = "sv"\ntarget_language = "nb"\nmax_tokens = 100\n'
    data += f"[[data.train]]\n{blocks[0]}\n[data.valid]\n{blocks[1]}"
    text = "\n".join([data, "[model]", *keys, "[training]", training, ""])
    (tmp_path / "fine.toml").write_text(text, encoding="utf-8")
    command = ["train", str(tmp_path / "fine.toml"), "--output", str(tmp_path / "run")]
    assert main([*command, "--init-from", str(tmp_path / "saved")]) == 0
    assert "starts from the weights of" in capsys.readouterr().err
    assert load_checkpoint(tmp_path / "run").tokenizer.joint
