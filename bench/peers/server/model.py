"""A bundle's weights in CTranslate2, as a server calls it: from many threads, a batch each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from bench.peers.contestant import Setting
from bench.peers.server.batching import Ids, Search
from lingon.bundle import Limits
from lingon.errors import LingonError
from lingon.text import EOS, UNK

COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}
VOCABULARIES = ("shared_vocabulary.json", "target_vocabulary.json")


class Model:
    """A translator with `workers` batches at a time, each on `threads` cores."""

    def __init__(self, folder: Path, limits: Limits, setting: Setting) -> None:
        """folder: as bench.peers.ctranslate2.prepare writes it; limits: of the bundle that it was made from."""
        self._limits = limits
        self._targets = _vocabulary(folder, VOCABULARIES)
        self._sources = _vocabulary(folder, ("source_vocabulary.json", *VOCABULARIES))
        self._ids = {piece: number for number, piece in enumerate(self._targets)}
        self._translator = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type=COMPUTE_TYPES[setting.precision],
            inter_threads=setting.workers,
            intra_threads=setting.threads,
        )
        self.translate([[UNK + 1, EOS]], Search(1, 0.0))  # memory and threads are ready before the first request

    def translate(self, sources: Sequence[Ids], search: Search) -> list[list[int]]:
        """The best hypothesis of each source (token ids, EOS last), without end token; blocks, without the GIL."""
        found = self._translator.translate_batch(
            [[self._sources[token] for token in source] for source in sources],
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            max_decoding_length=max(self._limits.max_output(len(source)) for source in sources),
        )
        return [[self._ids[piece] for piece in result.hypotheses[0]] for result in found]


def _vocabulary(folder: Path, names: Sequence[str]) -> list[str]:
    """The pieces by id, of the first of these files that is there."""
    for name in names:
        if (folder / name).is_file():
            pieces: list[str] = json.loads((folder / name).read_text(encoding="utf-8"))
            return pieces
    raise LingonError(f"{folder}: no vocabulary of CTranslate2 ({', '.join(names)}) is here")
