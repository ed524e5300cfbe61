"""From a checkpoint to a published bundle: build, check_golden, write. Nothing appears where the proof fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from lingon import bundle as names
from lingon.bundle import Bundle, Manifest, Precision, with_checksums
from lingon.bundle.publish import publish_bundle, write_files
from lingon.export.gates.golden import golden_sentences
from lingon.export.gates.verifier import Proof
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import KINDS, build, check_weights, weight_files
from lingon.export.manifest import attached, declare
from lingon.export.model_card import model_card
from lingon.export.settings import ExportSettings, Texts
from lingon.export.shortlist.build import build_shortlist
from lingon.export.shortlist.coverage import measure_coverage
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.batches import fitting
from lingon.training.data.corpus import Pair


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    texts: Texts,
    settings: ExportSettings,
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Publish the next version of a model below folder (models/NAME); returns it.

    It is built and proven in a hidden folder beside the place where it will be, so that it is written once.
    Raises ParityError where a graph does not answer as the checkpoint, or lossy arithmetic costs too much, and
    CheckpointError where it has weights that no graph could hold.
    """
    check_weights(checkpoint, settings.ordered)
    checkpoint.model.to("cpu").eval()
    manifest = declare(checkpoint, folder, settings)
    files = dict(checkpoint.tokenizer.files()) | attached(settings.attachments)
    target = folder / str(manifest.version)
    with_checksums(target, manifest, files)  # what would be refused in the end is refused now
    if settings.shortlist is not None:
        shortlist = build_shortlist(texts.training, checkpoint.tokenizer, settings.shortlist, say)
        files[names.SHORTLIST] = shortlist.to_bytes()
        coverage = measure_coverage(shortlist, texts.held_out, checkpoint.tokenizer)
        manifest = replace(manifest, shortlist={"coverage": asdict(coverage)})
    for what, wanted in settings.compared.items():
        if len(texts.held_out) < wanted:
            say(f"held-out text: {len(texts.held_out):,} sentences, not {wanted:,}, to compare {what} on")
    built, reads = _build(checkpoint, texts.training, settings, say)
    files |= built
    with publish_bundle(target) as part:
        write_files(part, files, target)
        trial = Bundle(part, with_checksums(part, _on_trial(manifest, reads, say), files))
        proof = Proof(checkpoint, trial, _runners(trial), texts.held_out, settings, say)
        manifest = replace(manifest, precisions={name: proof.precision(name) for name in reads})
        if manifest.shortlist is not None:
            manifest = replace(manifest, shortlist=manifest.shortlist | proof.shortlist())
        more = _golden(proof, texts.held_out, say)
        more[names.CARD] = model_card(checkpoint, manifest, settings.card).encode()
        manifest = with_checksums(target, manifest, files | more)
        write_files(part, {**more, names.MANIFEST: manifest.to_bytes()}, target)
    return Bundle(target, manifest)


def _runners(trial: Bundle) -> dict[str, OnnxRunner]:
    """The graphs of every precision as a server would load them, or refuse them."""
    runners = {name: load_runner(trial, name, threads=0) for name in trial.manifest.precisions}
    for name, runner in runners.items():
        check_bundle(trial, name, runner)
    return runners


def _golden(proof: Proof, held_out: Sequence[Pair], say: Callable[[str], None]) -> dict[str, bytes]:
    here = {name: runner for name, runner in proof.runners.items() if KINDS[name].provider == CPU}
    golden = golden_sentences(proof.trial, here, [pair.source for pair in held_out], say)
    return {names.GOLDEN: golden.to_bytes()} if golden else {}


def _build(
    checkpoint: Checkpoint, training: Sequence[Pair], settings: ExportSettings, say: Callable[[str], None]
) -> tuple[dict[str, bytes], dict[str, tuple[str, ...]]]:
    """Graph and weight files, and which weight files each precision reads."""
    tokenizer, weights = checkpoint.tokenizer, WeightFiles()
    some = _spread(training, settings.calibration_sentences)
    calibration = [
        (tokenizer.encode_source(pair.source), tokenizer.encode_target(pair.target))
        for pair in (fitting(some, tokenizer, checkpoint.config.data.max_tokens) if some else [])
    ]
    files: dict[str, bytes] = {}
    reads: dict[str, tuple[str, ...]] = {}
    for name in settings.ordered:
        built = build(checkpoint.model, name, weights, calibration, shortlist=settings.shortlist is not None)
        files |= built.graphs
        reads[name] = built.reads
        sizes = ", ".join(f"{file} {weights.size(file) / 1e6:.1f} MB" for file in built.reads)
        say(f"{name}: built, reads {sizes}")
    return files | weight_files(weights), reads


def _spread(pairs: Sequence[Pair], count: int) -> Sequence[Pair]:
    """At most `count` pairs from all over the text."""
    return pairs[:: max(len(pairs) // count, 1)][:count]


def _on_trial(manifest: Manifest, reads: dict[str, tuple[str, ...]], say: Callable[[str], None]) -> Manifest:
    """The manifest of a bundle that is yet to be proven, every precision on a provider that is here."""
    precisions = {}
    for name, files in reads.items():
        provider = KINDS[name].provider
        if provider == CUDA and (missing := cuda_missing()):
            say(f"{name}: its gate is not run: {missing}")
            provider = CPU
        precisions[name] = Precision(provider, "being run", files)
    return replace(manifest, precisions=precisions)
