#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small models in cases/ that the frontend's golden tests load.

usage: make_cases.py [DIR]        DIR defaults to cases/ beside this script
Needs the onnx package (scripts/setup_python.sh). The models are in the tree, so that the tests
need no Python; run this to change them, then `run.sh DUMP --update` and review the difference.
"""

import os
import sys

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "cases")
F = TensorProto.FLOAT
I64 = TensorProto.INT64


def tensor_type(name, shape, dtype=F):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes, inputs, outputs, weights=(), name="g"):
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(weights))


def model(g, opset=21, ir=10, functions=(), domains=()):
    imports = [helper.make_opsetid("", opset)] if opset else []
    imports += [helper.make_opsetid(d, 5 if d == "ai.onnx.ml" else 1) for d in domains]
    made = helper.make_model(g, opset_imports=imports, functions=list(functions))
    made.ir_version = ir
    made.producer_name = "make_cases"
    made.producer_version = "1"
    return made


def write(name, content, args=()):
    data = content if isinstance(content, bytes) else content.SerializeToString(deterministic=True)
    with open(os.path.join(OUT, name + ".onnx"), "wb") as f:
        f.write(data)
    if args:
        with open(os.path.join(OUT, name + ".args"), "w", encoding="utf-8") as f:
            f.write("".join(a + "\n" for a in args))


def weight(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def relu(x="x", y="y", name="relu"):
    return helper.make_node("Relu", [x], [y], name=name)


X = tensor_type("x", [2, 3])
Y = tensor_type("y", [2, 3])


def constants():
    """Weights in every form that a file can give them."""
    w = weight("w", np.float32([1, 2, 3]))
    write("ir3_input_initializer",
          model(graph([helper.make_node("Add", ["x", "w"], ["y"], name="add")],
                      [X, tensor_type("w", [3])], [Y], [w]), opset=9, ir=3))
    nodes = [
        helper.make_node("Constant", [], ["a"], value_int=7),
        helper.make_node("Constant", [], ["b"], value_ints=[1, 2, 3]),
        helper.make_node("Constant", [], ["c"], value_float=0.5),
        helper.make_node("Constant", [], ["d"], value_floats=[1.5, -2.0]),
        helper.make_node("Constant", [], ["e"], value=weight("e", np.int8([[1, -1]]))),
    ]
    write("constant_forms", model(graph(nodes, [], [
        tensor_type("a", [], I64), tensor_type("b", [3], I64), tensor_type("c", []),
        tensor_type("d", [2]), tensor_type("e", [1, 2], TensorProto.INT8)])))
    write("identity_of_weight",
          model(graph([helper.make_node("Identity", ["w"], ["v"]),
                       helper.make_node("Identity", ["v"], ["u"]),
                       helper.make_node("Add", ["x", "u"], ["y"], name="add"),
                       helper.make_node("Identity", ["w"], ["w_out"])],
                      [X], [Y, tensor_type("w_out", [3]), tensor_type("w_out2", [3]), X],
                      [w, weight("w_out2", np.float32([4, 5, 6]))])))
    write("sparse_initializer", sparse_model())
    write("string_weight", model(graph([helper.make_node("Identity", ["s"], ["y"])], [],
                                       [tensor_type("y", [1], TensorProto.STRING)],
                                       [helper.make_tensor("s", TensorProto.STRING, [1], [b"a"])])))
    write("string_constant", model(graph([helper.make_node("Constant", [], ["y"], value_string="a")],
                                         [], [tensor_type("y", [], TensorProto.STRING)])))


def sparse_model():
    values = weight("w", np.float32([1.0]))
    sparse = helper.make_sparse_tensor(values, weight("i", np.int64([2])), [4])
    g = graph([helper.make_node("Relu", ["w"], ["y"])], [], [tensor_type("y", [4])])
    g.sparse_initializer.append(sparse)
    return model(g)


def float6():
    """Types that older packages of onnx do not know: 27 is FLOAT6E2M3, 28 FLOAT6E3M2. Five elements
    by their codes: in raw_data one after the other, in int32_data a number each."""
    codes = [0x08, 0x3F, 0x01, 0x2A, 0x1F]
    bits = sum(code << 6 * i for i, code in enumerate(codes))
    for name, fields in (("float6_raw", {"raw_data": bits.to_bytes(4, "little")}),
                         ("float6_fields", {"int32_data": codes}),
                         ("float6_too_large", {"int32_data": [1, 2, 64, 0, 0]}),
                         ("float6_too_short", {"raw_data": b"123"})):
        weights = [TensorProto(name=f"w{kind}", data_type=kind, dims=[5], **fields)
                   for kind in (27, 28)]
        write(name, model(graph([helper.make_node("Identity", [w.name], [w.name + "_out"])
                                 for w in weights], [],
                                [tensor_type(w.name + "_out", [5], w.data_type) for w in weights],
                                weights), opset=28, ir=14))


def attributes():
    """Attributes that the operator's version does not know."""
    image, x = tensor_type("x", [1, 2, 4, 6]), ["x"]

    def one(name, op, opset, outputs=("y",), inputs=x, **attrs):
        write(name, model(graph([helper.make_node(op, inputs, list(outputs), name="n", **attrs)],
                                [image], [tensor_type("y", None)]), opset=opset, ir=14))

    one("attribute_newer", "SpaceToDepth", 27, blocksize=2, mode="CRD")
    one("attribute_known", "SpaceToDepth", 28, blocksize=2, mode="CRD")
    one("attribute_older", "Dropout", 13, ratio=0.5)
    one("attribute_between", "Pad", 13, pads=[0] * 8)
    one("attribute_unknown", "Relu", 21, alpha=0.1)
    one("attribute_kind", "LeakyRelu", 21, alpha=1)
    one("attribute_note", "Relu", 21, __note="kept by a tool")
    one("window_below_25", "Attention", 24, inputs=["x", "x", "x"], left_window_size=1)
    one("window", "Attention", 25, inputs=["x", "x", "x"], left_window_size=1, right_window_size=0)
    one("window_negative", "Attention", 25, inputs=["x", "x", "x"], left_window_size=-2)
    one("swiglu", "SwiGLU", 28, inputs=["x", "x"], alpha=1.5)
    body = helper.make_function("local", "f", ["a"], ["b"], [
        helper.make_node("SpaceToDepth", ["a"], ["b"], name="inside", blocksize=2, mode="CRD")],
        [helper.make_opsetid("", 13)])
    write("attribute_in_function",
          model(graph([helper.make_node("f", ["x"], ["y"], name="call", domain="local")],
                      [image], [tensor_type("y", None)]), opset=28, functions=[body],
                domains=["local"]))
    one("opset_too_new", "Relu", 29)


def typed_fields():
    """All element types, raw and in their typed fields, packed and not."""
    t = TensorProto
    plain = {
        "f32": (t.FLOAT, [1.5, -2.0, 3.25]), "f64": (t.DOUBLE, [1.5, -2.0, 3.25]),
        "i8": (t.INT8, [-1, 2, 127]), "u8": (t.UINT8, [255, 0, 1]),
        "i16": (t.INT16, [-1, 2, 3]), "u16": (t.UINT16, [65535, 2, 3]),
        "i32": (t.INT32, [-1, 2, 3]), "u32": (t.UINT32, [4294967295, 2, 3]),
        "i64": (t.INT64, [-1, 2, 2**62]), "u64": (t.UINT64, [2**64 - 1, 2, 3]),
        "bool": (t.BOOL, [1, 0, 1]), "f16": (t.FLOAT16, [1.5, -2.0, 0.25]),
        "bf16": (t.BFLOAT16, [1.5, -2.0, 0.25]),
        "f8e4m3fn": (t.FLOAT8E4M3FN, [1.5, -2.0, 0.25]),
        "f8e5m2": (t.FLOAT8E5M2, [1.5, -2.0, 0.25]),
        "u4": (t.UINT4, [15, 0, 7]), "i4": (t.INT4, [-8, 7, -1]),
        "f4e2m1": (t.FLOAT4E2M1, [1.5, -6.0, 0.5]),
        "u2": (t.UINT2, [3, 0, 2]), "i2": (t.INT2, [-2, 1, -1]),
    }
    float6()
    for raw in (False, True):
        tensors = []
        for name, (dtype, values) in plain.items():
            if raw:
                array = numpy_helper.to_array(helper.make_tensor(name, dtype, [3], values))
                tensors.append(numpy_helper.from_array(array, name))
            else:
                tensors.append(helper.make_tensor(name, dtype, [3], values))
        nodes = [helper.make_node("Identity", [n], [n + "_out"]) for n in plain]
        outs = [tensor_type(n + "_out", [3], plain[n][0]) for n in plain]
        write("typed_raw" if raw else "typed_fields", model(graph(nodes, [], outs, tensors)))
    odd = TensorProto(name="w", data_type=t.BOOL, dims=[3], raw_data=b"\x00\x02\xff")
    # float_data in two packed pieces and one single element, as other writers may leave it
    pieces = TensorProto(name="v", data_type=t.FLOAT, dims=[4]).SerializeToString()
    pieces += b"\x22\x08" + np.float32([1, 2]).tobytes() + b"\x25" + np.float32([3]).tobytes()
    pieces += b"\x22\x04" + np.float32([4]).tobytes()
    split = TensorProto.FromString(pieces)
    assert list(split.float_data) == [1, 2, 3, 4]
    g = graph([helper.make_node("Identity", ["w"], ["a"]),
               helper.make_node("Identity", ["v"], ["b"])], [],
              [tensor_type("a", [3], t.BOOL), tensor_type("b", [4])], [odd])
    data = model(g).SerializeToString(deterministic=True)
    # appended to the graph: field 5 of GraphProto inside field 7 of ModelProto (parts merge)
    inner = b"\x2a" + bytes([len(pieces)]) + pieces
    write("typed_pieces", data + b"\x3a" + bytes([len(inner)]) + inner)


def bad_tensors():
    def one(name, tensor):
        write(name, model(graph([helper.make_node("Identity", ["w"], ["y"])], [],
                                [tensor_type("y", [2])], [tensor])))

    raw = np.float32([1, 2]).tobytes()
    one("tensor_short", TensorProto(name="w", data_type=F, dims=[2], raw_data=raw[:7]))
    one("tensor_long", TensorProto(name="w", data_type=F, dims=[2], raw_data=raw + b"\0"))
    one("tensor_missing", TensorProto(name="w", data_type=F, dims=[2]))
    one("tensor_negative_dim", TensorProto(name="w", data_type=F, dims=[-2], raw_data=raw))
    one("tensor_absurd_dim", TensorProto(name="w", data_type=F, dims=[2**62], raw_data=raw))
    one("tensor_absurd_shape", TensorProto(name="w", data_type=F, dims=[2**20] * 8, raw_data=raw))
    one("tensor_rank_9", TensorProto(name="w", data_type=F, dims=[1] * 9, raw_data=raw))
    one("tensor_typed_count", TensorProto(name="w", data_type=F, dims=[2], float_data=[1, 2, 3]))
    one("tensor_wrong_field", TensorProto(name="w", data_type=F, dims=[2], int32_data=[1, 2]))
    t = TensorProto
    one("tensor_of_9_bits", TensorProto(name="w", data_type=t.UINT8, dims=[2], int32_data=[255, 256]))
    one("tensor_below_i8", TensorProto(name="w", data_type=t.INT8, dims=[2], int32_data=[-128, -129]))
    one("tensor_below_u8", TensorProto(name="w", data_type=t.UINT8, dims=[2], int32_data=[3, -1]))
    one("tensor_above_i8", TensorProto(name="w", data_type=t.INT8, dims=[2], int32_data=[127, 128]))
    one("tensor_packed_of_9_bits", TensorProto(name="w", data_type=t.UINT2, dims=[2], int32_data=[256]))
    one("tensor_packed_short", TensorProto(name="w", data_type=t.INT2, dims=[9], raw_data=b"\x1b\x1b"))
    one("tensor_e8m0", TensorProto(name="w", data_type=t.FLOAT8E8M0, dims=[2], raw_data=b"\x7f\x7f"))
    write("input_e8m0", model(graph([helper.make_node("Clip", ["x"], ["y"], max=1.0)],
                                    [tensor_type("x", [2], t.FLOAT8E8M0)], [tensor_type("y", [2])]), opset=6))
    one("tensor_type_99", TensorProto(name="w", data_type=99, dims=[2], raw_data=raw))
    one("tensor_empty", TensorProto(name="w", data_type=F, dims=[0, 3]))


def external():
    def one(name, entries, dims=(2,)):
        t = TensorProto(name="w", data_type=F, dims=list(dims), data_location=TensorProto.EXTERNAL)
        for key, value in entries.items():
            t.external_data.add(key=key, value=value)
        write(name, model(graph([helper.make_node("Identity", ["w"], ["y"])], [],
                                [tensor_type("y", list(dims))], [t])))

    os.makedirs(os.path.join(OUT, "data"), exist_ok=True)
    with open(os.path.join(OUT, "data", "weights.bin"), "wb") as f:
        f.write(np.float32([1, 2, 3, 4]).tobytes())
    one("external_whole", {"location": "data/weights.bin"}, [4])
    one("external_part", {"location": "data/weights.bin", "offset": "4", "length": "8"})
    one("external_beyond", {"location": "data/weights.bin", "offset": "12"})
    one("external_wrong_length", {"location": "data/weights.bin", "length": "12"})
    one("external_offset_text", {"location": "data/weights.bin", "offset": "-4"})
    one("external_huge_offset", {"location": "data/weights.bin", "offset": str(2**64 - 4)})
    one("external_missing", {"location": "data/none.bin"})
    one("external_no_location", {"offset": "0"})
    one("external_absolute", {"location": "/etc/passwd"})
    one("external_parent", {"location": "data/../../secret.bin"})
    one("external_symlink", {"location": "escape_link"})
    one("external_directory", {"location": "data"})


def functions():
    def attr_ref(name, of, kind):
        return AttributeProto(name=name, ref_attr_name=of, type=kind)

    leaky = helper.make_node("LeakyRelu", ["t"], ["u"], name="leaky")
    leaky.attribute.append(attr_ref("alpha", "slope", AttributeProto.FLOAT))
    inner = helper.make_function(
        "local", "Inner", ["t", "unused"], ["u"], [leaky], [helper.make_opsetid("", 21)],
        attributes=[], attribute_protos=[helper.make_attribute("slope", 0.25)])
    call_default = helper.make_node("Inner", ["p"], ["q"], name="default", domain="local")
    call_given = helper.make_node("Inner", ["q"], ["r"], name="given", domain="local")
    call_given.attribute.append(attr_ref("slope", "outer_slope", AttributeProto.FLOAT))
    squeeze = helper.make_node("Unsqueeze", ["r"], ["s"], axes=[0], name="old_unsqueeze")
    outer = helper.make_function(
        "local", "Outer", ["p"], ["s"], [call_default, call_given, squeeze],
        [helper.make_opsetid("", 11), helper.make_opsetid("local", 1)],
        attributes=["outer_slope"])
    nodes = [helper.make_node("Outer", ["x"], ["y"], name="call", domain="local", outer_slope=0.75),
             helper.make_node("Outer", ["x"], ["z"], domain="local")]
    g = graph(nodes, [X], [tensor_type("y", [1, 2, 3]), tensor_type("z", [1, 2, 3])])
    write("function_nested", model(g, functions=[inner, outer], domains=["local"]))

    clip = helper.make_node("Clip", ["t", "low", "high"], ["u"], name="clip")
    optional = helper.make_function("local", "Bound", ["t", "low", "high"], ["u"], [clip],
                                    [helper.make_opsetid("", 21)])
    g = graph([helper.make_node("Bound", ["x", "", "h"], ["y"], name="b", domain="local")],
              [X], [Y], [weight("h", np.float32(6))])
    write("function_absent_input", model(g, functions=[optional], domains=["local"]))

    def overload(name, op):
        made = helper.make_function("local", "F", ["t"], ["u"], [helper.make_node(op, ["t"], ["u"])],
                                    [helper.make_opsetid("", 21)])
        made.overload = name
        return made

    call = helper.make_node("F", ["x"], ["y"], name="call", domain="local")
    call.overload = "second"
    write("function_overload", model(graph([call], [X], [Y]), domains=["local"],
                                     functions=[overload("first", "Abs"), overload("second", "Neg")]))

    again = helper.make_function("local", "A", ["t"], ["u"],
                                 [helper.make_node("B", ["t"], ["u"], domain="local")],
                                 [helper.make_opsetid("", 21)])
    and_again = helper.make_function("local", "B", ["t"], ["u"],
                                     [helper.make_node("A", ["t"], ["u"], domain="local")],
                                     [helper.make_opsetid("", 21)])
    g = graph([helper.make_node("A", ["x"], ["y"], name="call", domain="local")], [X], [Y])
    write("function_recursion", model(g, functions=[again, and_again], domains=["local"]))
    g = graph([helper.make_node("A", ["x", "x"], ["y"], name="call", domain="local")], [X], [Y])
    write("function_arity", model(g, functions=[again, and_again], domains=["local"]))
    capture = helper.make_function("local", "C", ["t"], ["u"],
                                   [helper.make_node("Add", ["t", "x"], ["u"])],
                                   [helper.make_opsetid("", 21)])
    g = graph([helper.make_node("C", ["x"], ["y"], name="call", domain="local")], [X], [Y])
    write("function_sees_nothing_outside", model(g, functions=[capture], domains=["local"]))


def order():
    unsorted = [helper.make_node("Neg", ["c"], ["y"], name="third"),
                helper.make_node("Abs", ["x"], ["b"], name="first"),
                helper.make_node("Relu", ["b"], ["c"], name="second")]
    write("order_sorted_here", model(graph(unsorted, [X], [Y])))
    cycle = [helper.make_node("Add", ["x", "c"], ["b"], name="one"),
             helper.make_node("Relu", ["b"], ["c"], name='t"wo\n'),
             helper.make_node("Neg", ["c"], ["y"], name="three")]
    write("order_cycle", model(graph(cycle, [X], [Y])))
    self_loop = [helper.make_node("Add", ["x", "y"], ["y"], name="self")]
    write("order_self_cycle", model(graph(self_loop, [X], [Y])))
    write("missing_input", model(graph([helper.make_node("Add", ["x", "nowhere"], ["y"], name="n")],
                                       [X], [Y])))
    write("missing_output", model(graph([relu(y="z")], [X], [Y])))
    write("no_outputs", model(graph([relu()], [X], [])))
    write("duplicate_output", model(graph([relu(name="a"), relu(name="b")], [X], [Y])))
    write("duplicate_weight", model(graph([relu()], [X], [Y], [weight("w", np.float32([1]))] * 2)))
    write("duplicate_input", model(graph([relu()], [X, X], [Y])))
    write("names_hostile", model(graph(
        [helper.make_node("Relu", ["x"], ['"}\n\t\\"'], name="{\"json\": 1}\n"),
         helper.make_node("Nonsense\"\n", ['"}\n\t\\"'], ["y"], name="\x1b[31m")], [X], [Y])))


def control():
    captured = helper.make_node("Mul", ["inner_w", "doubled"], ["branch_out"], name="scale")
    then_g = graph([captured], [], [tensor_type("branch_out", [2, 3])],
                   [weight("inner_w", np.float32([3]))], name="then_g")
    nested_then = graph([helper.make_node("Neg", ["doubled"], ["n"], name="deep")], [],
                        [tensor_type("n", [2, 3])], name="deep_then")
    nested_else = graph([helper.make_node("Identity", ["x"], ["i"], name="outer_input")], [],
                        [tensor_type("i", [2, 3])], name="deep_else")
    deep = helper.make_node("If", ["cond"], ["m"], name="inner_if", then_branch=nested_then,
                            else_branch=nested_else)
    else_g = graph([deep], [], [tensor_type("m", [2, 3])], name="else_g")
    branch = helper.make_node("If", ["cond"], ["y"], name="if")
    branch.attribute.append(helper.make_attribute("else_branch", else_g))
    branch.attribute.append(helper.make_attribute("then_branch", then_g))
    nodes = [branch, helper.make_node("Add", ["x", "x"], ["doubled"], name="late_producer")]
    write("if_captures", model(graph(nodes, [X, tensor_type("cond", [], TensorProto.BOOL)], [Y])))

    body = graph([helper.make_node("Add", ["state", "x"], ["next"], name="step"),
                  helper.make_node("Identity", ["keep"], ["keep_out"]),
                  helper.make_node("Identity", ["next"], ["scan"])],
                 [tensor_type("i", [], I64), tensor_type("keep", [], TensorProto.BOOL),
                  tensor_type("state", [2, 3])],
                 [tensor_type("keep_out", [], TensorProto.BOOL), tensor_type("next", [2, 3]),
                  tensor_type("scan", [2, 3])], name="body")
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y", "all"], name="loop", body=body)
    write("loop_body", model(graph([loop], [X], [Y, tensor_type("all", [4, 2, 3])],
                                   [weight("trips", np.int64(4))])))
    scan_body = graph([helper.make_node("Add", ["s", "e"], ["s_out"], name="sum"),
                       helper.make_node("Identity", ["s_out"], ["o"])],
                      [tensor_type("s", [2]), tensor_type("e", [2])],
                      [tensor_type("s_out", [2]), tensor_type("o", [2])], name="scan_body")
    scan8 = helper.make_node("Scan", ["", "init", "seq"], ["y", "z"], name="scan", body=scan_body,
                             num_scan_inputs=1)
    write("scan_8", model(graph([scan8], [tensor_type("init", [1, 2]), tensor_type("seq", [1, 3, 2])],
                                [tensor_type("y", [1, 2]), tensor_type("z", [1, 3, 2])]), opset=8))
    wrong = helper.make_node("Relu", ["x"], ["y"], name="relu", body=body)
    write("graph_attribute_unknown", model(graph([wrong], [X], [Y])))
    # Deeper than the protobuf library writes, so by hand: field 7 of a model is its graph, 1 of a
    # graph a node, 5 of a node an attribute, 6 of an attribute a graph.
    nested = graph([relu()], [], [Y]).SerializeToString(deterministic=True)
    for _ in range(100):
        attribute = field(1, b"then_branch") + field(6, nested) + b"\xa0\x01\x05"
        nested = field(1, field(4, b"If") + field(1, b"c") + field(2, b"y") + field(5, attribute))
    write("nesting_deep", field(8, b"\x10\x15") + field(7, nested))
    kind = b""
    for _ in range(300):
        kind = field(4, field(1, kind))
    write("nesting_types", model(graph([relu()], [X], [Y])).SerializeToString() +
          field(7, field(11, field(1, b"deep") + field(2, kind))))


def field(number, payload):
    """A length-delimited field on the wire."""
    size = b""
    length = len(payload)
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + payload


def dims():
    symbolic = [tensor_type("ids", ["batch", "seq"], I64), tensor_type("mask", ["batch", None]),
                tensor_type("fixed", [4, 2])]
    unknown = onnx.ValueInfoProto(name="free")
    unknown.type.tensor_type.elem_type = F
    nodes = [helper.make_node("Identity", [n], [n + "_out"])
             for n in ("ids", "mask", "fixed", "free")]
    outs = [onnx.ValueInfoProto(name=n + "_out") for n in ("ids", "mask", "fixed", "free")]
    for out in outs:
        out.type.tensor_type.elem_type = F
    made = model(graph(nodes, symbolic + [unknown], outs))
    shapes = ["--shape", "mask=2,7", "--shape", "free=5"]
    write("dims_unbound", made)
    write("dims_partly", made, ["--dim", "batch=2"])
    write("dims_bound", made, ["--dim", "seq=3", *shapes])
    ranged = onnx.ModelProto()
    ranged.CopyFrom(made)
    ranged.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.range_constraints",
                                    value="{s77: VR[1, 5], seq: VR[2, 512], batch: VR[1, int_oo]}")
    write("dims_ranges", ranged)
    write("dims_conflict", made, ["--dim", "batch=3", *shapes])
    write("dims_unknown", made, ["--dim", "bacth=3"])
    write("dims_fixed", made, ["--shape", "fixed=4,3"])
    write("dims_rank", made, ["--shape", "fixed=4"])
    write("dims_no_input", made, ["--shape", "nobody=4"])
    write("dims_absurd", made, ["--dim", "batch=1099511627776", "--dim", "seq=1099511627776",
                                "--shape", "free=1"])
    with open(os.path.join(OUT, "data", "mask.pb"), "wb") as f:
        f.write(weight("mask", np.float32([[1, 0, 1]])).SerializeToString())
    write("dims_const", made, ["--const", "mask=data/mask.pb", "--dim", "seq=3", "--shape", "free=1"])
    write("dims_const_type", made, ["--const", "ids=data/mask.pb"])
    negative = model(graph([relu()], [tensor_type("x", [-1, 3])], [Y]))
    write("dims_negative", negative)
    write("dims_hostile_names", model(graph(
        [relu("x y\x1b[31m")], [tensor_type("x y\x1b[31m", ["$(rm)\n", None])], [Y])))
    odd = model(graph([relu()], [tensor_type("a=b", ["n=m", 2])], [Y]))
    odd.graph.node[0].input[0] = "a=b"
    write("dims_odd_names", odd, ["--dim", "n=m=3"])
    expressions()


def spelled(*names, standing=()):
    """An input for each spelling of a dimension, in the order given, and one for each plain name."""
    ports = [(f"x{i}", name) for i, name in enumerate(names)] + [(name, name) for name in standing]
    return model(graph([helper.make_node("Relu", [n], [n + "_out"]) for n, _ in ports],
                       [tensor_type(n, ["batch", d]) for n, d in ports],
                       [tensor_type(n + "_out", None) for n, _ in ports]))


def joined():
    """Dimensions that only the operators after the inputs tie together; and one that looks so, since
    a table ends there."""
    nodes = [helper.make_node("Concat", ["past_x", "x"], ["present"], name="join", axis=1),
             helper.make_node("Mul", ["present", "mask"], ["masked"], name="mask_it"),
             helper.make_node("Add", ["masked", "bias"], ["moved"], name="move"),
             helper.make_node("MatMul", ["moved", "w"], ["y"], name="product")]
    write("joined", model(graph(nodes, [
        tensor_type("x", ["batch", "seq"]), tensor_type("past_x", ["past_batch", "past"]),
        tensor_type("mask", ["mask_batch", "total"]), tensor_type("bias", ["width"]),
        tensor_type("w", ["rows", 4])], [tensor_type("y", None)])))
    nodes = [helper.make_node("Shape", ["x"], ["n"], start=1, name="length"),
             helper.make_node("Slice", ["table", "zero", "n", "axis"], ["part"], name="cut"),
             helper.make_node("Add", ["x", "part"], ["y"], name="place")]
    weights = [weight("table", np.arange(1000, dtype=np.float32)[None]),
               weight("zero", np.int64([0])), weight("axis", np.int64([1]))]
    lengths = {"sum": ("past+1", ["--dim", "past=7"]), "max": ("Max(past, seq)", ["--dim", "past=0"]),
               "unnamed": (None, ["--dim", "past=7", "--shape", "mask=1,8"])}  # fmt: skip
    for name, (length, sizes) in lengths.items():
        inputs = [tensor_type("past", ["batch", "past"]), tensor_type("x", ["batch", "seq"]),
                  tensor_type("mask", ["batch", length])]
        write(f"joined_{name}", model(graph([
            helper.make_node("Concat", ["past", "x"], ["present"], name="join", axis=1),
            helper.make_node("Mul", ["present", "mask"], ["y"], name="mask_it")], inputs,
            [tensor_type("y", None)])), ["--dim", "batch=1", "--dim", "seq=1", *sizes])
    write("joined_table", model(graph(nodes, [tensor_type("x", ["batch", "seq"])], [tensor_type("y", None)],
                                      weights)))


def open_behind():
    """What needs a shape after what is not supported, by itself and with a node between."""
    nodes = [helper.make_node("Nowhere", ["x"], ["n"], name="nowhere", domain="ai.onnx.ml"),
             helper.make_node("Relu", ["n"], ["r"], name="relu"),
             helper.make_node("LinearClassifier", ["n"], ["a", "b"], name="first", domain="ai.onnx.ml",
                              classlabels_ints=[0, 1], coefficients=[1.0, 2.0], intercepts=[0.0, 0.0]),
             helper.make_node("LinearClassifier", ["r"], ["c", "d"], name="second", domain="ai.onnx.ml",
                              classlabels_ints=[0, 1], coefficients=[1.0, 2.0], intercepts=[0.0, 0.0])]
    made = model(graph(nodes, [X], [tensor_type("b", None), tensor_type("d", None)]), domains=["ai.onnx.ml"])
    write("open_behind", made)


def defaults():
    """An input that may be left out, and a weight that is no input."""
    nodes = [helper.make_node("Mul", ["x", "scale"], ["scaled"], name="mul"),
             helper.make_node("Add", ["scaled", "bias"], ["y"], name="add")]
    weights = [weight("scale", np.float32([2, 3])), weight("bias", np.float32([1, 1]))]
    write("defaults", model(graph(nodes, [tensor_type("x", [2]), tensor_type("scale", ["n"])],
                                  [tensor_type("y", [2])], weights)))


def expressions():
    """Dimensions that are written as expressions of others, as sympy and torch print them."""
    sums = spelled("past + seq", standing=["past", "seq"])
    two = ["--dim", "batch=1", "--dim", "seq=2"]
    write("dims_sum", sums, [*two, "--dim", "past=7"])
    write("dims_sum_solved", sums, [*two, "--dim", "past + seq=9"])
    write("dims_sum_by_shape", sums, ["--shape", "x0=1,9", "--dim", "past=0"])
    write("dims_sum_conflict", sums, [*two, "--dim", "past=7", "--dim", "past + seq=8"])
    write("dims_sum_below", sums, [*two, "--dim", "past + seq=1"])
    write("dims_sum_open", sums, ["--dim", "batch=1"])
    write("dims_sum_half_open", sums, two)
    write("dims_sum_unknown", sums, ["--dim", "total=3"])
    write("dims_spellings", spelled(
        "2*s0", "s0+1", "s0 - 1", "(s0+s1)*2", "floor(s0/2)", "ceiling(s0/2)", "s0//2", "s0 % 4",
        "Mod(s0, 4)", "Max(1, s0, s1)", "Min(s0, s1)", "s0**2", "-s1 + 2*s0", "floor(s0/2 - 1/2) + 1",
        "CeilToInt(IntTrueDiv(s0, 2))", "2*((s0//2))", "s0*s1", "TruncToInt(s0/2)", "-(-s0//2)",
        "2**s1", "(s0 + 7)/2", "past.1+s0"),
        ["--dim", "batch=1", "--dim", "s0=7", "--dim", "s1=3", "--dim", "past.1=2"])
    # what several sizes would fit is not solved for; a line is, wherever the name stands in it
    write("dims_not_solved", spelled("floor(n/2)", standing=["n"]), ["--dim", "batch=1", "--dim", "floor(n/2)=4"])
    write("dims_solved", spelled("(n - 1)*3 + n", standing=["n"]),
          ["--dim", "batch=1", "--dim", "(n - 1)*3 + n=13"])
    write("dims_solved_twice", spelled("2*a", "a + b"),
          ["--dim", "batch=1", "--dim", "2*a=6", "--dim", "a + b=5"])
    write("dims_solved_part", spelled("2*n"), ["--dim", "batch=1", "--dim", "2*n=7"])
    write("dims_part", spelled("n/2"), ["--dim", "batch=1", "--dim", "n=7"])
    write("dims_below", spelled("n - 3"), ["--dim", "batch=1", "--dim", "n=2"])
    write("dims_by_zero", spelled("8//n"), ["--dim", "batch=1", "--dim", "n=0"])
    write("dims_too_large", spelled("n**9"), ["--dim", "batch=1", "--dim", "n=1000"])
    joined()
    open_behind()
    defaults()
    # names that only look like expressions: they are asked for as they are, and so given
    write("dims_names", spelled("batch-size", "seq len", "a(b)", "-1", "(", "x**", "log(n)", "(" * 90 + "n" + ")" * 90))
    write("dims_names_given", spelled("seq-len", "-1", "2*seq-len"),
          ["--dim", "batch=1", "--dim", "seq-len=3", "--dim", "-1=2"])


def by_data():
    """Sizes that depend on data are refused with the cut, which leaves them out."""
    nodes = [relu("x", "r"), helper.make_node("NonZero", ["r"], ["at"], name="find"),
             helper.make_node("Transpose", ["at"], ["z"], name="turn"),
             helper.make_node("NonZero", ["z"], ["again"], name="find_again"), relu("r", "y")]
    made = model(graph(nodes, [X], [Y, tensor_type("again", None, TensorProto.INT64)]))
    write("by_data", made)
    for name, names in {"cut": ["r"], "cut_two": ["y", "r", "y"], "cut_at_none": ["relu"],
                        "cut_at_input": ["x"], "cut_behind": ["z"]}.items():
        write(f"by_data_{name}", made, [word for one in names for word in ("--output", one)])


def by_sizes():
    """What follows from sizes alone is no data, and is told apart while a size is open."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
             helper.make_node("Cast", ["zeros"], ["none"], to=TensorProto.BOOL),
             helper.make_node("Not", ["none"], ["all"]), helper.make_node("NonZero", ["all"], ["at"], name="find"),
             helper.make_node("Transpose", ["at"], ["pairs"]), helper.make_node("GatherND", ["x", "pairs"], ["y"])]
    made = model(graph(nodes, [tensor_type("x", ["n", 3])], [tensor_type("y", None)]))
    write("by_sizes", made)
    write("by_sizes_given", made, ["--dim", "n=2"])


def attention():
    """Graphs that FlexAttention calls: their names are their own, and they see those outside."""
    q = tensor_type("q", [1, 2, 3, 4])
    outputs = [tensor_type("y", [1, 2, 3, 4])]
    scores = tensor_type("s", None)

    def one(name, nodes, output="t", precision=None):
        mod = helper.make_graph(nodes, "mod", [scores], [tensor_type(output, None)])
        more = {} if precision is None else {"softmax_precision": precision}
        flex = helper.make_node("FlexAttention", ["q", "q", "q"], ["y"], name="flex",
                                domain="ai.onnx.preview", score_mod=mod, prob_mod=mod, **more)
        nodes = [helper.make_node("Relu", ["q"], ["t"], name="relu"), flex]
        write(f"flex_{name}", model(graph(nodes, [q], outputs), domains=["ai.onnx.preview"]))

    one("captures", [helper.make_node("ReduceMax", ["t"], ["m"], name="max", keepdims=0),
                     helper.make_node("Add", ["s", "m"], ["u"], name="add")], "u")
    one("passes_through", [], "s")
    one("makes_nothing", [], "v")
    one("precision", [], "s", 7)


def unsupported():
    nodes = [helper.make_node("Nowhere", ["x"], ["a"], name="n1", domain="com.example"),
             helper.make_node("Nowhere", ["a"], ["b"], name="n2", domain="com.example"),
             helper.make_node("StringSplit", ["b"], ["c", "d"], name="split"),
             relu("c", "y")]
    seq = helper.make_tensor_sequence_value_info("s", F, None)
    write("unsupported_all_at_once", model(graph(nodes, [X, seq], [Y]), domains=["com.example"]))
    write("unsupported_domain_not_imported", model(graph(nodes[:1] + [relu("a", "y")], [X], [Y])))
    write("opset_too_new", model(graph([relu()], [X], [Y]), opset=99))
    write("opset_missing", model(graph([relu()], [X], [Y]), opset=0))
    write("opset_6_same_meaning", model(graph([relu()], [X], [Y]), opset=6))
    write("opset_6_changed", model(graph([helper.make_node("Dropout", ["x"], ["y"], name="drop")],
                                         [X], [Y]), opset=6))
    write("microsoft_incomplete", model(graph(
        [helper.make_node("QLinearAdd", ["x", "x", "", "x"], ["y"], name="short",
                          domain="com.microsoft")], [X], [Y]), domains=["com.microsoft"]))
    write("batch_norm_training_outputs", model(graph(
        [helper.make_node("BatchNormalization", ["x", "w", "w", "w", "w"],
                          ["y", "m", "v", "sm", "sv"], name="bn")], [X],
        [Y], [weight("w", np.float32([1, 2, 3]))]), opset=9))
    write("batch_norm_training_used", model(graph(
        [helper.make_node("BatchNormalization", ["x", "w", "w", "w", "w"],
                          ["y", "m", "v", "sm", "sv"], name="bn"), relu("m", "z")], [X],
        [Y, tensor_type("z", [3])], [weight("w", np.float32([1, 2, 3]))]), opset=9))


def sequences():
    n = helper.make_node
    nodes = [n("SequenceConstruct", ["x", "z"], ["two"]),
             n("SequenceInsert", ["two", "x", "minus_one"], ["three"], name="before_last"),
             n("SequenceErase", ["three"], ["first_two"], name="erase_last"),
             n("Identity", ["first_two"], ["same"]),
             n("SequenceAt", ["same", "minus_one"], ["y"], name="last"),
             n("SequenceLength", ["three"], ["length"]),
             n("ConcatFromSequence", ["three"], ["stacked"], name="stack", axis=0, new_axis=1),
             n("SplitToSequence", ["x"], ["rows"], name="unbind", axis=0, keepdims=0),
             n("SequenceAt", ["rows", "minus_one"], ["row"]),
             n("SplitToSequence", ["x", "two_wide"], ["columns"], name="chunks", axis=-1),
             n("ConcatFromSequence", ["columns"], ["again"], name="join", axis=1)]
    outs = [Y, tensor_type("length", [], I64), tensor_type("stacked", [3, 2, 3]),
            tensor_type("row", [3]), tensor_type("again", [2, 3])]
    weights = [weight("minus_one", np.int64(-1)), weight("two_wide", np.int64(2))]
    write("sequence", model(graph(nodes, [X, tensor_type("z", [2, 3])], outs, weights)))
    made = [n("SequenceConstruct", ["x", "x"], ["s"])]
    write("sequence_output", model(graph(made, [X], [
        helper.make_tensor_sequence_value_info("s", F, None)])))
    write("sequence_misused", model(graph(made + [relu("s", "y")], [X], [Y])))
    write("sequence_position", model(graph(
        made + [n("SequenceAt", ["s", "i"], ["y"], name="at")],
        [X, tensor_type("i", [], I64)], [Y])))
    write("sequence_out_of_range", model(graph(
        made + [n("SequenceAt", ["s", "i"], ["y"], name="at")], [X], [Y],
        [weight("i", np.int64(2))])))
    given = helper.make_tensor_sequence_value_info("s", F, None)
    first = n("SequenceAt", ["s", "zero"], ["y"], name="first")
    zero = [weight("zero", np.int64(0))]
    write("sequence_given", model(graph([first], [given], [Y], zero)),
          ["--shape", "s[0]=2,3", "--shape", "s[1]=4"])
    write("sequence_no_first", model(graph([first], [X, given], [Y], zero)), ["--shape", "s[1]=2,3"])
    write("sequence_shape", model(graph([first], [given], [Y], zero)),
          ["--shape", "s[0]=2,3", "--shape", "s=2,3"])
    write("sequence_twice", model(graph([first], [tensor_type("s[0]", [2, 3]), given], [Y], zero)),
          ["--shape", "s[0]=2,3"])
    write("sequence_const", model(graph([first], [given], [Y], zero)),
          ["--shape", "s[1]=2,3", "--const", "s[0]=data/mask.pb"])
    write("sequence_const_whole", model(graph([first], [given], [Y], zero)),
          ["--shape", "s[0]=2,3", "--const", "s=data/mask.pb"])
    sequences_through_graphs(given)
    open_sequences(given, zero)
    whole = helper.make_tensor_sequence_value_info("s", I64, None)
    write("sequence_const_type", model(graph([first], [whole], [Y], zero)),
          ["--const", "s[0]=data/mask.pb"])


def open_sequences(given, zero):
    """Nothing is known of the tensors of an input that is a sequence, and what needs them is not known either."""
    n = helper.make_node
    maps = helper.make_value_info("m", helper.make_sequence_type_proto(
        helper.make_map_type_proto(I64, helper.make_tensor_type_proto(F, None))))
    write("sequence_of_maps", model(graph([relu()], [X, maps], [Y])))
    more = helper.make_tensor_sequence_value_info("longer", F, None)
    flag = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("i", I64, [])
    body = graph([n("SequenceInsert", ["s", "x"], ["longer"]), n("Identity", ["go"], ["next"])], [number, flag, given],
                 [helper.make_tensor_value_info("next", TensorProto.BOOL, []), more], name="body")
    one = graph([relu("a", "b")], [tensor_type("a", None)], [tensor_type("b", None)], name="one")
    branches = {key: graph([n("SequenceConstruct", ["x"] * count, [key])], [], [
        helper.make_tensor_sequence_value_info(key, F, None)], name=key)
        for key, count in (("then_branch", 1), ("else_branch", 2))}
    nodes = [n("Identity", ["s"], ["same"]),
             n("SequenceLength", ["same"], ["length"], name="length"),
             n("SequenceAt", ["same", "zero"], ["y"], name="first"),
             helper.make_node("SequenceMap", ["s"], ["mapped"], name="map", body=one),
             helper.make_node("Loop", ["length", "", "s"], ["looped"], name="loop", body=body),
             n("Less", ["zero", "length"], ["any"]),
             helper.make_node("If", ["any"], ["chosen"], name="choose", **branches),
             n("Shape", ["open"], ["size"]),
             n("Gather", ["size", "zero"], ["rows"]),
             n("SequenceConstruct", ["x", "x"], ["two"]),
             n("SequenceAt", ["two", "rows"], ["at"], name="by_size"),
             n("SplitToSequence", ["open"], ["parts"], name="unbind", axis=0),
             n("SplitToSequence", ["x", "rows"], ["chunks"], name="chunks", axis=0)]
    lists = [helper.make_tensor_sequence_value_info(k, F, None) for k in ("same", "mapped", "looped", "chosen", "chunks")]
    write("sequence_open", model(graph(nodes, [X, tensor_type("open", ["rows", 3]), given],
                                       [Y, tensor_type("at", None), *lists], zero)))
    by_data = n("SequenceAt", ["two", "i"], ["y"], name="by_data")
    first = n("SequenceAt", ["s", "zero"], ["first"], name="first")
    write("sequence_open_by_data", model(graph([nodes[9], by_data, first], [X, tensor_type("i", [], I64), given],
                                               [Y, tensor_type("first", None)], zero)))


def sequences_through_graphs(given):
    """SequenceMap, and Loop and If that carry a sequence."""
    n = helper.make_node
    two = ["--shape", "s[0]=2,3", "--shape", "s[1]=2,3"]
    out = helper.make_tensor_sequence_value_info("t", F, None)
    more = helper.make_tensor_sequence_value_info("more", F, None)
    body = graph([n("Add", ["a", "b"], ["c"])], [tensor_type("a", None), tensor_type("b", None)],
                 [tensor_type("c", None)], name="body")
    def mapped(inputs, inner=body):
        return helper.make_node("SequenceMap", inputs, ["t"], name="map", body=inner)
    write("sequence_map", model(graph([mapped(["s", "x"])], [given, X], [out])), two)
    write("sequence_map_pairs", model(graph([mapped(["s", "s"])], [given], [out])), two)
    write("sequence_map_shorter", model(graph([mapped(["s", "more"])], [given, more], [out])),
          [*two, "--shape", "more[0]=2,3"])
    write("sequence_map_inputs", model(graph([mapped(["s"])], [given], [out])), two)
    write("sequence_map_tensor", model(graph([mapped(["x", "x"])], [X], [out])))
    nested = [n("Identity", ["a"], ["c"])]
    for _ in range(4):
        one = graph(nested, [tensor_type("a", None)], [tensor_type("c", None)], name="body")
        nested = [n("SequenceConstruct", ["a"] * 64, ["many"]),
                  helper.make_node("SequenceMap", ["many"], ["mapped"], body=one),
                  n("SequenceAt", ["mapped", "zero"], ["c"])]
    write("bomb_maps", model(graph(
        [n("SequenceConstruct", ["x"], ["s"]), mapped(["s"], graph(
            nested, [tensor_type("a", None)], [tensor_type("c", None)], name="body"))],
        [X], [out], [weight("zero", np.int64(0))])))
    flag = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    loop_inputs = [helper.make_tensor_value_info("i", I64, []), flag, given]
    nodes = [n("SequenceAt", ["s", "i"], ["item"]), n("SequenceInsert", ["s", "item"], ["longer"]),
             n("Less", ["i", "one"], ["next"])]
    loop_body = graph(nodes, loop_inputs, [
        helper.make_tensor_value_info("next", TensorProto.BOOL, []),
        helper.make_tensor_sequence_value_info("longer", F, None)], name="body")
    one, trips = weight("one", np.int64(1)), weight("trips", np.int64(9))
    def looped(inputs, body=loop_body):
        return helper.make_node("Loop", inputs, ["t"], name="loop", body=body)
    start = n("SequenceConstruct", ["x", "x"], ["start"])
    write("sequence_loop", model(graph([start, looped(["trips", "", "start"])], [X], [out], [one, trips])))
    write("sequence_loop_open", model(graph(
        [start, looped(["n", "", "start"])], [X, tensor_type("n", [], I64)], [out], [one])))
    stays = graph([n("Identity", ["go"], ["next"]), *nodes[:2]], loop_inputs, loop_body.output, name="body")
    write("bomb_loop", model(graph([start, looped(["", "", "start"], stays)], [X], [out])))
    branches = {}
    for key, count in (("then_branch", 1), ("else_branch", 2)):
        made = helper.make_tensor_sequence_value_info(key, F, None)
        branches[key] = graph([n("SequenceConstruct", ["x"] * count, [key])], [], [made], name=key)
    choose = helper.make_node("If", ["c"], ["t"], name="choose", **branches)
    write("sequence_if", model(graph([choose], [X], [out], [weight("c", np.bool_(False))])))
    write("sequence_if_open", model(graph([choose], [X, tensor_type("c", [], TensorProto.BOOL)], [out])))


def training():
    """Nodes of training graphs that are wrong."""
    def node(op, inputs, outputs=("y",), domain="com.microsoft", **attributes):
        return helper.make_node(op, inputs, list(outputs), name="wrong", domain=domain, **attributes)

    def write_one(name, *nodes, inputs=(X,), weights=()):
        write(name, model(graph(nodes, inputs, [Y], weights), domains=["com.microsoft"]))

    made = helper.make_node("SequenceConstruct", ["x"], ["s"])
    write_one("training_sequence", made, node("SoftmaxGrad", ["s", "x"]))
    write_one("training_sequence_rate", made, node("SGDOptimizerV2", ["s", "s", "s"]))
    write_one("training_sequence_other", made, node("Nowhere", ["s"]))
    write_one("training_pool_inputs", node("MaxPoolGrad", ["x"], domain=""))
    write_one("training_pool_outputs", node("AveragePoolGrad", ["x"], (), domain=""), relu())
    write_one("training_groups", node("ConvTransposeGrad", ["w", "w", "w"], group=2**62),
              inputs=[tensor_type("w", [2, 3, 4, 4])])
    write("training_overwritten", model(
        graph([node("InPlaceAccumulatorV2", ["x", "g"], ["flag", ""])], [X, tensor_type("g", [2, 3])],
              [tensor_type("flag", [1], TensorProto.BOOL)]), domains=["com.microsoft"]))
    inside = graph([node("InPlaceAccumulatorV2", ["x", "x"], ("flag", "then"))], [],
                   [tensor_type("then", [2, 3])])
    other = graph([relu("x", "else")], [], [tensor_type("else", [2, 3])])
    write_one("training_branch", helper.make_node("If", ["c"], ["y"], then_branch=inside, else_branch=other),
              inputs=[X, tensor_type("c", [], TensorProto.BOOL)])


def sources():
    one = relu(y="a", name="old_exporter")
    one.doc_string = "model.py(12): forward\nlib.py(99): call\n"
    two = relu("a", "y", "new_exporter")
    two.metadata_props.add(key="namespace", value="ignored")
    two.metadata_props.add(key="pkg.torch.onnx.stack_trace",
                           value='File "lib.py", line 1, in call\nFile "model.py", line 34, in f\n x')
    write("source_lines", model(graph([one, two], [X], [Y])))


def sizes_of_forests():
    """What needs a shape asks for the sizes of the model's inputs, not for another model."""
    scaler = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0])
    write("dims_of_features", model(graph([scaler], [tensor_type("x", ["N", 4])], [tensor_type("y", ["N", 4])]),
                                    domains=["ai.onnx.ml"]))


def not_models():
    write("file_empty", b"")
    write("file_text", b"This is not a model.\n")
    write("file_array", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'")
    write("file_zip", b"PK\x03\x04\x14\x00\x00\x00\x00\x00")
    write("file_lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write("file_tflite", b"\x1c\x00\x00\x00TFL3\x14\x00 \x00")
    write("file_json", b'{"format": "ullage-plan", "version": 1}\n')
    write("file_zeros", bytes(64))
    write("file_no_graph", onnx.ModelProto(ir_version=8).SerializeToString())
    data = model(graph([relu()], [X], [Y])).SerializeToString(deterministic=True)
    write("file_cut", data[: len(data) // 2])
    write("file_group", data + b"\x0b\x0c")
    write("file_nul_in_name", data.replace(b"relu", b"re\0u"))
    write("file_op_type_missing", data.replace(b"\x22\x04Relu", b"\x22\x00\x32\x02.."))
    attr = helper.make_node("Constant", [], ["y"], name="constant")
    attr.attribute.add(name="value", type=AttributeProto.TENSOR)
    write("attribute_without_tensor", model(graph([attr], [], [Y])))
    twice = helper.make_node("LeakyRelu", ["x"], ["y"], name="relu", alpha=0.5)
    twice.attribute.extend([helper.make_attribute("alpha", 2.0)])
    write("attribute_twice", model(graph([twice], [X], [Y])))
    kind = helper.make_node("Constant", [], ["y"], name="constant")
    kind.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR)
    write("attribute_sparse", model(graph([kind], [], [Y])))
    kind = helper.make_node("Relu", ["x"], ["y"], name="relu", domain="other")
    kind.attribute.add(name="a", type=AttributeProto.TENSORS)
    write("attribute_type_tensors", model(graph([kind], [X], [Y]), domains=["other"]))
    write("arity_too_many", model(graph([helper.make_node("Relu", ["x", "x"], ["y"])], [X], [Y])))
    write("arity_absent", model(graph([helper.make_node("Add", ["", "x"], ["y"])], [X], [Y])))
    half = helper.make_node("If", ["c"], ["y"], then_branch=graph([relu()], [], [Y]))
    write("if_without_else", model(graph([half], [X, tensor_type("c", [], TensorProto.BOOL)], [Y])))


def hostile():
    # Element types that old operators took for numbers.
    words, complexes = TensorProto.STRING, TensorProto.COMPLEX64

    def typed(name, node, dtype, opset):
        ends = [tensor_type("x", [4], dtype)], [tensor_type("y", None, dtype)]
        write(name, model(graph([node], *ends), opset=opset, domains=["com.microsoft"]))

    typed("clip_strings", helper.make_node("Clip", ["x"], ["y"], min=0.0), words, 6)
    typed("pad_complex", helper.make_node("Pad", ["x"], ["y"], pads=[1, 1]), complexes, 2)
    typed("dropout_strings", helper.make_node("Dropout", ["x"], ["y"], ratio=0.5), words, 7)
    typed("quick_gelu_complex",
          helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft"), complexes, 17)
    hot = helper.make_node("OneHot", ["x", "depth", "values"], ["y"])
    write("one_hot_strings", model(graph(
        [hot], [tensor_type("x", [4], words)], [tensor_type("y", None)],
        [weight("depth", np.int64(3)), weight("values", np.float32([0, 1]))]), opset=9))

    # A kilobyte that stands for 10^8 nodes.
    def level(at):
        op, domain = ("Exp", "") if at == 0 else (f"f{at - 1}", "d")
        names = ["x"] + [f"t{i}" for i in range(9)] + ["y"]
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in zip(names, names[1:])]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
        return helper.make_function("d", f"f{at}", ["x"], ["y"], nodes, imports)

    call = helper.make_node("f7", ["x"], ["y"], domain="d")
    write("bomb_functions", model(graph([call], [X], [Y]), functions=[level(i) for i in range(8)],
                                 domains=["d"]))
    outputs = [f"y{i}" for i in range(4097)]
    write("split_outputs", model(graph(
        [helper.make_node("Split", ["x"], outputs, num_outputs=4097)],
        [tensor_type("x", [4097])], [tensor_type("y0", None)])))
    # Sizes past what the libraries count; the tests of the command line give them.
    write("product_dims", model(graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor_type("x", ["M", "K"]), tensor_type("w", ["K", "N"])], [tensor_type("y", None)])),
          ["--dim", "M=2", "--dim", "K=3", "--dim", "N=2"])
    write("gemm_dims", model(graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])],
        [tensor_type("x", ["M", "K"]), tensor_type("w", ["K", "N"])], [tensor_type("y", None)])),
          ["--dim", "M=2", "--dim", "K=3", "--dim", "N=2"])
    write("window_dims", model(graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [tensor_type("x", [1, 1, "L"]), tensor_type("w", [1, 1, 3])], [tensor_type("y", None)])),
          ["--dim", "L=5"])
    far = 2**21
    write("window_long", model(graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[far, far]),
         helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[far], pads=[far - 1, far - 1])],
        [tensor_type("x", [1, 1, 5]), tensor_type("w", [1, 1, 3])],
        [tensor_type("c", None), tensor_type("p", None)])))


def learned():
    """Operators of ai.onnx.ml."""
    def one(name, op, outputs, x=(2, 3), dtype=F, **attributes):
        write(name, model(graph([helper.make_node(op, ["x"], outputs, name=op, domain="ai.onnx.ml",
                                                  **attributes)],
                                [tensor_type("x", x, dtype)],
                                [tensor_type(outputs[-1], None)]), domains=["ai.onnx.ml"]))
    # a root with a leaf and a branch, and a leaf that is a tree, with labels that nobody reads
    one("trees_classes", "TreeEnsembleClassifier", ["label", "scores"],
        nodes_treeids=[0, 0, 0, 0, 0, 1], nodes_nodeids=[0, 1, 2, 3, 4, 0],
        nodes_featureids=[2, 0, 1, 0, 0, 0], nodes_values=[0.5, 0.0, -1.0, 0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LT", "LEAF", "BRANCH_GTE", "LEAF", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 3, 0, 0, 0], nodes_falsenodeids=[2, 0, 4, 0, 0, 0],
        nodes_missing_value_tracks_true=[1, 0, 0, 0, 0, 0],
        class_treeids=[0, 0, 0, 1, 1], class_nodeids=[1, 3, 4, 0, 0], class_ids=[0, 1, 2, 0, 1],
        class_weights=[1.0, 2.0, 3.0, 4.0, 5.0], classlabels_strings=["a", "b", "c"],
        post_transform="SOFTMAX")
    one("trees_members", "TreeEnsemble", ["y"], n_targets=2, tree_roots=[0],
        nodes_featureids=[1, 0], nodes_truenodeids=[0, 1], nodes_trueleafs=[1, 1],
        nodes_falsenodeids=[1, 2], nodes_falseleafs=[0, 1], leaf_targetids=[0, 1, 1],
        nodes_modes=numpy_helper.from_array(np.array([6, 4], np.uint8), "modes"),
        nodes_splits=numpy_helper.from_array(np.array([0, 2], np.float32), "splits"),
        membership_values=numpy_helper.from_array(np.array([3, 1, 4, np.nan], np.float32), "m"),
        leaf_weights=numpy_helper.from_array(np.array([1, 2, 3], np.float32), "weights"))
    one("vectors", "SVMClassifier", ["label", "scores"], x=(2, 1), vectors_per_class=[1, 1, 1],
        support_vectors=[1.0, 2.0, 3.0], coefficients=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        rho=[0.5, 1.0, 1.5], prob_a=[-1.0] * 3, prob_b=[0.0] * 3, kernel_type="RBF",
        kernel_params=[0.5, 0.0, 3.0], classlabels_ints=[7, 8, 9])
    one("labels", "LabelEncoder", ["y"], dtype=I64, keys_int64s=[5, -2, 9, 5],
        values_floats=[1.0, 2.0, 3.0, 4.0], default_float=0.5)
    one("labels_strings", "LinearClassifier", ["label"], coefficients=[1.0] * 6,
        intercepts=[0.0, 0.0], classlabels_strings=["no", "yes"])


def main():
    os.makedirs(OUT, exist_ok=True)
    for part in (external, constants, typed_fields, attributes, bad_tensors, functions, order, control, dims, by_data, by_sizes,
                 attention, unsupported, learned, sequences, training, sources, sizes_of_forests,
                 not_models, hostile):
        part()


main()
