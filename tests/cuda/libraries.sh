#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the runtime says to cuBLASLt and cuDNN, said to the real libraries, for which no device is
# needed: their descriptors, and the numbers of the emulation's headers beside those of the real
# ones (tests/cuda_emulation/include). Only a device shows the rest.
#     libraries.sh
# exit: 0 ok, 1 failed, 77 without nvcc, or without the libraries
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
nvcc=${NVCC:-nvcc}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! command -v "$nvcc" >/dev/null; then
    echo "libraries.sh: skipped: no nvcc"
    exit 77
fi

# Enumerators and macros with a number, but for versions, as assertions.
put_numbers() {
    echo "#include <$1>"
    grep -oE '\bC[UD][A-Z]*_[A-Za-z0-9_]* *=? *[0-9]+\b' "$root/tests/cuda_emulation/include/$1" |
        grep -v 'VER' | sed 's/ *= */ /' |
        while read -r name number; do
            echo "static_assert((int)$name == $number, \"the emulation has another $name\");"
        done
}

build() {
    "$nvcc" -std=c++17 -O1 -Werror all-warnings -Xcompiler -Wno-unused-function -diag-suppress 177 \
        -I"$root/runtime/lib" -I"$root/runtime/cpu" -I"$root/runtime/cuda" -o "$folder/$1" "$here/$1.cu" "$root/runtime/cuda/ul_cuda_library.cu" \
        "$root/runtime/cuda/ul_cuda_library_choices.cu" -ldl
}

# cuDNN compiles what it fuses only where a library of the driver loads. A machine without one takes
# what the Toolkit brings to link against, which has the names and does nothing.
if ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")
    linked=$(find "$toolkit/lib64/" -name libcuda.so -print -quit)
    if [ -z "$linked" ]; then
        echo "libraries.sh: skipped: neither the driver's libcuda.so.1 nor the Toolkit's libcuda.so"
        exit 77
    fi
    ln -s "$linked" "$folder/libcuda.so.1"
    export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

skipped=0 failed=0 headers="cublasLt.h"
if echo '#include <cudnn.h>' | "$nvcc" -x cu -E - >/dev/null 2>&1; then
    headers+=" cudnn.h"
fi
for header in $headers; do
    put_numbers "$header" >"$folder/numbers.cu"
    "$nvcc" -std=c++17 -w -c -o "$folder/numbers.o" "$folder/numbers.cu" || failed=1
    echo "$header: $(grep -c static_assert "$folder/numbers.cu") numbers compared"
done
for name in products graphs; do
    build "$name"
    status=0
    "$folder/$name" || status=$?
    case $status in
    0) ;;
    77) skipped=77 ;;
    *) failed=1 ;;
    esac
done
exit $((failed != 0 ? 1 : skipped))
