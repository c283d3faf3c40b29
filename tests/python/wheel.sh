#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel: built from this tree, installed into a venv of its own, where all tests of the package
# run with what it brings; the command line comes along, and compiled programs find its oneDNN.
#
# usage: tests/python/wheel.sh [WHEEL]     (else one is built)
# exit: 0, 77 PyPI is out of reach, else what failed
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
wheel=${1:-$("$root/scripts/build_wheel.sh")}
venv=$(mktemp -d)/venv
trap 'rm -rf "$(dirname "$venv")"' EXIT
"$root/scripts/setup_python.sh" --bare --with numpy --with onnx --with onnxruntime "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-index "$wheel"
cd "$(dirname "$venv")"

unset ULLAGE PYTHONPATH
export ULLAGE_INSTALLED=1 PATH=$venv/bin:$PATH
[ "$(command -v ullage)" = "$venv/bin/ullage" ]
ullage --version
for library in $(ldd "$venv"/lib/python3*/site-packages/ullage/tree/bin/ullage |
    awk '/=>/ { print $3 }' | grep -E 'dnnl|glpk|jansson|protobuf|crypto'); do
    case $library in
    "$venv"/*) ;;
    *) echo "the program takes $library, not the wheel's"; exit 1 ;;
    esac
done
ullage compile "$root/models/digits/digits.onnx" --dim N=16 -o digits
./digits --test-data "$root/models/digits/test_data_set_0"
ldd digits | grep "libdnnl.*$venv"
python "$root/python/examples/notebook.py" >example.log || { cat example.log; exit 1; }
for name in plan model trainer networks; do
    python "$here/$name.py"
done
