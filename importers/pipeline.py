"""From the files of another toolkit to a checkpoint, checked against that toolkit, and to a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lingon.bundle import Bundle
from lingon.errors import ParityError, SettingsError, SourceModelError
from lingon.export.graphs.precisions import PRECISION_KINDS
from lingon.export.greedy import Ids, own_sentences, translate_once
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Known, Texts
from lingon.importers.assembly.checkpoint import checkpoint_of
from lingon.importers.assembly.heads import with_wide_heads
from lingon.importers.assembly.languages import choose_languages
from lingon.importers.assembly.trim import trim
from lingon.importers.files.fields import Fields
from lingon.importers.files.pieces import Numbering
from lingon.importers.files.pointers import explained
from lingon.importers.files.tensors import are_graphs
from lingon.importers.readers.argos import is_argos, read_argos
from lingon.importers.readers.ctranslate2.folder import is_ctranslate2, read_ctranslate2
from lingon.importers.readers.fsmt import read_fsmt
from lingon.importers.readers.marian.files import models_of
from lingon.importers.readers.marian.folder import read_marian
from lingon.importers.readers.multilingual import read_multilingual
from lingon.importers.readers.opus_mt import CONFIG, read_opus_mt
from lingon.importers.readers.t5 import read_t5
from lingon.importers.shortlist import OWN, own_pairs, pairs_to_learn, with_shortlist
from lingon.importers.source import ForeignModel
from lingon.importers.witness.choice import compare_with_toolkits
from lingon.lines import read_lines, read_parallel
from lingon.serving.runtime.device import NATIVES
from lingon.text import normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.corpus import Pair
from lingon.training.search import Hypothesis

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
Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSettings:
    """How to read a checkpoint.

    languages: of the source and of the target; of a model of several languages, those to serve, the pair of the gates
        first; ALL stands for all others. None where its files say
    every_language: whether all languages are taken of a model of several if none is named; enough for a report, which
        needs no pair of the gates
    licence: of the model, if the user knows it
    longest: source tokens that the bundle reads, the end token counted; None is what the files say
    pieces: sentencepiece models of the source and of the target, for files that have none
    source_end: whether a source ends with the end token, for folders of CTranslate2; None is what the files say
    compare: whether to compare with the toolkit that the checkpoint is of, and others; None if they are installed
    least_log_prob: mean natural logarithm of the probability of a token of its own translations. A table of positions,
        a start token or a norm that is read wrongly moves it from about -1 to below -4.
    shortlist: OWN, LEARN, NONE or the name of a file; see `with_shortlist`
    """

    languages: tuple[Sequence[str], Sequence[str]] | None = None
    every_language: bool = False
    licence: str = ""
    longest: int | None = None
    pieces: tuple[Path | None, Path | None] = (None, None)
    source_end: bool | None = None
    compare: bool | None = None
    least_log_prob: float = -2.5
    shortlist: str = OWN


@dataclass(frozen=True, slots=True)
class Imported:
    """A checkpoint of Lingon, and what its files said.

    greedy: its translations that several checks read, by the ids of their sources
    """

    checkpoint: Checkpoint
    source: ForeignModel
    greedy: dict[Ids, Hypothesis] = field(default_factory=dict)


def read_source(folder: Path, settings: ImportSettings, log: Log) -> Imported:
    """Read the files of a model. Raises SourceModelError if they are not one that Lingon reads."""
    try:
        source = _read(folder, settings)
    except SourceModelError as error:
        raise explained(error, folder) from None
    source = with_wide_heads(source)
    chosen, pair = choose_languages(folder, source, settings.languages, every=settings.every_language)
    facts = replace(source.facts, licence=settings.licence or source.facts.licence)
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
    mean = _mean_log_prob(imported, texts[:PROBED])
    log(f"log-probability of a token of its own translations: {mean:.2f} on average")
    if not mean >= settings.least_log_prob:
        raise ParityError(
            f"{folder}: the tokens of its own translations have a log-probability of {mean:.2f} on average, must have "
            f"{settings.least_log_prob:g} or more: the model is read wrongly, or the text is not of its source language"
        )


def trim_imported(imported: Imported, files: Sequence[Path], log: Log) -> Imported:
    """Return a model with the pieces of these texts alone; see `trim`. Raises SettingsError if they have no text."""
    return Imported(*trim(imported.checkpoint, imported.source, files, log))


def export_imported(imported: Imported, folder: Path, texts: Texts, settings: ExportSettings, log: Log) -> Bundle:
    """Export an imported model; without int8 or its shortlist, and with a line that says so, if quality suffers.

    texts: of the training text, targets may be missing: the model translates it then
    """
    facts = imported.source.facts
    if settings.alignment_layer is None and settings.alignment_heads is None and facts.alignment is not None:
        layer, heads = facts.alignment
        settings = replace(settings, alignment_layer=layer, alignment_heads=heads)
    if texts.training:
        texts = replace(texts, training=pairs_to_learn(imported.checkpoint, texts.training, imported.greedy))
    known = Known(imported.source.shortlist if settings.shortlist else None, imported.source.ranges)
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
    """Return normalised sentences for the gates that the model reads whole; targets are empty without references.

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


def _read(folder: Path, settings: ImportSettings) -> ForeignModel:
    """Read a folder of a form that is known by its files."""
    if not folder.is_dir():
        raise SourceModelError(
            f"{folder}: is no folder, and no archive that Lingon unpacks (.zip, .argosmodel, .tar, .tar.gz, .tgz, "
            ".tar.xz, .tar.bz2)"
        )
    if (folder / ADAPTER).is_file():
        base = Fields.read(folder / ADAPTER).text("base_model_name_or_path", "its base model")
        raise SourceModelError(
            f"{folder / ADAPTER}: is an adapter of PEFT, such as LoRA; merge it into {base} first: "
            "merge_and_unload() of PEFT, then save_pretrained(), writes a model that can be imported"
        )
    targets = settings.languages[1] if settings.languages else ()
    if is_argos(folder) and not any(settings.pieces):
        return read_argos(folder, settings.longest, settings.source_end, targets)
    if is_ctranslate2(folder):
        return read_ctranslate2(folder, settings.longest, settings.pieces, targets, settings.source_end)
    if any(settings.pieces):
        raise SettingsError("--source-pieces and --target-pieces are for folders of CTranslate2 alone")
    if settings.source_end is not None:
        raise SettingsError("--source-end and --no-source-end are for folders of CTranslate2 alone")
    if not (folder / CONFIG).is_file():
        if models_of(folder):
            sources, targets = settings.languages or ([""], [""])
            return read_marian(folder, settings.longest, (sources[0], targets[0]))
        raise SourceModelError(f"{folder}: has no {CONFIG} and no model of Marian, so it is none that Lingon imports")
    kind = Fields.read(folder / CONFIG).text("model_type", "")
    if kind not in READERS:
        raise SourceModelError(f"{folder / CONFIG}: model_type must be {' or '.join(READERS)}, got {kind!r}")
    source = READERS[kind](folder, settings.longest)
    if not are_graphs(folder):
        return source
    facts = replace(source.facts, form=f"{source.facts.form}, exported to ONNX by optimum", toolkit="optimum")
    return replace(source, facts=facts)


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
