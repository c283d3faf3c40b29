#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/operators.md says about what ONNX leaves undefined: a case for each row of its table.

    undefined.py ULLAGE [--target NAME]...

All cases are outputs of one model, which is compiled and compared with the values here, exactly, NaN with
NaN. A row of the page without a case, or a case without a row, is a failure. exit: 0 ok, 6 a
difference, 77 a package is missing"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"undefined.py: skipped: {error}")
    sys.exit(77)

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/operators.md")
NAN, INF = float("nan"), float("inf")
F, I8, U8, I32, I64 = np.float32, np.int8, np.uint8, np.int32, np.int64
LOW, HIGH = -(2**31), 2**31 - 1
CASES = {}


def case(row, op, inputs, wanted, **attributes):
    CASES.setdefault(row, []).append((op, inputs, wanted, attributes))


case("Cast of floats to integers", "Cast", [F([300, -300, INF, -INF, NAN, -1.9])],
     I8([127, -128, 127, -128, 0, -1]), to=TensorProto.INT8)
case("Cast of floats to integers", "Cast", [F([3e9, -3e9, NAN])], I32([HIGH, LOW, 0]),
     to=TensorProto.INT32)
case("Cast of floats to integers", "Cast", [F([1e30, -1e30])], I64([2**63 - 1, -(2**63)]),
     to=TensorProto.INT64)
case("Cast of floats to integers", "Cast", [F([-5, 256, 255.9])], U8([0, 255, 255]),
     to=TensorProto.UINT8)
case("Cast of floats to integers", "Cast", [F([9, -9.5, 16])],
     np.array([-7, 7, 0], ml_dtypes.int4), to=TensorProto.INT4)
case("Cast of NaN to bool", "Cast", [F([NAN, 0, -0.0, 1e-45])],
     np.array([True, False, False, True]), to=TensorProto.BOOL)
case("Sums and products of integers", "Add", [I8([127, -128]), I8([1, -1])], I8([-128, 127]))
case("Sums and products of integers", "Mul", [I32([65536, LOW]), I32([65536, -1])], I32([0, LOW]))
case("Sums and products of integers", "Neg", [I32([LOW, 5])], I32([LOW, -5]))
case("Sums and products of integers", "Abs", [I8([-128, -3])], I8([-128, 3]))
case("Division of integers", "Div", [I32([7, -7, 5, LOW]), I32([2, 2, 0, -1])], I32([3, -3, 0, LOW]))
case("Division of integers", "Div", [U8([9]), U8([0])], U8([0]))
case("Division of integers", "Mod", [I32([7, -7, LOW]), I32([0, 0, -1])], I32([0, 0, 0]))
case("Division of integers", "Mod", [I32([7, LOW]), I32([0, -1])], I32([0, 0]), fmod=1)
case("Powers of integers", "Pow", [I32([2, 1, -1, 0, 3]), I32([-1, -5, -3, -1, 21])],
     I32([0, 1, -1, 0, 1870418611]))
case("Shifts", "BitShift", [U8([255, 1]), U8([8, 200])], U8([0, 0]), direction="LEFT")
case("Shifts", "BitShift", [U8([255, 1]), U8([8, 200])], U8([0, 0]), direction="RIGHT")
case("Shifts", "BitShift", [I8([-5, -5, 5]), I8([8, -1, -1])], I8([-1, -1, 0]), direction="RIGHT")
case("Shifts", "BitShift", [I32([-5, 5]), I32([-1, 99])], I32([0, 0]), direction="LEFT")
case("QuantizeLinear", "QuantizeLinear", [F([NAN, INF, -INF, 2.5, 3.5]), F(1), U8(10)],
     U8([10, 255, 0, 12, 14]))
case("QuantizeLinear", "QuantizeLinear", [F([NAN, 1e30, -1e30]), F(1e-5), I8(3)], I8([3, 127, -128]))
case("TopK", "TopK", [F([1, 3, 3, NAN, 2]), I64([5])], I64([3, 1, 2, 4, 0]))
case("TopK", "TopK", [F([1, 3, 3, NAN, 2, 1]), I64([6])], I64([0, 5, 4, 1, 2, 3]), largest=0)
case("ArgMax and ArgMin", "ArgMax", [F([[2, 5, 5], [1, NAN, 7]])], I64([[1], [1]]), axis=1)
case("ArgMax and ArgMin", "ArgMin", [F([[2, 2, 5], [1, NAN, 0]])], I64([[0], [1]]), axis=1)
case("ArgMax and ArgMin", "ArgMax", [F([[2, 5, 5]])], I64([[2]]), axis=1, select_last_index=1)
case("Max, Min, Clip and Relu of NaN", "Max", [F([NAN, 1]), F([1, NAN])], F([NAN, NAN]))
case("Max, Min, Clip and Relu of NaN", "Min", [F([NAN, 1]), F([1, NAN])], F([NAN, NAN]))
case("Max, Min, Clip and Relu of NaN", "Clip", [F([NAN, 9]), F(0), F(6)], F([NAN, 6]))
case("Max, Min, Clip and Relu of NaN", "Relu", [F([NAN, -1])], F([NAN, 0]))
case("Max, Min, Clip and Relu of NaN", "ReduceMax", [F([[1, NAN, 2]]), I64([1])], F([[NAN]]))
case("Clip with min above max", "Clip", [F([-9, 0, 9]), F(5), F(2)], F([2, 2, 2]))
case("Sign of NaN", "Sign", [F([NAN, -0.0, -2])], F([NAN, -0.0, -1]))
case("Softmax of a row of -inf", "Softmax", [F([[-INF, -INF], [0, -INF]])], F([[NAN, NAN], [1, 0]]))
case("Softmax of a row of -inf", "LogSoftmax", [F([[-INF, -INF]])], F([[NAN, NAN]]))
EMPTY = np.zeros((2, 0), F)
for name, value in (("Sum", 0), ("Prod", 1), ("Max", -INF), ("Min", INF), ("Mean", NAN), ("L1", 0),
                    ("L2", 0), ("SumSquare", 0), ("LogSum", -INF), ("LogSumExp", -INF)):  # fmt: skip
    case("Reductions of nothing", "Reduce" + name, [EMPTY, I64([1])], F([[value], [value]]))
case("Reductions of nothing", "ReduceMax", [np.zeros((2, 0), I32), I64([1])], I32([[LOW], [LOW]]))
case("ReduceMean of integers", "ReduceMean", [I32([[7, 8], [-7, -8]]), I64([1])], I32([[7], [-7]]))
case("Pooling of only padding", "MaxPool", [F([[[1, 2]]])], F([[[1, 2, -INF]]]),
     kernel_shape=[1], pads=[0, 1])
case("Pooling of only padding", "MaxPool", [I8([[[1, 2]]])], I8([[[1, 2, -128]]]),
     kernel_shape=[1], pads=[0, 1])
case("Pooling of only padding", "AveragePool", [F([[[1, 2]]])], F([[[1, 2, 0]]]),
     kernel_shape=[1], pads=[0, 1])
case("Resize by nearest", "Resize", [F([[[1, 2, 3, 4]]]), "", F([1, 1, 0.5])], F([[[1, 3]]]),
     mode="nearest")
case("Resize by nearest", "Resize", [F([[[1, 2]]]), "", F([1, 1, 2])], F([[[1, 1, 2, 2]]]),
     mode="nearest", coordinate_transformation_mode="half_pixel")
case("ScatterElements of one place twice", "ScatterElements",
     [F([0, 0, 0]), I64([1, 1, 2]), F([5, 6, 7])], F([0, 6, 7]))
case("ScatterElements of one place twice", "ScatterND",
     [F([0, 0, 0]), I64([[1], [1], [2]]), F([5, 6, 7])], F([0, 6, 7]))
case("Round", "Round", [F([0.5, 1.5, -2.5, NAN])], F([0, 2, -2, NAN]))


def build(folder):
    nodes, inputs, outputs, values, wanted = [], [], [], [], []
    for row, cases in CASES.items():
        for op, operands, result, attributes in cases:
            n = len(outputs)
            names = []
            for i, operand in enumerate(operands):
                names.append("" if isinstance(operand, str) else f"c{n}_{i}")
                if names[-1]:
                    kind = helper.np_dtype_to_tensor_dtype(operand.dtype)
                    inputs.append(helper.make_tensor_value_info(names[-1], kind, np.shape(operand)))
                    values.append(numpy_helper.from_array(np.asarray(operand), names[-1]))
            made = ["", f"y{n}"] if op == "TopK" else [f"y{n}"]
            nodes.append(helper.make_node(op, names, made, name=f"{row} ({n})", **attributes))
            kind = helper.np_dtype_to_tensor_dtype(result.dtype)
            outputs.append(helper.make_tensor_value_info(f"y{n}", kind, result.shape))
            wanted.append(numpy_helper.from_array(result, f"y{n}"))
    graph = helper.make_graph(nodes, "undefined", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=14)
    onnx.save(model, f"{folder}/model.onnx")
    os.mkdir(f"{folder}/test_data_set_0")
    for kind, tensors in (("input", values), ("output", wanted)):
        for i, tensor in enumerate(tensors):
            onnx.save_tensor(tensor, f"{folder}/test_data_set_0/{kind}_{i}.pb")


def rows_of_page():
    with open(PAGE, encoding="utf-8") as file:
        table = re.findall(r"^\| ([^|]+?) \| [^|]+ \| [^|]+ \|$", file.read(), re.MULTILINE)
    return {row for row in table if row != "what" and not row.startswith("-")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", action="append")
    args = parser.parse_args()
    failed = 0
    for row in sorted(rows_of_page() ^ set(CASES)):
        print(f"FAIL: docs/operators.md and this script do not both have the row '{row}'")
        failed += 1
    with tempfile.TemporaryDirectory() as folder:
        build(folder)
        for target in args.target or ["c"]:
            command = [args.ullage, "verify", "--target", target, "--cflags", "-O1", "--rtol", "0",
                       "--atol", "0", f"{folder}/model.onnx"]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(f"FAIL {target}: {done.stdout[-6000:]}{done.stderr[-3000:]}")
                failed += 1
    return 6 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
