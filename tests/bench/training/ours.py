# SPDX-License-Identifier: Apache-2.0
"""What ullage plans and takes for the same step, with AdamW on target cpu."""

import json
import os
import subprocess

HEAVY = ("MatMul", "Gemm", "Conv", "Attention", "LSTM", "GRU")  # what is not repeated lightly
SHOWN = 8


class Planned:
    """A plan, and what of it matters here."""

    def __init__(self, plan):
        rows, steps = plan["rows"], plan["steps"]
        self.reserved, self.overhead = plan["reserved_bytes"], plan["overhead"] or 0
        self.state = rows["weights"] + rows["optimizer_state"]
        self.kept = rows["activations_kept_for_backward"]
        self.moves = self.reserved - self.state - rows["inputs"] - rows["outputs"]
        work, whole = [0, 0], [0, 0]  # once, again: as torch counts it, of products alone; of all
        self.heavy_again = 0
        for copy, flops, op in zip(steps["copy"], steps["flops"], steps["op"]):
            whole[copy > 0] += flops
            if any(word in op for word in HEAVY):
                work[copy > 0] += flops
                self.heavy_again += copy > 0
        self.extra, self.extra_of_all = work[1] / work[0], whole[1] / whole[0]


class Sweep:
    """Plans of a model down its budgets; each is made when it is looked at."""

    def __init__(self, ullage, model, options):
        self.model = model
        self.words = [ullage, "plan", model, "--target", "cpu", "--train", "--optimizer", "adamw",
                      "--budget-of", "arena", *options, "--json", "-"]
        self.plans = {}
        rungs = sorted(self.run("--sweep")["plans"], key=lambda rung: -rung["reserved_bytes"])
        self.sizes = [rung["reserved_bytes"] for rung in rungs]
        self.repeats = [rung["repeated_operations"] or 0 for rung in rungs]  # of all work
        self.base = Planned(self.run())

    def run(self, *more):
        return json.loads(subprocess.run([*self.words, *more], check=True, capture_output=True,
                                         text=True).stdout)

    def at(self, size):
        if size not in self.plans:
            self.plans[size] = Planned(self.run("--budget", str(size)))
        return self.plans[size]

    def by_rule(self):
        """Keeps what products make, and makes everything else again."""
        return Planned(self.run("--checkpoint", "products"))

    def smallest(self, holds):
        """The smallest plan of which it holds, where it holds of all larger ones: by halving."""
        best, low, high = self.base, 0, len(self.sizes)
        while low < high:
            middle = (low + high) // 2
            plan = self.at(self.sizes[middle])
            if holds(plan):
                best, low = plan, middle + 1
            else:
                high = middle
        return best

    def at_flops(self, limit):
        """The smallest plan whose products run again no more than that: near the smallest rung that
        repeats no more of all work."""
        at = max(i for i, repeats in enumerate(self.repeats) if repeats <= limit)
        while at > 0 and self.at(self.sizes[at]).extra > limit:
            at -= 1
        while at + 1 < len(self.sizes) and self.at(self.sizes[at + 1]).extra <= limit:
            at += 1
        return self.at(self.sizes[at])

    def within(self, bytes):
        """The plan that moves no more than these bytes, else the smallest of all."""
        still = self.base.reserved - self.base.moves
        return self.at(max(int(still + bytes), self.sizes[-1]))


def plan_rows(ullage, model, *options):
    words = [ullage, "plan", model, "--target", "cpu", *options, "--json", "-"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


class Timed:
    def __init__(self, ullage, model, options, threads, folder):
        self.program = os.path.join(folder, "trainer")
        subprocess.run([ullage, "compile", model, "-o", self.program, "--target", "cpu", "--train",
                        "--optimizer", "adamw", "--threads", str(threads), *options], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def measure(self, threads, seconds):
        """Wall and processor seconds of a step; the profile stays in self.steps."""
        report = f"{self.program}.json"
        subprocess.run([self.program, "--random", "1", "--threads", str(threads), "--bench",
                        "--profile", "--duration", str(seconds), "--json", report], check=True,
                       stdout=subprocess.DEVNULL)
        with open(report, encoding="utf-8") as file:
            bench = json.load(file)
        self.steps = bench["steps"]
        return bench["latency_seconds"]["median"], bench["cpu_seconds"] / bench["runs"]

    def parts(self):
        """Seconds, predicted seconds and count by operator, the slowest first."""
        parts = {}
        for step in self.steps:
            part = parts.setdefault(step["op"], [0, 0, 0])
            for i, value in enumerate((step["least_seconds"], step["predicted_seconds"], 1)):
                part[i] += value
        return sorted(parts.items(), key=lambda row: -row[1][0])[:SHOWN]
