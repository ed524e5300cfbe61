"""A reader of the Dockerfile: its stages, their instructions and their environment."""

from __future__ import annotations

import re

from tests.support.deploy_files import DEPLOY

DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def stages() -> dict[str, tuple[str, list[str]]]:
    """Every stage with its base and its instructions, each on one line."""
    found: dict[str, tuple[str, list[str]]] = {}
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if stage := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[stage[2]] = (stage[1], [])
        else:
            next(reversed(found.values()))[1].append(line)
    return found


def instructions(stage: str) -> list[str]:
    """All instructions of a stage and of the stages that it is based on."""
    everything = stages()
    parent, own = everything[stage]
    return [*(instructions(parent) if parent in everything else []), *own]


def environment(stage: str) -> dict[str, str]:
    lines = [line for line in instructions(stage) if line.startswith("ENV ")]
    return {name: value for line in lines for name, value in re.findall(r"(\w+)=(\S+)", line)}
