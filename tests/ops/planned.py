#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of ONNX's backend tests: every one in scope has a plan, with advice, where the inputs that
tests.tsv lists are constants. `ullage verify`, by which run.sh goes, makes no advice and finds the
constants itself.

    planned.py ULLAGE [--target NAME] [--stride K]

exit: 0 ok, 6 a test has no plan, 77 a package is missing
"""

import argparse
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from part import part  # noqa: E402

try:
    import list_tests
    import onnx
except ImportError as error:
    print(f"planned.py: skipped: {error}")
    sys.exit(77)


def given(folder, names):
    """--const NAME=FILE of each of the names, --shape of other inputs whose sizes the model leaves
    open."""
    graph = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph
    for index, one in enumerate(graph.input):
        path = os.path.join(folder, "test_data_set_0", f"input_{index}.pb")
        if one.type.HasField("sequence_type"):
            with open(path, "rb") as file:
                sequence = onnx.SequenceProto.FromString(file.read())
            for k, tensor in enumerate(sequence.tensor_values):
                yield from ("--shape", f"{one.name}[{k}]={','.join(map(str, tensor.dims))}")
        elif one.name in names:
            yield from ("--const", f"{one.name}={path}")
        elif any(dim.dim_param for dim in one.type.tensor_type.shape.dim):
            dims = onnx.load_tensor(path).dims
            yield from ("--shape", f"{one.name}={','.join(map(str, dims))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--stride", type=int, default=1, help="only every K-th test")
    args = parser.parse_args()
    data = list_tests.find_data(None)
    rows = [row for row in list_tests.scope_rows(data) if row["scope"] == "in"]
    rows, failed = part(rows[:: args.stride]), 0
    for row in rows:
        folder = os.path.join(data, row["test"])
        names = [] if row["constants"] == "-" else row["constants"].split(",")
        command = [args.ullage, "plan", os.path.join(folder, "model.onnx"), "--target", args.target,
                   *given(folder, names)]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)  # fmt: skip
        if done.returncode != 0:
            failed += 1
            print(f"FAIL {row['test']}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    print(f"{len(rows)} tests, {failed} without a plan")
    return 6 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
