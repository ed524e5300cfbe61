"""IndicTrans2: ids, logits and translations, the order of the tags, and pieces in the script of a language."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from lingon.errors import SettingsError, SourceModelError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits.comparison import new_ids
from lingon.serving.in_process import LocalTranslator
from lingon.text import BOS, normalise
from lingon.training.corpus import Pair
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import silent, tensors
from tests.support.indic_models import DIRECTIONS, in_devanagari, save_indictrans2, texts

SAME_LOGITS = 1e-4
SIDES = {
    "en-indic": (["en"], ["hi", "mr", "ur"]),
    "indic-en": (["hi", "mr", "ur"], ["en"]),
    "indic-indic": (["hi", "mr"], ["ur"]),
}
BENGALI = 0x80  # from the block of Devanagari to that of Bengali
Change = Callable[[Path], object]


def sentences(direction: str) -> list[str]:
    """Sentences of the source."""
    return [normalise(text) for text in texts(DIRECTIONS[direction][0])[:30]]


@pytest.fixture(scope="module", params=DIRECTIONS)
def direction(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def saved(direction: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a model, and the mBART that computes the same."""
    folder = tmp_path_factory.mktemp("zoo") / direction
    return folder, save_indictrans2(folder, direction, seed=5, ends=2.0)


@pytest.fixture(scope="module")
def imported(saved: tuple[Path, Any], direction: str) -> Imported:
    return pipeline.read_source(saved[0], ImportSettings(languages=SIDES[direction]), silent)


@pytest.fixture(scope="module")
def into_india(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("into") / "en-indic"
    save_indictrans2(folder, "en-indic", seed=5, ends=2.0)
    return folder


@pytest.fixture
def changed(into_india: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(into_india, tmp_path / "en-indic"))


def published_ids(folder: Path, text: str, source: str, target: str) -> list[int]:
    """The ids of a text as the programs of IndicTrans2 make them: both codes, the pieces, the end token."""
    ids = json.loads((folder / "dict.SRC.json").read_text(encoding="utf-8"))
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model.SRC"))
    pieces = [source, target, *model.encode(text, out_type=str), "</s>"]
    return [ids.get(piece, ids["<unk>"]) for piece in pieces]


@pytest.mark.parametrize("pair", [0, -1])
def test_a_source_has_the_codes_of_both_languages_before_its_pieces(
    imported: Imported, saved: tuple[Path, Any], direction: str, pair: int
) -> None:
    sources, targets = SIDES[direction]
    source, target = sources[pair], targets[pair]
    codes = {"en": "eng_Latn", "hi": "hin_Deva", "mr": "mar_Deva", "ur": "urd_Arab"}
    tokenizer = imported.checkpoint.config.tokenizer_of_pair(imported.checkpoint.tokenizer, (source, target))
    assert tokenizer.languages.forced == ()
    for text in sentences(direction):
        rows = [imported.source.source.rows[each] for each in tokenizer.encode_source(text)]
        assert rows == published_ids(saved[0], text, codes[source], codes[target]), text


def test_logits_are_those_of_a_network_of_transformers(
    imported: Imported, saved: tuple[Path, Any], direction: str
) -> None:
    model, source = imported.checkpoint.model, imported.source
    random, said = torch.Generator().manual_seed(5), [*new_ids(source.target).values()]
    for text in sentences(direction)[:12]:
        ids = imported.checkpoint.tokenizer.encode_source(text)
        chosen = torch.randint(len(said), (9,), generator=random).tolist()
        given = [BOS, *(said[each] for each in chosen)]
        with torch.inference_mode():
            mine = model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([given]))
            theirs = saved[1](
                input_ids=torch.tensor([[source.source.rows[token] for token in ids]]),
                decoder_input_ids=torch.tensor([[source.target.rows[token] for token in given]]),
            ).logits[0]
        expected = theirs[:, list(source.target.rows)]
        assert float((mine[0] - expected).abs().max()) < SAME_LOGITS


def test_a_bundle_serves_several_targets_and_says_what_is_not_done(into_india: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    imported = pipeline.read_source(into_india, ImportSettings(languages=SIDES["en-indic"]), lines.append)
    assert any("placeholders" in line for line in lines)
    given = ExportTexts([Pair(text, "") for text in sentences("en-indic")[:10]])
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=5, gate_sentences=5)
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "indic", given, settings, silent)

    def ask(target: str) -> list[str]:
        request = pb.TranslateRequest(texts=sentences("en-indic")[:10], target_language_code=target)
        return [each.hypotheses[0].text for each in translator.translate(request).results]

    with LocalTranslator(bundle.folder, device="cpu") as translator:
        assert len({tuple(ask(target)) for target in ("hi", "mr", "ur")}) == 3


def in_bengali(text: str) -> str:
    """A text in which each letter of Devanagari is that at the same place of the block of Bengali, if it has one."""
    places = {0x900 + place: 0x980 + place for place in range(0x70)} | {0x964: 0x964, 0x965: 0x965}
    missing = {0x929, 0x931, 0x933, 0x934, 0x935}  # letters that Bengali has not
    return text.translate({old: new for old, new in places.items() if old not in missing})


def test_a_text_in_bengali_is_cut_as_its_transliteration_is(tmp_path: Path) -> None:
    folder = tmp_path / "indic-en"
    save_indictrans2(folder, "indic-en", seed=3)
    lines: list[str] = []
    imported = pipeline.read_source(folder, ImportSettings(languages=(["bn", "as"], ["en"])), lines.append)
    assert "note: source pieces are written in Beng instead of Devanagari" in lines
    changed = 0
    for text in sentences("indic-en"):
        other = in_bengali(text)
        changed += other != text
        rows = [imported.source.source.rows[each] for each in imported.checkpoint.tokenizer.encode_source(other)]
        assert rows == published_ids(folder, text, "ben_Beng", "eng_Latn"), other
    assert changed


@pytest.mark.parametrize(("tag", "shift"), [("bn", BENGALI), ("ta", 0x280), ("hi", 0)])
def test_a_translation_is_written_in_the_script_of_its_language(into_india: Path, tag: str, shift: int) -> None:
    imported = pipeline.read_source(into_india, ImportSettings(languages=(["en"], [tag])), silent)
    tokenizer = imported.checkpoint.tokenizer
    text = in_devanagari("ka")  # letters that all these scripts have
    ids = [imported.source.target.pieces.index(each) for each in (chr(ord(letter) + shift) for letter in text)]
    assert tokenizer.decode(ids) == "".join(chr(ord(letter) + shift) for letter in text)


def test_tamil_writes_voiced_and_aspirated_consonants_with_the_plain_one(into_india: Path) -> None:
    imported = pipeline.read_source(into_india, ImportSettings(languages=(["en"], ["ta"])), silent)
    pieces = {*imported.source.target.pieces}
    assert chr(0xB95) in pieces  # ka
    assert {chr(0xB96), chr(0xB97), chr(0xB98)}.isdisjoint(pieces)  # kha, ga and gha, which Unicode has not


def test_a_code_in_a_text_stays_text_and_is_never_generated(into_india: Path) -> None:
    imported = pipeline.read_source(into_india, ImportSettings(languages=SIDES["en-indic"]), silent)
    tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
    codes = {number for number, piece in enumerate(numbering.pieces) if piece.endswith("_Deva")}
    assert codes
    assert codes.isdisjoint(tokenizer.unframed(tokenizer.encode_source("hin_Deva Tom mar_Deva")))
    written = {number for number, piece in enumerate(imported.source.target.pieces) if piece.endswith("_Deva")}
    assert written <= {*imported.source.target.never}


def test_languages_that_one_bundle_cannot_serve_are_refused(saved: tuple[Path, Any], direction: str) -> None:
    into, out_of = ["ta", "bn"], ["hi", "mr"]
    asked, message = {
        "en-indic": ((["en"], into), "has target languages of one script of Brahmic origin, got Taml, Beng;"),
        "indic-en": ((into, ["en"]), "has source languages of one script of Brahmic origin, got Taml, Beng;"),
        "indic-indic": ((out_of, ["mr", "ur"]), "has one source language or one target language, got 2 and 2;"),
    }[direction]
    with pytest.raises(SettingsError, match=message):
        pipeline.read_source(saved[0], ImportSettings(languages=asked), silent)


def test_a_report_names_all_languages(saved: tuple[Path, Any], direction: str) -> None:
    lines: list[str] = []
    pipeline.read_source(saved[0], ImportSettings(every_language=True), lines.append)
    indic, english = "hi, bn, as, ta, ur, mr", "en"
    sides = [indic if each else english for each in DIRECTIONS[direction]]
    assert f"Hugging Face IndicTrans2: {sides[0]} to {sides[1]}, " in lines[0]


def fields(**values: object) -> Change:
    """A change of the configuration."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8")

    return change


def without_codes(folder: Path) -> None:
    path = folder / "dict.SRC.json"
    ids = json.loads(path.read_text(encoding="utf-8"))
    renamed = {piece.replace("_", "-"): number for piece, number in ids.items()}
    path.write_text(json.dumps(renamed), encoding="utf-8")


another_tensor = tensors(lambda found: found.update({"model.encoder.extra": torch.zeros(1)}))
BROKEN = {
    "widths": (fields(decoder_embed_dim=64), "decoder_embed_dim must be that of the encoder"),
    "norms": (fields(decoder_normalize_before=False), "decoder_normalize_before must be that of the encoder"),
    "start": (fields(decoder_start_token_id=0), "decoder_start_token_id must be that of </s>"),
    "rows": (fields(encoder_vocab_size=9), "encoder_vocab_size must be the number of pieces of dict.SRC.json"),
    "no codes": (without_codes, "dict.SRC.json: has no codes of languages such as hin_Deva"),
    "no pieces": (lambda folder: (folder / "model.TGT").unlink(), "model.TGT: No such file"),
    "one more": (another_tensor, "has tensors that this form of model does not use: model.encoder.extra"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_contradict_each_other_are_refused(changed: Path, change: Change, message: str) -> None:
    change(changed)
    with pytest.raises(SourceModelError, match=message):
        pipeline.read_source(changed, ImportSettings(languages=SIDES["en-indic"]), silent)
