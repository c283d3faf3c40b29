#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that a model stores narrow, in f16, bf16 or int8, beside the same network in float32.

    narrow.py --ullage build/release/cli/ullage [--only WORD...] [--batches 1,8,64] [--rounds 15]
              [--threads 1] [--target cpu] [--json FILE] [--no-peer]

Each kind is a small stack of layers (four 1024 x 1024 products, four convolutions of 256 channels on
14 x 14, four transposed ones of 3 x 3 there, or two of 4 x 4 by stride 2, a table of 32768 x 256), or ResNet-50 of models/, whose convolutions have such weights, at batches of 8 at most: f16 and bf16 weights stand after a Cast, `int8` ones after Cast and
Mul by a scale for each column or channel, `qdq` ones after a DequantizeLinear. The program of each
type runs in turn with the float32 program and with onnxruntime on the same file, --rounds times in
all, for a tenth of a second each. What counts is the processor time of a run, that of the fastest of
these turns: other work on the machine only ever adds to it.

    ms         of the float32 program, and of the narrow one as a ratio to it
    weights    bytes of weights in the plan, as a ratio to those of the float32 program
    buffer     all that the program reserves, likewise
    peer       time of the narrow program over onnxruntime's on the same file

Wanted: products and tables at batch 1 at most 0.7 of the float32 program's time, at batch 64 at most 1.05; convolutions,
which compute more than they read, at most 1.05 at any; weights at most 0.55. Exit 6 where that is missed; 77 where a package is missing.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import ml_dtypes
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"narrow.py: skipped: {error}")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

LAYERS, SIZE, CHANNELS, PLACES, ROWS, WIDTH = 4, 1024, 256, 14, 32768, 256
TYPES = ("f16", "bf16", "int8", "qdq")
SMALL_TYPES = ("e4m3", "e5m2")  # where --types names them
KINDS = ("matmul", "gemm", "transposed", "batched", "conv1x1", "conv3x3", "up3x3", "up4x4", "gather", "resnet50")
MOST_PICTURES = 8  # of resnet50
SECONDS = 0.1
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")
NARROW = {"f16": numpy.float16, "bf16": ml_dtypes.bfloat16,
          "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}  # fmt: skip


class Network:
    def __init__(self, kind, type_name, batch):
        self.kind, self.type, self.batch = kind, type_name, batch
        self.nodes, self.weights = [], []
        self.rng = numpy.random.default_rng(1)

    def node(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def weight(self, shape, axis):
        """A weight as float32; a scale for each index of an axis."""
        fan = numpy.prod(shape) / shape[axis]
        codes = self.rng.integers(-127, 128, shape, "i1")
        scales = (self.rng.uniform(0.5, 1.5, shape[axis]) / 64 / numpy.sqrt(fan)).astype("f4")
        spread = scales.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        if self.type == "f32":
            return self.constant(codes * spread)
        if self.type in NARROW:
            stored = self.constant((codes * spread).astype(NARROW[self.type]))
            return self.node("Cast", [stored], to=TensorProto.FLOAT)
        if self.type == "qdq":
            return self.node("DequantizeLinear", [self.constant(codes), self.constant(scales)], axis=axis)
        wide = self.node("Cast", [self.constant(codes)], to=TensorProto.FLOAT)
        return self.node("Mul", [wide, self.constant(spread)])

    def layer(self, x):
        if self.kind == "matmul":
            return self.node("MatMul", [x, self.weight((SIZE, SIZE), 1)])
        if self.kind == "batched":
            return self.node("MatMul", [x, self.weight((4, SIZE // 2, SIZE // 2), 0)])
        if self.kind == "gemm":
            bias = self.constant(numpy.zeros(SIZE, "f4"))
            return self.node("Gemm", [x, self.weight((SIZE, SIZE), 0), bias], transB=1)
        if self.kind == "transposed":
            return self.node("MatMul", [x, self.node("Transpose", [self.weight((SIZE, SIZE), 0)], perm=[1, 0])])
        if self.kind.startswith("up"):
            k, stride = (3, 1) if self.kind == "up3x3" else (4, 2)
            return self.node("ConvTranspose", [x, self.weight((CHANNELS, CHANNELS, k, k), 1)], pads=[1] * 4, strides=[stride] * 2)
        k = 1 if self.kind == "conv1x1" else 3
        return self.node("Conv", [x, self.weight((CHANNELS, CHANNELS, k, k), 0)], pads=[k // 2] * 4)

    def make(self):
        if self.kind == "resnet50":
            return self.resnet()
        dtype = TensorProto.FLOAT
        shape = [self.batch, SIZE]
        if self.kind == "gather":
            dtype, shape = TensorProto.INT64, [self.batch, 32]
            last = self.node("Gather", [self.weight((ROWS, WIDTH), 0), "x"])
            last, out = self.node("Relu", [last]), [self.batch, 32, WIDTH]
        else:
            if self.kind == "batched":
                shape = [4, self.batch, SIZE // 2]
            elif self.kind.startswith(("conv", "up")):
                shape = [self.batch, CHANNELS, PLACES, PLACES]
            last, out, layers = "x", shape, LAYERS
            if self.kind == "up4x4":
                layers, out = 2, [self.batch, CHANNELS, 4 * PLACES, 4 * PLACES]
            for _ in range(layers):
                last = self.node("Relu", [self.layer(last)])
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info("x", dtype, shape)],
                                  [helper.make_tensor_value_info(last, TensorProto.FLOAT, out)], self.weights)  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def resnet(self):
        sys.path.insert(0, MODELS)
        make = importlib.import_module("make")
        model = make.make("resnet50", batch=self.batch)
        first, nodes, stored = model.graph.input[0].name, [], {}
        for node in model.graph.node:
            if node.op_type == "Conv":
                stored[node.input[1]] = None
        for weight in model.graph.initializer:
            if weight.name in stored and self.type != "f32":
                stored[weight.name] = self.narrowed(numpy_helper.to_array(weight))
            else:
                self.weights.append(weight)
        for node in model.graph.node:
            inputs = ["x" if name == first else stored.get(name) or name for name in node.input]
            del node.input[:]
            node.input.extend(inputs)
            nodes.append(node)
        model.graph.input[0].name = "x"
        del model.graph.node[:], model.graph.initializer[:]
        model.graph.node.extend(self.nodes + nodes)
        model.graph.initializer.extend(self.weights)
        return model

    def narrowed(self, array):
        """A weight of [channels, ...] as it is stored."""
        if self.type in NARROW:
            stored = self.constant(array.astype(NARROW[self.type]))
            return self.node("Cast", [stored], to=TensorProto.FLOAT)
        most = numpy.abs(array).max(axis=tuple(range(1, array.ndim)), keepdims=True)
        scales = (most / 127).astype("f4")
        codes = numpy.rint(array / scales).astype("i1")
        if self.type == "qdq":
            return self.node("DequantizeLinear", [self.constant(codes), self.constant(scales.reshape(-1))], axis=0)
        wide = self.node("Cast", [self.constant(codes)], to=TensorProto.FLOAT)
        return self.node("Mul", [wide, self.constant(scales)])

    def input(self):
        if self.kind == "resnet50":
            return self.rng.normal(0, 1, (self.batch, 3, 224, 224)).astype("f4")
        if self.kind == "gather":
            return self.rng.integers(0, ROWS, (self.batch, 32), "i8")
        shape = {"batched": [4, self.batch, SIZE // 2]}.get(self.kind, [self.batch, SIZE])
        if self.kind.startswith(("conv", "up")):
            shape = [self.batch, CHANNELS, PLACES, PLACES]
        return self.rng.normal(0, 1, shape).astype("f4")


def command_of(args, model, program):
    options = [] if args.target == "c" else ["--threads", str(args.threads)]
    return [args.ullage, "compile", model, "--target", args.target, *options, "-o", program]


class Program:
    def __init__(self, args, folder, kind, type_name, batch):
        network = Network(kind, type_name, batch)
        self.base = os.path.join(folder, f"{kind}_{type_name}_{batch}")
        self.model, self.program = self.base + ".onnx", self.base + ".bin"
        onnx.save(network.make(), self.model)
        self.input = self.base + ".npy"
        numpy.save(self.input, network.input())
        plan = self.base + ".json"
        subprocess.run([*command_of(args, self.model, self.program), "--json", plan], check=True, stdout=subprocess.DEVNULL)
        with open(plan, encoding="utf-8") as file:
            self.plan = json.load(file)
        self.best, self.peer, self.session = None, None, None

    def weight_bytes(self):
        return self.plan["rows"]["weights"]

    def run(self, args):
        path = self.base + ".bench.json"
        subprocess.run([self.program, "--bench", "--input", f"x={self.input}", "--duration", str(SECONDS), "--json", path],
                       check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        ms = found["cpu_seconds"] / found["runs"] * 1e3
        self.best = ms if self.best is None else min(ms, self.best)

    def run_peer(self, args):
        if self.session is None:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = args.threads
            self.session = onnxruntime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])
        x, begin, count = numpy.load(self.input), time.process_time(), 0
        while count < 3 or time.process_time() - begin < SECONDS:
            self.session.run(None, {"x": x})
            count += 1
        ms = (time.process_time() - begin) / count * 1e3
        self.peer = ms if self.peer is None else min(ms, self.peer)


def bench(args, folder, kind, batch):
    types = ["f32", *(args.types or TYPES)]
    programs = [Program(args, folder, kind, name, batch) for name in types]
    for _ in range(args.rounds):
        for program in programs:
            program.run(args)
    for program in programs if args.peer and onnxruntime is not None else []:
        for _ in range(args.rounds):
            program.run_peer(args)
        program.session = None
    rows = []
    for name, program in zip(types, programs):
        row = {"kind": kind, "batch": batch, "type": name, "ms": program.best, "ratio": program.best / programs[0].best,
               "weights": program.weight_bytes() / programs[0].weight_bytes(),
               "peak": program.plan["reserved_bytes"] / programs[0].plan["reserved_bytes"],
               "peer_ms": program.peer, "steps": sorted(set(program.plan["steps"]["op"]))}
        peer = "" if program.peer is None else f"  onnxruntime {program.peer:8.3f}"
        print(f"{kind:10} {batch:4} {name:5} {row['ms']:9.3f} ms {row['ratio']:6.2f}  weights {row['weights']:5.2f}"
              f"  buffer {row['peak']:5.2f}{peer}  {' '.join(row['steps'])}", flush=True)
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ullage", default="build/release/cli/ullage")
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--types", nargs="*", default=[], choices=TYPES + SMALL_TYPES)
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--json")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    args = parser.parse_args()
    rows = []
    for kind in [kind for kind in KINDS if kind in args.only]:
        for batch in args.batches.split(","):
            if kind == "resnet50" and int(batch) > MOST_PICTURES:
                continue
            with tempfile.TemporaryDirectory(prefix="ullage-narrow-") as folder:
                rows += bench(args, folder, kind, int(batch))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    missed = 0
    for row in rows:
        convolves = row["kind"].startswith(("conv", "up")) or row["kind"] == "resnet50"
        wanted = 1.05 if convolves else {1: 0.7, 64: 1.05}.get(row["batch"])
        slow = wanted is not None and row["ratio"] > wanted
        if row["type"] != "f32" and (slow or row["weights"] > 0.55):
            missed += 1
            print(f"missed: {row['kind']} {row['batch']} {row['type']}: time {row['ratio']:.2f}, weights {row['weights']:.2f}")
    return 6 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
