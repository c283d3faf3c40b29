#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training beside torch eager, in one run: bytes, repeated work and time. README.md says what it prints.
# It needs PyPI's torch 2.15, which is put into build/venv-torch, an environment of its own.
#
# usage: tests/bench/training/run.sh [--ullage build/release/cli/ullage] [--part PART]...
#        [NETWORK...]
#        tests/bench/training/run.sh --part offload [OPTION...] [NETWORK...]
#                                    (offload.py, without torch: that part alone)
# exit: 0 measured, whatever came out, 77 torch cannot be had here
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
others=() is_offload=
while [ $# -gt 0 ]; do
    if [ "$1" = --part ] && [ "${2:-}" = offload ]; then
        is_offload=1
        shift
    else
        others+=("$1")
    fi
    shift
done
if [ -n "$is_offload" ]; then
    "$root/scripts/setup_python.sh" || exit $?
    exec "$root/build/venv/bin/python" "$(dirname "${BASH_SOURCE[0]}")/offload.py" "${others[@]}"
fi
venv=$root/build/venv-torch
if ! "$venv/bin/python" -c 'import numpy, onnx, torch' 2>/dev/null; then
    echo "run.sh: installing torch 2.15 into $venv" >&2
    { python3 -m venv "$venv" && "$venv/bin/pip" install -q 'torch==2.15.*' onnx onnxscript numpy; } >&2 || {
        echo "run.sh: skipped: torch 2.15 cannot be installed here"
        exit 77
    }
fi
exec "$venv/bin/python" "$(dirname "${BASH_SOURCE[0]}")/training.py" "${others[@]}"
