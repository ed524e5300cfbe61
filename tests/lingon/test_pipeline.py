"""`lingon.pipeline` against the pipeline of Transformers 4: the same calls have answers of the same shape."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import lingon
from lingon import LingonError, Sampling, ServerError, TranslationPipeline
from lingon.errors import SettingsError
from tests.support.foreign_models import save_opus_mt
from tests.support.repository import ROOT

MODEL = ROOT / "models" / "en-de"
TEA, RAIN = "I would like a cup of tea.", "It is raining."
TEE = "Ich hätte gern eine Tasse Tee."


@pytest.fixture(scope="module")
def translator() -> Iterator[TranslationPipeline]:
    with lingon.pipeline("translation", model=MODEL, device="cpu", engines=1, threads=1) as made:
        yield made


@pytest.fixture(scope="module")
def transformers_pipeline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The pipeline of Transformers with a small model of OPUS-MT's kind and random weights."""
    from transformers import pipeline

    made = pipeline("translation", model=str(save_opus_mt(tmp_path_factory.mktemp("opus") / "model")), device="cpu")
    made.generation_config.decoder_start_token_id = made.model.config.pad_token_id
    return made


def shape(answer: Any) -> Any:
    """The lists and keys of an answer, without its texts."""
    if isinstance(answer, dict):
        return {name: type(value) for name, value in answer.items()}
    return [shape(each) for each in answer] if isinstance(answer, list) else type(answer)


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (TEA, {}),
        ([TEA], {}),
        ([TEA, RAIN], {}),
        ([], {}),
        ("", {}),
        (TEA, {"num_beams": 4, "num_return_sequences": 2}),
        ([TEA, RAIN], {"num_beams": 4, "num_return_sequences": 2}),
        ([TEA, RAIN, TEA], {"batch_size": 2, "max_length": 60, "truncation": True, "num_beams": 1}),
        (TEA, {"max_new_tokens": 30, "do_sample": True, "temperature": 0.7, "num_beams": 1}),
        (TEA, {"length_penalty": 0.5, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2, "num_beams": 2}),
    ],
)
@pytest.mark.filterwarnings("default")  # of Transformers
def test_a_call_has_an_answer_of_the_shape_of_transformers(
    translator: TranslationPipeline, transformers_pipeline: Any, texts: Any, options: dict[str, Any]
):
    assert shape(translator(texts, **options)) == shape(transformers_pipeline(texts, **options))


def test_an_iterator_gives_an_iterator_over_the_lists_of_its_texts(
    translator: TranslationPipeline, transformers_pipeline: Any
):
    answers, others = translator(text for text in (TEA, RAIN)), transformers_pipeline(text for text in (TEA, RAIN))
    assert not isinstance(answers, list)
    assert shape(list(answers)) == shape(list(others))


def test_the_answers_are_the_translations_of_the_model(translator: TranslationPipeline):
    expected = translator.model.translate([TEA, RAIN], beam_size=3, num_hypotheses=2, max_output_tokens=20)
    found = translator([TEA, RAIN], num_beams=3, num_return_sequences=2, max_new_tokens=20)
    assert found == [[{"translation_text": each.text} for each in result.translations] for result in expected]
    assert translator(TEA) == [{"translation_text": TEE}]


def test_the_bounds_of_lengths_count_the_token_that_starts_a_decoder(translator: TranslationPipeline):
    expected = translator.model.translate(TEA, max_output_tokens=4).text
    assert translator(TEA, max_length=5) == translator(TEA, max_new_tokens=4) == [{"translation_text": expected}]
    assert expected != TEE


def test_sampling_needs_do_sample_and_has_the_bound_of_transformers(translator: TranslationPipeline):
    drawn = Sampling(temperature=3.0, top_k=50, seed=1)
    expected = translator.model.translate(TEA, sampling=drawn).text
    assert expected != TEE
    assert translator(TEA, sampling=drawn) == [{"translation_text": expected}]
    assert translator(TEA, do_sample=True, temperature=0.01, top_k=1) == translator(TEA, num_beams=1)
    with pytest.warns(UserWarning, match="^temperature: no effect without do_sample=True$"):
        assert translator(TEA, temperature=3.0) == [{"translation_text": TEE}]


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("eng_Latn", "deu_Latn"), ("en_XX", "de_DE")])
def test_languages_have_the_codes_of_transformers_models(translator: TranslationPipeline, source: str, target: str):
    assert translator(TEA, src_lang=source, tgt_lang=target) == [{"translation_text": TEE}]


def test_the_options_of_the_pipeline_are_the_defaults_of_its_calls():
    options = {"num_beams": 4, "num_return_sequences": 2, "return_text": True}
    with lingon.pipeline("translation_en_to_de", MODEL, tokenizer=MODEL, device=-1, engines=1, **options) as made:
        assert len(made(TEA)) == 2
        assert len(made(TEA, num_return_sequences=1)) == 1
        with pytest.raises(ServerError, match="no model translates"):
            made(TEA, tgt_lang="fr")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "summarization"}, "task must be translation or translation_XX_to_YY, got 'summarization'"),
        ({"task": "translation_en_to"}, "task must be translation or translation_XX_to_YY, got 'translation_en_to'"),
        ({}, "name a model, such as "),
        ({"model": MODEL, "tokenizer": "t5-small"}, "a model has its own tokenizer; leave tokenizer='t5-small' out"),
        (
            {"model": MODEL, "bad_words_ids": [[3]]},
            "bad_words_ids is no option of this pipeline; it takes alternatives,",
        ),
        ({"model": MODEL, "return_tensors": True}, "return_tensors must be False, got True"),
        ({"model": MODEL, "device": "cuda:1"}, "device must be auto, cpu or cuda, got 'cuda:1'"),
        ({"task": "translation_xx_to_yy"}, "xx-yy: no such folder"),
        ({"model": "Helsinki-NLP/opus-mt-xx-yy"}, "Helsinki-NLP/opus-mt-xx-yy: no such folder"),
    ],
)
def test_what_does_not_fit_is_one_line(arguments: dict[str, Any], message: str):
    with pytest.raises(LingonError) as caught:
        lingon.pipeline(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("texts", [3, ["Tom", 3], None])
def test_what_is_no_text_is_refused_at_the_call(translator: TranslationPipeline, texts: Any):
    with pytest.raises(SettingsError, match="must be"):
        translator(texts)


def test_options_that_change_nothing_are_named_unless_they_are_about_speed(translator: TranslationPipeline):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator(TEA, batch_size=8, truncation=True)
        with pytest.raises(UserWarning, match=r"^early_stopping has no effect: "):
            translator(TEA, early_stopping=False)


def test_a_text_that_cannot_be_translated_is_an_error(translator: TranslationPipeline):
    with pytest.raises(ServerError):
        translator([RAIN, "word " * 2000], long_text="refuse", split_sentences="off")


def test_a_program_that_does_not_close_its_pipeline_ends():
    code = f"import lingon; print(lingon.pipeline(model={str(MODEL)!r}, device='cpu')({TEA!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == str([{"translation_text": TEE}])
