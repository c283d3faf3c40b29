#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks as PyPI's torch exports them today, trained.

    build/venv-torch/bin/python exporters.py ULLAGE

torch.onnx.export's default makes constants of parameters: --train refuses, and says the call that
works. By that call exactly net.named_parameters() are trained, and a step gives torch's loss and
torch's parameters: batch statistics, a class token, GroupNorm, an LSTM, single numbers, detach(),
padding_idx. The environment is that of tests/bench/training.
Exit: 0 ok, 1 a promise is broken, 77 torch of PyPI is not there.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnxscript  # pylint: disable=unused-import # torch.onnx.export needs it
    import torch
    from torch import nn
except (ImportError, OSError) as error:
    print(f"exporters.py: skipped: {error}")
    sys.exit(77)

ULLAGE = os.path.abspath(sys.argv[1])
RECIPE = "net.train(); torch.onnx.export(net, args, f, optimize=False)"
BATCH, CLASSES, RATE = 8, 5, 0.1


class Net(nn.Module):
    """What exporters change, in one network."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.rand(1, 3, 1, 1))
        self.register_buffer("std", torch.ones(1, 3, 1, 1) * 0.5)
        self.register_buffer("pe", torch.rand(17, 8), persistent=False)
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.gn = nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.cls = nn.Parameter(torch.rand(1, 1, 8))
        self.pos = nn.Parameter(torch.rand(1, 17, 8))
        self.temperature = nn.Parameter(torch.tensor(0.7))
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.emb = nn.Embedding(10, 8, padding_idx=0)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x, ids):
        x = (x - self.mean) / self.std
        x = self.gn(self.conv2(torch.relu(self.bn(self.conv(x)))))
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos + self.pe
        x, _ = self.rnn(x)
        x = x + self.emb(ids)[:, None]
        x = x * self.temperature + x.detach() * x
        return self.fc(x.mean(1))


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return " ".join((done.stdout + done.stderr).split())


def check_refused(args):
    """Both modes of the default."""
    for training in (True, False):
        net = Net().train(training)
        torch.onnx.export(net, args, "folded.onnx", verbose=False)
        said = run(ULLAGE, "plan", "folded.onnx", "--train", "--train-mode", code=3)
        if RECIPE not in said or "more, which its record in the file names" not in said:
            raise AssertionError(f"the default export in mode {training}: {said}")
    run(ULLAGE, "plan", "folded.onnx", "--train", "--train-only", "fc.*")


def check_step(args, labels):
    """The call that works, and one step of SGD."""
    net = Net().train()
    torch.onnx.export(net, args, "net.onnx", optimize=False, verbose=False)
    listed = subprocess.run([ULLAGE, "inspect", "net.onnx", "--train", "--train-mode"],
                            capture_output=True, text=True, check=True).stdout  # fmt: skip
    trained = {line.split()[1].strip('"') for line in listed.splitlines() if line.startswith("  trained")}
    names = {name for name, _ in net.named_parameters()}
    if trained != names:
        raise AssertionError(f"trained beside torch's: {sorted(trained ^ names)}")
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    loss = nn.functional.cross_entropy(net(*args), labels)
    loss.backward()
    optimizer.step()
    run(ULLAGE, "compile", "net.onnx", "--target", "c", "--cflags", "-O1", "--train", "--train-mode",
        "--optimizer", "sgd", "--lr", str(RATE), "-o", "trainer")  # fmt: skip
    for name, array in (("x", args[0]), ("ids", args[1]), ("y", labels)):
        numpy.save(f"{name}.npy", array.numpy())
    run("./trainer", "--data", "x.npy", "--input", "ids=ids.npy", "--labels", "y.npy", "--steps", "1",
        "--no-shuffle", "--save", "c.npz", "--metrics", "m.csv")  # fmt: skip
    with open("m.csv", encoding="ascii") as file:
        got = float(file.readlines()[1].split(",")[2])
    if abs(got - loss.item()) > 1e-5 * abs(loss.item()):
        raise AssertionError(f"the loss is {got}, torch's {loss.item()}")
    checkpoint = numpy.load("c.npz")
    state = net.state_dict()
    for name in [*names, "bn.running_mean", "bn.running_var"]:
        want = state[name].numpy()
        error = numpy.abs(checkpoint[name] - want).max()
        if not error <= 2e-5 * max(1, numpy.abs(want).max()):
            raise AssertionError(f"{name} is {error:.2g} from torch's")


def main():
    torch.manual_seed(0)
    args = (torch.rand(BATCH, 3, 4, 4), torch.randint(0, 10, (BATCH,)))
    args[1][:2] = 0
    labels = torch.randint(0, CLASSES, (BATCH,))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            check_refused(args)
            check_step(args, labels)
        except AssertionError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
