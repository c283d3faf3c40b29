#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What may be trained on: kinds of outputs by losses, and shapes in which a size is 0.

    train_outputs.py ULLAGE [CASE]...

Each plan is made, or refused with a message that names what it is about: the output with its type
and a remedy, or the input, the parameter or the dimension that has no elements. Nothing ends by a
signal or as a defect of ours.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys

from learn import TensorProto, helper, numpy, numpy_helper, run_cases, save

LOSSES = ("softmax-cross-entropy", "mse", "bce", "output:y")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "lion", "adafactor", "adam-mini")
FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
OTHERS = ("BOOL", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64",
          "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "FLOAT4E2M1")


def make(path, nodes, weights, inputs, output, kind=TensorProto.FLOAT):
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info("y", kind, output)],
        [numpy_helper.from_array(value.astype(numpy.float32), name)
         for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)


def plan(args, path, *more):
    done = subprocess.run([args.ullage, "plan", path, "--target", "c", "--train", "--advice", "off",
                           *more], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1, 3):
        raise AssertionError(f"{more}: exit {done.returncode}: {done.stderr}")
    return done.returncode, done.stderr


def check_types(args, folder):
    path = os.path.join(folder, "m.onnx")
    for kind in FLOATS + OTHERS:
        number = getattr(TensorProto, kind)
        make(path, [helper.make_node("MatMul", ["x", "w"], ["h"]),
                    helper.make_node("Cast", ["h"], ["y"], to=number)],
             {"w": numpy.ones((3, 5))}, [("x", [4, 3])], [4, 5], number)
        for loss in LOSSES[:3]:
            code, told = plan(args, path, "--loss", loss)
            if kind in FLOATS and code != 0:
                raise AssertionError(f"{kind}, {loss}: {told}")
            if kind in OTHERS and (code != 1 or '--output "h"' not in told or "[4,5]" not in told):
                raise AssertionError(f"{kind}, {loss}: exit {code}: {told}")
        code, told = plan(args, path, "--loss", "output:y")
        if code != 1 or "[4,5]" not in told:
            raise AssertionError(f"{kind}, output:y: exit {code}: {told}")
    for node in ([helper.make_node("Greater", ["h", "x0"], ["y"])],
                 [helper.make_node("QuantizeLinear", ["h", "s"], ["y"])],
                 [helper.make_node("ArgMax", ["h"], ["y"], axis=1)]):
        make(path, [helper.make_node("MatMul", ["x", "w"], ["h"]), *node],
             {"w": numpy.ones((3, 5)), "x0": numpy.zeros(1), "s": numpy.array(0.5)},
             [("x", [4, 3])], None, {"Greater": TensorProto.BOOL, "ArgMax": TensorProto.INT64}.get(
                 node[0].op_type, TensorProto.UINT8))
        for loss in LOSSES:
            code, told = plan(args, path, "--loss", loss)
            if code != 1 or '--output "h"' not in told:
                raise AssertionError(f"{node[0].op_type}, {loss}: exit {code}: {told}")


def check_zeros(args, folder):
    """Samples, features, hidden units, classes: each may be none."""
    path = os.path.join(folder, "m.onnx")
    for sizes in ((4, 3, 2, 0), (4, 3, 0, 5), (4, 0, 2, 5), (0, 3, 2, 5), (4, 3, 0, 0), (0, 0, 0, 0)):
        samples, features, hidden, classes = sizes
        for middle in ([helper.make_node("Relu", ["a"], ["h"])],
                       [helper.make_node("BatchNormalization", [*"asbmv"], ["h", "m1", "v1"],
                                         training_mode=1)]):
            make(path, [helper.make_node("MatMul", ["x", "w"], ["a"]), *middle,
                        helper.make_node("MatMul", ["h", "u"], ["y"])],
                 {"w": numpy.ones((features, hidden)), "u": numpy.ones((hidden, classes)),
                  **{name: numpy.ones(hidden) for name in "sbmv"}},
                 [("x", [samples, features])], [samples, classes])
            for loss in LOSSES:
                code, told = plan(args, path, "--loss", loss)
                if code == 1 and "no elements" not in told and "is empty" not in told and \
                        "one float" not in told and "no variance" not in told:
                    raise AssertionError(f"{sizes}, {loss}: {told}")
                if 0 in (samples, classes) and code == 0:
                    raise AssertionError(f"{sizes}, {loss}: planned")
    images = (4, 0, 5, 6)
    for shape in (images, (4, 3, 0, 6), (4, 3, 5, 0)):
        make(path, [helper.make_node("Mul", ["x", "w"], ["y"])],
             {"w": numpy.ones((1, shape[1], 1, 1))}, [("x", list(shape))], list(shape))
        for loss in LOSSES[:3]:
            for axis in ("1", "-1"):
                more = ["--class-axis", axis] if loss == LOSSES[0] else []
                plan(args, path, "--loss", loss, *more)


def check_parameters(args, folder):
    """A parameter that has no elements, by each optimizer."""
    path = os.path.join(folder, "m.onnx")
    for shape, way in (((3, 0), "Concat"), ((0,), "Concat")):
        first = [helper.make_node("MatMul", ["x", "w"], ["a"])] if len(shape) > 1 else []
        joined = ["a", "h"] if len(shape) > 1 else ["h", "w"]
        nodes = [helper.make_node("MatMul", ["x", "u"], ["h"]), *first,
                 helper.make_node(way, joined, ["y"], axis=1)]
        if len(shape) == 1:
            nodes = [helper.make_node("MatMul", ["x", "u"], ["h"]),
                     helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0),
                     helper.make_node("Add", ["h", "s"], ["y"])]
        make(path, nodes, {"w": numpy.ones(shape), "u": numpy.ones((3, 2))}, [("x", [4, 3])], [4, 2])
        for optimizer in OPTIMIZERS:
            for more in ([], ["--clip-norm", "1"], ["--loss-scale", "8"], ["--micro-batches", "2"]):
                plan(args, path, "--optimizer", optimizer, *more)


CHECKS = {"types": check_types, "zeros": check_zeros, "parameters": check_parameters}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    return run_cases(args.cases or list(CHECKS), lambda name, folder: CHECKS[name](args, folder))


if __name__ == "__main__":
    sys.exit(main())
