# SPDX-License-Identifier: Apache-2.0
"""Networks of float32 as models that are float16 or bfloat16 themselves.

half(model, "fp16") is what torch exports of module.half(): weights, inputs, outputs and all between
in 16 bits. With islands it is what converters write (onnxruntime's float16.py, autocast): the
model's inputs and outputs stay float32, and so does what normalises and weighs, with Casts around.
"""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
NUMPY = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}

# Operators that ONNX has in float32 alone, and, of some, the inputs that it does.
FLOAT_ONLY = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "NonMaxSuppression"}
FLOAT_INPUTS = {"Resize": {2}}
# What converters leave in float32.
ISLANDS = {"LayerNormalization", "Softmax", "Pow", "ReduceMean", "Sqrt", "InstanceNormalization",
           "GroupNormalization", "ReduceSum", "Exp", "Erf"}  # fmt: skip


class Half:
    def __init__(self, model, name, islands):
        self.model, self.type, self.dtype = model, TYPES[name], NUMPY[name]
        self.single = FLOAT_ONLY | (ISLANDS if islands else set())
        self.islands, self.wide, self.sums = islands, set(), set()
        graph = onnx.shape_inference.infer_shapes(model).graph
        self.floats = {value.name for value in [*graph.value_info, *graph.input, *graph.output]
                       if value.type.tensor_type.elem_type == TensorProto.FLOAT}  # fmt: skip
        self.integers = {name for node in model.graph.node
                         if node.op_type in ("ConvInteger", "MatMulInteger")
                         for name in node.output}  # fmt: skip
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.floats |= {name for name, tensor in self.weights.items()
                        if tensor.data_type == TensorProto.FLOAT}  # fmt: skip

    def tensor(self, tensor):
        array, most = numpy_helper.to_array(tensor), float(ml_dtypes.finfo(self.dtype).max)
        finite = np.clip(array, -most, most)  # masks of the lowest float32
        array = np.where(np.isinf(array), array, finite)
        least = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)  # epsilons
        small = (array != 0) & (np.abs(array) < least)
        array = np.where(small, np.copysign(least, array), array).astype(self.dtype)
        made = numpy_helper.from_array(array, tensor.name)
        assert made.data_type == self.type
        return made

    def attributes(self, node):
        """Constants and types that a node's attributes say, or leave to be float32."""
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
            node.attribute.append(helper.make_attribute("value", zero))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                if attribute.t.data_type == TensorProto.FLOAT:
                    attribute.t.CopyFrom(self.tensor(attribute.t))
            elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = self.type

    def single_input(self, node, at, nodes, made):
        """The float32 of an input, by a Cast in front of the node or as the weight was."""
        name = node.input[at]
        if name not in self.floats:
            return
        if name in self.wide:
            node.input[at] = name + "/wide"
            return
        wide = name + "/f32"
        if wide not in made:
            made.add(wide)
            if name in self.weights:
                tensor = TensorProto()
                tensor.CopyFrom(self.weights[name])
                tensor.name = wide
                self.model.graph.initializer.append(tensor)
            else:
                nodes.append(helper.make_node("Cast", [name], [wide], name=wide + "/Cast",
                                              to=TensorProto.FLOAT))  # fmt: skip
        node.input[at] = wide

    def is_of_sums(self, node):
        """Sums of integers as floats, which 16 bits have no room for, and what scales them."""
        if node.op_type == "Cast" and node.input[0] in self.integers:
            self.sums.add(node.output[0])
        return node.output[0] in self.sums or any(name in self.sums for name in node.input)

    def node(self, node, nodes, made):
        """The node in 16 bits, or in float32 between Casts."""
        single = node.op_type in self.single or self.is_of_sums(node)
        inputs = range(len(node.input)) if single else FLOAT_INPUTS.get(node.op_type, ())
        for at in inputs:
            if at < len(node.input) and node.input[at]:
                self.single_input(node, at, nodes, made)
        if not single:
            self.attributes(node)
        nodes.append(node)
        for at, name in enumerate(node.output):
            if single and name in self.floats:
                self.wide.add(name)
                node.output[at] = name + "/wide"
                nodes.append(helper.make_node("Cast", [node.output[at]], [name],
                                              name=name + "/Cast", to=self.type))  # fmt: skip

    def edges(self, nodes):
        """Inputs and outputs of the model: 16 bits, or float32 with a Cast behind or in front."""
        graph, first = self.model.graph, []
        for values, inwards in ((graph.input, True), (graph.output, False)):
            for value in values:
                tensor = value.type.tensor_type
                if tensor.elem_type != TensorProto.FLOAT or value.name in self.weights:
                    continue
                if not self.islands:
                    tensor.elem_type = self.type
                    continue
                inner, name = value.name + "/half", value.name
                for node in nodes:
                    names = [*node.input], [*node.output]
                    del node.input[:], node.output[:]
                    node.input.extend(inner if n == name else n for n in names[0])
                    node.output.extend(inner if n == name else n for n in names[1])
                cast = helper.make_node("Cast", [name] if inwards else [inner],
                                        [inner] if inwards else [name], name=name + "/Edge",
                                        to=self.type if inwards else TensorProto.FLOAT)  # fmt: skip
                (first if inwards else nodes).append(cast)
        return first + nodes

    def convert(self):
        graph, nodes, made = self.model.graph, [], set()
        for node in list(graph.node):
            self.node(node, nodes, made)
        nodes = self.edges(nodes)
        for at, tensor in enumerate(list(graph.initializer)):
            if tensor.data_type == TensorProto.FLOAT and not tensor.name.endswith("/f32"):
                graph.initializer[at].CopyFrom(self.tensor(tensor))
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
        used = {name for node in nodes for name in node.input}
        weights = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(weights)
        return self.model


def half(model, name, islands=False):
    """The model, changed in place; graphs inside of nodes stay what they are."""
    return Half(model, name, islands).convert()
