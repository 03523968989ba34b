#!/bin/sh
# Install the tools of notebook 09, the Debian packages in tvmlab/assets/lab-tools.txt.
set -eu
cd "$(dirname "$0")/.."

die() {
    echo "lab-tools: $*" >&2
    exit 1
}

packages=$(awk '!/^#/ && NF { print $2 }' tvmlab/assets/lab-tools.txt | sort -u)
command -v apt-get >/dev/null ||
    die "this system has no apt-get; install its packages for these Debian packages:" $packages
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing packages needs root, and this system has no sudo; run the command as root"
    as_root=sudo
fi
# The package lists of many machines are old or empty.
$as_root apt-get update --quiet=2
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
# shellcheck disable=SC2086  # one word per package
$as_root apt-get install --quiet=2 --yes --no-install-recommends $packages
