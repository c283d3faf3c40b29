#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A roofline on paper: what a run of target cuda launches, moves and computes, beside what
torch.compile's kernels of the same network do. Needs no GPU, and measures none.

    roofline.py [--ullage build/release/cli/ullage] [--train] [--only RE]
                [--precision fp32,tf32,fp16,bf16] [--devices h100-sxm,a100-80gb-sxm] [--json FILE]
                [-- PLAN OPTIONS]
    PEER_PYTHON=COMMAND     a Python with PyTorch 2.15 (inductor.py); without one, ours alone

Per network of models/ at full size, batch 1, and precision, ours / torch's:

launches   of kernels, copies and library calls; of both sides as their code has them
moved      bytes: each kernel's operands and results once, however often it reads them: ours by the
           plan (its steps' moved_bytes), torch's by inductor's scheduler
operations ours those of all steps (plan), torch's those of products
time       of both sides by the same formula, and nothing else: for each kernel the longer of its
           operations at the device's peak for that type (its data sheet's) and its bytes at the
           peak of its memory, and a fixed time a launch. It is what no run can be below that does
           so, not what a run takes: kernels do not reach peaks, and the formula cannot tell good
           ones from bad ones. `ullage plan` predicts with more (codegen/README.md).

With --train it is a step of training with AdamW, at the batch of TRAINED. Two columns are of ours
alone: the share of all operations, and of those of products, that a library's call computes or, in 16
bits, a product of ours on tensor cores; and the scalar products (plan.json's `launches`).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests", "ref")]

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

import launches  # noqa: E402

NETWORKS = ["resnet50", "convnext_t", "swin_t", "vit_b16", "bert_base", "gpt2", "lstm"]
SIZES = {"gpt2": ["--seq", "1024"]}  # where make.py's own is another than networks.py's
TRAINED = {  # as networks.py has them
    "gpt2": ["--batch", "4", "--seq", "512"],
    "bert_base": ["--batch", "8"],
    "vit_b16": ["--batch", "8"],
    "resnet50": ["--batch", "32"],
    "unet": ["--batch", "4"],
}
PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose", "ConvWeightGradient", "FusedAttention",
            "AttentionGradient"}  # fmt: skip
PRECISIONS = {"fp32": "f32", "tf32": "tf32", "fp16": "f16", "bf16": "f16"}


def read_devices(ullage, names):
    """{name: {type: operations a ns, "bytes": bytes a ns, "launch": ns}} by ullage profile --list."""
    text = subprocess.run([ullage, "profile", "--list"], check=True, capture_output=True, text=True)
    devices = {}
    for line in text.stdout.splitlines():
        cells = line.split()
        if cells and cells[0] in names:
            f32, tf32, f16, _, gigabytes, _, _, launch = (float(cell) for cell in cells[1:9])
            devices[cells[0]] = {"f32": f32 * 1e3, "tf32": tf32 * 1e3, "f16": f16 * 1e3,
                                 "bytes": gigabytes, "launch": launch}  # fmt: skip
    missing = set(names) - set(devices)
    if missing:
        sys.exit(f"roofline.py: no such device: {', '.join(sorted(missing))}")
    return {name: devices[name] for name in names}


def predict_ns(kernels, launches, device, kind):
    bound = sum(max(flops / device[kind], moved / device["bytes"]) for flops, moved in kernels)
    return bound + launches * device["launch"]


def shares(whole, precision):
    """(of all operations, of those of products): the share in libraries and on tensor cores."""
    done, products = 0, 0
    on_cores = precision in ("fp16", "bf16") and whole["launches"]["scalar_products"] == 0
    steps = whole["steps"]
    for op, implementation, flops in zip(steps["op"], steps["implementation"], steps["flops"]):
        if implementation != "ullage" or op.split("+")[0] in PRODUCTS:
            products += flops
            done += flops if implementation != "ullage" or on_cores else 0
    return done / sum(steps["flops"]), done / products if products else 0.0


def plan(arguments, name, model, precision, folder):
    path = os.path.join(folder, "plan.json")
    options = {"fp32": [], "tf32": ["--tf32"]}.get(precision, ["--precision", precision])
    if arguments.train:
        options += ["--train", "--optimizer", "adamw", "--advice", "off", *launches.TRAINED[name]]
    subprocess.run([arguments.ullage, "plan", model, "--target", "cuda", "--with-cudnn", "on",
                    *options, *arguments.options, "--json", path],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    with open(path) as file:
        whole = json.load(file)
    kernels = list(zip(whole["steps"]["flops"], whole["steps"]["moved_bytes"], strict=True))
    return {
        "launches": whole["launches"]["count"],
        "library_calls": whole["launches"]["of_libraries"],
        "scalar_products": whole["launches"]["scalar_products"],
        "shares": shares(whole, precision),
        "moved_bytes": sum(moved for _, moved in kernels),
        "kernels": kernels,
    }


def peer(arguments, name, type_name, folder):
    """What inductor.py says; None without a peer, and for what torch.compile does not trace."""
    command = os.environ.get("PEER_PYTHON")
    if command is None or name == "lstm":  # nn.LSTM stays a call of cuDNN
        return None
    card = os.path.join(folder, "one_card.so")
    if not os.path.exists(card):
        source = os.path.join(HERE, "..", "training", "one_card.c")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
                        source, "-o", card], check=True)  # fmt: skip
    done = subprocess.run([command, os.path.join(HERE, "inductor.py"), name, type_name,
                           *["--train"] * arguments.train],
                          capture_output=True, text=True,
                          env={**os.environ, "LD_PRELOAD": card})  # fmt: skip
    if done.returncode != 0:
        print(f"inductor.py {name} {type_name}: {done.stderr.strip().splitlines()[-1:]}",
              file=sys.stderr)  # fmt: skip
        return None
    return json.loads(done.stdout.splitlines()[-1])


def times_of(side, devices, kind):
    return [predict_ns(side["kernels"], side["launches"], device, kind) for device in devices.values()]


def cells(side, devices, kind):
    if side is None:
        return ["-"] * (3 + len(devices))
    times = [f"{ns * 1e-3:.0f}" for ns in times_of(side, devices, kind)]
    return [f"{side['launches']} ({side['library_calls']})", f"{side['moved_bytes'] / 2**20:.1f}",
            f"{sum(flops for flops, _ in side['kernels']) * 1e-9:.2f}", *times]  # fmt: skip


def print_row(texts):
    print("| " + " | ".join(texts) + " |", flush=True)


def print_head(arguments, devices):
    texts = ["network", "type", "launches (calls)", "moved, MiB", "10^9 operations",
             *(f"us on {name}" for name in devices), "moved, of its", "us, of its"]  # fmt: skip
    if arguments.train:
        texts += ["in libraries or on tensor cores: of all, of products", "scalar products"]
    print_row(texts)
    print_row(["---"] * len(texts))


def print_both(arguments, name, precision, ours, its, devices):
    kind, ratios = PRECISIONS[precision], ["-", "-"]
    if its is not None:
        both = zip(times_of(ours, devices, kind), times_of(its, devices, kind))
        ratios = [f"{ours['moved_bytes'] / its['moved_bytes']:.2f}",
                  ", ".join(f"{a / b:.2f}" for a, b in both)]  # fmt: skip
    texts = [f"{a} / {b}" for a, b in zip(cells(ours, devices, kind), cells(its, devices, kind))]
    if arguments.train:
        ratios += [", ".join(f"{100 * share:.2f} %" for share in ours["shares"]),
                   str(ours["scalar_products"])]  # fmt: skip
    print_row([name, precision, *texts, *ratios])


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/release/cli/ullage"))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--only", default=".")
    parser.add_argument("--precision", help="default fp32,tf32,fp16,bf16; with --train all but fp16")
    parser.add_argument("--devices", default="h100-sxm,a100-80gb-sxm")
    parser.add_argument("--json")
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    if arguments.precision is None:
        arguments.precision = "fp32,tf32,bf16" if arguments.train else "fp32,tf32,fp16,bf16"
    arguments.options = options
    sizes = TRAINED if arguments.train else {name: SIZES.get(name, []) for name in NETWORKS}
    arguments.networks = {name: sizes[name] for name in sizes if re.search(arguments.only, name)}
    if not arguments.networks:
        parser.error(f"no network has {arguments.only} in its name")
    return arguments


def main():
    arguments, rows = parse(), []
    devices = read_devices(arguments.ullage, arguments.devices.split(","))
    print_head(arguments, devices)
    with tempfile.TemporaryDirectory() as folder:
        for name, sizes in arguments.networks.items():
            model = os.path.join(folder, f"{name}.onnx")
            subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), name, *sizes,
                            *["--hollow"] * arguments.train, "-o", model],
                           check=True, stdout=subprocess.DEVNULL)  # fmt: skip
            peers = {}
            for precision in arguments.precision.split(","):
                type_name = precision.replace("tf32", "fp32")
                if type_name not in peers:
                    peers[type_name] = peer(arguments, name, type_name, folder)
                ours, its = plan(arguments, name, model, precision, folder), peers[type_name]
                print_both(arguments, name, precision, ours, its, devices)
                rows.append({"network": name, "precision": precision, "ullage": ours, "torch": its})
            os.remove(model)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
