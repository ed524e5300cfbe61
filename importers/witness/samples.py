"""The samples that come with a checkpoint: sources, references, and what the model's own toolkit made of them.

OPUS-MT's archives have NAME.test.txt, in groups of four lines: source, reference, translation by Marian, nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from lingon.errors import CorpusError, ParityError
from lingon.importers.source import ForeignModel
from lingon.lines import read_lines
from lingon.scoring import score
from lingon.text import normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import SearchSettings, translate

MOST = 100  # samples that are translated
LEAST_CHRF = 70.0  # of our translations against those of the toolkit; unlike BLEU it suits few and short ones
_CODE = re.compile(r"(>>[^<>]+<<) +")


class Sample(NamedTuple):
    """A source, its reference, and its translation by the model's own toolkit."""

    source: str
    reference: str
    output: str


def check_samples(checkpoint: Checkpoint, source: ForeignModel, folder: Path, log: Callable[[str], None]) -> None:
    """Compare translations with those of the samples in a folder, if it has any.

    Both searches are those that the files state; Marian's beam gets narrower, so that some translations differ.
    Raises ParityError if they differ too much.
    """
    path = next(iter(sorted(folder.glob("*.test.txt"))), None)
    if path is None:
        return
    try:
        samples = list(islice(_usable(path, checkpoint), MOST))
    except CorpusError as error:
        log(f"note: {error}; the samples are not used")
        return
    if not samples:
        log(f"note: {path.name} has no sample for these languages")
        return
    ours = _translations(checkpoint, source, [sample.source for sample in samples])
    theirs = [normalise(sample.output) for sample in samples]
    references = [normalise(sample.reference) for sample in samples]
    same = sum(mine == other for mine, other in zip(ours, theirs, strict=True))
    language = checkpoint.config.data.target_language
    own, given = (score(each, references, language).bleu for each in (ours, theirs))
    alike = score(ours, theirs).chrf
    log(
        f"{path.name}: {same} of {len(samples)} translations are the same; BLEU {own:.1f}, of the samples {given:.1f}, "
        f"chrF between the two {alike:.1f}"
    )
    if alike < LEAST_CHRF:
        raise ParityError(
            f"{path}: the chrF between our translations and those of the samples must be {LEAST_CHRF:g} or more, is "
            f"{alike:.1f}: the model is read wrongly, or the samples are of another model"
        )


def _usable(path: Path, checkpoint: Checkpoint) -> Iterator[Sample]:
    """Yield the samples that the model reads whole, without the code of the target language at their start."""
    code, longest = _code_of(checkpoint), checkpoint.config.max_source_tokens
    for sample in _samples(path):
        found = _CODE.match(sample.source)
        if found and found[1] != code:
            continue
        text = normalise(sample.source[found.end() :] if found else sample.source)
        if text and len(checkpoint.tokenizer.encode_source(text)) <= longest:
            yield sample._replace(source=text)


def _samples(path: Path) -> Iterator[Sample]:
    """Yield the groups of a file. Raises CorpusError if a line between two groups is not empty, or one is cut off."""
    lines = read_lines(path)
    for number, group in enumerate(iter(lambda: list(islice(lines, 4)), [])):
        if len(group) < 3 or "".join(group[3:]).strip():
            raise CorpusError(f"{path}:{4 * number + len(group)}: must have groups of three lines and an empty one")
        yield Sample(*group[:3])


def _code_of(checkpoint: Checkpoint) -> str:
    """Return the code of the target language that a source begins with; "" if there is none."""
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.target_language
    codes = [each.source for each in languages.targets if each.language == wanted] if languages else []
    return "".join(codes[0]) if codes else ""


def _translations(checkpoint: Checkpoint, source: ForeignModel, texts: list[str]) -> list[str]:
    settings = SearchSettings(
        beam_size=source.facts.beam_size,
        length_penalty=source.facts.length_penalty,
        forced=checkpoint.tokenizer.languages.forced,
    )
    found = translate(checkpoint.model, [checkpoint.tokenizer.encode_source(text) for text in texts], settings, 16)
    return [checkpoint.tokenizer.decode(best.tokens) for best, *_ in found]
