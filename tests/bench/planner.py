#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planner against the figures of its field: packing, orders and recomputation.

    planner.py --ullage build/release/cli/ullage [FILTER] [--data DIR] [--tsv FILE]

Runs `ullage pack` and `ullage solve` on the instances under DIR (default: $ULLAGE_DATA), in its
folders packing/ (MiniMalloc's A-F, idealloc's traces) and graphs/, and on 100,000 random buffers
that it makes itself. Times are CPU seconds, user and system, so that what else a machine does
counts little. "wanted" is what the best public solvers are known to reach or what was asked for;
a row that misses it is marked. Skips, saying so, what is absent. Exit 6 when a row misses.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

# name, (capacity or None), time limit or None, most bytes, must be proven, most CPU seconds
PACKING = [
    ("A.1048576 B.1048576 C.1048576 D.1048576 E.1048576 F.1048576", 1048576, None, 1048576, True, 0.2),
    ("A.1048576 B.1048576 C.1048576 E.1048576 F.1048576", None, None, 1048576, True, 0.3),
    ("D.1048576", None, 10, 1018880, False, None),
    ("D.1048576", None, 60, 1017856, False, None),
    ("somas-resnet50", None, None, 1515472556, True, 0.2),
    ("somas-pangu-2.6b", None, None, 5530099775, True, 10),
    ("iopddl-S_1", None, 30, 1498635932, True, 10),
    ("100000 random", None, None, None, False, 20),
]

# graph, fraction, time limit, most overhead in per cent (or most bytes, without a fraction),
# "full" or "within" where a proof is wanted, most CPU seconds, further options
SOLVING = [
    ("layered-100", None, None, 36790, "within", 0.2, ""),
    ("layered-250", None, 10, 105600, None, None, ""),
    ("unet-train-b32", 0.90, None, 1.13, "full", None, ""),
    ("unet-train-b32", 0.80, None, 1.99, "full", None, ""),
    ("unet-train-b32", 0.60, None, 4.46, "full", None, ""),
    ("unet-train-b32", 0.50, None, 6.97, "full", 60, ""),
    ("fcn8-train-b32", 0.90, None, 0.030, None, 60, ""),
    ("fcn8-train-b32", 0.80, None, 0.14, "full", 60, ""),
    ("fcn8-train-b32", 0.70, None, 0.892, None, 60, ""),
    ("vgg16-train-b256", 0.90, None, 1.97, "full", None, ""),
    ("vgg16-train-b256", 0.80, None, None, "infeasible", None, ""),
    ("vgg19-train-b256", 0.80, None, 2.76, None, 60, ""),
    ("vgg19-train-b256", 0.80, None, 2.76, "within", 120, "--remat ilp"),
    ("resnet50-train-b256", 0.90, None, 0.109, None, 60, ""),
    ("resnet50-train-b256", 0.80, None, 0.28, None, 60, ""),
    ("resnet50-train-b256", 0.50, None, 1.51, None, 60, ""),
    ("resnet50-train-b256", 0.20, None, 6.5, None, 60, ""),
    ("layered-100", 0.90, None, 0, None, 60, ""),
    ("layered-100", 0.80, None, 0, None, 60, ""),
    ("layered-100", 0.75, None, 1.07, None, 60, ""),
    ("layered-100", 0.70, None, 2.15, None, 60, ""),
    ("layered-250", 0.70, None, 0.16, None, 60, ""),
]


def run(command):
    """(CPU seconds, JSON, exit code) of one command that writes JSON to its standard output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, json.loads(done.stdout or b"{}"), done.returncode


def random_buffers(path):
    """Start uniform in [0,100000), length uniform in [1,1000), size 64 x uniform in [1,65536]."""
    rng = random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        f.write("id,lower,upper,size\n")
        for i in range(100000):
            start = rng.randrange(100000)
            f.write(f"{i},{start},{start + rng.randrange(1, 1000)},{64 * rng.randint(1, 65536)}\n")


class Table:
    def __init__(self, tsv):
        self.tsv = open(tsv, "w", encoding="utf-8") if tsv else None
        self.missed = 0

    def row(self, good, *cells):
        self.missed += not good
        cells = [*cells, "" if good else "missed"]
        print("| " + " | ".join(cells) + " |", flush=True)
        if self.tsv:
            self.tsv.write("\t".join(cells) + "\n")


def bench_packing(args, table, case, folder):
    names, capacity, limit, most, proven, most_seconds = case
    seconds, reached, all_proven, bound, good = 0.0, [], True, 0, True
    for name in names.split() if "random" not in names else [names]:
        path = os.path.join(args.data or "", "packing", name + ".csv")
        if "random" in name:
            path = os.path.join(folder, "random.csv")
            random_buffers(path)
        if not os.path.exists(path):
            print(f"skipped: {path} is not there")
            return
        command = [args.ullage, "pack", path, "--json", "-"]
        command += ["--capacity", str(capacity)] if capacity else []
        command += ["--time-limit", str(limit)] if limit else []
        cpu, answer, code = run(command)
        seconds += cpu
        reached.append(answer["arena_bytes"])
        bound = answer["lower_bound_bytes"]
        all_proven = all_proven and answer["proven"]
        good = good and code == 0 and (most is None or answer["arena_bytes"] <= most)
    good = good and (all_proven or not proven)
    good = good and (most_seconds is None or seconds <= most_seconds)
    what = names.replace(".1048576", "") + (" at capacity" if capacity else "")
    what += f", {limit} s" if limit else ""
    result = "all fit" if capacity else str(max(reached))
    gap = "proven" if all_proven else f"bound {bound}, gap {max(reached) / bound - 1:.2%}"
    wanted = f"{most or '-'}{', proven' if proven else ''}"
    wanted += f", {most_seconds} s" if most_seconds else ""
    table.row(good, what, result, gap, f"{seconds:.2f}", wanted)


def solve_verdict(answer, code, most, proof):
    """(reached, proven text, whether the row's wishes hold)"""
    text = "proven" if answer.get("optimal") else ""
    if not text and answer.get("optimal_within"):
        text = "proven within"
    if proof == "infeasible":
        good = code == 4 and not answer["fits"] and answer["proven"]
        return "does not fit", "proven" if answer["proven"] else "", good
    if code != 0:
        return "none found", "", False
    good = proof is None or text == "proven" or (proof == "within" and text != "")
    return None, text, good


def bench_solving(args, table, case):
    name, fraction, limit, most, proof, most_seconds, options = case
    path = os.path.join(args.data or "", "graphs", name + ".json")
    if not os.path.exists(path):
        print(f"skipped: {path} is not there")
        return
    command = [args.ullage, "solve", path, "--json", "-", *options.split()]
    command += ["--budget-fraction", str(fraction)] if fraction else []
    command += ["--time-limit", str(limit)] if limit else []
    seconds, answer, code = run(command)
    reached, proven, good = solve_verdict(answer, code, most, proof)
    if reached is None and fraction:
        percent = 100 * answer["overhead"]
        reached = f"{percent:.4g} %"
        good = good and float(f"{percent:.3g}") <= most
        proven = proven or f"gap {100 * answer['gap']:.3g} %"
    elif reached is None:
        reached = str(answer["peak_bytes"])
        good = good and answer["peak_bytes"] <= most
    good = good and (most_seconds is None or seconds <= most_seconds)
    what = name + (f" at {fraction:.2f}" if fraction else " order") + (" " + options if options else "")
    what += f", {limit} s" if limit else ""
    wanted = "infeasible" if proof == "infeasible" else f"{most}{' %' if fraction else ''}"
    wanted += {"full": ", proven", "within": ", proven within"}.get(proof, "")
    wanted += f", {most_seconds} s" if most_seconds else ""
    table.row(good, what, reached, proven, f"{seconds:.2f}", wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--data", default=os.environ.get("ULLAGE_DATA"))
    parser.add_argument("--tsv")
    args = parser.parse_args()
    packing, solving = ([case for case in cases if args.filter in case[0]] for cases in (PACKING, SOLVING))
    if not packing and not solving:
        parser.error(f"no instance has {args.filter} in its name")
    if not args.data:
        print("skipped: set ULLAGE_DATA or give --data, the folder of packing/ and graphs/")
        return 0
    table = Table(args.tsv)
    print("| instance | reached | proof | CPU s | wanted | |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in packing:
            bench_packing(args, table, case, folder)
        for case in solving:
            bench_solving(args, table, case)
    return 6 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
