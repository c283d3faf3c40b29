#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-rank factors beside weights of few bits: --lora with --quantize, as QLoRA has it.

    qlora.py ULLAGE [--target c] [--all]

The network of lora.py. What its weights stand for, which `ullage export` writes where no factor has
learned, is close to what they were, and of few numbers; losses and factors are those of a training
beside these numbers in float32, whose products and gradients know nothing of codes. No weight lies
in the buffer as floats. Losses, factors and state are the same bits under the smallest budget,
without reuse and with --checkpoint. Exported merged and apart, onnxruntime finds the loss that was
trained to. A trainer beside other weights refuses the factors. With --all: 8 bits, 16-bit products,
8-bit state, micro-batches, other optimizers, and a resumed training.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import sys
import tempfile

import train  # and 77 where a package is missing
from lora import FACTORS, SIZES, STEPS, learn, loss_of, make_model
from train import check, numpy, numpy_helper, onnx, read, run

LORA = ["--lora", "3:w*", "--train-only", "b*"]
MADE = {}  # trainers, by their options


def compile_trainer(args, *words, model="m.onnx", optimizer="adamw"):
    """./trainer, which may have been made before, and its plan."""
    key = (model, optimizer, *words)
    if key not in MADE:
        MADE[key] = f"trainer{len(MADE)}"
        rate = "1" if optimizer == "adafactor" else "0.01"  # of the size of what it updates
        run(args.ullage, "compile", model, "--train", "--optimizer", optimizer, "--lr", rate, "--target", args.target,
            "-o", MADE[key], "--json", f"{MADE[key]}.json", "--budget-of", "arena", *LORA, *words)  # fmt: skip
    if os.path.lexists("trainer"):
        os.remove("trainer")
    os.symlink(MADE[key], "trainer")
    with open(f"{MADE[key]}.json", encoding="utf-8") as file:
        return json.load(file)


def initializers(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def check_base(bits):
    """baseBITS.onnx has blocks of 32 along k, each of few numbers near what they were."""
    was, base = initializers("m.onnx"), initializers(f"base{bits}.onnx")
    for name in SIZES:
        columns = [(was[name].T, base[name].T), (was[name], base[name])][name == "w2"]
        for before, now in zip(*columns, strict=True):
            for at in range(0, len(before), 32):
                block, codes = before[at : at + 32], now[at : at + 32]
                step = abs(block).max() / (2 ** (bits - 1) - 0.5)
                check(abs(block - codes).max() < 1.2 * step, f"{name}: {block} became {codes}")
                check(len(set(codes.tolist())) <= 2**bits, f"{name}: {codes} are no codes")
    check((base["table"] == was["table"]).all(), "the table has changed")


def check_reference(args, bits):
    """Beside the same numbers in float32."""
    quantize = ["--quantize", f"int{bits}:*"]
    plan = compile_trainer(args, *quantize)
    learn("zero.npz", 1, "--lr", "0")
    run(args.ullage, "export", "m.onnx", "zero.npz", "-o", f"base{bits}.onnx")
    check_base(bits)
    got = learn("got.npz", STEPS)
    learn("next.npz", 1, "--init", "got.npz")
    if args.target == "c":
        codes = sum(d[0] * d[1] for d in SIZES.values()) * bits // 8
        scales = 2 * (40 * 1 + 128 * 2 + 5 * 4)  # a column's blocks of 32 in 16 bits
        trained = 4 * sum(a * b for pair in FACTORS.values() for a, b in pair) + 4 * (40 + 5)
        check(plan["rows"]["weights"] == codes + scales + trained, f"{plan['rows']}, not {codes} + {scales} + {trained}")
    compile_trainer(args, model=f"base{bits}.onnx")
    want = learn("want.npz", STEPS)
    check(all(abs(float(a) / float(b) - 1) < 1e-5 for a, b in zip(want, got, strict=True)), f"losses {got}, beside floats {want}")
    a, b = numpy.load("got.npz"), numpy.load("want.npz")
    for name in b.files:
        if "/lora_" in name and name.count("/") == 1:
            far = abs(a[name] - b[name]).max() / abs(b[name]).max()
            check(far < 1e-4, f"{name} is {far} away from what it is beside floats")
    told = run("./trainer", "--data", "x.npy", "--labels", "y.npy", "--steps", "1", "--init", "got.npz", code=2).stderr
    check(f"--quantize 'int{bits}:*'" in told, told)


def check_bits(args, bits, *words, ways, optimizer="adamw"):
    """One result, however it is planned."""
    options = ["--quantize", f"int{bits}:*", *words]
    plan = compile_trainer(args, *options, optimizer=optimizer)
    want = learn("want.npz", STEPS)
    check(float(want[-1]) < 0.9 * float(want[0]), f"{words}: nothing is learned: {want}")
    run("./trainer", "--guard", "--random", "1")
    least = run(args.ullage, "plan", "m.onnx", "--train", "--optimizer", optimizer, "--target", args.target, *LORA, *options,
                "--budget-of", "arena", "--budget", "1", "--json", "-", code=4).stdout  # fmt: skip
    smallest = json.loads(least)["smallest_budget_bytes"]
    check(smallest < plan["reserved_bytes"], "a budget saves nothing")
    for way in ways:
        way = ["--budget", str(smallest)] if way == ["budget"] else way
        compile_trainer(args, *options, *way, optimizer=optimizer)
        check(learn("other.npz", STEPS) == want, f"{words} {way}: other losses")
        check(read("other.npz") == read("want.npz"), f"{words} {way}: other factors or state")


def check_export(args):
    """got.npz is exported beside 4 bits; what was trained to is the first loss of the step after it."""
    compile_trainer(args, "--quantize", "int4:*")
    want = float(learn("next.npz", 1, "--init", "got.npz")[0])
    for name, apart in (("merged.onnx", []), ("apart.onnx", ["--apart"])):
        told = run(args.ullage, "export", "m.onnx", "got.npz", "-o", name, *apart).stdout
        check("3 of its weights are what they were of few bits" in told, told)
        onnx.checker.check_model(name)
        check(abs(loss_of(name) / want - 1) < 1e-5, f"{name}: a loss of {loss_of(name)}, not {want}")
    kept, base = initializers("apart.onnx"), initializers("base4.onnx")
    check((kept["w1/base"] == base["w1"]).all(), "apart has another base")


def check_refused(args):
    for code, words, options in (
        (3, "with --lora RANK:PATTERN they stay", ["--quantize", "int4"]),
        (1, "that nothing else reads", [*LORA, "--quantize", "int4:table"]),
        (1, "room for 255 characters", [*LORA, "--quantize", "int4:" + 300 * "w"]),
    ):  # fmt: skip
        told = run(args.ullage, "plan", "m.onnx", "--train", *options, code=code).stderr
        check(words in told, f"{options}: {told}")
    plan = json.loads(run(args.ullage, "plan", "m.onnx", "--train", *LORA, "--quantize", "int8", "--json", "-").stdout)
    check(sum("MatMulNBits" in op for op in plan["steps"]["op"]) == 2, "the first product and the last keep floats")


def check_parts(args):
    """The network without what has a fixed batch, whole and in parts."""
    model = onnx.load("m.onnx")
    del model.graph.node[:2]
    model.graph.node[0].input[0] = "x"
    onnx.save(model, "free.onnx")
    losses = []
    for words in ([], ["--micro-batches", "4"]):
        compile_trainer(args, "--quantize", "int4:*", *words, model="free.onnx")
        losses.append(learn("parts.npz", STEPS))
    near = [abs(float(a) / float(b) - 1) < 1e-4 for a, b in zip(*losses, strict=True)]
    check(all(near), f"whole and in parts: {losses}")


def check_all(args):
    check_reference(args, 8)
    everything = [["--pack", "none"], ["budget"], ["--checkpoint", "sqrt"]]
    check_bits(args, 8, ways=everything)
    check_bits(args, 4, "--precision", "bf16", ways=everything)
    check_bits(args, 4, "--state-bits", "8", "--clip-norm", "1", ways=[["--pack", "none"], ["budget"]])
    for optimizer in ("adafactor", "adam-mini"):
        check_bits(args, 4, "--precision", "bf16", ways=[["--pack", "none"]], optimizer=optimizer)
    check_parts(args)
    compile_trainer(args, "--quantize", "int4:*")
    learn("whole.npz", STEPS)
    learn("half.npz", 4)
    learn("rest.npz", STEPS, "--resume", "half.npz")
    check(read("rest.npz") == read("whole.npz"), "a resumed training differs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    args.ullage = os.path.abspath(args.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_model()
        check_reference(args, 4)
        check_export(args)
        check_bits(args, 4, ways=[["--pack", "none"], ["budget"]])
        if args.target == "c":
            check_refused(args)
        if args.all:
            check_all(args)
        os.chdir("/")
    return 1 if train.failures else 0


if __name__ == "__main__":
    sys.exit(main())
