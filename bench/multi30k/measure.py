"""The rows of the results: for each way to translate and each test set the scores, with what the training took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lingon.bench.moses_bleu import tokenised_bleu
from lingon.bench.multi30k.plan import PAPER, SETS, SYSTEMS, System, cased_tokens, paper_tokens, test_files
from lingon.bench.multi30k.run import averaged, translated
from lingon.bench.trained_runs import last_checkpoints, training_figures
from lingon.lines import read_parallel
from lingon.scoring import score
from lingon.training.config import Config

Row = dict[str, Any]


def measure(
    config: Config,
    pair: str,
    run: Path,
    work: Path,
    device: str,
    published: Mapping[str, float],
    write: Callable[[str], None],
) -> list[Row]:
    """Return a row for each system and test set of a run.

    published: the figures of the paper by test set, of which a row of PAPER has its own
    work: folder for averaged checkpoints and translations
    write: receives a line about each row
    """
    training = training_figures(run)
    rows = []
    for system in SYSTEMS:
        folders = last_checkpoints(run, system.checkpoints)
        checkpoint = averaged(folders, work)
        for test_set in SETS:
            row = _row(config, pair, test_set, system, checkpoint, work, device)
            name = system.name(len(folders))
            paper = published.get(test_set) if system == PAPER else None
            head = {"pair": pair, "set": test_set, "system": name, "published": paper}
            rows.append({**head, **row, "checkpoints": len(folders), **training})
            write(f"{pair} {test_set}, {name}: {row['bleu_tokenised']:.2f}")
    return rows


def _row(config: Config, pair: str, test_set: str, system: System, checkpoint: Path, work: Path, device: str) -> Row:
    """The scores of one test set; bleu_tokenised is that of the paper."""
    pairs = list(read_parallel(*test_files(config, pair, test_set)))
    sources, references = [each[0] for each in pairs], [each[1] for each in pairs]
    hypotheses = translated(checkpoint, sources, system, work, device)
    language = pair.rpartition("-")[2]
    lower, cased = (tokenised_bleu(hypotheses, references, of(language)) for of in (paper_tokens, cased_tokens))
    plain = score(hypotheses, references)
    return {
        "bleu_tokenised": round(lower.bleu, 2),
        "bleu_tokenised_cased": round(cased.bleu, 2),
        "bleu": round(plain.bleu, 2),
        "chrf": round(plain.chrf, 2),
        "hypothesis_tokens": lower.hypothesis_tokens,
        "reference_tokens": lower.reference_tokens,
        "signatures": {
            "bleu_tokenised": lower.signature,
            "bleu_tokenised_cased": cased.signature,
            "bleu": plain.bleu_signature,
            "chrf": plain.chrf_signature,
        },
    }


def signatures(rows: list[Row]) -> Iterator[str]:
    """A line for each score and language: what stands behind the figures."""
    found = {(name, text) for row in rows for name, text in row["signatures"].items()}
    for name, text in sorted(found):
        yield f"{name}: {text}"
