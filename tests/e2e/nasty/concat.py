# SPDX-License-Identifier: Apache-2.0
"""Concatenations of inputs, weights and themselves."""

from case import text

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
