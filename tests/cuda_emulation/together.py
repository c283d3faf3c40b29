#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers of target cuda in one launch, whose blocks wait for each other, under the
emulation: against onnxruntime, and with the same bits as a launch for each step, in any order of
blocks, without reuse of memory, and in every replay of a run.

    together.py ULLAGE [--race] [NAME...]      --list names the cases; --race: with the thread
                                               sanitizer, which wants few blocks
exit: 0 ok, 6 a case failed, 77 a Python package is missing
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"together.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 4e-2}

# name: operator, hidden, inputs, steps, batch, what it has (2: another layer after it),
# attributes, launches of its layers
CASES = {
    "lstm": ("LSTM", 96, 5, 7, 1, "b", {}, 1),
    "lstm_all": ("LSTM", 96, 8, 5, 3, "blhcp", {"direction": "bidirectional", "clip": 0.5}, 1),
    "lstm_tile": ("LSTM", 96, 64, 8, 2, "b", {}, 1),
    "lstm_tiles": ("LSTM", 96, 64, 20, 1, "b", {"direction": "bidirectional"}, 1),
    "lstm_batch": ("LSTM", 104, 8, 4, 8, "bhc", {"direction": "reverse"}, 1),
    "lstm_odd": ("LSTM", 93, 3, 4, 2, "b", {}, 1),
    "lstm_coupled": ("LSTM", 96, 8, 4, 1, "bp", {"input_forget": 1}, 1),
    "lstm_layout": ("LSTM", 96, 8, 4, 2, "bhc", {"layout": 1}, 1),
    "lstm_long": ("LSTM", 96, 4, 350, 8, "b", {}, 6),
    "lstm_large": ("LSTM", 512, 16, 3, 1, "b", {}, 1),
    "lstm_layers": ("LSTM", 96, 8, 4, 1, "b2", {}, 2),
    "lstm_many": ("LSTM", 96, 8, 3, 20, "b", {}, 0),
    "gru": ("GRU", 112, 6, 5, 1, "bh", {}, 1),
    "gru_linear": ("GRU", 112, 6, 5, 5, "blh",
                   {"direction": "bidirectional", "linear_before_reset": 1}, 1),
    "gru_two": ("GRU", 108, 4, 4, 1, "b", {
        "direction": "bidirectional", "activations": ["Sigmoid", "Tanh", "Sigmoid", "Relu"]}, 2),
    "rnn": ("RNN", 192, 16, 6, 2, "bh", {"direction": "bidirectional"}, 1),
}  # fmt: skip


def make(name, path):
    """The model; its inputs, and what onnxruntime computes from them."""
    op, hidden, inputs, steps, batch, has, attributes, _ = CASES[name]
    rng = np.random.default_rng(len(name))
    both = attributes.get("direction") == "bidirectional"
    directions, rows = 1 + both, GATES[op] * hidden
    swaps = attributes.get("layout", 0) == 1

    def state(*shape):
        return (shape[1], shape[0], *shape[2:]) if swaps else shape

    scale = 1 / hidden**0.5
    tensors = {"w": rng.uniform(-1, 1, (directions, rows, inputs)),
               "r": rng.uniform(-scale, scale, (directions, rows, hidden))}  # fmt: skip
    names = ["x", "w", "r", "b" if "b" in has else "", "l" if "l" in has else ""]
    names += [n if n in has else "" for n in {"LSTM": "hcp"}.get(op, "h")]
    if "b" in has:
        tensors["b"] = rng.uniform(-1, 1, (directions, 2 * rows))
    if "p" in has:
        tensors["p"] = rng.uniform(-1, 1, (directions, 3 * hidden))
    feeds = {"x": rng.uniform(-1, 1, state(steps, batch, inputs)).astype(np.float32)}
    for n in "hc":
        if n in has:
            value = rng.uniform(-1, 1, state(directions, batch, hidden)).astype(np.float32)
            feeds[n] = value
    if "l" in has:
        feeds["l"] = rng.integers(1, steps + 1, batch).astype(np.int32)
        feeds["l"][0] = steps
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    nodes = [helper.make_node(op, names, outputs, hidden_size=hidden, **attributes)]
    if "2" in has:
        tensors["w2"] = rng.uniform(-scale, scale, (1, rows, hidden))
        tensors["axis"] = np.array([1])
        names = ["flat", "w2", *names[2:]]
        nodes = [helper.make_node(op, nodes[0].input, ["below"], hidden_size=hidden),
                 helper.make_node("Squeeze", ["below", "axis"], ["flat"]),
                 helper.make_node(op, names, outputs, hidden_size=hidden)]  # fmt: skip
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, kinds[v.dtype], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v.astype(np.int64 if n == "axis" else np.float32), n)
         for n, v in tensors.items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, path)
    want = None
    if not swaps:  # onnxruntime has but the other one
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        want = session.run(outputs, feeds)
    return feeds, outputs, want


class Case:
    def __init__(self, ullage, name, folder):
        self.ullage, self.name, self.folder = ullage, name, folder
        self.model = os.path.join(folder, "model.onnx")
        self.feeds, self.outputs, self.want = make(name, self.model)
        self.given = []
        for n, value in self.feeds.items():
            np.save(os.path.join(folder, n + ".npy"), value)
            self.given += ["--input", f"{n}={folder}/{n}.npy"]
        if self.want is None:
            self.compile("c", "--target", "c")
            self.want = self.run("c")[0]

    def call(self, command, **environment):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env={**os.environ, **environment}, check=False)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout + done.stderr

    def compile(self, to, *options):
        return self.call([self.ullage, "compile", self.model, "--cflags", "-O1", *options, "-o",
                          os.path.join(self.folder, to)])  # fmt: skip

    def run(self, program, *options, **environment):
        to = os.path.join(self.folder, "out")
        text = self.call([os.path.join(self.folder, program), *self.given, "--output-dir", to,
                          *options], **environment)  # fmt: skip
        return [np.load(os.path.join(to, n + ".npy")) for n in self.outputs], text

    def check_launches(self, precision, launches):
        plan = json.loads(self.call([self.ullage, "plan", self.model, "--target", "cuda",
                                     "--precision", precision, "--json", "-"]))  # fmt: skip
        count = plan["launches"]["count"]
        others = len(plan["steps"]["name"]) - 1  # casts
        if launches != 0 and count > launches + others:
            raise RuntimeError(f"{count} launches, wanted {launches} and {others} beside")

    def check_apart(self, text, environment, looks):
        layers = 2 if "2" in CASES[self.name][5] else 1
        if f"note: {layers} of the recurrent layers run as a launch for each step" not in text:
            raise RuntimeError(f"not said of a launch for each step: {text}")
        if not looks:
            return
        told = self.call([os.path.join(self.folder, "program"), *self.given, "--memory", "--json",
                          "-", "--iterations", "1"], **environment)  # fmt: skip
        device = json.JSONDecoder().raw_decode(told)[0]["device"]
        if device["apart_count"] != layers or device["replay_count"] == 0:
            raise RuntimeError(f"--memory --json: {device}")

    def check(self, precision, races):
        launches = CASES[self.name][7]
        self.check_launches(precision, launches)
        self.compile("program", "--target", "cuda", "--precision", precision)
        got, text = self.run("program")
        if "note:" in text:
            raise RuntimeError(text)
        for n, a, b in zip(self.outputs, got, self.want):
            error = np.abs(a - b).max()
            if a.shape != b.shape or not error <= TOLERANCE[precision]:
                raise RuntimeError(f"{n} differs by {error}")
        others = [("order 1", "program", [], {"UL_EMULATE_ORDER": "1"}),
                  ("order 2", "program", [], {"UL_EMULATE_ORDER": "2"}),
                  ("order 3", "program", [], {"UL_EMULATE_ORDER": "3"}),
                  ("replays", "program", ["--repeat", "3"], {}),
                  ("refused as it is launched", "program", ["--repeat", "2"], {"UL_EMULATE_PART": "1"}),
                  ("refused as it is captured", "program", ["--repeat", "2"],
                   {"UL_EMULATE_CAPTURE_PART": "1"}),
                  ("a launch for each step", "program", [], {"UL_EMULATE_PROCESSORS": "1"})]  # fmt: skip
        if not races:
            self.compile("apart", "--target", "cuda", "--precision", precision, "--pack", "none")
            others += [("--pack none", "apart", [], {})]
        is_long = CASES[self.name][3] > 100
        if races or is_long:
            others = [other for other in others if "UL_EMULATE_PROCESSORS" in other[3]]
        for what, program, options, environment in others:
            again, text = self.run(program, *options, **environment)
            if any(a.tobytes() != b.tobytes() for a, b in zip(got, again)):
                raise RuntimeError(f"{what}: other bits")
            if launches != 0 and re.search("PART|PROCESSORS", str(environment)):
                self.check_apart(text, environment, "UL_EMULATE_CAPTURE_PART" in environment)
        if not races and not is_long:
            self.call([os.path.join(self.folder, "program"), "--random", "1", "--guard"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ullage", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--race", action="store_true")
    parser.add_argument("--precision", default="fp32,fp16,bf16")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_intermixed_args()
    if options.list:
        print("\n".join(CASES))
        return 0
    os.environ["NVCC"] = os.path.join(HERE, "nvcc")
    if options.race:
        os.environ["UL_EMULATE_RACE"] = "1"
    failed = 0
    for name in options.names or CASES:
        for precision in options.precision.split(","):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    Case(options.ullage, name, folder).check(precision, options.race)
                    print(f"ok {name} {precision}", flush=True)
                except RuntimeError as error:
                    print(f"FAIL {name} {precision}: {error}", flush=True)
                    failed = 6
    return failed


sys.exit(main())
