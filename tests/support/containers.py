"""Containers of the images that `make images-test` builds, with the options that compose.yaml gives them."""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.images import environment, exists, missing, podman, tag
from tests.support.deploy_files import DEPLOY, read
from tests.support.eventually import eventually_blocking
from tests.support.repository import ROOT

IMAGES = ROOT / "build" / "images"
USER = 10001
READY_SECONDS = 180.0  # on a busy machine
LINGON = Path(sys.executable).with_name("lingon")


def images_missing() -> str | None:
    """Why tests of the images cannot run here: the images are not built."""
    if not (IMAGES / "storage").is_dir():
        return "no images in build/images; run: make images-test"
    if reason := missing():
        return reason
    lacking = [tag(target) for target in ("cpu", "gpu") if not exists(tag(target))]
    return f"{', '.join(lacking)} not built; run: make images-test" if lacking else None


@dataclass(frozen=True)
class Member:
    """A file, folder or link of an image."""

    mode: int
    user: int
    size: int
    kind: bytes


@functools.cache
def files(target: str) -> dict[str, Member]:
    """Everything in the file system of an image, by path."""
    name = podman("create", tag(target)).stdout.strip()
    found = {}
    try:
        command = ["podman", "export", name]
        with (
            subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as export,
            tarfile.open(fileobj=export.stdout, mode="r|") as archive,
        ):
            for member in archive:
                path = f"/{member.name.removeprefix('./').rstrip('/')}"
                found[path] = Member(member.mode, member.uid, member.size, member.type)
    finally:
        podman("rm", name)
    return found


@functools.cache
def config(target: str) -> dict[str, Any]:
    """The configuration of an image."""
    values: dict[str, Any] = json.loads(podman("image", "inspect", tag(target)).stdout)[0]
    return values


def compose_options(service: str) -> list[str]:
    """The options of a service of compose.yaml that close its container, as options of `podman run`."""
    values = read(DEPLOY / "compose.yaml")["services"][service]
    limits = values["deploy"]["resources"]["limits"]
    memory = limits["memory"].partition(":-")[2].removesuffix("}")
    assert values["read_only"]
    assert values["init"]
    return [
        "--read-only",
        "--read-only-tmpfs=false",  # podman would mount more of them than Docker does
        "--init",
        f"--user={values['user']}",
        *(f"--cap-drop={each}" for each in values["cap_drop"]),
        *(f"--security-opt={each.replace(':true', '')}" for each in values["security_opt"]),
        *(f"--tmpfs={each}" for each in values["tmpfs"]),
        f"--memory={memory}",
        f"--pids-limit={limits['pids']}",
    ]


@dataclass(frozen=True)
class Container:
    """A running container."""

    name: str

    def state(self) -> dict[str, Any]:
        """What the engine knows of it."""
        values: dict[str, Any] = json.loads(podman("container", "inspect", self.name).stdout)[0]
        return values

    @property
    def process(self) -> int:
        """The process id of its first process on this machine."""
        pid: int = self.state()["State"]["Pid"]
        return pid

    def server(self) -> int:
        """The process id of the server, which is the child of the init process."""
        (child,) = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        return int(child)

    def signal(self, name: str) -> None:
        """Send a signal to the first process, as the engine does to stop it."""
        podman("kill", f"--signal={name}", self.name)

    def exit_code(self) -> int:
        """The exit code of the server, once it has ended."""
        return int(podman("wait", self.name).stdout)

    def log(self) -> str:
        """Standard output and error."""
        return podman("logs", self.name, stderr=subprocess.STDOUT).stdout

    def ready(self) -> bool:
        """Whether the server said that it is ready."""
        assert self.state()["State"]["Status"] == "running", self.log()
        return "\nready: " in f"\n{self.log()}"

    def healthy(self) -> bool:
        """Run the health check of the image as the engine does; returns whether it passes."""
        return podman("healthcheck", "run", self.name, check=False, stderr=subprocess.DEVNULL).returncode == 0

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as the user of the server."""
        return podman("exec", self.name, *command, check=check, stderr=subprocess.STDOUT)

    def outside(self, *command: object, text: str = "", **options: Any) -> subprocess.Popen[str]:
        """Start a command of this machine, in the network of the container alone; text: its input."""
        call = ["nsenter", f"--target={self.process}", "--net", *map(str, command)]
        started = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        assert started.stdin is not None
        started.stdin.write(text)
        started.stdin.close()
        return started

    def translated(self, text: str, server: str = "127.0.0.1:50051") -> str:
        """A translation by a client of this machine."""
        client = self.outside(LINGON, "translate", "--server", server, text=text)
        with client:
            assert client.stdout is not None
            return client.stdout.read().strip()


@contextmanager
def container(
    target: str, *options: str, variables: Mapping[str, str] | None = None, wait: bool = True
) -> Iterator[Container]:
    """Run an image as compose.yaml does, without any network; wait: until it serves."""
    given = [f"--env={name}={value}" for name, value in (variables or {}).items()]
    closed = compose_options(f"lingon-{target}")
    name = podman("run", "--detach", "--network=none", *closed, *given, *options, tag(target)).stdout.strip()
    running = Container(name)
    try:
        if wait:
            eventually_blocking(running.ready, READY_SECONDS, pause=0.2)
        yield running
    finally:
        podman("rm", "--force", "--time=0", name, stderr=subprocess.DEVNULL)


def compose(*arguments: str, files: tuple[str, ...] = ("compose.yaml",), **variables: str) -> list[str]:
    """Run podman-compose with files of deploy/; returns the lines that it prints.

    Docker Compose takes the files as they are. podman-compose needs one more, between them: it turns `start_interval`
    into an option that podman 4 does not have, and it does not replace an empty variable and the test of a health check
    by those of a second file, as the specification says.
    """
    tool, without = IMAGES / "tools" / "bin" / "podman-compose", IMAGES / "compose.podman.yaml"
    values = "healthcheck: {start_interval: !reset null}"
    if len(files) > 1:
        values = "healthcheck: {start_interval: !reset null, test: !reset null}"
        values += ", environment: {LINGON_ADMIN_PORT: !reset null}"
    without.write_text(f"services: {{lingon-cpu: {{{values}}}, lingon-gpu: {{{values}}}}}\n", encoding="utf-8")
    first, *others = (DEPLOY / name for name in files)
    chosen = [part for path in (first, without, *others) for part in ("--file", path)]
    ran = subprocess.run(
        [tool, *chosen, "--profile", "cpu", *arguments],
        env={**environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{shlex.join(arguments)}: {ran.stdout}"
    return ran.stdout.splitlines()
