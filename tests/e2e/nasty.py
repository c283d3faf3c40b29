#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models made to break a compiler that fuses, aliases and reuses bytes.

    nasty.py --list
    nasty.py --make DIR [NAME...]             DIR/NAME/model.onnx and DIR/NAME/test_data_set_0
    nasty.py --run ULLAGE [--target c] [--full] [NAME...]
                                              makes each, compiles it, compares with the reference
    nasty.py --run ULLAGE --random 100 [--seed 1]   the same with three times as many random graphs
    nasty.py --plans 100 --run ULLAGE         graphs with dead branches are planned, with passes left out

The reference is onnxruntime, else ONNX's own evaluator where that has no such operator or type.
--run compiles, runs on the data, runs again with --guard, and demands the same bytes from
--pack none and from no passes; --full adds all that tests/e2e/model.sh checks.
Exit: 0 ok, 1 a model failed, 77 a Python package is missing.
"""

import argparse
import concurrent.futures
import functools
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper, parser
    from onnx.reference import ReferenceEvaluator
except ImportError as error:
    print(f"nasty.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

from part import part  # noqa: E402

MODELS = {}


class Case:
    def __init__(self, model, inputs=None, tolerance=1e-5, outputs=None):
        self.model = model
        self.inputs = inputs or {}
        self.tolerance = tolerance
        self.outputs = outputs  # instead of the reference's


def text(name, body, inputs=None, opset=17, tolerance=1e-5, head="", outputs=None):
    """A model in ONNX's text form; `inputs` replaces random numbers, `outputs` the reference."""
    source = f'<ir_version: 8, opset_import: ["": {opset}{head}]> {body}'
    assert name not in MODELS, name
    MODELS[name] = lambda: Case(parser.parse_model(source), inputs, tolerance, outputs)


def built(function):
    assert function.__name__ not in MODELS, function.__name__
    MODELS[function.__name__] = function
    return function


# ---- Groups: what is used inside and outside of them ----

text("diamond_residual", """
g (float[2,4,8,8] x, float[4,4,3,3] w, float[4] b) => (float[2,4,8,8] y) {
  c = Conv<pads=[1,1,1,1]>(x, w, b)
  r = Relu(c)
  s = Sigmoid(c)
  m = Mul(r, s)
  a = Add(m, x)
  d = Conv<pads=[1,1,1,1]>(a, w, b)
  e = Add(d, a)
  f = Add(e, c)
  y = Sub(f, r)
}""", tolerance=1e-4)
text("residual_of_itself", """
g (float[1,4,6,6] x, float[4,4,1,1] w) => (float[1,4,6,6] y) {
  c = Conv(x, w)
  a = Add(c, c)
  d = Conv(a, w)
  e = Add(d, a)
  y = Mul(e, e)
}""")
text("conv_reads_its_residual", """
g (float[1,4,6,6] x, float[4,4,3,3] w) => (float[1,4,6,6] y) {
  h = Relu(x)
  c = Conv<pads=[1,1,1,1]>(h, w)
  y = Add(c, h)
}""")
text("matmul_reads_its_residual", """
g (float[6,6] x) => (float[6,6] y) {
  h = Relu(x)
  t = Transpose<perm=[1,0]>(h)
  c = MatMul(h, t)
  d = Add(c, h)
  y = Add(d, t)
}""")
text("gemm_all_the_same", """
g (float[5,5] x) => (float[5,5] y) {
  h = Tanh(x)
  y = Gemm<transA=1, alpha=0.5, beta=2.0>(h, h, h)
}""")
text("multi_output_maps", """
g (float[3,8] x) => (float[3,8] p, float[3,8] q, float[3,8] r, float[3,8] s) {
  h = Exp(x)
  p = Mul(h, x)
  q = Sub(p, h)
  r = Div(q, h)
  s = Max(p, q, r, x)
}""")
text("outputs_of_outputs", """
g (float[4,4] x) => (float[4,4] a, float[4,4] b, float[4,4] c, float[4,4] d) {
  a = Relu(x)
  b = Neg(a)
  c = Identity(b)
  d = Transpose(b)
}""")
text("broadcast_in_place", """
g (float[1,4] x, float[4,1] z) => (float[4,4] y, float[1,4] w) {
  a = Relu(x)
  b = Relu(z)
  s = Add(a, b)
  t = Sub(s, a)
  u = Mul(b, t)
  y = Add(u, a)
  w = Add(a, a)
}""")
text("square_broadcast", """
g (float[4,4] x, float[4] v) => (float[4,4] y) {
  a = Relu(x)
  t = Transpose(a)
  s = Add(a, t)
  u = Add(s, v)
  k = Transpose(u)
  y = Sub(k, u)
}""")
text("in_place_of_a_view", """
g (float[2,6] x) => (float[6,2] y, float[12] z) {
  a = Exp(x)
  t = Transpose(a)
  b = Neg(t)
  s = Constant<value_ints=[12]>()
  f = Reshape(a, s)
  y = Add(b, t)
  z = Mul(f, f)
}""")
text("output_twice", """
g (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] y) {
  y = Relu(x)
  z = Neg(y)
}""")
text("input_is_output", """
g (float[2,3] x) => (float[2,3] x) {
}""")
text("scales_below_zero", """
g (float[2,4] x, float[3,8] z) => (float[2,3] a, float[3,8] b, float[3,8] c, float[2,4,4] d) {
  w = Constant<value=int8[4,3] {127, -128, 3, -4, 5, 6, -7, 8, 9, 10, -11, 12}>()
  s = Constant<value=float[4] {0.1, -0.2, 0.0, 0.1}>()
  wf = DequantizeLinear<axis=0>(w, s)
  a = MatMul(x, wf)
  t = Constant<value=float {-0.05}>()
  zero = Constant<value=uint8 {130}>()
  q = QuantizeLinear(z, t, zero)
  b = DequantizeLinear(q, t, zero)
  r = Relu(b)
  u = Constant<value=float {0.04}>()
  p = QuantizeLinear(r, u, zero)
  c = DequantizeLinear(p, u, zero)
  v = Constant<value=int8[4,4,1,1] {1, -2, 3, 4, 5, -6, 7, 8, 9, 10, -11, 12, 13, 14, 15, -128}>()
  k = Constant<value=float[4] {-0.1, 0.2, -0.01, 0.03}>()
  o = Constant<value=int8[4] {0, 0, 0, 0}>()
  vf = DequantizeLinear<axis=0>(v, k, o)
  xq = QuantizeLinear(x, u, zero)
  xf = DequantizeLinear(xq, u, zero)
  four = Constant<value_ints=[2,4,1,1]>()
  image = Reshape(xf, four)
  e = Conv(image, vf)
  f = QuantizeLinear(e, t, zero)
  g = DequantizeLinear(f, t, zero)
  turn = Constant<value_ints=[2,4,1]>()
  h = Reshape(g, turn)
  wide = Constant<value_ints=[2,4,4]>()
  d = Expand(h, wide)
}""", opset=21, tolerance=1e-4)
text("stft_of_rank_2", """
g (float[2,64] x) => (float[2,4,9,2] y) {
  step = Constant<value=int64 {16}>()
  length = Constant<value=int64 {16}>()
  y = STFT(x, step, , length)
}""", tolerance=1e-4)
text("extractor_behind_scan", """
g (float[3,2] x, float[5,2] c) => (int64[3,2] y) {
  n, d = Scan<num_scan_inputs=1, body = b (float[3,2] s, float[2] e) => (float[3,2] so, float[3] o) {
    so = Identity(s)
    f = Sub(s, e)
    o = ReduceSumSquare<axes=[1], keepdims=0>(f)
  }>(x, c)
  t = Transpose(d)
  k = Constant<value_ints=[2]>()
  v, i = TopK<largest=0>(t, k)
  classes = Constant<value=int64[5] {2, 0, 1, 1, 2}>()
  flat = Flatten(i)
  z = ai.onnx.ml.ArrayFeatureExtractor(classes, flat)
  shape = Constant<value_ints=[3,2]>()
  y = Reshape(z, shape)
}""", head=', "ai.onnx.ml": 1')
text("chosen_by_constants", """
g (float[2,4] x) => (float[2,4] a, float[3,2] b, float[2,2] c, float[] d) {
  s = Shape(x)
  ones = ConstantOfShape<value=float[1] {1.0}>(s)
  at = NonZero(ones)
  turned = Transpose(at)
  flat = GatherND(x, turned)
  a = Reshape(flat, s)
  m = Constant<value=int32[4] {1, 0, 1, 1}>()
  mask = Cast<to=9>(m)
  t = Transpose(x)
  b = Compress<axis=0>(t, mask)
  u, first, inverse, times = Unique(m)
  counts = Cast<to=1>(times)
  n = NonZero(u)
  two = Constant<value_ints=[0,3]>()
  picked = Gather<axis=1>(x, two)
  scale = ReduceSum(counts)
  c = Mul(picked, scale)
  length = Size(n)
  low = Constant<value=int64 {0}>()
  step = Constant<value=int64 {1}>()
  range = Range(low, length, step)
  f = Cast<to=1>(range)
  total = ReduceSum<keepdims=0>(x)
  r = Add(f, total)
  d = ReduceSum<keepdims=0>(r)
}""")
text("softmax_twice", """
g (float[3,7] x) => (float[3,7] y) {
  a = Softmax<axis=1>(x)
  b = Softmax<axis=0>(a)
  c = Add(a, b)
  d = Softmax<axis=-1>(c)
  y = Sub(d, x)
}""")
text("layernorm_by_hand", """
g (float[2,3,8] x, float[8] w, float[8] b) => (float[2,3,8] y) {
  m = ReduceMean<axes=[-1]>(x)
  d = Sub(x, m)
  q = Mul(d, d)
  v = ReduceMean<axes=[-1]>(q)
  e = Constant<value_float=0.00001>()
  ve = Add(v, e)
  s = Sqrt(ve)
  n = Div(d, s)
  nw = Mul(n, w)
  nb = Add(nw, b)
  y = Add(nb, x)
}""")
text("reductions_of_one_value", """
g (float[4,5,6] x) => (float[4,1,6] a, float[4,5] b, float c, float[5] d, int64[4,6] e) {
  r = Abs(x)
  a = ReduceMax<axes=[1]>(r)
  b = ReduceMean<axes=[2], keepdims=0>(r)
  c = ReduceL2<keepdims=0>(r)
  d = ReduceProd<axes=[0,2], keepdims=0>(r)
  e = ArgMax<axis=1, keepdims=0, select_last_index=1>(r)
}""", tolerance=1e-4)
text("split_of_split", """
g (float[6,4] x) => (float[2,2] p, float[6,4] y) {
  r = Relu(x)
  a, b, c = Split<axis=0>(r)
  d, e = Split<axis=1>(b)
  f, h = Split<axis=0>(e)
  p = Concat<axis=0>(h, f)
  y = Concat<axis=0>(c, a, b)
}""", opset=11)

# ---- Concat ----

text("concat_same_twice", """
g (float[2,3] x) => (float[4,3] y, float[2,6] z) {
  a = Exp(x)
  y = Concat<axis=0>(a, a)
  z = Concat<axis=1>(a, a)
}""")
text("concat_of_its_slices", """
g (float[4,4] x) => (float[4,4] y) {
  a = Exp(x)
  i0 = Constant<value_ints=[0]>()
  i2 = Constant<value_ints=[2]>()
  i4 = Constant<value_ints=[4]>()
  lo = Slice(a, i0, i2, i0)
  hi = Slice(a, i2, i4, i0)
  y = Concat<axis=0>(hi, lo)
}""")
text("split_concat_same_order", """
g (float[4,6] x) => (float[4,6] y) {
  a = Exp(x)
  p, q, r = Split<axis=1>(a)
  c = Concat<axis=1>(p, q, r)
  y = Relu(c)
}""", opset=11)
text("split_concat_swapped", """
g (float[4,6] x) => (float[4,6] y, float[4,2] z) {
  a = Exp(x)
  p, q, r = Split<axis=1>(a)
  c = Concat<axis=1>(r, p, q)
  z = Add(q, r)
  y = Sub(c, a)
}""", opset=11)
text("concat_in_two_concats", """
g (float[2,3] x) => (float[6,3] y, float[4,3] z, float[2,3] w) {
  a = Exp(x)
  b = Neg(x)
  z = Concat<axis=0>(a, b)
  y = Concat<axis=0>(b, a, b)
  w = Relu(b)
}""")
text("concat_nested", """
g (float[1,2,3,3] x) => (float[1,14,3,3] y) {
  a = Exp(x)
  c1 = Concat<axis=1>(x, a)
  b = Relu(c1)
  c2 = Concat<axis=1>(c1, b)
  d = Tanh(c2)
  e = Add(d, c2)
  f, h = Split<axis=1>(e)
  i = Concat<axis=1>(c2, a, f)
  y = Neg(i)
}""", opset=11)
text("concat_with_input_and_weight", """
g (float[2,2] x) => (float[6,2] y)
<float[2,2] w = {1.0, 2.0, 3.0, 4.0}> {
  a = Neg(x)
  y = Concat<axis=0>(w, x, a)
}""")
text("concat_zero_operand", """
g (float[2,2] x, float[0,2] e) => (float[4,2] y) {
  a = Neg(x)
  b = Exp(e)
  y = Concat<axis=0>(b, a, e, x)
}""")
text("concat_then_more_in_place", """
g (float[1,2,4,4] x, float[2,2,3,3] w) => (float[1,4,4,4] y) {
  a = Conv<pads=[1,1,1,1]>(x, w)
  b = Conv<pads=[1,1,1,1]>(a, w)
  c = Concat<axis=1>(a, b)
  d = Relu(c)
  y = Add(d, c)
}""")
text("concat_of_operand_and_its_neg", """
g (float[3,4] x) => (float[6,4] y) {
  a = Exp(x)
  b = Neg(a)
  c = Concat<axis=0>(a, b)
  d = Concat<axis=0>(b, a)
  y = Sub(c, d)
}""")
text("concat_single", """
g (float[3,4] x) => (float[3,4] y) { a = Concat<axis=1>(x) y = Concat<axis=-2>(a) }""")
text("concat_of_transposed", """
g (float[3,4] x) => (float[4,6] y, float[4,3] z) {
  a = Exp(x)
  t = Transpose(a)
  y = Concat<axis=1>(t, t)
  z = Neg(t)
}""")
text("concat_output_and_operand_output", """
g (float[2,3] x) => (float[2,3] a, float[4,3] y) {
  a = Exp(x)
  y = Concat<axis=0>(a, x)
}""")
text("concat_f16_odd", """
g (float16[1,3] x) => (float16[1,7] y) {
  a = Neg(x)
  b = Exp(x)
  c, d = Split<axis=1>(b, s)
  y = Concat<axis=1>(a, d, b, c)
}""".replace("=> (float16[1,7] y)", "=> (float16[1,9] y) <int64[2] s = {1, 2}>"), tolerance=1e-2)

# ---- Names of outputs, inputs and weights ----

text("output_is_input", "g (float[3] x) => (float[3] x, float[3] y) { y = Neg(x) }")
text("output_is_weight", """
g (float[3] x) => (float[3] w, float[3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }""")
text("output_identity_of_weight", """
g (float[3] x) => (float[3] v, float[3] y) <float[3] w = {1.0, 2.0, 3.0}> {
  v = Identity(w)
  y = Add(x, v)
}""")
text("output_view_of_input", """
g (float[2,3] x) => (float[3,2] y, float[1,3] z) {
  i = Constant<value_ints=[1]>()
  e = Constant<value_ints=[2]>()
  a = Constant<value_ints=[0]>()
  y = Transpose(x)
  z = Slice(x, i, e, a)
}""")
text("all_outputs_one_value", """
g (float[2,2] x) => (float[2,2] a, float[2,2] b, float[4] c) {
  h = Exp(x)
  s = Constant<value_ints=[4]>()
  a = Identity(h)
  b = Identity(h)
  c = Reshape(h, s)
}""")
text("unused_input", "g (float[3] x, float[2] unused) => (float[3] y) { y = Neg(x) }")
text("nothing_but_a_constant", """
g () => (float[2,2] y) <float[2] a = {1.0, 2.0}, float[2,1] b = {3.0, 4.0}> { y = Mul(a, b) }""")
text("output_made_early", """
g (float[64] x) => (float[64] early, float[64] late) {
  early = Neg(x)
  a = Exp(x)
  b = Relu(a)
  c = Sigmoid(early)
  d = Add(b, c)
  late = Tanh(d)
}""")


def rename(model, names):
    for node in model.graph.node:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                field[i] = names.get(name, name)
    for field in (model.graph.input, model.graph.output, model.graph.initializer):
        for info in field:
            info.name = names.get(info.name, info.name)
    return model


ODD_NAMES = [
    'quote " and \' both', "new\nline", "per%cent %s %n %d", "back\\slash\\", "*/ int main(void) {}",
    "/* comment", "what??/", "??=define X", "//", "\ttab", "\x01\x7f", "\u00fc\u4f60\u597d\U0001f600",
    "a=b=c", "-", "--help", "../../etc/passwd", "/dev/null", "CON", "x.npy", "$(touch hacked)",
    "`id`", "${HOME}", "int", "main", "__LINE__", "x\\", "\\", "\\n", "\"", "'", " ", "x" * 300,
    "R\"(", "%", "%%", "0", "-1", "a\rb", "<script>", "&amp;", "a,b", "[0]", "{}", "#", ".", "..",
]  # fmt: skip


def odd_names():
    nodes = []
    value = "in"
    for i, name in enumerate(ODD_NAMES):
        op = ["Relu", "Neg", "Tanh", "Softmax", "Transpose", "CumSum"][i % 6]
        inputs = [value] if op != "CumSum" else [value, "zero"]
        nodes.append(helper.make_node(op, inputs, [name], name=name))
        value = name
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    graph = helper.make_graph(
        nodes, ODD_NAMES[4],
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [3, 3])], [zero])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = '"*/\n%s\\'
    return Case(model)


MODELS["odd_names_of_values"] = odd_names


def odd_edges(first, second, third):
    """Input, weight and output with odd names."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }""")
    return lambda: Case(rename(model, {"x": first, "w": second, "y": third}))


for number, trio in enumerate(zip(ODD_NAMES[0::3], ODD_NAMES[1::3], ODD_NAMES[2::3])):
    MODELS[f"odd_edges_{number}"] = odd_edges(*trio)


@built
def empty_names():
    """Nodes without names, and names of nodes that occur twice."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="same"),
        helper.make_node("Exp", ["b"], ["c"], name="same"),
        helper.make_node("MatMul", ["c", "c"], ["y"], name="same"),
        helper.make_node("Dropout", ["y"], ["z", ""], name="x"),
    ]
    graph = helper.make_graph(
        nodes, "", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 3])])  # fmt: skip
    return Case(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


# ---- Views ----

text("transposes_into_matmul", """
g (float[2,3,4] x, float[2,3,5] z) => (float[2,4,5] y, float[2,5,4] w) {
  a = Exp(x)
  b = Exp(z)
  s = Transpose<perm=[0,2,1]>(a)
  t = Transpose<perm=[2,1,0]>(b)
  u = Transpose<perm=[2,1,0]>(t)
  y = MatMul(s, u)
  w = Transpose<perm=[0,2,1]>(y)
}""")
text("matmul_of_views_of_one", """
g (float[4,3,2,5] x) => (float[4,2,3,3] y) {
  a = Exp(x)
  q = Transpose<perm=[0,2,1,3]>(a)
  k = Transpose<perm=[0,2,3,1]>(a)
  y = MatMul(q, k)
}""")
SLICES = """
  m1 = Constant<value_ints=[-1]>()
  big = Constant<value_ints=[-9223372036854775807]>()
  last = Constant<value_ints=[-2]>()
  st = Constant<value_ints=[-2]>()
"""
text("negative_step_conv", f"""
g (float[1,2,5,9] x, float[3,2,3,3] w) => (float[1,3,3,3] y) {{ {SLICES}
  a = Neg(x)
  ax = Constant<value_ints=[3]>()
  r = Slice(a, m1, big, ax, st)
  y = Conv(r, w)
}}""")
text("negative_step_softmax", f"""
g (float[3,8] x) => (float[3,4] y, float[2,8] z) {{ {SLICES}
  a = Exp(x)
  ax1 = Constant<value_ints=[1]>()
  ax0 = Constant<value_ints=[0]>()
  r = Slice(a, m1, big, ax1, st)
  y = Softmax<axis=1>(r)
  q = Slice(a, m1, big, ax0, st)
  z = LogSoftmax<axis=0>(q)
}}""")
text("negative_step_reductions", f"""
g (float[4,5,6] x) => (float[4,3] y, float[5,3] z, int64[4,5] am, float[4,5,6] cs) {{ {SLICES}
  a = Exp(x)
  ax = Constant<value_ints=[2]>()
  r = Slice(a, m1, big, ax, st)
  y = ReduceSum<keepdims=0>(r, one)
  z = ReduceMax<axes=[0], keepdims=0>(r)
  am = ArgMin<axis=2, keepdims=0>(r)
  full = Slice(a, m1, big, ax, m1)
  zero = Constant<value_int=2>()
  cs = CumSum<reverse=1, exclusive=1>(full, zero)
}}""".replace("=> (", "=> (").replace("cs) {", "cs) <int64[1] one = {1}> {"))
text("negative_step_in_place", f"""
g (float[8] x) => (float[8] y) {{ {SLICES}
  a = Exp(x)
  ax = Constant<value_ints=[0]>()
  r = Slice(a, m1, big, ax, m1)
  s = Add(a, r)
  q = Slice(s, m1, big, ax, m1)
  y = Mul(q, r)
}}""")
text("slices_into_pool_and_norm", f"""
g (float[1,4,8,8] x, float[4] s, float[4] b) => (float[1,4,2,2] y, float[1,4,4,4] z) {{ {SLICES}
  a = Neg(x)
  ax = Constant<value_ints=[2]>()
  r = Slice(a, m1, big, ax, st)
  t = Transpose<perm=[0,1,3,2]>(r)
  u = Slice(t, m1, big, ax, st)
  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(u)
  z = InstanceNormalization(u, s, b)
}}""")
text("expand_is_a_view", """
g (float[3,1] x) => (float[2,3,4] y, float[3,4] z, float[2,3,4] raw) {
  a = Exp(x)
  s = Constant<value_ints=[2,3,4]>()
  e = Expand(a, s)
  raw = Expand(a, s)
  y = Mul(e, e)
  z = ReduceSum<keepdims=0>(e, ax)
}""".replace("raw) {", "raw) <int64[1] ax = {0}> {"))
text("expand_softmax_in_place", """
g (float[1,5] x) => (float[3,5] y) {
  a = Exp(x)
  s = Constant<value_ints=[3,5]>()
  e = Expand(a, s)
  b = Softmax<axis=0>(e)
  y = Add(b, e)
}""")
text("reshape_of_transpose", """
g (float[2,3,4] x) => (float[6,4] y, float[3,8] z) {
  a = Exp(x)
  t = Transpose<perm=[1,0,2]>(a)
  s1 = Constant<value_ints=[6,-1]>()
  s2 = Constant<value_ints=[0,-1]>()
  y = Reshape(t, s1)
  r = Reshape(t, s2)
  z = Neg(r)
}""")
text("rank_8", """
g (float[2,1,2,1,3,1,2,2] x, float[1,2,1,2,1,2,1,2] z) => (float[2,2,2,3,2,2,1,2] y) {
  a = Add(x, z)
  r = ReduceMax<axes=[6], keepdims=1>(a)
  t = Transpose<perm=[7,1,2,4,3,5,6,0]>(r)
  y = Neg(t)
}""")
text("space_and_depth", """
g (float[1,8,2,3] x) => (float[1,8,2,3] y, float[1,2,4,6] z) {
  a = Exp(x)
  z = DepthToSpace<blocksize=2, mode="CRD">(a)
  d = SpaceToDepth<blocksize=2>(z)
  y = Sub(d, a)
}""")
text("gather_of_views", """
g (float[4,6] x, int64[2,2] i) => (float[6,2,2] y, float[2,2,6] z, float[4,4] e) {
  a = Exp(x)
  t = Transpose(a)
  y = Gather<axis=1>(t, i)
  z = Gather<axis=0>(a, i)
  j = Constant<value_ints=[3,-1,0,0]>()
  e = Gather<axis=1>(a, j)
}""", {"i": np.array([[0, -1], [3, -4]], np.int64)})
text("scatter_in_place", """
g (float[4,3] x, int64[2,3] i, float[2,3] u) => (float[4,3] y, float[4,3] z) {
  a = Exp(x)
  y = ScatterElements<axis=0>(a, i, u)
  b = Neg(a)
  z = ScatterElements<axis=0, reduction="add">(b, i, u)
}""", {"i": np.array([[0, 1, -1], [0, 2, 1]], np.int64)}, opset=16)
text("scatter_of_itself", """
g (float[4,3] x, int64[2,3] i) => (float[4,3] y, float[4,3] z) {
  a = Exp(x)
  s0 = Constant<value_ints=[2]>()
  s1 = Constant<value_ints=[4]>()
  ax = Constant<value_ints=[0]>()
  u = Slice(a, s0, s1, ax)
  y = ScatterElements<axis=0>(a, i, u)
  j = Constant<value = int64[2,1] {0, 3}>()
  z = ScatterND(y, j, u)
}""", {"i": np.array([[0, 1, 3], [1, 2, 1]], np.int64)}, opset=16)
text("pads_of_views", """
g (float[3,4] x) => (float[6,7] y, float[5,6] z, float[6,3] w) {
  a = Exp(x)
  t = Transpose(a)
  p1 = Constant<value_ints=[1,2,1,2]>()
  p2 = Constant<value_ints=[1,1,1,1]>()
  p3 = Constant<value_ints=[-1,0,3,0]>()
  v = Constant<value_float=7.5>()
  b = Pad<mode="reflect">(t, p1)
  y = Identity(b)
  z = Pad<mode="edge">(a, p2)
  w = Pad(t, p3, v)
}""")

# ---- Sizes ----

text("zero_size", """
g (float[0,3] x, float[3,4] w) => (float[0,4] y, float[0,3] z, float[3] s, float[0,1] m) {
  z = Relu(x)
  y = MatMul(z, w)
  s = ReduceSum<keepdims=0>(z, ax)
  m = ReduceMean<axes=[1]>(z)
}""".replace("m) {", "m) <int64[1] ax = {0}> {"))
text("zero_results", """
g (float[1,1,4] x, float[4] v) => (float[1,1,0] y, float[0] t, int64[0] i) {
  s = Constant<value_floats=[1.0, 1.0, 0.1]>()
  y = Resize<mode="nearest">(x, , s)
  k = Constant<value_ints=[0]>()
  t, i = TopK(v, k)
}""", outputs=[np.zeros([1, 1, 0], np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)])

text("zero_over_edges", """
g (float[0,4] x, bool c) => (float[0,4] y, float[0,4] z, float[3,0,4] s) {
  v = If(c) <then_branch = th () => (float[0,4] a) { a = Neg(x) },
             else_branch = el () => (float[0,4] b) { b = Abs(x) }>
  y = Relu(v)
  n = Constant<value_ints=[3]>()
  l, s = Loop(n, , y) <body = bd (int64 i, bool g, float[0,4] p) => (bool h, float[0,4] q, float[0,4] r) {
    h = Identity(g) q = Exp(p) r = Neg(q) }>
  z = Relu(l)
}""")

text("zero_inner", """
g (float[3,0] x, float[0,4] w) => (float[3,4] y, float[3,8] z) {
  y = MatMul(x, w)
  p = Constant<value_ints=[0,0,0,4]>()
  q = Pad(y, p)
  z = Relu(q)
}""")
text("zero_conv_batch", """
g (float[0,2,4,4] x, float[3,2,3,3] w) => (float[0,3,2,2] y) { y = Conv(x, w) }""")
text("scalars", """
g (float x, float z) => (float y, float[1] u, float[1,1] m, float s) {
  a = Add(x, z)
  y = Exp(a)
  ax = Constant<value_ints=[0]>()
  u = Unsqueeze(y, ax)
  e = Constant<value_ints=[1,1]>()
  r = Reshape(u, e)
  m = MatMul(r, r)
  n = ReduceSum<keepdims=0>(m)
  s = Sub(n, y)
}""")
text("one_element_everything", """
g (float[1,1,1,1] x, float[1,1,1,1] w) => (float[1,1,1,1] y) {
  c = Conv(x, w)
  s = Softmax<axis=1>(c)
  p = MaxPool<kernel_shape=[1,1]>(s)
  t = Transpose<perm=[3,2,1,0]>(p)
  a = Add(t, c)
  k = Concat<axis=2>(a, x)
  y = ReduceMax<axes=[2]>(k)
}""")
text("odd_primes", """
g (float[1,7,13,11] x, float[5,7,3,2] w, float[5] b) => (float[1,5,5,9] y) {
  c = Conv<dilations=[2,1], strides=[2,1], pads=[1,0,0,0]>(x, w, b)
  r = LeakyRelu<alpha=0.1>(c)
  y = MaxPool<kernel_shape=[1,2]>(r)
}""".replace("[1,5,5,9]", "[1,5,5,9]"), tolerance=1e-4)
text("depthwise_asymmetric", """
g (float[2,6,9,7] x, float[12,1,3,5] w, float[12] b) => (float[2,12,a,b] y) {
  c = Conv<group=6, auto_pad="SAME_LOWER", strides=[2,2]>(x, w, b)
  y = HardSwish(c)
}""".replace("[2,12,a,b]", "[2,12,5,4]"), tolerance=1e-4)

# ---- Types ----

text("f16_chain", """
g (float16[3,8] x, float16[8,4] w) => (float16[3,4] y, float16[3,1] r) {
  a = Gelu(x)
  y = MatMul(a, w)
  s = Softmax(y)
  r = ReduceMean(s, ax)
}""".replace("r) {", "r) <int64[1] ax = {1}> {"), opset=20, tolerance=4e-3)
text("bf16_chain", """
g (bfloat16[3,8] x, bfloat16[8] b) => (bfloat16[3,8] y, float[3,8] z) {
  a = Add(x, b)
  c = Mul(a, a)
  y = Sub(c, x)
  z = Cast<to=1>(y)
}""", tolerance=2e-2)
text("int8_wraps", """
g (int8[4] x, int8[4] z) => (int8[4] a, int8[4] s, int8[4] m, int8[4] d, int8[4] n, bool[4] l) {
  a = Add(x, z)
  s = Sub(x, z)
  m = Mul(x, z)
  d = Div(a, z)
  n = Neg(a)
  p = Mul(m, m)
  l = Less(p, m)
}""", {"x": np.array([127, -128, 100, -7], np.int8), "z": np.array([1, 3, 100, 2], np.int8)})
text("uint8_wraps", """
g (uint8[4] x, uint8[4] z) => (uint8[4] a, uint8[4] s, uint8[4] m, uint8[4] d, float[4] f, uint8[4] r, bool[4] l) {
  a = Add(x, z)
  s = Sub(z, x)
  m = Mul(x, z)
  d = Div(a, z)
  f = Cast<to=1>(s)
  sum = Add(a, x)
  k = Constant<value = uint8[4] {1, 2, 3, 7}>()
  r = BitShift<direction="RIGHT">(sum, k)
  l = Greater(sum, x)
}""", {"x": np.array([255, 128, 100, 7], np.uint8), "z": np.array([1, 129, 100, 2], np.uint8)})
text("uint64_big", """
g (uint64[3] x, uint64[3] z) => (uint64[3] q, uint64[3] r, bool[3] l, float[3] f, double[3] d, uint64[3] m, int64[1] am) {
  q = Div(x, z)
  r = Mod(x, z)
  l = Less(x, z)
  f = Cast<to=1>(x)
  d = Cast<to=11>(x)
  m = Max(x, z)
  am = ArgMax<axis=0>(f)
}""", {"x": np.array([2**64 - 1, 2**63, 5], np.uint64), "z": np.array([10, 2**63 + 1, 3], np.uint64)})
text("uint32_compare_and_shift", """
g (uint32[4] x, uint32[4] z) => (bool[4] l, uint32[4] s, uint32[4] q, uint32[4] m, double[4] d) {
  a = Add(x, z)
  l = Less(a, x)
  s = BitShift<direction="LEFT">(a, z)
  q = Div(a, z)
  b = Sub(z, x)
  m = Mod(b, z)
  d = Cast<to=11>(b)
}""", {"x": np.array([2**32 - 1, 2**31, 7, 0], np.uint32), "z": np.array([1, 31, 4, 9], np.uint32)})
text("int_division_and_mod", """
g (int32[8] x, int32[8] z) => (int32[8] q, int32[8] r, int32[8] f, int64[8] l) {
  q = Div(x, z)
  r = Mod(x, z)
  f = Mod<fmod=1>(x, z)
  c = Cast<to=7>(x)
  e = Cast<to=7>(z)
  l = Mod(c, e)
}""", {"x": np.array([7, -7, 7, -7, 0, 5, -2**31, 2**31 - 1], np.int32),
       "z": np.array([3, 3, -3, -3, 5, 5, 2, -2], np.int32)})  # fmt: skip
text("int64_min_by_minus_one", """
g (int64[2] x, int64[2] z) => (int64[2] n, int64[2] a) {
  n = Neg(x)
  a = Abs(z)
}""", {"x": np.array([-2**63, 5], np.int64), "z": np.array([-2**63 + 1, -5], np.int64)})
text("bools", """
g (bool[2,3] p, bool[3] q) => (bool[2,3] a, bool[2,3] o, bool[2,3] x, bool[2,3] n, float[2,3] f, bool[2,3] w, bool[2,3] e) {
  a = And(p, q)
  o = Or(a, q)
  x = Xor(o, p)
  n = Not(x)
  f = Cast<to=1>(n)
  w = Where(p, q, n)
  e = Equal(p, q)
}""")
text("bool_casts", """
g (float[6] x, int32[3] i) => (bool[6] b, bool[3] c, float[6] f, uint8[6] u) {
  b = Cast<to=9>(x)
  c = Cast<to=9>(i)
  f = Cast<to=1>(b)
  u = Cast<to=2>(b)
}""", {"x": np.array([0, -0.0, 0.25, -3, 256, 1e-30], np.float32), "i": np.array([0, 256, -1], np.int32)})
NANS = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 1.5, -1.5, np.nan], np.float32)
text("nans", """
g (float[8] x, float[8] z) => (float[8] r, float[8] mx, float[8] mn, float[8] c, float[8] lr, float[8] s, bool[8] l, bool[8] ge, bool[8] i, float[8] sg) {
  r = Relu(x)
  mx = Max(x, z)
  mn = Min(x, z)
  lo = Constant<value_float=-1.0>()
  hi = Constant<value_float=1.0>()
  c = Clip(x, lo, hi)
  lr = LeakyRelu(x)
  s = Sigmoid(x)
  l = Less(x, z)
  ge = GreaterOrEqual(x, z)
  i = IsNaN(x)
  sg = Sign(z)
}""", {"x": NANS, "z": np.array([1, 1, 1, 0.0, -0.0, np.nan, 2, np.nan], np.float32)})
text("nan_reductions", """
g (float[2,4] x) => (float[2] s, float[2,4] sm, float[1,1,1,2] p) {
  s = ReduceMean<axes=[1], keepdims=0>(x)
  sm = Softmax<axis=1>(x)
  sh = Constant<value_ints=[1,1,2,4]>()
  v = Reshape(x, sh)
  p = AveragePool<kernel_shape=[2,3]>(v)
}""", {"x": np.array([[1, np.nan, 2, 3], [np.inf, -np.inf, 0, 1]], np.float32)})
text("minus_infinity_softmax", """
g (float[3,4] x) => (float[3,4] a, float[3,4] b, float[3] l) {
  a = Softmax<axis=1>(x)
  b = LogSoftmax<axis=1>(x)
  l = ReduceLogSumExp<axes=[1], keepdims=0>(x)
}""", {"x": np.array([[-np.inf, 0, 1, 2], [1e30, -1e30, 1e30, 0], [1000, 999, 998, -np.inf]], np.float32)})
text("casts_chain", """
g (float[6] x) => (int8[6] a, uint8[6] b, int32[6] c, float16[6] h, float[6] f, int64[6] l) {
  a = Cast<to=3>(x)
  b = Cast<to=2>(a)
  c = Cast<to=6>(b)
  h = Cast<to=10>(x)
  f = Cast<to=1>(h)
  l = Cast<to=7>(f)
}""", {"x": np.array([1.9, -1.9, 0.5, -0.5, 100.7, -100.2], np.float32)})
text("double_and_float_mix", """
g (float[4] x) => (double[4] d, float[4] f) {
  a = Cast<to=11>(x)
  e = Exp(a)
  k = Constant<value = double {3.0}>()
  d = Div(e, k)
  f = Cast<to=1>(d)
}""")
text("round_half_even", """
g (float[8] x) => (float[8] r, float[8] f, float[8] c, int32[8] i) {
  r = Round(x)
  f = Floor(x)
  c = Ceil(x)
  i = Cast<to=6>(r)
}""", {"x": np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388609.0, -0.2], np.float32)})
text("quantize_edges", """
g (float[8] x) => (uint8[8] q, int8[8] p, float[8] d) {
  s = Constant<value_float=0.5>()
  z = Constant<value = uint8 {128}>()
  y = Constant<value = int8 {-3}>()
  q = QuantizeLinear(x, s, z)
  p = QuantizeLinear(x, s, y)
  d = DequantizeLinear(q, s, z)
}""", {"x": np.array([0.25, 0.75, -0.25, 1e9, -1e9, np.inf, -np.inf, 63.5], np.float32)})
text("qdq_conv", """
g (float[1,2,5,5] x) => (float[1,3,3,3] y)
<int8[3,2,3,3] wq = {1,2,3,4,5,6,7,8,9,-1,-2,-3,-4,-5,-6,-7,-8,-9,11,12,13,14,15,16,17,18,19,-128,127,3,-4,5,-6,7,-8,9,
1,-2,3,-4,5,-6,7,-8,9,-1,2,-3,4,-5,6,-7,8,-9>, float[3] ws = {0.1, 0.02, 0.3}, int8[3] wz = {0, 0, 0}> {
  s = Constant<value_float=0.05>()
  z = Constant<value = uint8 {117}>()
  q = QuantizeLinear(x, s, z)
  d = DequantizeLinear(q, s, z)
  w = DequantizeLinear<axis=0>(wq, ws, wz)
  c = Conv(d, w)
  r = Relu(c)
  q2 = QuantizeLinear(r, s, z)
  y = DequantizeLinear(q2, s, z)
}""".replace("9>, float", "9}, float"), tolerance=0.1)
text("matmul_integer_zero_points", """
g (uint8[3,5] x, int8[5,4] w) => (int32[3,4] y, int32[3,4] z) {
  a = Constant<value = uint8 {200}>()
  b = Constant<value = int8[4] {-128, 127, 0, 5}>()
  y = MatMulInteger(x, w, a, b)
  z = MatMulInteger(x, w)
}""", {"x": np.arange(15, dtype=np.uint8).reshape(3, 5) * 17, "w": np.arange(-10, 10, dtype=np.int8).reshape(5, 4)})

# ---- Control flow ----

text("loop_swaps", """
g (float[3] x, float[3] z) => (float[3] a, float[3] b, float[5,3] s) {
  n = Constant<value = int64 {5}>()
  c = Constant<value = bool {1}>()
  a, b, s = Loop(n, c, x, z) <body = body (int64 i, bool k, float[3] p, float[3] q)
      => (bool k2, float[3] q2, float[3] p2, float[3] t) {
    k2 = Identity(k)
    q2 = Identity(q)
    p2 = Identity(p)
    t = Sub(p, q)
  }>
}""")
text("loop_rotates_and_adds", """
g (float[3] x, float[3] z) => (float[3] a, float[3] b, float[3] c) {
  n = Constant<value = int64 {4}>()
  w = Neg(x)
  a, b, c = Loop(n, , x, z, w) <body = body (int64 i, bool k, float[3] p, float[3] q, float[3] r)
      => (bool k2, float[3] o, float[3] p2, float[3] q2) {
    k2 = Identity(k)
    f = Cast<to=1>(i)
    h = Add(r, f)
    o = Add(h, x)
    p2 = Identity(p)
    q2 = Identity(q)
  }>
}""")
text("loop_carries_view", """
g (float[3,3] x) => (float[3,3] a, float[4,3] s) {
  n = Constant<value = int64 {4}>()
  a, s = Loop(n, , x) <body = body (int64 i, bool k, float[3,3] p)
      => (bool k2, float[3,3] t, float[3] row) {
    k2 = Identity(k)
    t = Transpose(p)
    z = Constant<value = int64 {0}>()
    row = Gather<axis=1>(p, z)
  }>
}""")
text("loop_stops_early", """
g (float[2] x) => (float[2] a) {
  n = Constant<value = int64 {10}>()
  c = Constant<value = bool {1}>()
  a = Loop(n, c, x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q) {
    three = Constant<value = int64 {3}>()
    k2 = Less(i, three)
    one = Constant<value_float=1.0>()
    q = Add(p, one)
  }>
}""")
text("loop_zero_rounds", """
g (float[2] x) => (float[2] a, float[0,2] s) {
  n = Constant<value = int64 {0}>()
  a, s = Loop(n, , x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q, float[2] t) {
    k2 = Identity(k)
    q = Neg(p)
    t = Exp(p)
  }>
}""")
text("loop_output_is_outer_value", """
g (float[2] x) => (float[2] a, float[3,2] s, float[2] y) {
  n = Constant<value = int64 {3}>()
  h = Exp(x)
  a, s = Loop(n, , x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q, float[2] t) {
    k2 = Identity(k)
    q = Identity(h)
    t = Add(p, h)
  }>
  y = Neg(h)
}""")
text("loop_same_carried_twice", """
g (float[2] x) => (float[2] a, float[2] b) {
  n = Constant<value = int64 {3}>()
  a, b = Loop(n, , x, x) <body = body (int64 i, bool k, float[2] p, float[2] q) => (bool k2, float[2] r, float[2] r) {
    k2 = Identity(k)
    r = Sub(p, q)
  }>
}""".replace("r, float[2] r)", "r, float[2] s)").replace("r = Sub(p, q)", "r = Sub(p, q)\n    s = Identity(r)"))
text("if_in_loop", """
g (float[2] x) => (float[2] a, float[4,2] s) {
  n = Constant<value = int64 {4}>()
  a, s = Loop(n, , x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q, float[2] t) {
    k2 = Identity(k)
    two = Constant<value = int64 {2}>()
    m = Mod(i, two)
    b = Cast<to=9>(m)
    q = If(b) <then_branch = th () => (float[2] u) { u = Add(p, x) },
               else_branch = el () => (float[2] v) { e = Exp(x) v = Sub(p, e) }>
    t = Mul(q, p)
  }>
}""")
text("nested_if", """
g (float[2] x, bool c, bool d) => (float[2] y, float[2] z) {
  h = Exp(x)
  y, z = If(c) <then_branch = th () => (float[2] a, float[2] b) {
      a = If(d) <then_branch = t2 () => (float[2] u) { u = Identity(h) },
                 else_branch = e2 () => (float[2] v) { v = Neg(x) }>
      b = Add(a, h)
    }, else_branch = el () => (float[2] a1, float[2] b1) {
      a1 = Identity(x)
      b1 = Identity(x)
    }>
}""", {"c": np.array(True), "d": np.array(False)})
text("if_else_taken", """
g (float[2] x, bool c) => (float[2] y, float[2] w) {
  h = Exp(x)
  y = If(c) <then_branch = th () => (float[2] a) { a = Neg(h) },
             else_branch = el () => (float[2] b) { b = Identity(h) }>
  w = Add(h, y)
}""", {"c": np.array(False)})
text("if_of_outputs", """
g (float[2] x, bool c) => (float[2] h, float[2] y) {
  h = Exp(x)
  y = If(c) <then_branch = th () => (float[2] a) { a = Identity(h) },
             else_branch = el () => (float[2] b) { b = Relu(x) }>
}""", {"c": np.array(True)})
text("loop_in_loop", """
g (float[2] x) => (float[2] a, float[3,2,2] s) {
  n = Constant<value = int64 {3}>()
  a, s = Loop(n, , x) <body = outer (int64 i, bool k, float[2] p) => (bool k2, float[2] q, float[2,2] t) {
    k2 = Identity(k)
    m = Constant<value = int64 {2}>()
    q, t = Loop(m, , p) <body = inner (int64 j, bool l, float[2] u) => (bool l2, float[2] v, float[2] w) {
      l2 = Identity(l)
      ij = Add(i, j)
      f = Cast<to=1>(ij)
      v = Add(u, f)
      w = Mul(u, p)
    }>
  }>
}""")
text("scan_reverse", """
g (float[2] x, float[4,2] s, float[4,2] r) => (float[2] a, float[4,2] b, float[4,2] c) {
  a, b, c = Scan<num_scan_inputs=2, scan_input_directions=[1,0], scan_output_directions=[0,1],
                 body = body (float[2] p, float[2] u, float[2] v) => (float[2] q, float[2] o1, float[2] o2) {
    q = Add(p, u)
    o1 = Mul(q, v)
    o2 = Sub(u, v)
  }>(x, s, r)
}""")
text("scan_axes", """
g (float[3] x, float[3,4] s) => (float[3] a, float[3,4] b) {
  a, b = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1], scan_input_directions=[1],
              scan_output_directions=[1],
              body = body (float[3] p, float[3] u) => (float[3] q, float[3] o) {
    q = Add(p, u)
    o = Identity(u)
  }>(x, s)
}""")
text("scan_identity_body", """
g (float[2] x, float[4,2] s) => (float[2] a, float[4,2] b, float[4,2] c) {
  a, b, c = Scan<num_scan_inputs=1, body = body (float[2] p, float[2] u) => (float[2] q, float[2] o, float[2] z) {
    q = Identity(u)
    o = Identity(p)
    z = Identity(x)
  }>(x, s)
}""")
text("loop_counter_out", """
g () => (int64 a, int64[4] s) {
  n = Constant<value = int64 {4}>()
  z = Constant<value = int64 {100}>()
  a, s = Loop(n, , z) <body = body (int64 i, bool k, int64 p) => (bool k2, int64 q, int64 t) {
    k2 = Identity(k)
    q = Identity(i)
    t = Add(p, i)
  }>
}""")

text("loop_condition_escapes", """
g (float[2] x) => (float[2] a, bool last, bool[t] seen) {
  n = Constant<value = int64 {10}>()
  c = Constant<value = bool {1}>()
  a, last = Loop(n, c, x, c) <body = body (int64 i, bool k, float[2] p, bool b)
      => (bool k2, float[2] q, bool b2) {
    three = Constant<value = int64 {3}>()
    k2 = Less(i, three)
    q = Add(p, x)
    b2 = Identity(k)
  }>
  seen = Not(last)
}""".replace(", bool[t] seen", ", bool seen"))
text("loop_without_condition", """
g (float[2] x, int64 stop) => (float[2] a) {
  n = Constant<value = int64 {6}>()
  a = Loop(n, , x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q) {
    k2 = Less(i, stop)
    q = Add(p, x)
  }>
}""", {"stop": np.array(2, np.int64)})
text("loop_condition_is_carried_too", """
g (float[2] x, int64 stop) => (float[2] a, bool f) {
  n = Constant<value = int64 {6}>()
  c = Constant<value = bool {1}>()
  a, f = Loop(n, c, x, c) <body = body (int64 i, bool k, float[2] p, bool b) => (bool b, float[2] q, bool b2) {
    b2 = Less(i, stop)
    q = Add(p, x)
  }>
}""", {"stop": np.array(2, np.int64)})
text("loop_false_from_the_start", """
g (float[2] x, bool c) => (float[2] a) {
  n = Constant<value = int64 {6}>()
  a = Loop(n, c, x) <body = body (int64 i, bool k, float[2] p) => (bool k2, float[2] q) {
    k2 = Identity(k)
    q = Add(p, x)
  }>
}""", {"c": np.array(False)})
text("loop_returns_outer_and_weight", """
g (float[2] x) => (float[2] a, float[2] b, float[2] c) <float[2] w = {5.0, 6.0}> {
  n = Constant<value = int64 {2}>()
  a, b, c = Loop(n, , x, x, x) <body = body (int64 i, bool k, float[2] p, float[2] q, float[2] r)
      => (bool k2, float[2] x2, float[2] w2, float[2] p2) {
    k2 = Identity(k)
    x2 = Identity(x)
    w2 = Identity(w)
    p2 = Identity(p)
  }>
}""")
text("loop_concat_inside", """
g (float[1,4] x) => (float[1,4] a, float[3,2,4] s) {
  n = Constant<value = int64 {3}>()
  a, s = Loop(n, , x) <body = body (int64 i, bool k, float[1,4] p) => (bool k2, float[1,4] q, float[2,4] t) {
    k2 = Identity(k)
    u = Neg(p)
    t = Concat<axis=0>(u, p)
    l, r = Split<axis=1>(u)
    q = Concat<axis=1>(r, l)
  }>
}""", opset=11)
text("scan_zero_length", """
g (float[2] x, float[0,2] s) => (float[2] a, float[0,2] b) {
  a, b = Scan<num_scan_inputs=1, body = body (float[2] p, float[2] u) => (float[2] q, float[2] o) {
    q = Add(p, u)
    o = Mul(p, u)
  }>(x, s)
}""", {"x": np.array([1, 2], np.float32)},
     outputs=[np.array([1, 2], np.float32), np.zeros((0, 2), np.float32)])
text("scan_square_axes", """
g (float[3] x, float[3,3] s, float[3,3] r) => (float[3] a, float[3,3] b, float[3,3] c) {
  a, b, c = Scan<num_scan_inputs=2, scan_input_axes=[1,0], scan_output_axes=[0,1],
              body = body (float[3] p, float[3] u, float[3] v) => (float[3] q, float[3] o, float[3] z) {
    q = Add(p, u)
    o = Identity(u)
    z = Mul(v, p)
  }>(x, s, r)
}""")
# Dimensions of the batch that one factor has, both have, and none has.
text("matmul_batches_aside", """
g (float[3,1,4,5] a, float[1,2,5,6] b, float[2,1,3,1,4,5] d, float[2,4,1,2,5,6] e, float[7,5] f, float[3,5,2] h, float[5] v)
=> (float[3,2,4,6] y, float[2,4,3,2,4,6] z, float[3,7,2] u, float[3,2,6] w, float[3,2,4,1] x) {
  y = MatMul(a, b)
  t = MatMul(d, e)
  z = Relu(t)
  u = MatMul(f, h)
  i = MatMul(v, b)
  k = Constant<value_ints=[3,1,1]>()
  w = Expand(i, k)
  q = Constant<value_ints=[0]>()
  m = Constant<value_ints=[1]>()
  o = Constant<value_ints=[3]>()
  c = Slice(b, q, m, o)
  x = MatMul(a, c)
}""", tolerance=1e-4)

# ---- Functions and recurrent nets ----

text("function_twice", """
g (float[3] x) => (float[3] y) {
  a = own.twice<k=2.0>(x)
  y = own.twice<k=3.0>(a)
}
<domain: "own", opset_import: ["": 17]> twice<k>(v) => (w) {
  c = Constant<value_float: float = @k>()
  t = Mul(v, c)
  w = Add(t, v)
}""", head=', "own": 1')
text("lstm_shared", """
g (float[4,2,3] x, float[1,20,3] w, float[1,20,5] r, float[1,40] b, float[1,2,5] h0) => (float[4,1,2,5] y, float[1,2,5] h, float[1,2,5] c, float[4,1,2,5] y2) {
  y, h, c = LSTM<hidden_size=5>(x, w, r, b, , h0, h0)
  y2, h2, c2 = LSTM<hidden_size=5, direction="reverse">(x, w, r, b, , h, c)
}""", tolerance=1e-4)
text("gru_lens", """
g (float[4,2,3] x, float[2,15,3] w, float[2,15,5] r, int32[2] l) => (float[4,2,2,5] y, float[2,2,5] h) {
  y, h = GRU<hidden_size=5, direction="bidirectional", linear_before_reset=1>(x, w, r, , l)
}""", {"l": np.array([4, 2], np.int32)}, tolerance=1e-4)
# As large as a step must be for target cuda to spread it over the device.
text("lstm_spread", """
g (float[5,1,3] x, float[2,384,3] w, float[2,384,96] r, float[2,768] b, float[2,1,96] h0, float[2,1,96] c0, float[2,288] p) => (float[5,2,1,96] y, float[2,1,96] h, float[2,1,96] c) {
  y, h, c = LSTM<hidden_size=96, direction="bidirectional">(x, w, r, b, , h0, c0, p)
}""", tolerance=1e-4)
text("lstm_spread_batch", """
g (float[3,4,3] x, float[1,384,3] w, float[1,384,96] r, float[1,768] b, int32[4] l, float[1,4,96] h0) => (float[3,1,4,96] y, float[1,4,96] h, float[1,4,96] c) {
  y, h, c = LSTM<hidden_size=96, direction="reverse", clip=0.5>(x, w, r, b, l, h0, h0)
}""", {"l": np.array([3, 1, 1, 2], np.int32)}, tolerance=1e-4)
text("gru_spread", """
g (float[4,2,3] x, float[2,324,3] w, float[2,324,108] r, float[2,648] b, int32[2] l) => (float[4,2,2,108] y, float[2,2,108] h) {
  y, h = GRU<hidden_size=108, direction="bidirectional">(x, w, r, b, l)
}""", {"l": np.array([4, 2], np.int32)}, tolerance=1e-4)
text("gru_spread_linear", """
g (float[3,1,3] x, float[2,324,3] w, float[2,324,108] r, float[2,648] b) => (float[3,2,1,108] y, float[2,1,108] h) {
  y, h = GRU<hidden_size=108, direction="bidirectional", linear_before_reset=1, activations=["Sigmoid", "Tanh", "Sigmoid", "Relu"]>(x, w, r, b)
}""", tolerance=1e-4)
text("rnn_spread", """
g (float[40,1,3] x, float[2,192,3] w, float[2,192,192] r) => (float[40,2,1,192] y, float[2,1,192] h) {
  k = Constant<value_float=0.05>()
  s = Mul(r, k)
  y, h = RNN<hidden_size=192, direction="bidirectional">(x, w, s)
}""", tolerance=1e-4)

# ---- Chains across operators ----

text("relu_between_transposes", """
g (float[1,3,4,5] x, float[3,3,1,1] w) => (float[1,4,5,3] y) {
  t = Transpose<perm=[0,2,3,1]>(x)
  r = Relu(t)
  u = Transpose<perm=[0,3,1,2]>(r)
  c = Conv(u, w)
  v = Transpose<perm=[0,2,3,1]>(c)
  y = Add(v, r)
}""")
text("channel_shuffle", """
g (float[1,6,2,2] x) => (float[1,6,2,2] y) {
  s = Constant<value_ints=[1,2,3,2,2]>()
  b = Constant<value_ints=[1,6,2,2]>()
  r = Relu(x)
  a = Reshape(r, s)
  t = Transpose<perm=[0,2,1,3,4]>(a)
  u = Reshape(t, b)
  y = Add(u, r)
}""")
text("batchnorm_shared_conv", """
g (float[1,2,4,4] x, float[2] s, float[2] b, float[2] m) => (float[1,2,4,4] y, float[1,2,4,4] c)
<float[2,2,1,1] w = {1.0, 2.0, 3.0, 4.0}, float[2] v = {1.0, 2.0}, float[2] k = {0.5, 0.25}> {
  c = Conv(x, w)
  n = BatchNormalization(c, k, b, m, v)
  d = Conv(n, w)
  y = BatchNormalization(d, k, v, k, v)
}""", tolerance=1e-4)
text("topk_of_view", """
g (float[5,4] x) => (float[4,2] v, int64[4,2] i, float[4,2] w) {
  a = Exp(x)
  t = Transpose(a)
  k = Constant<value_ints=[2]>()
  v, i = TopK<axis=1, largest=0>(t, k)
  w = Neg(v)
}""")
text("where_of_broadcasts", """
g (float[3,1] x, float[4] z, bool[2,1,1] c) => (float[2,3,4] y) {
  a = Neg(x)
  b = Exp(z)
  w = Where(c, a, b)
  n = Where(c, b, w)
  y = Sub(w, n)
}""")
text("resize_chain", """
g (float[1,2,3,3] x) => (float[1,2,6,6] y) {
  sc = Constant<value_floats=[1.0,1.0,2.0,2.0]>()
  r = Relu(x)
  u = Resize<mode="linear">(r, , sc)
  v = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(r, , sc)
  a = Add(u, v)
  y = Relu(a)
}""")
text("einsum_of_same", """
g (float[2,3,3] x) => (float[2,3,3] y, float[2] t, float[3] d) {
  a = Exp(x)
  y = Einsum<equation="bij,bkj->bik">(a, a)
  t = Einsum<equation="bii->b">(a)
  d = Einsum<equation="bij->j">(y)
}""", tolerance=1e-4)
text("many_inputs_sum", """
g (float[2,3] a, float[3] b, float[2,1] c, float[1,1] d, float e) => (float[2,3] y, float[2,3] m) {
  y = Sum(a, b, c, d, e, a)
  m = Mean(a, y, y, b)
}""")
text("prelu_shared_slope", """
g (float[1,3,2,2] x, float[3,1,1] s) => (float[1,3,2,2] y) {
  a = PRelu(x, s)
  b = PRelu(a, s)
  y = Mul(b, s)
}""")
text("long_elementwise", "g (float[16] x) => (float[16] y) {\n  v0 = Tanh(x)\n" + "".join(
    f"  v{i} = {['Add(v%d, x)', 'Mul(v%d, v0)', 'Sub(x, v%d)', 'Sigmoid(v%d)'][i % 4] % (i - 1)}\n"
    for i in range(1, 150)) + "  y = Neg(v149)\n}")
text("side_chain_of_doublings", "g (float[1,2,4,4] x, float[2,2,1,1] w) => (float[1,2,4,4] y) {\n"
     "  c = Conv(x, w)\n  s0 = Add(x, x)\n" + "".join(
         f"  s{i} = {['Mul', 'Sub', 'Add'][i % 3]}(s{i - 1}, s{i - 1})\n" for i in range(1, 44)) +
     "  y = Add(s43, c)\n}")
text("chain_of_doublings", "g (float[2,2] x) => (float[2,2] y) {\n  s0 = Exp(x)\n" + "".join(
    f"  s{i} = Add(s{i - 1}, s{i - 1})\n" for i in range(1, 60)) + "  y = Tanh(s59)\n}")
text("wide_readers", "g (float[8] x) => (float[8] y) {\n  h = Exp(x)\n" + "".join(
    f"  r{i} = {['Neg', 'Sigmoid', 'Relu', 'Tanh'][i % 4]}(h)\n" for i in range(20)) + "  y = Sum(" + ", ".join(
    f"r{i}" for i in range(20)) + ")\n}")


# ---- What a target may hand to a library: constant weights, sizes off every block ----

def weighted(name, body, weights, inputs=None, opset=17, tolerance=1e-4):
    """As text(), and the named weights of these shapes (or arrays) are constants of the model."""
    source = f'<ir_version: 8, opset_import: ["": {opset}]> {body}'
    assert name not in MODELS, name

    def case():
        model = parser.parse_model(source)
        rng = np.random.default_rng(11)
        for weight, shape in weights.items():
            array = shape
            if not isinstance(shape, np.ndarray):
                scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
                array = np.asarray(rng.standard_normal(shape) * scale, np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, weight))
        return Case(model, inputs, tolerance)

    MODELS[name] = case


weighted("conv_result_goes_into_loop", """
g (float[1,16,6,6] x) => (float[1,16,6,6] y, float[1,16,6,6] z) {
  n = Constant<value = int64 {3}>()
  c = Conv<pads=[1,1,1,1]>(x, w)
  r = Relu(c)
  y = Conv<pads=[1,1,1,1]>(r, v)
  z = Loop(n, , y) <body = body (int64 i, bool k, float[1,16,6,6] p) => (bool k2, float[1,16,6,6] q) {
    k2 = Identity(k)
    q = Add(p, p)
  }>
}""", {"w": (16, 16, 3, 3), "v": (16, 16, 3, 3)})

weighted("conv_result_is_scanned", """
g (float[2,16,6,6] x, float[16,6,6] s) => (float[2,16,6,6] y, float[16,6,6] last, float[2,16,6,6] z) {
  c = Conv<pads=[1,1,1,1]>(x, w)
  r = Relu(c)
  y = Conv<pads=[1,1,1,1]>(r, v)
  last, z = Scan<num_scan_inputs=1, body = body (float[16,6,6] p, float[16,6,6] u)
      => (float[16,6,6] q, float[16,6,6] o) {
    q = Add(p, u)
    o = Identity(q)
  }>(s, y)
}""", {"w": (16, 16, 3, 3), "v": (16, 16, 3, 3)})

# Products of one operand, which targets may compute as one; `large` is where the most bytes live.
weighted("joined_products", """
g (float[3,8,24] x, float[64,64] large) => (float[3,8,8] y, float[3,8,16] z, float[3,8,16] w, float[64] l) {
  big = Softmax<axis=0>(large)
  l = ReduceMax<axes=[0], keepdims=0>(big)
  q0 = MatMul(x, wq)
  q = Add(q0, bq)
  k0 = MatMul(x, wk)
  k = Add(bk, k0)
  v0 = MatMul(x, wv)
  v = Add(v0, bv)
  kt = Transpose<perm=[0,2,1]>(k)
  y = MatMul(q, kt)
  z = Softmax<axis=-1>(v)
  n = Softmax<axis=1>(x)
  u = MatMul(n, wu)
  r = MatMul(n, wr)
  a = Add(r, br)
  g = MatMul(n, wg)
  us = Softmax<axis=-1>(u)
  gs = Softmax<axis=-1>(g)
  as = Softmax<axis=-1>(a)
  w = Sum(us, gs, as)
}""", {"wq": (24, 16), "bq": (16,), "wk": (24, 16), "bk": (16,), "wv": (24, 16), "bv": (16,),
       "wu": (24, 16), "wg": (24, 16), "wr": (24, 16), "br": (16,)})

weighted("joined_gemms", """
g (float[5,24] x, float[24,5] t, float[64,64] large)
    => (float[32,5] a, float[48] c, float[6,16] d, float[2,5] e, float[64] l) {
  big = Softmax<axis=0>(large)
  l = ReduceMax<axes=[0], keepdims=0>(big)
  p = Gemm<transB=1>(x, wp, bp)
  q = Gemm<transB=1>(x, wq, bq)
  r = Gemm<transB=1>(x, wr, br)
  a = Transpose<perm=[1,0]>(q)
  m = ReduceMax<axes=[0], keepdims=0>(q)
  s = ReduceMin<axes=[0], keepdims=0>(r)
  c = Concat<axis=0>(m, s)
  f = Gemm<transA=1, alpha=0.5>(t, vf)
  h = Gemm<transA=1, alpha=0.5>(t, vh)
  one = Slice(f, zero, two, zero)
  rest = Slice(h, zero, four, zero)
  d = Concat<axis=0>(one, rest)
  e0 = ReduceSum<keepdims=1>(f, both)
  e1 = ReduceMax<keepdims=1>(p)
  e2 = Concat<axis=0>(e0, e1)
  e3 = Transpose<perm=[1,0]>(x)
  e4 = ReduceMean<axes=[0], keepdims=1>(e3)
  e = Add(e2, e4)
}""", {"wp": (16, 24), "bp": (16,), "wq": (32, 24), "bq": (32,), "wr": (16, 24), "br": (16,),
       "vf": (24, 16), "vh": (24, 16), "zero": np.array([0]), "two": np.array([2]),
       "four": np.array([4]), "both": np.array([0, 1])})

weighted("joined_vectors", """
g (float[1,64] x, bool[1] b, float[64,64] large) => (float[1,48] y, float[1,2,8] z, float[1,16] o, float[64] l) {
  big = Softmax<axis=0>(large)
  l = ReduceMax<axes=[0], keepdims=0>(big)
  p = MatMul(x, wp)
  q = MatMul(x, wq)
  r = MatMul(x, wr)
  y = Concat<axis=1>(q, p, q)
  n = Constant<value = int64[3] {1, 2, 8}>()
  h = Reshape(q, n)
  z = Softmax<axis=-1>(h)
  s = Squeeze(b)
  o = If(s) <then_branch = t () => (float[1,16] t0) {
      t1 = MatMul(x, wt)
      t2 = MatMul(x, wu)
      t3 = Softmax<axis=-1>(t1)
      t4 = Softmax<axis=-1>(t2)
      t0 = Sub(t3, t4)
    }, else_branch = f () => (float[1,16] f0) {
      f0 = Softmax(r)
    }>
}""", {"wp": (64, 16), "wq": (64, 16), "wr": (64, 16), "wt": (64, 16), "wu": (64, 16)})

@built
def random_numbers_in_a_region():
    """They depend on coordinates alone: not on a layout, nor on how a convolution is written."""
    model = parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]>
g (float[2,8,4,4] x, float[2,8,4,4] h, float[2,8,8,8] g) =>
  (float[2,8,4,4] y, float[2,8,8,8] t) {
  low = Constant<value_float=0.5>()
  c = Conv(x, w)
  p = Clip(c, low, low)
  q = Bernoulli<seed=3.0>(p)
  e = Conv(q, w)
  r = Bernoulli<seed=3.0>(h)
  y = Sub(e, r)
  tc = ConvTranspose<strides=[2,2]>(x, wt)
  tp = Clip(tc, low, low)
  tq = Bernoulli<seed=3.0>(tp)
  tr = Bernoulli<seed=3.0>(g)
  t = Sub(tq, tr)
}""")
    one = np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1)
    two = np.random.default_rng(3).standard_normal((8, 8, 2, 2)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(one, "w"))
    model.graph.initializer.append(numpy_helper.from_array(two, "wt"))
    halves = {"h": np.full((2, 8, 4, 4), 0.5, np.float32), "g": np.full((2, 8, 8, 8), 0.5, np.float32)}
    zeros = [np.zeros((2, 8, 4, 4), np.float32), np.zeros((2, 8, 8, 8), np.float32)]
    return Case(model, halves, 1e-6, zeros)


weighted("groups_with_negative_epsilon", """
g (float[1,16,6,6] x) => (float[1,16,6,6] y) {
  c = Conv<pads=[1,1,1,1]>(x, w)
  n = GroupNormalization<num_groups=4, epsilon=-0.000001>(c, s, b)
  y = Conv<pads=[1,1,1,1]>(n, w)
}""", {"w": (16, 16, 3, 3), "s": (16,), "b": (16,)}, opset=21)

weighted("call_chain_of_maps", """
g (float[2,19,9,7] x, float[2,33,9,7] z) => (float[2,33,9,7] y) {
  c = Conv<pads=[1,1,1,1]>(x, w, b)
  h = HardSwish(c)
  m = Mul(h, scale)
  a = Add(m, shift)
  s = Sub(z, a)
  e = Elu<alpha=0.7>(s)
  d = Div(e, two)
  low = Constant<value_float=-0.4>()
  high = Constant<value_float=0.9>()
  y = Clip(d, low, high)
}""", {"w": [33, 19, 3, 3], "b": [33], "scale": [33, 1, 1], "shift": [1, 33, 1, 1], "two": [1]})
FUNCTIONS = ["Relu", "LeakyRelu<alpha=0.3>", "LeakyRelu<alpha=0.7>", "Elu<alpha=0.2>",
             "Elu<alpha=3.0>", "Sigmoid", "Tanh", "HardSwish", "Neg"]  # fmt: skip
for number, first in enumerate(FUNCTIONS):
    lines, weights = "", {"scale": [17, 1, 1]}
    for other, second in enumerate(FUNCTIONS):
        weights |= {f"w{other}": [17, 9, 3, 3], f"m{other}": [9, 17]}
        lines += f"""
  c{other} = Conv<pads=[1,1,1,1]>(x, w{other})
  a{other} = {first}(c{other})
  b{other} = Mul(a{other}, scale)
  y{other} = {second}(b{other})
  p{other} = MatMul(u, m{other})
  d{other} = {first}(p{other})
  e{other} = Add(d{other}, z)
  z{other} = {second}(e{other})"""
    many = [f"float[1,17,5,5] y{i}, float[7,17] z{i}" for i in range(len(FUNCTIONS))]
    weighted(f"call_functions_{number}", f"""
g (float[1,9,5,5] x, float[7,9] u, float[7,17] z) => ({', '.join(many)}) {{{lines}
}}""", weights)
weighted("call_residuals", """
g (float[1,16,10,10] x) => (float[1,16,10,10] y, float[1,16,10,10] z) {
  h = Relu(x)
  a = Conv<pads=[1,1,1,1]>(h, w0)
  b = Add(a, h)
  c = Relu(b)
  d = Conv<pads=[1,1,1,1]>(c, w1, bias)
  e = Add(c, d)
  f = Relu(e)
  p = Conv(f, w2)
  q = Conv(f, w3)
  r = Add(p, q)
  s = Add(r, r)
  y = Add(s, f)
  k = Conv(y, w2)
  l = Add(k, x)
  z = Mul(l, y)
}""", {"w0": [16, 16, 3, 3], "w1": [16, 16, 3, 3], "w2": [16, 16, 1, 1], "w3": [16, 16, 1, 1],
       "bias": [16]})
weighted("call_residual_twice_and_early", """
g (float[1,8,6,6] x) => (float[1,8,6,6] y) {
  c = Conv<pads=[1,1,1,1]>(x, w0)
  d = Conv<pads=[1,1,1,1]>(c, w1)
  e = Add(c, d)
  f = Add(e, c)
  g1 = Sigmoid(c)
  h = Mul(f, g1)
  i = Conv<pads=[1,1,1,1]>(h, w1)
  y = Sub(h, i)
}""", {"w0": [8, 8, 3, 3], "w1": [8, 8, 3, 3]})
weighted("call_broadcast_operands", """
g (float[2,12,5,6] x, float[1,1,5,6] plane, float[2,1,1,1] each, float[2,12,1,1] gate, float one)
  => (float[2,20,5,6] y, float[2,12,5,6] z) {
  c = Conv(x, w0, b)
  p = Add(c, plane)
  q = Mul(p, each)
  y = Add(q, one)
  d = Conv(y, w1)
  z = Mul(d, gate)
}""", {"w0": [20, 12, 1, 1], "w1": [12, 20, 1, 1], "b": [20]})
weighted("call_gate_of_itself", """
g (float[2,24,7,7] x) => (float[2,24,7,7] y) {
  c = Conv<pads=[1,1,1,1], group=24>(x, w0, b0)
  s = Sigmoid(c)
  h = Mul(c, s)
  p = GlobalAveragePool(h)
  q = Conv(p, w1, b1)
  r = Relu(q)
  t = Conv(r, w2, b2)
  gate = HardSigmoid(t)
  m = Mul(h, gate)
  o = Conv(m, w3)
  y = Add(o, x)
}""", {"w0": [24, 1, 3, 3], "b0": [24], "w1": [6, 24, 1, 1], "b1": [6], "w2": [24, 6, 1, 1],
       "b2": [24], "w3": [24, 24, 1, 1]})
# oneDNN blocks these weights by 64 channels for one thread, by 32 for more, and takes no others.
weighted("call_fewer_threads", """
g (float[1,64,7,7] x) => (float[1,64,7,7] y) {
  h = Conv<pads=[1,1,1,1]>(x, w)
  r = Relu(h)
  c = Conv<pads=[1,1,1,1]>(r, v)
  y = Add(c, x)
}""", {"w": [64, 64, 3, 3], "v": [64, 64, 3, 3]})

weighted("call_windows", """
g (float[2,6,13,11] x) => (float[2,6,7,12] a, float[2,12,5,3] b, float[2,9,9,7] c,
                           float[2,6,13,11] d, float[2,3,2,2] e, float[2,6,3,3] f) {
  a = Conv<pads=[0,3,1,0], strides=[2,1], kernel_shape=[2,3]>(x, w0)
  b = Conv<dilations=[2,3], strides=[2,2], group=2>(x, w1)
  c = Conv<dilations=[2,2]>(x, w2)
  d = Conv<auto_pad="SAME_LOWER", group=6>(x, w3)
  e = Conv<strides=[9,9]>(x, w4)
  f = Conv<pads=[4,4,4,4], strides=[5,4], dilations=[2,2], group=3>(x, w5)
}""", {"w0": [6, 6, 2, 3], "w1": [12, 3, 2, 3], "w2": [9, 6, 3, 3], "w3": [6, 1, 2, 4],
       "w4": [3, 6, 3, 1], "w5": [6, 2, 5, 5]})
weighted("call_one_and_three_axes", """
g (float[3,5,17] x, float[1,4,6,7,8] v) => (float[3,10,9] a, float[1,7,6,7,4] b, float[3,10,5] c,
                                           float[1,7,3,4,2] d, float[1,7,1,1,1] e) {
  a = Conv<strides=[2], pads=[2,1]>(x, w0, b0)
  c = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(a)
  t = Conv<pads=[1,1,1,1,1,1], strides=[1,1,2]>(v, w1)
  b = Relu(t)
  d = AveragePool<kernel_shape=[2,2,2], strides=[2,2,2], ceil_mode=1>(b)
  e = GlobalAveragePool(d)
}""", {"w0": [10, 5, 4], "b0": [10], "w1": [7, 4, 3, 3, 3]})
weighted("call_transposed", """
g (float[2,6,5,4] x) => (float[2,8,10,8] a, float[2,4,11,13] b, float[2,6,7,9] c,
                         float[2,8,10,8] d, float[2,3,5,6] e, float[2,32,2,18] f) {
  a = ConvTranspose<strides=[2,2]>(x, w0, b0)
  b = ConvTranspose<strides=[2,3], output_padding=[1,1], group=2, pads=[1,0,0,0]>(x, w1)
  c = ConvTranspose<dilations=[2,3], pads=[1,0,1,1]>(x, w2)
  r = Sigmoid(a)
  d = Add(r, a)
  e = ConvTranspose(x, w3)
  f = ConvTranspose<strides=[3,3], pads=[6,0,6,0]>(x, w4)
}""", {"w0": [6, 8, 2, 2], "b0": [8], "w1": [6, 2, 2, 3], "w2": [6, 6, 3, 3], "w3": [6, 3, 1, 3],
       "w4": [6, 32, 2, 9]})
weighted("call_weights_that_are_computed", """
g (float[1,8,6,6] x, float[8,8,3,3] u, float[8] v, float[8,40] m) =>
  (float[1,8,6,6] y, float[8,8] z) {
  w = Tanh(u)
  b = Mul(v, v)
  c = Conv<pads=[1,1,1,1]>(x, w, b)
  d = Relu(c)
  y = Conv<pads=[1,1,1,1]>(d, u)
  t = Transpose<perm=[1,0]>(m)
  z = MatMul(m, t)
}""", {})
weighted("call_weights_shared", """
g (float[1,16,8,8] x, float[3,16] t) =>
  (float[1,16,8,8] y, float[1,16,4,4] z, float[16,16,1,1] w2, float[3,16] q, float[16] r,
   float[1,16,16,16] o) {
  a = Conv<pads=[1,1,1,1]>(x, w)
  y = Relu(a)
  z = Conv<pads=[1,1,1,1], strides=[2,2]>(y, w)
  two = Constant<value_float=2.0>()
  w2 = Mul(u, two)
  b = Conv(y, u)
  h = Relu(b)
  o = ConvTranspose<strides=[2,2], output_padding=[1,1], pads=[1,1,1,1]>(h, w)
  s = Transpose<perm=[1,0]>(table)
  q = MatMul(t, s)
  i = Constant<value_int=5>()
  r = Gather<axis=0>(table, i)
}""", {"w": [16, 16, 3, 3], "u": [16, 16, 1, 1], "table": [16, 16]})
weighted("call_same_twice", """
g (float[1,16,9,9] x) => (float[1,16,9,9] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0, b0)
  b = Relu(a)
  c = Conv<pads=[1,1,1,1]>(b, w1, b1)
  d = Relu(c)
  e = Conv<pads=[1,1,1,1]>(d, w2, b0)
  y = Relu(e)
}""", {"w0": [16, 16, 3, 3], "w1": [16, 16, 3, 3], "w2": [16, 16, 3, 3], "b0": [16], "b1": [16]})
weighted("call_products", """
g (float[2,1,3,17] x, float[17] v, float[2,4,17,9] k, float[1,33] row, float[33,1] column) =>
  (float[2,1,3,31] a, float[2,1,3] b, float[2,4,3,9] c, float[31] d, float[4,3,31] e,
   float[33,33] f, float[1,1] g1, float[2,4,9,9] h) {
  p = MatMul(x, w0)
  q = Add(p, b0)
  a = Gelu(q)
  b = MatMul(x, v)
  c = MatMul(x, k)
  d = MatMul(v, w0)
  zero = Constant<value_ints=[0]>()
  x0 = Gather<axis=0>(x, zero)
  one = Squeeze(x0, zero)
  e = MatMul(one, w1)
  f = MatMul(column, row)
  g1 = MatMul(row, column)
  t = Transpose<perm=[0,1,3,2]>(k)
  h = MatMul(t, k)
}""", {"w0": [17, 31], "b0": [31], "w1": [4, 17, 31]}, opset=20)
weighted("call_gemms", """
g (float[7,13] x, float[7,1] tall, float s) =>
  (float[13,5] a, float[7,5] b, float[7,5] c, float[7,5] d, float[7,5] e, float[5,7] f) {
  a = Gemm<transA=1, alpha=0.5>(x, w0)
  b = Gemm<alpha=-1.5, beta=0.25>(x, w1, b0)
  c = Gemm<transB=1>(x, w2, tall)
  t = Gemm<beta=3.0>(x, w1, s)
  d = Tanh(t)
  e = Gemm(x, w1, a0)
  f = Gemm<transA=1, transB=1>(w1, x)
}""", {"w0": [7, 5], "w1": [13, 5], "w2": [5, 13], "b0": [5], "a0": [1, 5]})
weighted("call_products_of_parts", """
g (float[2,6,24] x) => (float[2,3,6,6] y, float[2,6,8] z) {
  r = MatMul(x, w)
  parts = Constant<value_ints=[24, 24, 24]>()
  q, k, v = Split<axis=-1>(r, parts)
  shape = Constant<value_ints=[2, 6, 3, 8]>()
  q4 = Reshape(q, shape)
  k4 = Reshape(k, shape)
  q1 = Transpose<perm=[0,2,1,3]>(q4)
  k1 = Transpose<perm=[0,2,3,1]>(k4)
  y = MatMul(q1, k1)
  begin = Constant<value_ints=[5]>()
  end = Constant<value_ints=[21]>()
  axis = Constant<value_ints=[2]>()
  s = Slice(v, begin, end, axis)
  z = MatMul(s, u)
}""", {"w": [24, 72], "u": [16, 8]})
# What (x + k) - k is for: the nearest whole number. Products here are exact, halves among them.
def eighths(*shape, step=1):
    whole = np.random.default_rng(len(shape)).integers(-9, 10, shape)
    return np.asarray(whole * step / 8, np.float32)


weighted("call_shifts_that_round", """
g (float[2,16,6,8] x, float[5,6] i) => (float[2,16,6,8] y, float[2,16,6,16] z, float[5,4] t) {
  c = Conv<pads=[1,1,1,1]>(x, w, b)
  d = Add(c, k)
  y = Sub(d, k)
  p = MatMul(x, v)
  q = Sub(p, k)
  z = Add(k, q)
  r = Gemm(i, u)
  s = Add(r, k)
  t = Sub(s, k)
}""", {"w": eighths(16, 16, 3, 3, step=8), "b": eighths(16), "v": eighths(8, 16, step=8),
       "u": eighths(6, 4, step=8), "k": np.array(12582912, np.float32)},
    {"x": eighths(2, 16, 6, 8), "i": eighths(5, 6)}, tolerance=1e-6)  # fmt: skip
weighted("call_numbers_out_of_range", """
g (float[6,32] x, float[1,8,4,4] i) => (float[6,24] a, float[6,24] b, float[6,24] c, float[6,24] d,
                                        float[6,24] e, float[1,8,4,4] f, float[1,8,4,4] h) {
  p = MatMul(x, w)
  t = Tanh(p)
  a = Div(t, tiny)
  b = Mul(t, none)
  c = Sub(t, none)
  m = Mul(t, big)
  n = Mul(m, big)
  d = Mul(n, small)
  e = Max(t, none)
  q = Conv(i, v)
  f = Div(q, tiny)
  r = Conv(i, v1)
  s = Mul(r, big)
  h = Mul(s, big)
}""", {"w": (32, 24), "v": (8, 8, 1, 1), "v1": (8, 8, 1, 1), "tiny": np.array(1e-40, np.float32),
       "none": np.array(np.nan, np.float32), "big": np.array(1e30, np.float32),
       "small": np.array(1e-30, np.float32)},
    {"x": np.zeros([6, 32], np.float32), "i": np.zeros([1, 8, 4, 4], np.float32)})  # fmt: skip
def with_odd_numbers(*shape, numbers):
    array = np.asarray(np.random.default_rng(5).standard_normal(shape), np.float32)
    places = array.reshape(-1)[:: array.size // 13]
    places[:] = np.resize(numbers, places.shape)
    return array


# What is infinite after products stays so, or becomes a bound; NaN is not asked of calls.
weighted("call_infinities", """
g (float[26,32] x, float[1,16,9,9] i) => (float[26,24] a, float[26,24] b, float[26,24] c, float[26,24] d,
    float[26,24] e, float[26,24] f, float[26,24] h, float[1,24,9,9] j, float[1,24,4,4] k) {
  p = MatMul(x, w)
  a = Relu(p)
  b = Clip(p, low, high)
  c = Max(low, p)
  m = MatMul(x, w1)
  d = Min(m, high)
  q = MatMul(x, w2)
  e = LeakyRelu<alpha=0.1>(q)
  r = MatMul(x, w3)
  f = Sigmoid(r)
  s = MatMul(x, w4)
  h = Elu(s)
  t = Conv(i, v)
  j = HardSigmoid(t)
  k = AveragePool<kernel_shape=[2,2], strides=[2,2]>(t)
}""", {**{name: np.full([32, 24], 0.125, np.float32) for name in ("w", "w1", "w2", "w3", "w4")},
       "v": np.full([24, 16, 1, 1], 0.25, np.float32), "low": np.array(-1, np.float32),
       "high": np.array(2, np.float32)},
    {"x": with_odd_numbers(26, 32, numbers=[np.inf, -np.inf]),
     "i": with_odd_numbers(1, 16, 9, 9, numbers=[-np.inf])})  # fmt: skip
@built
def call_pools_of_odd_numbers():
    """The reference is numpy: onnxruntime begins some maxima with the lowest finite number."""
    source = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,16,8,8] x, bool[1,16,8,8] m, float[1,16,8,8] o)
  => (float[1,16,8,8] p, float[1,16,4,4] q, float[1,16,8,8] z) {
  c = Conv(x, w)
  s = Where(m, o, c)
  p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(s)
  q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s)
  z = Conv(c, w)
}"""
    model = parser.parse_model(source)
    eye = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(eye, "w"))
    x = with_odd_numbers(1, 16, 8, 8, numbers=[0])
    odd = with_odd_numbers(1, 16, 8, 8, numbers=[np.nan, np.inf])
    odd[:, :, :5, :4] = -np.inf
    mask = ~np.isfinite(odd)
    s = np.where(mask, odd, x)
    wide = np.pad(s, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    p = np.max(np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3)), (4, 5))
    q = s.reshape(1, 16, 4, 2, 4, 2).max((3, 5))
    return Case(model, {"x": x, "m": mask, "o": odd}, outputs=[p, q, x])


weighted("call_pools", """
g (float[2,19,11,9] x) => (float[2,19,6,5] a, float[2,19,5,4] b, float[2,19,6,5] c, float[2,19,4,3] d,
                           float[2,19,11,9] e, float[2,19,1,1] f, float[2,19,12,9] h) {
  r = Relu(x)
  a = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r)
  b = AveragePool<kernel_shape=[3,3], strides=[2,2]>(r)
  c = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1>(r)
  d = MaxPool<kernel_shape=[3,3], strides=[3,3], dilations=[2,2], ceil_mode=1>(x)
  e = AveragePool<kernel_shape=[4,3], auto_pad="SAME_UPPER">(x)
  m = GlobalAveragePool(x)
  f = Sigmoid(m)
  h = MaxPool<kernel_shape=[2,3], pads=[1,1,1,1]>(x)
}""", {})
weighted("call_pool_and_row_major_operand", """
g (float[1,17,6,5] x, float[1,17,6,5] u) => (float[1,17,6,5] y, float[1,17,3,3] z) {
  c = Conv(x, w)
  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(c)
  m = Max(p, u)
  y = Conv(m, w)
  q = AveragePool<kernel_shape=[2,2], strides=[2,2], pads=[0,0,0,1]>(c)
  k = Reshape(y, rows)
  l = Slice(k, from, to, axes)
  n = Reshape(l, shape)
  s = Add(q, n)
  z = Conv(s, w)
}""", {"w": [17, 17, 1, 1], "rows": np.array([17, 30]), "from": np.array([0]), "to": np.array([9]),
       "axes": np.array([1]), "shape": np.array([1, 17, 3, 3])})
weighted("depthwise_of_expanded", """
g (float[1,8,1,1] x) => (float[1,8,9,9] y) {
  e = Expand(x, shape)
  y = Conv<group=8, pads=[1,1,1,1]>(e, w)
}""", {"w": [8, 1, 3, 3], "shape": np.array([1, 8, 9, 9])})
weighted("call_dense_block", """
g (float[1,12,8,8] x) => (float[1,12,4,4] y) {
  a = Conv<pads=[1,1,1,1]>(x, w0)
  ar = Relu(a)
  c0 = Concat<axis=1>(x, ar)
  b = Conv<pads=[1,1,1,1]>(c0, w1)
  br = Relu(b)
  c1 = Concat<axis=1>(x, ar, br)
  n = Mul(c1, scale)
  m = Relu(n)
  c = Conv(m, w2)
  p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c)
  q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
  l, r = Split<axis=1, num_outputs=2>(p)
  u = Conv(l, w3)
  v = Conv(r, w3)
  y = Concat<axis=1>(u, q, v)
}""".replace("float[1,12,4,4] y", "float[1,26,4,4] y"),
         {"w0": [5, 12, 3, 3], "w1": [7, 17, 3, 3], "scale": [24, 1, 1], "w2": [16, 24, 1, 1],
          "w3": [5, 8, 1, 1]}, opset=18)
weighted("call_concat_of_other_axes", """
g (float[1,8,6,5] x, float[1,8,6,5] z) => (float[1,9,12,5] y, float[2,9,6,5] v) {
  a = Conv(x, w)
  b = Conv(z, w)
  y = Concat<axis=2>(a, b)
  c = Relu(a)
  d = Relu(b)
  v = Concat<axis=0>(c, d)
}""", {"w": [9, 8, 1, 1]})
weighted("call_wide", """
g (float[2,67,9,10] x) => (float[2,67,9,10] y, float[2,130] z) {
  a = Conv<pads=[1,1,1,1]>(x, w0, b0)
  ar = Relu(a)
  b = Conv(ar, w1, b1)
  br = Relu(b)
  c = Conv<pads=[1,1,1,1], group=67>(br, w2)
  d = Add(c, x)
  y = Relu(d)
  p = GlobalAveragePool(y)
  f = Flatten(p)
  z = Gemm<transB=1>(f, m, b2)
}""", {"w0": [96, 67, 3, 3], "b0": [96], "w1": [67, 96, 1, 1], "b1": [67], "w2": [67, 1, 3, 3],
       "m": [130, 67], "b2": [130]})
weighted("call_of_nothing", """
g (float[0,5,6,6] x, float[3,0] u, float[2,0,7] v) =>
  (float[0,4,6,6] y, float[3,5] z, float[2,0,9] q) {
  c = Conv<pads=[1,1,1,1]>(x, w)
  p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(c)
  y = Relu(p)
  none = Constant<value=float[0,5] {}>()
  z = Gemm(u, none, b)
  q = MatMul(v, m)
}""", {"w": [4, 5, 3, 3], "b": [5], "m": [7, 9]})
for pixels, group in ((1, 24), (1, 4), (3, 24)):
    weighted(f"call_per_channel_{pixels}_{group}", f"""
g (float[1,24,{pixels},{pixels}] x, float[1,24,1,1] z, float[1,24,1,1] u) =>
  (float[1,24,{pixels},{pixels}] y, float[1,24,{pixels},{pixels}] q) {{
  c = Conv<group={group}>(x, w)
  m = Mul(c, z)
  y = Sub(m, u)
  d = Conv<group={group}, pads=[1,1,1,1]>(x, v)
  r = Relu(d)
  q = Add(r, u)
}}""", {"w": [24, 24 // group, 1, 1], "v": [24, 24 // group, 3, 3]})
weighted("call_in_a_loop", """
g (float[1,8,6,6] x) => (float[1,8,6,6] y, float[3,1,8] means) {
  trips = Constant<value_int=3>()
  true = Constant<value=bool {1}>()
  y, means = Loop(trips, true, x)<body = step (int64 i, bool go, float[1,8,6,6] s)
    => (bool on, float[1,8,6,6] n, float[1,8] m) {
      on = Identity(go)
      c = Conv<pads=[1,1,1,1]>(s, w, b)
      r = Relu(c)
      n = Add(r, s)
      m = ReduceMean<axes=[2,3], keepdims=0>(n)
    }>
}""", {"w": [8, 8, 3, 3], "b": [8]})
weighted("call_in_a_branch", """
g (float[1,8,6,6] x, bool yes) => (float[1,8,6,6] y) {
  h = Conv<pads=[1,1,1,1]>(x, w0)
  a = If(yes)<then_branch = first () => (float[1,8,6,6] p) {
      q = Conv<pads=[1,1,1,1]>(h, w1)
      p = Add(q, h)
    }, else_branch = second () => (float[1,8,6,6] r) {
      s = Conv(h, w2)
      t = Sigmoid(s)
      r = Mul(s, t)
    }>
  y = Conv(a, w2)
}""", {"w0": [8, 8, 3, 3], "w1": [8, 8, 3, 3], "w2": [8, 8, 1, 1]})
weighted("call_in_f64_and_f16", """
g (double[1,6,5,5] x, double[6,6,3,3] k) => (double[1,6,5,5] y, float16[1,6,5,5] z) {
  c = Conv<pads=[1,1,1,1]>(x, k)
  y = Relu(c)
  h = Cast<to=10>(y)
  v = Cast<to=10>(w)
  z = Conv(h, v)
}""", {"w": [6, 6, 1, 1]}, tolerance=4e-3)

# ---- Convolutions beside whatever reads and writes another order of the axes ----

BESIDE = {
    "flatten": ([1, 11], "f = Flatten(c)\n  y = Gemm(f, m)", {"m": [18 * 30, 11]}),
    "tokens": ([1, 30, 18], """s = Constant<value_ints=[1, 18, 30]>()
  r = Reshape(c, s)
  t = Transpose<perm=[0,2,1]>(r)
  y = LayerNormalization(t, n0, n1)""", {"n0": [18], "n1": [18]}),
    "back_from_tokens": ([1, 18, 6, 5], """s = Constant<value_ints=[1, 18, 30]>()
  r = Reshape(c, s)
  t = Transpose<perm=[0,2,1]>(r)
  k = MatMul(t, m)
  u = Transpose<perm=[0,2,1]>(k)
  q = Constant<value_ints=[1, 18, 6, 5]>()
  i = Reshape(u, q)
  y = Conv(i, w1)""", {"m": [18, 18], "w1": [18, 18, 1, 1]}),
    "last": ([1, 6, 5, 18], "y = Transpose<perm=[0,2,3,1]>(c)", {}),
    "shuffle": ([1, 18, 6, 5], """s = Constant<value_ints=[1, 3, 6, 6, 5]>()
  r = Reshape(c, s)
  t = Transpose<perm=[0,2,1,3,4]>(r)
  q = Constant<value_ints=[1, 18, 6, 5]>()
  u = Reshape(t, q)
  y = Conv<group=3>(u, w1)""", {"w1": [18, 6, 1, 1]}),
    "depth_to_space": ([1, 2, 18, 15], "y = DepthToSpace<blocksize=3>(c)", {}),
    "space_to_depth": ([1, 8, 6, 5], """d = Conv(c, w1)
  r = DepthToSpace<blocksize=2, mode="CRD">(d)
  p = SpaceToDepth<blocksize=2>(r)
  y = Relu(p)""", {"w1": [8, 18, 1, 1]}),
    "resize": ([1, 4, 12, 10], """k = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()
  r = Resize<mode="linear">(c, , k)
  y = Conv<pads=[1,1,1,1]>(r, w1)""", {"w1": [4, 18, 3, 3]}),
    "resize_nearest": ([1, 22, 12, 10], """k = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>()
  r = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(c, , k)
  d = Conv<pads=[1,1,1,1]>(r, w1)
  y = Concat<axis=1>(r, d)""", {"w1": [4, 18, 3, 3]}),
    "pad": ([1, 18, 10, 7], """p = Constant<value_ints=[0, 0, 2, 1, 0, 0, 2, 1]>()
  y = Pad<mode="reflect">(c, p)""", {}),
    "pad_channels": ([1, 21, 6, 5], """p = Constant<value_ints=[0, 1, 0, 0, 0, 2, 0, 0]>()
  d = Pad(c, p)
  y = Relu(d)""", {}),
    "slice_channels": ([1, 7, 6, 5], """b = Constant<value_ints=[2]>()
  e = Constant<value_ints=[16]>()
  x1 = Constant<value_ints=[1]>()
  s2 = Constant<value_ints=[2]>()
  d = Slice(c, b, e, x1, s2)
  y = Conv(d, w1)""", {"w1": [7, 7, 1, 1]}),
    "slice_rows": ([1, 4, 3, 5], """b = Constant<value_ints=[1]>()
  e = Constant<value_ints=[4]>()
  x2 = Constant<value_ints=[2]>()
  d = Slice(c, b, e, x2)
  y = Conv(d, w1)""", {"w1": [4, 18, 1, 1]}),
    "gather_channels": ([1, 3, 6, 5], """i = Constant<value_ints=[17, 0, 4]>()
  y = Gather<axis=1>(c, i)""", {}),
    "softmax": ([1, 18, 6, 5], "y = Softmax<axis=1>(c)", {}),
    "softmax_columns": ([1, 18, 6, 5], "y = Softmax<axis=3>(c)", {}),
    "arg_max": ([1, 6, 5], "i = ArgMax<axis=1, keepdims=0>(c)\n  y = Cast<to=1>(i)", {}),
    "mean_of_channels": ([1, 1, 6, 5], "y = ReduceMean<axes=[1]>(c)", {}),
    "mean_of_plane": ([1, 18], "y = ReduceMean<axes=[2, 3], keepdims=0>(c)", {}),
    "max_of_all": ([], "y = ReduceMax<keepdims=0>(c)", {}),
    "instance_norm": ([1, 18, 6, 5], "y = InstanceNormalization(c, n0, n1)",
                      {"n0": [18], "n1": [18]}),
    "layer_norm_rows": ([1, 18, 6, 5], "y = LayerNormalization<axis=2>(c, n0)", {"n0": [6, 5]}),
    "layer_norm_last": ([1, 18, 6, 5], """t = Transpose<perm=[0,2,3,1]>(c)
  n = LayerNormalization(t, n0)
  u = Transpose<perm=[0,3,1,2]>(n)
  d = Conv(u, w1)
  y = Add(d, c)""", {"n0": [18], "w1": [18, 18, 1, 1]}),
    "lrn": ([1, 18, 6, 5], "y = LRN<size=3, alpha=0.1>(c)", {}),
    "prelu": ([1, 4, 6, 5], "r = PRelu(c, slope)\n  y = Conv(r, w1)",
              {"slope": [18, 1, 1], "w1": [4, 18, 1, 1]}),
    "expand": ([2, 18, 6, 5], """s = Constant<value_ints=[2, 18, 6, 5]>()
  e = Expand(c, s)
  y = Conv(e, w1)""", {"w1": [18, 18, 1, 1]}),
    "tile": ([1, 36, 6, 5], """t = Constant<value_ints=[1, 2, 1, 1]>()
  y = Tile(c, t)""", {}),
    "sum_over_columns": ([1, 18, 6, 5], """a = Constant<value_int=3>()
  y = CumSum(c, a)""", {}),
    "einsum": ([6, 5, 18], "y = Einsum<equation=\"bchw->hwc\">(c)", {}),
    "two_layouts": ([1, 18, 6, 5], """t = Transpose<perm=[0,1,3,2]>(c)
  u = Transpose<perm=[0,1,3,2]>(t)
  d = Conv(u, w1)
  e = Add(d, plain)
  y = Mul(e, c)""", {"w1": [18, 18, 1, 1], "plain": [1, 18, 6, 5]}),
    "matrix_of_planes": ([1, 18, 6, 7], "y = MatMul(c, m)", {"m": [5, 7]}),
    "reshape_of_rows": ([1, 18, 30, 1], """s = Constant<value_ints=[1, 18, 30, 1]>()
  r = Reshape(c, s)
  y = Conv(r, w1)""", {"w1": [18, 18, 1, 1]}),
    "grid": ([1, 18, 3, 2], "y = GridSample(c, grid)", {"grid": [1, 3, 2, 2]}),
    "upside_down": ([1, 18, 6, 5], """b = Constant<value_ints=[-1]>()
  e = Constant<value_ints=[-100]>()
  x2 = Constant<value_ints=[2]>()
  s = Slice(c, b, e, x2, b)
  y = Conv(s, w1)""", {"w1": [18, 18, 1, 1]}),
}
for label, (dims, then, given) in BESIDE.items():
    kind = f"float[{','.join(map(str, dims))}]" if dims else "float"
    weighted(f"beside_{label}", f"""
g (float[1,7,6,5] x) => ({kind} y, float[1,18,6,5] also) {{
  h = Conv<pads=[1,1,1,1]>(x, w, b0)
  c = Relu(h)
  {then}
  also = Conv(c, v)
}}""", {"w": [18, 7, 3, 3], "b0": [18], "v": [18, 18, 1, 1], **given})
    weighted(f"beside_{label}_only", f"""
g (float[1,7,6,5] x) => ({kind} y) {{
  c = Conv<pads=[1,1,1,1]>(x, w)
  {then}
}}""", {"w": [18, 7, 3, 3], **given})

# ---- Random graphs ----


class RandomGraph:
    """Grows a graph of float values by random operators; few shapes, so that values meet."""

    UNARY = ["Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Softplus", "Identity"]
    BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
    REDUCE = ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceL1"]
    MAX_SIZE, MAX_ELEMENTS = 40, 4000  # of a dimension and a value that is read again
    TOLERANCE = 2e-4

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.values = [], [], []
        self.inputs = []
        for i in range(2):
            shape = [int(d) for d in self.rng.integers(1, 5, self.rng.integers(2, 5))]
            self.inputs.append((f"x{i}", shape))
            self.values.append((f"x{i}", shape))

    def pick(self):
        """Late values more often than early ones."""
        late = self.rng.random() < 0.6
        pool = self.values[-6:] if late else self.values
        return pool[self.rng.integers(len(pool))]

    def pick_like(self, shape):
        same = [value for value in self.values if value[1] == shape]
        return same[self.rng.integers(len(same))]

    def ints(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def floats(self, shape):
        name = f"w{len(self.weights)}"
        data = (self.rng.standard_normal(shape) * 0.5).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def emit(self, op, inputs, shapes, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        for name, shape in zip(names, shapes):
            if all(1 <= d <= self.MAX_SIZE for d in shape) and np.prod(shape) <= self.MAX_ELEMENTS:
                self.values.append((name, list(shape)))

    def grow(self):
        rng = self.rng
        name, shape = self.pick()
        axis = int(rng.integers(len(shape)))
        kind = rng.integers(17)
        if kind <= 2:
            self.emit(str(rng.choice(self.UNARY)), [name], [shape])
        elif kind <= 5:
            other = self.pick_like(shape)
            self.emit(str(rng.choice(self.BINARY)), [name, other[0]], [shape])
        elif kind == 6:
            other = self.pick()
            try:
                result = list(np.broadcast_shapes(shape, other[1]))
            except ValueError:
                return
            self.emit(str(rng.choice(self.BINARY)), [name, other[0]], [result])
        elif kind == 7:
            perm = [int(d) for d in rng.permutation(len(shape))]
            self.emit("Transpose", [name], [[shape[d] for d in perm]], perm=perm)
        elif kind == 8:
            begin, end, step = 0, shape[axis], int(rng.integers(1, 3))
            if rng.random() < 0.5:
                begin, end, step = -1, -(2**62), -step
            elif shape[axis] > 1:
                begin = int(rng.integers(shape[axis] - 1))
            count = len(range(shape[axis])[slice(begin, None, step)])
            result = shape[:axis] + [count] + shape[axis + 1:]
            rows = [self.ints([number]) for number in (begin, end, axis, step)]
            self.emit("Slice", [name] + rows, [result])
        elif kind == 9:
            parts = [name] + [self.pick_like(shape)[0] for _ in range(rng.integers(1, 3))]
            result = shape[:axis] + [shape[axis] * len(parts)] + shape[axis + 1:]
            self.emit("Concat", parts, [result], axis=axis)
        elif kind == 10 and shape[axis] > 1:
            first = int(rng.integers(1, shape[axis]))
            sizes = [first, shape[axis] - first]
            self.emit("Split", [name, self.ints(sizes)],
                      [shape[:axis] + [n] + shape[axis + 1:] for n in sizes], axis=axis)
        elif kind == 11:
            result = [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))]
            self.emit("Reshape", [name, self.ints(result)], [result])
        elif kind == 12:
            other = int(rng.integers(1, 6))
            wide = self.floats([shape[-1], other])
            if rng.random() < 0.5 and len(shape) == 2:
                last, result = self.values[-1], [shape[0], other]
                self.emit("MatMul", [name, wide], [result])
                if last[1] == result:
                    self.emit("Add", [self.values[-1][0], last[0]], [result])
            else:
                self.emit("MatMul", [name, wide], [shape[:-1] + [other]])
        elif kind == 13:
            self.emit("Softmax", [name], [shape], axis=axis)
        elif kind == 14:
            result = shape[:axis] + [1] + shape[axis + 1:]
            self.emit(str(rng.choice(self.REDUCE)), [name], [result], axes=[axis])
        elif kind == 15 and len(shape) == 4:
            out = int(rng.integers(1, 4))
            weight = self.floats([out, shape[1], 3, 3])
            self.emit("Conv", [name, weight, self.floats([out])],
                      [[shape[0], out, shape[2], shape[3]]], pads=[1, 1, 1, 1])
        elif kind == 16:
            at = [int(i) for i in rng.integers(-shape[axis], shape[axis], rng.integers(1, 4))]
            self.emit("Gather", [name, self.ints(at)],
                      [shape[:axis] + [len(at)] + shape[axis + 1:]], axis=axis)

    def case(self, steps):
        for _ in range(steps):
            self.grow()
        made = self.values[2:]
        count = min(len(made), int(self.rng.integers(1, 4)))
        chosen = {len(made) - 1} | {int(i) for i in self.rng.integers(0, len(made), count)}
        describe = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                    for name, shape in self.inputs + [made[i] for i in sorted(chosen)]]  # fmt: skip
        graph = helper.make_graph(self.nodes, "random", describe[:2], describe[2:], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return Case(helper.make_model(graph, opset_imports=opsets, ir_version=8),
                    tolerance=self.TOLERANCE)


class RandomDead(RandomGraph):
    """The same with constants among the values, most of which nothing needs; outputs are also inputs,
    constants and what is an output already."""

    def __init__(self, seed):
        super().__init__(seed)
        for shape in ([3, 4], [4], [2, 3, 1], self.inputs[0][1]):
            self.values.append((self.floats(shape), list(shape)))

    def case(self, steps):
        for _ in range(steps):
            self.grow()
        pool = self.values
        count = int(self.rng.integers(1, 4))
        chosen = [pool[i] for i in self.rng.integers(len(pool) // 2, len(pool), count)]
        if self.rng.random() < 0.5:
            chosen.append(pool[self.rng.integers(6)])
        if self.rng.random() < 0.5:
            chosen.append(chosen[0])
        describe = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                    for name, shape in self.inputs + chosen]  # fmt: skip
        graph = helper.make_graph(self.nodes, "dead", describe[:2], describe[2:], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return Case(helper.make_model(graph, opset_imports=opsets, ir_version=8),
                    tolerance=self.TOLERANCE)


# Passes that may be left out alone; without dce what is dead stays to the end.
PASSES = ("dce", "weights", "simplify", "bnfold", "cse", "einsum", "pattern", "nbits", "transposed",
          "filters", "sink", "layout", "views", "concat", "fuse", "join", "integers", "halves")


def plan_without(number, ullage, target):
    """Plans of a graph with dead branches: by all passes, without each of some, without several."""
    rng = np.random.default_rng(number)
    model = RandomDead(number).case(8 + number % 40).model
    with tempfile.TemporaryDirectory(prefix="ullage-nasty-") as folder:
        onnx.save(model, os.path.join(folder, "model.onnx"))
        sets = [[], ["dce"], ["dce", *rng.choice(PASSES, 3)], list(rng.choice(PASSES, 2))]
        for left_out in sets:
            off = [word for name in left_out for word in ("--no-pass", str(name))]
            try:
                run([ullage, "plan", "model.onnx", "--target", target, *off], folder, " ".join(off))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                return str(error)
    return None


class RandomImages(RandomGraph):
    """The same of images: convolutions, windows, gates, concatenations and what comes between."""

    MAX_SIZE, MAX_ELEMENTS = 150, 8000
    TOLERANCE = 2e-3  # sums of large terms that cancel

    def __init__(self, seed):
        super().__init__(seed)
        rng = self.rng
        shape = [int(rng.choice([1, 1, 2])), int(rng.choice([3, 8, 12, 16, 17])),
                 int(rng.integers(3, 13)), int(rng.integers(3, 13))]  # fmt: skip
        self.inputs = [(f"x{i}", shape) for i in range(2)]
        self.values = list(self.inputs)

    def last(self):
        return self.values[-1]

    def convolution(self, name, shape):
        rng = self.rng
        kernel = [int(k) for k in rng.choice([1, 1, 3, 3, 2, 5], 2)]
        stride = [int(k) for k in rng.choice([1, 1, 1, 2], 2)]
        dilation = [int(k) for k in rng.choice([1, 1, 1, 2], 2)]
        pads = [int(rng.integers(kernel[i % 2])) for i in range(4)]
        if rng.random() < 0.5:  # keeps the size
            stride, dilation = [1, 1], [1, 1]
            pads = [(kernel[i % 2] - (i < 2)) // 2 for i in range(4)]
        room = [shape[2 + i] + pads[i] + pads[2 + i] - dilation[i] * (kernel[i] - 1) for i in (0, 1)]
        if min(room) < 1:
            return
        kind, channels = rng.random(), shape[1]
        made, group = int(rng.choice([channels, channels, 8, 13, 16, 32])), 1
        if kind < 0.25:
            made = group = channels
        elif kind < 0.35 and channels % 4 == 0:
            made, group = channels, 4
        weight = self.floats([made, channels // group, *kernel])
        bias = [self.floats([made])] if rng.random() < 0.6 else []
        size = [-(-room[i] // stride[i]) for i in (0, 1)]
        self.emit("Conv", [name, weight, *bias], [[shape[0], made, *size]], pads=pads,
                  strides=stride, dilations=dilation, group=group)  # fmt: skip

    def maps(self):
        """Up to four of what can follow in the same call."""
        rng = self.rng
        for _ in range(rng.integers(5)):
            name, shape = self.last()
            kind = rng.integers(6)
            if kind <= 1:
                names = ["Relu", "Sigmoid", "HardSwish", "Elu", "Tanh", "LeakyRelu"]
                self.emit(str(rng.choice(names)), [name], [shape])
            elif kind == 2:
                wide = [[1, shape[1], 1, 1], [1], [1, 1, *shape[2:]], [shape[3]]][rng.integers(4)]
                pair = [name, self.floats(wide)]
                self.emit(str(rng.choice(self.BINARY)), pair[:: rng.choice([1, -1])], [shape])
            elif kind <= 4:
                pair = [name, self.pick_like(shape)[0]]
                self.emit(str(rng.choice(["Add", "Add", "Mul", "Sub"])),
                          pair[:: rng.choice([1, -1])], [shape])  # fmt: skip
            else:
                self.emit("Sigmoid", [name], [shape])
                self.emit("Mul", [name, self.last()[0]], [shape])

    def window(self, name, shape):
        rng = self.rng
        op = str(rng.choice(["MaxPool", "AveragePool"]))
        kernel = [int(k) for k in rng.integers(1, 4, 2)]
        pads = [int(rng.integers(kernel[i % 2])) for i in range(4)]
        room = [shape[2 + i] + pads[i] + pads[2 + i] - kernel[i] + 1 for i in (0, 1)]
        if min(room) < 1:
            return
        stride = [int(k) for k in rng.integers(1, 3, 2)]
        more = {"count_include_pad": int(rng.integers(2))} if op == "AveragePool" else {}
        size = [-(-room[i] // stride[i]) for i in (0, 1)]
        self.emit(op, [name], [shape[:2] + size], kernel_shape=kernel, strides=stride, pads=pads,
                  **more)  # fmt: skip

    def gate(self, name, shape):
        self.emit("GlobalAveragePool", [name], [shape[:2] + [1, 1]])
        weight = self.floats([shape[1], shape[1], 1, 1])
        self.emit("Conv", [self.last()[0], weight], [shape[:2] + [1, 1]])
        self.emit("Sigmoid", [self.last()[0]], [shape[:2] + [1, 1]])
        self.emit("Mul", [name, self.last()[0]], [shape])

    def tokens(self, name, shape):
        """To rows of channels and back, with a product or a norm there."""
        rng = self.rng
        rows = [shape[0], shape[2] * shape[3], shape[1]]
        if rows[1] > self.MAX_SIZE:
            return
        self.emit("Reshape", [name, self.ints([rows[0], rows[2], rows[1]])],
                  [[rows[0], rows[2], rows[1]]])  # fmt: skip
        self.emit("Transpose", [self.last()[0]], [rows], perm=[0, 2, 1])
        at = self.last()[0]
        if rng.random() < 0.5:
            self.emit("LayerNormalization", [at, self.floats([rows[2]])], [rows])
        else:
            self.emit("MatMul", [at, self.floats([rows[2], rows[2]])], [rows])
            self.emit("Add", [self.last()[0], at], [rows])
        self.emit("Transpose", [self.last()[0]], [[rows[0], rows[2], rows[1]]], perm=[0, 2, 1])
        self.emit("Reshape", [self.last()[0], self.ints(shape)], [shape])

    def grow(self):
        rng = self.rng
        pool = [value for value in self.values[-5:] if len(value[1]) == 4]
        name, shape = pool[rng.integers(len(pool))] if pool else self.values[0]
        kind = rng.integers(16)
        if kind <= 6:
            self.convolution(name, shape)
            self.maps()
        elif kind <= 8:
            self.window(name, shape)
        elif kind == 9:
            self.gate(name, shape)
        elif kind == 10:
            self.tokens(name, shape)
        elif kind == 11 and max(shape[2:]) < 12:
            sizes = shape[:2] + [2 * shape[2], 2 * shape[3]]
            self.emit("Resize", [name, "", "", self.ints(sizes)], [sizes], mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
        else:
            super().grow()


def random_graphs(seed, count):
    """As many of images and of dead branches as of any shape."""
    for number in range(seed, seed + count):
        MODELS[f"random_{number}"] = lambda number=number: RandomGraph(number).case(8 + number % 48)
        MODELS[f"dead_{number}"] = lambda number=number: RandomDead(number).case(8 + number % 40)
        MODELS[f"images_{number}"] = lambda number=number: RandomImages(number).case(4 + number % 20)
    return [f"{kind}_{number}" for number in range(seed, seed + count)
            for kind in ("random", "images", "dead")]  # fmt: skip


# ---- Making and running ----

def random_value(rng, info):
    kind = info.type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype == np.bool_:
        return rng.integers(0, 2, dims).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, dims).astype(dtype)
    return np.asarray(rng.standard_normal(dims) * 1.5).astype(dtype)


def reference(model, inputs):
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, inputs)
    except Exception as error:  # noqa: BLE001: onnxruntime's errors have no common type
        first = error
    try:
        return ReferenceEvaluator(model).run(None, inputs)
    except Exception as error:
        raise RuntimeError(f"no reference: {first}; {error}") from error


def make(name, folder):
    """Writes the model and its data; returns the case."""
    case = MODELS[name]()
    rng = np.random.default_rng(7)
    weights = {tensor.name for tensor in case.model.graph.initializer}
    inputs = {}
    for info in case.model.graph.input:
        if info.name not in weights:
            value = case.inputs.get(info.name)
            inputs[info.name] = random_value(rng, info) if value is None else value
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(case.model, os.path.join(folder, "model.onnx"))
    wanted = case.outputs or reference(case.model, inputs)
    outputs = zip(case.model.graph.output, wanted)
    for kind, pairs in (("input", inputs.items()), ("output", ((o.name, v) for o, v in outputs))):
        for i, (value_name, value) in enumerate(pairs):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                tensor = numpy_helper.from_array(np.asarray(value), value_name)
                file.write(tensor.SerializeToString())
    return case


def run(command, folder, what):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", timeout=300, check=False)  # fmt: skip
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-1500:]
        raise RuntimeError(f"{what}: exit code {done.returncode}\n{output}")


def inputs_of(case, folder):
    """Options of the program: the inputs of the data."""
    weights = {tensor.name for tensor in case.model.graph.initializer}
    names = [info.name for info in case.model.graph.input if info.name not in weights]
    options = []
    for i, name in enumerate(names):
        options += ["--input", f"{name}={folder}/test_data_set_0/input_{i}.pb"]
    return options


def bytes_of(folder):
    return {entry: open(os.path.join(folder, entry), "rb").read() for entry in os.listdir(folder)}


THREAD_COUNTS = [["--threads", str(count)] for count in (4, 3, 2, 1)]


def check(name, ullage, target, full):
    """Returns nothing, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="ullage-nasty-") as folder:
        try:
            case = make(name, folder)
            build = [ullage, "compile", "model.onnx", "--target", target, "--cflags", "-O1"]
            run(build + ["-o", "program"], folder, "compile")
            tolerance = ["--rtol", str(case.tolerance), "--atol", str(case.tolerance)]
            run(["./program", "--test-data", "test_data_set_0"] + tolerance, folder, "run")
            given = inputs_of(case, folder)
            run(["./program", "--guard"] + given, folder, "--guard")
            run(["./program", "--output-dir", "planned"] + given, folder, "run")
            run(build + ["--pack", "none", "-o", "plain"], folder, "compile --pack none")
            run(["./plain", "--output-dir", "apart"] + given, folder, "run")
            if bytes_of(folder + "/planned") != bytes_of(folder + "/apart"):
                return "reuse of memory changes the result"
            off = [word for row in ("simplify", "bnfold", "cse", "einsum", "pattern", "transposed", "sink",
                                    "join", "layout", "views", "concat", "fuse")
                   for word in ("--no-pass", row)]  # fmt: skip
            more, counts = (["--threads", "4"], THREAD_COUNTS) if target == "cpu" else ([], [[]])
            run(build + off + more + ["-o", "direct"], folder, "compile without passes")
            for threads in counts:
                run(["./direct", "--test-data", "test_data_set_0"] + tolerance + threads, folder,
                    " ".join(["no passes", *threads]))
            if full:
                script, model = os.path.join(HERE, "model.sh"), os.path.join(folder, "model.onnx")
                run(["bash", script, "--target", target, ullage, model], folder, "model.sh")
        except (RuntimeError, subprocess.TimeoutExpired, OSError, UnicodeError) as error:
            return str(error)
    return None


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--list", action="store_true")
    parse.add_argument("--make", metavar="DIR")
    parse.add_argument("--run", metavar="ULLAGE")
    parse.add_argument("--target", default="c")
    parse.add_argument("--full", action="store_true", help="tests/e2e/model.sh on each as well")
    parse.add_argument("--random", type=int, default=0, metavar="N", help="random graphs")
    parse.add_argument("--plans", type=int, default=0, metavar="N", help="graphs to plan only")
    parse.add_argument("--seed", type=int, default=1, help="of the first random graph")
    parse.add_argument("--jobs", type=int, default=2)
    parse.add_argument("names", nargs="*", metavar="NAME")
    args = parse.parse_args()
    names = args.names or list(MODELS)
    if args.random:
        names = random_graphs(args.seed, args.random)
    if args.list:
        print("\n".join(names))
    if args.make:
        for name in names:
            make(name, os.path.join(args.make, name))
    work = functools.partial(check, full=args.full)
    if args.plans:
        names, work = range(args.seed, args.seed + args.plans), plan_without
    if args.run:
        ullage, names = os.path.abspath(args.run), part(names)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            one = functools.partial(work, ullage=ullage, target=args.target)
            results = list(pool.map(one, names))
        for name, problem in zip(names, results):
            if problem:
                print(f"FAIL {name}: {problem}")
        failed = sum(problem is not None for problem in results)
        print(f"{len(names) - failed} of {len(names)} ok")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
