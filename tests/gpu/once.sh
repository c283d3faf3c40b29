#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All that a short time on a GPU is to tell, in one run of at most SECONDS (default 420, at least 120). It ends in time
# whatever hangs, one failure hides nothing else, and what it has is written as it comes.
#
# usage: tests/gpu/once.sh [SECONDS]
#   GPU_PACK=DIR   what prepare_once.sh filled (default: .gpu of the tree)
#   OUT=DIR        where results go (default: out in GPU_PACK): results.tsv, a line a check; table.txt; bench.json;
#                  facts.txt; clocks.csv; logs.tar.gz
#   STAGES=results,plain,bench,sanitize    some of them alone; facts always come first
#   ONLY=RE        risky programs by name, for `results`
#   CASES='LABEL:PRECISION|...'            for `bench`; once_bench.py lists them
#   DRY_RUN=1      `bench` on networks scaled down, PyTorch on the CPU: times mean nothing
#   PYTHON, PEER_PYTHON    with onnx and numpy; with PyTorch (default: the same)
# exit: 0 all is well, 6 something failed or there was no time for it, 3 there is no device, 5 there is no pack,
# 7 there is no nvcc, 1 usage
set -uo pipefail
export LC_ALL=C PYTHONUNBUFFERED=1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
limit=${1:-420} began=$(date +%s)
[[ $limit =~ ^[0-9]+$ && $limit -ge 120 ]] || { echo "usage: tests/gpu/once.sh [SECONDS], at least 120" >&2; exit 1; }
pack=$(realpath -m "${GPU_PACK:-$root/.gpu}")
[ -e "$pack/risky.tar.xz" ] || { echo "once.sh: $pack holds no risky.tar.xz; prepare_once.sh packs it" >&2; exit 5; }
out=$(realpath -m "${OUT:-$pack/out}")
export PYTHON=${PYTHON:-python3}
stages=,${STAGES:-results,plain,bench,sanitize},
work=$(mktemp -d)
mkdir -p "$out" "$work/log" || exit 5
rm -f "$out"/{results.tsv,table.txt,bench.json,facts.txt,clocks.csv,logs.tar.gz}
rows=$out/results.tsv
: >"$rows"
bench='' clocks=''

has() { [[ $stages == *,$1,* ]]; }
at() { echo $(($(date +%s) - began)); }
left() { echo $((limit - $(at) - ${1:-0})); } # left [RESERVE]: seconds
say() { printf '== %3d s  %s\n' "$(at)" "$*"; }
note() { printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$@" | tee -a "$rows"; } # STAGE NAME CHECK VERDICT TEXT SECONDS
keep_logs() {
    timeout 8 tar -czf "$work/logs.tar.gz" -C "$work" log 2>/dev/null && cp "$work/logs.tar.gz" "$out/logs.tar.gz"
    write_table
}

# The table: what failed or was left out, then a line for each stage.
write_table() {
    {
        awk -F'\t' '$4 != "ok" { printf "%-8s %-28s %-9s %-5s %s\n", $1, $2, $3, $4, $5 }' "$rows"
        awk -F'\t' '$4 == "ok" { printf "%-8s %-28s %-9s %-5s %s\n", $1, $2, $3, $4, $5 }' "$rows"
        awk -F'\t' '
            { if (!($1 in seen)) { seen[$1] = 1; order[++count] = $1 } n[$1, $4]++ }
            END {
                printf "\n%-9s %7s %7s %7s\n", "stage", "passed", "failed", "skipped"
                for (i = 1; i <= count; i++)
                    printf "%-9s %7d %7d %7d\n", order[i], n[order[i], "ok"], n[order[i], "FAIL"], n[order[i], "skip"]
            }' "$rows"
    } >"$out/table.txt"
}

finish() {
    local job
    trap - EXIT
    for job in $clocks $bench; do kill "$job" 2>/dev/null; done
    keep_logs
    rm -rf "$work"
    tail -n 8 "$out/table.txt"
    say "the end; $(find "$out" -maxdepth 1 -type f | wc -l) files, $(du -sh "$out" | cut -f1) in $out"
}
trap finish EXIT
trap 'exit 130' INT TERM

# ---- facts of the machine ----

# shellcheck source=tests/gpu/toolkit.sh disable=SC1091
. "$here/toolkit.sh"
nvcc=$(find_nvcc) || { note facts nvcc - FAIL "there is no nvcc" 0; exit 7; }
[[ $nvcc != */* || $nvcc == *' '* ]] || nvcc=$(realpath "$nvcc")
folders=$(cuda_folders "$nvcc")
use_cuda "$folders"
version=$($nvcc --version 2>/dev/null)
emulated=
[[ $version != *emulation* ]] || emulated=1
capability=$(timeout 10 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
arch=sm_90
[[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]] || arch=sm_${capability/./}
export NVCC=$nvcc CUDA_ARCH=$arch
# shellcheck disable=SC2086 # a command, maybe with options
timeout 40 $nvcc -O1 -std=c++17 -o "$work/device" "$here/device.cu" >"$work/log/device.txt" 2>&1
smi='nvidia-smi --query-gpu=memory.used --format=csv && nvidia-smi --query-compute-apps=pid,used_memory --format=csv'
{
    timeout 10 nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version,compute_cap,clocks.max.sm,clocks.max.mem,power.limit --format=csv
    echo "used before a context: $(timeout 10 nvidia-smi --query-gpu=memory.used --format=csv,noheader)"
    [ ! -x "$work/device" ] || timeout 20 "$work/device" "$smi"
    echo "device: exit $?"
    echo "nvcc: $nvcc; $(tail -n 2 <<<"$version" | tr '\n' ' '); built for $arch"
    printf '%s' "$CUDA_LIBRARIES"
    for tool in make cc g++ cmake ninja compute-sanitizer ncu nsys; do echo "$tool: $(command -v $tool)"; done
    cc --version | head -n 1
    ldd --version | head -n 1
    nproc
    free -g | head -n 2
    df -h "$work" | tail -n 1
    timeout 30 "${PEER_PYTHON:-$PYTHON}" -c 'import torch; print("torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
    timeout 15 "$PYTHON" -c 'import onnx, numpy; print("onnx", onnx.__version__, "numpy", numpy.__version__)'
} >"$out/facts.txt" 2>&1
cat "$out/facts.txt"
device=1
if [ ! -x "$work/device" ]; then
    note facts nvcc build FAIL "device.cu does not compile: $(grep -m1 -i error "$work/log/device.txt")" "$(at)"
    [ -n "$capability" ] || device= # what nvidia-smi knows may serve all the same
elif grep -q '^device: exit 0' "$out/facts.txt"; then
    note facts machine device ok "$(grep -m1 '^bytes of the device' "$out/facts.txt")" "$(at)"
else
    note facts machine device skip "no CUDA device" "$(at)"
    device=
fi
without=()
[ -n "$device" ] || without=(--no-device)
if [ -n "$device" ] && command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used --format=csv \
        -lms 500 >"$out/clocks.csv" 2>/dev/null &
    clocks=$!
fi

# ---- the bench prepares itself meanwhile, on all cores; it measures when it is alone ----

dry=()
[ -z "${DRY_RUN:-}" ] || dry=(--dry-run)
if has bench; then
    bundle=$pack/bundle.tar.xz
    [ -e "$bundle" ] || bundle=${ULLAGE:-$bundle}
    timeout -k 5 "$(left 12)" nice -n 2 "$PYTHON" "$here/once_bench.py" --ullage "$bundle" --seconds "$(left $((limit > 200 ? 45 : 20)))" \
        --gate "$work/gate" --rows "$rows" --json "$out/bench.json" --logs "$work/log" --peer-python "${PEER_PYTHON:-$PYTHON}" \
        "${dry[@]}" "${without[@]}" ${CASES:+--cases "$CASES"} >"$work/log/bench.txt" 2>&1 &
    bench=$!
fi

# ---- results of what is risky, then of what is plain ----

"$PYTHON" -m tarfile -e "$pack/risky.tar.xz" "$work"
# Sources are older than what is built here, whatever this machine's clock says.
find "$work/risky" "$work/runtime" -type f -exec touch -t 200001010000 {} +
if has results; then
    seconds=$(left 30)
    if has bench || has plain; then seconds=$((limit * 35 / 100)); fi
    timeout -k 5 $((seconds + 10)) "$PYTHON" "$here/once_results.py" "$work" --rows "$rows" --logs "$work/log" --nvcc "$nvcc" \
        --arch "$arch" --seconds "$seconds" "${without[@]}" --only "${ONLY:-.}" >"$work/log/results.txt" 2>&1
    code=$?
    [ $code = 0 ] || [ $code = 3 ] || [ $code = 6 ] || note results all end FAIL "exit $code: $(tail -n 1 "$work/log/results.txt")" "$(at)"
    grep -v ' skip ' "$work/log/results.txt" | tail -n 20
    say results
    keep_logs
fi
if has plain && [ -z "$device" ]; then
    note plain all device skip "no CUDA device" 0
elif has plain && [ ! -e "$pack/plain.tar.gz" ]; then
    note plain all pack skip "plain.tar.gz is not there" 0
elif has plain; then
    seconds=$(left 30)
    if has bench; then seconds=$((limit * 42 / 100 - $(at))); fi
    [ "$seconds" -ge 20 ] || seconds=20
    began_plain=$(at)
    timeout -k 5 $((seconds + 20)) "$here/run.sh" --work "$work/plain" --arch "$arch" --timeout 20 --sanitize 0 --seconds "$seconds" \
        "$pack/plain.tar.gz" >"$work/log/plain.txt" 2>&1
    # Checks that look at free bytes mean nothing while others are on the device.
    awk -F'\t' -v OFS='\t' '$1 != "free" { print "plain", $3, $1, $4 == "late" ? "skip" : $4, $4 == "ok" ? "" : $5, "" }' \
        "$work/plain/results.tsv" >>"$rows" 2>/dev/null
    grep -q '^plain' "$rows" || note plain all run FAIL "$(tail -n 1 "$work/log/plain.txt")" $(($(at) - began_plain))
    say plain
    keep_logs
fi
touch "$work/gate"

# ---- the bench ends; then nothing else is on the device ----

if [ -n "$bench" ]; then
    wait "$bench"
    code=$?
    bench=
    [ $code = 0 ] || [ $code = 3 ] || [ $code = 6 ] || note bench all end FAIL "exit $code: $(tail -n 1 "$work/log/bench.txt")" "$(at)"
    tail -n 40 "$work/log/bench.txt"
    say bench
fi

# Kernels of the libraries are not ours to judge. initcheck sees nothing in an arena that is zeroed as a whole.
if has sanitize; then
    sanitizer=$(command -v compute-sanitizer || { find_part compute-sanitizer bin compute-sanitizer <<<"$folders" | sed 's,$,/compute-sanitizer,'; })
    skip=()
    if [ -n "$sanitizer" ] && timeout 10 "$sanitizer" --help 2>/dev/null | grep -q -- --kernel-name-exclude; then
        for name in cublas cudnn nvjet cutlass xmma sm80_ sm90_; do skip+=(--kernel-name-exclude "kns=$name"); done
    fi
    if [ -z "$device" ]; then
        note sanitize all device skip "no CUDA device" 0
    elif [ -z "$sanitizer" ] || [ -n "$emulated" ]; then
        note sanitize all tool skip "there is no compute-sanitizer for this device" 0
    else
        for tool in memcheck racecheck; do
            for program in lstm_full.fp16 digits.bf16 swin_t.fp16; do
                folder=$work/risky/$program arguments=(--random 1)
                [ ! -e "$folder/x.npy" ] || arguments=(--data x.npy --labels y.npy --steps 1)
                if [ "$(left 20)" -lt 5 ] || [ ! -x "$folder/program" ]; then
                    note sanitize $program $tool skip "$([ -x "$folder/program" ] && echo "no time was left" || echo "it is not built")" 0
                    continue
                fi
                begin=$(at) code=0
                (cd "$folder" && timeout -k 2 "$(left 15)" "$sanitizer" --tool $tool --error-exitcode 99 --print-limit 5 "${skip[@]}" ./program "${arguments[@]}") \
                    >"$work/log/$program.$tool.txt" 2>&1 || code=$?
                case $code in
                0 | 2) verdict=ok ;;
                124 | 137) verdict=skip ;;
                *) verdict=FAIL ;;
                esac
                note sanitize $program $tool $verdict "exit $code: $(tail -n 1 "$work/log/$program.$tool.txt")" $(($(at) - begin))
            done
        done
    fi
fi
[ -n "$device" ] || { grep -qE $'\tFAIL\t' "$rows" && exit 6; exit 3; }
! grep -qE $'\tFAIL\t|\tskip\tno time' "$rows" || exit 6
