# SPDX-License-Identifier: Apache-2.0
"""Names of outputs, inputs and weights."""

import numpy as np
from case import MODELS, Case, built, text
from onnx import TensorProto, helper, numpy_helper, parser

text("output_is_input", "g (float[3] x) => (float[3] x, float[3] y) { y = Neg(x) }")
text("output_is_weight", """
g (float[3] x) => (float[3] w, float[3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }""")
text("output_identity_of_weight", """
g (float[3] x) => (float[3] v, float[3] y) <float[3] w = {1.0, 2.0, 3.0}> {
  v = Identity(w)
  y = Add(x, v)
}""")
text("output_view_of_input", """
g (float[2,3] x) => (float[3,2] y, float[1,3] z) {
  i = Constant<value_ints=[1]>()
  e = Constant<value_ints=[2]>()
  a = Constant<value_ints=[0]>()
  y = Transpose(x)
  z = Slice(x, i, e, a)
}""")
text("all_outputs_one_value", """
g (float[2,2] x) => (float[2,2] a, float[2,2] b, float[4] c) {
  h = Exp(x)
  s = Constant<value_ints=[4]>()
  a = Identity(h)
  b = Identity(h)
  c = Reshape(h, s)
}""")
text("unused_input", "g (float[3] x, float[2] unused) => (float[3] y) { y = Neg(x) }")
text("nothing_but_a_constant", """
g () => (float[2,2] y) <float[2] a = {1.0, 2.0}, float[2,1] b = {3.0, 4.0}> { y = Mul(a, b) }""")
text("output_made_early", """
g (float[64] x) => (float[64] early, float[64] late) {
  early = Neg(x)
  a = Exp(x)
  b = Relu(a)
  c = Sigmoid(early)
  d = Add(b, c)
  late = Tanh(d)
}""")


def rename(model, names):
    for node in model.graph.node:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                field[i] = names.get(name, name)
    for field in (model.graph.input, model.graph.output, model.graph.initializer):
        for info in field:
            info.name = names.get(info.name, info.name)
    return model


ODD_NAMES = [
    'quote " and \' both', "new\nline", "per%cent %s %n %d", "back\\slash\\", "*/ int main(void) {}",
    "/* comment", "what??/", "??=define X", "//", "\ttab", "\x01\x7f", "\u00fc\u4f60\u597d\U0001f600",
    "a=b=c", "-", "--help", "../../etc/passwd", "/dev/null", "CON", "x.npy", "$(touch hacked)",
    "`id`", "${HOME}", "int", "main", "__LINE__", "x\\", "\\", "\\n", "\"", "'", " ", "x" * 300,
    "R\"(", "%", "%%", "0", "-1", "a\rb", "<script>", "&amp;", "a,b", "[0]", "{}", "#", ".", "..",
]  # fmt: skip


def odd_names():
    nodes = []
    value = "in"
    for i, name in enumerate(ODD_NAMES):
        op = ["Relu", "Neg", "Tanh", "Softmax", "Transpose", "CumSum"][i % 6]
        inputs = [value] if op != "CumSum" else [value, "zero"]
        nodes.append(helper.make_node(op, inputs, [name], name=name))
        value = name
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    graph = helper.make_graph(
        nodes, ODD_NAMES[4],
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [3, 3])], [zero])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = '"*/\n%s\\'
    return Case(model)


MODELS["odd_names_of_values"] = odd_names


def odd_edges(first, second, third):
    """Input, weight and output with odd names."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
    g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Add(x, w) }""")
    return lambda: Case(rename(model, {"x": first, "w": second, "y": third}))


for number, trio in enumerate(zip(ODD_NAMES[0::3], ODD_NAMES[1::3], ODD_NAMES[2::3])):
    MODELS[f"odd_edges_{number}"] = odd_edges(*trio)


@built
def empty_names():
    """Nodes without names, and names of nodes that occur twice."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="same"),
        helper.make_node("Exp", ["b"], ["c"], name="same"),
        helper.make_node("MatMul", ["c", "c"], ["y"], name="same"),
        helper.make_node("Dropout", ["y"], ["z", ""], name="x"),
    ]
    graph = helper.make_graph(
        nodes, "", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 3])])  # fmt: skip
    return Case(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
