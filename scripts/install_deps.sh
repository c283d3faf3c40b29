#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need from Debian 12 or newer. Only what is missing;
# as root, or through sudo. Nothing else is downloaded.
#
# usage: scripts/install_deps.sh [--browser] [--arm] [--list]
#   --browser  also the browser that tests look at the planning report with
#   --arm      also compilers for ARM, for microcontrollers and 64 bits, and machines that run their
#              programs
# exit: 0 all there, 1 something could not be installed
set -euo pipefail

packages=(
    gcc libc6-dev cmake ninja-build make pkg-config              # build
    clang libclang-rt-dev clang-format                           # the other compiler, fuzzing
    libprotobuf-c-dev protobuf-c-compiler protobuf-compiler      # ONNX files
    libonnx-dev                                                  # the schema, onnx-ml.proto
    libglpk-dev libjansson-dev libssl-dev                        # planner, JSON, SHA-256
    libdnnl-dev libomp-dev                                       # target cpu, also by clang
    libcmocka-dev time g++                                       # tests; target cuda without a GPU
    python3-venv                                                 # models and references only
)
if [ "${1:-}" = --browser ]; then
    packages+=(chromium)
    shift
fi
if [ "${1:-}" = --arm ]; then
    packages+=(gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)
    packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
    shift
fi
if [ "${1:-}" = --list ]; then
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
echo "installing: ${wanted[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
mapfile -t wanted < <(missing)
if [ ${#wanted[@]} -gt 0 ]; then
    echo "install_deps.sh: still missing: ${wanted[*]}" >&2
    exit 1
fi
