# SPDX-License-Identifier: Apache-2.0
"""Models of one product, one attention or its gradient each, for gates.py: sizes that the networks of models/ lack,
so that code is seen for every tile that schedules choose from (codegen/device/contract_device_shape.c,
attend_cuda.c), with operands that lie in packs and with those that do not.
"""

import os

import onnx
from onnx import TensorProto, helper

# m, n, k: from tiles that fill a device to single warps, then sizes that are no multiples of a pack.
PRODUCTS = [(4096, 4096, 512), (2048, 1024, 512), (1024, 2048, 512), (1024, 1024, 256),
            (512, 512, 512), (256, 256, 2048), (2048, 64, 256), (64, 2048, 256), (128, 64, 1024),
            (48, 1024, 96), (1024, 48, 96), (16, 512, 512), (512, 16, 512), (8, 1024, 64),
            (1024, 8, 64), (32, 32, 4096), (1, 1024, 1024), (4099, 4097, 511), (1023, 65, 129),
            (63, 1025, 33), (33, 31, 1001)]  # fmt: skip
# heads, queries, keys, size of a head
ATTENTIONS = [(heads, queries, keys, size)
              for size in (16, 32, 64, 80, 128, 160, 256)
              for heads, queries, keys in ((32, 2048, 2048), (16, 512, 512), (12, 256, 256),
                                           (4, 64, 64), (1, 40, 40), (12, 1, 1024))]  # fmt: skip
ATTENTIONS += [(8, 256, 255, 30), (8, 33, 65, 65)]
# Sizes of the same kind, for attention that a trainer forms the gradient of.
GRADIENTS = [(12, 512, 512, size) for size in (16, 32, 64, 80, 128, 160, 256)] + [(8, 256, 255, 30), (4, 30, 12, 64)]


KINDS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


def save(path, nodes, inputs, output):
    """inputs and output: (name, shape, type)"""
    *values, result = (helper.make_tensor_value_info(name, kind, shape)
                       for name, shape, kind in [*inputs, output])  # fmt: skip
    graph = helper.make_graph(nodes, "shapes", values, [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                ir_version=8), path)  # fmt: skip


def product(path, kind, m, n, k, is_turned):
    """a times b, where b is stored along n, or along k as PyTorch's weights are."""
    nodes = [helper.make_node("Gemm", ["a", "b"], ["y"], transB=int(is_turned))]
    b = [n, k] if is_turned else [k, n]
    save(path, nodes, [("a", [m, k], kind), ("b", b, kind)], ("y", [m, n], kind))


def integers(path, m, n, k):
    nodes = [helper.make_node("MatMulInteger", ["a", "b"], ["y"])]
    inputs = [("a", [m, k], TensorProto.UINT8), ("b", [k, n], TensorProto.INT8)]
    save(path, nodes, inputs, ("y", [m, n], TensorProto.INT32))


def attention(path, kind, heads, queries, keys, size):
    scale = helper.make_tensor("scale", kind, [], [size**-0.5])
    nodes = [helper.make_node("Constant", [], ["by"], value=scale),
             helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
             helper.make_node("MatMul", ["q", "turned"], ["raw"]),
             helper.make_node("Mul", ["raw", "by"], ["scores"]),
             helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
             helper.make_node("MatMul", ["weights", "v"], ["y"])]  # fmt: skip
    inputs = [("q", [heads, queries, size], kind), ("k", [heads, keys, size], kind),
              ("v", [heads, keys, size], kind)]  # fmt: skip
    save(path, nodes, inputs, ("y", [heads, queries, size], kind))


def trained(path, heads, queries, keys, size):
    """What trains is in front of attention, whose gradient is formed then."""
    sides = {"q": queries, "k": keys, "v": keys}
    nodes = [helper.make_node("Mul", [name, f"w{name}"], [f"own_{name}"]) for name in sides]
    nodes.append(helper.make_node("Attention", [f"own_{name}" for name in sides], ["y"], is_causal=1))
    weights = [helper.make_tensor(f"w{name}", TensorProto.FLOAT, [size], [1.0] * size) for name in sides]
    *inputs, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, heads, length, size])
                       for name, length in [*sides.items(), ("y", queries)])
    graph = helper.make_graph(nodes, "shapes", inputs, [output], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), path)


def models(folder, precisions):
    """(name, path, options) of each, in that type itself, except for those that train."""
    path = os.path.join(folder, "shape.onnx")
    for shape in PRODUCTS:
        name = "_".join(map(str, shape))
        integers(path, *shape)
        yield f"integers_{name}", path, []
        for precision in precisions:
            for is_turned in (False, True):
                product(path, KINDS[precision], *shape, is_turned)
                yield f"product_{name}{'_turned' if is_turned else ''}.{precision}", path, []
    for shape in ATTENTIONS:
        for precision in precisions:
            attention(path, KINDS[precision], *shape)
            yield f"attention_{'_'.join(map(str, shape))}.{precision}", path, []
    for shape in GRADIENTS:
        trained(path, *shape)
        for precision in precisions:
            options = ["--train", "--loss", "mse", "--precision", precision.replace("fp16", "amp-fp16")]
            yield f"gradient_{'_'.join(map(str, shape))}.{precision}", path, options
