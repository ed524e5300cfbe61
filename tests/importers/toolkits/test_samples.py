"""Samples that come with a checkpoint: they agree with a model that is read as it is meant, and with no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lingon.errors import ParityError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits.comparison import check_samples
from lingon.importers.toolkits.transformers import TransformersToolkit
from lingon.scoring import score
from lingon.text import normalise
from lingon.training.search import SearchSettings
from tests.support.foreign_models import lines, save_opus_mt, silent

TEXTS = [normalise(text) for text in lines("en")[:30]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("samples") / "opus", seed=6)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, ImportSettings(), silent)


@pytest.fixture(scope="module")
def outputs(folder: Path, imported: Imported) -> list[str]:
    """The translations of Transformers."""
    theirs, source = TransformersToolkit(folder), imported.source
    new = {row: number for number, row in enumerate(source.target.rows)}
    settings = SearchSettings(beam_size=source.facts.beam_size, length_penalty=source.facts.length_penalty)
    found = []
    for text in TEXTS:
        ids = imported.checkpoint.tokenizer.encode_source(text)
        most = settings.max_length(len(ids), imported.checkpoint.model.settings.max_positions)
        never = [source.target.rows[each] for each in (*source.target.never, 0, 1, 3)]
        tokens = theirs.generate([source.source.rows[each] for each in ids], never, settings, most)
        found.append(imported.checkpoint.tokenizer.decode([new[each] for each in tokens]))
    return found


def write(folder: Path, sources: list[str], outputs: list[str]) -> Path:
    groups = zip(sources, lines("de"), outputs, strict=False)
    folder.mkdir(exist_ok=True)
    text = "".join(f"{source}\n{reference}\n{output}\n\n" for source, reference, output in groups)
    (folder / "opus.test.txt").write_text(text, encoding="utf-8")
    return folder


def logged(imported: Imported, folder: Path) -> list[str]:
    log: list[str] = []
    check_samples(imported.checkpoint, imported.source, folder, log.append)
    return log


def test_the_translations_of_transformers_are_found_again(
    imported: Imported, outputs: list[str], tmp_path: Path
) -> None:
    (line,) = logged(imported, write(tmp_path, TEXTS, outputs))
    assert line.startswith("opus.test.txt: 30 of 30 translations are the same; BLEU ")
    assert line.endswith("chrF between the two 100.0")


def test_bleu_counts_the_characters_of_a_target_language_without_blanks(
    imported: Imported, outputs: list[str], tmp_path: Path
) -> None:
    config, references = imported.checkpoint.config, [normalise(text) for text in lines("de")[:30]]
    data = config.data.model_copy(update={"target_language": "ja"})
    checkpoint = replace(imported.checkpoint, config=config.model_copy(update={"data": data}))
    (line,) = logged(replace(imported, checkpoint=checkpoint), write(tmp_path, TEXTS, outputs))
    by_words, by_characters = (score(outputs, references, language).bleu for language in ("", "ja"))
    assert f"BLEU {by_characters:.1f}, of the samples {by_characters:.1f}, " in line
    assert f"{by_words:.1f}" != f"{by_characters:.1f}"


def test_a_model_that_is_read_wrongly_is_refused(folder: Path, outputs: list[str], tmp_path: Path) -> None:
    wrong = pipeline.read_source(folder, ImportSettings(), silent)
    with torch.no_grad():
        wrong.checkpoint.model.get_parameter("decoder.0.around_cross.norm.weight").neg_()
    with pytest.raises(ParityError, match=r"must be 70 or more, is [0-9.]+: the model is read wrongly"):
        logged(wrong, write(tmp_path, TEXTS, outputs))


def test_samples_of_another_target_language_are_left_out(
    imported: Imported, outputs: list[str], tmp_path: Path
) -> None:
    sources = [*TEXTS[:10], *(f">>fra<< {text}" for text in TEXTS[10:])]
    assert logged(imported, write(tmp_path, sources, outputs))[0].startswith("opus.test.txt: 10 of 10 ")


def test_texts_that_are_too_long_and_no_others_are_left_out(
    imported: Imported, outputs: list[str], tmp_path: Path
) -> None:
    sources = [TEXTS[0] * 300, *TEXTS[1:]]
    assert logged(imported, write(tmp_path, sources, outputs))[0].startswith("opus.test.txt: 29 of 29 ")
    assert logged(imported, write(tmp_path, sources[:1], outputs)) == [
        "note: opus.test.txt has no sample for these languages"
    ]


@pytest.mark.parametrize("content", ["one\ntwo\n", "a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\n\nd\n"])
def test_a_file_of_another_form_is_named_and_not_used(content: str, imported: Imported, tmp_path: Path) -> None:
    (tmp_path / "a.test.txt").write_text(content)
    (line,) = logged(imported, tmp_path)
    assert line.startswith(f"note: {tmp_path / 'a.test.txt'}:")
    assert line.endswith("must have groups of three lines and an empty one; the samples are not used")


def test_a_folder_without_samples_is_silent(imported: Imported, tmp_path: Path) -> None:
    assert logged(imported, tmp_path) == []
