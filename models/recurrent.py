# SPDX-License-Identifier: Apache-2.0
"""Two-layer LSTM and GRU, one- and two-directional, as PyTorch exports them (batch first).

The initial state is a ConstantOfShape over the batch that the input has; layers are joined by
Squeeze (one direction) or Transpose and Reshape (two). Outputs: the class scores of the last step
and the last hidden state of all layers.
"""

import numpy as np
from lib_conv import linear

GATES = {"LSTM": 4, "GRU": 3}


def initial_state(net, x, directions, hidden):
    """Zeros of [directions, batch, hidden]; x is [time, batch, features]."""
    shape = net.dims([directions, net.dim(x, 1), hidden])
    return net.op("ConstantOfShape", shape)


def layer(net, x, cell, c_in, hidden, directions):
    """Returns the outputs of all steps [time, batch, directions*hidden] and the last state."""
    gates, std = GATES[cell], np.sqrt(1.5 / hidden)
    saved, net.modules = net.modules, []
    operands = [
        net.weight(f"onnx::{cell}_{len(net.initializers)}", array)
        for array in (
            net.normal((directions, gates * hidden, c_in), np.sqrt(1.5 / c_in)),
            net.normal((directions, gates * hidden, hidden), std),
            net.normal((directions, 2 * gates * hidden), 0.1),
        )
    ]
    net.modules = saved
    states = [initial_state(net, x, directions, hidden) for _ in range(2 if cell == "LSTM" else 1)]
    extra = {"linear_before_reset": 1} if cell == "GRU" else {}
    if directions == 2:
        extra["direction"] = "bidirectional"
    results = net.op(cell, x, *operands, "", *states, outputs=len(states) + 1,
                     hidden_size=hidden, **extra)  # fmt: skip
    if directions == 1:
        y = net.op("Squeeze", results[0], net.const([1]))
    else:
        y = net.op("Transpose", results[0], perm=[0, 2, 1, 3])
        y = net.op("Reshape", y, net.const([0, 0, -1]))
    return y, results[1]


def build(net, cell, both=False):
    features, hidden, classes, steps = 64, 128, 10, net.seq or 50
    if net.small:
        features, hidden, steps = 8, 12, net.seq or 7
    directions = 2 if both else 1
    x = net.input("input", [net.batch, steps, features])
    with net.scope(cell.lower()):
        x = net.op("Transpose", x, perm=[1, 0, 2])
        x, first = layer(net, x, cell, features, hidden, directions)
        x, second = layer(net, x, cell, directions * hidden, hidden, directions)
        state = net.op("Concat", first, second, axis=0)
        x = net.op("Transpose", x, perm=[1, 0, 2])
    last = net.op("Gather", x, net.const(-1), axis=1)
    with net.scope("fc"):
        last = linear(net, last, directions * hidden, classes)
    net.output(last, "output", [net.batch, classes])
    net.output(state, "hn", [2 * directions, net.batch, hidden])
