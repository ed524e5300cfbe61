#!/usr/bin/env bash
# What to run on a machine with an NVIDIA card, in steps of at most ten minutes; each can be repeated.
#
#     scripts/on_card.sh STEP FOLDER [--device cpu --quick] [--config FILE]
#
# STEP    tests:      `lingon doctor` and the tests that need a card
#         steps:      the time of decoder steps
#         gpu:        `lingon bench gpu`: Lingon, transformers, a bare PyTorch loop and CTranslate2
#         service:    `lingon bench serve`: latency with 1 to 256 clients, of the shipped model
#         loops:      `lingon bench train`: the speed of training loops
#         systems:    `lingon bench attention`: every attention system, trained and compared
#         multi30k:   `lingon bench multi30k`: a published result, trained and measured
#         training:   `lingon train` with the settings of FILE, below FOLDER/run
# FOLDER  gets the log of the step, STEP.log, and its results; FOLDER/cache the models that are made for it
# --device cpu --quick   rehearses a step without a card, on a tiny model
# --config FILE          the settings of `training`; a rehearsal without it trains a tiny model
#
# A step that is not done after nine minutes is ended, with exit code 75; call it again, and it goes on from there:
# `gpu` with the next row, the trainings from their last checkpoint. LIMIT sets another number of seconds.
#
# OPTIONS has more options for the command of the step, such as OPTIONS='--engine lingon --engine torch-graph'.
# PYTHON names the Python (default: .venv/bin/python, else python3). It needs what `lingon[gpu]` and `lingon[train]` need
# (easily forgotten: googleapis-common-protos, grpcio-health-checking, sentencex, pydantic, uvloop), for `tests`
# pytest-asyncio and hypothesis, and not Lingon itself; a peer that is missing gets a row with the reason.
set -euo pipefail

CUT_OFF=75 TIMED_OUT=124

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }

(($# >= 2)) || usage
step=$1 folder=$2
shift 2
[[ $step =~ ^(tests|steps|gpu|service|loops|systems|multi30k|training)$ ]] || usage
device=cuda quick=false config=
while (($#)); do
  case $1 in
    --device)
      [[ ${2-} == cpu || ${2-} == cuda ]] || usage
      device=$2
      shift
      ;;
    --config)
      [[ -f ${2-} ]] || usage
      config=$(realpath "$2")
      shift
      ;;
    --quick) quick=true ;;
    *) usage ;;
  esac
  shift
done
[[ $step != training || -n $config || $quick == true ]] || usage
options=(--device "$device")
if $quick; then options+=(--quick); fi

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=$(command -v "$python" || command -v python3)
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
if ! "$python" -c 'import importlib.metadata as found; found.version("lingon")' 2>/dev/null; then
  "$python" scripts/metadata.py "$folder/cache/metadata" # a checkout that is not installed has no commands
  PYTHONPATH+=:$folder/cache/metadata
fi
read -r -a more <<<"${OPTIONS-}"

limited() { timeout --kill-after=45 "${LIMIT:-540}" "$@"; }

lingon() { limited "$python" -m lingon "$@"; }

tool() { limited "$python" -m "$1" --results "$folder" "${options[@]}" "${@:2}" "${more[@]}"; }

run_tests() {
  lingon doctor
  if [[ $device == cuda ]]; then
    # their files alone, because the other tests import packages that such a machine may lack
    grep -rlZ --include='test_*.py' 'mark\.gpu' tests | limited xargs -0 "$python" -m pytest -m gpu --timeout 500
  else
    limited "$python" -m pytest tests/integration/test_device_states.py --timeout 500
  fi
}

run_service() {
  local load=(--clients 1 --clients 8)
  if $quick; then load+=(--beam-size 1 --quick); else load+=(--clients 32 --clients 64 --clients 128 --clients 256); fi
  lingon bench serve --no-peer --device "$device" --results "$folder" "${load[@]}" "${more[@]}"
}

run_loops() {
  local fewer=()
  if $quick; then fewer=(--preset tiny --batch-tokens 500 --rounds 1 --updates 2); fi
  lingon bench train --device "$device" --results "$folder" "${fewer[@]}" "${more[@]}"
}

run_comparison() {
  lingon bench "$1" --results "$folder" --work "$folder/$1" "${options[@]}" "${more[@]}"
}

run_training() {
  if [[ -z $config ]]; then
    config=$folder/quick.toml
    write_quick_config >"$config"
  fi
  lingon train "$config" --output "$folder/run" --set "training.device=$device" "${more[@]}"
}

write_quick_config() {
  local language
  for language in en de; do head -n 8 "tests/data/tatoeba.$language" >"$folder/valid.$language"; done
  cat <<END
[data]
source_language = "en"
target_language = "de"
max_tokens = 60
[[data.train]]
source = "$PWD/tests/data/tatoeba.en"
target = "$PWD/tests/data/tatoeba.de"
[data.valid]
source = "valid.en"
target = "valid.de"
[tokenizer]
vocab_size = 500
[model]
preset = "tiny"
[training]
batch_tokens = 1000
max_steps = ${QUICK_STEPS:-40}
warmup_steps = 1
log_every = 10
valid_every = 20
valid_sentences = 8
END
}

run_step() {
  echo "== $step, $(date -u +%FT%TZ)"
  case $step in
    tests) run_tests ;;
    steps) tool lingon.bench.tools.engine.device_steps ;;
    gpu) lingon bench gpu --results "$folder" --cache "$folder/cache" --resume "${options[@]}" "${more[@]}" ;;
    service) run_service ;;
    loops) run_loops ;;
    systems) run_comparison attention ;;
    multi30k) run_comparison multi30k ;;
    training) run_training ;;
  esac
}

status=0
(set -e; run_step) 2>&1 | tee -a "$folder/$step.log" || status=${PIPESTATUS[0]}
if ((status == TIMED_OUT)); then
  echo "$step was ended after ${LIMIT:-540} s; call it again to go on" | tee -a "$folder/$step.log"
  exit "$CUT_OFF"
fi
exit "$status"
