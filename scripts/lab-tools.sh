#!/bin/sh
# Install the tools of notebook 09: the Debian packages that tvmlab/assets/lab-tools.txt names.
set -eu
cd "$(dirname "$0")/.."

die() {
    echo "lab-tools: $*" >&2
    exit 1
}

packages=$(awk '!/^#/ && NF { print $2 }' tvmlab/assets/lab-tools.txt | sort -u)
command -v apt-get >/dev/null ||
    die "there is no apt-get here; install what your system calls these packages of Debian:" $packages
as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing packages takes root, and there is no sudo"
    as_root=sudo
fi
# The list is old, or empty, on many a machine.
$as_root apt-get update --quiet=2
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
# shellcheck disable=SC2086  # a word a package
$as_root apt-get install --quiet=2 --yes --no-install-recommends $packages
