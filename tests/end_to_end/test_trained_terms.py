"""A model that was trained with annotated sources, from its training to its service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle.names import CARD
from lingon.bundle.store import Bundle, open_bundle, write_bundle
from lingon.errors import BundleError
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.in_process import LocalTranslator
from lingon.serving.runtime.validation import checked_tokenizer
from lingon.terms.annotation import OWN_FORM, AnnotationForm
from lingon.training.checkpoint import load_checkpoint, resolve_checkpoint
from lingon.training.prepare import training_pairs
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.term_corpus import TermCase, terms_config, unknown_terms, write_ambiguous_corpus
from tests.support.training_runs import train


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of a model that has learnt terms. Requests have its shortlist by default."""
    folder = tmp_path_factory.mktemp("trained")
    write_ambiguous_corpus(folder)
    trainer = train(terms_config(folder, {"share": 0.5}), folder / "run")
    checkpoint = load_checkpoint(resolve_checkpoint(folder / "run"))
    settings = ExportSettings(precisions=("fp32",), parity_sentences=4, shortlist_by_default=True)
    texts = ExportTexts(trainer.valid[:4], training_pairs(checkpoint.config, checkpoint.tokenizer))
    return export_checkpoint(checkpoint, folder / "letters", texts, settings)


@pytest.fixture(scope="module")
def local(bundle: Bundle) -> Iterator[LocalTranslator]:
    with LocalTranslator(bundle.folder, threads=1) as translator:
        yield translator


def request_of(case: TermCase, *others: str) -> pb.TranslateRequest:
    words, number, wanted = case
    return pb.TranslateRequest(texts=[" ".join(words), *others], terms=[pb.Term(source=words[number], target=wanted)])


def test_the_bundle_declares_the_form_of_its_training(bundle: Bundle) -> None:
    assert bundle.manifest.terms == OWN_FORM
    assert open_bundle(bundle.folder).manifest.terms == OWN_FORM
    assert "\n- annotated with terms: 50.0% of the pairs with word alignments\n" in bundle.read(CARD).decode()


def test_terms_that_the_free_translation_misses_are_written_by_the_training(local: LocalTranslator) -> None:
    means: Counter[pb.TermMeans.ValueType] = Counter()
    for case in unknown_terms(50):
        (result,) = local.translate(request_of(case)).results
        for outcome in result.terms:
            means[outcome.means] += 1
            if outcome.means != pb.TERM_MEANS_MISSED:
                span = outcome.target_span
                assert result.hypotheses[0].text[span.begin : span.end] == case[2]
    assert means[pb.TERM_MEANS_TRAINED] >= 0.8 * means.total() >= 40
    assert means[pb.TERM_MEANS_MISSED] <= 0.02 * means.total()


def test_a_translation_that_has_its_terms_is_that_without_terms(local: LocalTranslator) -> None:
    compared = 0
    for words, number, _ in unknown_terms(30):
        (free,) = local.translate(pb.TranslateRequest(texts=[" ".join(words)])).results
        meant = free.hypotheses[0].text.split()
        if words.count(words[number]) > 1 or len(meant) != len(words):
            continue
        (result,) = local.translate(request_of((words, number, meant[number]))).results
        assert result.hypotheses[0].text == free.hypotheses[0].text
        assert [each.means for each in result.terms] == [pb.TERM_MEANS_FREE]
        compared += 1
    assert compared >= 10


def test_a_text_with_terms_is_translated_alone_as_in_company(local: LocalTranslator) -> None:
    cases = unknown_terms(8)
    others = [" ".join(words) for words, _, _ in cases]
    for case in cases:
        (alone,) = local.translate(request_of(case)).results
        among, *_ = local.translate(request_of(case, *others)).results
        assert among.hypotheses[0].text == alone.hypotheses[0].text
        assert among.terms == alone.terms


def test_a_bundle_without_the_form_is_served_as_a_model_that_was_not_trained_so(bundle: Bundle, tmp_path: Path) -> None:
    files = {name: bundle.read(name) for name in bundle.manifest.checksums}
    other = write_bundle(tmp_path / "letters" / "1", replace(bundle.manifest, terms=None), files)
    with LocalTranslator(other.folder, threads=1) as plain:
        found = [plain.translate(request_of(case)).results[0].terms for case in unknown_terms(10)]
    means = {outcome.means for outcomes in found for outcome in outcomes}
    assert pb.TERM_MEANS_TRAINED not in means
    assert means & {pb.TERM_MEANS_REPAIRED, pb.TERM_MEANS_CONSTRAINED}


def test_a_bundle_whose_vocabulary_lacks_a_marker_is_refused_in_one_line(bundle: Bundle) -> None:
    other = replace(bundle.manifest, terms=AnnotationForm("<x>", "<y>", "<z>"))
    line = r"tokenizer\.model: has no piece '<x>', which manifest\.json names as a marker of terms$"
    with pytest.raises(BundleError, match=line):
        checked_tokenizer(Bundle(bundle.folder, other))
