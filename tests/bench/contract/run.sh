#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# GFLOP/s of printed contractions beside oneDNN's, one thread, one table for each compiler.
#     run.sh CONTRACT_EMIT [WORK_DIR]
# BENCH=bench_int: each shape in f32 and, after it, in 8 bits with what is made of the sums.
# CC lists the compilers (default: gcc clang, those that are there), FLAGS the optimisation.
set -eu
emit=$1 work=${2:-$(mktemp -d)}
work=$(cd "$work" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
runtime=$here/../../../runtime/lib
"$emit" "${BENCH:-bench}" "$work/contract_bench_kernels.c"
OMP_NUM_THREADS=1
export OMP_NUM_THREADS
for cc in ${CC:-gcc clang}; do
    command -v "$cc" >/dev/null || continue
    flags=${FLAGS:--O3 -march=native}
    # shellcheck disable=SC2086
    "$cc" -std=c99 $flags -fno-strict-aliasing -DUL_MAY_ALIAS -ffp-contract=off -fno-math-errno -I"$runtime" \
        -I"$here" -DKERNELS='"'"$work/contract_bench_kernels.c"'"' "$here/bench.c" \
        -o "$work/contract_bench" -ldnnl -lm
    echo "$cc $flags (GFLOP/s, ratios above 1: faster than oneDNN)"
    "$work/contract_bench"
done
