#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loops of few rounds that load by a condition: gcc 12 miscompiles them for vectors of 512 bits where it
may unroll them.

    guarded.py ULLAGE TARGET

An image of 2 to 17 channels that come last, of each type, is padded along both other axes. Exit: 0 ok,
1 a result differs from numpy's or a command failed, 77 a Python package is missing.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from onnx import helper, numpy_helper, save
except ImportError as error:
    print(f"guarded.py: skipped: {error}")
    sys.exit(77)

DTYPES = [np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64")]
CHANNELS = range(2, 18)
PADS = ((1, 0), (2, 1), (0, 0))  # before and after, along each axis


def build():
    """A model with a Pad of each type and number of channels, its inputs, and what is to come out."""
    rng = np.random.default_rng(3)
    pads = numpy_helper.from_array(np.array(PADS, np.int64).T.ravel(), "pads")
    nodes, infos, feeds, want = [], ([], []), {}, {}
    for dtype in DTYPES:
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        for channels in CHANNELS:
            x, y = f"x_{dtype}_{channels}", f"y_{dtype}_{channels}"
            feeds[x] = (rng.uniform(1, 100, (5, 8, channels))).astype(dtype)
            want[y] = np.pad(feeds[x], PADS)
            nodes.append(helper.make_node("Pad", [x, "pads"], [y]))
            infos[0].append(helper.make_tensor_value_info(x, kind, feeds[x].shape))
            infos[1].append(helper.make_tensor_value_info(y, kind, want[y].shape))
    graph = helper.make_graph(nodes, "guarded", *infos, [pads])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), feeds, want


def main():
    ullage, target = sys.argv[1:]
    model, feeds, want = build()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path, program, given = os.path.join(folder, "m.onnx"), os.path.join(folder, "m"), []
        save(model, path)
        for name, array in feeds.items():
            np.save(os.path.join(folder, f"{name}.npy"), array)
            given += ["--input", f"{name}={folder}/{name}.npy"]
        for command in ([ullage, "compile", "--target", target, path, "-o", program],
                        [program, *given, "--output-dir", folder]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"FAIL: exit {done.returncode}: {done.stderr.strip()}")
        for name, array in want.items():
            if not np.array_equal(np.load(os.path.join(folder, f"{name}.npy")), array):
                print(f"FAIL {name} on {target}")
                failed += 1
    print(f"{len(want)} paddings on {target}, {failed} wrong")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
