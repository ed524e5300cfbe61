"""Terms with CTranslate2, as its users get them: with the begin of a translation as `target_prefix`.

The model is the same bundle, written for CTranslate2. It reads sentences and writes pieces alone, so that a repair by
prefix is all that a caller can do: see `lingon.bench.tools.term_methods`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lingon.bench.engines.base import Setting
from lingon.bench.engines.ctranslate2 import pieces, prepare, source_pieces, translator
from lingon.bench.tools.term_methods import Linked, Method, Sentence, repaired
from lingon.bundle.store import Bundle
from lingon.machine import usable_cores
from lingon.serving.translation.replies import generated_spans, source_spans
from lingon.text import normalise

BATCH = 32  # sentences that are decoded together


class CTranslate2Methods:
    """The methods with CTranslate2 in 8 bits, with the length penalty and the bounds of the bundle."""

    def __init__(self, bundle: Bundle, folder: Path, beam_size: int) -> None:
        """Convert and load the model.

        folder: for the converted model
        beam_size: of all searches
        """
        prepare(bundle, folder)
        self._translator = translator(folder, Setting(precision="int8", workers=1, threads=usable_cores()))
        self._tokenizer, self._manifest, self._beam_size = bundle.tokenizer(), bundle.manifest, beam_size
        self._sources, self._targets = source_pieces(folder), pieces(bundle.manifest.target_vocab)

    def all(self) -> Mapping[str, Method]:
        """Return the methods by name, the one without any terms first."""
        return {"CTranslate2, nothing": self.nothing, "CTranslate2, target prefix": self.repair}

    def nothing(self, sentences: Sequence[Sentence]) -> list[str]:
        """Translate without terms."""
        return [self._text(found) for found in self._search([normalise(each.text) for each in sentences])]

    def repair(self, sentences: Sequence[Sentence]) -> list[str]:
        """Decode again from what is before the aligned word and the term, once for each missed term."""
        return repaired(self.linked, sentences)

    def linked(self, texts: Sequence[str], prefixes: Sequence[str] = ()) -> list[Linked]:
        sources = [normalise(text) for text in texts]
        found = self._search(sources, prefixes, return_attention=True)
        return [self._with_links(source, result) for source, result in zip(sources, found, strict=True)]

    def _search(self, sources: Sequence[str], prefixes: Sequence[str] = (), **more: Any) -> list[Any]:
        begins = [[self._targets[token] for token in self._tokenizer.encode_target(text)] for text in prefixes]
        return list(
            self._translator.translate_batch(
                [[self._sources[token] for token in self._tokenizer.encode_source(text)] for text in sources],
                target_prefix=begins or None,
                beam_size=self._beam_size,
                length_penalty=self._manifest.defaults.length_penalty,
                max_decoding_length=self._manifest.limits.max_target_tokens,
                max_batch_size=BATCH,
                **more,
            )
        )

    def _text(self, result: Any) -> str:
        return self._tokenizer.decode(_ids(result))

    def _with_links(self, source: str, result: Any) -> Linked:
        """Return a translation with a link from each piece to the source piece that it attends to most."""
        text, ids = self._text(result), _ids(result)
        read, written = source_spans(self._tokenizer, source), generated_spans(self._tokenizer, ids)
        links = []
        for span, weights in zip(written, result.attention[0], strict=False):  # the end token has weights, but no span
            best = max(range(len(read)), key=weights.__getitem__)
            links.append((read[best], span, float(weights[best])))
        return Linked(source, text, tuple(links))


def _ids(result: Any) -> list[int]:
    return [int(piece) for piece in result.hypotheses[0]]
