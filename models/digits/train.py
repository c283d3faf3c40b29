#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the digits network and writes everything in this folder that is not a script.

The data are scikit-learn's handwritten digits (UCI "Optical Recognition of Handwritten Digits",
1797 pictures of 8x8 pixels, values 0..16). A fifth of each class is held out and never seen by the
training. The network is a residual convolution net of 29,000 parameters, trained here with plain
numpy (forward and backward written out below), and exported the way PyTorch exports a network:
one node per layer, BatchNormalization kept, the batch a symbolic dimension "N".

Writes: digits.onnx, heldout.npz (stored: x float32 [N,1,8,8] in 0..1, y int64 [N]),
heldout_y.txt (the labels, one a line, for scripts without Python), test_data_set_0/ (16 pictures
and onnxruntime's answer, in the layout of ONNX's own tests).

Deterministic: seeded, one BLAS thread. Another BLAS may round differently and give other weights
of the same quality. Usage: python models/digits/train.py [--epochs N] [--out DIR]
"""

import argparse
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

SEED = 20240807
EPS = 1e-5


# ---- layers: forward returns (output, cache), backward returns the input's gradient ----


def patches(x):
    """[N,C,H,W] -> [N*H*W, C*9], the 3x3 neighbourhoods with a border of zeros."""
    n, c, h, w = x.shape
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    win = np.lib.stride_tricks.sliding_window_view(p, (3, 3), axis=(2, 3))
    return win.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)


class Conv:
    """3x3, padding 1, stride 1, no bias (a BatchNorm follows)."""

    def __init__(self, rng, c_in, c_out):
        self.w = rng.normal(0, np.sqrt(2 / (c_in * 9)), (c_out, c_in, 3, 3)).astype(np.float32)

    def params(self):
        return ["w"]

    def forward(self, x, training):
        n, _, h, w = x.shape
        self.shape, self.cols = x.shape, patches(x)
        y = self.cols @ self.w.reshape(len(self.w), -1).T
        return y.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, dy):
        c_out = len(self.w)
        flat = dy.transpose(0, 2, 3, 1).reshape(-1, c_out)
        self.dw = (flat.T @ self.cols).reshape(self.w.shape)
        flipped = self.w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3).reshape(self.w.shape[1], -1)
        n, c, h, w = self.shape
        dx = patches(np.ascontiguousarray(dy)) @ flipped.T
        return dx.reshape(n, h, w, c).transpose(0, 3, 1, 2)


class BatchNorm:
    def __init__(self, c):
        self.g, self.b = np.ones(c, np.float32), np.zeros(c, np.float32)
        self.mean, self.var = np.zeros(c, np.float32), np.ones(c, np.float32)

    def params(self):
        return ["g", "b"]

    def forward(self, x, training):
        if training:
            m, v = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean = np.float32(0.9) * self.mean + np.float32(0.1) * m
            self.var = np.float32(0.9) * self.var + np.float32(0.1) * v
        else:
            m, v = self.mean, self.var
        self.inv = 1 / np.sqrt(v + np.float32(EPS))
        self.xhat = (x - m[:, None, None]) * self.inv[:, None, None]
        return self.xhat * self.g[:, None, None] + self.b[:, None, None]

    def backward(self, dy):
        self.dg, self.db = (dy * self.xhat).sum((0, 2, 3)), dy.sum((0, 2, 3))
        count = np.float32(dy.size / dy.shape[1])
        inner = dy - (self.db / count)[:, None, None]
        inner -= self.xhat * (self.dg / count)[:, None, None]
        return inner * (self.g * self.inv)[:, None, None]


class Relu:
    def params(self):
        return []

    def forward(self, x, training):
        self.on = x > 0
        return x * self.on

    def backward(self, dy):
        return dy * self.on


class MaxPool:
    """2x2, stride 2."""

    def params(self):
        return []

    def forward(self, x, training):
        n, c, h, w = x.shape
        self.tiles = x.reshape(n, c, h // 2, 2, w // 2, 2)
        self.top = self.tiles.max((3, 5), keepdims=True)
        return self.top[:, :, :, 0, :, 0]

    def backward(self, dy):
        hit = self.tiles == self.top
        share = hit / hit.sum((3, 5), keepdims=True).astype(np.float32)
        n, c, h, _, w, _ = self.tiles.shape
        return (share * dy[:, :, :, None, :, None]).reshape(n, c, h * 2, w * 2)


class Gemm:
    def __init__(self, rng, c_in, c_out):
        self.w = rng.normal(0, np.sqrt(1 / c_in), (c_out, c_in)).astype(np.float32)
        self.b = np.zeros(c_out, np.float32)

    def params(self):
        return ["w", "b"]

    def forward(self, x, training):
        self.shape, self.x = x.shape, x.reshape(len(x), -1)
        return self.x @ self.w.T + self.b

    def backward(self, dy):
        self.dw, self.db = dy.T @ self.x, dy.sum(0)
        return (dy @ self.w).reshape(self.shape)


class Residual:
    """relu(x + body(x))"""

    def __init__(self, rng, c):
        self.body = [Conv(rng, c, c), BatchNorm(c), Relu(), Conv(rng, c, c), BatchNorm(c)]
        self.relu = Relu()

    def params(self):
        return []

    def forward(self, x, training):
        y = x
        for layer in self.body:
            y = layer.forward(y, training)
        return self.relu.forward(x + y, training)

    def backward(self, dy):
        skip = dy = self.relu.backward(dy)
        for layer in reversed(self.body):
            dy = layer.backward(dy)
        return skip + dy


def build(rng):
    return [
        ("stem.0", Conv(rng, 1, 16)), ("stem.1", BatchNorm(16)), ("stem.2", Relu()),
        ("layer1", Residual(rng, 16)), ("pool1", MaxPool()),
        ("down.0", Conv(rng, 16, 32)), ("down.1", BatchNorm(32)), ("down.2", Relu()),
        ("layer2", Residual(rng, 32)), ("pool2", MaxPool()),
        ("fc", Gemm(rng, 32 * 2 * 2, 10)),
    ]  # fmt: skip


# ---- training ----


def forward(net, x, training):
    for _, layer in net:
        x = layer.forward(x, training)
    return x


def leaves(net):
    for _, layer in net:
        yield from layer.body if isinstance(layer, Residual) else [layer]


def shifted(rng, x):
    """Each picture moved by -1, 0 or 1 pixel in both directions, zeros moving in."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dy, dx = rng.integers(0, 3, (2, len(x)))
    return np.stack([p[:, a : a + 8, b : b + 8] for p, a, b in zip(padded, dy, dx)])


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def train(net, rng, x, y, epochs, batch=32, peak_rate=0.05, decay=5e-4):
    """SGD with momentum 0.9, weight decay and a cosine schedule after a short warm-up."""
    speed, steps, step = {}, epochs * (len(x) // batch), 0
    for epoch in range(epochs):
        order, total = rng.permutation(len(x)), 0.0
        for at in range(0, len(x) - batch + 1, batch):
            rows = order[at : at + batch]
            prob = softmax(forward(net, shifted(rng, x[rows]), True))
            total -= np.log(prob[np.arange(batch), y[rows]] + 1e-12).sum()
            grad = prob.copy()
            grad[np.arange(batch), y[rows]] -= 1
            grad /= np.float32(batch)
            for _, layer in reversed(net):
                grad = layer.backward(grad)
            rate = peak_rate * min(1, step / 50) * 0.5 * (1 + np.cos(np.pi * step / steps))
            for layer in leaves(net):
                for name in layer.params():
                    value, g = getattr(layer, name), getattr(layer, "d" + name)
                    if name == "w":
                        g = g + np.float32(decay) * value
                    key = (id(layer), name)
                    speed[key] = np.float32(0.9) * speed.get(key, 0) + g
                    setattr(layer, name, value - np.float32(rate) * speed[key])
            step += 1
        print(f"epoch {epoch + 1:2d}  loss {total / len(x):.4f}", flush=True)


# ---- export ----


class Exporter:
    def __init__(self):
        self.nodes, self.inits, self.at = [], [], "x"

    def weight(self, name, array):
        self.inits.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def node(self, scope, op, inputs, **attributes):
        name = "/" + "/".join(p for p in [scope.replace(".", "/"), op] if p)
        self.at = name + "_output_0"
        self.nodes.append(helper.make_node(op, inputs, [self.at], name, **attributes))
        return self.at

    def layer(self, scope, layer):
        x = self.at
        if isinstance(layer, Conv):
            self.node(scope, "Conv", [x, self.weight(scope + ".weight", layer.w)],
                      kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1],
                      group=1)  # fmt: skip
        elif isinstance(layer, BatchNorm):
            parts = [("weight", layer.g), ("bias", layer.b),
                     ("running_mean", layer.mean), ("running_var", layer.var)]  # fmt: skip
            names = [self.weight(f"{scope}.{part}", array) for part, array in parts]
            self.node(scope, "BatchNormalization", [x] + names, epsilon=EPS, momentum=0.9)
        elif isinstance(layer, Relu):
            self.node(scope, "Relu", [x])
        elif isinstance(layer, MaxPool):
            self.node(scope, "MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
        elif isinstance(layer, Residual):
            for i, inner in enumerate(layer.body):
                self.layer(f"{scope}.body.{i}", inner)
            self.node(scope, "Add", [x, self.at])
            self.node(scope, "Relu", [self.at])
        else:
            flat = self.node("", "Flatten", [x], axis=1)
            names = [self.weight(scope + ".weight", layer.w), self.weight(scope + ".bias", layer.b)]
            self.node(scope, "Gemm", [flat] + names, alpha=1.0, beta=1.0, transB=1)


def export(net, path):
    out = Exporter()
    for scope, layer in net:
        out.layer(scope, layer)
    out.nodes.append(helper.make_node("Softmax", [out.at], ["y"], "/Softmax", axis=1))
    graph = helper.make_graph(
        out.nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        out.inits,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                              producer_name="ullage-models")  # fmt: skip
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def write_tensor(path, array, name):
    with open(path, "wb") as f:
        f.write(numpy_helper.from_array(array, name).SerializeToString())


def split(y, rng):
    """A fifth of every class, chosen at random, is held out; both parts in random order."""
    held = np.zeros(len(y), bool)
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(y == digit))
        held[rows[: round(len(rows) / 5)]] = True
    return rng.permutation(np.flatnonzero(~held)), rng.permutation(np.flatnonzero(held))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", default=here)
    args = parser.parse_args()

    rng = np.random.default_rng(SEED)
    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)[:, None]
    y = digits.target.astype(np.int64)
    seen, held = split(y, rng)
    net = build(rng)
    train(net, rng, x[seen], y[seen], args.epochs)

    model = os.path.join(args.out, "digits.onnx")
    export(net, model)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    prob = session.run(None, {"x": x[held]})[0]
    right = int((prob.argmax(1) == y[held]).sum())
    print(f"held out: {right} of {len(held)} right, {100 * right / len(held):.2f} %")

    np.savez(os.path.join(args.out, "heldout.npz"), x=x[held], y=y[held])
    np.savetxt(os.path.join(args.out, "heldout_y.txt"), y[held], fmt="%d")
    data = os.path.join(args.out, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    write_tensor(os.path.join(data, "input_0.pb"), x[held][:16], "x")
    write_tensor(os.path.join(data, "output_0.pb"), prob[:16], "y")


if __name__ == "__main__":
    main()
