#!/bin/sh
# Adds the digest to every image that deploy/ takes from a registry: name:tag becomes name:tag@sha256:..., so that the
# image cannot change under its tag. Existing digests are updated.
#
#   deploy/pin_digests.sh            rewrites Dockerfile and compose.yaml
#   deploy/pin_digests.sh --check    changes nothing; fails if an image has no digest, or another one than the registry
#   deploy/pin_digests.sh --require  changes nothing and asks no registry; fails if an image has no digest
#
# The first two need docker with buildx, and a network to ask the registry. deploy/release.sh runs the last one.
set -eu
cd "$(dirname "$0")"

fail() {
    echo "lingon: error: $1" >&2
    exit "${2:-1}"
}

check=false
require=false
case "${1:-}" in
"") ;;
--check) check=true ;;
--require) require=true ;;
*) fail "usage: deploy/pin_digests.sh [--check|--require]" 2 ;;
esac

# Our own images (lingon:...) are built here and are in no registry; stages (FROM python AS ...) have no tag.
image_line='s/^(FROM| *image:) +([a-z0-9.\/-]+:[A-Za-z0-9._-]+)(@sha256:[0-9a-f]+)?( .*)?$/\2/p'
images=$(sed -nE "$image_line" Dockerfile compose.yaml | grep -v '^lingon:' | sort -u)

if $require; then
    missing=0
    for file in Dockerfile compose.yaml; do
        for image in $(sed -nE 's/^(FROM| *image:) +([^ ]+:[^ ]+)( .*)?$/\2/p' "$file" | grep -v '^lingon:'); do
            echo "$image" | grep -qxE '[^@]+@sha256:[0-9a-f]{64}' && continue
            echo "lingon: error: deploy/$file: $image has no digest; run: deploy/pin_digests.sh" >&2
            missing=1
        done
    done
    exit $missing
fi
docker buildx version > /dev/null 2>&1 ||
    fail "digests are resolved by 'docker buildx imagetools'; install docker with buildx"

# All digests are resolved before the first is written, so that a failure changes nothing.
pins=
for image in $images; do
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}') ||
        fail "$image: its registry cannot be reached or does not have it; nothing was changed"
    echo "$digest" | grep -qxE 'sha256:[0-9a-f]{64}' || fail "$image: '$digest' is not a digest; nothing was changed"
    pins="$pins $image@$digest"
done

missing=0
for pin in $pins; do
    image=${pin%@*}
    for file in Dockerfile compose.yaml; do
        grep -qF "$image" "$file" || continue
        if ! $check; then
            pattern=$(printf '%s' "$image" | sed 's/[.]/\\./g')
            sed -i -E "s#$pattern(@sha256:[0-9a-f]+)?( |\$)#$pin\\2#" "$file"
        elif ! grep -qF "$pin" "$file"; then
            echo "lingon: error: deploy/$file: $image is not pinned to ${pin#*@}" >&2
            missing=1
        fi
    done
    echo "$pin"
done
exit $missing
