# SPDX-License-Identifier: Apache-2.0
# Where CUDA is on this machine; read by run.sh and by tests/bench/gpu.sh. Functions alone.
# shellcheck shell=bash

# The command in NVCC, else nvcc of the PATH or of a folder where toolkits are; nothing: none.
find_nvcc() {
    local candidate
    if [ -n "${NVCC:-}" ]; then
        command -v "${NVCC%% *}" >/dev/null && echo "$NVCC"
        return
    fi
    for candidate in nvcc "${CUDA_HOME:-}"/bin/nvcc "${CUDA_PATH:-}"/bin/nvcc \
        /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc /opt/cuda/bin/nvcc; do
        command -v "$candidate" && return
    done
    return 1
}

# cuda_folders NVCC: where there may be headers and libraries, a line each: the toolkit, the system,
# what Python's packages brought along. The first is the folder of nvcc itself: the emulation's.
cuda_folders() {
    local here root python word
    for word in $1; do # `ccache nvcc`
        [[ ${word##*/} != *nvcc* ]] || here=$(dirname "$(readlink -f "$(command -v "$word")")")
    done
    [ -n "${here:-}" ] || return 0
    root=$(dirname "$here")
    printf '%s\n' "$here" "$root" "$root/extras/CUPTI" "$root"/targets/*-linux /usr
    python=$(command -v "${PYTHON:-python3}") || return 0
    "$python" -c '
import glob, site, sys
for at in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
    print(*sorted(glob.glob(at + "/nvidia/*")), sep="\n")' 2>/dev/null
}

# find_part PATTERN SUBFOLDER...: of the folders on standard input, the first with such a file.
find_part() {
    local pattern=$1 folder below found
    shift
    while read -r folder; do
        for below in "$@"; do
            found=$(compgen -G "$folder/$below/$pattern" | head -n 1)
            [ -z "$found" ] || { echo "${found%/*}"; return; }
        done
    done
    return 1
}
find_header() { find_part "$1" include 'include/*-linux-gnu'; }
find_library() { find_part "$1*" lib64 lib 'lib/*-linux-gnu'; }

# use_cuda FOLDERS: what is built from here on finds the headers of cuBLASLt and cuDNN, what is run
# from here on finds the libraries. Sets CUDA_LIBRARIES, a line of text each.
use_cuda() {
    local name at known
    known=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null)
    CUDA_LIBRARIES=''
    # Where compilers look anyway, it is not said again: they would look there in another order.
    for name in cublasLt cudnn; do
        if ! head -n 2 <<<"$1" | find_header $name.h >/dev/null &&
            at=$(find_header $name.h <<<"$1") && [[ $at != /usr/include* ]] &&
            [[ :${CPLUS_INCLUDE_PATH:-}: != *:$at:* ]]; then
            export CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$at
        fi
    done
    for name in cublasLt cudnn; do
        if at=$(grep -m1 -oE "/[^ ]*/lib$name\.so[.0-9]*\$" <<<"$known"); then
            at=${at%/*}
        elif at=$(find_library "lib$name.so" <<<"$1"); then
            export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$at
        else
            at='not found'
        fi
        CUDA_LIBRARIES+=$(printf '%-10s %s' "$name" "$at")$'\n'
    done
}
