#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of ONNX's backend node tests: which are in scope, why the others are not, and
which must pass.

Reads the tests of data.sh, of single operators and of small models, and writes, beside this script:
    tests.tsv         one line a test, its columns below
    out_of_scope.md   the tests that are out, grouped by reason, for the docs
With --check it writes nothing and fails (exit 6) if either file would change; of tests that the data
has not (data.sh without the newer onnx) it knows nothing then, and says how many they are.

Columns of tests.tsv, "-" where there is nothing to say:
    test, operators, opset
    scope       in or out
    constants   inputs that --const gives
    atol        what may differ about 0, if more than elsewhere
    compiled    pass: run.sh must pass it, for every target (run.sh --update writes the column)
    folded      pass: onnx_eval must pass it (--passed folded, from the lines that it begins with "ok")
    rounded     why its inputs, rounded to 16 bits, give another result: written by hand
    reason      why it is out

In scope is a test with only inputs and outputs that are tensors, or sequences of them, no strings and no
images, and output shapes that do not depend on data. Four refinements:
  * An input that carries a shape, axes, pads, repeats or k (SHAPE_SLOTS) is a constant of the
    compile, given by --const; a test that needs such inputs is in scope and lists them under
    "constants". They are found by walking back from every such operand to the graph inputs;
    Shape, Size and SequenceLength cut the walk, since these are static. A condition of If, which may be fixed
    but need not be, is none, but where a branch makes a sequence.
  * A test whose expected values come from an unspecified random generator cannot be compared by
    any implementation, so it is out.
  * A test that contradicts its own model is out: data whose shape is not the declared one.
  * Where the expected values hold the reference's own rounding (NOISE), more may differ.
"""

import argparse
import csv
import os
import re
import subprocess
import sys

import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

# Operands that decide a shape or the structure of the loops, by operator: index of the operand.
SHAPE_SLOTS = {
    "AffineGrid": [1], "BlackmanWindow": [0], "CenterCropPad": [1], "Col2Im": [1, 2], "ConstantOfShape": [0], "CumProd": [1], "CumSum": [1], "DFT": [1, 2], "Expand": [1],
    "HammingWindow": [0], "HannWindow": [0], "Loop": [0, 1], "MaxUnpool": [2],
    "MelWeightMatrix": [0, 1, 2, 3, 4], "OneHot": [1], "Pad": [1, 3], "Range": [0, 1, 2],
    "Reshape": [1], "Resize": [1, 2, 3], "STFT": [1, 3], "SequenceAt": [1], "SequenceErase": [1],
    "SequenceInsert": [2], "Slice": [1, 2, 3, 4], "Split": [1],
    "SplitToSequence": [1], "Squeeze": [1], "Tile": [1], "TopK": [1], "Unsqueeze": [1],
    "Upsample": [1],
    **{"Reduce" + name: [1] for name in REDUCTIONS},
}  # fmt: skip

DATA_DEPENDENT = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip

# The reference rounds every step of a softmax (differences, powers, their sum, quotients) to the model's
# 16 bits. Beside the same in double that makes up to 1.65 units of bf16 and 1.42 of f16, and a softmax in f32,
# as here, up to 0.96 and 1.09: the two are up to two units apart, which is twice the relative tolerance.
TWO_UNITS = "two units below 1: the reference rounds each step of its softmax to 16 bits, not the result alone"
# What is the rounding of the reference itself: (what may differ, why).
NOISE = {
    "test_attention_4d_attn_mask_causal_bf16_expanded": ("0.004", TWO_UNITS),
    "test_attention_4d_causal_bf16": ("0.004", TWO_UNITS),
    "test_attention_4d_causal_bf16_expanded": ("0.004", TWO_UNITS),
    "test_attention_4d_causal_fp16_expanded": ("0.0005", TWO_UNITS),
    "test_attention_4d_causal_padded_kv_bf16": ("0.004", TWO_UNITS),
    "test_attention_4d_causal_padded_kv_bf16_expanded": ("0.004", TWO_UNITS),
    "test_attention_4d_padded_kv_bf16_expanded": ("0.004", TWO_UNITS),
    "test_dft_inverse": ("1e-6", "the reference's FFT in f32 leaves 2e-7 where the result is 0"),
    "test_dft_inverse_opset19": ("1e-6", "the same"),
}


def find_data(given):
    """The folder that holds test_*/model.onnx: --data, else that of data.sh."""
    if given:
        return given
    found = subprocess.run([os.path.join(HERE, "data.sh")], stdout=subprocess.PIPE, text=True,
                           check=False)  # fmt: skip
    if found.returncode != 0:
        sys.exit(found.returncode)
    return found.stdout.strip()


def table_rows():
    """The rows of tests.tsv as dictionaries."""
    with open(os.path.join(HERE, "tests.tsv"), encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def scope_rows(data):
    """The rows of tests.tsv whose tests are in the folder, as dictionaries; says how many others there are."""
    rows = table_rows()
    there = [row for row in rows if os.path.exists(os.path.join(data, row["test"]))]
    if len(there) < len(rows):
        print(f"{len(rows) - len(there)} tests are left out: {data} has them not", file=sys.stderr)
    return there


def graphs_of(graph):
    """A graph and all graphs nested in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs_of(attribute.g)


def operators(model):
    nodes = [node.op_type for graph in graphs_of(model.graph) for node in graph.node]
    return sorted(set(nodes))


def operands_of(node):
    """What the node reads, and what the graphs inside read."""
    inner = [one for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH
             for part in graphs_of(attribute.g) for one in part.node]  # fmt: skip
    return [name for one in (node, *inner) for name in one.input]


def constants_needed(model):
    """Graph inputs whose value must be known to compile, in the order of the graph's inputs."""
    graph = model.graph
    producer = {name: node for node in graph.node for name in node.output if name}
    inputs = [value.name for value in graph.input]
    needed, seen = set(), set()

    def walk(name):
        if not name or name in seen:
            return
        seen.add(name)
        if name in inputs:
            needed.add(name)
        elif name in producer and producer[name].op_type not in ("Shape", "Size", "SequenceLength"):
            for operand in operands_of(producer[name]):
                walk(operand)

    for part in graphs_of(graph):
        for node in part.node:
            chooses = node.op_type == "If" and any(
                value.type.HasField("sequence_type") for value in node.attribute[0].g.output)
            for slot in [0] if chooses else SHAPE_SLOTS.get(node.op_type, []):
                if slot < len(node.input):
                    walk(node.input[slot])
    initializers = {tensor.name for tensor in graph.initializer}
    return [name for name in inputs if name in needed and name not in initializers]


def stored(folder, kind, index):
    with open(os.path.join(folder, "test_data_set_0", f"{kind}_{index}.pb"), "rb") as f:
        return onnx.TensorProto.FromString(f.read())


def dropout_is_random(model, folder):
    """A Dropout in training mode with a ratio above 0; both are operands, taken from the data."""
    for node in model.graph.node:
        if node.op_type != "Dropout" or len(node.input) < 3:
            continue
        values = {}
        for i, value in enumerate(model.graph.input):
            values[value.name] = onnx.numpy_helper.to_array(stored(folder, "input", i))
        for inner in model.graph.node:
            if inner.op_type == "Constant" and inner.attribute[0].name == "value":
                values[inner.output[0]] = onnx.numpy_helper.to_array(inner.attribute[0].t)
        ratio = float(values[node.input[1]]) if node.input[1] else 0.5
        if bool(values[node.input[2]]) and ratio > 0:
            return True
    return False


def contradiction(model, folder):
    """The first input or output whose data have another shape than the model declares."""
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in given]
    for kind, values in (("input", inputs), ("output", model.graph.output)):
        for i, value in enumerate(values):
            if not value.type.tensor_type.HasField("shape"):
                continue
            dims = list(stored(folder, kind, i).dims)
            declared = value.type.tensor_type.shape.dim
            sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared]
            if len(sizes) != len(dims) or any(
                size not in (None, dim) for size, dim in zip(sizes, dims, strict=True)
            ):
                return f"{kind} {value.name} has another shape in the data than in the model"
    return ""


def is_empty(folder, index):
    """Whether a sequence that is an input has no tensor in the data."""
    with open(os.path.join(folder, "test_data_set_0", f"input_{index}.pb"), "rb") as f:
        return len(onnx.SequenceProto.FromString(f.read()).tensor_values) == 0


def port_reason(type_proto):
    """Why an input or output of that type is out of scope."""
    kind = type_proto.WhichOneof("value")
    if kind == "sequence_type":
        return port_reason(type_proto.sequence_type.elem_type)
    if kind != "tensor_type":
        return f"{kind.split('_')[0]} input or output"
    is_text = type_proto.tensor_type.elem_type == onnx.TensorProto.STRING
    return "string tensors" if is_text else ""


def out_reason(model, folder):
    """Why a test is out of scope, or an empty string."""
    for value in list(model.graph.input) + list(model.graph.output):
        reason = port_reason(value.type)
        if reason:
            return reason
    for index, value in enumerate(model.graph.input):
        if value.type.HasField("sequence_type") and is_empty(folder, index):
            return "sequence input without a tensor"
    names = set(operators(model))
    if "ImageDecoder" in names:
        return "images"
    for name in sorted(names & DATA_DEPENDENT):
        return f"output shape of {name} depends on data"
    if names & RANDOM or dropout_is_random(model, folder):
        return "random values from an unspecified generator"
    return contradiction(model, folder)


def natural(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


KEPT = ("compiled", "folded", "rounded")  # no model says these


def rows_of(data):
    rows = []
    kept = {row["test"]: [row[column] for column in KEPT] for row in table_rows()}
    for test in sorted(os.listdir(data), key=natural):
        folder = os.path.join(data, test)
        path = os.path.join(folder, "model.onnx")
        if not os.path.exists(path):
            continue
        model = onnx.load(path)
        opset = ",".join(
            (entry.domain + ":" if entry.domain else "") + str(entry.version)
            for entry in model.opset_import
        )
        reason = out_reason(model, folder)
        constants = [] if reason else constants_needed(model)
        rows.append([test, ",".join(operators(model)), opset, "out" if reason else "in",
                     ",".join(constants) or "-", NOISE.get(test, "-")[0],
                     *kept.get(test, ["-"] * len(KEPT)), reason or "-"])  # fmt: skip
    return rows


def as_tsv(rows):
    head = ["test", "operators", "opset", "scope", "constants", "atol", *KEPT, "reason"]
    return "".join("\t".join(row) + "\n" for row in [head] + rows)


def as_markdown(rows):
    out = [row for row in rows if row[3] == "out"]
    with_constants = sum(row[4] != "-" for row in rows)
    lines = [
        "# ONNX operator tests that are out of scope",
        "",
        "Made by `tests/ops/list_tests.py` from the tests of `data.sh`; do not edit.",
        "",
        f"{len(rows) - len(out)} of {len(rows)} tests are in scope ({with_constants} of them take "
        f"inputs that `--const` fixes at compile time) and {len(out)} are out:",
        "",
        "| reason | tests |",
        "|---|---|",
    ]
    reasons = sorted({row[-1] for row in out})
    for reason in reasons:
        lines.append(f"| {reason} | {sum(row[-1] == reason for row in out)} |")
    lines += ["", "These of them may differ by more than others:", "",
              "| test | by | reason |", "|---|---|---|"]
    lines += [f"| {test} | {atol} | {reason} |" for test, (atol, reason) in NOISE.items()]
    lines += ["", "| test | operators | reason |", "|---|---|---|"]
    for reason in reasons:
        lines += [f"| {r[0]} | {r[1].replace(',', ', ')} | {r[-1]} |" for r in out if r[-1] == reason]
    return "\n".join(lines) + "\n"


def texts_of(rows):
    return (("tests.tsv", as_tsv(rows)), ("out_of_scope.md", as_markdown(rows)))


def write_files(rows):
    for name, text in texts_of(rows):
        with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
            file.write(text)
    return []


def find_stale(data, rows):
    """The files that would change."""
    written = [list(row.values()) for row in scope_rows(data)]
    if written != rows:
        return ["tests.tsv"]
    with open(os.path.join(HERE, "tests.tsv"), encoding="utf-8") as file:
        if file.read() != as_tsv(rows):
            return []  # the others are of tests that are not there
    stale = []
    for name, text in texts_of(rows):
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            stale += [name] if file.read() != text else []
    return stale


def set_passed(column, names):
    """Writes into the column which tests pass."""
    rows = table_rows()
    for row in rows:
        row[column] = "pass" if row["test"] in names else "-"
    with open(os.path.join(HERE, "tests.tsv"), "w", encoding="utf-8") as file:
        file.write(as_tsv([list(row.values()) for row in rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="folder with the node tests (default: that of data.sh)")
    parser.add_argument("--check", action="store_true", help="only compare with what is there")
    parser.add_argument("--passed", metavar="COLUMN", choices=KEPT[:2],
                        help="write into the column the tests that pass: names on standard input")
    args = parser.parse_args()
    if args.passed:
        set_passed(args.passed, set(sys.stdin.read().split()))
        return
    data = find_data(args.data)
    rows = rows_of(data)
    stale = find_stale(data, rows) if args.check else write_files(rows)
    inside = sum(row[3] == "in" for row in rows)
    constants = sum(row[4] != "-" for row in rows)
    print(f"{len(rows)} tests, {inside} in scope, {constants} with constants")
    if stale:
        print("out of date:", ", ".join(stale), file=sys.stderr)
        sys.exit(6)


if __name__ == "__main__":
    main()
