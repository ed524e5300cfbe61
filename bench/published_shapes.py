"""Workloads in the shapes of published models, with weights that copy the source: Firefox's students, OPUS-MT, M2M-100
of 418 million weights and NLLB-200 of 600 million.

The students have SSRU cells in the decoder and a shortlist. For engines that compute no SSRU a student has a twin: a
model of the same shape with self-attention, which gives the same outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingon.bench import copying
from lingon.bench.copying import CopyingShape, copying_transformer
from lingon.bench.synthetic import MEASURED, cached, mixed_lengths, shape_digest, write_for_cpu
from lingon.bench.workloads import Workload
from lingon.bundle.store import Bundle
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, UNK
from lingon.training.search import SearchSettings, translate

STUDENT = CopyingShape(decoder_cell="ssru", activation="relu", vocab=32_000, positions=256)
M2M = CopyingShape(
    encoder_layers=12,
    decoder_layers=12,
    dim=1024,
    heads=16,
    ffn=4096,
    activation="relu",
    norm="pre",
    vocab=128_112,
    positions=1024,
    first_position=2,
)
PUBLISHED = {
    "tiny": replace(STUDENT, dim=256, ffn=1536, decoder_layers=2),
    "base-memory": replace(STUDENT, dim=384, ffn=1536, decoder_layers=4),
    "student-base": replace(STUDENT, dim=512, ffn=2048, decoder_layers=2),
    "smallest": replace(STUDENT, dim=64, ffn=256, encoder_layers=2, decoder_layers=2, vocab=1000),
    "opus": CopyingShape(),
    "m2m": M2M,
    "nllb": replace(M2M, vocab=256_206),
}
"""The shapes by name: Firefox's tiny, base-memory and base; a student whose fixed cost of a sentence counts most;
OPUS-MT; M2M-100 418M and NLLB-200 distilled 600M."""

LISTED = 100
"""Draws of target pieces for each source piece on a shortlist, some of them the same. Of 32,000 pieces a sentence has
about 1,100 on its shortlist, and a batch of 8 sentences 4,900."""

QUICK = {
    name: replace(shape, encoder_layers=2, decoder_layers=2, dim=64, heads=8, ffn=128, vocab=400)
    for name, shape in PUBLISHED.items()
}
"""The shapes of a quick run. Their heads are narrow, because in 64 channels most must be left for the pieces."""

Sources = tuple[tuple[int, ...], ...]


def published_workload(cache: Path, name: str, shape: CopyingShape, sentences: int) -> Workload:
    """Return the workload. Write its bundles below cache, once for each shape and state of the code that writes it."""
    bundle = _bundle(cache, name, shape)
    student = shape.decoder_cell == "ssru"
    sources = zipf_sources(shape, sentences)
    return Workload(
        name=name,
        bundle=bundle.folder,
        twin=_bundle(cache, f"{name}-twin", replace(shape, decoder_cell="attention")).folder if student else None,
        sources=sources,
        facts={
            "source tokens, mean": round(sum(map(len, sources)) / len(sources), 1),
            **bundle.manifest.precisions["fp32"].report,
        },
    )


def zipf_sources(shape: CopyingShape, count: int, seed: int = 1) -> Sources:
    """Return sources of mixed lengths, of which more begin with the fewer: pieces drawn by Zipf's law, and EOS."""
    lengths = mixed_lengths(np.random.default_rng((shape.seed, seed)), count)
    random = np.random.default_rng((shape.seed, seed, 1))
    return tuple((*zipf_pieces(random, shape.vocab, length - 1).tolist(), EOS) for length in lengths.tolist())


def zipf_pieces(random: np.random.Generator, vocab: int, count: int) -> NDArray[np.int64]:
    """Return ids of pieces, drawn by Zipf's law: the piece of rank r in the order of ids is about as probable as 1 / r.

    Exactly as log(1 + 1 / r), because ranks are whole numbers below a continuous one.
    """
    ranks = np.floor((vocab - UNK) ** random.random(count)).astype(np.int64)  # from 1 to the number of pieces
    return UNK + ranks


def zipf_shortlist(shape: CopyingShape) -> Shortlist:
    """Return a shortlist in which each source piece has itself, and others drawn by Zipf's law.

    A quarter of the vocabulary is drawn at most, for small vocabularies.
    """
    random = np.random.default_rng((shape.seed, 3))
    drawn = min(LISTED, shape.vocab // 4)
    lists = [
        np.unique([piece, *zipf_pieces(random, shape.vocab, drawn - 1).tolist()]) if piece > UNK else ()
        for piece in range(shape.vocab)
    ]
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    return Shortlist(np.array([EOS], np.int32), offsets, np.concatenate(lists).astype(np.int32))


def _bundle(cache: Path, name: str, shape: CopyingShape) -> Bundle:
    written_by = Path(__file__), Path(copying.__file__)
    return cached(cache, f"{name}-{shape_digest(shape)}", partial(_write, shape=shape), *written_by)


def _write(folder: Path, shape: CopyingShape) -> None:
    """Create the model, count the outputs that are their sources, and write its bundle."""
    model = copying_transformer(shape)
    sources = zipf_sources(shape, MEASURED, seed=2)
    settings = SearchSettings(beam_size=1, length_factor=2.0, length_extra=16)
    targets = [list(best.tokens) for best, *_ in translate(model, sources, settings)]
    student = shape.norm == "post" and shape.activation == "relu"  # or its twin; the others have no shortlist
    shortlist = zipf_shortlist(shape) if student else None
    facts = {
        "sentences measured": len(sources),
        "outputs equal to their source": sum(map(_is_copied, sources, targets)),
        **({} if shortlist is None else _shortlist_facts(shortlist, sources)),
    }
    calibration = [(list(source), target) for source, target in zip(sources, targets, strict=True)]
    write_for_cpu(folder, model, calibration, shortlist, facts)


def _is_copied(source: Sequence[int], target: Sequence[int]) -> bool:
    return tuple(source[:-1]) == tuple(target)


def _shortlist_facts(shortlist: Shortlist, sources: Sources) -> dict[str, float]:
    pieces = [len(shortlist.select(source)) for source in sources]
    return {"pieces on the shortlist of a sentence, mean": round(sum(pieces) / len(pieces))}
