#!/usr/bin/env bash
# What to run on a machine with an NVIDIA card, in steps of at most ten minutes; each can be repeated.
#
#     scripts/on_card.sh STEP FOLDER [--device cpu --quick]
#
# STEP    tests: `lingon doctor` and the tests that need a card; steps: the time of decoder steps
# FOLDER  gets the log of the step, STEP.log, and its results; it is made if it is missing
# --device cpu --quick   rehearses a step without a card, on a tiny model
#
# PYTHON names the Python (default: .venv/bin/python, else python3). It needs what `lingon[gpu]` and `lingon[dev]` need.
set -euo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

(($# >= 2)) || usage
step=$1 folder=$2
shift 2
device=cuda
for option; do
  case $option in --device | --quick | cpu | cuda) ;; *) usage ;; esac
  [[ $option == cpu ]] && device=cpu
done

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=$(command -v "$python" || command -v python3)
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

run_tests() {
  "$python" -m lingon doctor
  if [[ $device == cuda ]]; then
    "$python" -m pytest -m gpu --timeout 500
  else
    "$python" -m pytest tests/integration/test_device_states.py --timeout 500
  fi
}

case $step in
  tests) run_tests 2>&1 | tee "$folder/$step.log" ;;
  steps) "$python" -m lingon.bench.tools.device_steps --results "$folder" "$@" 2>&1 | tee "$folder/$step.log" ;;
  *) usage ;;
esac
