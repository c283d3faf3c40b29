#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training beside torch eager on the CPU, in one run. By run.sh, which finds torch; see README.md.

A line for each figure that was set as a goal: what was measured, the goal, and whether it holds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "..", "torch"))

import torch

import less
import networks
import ours
import peer
from cases import COUNTED, NETWORKS

MIB = 2**20
ROUNDS = 2
UPDATED = 4096  # rows and columns of the weight whose update is timed
CUT = {"gpt4": (1, 0.7, 0.3, 0.15), "resnet50": (1, 0.5, 0.3, 0.15), "unet": (1, 0.5, 0.3, 0.15)}
MORE_TIME = 0.03  # of a plan that is said to repeat nothing heavy
FEW_FLOPS = 0.02
LLM_C_MIB = 5146  # what train_gpt2.c of karpathy/llm.c allocates for GPT-2, 2 x 512


def verdict(what, value, goal):
    print(f"    {'holds ' if value <= goal + 5e-4 else 'MISSED'} {what}: {value:.3f}, goal {goal:.3f}",
          flush=True)


def say(text):
    print("    " + text, flush=True)


def show_cuts(args, name, make, x, labels, saved, sweep):
    """At no more FLOPs than min-cut's: our plan, and the one of the sets that cuts alone keep."""
    if name not in CUT:
        return
    cuts = ours.Sweep(args.ullage, sweep.model, [*NETWORKS[name][2], "--remat", "cut"])
    for budget in CUT[name]:
        kept, extra = peer.min_cut(make, x, labels, budget)
        limit = max(extra, 0) + 5e-4
        say(f"min-cut at {budget:g}: keeps {kept / MIB:.1f} MiB, {kept / saved:.2f} of saved, with "
            f"{extra:.1%} more FLOPs")
        for what, plans in (("ours", sweep), ("--remat cut", cuts)):
            plan = plans.at_flops(limit)
            say(f"  {what} keeps {plan.kept / MIB:.1f}, {plan.kept / saved:.2f}, and moves "
                f"{plan.moves / MIB:.1f}, with {plan.extra:.1%} ({plan.extra_of_all:.1%} of all work)")


def check_memory(args, name, model):
    make, samples, options, goals = NETWORKS[name]
    x, labels = samples()
    make = peer.copy_of(make())
    torchs = peer.memory(make, x, labels)
    saved = torchs["saved"]
    say(f"torch saves {saved / MIB:.1f} MiB, peak {torchs['peak'] / MIB:.1f}, with a checkpoint on "
        f"each block {torchs['blocks_peak'] / MIB:.1f} and {torchs['blocks_extra']:.1%} more FLOPs; "
        f"whole step {torchs['whole'] / MIB:.1f}")
    sweep = ours.Sweep(args.ullage, model, options)
    rule = sweep.by_rule()
    is_light = lambda p: p.heavy_again == 0 and p.overhead <= MORE_TIME
    light = min([sweep.smallest(is_light), *[rule] * is_light(rule)], key=lambda p: p.moves)
    few = sweep.at_flops(FEW_FLOPS)
    quick = sweep.smallest(lambda p: p.overhead <= MORE_TIME)
    blocks = sweep.within(torchs["blocks_peak"])
    for what, plan in (("no budget", sweep.base), ("nothing heavy again", light),
                       ("--checkpoint products", rule),
                       ("3 % more time", quick),
                       ("2 % more FLOPs", few), ("peak of checkpoints", blocks)):
        say(f"ours, {what}: moves {plan.moves / MIB:.1f} MiB, {plan.moves / saved:.2f} of saved, "
            f"buffer {plan.reserved / MIB:.1f}, FLOPs +{plan.extra:.1%} (of all work "
            f"{plan.extra_of_all:.1%}), "
            f"{plan.heavy_again} products again, time +{plan.overhead:.1%}")
    say(f"state {light.state / torchs['parameters']:.3f} bytes a parameter of "
        f"{torchs['parameters']}")
    verdict("moves, nothing heavy again, of torch's saved bytes", light.moves / saved,
            goals["light"])
    for key, what, value in (
            ("peak", "the same of torch's peak", light.moves / torchs["peak"]),
            ("few", "moves at 2 % more FLOPs of torch's saved bytes", few.moves / saved),
            ("blocks", "more FLOPs at the peak of checkpoints", blocks.extra),
            ("whole", "buffer at 3 % more time of torch's whole step",
             quick.reserved / torchs["whole"])):
        if key in goals:
            verdict(what, value, goals[key])
    if blocks.moves > torchs["blocks_peak"]:
        say("MISSED no plan is as small as the peak of checkpoints")
    if name == "gpt2":
        verdict("the same of what llm.c allocates", quick.reserved / (LLM_C_MIB * MIB), 0.40)
    show_cuts(args, name, make, x, labels, saved, sweep)


def check_time(args, name, model, folder):
    """By turns, on one thread and on all; processor time tells more where other work runs beside."""
    make, samples, options, goals = NETWORKS[name]
    theirs = peer.Timed(peer.copy_of(make()), *samples())
    mine = ours.Timed(args.ullage, model, options, args.threads, folder)
    for threads in sorted({1, args.threads}):
        rounds = [(mine.measure(threads, args.seconds), theirs.measure(threads, args.seconds))
                  for _ in range(ROUNDS)]
        for which, what in ((0, "wall"), (1, "processor")):
            a, b = ([pair[who][which] for pair in rounds] for who in (0, 1))
            say(f"{threads} threads, {what} time of a step: ours {statistics.median(a):.4g} s, "
                f"torch {statistics.median(b):.4g} s")
            verdict(f"{what} time of torch's, {threads} threads",
                    statistics.median(p / q for p, q in zip(a, b)), goals["time"])
        if threads == 1:  # where the time goes
            for op, (seconds, predicted, count) in mine.parts():
                say(f"  {seconds * 1e3:9.2f} ms (predicted {predicted * 1e3:9.2f}), {count:3d} x {op}")


def check_frozen(args, folder):
    """ResNet-50 of which the last layer alone is trained, beside its inference."""
    model = os.path.join(folder, "frozen.onnx")
    network, (x, _) = networks.ResNet([3, 4, 6, 3], True), pictures(8, 3, 224, 1000)
    peer.export(network.eval(), x, model)
    runs = ours.plan_rows(args.ullage, model)["reserved_bytes"]
    for optimizer in ("sgd", "adamw"):
        words = ["--train", "--train-mode", "--optimizer", optimizer, "--train-only", "fc.*"]
        rungs = ours.plan_rows(args.ullage, model, *words, "--budget-of", "arena", "--sweep")["plans"]
        least = min(r["reserved_bytes"] for r in rungs if (r["overhead"] or 0) <= MORE_TIME)
        say(f"{optimizer}: inference {runs / MIB:.1f} MiB, training {rungs[0]['reserved_bytes'] / MIB:.1f}"
            f", within 3 % more time {least / MIB:.1f}")
        verdict(f"training the last layer of inference, {optimizer}", least / runs, 1.15)


def check_state(args, model):
    for optimizer, goal in (("sgd", 4), ("momentum", 8), ("adamw", 12)):
        words = ["--train", "--optimizer", optimizer, *NETWORKS["gpt4"][2]]
        rows = ours.plan_rows(args.ullage, model, *words)["rows"]
        state = rows["weights"] + rows.get("optimizer_state", 0)
        count = sum(p.numel() for p in networks.Gpt(65, 128, 256, 4, 4).parameters())
        verdict(f"bytes a parameter with {optimizer}, gpt4", state / count, goal)


def check_update(args, folder):
    """An update of AdamW beside a loop that streams as many bytes, by turns."""
    count = UPDATED * UPDATED
    stream, model = os.path.join(folder, "stream"), os.path.join(folder, "linear.onnx")
    subprocess.run([os.environ.get("CC", "cc"), "-O3", "-march=native", "-fopenmp",
                    os.path.join(HERE, "stream.c"), "-o", stream], check=True)
    network = torch.nn.Linear(UPDATED, UPDATED, bias=False)
    peer.export(network, torch.randn(8, UPDATED), model)
    mine = ours.Timed(args.ullage, model, ["--loss", "mse"], args.threads, folder)
    ratios = []
    for _ in range(ROUNDS):
        environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
        streamed = float(subprocess.run([stream, str(count)], check=True, capture_output=True,
                                        text=True, env=environment).stdout.split()[0])
        mine.measure(args.threads, args.seconds)
        update = sum(s["least_seconds"] for s in mine.steps if s["op"].startswith("Update"))
        say(f"update of {count} parameters {update * 1e3:.1f} ms, streaming 28 bytes of each "
            f"{streamed * 1e3:.1f} ms")
        ratios.append(update / streamed)
    verdict("update of streaming", statistics.median(ratios), 1.2)


def check_less(args, parts):
    """Parts of less.py, each of networks of its own."""
    for part in parts:
        names, check = less.PARTS[part]
        for name in args.networks or names:
            print(f"{part}, {name}:", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                model = os.path.join(folder, f"{name}.onnx")
                make, samples, *_ = less.case(name)
                peer.export(make(), samples()[0], model)
                check(args, name, model, folder, say, verdict)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build", "release", "cli", "ullage"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5, help="of each time that is measured")
    parser.add_argument("--part", action="append", choices=["memory", "time", "update", *less.PARTS])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    args = parser.parse_args()
    parts = args.part or ["memory", "time", "update"]
    known = [*NETWORKS, *([] if {"memory", "time"} & {*parts} else COUNTED)]
    if unknown := {*args.networks} - {*known}:
        parser.error(f"{', '.join(sorted(unknown))}: networks of these parts are {', '.join(known)}")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, {args.threads} threads, load {os.getloadavg()[0]:.1f}")
    check_less(args, [part for part in parts if part in less.PARTS])
    beside_torch = "time" in parts or "memory" in parts
    names = (args.networks or list(NETWORKS)) if beside_torch else []
    for name in sorted(names, key=lambda name: list(NETWORKS).index(name)):
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, f"{name}.onnx")
            make, samples, *_ = NETWORKS[name]
            peer.export(make(), samples()[0], model)
            if "time" in parts and "time" in NETWORKS[name][3]:
                check_time(args, name, model, folder)  # first: what counts memory leaves torch slow
            if "memory" in parts:
                check_memory(args, name, model)
            if name == "gpt4" and "memory" in parts:
                check_state(args, model)
            if name == "resnet50" and "memory" in parts:
                check_frozen(args, folder)
    if "update" in parts:
        print("update:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            check_update(args, folder)


if __name__ == "__main__":
    main()
