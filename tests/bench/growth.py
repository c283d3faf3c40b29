#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the time and memory of planning grow with the number of nodes.

    growth.py --ullage build/release/cli/ullage [--nodes 1000,10000,100000] [--only NAME] [--keep DIR]

Makes ONNX models of tiny tensors (chains with skips, transformer blocks, wide branches, one long
chain of elementwise nodes, training-like mirrors) and abstract graphs, runs `ullage plan`,
`ullage plan --budget` (of all weights and 0.9 of the rest), `ullage compile --emit` and `ullage
solve` (with a budget of 0.8 of the published order's peak, and without one), and prints seconds of processor time, the peak resident set, and the exponent of
growth since the size before (1.00: linear). Limits: 10,000 nodes in 10 s and 100,000 in 120 s; a
command that takes --timeout seconds is stopped. Exit 6 when a limit is crossed.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WIDTH = 8  # elements of a row
SEQUENCE = 4


class Net:
    """A model under construction."""

    def __init__(self, seed=0):
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(seed)

    def add(self, op, *inputs, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attributes))
        return name

    def weight(self, *shape, value=None):
        name = f"w{len(self.weights)}"
        if value is None:
            value = self.random.standard_normal(shape).astype(np.float32) / WIDTH
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def save(self, path, shape, output):
        graph = helper.make_graph(
            self.nodes, "growth",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.weights)  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.save(model, path)
        return len(self.nodes)


def make_chain(net, count):
    """MatMul, Add, Relu and every fourth layer a skip from the eighth layer before."""
    layers = ["x"]
    while len(net.nodes) < count:
        at = net.add("MatMul", layers[-1], net.weight(WIDTH, WIDTH))
        at = net.add("Relu", net.add("Add", at, net.weight(WIDTH)))
        if len(layers) % 4 == 0 and len(layers) >= 8:
            at = net.add("Add", at, layers[-8])
        layers.append(at)
    return [2, WIDTH], layers[-1]


def make_transformer(net, count):
    """Attention and a two-layer network with their norms, written out as exporters do."""
    split = net.weight(value=np.array([SEQUENCE, 2, WIDTH // 2], np.int64))
    merge = net.weight(value=np.array([SEQUENCE, WIDTH], np.int64))
    scale = net.weight(value=np.float32(0.5))

    def heads(at, perm):
        at = net.add("Add", net.add("MatMul", at, net.weight(WIDTH, WIDTH)), net.weight(WIDTH))
        return net.add("Transpose", net.add("Reshape", at, split), perm=perm)

    def norm(at):
        return net.add("LayerNormalization", at, net.weight(WIDTH), net.weight(WIDTH), axis=-1)

    at = "x"
    while len(net.nodes) < count:
        inner = norm(at)
        scores = net.add("MatMul", heads(inner, [1, 0, 2]), heads(inner, [1, 2, 0]))
        share = net.add("Softmax", net.add("Mul", scores, scale), axis=-1)
        mixed = net.add("Transpose", net.add("MatMul", share, heads(inner, [1, 0, 2])), perm=[1, 0, 2])
        out = net.add("MatMul", net.add("Reshape", mixed, merge), net.weight(WIDTH, WIDTH))
        at = net.add("Add", net.add("Add", out, net.weight(WIDTH)), at)
        hidden = net.add("MatMul", norm(at), net.weight(WIDTH, 4 * WIDTH))
        hidden = net.add("Sigmoid", net.add("Add", hidden, net.weight(4 * WIDTH)))
        at = net.add("Add", net.add("MatMul", hidden, net.weight(4 * WIDTH, WIDTH)), at)
    return [SEQUENCE, WIDTH], at


def make_wide(net, count):
    """As many branches as each is long, from one value, joined by one Concat."""
    width = max(2, math.isqrt(count // 2))
    ends = []
    for _ in range(width):
        at = "x"
        for _ in range(width):
            at = net.add("Softmax", net.add("MatMul", at, net.weight(WIDTH, WIDTH)), axis=-1)
        ends.append(at)
    return [2, WIDTH], net.add("Concat", *ends, axis=0)


def make_elementwise(net, count):
    """Nothing but elementwise nodes: fusion has to stop somewhere."""
    operators = ["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Floor"]
    at, before = "x", "x"
    for i in range(count):
        if i % 7 == 6:
            at, before = net.add("Add", at, before), at
        else:
            at, before = net.add(operators[i % len(operators)], at), at
    return [2, WIDTH], at


def make_mirror(net, count):
    """A chain whose values are all used again, last made first, as a backward pass does."""
    kept = ["x"]
    for _ in range(count // 4):
        kept.append(net.add("Tanh", net.add("MatMul", kept[-1], net.weight(WIDTH, WIDTH))))
    at = kept[-1]
    for value in reversed(kept[:-1]):
        at = net.add("MatMul", net.add("Mul", at, value), net.weight(WIDTH, WIDTH))
    return [2, WIDTH], at


MODELS = {
    "chain": make_chain,
    "transformer": make_transformer,
    "wide": make_wide,
    "elementwise": make_elementwise,
    "mirror": make_mirror,
}


def make_graph_chain(count, rng):
    edges = [(i - 1, i) for i in range(1, count)]
    return edges + [(i - rng.randint(2, 9), i) for i in range(10, count, 4)]


def make_graph_train(count, rng):
    """Forward with skips, then backward: each step reads the gradient before and its own values."""
    half = count // 2
    edges = [(i - 1, i) for i in range(1, 2 * half)]
    edges += [(i - rng.randint(2, 9), i) for i in range(10, half, 8)]
    return edges + [(2 * half - 1 - i, i) for i in range(half + 1, 2 * half)]


def make_graph_layered(count, rng):
    """Layers of sixteen, each node reading up to three of the layer before."""
    layer = 16
    edges = set()
    for i in range(layer, count):
        first = (i // layer - 1) * layer
        edges.update((first + rng.randrange(layer), i) for _ in range(3))
    return sorted(edges)


GRAPHS = {
    "graph-chain": make_graph_chain,
    "graph-train": make_graph_train,
    "graph-layered": make_graph_layered,
}


def write_graph(name, count, path):
    rng = random.Random(count)
    edges = GRAPHS[name](count, rng)
    nodes = [
        {"id": i, "name": f"n{i}", "bytes": rng.randint(1, 4096), "cost": rng.randint(1, 100), "phase": "forward"}
        for i in range(count)
    ]
    graph = {"format": "ullage-graph", "version": 1, "name": name, "nodes": nodes, "edges": edges, "order": list(range(count))}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(graph, f)
    return count


def write_model(name, count, path):
    net = Net()
    shape, output = MODELS[name](net, count)
    return net.save(path, shape, output)


def measure(command, timeout, log):
    """(processor seconds, peak bytes, exit code); None instead of the first when stopped. GNU time
    forks the child, since a child's peak starts at that of the process that forked it."""
    times = log + ".time"
    with open(log, "wb") as f:
        timed = ["/usr/bin/time", "-q", "-f", "%U %S %M", "-o", times, "timeout", str(timeout)]
        code = subprocess.call([*timed, *command], stdin=subprocess.DEVNULL, stdout=f, stderr=f)
    with open(times, encoding="utf-8") as f:
        user, system, peak = f.read().split()[-3:]
    return float(user) + float(system), int(peak) * 1024, code


def commands_of(args, name, path, folder):
    plan = os.path.join(folder, "plan.json")
    if name in MODELS:
        source = os.path.join(folder, f"{name}-source")
        yield "plan", [args.ullage, "plan", path, "--json", plan]
        with open(plan, encoding="utf-8") as f:
            made = json.load(f)
        weights = made["rows"]["weights"]
        budget = weights + int(0.9 * (made["reserved_bytes"] - weights))
        yield "plan 0.9", [args.ullage, "plan", path, "--budget-of", "arena", "--budget", str(budget), "--json", plan]
        yield "emit", [args.ullage, "compile", path, "--emit", source]
        return
    yield "solve", [args.ullage, "solve", path, "--json", plan]
    yield "solve 0.8", [args.ullage, "solve", path, "--budget-fraction", "0.8", "--json", plan]


def exponent(now, before, size, size_before):
    if before is None or before <= 0 or now <= 0:
        return "-"
    return f"{math.log(now / before) / math.log(size / size_before):.2f}"


def bench(args, name, folder, before):
    """All sizes of one graph; False when a limit was crossed."""
    ok = True
    for count in args.nodes:
        path = os.path.join(args.keep or folder, f"{name}-{count}{'.onnx' if name in MODELS else '.json'}")
        if not os.path.exists(path):
            (write_model if name in MODELS else write_graph)(name, count, path)
        for what, command in commands_of(args, name, path, folder):
            if args.command and what not in args.command.split(","):
                continue
            log = os.path.join(folder, "log")
            seconds, peak, code = measure(command, args.timeout, log)
            limit = 10 if count <= 10000 else 120 * max(1, count / 100000)
            late = code == 124 or seconds > limit
            known = before.get((name, what), (None, None, None))
            note = "stopped" if code == 124 else "" if code in (0, 4) else f"exit {code}"
            note = note or (f"over {limit:.0f} s" if late else "")
            ok = ok and not late and code in (0, 4)
            print(f"{name:14} {count:8} {what:10} {seconds:9.2f} {exponent(seconds, known[0], count, known[2]):>6}"
                  f" {peak / 2**20:9.1f} {exponent(peak, known[1], count, known[2]):>6}  {note}", flush=True)  # fmt: skip
            if code not in (0, 4, 124):
                with open(log, encoding="utf-8", errors="replace") as f:
                    print("  " + f.read().strip()[-300:])
            before[name, what] = (seconds, peak, count)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--nodes", default="1000,10000,100000")
    parser.add_argument("--only", help="names of graphs, with commas: " + ", ".join([*MODELS, *GRAPHS]))
    parser.add_argument("--command", help="plan, plan 0.9, emit, solve, solve 0.8, with commas")
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--keep", help="where the models are kept, and taken from when they are there")
    args = parser.parse_args()
    args.nodes = [int(n) for n in args.nodes.split(",")]
    names = args.only.split(",") if args.only else [*MODELS, *GRAPHS]
    if unknown := {*names} - {*MODELS, *GRAPHS}:
        parser.error(f"no graph {', '.join(sorted(unknown))}; there are {', '.join([*MODELS, *GRAPHS])}")
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
    print(f"{'graph':14} {'nodes':>8} {'command':10} {'CPU s':>9} {'grows':>6} {'peak MiB':>9} {'grows':>6}")
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        before = {}
        for name in names:
            ok = bench(args, name, folder, before) and ok
    return 0 if ok else 6


if __name__ == "__main__":
    sys.exit(main())
