#!/usr/bin/env bash
# Runs a command of Lingon on a machine that is lent for minutes, such as one with an NVIDIA card.
#
#     scripts/on_card.sh FOLDER tests                      `lingon doctor`, and the tests that need a card
#     scripts/on_card.sh FOLDER session [ARGUMENT ...]     scripts/card_session.py: the operators, the table, training
#     scripts/on_card.sh FOLDER COMMAND [ARGUMENT ...]     `lingon COMMAND ARGUMENT ...`, or with `-m` as COMMAND a module
#
# FOLDER gets the log, COMMAND.log. A command that is not done after nine minutes is ended, with exit code 75; call it
# again, and it goes on from there if it can: `bench gpu` with --resume, `train` from its last checkpoint, `session` from
# its last stage. LIMIT sets another number of seconds.
#
# PYTHON names the Python (default: .venv/bin/python, else python3). It needs what `lingon[gpu]` and `lingon[train]` need
# (easily forgotten: googleapis-common-protos, grpcio-health-checking, sentencex, pydantic, pyarrow, uvloop), for `tests`
# and `session` pytest, pytest-asyncio, pytest-timeout and hypothesis, and not Lingon itself.
set -euo pipefail

CUT_OFF=75 TIMED_OUT=124

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

(($# >= 2)) || usage
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
log=$folder/${1#-}.log
python=${PYTHON:-$root/.venv/bin/python}
[[ -x $python ]] || python=$(command -v "$python" || command -v python3)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
if ! "$python" -c 'import importlib.metadata as found; found.version("lingon")' 2>/dev/null; then
  # a checkout that is not installed has no commands: Python finds them by the metadata of a package
  "$python" - "$root/pyproject.toml" "$folder/metadata" <<'END'
import pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
metadata = pathlib.Path(sys.argv[2], f"lingon-{project['version']}.dist-info")
metadata.mkdir(parents=True, exist_ok=True)
(metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lingon\nVersion: {project['version']}\n")
lines = []
for group, entries in project["entry-points"].items():
    lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
(metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
END
  PYTHONPATH+=:$folder/metadata
fi

limited() { timeout --kill-after=45 "${LIMIT:-540}" "$@"; }

run() {
  echo "== $*, $(date -u +%FT%TZ)"
  case $1 in
    tests)
      "$python" -m lingon doctor
      # the files alone that have such tests, because the others import packages that such a machine may lack
      cd "$root"
      grep -rlZ --include='test_*.py' 'mark\.gpu' tests | limited xargs -0 "$python" -m pytest -m gpu --timeout 500 "${@:2}"
      ;;
    session) limited "$python" "$root/scripts/card_session.py" "$folder" "${@:2}" ;;
    -m) limited "$python" "$@" ;;
    *) limited "$python" -m lingon "$@" ;;
  esac
}

status=0
(set -e; run "$@") 2>&1 | tee -a "$log" || status=${PIPESTATUS[0]}
if ((status == TIMED_OUT)); then
  echo "$1 was ended after ${LIMIT:-540} s; call it again to go on" | tee -a "$log"
  exit "$CUT_OFF"
fi
exit "$status"
