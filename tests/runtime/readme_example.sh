#!/bin/bash
# The example of runtime/README.md, as it stands there, with an emitted folder: it compiles as C99
# without a warning, by gcc and by clang, and prints what the program of the same folder prints.
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
command=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$root/runtime/README.md" | sed -n '/^cc /,$p')
case $command in
"cc "*"example.c model.c -lm") ;;
*) fail "no command in README.md, but: $command" ;;
esac
python3 -c 'import struct, sys
text = "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (1, 1, 8, 8)}".ljust(117) + "\n"
image = struct.pack("<64f", *[i % 8 / 8 for i in range(64)])
sys.stdout.buffer.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.encode() + image)' >x.npy

warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
for weights in arena rom; do
    "$ullage" compile "$root/models/digits/digits.onnx" --dim N=1 --target c \
        --weights $weights --emit $weights 2>compile.txt || fail "$(cat compile.txt)"
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        line=${command/#cc /$compiler $warnings }
        cp example.c $weights/example.c
        if [ $weights = rom ]; then
            sed 's/, &weights, /, 0 ? \&weights : NULL, /' example.c >rom/example.c
            cmp -s example.c rom/example.c && fail "no weights to leave out"
            line=${line/model.c /model.c rom.S }
        fi
        (cd $weights && eval "$line") || fail "$compiler: the example does not compile"
        (cd $weights && ./example) >scores.txt || fail "$compiler, $weights: the example fails"
        make -s -C $weights CC=$compiler MARCH= program
        $weights/program --input x=x.npy --print | sed -n 's/^   //p' >want.txt
        [ "$(wc -w <want.txt)" = 10 ] || fail "no ten scores: $(cat want.txt)"
        cmp scores.txt want.txt ||
            fail "$compiler, $weights: $(cat scores.txt) instead of $(cat want.txt)"
        make -s -C $weights clean
    done
done
echo "ok: $(cat scores.txt)"
