#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiled programs against onnxruntime and OpenVINO in the same run: time, memory, start-up.

    latency [--ullage build/release/cli/ullage] [--target c] [--only NAME,NAME]
            [--group float,quantized,int4,bf16] [--threads 1,2] [--rounds 7] [--quick] [--steps N]
            [--json FILE] [-- COMPILE OPTIONS]

`latency` is this file in the environment that scripts/setup_python.sh makes. Networks at full size
and batch 1 (tests/bench/latency_networks.py lists them): in float32 those of models/, PP-OCRv4's
trained text detection and four from torch's exporters (left out, with a line, where no torch is);
quantized those of models/quantized.py; GPT-2 with 4-bit weights at 128 tokens and at one; and in
bf16. OpenVINO computes float32 rows in f32 and bf16 rows in bf16; in quantized rows what is left in
float is f32. onnxruntime has no bf16 here: its figures in these rows are those of f32. All have the
same number of threads. Per network and thread count:

time      medians of runs in blocks that alternate between all three, each after a warm-up;
          ullage's are the program's --bench, a peer's a process that lives through all rounds.
          The ratio is to the faster peer, except with 4-bit weights, where it is to onnxruntime
          (OpenVINO unfolds what it cannot multiply). "least" is the ratio of the least times, and
          the range that of the ratios of single rounds: they tell how noisy the machine was.
          GFLOP/s is the compiler's count of the work over our time and that of the peer.
memory    peak resident MiB of a process that sets up and runs once; a peer's less that of a Python
          process that only imports it and numpy. The ratio is to the leaner peer.
start-up  ullage: from the start of the process to its first byte of result on a pipe. Peers:
          creating the session and the first run; imports do not count.
results   the relative difference (2-norm) of all outputs from onnxruntime's: ours, and OpenVINO's.

Wanted, in float32: time at most 1.0 each, 0.85 in the geometric mean; memory at most half of
onnxruntime's, start-up at most 1.0 of onnxruntime's. Quantized: 1.15 each, 0.95 in the mean; 4-bit
weights 0.9 each; memory of both at most half of the leaner peer's, or what the file stores as
weights plus 25 MiB. All: memory at most 1.15 times what the plan reserves plus 25 MiB. What misses
that is marked "!", and the exit code is 6; a network that does not compile or run is a row with its
error. A peer that cannot run a network has "-".
"""

import argparse
import dataclasses
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402
from latency_networks import (  # noqa: E402
    GROUPS,
    NETWORKS,
    Failure,
    Skip,
    compare_ort,
    find_network,
    make_inputs,
    open_sizes,
    run_checked,
    stored_weight_bytes,
)

PEERS = ("onnxruntime", "openvino")
MEMORY_LIMIT, START_LIMIT = 0.5, 1.0
RESERVED_FACTOR, RESERVED_MIB = 1.15, 25  # peak resident <= factor * reserved + MiB
STORED_MIB = 25
# Relative error of the outputs: float sums in another order stay far below the first (in 16 bits:
# compare_ort). A sum next to a boundary between two integers falls to either side, so quantized
# networks may differ as much as the peers differ from each other, or by the second.
TOLERANCE, QUANTIZED_TOLERANCE = 1e-3, 2e-2
BLOCK_RUNS = (3, 1000)  # least and most runs in a block
COMPILE_SECONDS, RUN_SECONDS = 1200, 300  # then a process is given up
MIB = 2**20


@dataclasses.dataclass
class Case:
    """One network with one number of threads, and the files that its processes share."""

    network: object
    path: str
    shapes: dict  # of inputs whose shape the model leaves open
    threads: int
    precision: str
    folder: str
    program: str
    plan: dict
    inputs: dict

    def file(self, name):
        return os.path.join(self.folder, name)

    def environment(self):
        return dict(os.environ, OMP_NUM_THREADS=str(self.threads))

    def peer_command(self, peer, mode):
        order = {"path": self.path, "inputs": self.file("inputs.npz"), "threads": self.threads,
                 "sizes": open_sizes(self.path, self.shapes), "shapes": self.shapes,
                 "precision": self.precision, "results": self.file(peer + ".npz")}  # fmt: skip
        script = os.path.join(HERE, "peer_process.py")
        return [sys.executable, script, peer, mode, json.dumps(order)]

    def input_arguments(self):
        arguments = []
        for name in self.inputs:
            arguments += ["--input", f"{name}={self.file('inputs.npz')}:{name}"]
        return arguments


def checked(command, what, seconds=RUN_SECONDS, **rest):
    return run_checked(command, what, seconds, **rest)


class Peer:
    """The process of a peer that lives through all rounds."""

    def __init__(self, case, name):
        self.name, self.errors = name, open(case.file(name + ".err"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            case.peer_command(name, "serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, env=case.environment())  # fmt: skip
        try:
            names = self.answer()["outputs"]
        except Failure:
            self.close()
            raise
        with np.load(case.file(name + ".npz")) as arrays:
            self.outputs = {name: arrays[str(i)] for i, name in enumerate(names)}

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines() or ["no message"]
            raise Failure(f"{self.name}: {lines[-1]}")
        return json.loads(line)

    def block(self, warmup, runs):
        self.process.stdin.write(json.dumps({"warmup": warmup, "runs": runs}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()
        self.process.wait()


def start_peers(case, row):
    """{name: Peer}; a peer that cannot run the network leaves its reason in the row."""
    peers = {}
    for name in PEERS:
        try:
            peers[name] = Peer(case, name)
        except Failure as error:
            row.setdefault("without", {})[name] = str(error)
    base = GROUPS[case.network.group].base
    if not peers or (base != "faster" and base not in peers):
        raise Failure("; ".join(row["without"].values()))
    return peers


def program_block(case, warmup, runs):
    command = [case.program, "--bench", "--warmup", str(warmup), "--duration", "0",
               "--iterations", str(runs), "--json", "-", *case.input_arguments()]  # fmt: skip
    return json.loads(checked(command, "--bench", env=case.environment()))


def difference(got, wanted):
    """(largest absolute difference, largest relative error) of named outputs."""
    absolute = relative = 0.0
    for name, want in wanted.items():
        relative = max(relative, compare_ort.relative_error(got[name], want))
        if got[name].shape == want.shape and want.size:
            apart = np.abs(got[name].astype(np.float64) - want.astype(np.float64))
            absolute = max(absolute, float(apart.max()))
    return absolute, relative


def program_outputs(case, names):
    command = [case.program, *case.input_arguments()]
    files = {name: case.file(f"output_{i}.npy") for i, name in enumerate(names)}
    for name, file in files.items():
        command += ["--output", f"{name}={file}"]
    checked(command, "running", env=case.environment())
    return {name: np.load(file) for name, file in files.items()}


def compare(case, peers):
    """Ours against the first peer that there is, which is onnxruntime where it runs the model."""
    first, *others = peers.values()
    absolute, relative = difference(program_outputs(case, first.outputs), first.outputs)
    found = {"absolute": absolute, "relative": relative, "from": first.name}
    if others:
        found["of_peer"] = difference(others[0].outputs, first.outputs)[1]
    return found


def time_rounds(case, peers, args):
    """{who: [(median, least) of each round]}, the runs in a block and the compiler's FLOP."""
    probe = max(statistics.median(peer.block(args.warmup, BLOCK_RUNS[0]))
                for peer in peers.values())  # fmt: skip
    runs = min(max(round(args.block / probe), BLOCK_RUNS[0]), BLOCK_RUNS[1])
    rounds, flops = {name: [] for name in ("ours", *peers)}, 0
    turns = list(rounds)
    for i in range(args.rounds):
        for name in turns[i % len(turns) :] + turns[: i % len(turns)]:
            if name == "ours":
                block = program_block(case, args.warmup, runs)
                latency, flops = block["latency_seconds"], block["flops"]
                rounds[name].append((latency["median"], latency["min"]))
            else:
                samples = peers[name].block(args.warmup, runs)
                rounds[name].append((statistics.median(samples), min(samples)))
    return rounds, runs, flops


def measure_time(case, peers, args):
    """Medians over all rounds; ratios to the peer that counts, in all and of each round."""
    rounds, runs, flops = time_rounds(case, peers, args)
    seconds = {who: statistics.median(pair[0] for pair in pairs) for who, pairs in rounds.items()}
    least = {who: min(pair[1] for pair in pairs) for who, pairs in rounds.items()}
    base = GROUPS[case.network.group].base
    if base == "faster":
        base = min(peers, key=lambda name: seconds[name])
    single = [a[0] / b[0] for a, b in zip(rounds["ours"], rounds[base], strict=True)]
    return {"runs_per_block": runs, "seconds": seconds, "base": base, "flops": flops,
            "ratio": seconds["ours"] / seconds[base], "round_ratios": single,
            "ratios": {name: seconds["ours"] / seconds[name] for name in peers},
            "least_ratio": least["ours"] / least[base],
            "rounds": {who: [pair[0] for pair in pairs] for who, pairs in rounds.items()}}  # fmt: skip


def smallest_output(outputs):
    return min(outputs, key=lambda name: outputs[name].nbytes)


def program_start(case, output):
    """Seconds from the start of the process to its first byte of result."""
    command = [case.program, *case.input_arguments(), "--output", f"{output}=-"]
    begin = time.perf_counter()
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, stdin=quiet, stdout=pipe, stderr=quiet,
                          env=case.environment()) as process:  # fmt: skip
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begin
        process.stdout.read()
    if not first or process.returncode != 0:
        raise Failure(f"running: exit {process.returncode} without a result")
    return seconds


def program_peak(case, output):
    """Peak resident bytes. GNU time forks the program, since a process's peak starts at that of
    the process that forked it, and this one has arrays in memory."""
    peak, result = case.file("peak"), case.file("output.npy")
    command = ["/usr/bin/time", "-q", "-f", "%M", "-o", peak, case.program,
               *case.input_arguments(), "--output", f"{output}={result}"]  # fmt: skip
    checked(command, "running", env=case.environment())
    with open(peak, encoding="utf-8") as f:
        return int(f.read()) * 1024


def peer_answer(case, name, mode):
    return json.loads(checked(case.peer_command(name, mode), name, env=case.environment()))


def measure_fresh(case, peers, output, args):
    """Start-up and memory, which need fresh processes: {who: seconds}, {who: bytes}."""
    seconds, peaks = {"ours": []}, {"ours": []}
    for _ in range(args.starts):
        seconds["ours"].append(program_start(case, output))
        peaks["ours"].append(program_peak(case, output))
        for name in peers:
            once = peer_answer(case, name, "once")
            seconds.setdefault(name, []).append(once["seconds"])
            bare = peer_answer(case, name, "import")["bytes"]
            peaks.setdefault(name, []).append(once["bytes"] - bare)
    median = statistics.median
    return ({who: median(values) for who, values in seconds.items()},
            {who: median(values) for who, values in peaks.items()})  # fmt: skip


def start_row(seconds):
    fastest = min(value for who, value in seconds.items() if who != "ours")
    return {"seconds": seconds, "ratio": seconds["ours"] / fastest}


def memory_row(case, peaks):
    """The limits are what is wanted of the row's group, and what follows from the plan."""
    others = [value for who, value in peaks.items() if who != "ours"]
    stored, reserved = stored_weight_bytes(case.path), case.plan["reserved_bytes"]
    half = MEMORY_LIMIT * peaks.get("onnxruntime", min(others))
    if GROUPS[case.network.group].stored:
        half = max(MEMORY_LIMIT * min(others), stored + STORED_MIB * MIB)
    return {"bytes": peaks, "ratio": peaks["ours"] / min(others), "limit_bytes": half,
            "stored_bytes": stored, "reserved_bytes": reserved,
            "reserved_limit_bytes": RESERVED_FACTOR * reserved + RESERVED_MIB * MIB}  # fmt: skip


def top_steps(case, count):
    """The steps that take longest, of the program's own profile."""
    command = [case.program, "--bench", "--profile", "--warmup", "0.1", "--duration", "1",
               "--json", "-", *case.input_arguments()]  # fmt: skip
    steps = json.loads(checked(command, "--profile", env=case.environment()))["steps"]
    total = sum(step["seconds"] for step in steps)
    return [dict(step, share=step["seconds"] / total) for step in steps[:count]]


def precision_of(options):
    """OpenVINO's name of what `ullage compile` is asked for; f32 where it has no such mode."""
    for i, option in enumerate(options[:-1]):
        if option == "--precision":
            return {"bf16": "bf16", "fp16": "f16"}.get(options[i + 1], "f32")
    return "f32"


def compile_case(args, network, threads, folder):
    path, shapes = find_network(network)
    program, plan = os.path.join(folder, "program"), os.path.join(folder, "plan.json")
    command = [args.ullage, "compile", path, "-o", program, "--json", plan]
    if args.target:
        command += ["--target", args.target]
    if args.takes_threads:
        command += ["--threads", str(threads)]
    for name, shape in shapes.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    options = [*network.options(), *args.options]
    begin = time.perf_counter()
    checked([*command, *options], "compiling", COMPILE_SECONDS)
    seconds = time.perf_counter() - begin
    inputs = make_inputs(path, shapes)
    np.savez(os.path.join(folder, "inputs.npz"), **inputs)
    with open(plan, encoding="utf-8") as f:
        case = Case(network, path, shapes, threads, precision_of(options), folder, program,
                    json.load(f), inputs)  # fmt: skip
    return case, seconds


def measure_case(case, row, args):
    peers = start_peers(case, row)
    try:
        row["difference"] = compare(case, peers)
        row["time"] = measure_time(case, peers, args)
    finally:
        for peer in peers.values():
            peer.close()
    output = smallest_output(next(iter(peers.values())).outputs)
    seconds, peaks = measure_fresh(case, peers, output, args)
    row["start"], row["memory"] = start_row(seconds), memory_row(case, peaks)
    if args.steps:
        row["steps"] = top_steps(case, args.steps)


def measure(args, network, threads):
    """One row, as it is in the JSON."""
    row = {"network": network.label, "group": network.group, "threads": threads}
    try:
        with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
            case, row["compile_seconds"] = compile_case(args, network, threads, folder)
            row["target"] = case.plan["target"]
            measure_case(case, row, args)
    except Skip as reason:
        row["skipped"] = str(reason)
    except Failure as error:
        row["error"] = str(error)
    row["missed"] = missed(row, max(TOLERANCE, compare_ort.tolerance(
        [*network.options(), *args.options])))  # fmt: skip
    return row


def measured(row):
    return "error" not in row and "skipped" not in row


def missed(row, tolerance):
    """What of that which is wanted a row does not reach."""
    if not measured(row):
        return ["error"] if "error" in row else []
    group, memory, start = GROUPS[row["group"]], row["memory"], row["start"]["seconds"]
    if group.stored:
        tolerance = max(QUANTIZED_TOLERANCE, row["difference"].get("of_peer", 0.0))
    found = {
        "difference": row["difference"]["relative"] > tolerance,
        "time": group.time is not None and row["time"]["ratio"] > group.time,
        "memory": memory["bytes"]["ours"] > memory["limit_bytes"],
        "reserved": memory["bytes"]["ours"] > memory["reserved_limit_bytes"],
        "start": start["ours"] > START_LIMIT * start.get("onnxruntime", math.inf),
    }
    return [name for name, bad in found.items() if bad]


def marked(text, row, name):
    return text + ("!" if name in row["missed"] else " ")


def columns(values, factor, form):
    """Ours and each peer's, "-" for a peer that could not run."""
    width = len(format(0.0, form))
    return " ".join(format(values[who] * factor, form) if who in values else "-".rjust(width)
                    for who in ("ours", *PEERS))  # fmt: skip


HEADER = """\
network            thr | ms    ours    onnxr.    openv.  ratio  least (rounds)   GFLOP/s \
| MiB  ours  onnxr.  openv. ratio   limit | start ms onnxr.  openv. ratio  | diff.   openv."""


def print_row(row):
    head = f"{row['network']:18} {row['threads']:3} |"
    if not measured(row):
        print(head, f"skipped: {row['skipped']}" if "skipped" in row else
              f"FAILED! {row['error']}", flush=True)  # fmt: skip
        return
    span, memory, start, apart = row["time"], row["memory"], row["start"], row["difference"]
    rounds, seconds, rate = span["round_ratios"], span["seconds"], span["flops"] * 1e-9
    print(head, columns(seconds, 1e3, "9.2f"), marked(f"{span['ratio']:6.2f}", row, "time"),
          f"{span['least_ratio']:5.2f} ({min(rounds):.2f}-{max(rounds):.2f})",
          f"{rate / seconds['ours']:4.0f} {rate / seconds[span['base']]:4.0f} |",
          marked(columns(memory["bytes"], 1 / MIB, "8.1f"), row, "reserved"),
          marked(f"{memory['ratio']:.2f}", row, "memory"),
          f"{memory['limit_bytes'] / MIB:7.1f} |", columns(start["seconds"], 1e3, "7.1f"),
          marked(f"{start['ratio']:.2f}", row, "start"), "|",
          marked(f"{apart['relative']:.1e}", row, "difference"),
          f"{apart['of_peer']:.1e}" if "of_peer" in apart else "-", flush=True)  # fmt: skip
    for name, reason in row.get("without", {}).items():
        print(f"    without {name}: {reason}")
    for step in row.get("steps", []):
        rate = 1e-9 / max(step["seconds"], 1e-12)
        print(f"    {step['share']:6.1%} {step['seconds'] * 1e6:9.1f} us "
              f"{step['flops'] * rate:7.1f} GFLOP/s {step['moved_bytes'] * rate:6.1f} GB/s  "
              f"{step['op']}  {step['node']}", flush=True)  # fmt: skip


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summarise_group(rows):
    """Geometric means of the ratios; those to one peer are over the rows that it could run."""
    good = [row for row in rows if measured(row)]
    means = {what: geometric_mean([row[what]["ratio"] for row in good])
             for what in ("time", "memory", "start")}  # fmt: skip
    for name in PEERS:
        ratios = [row["time"]["ratios"][name] for row in good if name in row["time"]["ratios"]]
        if ratios:
            means[name] = geometric_mean(ratios)
    means.update(measured=len(good), asked=len(rows))
    return means


def summarise(rows, threads):
    """{group: {thread count, or "all": means}}"""
    found = {}
    for group in GROUPS:
        for count in [*threads, "all"] if len(threads) > 1 else threads:
            chosen = [row for row in rows
                      if row["group"] == group and count in ("all", row["threads"])]  # fmt: skip
            if any(measured(row) for row in chosen):
                found.setdefault(group, {})[str(count)] = summarise_group(chosen)
    return found


def print_summary(rows, means):
    for group, counts in means.items():
        for count, mean in counts.items():
            who = "all thread counts" if count == "all" else f"threads {count}"
            limit = GROUPS[group].mean
            mark = "!" if limit is not None and mean["time"] > limit else ""
            each = ", ".join(f"{name} {mean[name]:.3f}" for name in PEERS if name in mean)
            print(f"geometric mean, {group}, {who}, {mean['measured']} of {mean['asked']}: "
                  f"time {mean['time']:.3f}{mark} ({each}), memory {mean['memory']:.3f}, "
                  f"start-up {mean['start']:.3f}")  # fmt: skip
    for row in rows:
        if row["missed"]:
            print(f"missed: {row['network']}, threads {row['threads']}: {', '.join(row['missed'])}")


def over_mean(means):
    return any(GROUPS[group].mean is not None and mean["time"] > GROUPS[group].mean
               for group, counts in means.items() for mean in counts.values())  # fmt: skip


def machine():
    import onnxruntime
    import openvino

    found = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
             "onnxruntime": onnxruntime.__version__,
             "openvino": openvino.__version__.split("-")[0]}  # fmt: skip
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                found["processor"] = line.split(":", 1)[1].strip()
                break
    return found


def chosen_networks(parser, args):
    labels = {network.label: network for network in NETWORKS}
    groups = args.group.split(",") if args.group else list(GROUPS)
    for name in groups:
        if name not in GROUPS:
            parser.error(f"no group {name}; there are {', '.join(GROUPS)}")
    if not args.only:
        return [network for network in NETWORKS if network.group in groups]
    names = args.only.split(",")
    for name in names:
        if name not in labels:
            parser.error(f"no network {name}; there are {', '.join(labels)}")
    return [network for network in NETWORKS if network.label in names]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/release/cli/ullage"))
    parser.add_argument("--target", help="default: the compiler's own")
    parser.add_argument("--only", default="", help="names of networks, with commas between")
    parser.add_argument("--group", default="", help="float, quantized, int4, bf16")
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas between")
    parser.add_argument("--rounds", type=int, default=7, help="triples of blocks")
    parser.add_argument("--block", type=float, default=0.5, help="seconds of runs in a block")
    parser.add_argument("--warmup", type=float, default=0.1, help="seconds before each block")
    parser.add_argument("--starts", type=int, default=5, help="fresh processes for start-up")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, 1 start")
    parser.add_argument("--steps", type=int, default=0, help="print the N longest steps of each")
    parser.add_argument("--json", help="write everything here")
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]
    if args.quick:
        args.rounds, args.block, args.warmup, args.starts = 3, 0.1, 0.02, 1
    args.threads = [int(count) for count in args.threads.split(",")]
    args.networks = chosen_networks(parser, args)
    if min([args.rounds, args.starts, *args.threads]) < 1:
        parser.error("rounds, starts and threads are at least 1")
    return args


def main():
    args = parse()
    try:
        usage = checked([args.ullage, "compile", "--help"], args.ullage)
    except (Failure, OSError) as error:
        sys.exit(f"latency.py: {error}")
    # The other targets have no use for it.
    args.takes_threads = "--threads" in usage and args.target in (None, "cpu")
    about = machine()
    print(
        f"{about['processor']}, {about['cores']} cores, onnxruntime {about['onnxruntime']}, "
        f"OpenVINO {about['openvino']}; target {args.target or 'of the compiler by default'}"
    )
    print(HEADER)
    rows = []
    for threads in args.threads:
        for network in args.networks:
            rows.append(measure(args, network, threads))
            print_row(rows[-1])
    means = summarise(rows, args.threads)
    print_summary(rows, means)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"machine": about, "options": args.options, "geometric_means": means,
                       "rows": rows}, f, indent=1)  # fmt: skip
            f.write("\n")
    sys.exit(6 if over_mean(means) or any(row["missed"] for row in rows) else 0)


if __name__ == "__main__":
    main()
