#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What CMake says where oneDNN is missing, another major version than the compiler is made for, or
# made for other threads; what programs are compiled with where it is in a folder of its own.
#
# usage: tests/cli/onednn.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'cmake_minimum_required(VERSION 3.25)\nproject(only LANGUAGES C)\ninclude(%s)\n%s\n' \
    "$root/cmake/onednn.cmake" \
    'message(STATUS "flags:${ULLAGE_ONEDNN_CFLAGS}${ULLAGE_ONEDNN_LIBS};")' >"$work/CMakeLists.txt"
mkdir -p "$work/three/oneapi/dnnl"
echo '#define DNNL_VERSION_MAJOR 3' >"$work/three/oneapi/dnnl/dnnl_version.h"

# refused WORDS OPTION...: configuring fails and says so
refused() {
    local words=$1 code=0
    shift
    rm -rf "$work/build"
    cmake -S "$work" -B "$work/build" "$@" >"$work/log" 2>&1 || code=$?
    if [ $code = 0 ] || ! tr -s '\n ' ' ' <"$work/log" | grep -q "$words"; then
        echo "FAIL: exit $code, expected \"$words\"; printed:"
        cat "$work/log"
        exit 1
    fi
}

refused 'install its development files' -DULLAGE_ONEDNN_INCLUDE=ULLAGE_ONEDNN_INCLUDE-NOTFOUND \
    -DCMAKE_FIND_ROOT_PATH="$work" -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
refused 'oneDNN 3.x was found' -DULLAGE_ONEDNN_INCLUDE="$work/three"
mkdir "$work/none"
refused 'oneDNN unknown.x was found' -DULLAGE_ONEDNN_INCLUDE="$work/none"

mkdir -p "$work/tbb/oneapi/dnnl"
echo '#define DNNL_VERSION_MAJOR 2' >"$work/tbb/oneapi/dnnl/dnnl_version.h"
echo '#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_TBB' >"$work/tbb/oneapi/dnnl/dnnl_config.h"
refused 'built for the threads of TBB' -DULLAGE_ONEDNN_INCLUDE="$work/tbb"

# flags WANTED OPTION...: configuring succeeds, programs get these flags
flags() {
    local wanted=$1
    shift
    rm -rf "$work/build"
    cmake -S "$work" -B "$work/build" "$@" >"$work/log" 2>&1 && grep -q "flags:$wanted;" "$work/log" ||
        { echo "FAIL: expected flags \"$wanted\"; printed:"; cat "$work/log"; exit 1; }
}

mkdir "$work/lib"
sed 's/TBB/OMP/' "$work/tbb/oneapi/dnnl/dnnl_config.h" >"$work/config.h"
mv "$work/config.h" "$work/tbb/oneapi/dnnl/dnnl_config.h"
: >"$work/lib/libdnnl.so"
flags ''
flags " -I$work/tbb -L$work/lib -Wl,-rpath,$work/lib" \
    -DULLAGE_ONEDNN_INCLUDE="$work/tbb" -DULLAGE_ONEDNN_LIBRARY="$work/lib/libdnnl.so"
