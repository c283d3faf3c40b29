#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where the newer onnx cannot be had, data.sh has tests of the older alone: what the tests here make
# of a folder that has one test of those that tests.tsv names.
#
# usage: tests/ops/missing.sh ULLAGE ONNX_EVAL
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ullage=$(realpath "$1")
eval=$(realpath "$2")
data=$("$here/data.sh") || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
mkdir "$work/data"
ln -s "$data/test_abs" "$work/data/test_abs"
others=$(($(wc -l <"$here/tests.tsv") - 2))

# expect CODE PATTERN COMMAND...: exit code, and a pattern (grep -E) in stdout and stderr together
expect() {
    local code=$1 pattern=$2 got
    shift 2
    "$@" >"$work/out.txt" 2>&1
    got=$?
    if [ "$got" != "$code" ] || ! grep -qE -- "$pattern" "$work/out.txt"; then
        echo "FAIL $*: exit $got, expected $code and /$pattern/; printed:"
        cat "$work/out.txt"
        failed=6
    fi
}

run() { "$here/run.sh" --data "$work/data" --out "$work/out" --cflags -O0 "$@"; }
expect 0 '^run.sh: 1 tests are left out' run "$ullage" '^test_a(bs|dd)$'
grep -q '^1 passed, 0 failed$' "$work/out.txt" || { cat "$work/out.txt"; failed=6; }
expect 77 'left out' run "$ullage" '^test_add$'
expect 1 '--update needs all tests' run --update "$ullage"
expect 0 "^$others tests are left out" "$eval" --quiet --data "$work/data" --table "$here/tests.tsv"
grep -q '^1 of 1 pass' "$work/out.txt" || { cat "$work/out.txt"; failed=6; }
expect 0 "^$others tests are left out" "$here/../ref/python.sh" "$here/list_tests.py" --check \
    --data "$work/data"
exit $failed
