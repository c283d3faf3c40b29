#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Golden tests of the frontend: every cases/NAME.onnx is loaded with the options in NAME.args, and
# the graph or the error is compared with NAME.want. The models are made by make_cases.py.
#
# usage: run.sh DUMP [--update]        DUMP: the frontend_dump program
# exit: 0 all equal, 6 a difference
set -uo pipefail
dump=$(realpath "$1")
update=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/cases" || exit 5
failed=0
count=0
got=$(mktemp)
link=escape_link
trap 'rm -f "$got" "$link"' EXIT
# A link out of the directory: what external data must not follow.
ln -sf /etc/hostname "$link"
for model in *.onnx; do
    name=${model%.onnx}
    args=()
    [ ! -e "$name.args" ] || mapfile -t args <"$name.args"
    "$dump" "$model" "${args[@]}" >"$got" 2>&1
    code=$?
    count=$((count + 1))
    [ "$code" = 0 ] || echo "exit $code" >>"$got"
    if [ "$update" = --update ]; then
        cp "$got" "$name.want"
    elif ! diff -u "$name.want" "$got"; then
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
done
echo "$((count - failed)) of $count pass"
[ "$failed" = 0 ] || exit 6
