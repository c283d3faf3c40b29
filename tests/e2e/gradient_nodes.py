#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradient of ai.onnx.preview.training: models that ask for gradients themselves.

    gradient_nodes.py ULLAGE [--target c]

Models in float64 whose Gradient nodes are held against central differences of the same model without
them, which onnx's reference evaluator computes: by inputs and by initializers, by values in between,
at other values than those that are named, of what is constant, and beside one another. A gradient of
a gradient that has no rule, and one in a branch, are refused with exit code 3 by name.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper, parser, reference
except ImportError as error:
    print(f"gradient_nodes.py: skipped: {error}")
    sys.exit(77)

HEAD = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.preview.training": 1]>'
STEP, LIMIT = 1e-6, 1e-7
rng = np.random.default_rng(4)

# Text; weights; for each gradient the value and what it is taken by, at which values.
MODELS = {
    "layers": ("""
layers (double[4,3] x, double[4,2] t)
  => (double loss, double[3,5] dw, double[5] db, double[5,2] dv, double[4,3] dx) {
  a = MatMul (x, w)
  b1 = Add (a, b)
  h = Tanh (b1)
  y = MatMul (h, v)
  e = Sub (y, t)
  q = Mul (e, e)
  loss = ReduceMean <keepdims = 0> (q)
  dw, db, dv, dx = ai.onnx.preview.training.Gradient
    <xs = ["w", "b", "v", "x"], zs = ["t"], y = "loss"> (w, b, v, x, t)
}""", {"w": (3, 5), "b": (5,), "v": (5, 2)},
               {"dw": ("loss", "w", {}), "db": ("loss", "b", {}), "dv": ("loss", "v", {}),
                "dx": ("loss", "x", {})}),
    # In between: what makes h does not count, nor does u, which is another path from x.
    "between": ("""
between (double[2,6] x) => (double[2,6] y, double[2,6] dh, double[2,6] dz) {
  h = Sigmoid (x)
  u = Exp (x)
  s = Softmax <axis = 1> (h)
  y = Mul (s, u)
  dh = ai.onnx.preview.training.Gradient <xs = ["h"], zs = ["u"], y = "y"> (h, u)
  none, dz = ai.onnx.preview.training.Gradient <xs = ["h", "u"], y = "y"> (h, u)
}""", {}, {"dh": ("y", "h", {}), "dz": ("y", "u", {})}),
    # At other values; and by what y does not depend on.
    "moved": ("""
moved (double[3,4] x, double[4] k, double[3,4] x1) => (double[3,4] y, double[3,4] d, double[4] e) {
  c = Cos (x)
  p = Mul (c, x)
  y = Mul (p, k)
  d = ai.onnx.preview.training.Gradient <xs = ["x"], zs = ["k"], y = "y"> (x1, k)
  e = ai.onnx.preview.training.Gradient <xs = ["k"], y = "p"> (k)
}""", {}, {"d": ("y", "x", {"x": "x1"}), "e": ("p", "k", {})}),
    # All constant: folded, and none the less right.
    "constant": ("""
constant (double[1] x) => (double[1] z, double[2,3] d) {
  p = Pow (w, w)
  y = ReduceSum <keepdims = 0> (p)
  d = ai.onnx.preview.training.Gradient <xs = ["w"], y = "y"> (w)
  z = Add (x, y)
}""", {"w": (2, 3)}, {"d": ("y", "w", {})}),
    # A second derivative where the first consists of operators that have one.
    "second": ("""
second (double[3,3] a, double[3,3] b) => (double y, double[3,3] da, double[3,3] db) {
  p = MatMul (a, b)
  q = MatMul (p, b)
  y = ReduceSum <keepdims = 0> (q)
  da = ai.onnx.preview.training.Gradient <xs = ["a"], zs = ["b"], y = "y"> (a, b)
  s = ReduceSum <keepdims = 0> (da)
  db = ai.onnx.preview.training.Gradient <xs = ["b"], zs = ["a"], y = "s"> (b, a)
}""", {}, {"da": ("y", "a", {})}),
}

REFUSED = {
    "twice": ("""
twice (double[3] x) => (double[3] dd) {
  y = Sigmoid (x)
  d = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)
  dd = ai.onnx.preview.training.Gradient <xs = ["x"], y = "d"> (x)
}""", 3, "Gradient has no gradient rule"),
    "branch": ("""
branch (double[3] x, bool c) => (double[3] d) {
  y = Sigmoid (x)
  d = If (c) <then_branch = g () => (double[3] p) {
                p = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)
              }, else_branch = h () => (double[3] q) { q = Identity (x) }>
}""", 3, "inside of a loop or branch"),
    "unknown": ("""
unknown (double[3] x) => (double[3] d) {
  y = Sigmoid (x)
  d = ai.onnx.preview.training.Gradient <xs = ["nothing"], y = "y"> (x)
}""", 2, '"nothing"'),
}


def save(name, text, weights):
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    onnx.save(model, f"{name}.onnx")
    return model


class Forward:
    """The values of the model without its gradients, with some of them given."""

    def __init__(self, model):
        self.model = model

    def sum_of(self, wanted, values):
        graph = onnx.GraphProto(name="part")
        graph.node.extend(node for node in self.model.graph.node
                          if node.op_type != "Gradient" and node.output[0] not in values)
        made = {out for node in graph.node for out in node.output}
        graph.input.extend(
            onnx.helper.make_tensor_value_info(k, onnx.TensorProto.DOUBLE, v.shape)
            for k, v in values.items() if k not in made)
        graph.output.append(onnx.helper.make_tensor_value_info(wanted, onnx.TensorProto.DOUBLE, None))
        nodes = [n for n in graph.node if all(i in made or i in values for i in n.input)]
        del graph.node[:]
        graph.node.extend(nodes)
        part = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        return reference.ReferenceEvaluator(part).run([wanted], values)[0]


def difference(forward, values, wanted, by, at):
    values = {**values, **{name: values[other] for name, other in at.items()}}
    if by not in values:
        values = {**values, by: forward.sum_of(by, values)}
    result = np.zeros_like(values[by])
    for i in range(result.size):
        sums = []
        for sign in (1, -1):
            moved = values[by].copy()
            moved.flat[i] += sign * STEP
            sums.append(forward.sum_of(wanted, {**values, by: moved}).sum())
        result.flat[i] = (sums[0] - sums[1]) / (2 * STEP)
    return result


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_model(args, name):
    text, shapes, gradients = MODELS[name]
    weights = {key: rng.uniform(0.5, 1.5, shape) for key, shape in shapes.items()}
    model = save(name, text, weights)
    values = {v.name: rng.uniform(0.2, 1.2, [d.dim_value for d in v.type.tensor_type.shape.dim])
              for v in model.graph.input}
    feeds = []
    for key, value in values.items():
        np.save(f"{key}.npy", value)
        feeds += ["--input", f"{key}={key}.npy"]
    values.update(weights)
    done = run(args.ullage, "compile", "--target", args.target, "--cflags", "-O1", f"{name}.onnx", "-o",
               f"./{name}")
    if done.returncode == 0:
        done = run(f"./{name}", *feeds, "--output-dir", f"{name}.out")
    if done.returncode != 0:
        return f"{name}: {done.stderr}"
    forward = Forward(model)
    for output, (wanted, by, at) in gradients.items():
        want = difference(forward, values, wanted, by, at)
        got = np.load(f"{name}.out/{output}.npy")
        error = np.abs(got - want).max() / max(1, np.abs(want).max())
        if not error < LIMIT:
            return f"{name}: {output} differs by {error:.3g}\n{got}\n{want}"
    if name == "second":  # sum of d sum(a b b) / da = sum over all a's elements of row sums of b b
        b, got = values["b"], np.load("second.out/db.npy")
        ones = np.ones((3, 3))
        want = ones @ (b @ ones.T).T + b.T @ ones @ ones.T
        if not np.allclose(got, want):
            return f"second: db\n{got}\n{want}"
    return ""


def check_refused(args, name):
    text, code, says = REFUSED[name]
    save(name, text, {})
    done = run(args.ullage, "plan", f"{name}.onnx", "--target", args.target)
    if done.returncode != code or says not in done.stderr:
        return f"{name}: exit {done.returncode}, not {code} with '{says}': {done.stderr}"
    return ""


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("ullage")
    options.add_argument("--target", default="c")
    args = options.parse_args()
    args.ullage = os.path.abspath(args.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        failures = [text for name in MODELS if (text := check_model(args, name))]
        failures += [text for name in REFUSED if (text := check_refused(args, name))]
    for text in failures:
        print(f"FAIL: {text}")
    print(f"gradient_nodes.py: {len(MODELS) + len(REFUSED)} models, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
