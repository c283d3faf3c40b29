#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Contractions printed for target cuda against the interpreter, on random shapes and on one for each
# tile. Without a device they run under tests/cuda_emulation.
#     cuda.sh [--nvcc] CONTRACT_EMIT WORK_DIR [SEED [COUNT]]
# NVCC is the compiler (default: the emulation's), NVCCFLAGS what it gets more. --nvcc: the CUDA
# Toolkit's own compiler is only to take the kernels. exit: 0 ok, 77 it is not there
set -eu
only=
if [ "$1" = --nvcc ]; then
    only=1
    shift
    NVCC=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || exit 77
    NVCCFLAGS="-O1 -arch=sm_80"
fi
emit=$1 work=$(cd "$2" && pwd) seed=${3:-1} count=${4:-24}
here=$(cd "$(dirname "$0")" && pwd)
nvcc=${NVCC:-$here/../../cuda_emulation/nvcc}
"$emit" cuda "$work/contract_cuda_kernels.cu" "$seed" "$count"
# shellcheck disable=SC2086
"$nvcc" ${NVCCFLAGS:-"-O2"} -std=c++17 -Werror all-warnings -Xcompiler=-Wall,-Wextra \
    -I"$here/../../../runtime/lib" -I"$here/../../../runtime/cuda" -I"$here" -DKERNELS='"'"$work/contract_cuda_kernels.cu"'"' \
    -c "$here/cuda_test.cu" -o "$work/contract_cuda_test.o"
[ -z "$only" ] || exit 0
"$nvcc" -o "$work/contract_cuda_test" "$work/contract_cuda_test.o"
"$work/contract_cuda_test" "$work/contract_cuda_kernels.cu.data"
