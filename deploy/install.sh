#!/bin/sh
# Installs the server as in its images:
#
#   deploy/install.sh serve FOLDER     for CPUs
#   deploy/install.sh gpu FOLDER       the same with the CUDA runtime
#
# The Dockerfile and the tests run this script, so that the tests cover what is shipped. deploy/locks has the hash of
# every file that pip installs (deploy/lock.py writes them). The native operators are compiled if there is a compiler;
# a library of them that is there, as in the build of an image, is installed.
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
umask 022 # another user reads the files
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
builder=$(mktemp -d)
trap 'rm -rf "$builder"' EXIT

# The package of the image holds what serving needs. The links lingon/bench, export, importers and training are left
# out, so their code is not in the image; `lingon train` there says that it is not part of the installation.
# Files keep their dates, by which the build of the wheel knows that the library is newer than its sources.
mkdir "$builder/source"
cp -RP --preserve=timestamps pyproject.toml README.md LICENSE lingon serving gateway bulk kernels "$builder/source"
for link in bench export importers training; do rm "$builder/source/lingon/$link"; done

python3 -m venv "$builder/venv"
"$builder/venv/bin/pip" install --quiet --require-hashes --only-binary :all: --requirement deploy/locks/build.txt
"$builder/venv/bin/pip" wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$builder/wheel" \
    "$builder/source"

python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --require-hashes --only-binary :all: --requirement "deploy/locks/$extra.txt"
"$folder/bin/pip" install --quiet --no-index --no-deps "$builder"/wheel/lingon-*.whl
"$folder/bin/pip" check
# Remove the installers last: they would need security updates, and could help an intruder.
"$folder/bin/python" -m pip uninstall --quiet --yes setuptools pip
