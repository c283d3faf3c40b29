#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line of a model of library calls: threads, --memory, --guard, and what is said where
# the library wants more than was planned or has nothing for this machine.
#
# usage: tests/runtime/calls.sh PROGRAMS      (the folder of calls, calls_* and calls.weights)
set -u
cd "$1" || exit 1
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
fail() { echo "FAIL: $1"; cat "$out"/*.txt; exit 1; }

./calls --random 1 --output y="$out/two.npy" 2>"$out/error.txt"
case $? in
0) ;;
3) echo "made for AVX-512"; exit 77 ;;
*) fail "calls" ;;
esac
./calls --threads 1 --random 1 --output y="$out/one.npy" || fail "one thread"
OMP_NUM_THREADS=1 ./calls --random 1 --output y="$out/env.npy" || fail "one thread, environment"
cmp "$out/one.npy" "$out/env.npy" || fail "--threads 1 differs from OMP_NUM_THREADS=1"
for i in 1 2 3; do
    ./calls --random 1 --output y="$out/again.npy" && cmp "$out/two.npy" "$out/again.npy" ||
        fail "two runs differ"
done
for threads in 1 2; do
    ./calls --threads $threads --guard >"$out/guard.txt" 2>&1 || fail "--guard"
    ./calls --threads $threads --memory >"$out/memory.txt" 2>&1 || fail "--memory"
    grep -q '^library (oneDNN, other), measured  *[1-9]' "$out/memory.txt" || fail "no row of the library"
    awk '/^  (arena|library|files) / && $2 > 0 { rows++ }
         /^  total / { total = $2 } /peak resident/ { sub(/.* = /, ""); peak = $1 }
         END { exit !(rows == 3 && total > 0 && total <= peak) }' \
        "$out/memory.txt" || fail "what is resident"
    grep -q '^unaccounted  *0$' "$out/memory.txt" || fail "unaccounted bytes"
done
./calls --threads 3 >"$out/threads.txt" 2>&1
[ $? = 1 ] && grep -q 'planned for 2 threads' "$out/threads.txt" || fail "--threads 3"
./calls --threads 0 >"$out/threads.txt" 2>&1
[ $? = 1 ] || fail "--threads 0"

# In blocks that the library has for any number of threads, and in some that it has for none.
for threads in 1 2; do
    ./calls_blocks --weights calls.weights --threads $threads --random 1 --output y="$out/blocks.npy" \
        >"$out/blocks.txt" 2>&1 || fail "blocks, $threads threads"
    ./calls_layout --weights calls.weights --threads $threads >"$out/layout.txt" 2>&1
    [ $? = 3 ] && grep -q "no implementation here with $threads threads.* with 2 threads (brgconv" \
        "$out/layout.txt" || fail "a layout that is not served, $threads threads"
done

# Where the library has not what was planned, the profile names what it took instead.
./calls_other --weights calls.weights --bench --profile --iterations 3 --json "$out/other.json" \
    >"$out/other.txt" 2>&1 || fail "another implementation"
grep -q '"kernel": "onednn jit:avx512_core"' "$out/other.json" || fail "the profile names the plan's"

./calls_small --weights calls.weights >"$out/small.txt" 2>&1
[ $? = 4 ] && grep -q 'needs [0-9]* bytes of scratch.*planned are 64' "$out/small.txt" ||
    fail "too little scratch"
DNNL_MAX_CPU_ISA=AVX2 ./calls >"$out/isa.txt" 2>&1
[ $? = 3 ] && grep -q 'made for avx512_core' "$out/isa.txt" || fail "another instruction set"
exit 0
