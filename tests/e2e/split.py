#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random chains of operators, computed in pieces and whole: the bits must be the same, or, where
calls of libraries are cut whose order of sums is their own (target cuda), the same to rounding.

    split.py ULLAGE [--target c] [--threads N] [--conv METHOD] [--models 6] [--chains 8] [--seed 1] [--march native none]
             [--keep DIR]

A model holds several chains side by side. Each is split along the batch, the rows or another axis
where the compiler can; then the model is compiled whole without any reuse of memory (--pack none)
and in pieces, by gcc and by clang, for this machine and for a plain one, and both run on the same
random inputs. Exit: 0 ok, 1 bits differ or a command failed, 77 a Python package is missing.
"""

import argparse
import filecmp
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"split.py: skipped: {error}")
    sys.exit(77)


class Chain:
    """Nodes one after the other; `value` is the last one's output, of `shape`."""

    def __init__(self, rng, name, shape):
        self.rng, self.name = rng, name
        self.nodes, self.weights = [], []
        self.value, self.shape = name + "_x", list(shape)
        self.inputs = [helper.make_tensor_value_info(self.value, TensorProto.FLOAT, shape)]

    def weight(self, *shape, scale=None):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        scale = scale or 1.5 / np.sqrt(max(fan, 1))
        array = np.random.default_rng(self.rng.randrange(1 << 30)).normal(0, scale, shape)
        name = f"{self.name}_w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def constant(self, values):
        name = f"{self.name}_w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def add(self, op, *more, first=None, **attributes):
        name = f"{self.name}_n{len(self.nodes)}"
        inputs = [self.value if first is None else first, *more]
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        self.value = name

    # ---- images ----

    def window(self, kernel, ceil_mode=False):
        """Attributes of a window over both spatial dimensions, and the size they leave."""
        rng = self.rng
        stride = [rng.choice([1, 1, 2, 3]) for _ in range(2)]
        dilation = [rng.choice([1, 1, 1, 2]) for _ in range(2)]
        reach = [(kernel[i] - 1) * dilation[i] + 1 for i in range(2)]
        attributes = {"strides": stride, "dilations": dilation}
        if not ceil_mode and rng.random() < 0.25:
            attributes["auto_pad"] = rng.choice(["SAME_UPPER", "SAME_LOWER"])
            out = [-(-self.shape[2 + i] // stride[i]) for i in range(2)]
        else:
            pads = [rng.randrange(0, reach[i % 2] // 2 + 1) for i in range(4)]
            attributes["pads"] = pads
            room = [self.shape[2 + i] + pads[i] + pads[2 + i] - reach[i] for i in range(2)]
            if min(room) < 0:
                return None, None
            out = [room[i] // stride[i] + 1 for i in range(2)]
            if ceil_mode:
                out = [-(-room[i] // stride[i]) + 1 for i in range(2)]
                for i in range(2):
                    out[i] -= (out[i] - 1) * stride[i] >= self.shape[2 + i] + pads[i]
        return attributes, out

    def conv(self):
        rng = self.rng
        kernel = [rng.choice([1, 1, 3, 3, 5]), rng.choice([1, 3, 3])]
        attributes, out = self.window(kernel)
        if out is None:
            return
        channels = self.shape[1]
        group = rng.choice([1, 1, channels])
        made = channels * rng.choice([1, 2]) if group > 1 else rng.choice([3, 8, 16, 20])
        w = self.weight(made, channels // group, *kernel)
        self.add("Conv", w, self.weight(made), group=group, **attributes)
        self.shape = [self.shape[0], made, *out]

    def transposed(self):
        stride = self.rng.choice([1, 2, 2, 3])
        kernel = self.rng.choice([stride, stride + 1, 4])
        pad = self.rng.randrange(0, 2) if kernel > 2 else 0
        made = self.rng.choice([2, 5, 8])
        size = [stride * (s - 1) + kernel - 2 * pad for s in self.shape[2:]]
        if min(size) < 1 or max(size) > 64:
            return
        w = self.weight(self.shape[1], made, kernel, kernel)
        self.add("ConvTranspose", w, strides=[stride] * 2, pads=[pad] * 4)
        self.shape = [self.shape[0], made, *size]

    def pool(self):
        rng = self.rng
        kernel = [rng.choice([2, 3]), rng.choice([2, 3])]
        ceil_mode = rng.random() < 0.4
        attributes, out = self.window(kernel, ceil_mode)
        if out is None:
            return
        attributes["kernel_shape"] = kernel
        if "pads" in attributes:
            attributes["ceil_mode"] = int(ceil_mode)
        op = rng.choice(["MaxPool", "AveragePool"])
        if op == "AveragePool":
            attributes["count_include_pad"] = rng.randrange(2)
        self.add(op, **attributes)
        self.shape[2:] = out

    def activation(self):
        op = self.rng.choice(["Relu", "Sigmoid", "HardSwish", "Tanh", "Elu", "scale"])
        if op == "scale":
            self.add("Mul", self.weight(1, self.shape[1], *[1] * (len(self.shape) - 2)))
            self.add("Add", self.weight(1, self.shape[1], *[1] * (len(self.shape) - 2)))
        else:
            self.add(op)

    def residual(self):
        begin, channels = self.value, self.shape[1]
        w = self.weight(channels, channels, 3, 3)
        self.add("Conv", w, pads=[1] * 4)
        self.add("Relu")
        self.add("Conv", self.weight(channels, channels, 3, 1), pads=[1, 0, 1, 0])
        self.add("Add", begin)

    # ---- sequences ----

    def product(self):
        width = self.rng.choice([1, 7, 16, 33, 64])
        self.add("MatMul", self.weight(self.shape[-1], width))
        self.shape[-1] = width
        if self.rng.random() < 0.5:
            self.add("Add", self.weight(width))

    def norm(self):
        op = self.rng.choice(["LayerNormalization", "Softmax", "ReduceMean", "LpNormalization"])
        if op == "LayerNormalization":
            self.add(op, self.weight(self.shape[-1]), self.weight(self.shape[-1]), axis=-1)
        elif op == "ReduceMean":
            before = self.value
            self.add(op, self.constant([-1]), keepdims=1)
            self.add("Sub", self.value, first=before)
        else:
            self.add(op, axis=-1)

    def attention(self):
        batch, rows, width = self.shape
        heads = self.rng.choice([1, 2, 4])
        if width % heads:
            return
        parts = []
        begin = self.value
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            self.value = begin
            self.add("MatMul", self.weight(width, width))
            self.add("Reshape", self.constant([batch, rows, heads, width // heads]))
            self.add("Transpose", perm=perm)
            parts.append(self.value)
        self.add("MatMul", parts[1], first=parts[0])
        self.add("Softmax", axis=-1)
        self.add("MatMul", parts[2])
        self.add("Transpose", perm=[0, 2, 1, 3])
        self.add("Reshape", self.constant([batch, rows, width]))

    def build(self):
        images = len(self.shape) == 4
        steps = [self.conv, self.conv, self.activation, self.pool, self.residual, self.transposed]
        if not images:
            steps = [self.product, self.product, self.norm, self.activation_last, self.attention]
        while len(self.nodes) < self.rng.randrange(2, 7):
            self.rng.choice(steps)()
        return self

    def activation_last(self):
        self.add(self.rng.choice(["Gelu", "Sigmoid", "Relu"]))


def make_chain(rng, name):
    if rng.random() < 0.65:
        shape = [rng.choice([1, 1, 2, 5]), rng.choice([1, 3, 8, 12]), rng.randrange(6, 40),
                 rng.randrange(4, 40)]
    else:
        shape = [rng.choice([1, 2, 3, 4]), rng.randrange(3, 40), rng.choice([8, 20, 64])]
    return Chain(rng, name, shape).build()


def command(*words, **options):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)


def find_split(ullage, common, model, chain, rng):
    """The first split of the chain that the compiler takes, of some that are tried."""
    names = [node.name for node in chain.nodes]
    for _ in range(8):
        first = rng.randrange(0, len(names))
        last = rng.randrange(first, len(names))
        axis = rng.choice(["batch", "rows", "rows", 1, 2])
        text = f"{names[first]}..{names[last]}:{axis}:{rng.randrange(2, 7)}"
        done = command(ullage, "plan", model, *common, "--split", text)
        if done.returncode == 0:
            return text
    return None


def run(ullage, model, folder, label, options, environment):
    program = os.path.join(folder, label)
    outputs = program + ".out"
    os.mkdir(outputs)
    plan = program + ".json"
    done = command(ullage, "compile", model, "-o", program, "--json", plan, *options,
                   env=environment)  # fmt: skip
    if done.returncode == 0:
        done = command(ullage, "check", model, plan)
    if done.returncode == 0:
        done = command(program, "--random", 3, "--guard")
    if done.returncode == 0:
        done = command(program, "--random", 3, "--output-dir", outputs)
    if done.returncode != 0:
        print(f"FAIL {label}: exit code {done.returncode}: {done.stderr}")
        return None
    return outputs


def has_calls(outputs):
    with open(outputs.removesuffix(".out") + ".json") as file:
        names = json.load(file)["steps"]["implementation"]
    return any(name in ("cublaslt", "cudnn") for name in names)


def near(whole, pieces, name):
    a, b = (np.load(os.path.join(folder, name)) for folder in (whole, pieces))
    return np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a)


def same_bits(whole, pieces, label):
    if has_calls(whole):
        different = [name for name in os.listdir(whole) if not near(whole, pieces, name)]
        if different:
            print(f"FAIL {label}: {different} differ by more than rounding")
        return not different
    different = filecmp.cmpfiles(whole, pieces, os.listdir(whole), shallow=False)[1:]
    if any(different):
        print(f"FAIL {label}: {different} differ")
    return not any(different)


def check_model(ullage, common, rng, chain_count, marches, folder):
    chains = [make_chain(rng, f"c{i}") for i in range(chain_count)]
    graph = helper.make_graph(
        [node for chain in chains for node in chain.nodes], "chains",
        [value for chain in chains for value in chain.inputs],
        [helper.make_tensor_value_info(chain.value, TensorProto.FLOAT, chain.shape)
         for chain in chains],
        [weight for chain in chains for weight in chain.weights])
    model = os.path.join(folder, "model.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                ir_version=9), model)
    splits = [find_split(ullage, common, model, chain, rng) for chain in chains]
    taken = [word for text in splits if text for word in ("--split", text)]
    ok = True
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler) is None:
            continue
        for march in marches:
            environment = dict(os.environ, CC=compiler)
            label = f"{compiler}-{march}"
            options = [*common, *(["--march", march] if march != "native" else [])]
            whole = run(ullage, model, folder, label + "-whole", options + ["--pack", "none"],
                        environment)
            pieces = run(ullage, model, folder, label + "-pieces", options + taken, environment)
            ok = ok and whole and pieces and same_bits(whole, pieces, label)
    if not ok:
        print(" ".join(f"'{word}'" for word in taken))
    return ok, len(taken) // 2


def save_chain(chain, path):
    graph = helper.make_graph(
        chain.nodes, chain.name, chain.inputs,
        [helper.make_tensor_value_info(chain.value, TensorProto.FLOAT, None)], chain.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)],
                                ir_version=9), path)
    return [node.name for node in chain.nodes]


def check_necks(ullage, common, folder):
    """Chains that begin at each node of expressions that a convolution loads."""
    ok = True
    for which, ops in enumerate((("Mul", "Add", "Mul"), ("Mul",), ("Mul", "Neg", "Add"))):
        chain = Chain(random.Random(3), f"n{which}", [1, 4, 21, 18])
        for op in ops:
            chain.add(op, *([] if op == "Neg" else [chain.weight(1, 4, 1, 1)]))
        for made, read in ((16, 4), (4, 16)):
            chain.add("Conv", chain.weight(made, read, 3, 3), pads=[1] * 4)
        model = os.path.join(folder, f"necks{which}.onnx")
        names = save_chain(chain, model)
        whole = run(ullage, model, folder, f"necks{which}", common + ["--pack", "none"], None)
        ok = ok and bool(whole)
        for first in names[:-1]:
            label = f"necks-{first}"
            split = ["--split", f"{first}..{names[-1]}:rows:5"]
            pieces = run(ullage, model, folder, label, common + split, None)
            ok = bool(pieces) and ok and same_bits(whole, pieces, label)
    return ok


def check_tiles(ullage, common, folder):
    """Tiles of 2x2 results that pieces of odd rows and columns cut, by Winograd's method."""
    chain = Chain(random.Random(7), "t", [2, 16, 29, 31])
    for index, (made, read) in enumerate(((32, 16), (32, 32), (32, 32), (24, 32))):
        chain.add("Conv", chain.weight(made, read, 3, 3), pads=[index % 2] * 4)
        chain.add("Relu")
    model = os.path.join(folder, "tiles.onnx")
    names = save_chain(chain, model)
    whole = run(ullage, model, folder, "tiles", common + ["--pack", "none"], None)
    ok = bool(whole)
    for cut in ("rows:3", "rows:5", "3:4", "batch:2"):
        label = "tiles-" + cut.replace(":", "-")
        split = ["--split", f"{names[0]}..{names[-1]}:{cut}"]
        pieces = run(ullage, model, folder, label, common + split, None)
        ok = bool(pieces) and ok and same_bits(whole, pieces, label)
        with open(os.path.join(folder, label + ".json")) as file:
            ways = json.load(file)["steps"]["implementation"]
        if ways.count("ullage winograd_2x3") < 4:
            print(f"FAIL {label}: {ways}")
            ok = False
    return ok


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--threads")
    parser.add_argument("--conv")
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--march", nargs="+", default=["native", "none"])
    parser.add_argument("--keep", help="folder for the models, which are left there")
    arguments = parser.parse_args()
    common = ["--target", arguments.target]
    common += ["--threads", arguments.threads] if arguments.threads else []
    common += ["--conv", arguments.conv] if arguments.conv else []
    failed = split_count = 0
    with tempfile.TemporaryDirectory() as folder:
        failed += not check_necks(os.path.abspath(arguments.ullage), common, folder)
    if arguments.conv == "winograd":
        with tempfile.TemporaryDirectory() as folder:
            failed += not check_tiles(os.path.abspath(arguments.ullage), common, folder)
    for number in range(arguments.models):
        rng = random.Random(arguments.seed * 1000 + number)
        folder = tempfile.mkdtemp(dir=arguments.keep)
        ok, count = check_model(os.path.abspath(arguments.ullage), common, rng,
                                arguments.chains, arguments.march, folder)
        split_count += count
        failed += not ok
        if not ok:
            print(f"FAIL model {number} of seed {arguments.seed}")
        if not arguments.keep:
            shutil.rmtree(folder)
    print(f"{arguments.models} models with {split_count} split chains, {failed} failed")
    return 1 if failed or split_count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
