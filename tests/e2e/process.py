#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the process of a program takes.

    process.py same ULLAGE PEAK     --bench and --repeat take what one run does, however large the
                                    inputs are
    process.py few ULLAGE PEAK      three programs under budgets of the process
    process.py all ULLAGE PEAK      thirty of them
    process.py small ULLAGE PEAK    small networks of process_nets.py, of each form, without a budget,
                                    and programs that train models/digits
    process.py random ULLAGE PEAK   a hundred of those, a quarter of them under budgets

A program under a budget is held to this: the plan's process_bytes are within the budget, never below the peak
(resident bytes and page tables, by peak.c) of a run and of --bench, and above it by at most 3 % or 1 MiB; and it runs in a
memory cgroup of exactly the budget, where this machine lets make one. Without a budget the same
holds of several plain runs, each of which has its pages elsewhere (docs/promise.md).

Programs and libraries are copies written page by page: how much of a file the kernel maps around a
page depends on how the file came into memory.

PEAK is the program of peak.c. Exit: 0 ok, 1 a promise is broken, 77 something is missing here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    from onnx import parser, save

    from process_nets import FORMS, make
except ImportError as error:
    print(f"process.py: skipped: {error}")
    sys.exit(77)

PAGE = 4096
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
MIB = 1 << 20
# 8 MiB in, of which the plan keeps none after the first step.
LARGE_INPUT = "g (float[2048,1024] x) => (float[2048,1024] y) { t = Neg (x) y = Relu (t) }"


def run(command, codes=(0,)):
    done = subprocess.run(command, capture_output=True, timeout=900)
    if done.returncode not in codes:
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done


def copy_by_page(source, target):
    with open(source, "rb") as read, open(target, "wb", buffering=0) as write:
        while page := read.read(PAGE):
            write.write(page)
    os.chmod(target, 0o755)


def copy_with_libraries(program, folder):
    """The program's copy, and the environment in which it finds copies of its libraries."""
    libraries = os.path.join(folder, "libraries")
    os.makedirs(libraries, exist_ok=True)
    for line in run(["ldd", program]).stdout.decode().splitlines():
        found = re.match(r"\s*(\S+) => (/\S+)", line)
        if found and not os.path.exists(os.path.join(libraries, found[1])):
            copy_by_page(found[2], os.path.join(libraries, found[1]))
    copy = program + ".copy"
    copy_by_page(program, copy)
    return copy, dict(os.environ, LD_LIBRARY_PATH=libraries)


def peak_bytes(peak, command, folder):
    """Resident bytes and those of page tables, at most."""
    path = os.path.join(folder, "peak")
    program, environment = copy_with_libraries(command[0], folder)
    done = subprocess.run([peak, path, program, *command[1:]], capture_output=True, timeout=900,
                          env=environment)  # fmt: skip
    if done.returncode == 125:
        print("process.py: skipped: this machine lets nobody look at a process")
        sys.exit(77)
    if done.returncode not in (0, 2):
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    with open(path) as file:
        return sum(int(word) for word in file.read().split())


def once(folder):
    return ["--random", "1", "--output-dir", os.path.join(folder, "out")]


BENCH = ["--bench", "--iterations", "4", "--duration", "0"]


def same(ullage, peak, folder):
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    save(parser.parse_model(HEAD + LARGE_INPUT), model)
    run([ullage, "compile", model, "--target", "c", "-o", program])
    first = peak_bytes(peak, [program, *once(folder)], folder)
    for more in (BENCH, [*once(folder), "--repeat", "3"]):
        taken = peak_bytes(peak, [program, *more], folder)
        if taken > first + MIB:
            raise RuntimeError(f"{' '.join(more)}: {taken} bytes, one run takes {first}")


# ---- budgets ----

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
NETWORKS = {"unet": 64, "resnet50": 64, "mobilenet_v2": 128, "densenet121": 64, "bert_base": 64}
MACHINES = [("c", []), ("cpu", ["--threads", "1"]), ("cpu", ["--threads", "2"])]
SHARES = [0.93, 0.0]  # of what the plan without a budget takes; 0: the least that is known to work
FEW = [("unet", 0, 0.93), ("mobilenet_v2", 2, 0.93), ("bert_base", 1, 0.0)]


class Cgroup:
    """A memory cgroup, version 1 or 2; None of a machine that lets nobody make one."""

    def __init__(self, path, limit, procs):
        self.path, self.limit, self.procs = path, os.path.join(path, limit), os.path.join(path, procs)

    @staticmethod
    def make():
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                            ("/sys/fs/cgroup", "memory.max")):  # fmt: skip
            path = os.path.join(root, f"ullage-test-{os.getpid()}")
            try:
                os.mkdir(path)
            except OSError:
                continue
            group = Cgroup(path, limit, "cgroup.procs")
            if os.access(group.limit, os.W_OK):
                return group
            os.rmdir(path)
        return None

    def run(self, command, size_bytes):
        """The exit code of the command with so much memory, swap excluded."""
        with open(self.limit, "w") as file:
            file.write(str(size_bytes))
        for name, value in (("memory.swappiness", "0"), ("memory.swap.max", "0")):
            if os.path.exists(os.path.join(self.path, name)):
                with open(os.path.join(self.path, name), "w") as file:
                    file.write(value)
        enter = 'echo $$ > "$0" && exec "$@"'
        done = subprocess.run(["sh", "-c", enter, self.procs, *command], capture_output=True,
                              timeout=900)  # fmt: skip
        return done.returncode

    def remove(self):
        os.rmdir(self.path)


def network(name, folder):
    path = os.path.join(folder, name + ".onnx")
    if not os.path.exists(path):
        made = run([sys.executable, os.path.join(ROOT, "models", "make.py"), name, "--small",
                    "--batch", str(NETWORKS[name]), "-o", path])  # fmt: skip
        assert made.returncode == 0
    return path


def plan(ullage, model, options, folder):
    """plan.json, also of what does not fit."""
    path = os.path.join(folder, "plan.json")
    run([ullage, "plan", model, *options, "--json", path], (0, 4))
    with open(path) as file:
        return json.load(file)


def choose_budget(ullage, model, options, share, folder):
    """Whole pages; where a share of what is taken without a budget is too little, the least."""
    free = plan(ullage, model, options, folder)["process_bytes"]
    asked = int(free * share) // PAGE * PAGE or PAGE
    within = plan(ullage, model, [*options, "--budget", str(asked)], folder)
    if within["fits"]:
        return asked
    return (within["smallest_budget_bytes"] + PAGE - 1) // PAGE * PAGE


def is_loose(predicted, taken):
    """Whether a prediction is further above the peak than is promised."""
    return predicted - taken > max(MIB, 0.03 * taken)


def check_program(ullage, peak, case, group, folder):
    name, machine, share = case
    target, threads = MACHINES[machine]
    options = ["--target", target, *threads]
    model, program = network(name, folder), os.path.join(folder, "program")
    budget = choose_budget(ullage, model, options, share, folder)
    path = os.path.join(folder, "compiled.json")
    run([ullage, "compile", model, *options, "--budget", str(budget), "-o", program, "--json", path])
    with open(path) as file:
        made = json.load(file)
    predicted = made["process_bytes"]
    if not made["fits"] or predicted > budget or sum(made["process"].values()) != predicted:
        raise RuntimeError(f"{case}: budget {budget}, predicted {predicted}, {made['process']}")
    for more in (once(folder), BENCH):
        taken = peak_bytes(peak, [program, *more], folder)
        if taken > predicted or is_loose(predicted, taken):
            raise RuntimeError(f"{case}: takes {taken} by {' '.join(more)}, predicted {predicted}")
    code = group.run([program, *once(folder)], budget) if group is not None else 0
    if code not in (0, 2):  # 2: random indexes out of range, said after the outputs are written
        raise RuntimeError(f"{case}: exit {code} in a cgroup of {budget} bytes")
    print(f"{name} {target} {' '.join(threads)}: budget {budget}, predicted {predicted}, "
          f"took {taken}{'' if group is None else ', ran in a cgroup of the budget'}", flush=True)  # fmt: skip


def check_cases(ullage, peak, folder, cases):
    group = Cgroup.make()
    failed = []
    try:
        for case in cases:
            try:
                check_program(ullage, peak, case, group, folder)
            except RuntimeError as error:
                failed.append(str(error))
                print(f"FAIL: {error}", flush=True)
    finally:
        if group is not None:
            group.remove()
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(cases)} programs")


def few(ullage, peak, folder):
    check_cases(ullage, peak, folder, FEW)


def every(ullage, peak, folder):
    cases = [(n, m, s) for n in NETWORKS for m in range(len(MACHINES)) for s in SHARES]
    check_cases(ullage, peak, folder, cases)


# ---- without a budget ----

RUNS = 5
SEEDS = {"float": 0, "static": 1001, "channels": 1092, "dynamic": 1008, "int4": 4, "wide": 4, "large": 4}
SMALL = [(form, 1 + (form == "float"), seed) for form, seed in SEEDS.items()]
RANDOM = 100


def check_small(ullage, peak, case, under_budget, folder):
    form, threads, seed = case
    model, program = os.path.join(folder, "small.onnx"), os.path.join(folder, "program")
    said = f"seed {seed}: {make(seed, form, model)}, {threads} threads"
    options, path = ["--threads", str(threads)], os.path.join(folder, "compiled.json")
    if under_budget:
        budget = choose_budget(ullage, model, options, 0.93, folder)
        options += ["--budget", str(budget)]
    run([ullage, "compile", model, *options, "-o", program, "--json", path])
    with open(path) as file:
        predicted = json.load(file)["process_bytes"]
    if form in ("int4", "wide") and b"dnnl" in run(["ldd", program]).stdout:
        raise RuntimeError(f"{said}: is linked with oneDNN, which none of its calls needs")
    taken = [peak_bytes(peak, [program, *once(folder)], folder) for _ in range(RUNS)]
    if max(taken) > predicted or is_loose(predicted, max(taken)):
        raise RuntimeError(f"{said}: predicted {predicted}, took {min(taken)} to {max(taken)}")
    if under_budget and predicted > budget:
        raise RuntimeError(f"{said}: predicted {predicted} of a budget of {budget}")
    print(f"{said}: predicted {predicted}, took {min(taken)} to {max(taken)}", flush=True)


def check_all_small(ullage, peak, cases, under_budget, folder):
    failed = 0
    for number, case in enumerate(cases):
        try:
            check_small(ullage, peak, case, under_budget and number % 4 == 0, folder)
        except RuntimeError as error:
            failed += 1
            print(f"FAIL: {error}", flush=True)
    if failed > 0:
        raise RuntimeError(f"{failed} of {len(cases)} programs")


DIGITS = os.path.join(ROOT, "models", "digits")
TRAINERS = [["--threads", "2"], ["--threads", "1", "--optimizer", "adamw", "--precision", "bf16"],
            ["--threads", "2", "--optimizer", "adamw", "--schedule", "cosine:40"]]  # fmt: skip


def check_trainer(ullage, peak, options, folder):
    """One step on random samples, and an epoch on real ones with all files that it may write."""
    program, path = os.path.join(folder, "program"), os.path.join(folder, "compiled.json")
    run([ullage, "compile", os.path.join(DIGITS, "untrained.onnx"), "--dim", "N=64", "--train", "--train-mode",
         "--output", "/fc/Gemm_output_0", *options, "-o", program, "--json", path])  # fmt: skip
    with open(path) as file:
        predicted = json.load(file)["process_bytes"]
    samples = [os.path.join(DIGITS, name) for name in ("train_x.npy", "train_y.npy")]
    epoch = ["--data", samples[0], "--labels", samples[1], "--epochs", "1", "--val", *samples,
             "--save", os.path.join(folder, "c.npz"), "--metrics", os.path.join(folder, "m.csv")]  # fmt: skip
    for more in (once(folder), epoch):
        taken = [peak_bytes(peak, [program, *more], folder) for _ in range(RUNS)]
        said = f"digits {' '.join(options)}: predicted {predicted}, took {min(taken)} to {max(taken)} by {more[0]}"
        if max(taken) > predicted or is_loose(predicted, max(taken)):
            raise RuntimeError(said)
        print(said, flush=True)


def small(ullage, peak, folder):
    check_all_small(ullage, peak, SMALL, False, folder)
    for options in TRAINERS:
        check_trainer(ullage, peak, options, folder)


def random(ullage, peak, folder):
    cases = [(FORMS[i % len(FORMS)], 1 + i % 2, 1000 + i) for i in range(RANDOM)]
    check_all_small(ullage, peak, cases, True, folder)


WHAT = {"same": same, "few": few, "all": every, "small": small, "random": random}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("what", choices=list(WHAT))
    arguments.add_argument("ullage")
    arguments.add_argument("peak")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            WHAT[options.what](options.ullage, options.peak, folder)
        except RuntimeError as error:
            print(f"process.py: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
