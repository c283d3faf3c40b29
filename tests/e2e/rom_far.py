#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read-only weights of more than 2 GiB, which are too far from code for its instructions to reach.

    rom_far.py ULLAGE PEAK

Two tables of 1.2 GiB, external data of which all but the last rows are holes, a row of each added: as
a program and as a shared library. What runs takes the pages that it reads, and no more. PEAK is the
program of peak.c.

Exit: 0 ok, 1 it is not so, 77 something is missing here.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, helper, save
except ImportError as error:
    print(f"rom_far.py: skipped: {error}")
    sys.exit(77)

ROWS, COLUMNS = 320000, 1024
TABLE_BYTES = ROWS * COLUMNS * 4
NOT_TRACED = 125  # peak.c
FREE_BYTES = 5 * 2 * TABLE_BYTES  # weights.bin, an object and the result, twice at the worst


def table(file, index):
    """An initializer whose last row is index * 1000 + 0, 1, 2 ..."""
    tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS])
    tensor.data_location = TensorProto.EXTERNAL
    begin = index * TABLE_BYTES
    for key, value in (("location", "far.bin"), ("offset", begin), ("length", TABLE_BYTES)):
        tensor.external_data.add(key=key, value=str(value))
    file.seek(begin + TABLE_BYTES - COLUMNS * 4)
    file.write((index * 1000 + numpy.arange(COLUMNS, dtype="<f4")).tobytes())
    return tensor


def make():
    with open("far.bin", "wb") as file:
        tables = [table(file, 0), table(file, 1)]
    nodes = [helper.make_node("Gather", [f"w{i}", "at"], [f"row{i}"]) for i in range(2)]
    nodes.append(helper.make_node("Add", ["row0", "row1"], ["y"]))
    graph = helper.make_graph(
        nodes, "far", [helper.make_tensor_value_info("at", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, COLUMNS])], tables)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "far.onnx")
    numpy.save("at.npy", numpy.array([ROWS - 1]))


def main():
    ullage, peak = (os.path.realpath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if shutil.disk_usage(".").free < FREE_BYTES:
            print(f"rom_far.py: skipped: there are no {FREE_BYTES >> 30} GiB free here")
            return 77
        make()
        compiled = [ullage, "compile", "far.onnx", "--target", "c", "--weights", "rom", "-o"]
        subprocess.run([*compiled, "far"], check=True)
        done = subprocess.run([peak, "peak", "./far", "--input", "at=at.npy", "--output-dir", "."], check=False)
        if done.returncode == NOT_TRACED:
            print("rom_far.py: skipped: this machine lets nobody look at a process")
            return 77
        assert done.returncode == 0, f"the program ends with {done.returncode}"
        assert (numpy.load("y.npy") == 1000 + 2 * numpy.arange(COLUMNS)).all()
        with open("peak", encoding="ascii") as file:
            taken = int(file.read().split()[0])
        assert taken < 64 << 20, f"it took {taken} bytes"
        os.remove("far")
        subprocess.run([*compiled, "far.so", "--shared-library"], check=True)
        assert ctypes.CDLL("./far.so").model_input_count() == 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
