#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ullage from outside: installed into a folder and linked by what pkg-config says (`installed`), or
# as a folder of another CMake project (`subdirectory`).
#
# usage: outside.sh installed|subdirectory SOURCE BUILD WORK      BUILD: where ullage was built
#        CC, CFLAGS: as BUILD has them; LAUNCHER: what the compiler is started by, or nothing
set -eu
how=$1 source=$2 build=$3 work=$4
rm -rf "$work"
mkdir -p "$work"
model=$source/models/digits/digits.onnx

if [ "$how" = installed ]; then
    cmake --install "$build" --prefix "$work/first" >/dev/null
    mv "$work/first" "$work/moved" # where it was installed says nothing
    export PKG_CONFIG_PATH="$(dirname "$(find "$work/moved" -name ullage.pc)")"
    # shellcheck disable=SC2046 # words
    "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags ullage) \
        "$source/tests/compile/outside.c" -o "$work/outside" $(pkg-config --libs ullage)
    runtime=$(pkg-config --variable=runtimedir ullage)
    "$work/moved/bin/ullage" --version >/dev/null
    includes=$(find "$work/moved/include" -name '*_internal.h')
    [ -z "$includes" ] || { echo "FAIL: installed what is not for others: $includes"; exit 1; }
    for made in share/man/man1/ullage.1 share/man/man1/ullage-plan.1 share/bash-completion/completions/ullage \
        share/zsh/site-functions/_ullage; do
        [ -s "$work/moved/$made" ] || { echo "FAIL: not installed: $made"; exit 1; }
    done
else
    cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
add_subdirectory("$source" ullage EXCLUDE_FROM_ALL)
add_executable(outside "$source/tests/compile/outside.c")
target_link_libraries(outside PRIVATE ullage::compile)
END
    cmake -S "$work" -B "$work" -G Ninja -DCMAKE_C_COMPILER="$CC" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_COMPILER_LAUNCHER="$LAUNCHER" >"$work/configure.log" ||
        { cat "$work/configure.log"; exit 1; }
    cmake --build "$work" --target outside -j 2 >"$work/build.log" ||
        { cat "$work/build.log"; exit 1; }
    runtime=
fi

"$work/outside" "$model" "$work/source" ${runtime:+"$runtime"} | grep -q '^reserves [1-9]' ||
    { echo "FAIL: a program that embeds ullage ($how)"; exit 1; }
make -s -C "$work/source" -n program >/dev/null
[ -z "$runtime" ] || cmp "$runtime/lib/ul_model.h" "$work/source/ul_model.h"
