#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of target cuda whose branches run on two streams, on the emulation.

    streams.py [--race] ULLAGE

inception_v3, scaled down, gives the bits of one stream in every order that its graph allows, and
where each step is told of; with --race the thread sanitizer finds nothing. Its plan takes no byte more, is read
back, and is refused with a wait for another step; a ladder says what it takes. A wait that is left out of the program shows in
the results of some order. A trainer learns the same bits, with its evaluation, on two streams.
Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import environment  # noqa: E402

environment.need("onnx", "numpy")

import numpy  # noqa: E402

DIGITS = os.path.join(ROOT, "models", "digits", "untrained.onnx")
TARGET = ["--target", "cuda", "--cflags", "-O1"]
TRAINER = ["--dim", "N=8", "--train", "--train-mode", "--output", "/fc/Gemm_output_0", "--optimizer", "momentum"]  # fmt: skip
TRAIN = ["--data", "x.npy", "--labels", "y.npy", "--epochs", "1", "--val", "x.npy", "y.npy"]
ORDERS = range(5)
failures = 0


def check(holds, text):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {text}")


def run(*command, code=0, **settings):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **settings})
    check(code is None or done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stderr[-800:]}")
    return done.stdout + done.stderr


def outputs(program, order=0, repeat="2", **settings):
    """The outputs of runs that are replayed; or of one run alone, which is not, on an arena without old results."""
    run(program, "--random", "1", "--repeat", repeat, "--output-npz", "o.npz", UL_EMULATE_ORDER=str(order), **settings)
    with open("o.npz", "rb") as file:
        return file.read()


def plan_of(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_plan(ullage):
    """The plan is read back, and a wait for an earlier step of the branch is found out."""
    one, two = plan_of("one.json"), plan_of("two.json")
    steps = two["steps"]
    beside = steps["stream"].count(1)
    check("kind" not in one["steps"], "a plan of one stream names kinds")
    said = run(ullage, "plan", "net.onnx", *TARGET[:2])
    shared = two["launches"]["shared_ns"]
    less = 100 * (two["base_cost"] - two["cost"]) / (two["base_cost"] - shared)
    check(shared > 0 and f"{less:.2f} % less time than one" in said, f"not {less} % less time: {said[-900:]}")
    check(beside > 0 and two["launches"]["on_second_stream"] == beside, "steps on a second stream are not counted")
    check(two["launches"]["waits"] == steps["kind"].count("wait"), "waits are not counted")
    check(two["reserved_bytes"] <= one["reserved_bytes"], "two streams take more bytes")
    check(two["cost"] <= 0.95 * one["cost"], "two streams gain too little")
    run(ullage, "plan", "net.onnx", *TARGET[:2], "--plan", "two.json", "--json", "again.json")
    check(plan_of("again.json")["steps"] == steps, "the plan is another when it is read")
    run(ullage, "plan", "net.onnx", "--plan", "two.json", "--streams", "1", code=1)
    for wait, awaited in enumerate(steps["awaited"]):
        if steps["kind"][wait] != "wait" or awaited == 0 or steps["stream"][awaited - 1] != 1:
            continue
        steps["awaited"][wait] = awaited - 1
        with open("wrong.json", "w", encoding="utf-8") as file:
            json.dump(two, file)
        said = run(ullage, "check", "net.onnx", "wrong.json", code=6)
        check("position" in said or "range" in said, f"no position is named: {said[-300:]}")
        steps["awaited"][wait] = awaited
        return
    check(False, "no branch has two steps")


def test_ladder(ullage):
    """Its plans have one stream, and it says what the first takes with two; the second may be cheaper."""
    one, two = plan_of("one.json"), plan_of("two.json")
    said = run(ullage, "plan", "net.onnx", *TARGET[:2], "--sweep", "--json", "ladder.json")
    check(plan_of("ladder.json")["plans"][0]["cost"] == one["cost"], "the ladder does not begin with one stream")
    found = re.search(r"with a second one the first takes ([\d.]+) ms", said)
    check(found and abs(float(found[1]) * 1e6 / two["cost"] - 1) < 1e-3, f"of a second stream: {said[-900:]}")
    said = run(ullage, "plan", "net.onnx", *TARGET[:2], "--streams", "1", "--sweep")
    check("a second one" not in said, "a second stream where one is asked for")
    advised = run(ullage, "plan", "net.onnx", *TARGET[:2], "--advice", "on", "--json", "advised.json")
    rungs = plan_of("advised.json")["ladder"]
    check(rungs[1]["row_major"] > 0 and rungs[1]["cost"] < rungs[0]["cost"], f"no other layout is cheaper: {advised}")
    run(ullage, "check", "net.onnx", "advised.json")
    for at, key, value in ((1, "row_major", 0), (2, "cost", rungs[1]["cost"] - 1)):
        plan = plan_of("advised.json")
        plan["ladder"][at][key] = value
        with open("wrong.json", "w", encoding="utf-8") as file:
            json.dump(plan, file)
        check("costs less" in run(ullage, "check", "net.onnx", "wrong.json", code=6), f"{key} of the ladder")


def test_third_stream(ullage):
    """The checker takes any number; a program has two."""
    plan = plan_of("two.json")
    plan["steps"]["stream"] = [2 * stream for stream in plan["steps"]["stream"]]
    with open("third.json", "w", encoding="utf-8") as file:
        json.dump(plan, file)
    run(ullage, "check", "net.onnx", "third.json")
    said = run(ullage, "compile", "net.onnx", "--plan", "third.json", "--emit", "third.src", code=3)
    check("two streams" in said, f"a third stream: {said[-300:]}")


def test_wait_left_out(plain):
    """The step that follows reads what was waited for; where the next branch goes on, no step may."""
    source = text_of("two.src/kernels.cu")
    joins = [match for match in re.finditer(r"ul_cuda_join\(run\);(?=\n *at = ul_cuda_at\()", source)]
    match = joins[len(joins) // 2]
    with open("two.src/kernels.cu", "w", encoding="utf-8") as file:
        file.write(source[: match.start()] + source[match.end() :])
    run("make", "-s", "-C", "two.src", "program")
    found = [order for order in ORDERS if outputs("two.src/program", order, "1") != plain]
    check(len(found) > 0, "a wait that is left out changes no bit in any order")


def test_network(ullage):
    run(sys.executable, os.path.join(ROOT, "models", "make.py"), "inception_v3", "--small", "-o", "net.onnx")
    run(ullage, "plan", "net.onnx", *TARGET[:2], "--streams", "1", "--json", "one.json")
    run(ullage, "plan", "net.onnx", *TARGET[:2], "--json", "two.json")
    test_plan(ullage)
    test_ladder(ullage)
    test_third_stream(ullage)
    run(ullage, "compile", "net.onnx", *TARGET, "--streams", "1", "-o", "one")
    run(ullage, "compile", "net.onnx", *TARGET, "--emit", "two.src")
    run(ullage, "compile", "net.onnx", "--plan", "two.json", "--emit", "again.src")
    check(text_of("again.src/kernels.cu") == text_of("two.src/kernels.cu"), "the plan makes another program")
    run("make", "-s", "-C", "two.src", "program")
    plain = outputs("./one")
    for order in ORDERS:
        for repeat in ("1", "2"):
            is_same = outputs("two.src/program", order, repeat) == plain
            check(is_same, f"order {order}, {repeat} runs: other bits than on one stream")
    check(outputs("two.src/program", 3, UL_EMULATE_NO_ALGORITHMS="1") == outputs("./one", UL_EMULATE_NO_ALGORITHMS="1"),
          "other bits where libraries have nothing")  # fmt: skip
    run("two.src/program", "--guard", "--random", "1")
    run("two.src/program", "--memory", "--random", "1")
    test_wait_left_out(plain)


def test_races(ullage):
    run(sys.executable, os.path.join(ROOT, "models", "make.py"), "inception_v3", "--small", "-o", "net.onnx")
    run(ullage, "compile", "net.onnx", *TARGET, "-o", "race", UL_EMULATE_RACE="1")
    check(outputs("./race", 1) == outputs("./race", 2), "other bits by the thread sanitizer")


def learned(program, order=0):
    said = run(program, *TRAIN, "--save", "c.npz", "--metrics", "c.csv", UL_EMULATE_ORDER=str(order))
    with open("c.npz", "rb") as file, open("c.csv", encoding="utf-8") as losses:
        return file.read(), [row.split(",")[:4] for row in losses], re.sub(r"[\d.e+]+ samples/s", "", said)


def test_trainer(ullage):
    draw = numpy.random.default_rng(1)
    numpy.save("x.npy", draw.normal(size=(24, 1, 8, 8)).astype(numpy.float32))
    numpy.save("y.npy", draw.integers(0, 10, 24).astype(numpy.int32))
    for streams in ("1", "2"):
        said = run(ullage, "compile", DIGITS, *TARGET, *TRAINER, "--streams", streams, "-o", f"trainer{streams}")
    check("on a second stream" in said, "the trainer has no second stream")
    plain = learned("./trainer1")
    for order in ORDERS:
        check(learned("./trainer2", order) == plain, f"order {order}: the trainer learns other bits on two streams")


def main():
    ullage = os.path.abspath(sys.argv[-1])
    os.environ["NVCC"] = os.path.join(HERE, "nvcc")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if "--race" in sys.argv:
            test_races(ullage)
        else:
            test_network(ullage)
            test_trainer(ullage)
        os.chdir(HERE)
    print(f"streams.py: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
