# SPDX-License-Identifier: Apache-2.0
"""Latency of networks and time of training steps beside PyTorch, on a GPU that is there for minutes.

    once_bench.py --ullage BUNDLE.tar.xz --seconds 300 --rows FILE.tsv --json FILE.json --logs DIR [--gate FILE] [--cases 'LABEL:PRECISION|...']

Models are made, programs compiled and PyTorch's processes started at the same time, on all cores. When the gate is there, or
half of the time is over, what is ready is measured in turns, one thing at a time: ours, eager, torch.compile, and again. What
is not ready by then is measured last, if it is ready then; the rows say so else.

launched  each step of ours launched by itself, the sum of what they take; of PyTorch a run that is waited for, eager
replayed  median of runs that are waited for: of ours the captured graph, of PyTorch what torch.compile(mode="reduce-overhead")
          makes of it
in a row  seconds of 30 runs over 30: of ours each copies its inputs and outputs and is waited for, of PyTorch only the last is
tuned     replayed, with the algorithms that --tune found, while there is time for that
bytes     reserved; what the arena took of cudaMemGetInfo's; what the driver counts for the process (nvidia-smi), and how much
          more of the device is in use while it runs; context, libraries, code and graph apart. PyTorch: max_memory_reserved
          beside the driver's
training  forward, loss, backward, AdamW (fused) under autocast in bfloat16; the losses of the first three steps are compared
Exit: 0 all is well, 6 something failed, 3 there is no device.
"""

import argparse
import concurrent.futures
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))
import gpu  # noqa: E402  tests/bench/gpu.py
import numpy as np  # noqa: E402

# Label, network of models/make.py, batch, length of a sequence or side of a picture.
NETWORKS = {label: (name, batch, size) for label, name, batch, size in [*gpu.NETWORKS, ("LSTM 1x50", "lstm", 1, 50)]}
# Label, network, batch, length; options of the compiler; classes that labels are drawn from.
TRAINING = {
    "train GPT-2 4x512": ("gpt2", 4, 512, ["--class-axis", "-1"], 50257),
    "train ResNet-50 32": ("resnet50", 32, None, ["--train-mode"], 1000),
    "train BERT-base 8x128": ("bert_base", 8, 128, ["--output", "last_hidden_state", "--class-axis", "-1"], 768),
}
# What tells most comes first.
CASES = ["GPT-2 1x1024:fp16", "ResNet-50 32:fp16", "BERT-base 8x512:fp16", "train GPT-2 4x512:bf16", "train ResNet-50 32:bf16",
         "train BERT-base 8x128:bf16", "ResNet-50 1:fp16", "BERT-base 1x128:fp16", "U-Net 1x512x512:fp16", "LSTM 1x50:fp16",
         "GPT-2 1x1024:bf16", "ResNet-50 32:bf16", "BERT-base 8x512:bf16", "ResNet-50 1:bf16", "BERT-base 1x128:bf16",
         "U-Net 1x512x512:bf16", "LSTM 1x50:bf16"]  # fmt: skip
PEERS = ("eager", "compile")
RUNS, DRY_RUNS, LOSSES = 30, 2, 3
TUNE_SECONDS = 60  # less is left to the cases that follow


# ---- PyTorch, a process for each network and peer ----


def build_module(order, device):
    import gpu_networks
    import onnx

    return gpu_networks.build(order["network"], onnx.load(order["model"])).to(device=device)


def inference(order, precision, device):
    """(a run, outputs) of a network."""
    import gpu_networks
    import torch

    pictures = order["network"] in gpu.PICTURES
    layout = {"memory_format": torch.channels_last} if pictures else {}
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    if device == "cpu":
        dtype = torch.float32  # PyTorch's CPU lacks operators of fp16
    module = build_module(order, device).to(dtype=dtype, **layout)
    inputs = {name: torch.from_numpy(array).to(device, **(layout if array.ndim == 4 else {}))
              for name, array in np.load(order["inputs"]).items()}  # fmt: skip
    values = gpu_networks.arguments(order["network"], inputs)

    def call(*values):
        with torch.no_grad():
            results = module(*(v.to(dtype) if v.is_floating_point() else v for v in values))
            return tuple(y.float() for y in (results if isinstance(results, tuple) else (results,)))

    if order["peer"] == "compile":
        call = torch.compile(call, mode="reduce-overhead")
    return lambda: call(*values), lambda results: [tensor.cpu().numpy() for tensor in results]


def training(order, precision, device):
    """(a step, losses of the first ones) of a network."""
    import gpu_networks
    import torch
    from torch.nn import functional

    layout = {"memory_format": torch.channels_last} if order["network"] in gpu.PICTURES else {}
    module = build_module(order, device).to(**layout).requires_grad_(True).train()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    arrays = np.load(order["inputs"])
    labels = torch.from_numpy(arrays["labels"]).to(device)
    inputs = {name: torch.from_numpy(array).to(device, **(layout if array.ndim == 4 else {}))
              for name, array in arrays.items() if name != "labels"}  # fmt: skip
    values = gpu_networks.arguments(order["network"], inputs)

    def loss_of(*values):
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            results = module(*values)
            logits = results[0] if isinstance(results, tuple) else results
            return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())

    if order["peer"] == "compile":
        loss_of = torch.compile(loss_of, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def step():
        loss = loss_of(*values)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, lambda loss: [np.array([float(loss)])]


def prepare_variant(order, precision):
    import torch

    device = order["device"]
    reserved = torch.cuda.memory_reserved() if device == "cuda" else 0
    run, read = (training if order["training"] else inference)(order, precision, device)
    mark = getattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)

    def once():
        mark()
        return run()

    outputs = []
    for i in range(LOSSES if order["training"] else 1):
        arrays = read(once())
        outputs += arrays
    for _ in range(3 if device == "cuda" else 0):
        once()
    facts = {"version": torch.__version__}
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        once()
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        facts.update(reserved_bytes=torch.cuda.max_memory_reserved() - reserved, in_use_bytes=total - free)
    np.savez(f"{order['outputs']}-{precision}.npz", *outputs)
    return once, facts


def measured(once, device, runs):
    """(median of runs that are waited for, seconds of a run in a row)."""
    import torch

    on_gpu = device == "cuda"
    times = []
    once()
    for _ in range(runs):
        if on_gpu:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            once()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last) / 1000)
        else:
            begin = time.perf_counter()
            once()
            times.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(runs):
        once()
    if on_gpu:
        torch.cuda.synchronize()
    return statistics.median(times), (time.perf_counter() - begin) / runs


def serve(order):
    """A line of JSON for each precision that is ready, then {"done": true}; then times for each line "PRECISION RUNS". It stops
    preparing when there is such a line already."""
    ready = {}
    try:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    except ImportError as error:
        print(json.dumps({"error": f"not installed: {error.name}"}), flush=True)
        return
    for precision in order["precisions"]:
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        answer = {"precision": precision}
        try:
            ready[precision], answer["facts"] = prepare_variant(order, precision)
        except Exception as error:  # noqa: BLE001 whatever it fails with is its row's text
            answer["error"] = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        print(json.dumps(answer), flush=True)
    print(json.dumps({"done": True}), flush=True)
    for line in sys.stdin:
        precision, runs = line.split()
        try:
            waited, in_a_row = measured(ready[precision], order["device"], int(runs))
            print(json.dumps({"seconds": waited, "in_a_row_seconds": in_a_row}), flush=True)
        except Exception as error:  # noqa: BLE001
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), flush=True)


class Peer:
    """That process. A thread of ours reads what it says."""

    def __init__(self, args, order):
        self.order, self.facts, self.errors, self.done, self.answers = order, {}, {}, threading.Event(), []
        self.answered = threading.Condition()
        environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="2", TORCHINDUCTOR_CACHE_DIR=os.path.join(args.work, "inductor"),
                           TRITON_CACHE_DIR=os.path.join(args.work, "triton"))  # fmt: skip
        self.log = os.path.join(args.logs, f"{order['tag']}-{order['peer']}.txt")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([args.peer_python, os.path.abspath(__file__), "--serve", json.dumps(order)], env=environment,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)  # fmt: skip
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue  # compilers print, too
            answer = json.loads(line)
            if "precision" in answer and "facts" in answer:
                self.facts[answer["precision"]] = answer["facts"]
            elif "precision" in answer:
                self.errors[answer["precision"]] = answer["error"]
            elif self.done.is_set():
                with self.answered:
                    self.answers.append(answer)
                    self.answered.notify()
            elif "error" in answer:
                self.errors[None] = answer["error"]
            else:
                self.done.set()
        self.errors.setdefault(None, f"the process ended: {self.last_line()}")
        self.done.set()
        with self.answered:
            self.answers.append({"error": self.errors[None]})
            self.answered.notify()

    def last_line(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()] or ["no message"]
        return lines[-1][:200]

    def problem(self, precision):
        """Why it is not measured; None: it is."""
        if precision in self.errors or None in self.errors:
            return self.errors.get(precision, self.errors.get(None))
        if not self.done.is_set():
            return "not ready in time"
        return None if precision in self.facts else "not begun in time"

    def block(self, precision, runs, seconds):
        with self.answered:
            self.answers.clear()
            self.process.stdin.write(f"{precision} {runs}\n")
            self.process.stdin.flush()
            if not self.answered.wait_for(lambda: self.answers, max(1, seconds)):
                raise gpu.Failure(f"{self.order['peer']}: no answer")
            answer = self.answers.pop()
        if "error" in answer:
            raise gpu.Failure(f"{self.order['peer']}: {answer['error']}")
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()


# ---- what the driver counts ----


def smi(query):
    try:
        done = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        return []


def used_mib():
    lines = smi(["--query-gpu=memory.used"])
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def process_mib(pid):
    """None where the driver knows the process by another number, as in a container."""
    for line in smi(["--query-compute-apps=pid,used_memory"]):
        number, size = (word.strip() for word in line.split(","))
        if number == str(pid) and size.isdigit():
            return int(size)
    return None


def clocks():
    return (smi(["--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"]) or [None])[0]


# ---- ours ----


class Ours:
    def __init__(self, args, case, path, names):
        self.args, self.case = args, case
        self.folder = os.path.join(args.work, case.tag + "-" + case.precision)
        os.makedirs(self.folder)
        self.program, plan = os.path.join(self.folder, "program"), os.path.join(self.folder, "plan.json")
        options = [] if args.target != "cuda" else ["--with-cudnn", "on"]
        if case.training:
            options += ["--train", "--optimizer", "adamw", "--lr", "1e-3", *case.options]
        if case.precision != "fp32":
            options += ["--precision", case.precision]
        begin = time.monotonic()
        gpu.checked([args.ullage, "compile", path, "--target", args.target, "-o", self.program, "--json", plan, *options], "compiling", gpu.left(args))
        self.compile_seconds = time.monotonic() - begin
        with open(plan, encoding="utf-8") as file:
            self.plan = json.load(file)
        self.inputs = ["--random", "1"]
        if not case.training:
            inputs = os.path.join(os.path.dirname(path), "inputs.npz")
            self.inputs = [word for name in names for word in ("--input", f"{name}={inputs}:{name}")]

    def bench(self, *more, keep=None, watched=None):
        """What --bench says. keep: its name in the logs; watched: gets what the driver counts meanwhile."""
        path = os.path.join(self.folder, "bench.json")
        runs = str(DRY_RUNS if self.args.dry_run else RUNS)
        command = [self.program, "--bench", "--warmup", "0" if self.args.dry_run else "0.1", "--duration", "0", "--iterations", runs, "--json", path, *more,
                   *self.inputs]  # fmt: skip
        before = used_mib() if watched is not None else None
        if before is None:
            gpu.checked(command, "--bench", min(60, gpu.left(self.args)))
        else:
            watched.update(self.watch(command, before))
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if keep:
            with open(os.path.join(self.args.logs, keep), "w", encoding="utf-8") as file:
                file.write(text)
        return json.loads(text)

    def watch(self, command, before):
        """Runs it, and asks the driver as often as it answers."""
        most, own, end = before, None, time.monotonic() + min(60, gpu.left(self.args))
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if time.monotonic() > end:
                    process.kill()
                most, own = max(most, used_mib() or 0), process_mib(process.pid) or own
        if process.returncode != 0:
            raise gpu.Failure(f"--bench: exit {process.returncode}")
        return {"driver_process_mib": own, "driver_more_in_use_mib": most - before}

    def bytes(self):
        """What the program finds of itself."""
        path = os.path.join(self.folder, "memory.json")
        gpu.checked([self.program, "--memory", "--random", "1", "--json", path], "--memory", min(60, gpu.left(self.args)))
        with open(path, encoding="utf-8") as file:
            memory = json.load(file)
        device = memory.get("device", {})
        return {"reserved_bytes": memory["reserved_bytes"], "weights_bytes": self.plan["rows"]["weights"],
                **{key: value for key, value in device.items() if key.endswith("_bytes")}}  # fmt: skip

    def outputs(self, names):
        command = [self.program, *self.inputs]
        for i, name in enumerate(names):
            command += ["--output", f"{name}={self.folder}/own_{i}.npy"]
        gpu.checked(command, "running", min(60, gpu.left(self.args)))
        return [np.load(f"{self.folder}/own_{i}.npy") for i in range(len(names))]

    def losses(self):
        """Losses of the first steps on the peers' batch, given again and again; None where a trainer has further inputs."""
        source = np.load(os.path.join(self.args.work, self.case.tag, "inputs.npz"))
        names = [name for name in source.files if name != "labels"]
        if len(names) != 1:
            return None
        paths = [os.path.join(self.folder, f"{kind}.npy") for kind in ("x", "y", "metrics")]
        for path, name in zip(paths, (names[0], "labels")):
            np.save(path, np.concatenate([source[name]] * LOSSES))
        gpu.checked([self.program, "--data", paths[0], "--labels", paths[1], "--no-shuffle", "--steps", str(LOSSES), "--metrics", paths[2]], "training", min(60, gpu.left(self.args)))
        with open(paths[2], encoding="utf-8") as file:
            at = file.readline().strip().split(",").index("loss")
            return [np.array([float(line.split(",")[at])]) for line in file]


# ---- cases ----


class Case:
    def __init__(self, text):
        self.label, self.precision = text.rsplit(":", 1)
        self.training = self.label in TRAINING
        if self.training:
            self.network, self.batch, self.size, self.options, self.classes = TRAINING[self.label]
        elif self.label in NETWORKS:
            self.network, self.batch, self.size = NETWORKS[self.label]
        else:
            sys.exit(f"once_bench.py: {self.label}: no such case; there are {', '.join([*NETWORKS, *TRAINING])}")
        self.tag = self.label.replace(" ", "_")
        self.row = {"network": self.label, "precision": self.precision, "errors": {}}


def make_model(args, case):
    """(file, names of inputs, names of outputs); inputs and labels in inputs.npz beside it. In a process of its own."""
    folder = os.path.join(args.work, case.tag)
    os.makedirs(folder)
    path, model = gpu.model_file(args, folder, case.network, case.batch, case.size)
    arrays = gpu.random_inputs(model, seed=1)
    if case.training:
        shape = [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]
        arrays["labels"] = np.random.default_rng(2).integers(0, min(case.classes, shape[-1]), shape[:-1])
    np.savez(os.path.join(folder, "inputs.npz"), **arrays)
    return path, [value.name for value in model.graph.input], [value.name for value in model.graph.output]


class Bench:
    def __init__(self, args, cases):
        self.args, self.cases, self.ours, self.peers, self.failed = args, cases, {}, {}, False

    def say(self, text):
        print(f"{time.monotonic() - self.args.begin:4.0f} s  {text}", flush=True)

    def note(self, case, check, verdict, text, seconds=0.0):
        self.failed = self.failed or verdict == "FAIL"
        name = "all" if case is None else f"{case.label} {case.precision}"
        with open(self.args.rows, "a", encoding="utf-8") as file:
            file.write(f"bench\t{name}\t{check}\t{verdict}\t{' '.join(text.split())[:300]}\t{seconds:.1f}\n")
        self.say(f"{name} {check}: {verdict} {text}")

    def start_peers(self, tag, model):
        mine = [case for case in self.cases if case.tag == tag]
        for name in PEERS:
            order = {"peer": name, "network": mine[0].network, "training": mine[0].training, "precisions": [case.precision for case in mine],
                     "tag": tag, "model": model[0], "device": "cpu" if self.args.dry_run else "cuda",
                     "inputs": os.path.join(self.args.work, tag, "inputs.npz"), "outputs": os.path.join(self.args.work, tag, name)}  # fmt: skip
            self.peers[tag, name] = Peer(self.args, order)

    def prepare(self):
        """All at once; what is not compiled when it is needed is missing."""
        self.makers = concurrent.futures.ProcessPoolExecutor(6)
        self.pool = concurrent.futures.ThreadPoolExecutor(48)
        self.models = {}
        for case in self.cases:
            if case.tag not in self.models:
                self.models[case.tag] = self.makers.submit(make_model, self.args, case)

        def compile_one(case):
            path, names, _ = self.models[case.tag].result()
            return Ours(self.args, case, path, names)

        for tag in self.models:
            self.pool.submit(lambda tag=tag: self.start_peers(tag, self.models[tag].result()))
        self.ours = {case: self.pool.submit(compile_one, case) for case in self.cases}

    def wait_for_gate(self):
        """Until all is ready and the gate is there, or most of the time is over."""
        while time.monotonic() < self.args.begin + self.args.seconds * 0.55:
            ready = all(job.done() for job in self.ours.values()) and len(self.peers) == len(PEERS) * len(self.models)
            ready = ready and all(peer.done.is_set() for peer in self.peers.values())
            if ready and (not self.args.gate or os.path.exists(self.args.gate)):
                return
            time.sleep(0.1)

    def difference(self, case, program, peers):
        """The largest relative difference of outputs or losses from those of a peer."""
        name = next(iter(peers), None)
        own = program.losses() if case.training else program.outputs(self.models[case.tag].result()[2])
        if name is None or own is None:
            return None
        with np.load(os.path.join(self.args.work, case.tag, f"{name}-{case.precision}.npz")) as arrays:
            want = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
        return max(gpu.relative_error(a, b) for a, b in zip(own, want, strict=True))

    def measure(self, case, peers):
        program, row, runs = self.ours[case].result(), case.row, DRY_RUNS if self.args.dry_run else RUNS
        row["compile_seconds"], row["clocks"] = program.compile_seconds, clocks()
        row["ours"] = program.bytes()
        row["difference"] = self.difference(case, program, peers)
        blocks = {name: [] for name in ("ours", *peers)}
        # The second block asks for the steps' times, too, which are of runs after those that are measured.
        for more in ({"watched": row["ours"]}, {"keep": f"{case.tag}-{case.precision}.profile.json"}):
            profile = program.bench(*(["--profile"] if "keep" in more else []), **more)
            blocks["ours"].append(profile)
            for name, peer in peers.items():
                blocks[name].append(peer.block(case.precision, runs, min(60, gpu.left(self.args))))
        row["ours"].update(seconds=statistics.median(block["latency_seconds"]["median"] for block in blocks["ours"]),
                           in_a_row_seconds=min(1 / block["runs_per_second"] for block in blocks["ours"]),
                           launched_seconds=sum(step["seconds"] for step in profile.get("steps", [])))  # fmt: skip
        for name, peer in peers.items():
            row[name] = dict(peer.facts[case.precision], driver_process_mib=process_mib(peer.process.pid),
                             seconds=statistics.median(block["seconds"] for block in blocks[name]),
                             in_a_row_seconds=min(block["in_a_row_seconds"] for block in blocks[name]))  # fmt: skip
        row["clocks_after"] = clocks()
        if self.args.target == "cuda" and gpu.left(self.args) > TUNE_SECONDS:
            row["ours"]["tuned_seconds"] = program.bench("--tune", os.path.join(program.folder, "choices"))["latency_seconds"]["median"]

    def text(self, row):
        words = []
        for name in ("ours", *PEERS):
            if name in row:
                words.append(f"{name} {row[name]['seconds'] * 1e3:.3f} ms, in a row {row[name]['in_a_row_seconds'] * 1e3:.3f}")
        ours = row["ours"]
        words.append(f"launched {ours['launched_seconds'] * 1e3:.3f}" + (f", tuned {ours['tuned_seconds'] * 1e3:.3f}" if "tuned_seconds" in ours else ""))
        if "compile" in row:
            words.append(f"of compile's {ours['seconds'] / row['compile']['seconds']:.2f}")
        if row["difference"] is not None:
            words.append(f"difference {row['difference']:.1e}")
        words.append(f"clocks {row['clocks']}")
        return "; ".join(words)

    def bytes_text(self, row):
        ours = row["ours"]
        words = [f"reserved {ours['reserved_bytes']}, taken {ours.get('granted_bytes')}, driver's for the process {ours.get('driver_process_mib')} MiB, "
                 f"more in use {ours.get('driver_more_in_use_mib')} MiB, context {ours.get('context_bytes')}, code {ours.get('code_bytes')}, graph {ours.get('graph_bytes')}"]
        words += [f"{name} reserved {row[name].get('reserved_bytes')}, driver's {row[name]['driver_process_mib']} MiB" for name in PEERS if name in row]
        return "; ".join(words)

    def case(self, case):
        begin, row = time.monotonic(), case.row
        peers = {name: self.peers.get((case.tag, name)) for name in PEERS}
        for name, peer in peers.items():
            problem = "not started in time" if peer is None else peer.problem(case.precision)
            if problem:
                row["errors"][name] = problem
        peers = {name: peer for name, peer in peers.items() if name not in row["errors"]}
        try:
            if not self.ours[case].done():
                raise gpu.Failure("ours is not compiled in time")
            self.measure(case, peers)
            limit = 5e-2 if case.training else gpu.TOLERANCE[case.precision]
            verdict = "FAIL" if (row["difference"] or 0) > limit else "ok"
            self.note(case, "time", verdict, self.text(row), time.monotonic() - begin)
            self.note(case, "bytes", "ok", self.bytes_text(row))
        except Exception as error:  # noqa: BLE001 what one fails with hides no other
            row["failure"] = f"{type(error).__name__}: {error}"[:300]
            self.note(case, "time", "skip" if "time" in str(error) and "left" in str(error) else "FAIL", row["failure"], time.monotonic() - begin)
        for name, error in row["errors"].items():
            self.note(case, name, "skip", error)
        row["dry_run"] = self.args.dry_run
        with open(self.args.json + ".part", "w", encoding="utf-8") as file:
            json.dump({"facts": gpu.machine_facts([c.row for c in self.cases if "ours" in c.row]), "rows": [c.row for c in self.cases if "dry_run" in c.row]}, file, indent=1)
        os.replace(self.args.json + ".part", self.args.json)

    def run(self):
        self.prepare()
        self.wait_for_gate()
        self.say("measuring")
        # What is not ready has until the others are measured.
        late = [case for case in self.cases if not self.ours[case].done()
                or any(not self.peers[case.tag, name].done.is_set() for name in PEERS if (case.tag, name) in self.peers)]  # fmt: skip
        for case in [case for case in self.cases if case not in late] + late:
            self.case(case)
        for peer in self.peers.values():
            peer.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--gate")
    parser.add_argument("--cases", default="|".join(CASES))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--no-device", action="store_true")
    args = parser.parse_args()
    args.begin = time.monotonic()
    args.deadline = args.begin + args.seconds
    args.timeout = args.seconds
    return args


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(json.loads(sys.argv[2]))
        return
    args = parse()
    bench = Bench(args, [Case(text) for text in args.cases.split("|")])
    if args.no_device:
        bench.note(None, "device", "skip", "no CUDA device")
        sys.exit(3)
    if not os.path.exists(args.ullage):
        bench.note(None, "bundle", "FAIL", f"{args.ullage} is not there")
        sys.exit(6)
    args.ullage = os.path.abspath(args.ullage)
    with tempfile.TemporaryDirectory(prefix="once-", ignore_cleanup_errors=True) as args.work:
        if args.ullage.endswith(".tar.xz"):
            args.ullage = gpu.unpacked(args.ullage)
        bench.run()
    sys.stdout.flush()
    os._exit(6 if bench.failed else 0)  # compilers that are still running are not waited for


if __name__ == "__main__":
    main()
