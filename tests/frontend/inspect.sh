#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Golden tests of `ullage inspect`: text and JSON of a few models in cases/, with exit codes.
#
# usage: inspect.sh ULLAGE [--update]
# exit: 0 all equal, 6 a difference
set -uo pipefail
ullage=$(realpath "$1")
update=${2:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/cases" || exit 5
failed=0
got=$(mktemp)
trap 'rm -f "$got"' EXIT

# check NAME ARGUMENTS...: standard output, then standard error, then the exit code
check() {
    local want=$here/inspect/$1.want
    shift
    "$ullage" inspect "$@" >"$got" 2>"$got.err"
    echo "exit $?" >>"$got.err"
    cat "$got.err" >>"$got"
    rm -f "$got.err"
    if [ "$update" = --update ]; then
        cp "$got" "$want"
    elif ! diff -u "$want" "$got"; then
        echo "FAIL inspect $*"
        failed=1
    fi
}

mkdir -p "$here/inspect"
check open_dims dims_unbound.onnx
check open_dims_json dims_unbound.onnx --json -
check closed_dims dims_bound.onnx --dim seq=3 --shape mask=2,7 --shape free=5
check closed_dims_json dims_bound.onnx --dim seq=3 --shape mask=2,7 --shape free=5 --json -
check functions function_nested.onnx
check by_sizes by_sizes.onnx
check unsupported unsupported_all_at_once.onnx
check unsupported_json unsupported_all_at_once.onnx --json -
check open_sequence sequence_open.onnx
check open_sequence_json sequence_open.onnx --json -
check closed_sequence sequence_open.onnx --dim rows=1 --shape 's[0]=2,3'
check sequence_by_data sequence_open_by_data.onnx
check sequence_of_maps sequence_of_maps.onnx
check hostile_names names_hostile.onnx
check hostile_names_json names_hostile.onnx --json -
check overwritten training_overwritten.onnx
check overwritten_json training_overwritten.onnx --json -
check invalid file_cut.onnx
check missing none.onnx
check wrong_flag dims_unbound.onnx --dim bacth=3
check no_model
[ "$failed" = 0 ] || exit 6
