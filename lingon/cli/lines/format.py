"""Formats results as lines: plain text in columns, n-best lists, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from lingon.alignment import format_links, word_links
from lingon.client.values.results import Link, ScoreResult, TextResult, Translation
from lingon.errors import ServerError

_LINE_BREAKS: dict[int, str | None] = {**{ord(character): " " for character in "\n\r\t"}, 0: None}
"""Characters that would break lines and columns. A translation has those between the sentences of its source, and a
model with byte fallback can generate them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that a line has in addition to the text."""

    scores: bool = False
    tokens: bool = False
    alignment: bool = False


def plain_line(result: TextResult, wanted: Columns) -> str:
    """The text, then the wanted columns: score, tokens, alignment; separated by tabs. Empty without a translation."""
    if not result.translations:
        return ""
    best = result.translations[0]
    return "\t".join([_one_line(best.text), *_extras(result, best, wanted)])


def n_best_lines(number: int, result: TextResult, wanted: Columns) -> str:
    """A line for each translation in the format of Moses and Marian, `0 ||| text ||| score`; texts count from 0."""
    with_scores = replace(wanted, scores=True)
    if not result.translations:
        return f"{number - 1} |||  ||| 0"
    return "\n".join(
        " ||| ".join([str(number - 1), _one_line(translation.text), *_extras(result, translation, with_scores)])
        for translation in result.translations
    )


def translation_json(number: int, source: str, result: TextResult) -> str:
    """One JSON object; `text` is the text of the best translation."""
    if result.error is not None:
        return _json({"line": number, "source": source, "error": _error(result.error)})
    values: dict[str, Any] = {"line": number, "source": source, "text": result.text if result.translations else ""}
    values["source_language"] = result.source
    for name in ("source_tokens", "target_tokens", "model", "version", "shortlist", "normalised_text", "confidence"):
        values[name] = getattr(result, name)
    values["warnings"] = [asdict(warning) for warning in result.warnings]
    values["sentences"] = [asdict(sentence) for sentence in result.sentences]
    values["translations"] = [asdict(translation) for translation in result.translations]
    return _json(values)


def score_line(result: ScoreResult, wanted: Columns) -> str:
    """The log-probability, then the wanted columns: tokens with log-probabilities, alignment; separated by tabs."""
    columns = [f"{result.log_prob:.4f}"]
    if wanted.tokens:
        columns.append(" ".join(f"{token.piece}:{token.log_prob:.4f}" for token in result.tokens))
    if wanted.alignment:
        columns.append(_words(result.alignment, result.normalised_source, result.normalised_target))
    return "\t".join(columns)


def score_json(number: int, pair: tuple[str, str], result: ScoreResult) -> str:
    """One JSON object."""
    values: dict[str, Any] = {"line": number, "source": pair[0], "target": pair[1]}
    if result.error is not None:
        return _json({**values, "error": _error(result.error)})
    left_out = {"error", "attention", "source_pieces", "target_pieces"}  # `lingon attend` prints attention
    return _json({**values, **{name: value for name, value in asdict(result).items() if name not in left_out}})


def _extras(result: TextResult, translation: Translation, wanted: Columns) -> list[str]:
    columns = [f"{translation.score:.4f}"] if wanted.scores else []
    if wanted.tokens:
        columns.append(" ".join(token.piece for token in translation.tokens))
    if wanted.alignment:
        columns.append(_words(translation.alignment, result.normalised_text, _one_line(translation.text)))
    return columns


def _words(alignment: Iterable[Link], source: str, target: str) -> str:
    """The alignment in Pharaoh form; source, target: the texts to which the spans of the links refer."""
    return format_links(word_links(((link.source, link.target) for link in alignment), source, target))


def _one_line(text: str) -> str:
    return text.translate(_LINE_BREAKS)


def _error(error: ServerError) -> dict[str, Any]:
    return {"status": error.status, "reason": error.reason, "message": str(error)}


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False)
