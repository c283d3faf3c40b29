#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Target cuda on the command line: what needs nvcc and what does not, the source that is left where
# there is none, options of the target in plan.json, cuDNN found beside a toolkit, which files a
# folder holds. No part of CUDA is needed.
#
# usage: tests/cli/cuda.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
export NVCC=$work/nowhere/nvcc
plan() { "$ullage" plan "$digits" --dim N=1 --target cuda "$@"; }
option() { grep -oE "\\[\"$1\", \"[^\"]*\"\\]" "$2" | sed 's/.*, "\(.*\)"\]/\1/'; }

# to plan and to emit needs no compiler; the summary names what libraries are planned with
calls='^Library calls: at most'
expect 0 "$calls 4.00 MiB = 4194304 bytes of workspace each, 32.00 MiB = 33554432 bytes where$" plan
expect 0 'cuDNN not found\.$' plan
expect 0 'cuDNN off\.$' plan --with-cudnn off
expect 0 "$calls 4.00 MiB = 4194304 bytes of workspace each, cuDNN off\.$" plan --with-cudnn off --profile a100-40gb
expect 0 "$calls 32.00 MiB = 33554432 bytes of workspace each, cuDNN off\.$" \
    plan --with-cudnn off --workspace 32MiB
expect 0 "$calls 0 bytes of workspace each, cuDNN on, factors in TF32\.$" \
    plan --with-cudnn on --workspace 0 --tf32
expect 0 '\(target cuda\): device' plan
expect 0 'on h100-sxm' plan
expect 0 'on a100-40gb' plan --profile a100-40gb
expect 0 'or cuda' "$ullage" compile --help
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target cuda --emit source
for file in kernels.cu model.c model.h main.c Makefile weights.bin ul_cuda.cu ul_kernel.cuh; do
    [ -s source/$file ] || fail "no $file in the folder of target cuda"
done
ls source | grep -E 'ul_dnnl|ul_posts\.c|ul_winograd\.c|ul_contract\.h' && fail 'files of target cpu'
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target c --emit plain
ls plain | grep -E '\.cuh?$|ul_cu|ul_dnnl' && fail 'files of other targets in a folder of target c'
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target cpu --emit host
ls host | grep -E '\.cuh?$|ul_cu' && fail 'files of target cuda in a folder of target cpu'
# what another target left in a folder goes
cp host/ul_*.c plain
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target cuda --emit host
ls host | grep -E 'ul_dnnl|ul_posts\.c|ul_winograd\.c' && fail 'files of target cpu stayed'
expect 0 'reserves' "$ullage" compile "$digits" --dim N=1 --target c --emit plain
ls plain | grep -E 'ul_dnnl' && fail 'files of target cpu stayed for target c'

# what is predicted is without the overheads of launches that steps share
expect 0 '^Predicted' plan --train --train-mode --optimizer adamw \
    --output /fc/Gemm_output_0 --json joined.json
number() { grep -oE "^ *\"$1\": [0-9]+" joined.json | grep -oE '[0-9]+$'; }
[ "$(number shared_ns)" -gt 0 ] || fail 'no step shares a launch'
predicted=$(awk -v cost="$(number cost)" -v shared="$(number shared_ns)" \
    'BEGIN { printf "%.4g", (cost - shared) / 1e6 }')
grep -q "^Predicted: $predicted ms a run on h100-sxm" out.txt || fail "not $predicted ms: $(cat out.txt)"

# to compile does: the source stays, and the message says where
compile() { "$ullage" compile "$digits" --dim N=1 --target cuda "$@"; }
expect 7 "no $NVCC here; the source is in program.cuda, and make -C program.cuda NVCC=nvcc" compile -o program
[ -s program.cuda/kernels.cu ] || fail 'no source beside the program'
[ -e program ] && fail 'a program without a compiler'
expect 7 "no $NVCC here; --nvcc or .NVCC says where it is" compile --shared-library -o library.so
ls -d library* && fail 'something beside a library that could not be made'
expect 7 'the source is in kept' compile -o program --emit kept
cmp source/kernels.cu kept/kernels.cu || fail 'two folders of one model differ'
expect 7 'program.cuda' compile -o program --nvcc 'nvcc-of-nobody -ccbin gcc'
grep -qx 'NVCC = nvcc-of-nobody -ccbin gcc' program.cuda/Makefile || fail '--nvcc in the Makefile'
mkdir foreign.cuda && echo mine >foreign.cuda/notes
expect 1 'holds files that are no earlier result' compile -o foreign
printf '#!/bin/sh\necho "it does not compile" >&2; exit 1\n' >broken
chmod +x broken
expect 7 '^it does not compile' compile -o program --nvcc ./broken
expect 7 "$work/broken failed \(its messages are above\); --emit DIR keeps the source, --nvcc" \
    compile -o program --nvcc ./broken
expect 1 'nvcc "-nvcc" .*expected a command' compile -o program --nvcc -nvcc
expect 7 "no $NVCC here" "$ullage" verify "$digits" --target cuda

# a budget bounds what is known of the device: buffer, and what a profile says of the context and of
# libraries; what nobody said is named
number() { grep -oE "\"$1\": [0-9]+" "$2" | head -1 | sed 's/.*: //'; }
expect 0 'Not known before it runs: the context, what libraries keep, the captured run' \
    plan --with-cudnn on
plan --with-cudnn on --json buffer.json >/dev/null
buffer=$(number reserved_bytes buffer.json)
[ "$(number process_bytes buffer.json)" = "$buffer" ] || fail 'bytes of a device that nobody knows'
rates=''
for kind in matmul_f32 matmul_tf32 matmul_f64 matmul_f16 matmul_int8 window vector special scalar; do
    rates="$rates${rates:+, }\"$kind\": 1000"
done
device_profile() {
    echo '{"format": "ullage-profile", "version": 1, "name": "a device", "source": "a test",' \
        '"overhead_nanoseconds": 1500, "device": {"processors": 100, "launch_cycles": 4000'"$1"'},' \
        "\"giga_operations_per_second\": {$rates}, \"memory_levels\":" \
        '[{"up_to_bytes": null, "gigabytes_per_second": 2000}]}'
}
device_profile ', "context_bytes": 300000000, "cublaslt_bytes": 20000000, "cudnn_bytes": 4000000' >whole
device_profile ', "context_bytes": 300000000' >context
plan --with-cudnn on --profile whole --json device.json >/dev/null
buffer=$(number reserved_bytes device.json)
total=$((buffer + 304000000))
[ "$(number process_bytes device.json) $(number library device.json) $(number runtime device.json)" = \
    "$total 4000000 300000000" ] || fail "of a device: $(grep process device.json)"
expect 0 'context, by profile +292968.75 +300000000$' plan --with-cudnn on --profile whole
expect 0 'Not known before it runs: the captured run' plan --with-cudnn on --profile whole
expect 0 'Not known before it runs: what libraries keep, the captured' \
    plan --with-cudnn on --profile context
expect 0 "fits the budget of [0-9.]* MiB = $total bytes of the device, as far as it is known" \
    plan --with-cudnn on --profile whole --budget $total
expect 4 'it needs [0-9.]* MiB = 30[0-9]* bytes, ' plan --with-cudnn on --profile whole --budget 300000000
expect 0 'for the buffer alone' \
    plan --with-cudnn on --profile whole --budget "$buffer" --budget-of arena
expect 0 'process bytes are of the device, as far as they are known' plan --profile whole --sweep
plan --with-cudnn on --profile whole --sweep --json rows.json >/dev/null
[ "$(number process_bytes rows.json)" = "$total" ] || fail "a sweep of a device: $(cat rows.json)"
# a caller has a context of its own
plan --with-cudnn on --profile whole --io caller --json caller.json >/dev/null
[ "$(number runtime caller.json)" = 0 ] || fail "a caller's context: $(grep process caller.json)"
expect 0 '^ok' "$ullage" check "$digits" device.json
expect 0 '^ok' "$ullage" check "$digits" caller.json
sed "s/_bytes\": $total/_bytes\": $((total - 1))/" device.json >less.json
expect 6 '"process_bytes" is' "$ullage" check "$digits" less.json

# options: words that mean nothing, and one that cannot be
expect 3 'weights rom: target cuda keeps' plan --weights rom
expect 1 'workspace lots: expected a size' plan --workspace lots
expect 1 'with-cudnn maybe: expected auto' plan --with-cudnn maybe
plan --with-cudnn off --json plain.json >/dev/null
"$ullage" plan "$digits" --dim N=1 --target c --json c.json >/dev/null

# what a target has no use for is refused, beside a plan as well, before a model is read
for option in '--threads 3' '--isa avx2' '--conv direct'; do
    # shellcheck disable=SC2086
    expect 1 "^ullage: error: ${option%% *} is for target cpu, and this is target cuda; leave it out" \
        "$ullage" verify missing.onnx --target cuda $option
    # shellcheck disable=SC2086
    expect 1 "${option%% *} is for target cpu, and this is target cuda" \
        "$ullage" plan "$digits" --plan plain.json $option
done
for option in '--cc gcc' '--march native'; do
    # shellcheck disable=SC2086
    expect 1 "${option%% *} is for target c or cpu, and this is target cuda; leave it out.*or give --target c or cpu$" \
        compile --emit source $option
done
expect 1 '\(--nvcc names the compiler of this one\)' compile --emit source --cc gcc
for option in '--workspace 1' '--with-cudnn on' --tf32 '--nvcc nvcc'; do
    # shellcheck disable=SC2086
    expect 1 "${option%% *} is for target cuda, and this is target c; leave it out, or give --target cuda$" \
        "$ullage" plan missing.onnx --target c $option
    # shellcheck disable=SC2086
    expect 1 "${option%% *} is for target cuda, and this is target cpu \\(the default\\)" \
        "$ullage" verify missing.onnx $option
    # shellcheck disable=SC2086
    expect 1 "${option%% *} is for target cuda, and this is target c;" \
        "$ullage" compile "$digits" --plan c.json $option --emit source
done
sed 's/"options": \[/&["tf32", ""], /' c.json >odd.json
expect 2 'odd.json: the plan.s option "tf32" is not one of its target c' \
    "$ullage" check "$digits" odd.json

# what the plan depends on stands in it, and check takes it from there
plan --with-cudnn on --workspace 1MiB --tf32 --json all.json >/dev/null
[ "$(option workspace all.json) $(option with-cudnn all.json)" = '1048576 on' ] &&
    grep -q '\["tf32", ""\]' all.json || fail "options: $(grep options all.json)"
[ "$(option with-cudnn plain.json)" = off ] || fail "options: $(grep options plain.json)"
expect 0 '^ok' "$ullage" check "$digits" all.json
expect 0 '^ok' "$ullage" check "$digits" plain.json
expect 0 'reserves' "$ullage" compile "$digits" --plan all.json --emit again
expect 0 'reserves' "$ullage" compile "$digits" --plan all.json --workspace 1024K --emit again
expect 6 'was made with --workspace 1048576, not 2MiB; leave' \
    "$ullage" compile "$digits" --plan all.json --workspace 2MiB --emit again
expect 6 'was made with --with-cudnn on, not off; leave' \
    "$ullage" compile "$digits" --plan all.json --with-cudnn off --emit again
expect 6 'was made with --with-cudnn off, not on; leave' \
    "$ullage" compile "$digits" --plan plain.json --with-cudnn on --emit again
expect 6 'was made without --tf32' "$ullage" compile "$digits" --plan plain.json --tf32 --emit again
expect 1 'the plan is for target "cuda", not for c' \
    "$ullage" compile "$digits" --plan all.json --target c -o program
expect 1 'the plan is for target "c", not for cuda' \
    "$ullage" compile "$digits" --plan c.json --target cuda --emit again

# cuDNN beside a toolkit: its header and its library
mkdir -p toolkit/bin toolkit/include toolkit/lib64
cp broken toolkit/bin/nvcc
found() { plan --nvcc toolkit/bin/nvcc --json found.json >/dev/null; option with-cudnn found.json; }
if ! [ -e /usr/include/cudnn.h ] && ! [ -e /usr/include/x86_64-linux-gnu/cudnn.h ]; then
    touch toolkit/include/cudnn.h
    [ "$(found)" = off ] || fail 'cuDNN without its library'
fi
touch toolkit/include/cudnn.h toolkit/lib64/libcudnn.so.9
[ "$(found)" = found ] || fail "cuDNN beside a toolkit: $(found)"
rm -r toolkit
expect 0 '^ok' "$ullage" check "$digits" found.json
expect 0 'reserves' "$ullage" compile "$digits" --plan found.json --emit again

left=$(ls tmp)
[ -z "$left" ] || fail "left in TMPDIR: $left"
[ -e program ] && fail 'a failed compile left a program'
exit $failed
