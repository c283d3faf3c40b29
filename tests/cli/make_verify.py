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
    # One output depends on 16 bits, the other does not; its data is wrong by 0.2 %.
    "mixed": """g (float[8] x) => (float[8] y, float[8] z) {
  a = Cast <to = 10> (x)
  b = Exp (a)
  y = Cast <to = 1> (b)
  z = Exp (x)
}""",
    "number": "g (float[] x) => (float[] y) { y = Relu (x) }",
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
    # One branch can have the shape; of the other nothing is left but that it must not be taken.
    "branches": """g (float[2,64] x, bool c) => (float[2,64] y) {
  y = If (c) <then_branch = fits () => (float[2,64] a) { a = MatMul (x, w) },
              else_branch = fails () => (float[2,64] b) { t = Transpose (x)  b = MatMul (t, w) }>
}""",
    # What inputs are is read from their names and uses: the table has 3 rows, the sequence 5 steps, and a mask
    # of zeros, or indices at random, would leave nothing, or be out of range.
    "named": """g (int64[2,5] input_ids, int64[2,5] attention_mask, int32[2] lengths, float[5,2,4] x)
  => (float[2,5,4] y, float[5,1,2,3] h) {
  rows = Gather <axis = 0> (table, input_ids)
  mask = Cast <to = 1> (attention_mask)
  axes = Constant <value = int64[1] {2}> ()
  wide = Unsqueeze (mask, axes)
  y = Mul (rows, wide)
  h = GRU <hidden_size = 3> (x, kernel, recurrent, , lengths)
}""",
    # All zero on normal numbers, as few of which are above 5, and not on larger ones.
    "dead": """g (float[4,8] x) => (float[4,8] y) {
  far = Constant <value = float {-6.0}> ()
  a = Add (x, far)
  y = Relu (a)
}""",
    "doubled": "g (float[400,400] x) => (float[400,400] y) { y = Add (x, x) }",
    "never": "g (float[4,8] x) => (float[4,8] y) { z = Constant <value = float {0.0}> ()  y = Mul (x, z) }",
    # Terms that cancel, as logits do: the outputs depend on the last bits of the products.
    "cancels": """g (float[64,256] x) => (float[64,16] y) {
  a = MatMul (x, big)
  b = MatMul (x, bigger)
  c = Sub (a, b)
  y = Sigmoid (c)
}""",
    # Squares of a picture's numbers, which go to 255, do not fit into fp16.
    "picture": """g (float[1,3,8,8] x) => (float[1,3,8,8] y) {
  a = Mul (x, x)
  b = Mul (a, a)
  c = Sqrt (b)
  y = Sqrt (c)
}""",
    "lists": """g (seq(float[N]) s) => (seq(float[N]) t, float[N] y) {
  zero = Constant <value = int64 {0}> ()
  y = SequenceAt (s, zero)
  t = Identity (s)
}""",
    # Sequences between tensors, whose numbers shift: the inputs of the program are x, s[0], s[1], z.
    "between": """g (float[2] x, seq(float[N]) s, float[3] z) => (float[2] y, seq(float[N]) t, float[3] w) {
  one = Constant <value = int64 {1}> ()
  a = SequenceAt (s, one)
  y = Add (x, a)
  t = SequenceInsert (s, x, one)
  w = Add (z, z)
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
    settings = onnxruntime.SessionOptions() # integer products saturate where a processor has no better ones
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    y = onnxruntime.InferenceSession(model.SerializeToString(), settings).run(None, {"x": x})[0]
    y -= numpy.sign(y) * numpy.float32(3 * 0.05)
    folder = os.path.join(sys.argv[1], "off_data")
    os.mkdir(folder)
    onnx.save_tensor(numpy_helper.from_array(x, "x"), os.path.join(folder, "input_0.pb"))
    onnx.save_tensor(numpy_helper.from_array(y, "y"), os.path.join(folder, "output_0.pb"))


def save_data(name, **tensors):
    """A folder of recorded data: inputs and outputs, each under its own name."""
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    for kind, arrays in tensors.items():
        for number, (tensor, values) in enumerate(arrays.items()):
            onnx.save_tensor(numpy_helper.from_array(values, tensor), os.path.join(folder, f"{kind}_{number}.pb"))


def record_near():
    """Data for doubled.onnx: an element next to zero that is off by less than sums in another order differ by; one
    of many that is far away, which the norm alone would forgive."""
    x = numpy.random.default_rng(1).standard_normal((400, 400)).astype("float32")
    x[0, 0] = 0
    for name, off in (("near_data", 1e-5), ("far_data", 5e-2)):
        y = x + x
        y[0, 0] = off
        save_data(name, input={"x": x}, output={"y": y})


def save_sequences():
    """Data for between.onnx and scores.onnx, a file for a sequence: right; with other numbers, a tensor too few, or
    another message; and with maps."""
    x, pair, more, z = (numpy.float32(values) for values in ([1, 2], [3, 4], [5, 6, 7], [8, 9, 10]))
    right = [more, x, pair]
    cases = {"seq_data": (right, "t"), "seq_unnamed": (right, ""), "seq_wrong": ([more, x, pair + 1], "t"),
             "seq_few": ([more, x], "t"), "seq_tensor": (x, "t")}
    for folder, (t, name) in cases.items():
        names = {key: key if name else "" for key in "xszyw"}
        t = numpy_helper.from_list(t, name) if isinstance(t, list) else numpy_helper.from_array(t, name)
        files = {"input_0": numpy_helper.from_array(x, names["x"]),
                 "input_1": numpy_helper.from_list([more, pair], names["s"]),
                 "input_2": numpy_helper.from_array(z, names["z"]),
                 "output_0": numpy_helper.from_array(x + pair, names["y"]), "output_1": t,
                 "output_2": numpy_helper.from_array(z + z, names["w"])}
        save_files(folder, files)
    maps = numpy_helper.from_list([{0: 0.5, 1: 0.25}], "named")
    save_files("map_data", {"input_0": numpy_helper.from_array(numpy.zeros((1, 4), "float32"), "x"),
                            "output_0": numpy_helper.from_array(numpy.int64([2]), "label"), "output_1": maps})


def save_files(name, files):
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    for file, message in files.items():
        with open(os.path.join(folder, file + ".pb"), "wb") as f:
            f.write(message.SerializeToString())


def make_scores():
    """A classifier as scikit-learn's exporter writes it."""
    nodes = [onnx.helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
                                   classlabels_ints=[0, 1, 2], coefficients=[0.1 * k for k in range(12)],
                                   intercepts=[0.1, 0.2, 0.3]),
             onnx.helper.make_node("ZipMap", ["scores"], ["named"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])]
    named = onnx.helper.make_value_info("named", onnx.helper.make_sequence_type_proto(
        onnx.helper.make_map_type_proto(onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(1, None))))
    graph = onnx.helper.make_graph(nodes, "g", [onnx.helper.make_tensor_value_info("x", 1, ["N", 4])],
                                   [onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["N"]), named])
    sets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=sets, ir_version=10), os.path.join(sys.argv[1], "scores.onnx"))


def main():
    rng = numpy.random.default_rng(0)
    weights = {"half": rng.standard_normal((256, 256)).astype("float16"),
               "steps": rng.uniform(-0.5, 0.5, (64, 64)).astype("float32"),
               "stored": rng.standard_normal((256, 256)).astype("float16"),
               "fine": rng.standard_normal((512, 64)).astype("float32"),
               "branches": rng.standard_normal((64, 64)).astype("float32")}
    big = (1000 * rng.standard_normal((256, 16))).astype("float32")
    more = {"named": {"table": rng.standard_normal((3, 4)), "kernel": rng.standard_normal((1, 9, 4)),
                      "recurrent": rng.standard_normal((1, 9, 3))},
            "cancels": {"big": big, "bigger": big + rng.standard_normal((256, 16)) / 16}}
    record_near()
    make_scores()
    save_sequences()
    for name, text in MODELS.items():
        model = parser.parse_model(HEAD + text)
        model.graph.initializer.extend(numpy_helper.from_array(array.astype("float32"), key)
                                       for key, array in more.get(name, {}).items())
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
                        "taken": numpy.array(True), "other": numpy.array(False), "three": numpy.float32([1, 2, 3])}.items():
        numpy.save(os.path.join(sys.argv[1], name + ".npy"), value)
    numpy.save(os.path.join(sys.argv[1], "shape.npy"), numpy.array([3, 4], "int64"))
    save_data("shaped_data", input={"x": x[:1].repeat(12).reshape(2, 6), "shape": numpy.array([3, 4], "int64")},
              output={"y": x[:1].repeat(12).reshape(3, 4)})


main()
