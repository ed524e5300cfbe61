#!/bin/sh
# Builds both images of a version and pushes them, each with the list of its parts (SBOM) and its provenance:
#
#   deploy/release.sh REGISTRY       such as registry.example.com/team
#
# It refuses what could not be built again: changes that are not committed, a commit without the tag of the version, and
# images that are taken from a registry by tag alone. It needs docker with buildx, and a network.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "lingon: error: $1" >&2
    exit "${2:-1}"
}

[ $# -eq 1 ] || fail "usage: deploy/release.sh REGISTRY" 2
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; a release is built from a commit"
git tag --points-at HEAD | grep -qxF "v$version" || fail "this commit does not have the tag v$version"
deploy/pin_digests.sh --require
docker buildx version > /dev/null 2>&1 || fail "a release is built by 'docker buildx build'; install docker with buildx"

for target in cpu gpu; do
    image=$1/lingon:$version-$target
    docker buildx build --pull --push --sbom=true --provenance=mode=max --file deploy/Dockerfile --target "$target" \
        --tag "$image" .
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
    echo "$image@$digest: set newName to $1/lingon and digest to $digest in deploy/kubernetes/overlays/$target"
done
