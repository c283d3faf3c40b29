#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training in 16 bits beside torch's autocast: networks.py, exported by torch.

    halves_as_torch.py ULLAGE [NETWORK...] [--steps 100] [--seeds 3] [--type bf16|fp16]...

digits and resnet18 learn the pictures of models/digits (resnet18: twice as large, three channels,
and half as many steps, which take torch long without instructions for 16 bits), gpt tokens that
follow one another by a table of chances. For each seed, from the same weights and on the same data:
losses in float32 by torch, by torch's autocast (for fp16 with its GradScaler, which torch has for
the CPU from 2.3 on; older ones are left out), and by a program for target cpu with --precision bf16
or amp-fp16. How far off a curve is is the mean of its distances from float32's over that one's
mean; over all seeds ours is at most 1.5 times as far off as autocast's, or 0.01 %. The program's
losses differ from those of float32 at all.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import sys

try:
    import numpy
    import torch
except ImportError as error:
    print(f"halves_as_torch.py: skipped: {error}")
    sys.exit(77)

from learn_as_torch import Failure, export, loss_of, run, run_networks, train
from small_state import make_tokens

import networks

FACTOR, LEAST = 1.5, 1e-4
DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "digits")
TYPES = {"bf16": ("bf16", torch.bfloat16), "fp16": ("amp-fp16", torch.float16)}


def pictures(seed, count, times, channels):
    """Digits in an order of their own, each pixel `times` wide and high."""
    x, y = (numpy.load(os.path.join(DIGITS, f"train_{name}.npy")) for name in "xy")
    rows = numpy.random.default_rng(seed).permutation(numpy.arange(count) % len(x))
    x = x[rows].reshape(count, 1, 8, 8).astype(numpy.float32)
    return x.repeat(times, 2).repeat(times, 3).repeat(channels, 1), y[rows].astype(numpy.int64)


# name -> network, samples of a batch, data and labels of so many steps, class axis, optimizer, rate
CASES = {
    "digits": (networks.Digits, 16, lambda seed, steps: pictures(seed, 16 * steps, 1, 1), [],
               "momentum", 0.02),
    "gpt": (lambda: networks.Gpt(96, 32, 64, 4, 4), 4, make_tokens, ["--class-axis", "-1"], "adamw",
            1e-3),
    "resnet18": (lambda: networks.ResNet([2, 2, 2, 2], False, 10, small=True), 8,
                 lambda seed, steps: pictures(seed, 8 * steps, 2, 3), [], "momentum", 2e-3),
}


def learn(name, network, x, y, steps, kind=None):
    """Losses by torch; kind: what its autocast computes in."""
    _, batch, _, _, optimizer, rate = CASES[name]
    optimizer = (torch.optim.AdamW(network.parameters(), rate) if optimizer == "adamw" else
                 torch.optim.SGD(network.parameters(), rate, momentum=0.9))
    scaler = torch.amp.GradScaler("cpu") if kind == torch.float16 else None
    losses = []
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        with torch.autocast("cpu", kind or torch.bfloat16, enabled=kind is not None):
            loss = loss_of(network, x[part], y[part])
        losses.append(float(loss.detach()))
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return losses


def off(losses, want):
    return float(numpy.abs(numpy.subtract(losses, want)).mean() / numpy.mean(want))


def curves(args, name, seed, folder):
    """For each type: how far off are autocast's losses, and ours."""
    make, batch, samples, axis, optimizer, rate = CASES[name]
    steps = args.steps // 2 if name == "resnet18" else args.steps
    torch.manual_seed(seed)
    network = make().train()
    start = {key: value.clone() for key, value in network.state_dict().items()}
    data, labels = samples(seed, steps)
    x, y = torch.from_numpy(data), torch.from_numpy(labels)
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
    export(network, x[:batch], model)

    def by_torch(kind=None):
        network.load_state_dict(start)
        return learn(name, network, x, y, steps, kind)

    want, rows = by_torch(), {}
    for key in args.type:
        precision, kind = TYPES[key]
        run(args.ullage, "compile", model, "-o", program, "--target", "cpu", "--train",
            "--optimizer", optimizer, "--lr", str(rate), "--precision", precision, "--cflags",
            "-O2", *axis)
        got = train(program, folder, data, labels, steps)[0]
        rows[key] = off(by_torch(kind), want), off(got, want)
        print(f"  seed {seed}, {key}: float32 {want[0]:.4f} to {numpy.mean(want[-10:]):.4f}, "
              f"autocast off by {rows[key][0]:.2e}, ours by {rows[key][1]:.2e}", flush=True)
        if len(got) != len(want) or not rows[key][1] > 0:
            raise Failure(f"seed {seed}, {key}: losses {got}")
    return rows


def check(args, name, folder):
    rows = [curves(args, name, seed, folder) for seed in range(args.seeds)]
    for key in args.type:
        theirs, ours = (sum(row[key][i] for row in rows) / args.seeds for i in range(2))
        print(f"  {key}, {args.seeds} seeds: torch's autocast is off by "
              f"{theirs:.2e}, --precision {TYPES[key][0]} by {ours:.2e}", flush=True)
        if not ours <= max(FACTOR * theirs, LEAST):
            raise Failure(f"{key}: losses are off by {ours:.2e}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--type", action="append", choices=list(TYPES))
    parser.add_argument("networks", nargs="*", default=list(CASES))
    args = parser.parse_args()
    args.type = args.type or ["bf16", "fp16"]
    if "fp16" in args.type and not hasattr(getattr(torch, "amp", None), "GradScaler"):
        print(f"halves_as_torch.py: torch {torch.__version__} has no GradScaler for the CPU: fp16 "
              "is left out")
        args.type.remove("fp16")
    torch.set_num_threads(2)
    return run_networks(args, check)


if __name__ == "__main__":
    sys.exit(main())
