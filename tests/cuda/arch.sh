#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What an emitted Makefile makes code for: newer devices where nvcc lists them, the others where it
# does not, or does not know the question.
#     arch.sh ULLAGE
# exit: 0 ok, 1 failed
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" compile "$here/../../models/digits/digits.onnx" --dim N=1 --target cuda --emit "$folder/digits" ||
    exit 1
failed=0

# want CODES [make's arguments]: the generated codes, by an nvcc that lists what stands on stdin.
want() {
    local codes=$1 found
    shift
    { echo '#!/bin/bash'; cat; } >"$folder/nvcc"
    chmod +x "$folder/nvcc"
    found=$(make -n -C "$folder/digits" NVCC="$folder/nvcc" "$@" kernels.o |
        grep -o 'code=[a-z0-9_]*' | tr '\n' ' ')
    [ "$found" = "$codes" ] || { echo "FAIL: $found, not $codes"; failed=1; }
}

old='code=sm_80 code=sm_89 code=sm_90 '
want "${old}code=sm_100 code=sm_120 code=compute_90 " <<<"printf 'sm_90\nsm_100\nsm_103\nsm_120\n'"
want "${old}code=sm_100 code=compute_90 " <<<"printf 'sm_90\nsm_100\n'"
want "${old}code=compute_90 " <<<"printf 'sm_75\nsm_80\nsm_90\n'"
want "${old}code=compute_90 " <<<"echo \"nvcc fatal: Unknown option '--list-gpu-code'\" >&2; exit 1"
want "code=sm_90 " CUDA_ARCH=sm_90 <<<"echo sm_120"
CUDA_ARCH=sm_80 want "code=sm_80 " <<<"echo sm_120"
exit $failed
