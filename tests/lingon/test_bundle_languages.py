"""The languages of a manifest: they are read back, and impossible values are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle import FORMAT, Languages, Manifest, SourceLanguage, TargetLanguage
from lingon.bundle.languages import MOST_LANGUAGES
from lingon.errors import BundleError
from lingon.text import LanguageTokens
from tests.support.bundles import MANIFEST
from tests.support.tampered_bundles import put, write_manifest

ORIGIN = Path("manifest.json")
SOURCES = (SourceLanguage("en", (4,), (5,)), SourceLanguage("zh-Hant", (), (6, 7)))
TARGETS = (TargetLanguage("de", (8,), (9,)), TargetLanguage("en", (), ()))
MANY = replace(
    MANIFEST, source_language="mul", target_language="mul", shortlist=None, languages=Languages(SOURCES, TARGETS)
)


def test_languages_are_read_back() -> None:
    assert Manifest.from_bytes(MANY.to_bytes(), ORIGIN) == MANY
    one = replace(MANY, source_language="en", languages=Languages(SOURCES[:1], TARGETS))
    assert Manifest.from_bytes(one.to_bytes(), ORIGIN) == one


def test_a_source_may_have_no_end_token() -> None:
    without = replace(MANIFEST, source_end=False)
    assert Manifest.from_bytes(without.to_bytes(), ORIGIN) == without


def test_the_languages_of_the_written_format_are_null_for_one_pair() -> None:
    values = json.loads(MANIFEST.to_bytes())
    assert (values["format"], values["languages"]) == (FORMAT, None)
    del values["languages"]
    with pytest.raises(BundleError, match="languages is missing"):
        Manifest.from_bytes(json.dumps(values).encode(), ORIGIN)


def test_a_pair_has_the_tokens_of_both_sides_and_room_for_its_own() -> None:
    assert MANY.languages is not None
    assert MANY.languages.tokens("en", "de") == LanguageTokens((8, 4), (5,), (9,))
    assert MANY.languages.tokens("zh-Hant", "en") == LanguageTokens((), (6, 7), ())
    assert list(MANY.languages.pairs()) == [("en", "de"), ("zh-Hant", "de"), ("zh-Hant", "en")]
    seen = MANY.for_pair("en", "de")
    assert (seen.source_language, seen.target_language, seen.languages) == ("en", "de", None)
    assert seen.limits == replace(MANIFEST.limits, max_target_tokens=MANIFEST.limits.max_target_tokens - 1)
    for pair in (("en", "fr"), ("fr", "de"), ("EN", "de")):
        with pytest.raises(KeyError):
            MANY.for_pair(*pair)


def source(**values: Any) -> dict[str, Any]:
    return {"language": "en", "before": [4], "after": [], **values}


def target(**values: Any) -> dict[str, Any]:
    return {"language": "de", "source": [], "forced": [5], **values}


WRONG: list[tuple[Any, Any, str]] = [
    ([source(language="English!")], [target()], r"languages.sources\[0\].language must be a BCP-47 language tag"),
    ([source(language="")], [target()], r"sources\[0\].language must be"),
    ([source(language="x" * 9)], [target()], r"sources\[0\].language must be"),
    ([source(language="en\n")], [target()], r"sources\[0\].language must be"),
    ([source(language=7)], [target()], r"sources\[0\].language must be"),
    ([source(before=[-1])], [target()], r"sources\[0\].before\[0\] must be 0 to"),
    ([source(before=[2**20 + 1])], [target()], r"sources\[0\].before\[0\] must be 0 to"),
    ([source(before=[4.0])], [target()], r"sources\[0\].before\[0\] must be"),
    ([source(before=[True])], [target()], r"sources\[0\].before\[0\] must be"),
    ([source(before="4")], [target()], r"sources\[0\].before must be"),
    ([source(after=[4] * 17)], [target()], r"sources\[0\].after must be of at most 16 entries"),
    ([source(before=[4000])], [target()], "languages: the source ids must be below 4000, got 4000"),
    ([source()], [target(source=[4001])], "languages: the source ids must be below 4000, got 4001"),
    ([source()], [target(forced=[4000])], "languages: the target ids must be below 4000, got 4000"),
    ([source()], [target(forced=[5, 2])], "languages: de must not force the end token"),
    ([source(), source(language="EN")], [target()], "languages.sources: two have the same language"),
    ([source()], [target(), target(language="DE")], "languages.targets: two have the same language"),
    ([source()], [target(language="en")], "languages must have a pair of two different languages"),
    ([], [target()], "languages must have a pair"),
    ([source()], [], "languages must have a pair"),
    ([source(language=f"en-x-{n}") for n in range(MOST_LANGUAGES + 1)], [target()], "sources must be of at most 500"),
    ([source(more=1)], [target()], "more is not a field"),
    ([{"language": "en"}], [target()], r"sources\[0\].before is missing"),
    (None, [target()], "languages.sources must be a list"),
]


@pytest.mark.parametrize(("sources", "targets", "message"), WRONG)
def test_impossible_languages_are_refused_by_name(tmp_path: Path, sources: Any, targets: Any, message: str) -> None:
    assert refusal(tmp_path, {"languages": {"sources": sources, "targets": targets}}, message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"languages": []}, "languages must be"),
        ({"languages": {"sources": [], "targets": [], "pairs": []}}, "pairs is not a field"),
        ({"source_language": "en"}, "source_language and target_language must be mul and mul, as languages says"),
        ({"text": {"words": ["Tom"], "lengths": [], "confidence": None}}, "text must be null with languages"),
        ({"limits.max_target_tokens": 1, "limits.output_extra": 1}, "languages: no room in 1 target tokens"),
        ({"limits.max_source_tokens": 12}, "languages: 3 tokens of a pair leave no room in 12 source tokens"),
    ],
)
def test_languages_that_contradict_other_values_are_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    assert refusal(tmp_path, values, message)


def test_the_smallest_room_is_accepted() -> None:
    limits = replace(MANIFEST.limits, max_source_tokens=13, max_target_tokens=2, output_extra=2)
    roomy = replace(MANY, limits=limits)
    assert Manifest.from_bytes(roomy.to_bytes(), ORIGIN) == roomy


def refusal(folder: Path, values: dict[str, Any], message: str) -> bool:
    """Read MANY with other values and a valid digest, and return whether it is refused in one line."""
    changed = json.loads(MANY.to_bytes())
    for path, value in values.items():
        put(changed, path, value)
    write_manifest(folder, changed)
    with pytest.raises(BundleError, match=message) as caught:
        Manifest.from_bytes((folder / ORIGIN).read_bytes(), ORIGIN)
    return "\n" not in str(caught.value)
