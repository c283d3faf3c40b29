#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests tests/bench/gpu.sh without a GPU: a dry run on networks scaled down, and what the table
# makes of figures that miss what is wanted. With PEER_PYTHON=COMMAND, a Python that has PyTorch and
# onnx, its networks are compared with ours.
#
# usage: tests/gpu/bench.sh ULLAGE TARGET       (target c; cuda with NVCC=tests/cuda_emulation/nvcc)
# exit: 0 ok, 6 not, 77 no Python packages
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL tests/bench/gpu.sh: $1" >&2; cat "$work/out" >&2; exit 6; }
"$root/scripts/setup_python.sh" >&2 || exit $?
export PYTHON=$root/build/venv/bin/python
export CCACHE_DISABLE=1 # where there is no time for a compiler, none may answer out of a cache
bench=("$root/tests/bench/gpu.sh" --ullage "$1" --target "$2")

# expect CODE PATTERN COMMAND...: exit code, and a line of what is printed.
expect() {
    local want=$1 pattern=$2 code=0
    shift 2
    "$@" >"$work/out" 2>&1 || code=$?
    [ "$code" = "$want" ] || fail "exit $code instead of $want: $*"
    grep -qE -- "$pattern" "$work/out" || fail "no line like $pattern: $*"
}
dry=(--dry-run --rounds 1 --runs 3 --warmup-runs 1 --warmup 0)
peer=${PEER_PYTHON:-$PYTHON}
expect 0 '^\| BERT-base 1x128 \| fp16 \| [0-9.]+ ' "${bench[@]}" "${dry[@]}" --peer-python "$peer" \
    --only 'ResNet-50 1|BERT-base 1|GPT-2|U-Net' --peers eager --json "$work/rows.json" \
    -- --cflags -O0
cat "$work/out"
grep -q '^DRY RUN' "$work/out" || fail "a dry run passes for a measurement"
grep -q 'FAILED' "$work/out" && fail "a network failed"
if ! "$peer" -c 'import torch' 2>/dev/null; then
    grep -q 'not measured: eager: not installed: torch' "$work/out" ||
        fail "missing PyTorch is not said"
elif grep -E '^\| [^|]+\| fp(32|16)' "$work/out" | grep -qE '\| - \|$'; then
    fail "results were not compared with PyTorch"
fi
expect 0 '^\| BERT-base 1x128 \| int8 \| .*e-0[2-9] \|' "${bench[@]}" "${dry[@]}" \
    --only 'BERT-base|GPT-2' --precision int8 --peers onnxruntime,eager -- --cflags -O0
grep -q 'GPT-2' "$work/out" && fail "a network was measured that has no quantized form"
expect 0 '^\| GPT-2 1x1024 \| fp32 \|' "${bench[@]}" --table "$work/rows.json"
expect 0 '^\| GPT-2 1x1024 \| fp16 \| [0-9.]+ \|' "${bench[@]}" --planned --dry-run --only GPT

# What is wanted: figures within it, and one after the other beyond it.
row() { # MS RESERVED DIFFERENCE of ours; PyTorch's are 1 ms, 1000 bytes, 400 of them weights
    printf '{"facts": {"GPU": "none"}, "rows": [{"network": "n", "precision": "fp32",
        "dry_run": false, "errors": {}, "difference": %s,
        "ours": {"seconds": %s, "reserved_bytes": %s, "weights_bytes": 400},
        "eager": {"seconds": 0.002, "reserved_bytes": 2000, "state_bytes": 400},
        "compile": {"seconds": 0.001, "reserved_bytes": 1000, "state_bytes": 400}}]}' "$3" "$1" "$2"
}
row 0.0009 700 1e-6 >"$work/good.json"
row 0.0011 700 1e-6 >"$work/slow.json"
row 0.0009 701 1e-6 >"$work/large.json"
row 0.0009 1001 1e-6 >"$work/larger.json"
row 0.0009 700 2e-3 >"$work/wrong.json"
expect 0 '\| 0.45 \| 0.90 \| - \| .*\| 0.50 \| .*\| 0.70 \| 1.0e-06 \|' \
    "${bench[@]}" --table "$work/good.json"
expect 6 '\| 1.10! \|' "${bench[@]}" --table "$work/slow.json"
expect 6 '\| 0.50! \|' "${bench[@]}" --table "$work/large.json"
expect 6 '\| 1.00! \|' "${bench[@]}" --table "$work/larger.json"
expect 6 '\| 2.0e-03! \|' "${bench[@]}" --table "$work/wrong.json"

expect 1 'no such network' "${bench[@]}" --only '^nothing$'
expect 1 'expected some of' "${bench[@]}" --peers tensorflow
expect 1 'no such program' "$root/tests/bench/gpu.sh" --ullage "$work/absent"
expect 77 'has no onnx' env PYTHON=false "$root/tests/bench/gpu.sh"
expect 6 'FAILED! compiling: exit 1' "${bench[@]}" "${dry[@]}" --only GPT --precision fp32 \
    --peers eager -- --no-such

# The compiler, taken elsewhere.
expect 0 . "$here/bundle.sh" "$1" "$work/bundle"
mv "$work/bundle" "$work/elsewhere"
expect 0 'reserves' "$work/elsewhere/ullage" compile "$root/models/digits/digits.onnx" --dim N=1 \
    --target cuda --emit "$work/emitted"
cmp "$work/emitted/ul_main.c" "$root/runtime/host/ul_main.c" || fail "the bundle has another runtime"
expect 1 'usage' "$here/bundle.sh" "$work/absent" "$work/none"

# Within a time: nothing is done; then all of it, by the packed compiler; then nothing is left to do.
expect 0 . "$here/bundle.sh" "$1" "$work/bundle.tar.gz"
bounded=("$root/tests/bench/gpu.sh" --ullage "$work/bundle.tar.gz" --target "$2" "${dry[@]}"
    --only GPT --precision fp32 --peers onnxruntime --json "$work/bounded.json")
expect 6 'FAILED! (no time was left|compiling: not done after [01] s)' "${bounded[@]}" --seconds 1 -- --cflags -O3
expect 0 '^\| GPT-2 1x1024 \| fp32 \| [0-9.]+ ' "${bounded[@]}" --seconds 500 -- --cflags -O0
expect 0 '^\| GPT-2 1x1024 \| fp32 \| [0-9.]+ ' "${bounded[@]}" --seconds 1 -- --cflags -O0
echo "ok"
