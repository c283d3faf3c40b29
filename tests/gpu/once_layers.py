# SPDX-License-Identifier: Apache-2.0
"""Layers at full size whose weights are one number each, which takes few bytes of a pack, for prepare_once.sh: what of cuBLASLt
and cuDNN is suspected to be slow.

    once_layers.py thin|logits|logits_wide|convs FILE.onnx

thin         products of one row with fewer than 512 terms, whose planned workspace is too small to cut sums
logits       1024 rows of 50257 columns, so that rows are aligned to one element; logits_wide: of 50264
convs        3 x 3 convolutions as in the stages of ResNet-50, on one image
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def weight(nodes, name, dims):
    shape = helper.make_tensor(f"{name}_dims", TensorProto.INT64, [len(dims)], dims)
    value = helper.make_tensor(f"{name}_value", TensorProto.FLOAT, [1], [1.0 / 64])
    nodes += [helper.make_node("Constant", [], [f"{name}_shape"], value=shape),
              helper.make_node("ConstantOfShape", [f"{name}_shape"], [name], value=value)]
    return name


def products(nodes, rows, sizes):
    for i, (k, n) in enumerate(zip(sizes, sizes[1:])):
        nodes.append(helper.make_node("MatMul", [f"x{i}", weight(nodes, f"w{i}", [k, n])], [f"x{i + 1}"]))
    return [rows, sizes[0]], [rows, sizes[-1]], len(sizes) - 1


def convs(nodes, initializers):
    inputs, outputs = [], []
    for channels, size in [(64, 56), (128, 28), (256, 14)]:
        at = f"x{channels}"
        inputs.append((at, [1, channels, size, size]))
        for i in range(3):
            names = [at, f"w{channels}_{i}", f"b{channels}"]
            initializers.append(numpy_helper.from_array(np.full((channels, channels, 3, 3), 1 / 64, np.float32), names[1]))
            at = f"r{channels}_{i}"
            nodes += [helper.make_node("Conv", names, [f"c{channels}_{i}"], pads=[1] * 4), helper.make_node("Relu", [f"c{channels}_{i}"], [at])]
        initializers.append(numpy_helper.from_array(np.full(channels, 1 / 64, np.float32), f"b{channels}"))
        nodes.append(helper.make_node("GlobalAveragePool", [at], [f"y{channels}"]))
        outputs.append((f"y{channels}", [1, channels, 1, 1]))
    return inputs, outputs


def main():
    name, path = sys.argv[1:]
    nodes, initializers = [], []
    if name == "convs":
        inputs, outputs = convs(nodes, initializers)
    else:
        rows, sizes = {"thin": (1, [384, 1024, 448, 4096, 384, 1000]), "logits": (1024, [768, 50257]),
                       "logits_wide": (1024, [768, 50264])}[name]
        first, last, count = products(nodes, rows, sizes)
        inputs, outputs = [("x0", first)], [(f"x{count}", last)]
    ports = [[helper.make_tensor_value_info(port, TensorProto.FLOAT, dims) for port, dims in part] for part in (inputs, outputs)]
    model = helper.make_model(helper.make_graph(nodes, name, *ports, initializers), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


if __name__ == "__main__":
    main()
