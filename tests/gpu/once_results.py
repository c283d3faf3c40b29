# SPDX-License-Identifier: Apache-2.0
"""Builds the risky programs that prepare_once.sh packed, on all cores, and runs their checks as each is built.

    once_results.py PACK --rows FILE.tsv --logs DIR --nvcc NVCC --arch sm_90 [--seconds 120] [--jobs N] [--only RE] [--no-device]

A line a check is added to the rows as it ends: stage, name, check, verdict (ok, FAIL or skip), what was seen, seconds.

results   outputs on random inputs beside those of target c in float32, by norm error
train     losses beside those of target c in the same precision
bits      two runs give the same bytes: outputs, or what is learned
guard     --guard: dead memory is filled with patterns
memory    --memory: reserved bytes are what was allocated; what CUDA and the libraries take is said
turns     turns.cu: two sets of the caller's buffers in turn, and three
time      when all others are done: what a run takes, and what each library call takes and is run by
tune      likewise, before and after --tune

--no-device: the first program is built all the same, and has to end with exit code 3.
Exit: 0 all is well, 6 a check failed, 3 there is no device.
"""

import argparse
import concurrent.futures
import csv
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NO_DEVICE = 3  # exit code of a program
TIMES = ("time", "tune")
DATA_FAULT = 2  # likewise: an index in the random inputs was out of range, outputs are there


class Failure(Exception):
    """A check that did not hold; the text is one line."""


class Late(Exception):
    """There was no time for it."""


class Run:
    """What all programs share."""

    def __init__(self, args):
        self.args, self.lock, self.failed = args, threading.Lock(), False
        self.deadline = time.monotonic() + args.seconds

    def left(self, most):
        seconds = min(most, self.deadline - time.monotonic())
        if seconds < 1:
            raise Late
        return seconds

    def note(self, name, check, verdict, text="", seconds=0.0):
        with self.lock:
            self.failed = self.failed or verdict == "FAIL"
            with open(self.args.rows, "a", encoding="utf-8") as file:
                file.write(f"results\t{name}\t{check}\t{verdict}\t{' '.join(text.split())[:600]}\t{seconds:.1f}\n")
            if verdict != "ok":
                print(f"results {name} {check}: {verdict} {text}", flush=True)

    def command(self, log, command, folder, most):
        """Its exit code; what it prints goes to the log."""
        seconds = self.left(most)
        os.makedirs(self.args.logs, exist_ok=True)
        with open(os.path.join(self.args.logs, log), "ab") as file:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired as late:
                os.killpg(process.pid, 9)  # make's compilers too
                process.wait()
                if seconds < most:
                    raise Late from late
                raise Failure(f"not done after {most} s") from late

    def last_line(self, log):
        """What of a log says best what is wrong."""
        with open(os.path.join(self.args.logs, log), encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()] or ["no message"]
        return next((line for line in lines if re.search(r"error|mismatch|fail", line, re.I)), lines[-1])

    def run(self, log, command, folder, most=30, codes=(0,)):
        code = self.command(log, command, folder, most)
        if code == NO_DEVICE and self.args.no_device:
            return code
        if code not in codes:
            raise Failure(f"exit {code}: {self.last_line(log)}")
        return code


class Program:
    def __init__(self, run, name, checks, limit):
        self.run, self.name, self.checks = run, name, checks.split(",")
        self.limit = None if limit == "-" else float(limit)
        self.folder = os.path.join(run.args.pack, "risky", name)
        self.is_built = False

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, check, *command, most=30, codes=(0, DATA_FAULT)):
        self.run.run(f"{self.name}.{check}.txt", command, self.folder, most, codes)

    # ---- building ----

    def place_runtime(self):
        """The runtime's files, and what they were compiled to."""
        with open(self.path("runtime.txt"), encoding="utf-8") as file:
            names = file.read().split()
        for name in names + [os.path.splitext(name)[0] + ".o" for name in names]:
            shared = os.path.join(self.run.args.pack, "runtime", name)
            if os.path.exists(shared) and not os.path.lexists(self.path(name)):
                os.symlink(os.path.abspath(shared), self.path(name))

    def build(self):
        self.place_runtime()
        args = self.run.args
        self.call("build", "make", "-s", f"NVCC={args.nvcc}", f"CUDA_ARCH={args.arch}", "program", most=240, codes=(0,))
        if "turns" in self.checks:
            code = [] if args.arch == "native" else ["-gencode", f"arch=compute_{args.arch[3:]},code={args.arch}"]
            objects = sorted(glob.glob(self.path("ul_cu*.o")))
            self.call("build", *args.nvcc.split(), "-O2", "-std=c++17", *code, "-I.", "-o", "turns", os.path.join(HERE, "turns.cu"),
                      "model.o", "kernels.o", *objects, "-ldl", "-lm", most=120, codes=(0,))

    # ---- checks; each gives what was seen ----

    def outputs(self, folder):
        self.call(folder, self.path("program"), "--random", "1", "--output-dir", folder)
        return {os.path.basename(path): np.load(path) for path in sorted(glob.glob(self.path(f"{folder}/*.npy")))}

    def results(self):
        want = {os.path.basename(path): np.load(path) for path in glob.glob(self.path("want/*.npy"))}
        got, worst = self.outputs("first"), 0.0
        if not want or want.keys() != got.keys():
            raise Failure(f"outputs {sorted(got)}, not {sorted(want)}")
        for name, array in want.items():
            a, b = got[name].astype(np.float64), array.astype(np.float64)
            error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
            worst = max(worst, float(error) if np.isfinite(error) else np.inf)
        if worst > self.limit:
            raise Failure(f"norm error {worst:.1e} is above {self.limit:g}")
        return f"norm error {worst:.1e}"

    def learn(self, number):
        metrics, saved = f"{number}.csv", f"{number}.npz"
        self.call("train", self.path("program"), "--data", "x.npy", "--labels", "y.npy", "--steps", "20", "--metrics", metrics,
                  "--save", saved, most=60, codes=(0,))
        with open(self.path(metrics), encoding="utf-8") as file, open(self.path(saved), "rb") as weights:
            return [float(row["loss"]) for row in csv.DictReader(file)], weights.read()

    def train(self):
        with open(self.path("want.csv"), encoding="utf-8") as file:
            want = [float(row["loss"]) for row in csv.DictReader(file)]
        got, _ = self.learn("first")
        if len(got) != len(want) or not np.isfinite(got).all():
            raise Failure(f"{len(got)} losses for {len(want)}, or some are not finite")
        worst = max(abs(a - b) / max(abs(b), 0.1) for a, b in zip(got, want))
        text = f"{len(got)} losses, {got[0]:.4f} to {got[-1]:.4f} (c: {want[-1]:.4f}), relative difference {worst:.1e}"
        if worst > self.limit:
            raise Failure(f"{text} is above {self.limit:g}")
        return text

    def bits(self):
        if "train" in self.checks:
            first, second = self.learn("second"), self.learn("third")
            if first != second:
                raise Failure(f"two trainings differ: losses {first[0][-1]!r} and {second[0][-1]!r}")
            return "losses and checkpoints of two trainings have the same bits"
        first, second = self.outputs("second"), self.outputs("third")
        for name, array in first.items():
            if array.tobytes() != second[name].tobytes():
                raise Failure(f"two runs differ in {name}")
        return "outputs of two runs have the same bits"

    def guard(self):
        self.call("guard", self.path("program"), "--guard", "--random", "1", most=60, codes=(0,))
        return ""

    def memory(self):
        self.call("memory", self.path("program"), "--memory", "--random", "1", "--json", "memory.json", most=60)
        with open(self.path("memory.json"), encoding="utf-8") as file:
            memory = json.load(file)
        device, reserved = memory["device"], memory["reserved_bytes"]
        shutil.copy(self.path("memory.json"), os.path.join(self.run.args.logs, f"{self.name}.memory.json"))
        text = (f"reserved {reserved}, allocated {device['allocated_bytes']}, taken for it {device['granted_bytes']}, context {device['context_bytes']}, "
                f"libraries {sum(device['library_bytes'].values())}, code {device['code_bytes']}, graph {device['graph_bytes']}, offloaded {device['offload_bytes']}")
        if reserved != device["allocated_bytes"]:
            raise Failure(text)
        return text

    def turns(self):
        self.call("turns", self.path("turns"), "weights.bin", most=60, codes=(0,))
        return self.run.last_line(f"{self.name}.turns.txt")

    def bench(self, *options):
        """Milliseconds of a run; of each library call, what runs it and its microseconds."""
        self.call("time", self.path("program"), "--bench", "--profile", "--random", "1", "--warmup", "0.1", "--duration", "0.5", "--json",
                  "bench.json", *options)
        with open(self.path("bench.json"), encoding="utf-8") as file:
            bench = json.load(file)
        calls = [f"{step['kernel']} {step['least_seconds'] * 1e6:.1f} us" for step in sorted(bench["steps"], key=lambda step: step["name"])
                 if re.match("cublaslt|cudnn", step["kernel"])]
        return bench["latency_seconds"]["min"] * 1e3, ", ".join(calls) or "no library call"

    def time(self):
        least, calls = self.bench()
        return f"{least:.4f} ms; {calls}"

    def tune(self):
        least, calls = self.bench()
        self.call("tune", self.path("program"), "--random", "1", "--tune", "choices.txt", most=60)
        tuned, tuned_calls = self.bench("--choices", "choices.txt") if os.path.exists(self.path("choices.txt")) else (least, "nothing to tune")
        return f"{least:.4f} ms, tuned {tuned:.4f} ms; {calls}; tuned: {tuned_calls}"

    def all(self):
        begin = time.monotonic()
        try:
            self.build()
            self.run.note(self.name, "build", "ok", "", time.monotonic() - begin)
        except Late:
            self.run.note(self.name, "build", "skip", "no time was left")
            return
        except Failure as failure:
            self.run.note(self.name, "build", "FAIL", str(failure), time.monotonic() - begin)
            return
        self.is_built = True
        self.check(check for check in self.checks if check not in TIMES)

    def look(self):
        """What means something only where nothing else runs."""
        if self.is_built:
            self.check(check for check in self.checks if check in TIMES)

    def check(self, checks):
        for check in checks:
            begin = time.monotonic()
            try:
                text = getattr(self, check)()
                self.run.note(self.name, check, "ok", text, time.monotonic() - begin)
            except Late:
                self.run.note(self.name, check, "skip", "no time was left")
            except Exception as failure:  # noqa: BLE001 what one check fails with hides no other
                self.run.note(self.name, check, "FAIL", str(failure) or type(failure).__name__, time.monotonic() - begin)


def build_runtime(run, first):
    """Once for all programs; what fails is complained of where it is needed."""
    folder = os.path.join(run.args.pack, "runtime")
    for name in ("Makefile", "model.h"):
        shutil.copy(first.path(name), folder)
    objects = [os.path.splitext(name)[0] + ".o" for name in sorted(os.listdir(folder)) if name.endswith((".c", ".cu"))]
    try:
        run.command("runtime.txt", ["make", "-s", "-k", f"-j{run.args.jobs}", f"NVCC={run.args.nvcc}", f"CUDA_ARCH={run.args.arch}", *objects], folder, 200)
    except (Failure, Late) as failure:
        run.note("runtime", "build", "FAIL", str(failure) or "no time was left")


def carve(run):
    """Whether kernels overlap whose shared memory is of other sizes."""
    folder, args, begin = os.path.join(run.args.pack, "runtime"), run.args, time.monotonic()
    code = [] if args.arch == "native" else ["-gencode", f"arch=compute_{args.arch[3:]},code={args.arch}"]
    try:
        run.run("carve.build.txt", [*args.nvcc.split(), "-O2", "-std=c++17", *code, "-I.", "-o", "carve", os.path.join(HERE, "carve.cu")], folder, 120)
        run.run("carve.txt", ["./carve"], folder, 60)
        run.note("carve", "time", "ok", run.last_line("carve.txt"), time.monotonic() - begin)
    except Late:
        run.note("carve", "time", "skip", "no time was left")
    except Failure as failure:
        run.note("carve", "time", "FAIL", str(failure), time.monotonic() - begin)


def without_device(run, program):
    try:
        program.build()
        code = run.command(f"{program.name}.device.txt", [program.path("program"), "--random", "1"], program.folder, 60)
    except Late:
        run.note(program.name, "device", "skip", "no CUDA device, and no time was left to build a program")
        return
    except Failure as failure:
        run.note(program.name, "build", "FAIL", str(failure))
        return
    if code == NO_DEVICE:
        run.note(program.name, "device", "skip", "no CUDA device; the program says so: exit 3")
    else:
        run.note(program.name, "device", "FAIL", f"no CUDA device, and the program ends with {code}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pack")
    parser.add_argument("--rows", required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--arch", default="native")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default=".")
    parser.add_argument("--no-device", action="store_true")
    args = parser.parse_args()
    args.rows, args.logs, args.pack = (os.path.abspath(path) for path in (args.rows, args.logs, args.pack))
    return args


def main():
    args = parse()
    run = Run(args)
    with open(os.path.join(args.pack, "risky", "rows.tsv"), encoding="utf-8") as file:
        programs = [Program(run, *line.rstrip("\n").split("\t")) for line in file]
    programs = [program for program in programs if re.search(args.only, program.name)]
    if not programs:
        sys.exit(f"once_results.py: --only {args.only}: no such program")
    # A trainer has most of the runtime in its folder.
    build_runtime(run, next((program for program in programs if "train" in program.checks), programs[0]))
    if args.no_device:
        without_device(run, programs[0])
        sys.exit(6 if run.failed else NO_DEVICE)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(Program.all, programs))
    carve(run)
    for program in programs:
        program.look()
    sys.exit(6 if run.failed else 0)


if __name__ == "__main__":
    main()
