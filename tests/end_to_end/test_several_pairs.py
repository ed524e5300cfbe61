"""Train one model of two pairs of languages, export it and serve it, with the real commands.

Into de it reverses a line of digits, into fr it copies it, so that only the target language tells what to do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.client.client import Client
from tests.support.processes import lingon, serving
from tests.support.training_runs import config_text, write_corpora

SUFFIXES = {"de": "target", "fr": "copy"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, config, run and bundle."""
    folder = tmp_path_factory.mktemp("several")
    write_corpora(folder, pairs=2000, french=1000)
    (folder / "config.toml").write_text(config_text(data={"temperature": 2.0}))
    lingon("train", folder / "config.toml", "--output", folder / "run")
    lingon("average", folder / "run", "--last", 2, "--half", "--output", folder / "averaged")
    lingon("export", folder / "averaged", folder / "models" / "digits", "--precision", "fp32,fp16")
    return folder


def test_a_validation_translates_each_text_into_its_own_language(folder: Path) -> None:
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    last = [line for line in log if line["kind"] == "valid"][-1]
    assert min(last["bleu_en-de"], last["bleu_en-fr"]) > 90


@pytest.mark.parametrize("language", SUFFIXES)
def test_checkpoint_and_bundle_have_the_same_bleu_in_each_pair(folder: Path, language: str) -> None:
    test = ("--source", folder / "test.source", "--target", folder / f"test.{SUFFIXES[language]}", "--json")
    pair = ("--source-language", "en", "--target-language", language)
    exact = json.loads(lingon("evaluate", folder / "averaged", *test, *pair))["bleu"]
    assert exact == json.loads(lingon("evaluate", folder / "models" / "digits", *test, *pair))["bleu"] > 90


def test_the_target_language_of_a_request_decides_what_the_served_model_writes(folder: Path) -> None:
    sources = (folder / "test.source").read_text().splitlines()
    with serving(folder / "models" / "digits") as server, Client(server.address) as client:
        for language, suffix in SUFFIXES.items():
            found = client.translate(sources, source="en", target=language, split_sentences="off", protect=False)
            wanted = (folder / f"test.{suffix}").read_text().splitlines()
            assert sum(mine.text == theirs for mine, theirs in zip(found, wanted, strict=True)) > 30
        # A code in a text is text: it does not choose the language.
        (coded,) = client.translate([f">>fr<< {sources[0]}"], source="en", target="de")
        assert coded.text != sources[0]
        (listed,) = client.list_models()
        assert listed.target_languages == ("de", "fr")
        assert server.stop() == 0


def test_the_bundle_names_its_languages_and_what_was_trained(folder: Path) -> None:
    shown = json.loads(lingon("inspect", folder / "models" / "digits", "--json"))
    assert '"gate": "passed"' in json.dumps(shown)
    (card,) = (folder / "models" / "digits").glob("*/MODEL_CARD.md")
    text = card.read_text()
    assert "that translates en to de, fr." in text
    assert "- pairs of languages in the training text: en:de, en:fr, of 2" in text
