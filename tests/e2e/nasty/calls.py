# SPDX-License-Identifier: Apache-2.0
"""What a target may hand to a library."""

import numpy as np
from case import Case, built, weighted
from onnx import numpy_helper, parser

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
