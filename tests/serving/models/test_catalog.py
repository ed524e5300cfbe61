"""Which of the served models a request selects."""

from __future__ import annotations

import pytest

from lingon.bundle.manifest import Languages, SourceLanguage, TargetLanguage
from lingon.errors import InvalidRequest, UnknownModel
from lingon.serving.models.catalog import Catalog, Entry


def test_the_model_with_the_closest_language_is_chosen():
    catalog = Catalog(
        [Entry("plain", 1, "en", "de", "plain"), Entry("austrian", 1, "en", "de-AT", "austrian")],
    )
    assert catalog.find("", "en", "de-AT").model == "austrian"
    assert catalog.find("", "en-GB", "de-CH").model == "plain"
    assert catalog.find("plain/1", "", "").model == "plain"
    with pytest.raises(UnknownModel, match="austrian/1"):
        catalog.find("", "fr", "")


def test_a_name_without_a_version_means_the_highest_version():
    catalog = Catalog([Entry("en-de", version, "en", "de", version) for version in (2, 10, 9)])
    assert catalog.find("en-de", "", "").model == catalog.find("", "en", "de").model == 10
    assert catalog.find("en-de/2", "", "").model == 2


def test_of_several_models_that_fit_the_most_preferred_is_taken():
    entries = [Entry(name, 1, "en", "de", name) for name in ("news", "old", "talks")]
    with pytest.raises(InvalidRequest, match="several models fit; name one of news/1, old/1, talks/1"):
        Catalog(entries).find("", "en", "de")
    catalog = Catalog(entries, preferred=["gone", "talks", "news"])
    assert catalog.find("", "en", "de").model == "talks"
    assert catalog.find("old", "", "").model == "old"
    assert catalog.replaced(entries[:2]).find("", "en", "de").model == "news"
    austrian = Entry("austrian", 1, "en", "de-AT", "austrian")
    assert catalog.replaced([*entries, austrian]).find("", "en", "de-AT").model == "austrian"


def several(sources: str, targets: str, name: str = "many", version: int = 1) -> Entry[str]:
    """A model of several languages, whose name it is too."""
    sides = (
        [SourceLanguage(tag, (), ()) for tag in sources.split()],
        [TargetLanguage(tag, (), ()) for tag in targets.split()],
    )
    return Entry(name, version, "mul", "mul", f"{name}/{version}", Languages(tuple(sides[0]), tuple(sides[1])))


MANY = several("en de zh-Hant pt-BR", "de fr en")


@pytest.mark.parametrize(
    ("source", "target", "pair"),
    [
        ("en", "de", ("en", "de")),
        ("EN_us", "fr-CA", ("en", "fr")),
        ("eng_Latn", "deu_Latn", ("en", "de")),
        ("zho_Hant", "en", ("zh-Hant", "en")),
        ("pt-BR-abl1943", "en", ("pt-BR", "en")),
    ],
)
def test_a_pair_of_a_model_of_several_languages_is_found_as_the_manifest_writes_it(
    source: str, target: str, pair: tuple[str, str]
):
    for model in ("", "many", "many/1"):
        found = Catalog([MANY]).find(model, source, target)
        assert (found.model, found.source, found.target) == ("many/1", *pair)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "de", "source_language_code must name a language of many/1: en, de, zh-Hant, pt-BR; see ListModels"),
        ("en", "", "target_language_code must name a language of many/1: de, fr, en; see ListModels"),
        ("", "", "source_language_code must name a language of many/1: en, de, zh-Hant, pt-BR; see ListModels"),
    ],
)
def test_an_open_language_of_several_must_be_named(source: str, target: str, message: str):
    for model in ("", "many"):
        with pytest.raises(InvalidRequest) as caught:
            Catalog([MANY]).find(model, source, target)
        assert str(caught.value) == message
        assert caught.value.field == message.partition(" ")[0]


def test_an_open_language_is_the_only_one_of_its_side():
    catalog = Catalog([several("en", "de fr"), several("fr it", "es", name="back")])
    found = catalog.find("", "", "fr")
    assert (found.model, found.source, found.target) == ("many/1", "en", "fr")
    found = catalog.find("", "it", "")
    assert (found.model, found.source, found.target) == ("back/1", "it", "es")


@pytest.mark.parametrize("pair", [("en", "it"), ("it", "en"), ("en", "en"), ("pt", "de"), ("zh", "de"), ("", "it")])
def test_a_pair_that_is_not_served_is_an_error_that_counts_the_languages(pair: tuple[str, str]):
    """A model does not translate into the language of the source; "pt" may be another one than "pt-BR"."""
    asked = f"{pair[0] or 'any language'} to {pair[1]}"
    with pytest.raises(UnknownModel) as unknown:
        Catalog([MANY]).find("", *pair)
    assert str(unknown.value) == (f"no model translates from {asked}; served: many/1 (4 languages to 3 languages)")
    with pytest.raises(InvalidRequest, match=f"model many/1 does not translate from {asked}"):
        Catalog([MANY]).find("many", *pair)


@pytest.mark.parametrize(("count", "end"), [(20, "x-19"), (21, "x-19 and 1 more")])
def test_at_most_twenty_languages_are_listed(count: int, end: str):
    catalog = Catalog([several("en", " ".join(f"qaa-x-{number}" for number in range(count)))])
    with pytest.raises(InvalidRequest) as caught:
        catalog.find("", "en", "")
    assert str(caught.value).endswith(f"qaa-{end}; see ListModels")
    assert str(caught.value).count("qaa") == 20


def test_models_of_one_pair_and_of_several_stand_side_by_side():
    catalog = Catalog([MANY, Entry("en-fr", 1, "en", "fr-CA", "en-fr/1"), Entry("fr-en", 3, "fr", "en", "fr-en/3")])
    assert catalog.find("", "en", "fr-CA").model == "en-fr/1", "the closest language"
    assert catalog.find("", "en", "fr").model == "many/1"
    assert catalog.find("", "fr", "").model == "fr-en/3"
    with pytest.raises(InvalidRequest, match=r"several models fit; .* many/1, fr-en/3"):
        catalog.find("", "", "en")
