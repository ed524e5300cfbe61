"""MODEL_CARD.md: the training data, the settings, the limits and the gates of a model."""

from __future__ import annotations

from lingon.bundle import Manifest
from lingon.export.graphs.precisions import transformer_of
from lingon.training.checkpoint import Checkpoint


def model_card(checkpoint: Checkpoint, manifest: Manifest, text: str = "") -> str:
    """Return the card; text: its own part, such as attribution and scores on test sets."""
    config, progress = checkpoint.config, checkpoint.progress
    model, training = transformer_of(checkpoint).settings, config.training
    weights = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    corpora = sorted({path.name for corpus in config.data.train for path in corpus.files()})
    valid = ", ".join(path.name for path in config.data.valid.files())
    kind = f"{config.tokenizer.kind} pieces, {'joint' if config.tokenizer.joint else 'separate'}"
    limits = manifest.limits
    lines = [
        f"# {manifest.name}, version {manifest.version}",
        "",
        f"A Transformer that translates {manifest.source_language} to {manifest.target_language}.",
        "",
        text.strip(),
        "",
        "## Training",
        "",
        f"- training text: {', '.join(corpora)}; validation text: {valid}",
        f"- {weights:,} weights: {model.encoder_layers} encoder and {model.decoder_layers} decoder layers, width "
        f"{model.dim}, {model.heads} heads, feed-forward {model.ffn}, {model.norm}-norm, {model.activation}, dropout "
        f"{model.dropout}, embeddings tied: {model.tie}",
        f"- {manifest.target_vocab:,} {kind}",
        f"- {progress.step:,} updates of {training.accumulate} x {training.batch_tokens:,} tokens, "
        f"{progress.target_tokens:,} target tokens in {progress.seconds / 3600:.2f} hours",
        f"- peak learning rate {training.learning_rate}, {training.warmup_steps} warm-up and {training.cooldown_steps} "
        f"cool-down updates, label smoothing {training.label_smoothing}, {training.precision} products",
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
    ]
    return "\n".join(lines).replace("\n\n\n\n", "\n\n") + "\n"
