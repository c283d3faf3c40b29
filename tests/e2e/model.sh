#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that is promised of one compiled model: predicted equals reserved, no step leaves its
# values, no allocation while running, the same bits as without any reuse and in every run, a start
# with every number of threads that the plan allows, the same plan twice, a plan that the checker
# accepts, a folder that builds without warnings.
#
# usage: tests/e2e/model.sh [--target NAME] ULLAGE MODEL.onnx [compile options]
# Target cuda is compiled by $NVCC, which may be tests/cuda_emulation/nvcc; else it needs a device.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=c
if [ "$1" = --target ]; then
    target=$2
    shift 2
fi
ullage=$(realpath "$1")
model=$(realpath "$2")
shift 2
set -- --target "$target" "$@"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAIL $model ($target): $1" >&2; exit 1; }
warnings="-O1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum -Wstrict-prototypes -Werror"

"$ullage" compile "$model" "$@" -o program --json plan.json 2>compile.txt || fail "$(cat compile.txt)"
"$ullage" plan "$model" "$@" --advice off --json again.json >plan.txt
cmp plan.json again.json || fail "two plans of one model differ"
"$ullage" check "$model" plan.json >check.txt || fail "the checker refuses the plan"
sed 's/"reserved_bytes": \([0-9]*\)/"reserved_bytes": 1\1/' plan.json >edited.json
if "$ullage" check "$model" edited.json >/dev/null 2>&1; then fail "an edited plan passes"; fi

planned=$(sed -n 's/^  "reserved_bytes": \([0-9]*\),$/\1/p' plan.json)
"$ullage" report plan.json --html report.html >report.txt
process=$(sed -n 's/^  "process_bytes": \([0-9]*\),$/\1/p' plan.json)
for text in plan.txt report.txt; do
    head -2 $text | tr '\n' ' ' | grep -qE " = $process bytes.*, +buffer .* = $planned bytes" ||
        fail "$text has other sizes: $(head -2 $text)"
done
grep -q "<data id=\"reserved\" value=\"$planned\">" report.html || fail "report.html has another size"
./program --random 1 --memory --json memory.json >memory.txt || fail "--memory: $(cat memory.txt)"
grep -q '^unaccounted  *0$' memory.txt || fail "unaccounted bytes: $(cat memory.txt)"
grep -qE "^total +$planned +$planned " memory.txt || fail "reserved differs from the plan"
if [ "$target" = cuda ]; then
    grep -qE "^  arena, one allocation +$planned$" memory.txt || fail "$(cat memory.txt)"
    launches=$(sed -n '/^  "launches"/,/}/s/^    "count": \([0-9]*\),$/\1/p' plan.json)
    grep -q "captured run, $launches launches" memory.txt ||
        fail "the plan has $launches launches: $(cat memory.txt)"
    grep -qE ", $launches launch(es)?[.,]?( |$)" plan.txt compile.txt || fail "launches: $(cat compile.txt)"
    grep -q 'free bytes stayed the same' memory.txt || fail "allocates: $(cat memory.txt)"
fi
./program --random 1 --guard >guard.txt || fail "--guard: $(cat guard.txt)"

mkdir planned plain
"$ullage" compile "$model" "$@" --pack none -o unplanned 2>/dev/null
# Random indexes may be out of range, which is said with exit code 2 after the outputs are written.
./program --random 1 --output-dir planned 2>run.txt || [ $? = 2 ] || fail "$(cat run.txt)"
./unplanned --random 1 --output-dir plain 2>run.txt || [ $? = 2 ] || fail "$(cat run.txt)"
[ -n "$(ls planned)" ] || fail "no outputs"
diff -r planned plain || fail "reuse of memory changes the result"
UL_EMULATE_LOG=log.txt ./program --random 1 --output-dir again 2>run.txt || [ $? = 2 ] ||
    fail "$(cat run.txt)"
diff -r planned again || fail "two runs differ"
if [ -e log.txt ] && [ "$(grep '^malloc' log.txt)" != "malloc $planned" ]; then
    fail "the device's memory: $(cat log.txt)"
fi

if [ "$target" = cpu ]; then
    "$ullage" compile "$model" "$@" --threads 4 --cflags -O0 -o threads 2>/dev/null
    for threads in 4 3 2 1; do
        ./threads --random 1 --threads $threads >/dev/null 2>run.txt || [ $? = 2 ] ||
            fail "$threads of 4 threads: $(cat run.txt)"
    done
fi

"$ullage" compile "$model" "$@" --emit source 2>/dev/null
grep -q "MODEL_ARENA_BYTES UINT64_C($planned)" source/model.h || fail "model.h has another size"
if [ "$target" = cuda ]; then
    make -s -C source WARNINGS="-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror" \
        NVCCFLAGS=-O1 program >warnings.txt 2>&1 || fail "nvcc: $(head -20 warnings.txt)"
    [ -s warnings.txt ] && fail "nvcc: $(head -20 warnings.txt)"
    echo "ok $model ($target): $planned bytes"
    exit
fi
for compiler in gcc clang; do
    command -v $compiler >/dev/null || continue
    make -s -C source CC=$compiler CFLAGS="$warnings" program >warnings.txt 2>&1 ||
        fail "$compiler: $(head -20 warnings.txt)"
    make -s -C source clean
done
rom=()
[ -e source/rom.S ] && { (cd source && cc -c rom.S); rom=(source/rom.o); }
read -ra libs < <(sed -n 's/^LIBS = //p' source/Makefile)
# A library keeps books while it runs, in small blocks; it needs the runtime's side of its calls.
library=() most=()
[[ " ${libs[*]} " == *" -ldnnl "* ]] && { library=(source/ul_dnnl.c); most=(1024); }
for file in nbits posts winograd; do
    [[ -e source/ul_$file.c ]] && library+=("source/ul_$file.c")
done
cc -std=gnu99 -O1 -fno-strict-aliasing -ffp-contract=off -Isource "$here/no_alloc.c" \
    source/model.c "${library[@]}" "${rom[@]}" "${libs[@]}" -o no_alloc
./no_alloc source/weights.bin "${most[@]}" >blocks.txt 2>&1 ||
    fail "allocates while running: $(cat blocks.txt)"
cc -std=c99 -O1 -fno-strict-aliasing -ffp-contract=off -Isource -c source/model.c -o model.o
nm -u model.o >undefined.txt
calls=$(awk '{ print $2 }' undefined.txt | grep -E 'alloc|mmap|mremap|^free$|printf|open|exit' || true)
[ -z "$calls" ] || fail "model.c calls $calls"
echo "ok $model ($target): $planned bytes"
