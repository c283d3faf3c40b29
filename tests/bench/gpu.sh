#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs of target cuda against PyTorch and onnxruntime on the GPU of this machine: gpu.py, by a
# Python that has onnx and numpy, and torch for there to be anything to compare with.
#
# usage: tests/bench/gpu.sh [options] [-- COMPILE OPTIONS]      (PYTHON=COMMAND, default that of build/venv, else python3)
#        tests/bench/gpu.sh --help
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/gpu/toolkit.sh
. "$here/../gpu/toolkit.sh"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$here/../../build/venv/bin/python # scripts/setup_python.sh
    [ -x "$PYTHON" ] || PYTHON=python3
fi
export PYTHON
"$PYTHON" -c 'import numpy, onnx' 2>/dev/null || {
    echo "gpu.sh: $PYTHON has no onnx or numpy; PYTHON=COMMAND names another Python" >&2
    exit 77
}
# PyTorch brings cuDNN along: ours finds the same one, so that both have the same engines.
packages=$("$PYTHON" -c '
import glob, site, sys
for at in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
    print(*sorted(glob.glob(at + "/nvidia/*")), sep="\n")' 2>/dev/null || true)
if libraries=$(find_library libcudnn.so <<<"$packages"); then
    export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
more=()
if nvcc=$(find_nvcc); then
    export NVCC=$nvcc
    folders=$(cuda_folders "$nvcc")
    use_cuda "$folders"
    # The compiler does not know the cuDNN of a Python package.
    if [ -n "${CPLUS_INCLUDE_PATH:-}" ] && [[ $CUDA_LIBRARIES != *"cudnn "*"not found"* ]] &&
        [[ " $* " != *" --with-cudnn "* && " $* " != *" --target "* ]]; then
        more=(--with-cudnn on)
        [[ " $* " == *" -- "* ]] || more=(-- "${more[@]}")
    fi
fi
if [ -z "${CUDA_ARCH:-}" ]; then # one device's code is compiled four times as fast as all
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        head -n 1) || capability=
    [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]] || export CUDA_ARCH=sm_${capability/./}
fi
exec "$PYTHON" "$here/gpu.py" "$@" ${more[@]+"${more[@]}"}
