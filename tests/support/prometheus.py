"""A real Prometheus that scrapes a server, and a real server under light load for it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from lingon import Client, Tls
from lingon.errors import ServerError
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import Authority, write_key_file
from tests.support.deploy_files import ALERTS, DEPLOY, read
from tests.support.ports import free_port
from tests.support.processes import Server, serving
from tests.support.repository import ROOT
from tests.support.timing import eventually_blocking


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data that the HTTP API of Prometheus returns."""
        query = urlencode(parameters)
        with urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            content = json.load(answer)
        assert content["status"] == "success"
        return content["data"]

    def query(self, expression: str) -> list[Any]:
        """Return the current series of an expression."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def firing(self, **labels: str) -> set[str]:
        """Return the names of the firing alerts with these labels."""
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
    """Run a Prometheus with its data in a folder, and yield its URL, which answers a moment later."""
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


SENTENCES = (ROOT / "tests" / "data" / "tatoeba.en").read_text(encoding="utf-8").splitlines()[:40]


@dataclass(frozen=True)
class PrometheusWatch(Prometheus):
    """A Prometheus and the server that it scrapes.

    folder: holds the files that turn the server's failpoints on
    """

    server: Server
    folder: Path

    def fail(self, how: str) -> None:
        """Make the engine die or hang in its next step."""
        (self.folder / how).touch()


def lowered(expression: str) -> str:
    """Return the expression of an alert with a threshold that every value passes, so that it fires if its series
    exist.
    """
    return re.sub(r"< [\d.]+", "< 1e12", re.sub(r"(?:>|==) [\d.]+", ">= 0", expression))


def rules(change: Callable[[str], str], kind: str) -> Any:
    """Return all alert rules with changed expressions and without a waiting time."""
    content = read(ALERTS)
    for group in content["groups"]:
        group["name"] += f"-{kind}"
        for rule in group["rules"]:
            rule.pop("for", None)
            rule["expr"] = change(rule["expr"])
            rule["labels"]["rehearsal"] = kind
    return content


def rehearsed(folder: Path) -> list[str]:
    """Write every alert twice, unchanged and lowered, and return the names of the files."""
    files = {"as_they_are.yml": rules(str, "as they are"), "lowered.yml": rules(lowered, "lowered")}
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content))
    return list(files)


def load(address: str, folder: Path, key: str, stop: threading.Event) -> None:
    """Send single texts, batches, streams and invalid requests until stopped, even if the server fails."""
    with Client(address, tls=Tls(ca=folder / "ca.crt"), api_key=key, retries=0) as client:
        while not stop.wait(0.1):
            with suppress(ServerError):
                client.translate(SENTENCES[0], beam_size=1)
                client.translate(SENTENCES, beam_size=2)
                for _ in client.translate_stream(SENTENCES[1], beam_size=1):
                    pass
                client.translate("Tom", model="not-there")


def settings(folder: Path, key: str) -> Path:
    """Return settings with TLS and one API key. The engine dies or hangs once the file `dies` or `hangs` exists."""
    path, authority = folder / "server.toml", Authority()
    (folder / "ca.crt").write_bytes(authority.pem)
    strings = {
        "failpoints": f"step=raise@1?{folder / 'dies'}; step=hang?{folder / 'hangs'}",
        "api_keys": write_key_file(folder, {"shop": key}),
        **authority.sign(lasts=timedelta(days=90)).write(folder),
    }
    lines = ["testing = true", "hang_seconds = 5", *(f'{name} = "{value}"' for name, value in strings.items())]
    path.write_text("\n".join(lines))
    return path


@contextmanager
def watched(folder: Path, patience: float = 60) -> Iterator[PrometheusWatch]:
    """Run both. The block starts when the dashboard has data."""
    key = new_key()
    with serving(ROOT / "models" / "en-de", "--config", settings(folder, key)) as server:
        stop, config = threading.Event(), configuration(folder, server.metrics, *rehearsed(folder))
        caller = threading.Thread(target=load, args=(server.address, folder, key, stop), daemon=True)
        with running_prometheus(folder, config) as url:
            try:
                watch = PrometheusWatch(url, server, folder)
                caller.start()
                wait_until(lambda: len(watch.query("lingon_ready[20s]")[0]["values"]) > 15, patience)
                yield watch
            finally:
                stop.set()
                caller.join(10)
