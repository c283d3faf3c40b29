#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-rank factors beside weights that stay: --lora.

    lora.py ULLAGE [--target c]

A network of three products, made here, begins as it is without factors, bit for bit, and A is drawn
as torch.nn.Linear draws its weight. The plan has state for factors alone. Losses, factors and state
are the same bits under every budget, without reuse and with --checkpoint; a resumed training gives
the bytes of an uninterrupted one. `ullage export` writes models, with factors merged and apart, that
onnxruntime runs with the loss that was trained to. What cannot be done is said, with the remedy.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import sys
import tempfile

import train  # and 77 where a package is missing
from train import check, numpy, numpy_helper, onnx, onnxruntime, read, run
from onnx import TensorProto, helper

SAMPLES, BATCH, CLASSES, STEPS, RANK = 64, 16, 5, 9, 3
SIZES = {"w0": (12, 40), "w1": (40, 128), "w2": (CLASSES, 128)}  # the last one is turned
FACTORS = {"w0": ((12, RANK), (RANK, 40)), "w1": ((40, RANK), (RANK, 128)), "w2": ((RANK, 128), (CLASSES, RANK))}  # fmt: skip


def make_model():
    draw = numpy.random.default_rng(1)
    start = {name: (draw.normal(size=size) / 5).astype("f4") for name, size in SIZES.items()}
    start |= {"b0": draw.normal(size=40).astype("f4"), "b2": numpy.zeros(CLASSES, "f4"), "table": numpy.ones((9, 12), "f4")}
    nodes = [helper.make_node("Gather", ["table", "places"], ["t"]), helper.make_node("Add", ["x", "t"], ["s"]),
             helper.make_node("Gemm", ["s", "w0", "b0"], ["a"], "first", alpha=0.5), helper.make_node("Tanh", ["a"], ["h"]),
             helper.make_node("MatMul", ["h", "w1"], ["m"], "second"), helper.make_node("Relu", ["m"], ["r"]),
             helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "third", transB=1)]  # fmt: skip
    places = numpy_helper.from_array(numpy.arange(BATCH) % 9, "places")
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, 12])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, CLASSES])],
                              [*(numpy_helper.from_array(value, name) for name, value in start.items()), places])  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    y = draw.integers(0, CLASSES, SAMPLES)
    x = draw.normal(size=(CLASSES, 12))[y] + draw.normal(size=(SAMPLES, 12)) / 2
    numpy.save("x.npy", x.astype("f4"))
    numpy.save("y.npy", y.astype("i4"))


def compile_trainer(args, *words):
    run(args.ullage, "compile", "m.onnx", "--train", "--optimizer", "adamw", "--lr", "0.01", "--target", args.target,
        "-o", "trainer", "--json", "plan.json", *words)  # fmt: skip
    with open("plan.json", encoding="utf-8") as file:
        return json.load(file)


def learn(name, steps, *words):
    order = [] if "--resume" in words else ["--no-shuffle"]
    run("./trainer", "--data", "x.npy", "--labels", "y.npy", *order, "--steps", str(steps), "--metrics", "m.csv", "--save", name,
        *words)  # fmt: skip
    with open("m.csv", encoding="ascii") as file:
        losses = [line.split(",")[2] for line in file.readlines()[1:]]
    os.remove("m.csv")
    return losses


LORA = ["--lora", f"{RANK}:w*"]


def check_start(args):
    """As torch draws, and as the network was."""
    compile_trainer(args)
    plain = learn("plain.npz", 1)
    plan = compile_trainer(args, *LORA)
    size = sum(numpy.prod(shape) for pair in FACTORS.values() for shape in pair)
    check(plan["rows"]["optimizer_state"] == 8 * size, f"{plan['rows']['optimizer_state']} bytes of state for {size} numbers")
    check(learn("zero.npz", 1, "--lr", "0") == plain, "the network begins as another one")
    saved = numpy.load("zero.npz")
    names = {f"{name}/lora_{which}" for name in FACTORS for which in "AB"}
    check({name for name in saved.files if name.count("/") == 1} == names, f"saved: {saved.files}")
    check(saved["lora_alpha"] == 8, "another alpha than 8")
    for name, (first, second) in FACTORS.items():
        a, b = saved[f"{name}/lora_A"], saved[f"{name}/lora_B"]
        check(a.shape == first and b.shape == second and not b.any(), f"{name}: {a.shape}, {b.shape}, {b}")
        bound = (first[0] * first[1] / RANK) ** -0.5
        check(0.8 * bound < abs(a).max() <= bound and abs(a.mean()) < bound / 3 and abs(a.std() / bound - 3**-0.5) < 0.1, f"{name}: {a}")
    compile_trainer(args, *LORA, "--lora-seed", "1")
    check(learn("other.npz", 1, "--lr", "0") == plain, "another seed begins as another network")
    check((numpy.load("other.npz")["w0/lora_A"] != saved["w0/lora_A"]).all(), "another seed draws the same")


def check_bits(args):
    """One result, however it is planned."""
    plan = compile_trainer(args, *LORA, "--train-only", "b*", "--budget-of", "arena")
    want = learn("want.npz", STEPS)
    check(float(want[-1]) < 0.9 * float(want[0]), f"nothing is learned: {want}")
    check({"b0", "b2", "b0/exp_avg"} < set(numpy.load("want.npz").files), "what --train-only names is not trained")
    run("./trainer", "--guard", "--random", "1")
    learn("part.npz", 4)
    learn("rest.npz", STEPS, "--resume", "part.npz")
    check(read("want.npz") == read("rest.npz"), "a resumed training differs")
    least = run(args.ullage, "plan", "m.onnx", "--train", "--optimizer", "adamw", "--target", args.target, *LORA, "--train-only",
                "b*", "--budget-of", "arena", "--budget", "1", "--json", "-", code=4).stdout  # fmt: skip
    smallest = json.loads(least)["smallest_budget_bytes"]
    check(smallest < plan["reserved_bytes"], "a budget saves nothing")
    for words in (["--pack", "none"], ["--budget", str(smallest)], ["--checkpoint", "sqrt"], ["--micro-batches", "1"]):
        compile_trainer(args, *LORA, "--train-only", "b*", "--budget-of", "arena", *words)
        check(learn("got.npz", STEPS) == want, f"{words}: other losses")
        check(read("got.npz") == read("want.npz"), f"{words}: other factors or state")
    compile_trainer(args, *LORA, "--train-only", "b*", "--lora-alpha", "4")
    for option in ("--resume", "--init"):
        told = run("./trainer", "--data", "x.npy", "--labels", "y.npy", "--steps", "1", option, "want.npz", code=2).stderr
        check("--lora-alpha 8" in told, told)


def loss_of(model):
    """By onnxruntime, of the first batch."""
    y = onnxruntime.InferenceSession(model).run(None, {"x": numpy.load("x.npy")[:BATCH]})[0].astype("f8")
    z = y - y.max(1, keepdims=True)
    return float((numpy.log(numpy.exp(z).sum(1)) - z[numpy.arange(BATCH), numpy.load("y.npy")[:BATCH]]).mean())


def check_export(args):
    """Merged and apart, the model is what was trained; so it is of state of 8 bits."""
    for words in (LORA, ["--lora", f"{RANK}:w*", "--lora", "2:w1", "--lora-alpha", "5"]):
        compile_trainer(args, *words, "--train-only", "b*", "--state-bits", "8")
        learn("c.npz", STEPS)
        want = float(learn("next.npz", 1, "--init", "c.npz")[0])
        for name, apart in (("merged.onnx", []), ("apart.onnx", ["--apart"])):
            told = run(args.ullage, "export", "m.onnx", "c.npz", "-o", name, *apart).stdout
            check("5 initializers" in told, told)
            onnx.checker.check_model(name)
            loss = loss_of(name)
            check(abs(loss / want - 1) < 1e-5, f"{words}, {name}: a loss of {loss}, not {want}")
        kept, saved = {t.name: numpy_helper.to_array(t) for t in onnx.load("apart.onnx").graph.initializer}, numpy.load("c.npz")
        base = {t.name: numpy_helper.to_array(t) for t in onnx.load("m.onnx").graph.initializer}
        check((kept["w1/base"] == base["w1"]).all() and (kept["w1/lora_A"] == saved["w1/lora_A"]).all(), "apart changes what it keeps")
    compile_trainer(args, "--state-bits", "8")
    learn("eight.npz", 2)
    run(args.ullage, "export", "m.onnx", "eight.npz", "-o", "eight.onnx")
    check("has none" in run(args.ullage, "export", "m.onnx", "eight.npz", "-o", "no.onnx", "--apart", code=1).stderr, "no factors")
    some = dict(numpy.load("c.npz"))
    del some["lora_alpha"]
    numpy.savez("some.npz", **some)
    check("no lora_alpha" in run(args.ullage, "export", "m.onnx", "some.npz", "-o", "no.onnx", code=2).stderr, "no alpha")
    some |= {"lora_alpha": numpy.float64(8), "w0/lora_A": some["w0/lora_A"][:-1]}
    numpy.savez("some.npz", **some)
    check("has factors" in run(args.ullage, "export", "m.onnx", "some.npz", "-o", "no.onnx", code=2).stderr, "other shapes")


def check_square(args):
    """A square matrix, and filters that are exported from what a user gave."""
    draw = numpy.random.default_rng(3)
    w, f = draw.normal(size=(6, 6)).astype("f4"), draw.normal(size=(4, 4, 3, 3)).astype("f4")
    nodes = [helper.make_node("Conv", ["x", "f"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("MatMul", ["c", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
                              [numpy_helper.from_array(w, "w"), numpy_helper.from_array(f, "f")])  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "s.onnx")
    shapes = {"w/lora_A": (6, 2), "w/lora_B": (2, 6), "f/lora_A": (4, 4, 3, 3), "f/lora_B": (4, 4, 1, 1)}
    given = {name: draw.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    numpy.savez("s.npz", lora_alpha=numpy.float64(4), **given)
    want_w = w + 2 * given["w/lora_A"] @ given["w/lora_B"]
    want_f = f + (given["f/lora_B"].reshape(4, 4) @ given["f/lora_A"].reshape(4, 36)).reshape(f.shape)
    x = {"x": draw.normal(size=(1, 4, 6, 6)).astype("f4")}
    results = []
    for name, apart in (("merged.onnx", []), ("apart.onnx", ["--apart"])):
        run(args.ullage, "export", "s.onnx", "s.npz", "-o", name, *apart)
        results.append(onnxruntime.InferenceSession(name).run(None, x)[0])
    merged = {t.name: numpy_helper.to_array(t) for t in onnx.load("merged.onnx").graph.initializer}
    check(numpy.allclose(merged["w"], want_w, atol=1e-5) and numpy.allclose(merged["f"], want_f, atol=1e-5), "merged otherwise")
    check(numpy.allclose(*results, atol=1e-4), "apart is another model than merged")


def check_init(args):
    """--init takes factors and what else is trained, and passes over state of 32 and of 8 bits."""
    compile_trainer(args, "--state-bits", "8")
    learn("eight.npz", 2)
    learn("again.npz", 2, "--init", "eight.npz")


def check_refused(args):
    draw = numpy.zeros((2, 4, 3, 3), "f4")
    nodes = [helper.make_node("Conv", ["x", "grouped"], ["c"], "deep", group=2), helper.make_node("Flatten", ["c"], ["f"]),
             helper.make_node("MatMul", ["f", "w"], ["y"])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 3, 3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
                              [numpy_helper.from_array(draw, "grouped"), numpy_helper.from_array(numpy.ones((2, 3), "f4"), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "g.onnx")
    for code, words, model, options in (
        (1, "RANK:PATTERN", "m.onnx", ["--lora", "w1"]),
        (1, "RANK:PATTERN", "m.onnx", ["--lora", "0:w1"]),
        (1, "did you mean table?", "m.onnx", ["--lora", "4:tabel"]),
        (1, "no product (MatMul, Gemm, Conv) reads the initializer \"b0\"", "m.onnx", ["--lora", "4:b*"]),
        (1, "no product", "m.onnx", ["--lora", "4:table"]),
        (1, "sides of 12 and 40", "m.onnx", ["--lora", "13:w0"]),
        (1, "give --lora too", "m.onnx", ["--lora-alpha", "4"]),
        (1, "--train-only: --lora has factors beside", "m.onnx", [*LORA, "--train-only", "w0"]),
        (1, "no initializer", "m.onnx", ["--lora", "4:w1", "--freeze", "w*"]),
        (3, "its channels are in groups", "g.onnx", ["--lora", "1:*"]),
    ):  # fmt: skip
        told = run(args.ullage, "plan", model, "--train", *options, code=code).stderr
        check(words in told, f"{options}: {told}")
    run(args.ullage, "plan", "g.onnx", "--train", "--lora", "1:*", "--freeze", "grouped")
    told = run(args.ullage, "inspect", "m.onnx", "--train", "--lora", "3:w1").stdout
    check('trained            "w1/lora_A"' in told and "fixed              \"w1\"" in told and "504 parameters in 2 tensors" in told, told)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    args = parser.parse_args()
    args.ullage = os.path.abspath(args.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_model()
        check_start(args)
        check_bits(args)
        check_init(args)
        check_export(args)
        if args.target == "c":
            check_refused(args)
            check_square(args)
        os.chdir("/")
    return 1 if train.failures else 0


if __name__ == "__main__":
    sys.exit(main())
