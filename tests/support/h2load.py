"""h2load, a load generator for HTTP/2 that knows nothing of gRPC, with gRPC requests as bodies."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_REPORT = re.compile(
    r"^requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout$"
    r".*^status codes: (\d+) 2xx,.*\((\d+)\) data$",
    re.MULTILINE | re.DOTALL,
)
RUN_SECONDS = 120  # seconds for a run


@dataclass(frozen=True, slots=True)
class Load:
    """What h2load counted.

    failed: requests that failed, broke off or had no answer in time
    ok: answers with HTTP status 200; data: bytes of their bodies, without frames and headers
    """

    requests: int
    succeeded: int
    failed: int
    ok: int
    data: int


def h2load(address: str, path: str, body: Path, *, requests: int, connections: int, streams: int) -> Load:
    """Send a body `requests` times over some connections, with some streams at once on each."""
    command = ["h2load", f"--requests={requests}", f"--clients={connections}", f"--max-concurrent-streams={streams}"]
    command += [f"--data={body}", "--header=content-type: application/grpc", "--header=te: trailers"]
    ran = subprocess.run(
        [*command, f"http://{address}{path}"], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    found = _REPORT.search(ran.stdout)
    assert found, ran.stdout + ran.stderr
    total, succeeded, *wrong, ok, data = map(int, found.groups())
    return Load(total, succeeded, sum(wrong), ok, data)
