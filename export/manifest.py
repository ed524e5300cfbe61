"""The manifest of a bundle, made before the graphs, so that a bundle that cannot be published fails early."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lingon.bundle import names
from lingon.bundle.manifest import Alignment, BundleName, Defaults, FileName, Limits, Manifest, Origin
from lingon.bundle.store import all_versions, bundles_below, is_bundle, versions
from lingon.errors import SettingsError
from lingon.export.graphs.card import operators_lack
from lingon.export.graphs.precisions import precisions_of, states_of
from lingon.export.settings import ExportSettings, check_rule
from lingon.serving.runtime.device import FP16_NATIVE
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.checkpoint import Checkpoint
from lingon.training.config import Config
from lingon.training.model_settings import ModelSettings, TransformerSettings, default_layer
from lingon.training.models.interface import AnyModel

MOST_CHARACTERS = 500  # of a line of text in a manifest
ATTACHMENT_SUFFIXES = (".svg", ".png", ".md", ".txt")


def build_manifest(checkpoint: Checkpoint, folder: Path, settings: ExportSettings) -> Manifest:
    """Return the manifest of the next version below folder, without the results of building and of the gates.

    Raises SettingsError if folder cannot have a version, or a setting does not fit the model.
    """
    model, tokenizer, data = checkpoint.model, checkpoint.tokenizer, checkpoint.config.data
    check_precisions(model, settings)
    alignment = _alignment(checkpoint.config, settings)
    settings_of_languages = checkpoint.config.languages
    languages = None if settings_of_languages is None else settings_of_languages.resolve(tokenizer)
    source, target = languages.pair if languages else (data.source_language, data.target_language)
    check_folder(folder)
    found = all_versions(folder)  # also those that are being copied
    return Manifest(
        name=folder.absolute().name,
        version=(found[-1] if found else 0) + 1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language=source,
        target_language=target,
        architecture=model.settings.kind,
        source_vocab=tokenizer.source_vocab,
        target_vocab=tokenizer.target_vocab,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(
            max_source_tokens=checkpoint.config.max_source_tokens,
            max_target_tokens=model.settings.max_positions,
            output_factor=settings.output_factor,
            output_extra=settings.output_extra,
            max_beam_size=settings.largest_beam,
        ),
        defaults=Defaults(
            beam_size=settings.beam_size,
            length_penalty=settings.length_penalty,
            shortlist=settings.shortlist_by_default,
        ),
        candidates=min(2 * settings.largest_beam, tokenizer.target_vocab),
        states=states_of(model),
        precisions={},
        alignment=alignment,
        languages=languages,
        source_end=tokenizer.source_end,
        origin=_origin(checkpoint.config),
        terms=data.terms.form if data.terms is not None else None,
    )


def _origin(config: Config) -> Origin | None:
    """Return where an imported model comes from, cut to what a manifest holds."""
    if config.origin is None:
        return None
    said = config.origin
    return Origin(_one_line(said.source or said.form), _one_line(said.licence), dict(said.scores))


def _one_line(text: str) -> str:
    """Return a text of a file from elsewhere as a TextLine."""
    return "".join(filter(str.isprintable, " ".join(text.split())))[:MOST_CHARACTERS]


def check_folder(folder: Path) -> None:
    """Raise SettingsError if no version of a model can be written below folder, which is models/NAME."""
    whole = folder.absolute()
    check_rule(BundleName, whole.name, f"{folder}: the name of the model")
    version = next((each for each in (whole, *whole.parents) if os.path.lexists(each / names.MANIFEST)), None)
    if version is None and re.fullmatch(r"\d+", whole.name) and versions(whole.parent):
        version = whole
    if version is not None:
        raise SettingsError(
            f"{folder}: {version} is for a version of a model, whose files never change; name the folder of the model, "
            f"{version.parent}: the next version is written below it"
        )
    inner = bundles_below(folder)[0] if folder.is_dir() and not is_bundle(folder) else []
    if model := next(filter(versions, inner), None):
        raise SettingsError(
            f"{folder}: is a folder of models, such as {model.name}, which a server would not find beside a version; "
            f"name the folder of the model, {folder / 'NAME'}"
        )
    _check_writable(folder)


def check_precisions(model: AnyModel, settings: ExportSettings) -> None:
    """Raise SettingsError if a precision is not possible for the kind of model."""
    sizes, asked = model.settings, FP16_NATIVE in settings.precisions
    if asked and isinstance(sizes, TransformerSettings) and (lack := operators_lack(sizes, settings.largest_beam)):
        raise SettingsError(f"--precision fp16-native: its operators do not compute this model: {lack}")
    possible = precisions_of(model)
    missing = [name for name in settings.build_order if name not in possible]
    if missing:
        raise SettingsError(
            f"--precision for model.kind = '{model.settings.kind}' must be some of {', '.join(possible)}, "
            f"got {','.join(settings.precisions)}"
        )


def _alignment(config: Config, settings: ExportSettings) -> Alignment:
    """Return the heads that give alignments, or none without attention.

    They are those of the settings, else those that training guided, else all of the last decoder layer but one (Garg et
    al., 2019), and of the last one if there are two: on two models with two decoder layers its alignment error rate was
    0.38 and 0.62, where the first layer had 0.51 and more.
    """
    _check_alignment(config.model, settings)
    layers, heads = config.model.attention_sizes
    if not layers:
        return Alignment(0, ())
    guided = config.guided if config.training.guided_alignment else None
    layer = settings.alignment_layer
    if layer is None:
        layer = guided[0] if guided else (default_layer(config.model) if layers > 2 else layers - 1)
    if settings.alignment_heads is not None:
        return Alignment(layer, settings.alignment_heads)
    return Alignment(layer, guided[1] if guided and guided[0] == layer else tuple(range(heads)))


def _check_alignment(model: ModelSettings, settings: ExportSettings) -> None:
    """Raise SettingsError if the model has not the layer or the heads of the settings."""
    layers, heads = model.attention_sizes
    chosen = [("--alignment-layer", settings.alignment_layer, layers)]
    chosen += [("--alignment-head", head, heads) for head in settings.alignment_heads or ()]
    for option, value, bound in chosen:
        if value is None:
            continue
        if not bound:
            raise SettingsError(f"{option}: model.kind = '{model.kind}' has no attention, got {value}")
        if not 0 <= value < bound:
            raise SettingsError(f"{option} must be 0 to {bound - 1}, got {value}")


def read_attachments(paths: Sequence[Path]) -> dict[str, bytes]:
    """Read the files to publish with the card, by name. Raise SettingsError if one is not allowed or not readable."""
    known: dict[str, Path] = {}
    for path in paths:
        if path.suffix not in ATTACHMENT_SUFFIXES:
            raise SettingsError(f"--attach must be a file with the suffix {', '.join(ATTACHMENT_SUFFIXES)}, got {path}")
        check_rule(FileName, path.name, f"--attach {path}: its name")
        if path.name == names.CARD:
            raise SettingsError(f"--attach {path}: the export writes {names.CARD}; use --card for its own text")
        if path.name in known:
            raise SettingsError(f"--attach {known[path.name]} and {path}: a bundle has one file of a name; rename one")
        known[path.name] = path
    try:
        return {name: path.read_bytes() for name, path in known.items()}
    except OSError as error:
        raise SettingsError(f"--attach {error.filename}: {error.strerror}") from None


def _check_writable(folder: Path) -> None:
    """Raise SettingsError if no version can be written below folder."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise SettingsError(f"{folder}: cannot write below it: {existing} is no folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SettingsError(f"{folder}: cannot write below it: no permission to write in {existing}")
