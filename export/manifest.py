"""What a bundle will build_manifest of itself, refused before anything is built where it could not be published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lingon import bundle as names
from lingon.bundle import Alignment, Defaults, FileName, Limits, Manifest, Name, versions
from lingon.errors import SettingsError
from lingon.export.graphs.transformer import states
from lingon.export.settings import ExportSettings, check_rule
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.checkpoint import Checkpoint

ATTACHMENT_SUFFIXES = (".svg", ".png", ".md", ".txt")


def build_manifest(checkpoint: Checkpoint, folder: Path, settings: ExportSettings) -> Manifest:
    """The manifest of the next version below folder, without what is found out as it is built and proven.

    Raises SettingsError where folder cannot have one, or a setting does not fit the model.
    """
    model, tokenizer, data = checkpoint.model, checkpoint.tokenizer, checkpoint.config.data
    positions, layers = model.settings.max_positions, model.settings.decoder_layers
    layer = max(layers - 2, 0) if settings.alignment_layer is None else settings.alignment_layer
    if not 0 <= layer < layers:
        raise SettingsError(f"--alignment-layer must be 0 to {layers - 1}, got {layer}")
    name = folder.absolute().name
    check_rule(Name, name, f"{folder}: the name of the model")
    _check_writable(folder)
    found = versions(folder)
    return Manifest(
        name=name,
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


def read_attachments(paths: Sequence[Path]) -> dict[str, bytes]:
    """The content of files that go beside the card, by name; raises SettingsError where one cannot."""
    known: dict[str, Path] = {}
    for path in paths:
        if path.suffix not in ATTACHMENT_SUFFIXES:
            raise SettingsError(f"--attach takes {', '.join(ATTACHMENT_SUFFIXES)} files, got {path}")
        check_rule(FileName, path.name, f"--attach {path}: its name")
        if path.name == names.CARD:
            raise SettingsError(f"--attach {path}: {names.CARD} is written by the export; --card gives its own part")
        if path.name in known:
            raise SettingsError(f"--attach {known[path.name]} and {path}: a bundle has room for one of a name")
        known[path.name] = path
    try:
        return {name: path.read_bytes() for name, path in known.items()}
    except OSError as error:
        raise SettingsError(f"--attach {error.filename}: {error.strerror}") from None


def _check_writable(folder: Path) -> None:
    """Raise SettingsError where no version can be written below folder."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise SettingsError(f"{folder}: cannot be written below: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SettingsError(f"{folder}: cannot be written below: {there} may not be changed")
