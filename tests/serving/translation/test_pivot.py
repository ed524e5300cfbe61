"""The result of a text that two models translated, one after the other."""

from __future__ import annotations

from lingon.serving.translation.pivot import pivoted
from lingon.translation.v1 import translation_pb2 as pb

END, LENGTH = pb.FINISH_REASON_END, pb.FINISH_REASON_LENGTH
SPLIT, COPY, EMPTY = pb.WARNING_CODE_SPLIT, pb.WARNING_CODE_COPY, pb.WARNING_CODE_EMPTY


def result(warnings: dict[pb.WarningCode.ValueType, str], finish: pb.FinishReason.ValueType = END) -> pb.TextResult:
    return pb.TextResult(
        hypotheses=[pb.Hypothesis(text="one", finish_reason=finish), pb.Hypothesis(text="two", finish_reason=finish)],
        warnings=[pb.Warning(code=code, message=message) for code, message in warnings.items()],
        usage=pb.Usage(source_tokens=3, target_tokens=5),
    )


def test_the_warnings_are_those_of_both_each_once_as_the_second_words_it():
    found = pivoted(
        result({SPLIT: "first", COPY: "first"}), result({SPLIT: "second", EMPTY: "second"}), sentences=False
    )
    assert [(each.code, each.message) for each in found.warnings] == [
        (SPLIT, "second"),
        (EMPTY, "second"),
        (COPY, "first"),
    ]


def test_the_usage_is_that_of_both():
    found = pivoted(result({}), result({}), sentences=False)
    assert (found.usage.source_tokens, found.usage.target_tokens) == (6, 10)


def test_a_translation_of_one_that_was_cut_at_its_length_is_not_complete():
    for first, second, expected in ((END, END, END), (LENGTH, END, LENGTH), (END, LENGTH, LENGTH)):
        found = pivoted(result({}, first), result({}, second), sentences=False)
        assert [each.finish_reason for each in found.hypotheses] == [expected] * 2
