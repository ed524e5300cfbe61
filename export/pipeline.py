"""From a checkpoint to a published bundle: build the graphs, run the gates, write only what passes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, replace
from mmap import MADV_DONTNEED, mmap
from pathlib import Path

from lingon.bundle import names
from lingon.bundle.manifest import Alignment, Confidence, Manifest, Precision
from lingon.bundle.store import Bundle, FileContent, publish_bundle, with_checksums, write_files
from lingon.errors import DeviceError, SettingsError
from lingon.export.calibration import calibration_sentences
from lingon.export.gated_bundle import GatedBundle, Runners
from lingon.export.gates_checkpoint import map_weights
from lingon.export.gates_text import golden_sentences
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import (
    PRECISION_KINDS,
    BuiltGraphs,
    build,
    check_heads,
    check_weights,
    weight_files,
)
from lingon.export.graphs.quantisation import Calibration
from lingon.export.manifest import build_manifest, read_attachments
from lingon.export.model_card import model_card
from lingon.export.settings import ExportSettings, ExportTexts, Known
from lingon.export.shortlist import build_shortlist, check_one_pair, measure_coverage
from lingon.export.text_data import TranslationSearch, fit_confidence, text_data
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing, operators_missing
from lingon.text import Tokenizer
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.model_settings import ModelSettings, TransformerSettings

FAST_HEADS = (64, 128, 256)
"""Dimensions of a head that the decoder kernel XQA takes, the fastest one of GroupQueryAttention on CUDA."""


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    texts: ExportTexts,
    settings: ExportSettings,
    log: Callable[[str], None] = lambda line: None,
    known: Known | None = None,
) -> Bundle:
    """Publish the next version of a model below folder (models/NAME) and return it.

    known: what need not be learned from the training text
    The bundle is built and verified in a hidden folder next to its final one, so that its files are written once.
    Raises ParityError if a graph differs from the checkpoint or lossy arithmetic costs too much quality, and
    CheckpointError if a weight is beyond the range of a precision. Raises DeviceError if the gates must run on CUDA and
    cannot. A precision that settings.optional names is left out in place of the error.
    """
    known = known or Known()
    check_gate_device(settings.gate_on)
    if settings.shortlist is not None and known.shortlist is None:
        check_one_pair(checkpoint.config.languages)
    check_heads(checkpoint)
    check_weights(checkpoint, settings.build_order)
    checkpoint.model.to("cpu").eval()
    manifest, files = _without_graphs(checkpoint, folder, texts, settings, log, known)
    target = folder / str(manifest.version)
    _log_short_text(texts.held_out, settings, log)
    weights = WeightFiles(folder.absolute())
    map_weights(checkpoint.model, weights.folder)  # a build of 8-bit graphs holds another model of the same size
    built = _build_graphs(checkpoint, texts.training, settings, log, known, weights, manifest.alignment)
    files |= weight_files(weights)
    reads = {name: each.reads for name, each in built.items()}
    paths = {name: _paths(each) for name, each in built.items()}
    files |= {path: content for each in built.values() for path, content in each.graphs.items()}
    with publish_bundle(target) as part:
        write_files(part, files, target)
        _release(files)
        trial = Bundle(part, with_checksums(part, _unverified_manifest(manifest, reads, settings, log), files))
        gated = _verifier(checkpoint, trial, built, texts, settings, log, known)
        manifest = replace(manifest, precisions=gated.verify_precisions())
        _leave_out(_unread_files(paths, manifest.precisions), files, part)
        if manifest.shortlist is not None:
            manifest = replace(manifest, shortlist=manifest.shortlist | gated.verify_shortlist())
        if manifest.text is not None:
            confidence = _confidence(gated, checkpoint.tokenizer, texts.held_out, settings, log)
            manifest = replace(manifest, text=replace(manifest.text, confidence=confidence))
        more = _golden(gated, texts.held_out, log)
        more[names.CARD] = model_card(checkpoint, manifest, settings.card).encode()
        manifest = with_checksums(target, manifest, files | more)
        write_files(part, {**more, names.MANIFEST: manifest.to_bytes()}, target)
    return Bundle(target, manifest)


def _without_graphs(
    checkpoint: Checkpoint,
    folder: Path,
    texts: ExportTexts,
    settings: ExportSettings,
    log: Callable[[str], None],
    known: Known,
) -> tuple[Manifest, dict[str, FileContent]]:
    """Return the manifest and the files of a bundle that need no graph: tokenizer, facts of the texts, shortlist."""
    manifest = build_manifest(checkpoint, folder, settings)
    files: dict[str, FileContent] = {**checkpoint.tokenizer.files(), **read_attachments(settings.attachments)}
    target = folder / str(manifest.version)
    if manifest.languages is None:  # what is measured of texts is of one pair
        text, profiles = text_data([(pair.source, pair.target) for pair in texts.training], checkpoint.tokenizer)
        manifest, files = replace(manifest, text=text), files | ({names.PROFILES: profiles} if profiles else {})
    with_checksums(target, manifest, files)  # raises an error now that would come at the end
    if settings.shortlist is not None:
        shortlist = known.shortlist or build_shortlist(texts.training, checkpoint.tokenizer, settings.shortlist, log)
        files[names.SHORTLIST] = shortlist.to_bytes()
        coverage = measure_coverage(shortlist, texts.held_out, checkpoint.tokenizer)
        manifest = replace(manifest, shortlist={"coverage": asdict(coverage)})
    return manifest, files


def _log_short_text(held_out: Sequence[Pair], settings: ExportSettings, log: Callable[[str], None]) -> None:
    for compared, count in settings.gate_sentence_counts.items():
        if len(held_out) < count:
            log(f"held-out text: {len(held_out):,} sentences, not {count:,}, to compare {compared}")


def check_gate_device(gate_on: str) -> None:
    """Raise DeviceError if the gates must run on CUDA and cannot."""
    if gate_on == "cuda" and (missing := cuda_missing()):
        raise DeviceError(f"--gate-on cuda: {missing}")


def _verifier(
    checkpoint: Checkpoint,
    trial: Bundle,
    built: dict[str, BuiltGraphs],
    texts: ExportTexts,
    settings: ExportSettings,
    log: Callable[[str], None],
    known: Known,
) -> GatedBundle:
    """Return the gates of a bundle."""
    emulations = {name: each.emulation for name, each in built.items() if each.emulation is not None}
    runners = Runners(trial, [*trial.manifest.precisions])
    return GatedBundle(
        checkpoint, trial, runners, texts.held_out, settings, log, emulations, texts.others, known.greedy
    )


def _release(files: Mapping[str, FileContent]) -> None:
    """Give back the memory of mapped files. They are read again when they are needed."""
    for content in files.values():
        if isinstance(content, mmap):
            content.madvise(MADV_DONTNEED)


def _paths(built: BuiltGraphs) -> set[str]:
    return {*built.graphs, *(f"{names.WEIGHTS}/{file}" for file in built.reads)}


def _unread_files(paths: Mapping[str, set[str]], kept: Container[str]) -> set[str]:
    """Return the paths of the files that are of no precision that the bundle keeps; paths: of each precision."""
    return set().union(*paths.values()).difference(*(each for name, each in paths.items() if name in kept))


def _leave_out(paths: set[str], files: dict[str, FileContent], part: Path) -> None:
    """Delete files of a bundle, and folders that are empty then."""
    for path in paths:
        del files[path]
        (part / path).unlink()
        if not any((part / path).parent.iterdir()):
            (part / path).parent.rmdir()


def _confidence(
    gated: GatedBundle,
    tokenizer: Tokenizer,
    held_out: Sequence[Pair],
    settings: ExportSettings,
    log: Callable[[str], None],
) -> Confidence | None:
    """Fit the confidence to translations of held-out text, or None if there is too little, or no references."""
    if not all(pair.target for pair in held_out):
        log("no confidence: the held-out text has no references")
        return None
    search = TranslationSearch(gated.runners["fp32"], tokenizer, settings.beam_size, settings.length_penalty)
    try:
        return fit_confidence(search, [(pair.source, pair.target) for pair in held_out], (), log)
    except SettingsError as error:
        log(f"no confidence: {error}")
        return None


def _golden(gated: GatedBundle, held_out: Sequence[Pair], log: Callable[[str], None]) -> dict[str, bytes]:
    source = gated.checkpoint.config.data.source_language
    log("choosing golden sentences")
    here = gated.runners.only([name for name in gated.runners if PRECISION_KINDS[name].provider == CPU])
    golden = golden_sentences(gated.trial, here, [pair.source for pair in held_out], log, source=source)
    return {names.GOLDEN: golden.to_bytes()} if golden else {}


def _build_graphs(
    checkpoint: Checkpoint,
    training: Sequence[Pair],
    settings: ExportSettings,
    log: Callable[[str], None],
    known: Known,
    weights: WeightFiles,
    alignment: Alignment,
) -> dict[str, BuiltGraphs]:
    """Return the graphs of each precision. Their weights are added to `weights`; alignment: of the manifest."""
    model, sentences = checkpoint.model, known.sentences
    if settings.is_quantised and not sentences and known.ranges is None:
        sentences = calibration_sentences(checkpoint, training, settings.calibration_sentences)
    calibration = Calibration(sentences, known.ranges)
    built: dict[str, BuiltGraphs] = {}
    order = settings.build_order
    for number, name in enumerate(order, start=1):
        log(f"building {name}, {number} of {len(order)} precisions")
        kind = PRECISION_KINDS[name]
        if kind.provider == CUDA and not kind.scattered and not kind.native:
            _log_slow_heads(name, model.settings, log)
        listed = settings.shortlist is not None
        built[name] = build(model, name, weights, calibration, shortlist=listed, alignment=alignment)
        sizes = ", ".join(f"{file} {weights.size(file) / 1e6:.1f} MB" for file in built[name].reads)
        log(f"{name}: built, reads {sizes}")
    return built


def _log_slow_heads(precision: str, settings: ModelSettings, log: Callable[[str], None]) -> None:
    if not isinstance(settings, TransformerSettings) or settings.score != "scaled-dot":
        return
    if settings.head_dim not in FAST_HEADS:
        log(f"{precision}: heads have {settings.head_dim} dimensions; the fast attention of CUDA takes 64, 128 or 256")


def _unverified_manifest(
    manifest: Manifest, reads: dict[str, tuple[str, ...]], settings: ExportSettings, log: Callable[[str], None]
) -> Manifest:
    """Return the manifest for the gates, with every precision on the provider that its gate runs on."""
    missing = "--gate-on is cpu" if settings.gate_on == "cpu" else cuda_missing()
    precisions = {}
    for name, files in reads.items():
        provider = PRECISION_KINDS[name].provider
        lacking = missing or operators_missing(name)
        if provider == CUDA and lacking:
            log(f"{name}: the gate does not run: {lacking}")
            provider = CPU
        precisions[name] = Precision(provider, "being run", files)
    return replace(manifest, precisions=precisions)
