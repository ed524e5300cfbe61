"""How much memory a server holds, beside what it may hold: twice its graphs, its stated caches, and 150 MB."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

from lingon.bench.serve.plan import OURS, Plan
from lingon.bench.serve.processes import Server
from lingon.bundle import WEIGHTS, Bundle

REST = 150.0  # megabytes for Python, gRPC and ONNX Runtime
CACHES = "lingon_state_bytes"  # the gauge in which a server states its buffers for states


def bound(graphs_mb: float, caches_mb: float) -> float:
    """The resident megabytes that a server may come to."""
    return 2 * graphs_mb + caches_mb + REST


def loaded_mb(bundle: Bundle, precision: str) -> float:
    """Megabytes of the files that a server reads for a precision."""
    graphs = [name for name in bundle.manifest.checksums if name.startswith(f"{precision}/")]
    weights = [f"{WEIGHTS}/{name}" for name in bundle.manifest.precisions[precision].weights]
    return sum((bundle.folder / name).stat().st_size for name in graphs + weights) / 1e6


def stated(metrics: str, name: str) -> float | None:
    """The sum of a gauge over its series, from the text of /metrics; None where there is no such gauge."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values)) if values else None


def memory_row(plan: Plan, name: str, server: Server, beam_size: int) -> dict[str, Any]:
    """What a server holds after the loads of a beam size; of ours also the bound."""
    row = {"kind": "memory", "system": name, "beam_size": beam_size}
    held = {key: round(value, 1) for key, value in server.memory().items()}
    if name != OURS or not server.metrics:
        return {**row, **held}
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as reply:
        metrics = reply.read().decode()
    precision = re.findall(r'lingon_model_info{[^}]*precision="(\w+)"', metrics)[0]
    graphs, caches = loaded_mb(plan.bundle, precision), stated(metrics, CACHES)
    return {
        **row,
        **held,
        "precision": precision,
        "graphs_mb": round(graphs, 1),
        "caches_mb": None if caches is None else round(caches / 1e6, 1),
        "bound_mb": round(bound(graphs, (caches or 0.0) / 1e6), 1),
    }
