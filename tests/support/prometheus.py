"""A real Prometheus that scrapes a server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from chaos.server import free_port
from tests.support.deploy_files import DEPLOY, read
from tests.support.eventually import eventually_blocking


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The data that the HTTP API of Prometheus returns."""
        query = urlencode(parameters)
        with urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            content = json.load(answer)
        assert content["status"] == "success"
        return content["data"]

    def query(self, expression: str) -> list[Any]:
        """The current series of an expression."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def firing(self, **labels: str) -> set[str]:
        """The names of the firing alerts with these labels."""
        return {
            alert["labels"]["alertname"]
            for alert in self.ask("alerts")["alerts"]
            if alert["state"] == "firing" and labels.items() <= alert["labels"].items()
        }


def configuration(folder: Path, target: str, *rule_files: str) -> Path:
    """Write deploy/prometheus/prometheus.yml with another target, short intervals and these files of rules."""
    content = read(DEPLOY / "prometheus" / "prometheus.yml")
    content["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    content["rule_files"] = list(rule_files)
    content["scrape_configs"] = [{"job_name": "lingon", "static_configs": [{"targets": [target]}]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(content))
    return folder / "prometheus.yml"


@contextmanager
def running_prometheus(folder: Path, config: Path) -> Iterator[str]:
    """Run a Prometheus with its data in a folder; the block gets its URL, which answers a moment later."""
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={config}", "--log.level=error"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with subprocess.Popen(command) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition on Prometheus, which refuses connections or has no series yet while it starts."""
    eventually_blocking(condition, seconds, pause=0.5, ignoring=(OSError, IndexError))
