#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models for tests/cli/verify.sh, whose reference is onnxruntime: make_verify.py FOLDER."""

import os
import sys

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper, parser

HEAD = '<ir_version: 10, opset_import: ["": 21]>'

MODELS = {
    "shaped": "g (float[2,6] x, int64[2] shape) => (float[N,M] y) { y = Reshape (x, shape) }",
    "half": """g (float16[64,256] x) => (float16[64,256] y) {
  a = MatMul (x, w)
  b = Softmax (a)
  y = MatMul (b, w)
}""",
    "stored": """g (float16[64,256] x) => (float[64,256] y) {
  a = Cast <to = 1> (x)
  b = Cast <to = 1> (w)
  y = MatMul (a, b)
}""",
    # One output hangs on 16 bits, the other does not; its data is wrong by 0.2 %.
    "mixed": """g (float[8] x) => (float[8] y, float[8] z) {
  a = Cast <to = 10> (x)
  b = Exp (a)
  y = Cast <to = 1> (b)
  z = Exp (x)
}""",
    "bfloat": "g (bfloat16[8] x) => (bfloat16[8] y) { y = Add (x, x) }",
    # Integers of 8 bits between two products: onnxruntime's optimisations make integer products of
    # them, which saturate where the file's floats do not.
    "steps": """g (float[16,64] x) => (float[16,64] y) {
  step = Constant <value = float {0.05}> ()
  zero = Constant <value = uint8 {128}> ()
  small = Constant <value = float {0.003}> ()
  none = Constant <value = int8 {0}> ()
  a = QuantizeLinear (x, step, zero)
  b = DequantizeLinear (a, step, zero)
  u = QuantizeLinear (w, small, none)
  v = DequantizeLinear (u, small, none)
  c = MatMul (b, v)
  d = QuantizeLinear (c, step, zero)
  y = DequantizeLinear (d, step, zero)
}""",
    # One branch can have the shape, of the other nothing is left but that it must not be taken.
    "branches": """g (float[2,64] x, bool c) => (float[2,64] y) {
  y = If (c) <then_branch = fits () => (float[2,64] a) { a = MatMul (x, w) },
              else_branch = fails () => (float[2,64] b) { t = Transpose (x)  b = MatMul (t, w) }>
}""",
    # One branch can have the shape; of the other nothing is left but that it must not be taken.
    "branches": """g (float[2,64] x, bool c) => (float[2,64] y) {
  y = If (c) <then_branch = fits () => (float[2,64] a) { a = MatMul (x, w) },
              else_branch = fails () => (float[2,64] b) { t = Transpose (x)  b = MatMul (t, w) }>
}""",
    # Steps as small as what sums in two orders differ by, now and then.
    "fine": """g (float[64,512] x) => (uint16[64,64] y) {
  step = Constant <value = float {0.003}> ()
  zero = Constant <value = uint16 {32768}> ()
  c = MatMul (x, w)
  y = QuantizeLinear (c, step, zero)
}""",
}


def record_off(model):
    """Data of `steps` in off_data, of which outputs are three steps away."""
    x = numpy.random.default_rng(1).uniform(-1, 1, (16, 64)).astype("float32")
    y = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    y -= numpy.sign(y) * numpy.float32(3 * 0.05)
    folder = os.path.join(sys.argv[1], "off_data")
    os.mkdir(folder)
    onnx.save_tensor(numpy_helper.from_array(x, "x"), os.path.join(folder, "input_0.pb"))
    onnx.save_tensor(numpy_helper.from_array(y, "y"), os.path.join(folder, "output_0.pb"))


def main():
    rng = numpy.random.default_rng(0)
    weights = {"half": rng.standard_normal((256, 256)).astype("float16"),
               "steps": rng.uniform(-0.5, 0.5, (64, 64)).astype("float32"),
               "stored": rng.standard_normal((256, 256)).astype("float16"),
               "fine": rng.standard_normal((512, 64)).astype("float32"),
               "branches": rng.standard_normal((64, 64)).astype("float32")}
    for name, text in MODELS.items():
        model = parser.parse_model(HEAD + text)
        if name in weights:
            model.graph.initializer.append(numpy_helper.from_array(weights[name], "w"))
        onnx.save(model, os.path.join(sys.argv[1], name + ".onnx"))
        if name == "steps":
            os.mkdir(os.path.join(sys.argv[1], "beside"))
            record_off(model)
            onnx.save(model, os.path.join(sys.argv[1], "beside", "steps.onnx"), size_threshold=0,
                      save_as_external_data=True, location="steps.bin")
    x = rng.standard_normal(8).astype("float32")
    data = {"input_0": ("x", x), "output_0": ("y", numpy.exp(x) * numpy.float32(1.002)),
            "output_1": ("z", numpy.exp(x) * numpy.float32(1.002))}
    os.mkdir(os.path.join(sys.argv[1], "mixed_data"))
    for name, (tensor, values) in data.items():
        onnx.save_tensor(numpy_helper.from_array(values, tensor),
                         os.path.join(sys.argv[1], "mixed_data", name + ".pb"))
    for name, value in {"x": rng.standard_normal((2, 64)).astype("float32"),
                        "taken": numpy.array(True), "other": numpy.array(False)}.items():
        numpy.save(os.path.join(sys.argv[1], name + ".npy"), value)
    numpy.save(os.path.join(sys.argv[1], "shape.npy"), numpy.array([3, 4], "int64"))


main()
