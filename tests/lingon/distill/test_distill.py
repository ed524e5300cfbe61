"""The training text of a student: texts, choices, and a folder that survives the end of a run at any time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingon.cli.backend import BackendOptions, ListTranslator, open_translator
from lingon.client.results import TextResult, TextWarning, Translation
from lingon.distill.shards import (
    PLAN,
    SHARDS,
    SOURCE,
    TARGET,
    DistillPlan,
    PairChoice,
    Shards,
    TeacherText,
    TeacherTranslation,
    chosen,
    digest,
    fault_of,
    unique_texts,
)
from lingon.distill.teacher import Teacher
from lingon.errors import CorpusError, LingonError, ServerError, SettingsError
from lingon.files import read_parallel
from tests.support.processes import lingon
from tests.support.repository import ROOT

MODEL = ROOT / "models" / "en-de"
LINES = (ROOT / "tests/data/tatoeba.en").read_text().splitlines()[:60]
REFERENCES = (ROOT / "tests/data/tatoeba.de").read_text().splitlines()[:60]


@pytest.fixture(scope="module")
def translator() -> Iterator[ListTranslator]:
    with open_translator(BackendOptions(model=str(MODEL))) as opened:
        yield opened


class Ending:
    """A translator that fails at the request of this number, as if the process was killed there."""

    def __init__(self, translator: ListTranslator, last: int = 10**9) -> None:
        self.translator, self.last, self.texts = translator, last, list[str]()

    def translate(self, texts: Sequence[str], **options: Any) -> list[TextResult]:
        self.last -= 1
        if self.last < 0:
            raise LingonError("killed")
        self.texts += texts
        return self.translator.translate(texts, **options)


def distilled(
    folder: Path, translator: Any, choice: PairChoice = PairChoice.BEST, **options: Any
) -> tuple[bytes, bytes]:
    """Run in a folder; returns the contents of the files of sources and of translations."""
    texts = [TeacherText(source, (reference,)) for source, reference in zip(LINES, REFERENCES, strict=True)]
    teacher = Teacher(translator, {"beam_size": 2, **options})  # type: ignore[typeddict-item]
    model = teacher.model_for(texts[0])
    shards = Shards(folder, DistillPlan(len(texts), digest(texts), model, options, shard_texts=7), texts)
    teacher.translate(shards, model, lambda lines, read: None)
    shards.publish(choice)
    return gzip.decompress((folder / SOURCE).read_bytes()), gzip.decompress((folder / TARGET).read_bytes())


def test_a_text_of_several_corpora_occurs_once_with_all_its_translations(tmp_path: Path) -> None:
    files = {"a.en": "one\n\ntwo\none\n", "a.de": "eins\nnichts\nzwei\neine\n", "b.en": "two\n", "b.de": "zwei\n"}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    sources, targets = [tmp_path / "a.en", tmp_path / "b.en"], [tmp_path / "a.de", tmp_path / "b.de"]
    assert unique_texts(sources, targets) == [TeacherText("one", ("eins", "eine")), TeacherText("two", ("zwei",))]
    assert unique_texts(sources, []) == [TeacherText("one"), TeacherText("two")]
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(CorpusError, match="empty: no text"):
        unique_texts([tmp_path / "empty"], [])


def test_which_translations_become_pairs() -> None:
    text, found = (
        TeacherText("tea", ("eine Tasse Tee", "Tee")),
        ["ein Kaffee", "", "eine Tasse Tee", "ein Kaffee", "der Tee"],
    )
    assert chosen(PairChoice.BEST, text, found) == ["ein Kaffee"]
    assert chosen(PairChoice.ALL, text, found) == ["ein Kaffee", "eine Tasse Tee", "der Tee"]
    assert chosen(PairChoice.CLOSEST, text, found) == ["eine Tasse Tee"]
    assert chosen(PairChoice.CLOSEST, TeacherText("tea"), found) == ["ein Kaffee"]
    assert chosen(PairChoice.BEST, text, ["", " "]) == []


def test_a_suspect_translation_is_not_fit_for_training() -> None:
    def result(*codes: str) -> TextResult:
        return TextResult((Translation("Tee", 0.0, "end"),), warnings=tuple(TextWarning(code, "") for code in codes))

    assert fault_of(result()) is None
    assert fault_of(result("split", "low_confidence")) is None
    assert fault_of(result("low_confidence", "repetition")) == "repetition"
    assert fault_of(TextResult(error=ServerError("too long", 3, reason="TEXT_TOO_LONG"))) == "text_too_long"


def test_a_run_writes_what_the_teacher_translates(tmp_path: Path, translator: ListTranslator) -> None:
    sources, targets = distilled(tmp_path, translator)
    results = translator.translate(LINES, beam_size=2)
    expected = [(line, found.text) for line, found in zip(LINES, results, strict=True) if fault_of(found) is None]
    assert len(expected) > 50
    assert list(zip(sources.decode().splitlines(), targets.decode().splitlines(), strict=True)) == expected
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["texts"], report["pairs"]) == (60, len(expected))
    assert sum(report["left_out"].values()) == 60 - len(expected)


@pytest.mark.parametrize("requests", [1, 3, 7])
def test_a_run_that_was_ended_goes_on_and_writes_the_same_bytes(
    tmp_path: Path, translator: ListTranslator, requests: int
) -> None:
    undisturbed = distilled(tmp_path / "whole", translator)
    with pytest.raises(LingonError, match="killed"):
        distilled(tmp_path / "ended", Ending(translator, requests))
    assert not (tmp_path / "ended" / SOURCE).exists()
    done = len(list((tmp_path / "ended" / SHARDS).iterdir()))
    resumed = Ending(translator)
    assert distilled(tmp_path / "ended", resumed) == undisturbed
    assert len(resumed.texts) - 1 == 60 - 7 * done, "only the missing shards, and one text to learn the model"


def test_all_hypotheses_are_pairs_with_the_same_source(tmp_path: Path, translator: ListTranslator) -> None:
    sources, targets = distilled(tmp_path, translator, PairChoice.ALL, num_hypotheses=2)
    pairs = list(zip(sources.splitlines(), targets.splitlines(), strict=True))
    assert len(pairs) > 100
    assert len(set(pairs)) == len(pairs)


def test_backward_the_translations_are_the_sources_of_the_same_pairs(
    tmp_path: Path, translator: ListTranslator
) -> None:
    texts = [TeacherText(line) for line in LINES[:7]]
    model = Teacher(translator, {}).model_for(texts[0])
    shards = Shards(tmp_path, DistillPlan(len(texts), digest(texts), model, {}), texts)
    Teacher(translator, {}).translate(shards, model, lambda lines, read: None)
    shards.publish(PairChoice.BEST)
    pairs = list(read_parallel(tmp_path / SOURCE, tmp_path / TARGET))
    report = shards.publish(PairChoice.BEST, backward=True)
    assert list(read_parallel(tmp_path / SOURCE, tmp_path / TARGET)) == [(target, source) for source, target in pairs]
    assert report.backward
    assert [source for source, _ in pairs] == LINES[:7]


def test_a_folder_of_other_texts_options_or_another_model_is_refused(tmp_path: Path) -> None:
    texts = [TeacherText("one"), TeacherText("two")]
    plan = DistillPlan(2, digest(texts), "en-de/6", {"beam_size": 4})
    Shards(tmp_path, plan, texts)
    for change, message in (
        ({"digest": digest(texts[:1])}, "begun with another value of digest"),
        ({"model": "en-de/10"}, "begun with another value of model: 'en-de/6', not 'en-de/10'"),
        ({"options": {"beam_size": 1}}, "begun with another value of options"),
    ):
        with pytest.raises(SettingsError, match=message):
            Shards(tmp_path, replace(plan, **change), texts)
    (tmp_path / PLAN).write_text("{")
    with pytest.raises(SettingsError, match=r"plan\.json: not a plan"):
        Shards(tmp_path, plan, texts)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_line_separator_in_a_translation_ends_no_line(tmp_path: Path, separator: str) -> None:
    texts = [TeacherText(f"black{separator}tea"), TeacherText("milk")]
    shards = Shards(tmp_path, DistillPlan(2, digest(texts), "en-de/5", {}), texts)
    shards.write(0, [TeacherTranslation((f"schwarzer{separator}Tee",)), TeacherTranslation(("Milch",))])
    assert shards.publish(PairChoice.BEST).pairs == 2
    assert list(read_parallel(tmp_path / SOURCE, tmp_path / TARGET)) == [
        (f"black{separator}tea", "schwarzer Tee"),
        ("milk", "Milch"),
    ]


def test_a_damaged_shard_is_named(tmp_path: Path, translator: ListTranslator) -> None:
    distilled(tmp_path, translator)
    shard = tmp_path / SHARDS / "00003.jsonl.gz"
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(LingonError, match=r"00003\.jsonl\.gz: damaged"):
        distilled(tmp_path, translator)


def test_a_server_that_replaces_the_teacher_ends_the_run(tmp_path: Path, translator: ListTranslator) -> None:
    texts = [TeacherText(line) for line in LINES[:3]]
    shards = Shards(tmp_path, DistillPlan(3, digest(texts), "en-de/5", {}), texts)
    with pytest.raises(LingonError, match="the teacher is en-de/10 now; this run was begun with en-de/5"):
        Teacher(translator, {}).translate(shards, "en-de/5", lambda lines, read: None)
    assert shards.missing() == [0]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--num-hypotheses", "2"], 2, "--num-hypotheses 2 needs --choose all or closest; best takes one"),
        (["--choose", "all", "--num-hypotheses", "5"], 2, "--num-hypotheses 5 is more than --beam-size 4"),
        (["--choose", "closest"], 2, "--choose closest needs --target: it compares with human translations"),
        (["--target", "a.en", "--target", "a.en"], 2, "--target: 2 files for 1 of --source; give one for each"),
        (["--source-language", "auto"], 2, "a distillation has one model for all texts; name their language, got the"),
        (["--source", "none.en"], 1, "none.en: No such file or directory"),
        (["--beam-size", "99"], 1, "error: --beam-size must be 1 to 8, got 99"),
        (["--beam-size", "99999999999"], 2, "'--beam-size': must be less than or equal to 128, got 99999999999"),
        (["--target-language", "fr"], 1, "no model translates from any language to fr; served: en-de/10 (en to de)"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path: Path, options: list[str], code: int, message: str) -> None:
    (tmp_path / "a.en").write_text("one\n")
    given = ("--model", MODEL, "--source", "a.en", "--output", "out", *options)
    assert message in lingon("distill", *given, code=code, folder=tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", ["1", "null", "[]", "{}", '"x"', "[null, 1]", "[[], []]", "[1]", "[" * 100_000])
def test_a_shard_with_a_line_that_is_none_of_ours_is_named(tmp_path: Path, line: str) -> None:
    texts = [TeacherText("tea")]
    shards = Shards(tmp_path, DistillPlan(1, digest(texts), "en-de/5", {}), texts)
    (tmp_path / SHARDS / "00000.jsonl.gz").write_bytes(gzip.compress(f"{line}\n".encode()))
    with pytest.raises(LingonError, match=r"00000\.jsonl\.gz: damaged"):
        shards.publish(PairChoice.BEST)
