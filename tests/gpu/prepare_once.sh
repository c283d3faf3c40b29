#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fills a folder that tests/gpu/once.sh takes to a machine with a GPU: programs that are risky there, with what target c
# makes of the same inputs or learns from the same samples; a pack of plain ones for run.sh; the compiler as a bundle.
# With the tree it must stay below 60 MB.
#
# usage: tests/gpu/prepare_once.sh [--only RE] [--no-plain] [--no-bundle] ULLAGE [FOLDER]
#   FOLDER       default .gpu, which git ignores; it is made anew
#   --only RE    only risky programs whose name matches
# exit: 0 ready, 4 folder and tree together are 60 MB or more, 6 something could not be made, 1 usage, 77 no Python packages
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
only=. plain=1 bundle=1
while [[ ${1:-} == --* ]]; do
    case $1 in
    --only) only=$2; shift 2 ;;
    --no-plain) plain=; shift ;;
    --no-bundle) bundle=; shift ;;
    *) echo "prepare_once.sh: unknown option $1" >&2; exit 1 ;;
    esac
done
if [ $# = 0 ] || [ $# -gt 2 ] || [ ! -x "$1" ]; then
    echo "usage: tests/gpu/prepare_once.sh [--only RE] [--no-plain] [--no-bundle] ULLAGE [FOLDER]" >&2
    exit 1
fi
ullage=$(realpath "$1") out=$(realpath -m "${2:-$root/.gpu}")
"$root/scripts/setup_python.sh" >&2 || exit $?
python=$root/build/venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out/risky" || exit 6
fail() { echo "prepare_once.sh: $1" >&2; tail -n 5 "$work/log" >&2; exit 6; }
quietly() { "$@" >"$work/log" 2>&1; }
wanted() { grep -qE -- "$only" <<<"$1"; }

# pack FILE.tar.xz FOLDER: what is in it; a third smaller than by gzip. Python is there where it is unpacked, xz may not be.
pack() { (cd "$2" && "$python" -m tarfile -c "$out/$1" ./*) || fail "$1"; }

# model NAME: the file of a network that is scaled down; of `lstm_full` and the like at full size, of `gpt2_b4` with a batch
# of four.
model() {
    local file=$work/$1.onnx
    case $1 in
    digits) file=$root/models/digits/untrained.onnx ;;
    attention*) [ -e "$file" ] || quietly "$python" "$here/once_attention.py" "$1" "$file" || fail "$1" ;;
    thin | logits* | convs) [ -e "$file" ] || quietly "$python" "$here/once_layers.py" "$1" "$file" || fail "$1" ;;
    *_full) [ -e "$file" ] || quietly "$python" "$root/models/make.py" "${1%_full}" -o "$file" || fail "$1" ;;
    *_b4) [ -e "$file" ] || quietly "$python" "$root/models/make.py" "${1%_b4}" --small --batch 4 -o "$file" || fail "$1" ;;
    *) [ -e "$file" ] || quietly "$python" "$root/models/make.py" "$1" --small -o "$file" || fail "$1" ;;
    esac
    echo "$file"
}

# share FOLDER: the runtime's files are the same in all folders, and stand in runtime/ once.
share() {
    local file
    mkdir -p "$out/runtime"
    for file in "$1"/ul_*; do
        [ -e "$out/runtime/${file##*/}" ] || cp "$file" "$out/runtime/"
        cmp -s "$file" "$out/runtime/${file##*/}" || fail "$file is not the runtime's"
        echo "${file##*/}" >>"$1/runtime.txt"
        rm "$file"
    done
}

# emit NAME OPTIONS...
emit() {
    local name=$1
    shift
    quietly "$ullage" compile "$@" --target cuda --with-cudnn on --emit "$out/risky/$name" || fail "$name: $*"
    share "$out/risky/$name"
}

# add NAME NETWORK CHECKS LIMIT OPTIONS...: a program of inference beside what target c makes of the same random inputs in
# float32. LIMIT: of the norm error.
add() {
    local name=$1 network=$2 checks=$3 limit=$4 file code=0
    shift 4
    wanted "$name" || return 0
    file=$(model "$network") || exit 6
    emit "$name" "$file" "$@"
    if [ ! -e "$work/$network.want" ]; then
        quietly "$ullage" compile "$file" --target c -o "$work/$network.program" || fail "$network for target c"
        quietly "$work/$network.program" --random 1 --output-dir "$work/$network.want" || code=$?
        # 2: an index of the random inputs was out of range, and was clamped, as it will be there.
        [ "$code" = 0 ] || [ "$code" = 2 ] || fail "$network: target c ends with $code"
    fi
    cp -r "$work/$network.want" "$out/risky/$name/want"
    printf '%s\t%s\t%s\n' "$name" "$checks" "$limit" >>"$out/risky/rows.tsv"
}

# look NAME NETWORK CHECKS OPTIONS...: a program whose times are looked at; nothing is compared.
look() {
    local name=$1 network=$2 checks=$3 file
    shift 3
    wanted "$name" || return 0
    file=$(model "$network") || exit 6
    emit "$name" "$file" "$@"
    printf '%s\t%s\t-\n' "$name" "$checks" >>"$out/risky/rows.tsv"
}

# train NAME NETWORK CHECKS LIMIT PRECISION OPTIONS...: a trainer beside losses of target c in the same precision. LIMIT: of
# the relative difference of a loss. Options after -- are those of target cuda alone.
train() {
    local name=$1 network=$2 checks=$3 limit=$4 precision=$5 file here_only=() both=()
    shift 5
    wanted "$name" || return 0
    while [ $# -gt 0 ] && [ "$1" != -- ]; do both+=("$1"); shift; done
    [ $# = 0 ] || { shift; here_only=("$@"); }
    both+=(--train --optimizer adamw --lr 1e-3)
    [ "$precision" = fp32 ] || both+=(--precision "$precision")
    file=$(model "$network") || exit 6
    emit "$name" "$file" "${both[@]}" "${here_only[@]}"
    quietly "$ullage" compile "$file" --target c "${both[@]}" -o "$work/$name" || fail "$name for target c"
    quietly "$python" "$here/once_samples.py" "$network" "$file" "$out/risky/$name" || fail "samples of $network"
    (cd "$out/risky/$name" && quietly "$work/$name" --data x.npy --labels y.npy --steps 20 --metrics want.csv) ||
        fail "$name: target c does not train"
    printf '%s\t%s\t%s\n' "$name" "train,$checks" "$limit" >>"$out/risky/rows.tsv"
}

# What is risky, the riskiest first.
digits=(--dim N=32 --train-mode --output /fc/Gemm_output_0)
add attention.fp16 attention results,bits,guard,memory 5e-3 --precision fp16
add attention_caller.bf16 attention turns - --precision bf16 --io caller
add attention_causal.bf16 attention_causal results,bits 3e-2 --precision bf16
train attention_train.bf16 attention_train bits,guard,memory 1e-1 bf16
train digits.bf16 digits bits,guard,memory 1e-1 bf16 "${digits[@]}"
train digits.fp32 digits bits,memory 1e-2 fp32 "${digits[@]}"
add inception_v3.fp16 inception_v3 results,bits,guard 5e-3 --precision fp16 --streams 2
add lstm_full.fp16 lstm_full results,bits,guard 5e-3 --precision fp16
add gru_bi_full.bf16 gru_bi_full results,bits 3e-2 --precision bf16
train digits_offload.fp32 digits bits,memory 1e-2 fp32 "${digits[@]}" -- --offload host --budget-of arena --budget 700KiB
train gpt2.bf16 gpt2_b4 bits,guard 1e-1 bf16 --class-axis -1
train resnet50.bf16 resnet50_b4 bits 1e-1 bf16 --train-mode
train resnet50.fp32 resnet50_b4 memory 1e-2 fp32 --train-mode
train ds_cnn.bf16 ds_cnn_b4 bits 1e-1 bf16 --train-mode --output /fc/Gemm_output_0
add resnet50_align8.fp16 resnet50 results,bits 5e-3 --precision fp16 --align 8
add gpt2_align8.fp16 gpt2 results 5e-3 --precision fp16 --align 8
add resnet50_caller.fp16 resnet50 turns - --precision fp16 --io caller
add lstm_caller.fp16 lstm turns - --precision fp16 --io caller
add resnet50.plan.fp16 resnet50 results,bits,guard,memory 5e-3 --precision fp16
add swin_t.fp16 swin_t results,guard 5e-3 --precision fp16
add unet.bf16 unet results,bits,guard 3e-2 --precision bf16
train gpt2.fp32 gpt2_b4 memory 1e-2 fp32 --class-axis -1
# What is suspected to be slow (README.md).
look convs.fp32 convs tune
look convs.fp16 convs tune --precision fp16
look thin.fp16 thin tune --precision fp16
look logits.fp16 logits time --precision fp16
look logits_wide.fp16 logits_wide time --precision fp16
[ -s "$out/risky/rows.tsv" ] || { echo "prepare_once.sh: --only $only: no such program" >&2; exit 1; }

if [ -n "$plain" ]; then
    quietly "$here/prepare.sh" --ullage "$ullage" --stride 12 --precision fp32,fp16 "$out/plain.tar.gz" || fail "the plain pack"
fi
if [ -n "$bundle" ]; then
    quietly "$here/bundle.sh" "$ullage" "$work/bundle" || fail "the bundle"
    pack bundle.tar.xz "$work/bundle"
fi
mkdir "$work/risky" && mv "$out/risky" "$out/runtime" "$work/risky/"
pack risky.tar.xz "$work/risky"

carried=$(du -sb "$out" | cut -f1)
tree=$(cd "$root" && git ls-files -z | xargs -0 du -cb 2>/dev/null | awk '$2 == "total" { sum += $1 } END { print sum + 0 }')
echo "$out: $carried bytes; the tree: $tree bytes; together $((carried + tree)), less than 60000000 are wanted"
[ $((carried + tree)) -lt 60000000 ] || exit 4
