"""A sentence with terms translates the same alone and among others, to the last bit of its scores."""

from __future__ import annotations

import random
import re
from concurrent.futures import Future

import pytest

from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.shipped_model import LINES, MODEL

TARGETS = {
    "house": "Gebäude",
    "room": "Kammer",
    "car": "Fahrzeug",
    "book": "Werk",
    "money": "Zaster",
    "school": "Lehranstalt",
    "time": "Frist",
    "work": "Plackerei",
    "friend": "Kumpan",
    "people": "Menschheit",
}
TERMS = [pb.Term(source=source, target=target, stems=True) for source, target in TARGETS.items()]
WITH_TERMS = [line for line in LINES if re.search(rf"\b(?:{'|'.join(TARGETS)})\b", line)][:40]
OPTIONS = {
    "beam 4": pb.DecodingOptions(beam_size=4, return_tokens=True),
    "greedy": pb.DecodingOptions(beam_size=1, return_tokens=True),
    "restricted": pb.DecodingOptions(beam_size=2, no_repeat_ngram_size=4, return_tokens=True),
}


@pytest.mark.parametrize("search", OPTIONS)
def test_a_sentence_with_terms_translates_the_same_alone_and_among_others(search: str) -> None:
    options = OPTIONS[search]

    def request(*texts: str) -> pb.TranslateRequest:
        return pb.TranslateRequest(texts=texts, terms=TERMS, options=options)

    with LocalTranslator(MODEL, engines=1, threads=1) as translator:
        alone = {line: translator.translate(request(line)).results[0] for line in WITH_TERMS}
    draw = random.Random(search)
    with LocalTranslator(MODEL, engines=2, threads=1) as translator:
        calls: list[tuple[list[str], Future[pb.TranslateResponse]]] = []
        for _ in range(6):
            texts = draw.sample([*WITH_TERMS, *LINES[:40]], 30)
            calls.append((texts, translator.begin("Translate", request(*texts))))
        for texts, call in calls:
            for text, found in zip(texts, call.result().results, strict=True):
                if text in alone:
                    assert found == alone[text]
    changed = [each for each in alone.values() if any(term.means == pb.TERM_MEANS_REPAIRED for term in each.terms)]
    assert len(changed) > 10
