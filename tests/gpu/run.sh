#!/bin/bash
# Builds and tests programs of target cuda on a machine with a GPU. It needs a folder that
# tests/gpu/prepare.sh packed elsewhere, nvcc, make and a shell; no compiler of ours, no network.
#
# usage: tests/gpu/run.sh [options] PACK       (a folder, or a .tar.gz)
#   --work DIR      where to build (default: PACK without .tar.gz, with .work)
#   --jobs N        compilers, and programs of operators, at a time (default: the cores)
#   --filter RE     only programs whose name matches
#   --arch ARCH     for example sm_90 (default: native, what the device is)
#   --sanitize K    compute-sanitizer on every K-th of the small programs (default 8; 0: none)
#   --timeout S     of one program (default 120); compute-sanitizer has ten times that
#   --keep          build anew only what is not built
#   NVCC=COMMAND    (default nvcc, of the PATH or of /usr/local/cuda/bin)
#
# Checks, a row of the table each: build; data (results within tolerance); memory (--memory: what
# was allocated is what was reserved, which is what was planned); free (free bytes of the device
# stay what they were over 100 runs); guard (--guard); bits (two runs, and a build with --pack none,
# give the same bytes); memcheck, racecheck, initcheck.
# exit: 0 all pass, 6 a check failed, 1 usage, 3 no device that the programs run on, 5 PACK cannot
# be read, 7 no nvcc
set -uo pipefail
export LC_ALL=C
self=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")

# ---- one check; each notes one line: check, group, name, ok|FAIL|skip, message ----

note() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$group" "$name" "$2" "${3:-}" >>"$GPU_WORK/results.tsv"
}

# The first line of a log that says what is wrong, else its last.
reason() {
    local line
    line=$(grep -m1 -iE 'error|mismatch|fail|differ' "$1") ||
        line=$(grep -v '^ *$' "$1" | tail -n 1)
    cut -c1-160 <<<"$line" | tr '\t' ' '
}

# limited CHECK COMMAND...: its output goes to the check's log; notes how it ended.
limited() {
    local check=$1 code=0
    shift
    timeout "$limit" "$@" >"$logs/$check.txt" 2>&1 </dev/null || code=$?
    [ "$code" != 124 ] || echo "error: not done after $limit s" >"$logs/$check.txt"
    if [ "$code" = 0 ]; then
        note "$check" ok
    else
        note "$check" FAIL "exit $code: $(reason "$logs/$check.txt")"
    fi
    return "$code"
}

# number KEY FILE: of JSON as the programs write it, the first.
number() { sed -n "s/.*\"$1\": *\([-+0-9.e]*\).*/\1/p" "$2" | head -n 1; }

check_build() {
    local file
    while read -r file; do
        [ -e "$GPU_WORK/runtime/$file" ] || continue
        ln -sf "$GPU_WORK/runtime/$file" "$folder/$file"
        [ ! -e "$GPU_WORK/runtime/${file%.*}.o" ] ||
            ln -sf "$GPU_WORK/runtime/${file%.*}.o" "$folder/${file%.*}.o"
    done <"$folder/runtime.txt"
    limit=$((limit * 10))
    limited build make -C "$folder" "${make_options[@]}" program || rm -f "$folder/program"
}

check_data() {
    local options=()
    [ "$row_options" = - ] || read -ra options <<<"$row_options"
    limited data "$folder/program" --test-data "$GPU_WORK/$data" "${options[@]}"
}

# The program judges by itself whether its rows are the planned ones; what was allocated is asked of
# the device.
check_memory() {
    local json=$logs/memory.json reserved allocated
    limited memory "$folder/program" --memory --random 1 --json "$json" || return
    reserved=$(number reserved_bytes "$json")
    allocated=$(number allocated_bytes "$json")
    [ "$GPU_TARGET" != cuda ] || [ "$reserved" = "$allocated" ] ||
        note memory FAIL "reserved $reserved bytes, allocated ${allocated:-unknown}"
}

# Modules are loaded before the first run, so that nothing is left to be loaded between.
check_free() {
    local json=$logs/free.json before after runs
    timeout "$limit" env CUDA_MODULE_LOADING=EAGER "$folder/program" --bench --random 1 \
        --warmup 0 --duration 0 --iterations 100 --json "$json" >"$logs/free.txt" 2>&1 </dev/null ||
        { note free FAIL "exit $?: $(reason "$logs/free.txt")"; return; }
    before=$(number ready_free_bytes "$json")
    after=$(number free_bytes "$json")
    runs=$(number run_count "$json")
    if [ "$GPU_TARGET" != cuda ]; then
        note free skip "no device memory"
    elif [ -z "$before" ]; then
        note free FAIL "the program does not say what is free"
    elif [ "$before" != "$after" ]; then
        note free FAIL "free bytes $before before, $after after ${runs:-the} runs"
    else
        note free ok
    fi
}

check_guard() { limited guard "$folder/program" --guard --random 1; }

# Random indexes may be out of range: exit code 2, after the outputs were written.
outputs_of() {
    rm -rf "$3"
    mkdir -p "$3"
    timeout "$limit" "$2" --random 1 --output-dir "$3" >"$logs/bits.txt" 2>&1 </dev/null ||
        [ $? = 2 ] || { note bits FAIL "$1: $(reason "$logs/bits.txt")"; return 1; }
}

check_bits() {
    local plain=${folder%.*}.plain/program
    outputs_of "first run" "$folder/program" "$logs/first" &&
        outputs_of "second run" "$folder/program" "$logs/second" || return
    if [ -z "$(ls "$logs/first")" ]; then
        note bits FAIL "no outputs"
    elif ! diff -rq "$logs/first" "$logs/second" >"$logs/bits.txt"; then
        note bits FAIL "two runs differ: $(head -n 1 "$logs/bits.txt")"
    elif [ ! -x "$plain" ]; then
        note bits FAIL "the build without reuse is missing"
    elif outputs_of "without reuse" "$plain" "$logs/plain"; then
        if diff -rq "$logs/first" "$logs/plain" >"$logs/bits.txt"; then
            note bits ok
        else
            note bits FAIL "reuse of memory changes the result: $(head -n 1 "$logs/bits.txt")"
        fi
    fi
    rm -rf "$logs"/{first,second,plain}
}

check_sanitize() {
    local tool
    limit=$((limit * 10))
    for tool in memcheck racecheck initcheck; do
        limited "$tool" "$GPU_SANITIZER" --tool "$tool" --error-exitcode 99 --print-limit 5 \
            "$folder/program" --test-data "$GPU_WORK/$data" --norm
    done
    return 0
}

# What the jobs below run: run.sh --one CHECK GROUP NAME FOLDER DATA CHECKS OPTIONS
run_one() {
    check=$1 group=$2 name=$3 folder=$GPU_WORK/$4 data=$5 row_options=$7 limit=$GPU_TIMEOUT
    logs=$GPU_WORK/log/$name
    make_options=(NVCC="$GPU_NVCC" CC="${CC:-cc}" CUDA_ARCH="$GPU_ARCH")
    mkdir -p "$logs"
    "check_$check"
    return 0
}
if [ "${1:-}" = --one ]; then
    shift
    run_one "$@"
    exit 0
fi

# ---- options ----

usage() {
    echo "run.sh: $1" >&2
    echo "usage: tests/gpu/run.sh [options] PACK; --help explains" >&2
    exit 1
}
work='' jobs=$(nproc) filter=. arch='' sanitize=8 limit=120 keep='' pack=''
while [ $# -gt 0 ]; do
    case $1 in
    --work | --jobs | --filter | --arch | --sanitize | --timeout)
        [ $# -ge 2 ] || usage "$1 needs a value"
        case $1 in
        --work) work=$2 ;;
        --jobs) jobs=$2 ;;
        --filter) filter=$2 ;;
        --arch) arch=$2 ;;
        --sanitize) sanitize=$2 ;;
        --timeout) limit=$2 ;;
        esac
        shift 2 ;;
    --keep) keep=1; shift ;;
    -h | --help) sed -n '2,21s/^# \{0,1\}//p' "$self"; exit 0 ;;
    -*) usage "unknown option $1" ;;
    *) [ -z "$pack" ] || usage "give one PACK"; pack=$1; shift ;;
    esac
done
[ -n "$pack" ] || usage "give the folder that prepare.sh packed"
for number in "$jobs" "$sanitize" "$limit"; do
    [[ $number =~ ^[0-9]+$ ]] || usage "$number: expected a number"
done

# ---- the compiler, the folder, the device ----

nvcc=${NVCC:-nvcc}
if [ -z "${NVCC:-}" ] && ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    nvcc=/usr/local/cuda/bin/nvcc
fi
[[ $nvcc != */* ]] || nvcc=$(realpath "$nvcc")
# shellcheck disable=SC2086 # NVCC may have words
toolkit=$($nvcc --version 2>/dev/null | grep -iE 'release|emulat' | tail -n 1)
if [ -z "$toolkit" ]; then
    echo "run.sh: no nvcc ($nvcc); install the CUDA Toolkit, or say where it is: NVCC=COMMAND" >&2
    exit 7
fi

work=${work:-${pack%.tar.gz}.work}
if [ -z "$keep" ] || [ ! -e "$work/rows.tsv" ]; then
    rm -rf "$work"
    mkdir -p "$work" || exit 5
    if [ -d "$pack" ]; then
        cp -R "$pack/." "$work/"
    else
        tar -xzf "$pack" -C "$work" --strip-components 1
    fi || { echo "run.sh: $pack: cannot be read" >&2; exit 5; }
    # Sources are older than what is built here, whatever this machine's clock says.
    find "$work" -type f -exec touch -t 200001010000 {} +
fi
if [ ! -s "$work/rows.tsv" ]; then
    echo "run.sh: $pack: holds no rows.tsv; prepare.sh packs it" >&2
    exit 5
fi
work=$(cd "$work" && pwd)
rm -rf "$work/log" "$work/results.tsv"
mkdir -p "$work/log"
: >"$work/results.tsv"

if [ -z "$arch" ]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
    arch=native
    [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]] || arch=sm_${capability/./}
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
GPU_TARGET=$(sed -n 's/^target  *//p' "$work/facts.txt")
export GPU_TARGET GPU_WORK=$work GPU_NVCC=$nvcc GPU_ARCH=$arch GPU_TIMEOUT=$limit
export GPU_SANITIZER=$sanitizer

# ---- the checks ----

rows() { awk -F'\t' -v re="$filter" '$2 ~ re' "$work/rows.tsv"; }

# each CHECK JOBS: one job for each row on standard input.
each() {
    local check=$1
    tr '\t' '\n' | xargs -r -d '\n' -P "$2" -n 6 "$self" --one "$check"
}

with() { rows | awk -F'\t' -v kind="$1" '("," $5 ",") ~ ("," kind ",")'; }

# Rows whose build is there; the others have failed already.
built() {
    while IFS= read -r row; do
        [ ! -x "$work/$(cut -f3 <<<"$row")/program" ] || echo "$row"
    done
}

rows | awk -F'\t' '$5 ~ /^not emitted/ { print "build\t" $1 "\t" $2 "\tFAIL\t" $5 }' \
    >>"$work/results.tsv"
good() { rows | awk -F'\t' '$5 !~ /^not emitted/'; }

# The runtime is the same in every folder: compiled once, by the Makefile of the first.
first=$(good | awk -F'\t' '$3 ~ /^models/' | head -n 1 | cut -f3)
[ -n "$first" ] || first=$(good | head -n 1 | cut -f3)
[ -n "$first" ] || usage "--filter $filter: no program is left"
echo "building $(good | wc -l) programs, $jobs at a time" >&2
cp "$work/$first/Makefile" "$work/$first/model.h" "$work/runtime/"
objects=$(cd "$work/runtime" && find . -name 'ul_*.c' -o -name 'ul_*.cu' |
    sed 's/\.cu\?$/.o/' | sort)
# shellcheck disable=SC2086 # a list of objects
make -s -k -j "$jobs" -C "$work/runtime" NVCC="$nvcc" CC="${CC:-cc}" CUDA_ARCH="$arch" $objects \
    >"$work/log/runtime.txt" 2>&1 || true # what is missing is complained of where it is needed

# The first program tells whether there is a device at all.
good | head -n 1 | each build 1
probe=$work/$(good | head -n 1 | cut -f3)/program
if [ -x "$probe" ]; then
    timeout "$limit" "$probe" --random 1 >"$work/log/probe.txt" 2>&1 </dev/null
    if [ $? = 3 ]; then
        cat "$work/log/probe.txt" >&2
        exit 3
    fi
fi
good | tail -n +2 | each build "$jobs"

echo "running" >&2
with data | awk -F'\t' '$1 == "ops"' | built | each data "$jobs"
with data | awk -F'\t' '$1 != "ops"' | built | each data 2
for check in memory free guard bits; do # alone on the device: free bytes are everybody's
    with $check | built | each $check 1
done
if [ "$sanitize" != 0 ] && [ -n "$sanitizer" ]; then
    echo "compute-sanitizer" >&2
    with sanitize | awk -v k="$sanitize" '(NR - 1) % k == 0' | built |
        each sanitize "$(((jobs + 3) / 4))"
fi

# ---- the table ----

device=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
    head -n 1)
{
    echo
    echo "device     ${device:-none that nvidia-smi names}"
    echo "toolkit    $toolkit"
    echo "built for  $arch"
    cat "$work/facts.txt"
    echo "date       $(date -u +%Y-%m-%d)"
    [ -n "$sanitizer" ] || echo "           compute-sanitizer is not installed: not run"
    echo
    awk -F'\t' '
        BEGIN {
            checks = "build data memory free guard bits memcheck racecheck initcheck"
            count = split(checks, order, " ")
            printf "%-11s %-12s %7s %7s %7s\n", "check", "programs", "passed", "failed", "skipped"
        }
        {
            key = $1 SUBSEP $2
            name[key SUBSEP $3] = $4 == "FAIL" || name[key SUBSEP $3] == "FAIL" ? "FAIL" : $4
            if (!(key in seen)) { seen[key] = 1; groups[$2] = 1 }
            if ($4 == "FAIL" && ++shown[key] <= 3) text[key] = text[key] "    " $3 ": " $5 "\n"
        }
        END {
            for (full in name) {
                split(full, part, SUBSEP)
                total[part[1] SUBSEP part[2] SUBSEP name[full]]++
            }
            group_count = split("ops|models fp32|models fp16|models bf16", group_order, "|")
            for (i = 1; i <= count; i++)
                for (g = 1; g <= group_count; g++) {
                    key = order[i] SUBSEP group_order[g]
                    if (!(key in seen))
                        continue
                    printf "%-11s %-12s %7d %7d %7d\n", order[i], group_order[g],
                        total[key SUBSEP "ok"], total[key SUBSEP "FAIL"], total[key SUBSEP "skip"]
                    printf "%s", text[key]
                    if (shown[key] > 3)
                        printf "    and %d more\n", shown[key] - 3
                }
        }' "$work/results.tsv"
} | tee "$work/table.txt"
echo "logs: $work/log/NAME/CHECK.txt; every line: $work/results.tsv" >&2
if grep -q $'\tFAIL\t' "$work/results.tsv"; then
    exit 6
fi
