#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
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


def learn(optimizer, start, x, y, rate_of, pads):
    p = {name: value.astype(numpy.float64) for name, value in start.items()}
    states = {name: {} for name in p}
    losses = []
    for t in range(1, STEPS + 1):
        at = (t - 1) % ((SAMPLES + BATCH - 1 if pads else SAMPLES) // BATCH) * BATCH
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


def check_trainer(ullage, target, optimizer, start, samples, schedule=None, pads=False):
    name = f"{target} {optimizer} {schedule} {pads}"
    more = ["--schedule", schedule] if schedule else []
    run(ullage, "compile", "m.onnx", "--dim", f"N={BATCH}", "--train", "--optimizer", optimizer,
        "--lr", "0.05", *more, "--target", target, "-o", "trainer")  # fmt: skip
    last = ["--last", "pad" if pads else "drop"]
    train = ["./trainer", "--data", "x.npy", "--labels", "y.npy", "--no-shuffle", *last]
    run(*train, "--steps", str(STEPS), "--metrics", "m.csv", "--save", "whole.npz")
    with open("m.csv", encoding="ascii") as file:
        got = list(csv.DictReader(file))
    want = learn(optimizer, start, *samples, scheduled if schedule else lambda step: 0.05, pads)
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
        *last, "--resume", "part.npz", "--save", "rest.npz")  # fmt: skip
    check(read("whole.npz") == read("rest.npz"), f"{name}: a resumed training differs")


def check_export(ullage, samples):
    """The last trainer is as right in onnxruntime as it said itself."""
    out = run(
        "./trainer", "--data", "x.npy", "--labels", "y.npy", "--epochs", "30", "--save", "c.npz",
        "--val", "x.npy", "y.npy"
    )  # fmt: skip
    check(out.stdout.splitlines()[-1].count("100.00 % right") == 2, f"it learns little: {out.stdout}")
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


def make_modes(ratio):
    """As an exporter writes a network that is trained: its statistics are those of the batch, and
    it drops."""
    draw = numpy.random.default_rng(4)
    weights = {
        "w1": draw.normal(size=(12, 9)) / 3,
        "s": numpy.ones(9),
        "b": numpy.zeros(9),
        "mean": numpy.zeros(9),
        "var": numpy.ones(9),
        "w2": draw.normal(size=(9, CLASSES)) / 3,
        "ratio": numpy.array(ratio),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "mean", "var"],
                         ["n", "mean_out", "var_out"], training_mode=1),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Dropout", ["r", "ratio", "trains"], ["d"]),
        helper.make_node("MatMul", ["d", "w2"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "modes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(v.astype(numpy.float32), name) for name, v in weights.items()]
        + [numpy_helper.from_array(numpy.array(True), "trains")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, "modes.onnx")


def check_modes(ullage, target):
    """A file in training mode is trained and exported: onnxruntime, given one held-out sample at a
    time, is as often right as the trainer says that it is."""
    make_modes(0.3)
    draw = numpy.random.default_rng(5)
    y = draw.integers(0, CLASSES, SAMPLES)
    x = numpy.random.default_rng(2).normal(size=(CLASSES, 12))[y] * 2 + draw.normal(
        size=(SAMPLES, 12)
    ) * [1, 3, 5, 1, 3, 5, 1, 3, 5, 1, 3, 5] + 4  # fmt: skip
    numpy.save("mx.npy", x.astype(numpy.float32))
    numpy.save("my.npy", y.astype(numpy.int32))
    held = slice(SAMPLES // 2, SAMPLES)
    for name in ("mx", "my"):
        array = numpy.load(f"{name}.npy")
        numpy.save(f"{name}_train.npy", array[: SAMPLES // 2])
        numpy.save(f"{name}_held.npy", array[held])
    run(ullage, "compile", "modes.onnx", "--dim", f"N={BATCH}", "--train", "--optimizer", "adam",
        "--lr", "0.02", "--target", target, "-o", "trainer")  # fmt: skip
    out = run("./trainer", "--data", "mx_train.npy", "--labels", "my_train.npy", "--epochs", "8",
              "--save", "modes.npz", "--val", "mx_held.npy", "my_held.npy")  # fmt: skip
    said = float(out.stdout.splitlines()[-1].split(" % right")[-2].split()[-1])
    run(ullage, "export", "modes.onnx", "modes.npz", "-o", "modes_out.onnx")
    session = onnxruntime.InferenceSession("modes_out.onnx", providers=["CPUExecutionProvider"])
    x = numpy.load("mx_held.npy")
    got = [session.run(None, {"x": x[i : i + 1]})[0].argmax() for i in range(len(x))]
    right = 100 * (numpy.array(got) == y[held]).mean()
    check(abs(said - right) < 0.005, f"the trainer says {said} % right, onnxruntime has {right}")
    check(30 < right < 100, f"{right} % right says nothing")


def make_regression(with_loss):
    """y = x w + side; with_loss: the mean of its squared distance from an input, as its output."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "side"], ["y"]),
    ]
    inputs = {"x": 12, "side": 3}
    if with_loss:
        inputs["t"] = 3
        nodes.append(helper.make_node("Sub", ["y", "t"], ["d"]))
        nodes.append(helper.make_node("Mul", ["d", "d"], ["s"]))
        nodes.append(helper.make_node("ReduceMean", ["s"], ["l"], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "regression",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, size])
            for name, size in inputs.items()
        ],
        (
            [helper.make_tensor_value_info("l", TensorProto.FLOAT, [])]
            if with_loss
            else [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, 3])]
        ),
        [numpy_helper.from_array(numpy.zeros((12, 3), numpy.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, "r.onnx")


def check_regression(ullage, target):
    """Several inputs; labels that are no classes; a loss of the model's own. Both learn the same."""
    draw = numpy.random.default_rng(3)
    x = numpy.load("x.npy")
    side = draw.normal(size=(SAMPLES, 3)).astype(numpy.float32)
    goal = draw.normal(size=(12, 3)).astype(numpy.float32)
    numpy.save("side.npy", side)
    numpy.save("t.npy", x @ goal + side)
    saved = []
    for with_loss in (False, True):
        make_regression(with_loss)
        loss = "output:l" if with_loss else "mse"
        run(ullage, "compile", "r.onnx", "--train", "--loss", loss, "--optimizer", "adam", "--lr",
            "0.05", "--target", target, "-o", "trainer")  # fmt: skip
        labels = ["--input", "t=t.npy"] if with_loss else ["--labels", "t.npy"]
        run("./trainer", "--data", "x.npy", "--input", "side=side.npy", *labels, "--epochs", "60",
            "--save", "r.npz", "--metrics", "r.csv")  # fmt: skip
        saved.append(numpy.load("r.npz")["w"])
        check(numpy.abs(saved[-1] - goal).max() < 0.05, f"{loss}: it learns little")
    check(numpy.abs(saved[0] - saved[1]).max() < 1e-4, "the model's own loss learns another thing")
    error = run("./trainer", "--data", "x.npy", "--input", "side=side.npy", "--epochs", "1", code=1)
    check("give --input t=FILE.npy" in error.stderr, error.stderr)
    error = run("./trainer", "--data", "x.npy", "--labels", "t.npy", "--epochs", "1", code=1)
    check("its loss is one of its own outputs" in error.stderr, error.stderr)


# The library form, as on a machine without a heap: a static arena, files by callbacks alone. It says
# each loss, and saves and loads what it learned half-way.
LIBRARY = r"""
#include "model.h"

#include "ul_train.h"

#include <stdio.h>

static unsigned char room[MODEL_ARENA_BYTES + MODEL_ARENA_ALIGN];
static unsigned char saved[1 << 16];
static float x[SAMPLES][12];
static int64_t y[SAMPLES];

static int read_file(void *file, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    return fseek(file, (long)offset_bytes, SEEK_SET) != 0 ||
           fread(target, 1, (size_t)size_bytes, file) != size_bytes;
}

static int put(void *place, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes)
{
    memcpy((unsigned char *)place + offset_bytes, bytes, (size_t)size_bytes);
    return 0;
}

static int get(void *place, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    memcpy(target, (unsigned char *)place + offset_bytes, (size_t)size_bytes);
    return 0;
}

int main(void)
{
    unsigned char *arena = room + (MODEL_ARENA_ALIGN - (uintptr_t)room % MODEL_ARENA_ALIGN);
    struct ul_weights_source weights = {0};
    struct ul_trainer trainer;
    FILE *file = fopen("weights.bin", "rb"), *data = fopen("../samples", "rb");
    if (file == NULL || data == NULL || fread(x, sizeof x, 1, data) != 1 ||
        fread(y, sizeof y, 1, data) != 1 || fseek(file, 0, SEEK_END) != 0)
        return 1;
    weights.size_bytes = (uint64_t)ftell(file);
    weights.read = read_file;
    weights.context = file;
    if (model_init(arena, MODEL_ARENA_BYTES, &weights, NULL) != UL_OK)
        return 2;
    ul_train_init(&model_model, &trainer);
    while (trainer.step < STEPS) {
        float loss;
        uint64_t at = trainer.step % (SAMPLES / BATCH) * BATCH;
        const void *inputs[MODEL_INPUT_COUNT] = {x[at], &y[at]};
        void *outputs[MODEL_OUTPUT_COUNT] = {&loss};
        if (ul_train_step(&model_model, arena, &trainer, inputs, outputs, NULL) != UL_OK)
            return 3;
        printf("%.9g\n", (double)loss);
        if (trainer.step != STEPS / 2)
            continue;
        if (ul_train_save(&model_model, arena, &trainer, put, saved, NULL) != UL_OK ||
            model_init(arena, MODEL_ARENA_BYTES, &weights, NULL) != UL_OK ||
            ul_train_load(&model_model, arena, &trainer, get, saved, NULL) != UL_OK)
            return 4;
    }
    model_done(arena);
    return 0;
}
"""


def check_library(ullage):
    """The losses of the last trainer, whose metrics are there."""
    run(ullage, "compile", "m.onnx", "--dim", f"N={BATCH}", "--train", "--optimizer", "momentum",
        "--lr", "0.05", "--target", "c", "--emit", "library")  # fmt: skip
    with open("library/example.c", "w", encoding="ascii") as out:
        out.write(LIBRARY)
    with open("samples", "wb") as out:
        out.write(numpy.load("x.npy").tobytes())
        out.write(numpy.load("y.npy").astype(numpy.int64).tobytes())
    os.chdir("library")
    sizes = [f"-D{name}={globals()[name]}" for name in ("SAMPLES", "BATCH", "STEPS")]
    run("cc", "-std=c99", "-O3", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno",
        "-fno-trapping-math", "-march=native", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *sizes,
        "-o", "example", "example.c", "model.c", "-lm")  # fmt: skip
    names = run("nm", "-u", "example").stdout
    check("malloc" not in names and "free" not in names, f"it has a heap: {names}")
    losses = run("./example").stdout.split()
    os.chdir("..")
    with open("m.csv", encoding="ascii") as file:
        want = [row["loss"] for row in csv.DictReader(file)]
    worst = max(abs(float(a) / float(b) - 1) for a, b in zip(losses, want))
    check(len(losses) == STEPS and worst < 1e-5, f"the library's losses are {worst:.1e} away")


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
            check_trainer(ullage, arguments.target, optimizer, start, samples)
        check_trainer(ullage, arguments.target, "sgd", start, samples, pads=True)
        schedule = "warmup:4,cosine:20"
        check_trainer(ullage, arguments.target, "adamw", start, samples, schedule=schedule)
        check_trainer(ullage, arguments.target, "momentum", start, samples)
        if arguments.target == "c":
            check_library(ullage)
        check_export(ullage, samples)
        check_modes(ullage, arguments.target)
        check_regression(ullage, arguments.target)
        os.chdir("/")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
