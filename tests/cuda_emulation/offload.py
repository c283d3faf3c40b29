#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer of target cuda that offloads all it can (tests/compile/offload.c), on the emulation.

    offload.py COMPILE_OFFLOAD ULLAGE

Losses, evaluation and checkpoint are those of the program that offloads nothing, in the order of
enqueuing and in others that streams and events allow, and in a captured run. What the emulation runs
is in the order of the plan: kernels and copies of a captured run as positions follow each other, and
where copies come as late as they may, each between the position that begins it and the one that
waits. A wait that is left out shows, in --guard and in what is learned. So it is where every other
step is one of a second stream, beside steps and copies.
Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as error:
    print(f"offload.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits", "untrained.onnx")
OPTIONS = [["dim", "N=8"], ["train"], ["train-mode"], ["output", "/fc/Gemm_output_0"], ["optimizer", "momentum"], ["target", "cuda"], ["cflags", "-O1"]]  # fmt: skip
TRAIN = ["--data", "x.npy", "--labels", "y.npy", "--epochs", "1", "--val", "x.npy", "y.npy"]
failures = 0


def check(holds, text):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {text}")


def run(*command, code=0, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    check(done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stderr[-800:]}")
    return done.stdout


def learned(program, order=0, log=None):
    environment = {"UL_EMULATE_ORDER": str(order)}
    if log is not None:
        environment["UL_EMULATE_LOG"] = log
    said = run(program, *TRAIN, "--save", "c.npz", "--metrics", "c.csv", environment=environment)
    with open("c.npz", "rb") as file, open("c.csv", encoding="utf-8") as losses:
        return file.read(), [row.split(",")[:4] for row in losses], re.sub(r"[\d.e+]+ samples/s", "", said)


def read_plan():
    """Positions as (what runs, whether it is a transfer): a kernel's name, or the bytes of a copy."""
    with open("plan.json", encoding="utf-8") as file:
        plan = json.load(file)
    with open("program.src/model.c", encoding="utf-8") as file:
        rows = re.findall(r'^    \{"(?:[^"\\]|\\.)*", "([^"]*)", "(?:[^"\\]|\\.)*", "([^"]*)", \d+', file.read(), re.M)
    steps = plan["steps"]
    check(len(rows) == len(steps["kind"]), f"{len(rows)} steps for {len(steps['kind'])} positions")
    return plan, steps, [kernel for kernel, _ in rows]


def executed(log):
    """What ran in the order in which it did, of all runs of the model."""
    with open(log, encoding="utf-8") as file:
        return [line.split()[1:] for line in file if line.startswith("run ")]


def sizes_of(plan):
    """Per position, the bytes that a transfer moves."""
    ranges = plan["ranges"]
    by_value = {value: size for value, size in zip(ranges["value"], ranges["size_bytes"]) if value is not None}
    steps = plan["steps"]
    return [by_value[steps["value"][p]] if steps["kind"][p] in ("save", "load") else None for p in range(len(steps["kind"]))]


def test_order(log, is_late):
    """One run of the model in the log against the plan."""
    plan, steps, kernels = read_plan()
    sizes = sizes_of(plan)
    done = {}  # per transfer the first position that waits for it
    for position, kind in enumerate(steps["kind"]):
        if kind != "wait":
            continue
        for earlier in range(steps["awaited"][position] + 1):
            if sizes[earlier] is not None and steps["stream"][earlier] == steps["stream"][steps["awaited"][position]]:
                done.setdefault(earlier, position)
    wanted = []  # in order: kernels, and copies where they begin or are waited for
    for position, kind in enumerate(steps["kind"]):
        if kind == "run" and re.fullmatch(r"k\d+", kernels[position]):
            wanted.append(("kernel", kernels[position]))
        elif kind in ("save", "load") and not is_late:
            wanted.append(("copy", str(sizes[position])))
        elif kind == "wait" and is_late:
            wanted += [("copy", str(sizes[p])) for p in sorted(done) if done[p] == position]
    ran = []
    for line in executed(log):
        name = re.match(r"(k\d+)_\d+$", line[0])
        if name is not None and (not ran or ran[-1] != ("kernel", name.group(1)) or line[0].endswith("_0")):
            ran.append(("kernel", name.group(1)))
        elif line[0] == "copy":
            ran.append(("copy", line[1]))
    at = 0
    for event in ran:  # other copies, of inputs and results, are between
        at += at < len(wanted) and event == wanted[at]
        if at == len(wanted):
            break
    check(at == len(wanted), f"{log}: ran in another order than planned from event {at} of {len(wanted)} on: {wanted[at : at + 3]}")
    return len(wanted)


def test_waits():
    with open("program.src/kernels.cu", encoding="utf-8") as file:
        source = file.read()
    begin = source.index("static void run_steps(")
    loads = set(re.findall(r"UL_OFFLOAD_LOAD, \d+, (\d+),", source))
    waits = [match for match in re.finditer(r"ul_cuda_await\(run, (\d+)\);", source) if match.start() > begin and match.group(1) in loads]
    match = waits[len(waits) // 2]
    with open("program.src/kernels.cu", "w", encoding="utf-8") as file:
        file.write(source[: match.start()] + source[match.end() :])
    run("make", "-s", "-C", "program.src", "program")
    run("program.src/program", "--guard", "--random", "1", code=6)


def test_beside(compile_offload, ullage, plain):
    run(compile_offload, DIGITS, "both", "both.json", "beside", *["=".join(option) for option in OPTIONS], "offload=host")
    run(ullage, "check", DIGITS, "both.json")
    with open("both.src/kernels.cu", encoding="utf-8") as file:
        source = file.read()
    check(source.count("ul_cuda_at_beside(") > 20 and "ul_cuda_move(" in source, "no step is beside copies")
    for order in (0, 1, 2, 3):
        check(learned("./both", order) == plain, f"order {order}: other bits with a second stream")
    run("./both", "--guard", "--random", "1")


def main():
    compile_offload, ullage = [os.path.abspath(path) for path in sys.argv[1:3]]
    os.environ["NVCC"] = os.path.join(HERE, "nvcc")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        draw = numpy.random.default_rng(1)
        numpy.save("x.npy", draw.normal(size=(24, 1, 8, 8)).astype(numpy.float32))
        numpy.save("y.npy", draw.integers(0, 10, 24).astype(numpy.int32))
        run(ullage, "compile", DIGITS, *[word for option in OPTIONS for word in [f"--{option[0]}", *option[1:]]], "-o", "plain")
        run(compile_offload, DIGITS, "program", "plan.json", *["=".join(option) for option in OPTIONS], "offload=host")
        plain = learned("./plain")
        for order in (0, 1, 2, 3):
            check(learned("./program", order) == plain, f"order {order}: other bits than without")
        run("./program", "--memory", "--random", "1")
        run("./program", "--guard", "--random", "1")
        learned("./program", log="captured")
        count = test_order("captured", False)
        run("./program", "--random", "1", environment={"UL_EMULATE_LOG": "late"})
        test_order("late", True)
        test_waits()
        test_beside(compile_offload, ullage, plain)
        os.chdir(HERE)
    print(f"offload.py: {count} events in order, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
