"""One model of two pairs of languages, trained, exported and served with the commands of the page about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.client.client import Client
from tests.support.fixtures import FollowPage
from tests.support.pages import DOCS
from tests.support.processes import lingon, serving

LANGUAGES = "de", "fr"


@pytest.fixture(scope="module")
def folder(follow_page: FollowPage) -> Path:
    """The folder of the page, with text, config, run, average and bundle."""
    return follow_page(DOCS / "how-to" / "several-pairs.md")


def texts(folder: Path, language: str) -> list[str]:
    return (folder / f"en-{language}.test.{language}").read_text(encoding="utf-8").splitlines()


def test_a_validation_translates_each_text_into_its_own_language(folder: Path) -> None:
    log = [json.loads(line) for line in (folder / "runs" / "several" / "log.jsonl").read_text().splitlines()]
    last = [line for line in log if line["kind"] == "valid"][-1]
    assert min(last["bleu_en-de"], last["bleu_en-fr"]) > 90


@pytest.mark.parametrize("language", LANGUAGES)
def test_checkpoint_and_bundle_have_the_same_bleu_in_each_pair(folder: Path, language: str) -> None:
    test = [f"--{side}={folder / f'en-{language}.test.{of}'}" for side, of in (("source", "en"), ("target", language))]
    pair = ("--source-language", "en", "--target-language", language, "--json")
    exact = json.loads(lingon("evaluate", folder / "runs" / "several-average", *test, *pair))["bleu"]
    assert exact == json.loads(lingon("evaluate", folder / "models" / "several", *test, *pair))["bleu"] > 90


def test_the_target_language_of_a_request_decides_what_the_served_model_writes(folder: Path) -> None:
    sources = (folder / "en-de.test.en").read_text(encoding="utf-8").splitlines()
    with serving(folder / "models" / "several") as server, Client(server.address) as client:
        for language in LANGUAGES:
            found = client.translate(sources, source="en", target=language, split_sentences="off", protect=False)
            pairs = zip(found, texts(folder, language), strict=True)
            assert sum(mine.text == theirs for mine, theirs in pairs) > 0.6 * len(sources)
        # A code in a text is text: it does not choose the language.
        (coded,) = client.translate([f">>fr<< {sources[0]}"], source="en", target="de")
        assert coded.text != texts(folder, "fr")[0]
        (listed,) = client.list_models()
        assert listed.target_languages == ("de", "fr")
        assert server.stop() == 0


def test_the_bundle_names_its_languages_and_what_was_trained(folder: Path) -> None:
    shown = json.loads(lingon("inspect", folder / "models" / "several", "--json"))
    assert '"gate": "passed"' in json.dumps(shown)
    (card,) = (folder / "models" / "several").glob("*/MODEL_CARD.md")
    text = card.read_text()
    assert "that translates en to de, fr." in text
    assert "- pairs of languages in the training text: en:de, en:fr, of 2" in text
