#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# model.sh on every network of models/, scaled down: the same structure, few channels and layers.
#
# usage: tests/e2e/models.sh [--target NAME] [--type fp16|bf16] [--islands] ULLAGE
#                            [FILTER [compile options]]
# With --type they are models of 16 bits themselves (models/make.py).
# exit: 0 all right, 1 a promise is broken, 77 no Python packages to make the networks with
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=c
type=()
while [ $# -gt 0 ]; do
    case $1 in
    --target) target=$2; shift 2 ;;
    --type) type+=(--type "$2"); shift 2 ;;
    --islands) type+=(--islands); shift ;;
    *) break ;;
    esac
done
ullage=$1
filter=${2:-.}
shift $(($# < 2 ? $# : 2))
"$root/scripts/setup_python.sh" || exit $?
python=$root/build/venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# shellcheck source=tests/part.sh
. "$here/../part.sh"
for name in $("$python" "$root/models/make.py" --list | grep -E -- "$filter" | part); do
    "$python" "$root/models/make.py" "$name" --small "${type[@]}" -o "$work/$name.onnx" >/dev/null || failed=1
    "$here/model.sh" --target "$target" "$ullage" "$work/$name.onnx" "$@" || failed=1
    rm -f "$work/$name.onnx"
done
exit $failed
