#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training graphs of onnxruntime and torch, compiled as they come: what these compute.

    run.py ULLAGE [--target c]

The models that make.py and make_joint.py recorded are verified against their data. In loop/, the training model and the
optimizer model of generate_artifacts are two programs that hand each other parameters, gradients and
moments: 20 losses are those of onnxruntime's Module and Optimizer, and those of `--train` of the model
that they were made of. Updates overwrite what they update, or a plan says why not; sequences without
shapes, and a reader that forbids it, are refused with exit code 3 by name.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
except ImportError as error:
    print(f"run.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
LOOP = os.path.join(HERE, "loop")
RECORDED = ("mlp", "cnn", "gpt", "operators", "adamw", "joint")
RATE, STEPS, LIMIT = 0.01, 20, 2e-5
OWN_LIMIT = 1e-3  # onnxruntime adds epsilon to another root than torch and --train do
failures = []


def run(*command, code=0, says=""):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != code or says not in done.stdout + done.stderr:
        failures.append(f"{' '.join(command)}: exit {done.returncode}, not {code} with '{says}':\n"
                        f"{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done


def shapes_of(training):
    """Parameters in the order of the buffers of their gradients."""
    end = "_grad.accumulation.buffer"
    return {v.name[: -len(end)]: [d.dim_value for d in v.type.tensor_type.shape.dim]
            for v in training.graph.input if v.name.endswith(end)}


def call(program, values):
    feeds = []
    for i, (name, value) in enumerate(values.items()):
        np.save(f"feed{i}.npy", value)
        feeds += ["--input", f"{name}=feed{i}.npy"]
    done = run(program, *feeds, "--output-dir", "out")
    return {} if done.returncode else {
        os.path.splitext(name)[0]: np.load(os.path.join("out", name)) for name in os.listdir("out")}


def loop(args, shapes):
    """Losses of the two programs in turn."""
    training, optimizer = (os.path.join(LOOP, f"{name}_model.onnx") for name in ("training", "optimizer"))
    options = ["--target", args.target, "--cflags", "-O1"]
    of = {"params": 0, "gradients": 1, "first_order_moments": 2, "second_order_moments": 3}
    sizes = [word for kind in of for i, shape in enumerate(shapes.values())
             for word in ("--shape", f"{kind}[{i}]={','.join(map(str, shape))}")]
    run(args.ullage, "compile", training, *options, "-o", "./train",
        says="overwrite")
    run(args.ullage, "compile", optimizer, *options, *sizes, "-o", "./update", says="overwrite")
    model = onnx.load(os.path.join(LOOP, "model.onnx"))
    state = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    batch = np.load(os.path.join(LOOP, "batch.npz"))
    buffers = {name: np.full(shape, 7, np.float32) for name, shape in shapes.items()}
    moments = [{name: np.zeros(shape, np.float32) for name, shape in shapes.items()} for _ in range(2)]
    declared = onnx.load(training).graph
    losses = []
    for step in range(STEPS):
        feeds = {"x": batch["x"], "labels": batch["labels"], "lazy_reset_grad": np.ones(1, bool),
                 **state, **{f"{n}_grad.accumulation.buffer": v for n, v in buffers.items()}}
        made = call("./train", {v.name: feeds[v.name] for v in declared.input})
        if not made:
            return []
        losses.append(float(find(made, declared.output[0].name)))
        buffers = {n: find(made, f"{n}_grad.accumulation.buffer_out") for n in shapes}
        feeds = {"learning_rate": np.float32([RATE]), "step": np.array([step + 1])}
        for kind, values in zip(of, (state, buffers, *moments), strict=True):
            feeds.update({f"{kind}[{i}]": values[n] for i, n in enumerate(shapes)})
        made = call("./update", feeds)
        if not made:
            return []
        for i, name in enumerate(shapes):
            state[name] = find(made, f"params[{i}]_out")
            for k, kind in enumerate(("first_order_moments", "second_order_moments")):
                moments[k][name] = find(made, f"{kind}[{i}]_out")
    return losses


def find(made, name):
    """By the name that the program gave its file."""
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return made[name] if name in made else made[plain]


def own_losses(args):
    batch = np.load(os.path.join(LOOP, "batch.npz"))
    np.save("x.npy", batch["x"])
    np.save("labels.npy", batch["labels"])
    run(args.ullage, "compile", os.path.join(LOOP, "model.onnx"), "--target", args.target, "--cflags",
        "-O1", "--train", "--optimizer", "adamw", "--lr", str(RATE), "--eps", "1e-6",
        "--weight-decay", "0", "-o", "./trainer")
    run("./trainer", "--data", "x.npy", "--labels", "labels.npy", "--steps", str(STEPS),
        "--no-shuffle", "--metrics", "metrics.csv")
    with open("metrics.csv", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def compare(name, got, want, limit=LIMIT):
    if len(got) != len(want):
        failures.append(f"{name}: {len(got)} losses, not {len(want)}")
        return
    error = max(abs(a - b) / abs(b) for a, b in zip(got, want, strict=True))
    if not error < limit:
        failures.append(f"{name}: losses differ by {error:.3g}\n{got}\n{want}")


def check_donation(args):
    """What overwrites what is in the plan; apart, it takes the bytes of both."""
    model = os.path.join(HERE, "mlp", "model.onnx")
    plans = []
    for options in ([], ["--no-donate"]):
        run(args.ullage, "plan", model, "--target", args.target, *options, "--json", "plan.json")
        with open("plan.json", encoding="utf-8") as file:
            plans.append(json.load(file))
    pairs = [json.dumps(plan["options"]).count(".buffer_out") for plan in plans]
    if pairs != [4, 0]:
        failures.append(f"overwritten buffers: {pairs}, not [4, 0]")
    run(args.ullage, "plan", os.path.join(LOOP, "optimizer_model.onnx"), "--target", args.target, code=1,
        says='--shape "params[0]"')
    graph = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
forbidden (float[4] w, float[4] g) => (float[4] w_out, float[4] d) {
  zero = Constant <value = int64 {0}> ()
  w_out = Sub (w, g)
  s = CumSum (w_out, zero)
  d = Sub (s, w)
}""")
    onnx.save(graph, "forbidden.onnx")
    run(args.ullage, "plan", "forbidden.onnx", "--target", args.target, code=3, says='"d" (Sub) still reads')
    run(args.ullage, "plan", "forbidden.onnx", "--target", args.target, "--no-donate")
    fused = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
fused (float[4] w, float[4] g) => (float[4] w_out, float[4] v) {
  w_out = Sub (w, g)
  v = Add (w, w_out)
}""")  # which the plain program that it is compared with may not do where it lies
    onnx.save(fused, "fused.onnx")
    run(args.ullage, "verify", "fused.onnx", "--target", args.target, "--cflags", "-O1", says="verdict: same")
    other = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
other (float[4] w) => (float[2,2] w_out) {
  s = Constant <value = int64[2] {2, 2}> ()
  w_out = Reshape (w, s)
}""")
    onnx.save(other, "other.onnx")
    run(args.ullage, "plan", "other.onnx", "--target", args.target,
        says='"w_out" stays beside "w": it is f32[2,2], not f32[4]')


def check_statistics(args):
    """The gradient of a normalization goes by its statistics, whatever epsilon is in them."""
    graph = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
norms (float[3,8] x, float[8] w, float[8] b, float[3,8] g) => (float[3,8] dx, float[8] dw, float[8] db) {
  y, mean, inverse = LayerNormalization <epsilon = 0.5> (x, w, b)
  dx, dw, db = com.microsoft.LayerNormalizationGrad <axis = -1> (g, x, w, mean, inverse)
}""")
    onnx.save(graph, "norms.onnx")
    run(args.ullage, "compile", "norms.onnx", "--target", args.target, "--cflags", "-O1", "-o", "./norms")
    draw = np.random.default_rng(0)
    x, w, b, g = (draw.standard_normal(s).astype(np.float32) for s in ((3, 8), 8, 8, (3, 8)))
    made = call("./norms", {"x": x, "w": w, "b": b, "g": g})
    inverse = 1 / np.sqrt(x.var(1, keepdims=True) + 0.5)
    n, h = (x - x.mean(1, keepdims=True)) * inverse, g * w
    want = {"dx": (h - h.mean(1, keepdims=True) - n * (h * n).mean(1, keepdims=True)) * inverse,
            "dw": (g * n).sum(0), "db": g.sum(0)}
    failures.extend(f"LayerNormalizationGrad: {name} is {made[name]}, not {value}"
                    for name, value in want.items()
                    if made and not np.allclose(made[name], value, 1e-4, 1e-5))


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("ullage")
    options.add_argument("--target", default="c")
    args = options.parse_args()
    args.ullage = os.path.abspath(args.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in RECORDED:
            run(args.ullage, "verify", "--target", args.target, "--cflags", "-O1", "--rtol", "1e-3", "--atol",
                "1e-6", os.path.join(HERE, name, "model.onnx"))
        with open(os.path.join(LOOP, "losses.txt"), encoding="utf-8") as file:
            theirs = [float(line) for line in file]
        losses = loop(args, shapes_of(onnx.load(os.path.join(LOOP, "training_model.onnx"))))
        compare("the two programs and onnxruntime", losses, theirs)
        compare("--train and onnxruntime", own_losses(args), theirs, OWN_LIMIT)
        check_donation(args)
        check_statistics(args)
    for text in failures:
        print(f"FAIL: {text}")
    print(f"run.py: {len(RECORDED)} models, {STEPS} steps, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
