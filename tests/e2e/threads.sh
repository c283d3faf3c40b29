#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same bits for every number of threads: small networks whose kernels are all our own, and runs
# that repeat themselves for those that call a library. Give it the compiler that shares every loop.
#
# usage: tests/e2e/threads.sh ULLAGE_THREADS
# exit: 0 all right, 1 some bits differ, 77 no Python packages to make the networks with
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
ullage=$1
"$root/scripts/setup_python.sh" || exit $?
python=$root/build/venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

run() { # THREADS OUTPUT: floats in [-1, 1), indexes that may be out of range and are clamped (2)
    local code=0
    "$work/program" --threads "$1" --random 5 --output-npz "$2" 2>"$2.err" || code=$?
    [ $code = 0 ] || [ $code = 2 ] || { echo "$name: $1 threads: $(cat "$2.err")"; failed=1; }
}

same() {
    cmp -s "$1" "$2" && return
    echo "$name: $3"
    failed=1
}

for name in gru_bi integer_net qdq_convnet bert_base swin_t shufflenet_v2; do
    "$python" "$root/models/make.py" "$name" --small -o "$work/m.onnx" >/dev/null || failed=1
    "$ullage" compile "$work/m.onnx" --target cpu --threads 4 --cflags -O1 --emit "$work/source" \
        -o "$work/program" >/dev/null 2>&1 || failed=1
    for threads in 1 2 3 4; do
        run $threads "$work/$threads"
        run $threads "$work/again"
        same "$work/$threads" "$work/again" "two runs with $threads threads differ"
        same "$work/1.err" "$work/$threads.err" "1 and $threads threads note other faults"
        grep -q ul_library_run "$work/source/model.c" ||
            same "$work/1" "$work/$threads" "1 and $threads threads differ"
    done
    echo "$name: $(grep -c UL_PARALLEL "$work/source/model.c") regions"
done
exit $failed
