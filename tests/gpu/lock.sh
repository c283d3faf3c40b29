#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lock.cu under the emulation, plain and with its sanitizers, in several orders of threads; and that
# the CUDA Toolkit's own nvcc compiles it, where there is one.
#
# usage: tests/gpu/lock.sh     exit: 0 ok, 6 not
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL tests/gpu/lock: $1" >&2; exit 6; }

# build NVCC OUTPUT OPTIONS...
build() {
    local nvcc=$1 output=$2
    shift 2
    "$nvcc" -O1 -std=c++17 -Werror all-warnings -Xcompiler=-Wall,-Wextra "$@" -I"$root/runtime/lib" \
        -I"$root/runtime/cuda" -o "$output" "$here/lock.cu" || fail "$nvcc does not compile it"
}

for variant in plain asan race; do
    unset UL_EMULATE_ASAN UL_EMULATE_RACE
    orders="0 1 5"
    case $variant in
    asan) export UL_EMULATE_ASAN=1 ;;
    race) export UL_EMULATE_RACE=1 orders=5 ;; # it takes the longest
    esac
    build "$root/tests/cuda_emulation/nvcc" "$work/lock"
    for order in $orders; do
        UL_EMULATE_ORDER=$order timeout 60 "$work/lock" >"$work/out" 2>&1 ||
            fail "$variant, order $order: exit $?: $(cat "$work/out")"
    done
done

# shellcheck source=tests/gpu/toolkit.sh
. "$here/toolkit.sh"
if nvcc=$(NVCC='' find_nvcc); then
    build "$nvcc" "$work/real" -gencode arch=compute_80,code=sm_80 \
        -gencode arch=compute_90,code=sm_90
    [ -z "$(compgen -G '/dev/nvidia[0-9]*')" ] || timeout 60 "$work/real" || fail "on the device: exit $?"
fi
