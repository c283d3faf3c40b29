#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend tests of operators that make as many elements as their data say, with these data
as constants: `ullage verify --const`. As inputs of the program they are refused, which tests.tsv says.

    by_data.py ULLAGE [--target NAME] [--stride K]

exit: 0 ok, 6 a test failed, 77 a package is missing
"""

import argparse
import os
import subprocess
import sys

try:
    import list_tests
    import onnx
except ImportError as error:
    print(f"by_data.py: skipped: {error}")
    sys.exit(77)

# Each with the inputs that may be data.
OPERATORS = {"Compress": ("input",), "NonMaxSuppression": (), "NonZero": (), "Unique": ()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--stride", type=int, default=1, help="only every K-th test")
    args = parser.parse_args()
    data, count, failed = list_tests.find_data(None), 0, 0
    for test in sorted(os.listdir(data)):
        folder = os.path.join(data, test)
        graph = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph
        if len(graph.node) != 1 or graph.node[0].op_type not in OPERATORS:
            continue
        count += 1
        if count % args.stride:
            continue
        command = [args.ullage, "verify", "--target", args.target, "--cflags", "-O0",
                   os.path.join(folder, "model.onnx")]  # fmt: skip
        for index, one in enumerate(graph.input):
            if one.name not in OPERATORS[graph.node[0].op_type]:
                path = os.path.join(folder, "test_data_set_0", f"input_{index}.pb")
                command += ["--const", f"{one.name}={path}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)  # fmt: skip
        if done.returncode != 0:
            failed += 1
            print(f"FAIL {test}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    print(f"{count // args.stride} tests, {failed} failed")
    return 6 if failed or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
