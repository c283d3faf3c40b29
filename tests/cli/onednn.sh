#!/bin/bash
# What CMake says where oneDNN is missing, or another major version than the compiler is made for.
#
# usage: tests/cli/onednn.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'cmake_minimum_required(VERSION 3.25)\nproject(only LANGUAGES C)\ninclude(%s)\n' \
    "$root/cmake/onednn.cmake" >"$work/CMakeLists.txt"
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
