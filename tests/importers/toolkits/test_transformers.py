"""Models that Transformers 5 saved are the same here: its ids and translations of texts are kept beside their files."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.importers import pipeline
from lingon.importers.pipeline import Imported
from lingon.training.search import translate
from tests.support.transformers_kept import (
    FORMS,
    KEPT,
    PAIR,
    SEARCHES,
    TEXTS,
    read_kept,
    rows_of,
    write_form,
    write_rows,
)

FOUND = read_kept()
END = 2  # of MADLAD-400


def misread(form: str) -> list[str]:
    """The texts that Transformers reads wrongly: in MADLAD-400 it takes the id of </s> for unknown characters."""
    pairs = zip(TEXTS, FOUND.ids[form], strict=True)
    return [text for text, ids in pairs if END in ids[:-1]] if form == "MADLAD-400" else []


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def imported(form: str, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return pipeline.read_source(write_form(form, tmp_path_factory.mktemp("kept")), PAIR, lambda line: None)


def test_the_files_hold_what_version_5_saves() -> None:
    assert FOUND.version.startswith("5.")
    with tarfile.open(KEPT) as archive:
        files = {
            form: {Path(name).name for name in archive.getnames() if name.startswith(f"{form}/")} for form in FORMS
        }
    alone = [form for form, names in files.items() if "tokenizer.json" in names]
    assert alone == ["NLLB-200", "mBART-50", "T5", "T5 1.1", "mT5", "MADLAD-400"]
    assert not any(name.endswith(".model") for form in alone for name in files[form])


def test_ids_are_those_of_transformers_5(imported: Imported, form: str) -> None:
    found = [rows_of(imported, text) for text in TEXTS]
    same = [ours == theirs for ours, theirs in zip(found, FOUND.ids[form], strict=True)]
    assert all(same[:12]), "sentences"
    assert [text for text, each in zip(TEXTS, same, strict=True) if not each] == misread(form)


@pytest.mark.parametrize("search", SEARCHES)
def test_translations_are_those_of_transformers_5(imported: Imported, form: str, search: str) -> None:
    rows, settings = imported.source.target.rows, SEARCHES[search]
    tokenizer, model = imported.checkpoint.tokenizer, imported.checkpoint.model
    texts = [text for text in TEXTS if text not in misread(form)]
    wanted = [each for text, each in zip(TEXTS, FOUND.translations[form][search], strict=True) if text in texts]
    forced = replace(settings, forced=tokenizer.languages.forced)
    found = translate(model, [tokenizer.encode_source(text) for text in texts], forced)
    ours = [[rows[token] for token in best.tokens] for best, *_ in found]
    equal = sum(one == other for one, other in zip(ours, wanted, strict=True))
    row = {"family": form, "form": f"saved by Transformers {FOUND.version}", "search": search}
    write_rows(
        "transformers", [{**row, "reference_engine": f"transformers {FOUND.version}", "equal": equal, "of": len(texts)}]
    )
    assert equal == len(texts)
