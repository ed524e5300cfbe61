"""A real server under light load, and a real Prometheus that scrapes it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from lingon import Client, Tls
from lingon.errors import ServerError
from lingon.serving.auth.api_keys import new_key
from tests.support.certificates import Authority
from tests.support.deploy_files import ALERTS, read
from tests.support.key_files import write_key_file
from tests.support.processes import Server, serving
from tests.support.prometheus import Prometheus, configuration, running_prometheus, wait_until
from tests.support.repository import ROOT

SENTENCES = (ROOT / "tests" / "data" / "tatoeba.en").read_text(encoding="utf-8").splitlines()[:40]


@dataclass(frozen=True)
class Watch(Prometheus):
    """A Prometheus and the server that it scrapes.

    folder: holds the files that turn the server's failpoints on
    """

    server: Server
    folder: Path

    def fail(self, how: str) -> None:
        """Make the engine die or hang in its next step."""
        (self.folder / how).touch()


def lowered(expression: str) -> str:
    """The expression of an alert with a threshold that every value passes, so that it fires if its series exist."""
    return re.sub(r"< [\d.]+", "< 1e12", re.sub(r"(?:>|==) [\d.]+", ">= 0", expression))


def rules(change: Callable[[str], str], kind: str) -> Any:
    """All alert rules with changed expressions and without a waiting time."""
    content = read(ALERTS)
    for group in content["groups"]:
        group["name"] += f"-{kind}"
        for rule in group["rules"]:
            rule.pop("for", None)
            rule["expr"] = change(rule["expr"])
            rule["labels"]["rehearsal"] = kind
    return content


def rehearsed(folder: Path) -> list[str]:
    """Write every alert twice, unchanged and lowered; returns the names of the files."""
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
    """Settings with TLS and one API key; the engine dies or hangs once the file `dies` or `hangs` exists."""
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
def watched(folder: Path, patience: float = 60) -> Iterator[Watch]:
    """Run both; the block starts when the dashboard has data."""
    key = new_key()
    with serving(ROOT / "models" / "en-de", "--config", settings(folder, key)) as server:
        stop, config = threading.Event(), configuration(folder, server.metrics, *rehearsed(folder))
        caller = threading.Thread(target=load, args=(server.address, folder, key, stop), daemon=True)
        with running_prometheus(folder, config) as url:
            try:
                watch = Watch(url, server, folder)
                caller.start()
                wait_until(lambda: len(watch.query("lingon_ready[20s]")[0]["values"]) > 15, patience)
                yield watch
            finally:
                stop.set()
                caller.join(10)
