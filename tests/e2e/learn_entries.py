#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program that trains can be asked for beside a step: --val, --micro-batches, --last pad.

    learn_entries.py ULLAGE [--target c] [CASE]...

Evaluation is compared with numpy on the parameters and running statistics of a checkpoint, with a
last batch that is not full, with several inputs and for each loss; nothing is learned of it, and
nothing dropped. The least budget evaluates with the same bits. Micro-batches learn what the batch
does, with labels that are ignored, weights of classes, bounds of gradients and a batch that is not
full; budgets do not change their bits.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import re
import sys
import tempfile

import learn

try:
    import numpy
    from onnx import helper, numpy_helper, TensorProto
except ImportError as error:
    print(f"learn_entries.py: skipped: {error}")
    sys.exit(77)

BATCH, FEATURES, CLASSES = learn.BATCH, learn.FEATURES, learn.CLASSES


def compile_model(args, folder, name, *words):
    program = os.path.join(folder, "trainer")
    learn.run([args.ullage, "compile", os.path.join(folder, name), "-o", program, "--target",
               args.target, "--train", *words])
    return program


class Trainer:
    """A program on files of samples: x and y to train on, vx and vy held out."""

    def __init__(self, program, folder, **arrays):
        self.program, self.folder = program, folder
        for name, array in arrays.items():
            numpy.save(self.path(f"{name}.npy"), array)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *more, steps=2, labels=True, val=True):
        """What is printed of the last evaluation, and the bytes of the checkpoint."""
        words = [self.program, "--data", self.path("x.npy"), "--steps", str(steps), "--save",
                 self.path("c.npz")]
        words += ["--labels", self.path("y.npy")] * labels
        words += ["--val", self.path("vx.npy"), *[self.path("vy.npy")] * labels] * val
        told = learn.run([*words, *more]).splitlines()[-1]
        with open(self.path("c.npz"), "rb") as file:
            return told, file.read()

    def checkpoint(self):
        with numpy.load(self.path("c.npz")) as file:
            return {name: file[name] for name in file.files}


def held_out(told):
    """Loss and percents, of a line that a trainer prints."""
    loss = float(re.search(r"held out: loss ([0-9.e+-]+)", told).group(1))
    right = re.search(r"held out: .*, ([0-9.]+) % right", told)
    return loss, float(right.group(1)) if right else None


def trained(told):
    """The same of the epoch."""
    return [float(re.search(f": {what}", told).group(1))
            for what in ("loss ([0-9.e+-]+)", ".*?([0-9.]+) % right")]


def check_statistics(args, folder):
    """Batch statistics: the running ones. What is held out is learned nothing of."""
    random = numpy.random.default_rng(21)
    learn.conv_net(os.path.join(folder, "m.onnx"), TensorProto.DOUBLE)
    image = (3, learn.IMAGE, learn.IMAGE)
    count = 2 * BATCH + 5
    arrays = {"x": random.standard_normal((2 * BATCH, *image)),
              "y": random.integers(0, CLASSES, 2 * BATCH),
              "vx": random.standard_normal((count, *image)) + 0.5,
              "vy": random.integers(0, CLASSES, count)}
    trainer = Trainer(compile_model(args, folder, "m.onnx", "--lr", "0.1"), folder, **arrays)
    told, saved = trainer.run()
    if trainer.run(val=False)[1] != saved:
        raise AssertionError("what is held out changes what is learned")
    weights = {**initial(folder), **trainer.checkpoint()}
    want = learn.forward(weights, arrays["vx"], arrays["vy"], evaluates=True)[0]
    learn.check_numbers("statistics: loss held out", held_out(told)[0], want, 1e-5)
    if abs(want - learn.forward(weights, arrays["vx"], arrays["vy"])[0]) < 1e-3:
        raise AssertionError("statistics: running ones and those of the batch are the same")
    plan = learn.run([args.ullage, "plan", os.path.join(folder, "m.onnx"), "--train", "--target",
                      args.target, "--lr", "0.1", "--sweep", "--budget-of", "arena", "--json", "-"])
    least = min(int(size) for size in re.findall(r'"reserved_bytes": ([0-9]+)', plan))
    trainer.program = compile_model(args, folder, "m.onnx", "--lr", "0.1", "--budget", str(least),
                                    "--budget-of", "arena")
    again = trainer.run()
    if held_out(again[0]) != held_out(told) or again[1] != saved:
        raise AssertionError(f"statistics: under {least} bytes: {again[0]}, not {told}")


def initial(folder):
    from onnx import load
    model = load(os.path.join(folder, "m.onnx"))
    return {w.name: numpy_helper.to_array(w).copy() for w in model.graph.initializer}


def check_losses(args, folder):
    """Dropout, a second input, and losses of numbers."""
    random = numpy.random.default_rng(22)
    w = learn.perceptron(random)
    nodes = [helper.make_node("Constant", [], ["ratio"], value_float=0.4),
             helper.make_node("Constant", [], ["train"],
                              value=numpy_helper.from_array(numpy.array(True))),
             helper.make_node("Mul", ["x", "scale"], ["s"]),
             helper.make_node("Gemm", ["s", "w1", "b1"], ["g"]),
             helper.make_node("Tanh", ["g"], ["h"]),
             helper.make_node("Dropout", ["h", "ratio", "train"], ["d"]),
             helper.make_node("Gemm", ["d", "w2", "b2"], ["y"], transB=1)]
    shape = [BATCH, FEATURES]
    learn.make_model(os.path.join(folder, "m.onnx"), nodes, w, [("x", shape), ("scale", shape)],
                     ("y", [BATCH, CLASSES]))
    count = BATCH + 3
    arrays = {"x": random.standard_normal((2 * BATCH, FEATURES)),
              "s": random.standard_normal((2 * BATCH, FEATURES)),
              "vx": random.standard_normal((count, FEATURES)),
              "vs": random.standard_normal((count, FEATURES))}
    h = numpy.tanh((arrays["vx"] * arrays["vs"]) @ w["w1"] + w["b1"])
    logits = h @ w["w2"].T + w["b2"]
    for name in ("softmax-cross-entropy", "mse", "bce"):
        case = {"loss": name}
        arrays["y"] = learn.labels_of(case, random)[: 2 * BATCH]
        arrays["vy"] = learn.labels_of(case, random)[:count]
        trainer = Trainer(compile_model(args, folder, "m.onnx", "--loss", name), folder, **arrays)
        told, _ = trainer.run("--lr", "0", "--input", f"scale={trainer.path('s.npy')}",
                              "--val-input", f"scale={trainer.path('vs.npy')}")
        want = learn.loss_of(case, logits, arrays["vy"])
        learn.check_numbers(f"{name}: loss held out", held_out(told)[0],
                            want[0] if isinstance(want, tuple) else want, 1e-5)
        if name == "softmax-cross-entropy":
            right = 100 * (logits.argmax(axis=1) == arrays["vy"]).mean()
            learn.check_numbers(f"{name}: right", held_out(told)[1], right, 1e-3)


UNEVEN = numpy.array([0.1, 0.5, 2, 7, 30])


def check_means(args, folder):
    """Means are those of all labels at once, by the weights of their classes, except for ignored ones:
    of batches that are not alike, and a last one that is not full."""
    random = numpy.random.default_rng(25)
    w, count = learn.perceptron(random), 3 * BATCH + 5
    learn.make_model(os.path.join(folder, "m.onnx"), learn.PERCEPTRON, w,
                     [("x", ["batch", FEATURES])], ("y", ["batch", CLASSES]))
    x, labels = random.standard_normal((count, FEATURES)), random.integers(0, CLASSES, count)
    labels[:BATCH] = random.integers(0, 2, BATCH)
    labels[BATCH : 2 * BATCH - 3] = 0
    logits = numpy.tanh(x @ w["w1"] + w["b1"]) @ w["w2"].T + w["b2"]
    for ignore, weights, parts in ((-100, None, 1), (0, None, 4), (-100, UNEVEN, 4), (0, UNEVEN, 1)):
        case = {"optimizer": "sgd", "smoothing": 0.1}
        case.update({} if weights is None else {"weights": weights})
        words = [*learn.arguments(case, folder)[1:], "--ignore-index", str(ignore)]
        given = numpy.where(labels == 0, ignore, labels)
        want = learn.cross_entropy(logits, given, 0.1, weights, ignore)[0]
        right = 100 * (logits.argmax(axis=1) == given)[given != ignore].mean()
        program = compile_model(args, folder, "m.onnx", *words, "--dim", f"batch={BATCH}",
                                "--micro-batches", str(parts))
        trainer = Trainer(program, folder, x=x, y=given, vx=x, vy=given)
        line, _ = trainer.run("--lr", "0", "--last", "pad", "--no-shuffle", steps=4)
        for name, found in (("held out", held_out(line)), ("trained", trained(line))):
            what = f"means: ignored {ignore}, weights {weights is not None}, {parts} parts: {name}"
            learn.check_numbers(f"{what}: loss", found[0], want, 1e-5)
            learn.check_numbers(f"{what}: right", found[1], right, 1e-3)


def take(case, w, state, step, x, labels):
    """The batch's loss; parameters and state are updated, by numpy."""
    loss, gradients = learn.perceptron_gradients(case, w, x, labels)
    norm = numpy.sqrt(sum((g * g).sum() for g in gradients.values()))
    for key, gradient in gradients.items():
        gradient = gradient * min(1, case.get("clip_norm", numpy.inf) / (norm + 1e-6))
        learn.update(case, step, w, state, key, gradient)
    return loss


PARTS = {
    "ignored": {"optimizer": "momentum", "ignored": True},
    "weights": {"optimizer": "adamw", "decay": 0.1, "weights": None, "clip_norm": 0.01},
    "mse": {"optimizer": "sgd", "loss": "mse", "clip_value": 0.01},
    "bce": {"optimizer": "lion", "lr": 0.01, "loss": "bce"},
}


def check_parts(args, folder):
    """Steps of four micro-batches, and a last one that lacks samples."""
    count = 2 * BATCH + 6
    for name, case in PARTS.items():
        random = numpy.random.default_rng(23)
        w, state = learn.perceptron(random), {}
        if "weights" in case:
            case["weights"] = random.random(CLASSES) + 0.5
        learn.make_model(os.path.join(folder, "m.onnx"), learn.PERCEPTRON, w,
                         [("x", ["batch", FEATURES])], ("y", ["batch", CLASSES]))
        words = [*learn.arguments(case, folder)[1:], "--dim", f"batch={BATCH}", "--micro-batches",
                 "4"]
        arrays = {"x": random.standard_normal((count, FEATURES)),
                  "y": learn.labels_of(case, random)[:count]}
        trainer = Trainer(compile_model(args, folder, "m.onnx", *words), folder, **arrays)
        told, saved = trainer.run("--no-shuffle", "--last", "pad", "--metrics",
                                  trainer.path("m.csv"), steps=3, val=False)
        losses = read_losses(trainer.path("m.csv"))
        for step in range(3):
            part = slice(step * BATCH, (step + 1) * BATCH)
            loss = take(case, w, state, step, arrays["x"][part], arrays["y"][part])
            learn.check_numbers(f"{name}: loss of step {step}", losses[step], loss, 1e-8)
        found = trainer.checkpoint()
        for key, value in {**w, **state}.items():
            learn.check_numbers(f"{name}: {key}", found[key], value, 1e-7)
        if any(key.endswith("/gradient") or key.startswith("loss") for key in found):
            raise AssertionError(f"{name}: what is added up in a step is saved: {sorted(found)}")


def read_losses(path):
    with open(path, encoding="utf-8") as file:
        return [float(line.split(",")[2]) for line in file.readlines()[1:]]


def check_parts_of_image(args, folder):
    """Batch statistics are those of a micro-batch; a budget keeps the number and the bits."""
    random = numpy.random.default_rng(24)
    learn.conv_net(os.path.join(folder, "m.onnx"), TensorProto.FLOAT)
    shape = (2 * BATCH, 3, learn.IMAGE, learn.IMAGE)
    arrays = {"x": random.standard_normal(shape).astype(numpy.float32),
              "y": random.integers(0, CLASSES, 2 * BATCH)}
    words = ["--optimizer", "momentum", "--micro-batches", "4", "--budget-of", "arena"]
    plan = learn.run([args.ullage, "plan", os.path.join(folder, "m.onnx"), "--train", "--target",
                      args.target, *words, "--sweep", "--json", "-"])
    sizes = sorted({int(size) for size in re.findall(r'"reserved_bytes": ([0-9]+)', plan)})
    results = []
    for more in ([], ["--budget", str(sizes[0])], ["--pack", "none"]):
        program = compile_model(args, folder, "m.onnx", *words, *more)
        results.append(Trainer(program, folder, **arrays).run(val=False)[1])
        if "--pack" not in more:
            learn.run([program, "--guard", "--random", "1"])
    if len(sizes) < 2 or len(set(results)) != 1:
        raise AssertionError(f"budgets of {sizes} with micro-batches: other parameters")


CASES = {"statistics": check_statistics, "losses": check_losses, "means": check_means,
         "parts": check_parts, "images": check_parts_of_image}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    return learn.run_cases(args.cases or CASES, lambda name, folder: CASES[name](args, folder))


if __name__ == "__main__":
    sys.exit(main())
