"""Text data is added to a bundle by writing the next version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle import CARD, FORMAT, Bundle, open_bundle, write_bundle
from lingon.errors import BundleError, SettingsError
from lingon.export.text_data.add import add_text_data
from tests.support.echo_engine import bundle

PAIRS = [("I know Tom.", "Ich kenne Tom."), ("Rome is here.", "Rom ist hier.")] * 50


@pytest.fixture
def old(tmp_path: Path) -> Bundle:
    """A bundle as versions of Lingon without text data wrote it."""
    made = bundle(tmp_path / "made")
    files = {name: made.read(name) for name in made.manifest.checksums}
    files[CARD] = b"# en-de, version 1\n\nA model.\n"
    return write_bundle(tmp_path / "en-de" / "1", replace(made.manifest, version=1, format=4, text=None), files)


def test_the_next_version_has_the_words_and_otherwise_the_same_files(old: Bundle):
    written = add_text_data(old.folder, PAIRS)
    found = open_bundle(old.folder.parent)
    found.verify()
    assert found.folder == written.folder == old.folder.absolute().parent / "2"
    assert found.manifest.text is not None
    assert found.manifest.text.words == ("Tom",)
    assert found.manifest.format == FORMAT
    unchanged = {name: digest for name, digest in old.manifest.checksums.items() if name != CARD}
    assert {name: found.manifest.checksums[name] for name in unchanged} == unchanged
    card = found.read(CARD).decode()
    assert card.startswith("# en-de, version 2\n")
    assert "keeps: Tom." in card


def test_a_bundle_that_is_damaged_too_old_or_has_text_data_is_refused(old: Bundle):
    with pytest.raises(SettingsError, match="2: has text data already"):
        add_text_data(add_text_data(old.folder, PAIRS).folder, PAIRS)
    (old.folder / CARD).write_text("another card")
    with pytest.raises(BundleError, match=CARD):
        add_text_data(old.folder, PAIRS)
    manifest = replace(old.manifest, format=3)
    (old.folder / "manifest.json").write_bytes(manifest.to_bytes())
    with pytest.raises(SettingsError, match="has format 3, at least 4 is needed; export it anew"):
        add_text_data(old.folder, PAIRS)
    assert [path.name for path in sorted(old.folder.parent.iterdir())] == ["1", "2"]
