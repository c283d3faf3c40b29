# SPDX-License-Identifier: Apache-2.0
"""Types of elements, and numbers that are no numbers."""

import numpy as np
from case import text

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
