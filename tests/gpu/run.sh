#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
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
#   --seconds S     of all of it: what is not done by then is skipped, and said (default: no end)
#   --keep          build anew only what is not built
#   --resume        go on where an earlier run of the same PACK ended: what has not passed
#   NVCC=COMMAND    (default nvcc, of the PATH, CUDA_HOME, CUDA_PATH or where toolkits are)
#
# Checks, a row of the table each: build; data (results within tolerance); memory (--memory: what
# was allocated is what was reserved, which is what was planned); free (free bytes of the device
# stay what they were over 100 runs); alloc (CUPTI, where it is: the program allocates the reserved
# bytes once, and nothing in 100 runs); guard (--guard); bits (two runs, and a build with --pack
# none, give the same bytes); library (one as a shared library, unloaded again); memcheck, racecheck, initcheck.
# What tells most is done first: models in float32, some operators, models of 16 bits, the other
# operators; the rest is being built meanwhile.
# exit: 0 all pass, 6 a check failed or there was no time for it, 1 usage, 3 no device that the
# programs run on, 5 PACK cannot be read, 7 no nvcc
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
self=$here/$(basename "${BASH_SOURCE[0]}")

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

# Seconds that a program may take from now on: $limit, or what is left of the whole; 0: none.
room() {
    local left=$((GPU_DEADLINE - $(date +%s)))
    [ "$GPU_DEADLINE" != 0 ] && [ "$left" -lt "$limit" ] || left=$limit
    [ "$left" -gt 0 ] && [ ! -e "$GPU_WORK/log/stop" ] || left=0
    echo "$left"
}

# A check that cannot be begun, or that was cut off because all of it ends.
late() { note "$1" late "no time was left"; }

# bounded CHECK COMMAND...: within the limit; its output goes to the check's log. 1: noted already.
bounded() {
    local check=$1 seconds code=0
    shift
    seconds=$(room)
    [ "$seconds" != 0 ] || { late "$check"; return 1; }
    timeout -k 5 "$seconds" "$@" >"$logs/$check.txt" 2>&1 </dev/null || code=$?
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then
        if [ "$seconds" -lt "$limit" ]; then
            late "$check"
        else
            note "$check" FAIL "not done after $limit s"
        fi
        return 1
    fi
    ended=$code
}

# limited CHECK COMMAND...: bounded; notes how it ended.
limited() {
    local check=$1 code
    bounded "$@" || return 1
    code=$ended
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

# 100 runs. Modules are loaded before the first, so that nothing is left to be loaded between.
# hundred CHECK NAME=VALUE...
hundred() {
    local check=$1
    shift
    bounded "$check" env CUDA_MODULE_LOADING=EAGER "$@" "$folder/program" --bench --random 1 \
        --warmup 0 --duration 0 --iterations 100 --json "$logs/$check.json" || return 1
    [ "$ended" = 0 ] || note "$check" FAIL "exit $ended: $(reason "$logs/$check.txt")"
    return "$ended"
}

# Bytes that are free are everybody's, and others may take some: what a run takes is gone each time.
check_free() {
    local json=$logs/free.json before after runs time
    for time in 1 2 3; do
        hundred free || return
        before=$(number ready_free_bytes "$json")
        after=$(number free_bytes "$json")
        runs=$(number run_count "$json")
        [ "${after:-0}" -lt "${before:-0}" ] || break
    done
    if [ "$GPU_TARGET" != cuda ]; then
        note free skip "no device memory"
    elif [ -z "$before" ]; then
        note free FAIL "the program does not say what is free"
    elif [ "${after:-0}" -lt "$before" ]; then
        note free FAIL "free bytes $before before, $after after ${runs:-the} runs, and fewer in three runs of the program"
    else
        note free ok
    fi
}

# From the lines of activity.c, which come in no order. The arena's bytes may be told as rounded up to
# the 2 MiB that CUDA gives at once, where none are told exactly. Where it passes, it notes bytes, further
# allocations of the device at set-up, their bytes, runs.
check_alloc() {
    local log=$logs/alloc.log verdict
    if [ "$GPU_TARGET" != cuda ] || [ ! -e "$GPU_ACTIVITY" ]; then
        note alloc skip "$([ "$GPU_TARGET" != cuda ] && echo "no device memory" ||
            echo "CUPTI is not there")"
        return
    fi
    rm -f "$log"
    hundred alloc CUDA_INJECTION64_PATH="$GPU_ACTIVITY" ULLAGE_ACTIVITY="$log" || return
    if [ ! -e "$log" ] || grep -q '^error' "$log"; then
        note alloc skip "CUPTI does not serve here: $(head -n 1 "$log" 2>/dev/null)"
        return
    fi
    verdict=$(awk -v reserved="$(number allocated_bytes "$logs/alloc.json")" '
        $1 == "launch" { runs++; if (first == "" || $2 < first) first = $2 }
        $1 == "end" { ended = 1; dropped = $2 }
        $1 == "alloc" || $1 == "release" { line[++count] = $0 }
        END {
            for (i = 1; i <= count; i++) {
                split(line[i], part, " ")
                device = part[2] != "pinned"
                if (part[1] != "alloc")
                    continue
                if (first != "" && part[4] >= first) {
                    late++
                    late_bytes += part[3]
                } else if (device && part[3] == reserved)
                    own++
                else if (device && !near && part[3] > reserved && part[3] - reserved < 2097152)
                    near = part[3]
                else if (device) {
                    others++
                    other_bytes += part[3]
                }
            }
            if (near && own) {
                others++
                other_bytes += near
            } else if (near)
                own = 1
            if (!ended || dropped)
                printf "FAIL\tthe record ends early, %d lines are lost\n", dropped
            else if (!runs)
                print "skip\truns are not captured, so that none is seen to begin"
            else if (own != 1)
                printf "FAIL\tallocates %.0f bytes %d times, not once\n", reserved, own
            else if (late)
                printf "FAIL\tallocates %d times, %.0f bytes, in its runs\n", late, late_bytes
            else
                printf "ok\t%.0f %d %.0f %d\n", reserved, others, other_bytes, runs
        }' "$log")
    note alloc "${verdict%%$'\t'*}" "${verdict#*$'\t'}"
}

check_guard() { limited guard "$folder/program" --guard --random 1; }

# Random indexes may be out of range: exit code 2, after the outputs were written.
outputs_of() {
    rm -rf "$3"
    mkdir -p "$3"
    bounded bits "$2" --random 1 --output-dir "$3" || return 1
    [ "$ended" = 0 ] || [ "$ended" = 2 ] ||
        { note bits FAIL "$1: $(reason "$logs/bits.txt")"; return 1; }
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

# Belongs to no program: threads of one warp that all want to note a bad index.
check_lock() {
    if [ "$GPU_TARGET" != cuda ]; then
        note lock skip "no device"
        return
    fi
    limit=$((limit * 10))
    # shellcheck disable=SC2086 # a command, maybe with options
    limited lock sh -c '"$@" && "$0"' "$logs/lock" $GPU_NVCC -O2 -std=c++17 -arch="$GPU_ARCH" \
        -I"$GPU_WORK/runtime" -o "$logs/lock" "$here/lock.cu"
}

# Belongs to no program: one of them as a shared library, loaded and unloaded.
check_library() {
    if [ "$GPU_TARGET" != cuda ]; then
        note library skip "no device"
        return
    fi
    limit=$((limit * 10))
    # shellcheck disable=SC2016 # the inner shell's
    limited library sh -c 'make -s -C "$1" NVCC="$2" CUDA_ARCH="$3" lib &&
        $2 -O2 -std=c++17 -arch="$3" -o "$0" "$4" -ldl && "$0" "$1/libmodel.so"' \
        "$logs/unload" "$folder" "$GPU_NVCC" "$GPU_ARCH" "$here/unload.cu"
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
work='' jobs=$(nproc) filter=. arch='' sanitize=8 limit=120 seconds=0 keep='' resume='' pack=''
while [ $# -gt 0 ]; do
    case $1 in
    --work | --jobs | --filter | --arch | --sanitize | --timeout | --seconds)
        [ $# -ge 2 ] || usage "$1 needs a value"
        case $1 in
        --work) work=$2 ;;
        --jobs) jobs=$2 ;;
        --filter) filter=$2 ;;
        --arch) arch=$2 ;;
        --sanitize) sanitize=$2 ;;
        --timeout) limit=$2 ;;
        --seconds) seconds=$2 ;;
        esac
        shift 2 ;;
    --keep) keep=1; shift ;;
    --resume) keep=1 resume=1; shift ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$self"; exit 0 ;;
    -*) usage "unknown option $1" ;;
    *) [ -z "$pack" ] || usage "give one PACK"; pack=$1; shift ;;
    esac
done
[ -n "$pack" ] || usage "give the folder that prepare.sh packed"
for number in "$jobs" "$sanitize" "$limit" "$seconds"; do
    [[ $number =~ ^[0-9]+$ ]] || usage "$number: expected a number"
done
began=$(date +%s)

# ---- the folder, the compiler, the device ----

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
if [ -n "$resume" ] && [ -e "$work/results.tsv" ]; then
    awk -F'\t' '$4 == "ok"' "$work/results.tsv" >"$work/passed.tsv"
else
    rm -rf "$work/log"
    : >"$work/passed.tsv"
fi
mkdir -p "$work/log"
rm -f "$work"/log/{built.*,stop}
cp "$work/passed.tsv" "$work/results.tsv"

# shellcheck source=tests/gpu/toolkit.sh
. "$here/toolkit.sh"
if ! nvcc=$(find_nvcc); then
    echo "run.sh: no nvcc (${NVCC:-nvcc}); install the CUDA Toolkit, or say where it is:" \
        "NVCC=COMMAND" >&2
    exit 7
fi
[[ $nvcc != */* || $nvcc == *' '* ]] || nvcc=$(realpath "$nvcc")
version=$($nvcc --version 2>/dev/null)
toolkit=$(grep -m1 emulation <<<"$version") || toolkit=$(grep -m1 release <<<"$version")
if [ -z "$toolkit" ]; then
    echo "run.sh: no nvcc: $nvcc does not say its version" >&2
    exit 7
fi
folders=$(cuda_folders "$nvcc")
use_cuda "$folders"

if [ -z "$arch" ]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
    arch=native
    [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]] || arch=sm_${capability/./}
fi
sanitizer=$(command -v compute-sanitizer || {
    find_part compute-sanitizer bin compute-sanitizer <<<"$folders" | sed 's,$,/compute-sanitizer,'
})
GPU_TARGET=$(sed -n 's/^target  *//p' "$work/facts.txt")
GPU_DEADLINE=$((seconds == 0 ? 0 : began + seconds))
export GPU_TARGET GPU_WORK=$work GPU_NVCC=$nvcc GPU_ARCH=$arch GPU_TIMEOUT=$limit GPU_DEADLINE
export GPU_SANITIZER=$sanitizer GPU_ACTIVITY=$work/activity.so

# The library that tells of allocations, where CUPTI's header and library are there;
# programs of the emulation hold that themselves.
build_activity() {
    local headers libraries library more
    rm -f "$GPU_ACTIVITY"
    headers=$(find_header cupti.h <<<"$folders") || { echo "no cupti.h"; return; }
    libraries=$(find_library libcupti.so <<<"$folders") || libraries=
    [[ $toolkit != *emulation* ]] || libraries=none
    [ -n "$libraries" ] || { echo "no libcupti.so"; return; }
    [ "$libraries" != none ] || libraries=
    # Python's packages have no link by the plain name, and a part of the headers elsewhere.
    library=$(compgen -G "$libraries/libcupti.so*" | head -n 1)
    more=$(find_header crt/host_defines.h <<<"$folders")
    "${CC:-cc}" -std=c11 -O1 -fPIC -shared -Wall -Wextra -Werror -isystem "$headers" \
        ${more:+-isystem "${more%/crt}"} "$here/activity.c" -o "$GPU_ACTIVITY" \
        ${libraries:+-L"$libraries" -l:"${library##*/}" -Wl,-rpath,"$libraries"} >"$work/log/activity.txt" 2>&1 ||
        { echo "activity.c does not compile: $(grep -m1 error "$work/log/activity.txt")"; return; }
    echo "$headers"
}
cupti=$(build_activity)

# ---- the rows, and in which order ----

rows() { awk -F'\t' -v re="$filter" '$2 ~ re' "$work/rows.tsv"; }
good() { rows | awk -F'\t' '$5 !~ /^not emitted/'; }

# wave N: models in float32, operators that the sanitizers see, other models, other operators.
wave() {
    good | awk -F'\t' -v wanted="$1" -v every="$sanitize" '
        {
            which = $1 ~ /^models fp32/ ? 1 : $1 != "ops" ? 3 : 4
            if ($1 == "ops" && every > 0 && index("," $5 ",", ",sanitize,") && seen++ % every == 0)
                which = 2
            if (which == wanted)
                print
        }'
}

# The rows on standard input that have this check, and have not passed it.
with() {
    awk -F'\t' -v kind="$1" -v file="$work/passed.tsv" '
        BEGIN {
            while ((getline line < file) > 0) {
                split(line, part, "\t")
                passed[part[3]] += part[1] == kind || (kind == "sanitize" && part[1] ~ /check$/)
            }
        }
        (kind == "build" || index("," $5 ",", "," kind ",")) &&
            passed[$2] < (kind == "sanitize" ? 3 : 1)'
}

# Those whose program is there; the others have failed already.
built() {
    while IFS= read -r row; do
        [ ! -x "$work/$(cut -f3 <<<"$row")/program" ] || echo "$row"
    done
}

# each CHECK JOBS: one job for each row on standard input.
each() {
    local check=$1
    tr '\t' '\n' | xargs -r -d '\n' -P "$2" -n 6 "$self" --one "$check"
}

# ---- building, of all that is to be run, while it is run ----

rows | awk -F'\t' '$5 ~ /^not emitted/ { print "build\t" $1 "\t" $2 "\tFAIL\t" $5 }' \
    >>"$work/results.tsv"

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
one=$(cat <(wave 1) <(wave 2) <(wave 3) <(wave 4) | head -n 1)
with build <<<"$one" | each build 1
probe=$work/$(cut -f3 <<<"$one")/program
if [ -x "$probe" ]; then
    timeout "$limit" "$probe" --random 1 >"$work/log/probe.txt" 2>&1 </dev/null
    if [ $? = 3 ]; then
        cat "$work/log/probe.txt" >&2
        exit 3
    fi
fi

build_all() {
    local number
    for number in 1 2 3 4; do
        wave "$number" | with build | grep -vxF -- "$one" | each build "$jobs"
        touch "$work/log/built.$number"
    done
}
build_all &
builder=$!
trap 'touch "$work/log/stop"; exit 130' INT TERM # then it begins nothing more

# ---- running ----

tell() {
    awk -F'\t' -v at="$(($(date +%s) - began))" -v what="$1" '
        { count[$4]++ }
        END {
            printf "%4d s  %-24s passed %d, failed %d, skipped %d\n", at, what, count["ok"],
                count["FAIL"], count["skip"] + count["late"]
        }' "$work/results.tsv" >&2
}

run_wave() {
    local number=$1 check
    while [ ! -e "$work/log/built.$number" ]; do
        sleep 0.2
    done
    tell "built: $2"
    wave "$number" | awk -F'\t' '$1 == "ops"' | with data | built | each data "$jobs"
    wave "$number" | awk -F'\t' '$1 != "ops"' | with data | built | each data 2
    for check in memory free; do # alone on the device: free bytes are everybody's
        wave "$number" | with $check | built | each $check 1
    done
    for check in alloc guard bits; do
        wave "$number" | with $check | built | each $check 4
    done
    tell "ran: $2"
}

run_sanitizers() {
    [ "$sanitize" != 0 ] && [ -n "$sanitizer" ] || return
    wave "$1" | with sanitize | built | each sanitize "$(((jobs + 3) / 4))"
    tell "compute-sanitizer: $2"
}

! grep -qE -- "$filter" <<<fault_lock ||
    printf 'ops\tfault_lock\t.\t-\tlock\t-\n' | with lock | each lock 1
run_wave 1 "models fp32"
! grep -qE -- "$filter" <<<unloading ||
    printf 'ops\tunloading\t%s\t-\tlibrary\t-\n' "$first" | with library | each library 1
run_wave 2 "some operators"
run_sanitizers 2 "some operators"
run_wave 3 "models of 16 bits"
run_wave 4 "other operators"
run_sanitizers 1 "models fp32"
run_sanitizers 3 "models of 16 bits"
wait "$builder"

# ---- the table ----

device=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
    head -n 1)
{
    echo
    echo "device     ${device:-none that nvidia-smi names}"
    echo "toolkit    $toolkit"
    echo "built for  $arch"
    cat "$work/facts.txt"
    echo "date       $(date -u +%Y-%m-%d), $(($(date +%s) - began)) s"
    printf '%s' "$CUDA_LIBRARIES"
    echo "CUPTI      $cupti"
    [ -n "$sanitizer" ] || echo "           compute-sanitizer is not installed: not run"
    echo
    awk -F'\t' '
        BEGIN {
            checks = "build data memory free alloc guard bits lock library memcheck racecheck initcheck"
            count = split(checks, order, " ")
            printf "%-11s %-12s %7s %7s %7s\n", "check", "programs", "passed", "failed", "skipped"
        }
        {
            key = $1 SUBSEP $2
            name[key SUBSEP $3] = $4 == "FAIL" || name[key SUBSEP $3] == "FAIL" ? "FAIL" : $4
            if (!(key in seen)) { seen[key] = 1; groups[$2] = 1 }
            if ($4 == "FAIL" && ++shown[key] <= 3) text[key] = text[key] "    " $3 ": " $5 "\n"
            if (($4 == "skip" || $4 == "late") && skipped[key SUBSEP $5]++ == 0)
                text[key] = text[key] "    " $5 ": " $3 "\n"
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
                        total[key SUBSEP "ok"], total[key SUBSEP "FAIL"],
                        total[key SUBSEP "skip"] + total[key SUBSEP "late"]
                    printf "%s", text[key]
                    if (shown[key] > 3)
                        printf "    and %d more\n", shown[key] - 3
                }
        }' "$work/results.tsv"
    # What each model had of the device, by CUPTI.
    awk -F'\t' '
        $1 == "alloc" && $4 == "ok" {
            if (!count++)
                printf "\n%-28s %12s %17s %12s %8s\n", "allocations of the device", "bytes, once",
                    "more, at set-up", "their bytes", "in runs"
            split($5, part, " ")
            printf "%-28s %12.0f %17d %12.0f %8d\n", $3, part[1], part[2], part[3], 0
        }' "$work/results.tsv"
} | tee "$work/table.txt"
echo "logs: $work/log/NAME/CHECK.txt; every line: $work/results.tsv" >&2
if grep -qE $'\t(FAIL|late)\t' "$work/results.tsv"; then
    exit 6
fi
