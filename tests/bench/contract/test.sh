#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Printed contractions against the interpreter, on random shapes.
#     test.sh CONTRACT_EMIT WORK_DIR [SEED [COUNT]]
# CC lists the compilers (default: gcc clang, those that are there), EXTRA_FLAGS one more build, MARCHES
# machines to build for, of which those are tried that this one is.
set -eu
emit=$1 work=$(cd "$2" && pwd) seed=${3:-1} count=${4:-24}
here=$(cd "$(dirname "$0")" && pwd)
runtime=$here/../../../runtime/lib
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror"
# Compiles for compiler $1 with flags $2 and compares.
try() {
    case $2 in *openmp*) threads=3 ;; *) threads=1 ;; esac
    "$emit" test "$work/contract_test_kernels.c" "$seed" "$count" $threads
    # shellcheck disable=SC2086
    "$1" -std=c99 $2 $warnings -fno-strict-aliasing -DUL_MAY_ALIAS -ffp-contract=off -fno-math-errno \
        -I"$runtime" -I"$here" -DKERNELS='"'"$work/contract_test_kernels.c"'"' \
        "$here/test.c" -o "$work/contract_test" -lm
    said=$("$work/contract_test" "$work/contract_test_kernels.c.data") || code=$?
    echo "$1 $2: $said"
    return "${code:-0}"
}

# Has this machine what $1 asks for?
has() {
    case $1 in *-v3) need=avx2 ;; *-v4) need=avx512bw ;; *) need=sse2 ;; esac
    grep -q -w $need /proc/cpuinfo
}

# A line for each build: the compiler, then its flags.
list_builds() {
    for cc in ${CC:-gcc clang}; do
        command -v "$cc" >/dev/null || continue
        for flags in "-O2 -march=native" "-O1 -DUL_NO_VECTOR" "-O2 -fopenmp" \
            ${EXTRA_FLAGS:+"$EXTRA_FLAGS"}; do
            echo "$cc $flags"
        done
        for march in ${MARCHES:-}; do
            ! has "$march" || echo "$cc -O3 -march=$march"
        done
    done
}

# shellcheck source=tests/part.sh
. "$here/../../part.sh"
list_builds | part | while read -r cc flags; do
    try "$cc" "$flags" </dev/null
done
