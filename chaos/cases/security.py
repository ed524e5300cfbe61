"""Cases 38 to 43: TLS, authentication, secrets in logs, the supply chain and the image."""

from __future__ import annotations

from chaos.case import backed, case
from chaos.checks import Checks, Skip
from chaos.context import CaseContext
from chaos.pytest_cases import run_pytest_cases

backed(
    38,
    "TLS",
    "plaintext, TLS 1.1, no or expired certificate, wrong name, wrong or removed authority: refused; no call lost",
    "tests/serving/auth/test_tls.py",
)
backed(
    39,
    "authentication",
    "every method of every service: all answer with a valid key; without one or with a wrong one all but health refuse",
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


@case(40, "container", "read-only, no capabilities, another user, no network: the whole suite passes")
async def container(context: CaseContext, checks: Checks) -> None:
    """This case needs Docker."""
    raise Skip("no Docker engine; the install steps and the server as another user on a read-only tree are tested")


SUPPLY_CHAIN = ("tests/hostile/test_supply_chain.py", "tests/deploy/test_image.py")


@case(
    41,
    "supply chain",
    "no pickle, no torch in serving, pins and hashes; digests, SBOM and a scan of the image",
    tests=SUPPLY_CHAIN,
)
async def supply_chain(context: CaseContext, checks: Checks) -> None:
    """The part of the case that needs no image."""
    await run_pytest_cases(checks, context.scratch, SUPPLY_CHAIN)
    checks.not_run("digests, SBOM and a scan of the images: no image was built")


@case(43, "probes", "an orchestrator restarts unhealthy servers and no others")
async def probes(context: CaseContext, checks: Checks) -> None:
    """This case needs Docker or a cluster."""
    raise Skip("no Docker engine or cluster; the manifests' probes are checked by tests/deploy")
