"""What becomes of texts: each different one is translated once, and one that cannot be spoils no other."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lingon.bulk.formats import Unreadable
from lingon.bulk.translating import BATCH, CellOutcome, Translate
from lingon.bundle.store import open_bundle
from lingon.client.results import TextResult, Translation
from lingon.errors import ServerError, SettingsError
from tests.support import shipped_model
from tests.support.bulk import LINES, translator


class Recording:
    """A translator that notes its requests and refuses a request with one of the bad texts, as a server does."""

    def __init__(self, bad: Sequence[str] = (), code: int = 3) -> None:
        self.bad, self.code, self.requests = bad, code, list[list[str]]()
        self._lock = threading.Lock()

    def translate(self, texts: Sequence[str], **options: Any) -> list[TextResult]:
        with self._lock:
            self.requests.append(list(texts))
        if any(each in texts for each in self.bad):
            raise ServerError("texts[0]: has too many sentences", self.code)
        return [TextResult((Translation(text.upper(), 0.0, "end"),), source_tokens=1) for text in texts]


def recording(**arguments: Any) -> tuple[Translate, Recording]:
    translate, fake = translator(), Recording(**arguments)
    translate._translator = fake  # type: ignore[assignment]
    return translate, fake


def test_rows_that_cannot_be_translated_have_an_error_and_the_others_have_none(translate: Translate) -> None:
    bad = [None, Unreadable("the text is not UTF-8"), "  ", "\u200b"]
    cells, counts = translate.cells([LINES[0], *bad, LINES[1]])
    alone = [translate.cells([line])[0][0] for line in LINES[:2]]
    assert cells == [
        alone[0],
        CellOutcome(error="the text is null"),
        CellOutcome(error="the text is not UTF-8"),
        CellOutcome(""),
        CellOutcome(""),
        alone[1],
    ]
    assert all(each.text and each.confidence is not None for each in alone)
    assert counts.source_tokens > 10


def test_a_text_that_occurs_often_is_translated_once() -> None:
    translate, fake = recording()
    texts = [f"text {number % 70}" for number in range(700)]
    cells, counts = translate.cells(texts)
    assert [cell.text for cell in cells] == [text.upper() for text in texts]
    sent = [text for request in fake.requests for text in request]
    assert sorted(sent) == sorted(set(texts))
    assert counts.source_tokens == 70


def test_long_texts_come_first_and_texts_of_one_length_together() -> None:
    translate, fake = recording()
    translate.cells(["a" * (1 + number * 7 % 200) for number in range(200)])
    fake.requests.sort(key=lambda request: -len(request[0]))
    lengths = [len(text) for request in fake.requests for text in request]
    assert lengths == sorted(lengths, reverse=True)
    assert all(len(request) <= BATCH for request in fake.requests)


def test_a_text_that_spoils_its_request_is_the_only_row_with_an_error() -> None:
    translate, _ = recording(bad=["text 17", "text 40"])
    cells, _ = translate.cells([f"text {number}" for number in range(60)])
    assert {number: cell.error for number, cell in enumerate(cells) if cell.error} == {
        17: "has too many sentences",
        40: "has too many sentences",
    }
    assert all(cell.text == f"TEXT {number}" for number, cell in enumerate(cells) if not cell.error)


def test_an_error_that_no_text_has_caused_ends_the_run() -> None:
    translate, fake = recording(bad=["text 17"], code=14)
    with pytest.raises(ServerError):
        translate.cells([f"text {number}" for number in range(60)])
    assert len(fake.requests) == 1


def test_texts_of_two_languages_are_never_in_one_request() -> None:
    translate, fake = recording()
    languages: list[str | Unreadable | None] = ["en", "fr", None, Unreadable("the text is not UTF-8")] * 20
    cells, _ = translate.cells([f"text {number}" for number in range(80)], languages)
    for request in fake.requests:
        assert len({int(text.split()[1]) % 4 for text in request}) == 1
    assert cells[3].error == "the language: the text is not UTF-8"


def test_rows_are_counted_as_they_are_done(translate: Translate) -> None:
    counted: list[int] = []
    translate.cells([*LINES[:150], None, *LINES[:150]], on_rows=counted.append)
    assert sum(counted) == 301
    assert len(counted) > 2


def test_a_table_and_a_batch_get_the_columns_from_a_copy_too() -> None:
    original = translator(confidence_column="sure")
    with copy.copy(original) as translate:
        table = pa.table({"id": [1, 2], "text": [LINES[0], None]})
        done = translate(table)
        assert done.column_names == ["id", "text", "de", "sure", "de_error"]
        assert done.select(["id", "text"]).equals(table)
        assert done["de_error"].to_pylist() == [None, "the text is null"]
        (batch,) = table.to_batches()
        assert translate(batch).equals(done.to_batches()[0])
        assert translate(batch.slice(0, 0)).num_rows == 0


def test_an_unknown_option_and_a_column_that_is_named_twice_are_refused() -> None:
    with pytest.raises(SettingsError, match="Translate has no option beam"):
        translator(beam=3)
    with pytest.raises(SettingsError, match="'de_error' is named twice"):
        translator(confidence_column="de_error")
    with pytest.raises(SettingsError, match=r'a run of bulk has one model for all texts; .* got the source "auto"'):
        translator(source="auto", target="de")


def test_the_model_is_named_with_version_and_precision(translate: Translate) -> None:
    name, precision, digest = translate.model().split(" ")
    assert name == "en-de/10"
    assert precision.startswith("int8")
    assert open_bundle(shipped_model.MODEL).manifest_digest.startswith(digest)
    with pytest.raises(SettingsError, match=r"the model here is en-de/10 int8.*, but the run was begun with en-de/5"):
        translate.require("en-de/5 int8")
