#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Low-rank factors (--lora) beside torch (1.13, Debian's python3-torch).

    lora_as_torch.py ULLAGE [--steps 20]

A network of a convolution, layers over two and three dimensions and a norm is exported without
factors; torch trains it with factors written by hand, y = f(x) + B(A(x)) * alpha / rank. From the
same factors, of which neither is 0, on the same data, with the same optimizer:
 - target c in double: losses within 1e-8 of torch's, every gradient of a factor within 1e-9;
 - target cpu in float32: losses of 10 steps within 1e-4, gradients within 1e-5.
Base weights are no parameters; what --train-only names beside the factors is.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import sys
import tempfile

from learn_as_torch import (BETA1, Failure, check_gradients, check_losses, export, functional,
                            numpy, run, torch)

RANK, ALPHA, RATE, BATCH, CLASSES = 3, 7.0, 2e-3, 8, 5
ADAPTED = ("conv", "deep", "head")


class Network(torch.nn.Module):
    """Takes [8,2,6,6]: convolution, two layers of each place, mean, two layers."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 12, 3, stride=2, padding=1)
        self.deep = torch.nn.Linear(12, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.plain = torch.nn.Linear(16, 10)
        self.head = torch.nn.Linear(10, CLASSES)
        self.factors = torch.nn.ParameterDict()

    def way(self, name, layer, x):
        y = layer(x)
        if not self.factors:
            return y
        a, b = self.factors[name + "_A"], self.factors[name + "_B"]
        if name == "conv":
            return y + functional.conv2d(functional.conv2d(x, a, stride=2, padding=1), b) * (
                ALPHA / RANK)
        return y + functional.linear(functional.linear(x, a), b) * (ALPHA / RANK)

    def forward(self, x):
        x = torch.relu(self.way("conv", self.conv, x)).flatten(2).transpose(1, 2)
        x = torch.tanh(self.norm(self.way("deep", self.deep, x)))
        x = torch.relu(self.plain(x.mean(1)))
        return self.way("head", self.head, x)

    def add_factors(self):
        for name in ADAPTED:
            weight = getattr(self, name).weight
            a = torch.randn(RANK, *weight.shape[1:], dtype=weight.dtype) / 3
            b = torch.randn(weight.shape[0], RANK, *([1] * (weight.ndim - 2)), dtype=weight.dtype)
            self.factors[name + "_A"] = torch.nn.Parameter(a)
            self.factors[name + "_B"] = torch.nn.Parameter(b / 3)
        for name, value in self.named_parameters():
            value.requires_grad = name.startswith("factors") or name == "plain.bias"


def name_in_model(name):
    """conv_A -> conv.weight/lora_A"""
    return f"{name[:-2]}.weight/lora_{name[-1]}" if name[-2] == "_" else name


def learn_by_torch(network, x, y, steps):
    trained = {name.removeprefix("factors."): value for name, value in network.named_parameters()
               if value.requires_grad}
    optimizer = torch.optim.AdamW(list(trained.values()), RATE, betas=(BETA1, 0.999))
    losses, gradients = [], None
    for step in range(steps):
        part = slice(step * BATCH % len(x), step * BATCH % len(x) + BATCH)
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x[part]), y[part])
        loss.backward()
        gradients = gradients or {name_in_model(name): value.grad.double().numpy().copy()
                                  for name, value in trained.items()}
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients, {name_in_model(name): value for name, value in trained.items()}


def train(start, folder, data, labels, steps):
    """Losses of that many steps, and the gradients of the first one, off the state after it."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    numpy.save(path("x.npy"), data)
    numpy.save(path("y.npy"), labels)
    numpy.savez(path("start.npz"), **start)
    command = [path("trainer"), "--data", path("x.npy"), "--labels", path("y.npy"), "--no-shuffle",
               "--init", path("start.npz")]
    run(*command, "--steps", "1", "--save", path("one.npz"))
    with numpy.load(path("one.npz")) as file:
        saved = {key: file[key] for key in file.files}
    gradients = {key.removesuffix("/exp_avg"): value.astype("f8") / (1 - BETA1)
                 for key, value in saved.items() if key.endswith("/exp_avg")}
    if saved["lora_alpha"] != ALPHA or any(name + ".weight" in saved for name in ADAPTED):
        raise Failure(f"the checkpoint holds {sorted(saved)}")
    run(*command, "--steps", str(steps), "--metrics", path("m.csv"))
    with open(path("m.csv"), encoding="utf-8") as file:
        return [float(line.split(",")[2]) for line in file.readlines()[1:]], gradients


def check(args, target, network, data, labels, theirs, limits):
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "m.onnx")
        factors = {name_in_model(name): value.detach().numpy().copy()
                   for name, value in network.factors.items()}
        kept, network.factors = network.factors, torch.nn.ParameterDict()
        export(network, torch.from_numpy(data[:BATCH]), model)
        network.factors = kept
        run(args.ullage, "compile", model, "-o", os.path.join(folder, "trainer"), "--target",
            target, "--train", "--optimizer", "adamw", "--lr", str(RATE), "--lora-alpha",
            str(ALPHA), "--train-only", "plain.bias",
            *(word for name in ADAPTED for word in ("--lora", f"{RANK}:{name}.weight")))
        start = {**factors, "plain.bias": network.plain.bias.detach().numpy()}
        losses, gradients = train(start, folder, data, labels, len(theirs[0]))
        what = f"{data.dtype}, target {target}"
        check_gradients(what, gradients, theirs[1], limits[1])
        check_losses(what, losses, theirs[0], limits[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    network = Network().double()
    network.add_factors()
    draw = numpy.random.default_rng(4)
    data = draw.standard_normal([args.steps * BATCH, 2, 6, 6])
    labels = draw.integers(0, CLASSES, [args.steps * BATCH])
    start = {name: value.clone() for name, value in network.state_dict().items()}
    try:
        for target, dtype, steps, limits in (("c", torch.float64, args.steps, (1e-8, 1e-9)),
                                             ("cpu", torch.float32, 10, (1e-4, 1e-5))):
            network.double().load_state_dict(start)
            theirs = learn_by_torch(network, torch.from_numpy(data), torch.from_numpy(labels),
                                    steps)
            network.load_state_dict(start)
            network.to(dtype)
            rows = data.astype("f8" if dtype == torch.float64 else "f4")
            check(args, target, network, rows, labels, theirs, limits)
    except Failure as failure:
        print(f"FAIL: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
