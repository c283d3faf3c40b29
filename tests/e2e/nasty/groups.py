# SPDX-License-Identifier: Apache-2.0
"""What is used inside and outside of groups."""

from case import text

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
