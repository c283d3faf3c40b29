#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares every network of models/ with onnxruntime: compare_ort.py on each, one line a network.
#
# usage: tests/ref/models.sh [--small] [--no-reuse] [--guard] [--target NAME] [--jobs N]
#                            [--type fp16|bf16 [--islands]] ULLAGE [FILTER] [-- COMPILE OPTIONS]
# With --type the networks are models of 16 bits themselves, as compare_ort.py makes them. Without it
# also the OCR networks of the rapidocr-onnxruntime package where it can be installed, and ONNX's
# light models where ULLAGE_DATA names a folder that has them in light/ (LIGHT_*.onnx beside
# LIGHT_*_output_0.pb).
# exit: 0 all within tolerance, 6 some are not, 77 no Python packages
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=$root/build/venv/bin/python
# shellcheck source=tests/part.sh
. "$here/../part.sh"

size=() checks=() target=c jobs=1 type=
while [ $# -gt 0 ]; do
    case $1 in
    --small) size=(--small); shift ;;
    --no-reuse | --guard) checks+=("$1"); shift ;;
    --target) target=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --type) checks+=("$1" "$2"); type=$2; shift 2 ;;
    --islands) checks+=("$1"); shift ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] || { echo "usage: tests/ref/models.sh [options] ULLAGE [FILTER]" >&2; exit 1; }
ullage=$1
shift
filter=.
if [ $# -gt 0 ] && [ "$1" != -- ]; then
    filter=$1
    shift
fi
[ "${1:-}" = -- ] && shift
extra=("$@")
"$root/scripts/setup_python.sh" || exit $?

out=$(mktemp -d "$root/build/ref.XXXXXX")
trap 'rm -rf "$out"' EXIT

# start NAME ARGUMENTS...: one comparison, at most $jobs at a time; its text goes to a file.
start() {
    local name=$1
    shift
    grep -qE -- "$filter" <<<"$name" || return 0
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    echo "$name" >>"$out/order"
    {
        "$python" "$here/compare_ort.py" --ullage "$ullage" --target "$target" "${checks[@]}" "$@" \
            -- "${extra[@]}" >"$out/$name.txt" 2>&1
        echo $? >"$out/$name.rc"
        if [ "$(cat "$out/$name.rc")" = 0 ]; then
            paste -sd' ' "$out/$name.txt" | sed 's/  */ /g'
        else
            echo "FAIL $name (exit $(cat "$out/$name.rc"))"
            sed 's/^/    /' "$out/$name.txt" | tail -n 6
        fi
    } &
}

# The classes of random pictures are about as likely: onnxruntime in fp16 errs by 4.4e-3.
[ "$type" = fp16 ] && loose=(--tolerance 1e-2) || loose=()
start digits "$root/models/digits/digits.onnx" --shape x=7,1,8,8  "${loose[@]}"
for name in $("$python" "$root/models/make.py" --list | part); do
    # A sum within rounding of a boundary between two quantized values may fall to either side:
    # onnxruntime with and without its optimizations differs from itself by 1.5e-2 here.
    # One of ten outputs a step further is 7.7e-2.
    case $name$type in qdq_*16) loose=(--tolerance 8e-2) ;; qdq_* | integer_*fp16) loose=(--tolerance 2e-2) ;; *) loose=() ;; esac
    start "$name" "$name" "${size[@]}" "${loose[@]}"
done

code=0
if [ -z "$type" ]; then
    ocr=$("$root/scripts/fetch_ocr.sh") && "$root/scripts/setup_python.sh" --with pillow || code=$?
fi
if [ -z "$type" ] && [ $code = 0 ]; then
    side=320
    [ ${#size[@]} = 0 ] || side=64
    # Detection sees text: on noise it answers 1e-6, where onnxruntime's Sigmoid errs by 1e-7.
    "$python" "$root/scripts/demo_ocr.py" draw "$out"
    # Rounding is most of what 16 bits of it answer: written in fp16 onnxruntime errs by 1.2.
    case " ${extra[*]} " in
    *" --precision fp16 "*) loose=(--tolerance 2e-2) ;;
    *" --precision bf16 "*) loose=(--tolerance 1.6e-1) ;; # three bits less
    *) loose=() ;;
    esac
    start ocr_detection "$ocr/ch_PP-OCRv4_det_infer.onnx" --input "x=$out/picture.npy" "${loose[@]}"
    start ocr_recognition "$ocr/ch_PP-OCRv4_rec_infer.onnx" --shape x=1,3,48,$side
    start ocr_classification "$ocr/ch_ppocr_mobile_v2.0_cls_infer.onnx" --shape x=1,3,48,192
elif [ $code = 77 ]; then
    echo "SKIP the OCR networks: PyPI is out of reach"
elif [ $code != 0 ]; then
    echo "FAIL the OCR networks cannot be installed"
    echo ocr >>"$out/order"
    echo $code >"$out/ocr.rc"
fi

if [ -z "$type" ] && [ -d "${ULLAGE_DATA:-/nonexistent}/light" ]; then
    for model in "$ULLAGE_DATA"/light/*.onnx; do
        want=${model%.onnx}_output_0.pb
        output=$("$python" -c '
import sys, onnx
print(onnx.load(sys.argv[1]).graph.output[0].name)' "$model")
        start "$(basename "$model" .onnx)" "$model" --ramp --expect "$output=$want"
    done
elif [ -z "$type" ]; then
    echo "SKIP ONNX's light models: ULLAGE_DATA names no folder with light/"
fi
wait

failed=$(cat "$out"/*.rc 2>/dev/null | grep -cv '^0$')
total=$(wc -l <"$out/order")
echo "$((total - failed)) passed, $failed failed"
[ "$failed" = 0 ] || exit 6
