"""What works on this machine and why not: `lingon doctor`. Runs in the barest install."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from lingon.bundle import PASSED, is_bundle, open_bundle
from lingon.errors import BundleError
from lingon.serving.runtime.device import available_providers, cuda_missing
from lingon.serving.system.cpu import granted_cores, usable_cores

VERSIONS = ("lingon", "grpcio", "protobuf", "numpy", "onnxruntime", "onnxruntime-gpu", "sentencepiece", "torch")


def examine(paths: Iterable[Path]) -> dict[str, Any]:
    """All findings, ready for JSON; paths: where bundles are looked for."""
    models = [finding for path in paths for finding in _models(path)]
    extras = _extras()
    runs = available_providers() and not (extras.get("serve") and extras.get("gpu"))
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in VERSIONS},
        "cores": {"machine": os.cpu_count(), "cgroup": granted_cores(), "usable": usable_cores()},
        "providers": available_providers(),
        "cuda": f"not usable: {missing}" if (missing := cuda_missing()) else "usable",
        "extras": {name: missing or "installed" for name, missing in extras.items()},
        "models": models,
        "can_serve": bool(runs and models and all(model["problem"] is None for model in models)),
    }


def report(findings: dict[str, Any]) -> str:
    """The findings for people."""
    lines = [f"{name} {number or 'not installed'}" for name, number in findings["versions"].items()]
    cores = findings["cores"]
    granted = "no limit" if cores["cgroup"] is None else f"a limit of {cores['cgroup']:g}"
    lines.append(f"cores: {cores['usable']} usable of {cores['machine']}; the cgroup sets {granted}")
    lines.append(f"onnxruntime providers: {', '.join(findings['providers']) or 'none'}")
    lines.append(f"CUDA: {findings['cuda']}")
    for name, state in findings["extras"].items():
        lines.append(f"extra {name}: {state if isinstance(state, str) else 'lacks ' + ', '.join(state)}")
    for model in findings["models"]:
        lines.append(
            f"model {model['path']}: {model['problem'] or model['label'] + ' is intact, ' + model['precisions']}"
        )
    if not findings["models"]:
        lines.append("models: none found; make one with: lingon export CHECKPOINT models/NAME")
    lines.append("all that `lingon serve` needs is here" if findings["can_serve"] else "`lingon serve` cannot start")
    return "\n".join(lines)


def _models(path: Path) -> list[dict[str, Any]]:
    if is_bundle(path):
        return [_model(path)]
    if not path.is_dir():
        return [{"path": str(path), "label": None, "precisions": None, "problem": f"{path}: no such folder"}]
    return [_model(child) for child in sorted(path.iterdir()) if child.is_dir() and is_bundle(child)]


def _model(path: Path) -> dict[str, Any]:
    try:
        bundle = open_bundle(path)
        bundle.verify()
    except BundleError as error:
        return {"path": str(path), "label": None, "precisions": None, "problem": str(error)}
    precisions = ", ".join(
        f"{name} ({entry.provider}{'' if entry.gate == PASSED else f', gate {entry.gate}'})"
        for name, entry in bundle.manifest.precisions.items()
    )
    return {"path": str(path), "label": bundle.label, "precisions": precisions, "problem": None}


def _extras() -> dict[str, list[str]]:
    return lacking(metadata.requires("lingon") or [], _version)


def lacking(requirements: Iterable[str], version: Callable[[str], str | None]) -> dict[str, list[str]]:
    """The packages that each extra lacks here, those of an extra within it too.

    requirements: as metadata has them, such as `onnx>=1.20; extra == "export"` and `lingon[train]; extra == "export"`
    version: of an installed package, or None
    """
    packages: dict[str, list[str]] = {}
    within: dict[str, list[str]] = {}
    for requirement in requirements:
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", requirement)
        name = re.match(r"([\w.-]+)(?:\[([\w,\s-]+)\])?", requirement)
        if extra and name:
            own = name[1] == "lingon" and name[2]
            packages.setdefault(extra[1], []).extend([] if own else [name[1]])
            within.setdefault(extra[1], []).extend(re.findall(r"[\w-]+", name[2]) if own else [])

    def missing(extra: str, above: tuple[str, ...] = ()) -> list[str]:
        found = [name for name in packages.get(extra, []) if version(name) is None]
        for inner in within.get(extra, []):
            found += missing(inner, (*above, extra)) if inner not in above else []
        return list(dict.fromkeys(found))

    return {extra: missing(extra) for extra in packages}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
