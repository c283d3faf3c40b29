#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that train with a dynamic loss scale: --loss-scale.

    loss_scale.py ULLAGE [--target c] [CASE]...

The rule is that of torch.cuda.amp.GradScaler, written down here in numpy from its documentation
(torch's own runs on CUDA alone): gradients of the loss times the scale are tested, and a step of
which one is not finite changes neither parameters nor the optimizer's state, nor the count that
Adam's corrections go by, and halves the scale; after so many steps in a row the scale doubles. A
perceptron is trained on batches of which two overflow, by each optimizer, with micro-batches, a
bounded norm, states of 8 bits and products of fp16 (numpy then on operands rounded to it): scale, skipped steps and losses are those of the rule, step by
step, and a step that is skipped leaves every bit, of running statistics too. Then: all plans have the same bits, a resumed
training equals an uninterrupted one, and what --init takes.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import json
import os
import subprocess
import sys

from learn import (BATCH, CLASSES, FEATURES, PERCEPTRON, TensorProto, check_numbers, deep_net,
                   helper, make_model, numpy, perceptron, perceptron_gradients, run, run_cases, update)

STEPS, SCALE, INTERVAL = 12, 2.0 ** 16, 3
HUGE = (2, 8)  # steps that overflow
STATES = ("loss/scale", "loss/growth_tracker", "loss/steps")

CASES = {
    "sgd": {"optimizer": "sgd", "decay": 0.02},
    "momentum": {"optimizer": "momentum", "nesterov": True},
    "adam": {"optimizer": "adam", "decay": 0.01},
    "adamw": {"optimizer": "adamw", "clip_norm": 0.3},
    "lion": {"optimizer": "lion", "clip_value": 0.01},
    "adafactor": {"optimizer": "adafactor"},
    "adam-mini": {"optimizer": "adam-mini", "clip_norm": 0.3},
    "parts": {"optimizer": "adamw", "parts": 2},
    "parts-norm": {"optimizer": "momentum", "parts": 4, "clip_norm": 0.2},
    # labels of 100, by this scale, are gradients that float32 has and fp16 has not
    "fp16": {"optimizer": "momentum", "fp16": True, "huge": 100},
    "fp16-adamw": {"optimizer": "adamw", "fp16": True, "huge": 100, "clip_norm": 0.3},
}


class GradScaler:
    """torch.cuda.amp.GradScaler: scale_, unscale_, step and update."""

    def __init__(self, scale, interval):
        self.scale, self.interval, self.tracker, self.taken = numpy.float32(scale), interval, 0, 0

    def update(self, is_finite):
        if not is_finite:
            self.scale *= numpy.float32(0.5)
            self.tracker = 0
            return
        self.taken += 1
        self.tracker += 1
        if self.tracker == self.interval:
            self.tracker = 0
            if numpy.isfinite(self.scale * numpy.float32(2)):
                self.scale *= numpy.float32(2)


def half(x):
    with numpy.errstate(over="ignore"):
        return x.astype(numpy.float16).astype(float)


def half_gradients(w, x, labels, scale):
    """As programs of amp-fp16 have them: products of 16 bits, results rounded once, float32 where
    no product is near: biases, and the loss."""
    x, w1, w2 = half(x), half(w["w1"]), half(w["w2"])
    h = half(numpy.tanh(half(x @ w1) + w["b1"]))
    y = h @ w2.T + w["b2"]
    dy = half(2 * (y - labels) / y.size * float(scale))
    with numpy.errstate(invalid="ignore"):
        da = half(half(dy @ w2) * (1 - h * h))
        return ((y - labels) ** 2).mean(), {"w1": half(x.T @ da), "b1": da.sum(axis=0),
                                            "w2": half(dy.T @ h), "b2": dy.sum(axis=0)}


def samples(random, huge):
    data = random.standard_normal((STEPS * BATCH, FEATURES)).astype(numpy.float32)
    labels = random.standard_normal((STEPS * BATCH, CLASSES)).astype(numpy.float32)
    for step in HUGE:
        labels[step * BATCH + 1] = huge
    return data, labels


def scaled(case, w, data, labels, scale):
    """Loss, and gradients times the scale, as float32 has them: sums over parts of the batch."""
    parts = case.get("parts", 1)
    if case.get("fp16"):
        return half_gradients(w, data.astype(float), labels.astype(float), scale)
    rows = BATCH // parts
    total, sums = 0, {}
    for part in range(parts):
        slot = slice(part * rows, (part + 1) * rows)
        loss, gradients = perceptron_gradients({"loss": "mse"}, w, data[slot].astype(float),
                                               labels[slot].astype(float))
        total += loss / parts
        for name, g in gradients.items():
            sums[name] = sums.get(name, 0) + (g / parts * float(scale))
    with numpy.errstate(over="ignore"):
        return total, {name: g.astype(numpy.float32).astype(float) for name, g in sums.items()}


def learn(case, w, data, labels):
    """Rows of loss, scale and whether the step was skipped; parameters and state after the last."""
    scaler, state, rows = GradScaler(SCALE, INTERVAL), {}, []
    w = {name: value.astype(numpy.float32).astype(float) for name, value in w.items()}
    for step in range(STEPS):
        slot = slice(step * BATCH, (step + 1) * BATCH)
        loss, gradients = scaled(case, w, data[slot], labels[slot], scaler.scale)
        is_finite = all(numpy.isfinite(g).all() for g in gradients.values())
        rows.append((loss, float(scaler.scale), not is_finite))
        if is_finite:
            gradients = {name: g / float(scaler.scale) for name, g in gradients.items()}
            norm = numpy.sqrt(sum((g * g).sum() for g in gradients.values()))
            factor = min(1, case["clip_norm"] / (norm + 1e-6)) if "clip_norm" in case else 1
            for name, g in gradients.items():
                update({**case, "lr": 0.01}, scaler.taken, w, state, name, g * factor)
        scaler.update(is_finite)
    return rows, {**w, **state, "loss/scale": scaler.scale, "loss/growth_tracker": scaler.tracker,
                  "loss/steps": scaler.taken}


def hurry(args):
    return ["--cflags", "-O1"] if args.target != "cuda" else []


def words_of(args, case):
    words = ["--target", args.target, "--train", "--loss", "mse", "--lr", "0.01", "--optimizer",
             case["optimizer"], *(["--precision", "amp-fp16"] if case.get("fp16") else
                                  ["--loss-scale", str(SCALE)]),
             "--growth-interval", str(INTERVAL)]
    for key, option in (("decay", "--weight-decay"), ("clip_norm", "--clip-norm"),
                        ("clip_value", "--clip-value"), ("parts", "--micro-batches")):
        words += [option, str(case[key])] if key in case else []
    return words + ["--nesterov"] * case.get("nesterov", False)


def train(program, folder, data, labels, steps, *more):
    """Rows of the metrics, and the checkpoint."""
    paths = {name: os.path.join(folder, name) for name in ("x.npy", "y.npy", "m.csv", "c.npz")}
    numpy.save(paths["x.npy"], data)
    given = []
    if labels is not None:
        numpy.save(paths["y.npy"], labels)
        given = ["--labels", paths["y.npy"]]
    run([program, "--data", paths["x.npy"], *given, "--steps", str(steps),
         *["--no-shuffle"] * ("--resume" not in more), "--metrics", paths["m.csv"], "--save",
         paths["c.npz"], *more])
    with open(paths["m.csv"], encoding="utf-8") as file:
        rows = [(float(row["loss"]), float(row.get("loss_scale") or 1), row.get("skipped") == "1")
                for row in csv.DictReader(file)]
    with numpy.load(paths["c.npz"]) as file:
        return rows, {name: file[name] for name in file.files}


def make_perceptron(folder, huge=1e36):  # times the scale it is no float32 any more
    random = numpy.random.default_rng(7)
    w = perceptron(random)
    make_model(os.path.join(folder, "m.onnx"), PERCEPTRON, w, [("x", [BATCH, FEATURES])],
               ("y", [BATCH, CLASSES]), TensorProto.FLOAT)
    return w, *samples(random, huge)


def check_rule(args, name, folder):
    case, program = CASES[name], os.path.join(folder, "m")
    w, data, labels = make_perceptron(folder, case.get("huge", 1e36))
    limits = (2e-3, 1e-2) if case.get("fp16") else (1e-5, 2e-5)
    run([args.ullage, "compile", program + ".onnx", "-o", program, *hurry(args),
         *words_of(args, case)])
    rows, saved = train(program, folder, data, labels, STEPS)
    want_rows, want = learn(case, w, data, labels)
    if [row[1:] for row in rows] != [row[1:] for row in want_rows]:
        raise AssertionError(f"{name}: scales and skips {rows}, not {want_rows}")
    skipped = [step for step, row in enumerate(rows) if row[2]]
    if skipped != list(HUGE):
        raise AssertionError(f"{name}: skips {skipped}")
    kept = [step for step in range(STEPS) if step not in HUGE]
    check_numbers(f"{name}: losses", [rows[step][0] for step in kept],
                  [want_rows[step][0] for step in kept], limits[0])
    for key, value in want.items():
        check_numbers(f"{name}: {key}", saved[key], value, limits[1])


def check_bits_of_skips(args, folder):
    """What a step that is skipped leaves: every bit of parameters and state, also of 8 bits."""
    program = os.path.join(folder, "m")
    deep_net(program + ".onnx")
    random = numpy.random.default_rng(3)
    data = random.standard_normal((3 * BATCH, 96)).astype(numpy.float32)
    data[2 * BATCH + 3] = numpy.inf
    labels = random.integers(0, CLASSES, 3 * BATCH)
    for more in (["adamw"], ["adamw", "--state-bits", "8"], ["lion", "--state-bits", "8"],
                 ["momentum"]):
        run([args.ullage, "compile", program + ".onnx", "-o", program, *hurry(args), "--target", args.target,
             "--train", "--loss-scale", "1024", "--optimizer", *more])
        before = train(program, folder, data, labels, 2)[1]
        rows, after = train(program, folder, data, labels, 3)
        if [row[1:] for row in rows] != [(1024, False), (1024, False), (1024, True)] or \
                (after["loss/scale"], after["loss/steps"], after["step"]) != (512, 2, 3):
            raise AssertionError(f"{more}: {rows}, {[after[name] for name in STATES]}")
        for name in set(after) - {*STATES, "step"}:
            if after[name].tobytes() != before[name].tobytes():
                raise AssertionError(f"{more}: a step that was skipped changes {name}")


def statistics_net(folder):
    """A perceptron with statistics of its batch; the third step is not finite, and the fourth is but
    for its variance."""
    random = numpy.random.default_rng(3)
    weights = {"w1": random.standard_normal((FEATURES, 8)), "w2": random.standard_normal((8, CLASSES)),
               "s": numpy.ones(8), "b": numpy.zeros(8), "m": numpy.zeros(8), "v": numpy.ones(8)}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"]),
             helper.make_node("BatchNormalization", [*"asbmv"], ["n", "m1", "v1"], training_mode=1),
             helper.make_node("Relu", ["n"], ["r"]), helper.make_node("MatMul", ["r", "w2"], ["y"])]
    make_model(os.path.join(folder, "m.onnx"), nodes, weights, [("x", [BATCH, FEATURES])],
               ("y", [BATCH, CLASSES]), TensorProto.FLOAT)
    data = random.standard_normal((4 * BATCH, FEATURES)).astype(numpy.float32)
    data[2 * BATCH + 3] = numpy.inf
    data[3 * BATCH + 13] = 1e20
    return data, random.integers(0, CLASSES, 4 * BATCH)


def check_statistics_of(args, folder, data, labels, *more):
    """What two steps leave, which a third that is skipped does not change."""
    program = os.path.join(folder, "m")
    run([args.ullage, "compile", program + ".onnx", *hurry(args), "--target", args.target, "--train",
         "-o", program, *more])
    before = train(program, folder, data, labels, 2)[1]
    rows, after = train(program, folder, data, labels, 3)
    if [row[2] for row in rows] != [False, False, True]:
        raise AssertionError(f"{more}: {rows}")
    for name in set(after) - {*STATES, "step"}:
        if after[name].tobytes() != before[name].tobytes():
            raise AssertionError(f"{more}: a step that was skipped changes {name}")
    return before


def check_statistics(args, folder):
    """Running statistics are state: a step that is skipped leaves them, and one that is taken writes
    what a training without a scale does, also where a batch is run in parts. A channel whose
    variance alone overflows, of which no gradient says so, keeps what it had."""
    data, labels = statistics_net(folder)
    program, parts = os.path.join(folder, "m"), ["--micro-batches", "2"]
    before = check_statistics_of(args, folder, data, labels, "--loss-scale", "1024", *parts)
    rows, after = train(program, folder, data, labels, 4)
    if not all(numpy.isfinite(value).all() for value in after.values() if value.dtype.kind == "f"):
        raise AssertionError(f"variance: {rows}, {after}")
    run([args.ullage, "compile", program + ".onnx", *hurry(args), "--target", args.target, "--train",
         "-o", program, *parts])
    for name, value in train(program, folder, data, labels, 2)[1].items():
        if value.tobytes() != before[name].tobytes():
            raise AssertionError(f"{name} is other than without a scale")


    check_impossible(program, folder)


def check_impossible(program, folder):
    """Numbers that no training goes on from, in the checkpoint that was written last."""
    with numpy.load(os.path.join(folder, "c.npz")) as file:
        good = {name: file[name] for name in file.files}
    for name, number, says in (("v", -0.25, "below 0"), ("m", numpy.inf, "not finite"),
                               ("w1", numpy.nan, "not finite")):
        bad = {**good, name: good[name].copy()}
        bad[name].reshape(-1)[2] = number
        numpy.savez(os.path.join(folder, "bad.npz"), **bad)
        for option in ("--resume", "--init"):
            done = subprocess.run([program, "--data", os.path.join(folder, "x.npy"), "--labels",
                                   os.path.join(folder, "y.npy"), "--steps", "9", option,
                                   os.path.join(folder, "bad.npz")], capture_output=True, text=True)
            if done.returncode != 2 or name not in done.stderr or says not in done.stderr:
                raise AssertionError(f"{option} {name}: exit {done.returncode}: {done.stderr}")


def check_more_statistics(args, folder):
    """The same in 16 bits, and bit for bit under a budget and with values that leave the buffer."""
    data, labels = statistics_net(folder)
    words = ["--loss-scale", "1024", "--optimizer", "adamw"]
    for more in (["--precision", "bf16"], ["--precision", "amp-fp16", "--micro-batches", "2"]):
        want = check_statistics_of(args, folder, data, labels, *words, *more)
        model = [os.path.join(folder, "m.onnx"), "--target", args.target, "--train", *words, *more]
        least = json.loads(run([args.ullage, "plan", *model, "--budget-of", "arena", "--sweep",
                                "--json", "-"]))["plans"][-1]["reserved_bytes"]
        for way in (["--budget", str(least)], ["--offload", "host", "--budget", str(least)]):
            got = check_statistics_of(args, folder, data, labels, *words, *more, "--budget-of",
                                      "arena", *way)
            if any(got[name].tobytes() != value.tobytes() for name, value in want.items()):
                raise AssertionError(f"{more}, {way}: other bits")


def check_plans(args, folder):
    """Bits of other plans, and what the plan says."""
    program = os.path.join(folder, "m")
    deep_net(program + ".onnx")
    random = numpy.random.default_rng(3)
    data = random.standard_normal((4 * BATCH, 96)).astype(numpy.float32)
    data[BATCH + 3] = numpy.inf
    labels = random.integers(0, CLASSES, 4 * BATCH)
    words = [program + ".onnx", "--target", args.target, "--train", "--optimizer", "adamw",
             "--precision", "amp-fp16", "--loss-scale", "64", "--growth-interval", "2"]
    plan = json.loads(run([args.ullage, "plan", *words, "--json", "-"]))
    kept = plan["training"]["scale_kept_bytes"] / plan["training"]["parameter_bytes"]
    told = run([args.ullage, "plan", *words, "--advice", "off"])
    if not 0.5 < kept < 0.51 or "The loss scale keeps all gradients" not in told or \
            "of amp-fp16" in told:
        raise AssertionError(f"plans: {plan['training']}")
    least = json.loads(run([args.ullage, "plan", *words, "--budget-of", "arena", "--sweep",
                            "--json", "-"]))["plans"][-1]["reserved_bytes"]
    want = None
    for more in ([], ["--pack", "none"], ["--checkpoint", "sqrt"],
                 ["--budget-of", "arena", "--budget", str(least)]):
        run([args.ullage, "compile", *words, "-o", program, *hurry(args), *more])
        got = train(program, folder, data, labels, 4)
        want = want or got
        if str(got[0]) != str(want[0]) or \
                any(got[1][name].tobytes() != value.tobytes() for name, value in want[1].items()):
            raise AssertionError(f"plans: {more}: other bits")
        if more != ["--pack", "none"]:
            run([program, "--guard", "--random", "1"])


def check_resumed(args, folder):
    """Scale and counts are state; what begins with parameters alone begins with its own scale."""
    program, other = os.path.join(folder, "m"), os.path.join(folder, "other")
    _, data, labels = make_perceptron(folder)
    words = words_of(args, {"optimizer": "adamw"})
    run([args.ullage, "compile", program + ".onnx", "-o", program, *hurry(args), *words])
    rows, want = train(program, folder, data, labels, STEPS)
    train(program, folder, data, labels, 4)
    checkpoint = os.path.join(folder, "c.npz")
    later, got = train(program, folder, data, labels, STEPS, "--resume", checkpoint)
    if str(later[-8:]) != str(rows[-8:]) or \
            any(got[name].tobytes() != value.tobytes() for name, value in want.items()):
        raise AssertionError(f"resumed: {later} behind {rows}")
    run([args.ullage, "compile", program + ".onnx", "-o", other, *hurry(args), *words[:-4]])
    start = os.path.join(folder, "start.npz")
    os.rename(checkpoint, start)
    if train(program, folder, data, labels, 1, "--init", start)[0][0][1] != SCALE:
        raise AssertionError("resumed: --init takes the scale too")
    train(other, folder, data, labels, 1, "--init", start)
    os.rename(checkpoint, start)
    train(program, folder, data, labels, 1, "--init", start)


def check_refused(args, folder):
    program = os.path.join(folder, "m")
    _, data, labels = make_perceptron(folder)
    for more, says in ((["--growth-interval", "3"], "or --loss-scale"),
                       (["--loss-scale", "1e39"], "at most 2^127"),
                       (["--loss-scale", "1e-39"], "at least 2^-126"),
                       (["--loss-scale", "8", "--clip-norm", "1", "--clip-mode", "twice"],
                        "--clip-mode twice")):
        done = subprocess.run([args.ullage, "plan", program + ".onnx", "--train", *more],
                              capture_output=True, text=True)
        if done.returncode != 1 or says not in done.stderr:
            raise AssertionError(f"{more}: exit {done.returncode}: {done.stderr}")
    run([args.ullage, "compile", program + ".onnx", "-o", program, *hurry(args),
         *words_of(args, {"optimizer": "sgd"})])
    numpy.save(os.path.join(folder, "x.npy"), data)
    numpy.save(os.path.join(folder, "y.npy"), labels * numpy.nan)
    done = subprocess.run([program, "--data", os.path.join(folder, "x.npy"), "--labels",
                           os.path.join(folder, "y.npy"), "--epochs", "9"],
                          capture_output=True, text=True)
    if done.returncode != 6 or "step 33: gradients are not finite" not in done.stderr:
        raise AssertionError(f"refused: exit {done.returncode}: {done.stderr}")


CHECKS = {"skips": check_bits_of_skips, "statistics": check_statistics,
          "more-statistics": check_more_statistics, "plans": check_plans, "resumed": check_resumed,
          "refused": check_refused}


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    return parser.parse_args()


def main():
    args = read_arguments()

    def check(name, folder):
        if name in CHECKS:
            CHECKS[name](args, folder)
        else:
            check_rule(args, name, folder)

    return run_cases(args.cases or [*CASES, *CHECKS], check)


if __name__ == "__main__":
    sys.exit(main())
