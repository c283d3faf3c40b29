#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests prepare_once.sh and once.sh where there is no GPU: a small pack, rehearsed without a device, by the CUDA Toolkit's own
# nvcc where there is one, and run under the emulation, where its results have to be right.
#
# usage: tests/gpu/once_test.sh ULLAGE     exit: 0 ok, 6 not, 77 no Python packages
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
emulation=$root/tests/cuda_emulation/nvcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL tests/gpu/once: $1" >&2; cat "$work/said" >&2; exit 6; }
export GPU_PACK=$work/pack ULLAGE=$1 DRY_RUN=1
export PYTHON=$root/build/venv/bin/python

code=0
"$here/prepare_once.sh" --no-plain --no-bundle --only '^(digits.bf16|digits_offload.fp32|lstm_caller.fp16|gpt2_align8.fp16|thin.fp16)$' "$1" \
    "$work/pack" >"$work/said" 2>&1 || code=$?
[ "$code" != 77 ] || exit 77
[ "$code" = 0 ] || fail "prepare_once.sh: exit $code"
grep -E 'together [0-9]+, less than' "$work/said" || fail "prepare_once.sh does not say what is carried"

# once CODE SECONDS: within that time, a few files.
once() {
    local begin=$SECONDS code=0 file
    rm -rf "$work/out"
    OUT=$work/out "$here/once.sh" "$2" >"$work/said" 2>&1 || code=$?
    [ "$code" = "$1" ] || fail "exit $code instead of $1"
    [ $((SECONDS - begin)) -le "$2" ] || fail "it takes $((SECONDS - begin)) s, not $2"
    [ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
    [ "$(du -sk "$work/out" | cut -f1)" -lt 16384 ] || fail "more than 16 MiB"
    for file in logs.tar.gz table.txt facts.txt results.tsv; do
        [ -s "$work/out/$file" ] || fail "$file is missing"
    done
}
row() { grep -qE -- "$1" "$work/out/results.tsv" || { cat "$work/out/results.tsv"; fail "no row like $1"; }; }

# Without a device each part says so.
# shellcheck source=tests/gpu/toolkit.sh disable=SC1091
. "$here/toolkit.sh"
if [ -n "$(compgen -G '/dev/nvidia[0-9]*')" ] || ! nvcc=$(NVCC='' find_nvcc); then
    nvcc=$emulation
fi
UL_EMULATE_NO_DEVICE=1 NVCC=$nvcc once 3 420
for stage in facts results plain bench sanitize; do
    row "^$stage"$'\t.*\tskip\t'"no CUDA device"
done
! grep -q $'\tFAIL\t' "$work/out/results.tsv" || { cat "$work/out/results.tsv"; fail "a rehearsal fails"; }

# On the emulated one the results are right.
NVCC=$emulation CASES='LSTM 1x50:fp16' once 0 900
cat "$work/out/table.txt"
for wanted in 'digits.bf16.train' 'digits.bf16.bits' 'digits.bf16.guard' 'digits.bf16.memory' 'digits_offload.fp32.train' \
    'digits_offload.fp32.bits' 'digits_offload.fp32.memory' 'lstm_caller.fp16.turns' 'gpt2_align8.fp16.results' 'thin.fp16.tune' 'carve.time'; do
    row "^results.$wanted.ok"
done
row $'digits_offload.fp32\tmemory\tok\t.*offloaded [1-9]'
row $'lstm_caller.fp16\tturns\tok\t1 captures for two sets, 1 for 14 runs on 3, [1-9]'
row $'thin.fp16\ttune\tok\t[0-9.]+ ms, tuned [0-9.]+ ms; cublaslt algorithm .* us; tuned: cublaslt'
row $'carve\ttime\tok\tus a launch'
row $'^bench\tLSTM 1x50 fp16\ttime\tok\tours [0-9.]+ ms'
row $'^bench\tLSTM 1x50 fp16\tbytes\tok\treserved [0-9]+, taken [0-9]+'

# Losses and results that are wrong are failures; the others are judged all the same.
"$PYTHON" -m tarfile -e "$work/pack/risky.tar.xz" "$work"
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") at = i } NR > 1 { $at *= 2 } { print }' \
    "$work/risky/digits_offload.fp32/want.csv" >"$work/want.csv" && mv "$work/want.csv" "$work/risky/digits_offload.fp32/"
"$PYTHON" - "$work"/risky/gpt2_align8.fp16/want/*.npy <<'P'
import sys
import numpy
array = numpy.load(sys.argv[1])
numpy.save(sys.argv[1], array + 1)
P
sed -i 's/^\(digits_offload[^\t]*\t\)[^\t]*/\1train/; /^digits.bf16/d' "$work/risky/rows.tsv"
(cd "$work" && "$PYTHON" -m tarfile -c "$work/pack/risky.tar.xz" risky runtime) || fail "the damaged pack"
NVCC=$emulation STAGES=results once 6 900
row $'gpt2_align8.fp16\tresults\tFAIL\tnorm error'
row $'digits_offload.fp32\ttrain\tFAIL\t20 losses'
row $'lstm_caller.fp16\tturns\tok'
echo ok
