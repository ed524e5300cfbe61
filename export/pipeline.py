"""From a checkpoint to a published bundle: build, prove, write. Nothing appears where the proof fails."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import onnxruntime as ort

from export.card import model_card
from export.golden import golden_sentences
from export.graph import WeightFiles
from export.precisions import KINDS, build, check_weights, weight_files
from export.proof import Proof
from export.shortlist import ShortlistSettings, build_shortlist, measure_coverage
from export.transformer import states
from lingon import bundle as names
from lingon.bundle import Alignment, Bundle, Defaults, Limits, Manifest, Precision, versions, write_bundle
from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD, UNK
from serving.onnx_runner import CPU
from training.checkpoint import Checkpoint
from training.corpus import Pair


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSettings:
    """What is exported, and what of it is declared."""

    precisions: tuple[str, ...] = tuple(KINDS)  # fp32 is always there: the others are measured against it
    shortlist: ShortlistSettings | None = field(default_factory=ShortlistSettings)
    shortlist_by_default: bool = False  # whether a request that does not say decodes with it
    beam_size: int = 4
    length_penalty: float = 1.0
    max_beam_size: int = 8
    output_factor: float = 2.0
    output_extra: int = 16
    alignment_layer: int | None = None  # the last but one where nothing is said
    parity_sentences: int = 500
    calibration_sentences: int = 500
    card: str = ""  # text of the model card's own part
    attachments: tuple[Path, ...] = ()  # files that go beside the card, such as its pictures

    def __post_init__(self) -> None:
        unknown = [name for name in self.precisions if name not in KINDS]
        if unknown:
            raise SettingsError(f"--precision must be of {', '.join(KINDS)}; got {','.join(self.precisions)}")
        if not 1 <= self.beam_size <= self.max_beam_size:
            raise SettingsError(f"--beam-size must be 1 to {self.max_beam_size}, got {self.beam_size}")
        if self.shortlist_by_default and self.shortlist is None:
            raise SettingsError("--shortlist-by-default needs --shortlist")

    @property
    def ordered(self) -> list[str]:
        """The precisions to build, fp32 first."""
        return [name for name in KINDS if name == "fp32" or name in self.precisions]

    @property
    def reads_training_text(self) -> bool:
        """Whether an export needs the text that the model has learned from."""
        return self.shortlist is not None or any(KINDS[name].quantised for name in self.precisions)


@dataclass(frozen=True, slots=True)
class Texts:
    """Real text that an export works with.

    held_out: what gates are run on; training: what the model has learned from, for ranges and the shortlist
    """

    held_out: Sequence[Pair]
    training: Sequence[Pair] = ()


def export_checkpoint(
    checkpoint: Checkpoint,
    folder: Path,
    texts: Texts,
    settings: ExportSettings,
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Publish the next version of a model below folder (models/NAME); returns it.

    Raises ParityError where a graph does not answer as the checkpoint, or lossy arithmetic costs too much, and
    CheckpointError where it has weights that no graph could hold.
    """
    check_weights(checkpoint, settings.ordered)
    checkpoint.model.to("cpu").eval()
    manifest = _manifest(checkpoint, folder, settings)
    files = dict(checkpoint.tokenizer.files()) | _attached(settings.attachments)
    if settings.shortlist is not None:
        shortlist = build_shortlist(texts.training, checkpoint.tokenizer, settings.shortlist, say)
        files[names.SHORTLIST] = shortlist.to_bytes()
        coverage = measure_coverage(shortlist, texts.held_out, checkpoint.tokenizer)
        manifest = replace(manifest, shortlist={"coverage": asdict(coverage)})
    built, reads = _build(checkpoint, texts.training, settings, say)
    files |= built
    with tempfile.TemporaryDirectory() as scratch:
        trial = write_bundle(Path(scratch) / "trial", _on_trial(manifest, reads), files)
        proof = Proof(checkpoint, trial, texts.held_out, settings.parity_sentences, settings.length_penalty, say)
        manifest = replace(manifest, precisions={name: proof.precision(name) for name in reads})
        if manifest.shortlist is not None:
            manifest = replace(manifest, shortlist=manifest.shortlist | proof.shortlist())
        here = [name for name in reads if KINDS[name].provider == CPU]
        golden = golden_sentences(trial, here, [pair.source for pair in texts.held_out], say)
    files[names.GOLDEN] = golden.to_bytes()
    files[names.CARD] = model_card(checkpoint, manifest, settings.card).encode()
    return write_bundle(folder / str(manifest.version), manifest, files)


def _build(
    checkpoint: Checkpoint, training: Sequence[Pair], settings: ExportSettings, say: Callable[[str], None]
) -> tuple[dict[str, bytes], dict[str, tuple[str, ...]]]:
    """Graph and weight files, and which weight files each precision reads."""
    tokenizer, weights = checkpoint.tokenizer, WeightFiles()
    calibration = [
        (tokenizer.encode_source(pair.source), tokenizer.encode_target(pair.target))
        for pair in _spread(training, settings.calibration_sentences)
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


def _on_trial(manifest: Manifest, reads: dict[str, tuple[str, ...]]) -> Manifest:
    """The manifest of a bundle that is yet to be proven, every precision on a provider that is here."""
    here = ort.get_available_providers()
    providers = {name: KINDS[name].provider if KINDS[name].provider in here else CPU for name in reads}
    return replace(
        manifest, precisions={name: Precision(providers[name], "being run", files) for name, files in reads.items()}
    )


def _attached(paths: Sequence[Path]) -> dict[str, bytes]:
    for path in paths:
        if path.suffix not in (".svg", ".png", ".md", ".txt"):
            raise SettingsError(f"--attach takes .svg, .png, .md and .txt files, got {path}")
    try:
        return {path.name: path.read_bytes() for path in paths if path.name != names.CARD}
    except OSError as error:
        raise SettingsError(f"--attach {error.filename}: {error.strerror}") from None


def _manifest(checkpoint: Checkpoint, folder: Path, settings: ExportSettings) -> Manifest:
    model, tokenizer, data = checkpoint.model, checkpoint.tokenizer, checkpoint.config.data
    positions, layers = model.settings.max_positions, model.settings.decoder_layers
    layer = max(layers - 2, 0) if settings.alignment_layer is None else settings.alignment_layer
    if not 0 <= layer < layers:
        raise SettingsError(f"--alignment-layer must be 0 to {layers - 1}, got {layer}")
    found = versions(folder)
    return Manifest(
        name=folder.name,
        version=(found[-1] if found else 0) + 1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language=data.source_language,
        target_language=data.target_language,
        architecture="transformer",
        source_vocab=tokenizer.source_vocab,
        target_vocab=tokenizer.target_vocab,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(
            max_source_tokens=min(data.max_tokens, positions),
            max_target_tokens=positions,
            output_factor=settings.output_factor,
            output_extra=settings.output_extra,
            max_beam_size=settings.max_beam_size,
        ),
        defaults=Defaults(
            beam_size=settings.beam_size,
            length_penalty=settings.length_penalty,
            shortlist=settings.shortlist_by_default,
        ),
        candidates=min(2 * settings.max_beam_size, tokenizer.target_vocab),
        states=states(model),
        precisions={},
        alignment=Alignment(layer, tuple(range(model.settings.heads))),
    )
