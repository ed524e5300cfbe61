"""The matches of translation memories for the sentences of a text, and which of their translations are taken.

A text is looked up whole, then sentence by sentence. A sentence in which tags are placed is not looked up, because a
memory has plain texts. The translation of an exact match is taken unless its source has another case, it lacks a term,
a string to keep or a placeholder, or the request restricts translations. The best fuzzy match, with the numbers and
placeholders of the sentence, guides the translation of a sentence without terms, if the request says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lingon.memories.keys import EXACT
from lingon.memories.memory import Match
from lingon.memories.segment import WHOLLY
from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import Kind
from lingon.segments.layout import TextLayout
from lingon.segments.markup_blocks import STAND_IN
from lingon.segments.memory_steps import EarlierPair
from lingon.serving.translation.memories import PlannedMatch, RequestMemories
from lingon.serving.translation.plans import Part, Steps, TextPlan
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb

_WANTED = frozenset([Kind.KEEP, Kind.PLACEHOLDER, Kind.TAG])


async def with_matches(plan: TextPlan, memories: RequestMemories) -> TextPlan:
    """Return a plan with what memories have for its sentences. They are looked up on a thread.

    Fuzzy matches of a text of a thousand sentences may take seconds.
    """
    if not plan.parts:
        return plan
    return await asyncio.to_thread(_matched, plan, memories)


def _matched(plan: TextPlan, memories: RequestMemories) -> TextPlan:
    begun = bool(plan.prefix or plan.soft_prefix)
    whole = None if begun else _whole(plan, memories)
    if whole is not None:
        return whole
    document, own = plan.document, plan.parts_of_sentences()
    sentences = [document.segment(index) for index in range(len(document.segments))]
    matches, parts = list[PlannedMatch](), list[Part]()
    for index, sentence in enumerate(sentences):
        here = [plan.parts[each] for each in own[index]]
        found = list[tuple[str, Match]]()
        if not _has_tags(plan, index, sentence):
            before = sentences[index - 1] if index else ""
            after = sentences[index + 1] if index + 1 < len(sentences) else ""
            found = memories.find(sentence, before, after)
            memories.looked_up(found[0][1].score if found else 0)
        taken = next((place for place, (_, match) in enumerate(found) if _fits(match, sentence, here)), None)
        if (begun and index == 0) or not memories.takes:
            taken = None
        matches += _planned(found, document.segments[index], taken)
        if taken is not None:
            here = [_given(here, sentence, found[taken][1])]
        elif found and memories.guides and not (begun and index == 0):
            here = [_guided(here[0], found[0][1])] if len(here) == 1 else here
        parts += here
    return replace(plan, parts=tuple(parts), matches=matches)


def _whole(plan: TextPlan, memories: RequestMemories) -> TextPlan | None:
    """Return the plan of a text of several sentences that a memory has as one segment, or None for another text."""
    segments = plan.document.segments
    if len(segments) < 2 or plan.plain is not None or plan.terms or not memories.takes:
        return None
    span = segments[0][0], segments[-1][1]
    text = plan.document.text[slice(*span)]
    found = memories.find(text, min_score=EXACT)
    taken = next((place for place, (_, match) in enumerate(found) if _fits(match, text, plan.parts)), None)
    if taken is None:
        return None
    memories.looked_up(found[0][1].score)
    part = _given(plan.parts[:1], text, found[taken][1])
    document = TextLayout(plan.document.text, (span,))
    return replace(plan, document=document, parts=(part,), matches=_planned(found, span, taken))


def _has_tags(plan: TextPlan, index: int, sentence: str) -> bool:
    """Return whether tags or elements without text are in a sentence."""
    if plan.plain is None:
        return False
    return bool(plan.tagged and plan.tagged[index]) or STAND_IN in sentence.translate(plan.plain.stand_ins)


def _fits(match: Match, sentence: str, parts: Sequence[Part]) -> bool:
    """Return whether the translation of a match may be taken for a sentence; parts: of the sentence."""
    segment, terms = match.segment, parts[0].terms
    if match.score < EXACT or normalise(segment.source) != normalise(sentence):
        return False
    if not all(string in segment.target for part in parts if part.steps is not None for string in _wanted(part.steps)):
        return False
    return terms is None or not terms.check(segment.target, terms.wanted(sentence)).missed


def _wanted(steps: Steps) -> Iterator[str]:
    """Yield the strings of a sentence that no translation may lack: those of the request, placeholders and tags."""
    return (steps.text[begin:end] for begin, end, kind in steps.spans if kind in _WANTED)


def _given(parts: Sequence[Part], sentence: str, match: Match) -> Part:
    """Return the part of a sentence whose translation is that of a match; parts: those that it had."""
    first = parts[0]
    return Part(
        normalise(sentence), first.begin, (), first.sentence, terms=first.terms, given=match.segment.target.strip()
    )


def _guided(part: Part, match: Match) -> Part:
    """Return the part of a sentence with a match that guides its translation, unless it has terms."""
    if part.terms is not None or part.reading is not None:
        return part
    segment = match.adapted or match.segment
    return replace(part, earlier=EarlierPair(normalise(segment.source), normalise(segment.target)))


def _planned(found: Sequence[tuple[str, Match]], span: Span, taken: int | None) -> list[PlannedMatch]:
    return [PlannedMatch(span, name, match, place == taken) for place, (name, match) in enumerate(found)]


def match_messages(plan: TextPlan, guided: Sequence[int] = ()) -> list[pb.MemoryMatch]:
    """Return what memories have for the sentences of a text.

    guided: the parts whose translations were guided by the first match of their sentence
    """
    messages, waiting = [], {plan.document.segments[plan.parts[part].sentence] for part in guided}
    for span, name, match, taken in plan.matches:
        used = taken or span in waiting
        waiting.discard(span)
        begin, end = plan.plain.raw_span(*span) if plan.plain else span
        segment = match.segment
        messages.append(
            pb.MemoryMatch(
                memory=name,
                source=segment.source,
                target=match.target,
                score=match.score,
                source_span=pb.Span(begin=begin, end=end),
                used=used,
                origin=segment.origin,
            )
        )
    return messages


def memory_warning(plan: TextPlan) -> pb.Warning | None:
    """Return the warning about sentences whose translations are from memories, or None without any."""
    taken, sentences = sum(each.used for each in plan.matches), len(plan.document.segments)
    if not taken:
        return None
    partly = f"{taken} of {sentences} sentences are from a translation memory"
    return pb.Warning(code=pb.WARNING_CODE_FROM_MEMORY, message=WHOLLY if taken == sentences else partly)
