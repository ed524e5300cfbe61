"""Publishes the next version of a verified bundle: the same graphs, with the report in the manifest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingon.bundle import CARD, MANIFEST, PASSED, Bundle, Manifest, all_versions
from lingon.bundle.publish import publish_bundle, write_files
from lingon.errors import SettingsError
from lingon.serving.runtime.device import DeviceChoice, onnxruntime_version


def next_version(bundle: Bundle) -> Path:
    """Return the folder of the next version of a model. Raises SettingsError if none can be written."""
    folder, version = bundle.folder.absolute(), bundle.manifest.version
    if folder.name != str(version):
        raise SettingsError(f"--publish: {bundle.folder} is not the folder of version {version}; give NAME/{version}")
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        raise SettingsError(f"--publish: no permission to write in {folder.parent}")
    return bundle.folder.parent / str(max(all_versions(folder.parent)) + 1)


def publish_verified(bundle: Bundle, choice: DeviceChoice, report: dict[str, Any], target: Path) -> Bundle:
    """Write a bundle to the folder `target`, with `report` in the manifest, and return it.

    Every other file is the same byte for byte, but for the model card. Raises BundleError if it cannot be written.
    """
    entry = bundle.manifest.precisions[choice.precision]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"provider": choice.provider, "onnxruntime": onnxruntime_version(), "date": now, **report}
    verified = replace(entry, gate=PASSED, report={**entry.report, "verification": facts})
    precisions = {**bundle.manifest.precisions, choice.precision: verified}
    manifest = replace(bundle.manifest, version=int(target.name), created=now, precisions=precisions)
    with publish_bundle(target) as part:
        for name in bundle.manifest.checksums:
            content = bundle.read(name)
            if name == CARD:
                content = _card(content.decode(), bundle.manifest, manifest, choice).encode()
                sums = {**manifest.checksums, CARD: hashlib.sha256(content).hexdigest()}
                manifest = replace(manifest, checksums=sums)
            write_files(part, {name: content}, target)
        content = manifest.to_bytes()
        Manifest.from_bytes(content, target / MANIFEST)  # raises an error if a reader would refuse it
        write_files(part, {MANIFEST: content}, target)
    return Bundle(target, manifest)


def _card(text: str, old: Manifest, new: Manifest, choice: DeviceChoice) -> str:
    """Return the model card with the new version and a line about the verification."""
    title = f"# {old.name}, version {old.version}\n"
    if text.startswith(title):
        text = f"# {new.name}, version {new.version}\n" + text.removeprefix(title)
    return f"{text.rstrip()}\n- {choice.precision}: verified on {choice.provider} at {new.created}\n"
