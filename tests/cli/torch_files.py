#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is trained of files as torch's exporters write them, and what is said of it.

    torch_files.py ULLAGE

The files are made here: the record of a network's parameters that torch.onnx.export keeps in the
graph's metadata, constants that it has made of parameters, nodes of detach() and of embeddings; and
files without a record, as those of the older exporter.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"torch_files.py: skipped: {error}")
    sys.exit(77)

ULLAGE = os.path.abspath(sys.argv[1])
RECIPE = "net.train(); torch.onnx.export(net, args, f, optimize=False)"
BATCH, SIZE, CLASSES = 8, 4, 3
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAIL: {what}")


def run(command, *words, code=0):
    done = subprocess.run(
        [ULLAGE, command, "m.onnx", "--train", *words], capture_output=True, text=True, check=False
    )
    check(done.returncode == code, f"{command} {words}: exit {done.returncode}\n{done.stderr}")
    return " ".join((done.stdout + done.stderr).split())


def node(op, inputs, output, fx=None, **attributes):
    made = helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes)
    if fx is not None:
        call = f"%{output} : [num_users=1] = call_function[target=torch.ops.{fx}, kwargs = {{}})"
        made.metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
    return made


def write(nodes, weights, record=None, inputs=None, output="y"):
    """record: lines of the graph's signature, or None: the file has none."""
    inputs = inputs or {"x": (TensorProto.FLOAT, [BATCH, SIZE])}
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [BATCH, CLASSES])],
        [
            numpy_helper.from_array(numpy.full(dims, 0.5, numpy.float32), name)
            for name, dims in weights.items()
        ],
    )
    if record is not None:
        graph.metadata_props.add(
            key="pkg.torch.export.ExportedProgram.graph_signature",
            value="\n# inputs\n" + "\n".join(record) + "\nx: USER_INPUT\n\n# outputs\n",
        )
    opsets = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="pytorch")
    model.ir_version = 10
    onnx.save(model, "m.onnx")


def recorded(*parameters, buffers=()):
    return [f"p_{name}: PARAMETER target='{name}'" for name in parameters] + [
        f"b_{name}: BUFFER target='{name}' persistent=True" for name in buffers
    ]


def roles(*words):
    """What inspect says about each initializer."""
    done = subprocess.run(
        [ULLAGE, "inspect", "m.onnx", "--train", *words], capture_output=True, text=True, check=False
    )
    check(done.returncode == 0, f"inspect: {done.stderr}")
    found = {}
    for line in done.stdout.split("\n\n")[0].splitlines():
        role, rest = line[2:19].strip(), line[19:].split()
        found[rest[0].strip('"')] = role
    return found


def check_same_notes():
    """What plan says under its first lines of who is trained, inspect says as well."""
    plan, inspect = run("plan"), run("inspect")
    for begin, end in (("--train-only '*'", " as it is."), ("The file does not say", " as it is."),
                       ("No parameters of a network", "takes.")):  # fmt: skip
        note = plan[plan.find(begin):].partition(end)[0] if begin in plan else None
        check(note is None or note in inspect, f"plan says {note!r}, and inspect {inspect}")
        check(note is not None or begin not in inspect, f"inspect says {begin!r}, and plan {plan}")


def test_record():
    """Parameters are what the record says: single numbers, and neither buffers nor constants."""
    nodes = [
        node("Sub", ["x", "mean"], "c"),
        node("Div", ["c", "std"], "n"),
        node("MatMul", ["n", "w"], "h"),
        node("Mul", ["h", "temperature"], "t"),
        node("Mul", ["t", "val_3"], "y"),
    ]
    weights = {"mean": [SIZE], "std": [SIZE], "w": [SIZE, CLASSES], "temperature": [], "val_3": [CLASSES]}
    write(nodes, weights, recorded("w", "temperature", buffers=("mean", "std")))
    want = {"w": "trained", "temperature": "trained"}
    want.update(dict.fromkeys(("mean", "std", "val_3"), "no parameter"))
    check(roles() == want, f"roles are {roles()}")
    plan = run("plan")
    check("Trained: 2 tensors, 52 bytes. Not trained:" in plan, plan)
    want = '"mean", "std" and "val_3" (no parameters, by the exporter\'s record, 44 bytes)'
    check(want in plan, plan)
    check_same_notes()
    check("--train-only '*' trains what is no parameter too" in plan, plan)
    check(roles("--train-only", "mean")["mean"] == "trained", "--train-only does not count")
    said = run("plan", "--train-only", "mean")
    check("The file does not say" not in said and "--train-only '*'" not in said, said)
    want = dict.fromkeys(weights, "trained") | {"std": "fixed"}
    found = roles("--train-only", "*", "--freeze", "std")
    check(found == want, f"by --train-only '*' and --freeze std roles are {found}")


def test_clash():
    """torch names a buffer and a result alike: nodes in front of the result read the buffer."""
    nodes = [
        node("Sub", ["x", "mean"], "c"),
        node("MatMul", ["c", "w"], "h"),
        node("Relu", ["h"], "mean"),
        node("Relu", ["mean"], "mean_1"),
        node("Mul", ["mean", "mean_1"], "y"),
    ]
    weights = {"mean": [SIZE], "w": [SIZE, CLASSES]}
    write(nodes, weights, recorded("w", buffers=["mean"]))
    graph = run("plan", "--stop-after", "select")
    check('Sub n0 "node_c" (%0, %1)' in graph and '"mean_2" none[*] = Relu' in graph and '"mean_1" none[*] = Relu' in graph, graph)
    write(nodes, weights)
    run("plan", code=2)


def test_lost():
    """What the exporter has made constants of is named, with what to do."""
    nodes = [node("Concat", ["expand", "x"], "c", axis=1), node("MatMul", ["c", "w"], "y")]
    weights = {"expand": [BATCH, SIZE], "w": [2 * SIZE, CLASSES]}
    record = recorded("w", "cls", "bn.weight", buffers=["bn.running_mean"])
    write(nodes, weights, record)
    said = run("plan", code=3)
    check('"cls" and 1 more' in said and RECIPE in said and "--train-mode" in said, said)
    check("Trained: 1 tensor," in run("plan", "--freeze", "cls", "--freeze", "bn.*"), "--freeze")
    check("Trained: 1 tensor," in run("plan", "--train-only", "w"), "lost ones are not asked for")
    write(nodes, weights, recorded("w") + ["", "# outputs", "g: BUFFER_MUTATION target='bn.running_var'"])
    check("bn.running_var" in run("plan", code=3), "a BatchNormalization without parameters is missed")


def test_nodes():
    """detach() stops gradients, and the padding row of an embedding has none."""
    nodes = [
        node("Gather", ["table", "ids"], "e", "aten.embedding.default](args = (%p_table, %ids, 1)"),
        node("Gather", ["other", "ids"], "o", "aten.embedding.default](args = (%p_other, %ids)"),
        node("Identity", ["e"], "d", "aten.detach.default](args = (%e,)"),
        node("Identity", ["o"], "same", "aten.alias.default](args = (%o,)"),
        node("Add", ["d", "same"], "s"),
        node("Add", ["s", "e"], "a"),
        node("MatMul", ["a", "w"], "y"),
    ]
    weights = {"table": [5, SIZE], "other": [5, SIZE], "w": [SIZE, CLASSES]}
    ids = {"ids": (TensorProto.INT64, [BATCH])}
    write(nodes, weights, recorded(*weights), ids)
    graph = run("plan", "--stop-after", "pattern")
    check(graph.count("ullage::StopGradient") == 1, f"detach(): {graph}")
    check(graph.count("ul_padding=1") == 1 and graph.count("ul_padding") == 1, f"padding: {graph}")
    ended = run("plan", "--stop-after", "gradient")
    check("StopGradient" not in ended, "a StopGradient is left behind the backward pass")


def test_silent():
    """Without a record it is said what may be no parameter."""
    nodes = [
        node("Sub", ["x", "mean"], "c"),
        node("Concat", ["c", "token"], "b", axis=1),
        node("MatMul", ["b", "onnx::MatMul_7"], "m"),
        node("Add", ["m", "bias"], "h"),
        node("Mul", ["h", "one"], "o"),
        node("PRelu", ["o", "slope"], "y"),
    ]
    weights = {"mean": [SIZE], "token": [BATCH, SIZE], "onnx::MatMul_7": [2 * SIZE, CLASSES],
               "bias": [CLASSES], "one": [], "slope": []}  # fmt: skip
    write(nodes, weights)
    plan = run("plan")
    check('"one" (single numbers, as of formulas, 4 bytes)' in plan, plan)
    check('arithmetic alone: "mean"; --freeze' in plan, plan)
    check('"token" and "onnx::MatMul_7"' in plan, plan)
    check(RECIPE in plan, plan)
    check_same_notes()
    found = roles()
    check(found["slope"] == "trained", "a slope of rank 0 is none of rank 1")
    check(found["bias"] == "trained" and found["one"] == "one number", f"roles are {found}")
    for name in ("mean", "token", "onnx::MatMul_7"):
        check(found[name] == "trained, doubtful", f"{name} is {found[name]}")
    check("--train-only '*' trains single numbers too" in plan, plan)
    check(roles("--freeze", "one")["one"] == "fixed", "a number that --freeze names is told as no number of a formula")
    found = roles("--train-only", "*")
    check(found["one"] == "trained, doubtful" and found["bias"] == "trained", f"by --train-only '*' roles are {found}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_record()
        test_clash()
        test_lost()
        test_nodes()
        test_silent()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
