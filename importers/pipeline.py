"""From the files of another toolkit to a checkpoint, checked against that toolkit, and to a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lingon.bundle.store import Bundle
from lingon.errors import ParityError, SettingsError, SourceModelError
from lingon.export.calibration import own_sentences, translate_once
from lingon.export.graphs.precisions import PRECISION_KINDS
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts, Known
from lingon.export.shortlist import check_one_pair
from lingon.export.text_data import Log
from lingon.files import read_lines, read_parallel
from lingon.importers.assembly import checkpoint_of, choose_languages, trim, with_wide_heads
from lingon.importers.files.fields import JsonFields, explained
from lingon.importers.files.pieces import Numbering
from lingon.importers.files.tensors import are_graphs
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.gate_text import made_sentences
from lingon.importers.readers.ctranslate2 import is_argos, is_ctranslate2, read_argos, read_ctranslate2
from lingon.importers.readers.fsmt import read_fsmt
from lingon.importers.readers.indictrans2 import read_indictrans2
from lingon.importers.readers.marian import read_marian
from lingon.importers.readers.marian_files import models_of, read_lexicon
from lingon.importers.readers.multilingual import read_multilingual
from lingon.importers.readers.opennmt import is_eole, is_opennmt_py, read_eole, read_opennmt_py
from lingon.importers.readers.opus_mt import CONFIG, read_opus_mt
from lingon.importers.readers.t5 import read_t5
from lingon.importers.readers.t5gemma import read_t5gemma
from lingon.importers.toolkits import ctranslate2, fxtranslate, marian, opennmt, transformers
from lingon.serving.runtime.device import NATIVES
from lingon.terms.annotation import OPUS_TRAINER_FORM, unread_marker
from lingon.text import normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.search import Hypothesis, PairIds

# The shortlist of an imported model: its own, one of a file, one that is learned, or none.

OWN, LEARN, NONE = "own", "learn", "none"
REMEDY = "serve one pair, as in --languages en:de, or choose none"  # for a model of several languages
MOST_TRANSLATED = 20_000  # sentences that the model translates to learn from; references are all used


def with_shortlist(source: ForeignModel, choice: str) -> ForeignModel:
    """Return a source with the shortlist that a user chooses; without one if it is learned later.

    choice: OWN, LEARN, NONE, or a lexicon in a form of Marian for the vocabularies of the model

    Raises SettingsError if it is none of these, and SourceModelError if the file is no such lexicon.
    """
    if choice == OWN:
        return source
    if choice in (LEARN, NONE):
        if choice == LEARN:
            check_one_pair(source.languages, "--shortlist learn", REMEDY)
        return replace(source, shortlist=None)
    path = Path(choice)
    if not path.is_file():
        raise SettingsError(f"--shortlist must be {OWN}, {LEARN}, {NONE} or a file, got {choice!r}")
    rows = max(source.source.rows) + 1, max(source.target.rows) + 1
    shared = source.source == source.target
    found = read_lexicon(path, source.source, source.target, rows, shared=shared)
    files = (*source.facts.files, path)
    return replace(source, shortlist=found, facts=replace(source.facts, files=files))


def split_pairs(pairs: Sequence[Pair], gates: int, choice: str, origin: Path) -> tuple[Sequence[Pair], Sequence[Pair]]:
    """Return the pairs for the gates, and those after them if a shortlist is learned.

    The gates must not measure a shortlist on text that it was learned from.
    origin: of the pairs. Raises SettingsError if no pair is left to learn from.
    """
    if choice != LEARN:
        return pairs[:gates], ()
    if len(pairs) <= gates:
        raise SettingsError(
            f"--shortlist learn: it learns from the sentences of {origin} after the {gates:,} of the gates, has "
            f"{len(pairs):,} in all"
        )
    return pairs[:gates], pairs[gates:]


def pairs_to_learn(
    checkpoint: Checkpoint, pairs: Sequence[Pair], known: dict[PairIds, Hypothesis] | None = None
) -> list[Pair]:
    """Return pairs that have targets: references, or translations of MOST_TRANSLATED sentences by the model itself."""
    referenced = [pair for pair in pairs if pair.target]
    return referenced or own_pairs(checkpoint, pairs[:MOST_TRANSLATED], known)


def own_pairs(
    checkpoint: Checkpoint, pairs: Sequence[Pair], known: dict[PairIds, Hypothesis] | None = None
) -> list[Pair]:
    """Return sources with greedy translations by the model; known: see `translate_once`."""
    known = {} if known is None else known
    found = translate_once(checkpoint, [normalise(pair.source) for pair in pairs], known)
    decode = checkpoint.tokenizer.decode
    return [Pair(pair.source, decode(best.tokens)) for pair, best in zip(pairs, found, strict=True)]


def with_terms(source: ForeignModel, *, trained: bool) -> ForeignModel:
    """Return a source that says whether its model reads sources annotated with terms, in the form of OpusTrainer.

    trained: whether the user says so. The vocabulary alone does not tell: Firefox's students have the markers, which
        their training never shows them. A note says that they are there.

    Raises SettingsError if the user says so and the vocabulary has no such markers.
    """
    missing = unread_marker(OPUS_TRAINER_FORM, source.tokenizer)
    if trained and missing is not None:
        raise SettingsError(f"--terms: the source vocabulary must have a piece {missing!r}, and has none")
    if trained:
        return replace(source, terms=OPUS_TRAINER_FORM)
    if missing is None:
        markers = ", ".join(OPUS_TRAINER_FORM.markers)
        note = f"its vocabulary has the markers of OpusTrainer, {markers}; --terms if it was trained with terms"
        return replace(source, notes=[*source.notes, note])
    return source


# The toolkits that a model is compared with.

COMPARED = {each.TOOLKIT: each for each in (transformers, ctranslate2, marian, opennmt)}
EXTRA = "the extra lingon[bench] has it"
REMEDIES = {each.TOOLKIT: each.REMEDY for each in (marian, opennmt)}
"""How to install a toolkit, where it is not EXTRA."""


def compare_with_toolkits(
    checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str], *, wanted: bool | None
) -> Iterator[str]:
    """Compare a model with the toolkit that its files are of, and with others that compute it.

    A model of Transformers is compared with CTranslate2 too, a student of Marian with fxtranslate.

    texts: normalised, in the source language
    wanted: None compares with what is installed; True raises SettingsError if nothing is

    Yields a line for each comparison, and one for each that is left out. Raises ParityError.
    """
    toolkit = source.facts.toolkit
    known = COMPARED.get(toolkit)
    others = [fxtranslate] if known is marian and source.settings.decoder_cell == "ssru" else []
    if wanted and known is None:
        raise SettingsError(f"--compare: there is nothing to compare a model of {toolkit} with")
    computing = [known, *(each for each in others if not each.difference(source))]
    if wanted and known is not None and not any(each is not None and each.is_installed() for each in computing):
        raise SettingsError(f"--compare: {toolkit} is not installed; {REMEDIES.get(toolkit, EXTRA)}")
    if known is None or wanted is False:
        yield f"not compared with {toolkit}"
        return
    if known.is_installed():
        yield from known.compare(checkpoint, source, folder, texts)
    else:
        remedy = f", so not confirmed; {REMEDIES[toolkit]}" if toolkit in REMEDIES else ""
        yield f"not compared with {toolkit}, which is not installed{remedy}"
    for other in others:
        if other.is_installed():
            yield from other.compare(checkpoint, source, folder, texts)
        else:
            yield f"not compared with {other.TOOLKIT}, which is not installed; {EXTRA}"
    if known is transformers and known.is_installed() and ctranslate2.is_installed():  # it converts by Transformers
        yield from ctranslate2.compare_converted(checkpoint, source, folder, texts)


CALIBRATION_SENTENCES = 200  # of the text for the gates, for int8 ranges if there is no training text
ADAPTER = "adapter_config.json"  # of PEFT
PROBED = 100  # sentences whose translations must be likely
READERS = {
    "marian": read_opus_mt,
    "fsmt": read_fsmt,
    "m2m_100": read_multilingual,
    "mbart": read_multilingual,
    "t5": read_t5,
    "mt5": read_t5,
}
READERS_OF_LANGUAGES = {"IndicTrans": read_indictrans2, "t5gemma": read_t5gemma}
"""Those that read a model for the languages that the user names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSettings:
    """How to read a checkpoint.

    languages: of the source and of the target. Of a model of several languages, those to serve, the pair of the gates
        first. ALL stands for all others. None where its files say
    every_language: whether all languages are taken of a model of several if none is named; enough for a report, which
        needs no pair of the gates
    licence: of the model, if the user or its publisher says it
    origin, scores: as in Facts
    longest: source tokens that the bundle reads, the end token counted. None is what the files say
    pieces: sentencepiece models of the source and of the target, for files that have none
    source_end: whether a source ends with the end token, for folders of CTranslate2. None is what the files say
    compare: whether to compare with the toolkit that the checkpoint is of, and others, or None if they are installed
    least_log_prob: mean natural logarithm of the probability of a token of its own translations. A table of positions,
        a start token or a norm that is read wrongly moves it from about -1 to below -4.
    shortlist: OWN, LEARN, NONE or the name of a file. See `with_shortlist`
    terms: whether the model was trained with sources that OpusTrainer annotated with terms. No file says so
    """

    languages: tuple[Sequence[str], Sequence[str]] | None = None
    every_language: bool = False
    licence: str = ""
    origin: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    longest: int | None = None
    pieces: tuple[Path | None, Path | None] = (None, None)
    source_end: bool | None = None
    compare: bool | None = None
    least_log_prob: float = -2.5
    shortlist: str = OWN
    terms: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """A checkpoint of Lingon, and what its files said.

    greedy: its translations that several checks read, by the ids of their sources
    """

    checkpoint: Checkpoint
    source: ForeignModel
    greedy: dict[PairIds, Hypothesis] = field(default_factory=dict)


def read_source(folder: Path, settings: ImportSettings, log: Log) -> Imported:
    """Read the files of a model. Raises SourceModelError if they are not one that Lingon reads."""
    try:
        source = _read(folder, settings)
    except SourceModelError as error:
        raise explained(error, folder) from None
    source = with_terms(with_wide_heads(source), trained=settings.terms)
    chosen, pair = choose_languages(folder, source, settings.languages, every=settings.every_language)
    licence = settings.licence or source.facts.licence
    facts = replace(source.facts, licence=licence, origin=settings.origin, scores=settings.scores)
    source = with_shortlist(replace(source, facts=facts, languages=chosen), settings.shortlist)
    checkpoint = checkpoint_of(source, pair, folder)
    gates = "" if settings.languages is None else f" (gates: {pair[0]} to {pair[1]})"
    for line in (*_found(checkpoint, source, gates), *(f"note: {note}" for note in source.notes)):
        log(line)
    return Imported(checkpoint, source)


def check_imported(imported: Imported, folder: Path, texts: Sequence[str], settings: ImportSettings, log: Log) -> None:
    """Check that the model was read as it is meant. Raises ParityError.

    texts: normalised, in the source language
    """
    checkpoint = imported.checkpoint
    for line in compare_with_toolkits(checkpoint, imported.source, folder, texts, wanted=settings.compare):
        log(line)
    log(f"translating {len(texts[:PROBED])} sentences with PyTorch")
    mean = _mean_log_prob(imported, texts[:PROBED])
    log(f"log-probability of a token of its own translations: {mean:.2f} on average")
    if not mean >= settings.least_log_prob:
        raise ParityError(
            f"{folder}: the tokens of its own translations have a log-probability of {mean:.2f} on average, must have "
            f"{settings.least_log_prob:g} or more: the model is read wrongly, or the text is not of its source language"
        )


def trim_imported(imported: Imported, files: Sequence[Path], log: Log) -> Imported:
    """Return a model with the pieces of these texts alone. See `trim`. Raises SettingsError if they have no text."""
    return Imported(*trim(imported.checkpoint, imported.source, files, log))


def export_imported(imported: Imported, folder: Path, texts: ExportTexts, settings: ExportSettings, log: Log) -> Bundle:
    """Export an imported model; without int8 or its shortlist, and with a line that says so, if quality suffers.

    texts: of the training text, targets may be missing: the model translates it then
    """
    facts = imported.source.facts
    if settings.alignment_layer is None and settings.alignment_heads is None and facts.alignment is not None:
        layer, heads = facts.alignment
        settings = replace(settings, alignment_layer=layer, alignment_heads=heads)
    if texts.training:
        texts = replace(texts, training=pairs_to_learn(imported.checkpoint, texts.training, imported.greedy))
    shortlist = imported.source.shortlist if settings.shortlist else None
    known = Known(shortlist, imported.source.ranges, greedy=imported.greedy)
    quantised = ", ".join(name for name in settings.precisions if PRECISION_KINDS[name].quantised)
    if quantised and known.ranges is not None:
        log(f"{quantised}: ranges of the model's own training for 8-bit integers")
    elif quantised and not texts.training:
        log(f"{quantised}: ranges from translations of {CALIBRATION_SENTENCES} sentences by the model itself")
        own = texts.held_out[:CALIBRATION_SENTENCES]
        if imported.source.languages is None:
            texts = replace(texts, training=own_pairs(imported.checkpoint, own, imported.greedy))
        else:
            sources = [normalise(pair.source) for pair in own]
            known = replace(known, sentences=own_sentences(imported.checkpoint, sources, imported.greedy))
    settings = replace(settings, optional=("int8", *NATIVES, "shortlist"))
    try:
        return export_checkpoint(imported.checkpoint, folder, texts, settings, log, known)
    except ParityError as error:
        if settings.shortlist is None or not str(error).partition(": ")[0].endswith("with shortlist"):
            raise
        log(f"{error}; the bundle has no shortlist")
    settings = replace(settings, shortlist=None, shortlist_by_default=False)
    return export_checkpoint(imported.checkpoint, folder, texts, settings, log, known)


def gate_pairs(imported: Imported, source: Path, reference: Path | None, log: Log = lambda line: None) -> list[Pair]:
    """Return normalised sentences for the gates that the model reads whole. Targets are empty without references.

    A sentence with a blank reference is left out. Raises SettingsError if no sentence is left.
    """
    tokenizer, longest = imported.checkpoint.tokenizer, imported.checkpoint.config.max_source_tokens
    lines = ((line, "") for line in read_lines(source)) if reference is None else read_parallel(source, reference)
    pairs = [pair for text, target in lines if (pair := Pair(normalise(text), normalise(target))).source]
    if reference is not None and (blank := sum(not pair.target for pair in pairs)):
        log(f"{reference}: {blank:,} of {len(pairs):,} references are blank, their sentences are left out")
        pairs = [pair for pair in pairs if pair.target]
    found = [pair for pair in pairs if len(tokenizer.encode_source(pair.source)) <= longest]
    if not found:
        needed = f"2 to {longest} source tokens" + ("" if reference is None else " and a reference")
        raise SettingsError(f"{source}: no sentence for the gates: none has {needed}")
    return found


def made_pairs(imported: Imported, count: int, log: Log) -> list[Pair]:
    """Return texts for the gates from locale data, for a user who has none. Raises SettingsError if there are none."""
    tokenizer, longest = imported.checkpoint.tokenizer, imported.checkpoint.config.max_source_tokens
    language = imported.checkpoint.config.data.source_language
    texts = map(normalise, made_sentences(language, count))
    found = [Pair(text, "") for text in texts if len(tokenizer.encode_source(text)) <= longest]
    if not found:
        raise SettingsError(
            f"a bundle needs text for its gates, and the locale data have none in {language}: name sentences of the "
            f"source language, --gate-source"
        )
    log(
        f"text for the gates: {len(found):,} dates, lists, amounts and names in {language} from the locale data of "
        f"Unicode, without references; --gate-source tries the model on sentences of your own"
    )
    return found


def _read(folder: Path, settings: ImportSettings) -> ForeignModel:
    """Read a folder of a form that is known by its files."""
    if not folder.is_dir():
        raise SourceModelError(
            f"{folder}: is no folder, and no archive that Lingon unpacks (.zip, .argosmodel, .tar, .tar.gz, .tgz, "
            ".tar.xz, .tar.bz2)"
        )
    if (folder / ADAPTER).is_file():
        base = JsonFields.read(folder / ADAPTER).text("base_model_name_or_path", "its base model")
        raise SourceModelError(
            f"{folder / ADAPTER}: is an adapter of PEFT, such as LoRA; merge it into {base} first: "
            "merge_and_unload() of PEFT, then save_pretrained(), writes a model that can be imported"
        )
    targets = settings.languages[1] if settings.languages else ()
    if is_argos(folder) and not any(settings.pieces):
        return read_argos(folder, settings.longest, settings.source_end, targets)
    if is_ctranslate2(folder):
        return read_ctranslate2(folder, settings.longest, settings.pieces, targets, settings.source_end)
    if settings.source_end is not None:
        raise SettingsError("--source-end and --no-source-end are for folders of CTranslate2 alone")
    if is_opennmt_py(folder) or is_eole(folder):
        read = read_eole if is_eole(folder) else read_opennmt_py
        return read(folder, settings.longest, settings.pieces, _pair(settings))
    if any(settings.pieces):
        raise SettingsError("--source-pieces and --target-pieces are for folders of CTranslate2 and OpenNMT alone")
    if not (folder / CONFIG).is_file():
        if models_of(folder):
            return read_marian(folder, settings.longest, _pair(settings))
        raise SourceModelError(f"{folder}: has no {CONFIG} and no model of Marian, so it is none that Lingon imports")
    kind = JsonFields.read(folder / CONFIG).text("model_type", "")
    readers = READERS | {
        kind: partial(read, languages=settings.languages) for kind, read in READERS_OF_LANGUAGES.items()
    }
    if kind not in readers:
        raise SourceModelError(f"{folder / CONFIG}: model_type must be {' or '.join(readers)}, got {kind!r}")
    source = readers[kind](folder, settings.longest)
    if not are_graphs(folder):
        return source
    facts = replace(source.facts, form=f"{source.facts.form}, exported to ONNX by optimum", toolkit="optimum")
    return replace(source, facts=facts)


def _pair(settings: ImportSettings) -> tuple[str, str]:
    """Return the first source and target language that the user names, or "" for each."""
    sources, targets = settings.languages or ([""], [""])
    return sources[0], targets[0]


def _found(checkpoint: Checkpoint, source: ForeignModel, gates: str) -> list[str]:
    """Return lines that say what was read; gates: what is said of the pair of the gates of a model of several."""
    data = checkpoint.config.data
    weights = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    languages = f"{data.source_language} to {data.target_language}"
    if (several := source.languages) is not None:
        names = [", ".join(each.language for each in side) for side in (several.sources, several.targets)]
        languages = f"{names[0]} to {names[1]}{gates}"
    lines = [f"{source.facts.form}: {languages}, {weights:,} weights, all tensors used"]
    if source.shortlist is not None:
        lines.append(f"shortlist: {len(source.shortlist.pieces):,} candidates, {len(source.shortlist.always):,} always")
    if source.source == source.target:
        return [*lines, f"pieces: {_pieces(source.source)}"]
    return [*lines, f"source pieces: {_pieces(source.source)}", f"target pieces: {_pieces(source.target)}"]


def _pieces(numbering: Numbering) -> str:
    """Return what is said of a vocabulary."""
    unknown = f"; {numbering.aliases:,} of the segmenter are unknown to the model" if numbering.aliases else ""
    return f"{len(numbering.pieces):,}, renumbered; {len(numbering.never):,} never generated{unknown}"


def _mean_log_prob(imported: Imported, texts: Sequence[str]) -> float:
    """Return the mean log-probability of the tokens of greedy translations."""
    found = translate_once(imported.checkpoint, texts, imported.greedy)
    tokens = sum(len(best.tokens) + best.finished for best in found)
    return sum(best.score for best in found) / max(tokens, 1)  # a score without a penalty is a sum over the tokens
