#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Networks of models/, scaled down, by target cuda on the host: results against the reference (that
# of `ullage verify`), every kernel run, memory by --guard, the same bytes in other orders of blocks,
# threads and streams, and the same again with sanitizers.
#
# usage: tests/cuda_emulation/models.sh [--variants "plain asan race"] [--type fp16|bf16 [--islands]]
#                                       ULLAGE [FILTER]
# With --type the networks are models of 16 bits themselves (models/make.py), beside the same in float32.
# The program that verify runs compares; `make` is told by $NVCC, which is set here.
# exit: 0 all right, 6 some are not, 77 no Python packages to make the networks with
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
variants="plain asan race"
type=()
while [ $# -gt 0 ]; do
    case $1 in
    --variants) variants=$2; shift 2 ;;
    --type) type+=(--type "$2"); shift 2 ;;
    --islands) type+=(--islands); shift ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] || { echo "usage: models.sh [--variants LIST] ULLAGE [FILTER]" >&2; exit 1; }
ullage=$(realpath "$1")
export NVCC=$here/nvcc
"$root/scripts/setup_python.sh" || exit $?
python=$root/build/venv/bin/python
export ULLAGE_PYTHON=$python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0 any=

fail() {
    echo "FAIL $name ($variant): $1"
    tail -n 6 "$work/log" | sed 's/^/    /'
    status=6
}

# verify OPTION...: the results of the network, compiled so.
verify() {
    local loose=()
    case $name in qdq_*) loose=(--tolerance 8e-2) ;; integer_*) loose=(--tolerance 3e-2) ;; esac
    if [ ${#type[@]} = 0 ]; then
        "$ullage" verify "$model" --target cuda "$@"
    else
        "$python" "$root/tests/ref/compare_ort.py" --ullage "$ullage" --target cuda --small \
            "${type[@]}" "${loose[@]}" "$name" -- "$@"
    fi
}

# Results, also of products that round their factors, and that every kernel ran. Where a network
# quantizes, rounded factors move some values by a whole step of its integers.
check_results() {
    local norm=()
    case $name in qdq_*) norm=(--norm 0.3) ;; esac
    if [ "$variant" = plain ] && [ ${#type[@]} = 0 ]; then
        verify --tf32 "${norm[@]}" --cflags "$flags" >"$work/log" 2>&1 ||
            { fail "--tf32: exit $?"; return 1; }
    fi
    rm -f "$work/kernels"
    UL_EMULATE_COVERAGE=$work/kernels verify --cflags "$flags" >"$work/log" 2>&1 ||
        { fail "exit $?"; return 1; }
    "$here/coverage.sh" "$work/kernels" >"$work/log" && return
    # Kernels that stand beside calls of libraries run where these have nothing for them.
    UL_EMULATE_NO_ALGORITHMS=1 UL_EMULATE_COVERAGE=$work/kernels verify --cflags "$flags" \
        >"$work/log" 2>&1 || { fail "exit $?"; return 1; }
    "$here/coverage.sh" "$work/kernels" >"$work/log" || { fail "kernels"; return 1; }
}

# What another order must not change, nor an arena that is aligned as the model asks and no better.
# Random indexes may be out of range: exit 2, the outputs written.
check_orders() {
    rm -rf "$work/order"*
    "$ullage" compile "$model" --target cuda --cflags "$flags" -o "$work/program" >"$work/log" 2>&1 ||
        { fail "compile"; return 1; }
    "$work/program" --random 1 --guard >"$work/log" 2>&1 || { fail "--guard"; return 1; }
    for order in 0 1 2 3; do
        UL_EMULATE_ORDER=$order "$work/program" --random 1 --output-dir "$work/order$order" \
            >"$work/log" 2>&1 || [ $? = 2 ] || { fail "order $order"; return 1; }
        diff -r "$work/order0" "$work/order$order" >"$work/log" ||
            { fail "order $order changes the result"; return 1; }
    done
    UL_EMULATE_ALIGN=64 "$work/program" --random 1 --output-dir "$work/order_align" \
        >"$work/log" 2>&1 || [ $? = 2 ] || { fail "an arena aligned to 64"; return 1; }
    diff -r "$work/order0" "$work/order_align" >"$work/log" ||
        { fail "an arena aligned to 64 changes the result"; return 1; }
}

# shellcheck source=tests/part.sh
. "$root/tests/part.sh"
for name in $("$python" "$root/models/make.py" --list | grep -E -- "${2:-.}" | part); do
    any=1
    model=$work/$name.onnx
    "$python" "$root/models/make.py" "$name" --small "${type[@]}" -o "$model" >/dev/null || exit 1
    for variant in $variants; do
        unset UL_EMULATE_ASAN UL_EMULATE_RACE
        flags=-O2
        case $variant in
        asan) export UL_EMULATE_ASAN=1 ;;
        race) export UL_EMULATE_RACE=1 ;;
        esac
        begin=$SECONDS
        check_results || continue
        [ "$variant" != plain ] || check_orders || continue
        echo "ok $name${type[*]:+ ${type[*]}} ($variant), $((SECONDS - begin)) s"
    done
    rm -f "$model"
done
[ -n "$any" ] || { echo "models.sh: ${2:-$ULLAGE_PART}: no such network" >&2; exit 1; }
exit $status
