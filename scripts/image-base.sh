#!/bin/sh
# image-base.sh FOLDER: a Debian bookworm root in FOLDER, to stand in for debian:bookworm-slim
# where no registry and no Docker is at hand. It carries what this machine needs to reach its
# package servers (certificates, apt's and pip's settings), so that the Dockerfile need not.
#
#   TVMLAB_MIRROR=http://mirror.example/debian   take the packages from there
set -eu
root=$1

# Without a mirror debootstrap takes Debian's own.
debootstrap --variant=minbase bookworm "$root" ${TVMLAB_MIRROR:+"$TVMLAB_MIRROR"} \
    >"$root.log" 2>&1 || {
    tail -n 5 "$root.log" >&2
    echo "image-base: debootstrap could not fetch Debian (TVMLAB_MIRROR names another mirror)" >&2
    exit 1
}

# As in the slim images: no manuals, no translations, and none of apt's caches.
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

# Certificates: the host's bundle under a name of its own, because the package ca-certificates,
# which the Dockerfile installs, writes the usual one anew.
bundle=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
[ -s "$bundle" ] || {
    echo "image-base: no certificates in $bundle; install ca-certificates" >&2
    exit 1
}
mkdir -p "$root/etc/ssl"
cp -L "$bundle" "$root/etc/ssl/host-certificates.crt"

# apt: how the host reaches its servers (proxies, what it thinks of their clocks).
apt-config dump Acquire | grep -E 'Proxy|Check-Date|Check-Valid-Until' \
    >"$root/etc/apt/apt.conf.d/90host" || :

# pip: its settings as the host's pip sees them, wherever they come from.
python3 -m pip config list 2>/dev/null | python3 -c '
import ast, sys
settings = {}
for line in sys.stdin:
    name, _, value = line.strip().partition("=")
    scope, _, key = name.rpartition(".")
    if scope in ("global", ":env:"):
        settings[key] = ast.literal_eval(value).strip() # The environment comes last and wins.
settings["cert"] = "/etc/ssl/host-certificates.crt"
print("[global]")
for key, value in settings.items():
    print(f"{key} = " + "\n    ".join(value.split()))
' >"$root/etc/pip.conf"
