"""Small corpora that tests prepare, and the batches that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lingon.text import Tokenizer
from lingon.training.batches import Batch, BatchMaker, BatchRequest
from lingon.training.config import Config
from lingon.training.corpus import Pair
from lingon.training.epochs import mixed, mixture
from lingon.training.prepare import prepare
from lingon.training.prepared import PreparedCorpus

Lines = Sequence[tuple[str, str]]


def write_tsv(path: Path, pairs: Lines) -> Path:
    """Write pairs as a file of two columns, and return its path."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def text_config(folder: Path, *corpora: Lines | Mapping[str, Any], **blocks: dict[str, Any]) -> Config:
    """Return the settings of training text, whose files are written into folder. The validation text is empty.

    corpora: the pairs of each corpus, or its keys
    """
    (folder / "valid.tsv").touch()
    train = [
        dict(each) if isinstance(each, Mapping) else {"file": write_tsv(folder / f"train.{number}.tsv", each)}
        for number, each in enumerate(corpora)
    ]
    data: dict[str, Any] = {"source_language": "en", "target_language": "de", "valid": {"file": folder / "valid.tsv"}}
    model = {"preset": "tiny", "max_positions": 2048}
    return Config.model_validate({"model": model, **blocks, "data": {**data, "train": train, **blocks.get("data", {})}})


def linked_corpus(folder: Path, pairs: Lines, links: Sequence[str]) -> dict[str, Path]:
    """Write the files of a corpus with links, and return its keys."""
    files = {"source": [source for source, _ in pairs], "target": [target for _, target in pairs], "alignment": links}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: folder / name for name in files}


def rows_of(corpus: PreparedCorpus) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the rows of all pairs."""
    return np.arange(len(corpus))


def pairs_of(corpus: PreparedCorpus) -> list[tuple[str, str]]:
    """Return the texts of all pairs."""
    return [*zip(*corpus.texts(rows_of(corpus)), strict=True)]


def epoch_pairs(corpus: PreparedCorpus, config: Config, epoch: int = 0) -> list[Pair]:
    """Return the pairs of an epoch in the order of its positions."""
    shown = mixture(config, [each.kept for each in corpus.manifest.corpora], (config.training.seed, epoch))
    return corpus.pairs(shown.rows(np.arange(len(shown))), config.data.languages)


def maker_of(config: Config, folder: Path, tokenizer: Tokenizer) -> BatchMaker:
    """Prepare the training text of a config in folder, with a tokenizer, and return what makes its batches."""
    return BatchMaker(prepare(config, folder, tokenizer, workers=1), config, tokenizer)


def batch_of(maker: BatchMaker, rows: Sequence[int], epoch: int = 0) -> Batch:
    """Return a batch of rows; epoch: another one samples other segmentations."""
    keys = mixed(np.array(rows, np.uint64) + np.uint64(1000 * epoch))
    return maker.batch(BatchRequest(np.array(rows, np.int64), keys))


def ids_of(batch: Batch) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of each source as the model reads it, and of each target without its begin token."""
    lengths = batch.source_lengths.tolist()
    sources = [row[:length] for row, length in zip(batch.source_ids.tolist(), lengths, strict=True)]
    targets = [[token for token in row[1:] if token] for row in batch.target_ids.tolist()]
    return sources, targets
