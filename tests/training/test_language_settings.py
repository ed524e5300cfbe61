"""The settings of text of several pairs of languages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lingon.errors import SettingsError
from lingon.training.config import Config, load_config, setting_differences
from tests.support.training_runs import config_text, corpus_block, tiny_config_text

EN_DE, EN_FR, DE_EN = ("en", "de"), ("en", "fr"), ("de", "en")
MANY = ['languages.sources=[{language="en"}]', 'languages.targets=[{language="de"},{language="fr"},{language="it"}]']


def load(folder: Path, text: str, *overrides: str) -> Config:
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return load_config(folder / "run.toml", overrides)


def test_a_corpus_without_languages_has_those_of_the_block_data(tmp_path: Path) -> None:
    assert load(tmp_path, tiny_config_text()).data.trained == (EN_DE,)
    turned = corpus_block("data.train", "train.target", "train.source", source_language="de", target_language="en")
    data = load(tmp_path, config_text() + turned, "data.train.1.source_language=en").data
    assert data.trained == (EN_DE, EN_FR, DE_EN)
    assert [data.languages_of(corpus) for corpus in data.valid] == [EN_DE, EN_FR]


def test_one_block_of_validation_text_is_a_list_of_it(tmp_path: Path) -> None:
    text = tiny_config_text()
    listed = load(tmp_path, text.replace("[data.valid]", "[[data.valid]]"))
    assert load(tmp_path, text) == listed
    assert len(listed.data.valid) == 1


def test_without_a_block_of_languages_a_piece_before_the_source_names_the_target(tmp_path: Path) -> None:
    made = load(tmp_path, config_text()).with_languages().languages
    assert made is not None
    assert [(each.language, each.before, each.after) for each in made.sources] == [("en", (), ())]
    found = [(each.language, each.source, each.forced) for each in made.targets]
    assert found == [("de", (">>de<<",), ()), ("fr", (">>fr<<",), ())]
    assert load(tmp_path, tiny_config_text()).with_languages().languages is None
    given = load(tmp_path, config_text(), *MANY)
    assert given.with_languages() == given


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data.target_language=it", "data.train.0.target_language=de"],
            "data.source_language and data.target_language must be the pair of a corpus of data.train: en:de, en:fr; "
            "got en:it",
        ),
        (
            ["data.valid.1.target_language=it"],
            "data.valid.1 must be of a pair of the model: en:de, en:fr; got en:it",
        ),
        (
            [*MANY, "data.train.1.target_language=nl"],
            "data.train.1 must be of a pair of the model: en:de, en:fr, en:it; got en:nl",
        ),
        (
            ["data.train.1.source_language=fr"],
            "data.train.1 must be of a pair of the model: en:de, en:fr, fr:de; got fr:fr",
        ),
        (
            ["data.train.1.target_language=de", "data.valid.1.target_language=de", "data.temperature=5"],
            "data.temperature must be 1 for text of one pair of languages, got 5.0",
        ),
        (["data.temperature=0.5"], "data.temperature must be greater than or equal to 1, got 0.5"),
        (["data.train.1.target_language=French!"], "data.train.1.target_language must be a BCP-47 language tag"),
        (
            ['languages.sources=[{language="en", before=[""]}]', 'languages.targets=[{language="de"}]'],
            "languages.sources.0.before.0 must have at least 1 character, got ''",
        ),
        (["tokenizer.sampling_alpha=0.1"], "tokenizer.sampling_alpha must be 0 for a model of several languages"),
    ],
)
def test_a_wrong_pair_of_languages_is_one_line_that_names_it(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)) as caught:
        load(tmp_path, config_text(), *overrides)
    assert "\n" not in str(caught.value)


def test_a_validation_text_may_be_of_a_pair_that_no_corpus_trains(tmp_path: Path) -> None:
    data = load(tmp_path, config_text(), *MANY, "data.valid.1.target_language=it").data
    assert [data.languages_of(corpus) for corpus in data.valid] == [EN_DE, ("en", "it")]


def test_the_saved_settings_of_several_pairs_are_read_back_the_same(tmp_path: Path) -> None:
    config = load(tmp_path, config_text(), "data.temperature=2").with_languages()
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert load_config(tmp_path / "config.json") == config


def test_settings_that_an_older_version_saved_do_not_differ(tmp_path: Path) -> None:
    """They have one validation text and no languages of corpora; an imported model has no validation text at all."""
    config = load(tmp_path, tiny_config_text())
    values = json.loads(config.model_dump_json())
    del values["data"]["temperature"]
    for corpus in (*values["data"]["train"], *values["data"]["valid"]):
        del corpus["source_language"], corpus["target_language"]
    (values["data"]["valid"],) = values["data"]["valid"]
    (tmp_path / "old.json").write_text(json.dumps(values))
    assert list(setting_differences(load_config(tmp_path / "old.json"), config)) == []
    values["data"] |= {"train": [], "valid": None}
    values["origin"] = {"form": "Marian", "files": {}}
    (tmp_path / "imported.json").write_text(json.dumps(values))
    assert load_config(tmp_path / "imported.json").data.corpora == ()
