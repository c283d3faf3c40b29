#!/usr/bin/python3
"""Training with --precision bf16 beside torch's autocast: networks.py, exported by torch.

    halves_as_torch.py ULLAGE [NETWORK...] [--steps 40] [--seeds 3]

For each seed, from the same weights and on the same data: losses in float32 by torch, by torch's
autocast to bfloat16, and by a program for target cpu with --precision bf16. How far off a curve is
is the mean of its distances from float32's over that one's mean; over all seeds ours is at most 1.5
times as far off as autocast's, or 0.1 %. The program's losses differ from those of float32 at all.
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

from learn_as_torch import (NETWORKS, Failure, class_axis, export, learn_by_torch, make_samples, run,
                            run_networks, train)

FACTOR, LEAST = 1.5, 1e-3


def off(losses, want):
    return float(numpy.abs(numpy.subtract(losses, want)).mean() / numpy.mean(want))


def curves(args, name, seed, folder):
    """How far off are autocast's losses, and ours."""
    torch.manual_seed(seed)
    network = NETWORKS[name][0]().train()
    start = {key: value.clone() for key, value in network.state_dict().items()}
    data, labels = make_samples(name, args.steps)
    data = data.astype(numpy.float32) if data.dtype == numpy.float64 else data
    x, y = torch.from_numpy(data), torch.from_numpy(labels)
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
    export(network, x[: NETWORKS[name][1][0][0]], model)
    network.load_state_dict(start)
    want = learn_by_torch(name, network, x, y, args.steps)[0]
    network.load_state_dict(start)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = learn_by_torch(name, network, x, y, args.steps)[0]
    run(args.ullage, "compile", model, "-o", program, "--target", "cpu", "--train", "--optimizer",
        NETWORKS[name][4], "--lr", str(NETWORKS[name][5]), "--precision", "bf16", "--cflags", "-O1",
        *class_axis(name))
    ours = train(program, folder, data, labels, args.steps)[0]
    if len(ours) != len(want) or off(ours, want) == 0:
        raise Failure(f"seed {seed}: losses {ours}")
    return off(theirs, want), off(ours, want)


def check(args, name, folder):
    rows = [curves(args, name, seed, folder) for seed in range(args.seeds)]
    theirs, ours = (sum(column) / args.seeds for column in zip(*rows))
    print(f"  {args.seeds} seeds of {args.steps} steps: torch's autocast is off by {theirs:.2e}, "
          f"--precision bf16 by {ours:.2e}", flush=True)
    if not ours <= max(FACTOR * theirs, LEAST):
        raise Failure(f"losses are off by {ours:.2e}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("networks", nargs="*", default=["digits", "gpt", "resnet18"])
    args = parser.parse_args()
    torch.set_num_threads(2)
    return run_networks(args, check)


if __name__ == "__main__":
    sys.exit(main())
