# SPDX-License-Identifier: Apache-2.0
"""Training in less: 16 bits, 8-bit state, offload, all together, beside torch's automatic mixed precision.

Bytes alone, of torch by tensors that have none (fake.py), so that a CUDA device needs no GPU.
"""

import json
import os
import subprocess
import sys

import cases
import ours

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 2**20
MORE_FLOPS = 0.05  # of a plan that is set beside torch's step in 16 bits
MORE_TIME = 0.03
FINEST = MIB // 2  # between budgets that are tried
AMP_NETWORKS = ("bert512", "gpt2")
CARD_NETWORKS = ("gpt2", "bert_large", "resnet50", "unet")
PROMISE_NETWORKS = ("unet", "resnet50", "bert", "gpt2")


def case(name):
    return {**cases.NETWORKS, **cases.COUNTED}[name]


def torchs(name, device, precision, folder):
    """What fake.py prints; None: torch did not say."""
    card = os.path.join(folder, "one_card.so")
    if not os.path.exists(card):
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
                        os.path.join(HERE, "one_card.c"), "-o", card], check=True)
    environment = dict(os.environ, **({"LD_PRELOAD": card} if device == "cuda" else {}))
    done = subprocess.run([sys.executable, os.path.join(HERE, "fake.py"), name, device, precision],
                          capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        print(f"    torch, {device}, {precision}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


class Plans:
    """Plans of a network with some options, as small as more work or time allows."""

    def __init__(self, args, model, name, target, *options):
        self.words = [args.ullage, "plan", model, "--target", target, "--train", "--optimizer", "adamw",
                      "--budget-of", "arena", *case(name)[2], *options, "--json", "-"]
        self.base = self.plan()

    def run(self, *more):
        return json.loads(subprocess.run([*self.words, *more], check=True, capture_output=True,
                                         text=True).stdout)

    def plan(self, *more):
        return ours.Planned(self.run(*more))

    def smallest(self, holds):
        """The smallest rung of the sweep of which it holds, and of all larger ones; then of budgets between
        that one and the next, by halving."""
        sizes = sorted((rung["reserved_bytes"] for rung in self.run("--sweep")["plans"]), reverse=True)
        best, low, high = self.base, 0, len(sizes)
        while low < high:
            middle = (low + high) // 2
            plan = self.plan("--budget", str(sizes[middle]))
            if holds(plan):
                best, low = plan, middle + 1
            else:
                high = middle
        fails = sizes[low] if low < len(sizes) else best.reserved
        while best.reserved - fails > FINEST:
            middle = (best.reserved + fails) // 2
            plan = self.plan("--budget", str(middle))
            best, fails = (plan, fails) if holds(plan) else (best, middle)
        return best

    def within_flops(self):
        return self.smallest(lambda plan: plan.extra_of_all <= MORE_FLOPS)

    def within_time(self):
        return self.smallest(lambda plan: plan.overhead <= MORE_TIME)

    def least(self):
        return self.smallest(lambda plan: True)


def check_amp(args, name, model, folder, say, verdict):
    """The whole step within 5 % more FLOPs, beside that of torch eager's mixed precision."""
    found = {device: torchs(name, device, "bf16", folder) for device in ("cpu", "cuda")}
    for device, peak in found.items():
        if peak:
            say(f"torch, AMP in bf16 on {device}: whole step {peak['whole'] / MIB:.1f} MiB, moves "
                f"{peak['moves'] / MIB:.1f}")
    for bits, goal in (("32", 0.66), ("8", 0.5)):
        plans = Plans(args, model, name, "cpu", "--precision", "bf16", "--state-bits", bits)
        best = plans.within_flops()
        say(f"ours, bf16, state of {bits} bits: {plans.base.reserved / MIB:.1f} MiB, within {MORE_FLOPS:.0%} more "
            f"FLOPs {best.reserved / MIB:.1f} (FLOPs +{best.extra_of_all:.1%}, time +{best.overhead:.1%}); "
            f"state {plans.base.state / found['cpu']['parameters']:.3f} bytes a parameter")
        for device, peak in found.items():
            if peak:
                verdict(f"whole step of torch's AMP on {device}, state of {bits} bits",
                        best.reserved / peak["whole"], goal)


def check_card(args, name, model, folder, say, verdict):
    """Bytes of target cuda beside what torch's allocator would take on such a device."""
    for precision in ("fp32", "bf16"):
        peak = torchs(name, "cuda", precision, folder)
        plans = Plans(args, model, name, "cuda", "--precision", precision)
        quick = plans.within_time()
        theirs = f"{peak['whole'] / MIB:.1f}" if peak else "?"
        ratio = f", {quick.reserved / peak['whole']:.2f} of it" if peak else ""
        say(f"{precision}: torch {theirs} MiB, ours {plans.base.reserved / MIB:.1f}, within {MORE_TIME:.0%} more time "
            f"{quick.reserved / MIB:.1f}{ratio}")


def check_promises(args, name, model, folder, say, verdict):
    """What the field says that each remedy gives, and what it gives here, on a CUDA device."""
    whole = torchs(name, "cuda", "fp32", folder)
    amp = torchs(name, "cuda", "bf16", folder)
    plain = Plans(args, model, name, "cuda")
    half = Plans(args, model, name, "cuda", "--precision", "bf16")
    all_of_it = Plans(args, model, name, "cuda", "--precision", "bf16", "--state-bits", "8")
    if whole and amp:
        say(f"torch eager {whole['whole'] / MIB:.1f} MiB; with AMP {amp['whole'] / MIB:.1f}, "
            f"{amp['whole'] / whole['whole'] - 1:+.0%} [-40 %]")
    say(f"ours {plain.base.reserved / MIB:.1f}; with bf16 {half.base.reserved / MIB:.1f}, "
        f"{half.base.reserved / plain.base.reserved - 1:+.0%} [-40 %], activations {half.base.moves / MIB:.1f} "
        f"of {plain.base.moves / MIB:.1f}")
    deep = plain.least()
    say(f"recomputed: activations {deep.moves / MIB:.1f} of {plain.base.moves / MIB:.1f}, "
        f"{deep.moves / plain.base.moves - 1:+.0%} [-65 to -70 %], for {deep.overhead:.1%} more time")
    least = all_of_it.least()
    first = whole["whole"] if whole else plain.base.reserved
    say(f"bf16, 8-bit state, recomputed: {least.reserved / MIB:.1f} MiB, {first / least.reserved:.1f} times "
        f"less than torch eager [20], for {least.overhead:.1%} more time; activations "
        f"{(whole['moves'] if whole else plain.base.moves) / least.moves:.1f} times less than torch's")


PARTS = {"amp": (AMP_NETWORKS, check_amp), "card": (CARD_NETWORKS, check_card),
         "promises": (PROMISE_NETWORKS, check_promises)}
