#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Library calls of target cuda, by the emulated cuBLASLt and cuDNN.

    calls.py ULLAGE [--quick | --plans] [--seed S] [NAME...]

ULLAGE is a compiler that hands over all that the libraries take (ullage_calls). Each model is
compiled with the libraries, and compared with target c without any reuse; the named library must
run it, and kernels of ours where it has no algorithm; --pack none, --workspace 0 and the
smallest budget must compute the same or nearly so, and --guard find nothing.
Then: cuDNN missing at the start, all libraries missing, --tune and the file that it writes.
--quick compares once, with --guard and missing libraries; --plans looks at plans alone.
Exit: 0 ok, 1 a model failed, 77 a Python package or g++ is missing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"calls.py: skipped: {error}")
    sys.exit(77)
if shutil.which("g++") is None:
    print("calls.py: skipped: g++ is missing")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {}
HALVES = {}  # those whose calls are of 16 bits


class Net:
    """A model under construction: nodes in a line."""

    def __init__(self, seed, calls):
        self.random = np.random.default_rng(seed)
        self.calls = calls  # how many calls of each library it must have
        self.nodes, self.inputs, self.outputs, self.weights = [], [], [], []

    def input(self, name, *dims):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        return name

    def weight(self, *dims, scale=None):
        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(np.prod(dims[1:])) if scale is None else scale
        numbers = (self.random.standard_normal(dims) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(numbers, name))
        return name

    def number(self, x):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(x, np.float32), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, outputs, inputs, *kernel, bias=True, **attributes):
        operands = [x, self.weight(outputs, inputs, *kernel)]
        if bias:
            operands.append(self.weight(outputs))
        return self.node("Conv", *operands, **attributes)

    def model(self, *results):
        outputs = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results]
        graph = helper.make_graph(self.nodes, "calls", self.inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def case(to=MODELS, **calls):
    def add(function):
        to[function.__name__] = (function, calls)
        return function

    return add


# ---- matrix products ----


@case(cublaslt=4)
def products(net):
    x = net.input("x", 5, 33)
    a = net.node("Relu", net.node("Add", net.node("MatMul", x, net.weight(33, 18)), net.weight(18)))
    b = net.node("Gemm", a, net.weight(9, 18), net.weight(9), transB=1)
    c = net.node("Gelu", net.node("Gemm", b, net.weight(9, 12), net.weight(12)), approximate="tanh")
    return net.model(net.node("Gemm", c, net.weight(12, 7), alpha=0.5))


@case(cublaslt=3)
def turned(net):
    """Operands by strides: transposed, and slices of wider values."""
    x, y = net.input("x", 12, 20), net.input("y", 12, 40)
    a = net.node("Gemm", x, y, transA=1)
    left, right = f"{a}_l", f"{a}_r"
    net.nodes.append(
        helper.make_node("Split", [a], [left, right], name="halves", axis=1, num_outputs=2))
    b = net.node("MatMul", left, net.node("Transpose", right, perm=[1, 0]))
    return net.model(net.node("MatMul", net.node("Transpose", b, perm=[1, 0]), left))


@case(cublaslt=3)
def batches(net):
    """One right operand for all, one each, and a left one for all."""
    q, k = net.input("q", 2, 3, 6, 8), net.input("k", 2, 3, 5, 8)
    s = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    s = net.node("Mul", s, net.number(0.25))
    t = net.node("MatMul", net.node("Sigmoid", s), k)
    return net.model(net.node("MatMul", net.node("Tanh", t), net.weight(8, 10)))


@case(cublaslt=3)
def tokens(net):
    """Many matrices of few rows with the same right operand: images side by side, token by token."""
    x = net.input("x", 3, 20, 16)
    t = net.node("Transpose", net.node("Relu", x), perm=[1, 0, 2])
    a = net.node("Add", net.node("MatMul", t, net.weight(16, 24)), net.weight(24))
    b = net.node("Add", net.node("MatMul", t, net.weight(16, 24)), a)
    c = net.node("Add", net.node("MatMul", t, net.weight(16, 16)), t)
    return net.model(net.node("Relu", b), c)


@case(cublaslt=4)
def residuals(net):
    """In place, from elsewhere because it is read again, and the operand itself."""
    x = net.input("x", 2, 7, 16)
    a = net.node("Add", net.node("MatMul", x, net.weight(16, 16)), x)
    b = net.node("Add", net.node("MatMul", a, net.weight(16, 16)), net.weight(16))
    b = net.node("Add", b, a)
    c = net.node("Relu", net.node("Add", net.node("MatMul", b, net.weight(16, 16)), a))
    d = net.node("Add", net.node("MatMul", c, net.weight(16, 16)), b)
    return net.model(net.node("Add", d, c), net.node("Exp", net.node("Neg", net.node("Abs", d))))


@case(cublaslt=2)
def deep(net):
    """Few results and long sums: cut into parts that are in the workspace."""
    x = net.input("x", 3, 700)
    a = net.node("Add", net.node("MatMul", x, net.weight(700, 520)), net.weight(520))
    a = net.node("Relu", a)
    return net.model(net.node("MatMul", a, net.weight(520, 1)))


@case(cublaslt=1)
def alone(net):
    """With --io caller the arena has no room to try it: it is taken untried."""
    return net.model(net.node("MatMul", net.input("x", 64, 32), net.weight(32, 48)))


def integers(net, x, *dims):
    """Sums of the integers x and those of a weight."""
    name = f"w{len(net.weights)}"
    numbers = net.random.integers(-127, 128, dims).astype(np.int8)
    net.weights.append(numpy_helper.from_array(numbers, name))
    return net.node("Cast", net.node("MatMulInteger", x, name), to=TensorProto.FLOAT)


def quantized(net, x, scale):
    zero = f"w{len(net.weights)}"
    net.weights.append(numpy_helper.from_array(np.array(0, np.int8), zero))
    return net.node("QuantizeLinear", x, net.number(scale), zero)


@case(cublaslt=2)
def sums(net):
    """Sums of integers: no call where 8 bits are made from them, or where there are 18 columns."""
    x = quantized(net, net.input("x", 12, 32), 0.02)
    a = net.node("Relu", net.node("Mul", integers(net, x, 32, 24), net.number(2e-4)))
    b = net.node("Add", integers(net, quantized(net, a, 0.05), 24, 20), net.weight(20))
    c = net.node("Mul", integers(net, x, 32, 18), net.number(1e-3))
    return net.model(b, c, net.node("Mul", integers(net, x, 32, 16), net.number(1e-3)))


@case(cublaslt=1)
def dynamic(net):
    """Activations without signs get them, and their zero-point is known when it runs."""
    quantized = ["q", "scale", "zero"]
    x = net.input("x", 1024, 1024)
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], quantized, name="quantized"))
    numbers = net.random.integers(-127, 128, (1024, 1024)).astype(np.int8)
    net.weights.append(numpy_helper.from_array(numbers, "w"))
    sums = net.node("Cast", net.node("MatMulInteger", "q", "w", "zero"), to=TensorProto.FLOAT)
    return net.model(net.node("Mul", sums, net.node("Mul", "scale", net.number(1e-3))))


def bytes_of(net, x, scale, zero):
    """QuantizeLinear to 8 bits without signs, and back."""
    operands = [net.number(scale), f"w{len(net.weights)}"]
    net.weights.append(numpy_helper.from_array(np.array(zero, np.uint8), operands[1]))
    return net.node("DequantizeLinear", net.node("QuantizeLinear", x, *operands), *operands)


def weights_of(net, scale, *dims):
    name = f"w{len(net.weights)}"
    numbers = net.random.integers(-127, 128, dims).astype(np.int8)
    net.weights.append(numpy_helper.from_array(numbers, name))
    return net.node("DequantizeLinear", name, net.number(scale))


@case()
def channels(net):
    """Sums of one channel each, four channels at once: depthwise, with steps, of all padding."""
    x = bytes_of(net, net.input("x", 2, 12, 9, 11), 0.03, 120)
    a = net.node("Conv", x, weights_of(net, 0.004, 12, 12, 1, 1))
    a = bytes_of(net, a, 0.05, 110)
    b = net.node("Conv", a, weights_of(net, 0.003, 12, 1, 3, 3), group=12, pads=[1, 2, 1, 0])
    b = bytes_of(net, b, 0.04, 99)
    c = net.node("Conv", b, weights_of(net, 0.002, 12, 1, 5, 3), group=12, pads=[4] * 4,
                 strides=[2, 1], dilations=[1, 2])  # fmt: skip
    c = bytes_of(net, net.node("Relu", c), 0.03, 0)
    return net.model(net.node("Conv", c, weights_of(net, 0.004, 6, 12, 1, 1)))


@case(cublaslt=1)
def dynamic_pixels(net):
    """The same of a convolution of one place: a product of its pixels."""
    quantized = ["q", "scale", "zero"]
    x = net.input("x", 1, 512, 64, 64)
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], quantized, name="quantized"))
    numbers = net.random.integers(-127, 128, (512, 512, 1, 1)).astype(np.int8)
    net.weights.append(numpy_helper.from_array(numbers, "w"))
    sums = net.node("Cast", net.node("ConvInteger", "q", "w", "zero"), to=TensorProto.FLOAT)
    scaled = net.node("Mul", sums, net.node("Mul", "scale", net.number(1e-3)))
    return net.model(net.node("GlobalMaxPool", scaled))


# ---- convolutions ----


@case(cudnn=4)
def convolutions(net):
    """What convolutions read has channels innermost where a kernel of ours writes it."""
    x = net.node("Abs", net.input("x", 2, 8, 9, 11))
    a = net.node("Relu", net.conv(x, 12, 8, 3, 3, pads=[1] * 4))
    b = net.conv(a, 8, 12, 5, 3, pads=[2, 1, 2, 1], strides=[2, 1])
    c = net.conv(b, 12, 4, 3, 3, bias=False, pads=[2] * 4, dilations=[2, 2], group=2)
    d = net.node("Relu", net.conv(c, 12, 12, 2, 2))
    return net.model(net.node("GlobalMaxPool", d))


@case(cudnn=3)
def convolution_residuals(net):
    x = net.node("Abs", net.input("x", 1, 8, 6, 6))
    a = net.node("Relu", net.conv(x, 8, 8, 3, 3, pads=[1] * 4))
    b = net.node("Relu", net.node("Add", net.conv(a, 8, 8, 3, 3, pads=[1] * 4), a))
    c = net.node("Add", net.conv(b, 8, 8, 3, 3, pads=[1] * 4), b)
    return net.model(net.node("GlobalMaxPool", net.node("Mul", c, a)))


@case(cudnn=4)
def convolution_in_place(net):
    """A residual that is where the result goes."""
    x = net.node("Abs", net.input("x", 1, 8, 12, 12))
    a = net.node("Relu", net.conv(x, 8, 8, 3, 3, pads=[1] * 4))
    b = net.node("Relu", net.conv(a, 8, 8, 3, 3, pads=[1] * 4))
    c = net.node("Relu", net.node("Add", net.conv(b, 8, 8, 3, 3, pads=[1] * 4), a))
    d = net.node("Relu", net.node("Add", net.conv(c, 8, 8, 3, 3, pads=[1] * 4), c))
    return net.model(net.node("GlobalMaxPool", d))


@case(cudnn=4)
def odd(net):
    """Values of 8 times an odd number of bytes: with --align 8 some are where cuDNN does not look."""
    x = net.node("Abs", net.input("x", 1, 6, 7, 7))
    a = net.node("Relu", net.conv(x, 6, 6, 3, 3, pads=[1] * 4))
    b = net.node("Relu", net.node("Add", net.conv(a, 6, 6, 3, 3, pads=[1] * 4), a))
    c = net.node("Relu", net.conv(b, 8, 6, 3, 3))
    return net.model(net.node("GlobalMaxPool", net.conv(c, 8, 8, 3, 3, bias=False)))


@case(cublaslt=1, cudnn=2)
def room(net):
    """The second convolution wants more than 4 MiB, which lie free beside it: the third's result is
    eight times as large."""
    x = net.node("Abs", net.input("x", 1, 8, 160, 160))
    a = net.node("Relu", net.conv(x, 32, 8, 3, 3, pads=[1] * 4))
    b = net.node("Relu", net.conv(a, 32, 32, 3, 3, pads=[1] * 4))
    return net.model(net.node("GlobalMaxPool", net.conv(b, 256, 32, 1, 1)))


@case(cudnn=2)
def tight(net):
    """The second convolution wants more than 4 MiB, and nothing is free beside it."""
    x = net.node("Abs", net.input("x", 1, 8, 160, 160))
    a = net.node("Relu", net.conv(x, 32, 8, 3, 3, pads=[1] * 4))
    return net.model(net.node("GlobalMaxPool", net.conv(a, 32, 32, 3, 3, pads=[1] * 4)))


@case(cudnn=2)
def one_axis(net):
    x = net.node("Abs", net.input("x", 3, 6, 20))
    a = net.node("Relu", net.conv(x, 8, 6, 5, pads=[2, 2]))
    return net.model(net.node("GlobalMaxPool", net.conv(a, 8, 8, 3, bias=False, strides=[2])))


@case(cublaslt=3, cudnn=1)
def pixels(net):
    """Convolutions of one place are products, in slices of a Concat too."""
    x = net.node("Abs", net.input("x", 2, 8, 5, 7))
    a = net.node("Relu", net.conv(x, 16, 8, 3, 3, pads=[1] * 4))
    b = net.node("Relu", net.conv(a, 16, 16, 1, 1))
    c = net.node("Concat", a, net.conv(b, 8, 16, 1, 1), axis=1)
    return net.model(net.node("GlobalMaxPool", net.conv(c, 8, 24, 1, 1, bias=False)))


# ---- attention ----


def attend(net, q, k, v, *masks, **attributes):
    """What follows reads the result in another kernel."""
    y = net.node("Attention", *(net.node("Sin", x) for x in (q, k, v)), *masks, **attributes)
    return net.node("Abs", y)


@case(HALVES, cudnn=3)
def attention(net):
    """Attention of odd lengths, with a mask for all heads; layers that are alike share a plan."""
    q, k, v = (net.input(name, 2, 3, length, 64) for name, length in zip("qkv", (13, 29, 29)))
    mask = net.weight(2, 1, 13, 29, scale=1)
    a = attend(net, q, k, v, mask)
    b = attend(net, a, k, v, mask)
    return net.model(attend(net, b, k, v))


@case(HALVES, cudnn=3)
def attention_causal(net):
    """Fewer heads of keys; heads that are side by side; values of other sizes."""
    q, k, v = net.input("q", 1, 6, 17, 128), net.input("k", 1, 2, 17, 128), net.input("v", 1, 2, 17, 32)
    a = attend(net, q, k, v, is_causal=1)
    x, y = net.input("x", 3, 9, 64), net.input("y", 3, 11, 32)
    flat = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}
    b = attend(net, x, y, y, net.weight(9, 11, scale=1), **flat)
    return net.model(a, attend(net, b, y, y, **flat))


@case(HALVES, cudnn=1)
def attention_masks(net):
    """Spelled out, with two masks; not of heads of 12, nor with a mask of bool, nor with one that
    may hide all keys."""
    q, k, v = (net.node("Sin", net.input(name, 2, 4, 21, 16)) for name in "qkv")
    s = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2]))
    s = net.node("Add", net.node("Mul", s, net.number(0.25)), net.input("m", 2, 1, 1, 21))
    s = net.node("Softmax", net.node("Add", s, net.weight(4, 21, 21, scale=1)), axis=-1)
    a = net.node("Abs", net.node("MatMul", s, v))
    w, bits = net.input("w", 2, 3, 21, 12), net.node("Greater", net.input("n", 21, 21), net.number(0))
    return net.model(a, attend(net, w, w, w), attend(net, q, k, v, bits),
                     attend(net, q, k, v, net.input("hides", 21, 21)))


# ---- running ----


def run(command, **more):
    environment = dict(os.environ, **more)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Failure(Exception):
    pass


def need(good, text):
    if not good:
        raise Failure(text)


def compile_model(ullage, folder, name, *options):
    program = os.path.join(folder, name)
    code, text = run([ullage, "compile", os.path.join(folder, "model.onnx"), "--cflags", "-O1",
                      "-o", program, "--json", program + ".json", *options])
    need(code == 0, f"compile {' '.join(options)}: {text}")
    return program


def outputs(program, *options, **environment):
    command = [program, "--random", "5", "--output-npz", program + ".npz", *options]
    code, text = run(command, **environment)
    need(code == 0, f"{os.path.basename(program)}: exit {code}: {text}")
    with np.load(program + ".npz") as file:
        return {key: file[key] for key in file}


def near(a, b, limit):
    for key in b:
        size = np.linalg.norm(b[key]) + 1e-30
        if not np.linalg.norm(a[key] - b[key]) <= limit * size:
            return False
    return True


def same(a, b):
    return all(a[key].tobytes() == b[key].tobytes() for key in b)


def make_plan(ullage, folder, *options):
    file = os.path.join(folder, "plan.json")
    code, text = run([ullage, "plan", os.path.join(folder, "model.onnx"), *options, "--json", file])
    need(code == 0, f"plan {' '.join(options)}: {text}")
    return read_json(file)


def count_all(plan):
    return sum(name != "ullage" for name in plan["steps"]["implementation"])


def count_calls(plan, wanted):
    names = plan["steps"]["implementation"]
    for library in ("cublaslt", "cudnn"):
        found = sum(name == library for name in names)
        need(found == wanted.get(library, 0), f"{found} calls of {library}: {names}")


def check_runs(program, wanted):
    """The library runs its calls: kernels of ours would give the same results."""
    file = program + ".bench.json"
    code, text = run([program, "--bench", "--profile", "--random", "1", "--json", file])
    need(code == 0, f"--bench: {text}")
    kernels = [step["kernel"] for step in read_json(file)["steps"]]
    for library in ("cublaslt", "cudnn"):
        found = sum(name.startswith((library + " algorithm", library + " engine"))
                    for name in kernels)
        need(found == wanted.get(library, 0), f"{library} runs {found} calls: {kernels}")


CUDA = ["--target", "cuda", "--with-cudnn", "on"]
ONCE = ("dynamic", "dynamic_pixels", "channels")  # 2^30 products each time; nothing to call


def check_plans(ullage, folder, name, calls):
    plan = make_plan(ullage, folder, *CUDA)
    count_calls(plan, calls)
    if name not in ONCE:
        find_least(ullage, folder, plan)


def check(ullage, folder, calls, quick):
    plain = outputs(compile_model(ullage, folder, "plain", "--target", "c", "--pack", "none"))
    program = compile_model(ullage, folder, "program", *CUDA)
    plan = read_json(program + ".json")
    count_calls(plan, calls)
    result = outputs(program)
    need(near(result, plain, 1e-5), "results differ from target c")
    check_runs(program, calls)
    code, text = run([program, "--guard", "--random", "1"])
    need(code == 0, f"--guard: {text}")
    check_kernels(program, calls, plain)
    check_nodes(program)
    if calls.get("cudnn", 0) > 1:
        check_half(program, calls, plain)
    if quick:
        check_missing(program, calls)
        return result
    code, text = run([program, "--memory", "--random", "1"])
    need(code == 0 and "free bytes stayed the same" in text, f"--memory: {text}")
    need(same(outputs(compile_model(ullage, folder, "unpacked", *CUDA, "--pack", "none")), result),
         "--pack none has other bits")
    small = outputs(compile_model(ullage, folder, "small", *CUDA, "--workspace", "0"))
    need(near(small, plain, 1e-5), "--workspace 0 differs")
    check_budget(ullage, folder, plan, plain)
    limits = (("--tf32", 2e-3), ("--precision fp16", 5e-3), ("--precision bf16", 3e-2))
    for options, limit in limits:
        other = compile_model(ullage, folder, "other", *CUDA, *options.split())
        need(near(outputs(other), plain, limit), f"{options} differs")
        code, text = run([other, "--guard", "--random", "1"])
        need(code == 0, f"{options} --guard: {text}")
    check_missing(program, calls)
    return result


def check_nodes(program):
    """Where no index can be out of range, a run is its launches alone."""
    log, file = program + ".log", program + ".memory.json"
    if os.path.exists(log):
        os.remove(log)
    code, text = run([program, "--memory", "--random", "1", "--json", file], UL_EMULATE_LOG=log)
    need(code == 0, f"--memory: {text}")
    launches = read_json(file)["device"]["launch_count"]
    with open(log) as handle:
        nodes = re.findall(r"^capture (\d+) nodes$", handle.read(), re.MULTILINE)
    need(nodes == [str(launches)], f"{launches} launches, {nodes} nodes")


def check_kernels(program, calls, plain, limit=1e-5):
    """Where the libraries have no algorithm, kernels of ours run in their place."""
    switch = {"UL_EMULATE_NO_ALGORITHMS": "1"}
    need(near(outputs(program, **switch), plain, limit), "kernels in the libraries' place differ")
    code, text = run([program, "--random", "1", "--output-npz", program + ".npz"], **switch)
    need(code == 0 and text.count("has no algorithm") == len(calls),
         f"the note of calls without an algorithm: exit {code}: {text}")
    code, text = run([program, "--guard", "--random", "1"], **switch)
    need(code == 0, f"--guard of kernels in the libraries' place: {text}")


def check_half(program, calls, plain, limit=1e-5):
    """cuDNN serves every other call; ours run the rest, and one line says how many."""
    switch = {"UL_EMULATE_HALF_ALGORITHMS": "1"}
    need(near(outputs(program, **switch), plain, limit), "half of cuDNN's calls differ")
    code, text = run([program, "--random", "1", "--output-npz", program + ".npz"], **switch)
    line = f"kernels of the program run {calls['cudnn'] // 2} of {calls['cudnn']} calls of cuDNN"
    need(code == 0 and line in text, f"the note of half of the calls: exit {code}: {text}")


def check_missing(program, calls):
    """One line and exit code 3."""
    for library, switch in (("cublaslt", "UL_EMULATE_NO_CUBLAS"), ("cudnn", "UL_EMULATE_NO_CUDNN")):
        code, text = run([program, "--random", "1"], **{switch: "1"})
        wanted = 3 if library in calls else 0
        need(code == wanted and (code == 0 or "was not found" in text),
             f"{switch}: exit {code}: {text}")


def check_align(ullage, folder, plain):
    """Where an operand is not at a multiple of 16 our kernel runs, and three places say so."""
    program = compile_model(ullage, folder, "align", *CUDA, "--align", "8")
    need(near(outputs(program), plain, 1e-5), "--align 8 differs")
    code, text = run([program, "--random", "1", "--output-dir", folder])
    found = re.search(r"kernels of the program run (\d) of 4 calls of cuDNN: (\d) have operands at "
                      r"no multiple of 16 bytes, --align 16 helps", text)
    need(code == 0 and found is not None and found[1] == found[2], f"the note of --align 8: {text}")
    own = int(found[1])
    need(0 < own <= 4, f"{own} of 4 calls are none")
    check_runs(program, {"cudnn": 4 - own})
    code, text = run([program, "--memory", "--random", "1", "--json", program + ".memory.json"])
    need(code == 0 and f"kernels of the program run {own} of 4 calls of cuDNN\n" in text,
         f"--memory of --align 8: {text}")
    calls = read_json(program + ".memory.json")["device"]["library_calls"]
    need(calls == {"cuDNN": {"planned": 4, "own": own}}, f"--memory --json: {calls}")
    code, text = run([program, "--guard", "--random", "1"])
    need(code == 0, f"--align 8 --guard: {text}")
    fitting = compile_model(ullage, folder, "align16", *CUDA, "--align", "16")
    check_runs(fitting, {"cudnn": 4})
    need(near(outputs(fitting), plain, 1e-5), "--align 16 differs")


def workspaces(ullage, folder, *options):
    """All of the plan's bytes, and those of the largest scratch."""
    plan = make_plan(ullage, folder, *CUDA, *options)
    code, text = run([ullage, "check", os.path.join(folder, "model.onnx"),
                      os.path.join(folder, "plan.json")])  # fmt: skip
    need(code == 0, f"check: {text}")
    ranges = zip(plan["ranges"]["class"], plan["ranges"]["size_bytes"])
    return plan["reserved_bytes"], max(size for kind, size in ranges if kind == "scratch")


def check_tight(ullage, folder):
    """What is asked for is there, in a larger arena; nobody asked for what is not."""
    few, default = workspaces(ullage, folder, "--workspace", "4MiB"), workspaces(ullage, folder)
    many = workspaces(ullage, folder, "--workspace", "16MiB")
    need(few == default and few[1] <= 4 << 20, f"{few} by --workspace 4MiB, {default} without")
    need(many[0] - few[0] == many[1] - few[1] > 1 << 20, f"{many} by --workspace 16MiB")


def check_room(ullage, folder):
    """What is free beside a step is its workspace; the arena is as large as without."""
    few, default = workspaces(ullage, folder, "--workspace", "4MiB"), workspaces(ullage, folder)
    need(few[0] == default[0], "the default raises the peak")
    need(few[1] <= 4 << 20 < default[1], f"workspaces of {few[1]} and {default[1]} bytes at most")
    older = workspaces(ullage, folder, "--profile", "a100-80gb-sxm")
    need(few == older, "an A100 gets other than 4 MiB by default")


def find_least(ullage, folder, plan):
    """The budget of the smallest plan, which does with less than the plan without one: workspace,
    pieces, or kernels of ours in the place of calls."""
    least = make_plan(ullage, folder, *CUDA, "--sweep")["plans"][-1]["reserved_bytes"]
    small = make_plan(ullage, folder, *CUDA, "--budget", str(least))
    steps = small["steps"]
    gives = any(steps["alternative"]) or any("[1/" in name for name in steps["name"])
    gives = gives or count_all(small) < count_all(plan)
    need(small["reserved_bytes"] == least and gives,
         f"a budget of {least} takes no call's workspace, cuts nothing and replaces no call")
    return least


WORKSPACES = {"tight": check_tight, "room": check_room}


def check_budget(ullage, folder, plan, plain):
    """The smallest program: calls with less workspace or none of them, and in pieces."""
    least = find_least(ullage, folder, plan)
    program = compile_model(ullage, folder, "least", *CUDA, "--budget", str(least))
    need(near(outputs(program), plain, 1e-5), f"--budget {least} differs")
    code, text = run([program, "--guard", "--random", "1"])
    need(code == 0, f"--budget {least} --guard: {text}")


def check_fallback(ullage, folder, calls, plain):
    """Without cuDNN kernels of ours run, where it is not demanded, and one line says so."""
    program = compile_model(ullage, folder, "auto", "--target", "cuda", "--with-cudnn", "auto")
    check_runs(program, calls)
    need(near(outputs(program), plain, 1e-5), "cuDNN, not demanded, differs")
    need(near(outputs(program, UL_EMULATE_NO_CUDNN="1"), plain, 1e-5),
         "kernels in cuDNN's place differ")
    code, text = run([program, "--random", "1", "--output-dir", folder], UL_EMULATE_NO_CUDNN="1")
    need(code == 0 and text.count("cuDNN was not found") == 1 and text.count("note:") == 1,
         f"the note of missing cuDNN: exit {code}: {text}")


def other_version(line):
    library, version, call, choice = line.split()
    return f"{library} {int(version) + 1} {call} {choice}"


def other_algorithm(line):
    library, version, call, choice = line.split()
    return f"{library} {version} {call} {'ff' * (len(choice) // 2)}"


def check_choices(folder, result):
    """What was tuned is what runs by the file; its lines."""
    program, choices = os.path.join(folder, "program"), os.path.join(folder, "choices.txt")
    tuned = outputs(program, "--tune", choices)
    need(near(tuned, result, 1e-5), "--tune differs")
    with open(choices) as file:
        lines = file.read().splitlines()
    need(lines[0] == "ullage choices 1" and len(lines) > 5, f"the file of choices: {lines}")
    need(same(outputs(program, "--choices", choices), tuned), "--choices has other bits")
    need(lines[-1] == "end", f"the file of choices: {lines}")
    spoilt = "\n".join([*lines[:4], other_algorithm(lines[4]), *lines[5:]]) + "\n"
    with open(choices, "w") as file:
        file.write(spoilt)
    code, text = run([program, "--random", "1", "--choices", choices])
    need(code == 2 and "does not run one of the choices" in text, f"a wrong choice: {code}: {text}")
    return lines


def check_tuning(folder, result):
    program, choices = os.path.join(folder, "program"), os.path.join(folder, "choices.txt")
    lines = check_choices(folder, result)
    whole = "\n".join(lines) + "\n"
    last = len(lines) - 1  # the number of the last choice's line
    for wrong, words in (
        (whole[len(lines[0]) + 1 :], "line 1: that is no file of choices"),
        (whole.replace(lines[1], "model 00"), "line 2: the file of choices is of another model"),
        (whole.replace(lines[2], "plan 00"), "line 3: the file of choices is of another plan"),
        (whole.replace(lines[3], "device X"), "line 4: the file of choices is of another device"),
        (whole[: -len("end\n")], f"line {last}: the file of choices is cut short behind this"),
        (whole[: -len("end\n") - 7], f"line {last}: that is no choice"),
        (whole.replace(lines[4], "cublaslt lots"), "line 5: that is no choice"),
        (whole.replace(lines[4], other_version(lines[4])),
         "line 5: that is a choice of another version of the library"),
        (whole.replace(lines[4], other_algorithm(lines[4])),
         "the library does not run one of the choices here"),
        (whole + "end\n", f"line {last + 2}: that is no choice"),
    ):
        with open(choices, "w") as file:
            file.write(wrong)
        code, text = run([program, "--random", "1", "--choices", choices])
        need(code == 2 and f"{choices}: {words}; make the file anew with --tune" in text,
             f"a wrong file: exit {code}: {text}")


def check_halves(ullage, folder, calls, quick):
    """Calls that there are in 16 bits alone."""
    plain = outputs(compile_model(ullage, folder, "plain", "--target", "c", "--pack", "none"))
    for precision, limit in (("fp16", 5e-3), ("bf16", 3e-2)):
        options = [*CUDA, "--precision", precision]
        program = compile_model(ullage, folder, "program", *options)
        count_calls(read_json(program + ".json"), calls)
        result = outputs(program)
        need(near(result, plain, limit), f"{precision} differs from target c")
        check_runs(program, calls)
        check_guard(program, precision)
        if quick and precision == "bf16":
            return
        check_kernels(program, calls, plain, limit)
        check_nodes(program)
        if calls["cudnn"] > 1:
            check_half(program, calls, plain, limit)
        check_missing(program, calls)
        check_choices(folder, result)
        for more in ("--workspace 0", "--align 8", "--pack none", "--with-cudnn off"):
            other = compile_model(ullage, folder, "other", *options, *more.split())
            need(near(outputs(other), plain, limit), f"{precision} {more} differs")
            check_guard(other, more)
            if quick:
                break


def check_guard(program, options):
    code, text = run([program, "--guard", "--random", "1"])
    need(code == 0, f"{options} --guard: {text}")


def run_model(ullage, name, seed, quick, plans):
    function, calls = {**MODELS, **HALVES}[name]
    with tempfile.TemporaryDirectory() as folder:
        net = Net(seed, calls)
        onnx.save(function(net), os.path.join(folder, "model.onnx"))
        if name in HALVES:
            check_halves(ullage, folder, calls, quick)
            return
        if name in WORKSPACES:
            WORKSPACES[name](ullage, folder)
        if plans:
            check_plans(ullage, folder, name, calls)
            return
        quick = quick or name in ONCE
        result = check(ullage, folder, calls, quick)
        if name == "odd":
            check_align(ullage, folder, result)
        if quick:
            return
        if name in ("convolutions", "convolution_residuals", "pixels"):
            check_fallback(ullage, folder, calls, result)
        if name == "alone":
            options = [*CUDA, "--io", "caller", "--workspace", "0"]
            check_runs(compile_model(ullage, folder, "caller", *options), calls)
        if name in ("deep", "pixels"):
            check_tuning(folder, result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    given = parser.parse_intermixed_args()
    os.environ.setdefault("NVCC", os.path.join(HERE, "nvcc"))
    failed = 0
    for name in given.names or (MODELS if given.plans else [*MODELS, *HALVES]):
        try:
            run_model(os.path.abspath(given.ullage), name, given.seed, given.quick, given.plans)
            print(f"ok   {name}", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL {name}: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
