#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products of integers as calls of the library: every form of a call against numpy, against target c
and against itself under other plans.

    integer_calls.py ULLAGE [CASE...]

A case is a chain of ConvInteger, ConvTransposeInteger or MatMulInteger and what follows: a bias of sums, Rescale (with a
residual, a range, a zero point), Cast and floats, zero points that are known or not. Integers are to
be within one step of numpy's, which rounds once from exact sums; sums are to be equal, floats near.
On target cpu every product is to be a call where the machine has VNNI, and outputs have the same
bits with no reuse of memory, with two threads, and in pieces under a budget.
Exit: 0 ok, 1 something differs or a command failed, 77 a Python package is missing.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"integer_calls.py: skipped: {error}")
    sys.exit(77)

TYPES = {"u8": (numpy.uint8, TensorProto.UINT8), "i8": (numpy.int8, TensorProto.INT8),
         "i32": (numpy.int32, TensorProto.INT32), "f32": (numpy.float32, TensorProto.FLOAT)}


class Model:
    """A chain that is built node by node; each value is its name, type and numbers."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.nodes, self.weights, self.inputs = [], {}, {}

    def name(self):
        return f"v{len(self.nodes)}_{len(self.weights)}"

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def node(self, op, inputs, attributes=None, domain=""):
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **(attributes or {})))
        return name

    def input(self, kind, shape):
        low, high = (0, 256) if kind == "u8" else (-128, 128)
        array = (self.random.normal(size=shape) if kind == "f32"
                 else self.random.integers(low, high, shape)).astype(TYPES[kind][0])
        self.inputs[f"x{len(self.inputs)}"] = (kind, array)
        return f"x{len(self.inputs) - 1}", array

    def conv(self, x, outputs, kernel, step=1, groups=1, zero=None, pad_value=0):
        name, array = x
        channels = array.shape[1] // groups
        w = self.random.integers(-127, 128, (outputs, channels, kernel, kernel)).astype(numpy.int8)
        pad = kernel // 2
        outside = pad_value
        if pad_value and pad:
            edges = self.weight(numpy.array([0, 0, pad, pad, 0, 0, pad, pad]))
            name = self.node("Pad", [name, edges, self.weight(array.dtype.type(pad_value))], {})
        inputs = [name, self.weight(w)]
        if zero is not None:
            inputs.append(self.weight(array.dtype.type(zero)))
            outside = zero
        attributes = {"strides": [step, step], "pads": [0 if pad_value else pad] * 4, "group": groups,
                      "kernel_shape": [kernel, kernel]}
        wide = numpy.pad(array.astype(numpy.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)),
                         constant_values=outside) - (zero or 0)
        windows = numpy.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))
        windows = windows[:, :, ::step, ::step]
        parts = [numpy.einsum("nchwij,ocij->nohw",
                              windows[:, g * channels:(g + 1) * channels],
                              w[g * outputs // groups:(g + 1) * outputs // groups].astype("i8"))
                 for g in range(groups)]
        return self.node("ConvInteger", inputs, attributes), numpy.concatenate(parts, 1)

    def conv_transpose(self, x, outputs, kernel, step):
        name, array = x
        count, inner, high, wide = array.shape
        w = self.random.integers(-127, 128, (inner, outputs, kernel, kernel)).astype(numpy.int8)
        sums = numpy.zeros((count, outputs, (high - 1) * step + kernel, (wide - 1) * step + kernel),
                           numpy.int64)
        for i in range(kernel):
            for j in range(kernel):
                sums[:, :, i:i + high * step:step, j:j + wide * step:step] += numpy.einsum(
                    "nchw,co->nohw", array.astype(numpy.int64), w[:, :, i, j].astype("i8"))
        attributes = {"strides": [step, step], "kernel_shape": [kernel, kernel]}
        return self.node("ConvTransposeInteger", [name, self.weight(w)], attributes, "ullage"), sums

    def matmul(self, x, columns, zero=None, zero_name=None):
        name, array = x
        w = self.random.integers(-127, 128, (array.shape[-1], columns)).astype(numpy.int8)
        inputs = [name, self.weight(w)]
        if zero is not None:
            inputs.append(zero_name or self.weight(array.dtype.type(zero)))
        sums = (array.astype(numpy.int64) - int(zero or 0)) @ w.astype(numpy.int64)
        return self.node("MatMulInteger", inputs), sums

    def bias(self, x, columns=False):
        name, array = x
        shape = (array.shape[-1],) if columns else (array.shape[1], 1, 1)
        b = self.random.integers(-9000, 9000, shape).astype(numpy.int32)
        return self.node("Add", [name, self.weight(b)]), array + b

    def factor(self, array, per_channel, columns=False):
        shape = (array.shape[-1],) if columns else (array.shape[1], 1, 1)
        scale = 60 / max(1.0, float(numpy.abs(array).std()))
        spread = self.random.uniform(0.5, 1.5, shape) if per_channel else 1.0
        return numpy.asarray(spread * scale, numpy.float32)

    def rescale(self, x, kind, zero, low=None, high=None, residual=None, per_channel=True,
                columns=False):
        name, array = x
        dtype = TYPES[kind][0]
        f = self.factor(array, per_channel, columns)
        value = array * f.astype(numpy.float64)
        inputs = [self.weight(dtype(zero)), name, self.weight(f), ""]
        if residual is not None:
            other, own_zero = residual
            scale = numpy.float32(0.41)
            value = value + (other[1].astype(numpy.float64) - own_zero) * float(scale)
            inputs += [other[0], self.weight(scale), self.weight(dtype(own_zero))]
        limits = numpy.iinfo(dtype)
        attributes = {}
        if low is not None:
            attributes["low"] = low
        if high is not None:
            attributes["high"] = high
        y = numpy.clip(numpy.rint(value) + zero, low if low is not None else limits.min,
                       high if high is not None else limits.max)
        return self.node("Rescale", inputs, attributes, "ullage"), y.astype(dtype)

    def add(self, x, x_zero, other, other_zero, kind, zero):
        """Sum of two tensors of bytes, each in its own scale."""
        factors = [numpy.float32(0.75), numpy.float32(0.41)]
        inputs = [self.weight(TYPES[kind][0](zero))]
        value = 0
        for (name, array), own_zero, f in zip((x, other), (x_zero, other_zero), factors):
            inputs += [name, self.weight(f), self.weight(array.dtype.type(own_zero))]
            value = value + (array.astype(numpy.float64) - own_zero) * float(f)
        limits = numpy.iinfo(TYPES[kind][0])
        y = numpy.clip(numpy.rint(value) + zero, limits.min, limits.max)
        return self.node("Rescale", inputs, {}, "ullage"), y.astype(TYPES[kind][0])

    def floats(self, x, per_channel=True, columns=False, add=False, relu=False):
        name, array = x
        f = self.factor(array, per_channel, columns)
        cast = self.node("Cast", [name], {"to": TensorProto.FLOAT})
        y = self.node("Mul", [cast, self.weight(f)]), array * f.astype(numpy.float64)
        if add:
            shape = (array.shape[-1],) if columns else (array.shape[1], 1, 1)
            b = self.random.normal(size=shape).astype(numpy.float32)
            y = self.node("Add", [y[0], self.weight(b)]), y[1] + b
        if relu:
            y = self.node("Relu", [y[0]]), numpy.maximum(y[1], 0)
        return y[0], y[1].astype(numpy.float32)

    def save(self, y, kind, path):
        shapes = [(k, v[0], v[1].shape) for k, v in self.inputs.items()]
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info(n, TYPES[k][1], s) for n, k, s in shapes],
            [helper.make_tensor_value_info(y[0], TYPES[kind][1], y[1].shape)],
            [numpy_helper.from_array(numpy.asarray(v), k) for k, v in self.weights.items()])
        domains = [helper.make_opsetid("", 17), helper.make_opsetid("ullage", 1)]
        onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), path)


def block(model, kind, per_channel=True):
    """Like MobileNet's and ResNet's: depthwise, residuals, padding that is no 0."""
    bottom = numpy.iinfo(TYPES[kind][0]).min
    own = {"kind": kind, "per_channel": per_channel}
    x = model.input(kind, (1, 3, 40, 40))
    a = model.rescale(model.bias(model.conv(x, 32, 3, 2, pad_value=bottom + 114)), zero=bottom,
                      low=bottom, **own)
    b = model.rescale(model.bias(model.conv(a, 32, 3, groups=32, pad_value=bottom)), zero=bottom,
                      **own)
    c = model.rescale(model.bias(model.conv(b, 16, 1)), zero=10, **own)
    d = model.rescale(model.bias(model.conv(c, 72, 1)), zero=bottom, high=120, **own)
    e = model.rescale(model.bias(model.conv(d, 72, 3, groups=72, pad_value=bottom)), zero=bottom,
                      **own)
    f = model.rescale(model.bias(model.conv(e, 16, 1)), zero=5, residual=(c, 10), **own)
    g = model.rescale(model.bias(model.conv(f, 64, 3, pad_value=5)), zero=-5 if bottom else 130,
                      low=-5 if bottom else 130, **own)
    h = model.rescale(model.bias(model.conv(g, 64, 3, pad_value=-5 if bottom else 130)), zero=3,
                      low=3, residual=(g, -5 if bottom else 130), **own)
    return model.rescale(model.bias(model.conv(h, 96, 1, 2)), zero=7, **own)


def added(model, kind):
    """Like ResNet's where each convolution is quantized before the residual is added."""
    a = model.rescale(model.conv(model.input(kind, (1, 32, 14, 14)), 64, 1), kind=kind, zero=9)
    b = model.rescale(model.bias(model.conv(a, 64, 3, pad_value=9)), kind=kind, zero=12)
    c = model.add(b, 11, a, 9, kind, 3)
    order = [0, 2, 3, 1]  # as convolutions lay it out
    return model.node("Transpose", [c[0]], {"perm": order}), c[1].transpose(order)


def sums(model, kind, depth):
    """Sums above 2^24 as they are, which floats do not hold."""
    x = model.input(kind, (1, depth, 9, 9))
    x[1][:] = numpy.iinfo(x[1].dtype).max
    y = model.conv(x, 48, 3)
    return y


def dynamic(model, rows):
    """Scale and zero point that are known when the program runs."""
    x = model.input("f32", (2, rows, 200))
    names = ["a", "a_scale", "a_zero"]
    model.nodes.append(helper.make_node("DynamicQuantizeLinear", [x[0]], names))
    low, high = min(0, x[1].min()), max(0, x[1].max())
    scale = numpy.float32((numpy.float32(high) - numpy.float32(low)) / numpy.float32(255))
    zero = int(numpy.clip(numpy.rint(-low / scale), 0, 255))
    a = numpy.clip(numpy.rint(x[1] / scale) + zero, 0, 255).astype(numpy.uint8)
    s = model.matmul(("a", a), 96, zero, "a_zero")
    w_scale = numpy.float32(0.01)
    factor = model.node("Mul", ["a_scale", model.weight(w_scale)])
    cast = model.node("Cast", [s[0]], {"to": TensorProto.FLOAT})
    y = model.node("Mul", [cast, factor])
    b = model.random.normal(size=96).astype(numpy.float32)
    out = model.node("Add", [y, model.weight(b)])
    return out, (s[1] * (float(scale) * float(w_scale)) + b).astype(numpy.float32)


def transposed(model, kind, kernel, low=None):
    """Between convolutions, so that it has their layout."""
    own = {"kind": kind, "zero": 0}
    x = model.rescale(model.bias(model.conv(model.input(kind, (1, 16, 18, 18)), 48, 1)), **own)
    y = model.rescale(model.bias(model.conv_transpose(x, 40, kernel, 2)), low=low, **own)
    return model.rescale(model.bias(model.conv(y, 32, 1)), **own)


def conv(model, kind, out, **more):
    x = model.input(kind, (1, 32, 14, 14))
    y = model.conv(x, 64, 3, **more)
    if "zero" not in more:  # which becomes the bias
        y = model.bias(y)
    return model.floats(y, relu=True) if out == "f32" else model.rescale(y, kind=out, zero=3)


def product(model, kind, out, depth=96, zero=None, **more):
    y = model.matmul(model.input(kind, (24, depth)), 80, zero)
    if out == "f32":
        return model.floats(y, columns=True, **more)
    y = y if zero is not None else model.bias(y, True)
    return model.rescale(y, kind=out, zero=3, columns=True, **more)


CASES = {
    "block_u8": (lambda m: block(m, "u8"), "u8"),
    "block_i8": (lambda m: block(m, "i8"), "i8"),
    "block_one_scale": (lambda m: block(m, "u8", False), "u8"),
    "added_u8": (lambda m: added(m, "u8"), "u8"),
    "added_i8": (lambda m: added(m, "i8"), "i8"),
    "conv_to_i8": (lambda m: conv(m, "u8", "i8"), "i8"),
    "conv_zero_fixed": (lambda m: conv(m, "u8", "u8", zero=131), "u8"),
    "conv_zero_fixed_i8": (lambda m: conv(m, "i8", "u8", zero=-7), "u8"),
    "conv_groups": (lambda m: conv(m, "i8", "i8", groups=4, pad_value=9), "i8"),
    "conv_floats": (lambda m: conv(m, "u8", "f32"), "f32"),
    "transposed": (lambda m: transposed(m, "u8", 2), "u8"),
    "transposed_i8": (lambda m: transposed(m, "i8", 2, -50), "i8"),
    "transposed_overlaps": (lambda m: transposed(m, "i8", 3), "i8"),
    "sums_u8": (lambda m: sums(m, "u8", 640), "i32"),
    "sums_i8": (lambda m: sums(m, "i8", 640), "i32"),
    "product": (lambda m: product(m, "u8", "u8"), "u8"),
    "product_i8_zero": (lambda m: product(m, "i8", "u8", zero=-3), "u8"),
    "product_i8_to_i8": (lambda m: product(m, "i8", "i8", per_channel=False), "i8"),
    "product_floats": (lambda m: product(m, "u8", "f32", zero=77, add=True), "f32"),
    "product_one_scale": (lambda m: product(m, "i8", "f32", per_channel=False, relu=True), "f32"),
    "dynamic": (lambda m: dynamic(m, 12), "f32"),
}
# A sum as it is, of i8, is left to a kernel of ours: the library would round it.
OWN = {"sums_i8"}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:5])}: exit {done.returncode}: {done.stderr[-400:]}")


def output_of(ullage, model, folder, built, y, options):
    program, plan = os.path.join(folder, "program"), os.path.join(folder, "plan.json")
    run([ullage, "compile", model, *options, "--cflags", "-O2", "-o", program, "--json", plan])
    command = [program, "--output-dir", folder]
    for name, (_, array) in built.inputs.items():
        path = os.path.join(folder, name + ".npy")
        numpy.save(path, array)
        command += ["--input", f"{name}={path}"]
    run(command)
    run([program, "--random", "3", "--guard"])
    with open(plan) as file:
        return numpy.load(os.path.join(folder, y + ".npy")), json.load(file)


def differs(kind, got, want):
    """What is wrong, or None."""
    if kind == "f32":
        near = 1e-5 * max(1.0, float(numpy.abs(want).max()))
        worst = float(numpy.abs(got.astype(numpy.float64) - want).max())
        return None if worst <= near else f"differs by {worst:g}"
    steps = int(numpy.abs(got.astype(numpy.int64) - want.astype(numpy.int64)).max())
    return None if steps <= (0 if kind == "i32" else 1) else f"differs by {steps} steps"


def products_of(plan):
    steps = plan["steps"]
    return [name for op, name in zip(steps["op"], steps["implementation"]) if "Integer" in op]


def check(ullage, name, has_vnni, folder):
    make, kind = CASES[name]
    built = Model(len(name))
    y = make(built)
    path = os.path.join(folder, name + ".onnx")
    built.save(y, kind, path)
    cpu = ["--target", "cpu", "--threads", "1"]
    got, plan = output_of(ullage, path, folder, built, y[0], cpu)
    wrong = []
    calls = [n for n in products_of(plan) if n.startswith("onednn")]
    if has_vnni and name not in OWN and len(calls) != len(products_of(plan)):
        wrong.append(f"a product is no call: {products_of(plan)}")
    if has_vnni and name.startswith("added") and "Rescale" in plan["steps"]["op"]:
        wrong.append(f"a sum of bytes is in no call: {plan['steps']['op']}")
    if name.startswith("block") and has_vnni:  # elsewhere kernels of ours are as small as they get
        bytes_ = plan["reserved_bytes"]
        ways = [["--budget-of", "arena", "--budget", str(bytes_ * 97 // 100)]]
    else:
        ways = []
    for more in [["--pack", "none"], *ways]:
        other, _ = output_of(ullage, path, folder, built, y[0], cpu + more)
        if other.tobytes() != got.tobytes():
            wrong.append(f"other bits with {' '.join(more)}")
    other, _ = output_of(ullage, path, folder, built, y[0], ["--target", "cpu", "--threads", "2"])
    if other.tobytes() != got.tobytes():
        wrong.append("other bits with two threads")
    other, _ = output_of(ullage, path, folder, built, y[0], ["--target", "c"])
    for title, array in [("", got), ("target c: ", other)]:
        text = differs(kind, array, y[1])
        wrong += [title + text] if text else []
    return wrong


def main():
    ullage, names = sys.argv[1], sys.argv[2:] or list(CASES)
    with open("/proc/cpuinfo") as file:
        has_vnni = "avx512_vnni" in file.read()
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = check(ullage, name, has_vnni, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                wrong = [str(error)]
        bad += bool(wrong)
        print(f"{name}: {'; '.join(wrong) or 'ok'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
