#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the node tests of a newer onnx that an older one does not have.

    python newer.py OLD OUT

Wants a package onnx that is newer than that of OLD, a folder of test_*/model.onnx; since 1.23 onnx
brings its node tests as Python alone. A test is new where OLD has none of its name; where OLD has
one of another model (another operator set, another body of a function), it is written as
NAME-VERSION, so that both run. After them stand tests of our own, of types and attributes that the
newer operator sets have and no node test: what is wanted is what onnx's reference computes."""

import os
import re
import sys
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def is_same_model(model, path):
    """What decides the computation: the operator sets, the graph and the functions."""
    with open(path, "rb") as f:
        old = onnx.ModelProto.FromString(f.read())
    return all(
        [one.SerializeToString(deterministic=True) for one in getattr(model, field)]
        == [one.SerializeToString(deterministic=True) for one in getattr(old, field)]
        for field in ("opset_import", "functions")
    ) and model.graph.SerializeToString(deterministic=True) == old.graph.SerializeToString(
        deterministic=True
    )


def as_proto(value, info):
    if isinstance(value, TensorProto):
        return value
    make = {
        "map_type": numpy_helper.from_dict,
        "optional_type": numpy_helper.from_optional,
        "sequence_type": numpy_helper.from_list,
    }.get(info.type.WhichOneof("value"), numpy_helper.from_array)
    return make(value, info.name)


def write(case, folder):
    os.makedirs(os.path.join(folder, "test_data_set_0"))
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(case.model.SerializeToString())
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
        for i, value in enumerate(values):
            with open(os.path.join(folder, "test_data_set_0", f"{kind}_{i}.pb"), "wb") as f:
                f.write(as_proto(value, infos[i]).SerializeToString())


FLOAT6 = {"FLOAT6E2M3": ml_dtypes.float6_e2m3fn, "FLOAT6E3M2": ml_dtypes.float6_e3m2fn}


def own(name, nodes, inputs, output_type, weights=()):
    """A test of nodes from inputs {name: array} to "y", by onnx's reference."""
    infos = [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype),
                                           array.shape) for key, array in inputs.items()]  # fmt: skip
    tensors = [numpy_helper.from_array(array, key) for key, array in dict(weights).items()]
    y = helper.make_tensor_value_info("y", output_type, None)
    model = helper.make_model(helper.make_graph(nodes, name, infos, [y], tensors),
                              opset_imports=[helper.make_opsetid("", 28)], ir_version=14)  # fmt: skip
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, dict(inputs))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", output_type, wanted[0].shape))
    test = onnx.backend.test.case.test_case.TestCase
    return test(name, None, name, None, model, [(list(inputs.values()), wanted)], "node", 0, 0)


def own_cases():
    x = np.float32([0, -0.0, 0.03, -0.06, 0.4, 1.0625, -1.1875, 2.6, 3.5, -7.3, 9, -26, 27, 1e9, -np.inf])
    scale = np.float32([0.5, 2, 0.25])
    for name, dtype in FLOAT6.items():
        number, small = getattr(TensorProto, name), x.astype(dtype)
        cast = helper.make_node("Cast", ["x"], ["y"], to=number)
        for kind in ("float32", "float64", "float16", ml_dtypes.bfloat16):
            kind = np.dtype(kind)
            back = helper.np_dtype_to_tensor_dtype(kind)
            short = f"{name}_{kind.name}"
            yield own(f"test_own_cast_to_{short}", [cast], {"x": x.astype(kind)}, number)
            yield own(f"test_own_cast_from_{short}",
                      [helper.make_node("Cast", ["x"], ["y"], to=back)], {"x": small}, back)
        yield own(f"test_own_cast_to_{name}_int8", [cast], {"x": np.int8([-99, -5, 0, 7, 30])}, number)
        column = np.arange(-18, 18, dtype=np.float32).reshape(3, 12) / 3
        quantize = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], axis=0, output_dtype=number)
        yield own(f"test_own_quantize_{name}", [quantize], {"x": column}, number, {"s": scale})
        dequantize = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0)
        add = helper.make_node("Add", ["x", "d"], ["y"])
        product = helper.make_node("MatMul", ["t", "d"], ["y"])
        turn = helper.make_node("Transpose", ["x"], ["t"])
        weights = {"w": column.astype(dtype), "s": scale}
        yield own(f"test_own_dequantize_{name}", [dequantize, add], {"x": column}, 1, weights)
        yield own(f"test_own_matmul_{name}", [dequantize, turn, product], {"x": column}, 1, weights)
    gate = np.linspace(-9, 9, 12).reshape(3, 4)
    for kind in ("float64", ml_dtypes.bfloat16):
        kind = np.dtype(kind)
        number = helper.np_dtype_to_tensor_dtype(kind)
        pair = {"a": gate.astype(kind), "b": gate[::-1].astype(kind)}
        yield own(f"test_own_swiglu_{kind.name}",
                  [helper.make_node("SwiGLU", ["a", "b"], ["y"], alpha=0.5)], pair, number)
    blocks = np.arange(2 * 3 * 6 * 9, dtype=np.float32).reshape(2, 3, 6, 9)
    for mode in ("CRD", "DCR"):
        depth = helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=3, mode=mode)
        yield own(f"test_own_spacetodepth_{mode.lower()}_3", [depth], {"x": blocks}, 1)


def main():
    old, out = sys.argv[1:]
    warnings.simplefilter("ignore")  # of the cases: overflows that they mean
    version = re.match(r"\d+\.\d+", onnx.__version__)[0]
    for case in collect_testcases(None):
        model = os.path.join(old, case.name, "model.onnx")
        if not os.path.exists(model):
            write(case, os.path.join(out, case.name))
        elif not is_same_model(case.model, model):
            write(case, os.path.join(out, f"{case.name}-{version}"))
    for case in own_cases():
        write(case, os.path.join(out, case.name))


if __name__ == "__main__":
    main()
