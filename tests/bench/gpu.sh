#!/bin/bash
# Programs of target cuda against PyTorch and onnxruntime on the GPU of this machine: gpu.py, by a
# Python that has onnx and numpy, and torch for there to be anything to compare with.
#
# usage: tests/bench/gpu.sh [options] [-- COMPILE OPTIONS]      (PYTHON=COMMAND, default python3)
#        tests/bench/gpu.sh --help
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import numpy, onnx' 2>/dev/null || {
    echo "gpu.sh: $python has no onnx or numpy; PYTHON=COMMAND names another Python" >&2
    exit 77
}
# PyTorch brings cuDNN along: ours finds the same one, so that both have the same engines.
libraries=$("$python" -c '
import glob, os, site, sys
for folder in site.getsitepackages() + [site.getusersitepackages()] + sys.path:
    for found in sorted(glob.glob(os.path.join(folder, "nvidia", "cudnn", "lib"))):
        print(found); raise SystemExit' 2>/dev/null || true)
[ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if ! command -v "${NVCC:-nvcc}" >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    export PATH=$PATH:/usr/local/cuda/bin
fi
exec "$python" "$here/gpu.py" "$@"
