#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of target cuda against PyTorch and onnxruntime on one GPU, in the same run.

    gpu.sh [--ullage build/release/cli/ullage] [--only RE] [--precision fp32,fp16] [--tf32]
           [--peers eager,compile,onnxruntime] [--rounds 5] [--runs 30] [--json FILE]
           [--seconds S] [-- COMPILE OPTIONS]
    gpu.sh --table FILE.json ...        the table alone, of runs before (max-autotune takes minutes)
    gpu.sh --planned                    what ours will reserve; needs no GPU

ResNet-50 of batch 1 and 32, BERT-base of 1x128 and 8x512, GPT-2 of 1x1024, U-Net of 1x512x512, the
ONNX files of models/ and the same networks in PyTorch with the same weights (gpu_networks.py). All
take and give float32, whatever they compute in. --precision int8: ResNet-50 of batch 1 and BERT-base of
1x128 as onnxruntime's quantizers write them (models/quantized.py), beside onnxruntime alone.

time      medians of runs in blocks that alternate between all of them, after a warm-up, by the
          device's events, without copies of inputs and outputs; ours by the program's --bench.
          PyTorch: eager, and torch.compile(mode="max-autotune"), which captures CUDA graphs;
          convolution networks channels-last. onnxruntime (float32): its CUDA provider, buffers
          bound on the device. TF32 is off for all, or on for all with --tf32.
memory    ours: reserved less weights, as planned and as --memory finds it allocated. PyTorch's:
          max_memory_reserved over runs after the warm-up, when what only compiling took was given
          back, less the bytes of parameters and buffers. Neither counts the context.
results   the relative difference (2-norm) of the outputs from those of eager PyTorch.

Wanted: time at most torch.compile's; memory at most half of PyTorch's (of eager and compile, the
less), and reserved at most its max_memory_reserved. What misses that is marked "!", exit code 6.
Without PyTorch or without its CUDA, it says so and measures ours alone.
--seconds ends it in time: all programs are compiled first, at once; then all networks are measured
without torch.compile, which takes minutes each; then with it, while there is time. With --json, the
same command given again goes on where it ended, and the table has all of it.
--dry-run tries all of it on networks scaled down, PyTorch on the CPU and ours on whatever NVCC
compiles for, such as tests/cuda_emulation/nvcc: its times mean nothing, and none is judged.
"""

import argparse
import atexit
import concurrent.futures
import datetime
import gc
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "ref"), os.path.join(ROOT, "models")]

import make  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import random_inputs  # noqa: E402

# Label, name in models/make.py, batch, length of a sequence or side of a picture.
NETWORKS = [
    ("ResNet-50 1", "resnet50", 1, None),
    ("ResNet-50 32", "resnet50", 32, None),
    ("BERT-base 1x128", "bert_base", 1, 128),
    ("BERT-base 8x512", "bert_base", 8, 512),
    ("GPT-2 1x1024", "gpt2", 1, 1024),
    ("U-Net 1x512x512", "unet", 1, 512),
]
# By label: what is measured as integers too, of models/quantized.py.
QUANTIZED = {"ResNet-50 1": "resnet50_qdq", "BERT-base 1x128": "bert_base_dynamic"}
PICTURES = ("resnet50", "unet")
PEERS = ("eager", "compile", "onnxruntime")
# Relative differences from eager PyTorch that are rounding, by precision.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "fp16": 2e-2, "bf16": 1e-1, "int8": 1e-1}
TIME_LIMIT, MEMORY_LIMIT, RESERVED_LIMIT = 1.0, 0.5, 1.0
MIB = 2**20
LATE = "no time was left"
COMPILE_SECONDS = 60  # less is no time for torch.compile


class Failure(Exception):
    """Something that cannot be measured; the text is one line."""


def left(args):
    """Seconds that what begins now may take."""
    if args.deadline is None:
        return args.timeout
    seconds = min(args.timeout, args.deadline - time.monotonic())
    if seconds <= 0:
        raise Failure(LATE)
    return seconds


# ---- a peer: a process that lives through all rounds and answers each line with times ----


def torch_peer(order):
    """(run, outputs of a run, facts); run(n) gives n times in seconds."""
    import gpu_networks
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = order["tf32"]
    torch.set_grad_enabled(False)
    device = torch.device(order["device"])
    on_gpu = device.type == "cuda"
    dtypes = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    dtype = dtypes[order["precision"]]
    if not on_gpu and dtype == torch.float16:
        dtype = torch.float32  # PyTorch's CPU has no half convolution; a dry run judges nothing
    pictures = order["network"] in PICTURES
    layout = {"memory_format": torch.channels_last} if pictures else {}
    module = gpu_networks.build(order["network"], onnx.load(order["model"]))
    module = module.to(device=device, dtype=dtype, **layout)
    held = [*module.parameters(), *module.buffers()]
    state_bytes = sum(tensor.numel() * tensor.element_size() for tensor in held)
    inputs = {}
    for name, array in np.load(order["inputs"]).items():
        tensor = torch.from_numpy(array).to(device)
        inputs[name] = tensor.to(**layout) if pictures else tensor
    values = gpu_networks.arguments(order["network"], inputs)

    def call(*values):
        results = module(*(v.to(dtype) if v.is_floating_point() else v for v in values))
        return tuple(y.float() for y in (results if isinstance(results, tuple) else (results,)))

    begin_step = None
    if order["peer"] == "compile":
        call = torch.compile(call, mode="max-autotune")
        compiler = getattr(torch, "compiler", None)
        begin_step = getattr(compiler, "cudagraph_mark_step_begin", None)

    def once():
        if begin_step is not None:
            begin_step()
        return call(*values)

    def timed():
        if not on_gpu:
            begin = time.perf_counter()
            once()
            return time.perf_counter() - begin
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        once()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1000

    outputs = [tensor.cpu().numpy() for tensor in once()]
    facts = {"version": torch.__version__, "state_bytes": state_bytes}
    for _ in range(order["warmup_runs"]):
        timed()
    if on_gpu:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()  # what compiling and choosing algorithms left
        torch.cuda.reset_peak_memory_stats()
        for _ in range(3):
            timed()
        facts["reserved_bytes"] = torch.cuda.max_memory_reserved()
        facts["device"] = torch.cuda.get_device_name()
        facts["cudnn"] = torch.backends.cudnn.version()
    return timed, outputs, facts


def onnxruntime_peer(order):
    import onnxruntime

    on_gpu = order["device"] == "cuda"
    name = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
    if name not in onnxruntime.get_available_providers():
        raise Failure(f"onnxruntime has no {name}")
    provider = (name, {"use_tf32": "1" if order["tf32"] else "0"}) if on_gpu else name
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(order["model"], options, providers=[provider])
    if session.get_providers()[0] != name:
        raise Failure(f"onnxruntime's {name} does not start here")
    binding, place = session.io_binding(), "cuda" if on_gpu else "cpu"
    for name, array in np.load(order["inputs"]).items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, place, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, place)

    def timed():  # run_with_iobinding waits for the device
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        return time.perf_counter() - begin

    for _ in range(order["warmup_runs"]):
        timed()
    outputs = [value.numpy() for value in binding.get_outputs()]
    return timed, outputs, {"version": onnxruntime.__version__}


def serve(order):
    """The process of a peer: a line of facts, then a line of times for each number on its input."""
    try:
        start = onnxruntime_peer if order["peer"] == "onnxruntime" else torch_peer
        timed, outputs, facts = start(order)
    except ImportError as error:
        print(json.dumps({"error": f"not installed: {error.name}"}), flush=True)
        return
    except Exception as error:  # noqa: BLE001 whatever a peer fails with is its row's text
        text = str(error).strip().splitlines() or [type(error).__name__]
        print(json.dumps({"error": text[0]}), flush=True)
        return
    np.savez(order["outputs"], **{str(i): array for i, array in enumerate(outputs)})
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        print(json.dumps([timed() for _ in range(int(line))]), flush=True)


class Peer:
    def __init__(self, order, args):
        self.args, self.name, self.samples = args, order["peer"], []
        self.log = order["outputs"] + ".log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [order["python"], os.path.abspath(__file__), "--serve", json.dumps(order)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)  # fmt: skip
        self.facts = self.answer()
        if "error" not in self.facts:
            with np.load(order["outputs"]) as arrays:
                self.outputs = [arrays[str(i)] for i in range(len(arrays.files))]

    def answer(self):
        """The next line that is JSON: compilers print, too."""
        seconds = left(self.args)
        ended = threading.Event()
        timer = threading.Timer(seconds, lambda: (ended.set(), self.process.kill()))
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(("{", "[")):
                    return json.loads(line)
        finally:
            timer.cancel()
        if ended.is_set():
            late = self.args.deadline is not None and seconds < self.args.timeout
            return {"error": LATE if late else f"not done after {seconds:.0f} s"}
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines() or ["no message"]
        return {"error": f"ended: {lines[-1][:200]}"}

    def block(self, runs):
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        times = self.answer()
        if isinstance(times, dict):
            raise Failure(f"{self.name}: {times['error']}")
        self.samples.append(statistics.median(times))

    def close(self):
        if self.process.poll() is None and self.args.deadline is not None:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


# ---- ours ----


def checked(command, what, seconds):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=seconds, check=False)  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{what}: not done after {seconds:.0f} s") from late
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
        errors = [line for line in lines if "error" in line]
        raise Failure(f"{what}: exit {done.returncode}: {(errors or lines)[0]}")
    return done.stdout


class Program:
    def __init__(self, args, model, names, precision, folder):
        os.makedirs(folder)
        self.args, self.samples = args, []
        self.path, plan = os.path.join(folder, "program"), os.path.join(folder, "plan.json")
        command = [args.ullage, "compile", model, "-o", self.path, "--target", args.target,
                   "--json", plan]  # fmt: skip
        if precision not in ("fp32", "int8"):
            command += ["--precision", precision]
        if args.tf32:
            command.append("--tf32")
        begin = time.perf_counter()
        checked([*command, *args.options], "compiling", left(args))
        self.compile_seconds = time.perf_counter() - begin
        with open(plan, encoding="utf-8") as file:
            self.plan = json.load(file)
        self.inputs = []
        for name in names:
            self.inputs += ["--input", f"{name}={os.path.dirname(model)}/inputs.npz:{name}"]

    def outputs(self, names, folder):
        command = [self.path, *self.inputs]
        files = [os.path.join(folder, f"own_{i}.npy") for i in range(len(names))]
        for name, file in zip(names, files, strict=True):
            command += ["--output", f"{name}={file}"]
        checked(command, "running", left(self.args))
        return [np.load(file) for file in files]

    def block(self, runs):
        command = [self.path, "--bench", "--warmup", str(self.args.warmup), "--duration", "0",
                   "--iterations", str(runs), "--json", "-", *self.inputs]  # fmt: skip
        answer = json.loads(checked(command, "--bench", left(self.args)))
        self.samples.append(answer["latency_seconds"]["median"])

    def memory(self):
        command = [self.path, "--memory", "--random", "1", "--json", "-"]
        answer = json.loads(checked(command, "--memory", left(self.args)))
        device = answer.get("device", {})
        allocated = device.get("allocated_bytes", answer["reserved_bytes"])
        if not answer["reserved_bytes"] == allocated == self.plan["reserved_bytes"]:
            raise Failure(f"allocated {allocated} bytes, planned {self.plan['reserved_bytes']}")
        return {"reserved_bytes": allocated, "weights_bytes": self.plan["rows"]["weights"],
                "context_bytes": device.get("context_bytes"),
                "device": device.get("name")}  # fmt: skip


# ---- one row ----


def resized(model, side):
    """A network of convolutions takes pictures of any size; only inputs and outputs name one."""
    for value in [*model.graph.input, *model.graph.output]:
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.dim_value = side
    return model


def model_file(args, folder, name, batch, size):
    if args.dry_run and size is not None:
        size = min(size, 32)
    model = make.make(name, batch, size if name not in PICTURES else None, args.dry_run)
    if name in PICTURES and size is not None:
        model = resized(model, size)
    path = os.path.join(folder, "model.onnx")
    make.save(model, path)
    return path, model


def quantized_file(path, label):
    """The model at path as integers, beside it."""
    try:
        import quantized
    except ImportError as error:
        raise Failure(f"not installed: {error.name}") from error
    _, method, options = quantized.NETWORKS[QUANTIZED[label]]
    out = os.path.join(os.path.dirname(path), "model_int8.onnx")
    quantized.quantize(path, out, method, options)
    return out


def relative_error(got, want):
    if got.shape != want.shape:
        return math.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
    return float(error) if math.isfinite(error) else math.inf


def runs_in(peer, precision):
    """PyTorch has no integers here, onnxruntime's provider no 16 bits."""
    return (precision in ("fp32", "int8")) if peer == "onnxruntime" else precision != "int8"


def start_peers(args, wanted, folder, name, precision, model):
    peers, errors = {}, {}
    for peer in wanted:
        if not runs_in(peer, precision):
            continue
        order = {"python": args.peer_python, "peer": peer, "network": name, "model": model,
                 "precision": precision,
                 "device": "cpu" if args.dry_run else "cuda", "tf32": args.tf32,
                 "warmup_runs": args.warmup_runs,
                 "inputs": os.path.join(os.path.dirname(model), "inputs.npz"),
                 "outputs": os.path.join(folder, peer + ".npz")}  # fmt: skip
        if peer == "compile" and args.deadline is not None and left(args) < COMPILE_SECONDS:
            errors[peer] = LATE
            continue
        started = Peer(order, args)
        if "error" in started.facts:
            errors[peer] = started.facts["error"]
            started.close()
        else:
            peers[peer] = started
    return peers, errors


class Case:
    """A network of one precision: the program, and what its peers need."""

    def __init__(self, args, network, precision, path, model, folder):
        self.label, self.name = network[0], network[1]
        if precision == "int8":
            path = quantized_file(path, self.label)
        self.precision, self.path, self.folder = precision, path, folder
        self.outputs = [output.name for output in model.graph.output]
        names = [value.name for value in model.graph.input]
        self.program = Program(args, path, names, precision, folder)


def key_of(args, network, precision):
    return network[0], "tf32" if args.tf32 and precision == "fp32" else precision


def compile_all(args, wanted, folder, pool):
    """{(label, precision): Case or Failure}; nothing is measured while compilers run."""
    jobs = {}
    for i, (network, precisions) in enumerate(wanted):
        label, name, batch, size = network
        print(f"{time.monotonic() - args.begin:4.0f} s  making {label}", file=sys.stderr, flush=True)
        below = os.path.join(folder, str(i))
        os.makedirs(below)
        path, model = model_file(args, below, name, batch, size)
        np.savez(os.path.join(below, "inputs.npz"), **random_inputs(model, seed=1))
        model.graph.ClearField("initializer")
        for precision in precisions:
            jobs[key_of(args, network, precision)] = pool.submit(
                Case, args, network, precision, path, model, os.path.join(below, precision))
    cases = {}
    for key, job in jobs.items():
        try:
            cases[key] = job.result()
        except Failure as failure:
            cases[key] = failure
    return cases


def measure_case(args, key, case, wanted):
    if isinstance(case, Failure):
        raise case
    row = {"network": key[0], "precision": key[1]}
    program, program.samples = case.program, []
    row["compile_seconds"] = program.compile_seconds
    row["ours"] = program.memory()
    own = program.outputs(case.outputs, case.folder)
    peers, row["errors"] = start_peers(args, wanted, case.folder, case.name, case.precision,
                                       case.path)  # fmt: skip
    try:
        for i in range(args.rounds):
            turn = [program, *peers.values()]
            for each in turn if i % 2 == 0 else reversed(turn):
                each.block(args.runs)
    finally:
        for peer in peers.values():
            peer.close()
    row["ours"]["seconds"] = statistics.median(program.samples)
    row["ours"]["rounds"] = program.samples
    for name, peer in peers.items():
        row[name] = dict(peer.facts, seconds=statistics.median(peer.samples), rounds=peer.samples)
    if peers:
        want = peers.get("eager", next(iter(peers.values()))).outputs
        row["difference"] = max(relative_error(a, b) for a, b in zip(own, want, strict=True))
    return row


def measure(args, key, case, wanted):
    try:
        row = measure_case(args, key, case, wanted)
    except Failure as error:
        row = {"network": key[0], "precision": key[1], "failure": str(error), "errors": {}}
    row["dry_run"] = args.dry_run
    return row


def lacks(row, wanted):
    """Whether a row is to be measured, or measured again with more peers."""
    if row is None or "failure" in row:
        return True
    for peer in wanted:
        known = peer in row or not runs_in(peer, row["precision"])
        if not known and row["errors"].get(peer, LATE) == LATE:
            return True
    return False


def measure_all(args, cases, rows):
    """Measures what `rows`, {key: row}, lacks; passes the rows on each time there is a new one."""
    passes = [args.peers]
    if args.deadline is not None and "compile" in args.peers:
        passes = [[peer for peer in args.peers if peer != "compile"], args.peers]
    for wanted in passes:
        for key, case in cases.items():
            before = rows.get(key)
            if not lacks(before, wanted):
                continue
            row = measure(args, key, case, wanted)
            if before is not None and "failure" not in before and "failure" in row:
                late = dict(before["errors"], compile=row["failure"])
                row = dict(before, errors=late)  # what there is, is kept
            rows[key] = row
            print(f"{time.monotonic() - args.begin:4.0f} s  " + summary(row), file=sys.stderr,
                  flush=True)  # fmt: skip
            if args.json:
                write_rows(args.json, machine_facts(list(rows.values())), [row])


def print_planned(args):
    """Bytes of a plan, with the outputs, which nothing makes smaller, beside them."""
    print("| network | precision | reserved, MiB | weights | beyond | outputs |")
    print("|" + "---|" * 6)
    for label, name, batch, size in NETWORKS:
        with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
            if not re.search(args.only, label):
                continue
            path, model = model_file(args, folder, name, batch, size)
            shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim]
                      for value in model.graph.output]  # fmt: skip
            outputs = sum(4 * math.prod(shape) for shape in shapes)
            for precision in args.precision:
                if precision == "int8":
                    if label not in QUANTIZED:
                        continue
                    path = quantized_file(path, label)
                command = [args.ullage, "plan", path, "--target", args.target, "--json", "-",
                           *args.options]  # fmt: skip
                if precision != "int8":
                    command += ["--precision", precision]
                plan = json.loads(checked(command, "planning", left(args)))
                reserved, weights = plan["reserved_bytes"], plan["rows"]["weights"]
                figures = (reserved, weights, reserved - weights, outputs)
                cells = " | ".join(f"{figure / MIB:.1f}" for figure in figures)
                print(f"| {label} | {precision} | {cells} |", flush=True)


# ---- the table ----


def ratios(row):
    """What is judged, {what: ratio}; what cannot be known is not there."""
    found = {}
    if "ours" not in row:
        return found
    ours = row["ours"]
    for key in ("eager", "compile", "onnxruntime"):
        if key in row:
            found[key] = ours["seconds"] / row[key]["seconds"]
    others = [row[key] for key in ("eager", "compile") if "reserved_bytes" in row.get(key, {})]
    if others:
        beyond = min(other["reserved_bytes"] - other["state_bytes"] for other in others)
        found["memory"] = (ours["reserved_bytes"] - ours["weights_bytes"]) / max(beyond, 1)
        found["reserved"] = ours["reserved_bytes"] / min(o["reserved_bytes"] for o in others)
    return found


def missed(row):
    if "failure" in row:
        return {"failure"}
    found = ratios(row)
    limits = {"compile": TIME_LIMIT, "memory": MEMORY_LIMIT, "reserved": RESERVED_LIMIT}
    bad = {key for key, limit in limits.items() if found.get(key, 0) > limit and not row["dry_run"]}
    if row.get("difference", 0) > TOLERANCE[row["precision"]]:
        bad.add("difference")
    return bad


HEADER = ["network", "precision", "ms", "eager", "compile", "onnxr.", "of eager", "of compile",
          "of onnxr.", "MiB", "eager", "compile", "ratio", "reserved", "PyTorch", "ratio",
          "difference"]  # fmt: skip


def cells_of(row):
    found, bad = ratios(row), missed(row)

    def ms(key):
        return f"{row[key]['seconds'] * 1000:.3f}" if key in row else "-"

    def ratio(key):
        return "-" if key not in found else f"{found[key]:.2f}{'!' if key in bad else ''}"

    def mib(key, what):
        facts = row.get(key, {})
        if "reserved_bytes" not in facts:
            return "-"
        less = facts.get("state_bytes", facts.get("weights_bytes")) if what == "beyond" else 0
        return f"{(facts['reserved_bytes'] - less) / MIB:.1f}"

    reserved = [row[key]["reserved_bytes"] for key in ("eager", "compile")
                if "reserved_bytes" in row.get(key, {})]  # fmt: skip
    difference = row.get("difference")
    mark = "!" if "difference" in bad else ""
    return [row["network"], row["precision"], ms("ours"), ms("eager"), ms("compile"),
            ms("onnxruntime"), ratio("eager"), ratio("compile"), ratio("onnxruntime"),
            mib("ours", "beyond"), mib("eager", "beyond"), mib("compile", "beyond"),
            ratio("memory"), mib("ours", "all"),
            f"{min(reserved) / MIB:.1f}" if reserved else "-", ratio("reserved"),
            "-" if difference is None else f"{difference:.1e}{mark}"]  # fmt: skip


def summary(row):
    """One line, as it goes."""
    if "failure" in row:
        return f"{row['network']} {row['precision']}: {row['failure']}"
    times = [f"{key} {row[key]['seconds'] * 1000:.3f} ms" for key in ("ours", *PEERS) if key in row]
    return f"{row['network']} {row['precision']}: {', '.join(times)}"


def print_table(facts, rows):
    if any(row["dry_run"] for row in rows):
        print("DRY RUN: networks scaled down, PyTorch on the CPU; times mean nothing.\n")
    print("; ".join(f"{key} {value}" for key, value in facts.items() if value))
    print("\nMiB: beyond weights. reserved: all of it, beside the least of PyTorch's.\n")
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER))
    notes = []
    for row in rows:
        if "failure" in row:
            print(f"| {row['network']} | {row['precision']} | FAILED! {row['failure']} |"
                  + " |" * (len(HEADER) - 3))  # fmt: skip
        else:
            print("| " + " | ".join(cells_of(row)) + " |")
        notes += [f"{peer}: {error}" for peer, error in row["errors"].items()]
    for note in sorted(set(notes)):
        print(f"\nnot measured: {note}")
    compiled = [ratios(row)["compile"] for row in rows if "compile" in ratios(row)]
    if compiled:
        mean = math.exp(sum(map(math.log, compiled)) / len(compiled))
        print(f"\ntime of torch.compile's, geometric mean: {mean:.2f}")


def machine_facts(rows):
    """GPU, driver, versions, date: what a table is worth nothing without."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        names = checked(query, "nvidia-smi", 60).splitlines()[0].split(", ")
    except (Failure, FileNotFoundError, IndexError):
        names = [next((row["ours"].get("device") for row in rows if "ours" in row), None), None]
    versions = {key: row[key].get("version") for row in rows for key in ("eager", "onnxruntime")
                if key in row}  # fmt: skip
    return {"GPU": names[0], "driver": names[-1], "PyTorch": versions.get("eager"),
            "onnxruntime": versions.get("onnxruntime"),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}  # fmt: skip


# ---- the command ----


def choices(known):
    def parse_list(text):
        items = [item for item in text.split(",") if item]
        for item in items:
            if item not in known:
                raise argparse.ArgumentTypeError(f"{item}: expected some of {', '.join(known)}")
        return items

    return parse_list


def number(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return int(text)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(1, f"gpu.sh: {message}\n")


def unpacked(bundle):
    """The compiler in what bundle.sh packed."""
    folder = tempfile.mkdtemp(prefix="ullage-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(bundle) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter # Debian 12's Python 3.11.2 has none
        archive.extractall(folder)
    return os.path.join(folder, "ullage")


def parse(argv):
    at = argv.index("--") if "--" in argv else len(argv)
    parser = Parser(prog="gpu.sh", description=__doc__.split("\n")[0])
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/release/cli/ullage"))
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--only", default=".", metavar="RE", help="networks by their label")
    parser.add_argument("--precision", type=choices(("fp32", "fp16", "bf16", "int8")), default="fp32,fp16")
    parser.add_argument("--peers", type=choices(PEERS), default=",".join(PEERS))
    parser.add_argument("--tf32", action="store_true", help="for all of them")
    parser.add_argument("--rounds", type=number, default=5)
    parser.add_argument("--runs", type=number, default=30, help="in a block")
    parser.add_argument("--warmup", type=float, default=0.2, help="seconds, of a block of ours")
    parser.add_argument("--warmup-runs", type=number, default=10, help="of a peer")
    parser.add_argument("--timeout", type=number, default=1200, help="seconds, of one thing")
    parser.add_argument("--seconds", type=number, help="of all of it")
    parser.add_argument("--jobs", type=number, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--peer-python", default=sys.executable, metavar="COMMAND",
                        help="the Python that has PyTorch, where it is another")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="the rows; added to those it holds")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print those rows, measure none")
    parser.add_argument("--planned", action="store_true", help="print what plans reserve")
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]
    args.begin = time.monotonic()
    args.deadline = args.begin + args.seconds if args.seconds else None
    if not args.table and not any(re.search(args.only, label) for label, *_ in NETWORKS):
        parser.error(f"--only {args.only}: no such network")
    args.ullage = os.path.abspath(args.ullage)
    if args.ullage.endswith(".tar.gz") and not args.table and os.path.exists(args.ullage):
        args.ullage = unpacked(args.ullage)
    if not args.table and not os.access(args.ullage, os.X_OK):
        parser.error(f"{args.ullage}: no such program; --ullage names the compiler")
    return args


def read_rows(files):
    facts, rows = {}, {}
    for file in files:
        with open(file, encoding="utf-8") as stream:
            content = json.load(stream)
        facts.update({key: value for key, value in content["facts"].items() if value})
        rows.update({(row["network"], row["precision"]): row for row in content["rows"]})
    return facts, list(rows.values())


def write_rows(file, facts, rows):
    if os.path.exists(file):
        before, others = read_rows([file])
        facts = {**before, **{key: value for key, value in facts.items() if value}}
        fresh = {(row["network"], row["precision"]) for row in rows}
        rows = [row for row in others if (row["network"], row["precision"]) not in fresh] + rows
    with open(file + ".part", "w", encoding="utf-8") as stream:
        json.dump({"facts": facts, "rows": rows}, stream, indent=1)
    os.replace(file + ".part", file)


def measured(args):
    """(facts, rows) of what was asked for; with --seconds, those measured before among them."""
    rows = {}
    if args.deadline is not None and args.json and os.path.exists(args.json):
        rows = {(row["network"], row["precision"]): row for row in read_rows([args.json])[1]
                if row["dry_run"] == args.dry_run}  # fmt: skip
    wanted = []
    for network in NETWORKS:
        precisions = [precision for precision in args.precision
                      if (precision != "int8" or network[0] in QUANTIZED)
                      and lacks(rows.get(key_of(args, network, precision)), args.peers)]  # fmt: skip
        if re.search(args.only, network[0]) and precisions:
            wanted.append((network, precisions))
    with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            cases = compile_all(args, wanted, folder, pool)
        measure_all(args, cases, rows)
    labels = [network[0] for network in NETWORKS]
    found = sorted(rows.values(), key=lambda row: labels.index(row["network"]))
    return machine_facts(found), found


def main():
    argv = sys.argv[1:]
    if argv[:1] == ["--serve"]:
        serve(json.loads(argv[1]))
        return
    args = parse(argv)
    if args.planned:
        try:
            print_planned(args)
        except Failure as error:
            sys.exit(f"gpu.sh: {error}")
        return
    if args.table:
        facts, rows = read_rows(args.table)
    else:
        facts, rows = measured(args)
    if not rows:
        sys.exit(f"gpu.sh: {' '.join(args.table or [])}: no network was measured")
    print_table(facts, rows)
    late = any(LATE in row["errors"].values() for row in rows)
    sys.exit(6 if late or any(missed(row) for row in rows) else 0)


if __name__ == "__main__":
    main()
