#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The digits network, quantized by onnxruntime's own quantizers, keeps its accuracy.

    digits_quantized.py ULLAGE [--target c]

Static quantization (QDQ with uint8 and with int8 activations, and the operators QLinear*) is
calibrated with pictures of the training set; dynamic needs none. Each compiled program classifies
the 359 pictures that training never saw, and may get at most 0.3 points fewer right than the
network in float32 does: one picture.
Exit: 0 kept, 6 not, 77 no Python packages.
"""

import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "models"))

import numpy as np  # noqa: E402
import quantized  # noqa: E402

FOLDER = os.path.join(ROOT, "models", "digits")
MODEL = os.path.join(FOLDER, "digits.onnx")
POINTS = 0.3
CALIBRATION_PICTURES, BATCH = 256, 64

# name -> (method, its options)
FORMS = {
    "float": (None, {}),
    "qdq_u8": ("qdq", {"channels": True}),
    "qdq_i8": ("qdq", {"channels": True, "activations": "int8"}),
    "qdq_u8_tensor": ("qdq", {"channels": False}),
    "qoperator": ("qoperator", {"channels": True}),
    "dynamic": ("dynamic", {}),
}


def pictures():
    """Calibration: real pictures, in batches by the name of the network's input."""
    x = np.load(os.path.join(FOLDER, "train_x.npy"))[:CALIBRATION_PICTURES]
    return [{"x": x[i : i + BATCH]} for i in range(0, len(x), BATCH)]


def accuracy(ullage, target, model, folder):
    """Per cent of the held-out pictures that a compiled program gets right."""
    with np.load(os.path.join(FOLDER, "heldout.npz")) as heldout:
        x, y = heldout["x"], heldout["y"]
    program, data = os.path.join(folder, "program"), os.path.join(folder, "x.npy")
    result = os.path.join(folder, "y.npy")
    np.save(data, x)
    command = [ullage, "compile", model, "-o", program, "--target", target, "--dim", f"N={len(x)}"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    names = quantized.onnx.load(model).graph
    subprocess.run([program, "--input", f"{names.input[0].name}={data}",
                    "--output", f"{names.output[0].name}={result}"], check=True)  # fmt: skip
    return 100.0 * float((np.load(result).reshape(len(x), -1).argmax(1) == y).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    args = parser.parse_args()
    failed, whole = 0, None
    for name, (method, options) in FORMS.items():
        with tempfile.TemporaryDirectory(prefix="ullage-digits-") as folder:
            model = MODEL
            if method:
                model = os.path.join(folder, name + ".onnx")
                quantized.quantize(MODEL, model, method, options, pictures())
            share = accuracy(args.ullage, args.target, model, folder)
        whole = share if whole is None else whole
        bad = share < whole - POINTS
        failed += bad
        print(f"{name:14} {share:6.2f} %{'  FAIL' if bad else ''}", flush=True)
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
