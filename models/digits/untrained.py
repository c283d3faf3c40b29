#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the demo trains: the digits network as it is before training, with seeded random
weights, and the pictures that train.py trains on.

Writes: untrained.onnx (as digits.onnx, which train.py writes), train_x.npy (float32 [N,1,8,8] in
0..1), train_y.npy (int64 [N]). The pictures of heldout.npz are not among them.
Usage: python models/digits/untrained.py [--out DIR]
"""

import argparse
import os

import numpy as np
from sklearn.datasets import load_digits

from train import SEED, build, export, split


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    args = parser.parse_args()
    rng = np.random.default_rng(SEED)
    digits = load_digits()
    x = (digits.images[:, None] / 16).astype(np.float32)
    train, _ = split(digits.target, rng)
    export(build(rng), os.path.join(args.out, "untrained.onnx"))
    np.save(os.path.join(args.out, "train_x.npy"), x[train])
    np.save(os.path.join(args.out, "train_y.npy"), digits.target[train].astype(np.int64))


if __name__ == "__main__":
    main()
