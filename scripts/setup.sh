#!/bin/sh
# Create .venv with the pinned packages, this package (editable) and the tvm-ffi source for notebook 01.
#
#   PYTHON=python3.12 sh scripts/setup.sh     use this interpreter
#   TORCH=cuda sh scripts/setup.sh            install the CUDA build of PyTorch from PyPI
#   TVMLAB_DISK_MB=6000 sh scripts/setup.sh   require another amount of free disk space
#
# The script ends at once if nothing has changed since its last run. pip's own variables and files
# (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip.conf) apply.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
python=$venv/bin/python
stamp=$venv/tvmlab-setup        # the inputs of the finished environment
busy=$venv/tvmlab-unfinished    # exists while pip changes files, and after pip was killed
base=$python
cpu_index=https://download.pytorch.org/whl/cpu
# Read the URL within two seconds. urlopen's own timeout does not limit a slow name server.
probe='import signal, sys, urllib.request; signal.alarm(2); urllib.request.urlopen(sys.argv[1])'
# Disk space in MB: the environment, and twice the wheels, because pip stores them in its cache and in
# a temporary folder. CPU: 2,650 + 2 * 650, measured. CUDA: 6,620 measured + 2 * 3,190 estimated.
cpu_mb=4000
cuda_mb=13000

die() {
    echo "setup: $*" >&2
    exit 1
}

# version INTERPRETER: print "3.11", or fail if the interpreter does not start (a shim, a broken link).
version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# A second environment in the container would be useless, and would overwrite the .venv of a mounted folder.
[ "${VIRTUAL_ENV:-}" != /opt/tvmlab ] ||
    die "this is the tvmlab image, which has everything installed: use python and tvmlab without make (README, Docker)"

# make and the output of tvm-ffi-config cannot contain a path with a space.
case $(pwd -P) in
*[[:space:]]*) die "there is a space in the path $(pwd -P), which the C++ build tools cannot handle; move the checkout" ;;
esac

in_range() {
    case $1 in 3.11 | 3.12 | 3.13) ;; *) return 1 ;; esac
}

# find_python: set base and base_version, or fail with one line that says what to install.
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

# inputs VERSION: print everything the environment depends on, including its folder, because the
# scripts of a moved environment still contain the old path.
inputs() {
    echo "python $1, torch $torch in $(pwd -P)"
    cat requirements.txt pyproject.toml tvmlab/assets/tvm-ffi-source.txt
}

# If two terminals run this script at once, the second waits for the first (if flock is installed).
if command -v flock >/dev/null 2>&1; then
    exec 9<requirements.txt
    flock 9
fi

# Without TORCH, keep the PyTorch build of the existing environment.
torch=${TORCH:-$(sed -n '1s/.*, torch \([a-z]*\) .*/\1/p' "$stamp" 2>/dev/null || :)}
case ${torch:=cpu} in
cpu | cuda) ;;
*) die "TORCH=$torch is unknown; TORCH=cpu installs the CPU build of PyTorch, TORCH=cuda PyPI's build" ;;
esac

# Check whether the existing environment works and is the requested one.
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

set -- # the pip options for the CPU build
disk_mb=$cuda_mb
if [ "$torch" = cpu ]; then
    # The braces hide the message of shells that report the alarm.
    if { "$base" -c "$probe" "$cpu_index/torch/"; } >/dev/null 2>&1; then
        set -- --extra-index-url "$cpu_index"
        disk_mb=$cpu_mb
    else
        for installed in "$venv"/lib/python*/site-packages/torch; do
            [ -z "$have" ] || [ ! -d "$installed" ] || disk_mb=$cpu_mb
        done
        echo "setup: cannot reach $cpu_index, so pip installs PyTorch from its own indexes (PyPI has the CUDA build)"
    fi
fi

disk_mb=${TVMLAB_DISK_MB:-$disk_mb}
where=.
if [ -d "$venv" ]; then
    where=$venv
    # A broken environment is deleted first, so that its space counts as free.
    [ -n "$have" ] || rm -rf "$venv"/*
    # pip replaces only a part of the installed files, so their space counts as available.
    there_kb=$(du -sk "$venv" | sed 's/[^0-9].*//')
    disk_mb=$((disk_mb - ${there_kb:-0} / 1000))
fi
free_kb=$(df -Pk "$where" | sed -n 's/.* \([0-9]\{1,\}\) \{1,\}[0-9]\{1,\}% .*/\1/p')
[ "${free_kb:-999999999}" -ge $((disk_mb * 1000)) ] ||
    die "too little disk space: $((free_kb / 1000)) MB free in $(pwd -P), $disk_mb MB needed; free some, clone elsewhere, or set TVMLAB_DISK_MB"

if [ -z "$have" ]; then
    echo "setup: creating $venv with Python $base_version"
    "$base" -m venv --clear "$venv" || die "$base could not create $venv; see its message above"
    have=$base_version
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
trap 'exit 130' INT TERM HUP # Otherwise a shell can mistake an interrupted pip for a failed one.
# pip_step WHAT ARGS...: run pip. After an error, add which step failed to the message of pip.
pip_step() {
    what=$1
    shift
    : >"$busy"
    # Show the progress only on a terminal, because it would fill a log with hundreds of lines.
    [ -t 1 ] || set -- "$@" --quiet
    if "$python" -m pip "$@"; then
        rm -f "$busy"
        return
    fi
    # If pip changed nothing (no network), keep the environment. Otherwise the next run creates a new one.
    [ -n "$(find "$venv/lib" -type f ! -name '*.pyc' -newer "$busy" | head -n 1)" ] || rm -f "$busy"
    die "pip could not $what; see its message above. Check the network, PIP_INDEX_URL and PIP_PROXY, then run the same command again"
}

# A stamp with only the first line marks an environment that is usable but incomplete.
inputs "$have" | head -n 1 >"$stamp"
echo "setup: installing the packages of requirements.txt (takes several minutes the first time)"
pip_step "install requirements.txt" install "$@" -r requirements.txt
pip_step "install tvmlab" install --no-deps --no-build-isolation --editable .
pip_step "fetch the source of tvm-ffi" download --no-deps --no-build-isolation \
    --dest "$venv/share/tvmlab" -r tvmlab/assets/tvm-ffi-source.txt
inputs "$have" >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "setup: done"
