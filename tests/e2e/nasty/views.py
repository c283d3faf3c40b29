# SPDX-License-Identifier: Apache-2.0
"""Views of views."""

import numpy as np
from case import text

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
