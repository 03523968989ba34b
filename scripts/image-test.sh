#!/bin/sh
# Build the image from the Dockerfile without Docker, and test it.
#
# buildah (chroot isolation, vfs storage) builds the image on a base image from debootstrap. Then
# image_check.py tests the user, the health check with and without JupyterLab, and the notebooks, in a
# network namespace with only 127.0.0.1 and a free port 8888. Needs root and about 20 GB.
#
#   KEEP=1 make image-test     keep both images below build/image for the next run
#   TVMLAB_MIRROR=http://mirror.example/debian make image-test   use this Debian mirror
set -eu
cd "$(dirname "$0")/.."

die() {
    echo "image-test: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || die "debootstrap and chroot isolation need root; run the command with sudo"
missing=
for pair in python3:python3 buildah:buildah debootstrap:debootstrap unshare:util-linux ip:iproute2; do
    command -v "${pair%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
[ -z "$missing" ] || die "programs are missing; install them with: apt install$missing"

work=$(pwd -P)/build/image
mkdir -p "$work"
free_kb=$(df -Pk "$work" | sed -n 's/.* \([0-9]\{1,\}\) \{1,\}[0-9]\{1,\}% .*/\1/p')
[ "${free_kb:-999999999}" -ge 20000000 ] || die "too little disk space: $((free_kb / 1000)) MB free in $work, 20000 MB needed"

bud() {
    verb=$1
    shift
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$verb" "$@"
}

root=
clean() {
    [ -z "$root" ] || rm -rf "$root" "$root.log"
    bud rm --all >/dev/null 2>&1 || :
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

step() {
    echo "image-test: $*"
}

# Create a Debian bookworm root in $root, which replaces debian:bookworm-slim on machines without Docker
# and without a registry. It contains this machine's settings for its package servers (certificates, apt
# and pip), so that the Dockerfile needs none of them.
make_base() {
    # Without TVMLAB_MIRROR, debootstrap uses Debian's own server.
    debootstrap --variant=minbase bookworm "$root" ${TVMLAB_MIRROR:+"$TVMLAB_MIRROR"} \
        >"$root.log" 2>&1 || {
        tail -n 5 "$root.log" >&2
        die "debootstrap could not download Debian; set TVMLAB_MIRROR to another mirror"
    }

    # As in the slim images, leave out manuals, translations and apt's caches.
    cat >"$root/etc/dpkg/dpkg.cfg.d/slim" <<'END'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
END
    cat >"$root/etc/apt/apt.conf.d/90slim" <<'END'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
    rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb \
        "$root"/var/lib/apt/lists/* \
        "$root"/usr/share/doc "$root"/usr/share/info "$root"/usr/share/locale "$root"/usr/share/man

    # Certificates: copy the host's bundle under another name, because the package ca-certificates, which
    # the Dockerfile installs, overwrites the usual file.
    bundle=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
    [ -s "$bundle" ] || die "$bundle has no certificates; install ca-certificates"
    mkdir -p "$root/etc/ssl"
    cp -L "$bundle" "$root/etc/ssl/host-certificates.crt"

    # apt: the host's settings for proxies and for the dates of package lists.
    apt-config dump Acquire | grep -E 'Proxy|Check-Date|Check-Valid-Until' \
        >"$root/etc/apt/apt.conf.d/90host" || :

    # pip: the host's settings from all sources.
    python3 -m pip config list 2>/dev/null | python3 -c '
import ast, sys
settings = {}
for line in sys.stdin:
    name, _, value = line.strip().partition("=")
    scope, _, key = name.rpartition(".")
    if scope in ("global", ":env:"):
        settings[key] = ast.literal_eval(value).strip() # The environment comes last and overrides the others.
settings["cert"] = "/etc/ssl/host-certificates.crt"
print("[global]")
for key, value in settings.items():
    print(f"{key} = " + "\n    ".join(value.split()))
' >"$root/etc/pip.conf"
}

if ! bud inspect --type image tvmlab-base >/dev/null 2>&1; then
    step "creating the base image with debootstrap"
    root=$(mktemp -d /var/tmp/tvmlab-base.XXXXXX) # debootstrap fails if a path contains a space.
    make_base
    base=$(bud from scratch)
    bud add --quiet "$base" "$root" / >/dev/null
    bud commit --quiet --rm "$base" tvmlab-base >/dev/null
    rm -rf "$root" "$root.log"
fi

# Mount the local folders and constraint files of the host's pip at the same paths.
set --
for place in $(python3 -m pip config list 2>/dev/null | grep -E 'find-links|index-url|constraint' |
    grep -oE "(file://|[=' ])/[^' ]+" | sed -E "s,^(file://|[=' ]),,; s,/simple/*\$,," | sort -u); do
    [ ! -e "$place" ] || set -- "$@" --volume "$place:$place:ro"
done

step "building the Dockerfile"
# If PIP_EXTRA_INDEX_URL is empty, pip uses the package servers in the base image's pip.conf.
bud build --isolation chroot --format docker --build-arg BASE=localhost/tvmlab-base \
    --build-arg PIP_EXTRA_INDEX_URL="${PIP_EXTRA_INDEX_URL-}" \
    --pull-never "$@" --tag tvmlab . >"$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log" >&2
    die "the image does not build; see the end of the log above"
}

step "testing the image"
container=$(bud from --pull-never tvmlab)
bud inspect --type image tvmlab >"$work/image.json"
unshare --net --pid --fork --kill-child --mount-proc \
    sh -c 'ip link set lo up && exec "$@"' sh \
    python3 scripts/image_check.py "$work/image.json" \
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs \
    run --isolation chroot "$container" --
step "done"
