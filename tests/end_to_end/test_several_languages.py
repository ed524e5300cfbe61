"""One bundle of several language pairs: served, and asked for each of them by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.random_models import TEXTS, write_multilingual_bundle

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def ask(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lingon", "translate", "--server", address, *options, TEXTS[0]]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def test_a_served_bundle_is_asked_for_two_pairs_by_the_command(tmp_path: Path) -> None:
    bundle = write_multilingual_bundle(tmp_path / "many" / "1")
    command = [sys.executable, "-m", "lingon", "serve", str(bundle.folder.parent), "--port", "0"]
    command += ["--metrics-port", "0", "--engines", "1", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready: ")
            address = line.split(" on ")[1].split(",")[0]
            pairs = [("en", "fr"), ("en", "de")]
            found = [ask(address, "--source-language", one, "--target-language", other) for one, other in pairs]
            open_target = ask(address, "--source-language", "en")
        finally:
            process.kill()
    assert [each.returncode for each in found] == [0, 0], [each.stderr for each in found]
    assert all(each.stdout.strip() for each in found)
    assert found[0].stdout != found[1].stdout
    assert open_target.returncode != 0
    assert "must name a language of many/1" in open_target.stderr
