"""`lingon doctor`: reports what works on this machine, what does not, and why. Needs the base install only."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from lingon.bundle.manifest import PASSED
from lingon.bundle.store import Bundle, bundles_below, find_model, is_bundle, use_highest_whole
from lingon.errors import BundleError, first_of
from lingon.extras import install_command, linux_missing
from lingon.machine import granted_cores, usable_cores
from lingon.serving.runtime.device import (
    FP16_NATIVE,
    available_providers,
    cuda_missing,
    instruction_set,
    kernels_missing,
    operators_missing,
)

FOR_DEVELOPERS = ("dev", "docs")  # extras for changes of Lingon itself; only the JSON output has them
MOST_NAMED = 10  # packages in the line of an extra

VERSIONS = ("lingon", "grpcio", "protobuf", "numpy", "onnxruntime", "onnxruntime-gpu", "sentencepiece", "torch")


def examine(paths: Iterable[Path]) -> dict[str, Any]:
    """Return all findings as values for JSON; paths: bundles or folders of bundles."""
    models = [finding for path in paths for finding in _models(path)]
    labels = Counter(model["label"] for model in models if model["problem"] is None)
    for model in models:
        if (count := labels[model["label"]]) > 1:
            model["problem"] = f"{model['label']} is given {count} times; give each version once"
    extras = lacking(metadata.requires("lingon") or [], _version)
    has_runtime = available_providers() and not (extras.get("serve") and extras.get("gpu"))
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in VERSIONS},
        "system": f"not usable: a server needs Linux, and {missing}" if (missing := linux_missing()) else "Linux",
        "cores": {"machine": os.cpu_count(), "cgroup": granted_cores(), "usable": usable_cores()},
        "providers": available_providers(),
        "cuda": f"not usable: {missing}" if (missing := cuda_missing()) else "usable",
        "native_operators": f"not usable: {missing}" if (missing := kernels_missing()) else instruction_set(),
        "native_operators_cuda": f"not usable: {missing}" if (missing := operators_missing(FP16_NATIVE)) else "usable",
        "extras": {name: missing or "installed" for name, missing in extras.items()},
        "models": models,
        "can_serve": bool(
            not linux_missing() and has_runtime and models and all(model["problem"] is None for model in models)
        ),
    }


def report(findings: dict[str, Any]) -> str:
    """Return the findings as lines of text."""
    versions = findings["versions"]
    installed = [f"{name} {number}" for name, number in versions.items() if number]
    cores = findings["cores"]
    limit = "no cgroup limit" if cores["cgroup"] is None else f"cgroup limit {cores['cgroup']:g}"
    lines = [
        f"versions: {', '.join(installed)}",
        f"not installed: {', '.join(name for name, number in versions.items() if not number) or 'nothing'}",
        f"system: {findings['system']}",
        f"CPU: {cores['usable']} of {cores['machine']} cores usable, {limit}",
        f"ONNX Runtime providers: {', '.join(findings['providers']) or 'none'}",
        f"GPU (CUDA): {findings['cuda']}",
        f"native operators: {findings['native_operators']}",
        f"native operators for CUDA: {findings['native_operators_cuda']}",
    ]
    lines += [_extra_line(name, state) for name, state in findings["extras"].items() if name not in FOR_DEVELOPERS]
    for model in findings["models"]:
        checked = f"{model['label']}, all checksums match; precisions: {model['precisions']}"
        problem = model["problem"] and f"cannot be served: {model['problem']}"
        lines.append(f"model {model['path']}: {problem or checked}")
        lines += [f"model {model['path']}: left out, not whole: {reason}" for reason in model["left_out"]]
    if not findings["models"]:
        lines.append("model: none found; get one with: lingon models get en-de")
    lines.append(f"result: `lingon serve` {'can start' if findings['can_serve'] else 'cannot start, see above'}")
    return "\n".join(lines)


def _extra_line(name: str, state: str | list[str]) -> str:
    if isinstance(state, str):
        return f"extra {name}: {state}"
    return f"extra {name}: missing {first_of(state, MOST_NAMED)}: {install_command(name)}"


def _models(path: Path) -> list[dict[str, Any]]:
    try:
        path = find_model(path)
    except BundleError as error:
        return [_unusable(path, str(error))]
    if is_bundle(path):
        return [_model(path)]
    found, _ = bundles_below(path)
    return list(map(_model, found)) or [_unusable(path, f"{path}: no bundle is here or one folder below")]


def _model(path: Path) -> dict[str, Any]:
    left_out: list[str] = []
    try:
        bundle = use_highest_whole(path, _verified, lambda error: left_out.append(str(error)))
    except BundleError as error:
        return _unusable(path, str(error))
    precisions = ", ".join(
        f"{name} ({entry.provider}{'' if entry.gate == PASSED else f', gate {entry.gate}'})"
        for name, entry in bundle.manifest.precisions.items()
    )
    found = {"path": str(path), "label": bundle.label, "precisions": precisions}
    return {**found, "problem": None, "left_out": left_out}


def _verified(bundle: Bundle) -> Bundle:
    bundle.verify()
    return bundle


def _unusable(path: Path, problem: str) -> dict[str, Any]:
    return {"path": str(path), "label": None, "precisions": None, "problem": problem, "left_out": []}


def lacking(requirements: Iterable[str], version: Callable[[str], str | None]) -> dict[str, list[str]]:
    """Return the packages of each extra, and of the extras that it includes, that are not installed.

    requirements: in the form of package metadata: `onnx>=1.20; extra == "export"`, `lingon[train]; extra == "export"`
    version: returns the version of an installed package, or None
    """
    packages: dict[str, list[str]] = {}
    included: dict[str, list[str]] = {}
    for requirement in requirements:
        extra = re.search(r"""extra == ['"]([\w-]+)['"]""", requirement)
        name = re.match(r"([\w.-]+)(?:\[([\w,\s-]+)\])?", requirement)
        if extra and name:
            own = name[1] == "lingon" and name[2]
            packages.setdefault(extra[1], []).extend([] if own else [name[1]])
            included.setdefault(extra[1], []).extend(re.findall(r"[\w-]+", name[2]) if own else [])

    def missing(extra: str, above: tuple[str, ...] = ()) -> list[str]:
        found = [name for name in packages.get(extra, []) if version(name) is None]
        for inner in included.get(extra, []):
            found += missing(inner, (*above, extra)) if inner not in above else []
        return list(dict.fromkeys(found))

    return {extra: missing(extra) for extra in packages}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
