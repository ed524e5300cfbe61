"""promtool checks the configuration, rules and rule tests of Prometheus."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.deploy_files import ALERTS, DEPLOY

pytestmark = pytest.mark.ops
COMMANDS = ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts_test.yml"]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_promtool_reports_no_error_and_no_warning(arguments):
    if shutil.which("promtool") is None:
        pytest.skip("ops: no promtool command")
    *command, file = arguments.split()
    call = ["promtool", *command, DEPLOY / "prometheus" / file]
    ran = subprocess.run(call, cwd=ALERTS.parent, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WARNING" not in ran.stdout + ran.stderr
