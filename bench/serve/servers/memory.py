"""The memory of a server, and its bound: twice its graphs, its caches as reported by its metric, and 150 MB."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

from lingon.bench.serve.plan import LINGON, Plan
from lingon.bench.serve.servers.processes import Server
from lingon.bundle import WEIGHTS, Bundle

BASE_MB = 150.0  # megabytes of Python, gRPC and ONNX Runtime
REST_SECONDS = 3.0  # after which memory is measured once more: a server may free some when there is no work
STATE_BYTES = "lingon_state_bytes"  # the gauge of a server for its decoder states


def memory_bound(graphs_mb: float, caches_mb: float) -> float:
    """The bound of resident memory, in megabytes."""
    return 2 * graphs_mb + caches_mb + BASE_MB


def loaded_mb(bundle: Bundle, precision: str) -> float:
    """The size in megabytes of the files that a server reads for a precision."""
    graphs = [name for name in bundle.manifest.checksums if name.startswith(f"{precision}/")]
    weights = [f"{WEIGHTS}/{name}" for name in bundle.manifest.precisions[precision].weights]
    return sum((bundle.folder / name).stat().st_size for name in graphs + weights) / 1e6


def gauge_sum(metrics: str, name: str) -> float | None:
    """The sum of all series of a gauge in the text of /metrics; None if there is no such gauge."""
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, values)) if values else None


def memory_row(plan: Plan, name: str, server: Server, beam_size: int) -> dict[str, Any]:
    """The memory of a server after the loads of a beam size; for our server also the bound."""
    row = {"kind": "memory", "system": name, "beam_size": beam_size}
    held = {key: round(value, 1) for key, value in server.memory().items()}
    if name != LINGON or not server.metrics:
        return {**row, **held}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
    with opener.open(f"http://{server.metrics}/metrics", timeout=10) as reply:
        metrics = reply.read().decode()
    precision = re.findall(r'lingon_model_info{[^}]*precision="([\w-]+)"', metrics)[0]
    graphs, caches = loaded_mb(plan.bundle, precision), gauge_sum(metrics, STATE_BYTES)
    return {
        **row,
        **held,
        "precision": precision,
        "graphs_mb": round(graphs, 1),
        "caches_mb": None if caches is None else round(caches / 1e6, 1),
        "bound_mb": round(memory_bound(graphs, (caches or 0.0) / 1e6), 1),
    }
