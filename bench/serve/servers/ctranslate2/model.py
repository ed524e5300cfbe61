"""The model in CTranslate2, called from several threads with a batch each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lingon.bench.engines.base import Setting
from lingon.bench.engines.ctranslate2 import source_pieces, translator
from lingon.bench.serve.servers.ctranslate2.batching import Ids, Search
from lingon.bundle import Limits
from lingon.text import EOS, UNK


class Model:
    """A translator that runs `workers` batches at the same time, each on `threads` cores."""

    def __init__(self, folder: Path, limits: Limits, setting: Setting) -> None:
        """Load the model.

        folder: model files that lingon.bench.engines.ctranslate2.prepare has written
        limits: those of the bundle that was converted
        """
        self._limits, self._source_pieces = limits, source_pieces(folder)
        self._translator = translator(folder, setting)
        self.translate([[UNK + 1, EOS]], Search(1, 0.0))  # Allocate memory and start threads before the first request.

    def translate(self, sources: Sequence[Ids], search: Search) -> list[list[int]]:
        """The best hypothesis of each source (token ids, EOS last), without end token; releases the GIL."""
        found = self._translator.translate_batch(
            [[self._source_pieces[token] for token in source] for source in sources],
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            max_decoding_length=max(self._limits.max_output(len(source)) for source in sources),
        )
        return [[int(piece) for piece in result.hypotheses[0]] for result in found]
