#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need from Debian 12 or newer. Only what is missing;
# as root, or through sudo. Nothing else is downloaded.
#
# usage: scripts/install_deps.sh [--build] [--browser] [--arm] [--list]
#   --build    what building and running needs alone: no tests, no other compiler
#   --browser  also the browser that tests look at the planning report with
#   --arm      also compilers for ARM, for microcontrollers and 64 bits, and machines that run their
#              programs
#   --list     prints the packages instead
# exit: 0 all there, 1 something could not be installed
set -euo pipefail

packages=(
    gcc libc6-dev cmake ninja-build make pkg-config              # build
    libprotobuf-c-dev protobuf-c-compiler protobuf-compiler      # ONNX files
    libonnx-dev                                                  # the schema, onnx-ml.proto
    libglpk-dev libjansson-dev libssl-dev                        # planner, JSON, SHA-256
    libdnnl-dev                                                  # target cpu
    python3-venv                                                 # models and references only
)
for_tests=(
    clang libclang-rt-dev clang-format libomp-dev                # the other compiler, fuzzing
    libcmocka-dev time g++                                       # tests; target cuda without a GPU
)
more=() list='' tests=yes
while [ $# -gt 0 ]; do
    case $1 in
    --build) tests= ;;
    --browser) more+=(chromium) ;;
    --arm)
        more+=(gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)
        more+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
        ;;
    --list) list=yes ;;
    -h | --help) sed -n '3,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install_deps.sh: unknown option $1" >&2; exit 1 ;;
    esac
    shift
done
[ -z "$tests" ] || packages+=("${for_tests[@]}")
packages+=("${more[@]}")
if [ -n "$list" ]; then
    printf '%s\n' "${packages[@]}"
    exit 0
fi

missing() {
    local package
    for package in "${packages[@]}"; do
        dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' ||
            echo "$package"
    done
}

mapfile -t wanted < <(missing)
[ ${#wanted[@]} -gt 0 ] || exit 0
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install_deps.sh: not root and no sudo; please install: ${wanted[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
start=$SECONDS
# how_far: of apt's status lines, "dlstatus:N:PERCENT:..." and "pmstatus:PACKAGE:PERCENT:...", a line
# every quarter
how_far() {
    awk -F: '$1 == "dlstatus" || $1 == "pmstatus" {
        what = $1 == "dlstatus" ? "downloading" : "unpacking and setting up"
        if (what != last) { last = what; next_percent = 25 }
        if ($3 >= next_percent) {
            printf "  %s: %d %%\n", what, $3; fflush()
            next_percent = (int($3 / 25) + 1) * 25 } }'
}
echo "installing ${#wanted[@]} packages of Debian: ${wanted[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
# Its status has a pipe of its own: what packages print while they are set up would meet one that
# apt made non-blocking. The shell is within sudo, which hands on no more than three files.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c '
    exec apt-get install -y -qq --no-install-recommends -o APT::Status-Fd=3 -o Dpkg::Use-Pty=0 \
        "$@" 3>&1 >/dev/null' sh "${wanted[@]}" 2> >(grep -v '^debconf: delaying' >&2) | how_far
echo "installed in $((SECONDS - start)) s"
mapfile -t wanted < <(missing)
if [ ${#wanted[@]} -gt 0 ]; then
    echo "install_deps.sh: still missing: ${wanted[*]}" >&2
    exit 1
fi
