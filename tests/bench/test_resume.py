"""A killed benchmark is continued with its complete records."""

from __future__ import annotations

import json

import pytest

from lingon.bench.resume import ResumeFile
from lingon.errors import SettingsError


def test_a_killed_run_resumes_with_the_complete_records(tmp_path):
    path = tmp_path / "decode.part.jsonl"
    resume_file = ResumeFile(path, {"runs": "7"}, resume=False)
    resume_file.add("one", [1])
    with path.open("a") as file:
        file.write('{"key": "two", "rec')
    again = ResumeFile(path, {"runs": "7"}, resume=True)
    assert (again.get("one"), again.get("two")) == ([1], None)
    again.add("two", [2])
    assert ResumeFile(path, {"runs": "7"}, resume=True).get("two") == [2]


def test_a_run_with_other_options_is_not_resumed(tmp_path):
    ResumeFile(tmp_path / "part", {"commit": "a", "runs": "7"}, resume=False)
    with pytest.raises(SettingsError, match="was begun with runs '7', this is '9'"):
        ResumeFile(tmp_path / "part", {"commit": "a", "runs": "9"}, resume=True)


def test_without_resume_the_records_of_the_last_run_are_dropped(tmp_path):
    ResumeFile(tmp_path / "part", {}, resume=False).add("one", 1)
    assert ResumeFile(tmp_path / "part", {}, resume=False).get("one") is None
    assert len((tmp_path / "part").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "part").read_text()) == {"head": {}}
