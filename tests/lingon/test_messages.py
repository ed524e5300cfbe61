"""Between Python values and messages: what a client cannot send, and what it reads from a result."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lingon.client.values.messages import prefixes_of, score_request, translate_request
from lingon.client.values.options import Sampling
from lingon.client.values.replies import text_results
from lingon.client.values.results import TextWarning
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb


@pytest.mark.parametrize("words", ["word", 5])
@pytest.mark.parametrize("name", ["forbidden_words", "forced_words", "keep"])
def test_words_that_are_no_list_are_refused(name: Any, words: Any) -> None:
    with pytest.raises(SettingsError, match=f"^{name} must be a list of str, got "):
        translate_request(pb.TranslateRequest, ["hello"], [], {name: words})


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"beam_size": "4"}, "beam_size = '4'"),
        ({"beam_size": -1}, "beam_size = -1"),
        ({"length_penalty": "high"}, "length_penalty = 'high'"),
        ({"source": 5}, "source = 5"),
        ({"forced_words": [5]}, "forced_words = [5]"),
        ({"sampling": Sampling(temperature="hot")}, "temperature = 'hot'"),  # type: ignore[arg-type]
        ({"model": "\udcff" * 99}, "model = '\\udcff"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_name_of_its_option(options: Any, shown: str) -> None:
    with pytest.raises(SettingsError) as caught:
        translate_request(pb.TranslateRequest, ["hello"], prefixes_of(["hello"], options), options)
    assert str(caught.value).startswith(shown)
    assert " cannot be written into a request: " in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_selection_of_attention_is_no_dictionary() -> None:
    with pytest.raises(SettingsError, match=r"^attention must be a lingon\.AttentionSelection, got dict$"):
        score_request([("a", "b")], {"attention": {"layers": [0]}})  # type: ignore[typeddict-item]


def test_the_documentation_of_a_warning_has_every_code() -> None:
    codes = {name.removeprefix("WARNING_CODE_").lower() for name, code in pb.WarningCode.items() if code}
    assert set(re.findall(r'"(\w+)"', TextWarning.__doc__ or "")) == codes


def test_missing_words_and_their_warning_are_read() -> None:
    warning = pb.Warning(code=pb.WARNING_CODE_FORCED_WORDS, message="1 of 1")
    reply = pb.TextResult(hypotheses=[pb.Hypothesis(text="a", missing_words=["b", "c d"])], warnings=[warning])
    (result,) = text_results(pb.TranslateResponse(results=[reply]))
    assert result.best.missing_words == ("b", "c d")
    assert [each.code for each in result.warnings] == ["forced_words"]


def test_every_option_of_texts_is_in_the_request() -> None:
    request = translate_request(
        pb.TranslateRequest,
        ["hello"],
        [],
        {
            "split_sentences": "nonewlines",
            "return_sentences": True,
            "keep": ["Lingon"],
            "protect": False,
            "lower_capitals": False,
            "format": "html",
            "guard": "refuse",
            "ignore_tags": ["code"],
            "splitting_tags": ["div"],
            "non_splitting_tags": ["p"],
            "translate_attributes": ["alt"],
        },
    )
    assert request.text == pb.TextOptions(
        split_sentences=pb.SENTENCE_SPLITTING_NONEWLINES,
        return_sentences=True,
        keep=["Lingon"],
        protect=False,
        lower_capitals=False,
        format=pb.TEXT_FORMAT_HTML,
        guard=pb.GUARD_POLICY_REFUSE,
        ignore_tags=["code"],
        splitting_tags=["div"],
        non_splitting_tags=["p"],
        translate_attributes=["alt"],
    )
    assert not translate_request(pb.TranslateRequest, ["hello"], [], {}).HasField("text")
