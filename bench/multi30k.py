"""`lingon bench multi30k`: a published result, trained, measured as its paper does, and shown beside its figures."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from lingon.bench.options import check_choice
from lingon.bench.results_file import Row, new_table, note, save, search_name, signature_lines, terminal
from lingon.bench.tokenised_bleu import MosesTokens, tokenised_bleu
from lingon.bench.trained_runs import corpus_overrides, last_checkpoints, training_figures, write_sample_corpus
from lingon.bench.trained_runs import train as train_run
from lingon.files import make_folders, read_lines, read_parallel, write_text
from lingon.scoring import score
from lingon.training import checkpoint as checkpoints
from lingon.training.checkpoint import average_checkpoints
from lingon.training.config import Config, load_config
from lingon.training.evaluation import translate_lines

PAIRS = ("en-de", "en-fr")
SETS = ("test2016", "test2017", "testcoco2017")
LENGTH_PENALTY = 1.0
"""Of the score log-probability / length^penalty, the default of fairseq."""

PUBLISHED = {
    "en-de": {"test2016": 41.0, "test2017": 33.4, "testcoco2017": 29.9},
    "en-fr": {"test2016": 61.8, "test2017": 53.5, "testcoco2017": 44.5},
}
"""BLEU of the text-only Transformer-Tiny, Wu et al. (2021), table 1."""


@dataclass(frozen=True, slots=True)
class System:
    """A way to translate with a run.

    checkpoints: how many of the last ones are averaged
    """

    checkpoints: int
    beam_size: int

    def name(self, checkpoints: int) -> str:
        """Return the name in the tables. checkpoints: how many the run has for the average."""
        weights = "last checkpoint" if self.checkpoints == 1 else f"average of {checkpoints}"
        return f"{weights}, {search_name(self.beam_size)}"


PAPER = System(checkpoints=10, beam_size=5)
SYSTEMS = (PAPER, System(checkpoints=10, beam_size=1), System(checkpoints=1, beam_size=5))


def paper_tokens(language: str) -> MosesTokens:
    """Return the tokens that the paper scores.

    Its repository reports 12,103 reference tokens of test2016 in German, which is the number in lower case. With the
    case of the text it is 12,102.
    """
    return MosesTokens(language=language, lower_case=True, normalise=True)


def cased_tokens(language: str) -> MosesTokens:
    """Return the same tokens with the case of the text."""
    return MosesTokens(language=language, normalise=True)


def test_files(config: Config, pair: str, test_set: str) -> tuple[Path, Path]:
    """Source and reference of a test set, which are in the folder of the validation set."""
    folder = config.data.corpora[-1].files()[0].parent
    source, target = (folder / f"multi30k.{pair}.{test_set}.{language}.gz" for language in pair.split("-"))
    return source, target


PARTS = {"train": 200, "valid": 4, **dict.fromkeys(SETS, 4)}  # sentences


def overrides(pair: str, folder: Path) -> list[str]:
    """Return the settings to override for a run of about a second: the corpus in folder, and a tiny model."""
    sizes = {
        "tokenizer.vocab_size": 200,
        "model.dim": 16,
        "model.ffn": 16,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
        "training.batch_tokens": 1000,
        "training.max_steps": 12,
        "training.valid_every": 4,
        "training.log_every": 4,
    }
    return [*corpus_overrides(folder, f"multi30k.{pair}"), *(f"{key}={value}" for key, value in sizes.items())]


def averaged(folders: Sequence[Path], work: Path) -> Path:
    """Return the checkpoint with the mean of the weights of folders. It is below work, and is computed once."""
    if len(folders) == 1:
        return folders[0]
    path = work / f"average-{_digest(folders)}"
    if not path.is_dir():
        mean = average_checkpoints(list(folders))
        checkpoints.save_checkpoint(path, mean.config, mean.tokenizer, mean.model, mean.progress)
    return path


def translated(checkpoint: Path, sources: Sequence[str], system: System, work: Path, device: str) -> list[str]:
    """Return the translation of each source. A file below work keeps them, so that none is made twice."""
    name = f"{_digest([checkpoint], *sources)}-beam-{system.beam_size}.txt"
    path = work / "translations" / name
    if not path.is_file():
        make_folders(path.parent)
        found = translate_lines(
            checkpoint, list(sources), beam_size=system.beam_size, length_penalty=LENGTH_PENALTY, device=device
        )
        write_text(path, "".join(f"{line}\n" for line in found.lines))
    return list(read_lines(path))


def _digest(folders: Sequence[Path], *lines: str) -> str:
    """Return the first digits of the SHA-256 of the weights of checkpoints and of lines."""
    digest = hashlib.sha256()
    for folder in folders:
        digest.update(hashlib.sha256((folder / checkpoints.MODEL).read_bytes()).digest())
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]


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
    """Return the scores of one test set. bleu_tokenised is the score of the paper."""
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


def table(rows: Sequence[Row]) -> Table:
    """Return a line for each row: tokenised BLEU, the published BLEU, and the scores of sacreBLEU."""
    found = new_table(("pair", "set", "system"), ("tokenised BLEU", "published", "cased", "BLEU", "chrF"))
    for row in rows:
        published = "" if row["published"] is None else f"{row['published']:.1f}"
        scores = (row["bleu_tokenised_cased"], row["bleu"], row["chrf"])
        shown = (f"{row['bleu_tokenised']:.1f}", published, *(f"{value:.1f}" for value in scores))
        found.add_row(row["pair"], row["set"], row["system"], *shown)
    return found


def training_lines(rows: Sequence[Row]) -> list[str]:
    """Return the cost of the training in a line for each pair."""
    first = {row["pair"]: row for row in reversed(rows)}
    return [
        f"{pair}: {row['training_steps']:,} updates in {row['training_seconds']:,} s, "
        f"{row['training_tokens_per_second'] or 0:,} target tokens/s (median)"
        for pair, row in reversed(first.items())
    ]


def run(
    chosen: Sequence[str] | None, configs: Path, work: Path, device: str, results: Path, *, train: bool, quick: bool
) -> None:
    """Train and measure the chosen pairs, by default all, show the table, and write the results.

    configs: folder with a config for each pair; work: folder for runs and translations
    train: whether runs are trained to their end, or measured as far as they are
    quick: a tiny model on sample sentences of one pair
    """
    pairs = tuple(chosen or (PAIRS[:1] if quick else PAIRS))
    check_choice("--pair", pairs, PAIRS)
    rows = list[Row]()
    for pair in pairs:
        changed = [f"training.device={device}"]
        if quick:
            write_sample_corpus(work / "corpus", f"multi30k.{pair}", PARTS)
            changed += overrides(pair, (work / "corpus").resolve())
        config = load_config(configs / f"{pair}.toml", changed)
        if train:
            train_run(config, work / pair)
        published = {} if quick else PUBLISHED[pair]  # Sample sentences are no captions.
        rows += measure(config, pair, work / pair, work, device, published, note)
    terminal().print(table(rows))
    for line in (*training_lines(rows), *signature_lines(rows)):
        print(line)
    save("multi30k", rows, results, device=device)
