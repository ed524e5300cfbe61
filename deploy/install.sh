#!/bin/sh
# Installs the server as its images have it:
#
#   deploy/install.sh serve FOLDER     for CPUs
#   deploy/install.sh gpu FOLDER       the same on the CUDA runtime
#
# The Dockerfile runs this, and so do the tests, so that what is tested is what is shipped. Every file that pip takes
# has its hash in deploy/locks (deploy/lock.py renews them); nothing is compiled, so no compiler is needed.
set -eu

extra=${1:-}
folder=${2:-}
case "$extra" in
serve | gpu) ;;
*)
    echo "lingon: error: usage: deploy/install.sh serve|gpu FOLDER" >&2
    exit 2
    ;;
esac
[ -n "$folder" ] || { echo "lingon: error: usage: deploy/install.sh serve|gpu FOLDER" >&2; exit 2; }

cd "$(dirname "$0")/.."
umask 022 # another user will read it
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
builder=$(mktemp -d)
trap 'rm -rf "$builder"' EXIT

python3 -m venv "$builder"
"$builder/bin/pip" install --quiet --require-hashes --only-binary :all: --requirement deploy/locks/build.txt
"$builder/bin/pip" wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$builder/wheel" .

python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --require-hashes --only-binary :all: --requirement "deploy/locks/$extra.txt"
"$folder/bin/pip" install --quiet --no-index --no-deps "$builder"/wheel/lingon-*.whl
"$folder/bin/pip" check
# Last: what cannot be called needs no updates, and helps no intruder.
"$folder/bin/python" -m pip uninstall --quiet --yes setuptools pip
