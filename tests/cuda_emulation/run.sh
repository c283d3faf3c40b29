#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The emulation's own tests: unit.cu, built as programs are, with each variant.
#
# usage: tests/cuda_emulation/run.sh [plain|asan|race]...     (all of them)
# exit: 0 ok, 6 a case went otherwise than it should
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0

# want STATUS PATTERN CASE [NAME=VALUE...]: the case ends with STATUS and says PATTERN.
want() {
    local status=$1 pattern=$2 case=$3 got=0
    shift 3
    { env "$@" "$folder/unit" "$case" >"$folder/out" 2>&1 || got=$?; } 2>/dev/null
    [ "$status" = any ] && [ $got != 0 ] && status=$got
    if [ $got != "$status" ] ||
        { [ -n "$pattern" ] && ! grep -qE -- "$pattern" "$folder/out"; }; then
        echo "FAIL $variant: $case $*: status $got, wanted $status and '$pattern':"
        head -5 "$folder/out"
        failed=6
    fi
}

known() {
    for case in loop barriers shuffles tensor copies faults overlap streams graphs capture late memory \
        unset_shared together last changed_nodes; do
        for order in $orders; do
            want 0 '' $case UL_EMULATE_ORDER="$order"
        done
    done
    want 0 '' limits
    want 0 '' threads
    want 0 '' forked
    want 0 '' limits_together
    want 0 '' descriptors
    want 0 '' fails UL_EMULATE_FAIL_KERNEL=add
    want 0 '^cudaSuccess 1 13000 9 ' devices
    want 0 '^cudaErrorNoDevice 0 13000 0 0' devices UL_EMULATE_NO_DEVICE=1
    want 0 '^cudaErrorInsufficientDriver 0 12020 0 0' devices UL_EMULATE_OLD_DRIVER=1
    want 0 '^cudaErrorInsufficientDriver 0 0 0 0' devices UL_EMULATE_NO_DRIVER=1
    want 0 '^cudaSuccess 1 13000 7 ' devices UL_EMULATE_OLD_DEVICE=1
    want 0 '^cudaSuccess 1 13000 9 1000000$' devices UL_EMULATE_FREE_BYTES=1000000
}

mistakes() {
    want 70 'some_wait, block 0: only 40 of 64 threads reach __syncthreads' bad_barrier
    want 70 'two_places, block 0, thread 40: waits at __syncthreads' bad_places
    want 70 'lanes_missing, block 0: warp 1: lanes fffffdff of mask ffffffff' bad_shuffle
    want 70 'short_warp, block 0, thread 32: .* mask ffffffff in a warp of 8 lanes' bad_mask
    want 70 'a node of a graph that was destroyed' bad_node
    want 70 'kernel never: its blocks wait for each other for ever' bad_spin
    want 70 'kernel never, block 0: threads spin for ever' bad_alone
    want any 'device memory on the host' bad_host
    want any 'device memory before the kernel waited' bad_early
    want 70 'add_some_wait: 48 of its 96 threads end without a wait' bad_order
    want 70 'add gets a pointer that no device can use' bad_argument
    want 70 'add gets a pointer that no device can use' bad_freed
    want any 'outside of its allocation.* byte 256 of an allocation of 256' bad_end
    want 70 'much: 492.. bytes of shared memory' bad_shared
    want 70 'much_beside: 49408 bytes of shared memory, 49152 are allowed' bad_rest
    want 70 'never_waits, block 0: ends before 64 of its copies have come' bad_wait
    want 70 'copies_odd, block 0, thread 0: a copy in line .* no multiple of 8 bytes' bad_copy
    want 70 'copies_elsewhere, block 0, thread 0: a copy in line .* is not shared memory' bad_place
    want 70 'one_bank, block 0: rows of a matrix share banks' bad_banks UL_EMULATE_BANKS=1
    want 0 '' bad_banks
}

[ $# -gt 0 ] || set -- plain asan race
for variant in "$@"; do
    unset UL_EMULATE_ASAN UL_EMULATE_RACE UL_EMULATE_BANKS
    orders=3
    case $variant in
    plain) orders="0 1 2 3 77" ;;
    asan) export UL_EMULATE_ASAN=1 ;;
    race) export UL_EMULATE_RACE=1 ;;
    esac
    "$here/nvcc" -O1 -std=c++17 -Werror all-warnings -Xcompiler=-Wall,-Wextra \
        -gencode arch=compute_80,code=sm_80 -I"$here/../../runtime/lib" -I"$here/../../runtime/cuda" "$here/unit.cu" \
        "$here/../../runtime/cuda/ul_cuda_steps.cu" \
        -o "$folder/unit" || exit 1
    known
    mistakes
    if [ "$variant" = race ]; then
        want 66 'data race' race_shared
        want 66 'data race' race_global
        want 66 'data race' race_shuffle
        want 66 'data race' race_together
        want 66 'data race' race_last
        want 66 'data race' race_copy
    fi
done
exit $failed
