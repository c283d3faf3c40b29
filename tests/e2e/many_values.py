# SPDX-License-Identifier: Apache-2.0
"""A model of some 10,000 values, for what has to be quick with many."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def make_big(path, count=4700):
    """Chains of products by blocks, with detours: some 10,000 values."""
    nodes, weights, values = [], [numpy_helper.from_array(np.array([at], np.int64), name) for name, at in (("s", 4), ("e", 12))], ["x"]
    numbers = np.random.default_rng(0)  # weights that are alike are one
    for i in range(count):
        scope = f"/block{i // 50}/layer{i % 50}"
        weights.append(numpy_helper.from_array(numbers.standard_normal((4, 4), np.float32), f"block{i // 50}.layer{i % 50}.weight"))
        source = values[-1]
        if i % 7 == 3 and i > 20:
            nodes += [helper.make_node("Concat", [source, values[-20]], [scope + "/Concat_output_0"], name=scope + "/Concat", axis=0),
                      helper.make_node("Slice", [scope + "/Concat_output_0", "s", "e"], [scope + "/Slice_output_0"], name=scope + "/Slice")]
            source = scope + "/Slice_output_0"
        values.append(scope + "/MatMul_output_0")
        nodes.append(helper.make_node("MatMul", [source, f"block{i // 50}.layer{i % 50}.weight"], [values[-1]], name=scope + "/MatMul"))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 4]) for name in ("x", values[-1])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "big", ports[:1], ports[1:], weights), opset_imports=[helper.make_opsetid("", 17)]), path)
