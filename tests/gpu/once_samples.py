# SPDX-License-Identifier: Apache-2.0
"""Samples and labels that a network is trained on, as x.npy and y.npy in a folder, for prepare_once.sh.

    once_samples.py NAME FILE.onnx FOLDER
"""

import os
import sys

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits")
COUNT = 24
CLASSES = 10


def main():
    name, path, folder = sys.argv[1:]
    if name == "digits":
        x, y = (np.load(os.path.join(DIGITS, f"train_{kind}.npy"))[:320] for kind in "xy")
    else:
        port = onnx.load(path, load_external_data=False).graph.input[0]
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        random = np.random.default_rng(1)
        if port.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            x = random.integers(0, 100, (COUNT, *shape[1:]))
            y = (x * 7 + 1) % 100
        else:
            x = random.standard_normal((COUNT, *shape[1:]), dtype=np.float32)
            y = random.integers(0, CLASSES, COUNT)
    np.save(os.path.join(folder, "x.npy"), x)
    np.save(os.path.join(folder, "y.npy"), y)


if __name__ == "__main__":
    main()
