"""Golden sentences of a bundle of several languages: each has its pair, and a wrong token of a language is noticed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle.golden import Golden
from lingon.bundle.manifest import Languages
from lingon.bundle.names import GOLDEN
from lingon.bundle.store import Bundle, write_bundle
from lingon.errors import BundleError
from lingon.export.gates_text import MOST_PAIRS, golden_sentences
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.runtime.onnx_runner import load_runner
from tests.support.random_models import LANGUAGES, PAIRS, TEXTS, write_multilingual_bundle

WORDS = " ".join(TEXTS).split()
POOL = [" ".join(each) for each in itertools.islice(itertools.combinations(WORDS, 3), 0, 200, 2)]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    bundle = write_multilingual_bundle(tmp_path_factory.mktemp("first") / "1")
    found = golden_sentences(bundle, {"fp32": load_runner(bundle, "fp32", threads=1)}, POOL, source="en")
    assert found is not None
    return found


@pytest.fixture
def bundle(golden: Golden, tmp_path: Path) -> Bundle:
    return write_multilingual_bundle(tmp_path / "many" / "1", golden)


def load(bundle: Bundle) -> None:
    load_translator(bundle, LoadOptions(device="cpu", engines=1, golden=True)).engine.stop(0)


def changed(bundle: Bundle, folder: Path, golden: Golden, languages: Languages = LANGUAGES) -> Bundle:
    files = {name: bundle.read(name) for name in bundle.manifest.checksums} | {GOLDEN: golden.to_bytes()}
    return write_bundle(folder / "changed" / "1", replace(bundle.manifest, languages=languages), files)


def test_the_sentences_take_turns_with_the_pairs_of_their_language(bundle: Bundle, golden: Golden) -> None:
    assert set(golden.languages) == {pair for pair in PAIRS if pair[0] == "en"}
    assert Golden.from_bytes(golden.to_bytes(), Path("x")) == golden
    load(bundle)


def test_at_most_eight_pairs_are_checked(bundle: Bundle) -> None:
    targets = tuple(replace(LANGUAGES.targets[1], language=f"qaa-x-{number}") for number in range(MOST_PAIRS + 1))
    languages = replace(LANGUAGES, targets=targets)
    many = Bundle(bundle.folder, replace(bundle.manifest, languages=languages))
    found = golden_sentences(many, {"fp32": load_runner(bundle, "fp32", threads=1)}, POOL, source="en")
    assert found is not None
    assert {target for _, target in found.languages} <= {each.language for each in targets[:MOST_PAIRS]}
    assert len(set(found.languages)) > 2


def swapped(languages: Languages, side: str, places: Sequence[int]) -> Languages:
    """The languages with the tokens of two exchanged."""
    found = list(getattr(languages, side))
    one, other = (found[place] for place in places)
    found[places[0]], found[places[1]] = (replace(b, language=a.language) for a, b in ((one, other), (other, one)))
    return replace(languages, **{side: tuple(found)})


@pytest.mark.parametrize("side", ["sources", "targets"])
def test_a_wrong_token_of_a_language_is_noticed_when_the_bundle_is_loaded(
    bundle: Bundle, golden: Golden, tmp_path: Path, side: str
) -> None:
    places = (0, 1) if side == "sources" else (1, 2)
    noticed = "is translated otherwise|links of the alignments differ"
    with pytest.raises(BundleError, match=rf"golden\.json: .*({noticed})"):
        load(changed(bundle, tmp_path, golden, swapped(LANGUAGES, side, places)))


def test_the_pair_of_a_sentence_decides(bundle: Bundle, golden: Golden, tmp_path: Path) -> None:
    other = {"en de": "en fr", "en fr": "en de"}
    wrong = replace(golden, pairs=tuple(other[pair] for pair in golden.pairs))
    with pytest.raises(BundleError, match=r"golden\.json: sentence \d+ of \d+ is translated otherwise"):
        load(changed(bundle, tmp_path, wrong))


@pytest.mark.parametrize("pair", ["en it", "it de"])
def test_a_pair_that_the_manifest_lacks_is_named(bundle: Bundle, golden: Golden, tmp_path: Path, pair: str) -> None:
    wrong = replace(golden, pairs=(pair, *golden.pairs[1:]))
    with pytest.raises(BundleError, match=rf"many/1: golden\.json has {pair}, no pair of the manifest"):
        load(changed(bundle, tmp_path, wrong))


def test_sentences_without_pairs_are_refused_with_several_languages(
    bundle: Bundle, golden: Golden, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"golden\.json has .*, no pair of the manifest"):
        load(changed(bundle, tmp_path, replace(golden, pairs=())))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("en",), r"pairs\[0\] must be two languages as in en fr"),
        (("en de fr",), r"pairs\[0\] must be two languages"),
        (("en de", "en de"), "2 pairs of 1 sentences"),
        (("en " + "x" * 100,), r"pairs\[0\] must be two languages"),
    ],
)
def test_pairs_that_are_none_are_refused(pairs: tuple[str, ...], message: str) -> None:
    content = Golden(("a",), {"fp32": ("b",)}, pairs=pairs).to_bytes()
    with pytest.raises(BundleError, match=rf"golden\.json: .*{message}"):
        Golden.from_bytes(content, Path("golden.json"))
