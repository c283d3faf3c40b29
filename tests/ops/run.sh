#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs ONNX's backend tests of operators and of small models: `ullage verify` on every test that
# tests.tsv calls in scope.
#
# usage: tests/ops/run.sh [options] ULLAGE [FILTER]
#   FILTER          only tests whose name matches this extended regular expression; "library": those
#                   of operators that a target may hand to a library
#   --stride K      only every K-th test (after FILTER), for the quick tier
#   --jobs N        tests at a time (2)
#   --cflags FLAGS  for the generated program's compiler (-O1)
#   --target NAME   c (default), cpu or cuda
#   --precision P   fp16 or bf16: tests of f32 with all that the operator reads and writes stored so
#                   (round_edges.py; needs the Python package onnx); other tests are left out
#   --options OPTS  more options for verify
#   --timeout S     seconds for one test (120)
#   --out DIR       logs, ops-passed.txt and ops-failed.txt (beside ULLAGE, in ops/)
#   --data DIR      the folder with the tests (default: that of data.sh)
#   --update        write the tests that passed into the table (full runs only)
# Tests of tests.tsv that the folder has not (data.sh, where PyPI is out of reach) are left out, and
# how many is said.
# A test whose column "compiled" says pass is golden, for every target; with --precision only where
# "rounded" says nothing. One that no longer passes is a failure; how many others pass is said. Where
# target cuda is built by tests/cuda_emulation/nvcc ($NVCC), a test also fails where a kernel was
# emitted and never ran.
# exit: 0 ok, 6 a golden test failed, 77 no test data (data.sh), or none of the tests, 1 usage
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C
table=$here/tests.tsv
# shellcheck source=tests/part.sh
. "$here/../part.sh"

run_one() {
    local test=$1 log=$OPS_OUT/log/$1.txt
    local code=0 kernels=$OPS_OUT/log/$1.kernels
    local more=()
    rm -f "$kernels"
    if [ -n "$OPS_PRECISION" ]; then
        more=(--precision "$OPS_PRECISION")
        for pass in simplify cse sink pattern einsum views concat fuse; do more+=(--no-pass $pass); done
    fi
    local atol
    atol=$(awk -F'\t' -v test="$test" '$1 == test { print $6 }' "$table")
    [ "$atol" = - ] || more+=(--atol "$atol")
    read -ra options <<<"$OPS_OPTIONS"
    more+=("${options[@]}")
    local verify=(timeout "$OPS_TIMEOUT" "$OPS_ULLAGE" verify --target "$OPS_TARGET"
        --cflags "$OPS_CFLAGS" "${more[@]}" "$OPS_DATA/$test/model.onnx")
    UL_EMULATE_COVERAGE=$kernels "${verify[@]}" >"$log" 2>&1 </dev/null || code=$?
    if [ "$code" = 0 ] && [ -e "$kernels" ] &&
        ! "$here/../cuda_emulation/coverage.sh" "$kernels" >"$log"; then
        # Kernels that stand beside calls of libraries run where these have nothing for them.
        UL_EMULATE_NO_ALGORITHMS=1 UL_EMULATE_COVERAGE=$kernels "${verify[@]}" >"$log" 2>&1 \
            </dev/null && "$here/../cuda_emulation/coverage.sh" "$kernels" >"$log" || code=$?
    fi
    if [ "$code" = 0 ]; then
        echo "$test" >>"$OPS_OUT/passed.part"
        return
    fi
    echo "$test" >>"$OPS_OUT/failed.part"
    printf 'FAIL %-50s exit %d: %s\n' "$test" "$code" "$(grep -m1 -v '^$' "$log" | cut -c1-200)"
}

if [ "${1:-}" = --one ]; then # called by xargs below
    run_one "$2"
    exit 0
fi

jobs=2 cflags=-O1 target=c limit=120 out= data= update= stride=1 precision= options=
while [ $# -gt 0 ]; do
    case $1 in
    --jobs) jobs=$2; shift 2 ;;
    --cflags) cflags=$2; shift 2 ;;
    --target) target=$2; shift 2 ;;
    --precision) precision=$2; shift 2 ;;
    --options) options=$2; shift 2 ;;
    --timeout) limit=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --data) data=$2; shift 2 ;;
    --stride) stride=$2; shift 2 ;;
    --update) update=1; shift ;;
    -h | --help) sed -n '2,28s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 1 ;;
    *) break ;;
    esac
done
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: tests/ops/run.sh [options] ULLAGE [FILTER]" >&2
    exit 1
fi
ullage=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
filter=${2:-.}
[ -x "$ullage" ] || { echo "run.sh: $ullage: no such program" >&2; exit 1; }
[ -n "$data" ] || data=$("$here/data.sh") || exit $?
[ "$filter" != library ] || filter='^test_(basic_)?(conv|matmul|gemm|maxpool|averagepool|globalaverage)'
out=$(realpath -m "${out:-$(dirname "$ullage")/ops}")
rm -rf "$out/log" "$out"/*.part
mkdir -p "$out/log" "$out/tmp"
: >"$out/passed.part"
: >"$out/failed.part"

awk -F'\t' 'NR > 1 && $4 == "in" { print $1 }' "$table" | grep -E -- "$filter" |
    awk -v k="$stride" '(NR - 1) % k == 0' >"$out/named.txt" || {
    echo "run.sh: no test in scope has $filter in its name" >&2
    exit 1
}
part <"$out/named.txt" >"$out/wanted.txt"
rm -rf "$out/data"
mkdir -p "$out/data"
: >"$out/selected.txt"
while read -r test; do
    [ -e "$data/$test" ] || continue
    ln -s "$(realpath "$data/$test")" "$out/data/$test"
    echo "$test" >>"$out/selected.txt"
done <"$out/wanted.txt"
missing=$(($(wc -l <"$out/wanted.txt") - $(wc -l <"$out/selected.txt")))
[ "$missing" = 0 ] || echo "run.sh: $missing tests are left out: $data has them not"
[ -s "$out/selected.txt" ] || [ "$missing" = 0 ] || exit 77
data=$out/data
if [ -n "$precision" ]; then
    rm -rf "$out/rounded"
    mkdir -p "$out/rounded"
    "$here/../ref/python.sh" "$here/round_edges.py" "$data" "$out/rounded" \
        <"$out/selected.txt" >"$out/wrapped.txt" || exit $?
    mv "$out/wrapped.txt" "$out/selected.txt"
    data=$out/rounded
fi
export OPS_PRECISION=$precision OPS_OPTIONS=$options
export OPS_ULLAGE=$ullage OPS_CFLAGS=$cflags OPS_TARGET=$target OPS_TIMEOUT=$limit
export OPS_DATA=$data OPS_OUT=$out TMPDIR=$out/tmp
xargs -r -P "$jobs" -n 1 "$here/run.sh" --one <"$out/selected.txt"
sort "$out/passed.part" >"$out/ops-passed.txt"
sort "$out/failed.part" >"$out/ops-failed.txt"
rm -rf "$out"/*.part "$out/tmp"

status=0
selected=$(wc -l <"$out/selected.txt")
passed=$(wc -l <"$out/ops-passed.txt")
if [ -n "$update" ]; then
    if [ "$filter" != . ] || [ "$stride" != 1 ] || [ -n "$precision" ]; then
        echo "run.sh: --update needs a full run" >&2
        exit 1
    fi
    if [ "$missing" != 0 ]; then
        echo "run.sh: --update needs all tests" >&2
        exit 1
    fi
    "$here/../ref/python.sh" "$here/list_tests.py" --passed compiled <"$out/ops-passed.txt"
else
    awk -F'\t' -v precision="$precision" \
        '$7 == "pass" && (precision == "" || $9 == "-") { print $1 }' "$table" |
        sort >"$out/golden.txt"
    lost=$(comm -12 "$out/ops-failed.txt" "$out/golden.txt")
    new=$(comm -23 "$out/ops-passed.txt" "$out/golden.txt" | wc -l)
    if [ -n "$lost" ]; then
        echo "These tests must pass ($table):"
        sed 's/^/  /' <<<"$lost"
        status=6
    fi
    [ "$new" = 0 ] || echo "$new more tests pass than $table says; --update adds them"
fi
echo "ONNX node tests, target $target:"
echo "$passed passed, $((selected - passed)) failed"
exit $status
