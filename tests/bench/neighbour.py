#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a busy neighbour costs: compiled programs and onnxruntime, alone and beside one busy process.

    neighbour.py ULLAGE [--rounds 5] [--seconds 2] MODEL.onnx...

Each model is compiled for target cpu with as many threads as this machine has cores, and run by
onnxruntime with as many; inputs are random, sizes must be fixed. A neighbour is a loop on one core.
Columns: milliseconds of the median run alone and beside the neighbour, medians of all rounds, which
take turns; and the loss, beside / alone. "waiting" is the program with OMP_WAIT_POLICY=active, which
is what OpenMP's default amounts to. Wanted: a loss of at most 1.3 times onnxruntime's, and alone no
slower than waiting. Needs onnxruntime (scripts/setup_python.sh). Exit: 0, or 6 where that is missed.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

import numpy  # noqa: E402
import onnxruntime  # noqa: E402

MAX_LOSS = 1.3


class Program:
    def __init__(self, ullage, model, folder, **environment):
        self.path = os.path.join(folder, "program")
        if not os.path.exists(self.path):
            subprocess.run([ullage, "compile", model, "--threads", str(os.cpu_count()), "-o", self.path],
                           check=True, capture_output=True)
        self.environment = {**os.environ, **environment}

    def measure(self, seconds):
        done = subprocess.run([self.path, "--bench", "--iterations", "3", "--duration", str(seconds)],
                              check=True, capture_output=True, text=True, env=self.environment)
        return float(re.search(r"median ([0-9.]+)", done.stdout + done.stderr)[1])


class Session:
    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = os.cpu_count()
        self.session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        generator = numpy.random.default_rng(1)
        self.feeds = {}
        for port in self.session.get_inputs():
            if "int" in port.type:
                self.feeds[port.name] = numpy.zeros(port.shape, port.type[7:-1])
            else:
                self.feeds[port.name] = generator.standard_normal(port.shape).astype("float32")

    def measure(self, seconds):
        times, end = [], time.monotonic() + seconds
        while len(times) < 4 or time.monotonic() < end:
            start = time.perf_counter()
            self.session.run(None, self.feeds)
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times[1:])


def beside(measure, seconds):
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return measure(seconds)
    finally:
        loop.kill()
        loop.wait()


def main():
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ullage")
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=2)
    options = arguments.parse_args()
    missed = False
    print(f"{'network':18} {'':12} {'alone ms':>9} {'beside ms':>9} {'loss':>6}")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            runs = {"ullage": Program(options.ullage, model, folder),
                    "waiting": Program(options.ullage, model, folder, OMP_WAIT_POLICY="active"),
                    "onnxruntime": Session(model)}
            alone, busy = {name: [] for name in runs}, {name: [] for name in runs}
            for _ in range(options.rounds):
                for name, run in runs.items():
                    alone[name].append(run.measure(options.seconds))
                    busy[name].append(beside(run.measure, options.seconds))
        loss = {}
        for name in runs:
            times = statistics.median(alone[name]), statistics.median(busy[name])
            loss[name] = times[1] / times[0]
            print(f"{os.path.basename(model)[:18]:18} {name:12} {times[0]:9.2f} {times[1]:9.2f} "
                  f"{loss[name]:6.2f}")
        missed |= loss["ullage"] > MAX_LOSS * loss["onnxruntime"]
    sys.exit(6 if missed else 0)


main()
