#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage export: models with the parameters of a checkpoint.

    export.py ULLAGE

Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnx.reference
    from onnx import TensorProto, helper, numpy_helper
    from onnx.external_data_helper import load_external_data_for_model, set_external_data
except ImportError as error:
    print(f"export.py: skipped: {error}")
    sys.exit(77)

ULLAGE = os.path.abspath(sys.argv[1])
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAIL: {what}")


def run(code, words, *arguments):
    done = subprocess.run(
        [ULLAGE, "export", *arguments], capture_output=True, text=True, check=False
    )
    check(
        done.returncode == code and words in done.stdout + done.stderr,
        f"{arguments}: exit {done.returncode}, wanted {code} and {words!r}\n{done.stderr}",
    )


def make_model():
    """Initializers in each form that data have, one in a branch, a constant, and what a tool that
    knows less would lose: doc strings, metadata, functions, fields of no schema."""
    w = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)
    typed = helper.make_tensor("b", TensorProto.FLOAT, [6], [float(i) for i in range(6)])
    typed.doc_string = "a bias"
    half = helper.make_tensor("h", TensorProto.FLOAT16, [2], numpy.array([1, 2], numpy.float16))
    axes = numpy_helper.from_array(numpy.array([1], numpy.int64), "axes")
    branch = [
        helper.make_graph(
            [helper.make_node("Add", ["y", name], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(numpy.full(6, i, numpy.float32), name)],
        )
        for i, name in enumerate(("then_bias", "else_bias"))
    ]
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(numpy.float32([3]))),
        helper.make_node("MatMul", ["x", "w"], ["m"], doc_string="a product"),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Double", ["a"], ["d"], domain="own"),
        helper.make_node("Mul", ["d", "c"], ["y"]),
        helper.make_node("If", ["which"], ["z"], then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("Cast", ["h"], ["k"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["z", "axes"], ["s"]),
    ]
    double = helper.make_function(
        "own",
        "Double",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        nodes,
        "export",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
            helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 1]),
            helper.make_tensor_value_info("k", TensorProto.FLOAT, [2]),
        ],
        [numpy_helper.from_array(w, "w"), typed, half, axes],
        doc_string="a graph",
    )
    model = helper.make_model(
        graph,
        functions=[double],
        doc_string="a model",
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
    )
    model.ir_version = 8
    helper.set_model_props(model, {"author": "a test"})
    onnx.checker.check_model(model)
    return model


def all_tensors(model):
    graphs = [model.graph] + [a.g for n in model.graph.node for a in n.attribute if a.HasField("g")]
    return {t.name: t for graph in graphs for t in graph.initializer}


def with_values(model, values):
    """What is wanted, by onnx's own tools."""
    want = onnx.ModelProto()
    want.CopyFrom(model)
    for name, value in values.items():
        tensor = all_tensors(want)[name]
        for field in ("float_data", "int32_data", "int64_data", "raw_data", "double_data"):
            tensor.ClearField(field)
        tensor.raw_data = numpy.ascontiguousarray(value).tobytes()
    return want


VALUES = {
    "w": numpy.random.default_rng(1).normal(size=(4, 6)).astype(numpy.float32),
    "b": numpy.random.default_rng(2).normal(size=6).astype(numpy.float32),
    "h": numpy.array([0.5, -4], numpy.float16),
    "then_bias": numpy.arange(6, dtype=numpy.float32),
}
EXTRAS = {
    "step": numpy.int64(7),
    "generator": numpy.zeros(4, numpy.uint64),
    "learning_rate": numpy.float64(1),
    "optimizer": numpy.zeros(16, numpy.uint8),
    "w/momentum": numpy.zeros((4, 6), numpy.float32),
    "b/exp_avg": numpy.zeros(6, numpy.float32),
    "b/exp_avg_sq": numpy.zeros(6, numpy.float32),
}


def test_inside(model):
    onnx.save(model, "m.onnx")
    numpy.savez("c.npz", **VALUES, **EXTRAS)
    run(0, "out.onnx: 4 initializers of c.npz", "m.onnx", "c.npz", "-o", "out.onnx")
    onnx.checker.check_model("out.onnx")
    check(onnx.load("out.onnx") == with_values(model, VALUES), "another model than wanted")
    check(not os.path.exists("out.onnx.data"), "external data of a model that has none")
    some = {"b": VALUES["b"]}
    counters = {"bn.num_batches_tracked": numpy.int64(7)}  # of a torch state_dict
    numpy.savez("some.npz", **some, **counters)
    run(0, "passed over: num_batches_tracked of 1 layer\n", "m.onnx", "some.npz", "-o", "some.onnx")
    run(0, "1 initializers", "m.onnx", "some.npz", "-o", "some.onnx")
    check(
        onnx.load("some.onnx") == with_values(model, some), "parameters that are not named change"
    )
    numpy.savez("none.npz", step=numpy.int64(1))
    run(0, "0 initializers", "m.onnx", "none.npz", "-o", "none.onnx")
    with open("m.onnx", "rb") as before, open("none.onnx", "rb") as after:
        check(before.read() == after.read(), "nothing new gives other bytes")


def test_external(model):
    """All tensors in a file beside, that of the constant too; the result is in another folder."""
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    data = b"-" * 17
    constant = outside.graph.node[0].attribute[0].t
    for tensor in (*all_tensors(outside).values(), constant):
        raw = numpy_helper.to_array(tensor).tobytes()
        for field in ("float_data", "int32_data", "raw_data"):
            tensor.ClearField(field)
        tensor.raw_data = b""  # set_external_data wants it
        set_external_data(tensor, "m.data", len(data), len(raw))
        tensor.ClearField("raw_data")
        data += raw
    with open("ext.onnx", "wb") as out:
        out.write(outside.SerializeToString())
    with open("m.data", "wb") as out:
        out.write(data)
    os.makedirs("sub", exist_ok=True)
    run(0, "4 initializers", "ext.onnx", "c.npz", "-o", "sub/t.onnx")
    onnx.checker.check_model("sub/t.onnx")
    check(sorted(os.listdir("sub")) == ["t.onnx", "t.onnx.data"], "other files")
    got = onnx.load("sub/t.onnx", load_external_data=False)
    check(
        all(
            t.data_location == TensorProto.EXTERNAL and t.external_data[0].value == "t.onnx.data"
            for t in all_tensors(got).values()
        ),
        "data are not where they were",
    )
    load_external_data_for_model(got, "sub")
    for tensor in all_tensors(got).values():
        want = VALUES.get(tensor.name, numpy_helper.to_array(all_tensors(model)[tensor.name]))
        check(
            numpy.array_equal(numpy_helper.to_array(tensor), want), f"{tensor.name} is another one"
        )
    check(numpy_helper.to_array(got.graph.node[0].attribute[0].t) == [3], "the constant is lost")
    run(1, "two files", "ext.onnx", "c.npz", "-o", "-")
    os.rename("m.data", "u.data")
    with open("ext2.onnx", "wb") as out:
        out.write(outside.SerializeToString().replace(b"m.data", b"u.data"))
    run(1, "would destroy the model's external data", "ext2.onnx", "c.npz", "-o", "u")
    run(5, "m.data", "ext.onnx", "c.npz", "-o", "sub/v.onnx")
    check(sorted(os.listdir("sub")) == ["t.onnx", "t.onnx.data"], "a failure leaves files")


def make_training(used=(), mode=1, opset=15):
    """BatchNormalization and Dropout in training mode: in the graph, in a branch, and in a function
    whose caller says the mode. `used`: results of the first, which are outputs of the model."""
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    norm = lambda x, y, outputs, **mode: helper.make_node(
        "BatchNormalization", [x, "s", "s", "mean", "var"], [y, *outputs], **mode
    )
    branch = lambda name, node: helper.make_graph([node], name, [], [value(f"{name}_y", None)])
    says = {"training_mode": mode} if opset >= 14 else {}
    first = ["mean_out", "var_out"] if opset >= 14 else ["mean_out", "var_out", "m1", "v1"]
    by_caller = norm("x", "y", ["u", "v"])
    by_caller.attribute.append(
        onnx.AttributeProto(
            name="training_mode", type=onnx.AttributeProto.INT, ref_attr_name="mode"
        )
    )
    function = helper.make_function(
        "own", "Norm", ["x", "s", "mean", "var"], ["y", "v"], [by_caller],
        [helper.make_opsetid("", opset)], ["mode"],
    )  # fmt: skip
    nodes = [
        norm("x", "a", first if mode else [], **says),
        helper.make_node("Dropout", ["a", "ratio", "yes"], ["d", "mask"]),
        helper.make_node(
            "If",
            ["yes"],
            ["i"],
            then_branch=branch("then", norm("d", "then_y", ["mean2", "var2"], **says)),
            else_branch=branch("else", helper.make_node("Dropout", ["d", "", "yes"], ["else_y"])),
        ),
        helper.make_node("StopGradient", ["i"], ["stopped"], domain="ullage"),
        helper.make_node("Norm", ["stopped", "s", "mean", "var"], ["y", "w"], domain="own", mode=mode),
    ]
    graph = helper.make_graph(
        nodes,
        "training",
        [value("x", [3, 2])],
        [value("y", [3, 2]), value("w", [2]), *(value(name, [2]) for name in used)],
        [
            *(numpy_helper.from_array(numpy.array(v, numpy.float32), name) for name, v in
              {"s": [1, 2], "mean": [3, 4], "var": [5, 6], "ratio": 0.25}.items()),
            numpy_helper.from_array(numpy.array(True), "yes"),
        ],
    )  # fmt: skip
    opsets = [helper.make_opsetid(domain, 1) for domain in ("own", "ullage")]
    opsets.append(helper.make_opsetid("", opset))
    model = helper.make_model(graph, functions=[function], opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, "training.onnx")
    return model


def test_modes():
    """What is exported computes as in inference, whatever mode the file was in."""
    numpy.savez("modes.npz", s=numpy.array([7, 8], numpy.float32))
    make_training(used=["var_out"])
    run(0, "6 nodes of training mode compute as in inference", "training.onnx", "modes.npz",
        "-o", "modes.onnx")  # fmt: skip
    onnx.checker.check_model("modes.onnx", full_check=True)
    got = onnx.load("modes.onnx")
    graphs = [got.graph, *(a.g for n in got.graph.node for a in n.attribute if a.HasField("g"))]
    nodes = [node for graph in graphs for node in graph.node] + list(got.functions[0].node)
    norms = [node for node in nodes if node.op_type == "BatchNormalization"]
    check(
        len(norms) == 3 and all(len(n.output) == 1 and not n.attribute for n in norms),
        "a BatchNormalization is in training mode",
    )
    drops = [node for node in nodes if node.op_type == "Dropout"]
    check(len(drops) == 2 and all(len(n.input) == 2 for n in drops), "a Dropout drops")
    kept = [(n.input[0], n.output[0]) for n in nodes if n.op_type == "Identity"]
    check(sorted(kept) == [("i", "stopped"), ("var", "v"), ("var", "var_out")], f"statistics are {kept}")
    x = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)
    evaluator = onnx.reference.ReferenceEvaluator(got)
    y, w, var = evaluator.run(None, {"x": x})
    for _ in range(3):
        root = numpy.sqrt(numpy.array([5, 6]) + 1e-5)
        x = (x - numpy.array([3, 4])) / root * numpy.array([7, 8]) + numpy.array([7, 8])
    check(numpy.allclose(y, x, rtol=1e-4), f"another result: {y} {x}")
    check(list(w) == [5, 6] and list(var) == [5, 6], "other statistics")
    run(0, "1 initializers of modes.npz\n", "training.onnx", "modes.npz", "--training-mode",
        "-o", "kept.onnx")  # fmt: skip
    check(onnx.load("kept.onnx") == with_values(onnx.load("training.onnx"),
          {"s": numpy.array([7, 8], numpy.float32)}), "--training-mode changes a mode")  # fmt: skip
    make_training(opset=13)
    run(0, "6 nodes", "training.onnx", "modes.npz", "-o", "old.onnx")
    check(len(onnx.load("old.onnx").graph.node[0].output) == 1, "statistics of operator set 13")
    make_training(used=["m1"], opset=13)
    run(3, 'its result "m1"', "training.onnx", "modes.npz", "-o", "bad.onnx")
    check(not os.path.exists("bad.onnx"), "a failure leaves a file")


def test_refused():
    for words, entries in [
        (
            '"w" is f32[4,6] in the model and f32[6,4] in the checkpoint',
            {"w": VALUES["w"].T.copy()},
        ),
        ('"b" is f32[6] in the model and f64[6]', {"b": VALUES["b"].astype(numpy.float64)}),
        ('"nobody" is no initializer', {"nobody": VALUES["b"]}),
        ('"x" is no initializer', {"x": VALUES["b"]}),
        ('"nobody/momentum" is no initializer', {"nobody/momentum": VALUES["b"]}),
        ('"c" is no initializer', {"c": numpy.float32([1])}),
    ]:
        numpy.savez("bad.npz", **entries)
        run(2, words, "m.onnx", "bad.npz", "-o", "bad.onnx")
    numpy.savez_compressed("bad.npz", w=VALUES["w"])
    run(3, "numpy.savez", "m.onnx", "bad.npz", "-o", "bad.onnx")
    run(2, "not a sound .npz", "m.onnx", "m.onnx", "-o", "bad.onnx")
    run(2, "", "c.npz", "c.npz", "-o", "bad.onnx")
    run(5, "cannot open", "m.onnx", "missing.npz", "-o", "bad.onnx")
    run(1, "give a model", "m.onnx", "-o", "bad.onnx")
    run(1, "give a model", "m.onnx", "c.npz")
    run(1, "would destroy", "m.onnx", "c.npz", "-o", "m.onnx")
    run(1, "would destroy", "m.onnx", "c.npz", "-o", "c.npz")
    check(not os.path.exists("bad.onnx"), "a failure leaves a file")


def test_hostile():
    draw = random.Random(1)
    with open("c.npz", "rb") as file:
        good = file.read()
    cuts = [good[:size] for size in range(0, len(good), 97)]
    flips = []
    for at in range(0, len(good), 29):
        bad = bytearray(good)
        bad[at] ^= 1 << draw.randrange(8)
        flips.append(bytes(bad))
    with open("m.onnx", "rb") as file:
        model = file.read()
    models = [model[:size] for size in range(0, len(model), 97)]
    for bytes_, name in [(b, "f.npz") for b in cuts + flips] + [(b, "f.onnx") for b in models]:
        with open(name, "wb") as out:
            out.write(bytes_)
        files = ["m.onnx", "f.npz"] if name == "f.npz" else ["f.onnx", "c.npz"]
        done = subprocess.run(
            [ULLAGE, "export", *files, "-o", "f.out"], capture_output=True, check=False
        )
        check(done.returncode in (0, 2, 3), f"exit {done.returncode} of a damaged {name}")


def main():
    model = make_model()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_inside(model)
        test_external(model)
        test_modes()
        test_refused()
        test_hostile()
        os.chdir("/")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
