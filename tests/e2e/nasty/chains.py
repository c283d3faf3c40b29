# SPDX-License-Identifier: Apache-2.0
"""Chains across operators."""

from case import text

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
