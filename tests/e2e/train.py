#!/usr/bin/env python3
"""Programs that train, from the model to the trained model.

    train.py ULLAGE [--target c]

A network of two layers, made here, is compiled with --train for each optimizer, with and without
schedules. The trainer's losses are those of plain numpy in double, which has forward, backward and
update written out; a resumed training gives the bytes of an uninterrupted one; what is learned goes
back into a model by `ullage export`, which ONNX accepts and onnxruntime runs as well as it was
trained. --guard and --memory know such programs.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"train.py: skipped: {error}")
    sys.exit(77)

SAMPLES, BATCH, CLASSES, STEPS = 200, 16, 5, 30
failures = 0


def check(holds, text):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {text}")


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    check(done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return done


def make_model():
    draw = numpy.random.default_rng(1)
    start = {
        "w1": draw.normal(size=(12, 9)) / 3,
        "b1": draw.normal(size=9) / 3,
        "w2": draw.normal(size=(9, CLASSES)) / 3,
        "b2": draw.normal(size=CLASSES) / 3,
    }
    start = {name: value.astype(numpy.float32) for name, value in start.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two_layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in start.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, "m.onnx")
    return start


def make_samples():
    draw = numpy.random.default_rng(2)
    y = draw.integers(0, CLASSES, SAMPLES)
    x = draw.normal(size=(CLASSES, 12))[y] + draw.normal(size=(SAMPLES, 12)) / 2
    numpy.save("x.npy", x.astype(numpy.float32))
    numpy.save("y.npy", y.astype(numpy.int32))
    return numpy.load("x.npy").astype(numpy.float64), y


def gradients(p, x, y):
    """The loss, and its gradient by each parameter."""
    a = x @ p["w1"] + p["b1"]
    r = numpy.maximum(a, 0)
    z = r @ p["w2"] + p["b2"]
    z -= z.max(1, keepdims=True)
    soft = numpy.exp(z) / numpy.exp(z).sum(1, keepdims=True)
    loss = -numpy.log(soft[numpy.arange(len(y)), y]).mean()
    dz = (soft - numpy.eye(CLASSES)[y]) / len(y)
    da = (dz @ p["w2"].T) * (a > 0)
    return loss, {"w1": x.T @ da, "b1": da.sum(0), "w2": r.T @ dz, "b2": dz.sum(0)}


def update(optimizer, p, state, g, rate, t):
    """As torch.optim and, of Lion, its paper have it."""
    m, v = state.setdefault("m", numpy.zeros_like(p)), state.setdefault("v", numpy.zeros_like(p))
    if optimizer == "sgd":
        p -= rate * g
    elif optimizer == "momentum":
        m[:] = 0.9 * m + g
        p -= rate * m
    elif optimizer == "lion":
        p -= rate * numpy.sign(0.9 * m + 0.1 * g)
        m[:] = 0.99 * m + 0.01 * g
    else:
        p *= 1 - rate * 0.01 if optimizer == "adamw" else 1
        m[:] = 0.9 * m + 0.1 * g
        v[:] = 0.999 * v + 0.001 * g * g
        p -= rate * (m / (1 - 0.9**t)) / (numpy.sqrt(v / (1 - 0.999**t)) + 1e-8)


def learn(optimizer, start, x, y, rate_of):
    p = {name: value.astype(numpy.float64) for name, value in start.items()}
    states = {name: {} for name in p}
    losses = []
    for t in range(1, STEPS + 1):
        at = (t - 1) % (SAMPLES // BATCH) * BATCH
        loss, g = gradients(p, x[at : at + BATCH], y[at : at + BATCH])
        losses.append(loss)
        for name, value in p.items():
            update(optimizer, value, states[name], g[name], rate_of(t - 1), t)
    return losses


def scheduled(step):
    """warmup:4,cosine:20 of 0.05."""
    half = (1 + numpy.cos(numpy.pi * (step - 4) / 20)) / 2 if step > 4 else 1
    return 0.05 * min(1, (step + 1) / 4) * (half if step < 24 else 0)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check_trainer(ullage, target, optimizer, schedule, start, samples):
    name = f"{target} {optimizer}{' with schedules' if schedule else ''}"
    more = ["--schedule", schedule] if schedule else []
    run(ullage, "compile", "m.onnx", "--dim", f"N={BATCH}", "--train", "--optimizer", optimizer,
        "--lr", "0.05", *more, "--target", target, "-o", "trainer")  # fmt: skip
    train = ["./trainer", "--data", "x.npy", "--labels", "y.npy", "--no-shuffle"]
    run(*train, "--steps", str(STEPS), "--metrics", "m.csv", "--save", "whole.npz")
    with open("m.csv", encoding="ascii") as file:
        got = list(csv.DictReader(file))
    want = learn(optimizer, start, *samples, scheduled if schedule else lambda step: 0.05)
    # A sign may be the other one where Lion's argument is next to 0.
    compared = 12 if optimizer == "lion" else STEPS
    worst = max(
        abs(float(row["loss"]) / loss - 1) for row, loss in zip(got[:compared], want[:compared])
    )
    check(len(got) == STEPS and worst < 1e-4, f"{name}: a loss is {worst:.1e} away")
    check(not schedule or all(abs(float(row["lr"]) - scheduled(i)) < 1e-9 for i, row in enumerate(got)),
          f"{name}: another rate")  # fmt: skip
    run(*train, "--steps", "13", "--save", "part.npz")
    run("./trainer", "--data", "x.npy", "--labels", "y.npy", "--steps", str(STEPS),
        "--resume", "part.npz", "--save", "rest.npz")  # fmt: skip
    check(read("whole.npz") == read("rest.npz"), f"{name}: a resumed training differs")


def check_export(ullage, samples):
    """Of the last trainer: as right in onnxruntime as it said itself."""
    out = run(
        "./trainer", "--data", "x.npy", "--labels", "y.npy", "--epochs", "30", "--save", "c.npz"
    )
    check("100.00 % right" in out.stdout.splitlines()[-1], f"it learns little: {out.stdout}")
    run(ullage, "export", "m.onnx", "c.npz", "-o", "t.onnx")
    onnx.checker.check_model("t.onnx", full_check=True)
    session = onnxruntime.InferenceSession("t.onnx", providers=["CPUExecutionProvider"])
    y = session.run(None, {"x": samples[0].astype(numpy.float32)})[0]
    check((y.argmax(1) == samples[1]).all(), "the exported model is another one")
    checkpoint = numpy.load("c.npz")
    for tensor in onnx.load("t.onnx").graph.initializer:
        same = numpy.array_equal(numpy_helper.to_array(tensor), checkpoint[tensor.name])
        check(same, f"{tensor.name} is not that of the checkpoint")
    run("./trainer", "--guard")
    check("unaccounted                                0" in run("./trainer", "--memory").stdout,
          "bytes that no plan knows")  # fmt: skip
    bad = numpy.load("x.npy")
    bad[:, 0] = numpy.nan
    numpy.save("nan.npy", bad)
    before = read("c.npz")
    run("./trainer", "--data", "nan.npy", "--labels", "y.npy", "--epochs", "31", "--resume",
        "c.npz", "--save", "c.npz", code=6)  # fmt: skip
    check(read("c.npz") == before, "a loss that is no number overwrites the checkpoint")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    arguments = parser.parse_args()
    ullage = os.path.abspath(arguments.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        start, samples = make_model(), make_samples()
        for optimizer in ("sgd", "lion", "adam", "momentum", "adamw"):
            check_trainer(ullage, arguments.target, optimizer, None, start, samples)
        check_trainer(ullage, arguments.target, "adamw", "warmup:4,cosine:20", start, samples)
        check_trainer(ullage, arguments.target, "momentum", None, start, samples)
        check_export(ullage, samples)
        os.chdir("/")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
