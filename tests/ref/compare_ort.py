#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a compiled program with onnxruntime on random inputs.

    compare_ort.py --ullage build/release/ullage resnet50 [--small] [--batch 2] [-- COMPILE OPTIONS]
    compare_ort.py --ullage build/release/ullage model.onnx --shape x=1,3,640,640
    compare_ort.py --ullage build/release/ullage gpt2 --small --type bf16 --islands

With --type the program is of the model in 16 bits (models/lib_half.py), the reference of the same
in float32.

A model is a file or a name that models/make.py knows; that one is made under build/models first.
Prints, for every output, the relative error |program - reference| / |reference| (2-norm over all
elements); integer and boolean outputs count the share of elements that differ. With --no-reuse the
program is compiled again with --pack none, and both must give the same bytes. With --guard the
program also runs in its own --guard and --memory modes, which fail on a step that reads or writes
outside its values, and on a byte reserved beyond the prediction.
Exit: 0 ok, 6 an error above --tolerance (default 1e-4; with --precision among the compile options
that of `ullage verify`) or different bytes, else that of the compiler or program.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "models"), os.path.join(ROOT, "scripts")]

import environment  # noqa: E402

environment.need("numpy", "onnx")

import lib_half  # noqa: E402
import make  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import open_shapes, random_inputs, reference  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402


def model_path(args):
    if os.path.exists(args.model):
        return args.model
    if args.model not in make.NETWORKS:
        sys.exit(f"compare_ort.py: {args.model}: no such file, and models/make.py has no such name")
    name = args.model + ("_small" if args.small else "")
    if args.batch != 1:
        name += f"_b{args.batch}"
    seq = getattr(args, "seq", None)
    if seq is not None:
        name += f"_s{seq}"
    hollow = getattr(args, "hollow", False)
    path = os.path.join(ROOT, "build", "models", name + "_hollow" * hollow + ".onnx")
    folder = os.path.join(ROOT, "models")
    scripts = [os.path.join(folder, entry) for entry in os.listdir(folder) if entry[-3:] == ".py"]
    newest = max(os.path.getmtime(script) for script in scripts)
    if os.path.exists(path) and os.path.getmtime(path) >= newest:
        return path
    if hollow:
        make.save_hollow(args.model, path, args.batch, seq, args.small)
    else:
        make.save(make.make(args.model, args.batch, seq, args.small), path)
    return path


def run(command, what):
    begin = time.time()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False)  # fmt: skip
    if done.returncode != 0:
        print(f"{what} failed with exit code {done.returncode}:", file=sys.stderr)
        print((done.stderr or done.stdout)[-3000:], file=sys.stderr)
        sys.exit(done.returncode if 0 < done.returncode < 256 else 70)
    return time.time() - begin, done.stdout


def relative_error(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        print(f"  {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}")
        return float("inf")
    if want.dtype.kind not in "fV":
        return float(np.mean(got != want)) if want.size else 0.0
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)) if b.size else 0.0


def typed_path(args, path):
    """The model in 16 bits, made under build/models."""
    if args.type is None:
        return path
    name = os.path.basename(path).removesuffix(".onnx") + f"_{args.type}"
    made = os.path.join(ROOT, "build", "models", name + "_islands" * args.islands + ".onnx")
    newest = max(os.path.getmtime(file) for file in (path, lib_half.__file__))
    if not os.path.exists(made) or os.path.getmtime(made) < newest:
        make.save(lib_half.half(onnx.load(path), args.type, args.islands), made)
    return made


def as_given(model, inputs):
    """Inputs of the types that the model has them in."""
    given = dict(inputs)
    for value in model.graph.input:
        if value.name in given:
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            given[value.name] = given[value.name].astype(dtype)
    return given


def widened(model, outputs, want):
    """Outputs of 16 bits as the float32 of what they are compared with."""
    for value in model.graph.output:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = outputs[value.name]
        if array.dtype.kind == "V" and dtype.itemsize == array.dtype.itemsize:
            array = array.view(dtype)  # numpy has no name for bfloat16
        if array.dtype != dtype:
            sys.exit(f"compare_ort.py: output {value.name} is {array.dtype} and not {dtype}")
        if want[value.name].dtype == np.float32:
            outputs[value.name] = array.astype(np.float32)
    return outputs


def execute(args, path, inputs, shapes, folder, tag, extra):
    """Compiles and runs; returns {output: array} and the two times."""
    program = os.path.join(folder, "program" + tag)
    command = [args.ullage, "compile", path, "-o", program, "--target", args.target]
    for name in shapes:
        command += ["--shape", f"{name}={','.join(map(str, inputs[name].shape))}"]
    compile_s, _ = run(command + args.options + extra, "compiling")
    command = [program]
    for i, (name, array) in enumerate(inputs.items()):
        file = os.path.join(folder, f"input_{i}.npy")
        np.save(file, array)
        command += ["--input", f"{name}={file}"]
    names = [output.name for output in onnx.load(path, load_external_data=False).graph.output]
    files = [os.path.join(folder, f"output{tag}_{i}.npy") for i in range(len(names))]
    for name, file in zip(names, files, strict=True):
        command += ["--output", f"{name}={file}"]
    run_s, _ = run(command, "running")
    outputs = {name: np.load(file) for name, file in zip(names, files, strict=True)}
    if args.guard:
        run([program, "--guard", "--random", "1"], "--guard")
        run([program, "--memory", "--random", "1"], "--memory")
    os.remove(program)
    return outputs, compile_s, run_s


def tolerance(options, precision="fp32"):
    """The relative error that a right program may have, as runtime/host/ul_test_data.c has it.
    precision: of the model itself, where no option asks for another."""
    for i, option in enumerate(options):
        if option == "--precision":
            precision = options[i + 1]
    return {"fp32": 1e-4, "fp16": 5e-3, "bf16": 3e-2}[precision]


def same_bytes(first, second):
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


def expected(pairs):
    """{output: array} from NAME=FILE.pb."""
    arrays = {}
    for pair in pairs:
        name, file = pair.rsplit("=", 1)
        with open(file, "rb") as f:
            arrays[name] = numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
    return arrays


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a file or a name of models/make.py")
    parser.add_argument("--ullage", required=True, help="the compiler")
    parser.add_argument("--target", default="c")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--batch", type=make.dimension, default=1)
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=1,3,224,224")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ramp", action="store_true", help="float inputs are i/n, not random")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy",
                        help="this instead of random numbers")  # fmt: skip
    parser.add_argument("--expect", action="append", default=[], metavar="OUTPUT=FILE.pb",
                        help="compare this output with a file too")  # fmt: skip
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--type", choices=lib_half.TYPES, help="of the model that is compiled")
    parser.add_argument("--islands", action="store_true", help="with --type: as converters write")
    parser.add_argument("--no-reuse", action="store_true", help="same bytes as with --pack none?")
    parser.add_argument("--guard", action="store_true", help="run --guard and --memory too")
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]
    if args.tolerance is None:
        args.tolerance = tolerance(args.options, args.type or "fp32")
    return args


def main():
    args = parse()
    path = model_path(args)
    model = onnx.load(path, load_external_data=False)
    shapes = {}
    for text in args.shape:
        name, shape = text.rsplit("=", 1)
        shapes[name] = [int(part) for part in shape.split(",")]
    inputs = random_inputs(model, args.seed, shapes, args.ramp)
    for text in args.input:
        name, file = text.rsplit("=", 1)
        inputs[name] = np.load(file)
    typed = typed_path(args, path)
    typed_model = onnx.load(typed, load_external_data=False)
    given = as_given(typed_model, inputs)
    want = reference(path, as_given(model, given))
    failed = False
    with tempfile.TemporaryDirectory(prefix="ullage-ref-") as folder:
        shapes = open_shapes(model)
        got, compile_s, run_s = execute(args, typed, given, shapes, folder, "", [])
        kept = dict(got)
        got = widened(typed_model, got, want)
        for name, array in list(want.items()) + list(expected(args.expect).items()):
            error = relative_error(got[name], array)
            failed |= not error <= args.tolerance
            print(f"  {name}: relative error {error:.2e}")
        if args.no_reuse:
            plain, _, _ = execute(args, typed, given, shapes, folder, "-plain", ["--pack", "none"])
            same = same_bytes(kept, plain)
            failed |= not same
            print("  without reuse:", "same bytes" if same else "DIFFERENT BYTES")
    verdict = "FAIL" if failed else "ok"
    print(f"{verdict} {os.path.basename(typed)}: compile {compile_s:.1f} s, run {run_s:.2f} s")
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
