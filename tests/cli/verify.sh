#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ullage verify as a user meets it: what it compares with and says of that, its tolerances, and that
# a reference that fails is no difference. Its programs run once: they are compiled without
# optimisation.
#
# usage: tests/cli/verify.sh ULLAGE
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

cp "$digits" mine.onnx

# small_files SIZE COMMAND...: no file can be larger than SIZE KiB
small_files() { (trap '' XFSZ && ulimit -f "$1" && shift && exec "$@"); }
# in_little SIZE COMMAND...: temporary folders are on a disk of that size
in_little() {
    unshare --mount bash -c 'mount -t tmpfs -o size="$1" none little && shift && TMPDIR=$PWD/little "$@"' - "$@"
}

# verify says what it compared with; a reference that fails is no difference
expect 0 'digits/test_data_set_0$' "$ullage" verify "$digits" --cflags -O0 --norm 0
# its tolerances: by elements, or by the norm, which --norm sets or leaves out
for option in rtol atol norm; do
    expect 1 "^ullage: error: --$option tight: expected a number of at least 0" \
        "$ullage" verify missing.onnx --$option tight
done
expect 0 '^An element is right|--norm 0$' "$ullage" verify --help
half() { "$ullage" verify "$digits" --target c --cflags -O0 --precision bf16 "$@"; }
expect 0 'norm error of at most 0.03$' half
grep -q 'ok by norm' out.txt || { echo "FAIL: bf16 is not judged by its norm"; failed=1; }
expect 6 'norm error of at most 1e-09$' half --norm 1e-9
expect 6 '^--quantize rounds weights .* what that costs: give --norm X' \
    "$ullage" verify "$digits" --target c --cflags -O0 --quantize 'int4:*' --norm 1e-9
# a network that quantizes is where 16 bits may make whole steps, and the message says so
# quantized.onnx: MatMul(Tanh x [96,32], Tanh w [32,96]), QuantizeLinear by a step of 1, and back
steps() { "$ullage" verify "$here/quantized.onnx" --target c --cflags -O0 "$@"; }
ULLAGE_PYTHON='' expect 6 '^The model quantizes: .*whole step' \
    steps --precision bf16 --norm 1e-3
ULLAGE_PYTHON='' expect 0 'norm error [0-9.e-]+, [1-9][0-9]* of 9216 .*; ok by norm' \
    steps --precision bf16 --norm 0.1
# scalar.onnx: ReduceSum of x [6] to y []; a reference of onnxruntime has rank 0 as well
python=$here/../../build/venv/bin/python
if "$python" -c 'import onnxruntime' 2>/dev/null; then
    ULLAGE_PYTHON=$python expect 0 '^  y: .*ok$' \
        "$ullage" verify "$here/scalar.onnx" --target c --cflags -O0
    # --const is handed on; 16 bits are judged as such; quantized models by what the file says
    "$python" "$here/make_verify.py" "$work" || fail "make_verify.py"
    export ULLAGE_PYTHON=$python
    expect 0 '^  y: .*ok' "$ullage" verify number.onnx --target c --cflags -O0
    expect 0 '^verdict: same: shaped.onnx against onnxruntime' \
        "$ullage" verify shaped.onnx --const shape=shape.npy --cflags -O0
    # an input that an operator needs when the program is compiled is constant, and said to be
    expect 0 '^1 input is made constant, .*: --const shape=FILE$' "$ullage" verify shaped.onnx --cflags -O0
    expect 0 '^1 input is made constant, .*: --const shape=shaped_data/input_1.pb$' \
        "$ullage" verify shaped.onnx shaped_data --cflags -O0
    expect 3 'shape' "$ullage" compile shaped.onnx -o shaped --cflags -O0
    expect 0 'reserves' "$ullage" compile shaped.onnx -o shaped --cflags -O0 --const shape=shaped_data/input_1.pb
    expect 5 '^ullage: error: nowhere.npy: cannot open' \
        "$ullage" verify shaped.onnx --const shape=nowhere.npy --cflags -O0
    # so is --output, of any value, also where the reference is the model itself
    for value in b c; do
        expect 0 "^  $value: .*ok" "$ullage" verify steps.onnx --output $value --target c --cflags -O0
    done
    ULLAGE_PYTHON='' expect 0 '^b.npy: .* 0 of ' \
        "$ullage" verify steps.onnx --output b --target c --cflags -O0
    # a branch that cannot have the shapes ends a run that takes it, and the message says so
    expect 0 'note: a branch cannot have these shapes, .*node .* "b" .*f32\[64,2\], f32\[64,64\]' \
        "$ullage" compile branches.onnx --target c --cflags -O0 -o branches
    expect 0 '^y' ./branches --input x=x.npy --input c=taken.npy --print
    expect 2 'is in a branch that cannot have the shapes' \
        ./branches --input x=x.npy --input c=other.npy --print
    expect 0 '^rounded to fp16: .* at most 0.005$' "$ullage" verify half.onnx --cflags -O0
    expect 6 '^verdict: different' "$ullage" verify half.onnx --cflags -O0 --norm 0
    expect 6 'z: .*MISMATCH' "$ullage" verify mixed.onnx mixed_data --cflags -O0
    grep -q 'y: .*ok by norm' out.txt || fail "verify: $(cat out.txt)"
    expect 0 '^verdict: same' "$ullage" verify stored.onnx --cflags -O0
    ! grep -q '^rounded to' out.txt || fail "verify: f32 of 16-bit weights is judged as 16 bits"
    expect 0 'no reference from onnxruntime \(.*NOT_IMPLEMENTED.*Add' \
        "$ullage" verify bfloat.onnx --cflags -O0
    expect 0 "its own optimisations onnxruntime's y is elsewhere, by a norm" \
        "$ullage" verify steps.onnx --target c --cflags -O0
    expect 0 'ok by steps; [0-9]+ of 4096 elements one step away' \
        "$ullage" verify fine.onnx --target c --cflags -O0
    grep -q 'y: largest difference 1 step of 65535: ' out.txt || fail "verify: $(cat out.txt)"
    expect 6 'largest difference 1 step of 65535: MISMATCH' \
        "$ullage" verify fine.onnx --target c --cflags -O0 --steps 0
    expect 0 'ok by steps' "$ullage" verify fine.onnx --target c --cflags -O0 --steps 1
    # a program without floats is compared with the integers that the reference's floats stand for
    free() { "$ullage" verify steps.onnx "$@" --target c --no-float --cflags -O0; }
    expect 0 '^  y: largest difference [01] steps? of ' free
    expect 6 'give --steps N where that many are right' free off_data
    expect 6 'y: largest difference [34] steps of .*: MISMATCH' free off_data --steps 2
    expect 0 '^verdict: same' free off_data --steps 4
    ULLAGE_PYTHON='' expect 0 '^y.npy: largest difference' free
    # random inputs are what names and uses say: a mask of ones, lengths and rows that there are
    expect 0 '^  h: .*ok$' "$ullage" verify named.onnx --target c --cflags -O0
    grep -q '^  y: .*ok$' out.txt || fail "verify: $(cat out.txt)"
    ! grep -q 'is all zero' out.txt || fail "verify: a mask is no mask of ones: $(cat out.txt)"
    # an output that is all zero is said to be, where other inputs change nothing in that
    expect 0 '^verdict: same' "$ullage" verify dead.onnx --target c --cflags -O0
    ! grep -q 'is all zero' out.txt || fail "verify: no other inputs are tried: $(cat out.txt)"
    expect 0 'output y is all zero on every random input' "$ullage" verify never.onnx --target c --cflags -O0
    # what the computation cannot tell apart is the same; recorded data are judged by norm and elements together
    expect 0 'onnxruntime is as far from itself: outputs are right by a norm error of up to' \
        "$ullage" verify cancels.onnx --cflags -O0
    expect 0 'ok by norm; 1 of 160000' "$ullage" verify doubled.onnx near_data --target c --cflags -O0
    expect 6 'norm error [0-9.]*e-05: MISMATCH in 1 of 160000' \
        "$ullage" verify doubled.onnx far_data --target c --cflags -O0
    expect 6 'MISMATCH' "$ullage" verify doubled.onnx near_data --target c --cflags -O0 --norm 0
    expect 0 'fp16 overflows: .* on numbers from 0 to 255, and fp16 ends at 65504' \
        "$ullage" verify picture.onnx --target c --cflags -O0 --precision fp16
    # maps and sequences: ZipMap is left out, tensors of a sequence are inputs and outputs each
    expect 0 'ZipMap is left out: named is compared' \
        "$ullage" verify scores.onnx --shape x=4,4 --target c --cflags -O0
    expect 0 '^  t\[1\]: .*ok$' "$ullage" verify lists.onnx --shape 's[0]=3' --shape 's[1]=2' --target c --cflags -O0
    expect 1 'input s is a sequence: give each of its tensors a shape' "$ullage" verify lists.onnx --target c
    ULLAGE_PYTHON='' expect 1 'input "s" is a sequence: give each of its tensors a shape, --shape "s\[0\]"=N' \
        "$ullage" verify lists.onnx --target c
    expect 1 'the input "s" is a sequence, which has no batch' \
        "$ullage" plan lists.onnx --max-batch --budget 1MiB
    # recorded data has a file for a sequence, which says what its tensors are
    between() { "$ullage" verify between.onnx "$@" --target c --cflags -O0; }
    for data in seq_data seq_unnamed; do
        expect 0 '^  t\[2\]: .*ok$' between $data
        grep -q '^  w: .*ok$' out.txt || fail "verify: what stands behind a sequence: $(cat out.txt)"
    done
    expect 0 '^  t\[0\]: .*ok$' between seq_data --shape 's[0]=3'
    expect 0 '^  w: .*ok$' between seq_data --output w
    expect 6 '^  t\[2\]: .*MISMATCH' between seq_wrong
    expect 6 'seq_few/output_1.pb: holds a sequence of 2 tensors, the program makes 3' between seq_few
    expect 2 'seq_tensor/output_1.pb: not a SequenceProto' between seq_tensor
    expect 3 'map_data/output_1.pb: holds a sequence of maps' \
        "$ullage" verify scores.onnx map_data --target c --cflags -O0
    expect 0 '^  t\[1\]: .*ok$' "$ullage" verify lists.onnx --const 's[0]=three.npy' --shape 's[1]=2' \
        --target c --cflags -O0
    # sizes that follow from others are known to the reference too, and inputs with a default are its inputs
    expect 0 '^verdict: same: .* against onnxruntime' "$ullage" verify "$here/../frontend/cases/dims_sum.onnx" \
        --dim batch=1 --dim seq=2 --dim past=3 --target c --cflags -O0
    expect 0 '^verdict: same: .* against onnxruntime' "$ullage" verify "$here/../frontend/cases/joined.onnx" \
        --dim batch=1 --dim seq=2 --dim past=3 --dim mask_batch=1 --target c --cflags -O0
    expect 0 '^verdict: same: .* against onnxruntime' "$ullage" verify "$here/../frontend/cases/defaults.onnx" \
        --keep-defaults --target c --cflags -O0
    # a file of the reference that cannot be written is no failure of the reference
    expect 5 'set/input_0.pb: cannot write: File too large' small_files 100 \
        "$ullage" verify doubled.onnx --target c --cflags -O0
    grep -q 'set TMPDIR to' out.txt || fail "verify: no remedy for a full disk: $(cat out.txt)"
    if unshare --mount true 2>/dev/null; then
        mkdir little
        for size in 16k 700k; do
            expect 5 'cannot write.*No space left' in_little $size \
                "$ullage" verify doubled.onnx --target c --cflags -O0
        done
        expect 5 'ullage.*: cannot write.*No space left' in_little 1400k \
            "$ullage" verify doubled.onnx --target c --cflags -O0
    else
        echo 'verify.sh: no mounts here: a full disk is not tried'
    fi
    # of a model whose weights lie beside it --output cuts the graph alone
    expect 0 '^  b: .*ok' "$ullage" verify beside/steps.onnx --output b --target c --cflags -O0
    unset ULLAGE_PYTHON
else
    echo 'verify.sh: onnxruntime is missing: a scalar beside its reference is skipped'
fi
# a program that cannot be written or run is no difference, nor is one that was killed
# (the weights of digits take more than 8 KiB, its program more than 400)
for size in 8 400; do
    ULLAGE_PYTHON='' expect 5 'source.*: cannot write: File too large' small_files $size \
        "$ullage" verify mine.onnx --dim N=1 --target c --cflags -O0
    grep -q 'set TMPDIR to' out.txt || fail "verify: no remedy for a full disk: $(cat out.txt)"
done
expect 5 'program: cannot write: File too large' small_files 400 \
    "$ullage" compile mine.onnx --dim N=1 --target c --cflags -O0 -o mine
[ ! -e mine ] || fail "compile left a part of a program"
printf '#!/bin/sh\nkill -9 $$\n' >python
chmod +x python
ULLAGE_PYTHON=$work/python expect 4 'onnxruntime was killed \(signal 9\)' "$ullage" verify mine.onnx --dim N=1
printf '#!/bin/sh\nkill -SEGV $$\n' >python
ULLAGE_PYTHON=$work/python expect 3 'no reference for random inputs: it ended by signal 11' \
    "$ullage" verify mine.onnx --dim N=1
# what is against ONNX's rules stays so, whatever data is given
expect 2 'the graph has no outputs.*--output' "$ullage" verify "$here/../frontend/cases/no_outputs.onnx"
! grep -q 'test data' out.txt || fail "verify: data is no cure of a graph without outputs: $(cat out.txt)"
printf '#!/bin/sh\necho noise; echo "token 7 is out of range" >&2; exit 1\n' >python
chmod +x python
ULLAGE_PYTHON=$work/python expect 3 'token 7 is out of range' "$ullage" verify mine.onnx --dim N=1
ULLAGE_PYTHON=$work/python expect 3 'Give test data' "$ullage" verify mine.onnx --dim N=1
printf '#!/bin/sh\necho "input x: give a size"; exit 4\n' >python
ULLAGE_PYTHON=$work/python expect 1 'give a size' "$ullage" verify mine.onnx
ULLAGE_PYTHON='' expect 0 'without reuse' "$ullage" verify mine.onnx --dim N=1 --cflags -O0
# a Python that is named must be one, with onnxruntime; what cannot run the model is said whole
ULLAGE_PYTHON=$work/none expect 1 'none does not run; unset it' "$ullage" verify mine.onnx --dim N=1
# nor is one that says nothing
for code in 0 1; do
    printf '#!/bin/sh\nexit %s\n' $code >python
    ULLAGE_PYTHON=$work/python expect 1 'python does not run; unset it' "$ullage" verify mine.onnx --dim N=1
done
printf '#!/bin/sh\nexit 3\n' >python
ULLAGE_PYTHON=$work/python expect 1 'has no onnx and onnxruntime' "$ullage" verify mine.onnx --dim N=1
printf '#!/bin/sh\nprintf "no kernel for Gemm\\nof this type\\n"; exit 5\n' >python
ULLAGE_PYTHON=$work/python expect 0 'no reference from onnxruntime \(no kernel for Gemm$' \
    "$ullage" verify mine.onnx --dim N=1 --cflags -O0
# one verdict, always of the same form, at the end of what is printed
verdict() {
    local want=$1
    shift
    [ "$("$@" 2>/dev/null | tail -1)" = "verdict: $want" ] || fail "$* does not end with $want"
}
itself='itself without passes and reuse of memory, on random inputs'
verdict "same: $digits against ${digits%/*}/test_data_set_0" "$ullage" verify "$digits" --cflags -O0
ULLAGE_PYTHON='' verdict "same: mine.onnx against $itself" \
    "$ullage" verify mine.onnx --dim N=1 --cflags -O0
ULLAGE_PYTHON='' verdict "different: $here/quantized.onnx against $itself" \
    steps --precision bf16 --norm 1e-3
verdict "none: missing.onnx against nothing" "$ullage" verify missing.onnx
# ONNX's optionals are no tensors: unsupported, by name
if nodes=$("$here/../ops/data.sh"); then
    expect 3 'is not supported|is no tensor' "$ullage" verify "$nodes"/test_identity_opt/model.onnx
fi

left=$(ls tmp)
[ -z "$left" ] || { echo "FAIL: left in TMPDIR: $left"; failed=1; }
exit $failed
