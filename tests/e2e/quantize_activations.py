#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--quantize-activations: what it makes is right, ONNX, and what is compiled; bad data are refused.

    quantize_activations.py ULLAGE [--target c]

The digits network, calibrated by each method with pictures of the training set, may get at most 0.3
points fewer of the held-out pictures right than in float32, as a program of ours and as the saved
model in onnxruntime. The saved model compiled has the plan of the quantized one, byte for byte.
A small transformer keeps its normalizations in floats. Data that do not fit are one clear line.
Exit: 0 ok, 6 not, 77 no Python packages.
"""

import argparse
import collections
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "models"), HERE]

import digits_quantized as digits  # noqa: E402
import make  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from lib_run import random_inputs  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

METHODS = ("minmax", "percentile", "entropy")


class Failed(Exception):
    """What is wrong, in a line."""


def expect(condition, text):
    if not condition:
        raise Failed(text)


def ullage(args, *words):
    return subprocess.run([args.ullage, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)  # fmt: skip


def good(args, *words):
    done = ullage(args, *words)
    expect(done.returncode == 0, f"{' '.join(words)}: exit {done.returncode}: {done.stderr}")


def heldout():
    with np.load(os.path.join(digits.FOLDER, "heldout.npz")) as arrays:
        return arrays["x"], arrays["y"]


def peer_share(model):
    """Per cent that onnxruntime gets right with a saved model, which has all pictures as a batch."""
    x, y = heldout()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return 100.0 * float((session.run(None, {"x": x})[0].argmax(1) == y).mean())


def own_share(program, folder):
    x, y = heldout()
    np.save(os.path.join(folder, "x.npy"), x)
    result = os.path.join(folder, "y.npy")
    name = onnx.load(digits.MODEL).graph.output[0].name
    subprocess.run([program, "--input", f"x={folder}/x.npy", "--output", f"{name}={result}"],
                   check=True)  # fmt: skip
    return 100.0 * float((np.load(result).argmax(1) == y).mean())


def check_digits(args, folder):
    x, _ = heldout()
    pictures = np.load(os.path.join(digits.FOLDER, "train_x.npy"))
    data = os.path.join(folder, "data.npz")
    np.savez(data, x=pictures[: 2 * len(x)])
    plain = peer_share(digits.MODEL)
    for method in METHODS:
        model = os.path.join(folder, method + ".onnx")
        plan = os.path.join(folder, method + ".json")
        program = os.path.join(folder, method)
        words = [digits.MODEL, "--target", args.target, "--dim", f"N={len(x)}",
                 "--quantize-activations", data, "--calibration", method,
                 "--save-quantized", model, "--json", plan]  # fmt: skip
        first = method == METHODS[0]
        good(args, *(["compile", "-o", program] if first else ["plan"]), *words)
        onnx.checker.check_model(onnx.load(model), full_check=True)
        shares = [peer_share(model)] + ([own_share(program, folder)] if first else [])
        expect(min(shares) >= plain - digits.POINTS, f"{method}: {shares} of {plain} are right")
        again = os.path.join(folder, "again.json")
        copy = os.path.join(folder, "digits.onnx")  # a plan has the model's name
        os.replace(model, copy)
        good(args, "plan", copy, "--target", args.target, "--json", again)
        with open(plan, "rb") as a, open(again, "rb") as b:
            expect(a.read() == b.read(), f"{method}: the saved model has another plan")
        print(f"digits, {method}: {shares}", flush=True)


def check_transformer(args, folder):
    """Products with weights, and nothing else, become integers; results stay near."""
    model, saved = os.path.join(folder, "bert.onnx"), os.path.join(folder, "bert_q.onnx")
    make.save(make.make("bert_base", small=True), model)
    inputs = [random_inputs(onnx.load(model), seed=i) for i in range(3)]
    data = os.path.join(folder, "bert.npz")
    np.savez(data, **{name: np.concatenate([batch[name] for batch in inputs]) for name in inputs[0]})
    good(args, "plan", model, "--target", args.target, "--quantize-activations", data,
         "--save-quantized", saved)  # fmt: skip
    counts = collections.Counter(node.op_type for node in onnx.load(saved).graph.node)
    expect(0 < counts["QuantizeLinear"] < counts["MatMul"] + counts["Gemm"],
           f"more is quantized than what products read: {counts}")  # fmt: skip
    results = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
               .run(None, inputs[0]) for path in (model, saved)]  # fmt: skip
    for want, got in zip(*results, strict=True):
        apart = np.linalg.norm(got - want) / np.linalg.norm(want)
        expect(apart < 0.1, f"the transformer's results are {apart:.3f} apart")


def refused(args, name, code, text, *words):
    done = ullage(args, "plan", *words, "--target", args.target)
    lines = done.stderr.strip().splitlines()
    right = done.returncode == code and len(lines) == 1 and text in lines[0]
    expect(right, f"{name}: exit {done.returncode}, wanted {code} and {text!r}: {done.stderr}")


def npy(folder, array):
    path = os.path.join(folder, "x.npy")
    np.save(path, array)
    return path


def check_refusals(args, folder):
    x = np.zeros((4, 1, 8, 8), np.float32)
    nan = x.copy()
    nan[2, 0, 3, 3] = np.nan
    cases = {
        "no such input": ({"x": x, "z": x}, "no such input"),
        "no array": ({}, "has no array for the input"),
        "type": ({"x": x.astype(np.float64)}, "f64[4,1,8,8]"),
        "shape": ({"x": x[:, :, :7]}, "f32[4,1,7,8]"),
        "rank": ({"x": x[0]}, "f32[1,8,8]"),
        "no multiple": ({"x": x[:3]}, "multiple"),
        "nothing": ({"x": x[:0]}, "multiple"),
        "nan": ({"x": nan}, "element 155 is infinite or no number"),
    }
    fixed = [digits.MODEL, "--dim", "N=2", "--quantize-activations"]
    for name, (arrays, text) in cases.items():
        data = os.path.join(folder, "bad.npz")
        np.savez(data, **arrays)
        refused(args, name, 2, text, *fixed, data)
    data = os.path.join(folder, "ok.npz")
    np.savez_compressed(data, x=x)
    refused(args, "compressed", 3, "compressed", *fixed, data)
    np.savez(data, x=x)
    refused(args, "no npz", 2, ".npz", *fixed, digits.MODEL)
    refused(args, "an npy", 2, "numpy.savez", *fixed, npy(folder, x))
    refused(args, "the model's name", 1, f"{digits.MODEL}: --quantize", *fixed, data, "--quantize", "int8:nowhere")
    refused(args, "no file", 5, "nowhere.npz", *fixed, os.path.join(folder, "nowhere.npz"))
    refused(args, "precision", 1, "--precision", *fixed, data, "--precision", "bf16")
    refused(args, "training", 1, "--train", *fixed, data, "--train")
    refused(args, "alone", 1, "--quantize-activations", digits.MODEL, "--dim", "N=2",
            "--save-quantized", os.path.join(folder, "q.onnx"))  # fmt: skip
    refused(args, "method alone", 1, "--quantize-activations", digits.MODEL, "--dim", "N=2",
            "--calibration", "entropy")  # fmt: skip
    refused(args, "shared", 1, "--shared", digits.MODEL, digits.MODEL, "--shared",
            "--quantize-activations", data)  # fmt: skip
    for sizes in ("N=1,2", "N=1..2"):
        refused(args, "sizes", 1, "a model of fixed sizes", digits.MODEL, "--dim", sizes, "--quantize-activations", data)
    good(args, "plan", *fixed, data)  # the default target
    again = os.path.join(folder, "again.onnx")
    good(args, "plan", *fixed, data, "--target", args.target, "--save-quantized", again)
    refused(args, "twice", 3, "is quantized already", again, "--quantize-activations", data)
    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    model = os.path.join(folder, "relu.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              model)  # fmt: skip
    np.savez(data, x=np.zeros(4, np.float32))
    refused(args, "nothing to do", 3, "nothing would become integers", model,
            "--quantize-activations", data)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    args = parser.parse_args()
    try:
        for check in (check_digits, check_transformer, check_refusals):
            with tempfile.TemporaryDirectory(prefix="ullage-quantize-") as folder:
                check(args, folder)
    except Failed as reason:
        print(f"FAIL {reason}")
        sys.exit(6)
    print("ok")


if __name__ == "__main__":
    main()
