#!/bin/sh
# Make .venv: the pinned packages, this package (editable), and the tvm-ffi source for notebook 01.
#
#   PYTHON=python3.12 sh scripts/setup.sh     use this interpreter
#   TORCH=cuda sh scripts/setup.sh            install PyPI's PyTorch, the CUDA build
#   TVMLAB_DISK_MB=6000 sh scripts/setup.sh   ask for another amount of disk
#
# Run it as often as you like: where nothing changed it ends in a moment. pip's own variables
# and files (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip.conf) are obeyed.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
python=$venv/bin/python
stamp=$venv/tvmlab-setup        # what the finished environment was made from
busy=$venv/tvmlab-unfinished    # there while pip changes files: a killed pip leaves it behind
base=$python
cpu_index=https://download.pytorch.org/whl/cpu
# Read with a limit of two seconds that a slow name server cannot stretch, unlike urlopen's own.
probe='import signal, sys, urllib.request; signal.alarm(2); urllib.request.urlopen(sys.argv[1])'
# MB of the environment and of the wheels twice, because pip keeps them in its cache and in a
# temporary folder. CPU: 2,650 + 2 * 650, measured. CUDA: 6,620 measured + 2 * 3,190 estimated.
cpu_mb=4000
cuda_mb=13000

die() {
    echo "setup: $*" >&2
    exit 1
}

# version INTERPRETER: "3.11", or a failure where it does not start (a shim, a dangling link).
version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# A second environment would be of no use there, and take the place of the .venv of a folder mapped in.
[ "${VIRTUAL_ENV:-}" != /opt/tvmlab ] ||
    die "this is the image, where everything is installed: use python and tvmlab without make (README, Docker)"

# make and what tvm-ffi-config prints cannot name a folder with a space in it.
case $(pwd -P) in
*[[:space:]]*) die "there is a space in the path $(pwd -P), which the C++ build tools cannot take; move the checkout" ;;
esac

in_range() {
    case $1 in 3.11 | 3.12 | 3.13) ;; *) return 1 ;; esac
}

# find_python: sets base and base_version, or says in one line what to install.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        base=$PYTHON
        base_version=$(version "$base") || die "PYTHON=$PYTHON does not start; name a Python 3.11 to 3.13"
        in_range "$base_version" || die "PYTHON=$PYTHON is Python $base_version; tvmlab needs 3.11 to 3.13"
        return
    fi
    seen=
    for base in python3 python3.13 python3.12 python3.11; do
        base_version=$(version "$base") || continue
        in_range "$base_version" && return
        seen="${seen:-; python3 here is $base_version}"
    done
    die "no Python 3.11 to 3.13 found$seen; install one (Debian 12: apt install python3 python3-venv) or name it: PYTHON=/path/to/python3.12"
}

# inputs VERSION: everything the environment depends on. The folder is part of it because
# an environment that was moved has scripts that point to where it was.
inputs() {
    echo "python $1, torch $torch in $(pwd -P)"
    cat requirements.txt pyproject.toml tvmlab/assets/tvm-ffi-source.txt
}

# Two terminals, one environment: the second waits for the first (where flock is installed).
if command -v flock >/dev/null 2>&1; then
    exec 9<requirements.txt
    flock 9
fi

# TORCH without a value keeps the build of the environment that is here.
torch=${TORCH:-$(sed -n '1s/.*, torch \([a-z]*\) .*/\1/p' "$stamp" 2>/dev/null || :)}
case ${torch:=cpu} in
cpu | cuda) ;;
*) die "TORCH=$torch is unknown; TORCH=cpu installs the CPU build of PyTorch, TORCH=cuda PyPI's build" ;;
esac

# Is the environment that is here sound, and is it the wanted one?
have=$(version "$python") || have=
if [ -n "${PYTHON:-}" ]; then
    find_python
    [ "$have" = "$base_version" ] || have=
fi
if [ -n "$have" ]; then
    if [ -f "$stamp" ] && [ ! -e "$busy" ] && inputs "$have" | cmp -s - "$stamp"; then
        exit 0
    fi
    first=$(head -n 1 "$stamp" 2>/dev/null) || first=
    if [ -e "$busy" ] || [ "$first" != "$(inputs "$have" | head -n 1)" ]; then
        have=
    fi
fi

if [ -z "$have" ]; then
    find_python
    "$base" -c 'import ensurepip, venv' 2>/dev/null ||
        die "Python $base_version has no venv module; install it (Debian, Ubuntu: apt install python$base_version-venv)"
fi

set -- # the options of pip that offer it the CPU build
disk_mb=$cuda_mb
if [ "$torch" = cpu ]; then
    # In braces, because some shells report the alarm that ends the probe.
    if { "$base" -c "$probe" "$cpu_index/torch/"; } >/dev/null 2>&1; then
        set -- --extra-index-url "$cpu_index"
        disk_mb=$cpu_mb
    else
        for installed in "$venv"/lib/python*/site-packages/torch; do
            [ -z "$have" ] || [ ! -d "$installed" ] || disk_mb=$cpu_mb
        done
        echo "setup: cannot reach $cpu_index, so pip installs the PyTorch of its own indexes (PyPI has the CUDA build)"
    fi
fi

disk_mb=${TVMLAB_DISK_MB:-$disk_mb}
where=.
if [ -d "$venv" ]; then
    where=$venv
    # An environment that does not work must not count against the space for the new one.
    [ -n "$have" ] || rm -rf "$venv"/*
    # Of what is installed pip replaces a part.
    there_kb=$(du -sk "$venv" | sed 's/[^0-9].*//')
    disk_mb=$((disk_mb - ${there_kb:-0} / 1000))
fi
free_kb=$(df -Pk "$where" | sed -n 's/.* \([0-9]\{1,\}\) \{1,\}[0-9]\{1,\}% .*/\1/p')
[ "${free_kb:-999999999}" -ge $((disk_mb * 1000)) ] ||
    die "too little disk space: $((free_kb / 1000)) MB free in $(pwd -P), $disk_mb MB needed; free some, clone elsewhere, or set TVMLAB_DISK_MB"

if [ -z "$have" ]; then
    echo "setup: making $venv with Python $base_version"
    "$base" -m venv --clear "$venv" || die "$base could not make $venv (its own message is above)"
    have=$base_version
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
trap 'exit 130' INT TERM HUP # Without it a shell may take an interrupted pip for a failed one.
# pip_step WHAT ARGS...: run pip, which says itself what is wrong, and add where we were.
pip_step() {
    what=$1
    shift
    : >"$busy"
    # At a terminal pip shows its progress; in a log it would be hundreds of lines.
    [ -t 1 ] || set -- "$@" --quiet
    if "$python" -m pip "$@"; then
        rm -f "$busy"
        return
    fi
    # Where pip changed nothing (no network), what is there stays good; else it is made anew.
    [ -n "$(find "$venv/lib" -type f ! -name '*.pyc' -newer "$busy" | head -n 1)" ] || rm -f "$busy"
    die "pip could not $what (its own message is above); check the network or PIP_INDEX_URL and PIP_PROXY, then run the same command again"
}

# The first line of the stamp alone marks an environment of the right making that is not complete.
inputs "$have" | head -n 1 >"$stamp"
echo "setup: installing the packages of requirements.txt (some minutes the first time)"
pip_step "install requirements.txt" install "$@" -r requirements.txt
pip_step "install tvmlab" install --no-deps --no-build-isolation --editable .
pip_step "fetch the source of tvm-ffi" download --no-deps --no-build-isolation \
    --dest "$venv/share/tvmlab" -r tvmlab/assets/tvm-ffi-source.txt
inputs "$have" >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "setup: done"
