#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every refusal says what helps, or nothing: each remedy that a message names is tried.

The models are ONNX's tests that are out of scope (out_of_scope.md), the frontend's cases and what is made
here. Where `ullage plan` refuses one, the options in the message are given (--dim, --shape, --const with data
of the test or zeros, --output). Then it must be planned, or refused for something else, of which the same is
asked. Prints a table: model, exit code, remedy, what came of it.

usage: remedies.py ULLAGE [--table]
exit: 0, 1 where a remedy does not help, 77 where data.sh has no tests
"""

import os
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_REMEDIES = 6
WORD = r'(?:"(?:[^"\\]|\\.)*"|[^\s=,;()"]+)'


def unquote(word):
    return re.sub(r"\\(.)", r"\1", word[1:-1]) if word.startswith('"') else word


def options_of(message, model, folder, work):
    """The options as they are given: sizes are 2, files the test's data or zeros."""
    options, outputs = [], []
    for name, word, value in re.findall(rf"--(dim|shape|const) ({WORD})=(SIZE|FILE|[0-9N][0-9N,.]*)", message):
        word = unquote(word)
        if name == "const":
            value = data_of(model, word, folder, work)
        elif name == "shape":
            value = value.replace("...", "").rstrip(",").replace("N", "2")
        options += [f"--{name}", f"{word}={'2' if value == 'SIZE' else value}"]
    for word in re.findall(rf"--output ({WORD})", message):
        outputs += ["--output", unquote(word)] if word != "NAME" else []
    return options, outputs


def data_of(model, name, folder, work):
    """A file for the input: of the test's data, else zeros."""
    inputs = [port.name for port in model.graph.input]
    port = model.graph.input[inputs.index(name)].type.tensor_type
    data = os.path.join(folder, "test_data_set_0", f"input_{inputs.index(name)}.pb")
    if os.path.exists(data):
        return data
    path = os.path.join(work, f"{abs(hash(name))}.pb")
    shape = [dim.dim_value or 2 for dim in port.shape.dim]
    onnx.save_tensor(numpy_helper.from_array(numpy.zeros(shape, helper.tensor_dtype_to_np_dtype(port.elem_type)), name),
                     path)
    return path


def plan(ullage, path, options):
    got = subprocess.run([ullage, "plan", path, "--target", "c", *options], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True, errors="replace", check=False, timeout=120)
    text = "\n".join(line for line in got.stderr.splitlines() if not line.startswith("ullage: note"))
    return got.returncode, text.replace(path, "MODEL")


def follow(ullage, path, work):
    """Rows of the model: exit code, remedy, and whether it helped; they end where nothing is proposed."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception: # what is no model has no remedy
        return
    given = []
    code, message = plan(ullage, path, given)
    for _ in range(MOST_REMEDIES):
        options, outputs = options_of(message, model, os.path.dirname(path), work)
        if code == 0 or not options + outputs:
            yield code, "none" if code else "", "planned" if code == 0 else message, code == 0 or not options
            return
        remedy = options or outputs
        tried = given + remedy
        new_code, new_message = plan(ullage, path, tried)
        helps = new_code == 0 or new_message != message
        yield code, " ".join(remedy), "helps" if helps else f"{message} | {new_message}", helps
        if not helps:
            return
        given, code, message = tried, new_code, new_message


# ---- Models of our own: each kind of refusal ----

def model_of(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def port(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def by_loop():
    """A shape that a loop computes: no constant says it."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c_out"]), helper.make_node("Add", ["n", "one"], ["n_out"])], "body",
        [port("i", [], TensorProto.INT64), port("c", [], TensorProto.BOOL), port("n", [1], TensorProto.INT64)],
        [port("c_out", [], TensorProto.BOOL), port("n_out", [1], TensorProto.INT64)])
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
             helper.make_node("Greater", ["s", "zero"], ["go"]),
             helper.make_node("Loop", ["four", "go", "one"], ["count"], name="loop", body=body),
             helper.make_node("Expand", ["s", "count"], ["y"], name="expand")]
    return model_of(nodes, [port("x", [4])], [port("y", None)],
                    [numpy_helper.from_array(numpy.int64([1]), "one"), numpy_helper.from_array(numpy.int64(4), "four"),
                     numpy_helper.from_array(numpy.float32(0), "zero")])


def by_data():
    """A shape that the data of a picture says: the model can end before it."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("ReduceMax", ["r"], ["m"], keepdims=0),
             helper.make_node("Cast", ["m"], ["n"], to=TensorProto.INT64),
             helper.make_node("Reshape", ["n", "one"], ["shape"]),
             helper.make_node("Expand", ["m", "shape"], ["y"], name="expand")]
    return model_of(nodes, [port("x", [1, 3, 4, 4])], [port("y", None)], [numpy_helper.from_array(numpy.int64([1]), "one")])


def by_setting():
    """A shape that is an input, also by a way."""
    nodes = [helper.make_node("Mul", ["shape", "two"], ["twice"]), helper.make_node("Expand", ["x", "twice"], ["y"])]
    return model_of(nodes, [port("x", ["N", 1]), port("shape", [2], TensorProto.INT64)], [port("y", None)],
                    [numpy_helper.from_array(numpy.int64([1, 2]), "two")])


def write_own(work):
    for make in (by_loop, by_data, by_setting):
        path = os.path.join(work, f"{make.__name__}.onnx")
        onnx.save(make(), path)
        yield path


def list_models(data, work):
    with open(os.path.join(HERE, "out_of_scope.md"), encoding="utf-8") as file:
        names = re.findall(r"^\| (test_\w+) \| [A-Z]", file.read(), re.MULTILINE)
    paths = [os.path.join(data, name, "model.onnx") for name in names]
    cases = os.path.join(HERE, "..", "frontend", "cases")
    paths += [os.path.join(cases, name) for name in sorted(os.listdir(cases)) if name.endswith(".onnx")]
    return [path for path in paths if os.path.exists(path)] + list(write_own(work))


def main():
    ullage = os.path.abspath(sys.argv[1])
    found = subprocess.run([os.path.join(HERE, "data.sh")], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode != 0:
        sys.exit(found.returncode)
    data = found.stdout.strip()
    failed, counts = 0, {}
    with tempfile.TemporaryDirectory() as work:
        for path in list_models(data, work):
            name = os.path.basename(os.path.dirname(path)) if path.endswith("model.onnx") else os.path.basename(path)
            for code, remedy, came, helps in follow(ullage, path, work):
                failed += not helps
                kind = "planned" if not remedy else "none proposed" if remedy == "none" else "helps" if helps else "no help"
                counts[kind] = counts.get(kind, 0) + 1
                if "--table" in sys.argv or not helps:
                    print(f"{'' if helps else 'FAIL '}{name} | exit {code} | {remedy} | {came}")
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(counts.items())))
    sys.exit(1 if failed or counts.get("helps", 0) < 10 else 0)


main()
