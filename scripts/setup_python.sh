#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment that the model generators and the reference tests use.
# The compiler and the programs it makes never need Python.
#
# usage: scripts/setup_python.sh [--bare] [--with PACKAGE]... [--into DIR PACKAGE] [VENV]
# VENV defaults to build/venv. With --bare it holds the packages that are named and nothing else; --into
# puts one, without those that it needs, into a folder of its own that is not there yet.
# Does nothing when VENV already holds what scripts/requirements.txt asks for.
# exit: 0 ready, 77 PyPI is out of reach (callers skip, saying so), 1 anything else
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv= bare= into=
extra=()
while [ $# -gt 0 ]; do
    case $1 in
    --with) extra+=("${2:?--with needs a package}"); shift 2 ;;
    --into) into=${2:?--into needs a folder} alone=${3:?--into needs a package}; shift 3 ;;
    --bare) bare=1; shift ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "setup_python.sh: unknown option $1" >&2; exit 1 ;;
    *) venv=$1; shift ;;
    esac
done
venv=${venv:-$root/build/venv}

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
            2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup_python.sh: no Python 3.10 or newer with venv; install python3-venv" >&2
    exit 1
}

# pip_install STAMP ARGUMENTS...: skipped when STAMP exists, which only a finished install leaves.
pip_install() {
    local stamp=$1 log=$venv/install.log
    shift
    [ ! -e "$stamp" ] || return 0
    if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check --retries 2 "$@" \
        >"$log" 2>&1; then
        cat "$log" >&2
        if grep -qE 'Retrying|[Cc]onnection|resolution|timed out|is unreachable' "$log"; then
            echo "setup_python.sh: PyPI is out of reach; nothing that needs Python can run" >&2
            exit 77
        fi
        echo "setup_python.sh: pip could not install $*" >&2
        exit 1
    fi
    touch "$stamp"
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    mkdir -p "$(dirname "$venv")"
    "$python" -m venv "$venv"
fi
sum=$(sha256sum "$root/scripts/requirements.txt" | cut -c1-16)
[ -n "$bare" ] || pip_install "$venv/.ready-$sum" -r "$root/scripts/requirements.txt"
for package in "${extra[@]}"; do
    pip_install "$venv/.ready-${package//[^A-Za-z0-9._=-]/_}" "$package"
done
if [ -n "$into" ] && [ ! -d "$into" ]; then
    rm -rf "$into.part"
    pip_install "$into.part/.ready" --no-deps --target "$into.part" "$alone"
    mv "$into.part" "$into"
fi
