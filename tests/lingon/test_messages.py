"""Between Python values and messages: what a client cannot send, and what it reads from a result."""

from __future__ import annotations

from typing import Any

import pytest

from lingon.client.messages import text_results, translate_request
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb


@pytest.mark.parametrize("words", ["word", 5])
@pytest.mark.parametrize("name", ["forbidden_words", "forced_words"])
def test_words_that_are_no_list_are_refused(name: Any, words: Any) -> None:
    with pytest.raises(SettingsError, match=f"^{name} must be a list of str, got "):
        translate_request(pb.TranslateRequest, ["hello"], [], {name: words})


def test_missing_words_and_their_warning_are_read() -> None:
    warning = pb.Warning(code=pb.WARNING_CODE_FORCED_WORDS, message="1 of 1")
    reply = pb.TextResult(hypotheses=[pb.Hypothesis(text="a", missing_words=["b", "c d"])], warnings=[warning])
    (result,) = text_results(pb.TranslateResponse(results=[reply]))
    assert result.best.missing_words == ("b", "c d")
    assert [each.code for each in result.warnings] == ["forced_words"]
