"""Cases 38 to 43: TLS, authentication, secrets in logs, the supply chain and the image."""

from __future__ import annotations

from pathlib import Path

from chaos.case import backed, case
from chaos.context import CaseContext
from chaos.pytest_cases import run_pytest_cases
from chaos.verdict.checks import Checks, Skip

backed(
    38,
    "TLS",
    "plaintext, TLS 1.1, no, expired or revoked certificate, wrong name, wrong or removed authority: refused; no call "
    "lost",
    "tests/serving/auth/test_tls.py",
    "tests/serving/auth/test_certificates.py",
    "tests/serving/auth/test_watched_files.py",
)
backed(
    39,
    "authentication",
    "every method of every service: all answer with a valid key; without one or with a wrong one all but health refuse",
    "tests/serving/auth/test_interceptor.py",
    "tests/serving/auth/test_keys.py",
    "tests/serving/auth/test_quota.py",
    "tests/serving/auth/test_charges.py",
)
backed(
    42,
    "no secrets in logs",
    "no text, no key, no exception text in logs, traces or replies",
    "tests/serving/rpc/test_interceptors.py",
    "tests/serving/auth/test_callers.py",
    "tests/serving/observability/test_logs.py",
    "tests/serving/observability/test_tracing.py",
    "tests/hostile/test_abuse.py",
)


IMAGES = Path(__file__).parents[3] / "build" / "images" / "storage"
NO_IMAGES = "no images; build and test them with: make images-test"
CONTAINER = ("tests/images/test_running.py", "tests/images/test_compose_up.py")
SUPPLY_CHAIN = (
    "tests/hostile/test_supply_chain.py",
    "tests/hostile/test_bundle_trust.py",
    "tests/deploy/test_image.py",
    "tests/deploy/test_locks.py",
    "tests/deploy/test_release.py",
)
CONTENT = "tests/images/test_content.py"
LISTED = (
    "tests/images/test_parts.py::test_every_python_package_is_listed_as_locked",
    "tests/images/test_parts.py::test_the_system_the_interpreter_and_the_model_are_listed",
)
PROBES = ("tests/images/test_probes.py",)


@case(
    40,
    "container",
    "read-only, no capabilities, another user, no network: the whole suite passes",
    tests=CONTAINER,
)
async def container(context: CaseContext, checks: Checks) -> None:
    """The images as containers of podman and runc, closed as compose.yaml says."""
    if not IMAGES.is_dir():
        raise Skip(NO_IMAGES)
    await run_pytest_cases(checks, context.scratch, CONTAINER)
    checks.not_run("the rest of the suite inside a container; Docker itself; Prometheus and Grafana of compose.yaml")


@case(
    41,
    "supply chain",
    "no pickle, no torch in serving, pins and hashes; digests, SBOM and a scan of the image",
    tests=SUPPLY_CHAIN,
)
async def supply_chain(context: CaseContext, checks: Checks) -> None:
    """Sources, locks, the release, and the images if they are built."""
    of_images = (CONTENT, *LISTED) if IMAGES.is_dir() else ()
    await run_pytest_cases(checks, context.scratch, (*SUPPLY_CHAIN, *of_images))
    if not of_images:
        checks.not_run(NO_IMAGES)
    checks.not_run("digests of the base images, and the scan: they need the registries")


@case(43, "probes", "an orchestrator restarts unhealthy servers and no others", tests=PROBES)
async def probes(context: CaseContext, checks: Checks) -> None:
    """The health check of the image, run and acted on by podman."""
    if not IMAGES.is_dir():
        raise Skip(NO_IMAGES)
    await run_pytest_cases(checks, context.scratch, PROBES)
    checks.not_run("the probes of a cluster: there is none; tests/deploy checks their manifests")
