#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The runtime and a model must compile without a warning as C99, by gcc and by clang, with the
# machine's vectors and without any; the headers also as C++.
set -u
here=$(cd "$(dirname "$0")" && pwd)
runtime=$here/../../runtime
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum -Wstrict-prototypes -Werror"
status=0
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

try() { # compiler, flags..., file
    if ! "$@" -I"$runtime/lib" -I"$runtime/host" -I"$runtime/cpu" -c -o "$out/x.o" 2>"$out/log"; then
        echo "failed: $*"
        head -20 "$out/log"
        status=1
    fi
}

# clang's warnings do not depend on optimisation, some of gcc's do.
for file in "$runtime"/*/ul_*.c "$here"/tiny/main.c; do
    try gcc -std=c99 -O2 $warnings -Wframe-larger-than=16384 "$file"
done
for flags in "-O0" "-O3 -march=native" "-O2 -DUL_NO_VECTOR" "-O1 -fsanitize=undefined"; do
    try gcc -std=c99 $flags $warnings "$here"/kernel_test.c
done
for flags in "-O3 -mavx" "-O2 -DUL_NO_TABLES"; do
    try gcc -std=c99 $flags $warnings "$here"/tiny/model.c
    try gcc -std=c99 $flags $warnings "$here"/loop/model.c
    try gcc -std=c99 $flags $warnings "$here"/trainer/model.c
    try gcc -std=c99 $flags $warnings "$here"/train_test.c
done
if command -v clang >/dev/null; then
    for file in "$runtime"/*/ul_*.c "$here"/*/*.c "$here"/kernel_test.c; do
        try clang -std=c99 -fsyntax-only $warnings -isystem "$here/../cuda_emulation/include" "$file"
    done
    try clang -std=c99 -O2 -march=native -fno-strict-aliasing -DUL_MAY_ALIAS $warnings "$here"/kernel_test.c
fi
if command -v g++ >/dev/null; then
    echo '#include "model.h"' >"$out/header.cc"
    try g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$here/tiny" "$out/header.cc"
fi
exit $status
