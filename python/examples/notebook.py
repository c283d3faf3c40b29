#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A notebook as a script, cell by cell (# %%): plans the digits network, runs and trains it.

usage: notebook.py [FOLDER]     (with digits.onnx, train_x.npy ...; default models/digits)"""

# %% What does it take?
import os
import sys

import numpy

import ullage

here = os.path.dirname(os.path.abspath(__file__))
folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "..", "models", "digits")
digits, untrained = (os.path.join(folder, name) for name in ("digits.onnx", "untrained.onnx"))
print(ullage.plan(digits, dims={"N": 16}))

# %% What would less memory cost?
sweep = ullage.plan(digits, dims={"N": 16}, sweep=True)
for row in sweep:
    print(f"{row['process_bytes']:>12} bytes  {100 * row['overhead']:8.2f} % more time")

# %% And what is impossible?
try:
    ullage.plan(digits, dims={"N": 16}, budget="100KiB")
except ullage.DoesNotFit as error:
    print(f"{error.shortfall_bytes} bytes short; {error.smallest_budget_bytes} would do")

# %% Run it
model = ullage.compile(digits, dims={"N": 16})
print(model)
with numpy.load(os.path.join(folder, "heldout.npz")) as heldout:
    images = numpy.ascontiguousarray(heldout["x"][: len(heldout["x"]) // 16 * 16])
labels = numpy.loadtxt(os.path.join(folder, "heldout_y.txt"), dtype=int)[: len(images)]
scores = numpy.concatenate([model(images[i : i + 16]) for i in range(0, len(images), 16)])
print(f"{(scores.argmax(1) == labels).sum()} of {len(labels)} held-out digits right")

# %% Train it from random weights
trainer = ullage.Trainer(
    untrained,
    dims={"N": 32},
    train_mode=True,
    output="/fc/Gemm_output_0",
    optimizer="momentum",
    lr=0.05,
    weight_decay=5e-4,
    schedule="warmup:50,cosine:500",
)
print(trainer)
x = numpy.load(os.path.join(folder, "train_x.npy"))
y = numpy.load(os.path.join(folder, "train_y.npy"))
random = numpy.random.default_rng(1)
for epoch in range(12):
    order = random.permutation(len(x))[: len(x) // 32 * 32].reshape(-1, 32)
    loss = sum(trainer.step(x[batch], y[batch]) for batch in order) / len(order)
    print(f"epoch {epoch}: loss {loss:.4f}")

# %% Keep the result
trainer.save("digits.npz")
trainer.export("trained.onnx")
trained = ullage.compile("trained.onnx", dims={"N": 16})
scores = numpy.concatenate([trained(images[i : i + 16]) for i in range(0, len(images), 16)])
right = int((scores.argmax(1) == labels).sum())
print(f"{right} of {len(labels)} held-out digits right")
sys.exit(0 if right >= 0.97 * len(labels) else 6)
