"""MODEL_CARD.md: the training data, the settings, the limits and the gates of a model."""

from __future__ import annotations

from collections.abc import Mapping

from lingon.bundle.manifest import Manifest
from lingon.errors import first_of
from lingon.export.text_data import card_section
from lingon.training.checkpoint import Checkpoint, TrainingProgress
from lingon.training.config import Config, OriginSettings, pair_name
from lingon.training.model_settings import (
    LuongSettings,
    ModelSettings,
    RecurrentSettings,
    RnnencSettings,
    RnnsearchSettings,
    TransformerSettings,
)

MOST_SHOWN = 20  # pairs of languages in a line


def model_card(checkpoint: Checkpoint, manifest: Manifest, text: str = "") -> str:
    """Return the card; text: its own part, such as attribution and scores on test sets."""
    config, model = checkpoint.config, checkpoint.model.settings
    system, sizes = _described(model)
    weights = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    kind = f"{config.tokenizer.kind} pieces, {'joint' if config.tokenizer.joint else 'separate'}"
    limits, pair = manifest.limits, f"{manifest.source_language} to {manifest.target_language}"
    lines = [
        f"# {manifest.name}, version {manifest.version}",
        "",
        f"{system} that translates {manifest.languages or pair}.",
        "",
        text.strip(),
        "",
        *_history(config, checkpoint.progress),
        "",
        "## Model",
        "",
        f"- {weights:,} weights: {sizes}, embeddings tied: {model.tie}",
        f"- {manifest.target_vocab:,} {kind}",
        "",
        "## Limits",
        "",
        f"- at most {limits.max_source_tokens} source tokens; output at most {limits.output_factor:g} "
        f"x source tokens + {limits.output_extra}",
        "- other kinds of text than the training text may be translated wrongly, with high scores",
        "",
        "## Gates at export",
        "",
        *(f"- {name} ({precision.provider}): gate {precision.gate}" for name, precision in manifest.precisions.items()),
        *(("", card_section(manifest.text).rstrip()) if manifest.text is not None else ()),
    ]
    return "\n".join(lines).replace("\n\n\n\n", "\n\n") + "\n"


def _history(config: Config, progress: TrainingProgress) -> list[str]:
    """Return the sections on where a model was imported from and how it was trained. An imported one may have both."""
    sections = [_origin(config.origin)] if config.origin is not None else []
    if config.data.train:
        sections.append(_training(config, progress))
    return [line for section in sections for line in ("", *section)][1:]


def _origin(origin: OriginSettings) -> list[str]:
    stated = origin.licence or "its files state none"
    published = [f"- published as {origin.source}"] if origin.source else []
    scores = [f"- its publisher's scores: {_scores(origin.scores)}"] if origin.scores else []
    files = (f"- `{name}`, SHA-256 {digest}" for name, digest in origin.files.items())
    return ["## Origin", "", f"- imported: {origin.form}", *published, f"- licence: {stated}", *scores, *files]


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in scores.items())


def _training(config: Config, progress: TrainingProgress) -> list[str]:
    training = config.training
    corpora = sorted({path.name for corpus in config.data.train for path in corpus.files()})
    valid = ", ".join(dict.fromkeys(path.name for corpus in config.data.valid for path in corpus.files()))
    trained, languages = first_of([*map(pair_name, config.data.trained)], MOST_SHOWN), config.languages
    pairs = [f"- pairs of languages in the training text: {trained}, of {len(languages.pairs):,}"] if languages else []
    told = config.data.terms
    terms = [] if told is None else [f"- annotated with terms: {told.share:.1%} of the pairs with word alignments"]
    return [
        "## Training",
        "",
        f"- training text: {', '.join(corpora)}; validation text: {valid}",
        *pairs,
        *terms,
        f"- {progress.step:,} updates of {training.accumulate} x {training.batch_tokens:,} tokens, "
        f"{progress.target_tokens:,} target tokens in {progress.seconds / 3600:.2f} hours",
        f"- peak learning rate {training.learning_rate}, {training.warmup_steps} warm-up and {training.cooldown_steps} "
        f"cool-down updates, dropout {config.model.dropout}, label smoothing {training.label_smoothing}, "
        f"{training.precision} products",
    ]


def _described(model: ModelSettings) -> tuple[str, str]:
    """Return the name of a system with its article, and its sizes."""
    match model:
        case TransformerSettings():
            return "A Transformer", (
                f"{model.encoder_layers} encoder and {model.decoder_layers} decoder layers, width {model.dim}, "
                f"{model.heads} heads, feed-forward {model.ffn}, {model.norm}-norm, {model.activation}"
            )
        case RnnencSettings():
            order = ", source reversed" if model.reverse_source else ""
            layers = f"{model.layers} encoder and {model.layers} decoder layers"
            return "An RNNenc (no attention)", f"{layers} of {_cells(model)}{order}"
        case RnnsearchSettings():
            encoder = f"two encoder directions of width {model.encoder_dim}"
            return "An RNNsearch", f"{encoder}, a decoder layer of {_cells(model)}, {model.score} attention"
        case LuongSettings():
            layers = f"{model.layers} encoder and {model.layers} decoder layers"
            feeding = "with" if model.input_feeding else "without"
            attention = f"{model.alignment} {model.score} attention, {feeding} input feeding"
            return "A system of Luong et al. (2015)", f"{layers} of {_cells(model)}, {attention}"
    raise AssertionError(f"settings without a description: {type(model).__name__}")


def _cells(model: RecurrentSettings) -> str:
    return f"{model.cell.upper()} cells of width {model.dim}"
