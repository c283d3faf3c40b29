# SPDX-License-Identifier: Apache-2.0
"""A network of attention alone, large enough that a library is called for it, for prepare_once.sh; and one that is trained,
with a layer so wide that attention's gradient may have a library's workspace.

    once_attention.py attention|attention_causal|attention_train FILE.onnx
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, LENGTH, DEPTH = 4, 512, 64


def trained():
    """Samples of [256, 64], ten classes."""
    batch, length, size, wide, classes = 4, 256, 64, 16384, 10
    random, side = np.random.default_rng(2), HEADS * DEPTH
    sides = {"q": (size, side), "k": (size, side), "v": (size, side), "o": (side, size), "u": (size, wide),
             "d": (wide, size), "c": (size, classes)}
    weights = {f"w{key}": (random.standard_normal(dims) / dims[0]**0.5).astype(np.float32) for key, dims in sides.items()}
    nodes = [helper.make_node("MatMul", ["x", f"w{key}"], [key]) for key in "qkv"]
    nodes += [helper.make_node("Attention", ["q", "k", "v"], ["a"], is_causal=1, q_num_heads=HEADS, kv_num_heads=HEADS),
              helper.make_node("MatMul", ["a", "wo"], ["o"]), helper.make_node("MatMul", ["o", "wu"], ["u"]),
              helper.make_node("Relu", ["u"], ["r"]), helper.make_node("MatMul", ["r", "wd"], ["d"]),
              helper.make_node("ReduceMean", ["d", "axes"], ["m"], keepdims=0), helper.make_node("MatMul", ["m", "wc"], ["y"])]
    values = [numpy_helper.from_array(value, key) for key, value in weights.items()]
    values.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, length, size]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, classes])]
    return helper.make_graph(nodes, "attention_train", ports[:1], ports[1:], values)


def save(graph, path):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    onnx.save(model, path)


def main():
    name, path = sys.argv[1:]
    if name == "attention_train":
        save(trained(), path)
        return
    shape = [1, HEADS, LENGTH, DEPTH]
    inputs = [helper.make_tensor_value_info(port, TensorProto.FLOAT, shape) for port in "qkv"]
    nodes = [helper.make_node("Sin", [port], [port + "1"]) for port in "qkv"]
    # Twice: the second call finds in its workspace what the first one left there.
    nodes += [helper.make_node("Attention", ["q1", "k1", "v1"], ["a"], is_causal=int(name == "attention_causal")),
              helper.make_node("Attention", ["a", "k1", "v1"], ["b"], is_causal=int(name == "attention_causal")),
              helper.make_node("Abs", ["b"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    save(helper.make_graph(nodes, name, inputs, outputs), path)


if __name__ == "__main__":
    main()
