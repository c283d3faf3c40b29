#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds with gcc and -Werror, runs the tests. The quick tier takes some
# minutes after the build.
#
# usage: scripts/test.sh [--slow | --slice [K] [--minutes M]] [--clang] [--asan] [-R REGEX] [-E REGEX]
#   --slow    every tier: also all of ONNX's node tests, all networks, fuzzing
#   --slice   a slice of the slow tier instead: K, or the one whose turn it is (tests/slices.py);
#             --minutes says how long it may take
#   --clang   build with clang instead;  --asan: with the address and undefined sanitizers
#   -R REGEX  only tests whose name matches;  -E REGEX: not those whose name does
# exit: that of ctest
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

preset=ci
tier=(-LE 'slow|fuzz|bench')
select=()
slice=
minutes=()
while [ $# -gt 0 ]; do
    case $1 in
    --slow) tier=(-LE bench); shift ;;
    --slice)
        slice=0 && shift
        [[ ! ${1:-} =~ ^[0-9]+$ ]] || { slice=$1 && shift; }
        ;;
    --minutes) minutes=("$1" "$2"); shift 2 ;;
    --clang) preset=clang; shift ;;
    --asan) preset=asan; shift ;;
    -R | -E) select+=("$1" "$2"); shift 2 ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown option $1" >&2; exit 1 ;;
    esac
done

scripts/install_deps.sh --browser --arm
# Some tests compare with onnxruntime; without Python packages they are skipped and say so.
scripts/setup_python.sh || [ $? = 77 ]
mkdir -p build
cmake --preset "$preset" >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset "$preset" -j "$(nproc)"
if [ -n "$slice" ]; then
    exec tests/slices.py --build "build/$preset" --run "$slice" "${minutes[@]}"
fi
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" \
    "${tier[@]}" "${select[@]}"
