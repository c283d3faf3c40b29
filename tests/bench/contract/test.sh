#!/bin/sh
# Printed contractions against the interpreter, on random shapes.
#     test.sh CONTRACT_EMIT WORK_DIR [SEED [COUNT]]
# CC lists the compilers (default: gcc clang, those that are there), FLAGS the builds.
set -eu
emit=$1 work=$(cd "$2" && pwd) seed=${3:-1} count=${4:-24}
here=$(cd "$(dirname "$0")" && pwd)
runtime=$here/../../../runtime/lib
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror"
for cc in ${CC:-gcc clang}; do
    command -v "$cc" >/dev/null || continue
    for flags in "-O2 -march=native" "-O1 -DUL_NO_VECTOR" "-O2 -fopenmp" \
        ${EXTRA_FLAGS:+"$EXTRA_FLAGS"}; do
        case $flags in *openmp*) threads=3 ;; *) threads=1 ;; esac
        "$emit" test "$work/contract_test_kernels.c" "$seed" "$count" $threads
        # shellcheck disable=SC2086
        "$cc" -std=c99 $flags $warnings -fno-strict-aliasing -ffp-contract=fast -fno-math-errno \
            -I"$runtime" -I"$here" -DKERNELS='"'"$work/contract_test_kernels.c"'"' \
            "$here/test.c" -o "$work/contract_test" -lm
        echo "$cc $flags: $("$work/contract_test" "$work/contract_test_kernels.c.data")"
    done
done
