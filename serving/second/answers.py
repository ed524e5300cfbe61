"""The answers of the second translator: what is read from them, and how a question can fail. Pure.

The details of failures name a status or a bound. They have neither texts nor anything that the other server wrote,
because they are logged and are sent to callers.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from lingon.errors import LingonError
from lingon.serving.second.questions import ANSWER_KEY
from lingon.translation.v1 import translation_pb2 as pb

_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"\A```(?:json)?[^\S\n]*+\n(.*)\n```\Z", re.DOTALL)


class NotTaken(LingonError):
    """A sentence keeps the translation of our model. The message is the detail, in one line."""

    result: ClassVar[pb.SecondResult.ValueType]


class Rejected(NotTaken):
    """The answer did not pass the checks, or is no better."""

    result = pb.SECOND_RESULT_REJECTED


class Unchanged(Rejected):
    """The answer is the translation that there is."""


class TimedOut(NotTaken):
    """There was no answer in time."""

    result = pb.SECOND_RESULT_TIMED_OUT


class Failed(NotTaken):
    """The server could not be reached, or answered with an error."""

    result = pb.SECOND_RESULT_FAILED


class LeftAlone(Failed):
    """The server was not asked, because its last answers did not come or did not pass the checks."""


class NoAnswer(NotTaken):
    """The answer was empty or not in the form of the API, or there was no translation in it."""

    result = pb.SECOND_RESULT_NO_ANSWER


class OverBudget(NotTaken):
    """A bound was reached, and the server was not asked."""

    result = pb.SECOND_RESULT_OVER_BUDGET


def content_of(body: bytes) -> str:
    """Return what the model wrote, from the body of a reply. Raises NoAnswer."""
    try:
        choice = json.loads(body)["choices"][0]
        message = choice["message"]
        content, reason = message["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise NoAnswer("the reply is not in the form of the API") from None
    if reason == "length":
        raise NoAnswer("the answer reached the bound of its length")
    if reason == "content_filter" or (isinstance(message, dict) and message.get("refusal")):
        raise NoAnswer("the server declined to translate")
    if not isinstance(content, str):
        raise NoAnswer("the reply has no text")
    return content


def translation_in(content: str, most_characters: int) -> str:
    """Return the translation in what the model wrote, without white space around it. Raises NoAnswer, Rejected.

    It is the only value of a JSON object. A refusal in prose, and a comment beside the object, are no answers. Thoughts
    before the object and a fence of Markdown around it are left out, because models are trained to write them.

    most_characters: of a translation; a longer one is rejected, and is not looked at
    """
    written = _THOUGHTS.sub("", content, count=1).strip()
    fenced = _FENCE.match(written)
    found = _object(fenced[1] if fenced else written).get(ANSWER_KEY)
    if not isinstance(found, str) or not found.strip():
        raise NoAnswer("the answer has no translation")
    if len(found) > most_characters:
        raise Rejected(f"the answer has {len(found)} characters, more than {most_characters}")
    if not _is_encodable(found):
        raise NoAnswer("the answer has half a character")
    return " ".join(found.split("\n")).strip()


def _object(written: str) -> dict[str, Any]:
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        raise NoAnswer("the answer is no JSON object") from None
    if not isinstance(found, dict) or found.keys() != {ANSWER_KEY}:
        raise NoAnswer("the answer is no JSON object with a translation alone")
    return found


def _is_encodable(text: str) -> bool:
    """Return whether a text has no lone surrogate, which JSON can spell and no message can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
