#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that train: --train.

    learn.py ULLAGE [--target c] [CASE]...

Each case is a model in double, made here, trained for some steps by the compiled program and by
numpy: a perceptron by each loss, optimizer and schedule, frozen parameters, bounded gradients, and
a convolution net with batch statistics whose gradients numpy has by hand. Losses agree to 1e-8,
parameters, states and running statistics to 1e-7. Then budgets: down the sweep of a plan, losses,
parameters, states and running statistics are those of the plan without a budget, bit for bit, and
so they are with --pack none; --guard finds nothing.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"learn.py: skipped: {error}")
    sys.exit(77)

STEPS, BATCH, FEATURES, HIDDEN, CLASSES = 6, 16, 12, 10, 5


def make_model(path, nodes, weights, inputs, output, element=TensorProto.DOUBLE):
    dtype = helper.tensor_dtype_to_np_dtype(element)
    graph = helper.make_graph(
        nodes, "trained",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(output[0], element, output[1])],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- the perceptron ----

def perceptron(random):
    return {"w1": random.standard_normal((FEATURES, HIDDEN)) * 0.3,
            "b1": random.standard_normal(HIDDEN) * 0.1,
            "w2": random.standard_normal((CLASSES, HIDDEN)) * 0.3,
            "b2": random.standard_normal(CLASSES) * 0.1}


PERCEPTRON = [helper.make_node("MatMul", ["x", "w1"], ["a"]),
              helper.make_node("Add", ["a", "b1"], ["b"]),
              helper.make_node("Tanh", ["b"], ["h"]),
              helper.make_node("Gemm", ["h", "w2", "b2"], ["y"], transB=1)]


def cross_entropy(y, labels, smoothing=0.0, weights=None, ignore=-100):
    weights = numpy.ones(y.shape[1]) if weights is None else weights
    shifted = y - y.max(axis=1, keepdims=True)
    log_p = shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))
    kept = labels != ignore
    target = numpy.zeros_like(y)
    target[numpy.arange(len(y))[kept], labels[kept]] = 1
    target = ((1 - smoothing) * target + smoothing / y.shape[1]) * weights * kept[:, None]
    divisor = weights[labels[kept]].sum()
    loss = -(target * log_p).sum() / divisor
    gradient = (numpy.exp(log_p) * target.sum(axis=1, keepdims=True) - target) / divisor
    return loss, gradient


def loss_of(case, y, labels):
    kind = case.get("loss", "softmax-cross-entropy")
    if kind == "softmax-cross-entropy":
        return cross_entropy(y, labels, case.get("smoothing", 0.0), case.get("weights"))
    if kind == "mse":
        return ((y - labels) ** 2).mean(), 2 * (y - labels) / y.size
    loss = (numpy.maximum(y, 0) - y * labels + numpy.log1p(numpy.exp(-abs(y)))).mean()
    return loss, (1 / (1 + numpy.exp(-y)) - labels) / y.size


def perceptron_gradients(case, w, x, labels):
    h = numpy.tanh(x @ w["w1"] + w["b1"])
    loss, dy = loss_of(case, h @ w["w2"].T + w["b2"], labels)
    db = dy @ w["w2"] * (1 - h * h)
    return loss, {"w1": x.T @ db, "b1": db.sum(axis=0), "w2": dy.T @ h, "b2": dy.sum(axis=0)}


# ---- optimizers, as torch or their authors have them ----

def rate(case, step):
    value, warmup = case.get("lr", 0.05), 0
    for part in case.get("schedule", "constant").split(","):
        if part.startswith("warmup:"):
            warmup = int(part.split(":")[1])
    for part in case.get("schedule", "constant").split(","):
        name, *numbers = part.split(":")
        if name == "step":
            value *= float(numbers[1]) ** (step // int(numbers[0]))
        elif name == "warmup":
            value *= min(1.0, (step + 1) / int(numbers[0]))
        elif name == "cosine":
            behind = max(0, step - warmup)
            value *= 0.5 * (1 + math.cos(math.pi * behind / int(numbers[0]))) \
                if behind < int(numbers[0]) else 0
    return value


def adafactor(case, t, lr, decay, w, state, name, g):
    """As torch.optim.Adafactor."""
    root = lambda a: math.sqrt((a * a).mean())
    weight, eps = t ** -case.get("beta2_decay", 0.8), case.get("eps", numpy.finfo(g.dtype).eps)
    alpha = max(case.get("eps2", 1e-3), root(w[name])) * min(lr, 1 / math.sqrt(t))

    def mix(key, value):
        state[f"{name}/{key}"] = old = state.get(f"{name}/{key}", 0 * value)
        state[f"{name}/{key}"] = old + (value - old) * weight
        return state[f"{name}/{key}"]

    if g.ndim > 1:
        row = mix("row_var", (g * g).mean(axis=-1, keepdims=True))
        column = mix("col_var", (g * g).mean(axis=-2, keepdims=True))
        v = row * column / numpy.maximum(row.mean(axis=-2, keepdims=True), eps)
    else:
        v = mix("variance", g * g)
    u = g / numpy.sqrt(numpy.maximum(v, eps * eps))
    w[name] = w[name] * (1 - lr * decay) - alpha * u / max(1, root(u) / case.get("clip_update", 1))


# The dimension of a parameter that one neuron of a result sums over.
SUMS = {"w1": 0, "w2": 1, "b1": 0, "b2": 0}


def adam_mini(t, lr, decay, w, state, name, g):
    """As the authors of arXiv 2406.16793."""
    m, v = state.get(name + "/m", 0 * g), state.get(name + "/vmean", 0)
    state[name + "/m"] = m = 0.9 * m + 0.1 * g
    state[name + "/vmean"] = v = 0.999 * v + 0.001 * (g * g).mean(axis=SUMS[name], keepdims=True)
    spread = numpy.sqrt(v) / math.sqrt(1 - 0.999 ** t) + 1e-8
    w[name] = w[name] * (1 - lr * decay) - lr * m / (1 - 0.9 ** t) / spread


def update(case, step, w, state, name, g):
    kind, lr = case["optimizer"], rate(case, step)
    decay = case.get("decay", 0.01 if kind == "adamw" else 0.0)
    if case.get("no_decay_1d") and w[name].ndim == 1:
        decay = 0.0
    bound = case.get("clip_value")
    if bound:
        g = numpy.clip(g, -bound, bound)
    if kind in ("sgd", "momentum", "adam"):
        g = g + decay * w[name]
    if kind == "sgd":
        w[name] = w[name] - lr * g
    elif kind == "momentum":
        m = state.setdefault(name + "/momentum", numpy.zeros_like(g))
        state[name + "/momentum"] = m = 0.9 * m + g
        w[name] = w[name] - lr * (g + 0.9 * m if case.get("nesterov") else m)
    elif kind == "adafactor":
        adafactor(case, step + 1, lr, decay, w, state, name, g)
    elif kind == "adam-mini":
        adam_mini(step + 1, lr, decay, w, state, name, g)
    elif kind == "lion":
        m = state.setdefault(name + "/exp_avg", numpy.zeros_like(g))
        w[name] = w[name] * (1 - lr * decay) - lr * numpy.sign(0.9 * m + 0.1 * g)
        state[name + "/exp_avg"] = 0.99 * m + 0.01 * g
    else:
        m = state.setdefault(name + "/exp_avg", numpy.zeros_like(g))
        v = state.setdefault(name + "/exp_avg_sq", numpy.zeros_like(g))
        state[name + "/exp_avg"] = m = 0.9 * m + 0.1 * g
        state[name + "/exp_avg_sq"] = v = 0.999 * v + 0.001 * g * g
        if kind == "adamw":
            w[name] = w[name] * (1 - lr * decay)
        m, v = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
        w[name] = w[name] - lr * m / (numpy.sqrt(v) + 1e-8)


CASES = {
    "sgd": {"optimizer": "sgd", "decay": 0.02},
    "momentum": {"optimizer": "momentum", "schedule": "step:2:0.5"},
    "nesterov": {"optimizer": "momentum", "nesterov": True, "loss": "mse"},
    "adam": {"optimizer": "adam", "decay": 0.01, "loss": "bce"},
    "adamw": {"optimizer": "adamw", "no_decay_1d": True, "schedule": "warmup:2,cosine:4"},
    "lion": {"optimizer": "lion", "decay": 0.1, "clip_value": 0.01},
    "adafactor": {"optimizer": "adafactor", "schedule": "step:2:0.5"},
    "factors": {"optimizer": "adafactor", "lr": 0.6, "decay": 0.1, "clip_value": 0.01,
                "no_decay_1d": True, "beta2_decay": 0.5, "eps": 1e-3, "eps2": 0.5,
                "clip_update": 0.7},
    "adam-mini": {"optimizer": "adam-mini", "schedule": "warmup:2,cosine:4"},
    "blocks": {"optimizer": "adam-mini", "decay": 0.1, "no_decay_1d": True, "clip_norm": 0.2,
               "clip_value": 0.05},
    "labels": {"optimizer": "sgd", "smoothing": 0.1, "ignored": True, "weights": True},
    "norm": {"optimizer": "momentum", "clip_norm": 0.2},
    "twice": {"optimizer": "momentum", "clip_norm": 0.2, "clip_mode": "twice"},
    "frozen": {"optimizer": "adamw", "freeze": ["w1", "b*"]},
    "only": {"optimizer": "sgd", "only": ["w?"]},
}


def arguments(case, folder):
    words = ["--train", "--optimizer", case["optimizer"], "--lr", str(case.get("lr", 0.05))]
    names = {"loss": "--loss", "schedule": "--schedule", "decay": "--weight-decay",
             "clip_value": "--clip-value", "clip_norm": "--clip-norm", "clip_mode": "--clip-mode",
             "smoothing": "--label-smoothing", "beta2_decay": "--beta2-decay", "eps": "--eps",
             "eps2": "--eps2", "clip_update": "--clip-update"}
    for key, option in names.items():
        if key in case:
            words += [option, str(case[key])]
    words += ["--nesterov"] * case.get("nesterov", False)
    words += ["--no-decay-1d"] * case.get("no_decay_1d", False)
    for pattern in case.get("freeze", []):
        words += ["--freeze", pattern]
    for pattern in case.get("only", []):
        words += ["--train-only", pattern]
    if "weights" in case:
        path = os.path.join(folder, "weights.npy")
        numpy.save(path, case["weights"])
        words += ["--class-weights", path]
    return words


def is_trained(case, name):
    frozen = {"w1", "b1", "b2"} if "freeze" in case else {"b1", "b2"} if "only" in case else set()
    return name not in frozen


def labels_of(case, random):
    if case.get("loss", "softmax-cross-entropy") == "softmax-cross-entropy":
        labels = random.integers(0, CLASSES, STEPS * BATCH)
        if case.get("ignored"):
            labels[random.random(len(labels)) < 0.3] = -100
        return labels
    labels = random.standard_normal((STEPS * BATCH, CLASSES))
    return labels if case["loss"] == "mse" else (labels > 0).astype(float)


def train(program, folder, data, labels, steps, *more):
    """Losses of each step, and the checkpoint after the last. labels: None where it takes none."""
    paths = {name: os.path.join(folder, name) for name in ("x.npy", "y.npy", "m.csv", "c.npz")}
    numpy.save(paths["x.npy"], data)
    given = []
    if labels is not None:
        numpy.save(paths["y.npy"], labels)
        given = ["--labels", paths["y.npy"]]
    run([program, "--data", paths["x.npy"], *given, "--steps", str(steps), "--no-shuffle",
         "--metrics", paths["m.csv"], "--save", paths["c.npz"], *more])
    with open(paths["m.csv"], encoding="utf-8") as file:
        losses = [float(line.split(",")[2]) for line in file.readlines()[1:]]
    with numpy.load(paths["c.npz"]) as file:
        return losses, {name: file[name] for name in file.files}


def peak_bytes(command):
    """The most that the process was seen to take."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                    lines = dict(line.split(":", 1) for line in file)
                if lines["Name"].strip() == os.path.basename(command[0]):
                    peak = max(peak, sum(int(lines[key].split()[0]) for key in ("VmHWM", "VmPTE")))
            except (OSError, KeyError):
                pass
            time.sleep(0.001)
    return peak * 1024


def check_process(args, folder):
    """Training takes no more of memory than plan.json says of the process; of target cuda it says that of the device."""
    if args.target == "cuda":
        return
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
    conv_net(model, TensorProto.FLOAT)
    words = ["--target", args.target, "--train", "--optimizer", "adamw"]
    planned = json.loads(run([args.ullage, "plan", model, *words, "--json", "-"]))["process_bytes"]
    run([args.ullage, "compile", model, "-o", program, *words])
    random = numpy.random.default_rng(3)
    data = random.standard_normal((64 * BATCH, 3, IMAGE, IMAGE)).astype(numpy.float32)
    train(program, folder, data, random.integers(0, CLASSES, 64 * BATCH), 1)
    command = [program, "--data", os.path.join(folder, "x.npy"), "--labels",
               os.path.join(folder, "y.npy"), "--epochs", "4", "--save",
               os.path.join(folder, "c.npz"), "--resume", os.path.join(folder, "c.npz")]
    taken = max(peak_bytes(command) for _ in range(2))  # who looks now and then may miss the peak
    if not planned // 2 <= taken <= planned:
        raise AssertionError(f"process: takes {taken} bytes of {planned}")


def check_numbers(what, got, want, limit):
    error = numpy.abs(numpy.asarray(got) - numpy.asarray(want)).max()
    scale = max(1e-3, numpy.abs(numpy.asarray(want)).max())
    if not error <= limit * scale:
        raise AssertionError(f"{what}: differs by {error / scale:.3g} of the largest number")


def check_perceptron(args, name, folder):
    case = dict(CASES[name])
    random = numpy.random.default_rng(7)
    w, state = perceptron(random), {}
    if "weights" in case:
        case["weights"] = random.random(CLASSES) + 0.5
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    make_model(model, PERCEPTRON, w, [("x", [BATCH, FEATURES])], ("y", [BATCH, CLASSES]))
    run([args.ullage, "compile", model, "-o", program, "--target", args.target,
         *arguments(case, folder)])
    data, labels = random.standard_normal((STEPS * BATCH, FEATURES)), labels_of(case, random)
    losses, saved = train(program, folder, data, labels, STEPS)
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss, gradients = perceptron_gradients(case, w, data[part], labels[part])
        check_numbers(f"{name}: loss of step {step}", losses[step], loss, 1e-8)
        norm = math.sqrt(sum((g * g).sum() for g in gradients.values()))
        for key, gradient in gradients.items():
            gradient = gradient * min(1, case.get("clip_norm", math.inf) / (norm + 1e-6))
            if is_trained(case, key):
                update(case, step, w, state, key, gradient)
    for key, value in {**w, **state}.items():
        if is_trained(case, key.split("/")[0]):
            if saved[key].shape != value.shape:
                raise AssertionError(f"{name}: {key} has the shape {saved[key].shape}")
            check_numbers(f"{name}: {key}", saved[key], value, 1e-7)
        elif key in saved:
            raise AssertionError(f"{name}: {key} is frozen, and a checkpoint has it")


# ---- the convolution net ----

IMAGE, CHANNELS, LAYERS = 12, 6, 5


def conv_net(path, element, image=IMAGE):
    random = numpy.random.default_rng(11)
    nodes, weights, last, width = [], {}, "x", 3
    for i in range(LAYERS):
        stride = 2 if i == 2 else 1
        weights[f"c{i}.w"] = random.standard_normal((CHANNELS, width, 3, 3)) * math.sqrt(2 / (9 * width))
        nodes.append(helper.make_node("Conv", [last, f"c{i}.w"], [f"c{i}"], pads=[1] * 4,
                                      strides=[stride] * 2, kernel_shape=[3, 3]))
        for key, value in (("s", 1), ("b", 0), ("m", 0), ("v", 1)):
            weights[f"n{i}.{key}"] = numpy.full(CHANNELS, float(value))
        nodes.append(helper.make_node(
            "BatchNormalization", [f"c{i}"] + [f"n{i}.{key}" for key in "sbmv"],
            [f"n{i}", f"m{i}", f"v{i}"], training_mode=1))
        adds = i in (1, 4)
        if adds:
            nodes.append(helper.make_node("Add", [f"n{i}", last], [f"a{i}"]))
        nodes.append(helper.make_node("Relu", [f"a{i}" if adds else f"n{i}"], [f"r{i}"]))
        last, width = f"r{i}", CHANNELS
    nodes.append(helper.make_node("ReduceMean", [last], ["mean"], axes=[2, 3], keepdims=0))
    weights["f.w"] = random.standard_normal((CLASSES, CHANNELS)) * 0.3
    weights["f.b"] = numpy.zeros(CLASSES)
    nodes.append(helper.make_node("Gemm", ["mean", "f.w", "f.b"], ["y"], transB=1))
    make_model(path, nodes, weights, [("x", [BATCH, 3, image, image])], ("y", [BATCH, CLASSES]),
               element)


def forward(weights, x, labels, evaluates=False):
    """The loss in double, and what running statistics become, by einsum; or the loss by these."""
    after, last = {}, x
    for i in range(LAYERS):
        stride = 2 if i == 2 else 1
        padded = numpy.pad(last, ((0, 0), (0, 0), (1, 1), (1, 1)))
        size = (last.shape[2] - 1) // stride + 1
        y = sum(numpy.einsum("nihw,oi->nohw",
                             padded[:, :, a:a + stride * size:stride, b:b + stride * size:stride][:, :, :size, :size],
                             weights[f"c{i}.w"][:, :, a, b]) for a in range(3) for b in range(3))
        count = y.size // CHANNELS
        mean, var = y.mean(axis=(0, 2, 3)), y.var(axis=(0, 2, 3))
        after[f"n{i}.m"] = 0.9 * weights[f"n{i}.m"] + 0.1 * mean
        after[f"n{i}.v"] = 0.9 * weights[f"n{i}.v"] + 0.1 * var * count / (count - 1)
        if evaluates:
            mean, var = weights[f"n{i}.m"], weights[f"n{i}.v"]
        column = (None, slice(None), None, None)
        y = (y - mean[column]) / numpy.sqrt(var + 1e-5)[column]
        y = y * weights[f"n{i}.s"][column] + weights[f"n{i}.b"][column]
        last = numpy.maximum(y + last if i in (1, 4) else y, 0)
    logits = last.mean(axis=(2, 3)) @ weights["f.w"].T + weights["f.b"]
    return cross_entropy(logits, labels)[0], after


def check_frozen(args, folder):
    """A file that has what is frozen is refused, and says how it gets into the program."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    weights = perceptron(numpy.random.default_rng(1))
    make_model(model, PERCEPTRON, weights, [("x", [BATCH, FEATURES])], ("y", [BATCH, CLASSES]))
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
         "--freeze", "?2", "--freeze", "b*"])
    numpy.save(os.path.join(folder, "x.npy"), numpy.zeros((BATCH, FEATURES)))
    numpy.save(os.path.join(folder, "y.npy"), numpy.zeros(BATCH, int))
    for name, says in (("w2", "'w2' is frozen (--freeze)"), ("b1", "'b1' is frozen"),
                       ("w3", "no parameter 'w3'")):
        numpy.savez(os.path.join(folder, "c.npz"), w1=weights["w1"], **{name: weights["w2"]})
        done = subprocess.run([program, "--data", os.path.join(folder, "x.npy"), "--labels",
                               os.path.join(folder, "y.npy"), "--steps", "1", "--init",
                               os.path.join(folder, "c.npz")], capture_output=True, text=True)
        if done.returncode != 2 or says not in done.stderr:
            raise AssertionError(f"{name}: exit {done.returncode}: {done.stderr}")


def check_conv(args, folder):
    """One step of SGD with rate 1, against finite differences."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    conv_net(model, TensorProto.DOUBLE)
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
         "--optimizer", "sgd", "--lr", "1"])
    random = numpy.random.default_rng(3)
    data, labels = random.standard_normal((BATCH, 3, IMAGE, IMAGE)), random.integers(0, CLASSES, BATCH)
    losses, saved = train(program, folder, data, labels, 1)
    from onnx import load
    old = {w.name: numpy_helper.to_array(w).copy() for w in load(model).graph.initializer}
    loss, after = forward(old, data, labels)
    check_numbers("conv: loss", losses[0], loss, 1e-10)
    for name, value in after.items():
        check_numbers(f"conv: {name}", saved[name], value, 1e-10)
    for name in (n for n in old if n[-2:] not in (".m", ".v")):
        gradient = old[name] - saved[name]
        direction = random.standard_normal(old[name].shape)
        sides = [forward({**old, name: old[name] + h * direction}, data, labels)[0]
                 for h in (1e-6, -1e-6)]  # small: a Relu between both sides bends the line
        check_numbers(f"conv: gradient of {name}", (gradient * direction).sum(),
                      (sides[0] - sides[1]) / 2e-6, 1e-6)


def check_vocabulary(args, folder):
    """So many classes that the loss is computed in pieces: with a bias, and by a transposed weight."""
    rows, depth, classes = 90, 8, 60000
    random = numpy.random.default_rng(9)
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    labels = random.integers(0, classes, rows)
    labels[3] = -100
    for name in ("bias", "transposed"):
        w = {"e": random.standard_normal((classes, depth)), "b": random.standard_normal(classes)}
        nodes = [helper.make_node("Tanh", ["x"], ["t"])]
        if name == "bias":
            nodes += [helper.make_node("Gemm", ["t", "e", "b"], ["y"], transB=1)]
        else:
            w["b"] *= 0
            nodes += [helper.make_node("Transpose", ["e"], ["u"], perm=[1, 0]),
                      helper.make_node("MatMul", ["t", "u"], ["y"])]
        make_model(model, nodes, w if name == "bias" else {"e": w["e"]}, [("x", [rows, depth])],
                   ("y", [rows, classes]))
        run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
             "--optimizer", "sgd", "--lr", "1", "--json", program + ".json"])
        with open(program + ".json", encoding="utf-8") as file:
            pieces = json.load(file)["training"]
        if pieces["loss_pieces"] != 2 or pieces["loss_piece_bytes"] != 45 * classes * 8:
            raise AssertionError(f"vocabulary: {pieces}")
        with_bytes = int(re.search(r"one buffer of .*= (\d+) bytes", run([program, "--help"]))[1])
        if with_bytes > 8 * (3 * classes * depth + rows * classes):
            raise AssertionError(f"vocabulary: {with_bytes} bytes have room for all logits twice")
        data = random.standard_normal((rows, depth))
        losses, saved = train(program, folder, data, labels, 1)
        h = numpy.tanh(data)
        loss, dy = cross_entropy(h @ w["e"].T + w["b"], labels)
        check_numbers(f"vocabulary, {name}: loss", losses[0], loss, 1e-10)
        check_numbers(f"vocabulary, {name}: e", saved["e"], w["e"] - dy.T @ h, 1e-10)
        if name == "bias":
            check_numbers(f"vocabulary, {name}: b", saved["b"], w["b"] - dy.sum(axis=0), 1e-10)


def check_dropout(args, folder):
    """What is dropped follows from seed and step: gradients against differences of the program's own
    losses, other numbers in another step and with another seed, and about the ratio of them."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(5)
    w = perceptron(random)
    constants = [helper.make_node("Constant", [], ["ratio"], value_float=0.4),
                 helper.make_node("Constant", [], ["train"], value=numpy_helper.from_array(numpy.array(True)))]
    nodes = [*constants, *PERCEPTRON[:3], helper.make_node("Dropout", ["h", "ratio", "train"], ["d"]),
             helper.make_node("Gemm", ["d", "w2", "b2"], ["y"], transB=1)]
    make_model(model, nodes, w, [("x", [BATCH, FEATURES])], ("y", [BATCH, CLASSES]))
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
         "--optimizer", "sgd", "--lr", "1"])
    data, labels = random.standard_normal((BATCH, FEATURES)), random.integers(0, CLASSES, BATCH)

    def losses(weights, steps, *more):
        path = os.path.join(folder, "init.npz")
        numpy.savez(path, **weights)
        return train(program, folder, data, labels, steps, "--init", path, *more)

    first, saved = losses(w, 1)
    for name in w:
        direction = random.standard_normal(w[name].shape)
        sides = [losses({**w, name: w[name] + h * direction}, 1)[0][0] for h in (1e-6, -1e-6)]
        check_numbers(f"dropout: gradient of {name}", ((w[name] - saved[name]) * direction).sum(),
                      (sides[0] - sides[1]) / 2e-6, 1e-6)
    still = losses(w, 3, "--lr", "0")[0]
    if len(set(still)) != 3 or losses(w, 1, "--seed", "8")[0] == first or losses(w, 1)[0] != first:
        raise AssertionError("dropout: it does not follow from seed and step")
    check_kept(args, folder, constants)
    check_drawn(args, folder)


def check_drawn(args, folder):
    """Classes are drawn anew in each step, too."""
    model, program = os.path.join(folder, "d.onnx"), os.path.join(folder, "d")
    random = numpy.random.default_rng(6)
    nodes = [helper.make_node("Multinomial", ["x"], ["drawn"], sample_size=3),
             helper.make_node("Gather", ["w", "drawn"], ["g"]),
             helper.make_node("ReduceMean", ["g"], ["y"], keepdims=0)]
    make_model(model, nodes, {"w": random.standard_normal(FEATURES)}, [("x", [BATCH, FEATURES])], ("y", []))
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train", "--loss",
         "output:y", "--optimizer", "sgd"])
    data = random.standard_normal((BATCH, FEATURES))
    losses = [train(program, folder, data, None, 3, "--lr", "0", "--seed", seed)[0] for seed in "778"]
    if len(set(losses[0])) != 3 or losses[0] != losses[1] or losses[0] == losses[2]:
        raise AssertionError(f"dropout: classes do not follow from seed and step: {losses}")


def check_kept(args, folder, constants):
    """0.6 of all ones are kept, as 1 / 0.6: their mean is 1, apart from chance."""
    model, program = os.path.join(folder, "k.onnx"), os.path.join(folder, "k")
    nodes = [*constants, helper.make_node("Mul", ["x", "w"], ["m"]),
             helper.make_node("Dropout", ["m", "ratio", "train"], ["d"]),
             helper.make_node("ReduceMean", ["d"], ["y"], keepdims=0)]
    make_model(model, nodes, {"w": numpy.ones(1000)}, [("x", [BATCH, 1000])], ("y", []))
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train", "--loss",
         "output:y", "--optimizer", "sgd"])
    paths = [os.path.join(folder, name) for name in ("ones.npy", "step.npy", "loss.npy")]
    numpy.save(paths[0], numpy.ones((BATCH, 1000)))
    numpy.save(paths[1], numpy.zeros(8))
    run([program, "--input", f"x={paths[0]}", "--input", f"ullage.step={paths[1]}", "--output",
         f"loss={paths[2]}"])
    mean = float(numpy.load(paths[2]))
    if not 0.96 < mean < 1.04 or mean == 1:  # six deviations
        raise AssertionError(f"dropout: the mean of what is kept is {mean}, not about 1")


def check_max_batch(args, folder):
    """The largest batch within a budget: it fits, the next does not, and both were planned."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(7)
    make_model(model, PERCEPTRON, perceptron(random), [("x", ["N", FEATURES])], ("y", ["N", CLASSES]))
    words = [model, "--target", args.target, "--train", "--budget", "6800", "--budget-of", "arena"]
    found = json.loads(run([args.ullage, "plan", *words, "--max-batch", "--json", "-"]))["max_batch"]
    batch = found["batch"]
    fits = {row["batch"]: row["fits"] for row in found["planned"]}
    if not fits.get(batch) or fits.get(batch + 1) is not False:
        raise AssertionError(f"max-batch: {found}")
    for size, code in ((batch, 0), (batch + 1, 4)):
        done = subprocess.run([args.ullage, "plan", *words, "--dim", f"N={size}"], capture_output=True)
        if done.returncode != code:
            raise AssertionError(f"max-batch: {size}: exit {done.returncode}, not {code}")
    parts = run([args.ullage, "plan", *words, "--max-batch", "--micro-batches", "2", "--json", "-"])
    planned = {row["batch"]: row["fits"] for row in json.loads(parts)["max_batch"]["planned"]}
    even = json.loads(parts)["max_batch"]["batch"]
    if even % 2 or not planned[even] or planned[even + 2]:
        raise AssertionError(f"max-batch of two micro-batches: {planned}")
    run([args.ullage, "compile", *words, "--max-batch", "-o", program])
    data = random.standard_normal((2 * batch, FEATURES))
    train(program, folder, data, random.integers(0, CLASSES, 2 * batch), 2)
    shaped = [*PERCEPTRON[:3], helper.make_node("Reshape", ["h", "shape"], ["r"]),
              helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], transB=1)]
    baked = os.path.join(folder, "baked.onnx")
    make_model(baked, [helper.make_node("Constant", [], ["shape"], value_ints=[1, HIDDEN]), *shaped],
               perceptron(random), [("x", ["N", FEATURES])], ("y", ["N", CLASSES]))
    fixed = os.path.join(folder, "fixed.onnx")
    make_model(fixed, PERCEPTRON, perceptron(random), [("x", [4, FEATURES])], ("y", [4, CLASSES]))
    for more, text in (([model], "give --budget"), ([fixed, *words[1:]], "fixes the first dimension"),
                       ([*words, "--dim", "N=3"], "leave it out"),
                       ([*words, "--micro-batches", "auto"], "both ask"), ([baked, *words[1:]], "one of 2 cannot")):
        done = subprocess.run([args.ullage, "plan", *more, "--max-batch"], capture_output=True, text=True)
        if done.returncode not in (1, 2, 3) or text not in done.stderr:
            raise AssertionError(f"max-batch: {more}: exit {done.returncode}: {done.stderr}")


def check_parts(args, folder):
    """--micro-batches auto: of the numbers that fit, the one whose step takes the least time."""
    model, programs = os.path.join(folder, "m.onnx"), [os.path.join(folder, name) for name in "ab"]
    deep_net(model, width=16, layers=3, batch=64)
    words = [model, "--target", args.target, "--train", "--budget-of", "arena", "--budget"]
    whole = json.loads(run([args.ullage, "plan", *words[:-1], "--json", "-"]))["reserved_bytes"]
    words.append(str(whole * 6 // 10))
    plan = json.loads(run([args.ullage, "plan", *words, "--micro-batches", "auto", "--json", "-"]))
    count, planned = plan["micro_batches"]["count"], plan["micro_batches"]["planned"]
    best = min((row for row in planned if row["fits"]), key=lambda row: row["cost"])
    if count < 2 or count != best["count"] or ["micro-batches", str(count)] not in plan["options"]:
        raise AssertionError(f"micro-batches: {plan['micro_batches']}, {plan['options']}")
    if plan["training"]["statistics"] != 0:  # sums of gradients are none
        raise AssertionError(f"micro-batches: {plan['training']}")
    random, results = numpy.random.default_rng(3), []
    data = random.standard_normal((128, 16)).astype(numpy.float32)
    labels = random.integers(0, CLASSES, 128)
    for program, number in zip(programs, ("auto", str(count))):
        run([args.ullage, "compile", *words, "--micro-batches", number, "-o", program])
        results.append(train(program, folder, data, labels, 2))
    if results[0][0] != results[1][0] or \
            any(results[1][1][k].tobytes() != v.tobytes() for k, v in results[0][1].items()):
        raise AssertionError(f"micro-batches: auto has other bits than {count}")
    conv_net(model, TensorProto.FLOAT)
    for more, text in ((words, "statistics"), (words[:-2], "is chosen by a budget")):
        done = subprocess.run([args.ullage, "plan", *more, "--micro-batches", "auto"],
                              capture_output=True, text=True)
        if done.returncode != 1 or text not in done.stderr:
            raise AssertionError(f"micro-batches: exit {done.returncode}: {done.stderr}")


def check_same(args, folder, what, words, choices, shape=(3, IMAGE, IMAGE)):
    """A compile by any of these options trains the model in the folder with the bits of the first; in
    the quick tier by a compiler that is in a hurry."""
    hurry = ["--cflags", "-O1"] if args.budgets <= 2 and args.target != "cuda" else []
    model, program, want = os.path.join(folder, "m.onnx"), os.path.join(folder, "m"), None
    random = numpy.random.default_rng(3)
    data = random.standard_normal((3 * BATCH, *shape)).astype(numpy.float32)
    labels = random.integers(0, CLASSES, 3 * BATCH)
    for more in choices:
        run([args.ullage, "compile", model, "-o", program, *hurry, *words, *more])
        got = train(program, folder, data, labels, 3)
        want = want or got
        if got[0] != want[0]:
            raise AssertionError(f"{what}: {more}: losses {got[0]}, not {want[0]}")
        for name, value in want[1].items():
            if got[1][name].tobytes() != value.tobytes():
                raise AssertionError(f"{what}: {more}: {name} has other bits")
        if more != ["--pack", "none"]:
            run([program, "--guard", "--random", "1"])


def check_checkpoints(args, folder):
    """What is kept of the forward pass: r1 and r4 are what the blocks of the net pass on."""
    model = os.path.join(folder, "m.onnx")
    conv_net(model, TensorProto.FLOAT)
    words = ["--target", args.target, "--train", "--optimizer", "adamw"]
    plans = {}
    convs = ",".join(f"c{i}" for i in range(LAYERS))
    for what in ("none", "sqrt", "blocks", "r1,r4", "r0", "products", convs):
        plan = json.loads(run([args.ullage, "plan", model, *words, "--checkpoint", what, "--json", "-"]))
        names = plan["steps"]["name"]
        again = {names[i] for i, copy in enumerate(plan["steps"]["copy"]) if copy > 0}
        plans[what] = plan["reserved_bytes"], again
        if not plan["method"]["remat"].startswith("none" if what == "none" else "keep: "):
            raise AssertionError(f"checkpoints: {what}: by {plan['method']}")
    if any("Conv" in name for name in plans["products"][1]) or not plans["products"][1]:
        raise AssertionError(f"checkpoints: products are made again: {plans['products'][1]}")
    if plans["products"][0] > plans[convs][0] or plans["blocks"] != plans["r1,r4"] or plans["none"][1] or not plans["r0"][1]:
        raise AssertionError(f"checkpoints: {plans}")
    if not plans["blocks"][0] < 0.9 * plans["none"][0] or not plans["sqrt"][0] < plans["none"][0]:
        raise AssertionError(f"checkpoints: {plans}")
    check_same(args, folder, "checkpoints", words,
               [[], ["--checkpoint", "blocks"], ["--checkpoint", "sqrt"]][:args.budgets])
    sizes = ", ".join(f"{what} {plan[0]}" for what, plan in plans.items())
    print(f"checkpoints: bytes of {sizes}")


def check_budgets(args, folder):
    """Every plan of the sweep trains with the same bits."""
    model = os.path.join(folder, "m.onnx")
    conv_net(model, TensorProto.FLOAT)
    words = ["--target", args.target, "--train", "--optimizer", "adamw", "--budget-of", "arena"]
    sweep = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-"]))
    sizes = sorted({plan["reserved_bytes"] for plan in sweep["plans"]}, reverse=True)
    if len(sizes) < 4 or sizes[-1] > 0.8 * sizes[0]:
        raise AssertionError(f"budgets: {sizes} is no choice of plans")
    trained, peak = sweep["training"], sweep["plans"][-1]["peak"]
    if trained["bytes_per_parameter"] != 12 or trained["loss_pieces"] or not peak["node"] or \
            not peak["values"][0]["bytes"] or not 0 < sweep["plans"][-1]["repeated_operations"] < 1:
        raise AssertionError(f"budgets: {trained}, {sweep['plans'][-1]}")
    tried = sizes[:: max(1, len(sizes) // args.budgets)][: args.budgets] + [sizes[-1]]
    check_same(args, folder, "budgets", words,
               [[], ["--pack", "none"], *(["--budget", str(size)] for size in tried)])
    print(f"budgets: {len(tried)} plans of {sizes[0]} to {sizes[-1]} bytes, one result")


def check_inside(args, folder):
    """Products that compute light operands for themselves leave every bit as it is; deep budgets ask
    for it."""
    model = os.path.join(folder, "m.onnx")
    image = 16 if args.target == "c" else IMAGE
    conv_net(model, TensorProto.FLOAT, image)
    words = ["--target", args.target, "--train", "--optimizer", "adamw", "--budget-of", "arena"]
    words += ["--with-cudnn", "off"] if args.target == "cuda" else []  # calls compute nothing more
    # On cuda the window of r0's product would be added up otherwise; r1 and r4 are sums of two.
    names = {"c": ["r0", "r2", "r3"], "cuda": ["r2", "r3"], "cpu": []}[args.target]
    moved = [word for name in names for word in ("--inside", name)]
    for name in {f"r{i}" for i in range(LAYERS)} - set(names):
        done = subprocess.run([args.ullage, "plan", model, *words, "--inside", name], capture_output=True,
                              text=True, check=False)
        if done.returncode == 0 or "--inside" not in done.stderr and "not sure" not in done.stderr:
            raise AssertionError(f"inside: {name}: exit {done.returncode}, {done.stderr}")
    kept = json.loads(run([args.ullage, "plan", model, *words, "--json", "-"]))
    plan = json.loads(run([args.ullage, "plan", model, *words, *moved, "--json", "-"]))
    served = [op for op in plan["steps"]["op"] if "Relu+ConvWeightGradient" in op]
    if len(served) != len(names) or bool(names) != (plan["reserved_bytes"] < kept["reserved_bytes"]):
        raise AssertionError(f"inside: {served}, {plan['reserved_bytes']} of {kept['reserved_bytes']} bytes")
    recorded = os.path.join(folder, "m.json")
    with open(recorded, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    run([args.ullage, "check", model, recorded])
    table = os.path.join(folder, "m.csv")
    rungs = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-", "--csv", table]))["plans"]
    with open(table, encoding="utf-8", newline="") as file:
        rows = [(row["remat"], row["inside"], row["peak"]) for row in csv.DictReader(file)]
    if rows != [(rung["method"]["remat"], str(len(rung["inside"])), rung["peak"]["node"]) for rung in rungs]:
        raise AssertionError(f"inside: other rows as CSV: {rows}")
    chosen = {str(rung["reserved_bytes"]): rung["inside"] for rung in rungs if rung["inside"]}
    if bool(chosen) != bool(names) or any("peak" not in rung for rung in rungs):
        raise AssertionError(f"inside: no rung of {[rung['reserved_bytes'] for rung in rungs]} has any, or no peak")
    for budget, inside in list(chosen.items())[-1:]:
        within = json.loads(run([args.ullage, "plan", model, *words, "--budget", budget, "--json", "-"]))
        if [value for name, value in within["options"] if name == "inside"] != inside:
            raise AssertionError(f"inside: {budget}: {within['options']}, not {inside}")
    tried = [moved, *(["--budget", budget] for budget in chosen)]
    check_same(args, folder, "inside", words, [[], *tried[-(args.budgets // 2):]], (3, image, image))
    print(f"inside: {plan['reserved_bytes']} bytes, {kept['reserved_bytes']} without, budgets {chosen}")


def deep_net(path, width=96, layers=6, batch=BATCH):
    """Mostly parameters."""
    random = numpy.random.default_rng(13)
    nodes, weights, last = [], {}, "x"
    for i in range(layers):
        weights[f"w{i}"] = random.standard_normal((width, width)) / math.sqrt(width)
        weights[f"b{i}"] = random.standard_normal(width) * 0.1
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"a{i}"]),
                  helper.make_node("Add", [f"a{i}", f"b{i}"], [f"s{i}"]),
                  helper.make_node("Tanh", [f"s{i}"], [f"h{i}"])]
        last = f"h{i}"
    nodes.append(helper.make_node("MatMul", [last, "w"], ["y"]))
    weights["w"] = random.standard_normal((width, CLASSES)) * 0.1
    make_model(path, nodes, weights, [("x", [batch, width])], ("y", [batch, CLASSES]),
               TensorProto.FLOAT)


def wide_net(path):
    """Three parameters with gradients that are large beside all else, and a Gelu that one is of."""
    random = numpy.random.default_rng(17)
    weights = {"c.w": random.standard_normal((256, 64, 3, 3)) / 24,
               "a.w": random.standard_normal((9216, 40)) / 96,
               "b.w": random.standard_normal((CLASSES, 40)) / 6,
               "root": numpy.asarray(2 ** 0.5), "one": numpy.asarray(1.0),
               "half": numpy.asarray(0.5)}
    nodes = [helper.make_node("Conv", ["x", "c.w"], ["c"], pads=[1] * 4, kernel_shape=[3, 3]),
             helper.make_node("Div", ["c", "root"], ["g1"]),
             helper.make_node("Erf", ["g1"], ["g2"]),
             helper.make_node("Add", ["g2", "one"], ["g3"]),
             helper.make_node("Mul", ["c", "g3"], ["g4"]),
             helper.make_node("Mul", ["g4", "half"], ["r"]),
             helper.make_node("Flatten", ["r"], ["f"]),
             helper.make_node("MatMul", ["f", "a.w"], ["a"]),
             helper.make_node("Tanh", ["a"], ["h"]),
             helper.make_node("Gemm", ["h", "b.w"], ["y"], transB=1)]
    make_model(path, nodes, weights, [("x", [BATCH, 64, 6, 6])], ("y", [BATCH, CLASSES]),
               TensorProto.FLOAT)


def whole_nets(random):
    """Gradients that cannot be cut, or not with what makes their operands: inputs, nodes, weights."""
    gelu = [helper.make_node("MatMul", ["x", "w1"], ["a1"]),
            helper.make_node("MatMul", ["x", "w3"], ["a2"]),
            helper.make_node("Concat", ["a1", "a2"], ["a"], axis=1),
            helper.make_node("Gelu", ["a"], ["g"])]  # a kernel of its own: nothing follows a Concat
    spread = {"u": random.standard_normal((CLASSES, 256)) / 16}
    last = helper.make_node("Gemm", ["h", "u"], ["y"], transB=1)
    square = {"p": random.standard_normal((256, 256)) / 16, "w": random.standard_normal((256, 256)) / 16}
    return {
        "factors": ([BATCH, 256], [helper.make_node("MatMul", ["p", "w"], ["q"]),
                                   helper.make_node("MatMul", ["x", "q"], ["h"]), last],
                    {**square, **spread}),
        "reshape": ([BATCH, 64], [*gelu,
                                  helper.make_node("Reshape", ["g", "shape"], ["r"]),
                                  helper.make_node("MatMul", ["r", "w2"], ["m"]),
                                  helper.make_node("Reshape", ["m", "back"], ["y"])],
                    {"w1": random.standard_normal((64, 128)) / 8,
                     "w3": random.standard_normal((64, 128)) / 8,
                     "w2": random.standard_normal((512, 2 * CLASSES)) / 22}),
        "slice": ([BATCH, 64], [*gelu,
                                helper.make_node("Slice", ["g", "first", "end", "axis"], ["r"]),
                                helper.make_node("MatMul", ["r", "w2"], ["h"]), last],
                  {"w1": random.standard_normal((64, 256)) / 8,
                   "w3": random.standard_normal((64, 256)) / 8,
                   "w2": random.standard_normal((256, 256)) / 16, **spread}),
        "shared": ([BATCH, 128, 4, 4], [helper.make_node("Conv", ["x", "k"], ["c"], pads=[1] * 4),
                                        helper.make_node("Conv", ["c", "k"], ["d"], pads=[1] * 4),
                                        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
                                        helper.make_node("Flatten", ["e"], ["f"]),
                                        helper.make_node("MatMul", ["f", "w"], ["h"]), last],
                   {"k": random.standard_normal((128, 128, 3, 3)) / 34,
                    "w": random.standard_normal((128, 256)) / 11, **spread})}


def check_whole(args, folder):
    """Parts of gradients are formed only where what they read is still there, at no more bytes."""
    model = os.path.join(folder, "m.onnx")
    random = numpy.random.default_rng(19)
    words = ["--target", args.target, "--train", "--optimizer", "adamw", "--budget-of", "arena"]
    for name, (shape, nodes, weights) in whole_nets(random).items():
        ints = {"shape": [BATCH // 2, 512], "back": [BATCH, CLASSES], "first": [0], "end": [256],
                "axis": [1]}
        floats = [numpy_helper.from_array(value.astype(numpy.float32), key)
                  for key, value in weights.items()]
        read = {key for node in nodes for key in node.input}
        graph = helper.make_graph(
            nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, CLASSES])],
            floats + [numpy_helper.from_array(numpy.asarray(value, numpy.int64), key)
                      for key, value in ints.items() if key in read])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), model)
        sizes = [json.loads(run([args.ullage, "plan", model, *words, *more, "--json", "-"]))["reserved_bytes"]
                 for more in ([], ["--no-pass", "tiles"])]
        if sizes[0] > sizes[1]:
            raise AssertionError(f"whole: {name}: {sizes[0]} bytes, {sizes[1]} without parts")
        check_same(args, folder, f"whole: {name}", words,
                   [[], *([["--no-pass", "tiles"]] if args.target == "c" else [])], shape[1:])


def check_tiles(args, folder):
    """Large parameters are updated in parts, with the bits of the whole where kernels are our own."""
    model = os.path.join(folder, "m.onnx")
    wide_net(model)
    words = ["--target", args.target, "--train", "--optimizer", "adamw", "--budget-of", "arena"]
    plans = [json.loads(run([args.ullage, "plan", model, *words, *more, "--json", "-"]))
             for more in ([], ["--no-pass", "tiles"])]
    parts = [name for name in plans[0]["steps"]["name"] if "/update [" in name]
    sizes = [plan["reserved_bytes"] for plan in plans]
    if len(parts) != {"c": 12, "cpu": 5, "cuda": 2}[args.target] or any("[" in name for name in plans[1]["steps"]["name"]):
        raise AssertionError(f"tiles: {parts}")
    if sizes[1] - sizes[0] < 128 * 1024:
        raise AssertionError(f"tiles: {sizes[0]} bytes, {sizes[1]} without")
    smallest = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-"]))
    budget = str(smallest["plans"][-1]["reserved_bytes"])
    check_same(args, folder, "tiles", words,
               [[], ["--budget", budget], *([["--no-pass", "tiles"]] if args.target == "c" else [])],
               (64, 6, 6))
    if args.target == "c":
        check_same(args, folder, "tiles of micro-batches", [*words, "--micro-batches", "2"],
                   [[], ["--no-pass", "tiles"]], (64, 6, 6))
    print(f"tiles: {sizes[0]} bytes, {sizes[1]} without, {budget} at least")


def signs_net(path):
    """Values of which the backward pass asks conditions alone, of sizes that are no multiples of 8."""
    random = numpy.random.default_rng(23)
    shapes = {"c0.w": (8, 3, 3, 3), "c1.w": (8, 8, 3, 3), "c2.w": (8, 8, 3, 3), "c3.w": (8, 8, 3, 3),
              "c4.w": (8, 8, 1, 1), "o.w": (CLASSES, 8)}
    weights = {name: random.standard_normal(shape) * 1.5 / math.sqrt(numpy.prod(shape[1:]))
               for name, shape in shapes.items()}
    weights.update({"low": numpy.asarray(-0.5), "high": numpy.asarray(0.5)})
    pool = {"kernel_shape": [3, 3], "pads": [1] * 4}
    maps = [("Relu", {}), ("LeakyRelu", {"alpha": -0.3}), ("HardSigmoid", {}), ("ThresholdedRelu", {"alpha": 0.2})]
    nodes, last = [], "x"
    for i, (op, attributes) in enumerate(maps):
        nodes += [helper.make_node("Conv", [last, f"c{i}.w"], [f"c{i}"], pads=[1] * 4),
                  helper.make_node(op, [f"c{i}"], [f"m{i}"], **attributes),
                  helper.make_node("AveragePool", [f"m{i}"], [f"p{i}"], **pool)]
        last = f"p{i}"
    nodes += [helper.make_node("Conv", [last, "c4.w"], ["c4"]),
              helper.make_node("Max", ["c4", "p2"], ["top"]),
              helper.make_node("Greater", ["c4", "low"], ["is"]),
              helper.make_node("Where", ["is", "top", "p1"], ["one"]),
              helper.make_node("Clip", ["one", "low", "high"], ["bound"]),
              helper.make_node("GlobalAveragePool", ["bound"], ["g"]),
              helper.make_node("Flatten", ["g"], ["f"]),
              helper.make_node("Gemm", ["f", "o.w"], ["y"], transB=1)]
    make_model(path, nodes, weights, [("x", [BATCH, 3, 13, 11])], ("y", [BATCH, CLASSES]), TensorProto.FLOAT)


def check_bits(args, folder):
    """What the backward pass asks as a condition is kept as bits: fewer bytes, the same results."""
    model = os.path.join(folder, "m.onnx")
    signs_net(model)
    words = ["--target", args.target, "--train", "--budget-of", "arena"]
    sizes = [json.loads(run([args.ullage, "plan", model, *words, *more, "--json", "-"]))["reserved_bytes"]
             for more in ([], ["--no-pass", "bits"])]
    if sizes[0] > 0.7 * sizes[1]:
        raise AssertionError(f"bits: {sizes[0]} bytes, {sizes[1]} without")
    choices = [[], ["--no-pass", "bits"]]
    if args.budgets > 2:
        smallest = [json.loads(run([args.ullage, "plan", model, *words, "--sweep", *more, "--json", "-"]))
                    ["plans"][-1]["reserved_bytes"] for more in choices]
        if smallest[0] > smallest[1]:
            raise AssertionError(f"bits: {smallest} bytes at least")
        choices.append(["--budget", str(smallest[0])])
    check_same(args, folder, "bits", words, choices, (3, 13, 11))
    print(f"bits: {sizes[0]} bytes, {sizes[1]} without")


def check_clipping(args, folder, name):
    """A norm that is taken in a backward pass of its own: of these networks, whose kernels are then
    grouped as before, the same bits, and, where parameters are most of it, fewer bytes."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(3)
    is_deep = name == "clipping"
    if is_deep:
        deep_net(model)
    else:
        conv_net(model, TensorProto.FLOAT)
    shape = (96,) if is_deep else (3, IMAGE, IMAGE)
    data = random.standard_normal((3 * BATCH, *shape)).astype(numpy.float32)
    labels = random.integers(0, CLASSES, 3 * BATCH)
    sizes, seen = [], []
    for mode in ("keep", "twice"):
        run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
             "--optimizer", "momentum", "--clip-norm", "0.3", "--clip-mode", mode, "--json",
             program + ".json"])
        with open(program + ".json", encoding="utf-8") as file:
            plan = json.load(file)
        kept = plan["training"]["parameter_bytes"] if mode == "keep" else 0
        if plan["training"]["clip_kept_bytes"] != kept:
            raise AssertionError(f"{name}: {mode}: {plan['training']}")
        sizes.append(plan["reserved_bytes"])
        seen.append(train(program, folder, data, labels, 3))
    (losses, kept), (losses_twice, twice) = seen
    if losses != losses_twice or any(kept[k].tobytes() != v.tobytes() for k, v in twice.items()):
        raise AssertionError(f"{name}: twice has other bits than keep")
    if is_deep and sizes[1] > 0.85 * sizes[0]:
        raise AssertionError(f"{name}: twice takes {sizes[1]} bytes, keep {sizes[0]}")
    print(f"{name}: {sizes[0]} bytes, or {sizes[1]} with two backward passes")


def check_halves(args, folder):
    """--precision bf16: numbers are chosen so that rounding the factors of products to 16 bits, and
    nothing else, gives these very losses; and budgets change no bit."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    near, words = 1 + 2 ** -10, ["--target", args.target, "--train", "--precision", "bf16"]
    make_model(model, [helper.make_node("MatMul", ["x", "w"], ["h"]),
                       helper.make_node("MatMul", ["h", "u"], ["y"])],
               {"w": numpy.full((FEATURES, 4), near), "u": numpy.full((4, 2), near)},
               [("x", [BATCH, FEATURES])], ("y", [BATCH, 2]), TensorProto.FLOAT)
    run([args.ullage, "compile", model, "-o", program, *words, "--loss", "mse", "--optimizer", "sgd"])
    losses, saved = train(program, folder, numpy.full((2 * BATCH, FEATURES), near, numpy.float32),
                          numpy.zeros((2 * BATCH, 2), numpy.float32), 1, "--lr", "0.001")
    want = {"w": near - 0.001 * 2 * FEATURES * 4, "u": near - 0.001 * FEATURES * FEATURES * 4}
    if losses[0] != (4 * FEATURES) ** 2:
        raise AssertionError(f"halves: loss {losses[0]}, not {(4 * FEATURES) ** 2}")
    for name, value in want.items():
        if saved[name].dtype != numpy.float32:
            raise AssertionError(f"halves: {name} is {saved[name].dtype}")
        check_numbers(f"halves: {name}", saved[name], numpy.full(saved[name].shape, value), 1e-6)
    words += ["--optimizer", "adamw", "--budget-of", "arena"]
    conv_net(model, TensorProto.FLOAT)
    check_law(args, folder, "halves: conv", words, (3, IMAGE, IMAGE))
    deep_net(model)
    check_law(args, folder, "halves: deep", words, (96,))


def check_law(args, folder, what, words, shape):
    """Losses, parameters and states are those of the plan without a budget, whatever is asked for."""
    model = os.path.join(folder, "m.onnx")
    sweep = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-"]))
    sizes = sorted({plan["reserved_bytes"] for plan in sweep["plans"]})
    check_same(args, folder, what, words,
               [[], ["--pack", "none"], ["--checkpoint", "sqrt"],
                *(["--budget", str(size)] for size in sizes[:args.budgets - 1])], shape)


def state_count(optimizer, shape, sums):
    """Elements of an optimizer's state of a parameter; sums: dimensions that a block has."""
    size = math.prod(shape)
    if optimizer == "adafactor":
        return size if len(shape) < 2 else size // shape[-1] + size // shape[-2]
    return size + math.prod(1 if d in sums else n for d, n in enumerate(shape))


def smallest_plan(args, model, words):
    """The bytes of the smallest plan of a sweep, as an option takes them."""
    sweep = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-"]))
    return str(sweep["plans"][-1]["reserved_bytes"])


def check_small_state(args, folder):
    """Updates that look at whole tensors: the same bits under every budget, in parts of a step nearly
    those of the whole, resumed as if nothing had been; state of the bytes that they promise."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(3)
    data = random.standard_normal((3 * BATCH, 96)).astype(numpy.float32)
    labels = random.integers(0, CLASSES, 3 * BATCH)
    for kind in ("adafactor", "adam-mini"):
        words = ["--target", args.target, "--train", "--optimizer", kind, "--budget-of", "arena"]
        conv_net(model, TensorProto.FLOAT)
        shapes = {1: [(CHANNELS,)] * 2 * LAYERS + [(CLASSES,)], 2: [(CLASSES, CHANNELS)],
                  4: [(CHANNELS, CHANNELS if i else 3, 3, 3) for i in range(LAYERS)]}
        want = 4 * sum(state_count(kind, shape, {1: [0], 2: [1], 4: [1, 2, 3]}[rank])
                       for rank, some in shapes.items() for shape in some)
        sweep = json.loads(run([args.ullage, "plan", model, *words, "--sweep", "--json", "-"]))
        if sweep["training"]["state_bytes"] != want:
            raise AssertionError(f"{kind}: {sweep['training']}, not {want} bytes of state")
        least = str(sweep["plans"][-1]["reserved_bytes"])
        check_same(args, folder, kind, words, [[], ["--pack", "none"], ["--budget", least],
                                               ["--checkpoint", "blocks"]][:2 * args.budgets])
        bounded = [*words, "--clip-norm", "0.1", "--clip-value", "0.01"]
        # The norm is that of all gradients, which wait for it: the smallest plan is another.
        check_same(args, folder, f"{kind}, bounded", bounded,
                   [[], ["--budget", smallest_plan(args, model, bounded)],
                    ["--pack", "none"]][:args.budgets])
        wide_net(model)
        check_same(args, folder, f"{kind}, wide", words,
                   [[], ["--budget", smallest_plan(args, model, words)],
                    ["--pack", "none"]][:args.budgets], (64, 6, 6))
        deep_net(model)
        seen = []
        for more in ([], ["--micro-batches", "2"]):
            run([args.ullage, "compile", model, "-o", program, *words, *more])
            seen.append(train(program, folder, data, labels, 3))
        check_numbers(f"{kind}: losses of micro-batches", seen[1][0], seen[0][0], 1e-5)
        check_numbers(f"{kind}: micro-batches", seen[1][1]["w1"], seen[0][1]["w1"], 1e-4)
        part = os.path.join(folder, "part.npz")
        command = [program, "--data", os.path.join(folder, "x.npy"), "--labels", os.path.join(folder, "y.npy"),
                   "--save", part]
        run([*command, "--steps", "2", "--no-shuffle"])
        run([*command, "--steps", "3", "--resume", part])
        with numpy.load(part) as resumed:
            if any(resumed[name].tobytes() != value.tobytes() for name, value in seen[1][1].items()):
                raise AssertionError(f"{kind}: a resumed training has other bits")
        run([args.ullage, "export", model, part, "-o", os.path.join(folder, "t.onnx")])


def rotary_net(path, interleaved):
    """Positions that are turned, as exporters spell it out, by tables that are trained too."""
    random = numpy.random.default_rng(29)
    heads, size = 3, 4
    weights = {"w1": random.standard_normal((FEATURES, FEATURES)) * 0.3,
               "cos": numpy.cos(random.standard_normal((heads, size))),
               "sin": numpy.sin(random.standard_normal((heads, size))),
               "w2": random.standard_normal((FEATURES, CLASSES)) * 0.3}
    half = [] if interleaved else [size // 2]
    shapes = {"heads": [BATCH, heads, size], "flat": [BATCH, FEATURES], "axis": [-1],
              "pairs": [BATCH, heads, size // 2, 1]}
    parts = [("second", [1] if interleaved else half), ("first", [0])]
    nodes = [helper.make_node("Constant", [], [name], value_ints=dims) for name, dims in shapes.items()]
    nodes += [helper.make_node("MatMul", ["x", "w1"], ["a"]),
              helper.make_node("Reshape", ["a", "heads"], ["h"])]
    for name, begin in parts:
        end = [size] if interleaved or name == "second" else half
        nodes += [helper.make_node("Constant", [], [f"{name}_begin"], value_ints=begin),
                  helper.make_node("Constant", [], [f"{name}_end"], value_ints=end),
                  helper.make_node("Constant", [], [f"{name}_step"], value_ints=[2 if interleaved else 1]),
                  helper.make_node("Slice", ["h", f"{name}_begin", f"{name}_end", "axis", f"{name}_step"], [name])]
    nodes += [helper.make_node("Neg", ["second"], ["negative"])]
    turned = ["negative", "first"]
    if interleaved:
        nodes += [helper.make_node("Unsqueeze", [name, "axis"], [f"{name}_column"]) for name in turned]
        turned = [f"{name}_column" for name in turned]
    nodes += [helper.make_node("Concat", turned, ["turns"], axis=-1),
              helper.make_node("Reshape", ["turns", "heads"], ["turned"]),
              helper.make_node("Mul", ["h", "cos"], ["by_cos"]),
              helper.make_node("Mul", ["turned" if interleaved else "turns", "sin"], ["by_sin"]),
              helper.make_node("Add", ["by_cos", "by_sin"], ["r"]),
              helper.make_node("Tanh", ["r"], ["t"]),
              helper.make_node("Reshape", ["t", "flat"], ["f"]),
              helper.make_node("MatMul", ["f", "w2"], ["y"])]
    make_model(path, nodes, weights, [("x", [BATCH, FEATURES])], ("y", [BATCH, CLASSES]))


def check_rotary(args, folder):
    """A fused rotary embedding learns what the same one learns spelled out, its tables too."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
    random = numpy.random.default_rng(31)
    data, labels = random.standard_normal((STEPS * BATCH, FEATURES)), random.integers(0, CLASSES, STEPS * BATCH)
    for interleaved in (False, True):
        rotary_net(model, interleaved)
        results = []
        for more in ([], ["--no-pass", "pattern"]):
            words = ["--target", args.target, "--train", "--optimizer", "momentum", *more]
            shown = run([args.ullage, "plan", model, *words, "--stop-after", "pattern"])
            if ("FusedRotary" in shown) != (more == []):
                raise AssertionError(f"rotary: fused or not, against the choice {more}")
            run([args.ullage, "compile", model, "-o", program, *words])
            results.append(train(program, folder, data, labels, STEPS))
        check_numbers("rotary: losses", results[0][0], results[1][0], 1e-12)
        for name in ("w1", "w2", "cos", "sin"):
            check_numbers(f"rotary: {name}", results[0][1][name], results[1][1][name], 1e-12)


def check_stops(args, folder):
    """What gives no gradient back: a node ullage::StopGradient, and --stop-gradient NAME@NODE of the
    same network without one, learn as numpy does; the padding row of a table stays."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
    random = numpy.random.default_rng(37)
    w = {"w1": random.standard_normal((FEATURES, HIDDEN)) * 0.3,
         "w2": random.standard_normal((HIDDEN, HIDDEN)) * 0.3}
    data = random.standard_normal((BATCH, FEATURES))
    h = data @ w["w1"]
    dp = 2 * (h @ w["w2"] - h) / h.size
    want = {"w1": w["w1"] - 0.5 * data.T @ (dp @ w["w2"].T), "w2": w["w2"] - 0.5 * h.T @ dp}
    ends = [helper.make_node("Mul", ["d", "d"], ["s"]), helper.make_node("ReduceMean", ["s"], ["l"], keepdims=0)]
    begins = [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("MatMul", ["h", "w2"], ["p"])]
    stop = helper.make_node("StopGradient", ["h"], ["z"], domain="ullage")
    for middle, words in (([stop, helper.make_node("Sub", ["p", "z"], ["d"])], []),
                          ([helper.make_node("Sub", ["p", "h"], ["d"], name="gap")], ["--stop-gradient", "h@ga*"])):
        make_model(model, begins + middle + ends, w, [("x", [BATCH, FEATURES])], ("l", []))
        run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train", "--loss",
             "output:l", "--optimizer", "sgd", "--lr", "0.5", *words])
        _, got = train(program, folder, data, None, 1)
        for name in w:
            check_numbers(f"stops: {name} {words}", got[name], want[name], 1e-9)
    table = random.standard_normal((6, HIDDEN))
    nodes = [helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
             helper.make_node("Gather", ["table", "i"], ["e"]), helper.make_node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0),
             helper.make_node("MatMul", ["m", "w2"], ["y"])]
    make_model(model, nodes, {"table": table, "w2": w["w2"][:, :CLASSES]}, [("x", [BATCH, 4])], ("y", [BATCH, CLASSES]))
    data, labels = random.integers(-6, 6, (BATCH, 4)).astype(float), random.integers(0, CLASSES, BATCH)
    learned = []
    for words in ([], ["--padding-idx", "tab*=2"], ["--padding-idx", "table=-4"]):
        run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
             "--optimizer", "sgd", "--lr", "0.5", *words])
        learned.append(train(program, folder, data, labels, 1)[1]["table"])
    moved = [(after != table).any(axis=1) for after in learned]
    others = numpy.arange(6) != 2
    if not moved[0].all() or moved[1].tolist() != others.tolist():
        raise AssertionError(f"stops: rows that moved: {moved}")
    if not numpy.array_equal(learned[1], learned[2]) or not numpy.array_equal(learned[0][others], learned[1][others]):
        raise AssertionError("stops: other rows learn otherwise, or -4 is another row than 2")


CHECKS = {"conv": check_conv, "constants": check_frozen, "dropout": check_dropout, "vocabulary": check_vocabulary,
          "process": check_process, "bits": check_bits, "tiles": check_tiles, "whole": check_whole,
          "inside": check_inside,
          "clipping": lambda args, folder: check_clipping(args, folder, "clipping"),
          "clipping-conv": lambda args, folder: check_clipping(args, folder, "clipping-conv"),
          "checkpoints": check_checkpoints, "max-batch": check_max_batch,
          "micro-batches": check_parts, "budgets": check_budgets, "halves": check_halves,
          "small-state": check_small_state, "rotary": check_rotary, "stops": check_stops}


def run_cases(names, check):
    """check(name, folder) of each, in a folder of its own; the exit code."""
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(name, folder)
                print(f"{name}: ok")
            except AssertionError as error:
                print(f"{name}: {error}")
                failed += 1
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--budgets", type=int, default=2)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()

    def check(name, folder):
        if name in CHECKS:
            CHECKS[name](args, folder)
        else:
            check_perceptron(args, name, folder)

    return run_cases(args.cases or [*CASES, *CHECKS], check)


if __name__ == "__main__":
    sys.exit(main())
