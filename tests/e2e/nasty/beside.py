# SPDX-License-Identifier: Apache-2.0
"""Convolutions beside whatever reads and writes another order of the axes."""

from case import weighted

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
