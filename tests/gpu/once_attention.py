# SPDX-License-Identifier: Apache-2.0
"""A network of attention alone, large enough that a library is called for it, for prepare_once.sh.

    once_attention.py attention|attention_causal FILE.onnx
"""

import sys

import onnx
from onnx import TensorProto, helper

HEADS, LENGTH, DEPTH = 4, 512, 64


def main():
    name, path = sys.argv[1:]
    shape = [1, HEADS, LENGTH, DEPTH]
    inputs = [helper.make_tensor_value_info(port, TensorProto.FLOAT, shape) for port in "qkv"]
    nodes = [helper.make_node("Sin", [port], [port + "1"]) for port in "qkv"]
    # Twice: the second call finds in its workspace what the first one left there.
    nodes += [helper.make_node("Attention", ["q1", "k1", "v1"], ["a"], is_causal=int(name == "attention_causal")),
              helper.make_node("Attention", ["a", "k1", "v1"], ["b"], is_causal=int(name == "attention_causal")),
              helper.make_node("Abs", ["b"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    model = helper.make_model(helper.make_graph(nodes, name, inputs, outputs), opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    onnx.save(model, path)


if __name__ == "__main__":
    main()
