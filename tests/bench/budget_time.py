#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether plans of a budget take the time that they promise: predicted against measured, by network.

    budget_time.py --ullage build/release/cli/ullage [--target cpu,c] [--threads 1] [--by cpu]
                   [--rungs 4] [--small | --quick | --models DIR] [--profile FILE] [--json FILE] [NETWORK...]

Measures a profile of this machine once, and with it makes the sweep of each network of models/ at
full size (or small, or of a folder): all its plans from the one without a budget to the smallest.
The first, the last and as many evenly between as --rungs says are compiled with their
bytes as the budget of the buffer (--budget-of process: of the process) and run with --bench.

predicted  milliseconds of the plan
measured   the least of all runs of --starts processes, since whatever else the machine does only
           adds; the plans of a network take turns, so that what comes and goes meets all of them.
           With --by cpu the CPU time of a run instead, the mean of a process's runs and the least
           of all processes, for a machine whose cores others take as well
ratio      predicted / measured, marked "!" where not within 20 %

The last lines say how many plans are within, the geometric mean of the ratios, and how much of the
machine's processors others took while programs ran: what is measured beside them is not the time of
a program alone. Wanted: 90 % of the plans; exit 6 where fewer are, or where a network did not
compile or run.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

import cost_model

NEAR, WANTED = 0.20, 0.90  # within 20 %; so many of the plans
QUICK = ["resnet50", "mobilenet_v2", "densenet121", "unet", "swin_t", "gpt2"]
COMPILE_SECONDS, RUN_SECONDS = 1200, 300  # then a process is given up


class Failure(Exception):
    """A network that cannot be measured; the text is one line."""


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def checked(command, seconds=COMPILE_SECONDS):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{' '.join(command[:2])}: not done after {seconds} s") from late
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failure(f"{' '.join(command[:2])}: exit {done.returncode}: {lines[-1]}")


def written(command, path, seconds=COMPILE_SECONDS):
    """The JSON that a command writes to `path`."""
    checked([*command, "--json", path], seconds)
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def choose_rungs(plans, count):
    """The first, the last, and others evenly between."""
    count = min(count, len(plans))
    at = {round(i * (len(plans) - 1) / max(count - 1, 1)) for i in range(count)}
    return [plans[i] for i in sorted(at)]


def busy_seconds():
    """CPU time of all processes since the machine started, and of this one's children."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(x) for x in f.readline().split()[1:]]
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = sum(ticks[:3]) + sum(ticks[5:8])  # all but idle and waiting for disks
    return busy / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


class Others:
    """What other processes took while programs ran, in processors."""

    seconds, wall = 0.0, 0.0

    def __enter__(self):
        self.begin, self.before = time.monotonic(), busy_seconds()

    def __exit__(self, *error):
        busy, own = (after - before for after, before in zip(busy_seconds(), self.before))
        self.seconds += max(busy - own, 0)
        self.wall += time.monotonic() - self.begin


OTHERS = Others()


def measured_seconds(args, program):
    """The least time of a run in one process."""
    bench = [program, "--bench", "--warmup", "0.1", "--duration", str(args.seconds)]
    with OTHERS:
        result = written(bench, program + ".json", RUN_SECONDS)
    if args.by == "cpu":
        return result["cpu_seconds"] / result["runs"]
    return result["latency_seconds"]["min"]


def compile_rung(args, model, options, budget, program):
    """Predicted milliseconds of the plan for a budget."""
    plan = written([args.ullage, "compile", model, "-o", program, "--budget", str(budget),
                    "--budget-of", args.budget_of, *options], program + ".plan.json")  # fmt: skip
    return plan["cost"] * 1e-6


def measure(args, name, model, target, folder):
    """Rows of a network; they are printed when all of them are known."""
    rows = []
    options = ["--target", target, "--profile", args.profile]
    if target == "cpu":  # the other has no use for it
        options += ["--threads", str(args.threads)]
    progress(f"{name}, {target}: sweep")
    sweep = written([args.ullage, "plan", model, "--sweep", "--budget-of", args.budget_of, *options],
                    os.path.join(folder, "sweep.json"))["plans"]  # fmt: skip
    size = "reserved_bytes" if args.budget_of == "arena" else "process_bytes"
    for i, plan in enumerate(choose_rungs(sweep, args.rungs)):
        progress(f"{name}, {target}: {plan[size]} bytes")
        program = os.path.join(folder, f"program{i}")
        rows.append({"network": name, "target": target, "bytes": plan[size],
                     "share": plan[size] / sweep[0][size], "program": program, "measured_ms": math.inf,
                     "predicted_ms": compile_rung(args, model, options, plan[size], program)})  # fmt: skip
    for start in range(args.starts):
        progress(f"{name}, {target}: start {start + 1}")
        for row in rows:
            row["measured_ms"] = min(row["measured_ms"], 1e3 * measured_seconds(args, row["program"]))
    for row in rows:
        os.remove(row.pop("program"))
        row["ratio"] = row["predicted_ms"] / row["measured_ms"]
    return rows


def measure_or_say(args, name, model, target, folder):
    try:
        rows = measure(args, name, model, target, folder)
        for row in rows:
            print_row(row)
        return rows
    except Failure as error:
        progress("")
        print(f"{name:18} {target:4} FAILED! {error}", flush=True)
        return [{"network": name, "target": target, "error": str(error)}]


def is_near(row):
    return "error" not in row and 1 - NEAR <= row["ratio"] <= 1 + NEAR


def print_row(row):
    progress("")
    print(f"{row['network']:18} {row['target']:4} {row['bytes']:12} {100 * row['share']:7.1f} %"
          f" {row['predicted_ms']:11.3f} {row['measured_ms']:11.3f} {row['ratio']:6.2f}"
          f"{'' if is_near(row) else ' !'}", flush=True)  # fmt: skip


def print_summary(rows, what):
    ratios = [row["ratio"] for row in rows if "error" not in row]
    near = sum(map(is_near, rows))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    print(f"{what}: {near} of {len(rows)} plans within {100 * NEAR:.0f} %, {100 * near / len(rows):.1f} %;"
          f" geometric mean of predicted / measured {mean:.3f}")  # fmt: skip
    return near >= WANTED * len(rows)


def find_networks(args, folder):
    """(name, path) of all that is asked for; full-size models are made where they are missing."""
    names = QUICK if args.quick else args.networks
    if args.models or args.small:
        for path in cost_model.find_models(args.models, names, folder):
            yield os.path.basename(path).removesuffix(".onnx"), path
        return
    sys.path.insert(0, os.path.join(cost_model.HERE, "..", "ref"))
    import compare_ort  # the environment of scripts/setup_python.sh

    for name in names or compare_ort.make.NETWORKS:
        progress(f"{name}: making the model")
        request = argparse.Namespace(model=name, small=False, batch=1, seq=None)
        yield name, compare_ort.model_path(request)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", help="names in models/make.py; parts of them with --small, --models")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--target", default="cpu,c", help="with commas between")
    parser.add_argument("--threads", type=int, default=1, help="of programs of target cpu")
    parser.add_argument("--budget-of", choices=("arena", "process"), default="arena")
    parser.add_argument("--by", choices=("runs", "cpu"), default="runs", help="what is measured")
    parser.add_argument("--rungs", type=int, default=4, help="plans of a network, at most")
    parser.add_argument("--starts", type=int, default=3, help="processes of each program")
    parser.add_argument("--seconds", type=float, default=0.5, help="of measuring in each")
    parser.add_argument("--small", action="store_true", help="networks scaled down")
    parser.add_argument("--quick", action="store_true", help=", ".join(QUICK))
    parser.add_argument("--models", help="a folder of .onnx files")
    parser.add_argument("--profile", help="of ullage profile; else one is measured first")
    parser.add_argument("--json", help="write all rows here")
    args = parser.parse_args()
    if args.by == "cpu" and args.threads > 1:
        parser.error("CPU time is that of one thread; --by cpu takes no --threads")
    if min(args.rungs, args.starts, args.threads) < 1:
        parser.error("rungs, starts and threads are at least 1")
    return args


def main():
    args = parse()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
        if args.profile is None:
            progress("measuring the profile")
            args.profile = os.path.join(folder, "profile.json")
            checked([args.ullage, "profile", "-o", args.profile])
        progress("")
        print(f"{'network':18} {'on':4} {'bytes':>12} {'of first':>9} {'predicted':>11} {'measured':>11}"
              f" {'ratio':>6}   (ms)", flush=True)  # fmt: skip
        for name, model in find_networks(args, folder):
            for target in args.target.split(","):
                rows += measure_or_say(args, name, model, target, folder)
    progress("")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    for target in sorted({row["target"] for row in rows}):
        print_summary([row for row in rows if row["target"] == target], target)
    reached = rows != [] and print_summary(rows, "all")
    print(f"others took {OTHERS.seconds / max(OTHERS.wall, 1e-9):.2f} of {os.cpu_count()} processors meanwhile")
    return 0 if reached and all("error" not in row for row in rows) else 6


if __name__ == "__main__":
    sys.exit(main())
