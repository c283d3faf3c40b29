#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Networks of models/, scaled down, by target cuda on the host, in ways that the other tests do not
# go: arenas aligned to 8 bytes, a file of choices, buffers of the caller's that change. Two
# more cases have buffers that change: gemm_caller, one library call that has them all, and
# digits_caller, a model that trains by micro-batches.
#
# usage: tests/cuda_emulation/ways.sh ULLAGE [FILTER]
# exit: 0 all right, 6 some are not, 77 no Python packages to make the networks with
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# -ge 1 ] || { echo "usage: ways.sh ULLAGE [FILTER]" >&2; exit 1; }
ullage=$(realpath "$1")
export NVCC=$here/nvcc
"$root/scripts/setup_python.sh" || exit $?
python=$root/build/venv/bin/python
export ULLAGE_PYTHON=$python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0 any=
cuda=(--target cuda --with-cudnn on)

fail() {
    echo "FAIL $name: $1"
    tail -n 6 "$work/log" | sed 's/^/    /'
    status=6
}

# run PROGRAM FOLDER OPTIONS...: random indexes may be out of range: exit 2, the outputs written.
run() {
    local program=$1 folder=$2 code=0
    shift 2
    rm -rf "$folder"
    "$program" --random 1 --output-dir "$folder" "$@" >"$work/log" 2>&1 || code=$?
    [ "$code" = 0 ] || { [ "$code" = 2 ] && [ -n "$(ls "$folder" 2>/dev/null)" ]; }
}

compile() {
    local program=$1
    shift
    "$ullage" compile "$model" "${cuda[@]}" --cflags -O1 "$@" -o "$program" >"$work/log" 2>&1 ||
        { fail "compile $*"; return 1; }
}

# The result against the reference, and memory; where an operand of cuDNN's lies badly, kernels of
# ours run.
check_align() {
    local norm=()
    case $name in qdq_*) norm=(--norm 0.3) ;; esac
    "$ullage" verify "$model" "${cuda[@]}" --align 8 "${norm[@]}" --cflags -O1 >"$work/log" 2>&1 ||
        { fail "verify --align 8: exit $?"; return 1; }
    compile "$work/align" --align 8 || return 1
    "$work/align" --random 1 --guard >"$work/log" 2>&1 || { fail "--align 8 --guard"; return 1; }
}

# What was tuned is what runs by the file.
check_choices() {
    compile "$work/tuned" || return 1
    run "$work/tuned" "$work/first" --tune "$work/choices" || { fail "--tune"; return 1; }
    if [ ! -e "$work/choices" ]; then
        grep -q "calls no library" "$work/log" || { fail "--tune writes no file"; return 1; }
        return 0
    fi
    run "$work/tuned" "$work/second" --choices "$work/choices" || { fail "--choices"; return 1; }
    diff -rq "$work/first" "$work/second" >"$work/log" ||
        { fail "--choices has other bits than --tune"; return 1; }
    rm -f "$work/choices"
}

# check_buffers OPTIONS...: as it is, and without library calls, whose nodes nobody can change.
check_buffers() {
    local folder=$work/caller
    rm -rf "$folder" "$work"/events*
    "$ullage" compile "$model" "${cuda[@]}" --io caller --emit "$folder" "$@" >"$work/log" 2>&1 ||
        { fail "compile --io caller"; return 1; }
    (cd "$folder" && "$NVCC" -O1 -std=c++17 -o caller "$here/caller.c" model.c kernels.cu ul_cu*.cu \
        -I"$here/include" -I. -lm) >"$work/log" 2>&1 || { fail "caller.c does not compile"; return 1; }
    UL_EMULATE_LOG=$work/events_own UL_EMULATE_NO_ALGORITHMS=1 "$folder/caller" "$folder/weights.bin" \
        once >"$work/log" 2>&1 || { fail "buffers of own kernels alone"; return 1; }
    UL_EMULATE_LOG=$work/events "$folder/caller" "$folder/weights.bin" >"$work/log" 2>&1 ||
        { fail "buffers that change"; return 1; }
}

gemm_caller() {
    "$python" - "$model" <<'P' || return 1
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
weights = numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
node = helper.make_node("MatMul", ["x", "w"], ["y"])
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 512]) for name in "xy")
opset = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(helper.make_graph([node], "gemm", [x], [y], [weights]), opset_imports=opset, ir_version=8), sys.argv[1])
P
    check_buffers && grep -q ' 6 captures' "$work/log"
}

digits_caller() {
    cp "$root/models/digits/untrained.onnx" "$model"
    check_buffers --dim N=32 --train-mode --output /fc/Gemm_output_0 --train --optimizer adamw --micro-batches 2 &&
        grep -q 'for 3 entry points' "$work/log"
}

for name in $("$python" "$root/models/make.py" --list); do
    grep -qE -- "${2:-.}" <<<"$name" || continue
    any=1
    model=$work/$name.onnx
    "$python" "$root/models/make.py" "$name" --small -o "$model" >/dev/null || exit 1
    begin=$SECONDS
    check_align && check_choices && check_buffers && echo "ok $name, $((SECONDS - begin)) s"
    rm -f "$model"
done
for name in gemm_caller digits_caller; do
    grep -qE -- "${2:-.}" <<<"$name" || continue
    any=1 model=$work/$name.onnx begin=$SECONDS
    if "$name"; then echo "ok $name, $((SECONDS - begin)) s"; else fail "$name"; fi
done
[ -n "$any" ] || { echo "ways.sh: $2: no such network" >&2; exit 1; }
exit $status
