#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests prepare.sh and run.sh where there is no GPU: packs programs, runs them, damages the pack and
# expects to be told.
#
# usage: tests/gpu/test.sh ULLAGE c             programs of target c in place of those of cuda
#        tests/gpu/test.sh ULLAGE cuda [NVCC] [prepare.sh's options]     under the emulation
# exit: 0 ok, 6 not, 77 no Python packages or no test data
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ullage=$1 target=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL tests/gpu: $1" >&2; [ $# -lt 2 ] || cat "$2" >&2; exit 6; }
"$here/../ops/data.sh" >/dev/null || exit $?

if [ "$target" = c ]; then
    # run.sh asks nvcc who it is; the Makefiles of target c ask it for nothing.
    printf '#!/bin/sh\necho "stand-in, release 0"\n' >"$work/nvcc"
    chmod +x "$work/nvcc"
    NVCC=$work/nvcc
else
    NVCC=$(realpath "${1:-$here/../cuda_emulation/nvcc}")
    [ $# = 0 ] || shift
fi
export NVCC
few=(--ops '^test_(add|gather_0|reduce_sum_keepdims_example|clip_default_min)$' --models lstm
    --precision fp32 -- --cflags -O0)
[ $# = 0 ] || few=("$@")

code=0
"$here/prepare.sh" --ullage "$ullage" --target "$target" "$work/pack.tar.gz" "${few[@]}" \
    >"$work/out" 2>&1 || code=$?
[ "$code" != 77 ] || exit 77
[ "$code" = 0 ] || fail "prepare.sh: exit $code" "$work/out"
# No time for anything; then all of it, as if it had been cut off.
"$here/run.sh" --jobs 2 --seconds 1 "$work/pack.tar.gz" >"$work/table" 2>"$work/out"
[ $? = 6 ] || fail "nothing was done, and that passes" "$work/table"
grep -qE '^    no time was left' "$work/table" || fail "want of time is not said" "$work/table"
"$here/run.sh" --jobs 2 --timeout 300 --resume "$work/pack.tar.gz" >"$work/table" 2>"$work/out" ||
    fail "run.sh: exit $?: $(cat "$work/table")" "$work/out"
cat "$work/table"

# A runtime that allocates in its runs: by what is free, and by CUPTI.
leaks() {
    local line
    sed -i 's/^    context->memory.run_count += runs;/    void *more; (void)cudaMalloc(\&more, 4 << 20);\n&/' \
        "$work/pack.work/runtime/ul_cuda_run.cu"
    rm "$work/pack.work/models/lstm.fp32/program" "$work/pack.work/runtime/ul_cuda_run.o"
    "$here/run.sh" --jobs 2 --timeout 300 --keep --filter '^lstm.fp32$' "$work/pack.tar.gz" \
        >"$work/table" 2>"$work/out" && fail "allocations in runs pass" "$work/table"
    for line in 'alloc +models fp32 +0 +1 +0' 'free +models fp32 +0 +1 +0' \
        ' +lstm.fp32: allocates 10[0-9] times, [0-9]+ bytes, in its runs'; do
        grep -qE "^$line" "$work/table" || fail "the table does not say: $line" "$work/table"
    done
}

# The same library with CUPTI itself: it compiles, and without a device it says what is wrong.
real_cupti() {
    local nvcc folders headers libraries
    # shellcheck source=tests/gpu/toolkit.sh
    . "$here/toolkit.sh"
    nvcc=$(NVCC='' find_nvcc) && folders=$(cuda_folders "$nvcc") &&
        headers=$(find_header cupti.h <<<"$folders") &&
        libraries=$(find_library libcupti.so <<<"$folders") || return 0
    cc -std=c11 -O1 -fPIC -shared -Wall -Wextra -Wpedantic -Wshadow -Wconversion \
        -Wstrict-prototypes -Werror -isystem "$headers" "$here/activity.c" -o "$work/activity.so" \
        -L"$libraries" -lcupti -Wl,-rpath,"$libraries" >"$work/out" 2>&1 ||
        fail "activity.c does not compile" "$work/out"
    [ -z "$(compgen -G '/dev/nvidia[0-9]*')" ] || return 0
    cat >"$work/load.c" <<'END'
#include <dlfcn.h>
#include <stddef.h>
int main(int count, char **arguments)
{
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    int (*begin)(void) = library != NULL ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    return begin == NULL || begin() != 1;
}
END
    if ! cc "$work/load.c" -o "$work/load" -ldl ||
        ! ULLAGE_ACTIVITY=$work/activity.log "$work/load" "$work/activity.so" >"$work/out" 2>&1; then
        fail "activity.so does not load" "$work/out"
    fi
    grep -q '^error [a-z]*: CUPTI_ERROR' "$work/activity.log" ||
        fail "activity.so does not say that there is no device" "$work/activity.log"
}
if [ "$target" != c ]; then
    [ $# = 0 ] || exit 0
    grep -qE '^alloc +models fp32 +1 +0 +0' "$work/table" || fail "no row alloc" "$work/table"
    grep -qE '^lock +ops +1 +0 +0' "$work/table" || fail "no row lock" "$work/table"
    grep -qE '^library +ops +1 +0 +0' "$work/table" || fail "no row library" "$work/table"
    grep -qE '^lstm.fp32 +[0-9]+ +[0-9]+ +[0-9]+ +0$' "$work/table" ||
        fail "no line of what lstm allocates" "$work/table"
    leaks
    exit 0
fi
real_cupti

# What is there, and nothing skipped in silence.
for row in 'build +ops +4 +0' 'build +models fp32 +2 +0' \
    'data +ops +4 +0' 'data +models fp32 +2 +0' \
    'memory +models fp32 +1 +0' 'guard +models fp32 +1 +0' 'bits +models fp32 +1 +0'; do
    grep -qE "^$row" "$work/table" || fail "no row $row" "$work/table"
done
grep -q "not installed: not run" "$work/table" || command -v compute-sanitizer >/dev/null ||
    fail "compute-sanitizer was left out in silence" "$work/table"

# A wrong result, programs that do not build, one that was never emitted; the rest is built already.
bad=$work/pack.work
cp "$bad/ops/test_add/data/input_0.pb" "$bad/ops/test_add/data/output_0.pb"
echo '#error damaged' >>"$bad/ops/test_gather_0/model.c"
printf 'ops\ttest_none\tops/test_none\tops/test_none/data\tnot emitted: nobody knows\t-\n' \
    >>"$bad/rows.tsv"
rm "$bad/models/lstm.plain"/{model.h,program}
code=0
"$here/run.sh" --jobs 2 --keep "$work/pack.tar.gz" >"$work/table" 2>"$work/out" || code=$?
[ "$code" = 6 ] || fail "a damaged pack: exit $code" "$work/table"
for line in 'test_none: not emitted: nobody knows' 'test_gather_0: exit 2: .*damaged' \
    'test_add: exit 6: .*MISMATCH' 'lstm.plain: exit 2: ' \
    'lstm.fp32: the build without reuse is missing'; do
    grep -qE "^    $line" "$work/table" || fail "the table does not say: $line" "$work/table"
done

# Packs and options that are none; a limit of bytes.
expect() {
    local want=$1 code=0
    shift
    "$@" >"$work/out" 2>&1 || code=$?
    [ "$code" = "$want" ] || fail "exit $code instead of $want: $*" "$work/out"
}
expect 1 "$here/run.sh"
expect 1 "$here/run.sh" --jobs many "$bad"
expect 1 "$here/run.sh" --unknown "$bad"
expect 1 "$here/run.sh" --filter '^nothing$' "$bad"
expect 5 "$here/run.sh" "$work/absent.tar.gz"
expect 5 "$here/run.sh" --work "$work/none.work" "$here"
expect 7 env NVCC=no-such-nvcc "$here/run.sh" "$bad"
expect 4 "$here/prepare.sh" --ullage "$ullage" --target c --ops '^test_add$' --models none \
    --limit 1K "$work/small.tar.gz"
expect 1 "$here/prepare.sh" --ullage "$ullage" --target c --models no_such "$work/small"
echo "ok"
