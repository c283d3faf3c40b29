# SPDX-License-Identifier: Apache-2.0
"""Whether onnxruntime's sums of bytes saturate here: on x86 processors without VNNI, and without its
optimisations, it adds pairs of products in 16 bits, and is no reference then."""

import functools
import sys

import numpy
import onnxruntime
from onnx import TensorProto, helper


@functools.cache
def sums_saturate():
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    values = [helper.make_tensor_value_info("a", TensorProto.UINT8, [1, 64]),
              helper.make_tensor_value_info("b", TensorProto.INT8, [64, 16])]  # fmt: skip
    result = helper.make_tensor_value_info("y", TensorProto.INT32, [1, 16])
    model = helper.make_model(helper.make_graph([node], "sums", values, [result]), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 13)])  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    a, b = numpy.full((1, 64), 255, "u1"), numpy.full((64, 16), 127, "i1")
    return int(session.run(None, {"a": a, "b": b})[0][0, 0]) != 255 * 127 * 64


def skip_where_sums_saturate(script):
    if sums_saturate():
        print(f"{script}: skipped: holds on processors with VNNI; onnxruntime's sums of bytes saturate here")
        sys.exit(77)
