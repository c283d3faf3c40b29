#!/usr/bin/env python3
"""Compiled programs against onnxruntime in the same run: time, peak memory, start-up.

    latency [--ullage build/release/cli/ullage] [--target c] [--only NAME,NAME] [--threads 1,2]
            [--rounds 7] [--quick] [--steps N] [--json FILE] [-- COMPILE OPTIONS]

`latency` is this file in the environment that scripts/setup_python.sh makes. Ten networks at full
size and batch 1: those of models/, which it makes where they are missing, and PP-OCRv4's trained
text detection at 1x3x640x640, which scripts/fetch_ocr.sh gets. Per network and thread count:

time      medians of runs in blocks that alternate between the two, each after a warm-up; ullage's
          are the program's --bench, onnxruntime's a process that lives through all rounds, with
          all optimizations and its own spinning. Sizes that the model leaves open are given to
          both. "least" is the ratio of the least times, and the range that of the ratios of
          single rounds: they tell how noisy the machine was. GFLOP/s is the compiler's count of
          the work over either time: what a core can do at best bounds the ratio.
memory    peak resident MiB of a process that sets up and runs once; onnxruntime's less that of a
          Python process that only imports onnxruntime and numpy.
start-up  ullage: from the start of the process to its first byte of result on a pipe.
          onnxruntime: creating the session and the first run; imports do not count.
results   the largest absolute difference and the relative one (2-norm) of all outputs.

Every ratio is ullage / onnxruntime, below 1 in ullage's favour. Wanted: time at most 1.0 each, 0.85
in the geometric mean; memory at most 0.5, and 1.15 times what the plan reserves plus 25 MiB;
start-up at most 1.0. What misses that is marked "!", and the exit code is 6; a network that does
not compile or run is a row with its error.
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
sys.path[:0] = [os.path.join(HERE, "..", "ref"), os.path.join(ROOT, "scripts")]

import compare_ort  # noqa: E402
import demo_ocr  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import random_inputs  # noqa: E402

TIME_LIMIT, TIME_MEAN_LIMIT, MEMORY_LIMIT, START_LIMIT = 1.0, 0.85, 0.5, 1.0
RESERVED_FACTOR, RESERVED_MIB = 1.15, 25  # peak resident <= factor * reserved + MiB
TOLERANCE = 1e-3  # relative; float sums in another order stay far below (in 16 bits: compare_ort)
BLOCK_RUNS = (3, 1000)  # least and most runs in a block
COMPILE_SECONDS, RUN_SECONDS = 1200, 300  # then a process is given up

# Label, name in models/make.py, sequence length where it is not that of make.py (BERT's is 128
# there). The OCR network comes from a package instead.
NETWORKS = [
    ("resnet50", "resnet50", None),
    ("mobilenet_v2", "mobilenet_v2", None),
    ("densenet121", "densenet121", None),
    ("efficientnet_b0", "efficientnet_b0", None),
    ("swin_t", "swin_t", None),
    ("vit_b16", "vit_b16", None),
    ("unet", "unet", None),
    ("bert_base", "bert_base", None),
    ("gpt2", "gpt2", 128),
    ("ppocr_det", None, None),
]
OCR_FILE, OCR_SIDE = "ch_PP-OCRv4_det_infer.onnx", 640

# The three kinds of processes of onnxruntime share their beginning. VmHWM is the peak of this
# program alone; ru_maxrss would start at that of the process that forked it.
PEER_BEGIN = """
import json, sys, time
import numpy, onnxruntime
def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))
def session(path, threads, sizes):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    for name, size in sizes.items():
        options.add_free_dimension_override_by_name(name, size)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
"""
PEER_IMPORT = """
print(json.dumps({"bytes": peak()}))
"""
PEER_ONCE = """
path, file, threads, sizes = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
inputs = dict(numpy.load(file))
begin = time.perf_counter()
session(path, threads, sizes).run(None, inputs)
print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": peak()}))
"""
# Answers each line {"warmup": SECONDS, "runs": N} with the N times; the first line, with outputs.
PEER_SERVER = """
path, file, threads, sizes = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
inputs, peer = dict(numpy.load(file)), session(path, threads, sizes)
outputs = peer.run(None, inputs)
numpy.savez(sys.argv[5], **{str(i): array for i, array in enumerate(outputs)})
print(json.dumps({"outputs": [output.name for output in peer.get_outputs()]}), flush=True)
def timed():
    begin = time.perf_counter()
    peer.run(None, inputs)
    return time.perf_counter() - begin
for line in sys.stdin:
    order = json.loads(line)
    begin = time.perf_counter()
    timed()
    while time.perf_counter() - begin < order["warmup"]:
        timed()
    print(json.dumps([timed() for _ in range(order["runs"])]), flush=True)
"""


class Failure(Exception):
    """A network that cannot be measured; the text is one line."""


@dataclasses.dataclass
class Case:
    """One network with one number of threads, and the files that its processes share."""

    label: str
    path: str
    shapes: dict  # of inputs whose shape the model leaves open
    threads: int
    folder: str
    program: str
    plan: dict
    inputs: dict

    def file(self, name):
        return os.path.join(self.folder, name)

    def environment(self):
        return dict(os.environ, OMP_NUM_THREADS=str(self.threads))

    def sizes(self):
        """{symbolic dimension: size} for onnxruntime."""
        found = {}
        for value in onnx.load(self.path, load_external_data=False).graph.input:
            dims = value.type.tensor_type.shape.dim
            for dim, size in zip(dims, self.shapes.get(value.name, ()), strict=False):
                if dim.dim_param:
                    found[dim.dim_param] = size
        return found

    def peer_arguments(self):
        return [self.path, self.file("inputs.npz"), str(self.threads), json.dumps(self.sizes())]

    def input_arguments(self):
        arguments = []
        for name in self.inputs:
            arguments += ["--input", f"{name}={self.file('inputs.npz')}:{name}"]
        return arguments


def checked(command, what, seconds=RUN_SECONDS, **rest):
    """Standard output of a process; Failure with its first line of error."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=seconds, check=False, **rest)  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{what}: not done after {seconds} s") from late
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
        raise Failure(f"{what}: exit {done.returncode}: {lines[0]}")
    return done.stdout


class Peer:
    """onnxruntime's process that lives through all rounds."""

    def __init__(self, case):
        results = case.file("peer_outputs.npz")
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER_BEGIN + PEER_SERVER, *case.peer_arguments(), results],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=case.environment())  # fmt: skip
        names = self.answer()["outputs"]
        with np.load(results) as arrays:
            self.outputs = {name: arrays[str(i)] for i, name in enumerate(names)}

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            lines = self.process.stderr.read().strip().splitlines() or ["no message"]
            raise Failure(f"onnxruntime: {lines[-1]}")
        return json.loads(line)

    def block(self, warmup, runs):
        self.process.stdin.write(json.dumps({"warmup": warmup, "runs": runs}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        self.process.wait()


def program_block(case, warmup, runs):
    command = [case.program, "--bench", "--warmup", str(warmup), "--duration", "0",
               "--iterations", str(runs), "--json", "-", *case.input_arguments()]  # fmt: skip
    return json.loads(checked(command, "--bench", env=case.environment()))


def compare(case, wanted):
    """(largest absolute difference, largest relative error) of the outputs."""
    command = [case.program, *case.input_arguments()]
    files = {name: case.file(f"output_{i}.npy") for i, name in enumerate(wanted)}
    for name, file in files.items():
        command += ["--output", f"{name}={file}"]
    checked(command, "running", env=case.environment())
    absolute = relative = 0.0
    for name, want in wanted.items():
        got = np.load(files[name])
        relative = max(relative, compare_ort.relative_error(got, want))
        if got.shape == want.shape and want.size:
            difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
            absolute = max(absolute, float(difference.max()))
    return absolute, relative


def measure_time(case, peer, args):
    """Medians over all rounds, the ratio of each round, and that of the least times."""
    probe = statistics.median(peer.block(args.warmup, BLOCK_RUNS[0]))
    runs = min(max(round(args.block / probe), BLOCK_RUNS[0]), BLOCK_RUNS[1])
    own, other, own_least, other_least, flops = [], [], [], [], 0
    for i in range(args.rounds):
        for ours in (i % 2 == 0, i % 2 != 0):
            if ours:
                block = program_block(case, args.warmup, runs)
                own.append(block["latency_seconds"]["median"])
                own_least.append(block["latency_seconds"]["min"])
                flops = block["flops"]
            else:
                samples = peer.block(args.warmup, runs)
                other.append(statistics.median(samples))
                other_least.append(min(samples))
    rounds = [a / b for a, b in zip(own, other, strict=True)]
    ours, theirs = statistics.median(own), statistics.median(other)
    return {"runs_per_block": runs, "ours_seconds": ours, "onnxruntime_seconds": theirs,
            "ratio": ours / theirs, "round_ratios": rounds,
            "flops": flops, "least_ratio": min(own_least) / min(other_least),
            "ours_rounds": own, "onnxruntime_rounds": other}  # fmt: skip


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


def peer_process(case, script):
    command = [sys.executable, "-c", PEER_BEGIN + script, *case.peer_arguments()]
    return json.loads(checked(command, "onnxruntime", env=case.environment()))


def measure_start(case, output, args):
    """Start-up and memory: both need fresh processes."""
    own, other, own_peaks, other_peaks, bare = [], [], [], [], []
    for _ in range(args.starts):
        own.append(program_start(case, output))
        once = peer_process(case, PEER_ONCE)
        other.append(once["seconds"])
        other_peaks.append(once["bytes"])
        own_peaks.append(program_peak(case, output))
        bare.append(peer_process(case, PEER_IMPORT)["bytes"])
    ours, theirs = statistics.median(own), statistics.median(other)
    start = {"ours_seconds": ours, "onnxruntime_seconds": theirs, "ratio": ours / theirs}
    ours, import_only = statistics.median(own_peaks), statistics.median(bare)
    theirs = statistics.median(other_peaks) - import_only
    reserved = case.plan["reserved_bytes"]
    limit = RESERVED_FACTOR * reserved + RESERVED_MIB * 2**20
    memory = {"ours_bytes": ours, "onnxruntime_bytes": theirs, "import_bytes": import_only,
              "ratio": ours / theirs, "reserved_bytes": reserved, "limit_bytes": limit}  # fmt: skip
    return start, memory


def top_steps(case, count):
    """The steps that take longest, of the program's own profile."""
    command = [case.program, "--bench", "--profile", "--warmup", "0.1", "--duration", "1",
               "--json", "-", *case.input_arguments()]  # fmt: skip
    steps = json.loads(checked(command, "--profile", env=case.environment()))["steps"]
    total = sum(step["seconds"] for step in steps)
    return [dict(step, share=step["seconds"] / total) for step in steps[:count]]


def page(side):
    """Lines of what looks like letters, as PP-OCR's detection takes a picture: in noise a trained
    network sees no text, and its outputs, all next to zero, would compare badly."""
    rng = np.random.default_rng(1)
    picture = np.full((side, side, 3), 240, np.uint8)
    for top in range(32, side - 64, 80):
        for left in range(32, side - 64, 28):
            letter = np.kron(rng.random((7, 5)) < 0.5, np.ones((4, 4), bool))
            picture[top : top + 28, left : left + 20][letter] = 30
    return demo_ocr.normalized(picture, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def make_inputs(path, shapes):
    if os.path.basename(path) == OCR_FILE:
        return {"x": page(OCR_SIDE)}
    return random_inputs(onnx.load(path, load_external_data=False), seed=1, shapes=shapes)


def compile_case(args, label, path, shapes, threads, folder):
    program, plan = os.path.join(folder, "program"), os.path.join(folder, "plan.json")
    command = [args.ullage, "compile", path, "-o", program, "--json", plan]
    if args.target:
        command += ["--target", args.target]
    if args.takes_threads:
        command += ["--threads", str(threads)]
    for name, shape in shapes.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    begin = time.perf_counter()
    checked([*command, *args.options], "compiling", COMPILE_SECONDS)
    seconds = time.perf_counter() - begin
    inputs = make_inputs(path, shapes)
    np.savez(os.path.join(folder, "inputs.npz"), **inputs)
    with open(plan, encoding="utf-8") as f:
        case = Case(label, path, shapes, threads, folder, program, json.load(f), inputs)
    return case, seconds


def find_network(name, seq):
    """(file, shapes of open inputs)"""
    if name is not None:
        request = argparse.Namespace(model=name, small=False, batch=1, seq=seq)
        return compare_ort.model_path(request), {}
    script = os.path.join(ROOT, "scripts", "fetch_ocr.sh")
    folder = checked([script], "fetch_ocr.sh", COMPILE_SECONDS).strip()
    return os.path.join(folder, OCR_FILE), {"x": [1, 3, OCR_SIDE, OCR_SIDE]}


def measure(args, network, threads):
    """One row, as it stands in the JSON."""
    label, name, seq = network
    row = {"network": label, "threads": threads}
    try:
        path, shapes = find_network(name, seq)
        with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
            case, row["compile_seconds"] = compile_case(args, label, path, shapes, threads, folder)
            row["target"] = case.plan["target"]
            peer = Peer(case)
            try:
                absolute, relative = compare(case, peer.outputs)
                row["difference"] = {"absolute": absolute, "relative": relative}
                row["time"] = measure_time(case, peer, args)
            finally:
                peer.close()
            output = smallest_output(peer.outputs)
            row["start"], row["memory"] = measure_start(case, output, args)
            if args.steps:
                row["steps"] = top_steps(case, args.steps)
    except Failure as error:
        row["error"] = str(error)
    row["missed"] = missed(row, max(TOLERANCE, compare_ort.tolerance(args.options)))
    return row


def missed(row, tolerance):
    """What of that which is wanted a row does not reach."""
    if "error" in row:
        return ["error"]
    memory = row["memory"]
    found = {
        "difference": row["difference"]["relative"] > tolerance,
        "time": row["time"]["ratio"] > TIME_LIMIT,
        "memory": memory["ratio"] > MEMORY_LIMIT,
        "reserved": memory["ours_bytes"] > memory["limit_bytes"],
        "start": row["start"]["ratio"] > START_LIMIT,
    }
    return [name for name, bad in found.items() if bad]


def marked(text, row, name):
    return text + ("!" if name in row["missed"] else " ")


HEADER = """\
network          thr | ms    ours    onnxr.  ratio  least (rounds)     GFLOP/s \
| MiB  ours   limit  onnxr. ratio  | start ms onnxr. ratio  | abs.     rel. diff."""


def print_row(row):
    head = f"{row['network']:16} {row['threads']:3} |"
    if "error" in row:
        print(f"{head} FAILED! {row['error']}", flush=True)
        return
    span, memory, start, error = row["time"], row["memory"], row["start"], row["difference"]
    rounds, mib, rate = span["round_ratios"], 2**20, span["flops"] * 1e-9
    print(head,
          f"{span['ours_seconds'] * 1e3:9.2f} {span['onnxruntime_seconds'] * 1e3:9.2f}",
          marked(f"{span['ratio']:6.2f}", row, "time"),
          f"{span['least_ratio']:5.2f} ({min(rounds):.2f}-{max(rounds):.2f})",
          f"{rate / span['ours_seconds']:4.0f} {rate / span['onnxruntime_seconds']:4.0f} |",
          marked(f"{memory['ours_bytes'] / mib:8.1f}", row, "reserved"),
          f"{memory['limit_bytes'] / mib:6.1f} {memory['onnxruntime_bytes'] / mib:7.1f}",
          marked(f"{memory['ratio']:.2f}", row, "memory"), "|",
          f"{start['ours_seconds'] * 1e3:7.1f} {start['onnxruntime_seconds'] * 1e3:7.1f}",
          marked(f"{start['ratio']:.2f}", row, "start"), "|",
          f"{error['absolute']:.1e}", marked(f"{error['relative']:.1e}", row, "difference"),
          flush=True)  # fmt: skip
    for step in row.get("steps", []):
        rate = 1e-9 / max(step["seconds"], 1e-12)
        print(f"    {step['share']:6.1%} {step['seconds'] * 1e6:9.1f} us "
              f"{step['flops'] * rate:7.1f} GFLOP/s {step['moved_bytes'] * rate:6.1f} GB/s  "
              f"{step['op']}  {step['node']}", flush=True)  # fmt: skip


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summarise(rows, threads):
    """{what: geometric means over the rows measured}, for each thread count and over all."""
    groups = {str(count): [row for row in rows if row["threads"] == count] for count in threads}
    if len(threads) > 1:
        groups["all"] = rows
    means = {}
    for name, group in groups.items():
        good = [row for row in group if "error" not in row]
        if not good:
            continue
        means[name] = {what: geometric_mean([row[what]["ratio"] for row in good])
                       for what in ("time", "memory", "start")}  # fmt: skip
        means[name].update(measured=len(good), asked=len(group))
    return means


def print_summary(rows, means):
    for name, mean in means.items():
        who = "all thread counts" if name == "all" else f"{name} thread{'s' * (name != '1')}"
        mark = "!" if mean["time"] > TIME_MEAN_LIMIT else ""
        print(
            f"geometric mean, {who}, {mean['measured']} of {mean['asked']}: "
            f"time {mean['time']:.3f}{mark}, memory {mean['memory']:.3f}, "
            f"start-up {mean['start']:.3f}"
        )
    for row in rows:
        if row["missed"]:
            print(f"missed: {row['network']}, threads {row['threads']}: {', '.join(row['missed'])}")


def machine():
    import onnxruntime

    found = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
             "onnxruntime": onnxruntime.__version__}  # fmt: skip
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                found["processor"] = line.split(":", 1)[1].strip()
                break
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/release/cli/ullage"))
    parser.add_argument("--target", help="default: the compiler's own")
    parser.add_argument("--only", default="", help="names of networks, with commas between")
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas between")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of blocks")
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
    labels = [label for label, _, _ in NETWORKS]
    args.only = args.only.split(",") if args.only else labels
    for name in args.only:
        if name not in labels:
            parser.error(f"no network {name}; there are {', '.join(labels)}")
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
        f"{about['processor']}, {about['cores']} cores, onnxruntime {about['onnxruntime']}; "
        f"target {args.target or 'of the compiler by default'}; ratios are ours / onnxruntime"
    )
    print(HEADER)
    rows = []
    for threads in args.threads:
        for network in NETWORKS:
            if network[0] in args.only:
                rows.append(measure(args, network, threads))
                print_row(rows[-1])
    means = summarise(rows, args.threads)
    print_summary(rows, means)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"machine": about, "options": args.options, "geometric_means": means,
                       "rows": rows}, f, indent=1)  # fmt: skip
            f.write("\n")
    slow = any(mean["time"] > TIME_MEAN_LIMIT for mean in means.values())
    sys.exit(6 if slow or any(row["missed"] for row in rows) else 0)


if __name__ == "__main__":
    main()
