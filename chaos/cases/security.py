"""Cases 38 to 43: who may come in, and what the image is."""

from __future__ import annotations

from chaos.case import backed, case
from chaos.checks import Findings, Skip
from chaos.context import World
from chaos.pytest_cases import gate

backed(
    38,
    "TLS",
    "plaintext, wrong authority, expired, wrong name, TLS 1.1, none, rotated out: refused; rotation loses no call",
    "tests/serving/auth/test_tls.py",
)
backed(
    39,
    "who may call what",
    "every method of every service without a key, with a bad one, with a good one: all but health refuse",
    "tests/serving/auth/test_interceptor.py",
    "tests/serving/auth/test_keys.py",
    "tests/serving/auth/test_quota.py",
)
backed(
    42,
    "no secrets in logs",
    "no text, no key, no exception text in logs, traces or replies",
    "tests/serving/rpc/test_interceptors.py",
    "tests/serving/observability/test_logs.py",
    "tests/serving/observability/test_tracing.py",
    "tests/hostile/test_abuse.py",
)


@case(40, "container", "read-only, no capabilities, another user, no network: the whole suite is green")
async def container(world: World, found: Findings) -> None:
    """Needs Docker."""
    raise Skip("no Docker engine; the install steps and the server as another user on a read-only tree are tested")


@case(41, "supply chain", "no pickle, no torch in serving, pins and hashes; digests, SBOM and a scan of the image")
async def supply_chain(world: World, found: Findings) -> None:
    """What can be said of it without an image."""
    await gate(found, world.scratch, ["tests/hostile/test_supply_chain.py", "tests/deploy/test_image.py"])
    found.not_run("digests, SBOM and a scan of the images: no image was built")


@case(43, "probes", "an orchestrator restarts what is sick, and nothing else")
async def probes(world: World, found: Findings) -> None:
    """Needs Docker or a cluster."""
    raise Skip("no Docker engine or cluster; the manifests' probes are checked by tests/deploy")
