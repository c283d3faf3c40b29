# SPDX-License-Identifier: Apache-2.0
"""Functions and recurrent nets."""

import numpy as np
from case import text

text("function_twice", """
g (float[3] x) => (float[3] y) {
  a = own.twice<k=2.0>(x)
  y = own.twice<k=3.0>(a)
}
<domain: "own", opset_import: ["": 17]> twice<k>(v) => (w) {
  c = Constant<value_float: float = @k>()
  t = Mul(v, c)
  w = Add(t, v)
}""", head=', "own": 1')
text("lstm_shared", """
g (float[4,2,3] x, float[1,20,3] w, float[1,20,5] r, float[1,40] b, float[1,2,5] h0) => (float[4,1,2,5] y, float[1,2,5] h, float[1,2,5] c, float[4,1,2,5] y2) {
  y, h, c = LSTM<hidden_size=5>(x, w, r, b, , h0, h0)
  y2, h2, c2 = LSTM<hidden_size=5, direction="reverse">(x, w, r, b, , h, c)
}""", tolerance=1e-4)
text("gru_lens", """
g (float[4,2,3] x, float[2,15,3] w, float[2,15,5] r, int32[2] l) => (float[4,2,2,5] y, float[2,2,5] h) {
  y, h = GRU<hidden_size=5, direction="bidirectional", linear_before_reset=1>(x, w, r, , l)
}""", {"l": np.array([4, 2], np.int32)}, tolerance=1e-4)
# As large as a step must be for target cuda to spread it over the device.
text("lstm_spread", """
g (float[5,1,3] x, float[2,384,3] w, float[2,384,96] r, float[2,768] b, float[2,1,96] h0, float[2,1,96] c0, float[2,288] p) => (float[5,2,1,96] y, float[2,1,96] h, float[2,1,96] c) {
  y, h, c = LSTM<hidden_size=96, direction="bidirectional">(x, w, r, b, , h0, c0, p)
}""", tolerance=1e-4)
text("lstm_spread_batch", """
g (float[3,4,3] x, float[1,384,3] w, float[1,384,96] r, float[1,768] b, int32[4] l, float[1,4,96] h0) => (float[3,1,4,96] y, float[1,4,96] h, float[1,4,96] c) {
  y, h, c = LSTM<hidden_size=96, direction="reverse", clip=0.5>(x, w, r, b, l, h0, h0)
}""", {"l": np.array([3, 1, 1, 2], np.int32)}, tolerance=1e-4)
text("gru_spread", """
g (float[4,2,3] x, float[2,324,3] w, float[2,324,108] r, float[2,648] b, int32[2] l) => (float[4,2,2,108] y, float[2,2,108] h) {
  y, h = GRU<hidden_size=108, direction="bidirectional">(x, w, r, b, l)
}""", {"l": np.array([4, 2], np.int32)}, tolerance=1e-4)
text("gru_spread_linear", """
g (float[3,1,3] x, float[2,324,3] w, float[2,324,108] r, float[2,648] b) => (float[3,2,1,108] y, float[2,1,108] h) {
  y, h = GRU<hidden_size=108, direction="bidirectional", linear_before_reset=1, activations=["Sigmoid", "Tanh", "Sigmoid", "Relu"]>(x, w, r, b)
}""", tolerance=1e-4)
text("rnn_spread", """
g (float[40,1,3] x, float[2,192,3] w, float[2,192,192] r) => (float[40,2,1,192] y, float[2,1,192] h) {
  k = Constant<value_float=0.05>()
  s = Mul(r, k)
  y, h = RNN<hidden_size=192, direction="bidirectional">(x, w, s)
}""", tolerance=1e-4)
