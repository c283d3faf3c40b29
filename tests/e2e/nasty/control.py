# SPDX-License-Identifier: Apache-2.0
"""Branches and loops."""

import numpy as np
from case import text

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
