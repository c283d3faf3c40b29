#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: data.sh [--python]
# Prints the folder of ONNX's backend tests, a folder each: those of operators (node) and those of
# models (simple, pytorch-converted, pytorch-operator), which the Python package onnx brings that
# scripts/requirements.txt names, and what a newer onnx has beside them (newer.py). All are made
# first where they are not there. Without the newer package the folder holds the others alone, and
# stderr says so. With --python it prints the interpreter that has the newer onnx.
# exit: 0 ok, 77 when PyPI is out of reach
set -euo pipefail
newer=1.23.2 # PyPI's newest; list_tests.py and run.sh --update follow it
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
"$root/scripts/setup_python.sh" >&2
package=$(echo "$root"/build/venv/lib/python3*/site-packages/onnx)
version=$(echo "$package"-*.dist-info)
base=$root/build/onnx_tests/$(basename "$version" .dist-info)

# make FOLDER COMMAND...: runs the command with a new folder as its last argument, which becomes
# FOLDER. Whoever is first makes it for all that run at the same time.
make() {
    local folder=$1 made
    shift
    [ ! -d "$folder" ] || return 0
    mkdir -p "$root/build/onnx_tests"
    made=$(mktemp -d --tmpdir="$root/build/onnx_tests")
    chmod 755 "$made"
    "$@" "$made"
    mv -T "$made" "$folder" 2>/dev/null || rm -rf "$made"
}

link_parts() {
    for part in node simple pytorch-converted pytorch-operator; do
        ln -s "$package/backend/test/data/$part"/test_* "$1"
    done
}

link_both() {
    ln -sr "$base"/test_* "$more"/test_* "$1" # the folders may move
}

venv=$root/build/venv-onnx-$newer status=0
"$root/scripts/setup_python.sh" --bare --with "onnx==$newer" "$venv" >&2 || status=$?
if [ "${1:-}" = --python ]; then
    [ "$status" != 0 ] || echo "$venv/bin/python"
    exit "$status"
fi
make "$base" link_parts
if [ "$status" != 0 ]; then
    [ "$status" = 77 ] || exit 1
    echo "data.sh: without the tests of onnx $newer: PyPI is out of reach" >&2
    echo "$base"
    exit
fi
maker=$root/tests/ops/newer.py
more=$base+$newer-$(sha256sum "$maker" | cut -c1-8)
make "$more" "$venv/bin/python" "$maker" "$base"
make "$more-both" link_both
echo "$more-both"
