"""A pair of languages without a model is translated over the best of several routes."""

from __future__ import annotations

import pytest

from lingon.bundle.manifest import Origin
from lingon.errors import UnknownModel
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.routes import best_route, is_non_commercial


def origin(licence: str = "MPL-2.0", **scores: float) -> Origin:
    return Origin("", licence, {f"flores-{metric}": score for metric, score in scores.items()})


def entry(name: str, told: Origin | None = None) -> Entry[str]:
    source, target = name.split("-")[:2]
    return Entry(name, 1, source, target, name, origin=told)


def route(catalog: Catalog[str], source: str = "de", target: str = "fr") -> list[str]:
    return [each.model for each in catalog.route("", source, target)]


def test_a_route_is_as_good_as_its_worse_model() -> None:
    even, uneven = (origin(comet=0.85), origin(comet=0.85)), (origin(comet=0.80), origin(comet=0.95))
    assert best_route([uneven, even]) == 1
    assert best_route([even, uneven]) == 0


def test_the_better_of_two_models_decides_between_equal_worse_ones() -> None:
    assert best_route([(origin(comet=0.8), origin(comet=0.81)), (origin(comet=0.9), origin(comet=0.8))]) == 1


def test_only_scores_of_one_kind_are_compared_and_those_that_agree_best_with_people_first() -> None:
    first = origin(bleu=40, comet=0.80), origin(bleu=40, comet=0.80)
    second = origin(bleu=30, comet=0.85), origin(bleu=30, comet=0.85)
    assert best_route([first, second]) == 1
    assert best_route([(origin(bleu=40), origin(bleu=40)), (origin(bleu=30), origin(bleu=45))]) == 0


def test_the_score_that_most_routes_have_is_compared() -> None:
    plain = [(origin(bleu=score), origin(bleu=score)) for score in (30, 40)]
    assert best_route([*plain, (origin(bleu=20, comet=0.9), origin(bleu=20, comet=0.9))]) == 1


def test_a_route_whose_models_have_no_comparable_score_comes_after_those_that_have() -> None:
    assert best_route([(None, origin(comet=0.9)), (origin(comet=0.5), origin(comet=0.5))]) == 1
    assert best_route([(origin(bleu=50), origin(comet=0.9)), (origin(comet=0.5), origin(comet=0.5))]) == 1


def test_a_model_for_non_commercial_use_only_is_avoided_whatever_its_scores_are() -> None:
    free, bound = origin(comet=0.5), origin("CC-BY-NC-4.0", comet=0.9)
    assert best_route([(bound, bound), (free, free)]) == 1
    assert best_route([(bound, free), (bound, bound)]) == 1


def test_without_scores_the_first_route_is_taken() -> None:
    assert best_route([(None, None), (None, None)]) == 0


@pytest.mark.parametrize(
    ("licence", "expected"),
    [
        ("CC-BY-NC-4.0", True),
        ("cc-by-nc-sa-4.0", True),
        ("for non-commercial use", True),
        ("CC-BY-4.0", False),
        ("MPL-2.0", False),
        ("NCSA", False),
        ("", False),
    ],
)
def test_licences_say_by_their_name_whether_commercial_use_is_allowed(licence: str, expected: bool) -> None:
    assert is_non_commercial(licence) is expected


def test_a_direct_model_is_taken_before_any_route() -> None:
    models = [entry("de-fr", origin(comet=0.1)), entry("de-en", origin(comet=0.9)), entry("en-fr", origin(comet=0.9))]
    assert route(Catalog(models, ["en"])) == ["de-fr"]


def test_the_pivot_language_with_the_best_scores_is_taken() -> None:
    through_english = [entry("de-en", origin(comet=0.8)), entry("en-fr", origin(comet=0.8))]
    through_dutch = [entry("de-nl", origin(comet=0.9)), entry("nl-fr", origin(comet=0.85))]
    models = [*through_english, *through_dutch]
    assert route(Catalog(models, ["en", "nl"])) == ["de-nl", "nl-fr"]
    assert route(Catalog(models, ["en"])) == ["de-en", "en-fr"]
    assert route(Catalog(models, ["any"])) == ["de-nl", "nl-fr"]
    assert Catalog(models, ["any"]).pivots == ("en", "nl")


def test_of_several_models_of_one_hop_the_best_is_taken_unless_another_one_is_preferred() -> None:
    models = [entry("de-en", origin(comet=0.7)), entry("de-en-base", origin(comet=0.9)), entry("en-fr")]
    scored = [*models[:2], entry("en-fr", origin(comet=0.8))]
    assert route(Catalog(scored, ["en"])) == ["de-en-base", "en-fr"]
    assert route(Catalog(scored, ["en"], ["de-en"])) == ["de-en", "en-fr"]


def test_there_is_no_route_over_three_models_nor_without_a_pivot_language() -> None:
    models = [entry("de-nl"), entry("nl-en"), entry("en-fr")]
    for pivots in (["any"], ["en", "nl"]):
        with pytest.raises(UnknownModel):
            Catalog(models, pivots).route("", "de", "fr")
    with pytest.raises(UnknownModel):
        Catalog([entry("de-en"), entry("en-fr")]).route("", "de", "fr")


def test_a_changed_catalog_has_other_routes() -> None:
    catalog = Catalog([entry("de-en"), entry("en-fr")], ["any"])
    assert route(catalog) == ["de-en", "en-fr"]
    assert route(catalog.replaced([entry("de-nl"), entry("nl-fr")])) == ["de-nl", "nl-fr"]


def test_the_languages_into_another_one_are_those_of_all_pivots() -> None:
    catalog = Catalog([entry("de-en"), entry("en-fr"), entry("es-nl"), entry("nl-fr")], ["any"])
    assert sorted(catalog.sources_of("fr")) == ["de", "en", "es", "nl"]
