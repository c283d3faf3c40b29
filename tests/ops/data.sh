#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the folder of ONNX's backend tests, a folder each: those of operators (node) and those of
# models (simple, pytorch-converted, pytorch-operator), which the Python package onnx brings that
# scripts/requirements.txt names. Both are made first where they are not there.
# exit: 0 ok, 77 when PyPI is out of reach
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
"$root/scripts/setup_python.sh" >&2
package=$(echo "$root"/build/venv/lib/python3*/site-packages/onnx)
version=$(echo "$package"-*.dist-info)
tests=$root/build/onnx_tests/$(basename "$version" .dist-info)
if [ ! -d "$tests" ]; then
    # Whoever is first makes it for all that run at the same time.
    mkdir -p "$root/build/onnx_tests"
    made=$(mktemp -d --tmpdir="$root/build/onnx_tests")
    chmod 755 "$made"
    for part in node simple pytorch-converted pytorch-operator; do
        ln -s "$package/backend/test/data/$part"/test_* "$made"
    done
    mv -T "$made" "$tests" 2>/dev/null || rm -rf "$made"
fi
echo "$tests"
