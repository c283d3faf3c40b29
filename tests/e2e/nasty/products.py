# SPDX-License-Identifier: Apache-2.0
"""Constant weights, sizes off every block: what targets compute together."""

import numpy as np
from case import Case, built, weighted
from onnx import numpy_helper, parser

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
