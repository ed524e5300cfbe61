"""Which of the served models a request selects."""

from __future__ import annotations

import pytest

from lingon.errors import UnknownModel
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
