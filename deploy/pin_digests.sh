#!/bin/sh
# Adds the digest to every image that deploy/ takes from a registry: name:tag becomes name:tag@sha256:..., so that the
# same bytes run tomorrow. A digest that is there already is asked for again.
#
#   deploy/pin_digests.sh            rewrites Dockerfile and compose.yaml
#   deploy/pin_digests.sh --check    changes nothing; fails where an image has no digest, or not the registry's
#
# It needs docker with buildx, and a network: a digest cannot be known otherwise, and none is invented.
set -eu
cd "$(dirname "$0")"

fail() {
    echo "lingon: error: $1" >&2
    exit "${2:-1}"
}

check=false
case "${1:-}" in
"") ;;
--check) check=true ;;
*) fail "usage: deploy/pin_digests.sh [--check]" 2 ;;
esac
docker buildx version > /dev/null 2>&1 ||
    fail "digests are resolved by 'docker buildx imagetools'; install docker with buildx"

# Images of our own (lingon:...) are built here and are in no registry; stages (FROM python AS ...) have no tag.
image_line='s/^(FROM| *image:) +([a-z0-9.\/-]+:[A-Za-z0-9._-]+)(@sha256:[0-9a-f]+)?( .*)?$/\2/p'
images=$(sed -nE "$image_line" Dockerfile compose.yaml | grep -v '^lingon:' | sort -u)

# All are resolved before the first is written: what fails halfway leaves everything as it was.
pins=
for image in $images; do
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}') ||
        fail "$image: its registry cannot be reached or does not have it; nothing was changed"
    echo "$digest" | grep -qxE 'sha256:[0-9a-f]{64}' || fail "$image: '$digest' is no digest; nothing was changed"
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
