"""What other toolkits make of sentences, compared with what the imported model makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec
from torch import Tensor

from lingon.errors import CorpusError, ParityError
from lingon.export.gates_text import BeamSettings
from lingon.files import read_lines
from lingon.importers.files.pieces import SPACE, ModelPiece, Numbering
from lingon.importers.foreign_model import ForeignModel
from lingon.scoring import score
from lingon.text import BOS, EOS, FORBIDDEN, UNK, normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.models.interface import AnyModel
from lingon.training.search import Hypothesis, SearchSettings, normalised_score, translate

# What another toolkit generates, compared with what the imported model generates.

SENTENCES = 40  # that are compared
NEVER = -1e9  # bias of the output of pieces that are never generated
LENGTH_EXTRA = SearchSettings().length_extra  # tokens of the bound of a translation, beyond twice its source


class Toolkit(Protocol):
    """A model as another toolkit loads it. Ids are those of the files, the rows of a numbering.

    length_extra: tokens of the bound of its translations, beyond twice the source; ours have the same bound then
    near_tie: difference of log-probabilities of a token that rounding explains
    """

    name: str
    length_extra: int
    near_tie: float

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        """Return the searches that equal ours. forced: ids that are read after the start."""

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        """Return whether the toolkit can read a source and its search can find this translation."""

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids, without those of the start and the end; `most` of them at most, the end counted.

        forced: ids that are read after the start
        never: ids that are not generated
        """


@dataclass(slots=True)
class _Counts:
    """Numbers of texts: with the same tokens, with others that score no better, and that are not compared."""

    same: int = 0
    no_better: int = 0
    left_out: int = 0


def compare_tokens(
    toolkit: Toolkit, checkpoint: Checkpoint, source: ForeignModel, texts: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each search of the toolkit.

    texts: normalised. The first SENTENCES are compared

    Raises ParityError if a translation of the toolkit scores better than ours, or if one of greedy search differs at a
    token that scores worse than ours by more than the near tie of the toolkit.
    """
    texts, forced = texts[:SENTENCES], checkpoint.tokenizer.languages.forced
    for beam_size, penalty in toolkit.searches(forced):
        settings = SearchSettings(
            beam_size=beam_size, length_penalty=penalty, forced=forced, length_extra=toolkit.length_extra
        )
        label = f"{toolkit.name}: beam size {beam_size}, length penalty {penalty:g}"
        counts = _count(checkpoint, source, toolkit, texts, settings, label)
        others = f", {counts.no_better} score no better" if counts.no_better else ""
        left_out = f"; {counts.left_out} are left out, which it cannot translate so" if counts.left_out else ""
        compared = len(texts) - counts.left_out
        yield f"{label}: tokens of {counts.same} of {compared} texts are the same{others}{left_out}"


def _count(
    checkpoint: Checkpoint,
    source: ForeignModel,
    toolkit: Toolkit,
    texts: Sequence[str],
    settings: SearchSettings,
    label: str,
) -> _Counts:
    """Compare the translations of texts. Raise ParityError if another one is better."""
    model, rows, counts = checkpoint.model, source.target.rows, _Counts()
    silent, ours = never_generated(source.target), new_ids(source.target)
    sources = [checkpoint.tokenizer.encode_source(text) for text in texts]
    for text, ids, (best, *_) in zip(texts, sources, translate(model, sources, settings), strict=True):
        if not toolkit.is_comparable(ids, best, settings):
            counts.left_out += 1
            continue
        most, forced = settings.max_length(len(ids), model.settings.max_positions), settings.forced
        theirs = [source.source.rows[each] for each in ids]
        foreign = toolkit.generate(theirs, silent, settings, most, [rows[each] for each in forced])
        if foreign == [rows[each] for each in best.tokens]:
            counts.same += 1
            continue
        tokens = [ours[each] for each in foreign]
        labels = [*tokens, EOS] if len(tokens) < most else tokens
        log_probs = _log_probs(model, ids, labels, settings)
        score = normalised_score(float(log_probs.gather(1, torch.tensor(labels)[:, None]).sum()), len(labels), settings)
        if not _is_near(best, labels, log_probs, score, settings, toolkit.near_tie):
            raise ParityError(
                f"{label}: {text[:60]!r} has other tokens, of score {score:.4f}; ours is {best.score:.4f}"
            )
        counts.no_better += 1
    return counts


def _is_near(
    ours: Hypothesis,
    labels: Sequence[int],
    log_probs: Tensor,
    score: float,
    settings: SearchSettings,
    near_tie: float,
) -> bool:
    """Return whether rounding explains that the labels of a toolkit are others, or they score no better.

    log_probs: (labels, vocab), by our model

    In greedy search the first token that differs decides: what follows may score as it likes.
    """
    if settings.beam_size > 1:
        return score <= ours.score + near_tie
    mine = [*ours.tokens, EOS] if ours.finished else ours.tokens
    position = next(position for position, pair in enumerate(zip(mine, labels, strict=False)) if pair[0] != pair[1])
    return float(log_probs[position, mine[position]] - log_probs[position, labels[position]]) <= near_tie


@torch.inference_mode()
def _log_probs(model: AnyModel, ids: Sequence[int], labels: Sequence[int], settings: SearchSettings) -> Tensor:
    """Return the log-probabilities (labels, vocab) of a translation, the end token counted."""
    given = torch.tensor([[BOS, *settings.forced, *labels[:-1]]])
    logits = model(torch.tensor([list(ids)]), torch.tensor([len(ids)]), given)[:, len(settings.forced) :]
    return model.log_probs(logits)[0]


def new_ids(numbering: Numbering) -> dict[int, int]:
    """Return the id in Lingon of each id of the checkpoint that may be generated."""
    never = {*FORBIDDEN, *numbering.never}
    return {row: new for new, row in enumerate(numbering.rows) if new not in never}


def never_generated(numbering: Numbering) -> list[int]:
    """Return the ids of the checkpoint that are never generated."""
    return sorted(set(numbering.rows) - new_ids(numbering).keys())


def spelled_by_ids(numbering: Numbering) -> bytes:
    """Return a sentencepiece model in which the piece of each row of a table is the number of the row."""
    end, unknown = numbering.rows[EOS], numbering.rows[UNK]
    model = ModelProto(
        trainer_spec=TrainerSpec(model_type=TrainerSpec.UNIGRAM, eos_id=end, unk_id=unknown, bos_id=-1, pad_id=-1),
        normalizer_spec=NormalizerSpec(name="identity"),
    )
    for row in range(max(numbering.rows)):
        piece, kind = {end: ("</s>", ModelPiece.CONTROL), unknown: ("<unk>", ModelPiece.UNKNOWN)}.get(
            row, (f"{SPACE}{row}", ModelPiece.NORMAL)
        )
        model.pieces.add(piece=piece, score=0.0, type=kind)
    return bytes(model.SerializeToString())


# The samples that come with a checkpoint: sources, references, and what the model's own toolkit made of them.
# OPUS-MT's archives have NAME.test.txt, in groups of four lines: source, reference, translation by Marian, nothing.

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

    Both searches are those that the files state. Marian's beam gets narrower, so that some translations differ.
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
    """Return the code of the target language that a source begins with, or "" if there is none."""
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
