#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The example of runtime/README.md, as it stands there, with exactly the files that it lists: it
# compiles as C99 without a warning, by gcc and by clang, and prints what the program of the emitted
# folder prints. The example of target cuda runs under tests/cuda_emulation, to the same scores.
#
# usage: tests/runtime/readme_example.sh ULLAGE
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ullage=$1
unset ULLAGE_RUNTIME
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAIL: $1" >&2; exit 1; }

sed -n '/^```c$/,/^```$/{/^```/!p}' "$root/runtime/README.md" >example.c
grep -q 'int main(void)' example.c || fail "no example in README.md"
command=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$root/runtime/README.md" | sed -n '/^cc /,/-lm$/p')
case $command in
"cc "*"example.c model.c -lm") ;;
*) fail "no command in README.md, but: $command" ;;
esac
python3 -c 'import struct, sys
text = "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (1, 1, 8, 8)}".ljust(117) + "\n"
image = struct.pack("<64f", *[i % 8 / 8 for i in range(64)])
sys.stdout.buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.encode() + image)' >x.npy

# files PART FOLDER: what the table lists for a part, as far as the folder has it; of the library form
# with all that some models use
files() {
    {
        sed -n "s/^| $1 |\([^|]*\)|.*/\1/p" "$root/runtime/README.md"
        [ "$1" != "library form" ] || sed -n '/^| a model that has |/,/^$/p' "$root/runtime/README.md"
    } | grep -o 'ul_[a-z_]*\.[ch]' | sort -u |
        while read -r name; do [ ! -e "$2/$name" ] || echo "$2/$name"; done
}

warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"

# A run in memory that was never set up, whatever lies there.
not_ready='#include "model.h"
#include <string.h>
#include <stdint.h>
static unsigned char memory[MODEL_ARENA_BYTES + MODEL_ARENA_ALIGN];
int main(void)
{
    static float x[64], y[10];
    unsigned char *arena = memory + MODEL_ARENA_ALIGN - (uintptr_t)memory % MODEL_ARENA_ALIGN;
    for (int fill = 0; fill < 256; fill += 51) {
        memset(memory, fill, sizeof memory);
        const void *inputs[] = {x};
        void *outputs[] = {y};
        struct ul_failure failure;
        int result = model_run(arena, inputs, outputs, &failure);
        if (result != UL_NOT_READY || failure.result != UL_NOT_READY)
            return 1;
    }
    return 0;
}'
for kind in "c arena" "c rom" "cpu arena"; do
    read -r target weights <<<"$kind"
    rm -rf $weights library
    "$ullage" compile "$root/models/digits/digits.onnx" --dim N=1 --target $target \
        --weights $weights --emit $weights 2>compile.txt || fail "$(cat compile.txt)"
    mkdir library
    cp $(files "library form" $weights) $weights/model.[ch] $weights/weights.bin library
    [ $weights = arena ] || cp rom/rom.S library
    [ $target = c ] || cp $(files 'calls of target `cpu`' $weights) library
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        line=${command/#cc /$compiler $warnings }
        [ $compiler = gcc ] || line=${line/-o /-fno-strict-aliasing -DUL_MAY_ALIAS -o }
        cp example.c library/example.c
        if [ $weights = rom ]; then
            sed 's/, &weights, /, 0 ? \&weights : NULL, /' example.c >library/example.c
            cmp -s example.c library/example.c && fail "no weights to leave out"
            line=${line/model.c /model.c rom.S }
        fi
        if [ $target = cpu ]; then
            line=${line/-o /-fopenmp -o }
            line=${line/model.c -lm/model.c ul_*.c -ldnnl -lm}
        fi
        (cd library && eval "$line") ||
            fail "$compiler, $target: the example does not compile: $line"
        (cd library && ./example) >scores.txt || fail "$compiler, $kind: the example fails"
        if [ $weights = arena ]; then
            (cd library && printf '%s\n' "$not_ready" >example.c && eval "$line" && ./example) ||
                fail "$compiler, $kind: a run without set-up is not refused"
        fi
        make -s -C $weights CC=$compiler MARCH= program
        $weights/program --input x=x.npy --print | sed -n 's/^   //p' >want.txt
        [ "$(wc -w <want.txt)" = 10 ] || fail "no ten scores: $(cat want.txt)"
        cmp scores.txt want.txt ||
            fail "$compiler, $kind: $(cat scores.txt) instead of $(cat want.txt)"
        make -s -C $weights clean
    done
done

command -v g++ >/dev/null || { echo "ok: $(cat scores.txt)"; exit 0; }
sed -n '/^```C$/,/^```$/{/^```/!p}' "$root/runtime/README.md" >example.c
nvcc=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$root/runtime/README.md" | sed -n 's/^nvcc //p')
"$ullage" compile "$root/models/digits/digits.onnx" --dim N=1 --target cuda --emit cuda \
    2>compile.txt || fail "$(cat compile.txt)"
mkdir cuda/library
names=$(sed -n 's/^| library form of target `cuda` |\([^|]*\)|.*/\1/p' "$root/runtime/README.md" |
    grep -o 'ul_[a-z_*]*\.[a-z]*')
(cd cuda && for name in $names; do ls $name 2>/dev/null || :; done) | sort -u |
    while read -r name; do cp "cuda/$name" cuda/library; done
cp cuda/model.[ch] cuda/kernels.cu cuda/weights.bin example.c cuda/library
(cd cuda/library && eval "$root/tests/cuda_emulation/nvcc ${nvcc/-O3/-O1}" && ./example >scores.txt) ||
    fail "cuda: the example fails"
awk 'NR == FNR { for (i = 1; i <= NF; i++) want[i] = $i; next }
     { for (i = 1; i <= 10; i++) if ($i - want[i] > 1e-5 || want[i] - $i > 1e-5) exit 1 }' \
    scores.txt cuda/library/scores.txt ||
    fail "cuda: $(cat cuda/library/scores.txt) instead of $(cat scores.txt)"
echo "ok: $(cat scores.txt)"
