#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The 4-layer GPT of networks.py with states of fewer bytes, beside torch (1.13, Debian's
python3-torch).

    small_state.py ULLAGE [--steps 400] [--seeds 3]

Tokens follow one another by a table of chances, so that no network learns them by heart. From the
same weights, on the same data:
 - --state-bits 8 ends within 1 % of Adam with 32 bits, and of torch's Adam, in the mean of the last
   fourth of the losses; tensors with 8-bit state take 6.04 bytes a parameter at most;
 - Adafactor, of which torch 1.13 has none, and Adam-mini learn as torch operators of their
   definition do: losses of 20 steps within 1e-4.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import math
import os
import sys
import tempfile

from learn_as_torch import Failure, error_of, export, loss_of, run, torch, train  # and 77

import networks
import numpy

VOCABULARY, LENGTH, BATCH, RATE, FEW = 96, 32, 4, 1e-3, 20


def make_tokens(seed, steps):
    """Data, and after each token the next as its label."""
    draw = numpy.random.default_rng(seed)
    chances = draw.dirichlet(numpy.full(VOCABULARY, 0.05), VOCABULARY).cumsum(1)
    tokens = numpy.zeros((steps * BATCH, LENGTH + 1), numpy.int64)
    tokens[:, 0] = draw.integers(0, VOCABULARY, len(tokens))
    for i in range(LENGTH):
        drawn = draw.random(len(tokens))[:, None]
        tokens[:, i + 1] = (chances[tokens[:, i]] < drawn).sum(1).clip(max=VOCABULARY - 1)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def make_network(seed):
    torch.manual_seed(seed)
    return networks.Gpt(VOCABULARY, LENGTH, 64, 4, 4).train()


def mix(state, key, value, weight):
    state[key] = state[key] + (value - state[key]) * weight if key in state else value * weight
    return state[key]


def adafactor(name, p, g, state, t):
    """As torch.optim.Adafactor (torch 2.5) documents it, by its defaults."""
    rms = lambda a: float(a.norm()) / a.numel() ** 0.5
    weight, eps = t ** -0.8, torch.finfo(p.dtype).eps
    alpha = max(1e-3, rms(p)) * min(1e-2, t ** -0.5)
    if p.ndim > 1:
        row = mix(state, "row", (g * g).mean(-1, keepdim=True), weight)
        column = mix(state, "column", (g * g).mean(-2, keepdim=True), weight)
        v = row @ column / row.mean(-2, keepdim=True).clamp(min=eps)
    else:
        v = mix(state, "v", g * g, weight)
    u = g / v.clamp(min=eps * eps).sqrt()
    p -= alpha / max(1, rms(u)) * u


def adam_mini(name, p, g, state, t):
    """By arXiv 2406.16793: a row is a neuron, a token or a place; a vector is one block."""
    m = mix(state, "m", g, 0.1)
    mean = (g * g).mean(-1 if p.ndim > 1 else None, keepdim=p.ndim > 1)
    v = mix(state, "v", mean, 0.001)
    p -= RATE * (m / (1 - 0.9 ** t)) / ((v / (1 - 0.999 ** t)).sqrt() + 1e-8)


def learn(network, x, y, steps, rule=None):
    """By torch: its Adam, or a rule of its operators."""
    weights, losses = dict(network.named_parameters()), []
    adam, states = torch.optim.Adam(network.parameters(), RATE), {key: {} for key in weights}
    for step in range(steps):
        part = slice(step * BATCH, (step + 1) * BATCH)
        adam.zero_grad()
        loss = loss_of(network, x[part], y[part])
        loss.backward()
        losses.append(float(loss.detach()))
        if rule is None:
            adam.step()
            continue
        with torch.no_grad():
            for key, value in weights.items():
                rule(key, value, value.grad, states[key], step + 1)
    return losses


def ours(args, folder, words, data, labels, steps):
    program, plan = os.path.join(folder, "trainer"), os.path.join(folder, "plan.json")
    run(args.ullage, "compile", os.path.join(folder, "m.onnx"), "-o", program, "--target",
        args.target, "--train", "--class-axis", "-1", "--json", plan, *words)
    losses = train(program, folder, data[:steps * BATCH], labels[:steps * BATCH], steps)[0]
    with open(plan, encoding="utf-8") as file:
        return losses, json.load(file)["training"]


def check_few(args, folder, network, start, data, labels):
    x, y = torch.from_numpy(data), torch.from_numpy(labels)
    for words, rule in ((["adafactor"], adafactor), (["adam-mini"], adam_mini)):
        network.load_state_dict(start)
        want = learn(network, x, y, FEW, rule)
        got, told = ours(args, folder, ["--optimizer", *words], data, labels, FEW)
        error = error_of(got, want)
        print(f"  {words[0]}: losses {want[0]:.4f} to {want[-1]:.4f}, off by at most {error:.1e}; "
              f"{told['bytes_per_parameter']:.3f} bytes a parameter", flush=True)
        if not error <= 1e-4:
            raise Failure(f"{words[0]}: losses {got}, not {want}")


def check_bytes(args, folder, network, start, data, labels):
    network.load_state_dict(start)
    x, y = torch.from_numpy(data), torch.from_numpy(labels)
    last = lambda losses: float(numpy.mean(losses[-(args.steps // 4):]))
    theirs = last(learn(network, x, y, args.steps))
    words = ["--optimizer", "adam", "--lr", str(RATE), "--state-bits"]
    wide = last(ours(args, folder, [*words, "32"], data, labels, args.steps)[0])
    losses, told = ours(args, folder, [*words, "8"], data, labels, args.steps)
    count = told["parameters"] - told["wide_parameters"]
    narrow = last(losses)
    each = (told["parameter_bytes"] + told["state_bytes"] - told["wide_bytes"]) / max(1, count)
    print(f"  adam, {args.steps} steps from {losses[0]:.4f}: 32 bits {wide:.5f}, 8 bits "
          f"{narrow:.5f} ({narrow / wide - 1:+.2%}), torch {theirs:.5f}; {each:.3f} bytes each of "
          f"{count} parameters of {told['parameters']}", flush=True)
    if not abs(narrow / wide - 1) < 0.01 or not abs(narrow / theirs - 1) < 0.01:
        raise Failure(f"adam: 8 bits end at {narrow}, 32 at {wide}, torch at {theirs}")
    if not math.isfinite(narrow) or not 0 < each <= 6.04 or not narrow < 0.98 * losses[0]:
        raise Failure(f"adam: {told}, losses {losses[0]} to {narrow}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(2)
    try:
        for seed in range(args.seeds):
            print(f"seed {seed}:", flush=True)
            network = make_network(seed)
            start = {key: value.clone() for key, value in network.state_dict().items()}
            data, labels = make_tokens(seed, args.steps)
            with tempfile.TemporaryDirectory() as folder:
                export(network, torch.from_numpy(data[:BATCH]), os.path.join(folder, "m.onnx"))
                if seed == 0:
                    check_few(args, folder, network, start, data, labels)
                check_bytes(args, folder, network, start, data, labels)
    except Failure as failure:
        print(f"  {failure}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
