#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo: builds and installs ullage, compiles two trained networks, runs them, and trains one.
#   1. digits: classifies handwritten digits that its training never saw;
#   2. digits again, from random weights: trains it to 98 % on those pictures, without a budget and in
#      the smallest buffer that its plans know, with the same losses;
#   3. PP-OCRv4: finds and reads the text of a picture drawn here, the finding within a budget, beside
#      onnxruntime. The networks come with a PyPI package; this part is skipped, saying so, where PyPI
#      is out of reach.
# For each, what the compiler predicted and what the program reserved must be equal. What it does and
# how far it is stands in a line each; the last screen says what came of it.
#
# usage: scripts/demo.sh [--target c|cpu]
# exit: 0 all right, 6 a result or a number is wrong, else that of the step that failed
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
target=()
while [ $# -gt 0 ]; do
    case $1 in
    --target) target=(--target "${2:?--target needs a name}"); shift 2 ;;
    -h | --help) sed -n '3,15s/^# \{0,1\}//p' "scripts/demo.sh"; exit 0 ;;
    *) echo "demo.sh: unknown option $1" >&2; exit 1 ;;
    esac
done
out=build/demo
mkdir -p "$out"
log=$out/demo.log
: >"$log"

say() { printf '\n[%3d s] %s\n' "$SECONDS" "$*"; }

# quiet COMMAND...: what it prints goes into the log, whose end is shown where it fails.
quiet() {
    local code=0
    "$@" >>"$log" 2>&1 || code=$?
    [ $code = 0 ] || { tail -20 "$log" >&2; echo "demo.sh: failed: $* (all of it: $log)" >&2; }
    return $code
}

# read_npy FILE TYPE COLUMNS: the numbers of a little-endian .npy file, COLUMNS to a line. TYPE is
# od's: f4, d8.
read_npy() {
    local header width=${2#?}
    header=$(od -An -tu2 -j8 -N2 --endian=little "$1")
    od -An -v -w$(($3 * width)) -t"$2" -j$((10 + header)) --endian=little "$1"
}

ullage=$out/install/bin/ullage
compile() { quiet "$ullage" compile "${target[@]}" "$@"; }

# number KEY FILE: of a JSON file of ours, the first of that name
number() { sed -n "s/^ *\"$1\": *\([0-9]*\).*/\1/p" "$2" | head -1; }

# size BYTES: as texts of ours give sizes
size() { awk -v b="$1" 'BEGIN { m = b / 1048576
    if (b < 1048576) printf "%.2f KiB = %d bytes", b / 1024, b; else printf "%.2f MiB = %d bytes", m, b }'; }

# equal_bytes PROGRAM: its own account of predicted and reserved bytes; it fails when they differ.
equal_bytes() {
    "$1" --memory >"$1.memory" || { cat "$1.memory" >&2; return 6; }
    cat "$1.memory" >>"$log"
    awk '/^total / && $2 == $3 { equal = 1; print $3 } END { exit equal ? 0 : 6 }' "$1.memory" ||
        { cat "$1.memory" >&2; echo "demo.sh: $1: predicted and reserved bytes differ" >&2; return 6; }
}

# digits_right FILE FRACTION: how many held-out digits the outputs in FILE have right, in percent
labels=models/digits/heldout_y.txt
count=$(wc -l <"$labels")
digits_right() {
    read_npy "$1" f4 10 | paste "$labels" - | awk -v least="$2" '
        { best = 0; for (i = 1; i < 10; i++) if ($(i + 2) > $(best + 2)) best = i
          right += best == $1 }
        END { printf "%d of %d right (%.1f %%)", right, NR, 100 * right / NR
              exit right < least * NR ? 6 : 0 }'
}

# ---- Build ----

say "Packages that building needs (no tests, no second compiler)"
scripts/install_deps.sh --build
say "Building ullage"
quiet cmake --preset release
# A line every tenth of the steps.
NINJA_STATUS='[%f/%t %e] ' cmake --build --preset release -j "$(nproc)" 2>&1 | tee -a "$log" | awk '
    /^FAILED|error:/ { print }
    match($0, /^\[[0-9]+\/[0-9]+ [0-9.]+\]/) {
        split(substr($0, 2, RLENGTH - 2), part, /[\/ ]/)
        if (part[1] * 10 >= part[2] * (shown + 1)) {
            shown = int(part[1] * 10 / part[2])
            printf "  step %d of %d, %d s\n", part[1], part[2], part[3]; fflush() } }' ||
    { tail -20 "$log" >&2; echo "demo.sh: the build failed (all of it: $log)" >&2; exit 1; }
quiet cmake --install build/release --prefix "$out/install"
"$ullage" --version

# ---- Digits ----

say "1 of 3: classifying $count handwritten digits that the training never saw"
compile models/digits/digits.onnx --dim N="$count" -o "$out/digits"
quiet "$out/digits" --input x=models/digits/heldout.npz:x --output-dir "$out/digits-out"
digits=$(digits_right "$out/digits-out/y.npy" 0.97) || { echo "$digits"; exit 6; }
digits_bytes=$(equal_bytes "$out/digits")
echo "  $digits, in $(size "$digits_bytes"), predicted and reserved"

# train NAME [--budget BYTES]: compiles a trainer and has it train from random weights.
train() {
    local name=$1
    shift
    compile models/digits/untrained.onnx "${training[@]}" "$@" -o "$out/$name"
    quiet "$out/$name" --data models/digits/train_x.npy --labels models/digits/train_y.npy \
        --epochs 12 --seed 1 --metrics "$out/$name.csv" --save "$out/$name.npz"
}

say "2 of 3: training that network, 12 epochs, twice"
training=(--dim N=32 --train --train-mode --output /fc/Gemm_output_0 --optimizer momentum --lr 0.05
    --weight-decay 5e-4 --schedule warmup:50,cosine:500 --budget-of arena)
train whole
whole_bytes=$(equal_bytes "$out/whole")
echo "  [$SECONDS s] trained without a budget, in $(size "$whole_bytes")"
small_bytes=$("$ullage" plan "${target[@]}" models/digits/untrained.onnx \
    "${training[@]}" --sweep --csv - | tail -n +2 | cut -d, -f1 | sort -n | head -1)
train small --budget "$small_bytes"
[ "$(equal_bytes "$out/small")" -le "$small_bytes" ] || { echo "above the budget"; exit 6; }
if ! cmp <(cut -d, -f1-4 "$out/whole.csv") <(cut -d, -f1-4 "$out/small.csv"); then
    echo "the losses differ"
    exit 6
fi
echo "  [$SECONDS s] trained within $(size "$small_bytes"): $(($(wc -l <"$out/whole.csv") - 1)) losses, equal to the last digit"
quiet "$ullage" export models/digits/untrained.onnx "$out/small.npz" -o "$out/trained.onnx"
compile "$out/trained.onnx" --dim N="$count" -o "$out/trained"
quiet "$out/trained" --input x=models/digits/heldout.npz:x --output y="$out/trained-y.npy"
trained=$(digits_right "$out/trained-y.npy" 0.98) || { echo "$trained"; exit 6; }

# ---- Text in a picture ----

# read_picture: finds and reads text with PP-OCRv4; sets what the last screen says of it.
read_picture() {
    local python=build/venv/bin/python line spelled=() budget
    detection=$ocr/ch_PP-OCRv4_det_infer.onnx recognition=$ocr/ch_PP-OCRv4_rec_infer.onnx
    quiet "$python" scripts/demo_ocr.py draw "$out"
    echo "  [$SECONDS s] planning the network that finds text, down to a budget"
    "$ullage" plan "${target[@]}" "$detection" --shape x=1,3,320,640 --sweep --csv "$out/sweep.csv" >>"$log"
    # The smallest budget that costs at most a tenth more time.
    budget=$(tr -d '\r' <"$out/sweep.csv" | awk -F, 'NR > 1 && $5 <= 0.1 { best = $11 } END { print best }')
    quiet "$ullage" plan "${target[@]}" "$detection" --shape x=1,3,320,640 --budget "$budget" --json "$out/plan.json" \
        --html "$out/report.html" --advice off
    compile "$detection" --plan "$out/plan.json" -o "$out/detect"
    quiet "$out/detect" --input x="$out/picture.npy" --output sigmoid_0.tmp_0="$out/map.npy"
    rm -f "$out"/line_*.npy
    quiet "$python" scripts/demo_ocr.py cut "$out" "$out/map.npy"
    detect_bytes=$(equal_bytes "$out/detect")
    echo "  [$SECONDS s] reading the lines that were found"
    compile "$recognition" --shape x=1,3,48,672 -o "$out/recognize"
    for line in "$out"/line_[0-9].npy; do
        quiet "$out/recognize" --input x="$line" --output softmax_11.tmp_0="${line/line_/letters_}"
        spelled+=("${line/line_/letters_}")
    done
    text=$("$python" scripts/demo_ocr.py spell "$recognition" "${spelled[@]}") || { echo "$text"; exit 6; }
    quiet equal_bytes "$out/recognize"
    echo "  [$SECONDS s] measuring it and onnxruntime, each in a process of its own"
    # Peaks are those of processes that this shell starts; of onnxruntime, less what Python takes.
    "$out/detect" --input x="$out/picture.npy" --bench --json "$out/bench.json" >>"$log"
    ours=$(number peak_resident_bytes "$out/bench.json")
    [ "$ours" -le "$budget" ] || { echo "the process took $(size "$ours"), above the budget"; exit 6; }
    read -r python_bytes _ < <("$python" scripts/demo_ocr.py peak "$out/picture.npy")
    read -r theirs version < <("$python" scripts/demo_ocr.py peak "$out/picture.npy" "$detection" 2>>"$log") ||
        theirs=
    first_bytes=$(tr -d '\r' <"$out/sweep.csv" | awk -F, 'NR == 2 { print $11 }')
    more=$(tr -d '\r' <"$out/sweep.csv" | awk -F, -v b="$budget" '$11 == b { printf "%.1f %%", 100 * $5 }')
    budget_bytes=$budget
}

say "3 of 3: reading the text of a picture (PP-OCRv4), Python packages first"
code=0
ocr=$(scripts/fetch_ocr.sh 2>>"$log") && scripts/setup_python.sh --with pillow >>"$log" 2>&1 || code=$?
if [ $code = 0 ]; then
    read_picture
elif [ $code != 77 ]; then
    tail -20 "$log" >&2
    echo "demo.sh: failed: getting the networks (all of it: $log)" >&2
    exit $code
else
    ocr=
    echo "  skipped: PyPI, whose package ships these networks, is out of reach"
    quiet "$ullage" plan "${target[@]}" models/digits/digits.onnx --dim N="$count" --advice off \
        --html "$out/report.html"
fi

# ---- What came of it, in one screen ----

say "Done. Predicted bytes were reserved bytes each time."
echo "  digits      $digits, in a buffer of $(size "$digits_bytes")"
echo "  training    $trained after 12 epochs in $(size "$whole_bytes"),"
echo "              and with the same losses in $(size "$small_bytes")"
if [ -n "$ocr" ]; then
    echo "  text found  by a network of $(du -Lh "$detection" | cut -f1) in a buffer of $(size "$detect_bytes")"
    echo "  the plan    without a budget its process takes $(size "$first_bytes") at most;"
    echo "  a budget    of $(size "$budget_bytes") is met, for $more more time"
    echo "  measured    $(size "$ours") is the most that the process took"
    if [ -n "$theirs" ]; then
        echo "  onnxruntime $version took $(size $((theirs - python_bytes))) for the same picture"
    else
        echo "  onnxruntime skipped: it cannot be run here"
    fi
    echo "  text read   by a second network:"
    sed 's/^  /              /' <<<"$text"
else
    echo "  text        skipped, and onnxruntime beside ours with it: no Python packages here"
fi
echo "  the report  $root/$out/report.html (open it in a browser)"
echo "  next        $ullage plan YOUR_MODEL.onnx"
