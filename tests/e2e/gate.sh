#!/bin/sh
# The gate of docs/memory-gate.md, run as it stands there, and its workflow's steps, which are the same.
#   gate.sh ULLAGE DOCS MODEL.onnx
set -u
ullage=$1 page=$2/memory-gate.md model=$3
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
PATH=$(dirname "$ullage"):$PATH MODEL=$model LIMIT=2%
export PATH MODEL LIMIT OPTIONS
sed -n '/^```sh/,/^```/p' "$page" | sed '/^```/d' >"$work/gate.sh"
sed -n '/- run: |/,/^```/s/^          //p' "$page" >"$work/steps.sh"
cmp "$work/gate.sh" "$work/steps.sh" || { echo "FAIL: the workflow's steps are others"; exit 1; }
cd "$work" || exit 1
fails() { echo "FAIL: $*"; cat out.txt; exit 1; }
OPTIONS="--dim N=2 --target c"
# shellcheck disable=SC2086
"$ullage" plan "$model" $OPTIONS --json memory.json >/dev/null || fails "no plan"
sh -e gate.sh >out.txt 2>&1 || fails "the same plan does not pass"
OPTIONS="--dim N=1 --target c"
sh -e gate.sh >out.txt 2>&1 || fails "a smaller plan does not pass"
OPTIONS="--dim N=8 --target c"
sh -e gate.sh >out.txt 2>&1
[ $? -eq 6 ] || fails "a larger plan passes"
grep -q 'fail-above allows 2%; most by' out.txt || fails "no cause is named"
# What the page shows is what is said.
shown=$(sed -n '/^    ullage: error:/,/^$/s/^    //p' "$page" | tr '\n' ' ' | sed 's/ *$//')
grep -qF "$shown" out.txt || fails "the page shows another message: $shown"
echo "gate: ok"
