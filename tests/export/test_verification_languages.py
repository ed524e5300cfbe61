"""`lingon verify` and `lingon calibrate` with a bundle of several languages: one pair of them, or one clear line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lingon.bundle.golden import Golden
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.export import verification
from lingon.export.cli import verify as verb
from lingon.export.gates_text import engine_search, golden_sentences
from lingon.export.text_data import CalibrationText, add_text_data
from lingon.export.verification import VerifiedText, pair_of, text_of
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.text import EOS
from tests.support.bundles import write_small_bundle
from tests.support.random_models import TEXTS, tokenizer_of, tokens_of, write_multilingual_bundle

POOL = [" ".join(each) for each in itertools.islice(itertools.combinations(" ".join(TEXTS).split(), 3), 0, 200, 4)]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    bundle = write_multilingual_bundle(tmp_path_factory.mktemp("first") / "1")
    found = golden_sentences(bundle, {"fp32": load_runner(bundle, "fp32", threads=1)}, POOL, source="en")
    assert found is not None
    return found


@pytest.fixture
def bundle(golden: Golden, tmp_path: Path) -> Bundle:
    return write_multilingual_bundle(tmp_path / "many" / "1", golden)


@pytest.fixture
def gate_data(tmp_path: Path) -> tuple[Path, Path]:
    files = tmp_path / "gate.source", tmp_path / "gate.target"
    for file in files:
        file.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    return files


def test_the_pair_is_the_named_one_or_that_of_the_first_golden_sentence(bundle: Bundle, tmp_path: Path) -> None:
    golden = Golden.from_bytes(bundle.read("golden.json"), tmp_path)
    assert pair_of(bundle, None) == golden.languages[0]
    assert pair_of(bundle, "FR:de") == ("fr", "de")
    assert pair_of(write_multilingual_bundle(tmp_path / "bare" / "1"), None) == ("en", "de")
    with pytest.raises(SettingsError, match="--languages en:it: many/1 has no such pair; it has en:de, en:fr, de:en, "):
        pair_of(bundle, "en:it")


def test_no_pair_can_be_named_of_a_bundle_of_one(tmp_path: Path) -> None:
    one = write_small_bundle(tmp_path / "en-de" / "1")
    assert pair_of(one, None) is None
    with pytest.raises(SettingsError, match="--languages en:de: en-de/1 is of one pair"):
        pair_of(one, "en:de")


def test_the_sentences_have_the_tokens_of_the_pair(bundle: Bundle, golden: Golden) -> None:
    text = text_of(bundle, None, 50, ("en", "fr"))
    tokens, tokenizer = tokens_of("en", "fr"), tokenizer_of("en", "fr")
    assert text.forced == tokens.forced == (6, 4)
    assert text.sources == [(*tokens.before, *tokenizer.source.encode(each), EOS) for each in golden.sentences]
    assert text_of(bundle, [("the fox", "x")], 9, ("fr", "de")).references == ["x"]
    assert [text_of(bundle, [("the fox", "x")], 9, ("en", target)).language for target in ("fr", "de")] == ["fr", "de"]
    with pytest.raises(SettingsError, match="has no golden sentences in fr; give some with --gate-data"):
        text_of(bundle, None, 50, ("fr", "de"))


def test_every_check_decodes_with_the_tokens_of_the_pair(
    bundle: Bundle, gate_data: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[VerifiedText] = []
    run: Callable[[verification._Checks], None] = verification._Checks.run

    def noted(self: verification._Checks) -> None:
        seen.append(self.text)
        run(self)

    monkeypatch.setattr(verification._Checks, "run", noted)
    verb(bundle.folder, device="cpu", gate_data=gate_data, languages="fr:de", publish=True)
    assert seen[0].forced == tokens_of("fr", "de").forced
    assert seen[0].sources[0][:2] == tokens_of("fr", "de").before
    assert "many/1: fp32 on CPU, fr to de" in capsys.readouterr().out
    report = open_bundle(bundle.folder.parent).manifest.precisions["fp32"].report["verification"]
    assert report["languages"] == "fr:de"
    assert report["alone and in batches, greedy"]["identical"] == len(TEXTS)
    assert report["alone and in batches, greedy"]["alone_bleu"] == report["alone and in batches, greedy"]["batch_bleu"]
    runner = load_runner(bundle, "fp32", threads=1)
    found = engine_search(runner, seen[0].sources, 1, 0.0, forced=seen[0].forced)
    assert all(best.tokens[:1] != seen[0].forced[:1] for best, *_ in found)


def test_golden_sentences_are_verified_without_more(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    verb(bundle.folder, device="cpu")
    printed = capsys.readouterr().out
    assert "fp32 on CPU, en to " in printed
    assert "FAILED" not in printed


def test_calibration_is_refused_before_any_work_and_nothing_is_written(bundle: Bundle) -> None:
    with pytest.raises(SettingsError, match=r"1: serves several languages, but text data is of one pair"):
        add_text_data(bundle.folder.parent, CalibrationText.of([("a", "b")]))
    assert [path.name for path in bundle.folder.parent.iterdir()] == ["1"]
    assert json.loads((bundle.folder / "manifest.json").read_bytes())["text"] is None
