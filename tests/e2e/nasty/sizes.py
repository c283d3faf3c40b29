# SPDX-License-Identifier: Apache-2.0
"""Sizes of 0 and 1, and large ones."""

import numpy as np
from case import text

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
