# SPDX-License-Identifier: Apache-2.0
"""Puts copies around an operator, so that what it reads and writes is in memory in 16 bits.

ONNX's node tests are one operator each, and inputs and outputs of a model keep their types: under
--precision nothing of them would be rounded. Here every f32 input goes through an Identity, and
every f32 output; without the passes that would take those away (run.sh names them) the program
copies them to values of its own, which are stored as the operator's row lets them.

usage: round_edges.py DATA OUT <names of tests
Writes OUT/NAME/model.onnx and a link to the data for tests with an f32 input or output, and prints
their names.
"""

import os
import sys

import onnx
from onnx import TensorProto, helper


def is_f32(value):
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == TensorProto.FLOAT


def rename_named(node, names):
    """What attributes say of values: Gradient's."""
    for attribute in node.attribute if node.op_type == "Gradient" else []:
        attribute.s = names.get(attribute.s.decode(), attribute.s.decode()).encode()
        attribute.strings[:] = [names.get(s.decode(), s.decode()).encode() for s in attribute.strings]


def wrap(model):
    """The model with copies, or None where nothing is f32."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {v.name for v in graph.input if is_f32(v) and v.name not in constants}
    outputs = {v.name for v in graph.output if is_f32(v)}
    if not inputs and not outputs:
        return None
    made = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in inputs:
                node.input[i] = f"rounded/{name}"
        for i, name in enumerate(node.output):
            if name in outputs:
                node.output[i] = f"exact/{name}"
        rename_named(node, {**{name: f"exact/{name}" for name in outputs},
                            **{name: f"rounded/{name}" for name in inputs}})
    first = [helper.make_node("Identity", [name], [f"rounded/{name}"]) for name in sorted(inputs)]
    last = [helper.make_node("Identity", [f"exact/{name}"], [name])
            for name in sorted(outputs) if name in made]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    if not any(entry.domain in ("", "ai.onnx") for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 17))
    return model


def has_blocks(model):
    return any(a.type == onnx.AttributeProto.GRAPH for n in model.graph.node for a in n.attribute)


def main(data, out):
    for name in sys.stdin.read().split():
        model = onnx.load(os.path.join(data, name, "model.onnx"))
        # Values of nested blocks have names from outside of them.
        wrapped = None if has_blocks(model) or model.functions else wrap(model)
        if wrapped is None:
            continue
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        onnx.save(wrapped, os.path.join(folder, "model.onnx"))
        for entry in sorted(os.listdir(os.path.join(data, name))):
            link = os.path.join(folder, entry)
            if entry.startswith("test_data_set_") and not os.path.lexists(link):
                os.symlink(os.path.realpath(os.path.join(data, name, entry)), link)
        print(name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
