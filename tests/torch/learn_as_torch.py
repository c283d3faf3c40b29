#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that train beside torch (1.13, Debian's python3-torch): networks.py, exported by torch.

    learn_as_torch.py ULLAGE [--steps 50] [NETWORK...]

From the same weights, on the same data, with the same optimizer:
 - target c in double: losses of 50 steps within 1e-8 of torch's in double, and every gradient
   within 1e-9 of it;
 - target cpu in float32: losses of 10 steps within 1e-4 of those, and every gradient within the
   larger of 1e-5 and twice what torch's own in float32 is off.
A gradient's error is the norm of its difference from torch's in double over the norm of that. It is
read off the optimizer's state after the first step.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
import time
import warnings

try:
    import numpy
    import torch
    from torch.nn import functional
except ImportError as error:
    print(f"learn_as_torch.py: skipped: {error}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import networks  # noqa: E402
from part import part  # noqa: E402

BETA1 = 0.9  # of adamw
FLOAT_STEPS, BATCHES = 10, 4

# name -> network, shape of a batch of data (and, of tokens, how many there are), shape of labels,
# classes, optimizer, learning rate
NETWORKS = {
    "mlp": (lambda: networks.mlp(), ([16, 64], None), [16], 10, "momentum", 0.05),
    "digits": (networks.Digits, ([16, 1, 8, 8], None), [16], 10, "momentum", 0.02),
    "resnet18": (lambda: networks.ResNet([2, 2, 2, 2], False, 10, small=True),
                 ([8, 3, 32, 32], None), [8], 10, "momentum", 5e-5),
    "gpt": (lambda: networks.Gpt(96, 32, 48, 4, 4), ([4, 32], 96), [4, 32], 96, "adamw", 1e-3),
    "lstm": (networks.LstmClassifier, ([8, 12], 50), [8], 6, "adamw", 2e-3),
    "unet": (lambda: networks.UNet(8, 3), ([2, 3, 32, 32], None), [2, 32, 32], 2, "momentum", 0.01),
    "vit": (lambda: networks.Vit(32, 8, 48, 4, 4, 10), ([8, 3, 32, 32], None), [8], 10, "adamw",
            1e-3),
}


class Failure(Exception):
    pass


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_samples(name, steps):
    """Data and labels of all steps, one batch after the other: the first ones again and again, so
    that there is something to learn."""
    _, (shape, tokens), labels, classes, _, _ = NETWORKS[name]
    draw = numpy.random.default_rng(11)
    shape, labels = [BATCHES * shape[0], *shape[1:]], [BATCHES * labels[0], *labels[1:]]
    data = draw.standard_normal(shape) if tokens is None else draw.integers(0, tokens, shape)
    labels = draw.integers(0, classes, labels)
    rows = numpy.arange(steps * NETWORKS[name][1][0][0]) % len(data)
    return data[rows], labels[rows]


def loss_of(network, x, y):
    out = network(x)
    if out.ndim == 3:
        out = out.flatten(0, 1)
        y = y.flatten()
    return functional.cross_entropy(out, y)


def learn_by_torch(name, network, data, labels, steps):
    """Losses, and the gradients of the first step."""
    *_, kind, rate = NETWORKS[name]
    batch = NETWORKS[name][1][0][0]
    weights = list(network.parameters())
    optimizer = (torch.optim.AdamW(weights, rate, betas=(BETA1, 0.999)) if kind == "adamw" else
                 torch.optim.SGD(weights, rate, momentum=0.9))
    losses, gradients = [], None
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        loss = loss_of(network, data[part], labels[part])
        loss.backward()
        gradients = gradients or {key: value.grad.double().numpy().copy()
                                  for key, value in network.named_parameters()}
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, gradients


def export(network, x, path):
    warnings.simplefilter("ignore")  # of tracing: shapes are fixed
    known = inspect.signature(torch.onnx.export).parameters
    older = {"dynamo": False} if "dynamo" in known else {}  # torch 2.5 and later have two exporters
    torch.onnx.export(network, (x,), path, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, opset_version=17, input_names=["x"],
                      output_names=["y"], **older)


def train(program, folder, data, labels, steps):
    """Losses, and what the checkpoint holds."""
    paths = {key: os.path.join(folder, key) for key in ("x.npy", "y.npy", "m.csv", "c.npz")}
    numpy.save(paths["x.npy"], data)
    numpy.save(paths["y.npy"], labels)
    run(program, "--data", paths["x.npy"], "--labels", paths["y.npy"], "--steps", str(steps),
        "--no-shuffle", "--metrics", paths["m.csv"], "--save", paths["c.npz"])
    with open(paths["m.csv"], encoding="utf-8") as file:
        losses = [float(line.split(",")[2]) for line in file.readlines()[1:]]
    with numpy.load(paths["c.npz"]) as file:
        return losses, {key: file[key] for key in file.files}


def class_axis(name):
    """Where both ends of the output may be the classes."""
    labels = NETWORKS[name][2]
    return ["--class-axis", {1: "1", 2: "-1", 3: "1"}[len(labels)]] if len(labels) > 1 else []


class Ours:
    """The network compiled, with weights in the type that they have in `network`."""

    def __init__(self, args, name, network, x, folder):
        self.folder, self.kind = folder, NETWORKS[name][4]
        model, self.program = os.path.join(folder, "m.onnx"), os.path.join(folder, "trainer")
        export(network, x, model)
        target = "c" if next(network.parameters()).dtype == torch.float64 else "cpu"
        run(args.ullage, "compile", model, "-o", self.program, "--target", target, "--train",
            "--optimizer", self.kind, "--lr", str(NETWORKS[name][5]),
            *class_axis(name))

    def gradients(self, data, labels):
        saved = train(self.program, self.folder, data, labels, 1)[1]
        state = "exp_avg" if self.kind == "adamw" else "momentum"
        scale = 1 - BETA1 if self.kind == "adamw" else 1
        return {key[: -len(state) - 1]: value.astype(numpy.float64) / scale
                for key, value in saved.items() if key.endswith("/" + state)}

    def losses(self, data, labels, steps):
        return train(self.program, self.folder, data, labels, steps)[0]


def distance(a, b):
    return numpy.linalg.norm(a - b) / max(numpy.linalg.norm(b), 1e-300)


def error_of(losses, want):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, want))


def check_losses(what, got, want, limit):
    error = error_of(got, want)
    print(f"  {what}: losses {want[0]:.4f} to {want[-1]:.4f}, {len(got)} steps, off by at most "
          f"{error:.1e}", flush=True)
    if len(got) != len(want) or not error <= limit:
        raise Failure(f"{what}: losses {got}, not {want}")


def check_gradients(what, got, want, limit, own=None):
    """own: gradients by torch in float32; twice what they are off is allowed."""
    limits = {key: max(limit, 2 * distance(own[key], want[key]) if own else 0) for key in want}
    if set(got) != set(want):
        raise Failure(f"{what}: trains {sorted(set(got) ^ set(want))} in one of both")
    errors = {key: distance(got[key].reshape(want[key].shape), want[key]) for key in want}
    worst = max(errors, key=lambda key: errors[key] / limits[key])
    print(f"  {what}: {len(want)} gradients, off by at most {max(errors.values()):.1e}; nearest to "
          f"its limit {worst}, {errors[worst]:.1e} of {limits[worst]:.1e}", flush=True)
    if not errors[worst] <= limits[worst]:
        raise Failure(f"{what}: gradient of {worst}")


def check(args, name, folder):
    torch.manual_seed(5)
    network = NETWORKS[name][0]().double().train()
    start = {key: value.clone() for key, value in network.state_dict().items()}
    data, labels = make_samples(name, args.steps)
    x, y = torch.from_numpy(data), torch.from_numpy(labels)
    batch = NETWORKS[name][1][0][0]
    theirs = learn_by_torch(name, network, x, y, args.steps)
    network.load_state_dict(start)
    ours = Ours(args, name, network, x[:batch], folder)
    check_gradients("double, target c", ours.gradients(data, labels), theirs[1], 1e-9)
    check_losses("double, target c", ours.losses(data, labels, args.steps), theirs[0], 1e-8)

    network.load_state_dict(start)
    network.float()
    if data.dtype == numpy.float64:
        data, x = data.astype(numpy.float32), x.float()
    start = {key: value.clone() for key, value in network.state_dict().items()}
    steps = min(FLOAT_STEPS, args.steps)
    own, rounded = learn_by_torch(name, network, x, y, steps)
    network.load_state_dict(start)
    ours = Ours(args, name, network, x[:batch], folder)
    check_gradients("float32, target cpu", ours.gradients(data, labels), theirs[1], 1e-5, rounded)
    print(f"  float32, torch itself: gradients off by at most "
          f"{max(distance(rounded[key], theirs[1][key]) for key in rounded):.1e}, losses "
          f"{error_of(own, theirs[0]):.1e}", flush=True)
    check_losses("float32, target cpu", ours.losses(data, labels, steps), theirs[0][:steps], 1e-4)


def run_networks(args, check):
    """check(args, name, folder) of each that was asked for; the exit code."""
    failed = 0
    for name in part(args.networks):
        print(f"{name}:", flush=True)
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                check(args, name, folder)
            print(f"  ok, {time.monotonic() - begin:.0f} s", flush=True)
        except Failure as failure:
            print(f"  {failure}", flush=True)
            failed += 1
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    args = parser.parse_args()
    torch.set_num_threads(2)
    return run_networks(args, check)


if __name__ == "__main__":
    sys.exit(main())
