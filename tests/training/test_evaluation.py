from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from lingon.cli.evaluate import evaluate, kind_of
from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.scoring import score
from lingon.training.evaluation import translate_lines
from lingon.training.search import SearchSettings, translate
from tests.support.training_runs import train, write_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Path:
    folder = tmp_path_factory.mktemp("evaluated")
    for path in digits.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    settings = {"max_steps": 150, "cooldown_steps": 50, "valid_every": 150}
    train(write_config(folder, training=settings), folder / "run")
    return folder / "run"


def run_verb(*arguments: object) -> str:
    app = Typer()
    app.command()(evaluate)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_checkpoint_is_scored_on_a_test_set(run: Path, digits: Path, tmp_path: Path) -> None:
    files = ("--source", digits / "test.source", "--target", digits / "test.target")
    figures = json.loads(run_verb(run, *files, "--beam-size", 2, "--json", "--output", tmp_path / "hypotheses"))
    hypotheses = (tmp_path / "hypotheses").read_text().splitlines()
    references = (digits / "test.target").read_text().splitlines()
    assert figures["sentences"] == 50 == len(hypotheses)
    assert figures["bleu"] == score(hypotheses, references).bleu
    assert figures["bleu_signature"].startswith("nrefs:1|case:mixed")
    assert figures["sentences_per_second"] > 0
    table = run_verb(run, *files, "--limit", 5, "--beam-size", 1)
    assert "bleu_signature" in table
    assert [line.split()[1] for line in table.splitlines() if line.startswith("sentences ")] == ["5"]


def test_an_output_file_is_checked_first_written_atomically_and_does_not_hide_the_score(
    run: Path, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.write_bytes((digits / f"test.{path.name}").read_bytes())
    for output, why in ((source, "is the input"), (target, "is the input"), (tmp_path / "no" / "out", "No such file")):
        with pytest.raises(SettingsError, match=why):
            evaluate(tmp_path / "no model is looked for", source, target, output=output)
    assert source.read_bytes() == (digits / "test.source").read_bytes()
    with pytest.raises(LingonError, match="--output /dev/full: No space left"):
        evaluate(run, source, target, beam_size=1, limit=5, output=Path("/dev/full"))
    assert "bleu_signature" in capsys.readouterr().out
    evaluate(run, source, target, beam_size=1, limit=5, output=tmp_path / "out.gz")
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()).count(b"\n") == 5


def test_a_model_that_hardly_translates_is_a_warning(
    run: Path, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_text("nothing of this is translated\n" * 50)
    told = "lingon: warning: BLEU is 0.00, below 5: this model hardly translates; train it for longer or on more text\n"
    evaluate(run, digits / "test.source", tmp_path / "other", beam_size=1)
    assert capsys.readouterr().err == told
    evaluate(run, digits / "test.source", digits / "test.target", beam_size=1)
    assert capsys.readouterr().err == ""


def test_the_progress_of_a_checkpoint_ends_with_all_of_its_parts(run: Path) -> None:
    seen: list[tuple[int, int]] = []
    lines = ["1 2 3", "", "4 5"] * 40
    translate_lines(
        run, lines, beam_size=1, length_penalty=1.0, batch_size=30, on_progress=lambda *now: seen.append(now)
    )
    assert seen == [(30, 80), (60, 80), (80, 80)]


def test_a_terminal_shows_the_progress_of_an_evaluation(
    run: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("lingon.cli.output.DELAY", 0.0)
    evaluate(run, digits / "test.source", digits / "test.target", beam_size=1)
    assert "50 lines" in terminal.getvalue()


def test_a_folder_with_a_manifest_or_versions_is_a_bundle_and_any_other_a_checkpoint(tmp_path: Path) -> None:
    bundle = tmp_path / "en-de" / "12"
    bundle.mkdir(parents=True)
    assert kind_of(tmp_path / "en-de") == "checkpoint"
    (bundle / "manifest.json").write_text("{}")
    assert kind_of(bundle) == kind_of(tmp_path / "en-de") == "bundle"
    with pytest.raises(SettingsError, match="no such folder"):
        kind_of(tmp_path / "absent")


def test_lines_are_translated_in_order_and_blank_ones_stay_blank(run: Path) -> None:
    lines = ["1 2 3 4 5", "", " 7\u00a0 8 ", "9"]
    together = translate_lines(run, lines, beam_size=2, length_penalty=1.0, device="cpu").lines
    assert together[1] == ""
    for line, translation in zip(lines, together, strict=True):
        assert translate_lines(run, [line], beam_size=2, length_penalty=1.0, device="cpu").lines == [translation]
    assert translate_lines(run, ["7 8"], beam_size=2, length_penalty=1.0, device="cpu").lines == [together[2]]


@pytest.mark.parametrize(("length", "parts"), [(24, 2), (60, 4)])
def test_a_line_longer_than_the_model_reads_is_translated_in_parts(run: Path, length: int, parts: int) -> None:
    """The config has data.max_tokens = 20 and model.max_positions = 32."""
    words, size = [str(place % 10) for place in range(length)], length // parts
    cuts = [" ".join(words[begin : begin + size]) for begin in range(0, length, size)]
    whole, *each = translate_lines(run, [" ".join(words), *cuts], beam_size=1, length_penalty=0.0, device="cpu").lines
    assert whole == " ".join(each)


def test_a_word_longer_than_the_model_reads_is_translated_in_parts(run: Path) -> None:
    whole, half = translate_lines(run, ["7" * 36, "7" * 18], beam_size=1, length_penalty=0.0, device="cpu").lines
    assert whole == f"{half} {half}"


def test_a_checkpoint_has_one_precision(run: Path) -> None:
    with pytest.raises(SettingsError, match="must be fp32, got 'fp16'"):
        translate_lines(run, ["1"], beam_size=1, length_penalty=0.0, precision="fp16")


def test_scores_are_those_of_sacrebleu_and_need_as_many_lines() -> None:
    perfect = score(["the cat sat on the mat"], ["the cat sat on the mat"])
    assert (round(perfect.bleu, 6), round(perfect.chrf, 6)) == (100.0, 100.0)
    assert score(["a b c d"], ["w x y z"]).bleu < 20
    with pytest.raises(CorpusError, match="2 hypotheses do not fit 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(CorpusError, match="nothing to score"):
        score([], [])


@pytest.mark.parametrize(
    ("language", "tokens", "reference", "near"),
    [
        ("zh", "zh", "请给我一杯水。", "请给我两杯水。"),
        ("zho_Hans", "zh", "请给我一杯水。", "请给我两杯水。"),
        ("ZH-TW", "zh", "請給我一杯水。", "請給我兩杯水。"),
        ("ja", "char", "水を一杯ください。", "水を二杯ください。"),
        ("tha_Thai", "char", "ขอน้ำหนึ่งแก้ว", "ขอน้ำสองแก้ว"),
        ("de", "13a", "Bitte gib mir ein Glas Wasser.", "Bitte gib mir zwei Glas Wasser."),
        ("", "13a", "Bitte gib mir ein Glas Wasser.", "Bitte gib mir zwei Glas Wasser."),
    ],
)
def test_bleu_counts_characters_of_languages_without_blanks(
    language: str, tokens: str, reference: str, near: str
) -> None:
    found = score([near], [reference], language)
    assert 20 < found.bleu < 95
    assert f"|tok:{tokens}|" in found.bleu_signature
    assert score([reference], [reference], language).bleu == pytest.approx(100)


def test_a_checkpoint_is_asked_for_its_own_languages(run: Path) -> None:
    languages = {"source_language": "de", "target_language": "en"}
    search = {"beam_size": 1, "length_penalty": 0.0, "device": "cpu"}
    own = translate_lines(run, ["1 2"], **search)  # type: ignore[arg-type]
    assert own.language == "de"
    assert translate_lines(run, ["1 2"], **search, source_language="en", target_language="de") == own  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"--source-language must be .* en; got 'de'"):
        translate_lines(run, ["1 2"], **search, **languages)  # type: ignore[arg-type]


def test_nothing_to_evaluate_is_an_error(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(CorpusError, match="holds no line to translate"):
        evaluate(run, tmp_path / "empty", tmp_path / "empty")


def test_search_settings_reach_the_search(run: Path) -> None:
    from lingon.training.checkpoint import load_checkpoint

    loaded, line = load_checkpoint(run), "1 2 3 4 5 6 7 8"
    ids = [loaded.tokenizer.encode_source(line)]
    wide = translate(loaded.model, ids, SearchSettings(beam_size=5, length_penalty=0.5))[0][0]
    assert translate_lines(run, [line], beam_size=5, length_penalty=0.5, device="cpu").lines == [
        loaded.tokenizer.decode(wide.tokens)
    ]
