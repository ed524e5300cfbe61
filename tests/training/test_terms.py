"""Runs whose sources are annotated with terms: what is annotated, what such a model learns, and what is refused."""

from __future__ import annotations

import random
import re
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lingon.errors import CorpusError, SettingsError
from lingon.terms.annotation import OWN_FORM, Place, annotated
from lingon.text import UNK, normalise
from lingon.training.batches import Batch
from lingon.training.checkpoint import TrainingProgress
from lingon.training.config import Config, TermSettings
from lingon.training.evaluation import translate_texts
from lingon.training.prepare import prepare
from lingon.training.search import SearchSettings
from lingon.training.terms import TermAnnotator, phrases
from lingon.training.trainer import Trainer
from tests.support.term_corpus import TermCase, sentences, terms_config, unknown_terms, write_ambiguous_corpus
from tests.support.training_runs import counted, same, train, weights_of

SHORT = {"max_steps": 12, "warmup_steps": 5, "cooldown_steps": 4, "valid_every": 12, "batch_tokens": 400}
KEYS = np.arange(10_000, dtype=np.uint64)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ambiguous corpus."""
    folder = tmp_path_factory.mktemp("ambiguous")
    write_ambiguous_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def trained(text: Path) -> Trainer:
    """A trainer that has learnt terms on it."""
    return train(terms_config(text, {"share": 0.5}), text / "run")


def obeyed(trainer: Trainer, cases: list[TermCase], *, told: bool) -> int:
    """Return in how many cases a word is translated by the wanted one, at its place."""
    sources = [" ".join(words) for words, _, _ in cases]
    if told:
        sources = [
            annotated(source, [Place(2 * number, 2 * number + 1, wanted)], OWN_FORM)
            for source, (_, number, wanted) in zip(sources, cases, strict=True)
        ]
    found = translate_texts(trainer.model.eval(), trainer.tokenizer, sources, SearchSettings())
    return sum(
        output.split()[number : number + 1] == [wanted]
        for output, (_, number, wanted) in zip(found, cases, strict=True)
    )


def test_a_model_obeys_terms_that_no_text_taught_it(trained: Trainer) -> None:
    """No pair of the training text translates any of these words by the wanted one."""
    cases = unknown_terms(100)
    assert obeyed(trained, cases, told=False) <= 20
    assert obeyed(trained, cases, told=True) >= 80


def batches_of(trainer: Trainer, count: int = 20) -> list[Batch]:
    """Return the first batches of a run."""
    made = islice(trainer.feed().updates(TrainingProgress()), count)
    return [batch for _, batches in made for batch in batches]


def sources_of(trainer: Trainer, count: int = 20) -> list[list[str]]:
    """Return the pieces of the sources of the first batches."""
    rows = [row for batch in batches_of(trainer, count) for row in batch.source_ids.tolist()]
    return [trainer.tokenizer.source_pieces([token for token in row if token > UNK]) for row in rows]


def has_terms(pieces: list[str]) -> bool:
    return any(OWN_FORM.is_in(piece) for piece in pieces)


def test_a_share_of_the_sources_is_annotated_and_in_each_epoch_others(trained: Trainer) -> None:
    found = sources_of(trained, 60)
    assert 0.4 <= sum(map(has_terms, found)) / len(found) <= 0.6
    annotator = TermAnnotator(TermSettings(share=0.1))
    drawn = annotator.counts(KEYS), annotator.counts(KEYS + np.uint64(10_000))
    assert all(0.08 <= (each > 0).mean() <= 0.12 for each in drawn)
    assert all(0.02 <= (each == terms).mean() <= 0.05 for each in drawn for terms in (1, 2, 3))
    assert ((drawn[0] > 0) & (drawn[1] > 0)).mean() < 0.02


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_batches_with_terms_have_the_tokens_that_a_batch_may_have(text: Path, alpha: float) -> None:
    blocks = {"tokenizer": {"sampling_alpha": alpha}, "training": SHORT, "data": {"max_tokens": 24}}
    trainer = train(terms_config(text, {"share": 1.0}, **blocks), text / f"run {alpha}")
    made = batches_of(trainer, 40)
    assert max(batch.source_ids.numel() for batch in made) <= SHORT["batch_tokens"]
    assert max(batch.source_ids.shape[1] for batch in made) <= 24
    assert any(map(has_terms, sources_of(trainer)))


def test_an_annotated_source_has_the_translation_that_the_target_has(trained: Trainer) -> None:
    """With one term of one word in each, which is where it is in the source."""
    maker_settings = TermSettings(share=1.0, max_terms=1, max_words=1, min_letters=1)
    annotator = TermAnnotator(maker_settings)
    pattern = re.compile(
        rf"((?:\w )*){OWN_FORM.begin} (\w) {OWN_FORM.middle} (\w) {OWN_FORM.end}((?: \w)*)", re.UNICODE
    )
    for key, (source, target) in enumerate(sentences(200, seed=6)):
        links = [(word, word) for word in range(len(source))]
        found = annotator.annotated((" ".join(source), " ".join(target)), links, 1, key, lambda _: True)
        assert found is not None
        parts = pattern.fullmatch(found)
        assert parts is not None, found
        number = len(parts[1].split())
        assert (parts[2], parts[3]) == (source[number], target[number])
        assert f"{parts[1]}{parts[2]}{parts[4]}" == " ".join(source)


def test_what_is_annotated_is_short_enough_or_nothing_is(trained: Trainer) -> None:
    annotator = TermAnnotator(TermSettings(share=1.0, min_letters=1))
    links = [(word, word) for word in range(3)]
    assert annotator.annotated(("a b c", "k l m"), links, 1, 1, lambda text: len(text) < 40) is not None
    assert annotator.annotated(("a b c", "k l m"), links, 1, 1, lambda text: len(text) < 20) is None


def test_phrases_have_no_link_outside_and_a_link_for_each_word() -> None:
    draw, settings, found = random.Random(8), TermSettings(min_letters=1, max_words=3), 0
    for _ in range(300):
        source, target = ([f"{side}{number}" for number in range(draw.randint(1, 7))] for side in "st")
        chosen = draw.sample([(i, j) for i in range(len(source)) for j in range(len(target))], k=min(5, len(source)))
        for group in phrases(" ".join(source), " ".join(target), chosen, settings):
            for begin, end, translation in group:
                inside = set(map(source.index, " ".join(source)[begin:end].split()))
                others = set(map(target.index, translation.split()))
                crossing = [(i, j) for i, j in chosen if (i in inside) != (j in others)]
                assert not crossing
                assert {i for i, j in chosen if j in others} == inside
                assert {j for i, j in chosen if i in inside} == others
                assert 1 <= len(inside) <= 3
                assert 1 <= len(others) <= 3
                found += 1
    assert found > 100


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("The “dog”, barks", "Der „Hund“, bellt", {("The", "Der"), ("dog", "Hund"), ("barks", "bellt")}),
        ("No 12 cats", "Keine 12 Katzen", {("cats", "Katzen")}),  # "No" is short, and a figure is no term
        ("Berlin sleeps", "Berlin schläft", {("sleeps", "schläft")}),  # the same on both sides teaches nothing
    ],
)
def test_a_term_has_no_punctuation_around_it_and_letters_on_both_sides(
    source: str, target: str, expected: set[tuple[str, str]]
) -> None:
    links = [(word, word) for word in range(len(source.split()))]
    groups = phrases(source, target, links, TermSettings(max_words=1))
    assert {(source[begin:end], other) for group in groups for begin, end, other in group} == expected


def test_workers_make_the_batches_that_the_run_makes_alone(text: Path) -> None:
    config, made = terms_config(text, {"share": 0.5}, training=SHORT), list[list[Batch]]()
    for workers in (0, 2):
        training = config.training.model_copy(update={"workers": workers})
        made.append(batches_of(train(config.model_copy(update={"training": training}), text / f"workers {workers}")))
    for one, other in zip(*made, strict=True):
        assert torch.equal(one.source_ids, other.source_ids)
        assert torch.equal(one.labels, other.labels)


def test_a_run_stopped_and_resumed_has_the_weights_of_one_never_stopped(text: Path) -> None:
    blocks = {"tokenizer": {"sampling_alpha": 0.3}, "training": {**SHORT, "log_every": 1, "guided_alignment": 0.1}}
    config = terms_config(text, {"share": 0.5}, **blocks)
    whole = train(config, text / "whole")
    assert train(config, text / "cut", cut=7).interrupted
    resumed = train(config, text / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    assert counted(resumed.progress) == counted(whole.progress)


def test_guided_attention_leaves_out_what_is_annotated(text: Path) -> None:
    """The words of an annotated source are others than those that the links count."""
    trainer = train(terms_config(text, {"share": 0.5}, training={**SHORT, "guided_alignment": 0.1}), text / "guided")
    markers, guided = {trainer.tokenizer.source.piece_to_id(f"\u2581{each}") for each in OWN_FORM.markers}, set[bool]()
    for batch in batches_of(trainer, 5):
        assert batch.alignment is not None
        for source, shares in zip(batch.source_ids.tolist(), batch.alignment, strict=True):
            assert bool(shares.any()) == markers.isdisjoint(source)
            guided.add(bool(shares.any()))
    assert guided == {True, False}


def test_validation_text_is_not_annotated_and_no_text_is_read_as_a_marker(trained: Trainer) -> None:
    markers = {trained.tokenizer.source.piece_to_id(f"\u2581{marker}") for marker in OWN_FORM.markers}
    assert UNK not in markers
    written = " ".join(OWN_FORM.markers)
    texts = [pair.source for pair in trained.valid] + [normalise(written), normalise(f"a{written}b")]
    assert markers.isdisjoint(token for each in texts for token in trained.tokenizer.encode_source(each))


def test_a_model_with_one_vocabulary_generates_no_marker(trained: Trainer) -> None:
    markers = [trained.tokenizer.target.piece_to_id(f"\u2581{marker}") for marker in OWN_FORM.markers]
    assert set(markers) == set(trained.config.model.never_generated)


def test_a_model_of_several_languages_learns_terms_of_the_corpora_with_links(text: Path) -> None:
    """The second corpus has the same sources and no links."""
    values = terms_config(text, {"share": 1.0}, training=SHORT).model_dump()
    first = values["data"]["train"][0]
    values["data"]["train"] = [first, {**first, "alignment": None, "target_language": "fr"}]
    values["data"]["drop_duplicates"] = False
    trainer = train(Config.model_validate(values), text / "several")
    found = sources_of(trainer)
    german, french = ([source for source in found if f">>{tag}<<" == source[0]] for tag in ("de", "fr"))
    assert german
    assert all(map(has_terms, german))
    assert french
    assert not any(map(has_terms, french))


def test_terms_without_word_alignments_are_refused(text: Path) -> None:
    values = terms_config(text, {}).model_dump()
    values["data"]["train"][0]["alignment"] = None
    with pytest.raises(ValueError, match=r"data\.terms needs data\.train\.0\.alignment, a file of word alignments"):
        Config.model_validate(values)


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        ({"share": 0.0}, r"data\.terms\.share .* greater than 0, got 0\.0$"),
        ({"shares": 0.1}, r"unknown key data\.terms\.shares; did you mean share\?$"),
        ({"begin": "a b"}, r"data\.terms: terms\.begin must have no blank, comma or ▁, got 'a b'$"),
        ({"begin": ""}, r"data\.terms: terms\.begin must have 1 to 64 characters, got 0$"),
        ({"end": "X", "middle": "X"}, r"data\.terms: terms\.begin, middle and end must differ, got "),
    ],
)
def test_a_wrong_setting_of_terms_is_named_in_one_line(text: Path, terms: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError, match=line):
        terms_config(text, terms)


def test_a_vocabulary_without_the_markers_is_refused(text: Path) -> None:
    without = train(terms_config(text, None, training=SHORT), text / "without")
    config = terms_config(text, {}, training=SHORT)
    given = config.tokenizer.model_copy(update={"path": without.folder})
    with pytest.raises(SettingsError, match=r"^data\.terms: '<term>\\u2060' is no piece of the source vocabulary; "):
        train(config.model_copy(update={"tokenizer": given}), text / "with")


def test_a_corpus_that_was_prepared_without_terms_is_refused(text: Path) -> None:
    prepare(terms_config(text, None), text / "prepared")
    with pytest.raises(SettingsError, match=r"prepared with other settings .* data\.train\.0\.links: false -> true"):
        prepare(terms_config(text, {}), text / "prepared")


def test_text_without_a_link_is_refused(text: Path, tmp_path: Path) -> None:
    write_ambiguous_corpus(tmp_path)
    (tmp_path / "train.align").write_text("\n" * 2000, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"train\.align: none of [0-9,]+ pairs that pass the filters has a link$"):
        train(terms_config(tmp_path, {}, training=SHORT), tmp_path / "run")
