#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that is written as JSON is as its schema in report/ says.

    schemas.py ULLAGE MODEL.onnx

Plans of every target, of inference and training, with budgets that are met and that are not, with
what is found by search; ladders, tables, comparisons. And a schema refuses what is not so.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import numpy_helper, parser
    from onnx import save as save_model
except ImportError as error:
    print(f"schemas.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "report"))
import schema  # noqa: E402

ullage, model = (os.path.abspath(path) for path in sys.argv[1:3])
DEPTH = 4
TRAIN = ["net.onnx", "--train", "--target", "c"]
PLANS = [
    ([model, "--dim", "N=1", "--target", "c", "--weights", "rom", "--io", "caller"], 0),
    ([model, "--dim", "N=3", "--target", "cpu", "--threads", "2"], 0),
    ([model, "--dim", "N=2", "--target", "cuda", "--with-cudnn", "off"], 0),
    ([model, "--dim", "N=3", "--target", "c", "--precision", "bf16"], 0),
    ([model, "--dim", "N=3", "--target", "cpu", "--budget", "1"], 4),
    ([model, "--dim", "N=8", "--target", "c", "--budget", "250000", "--budget-of", "arena"], 0),
    ([model, "--target", "c", "--budget", "180000", "--budget-of", "arena", "--max-batch"], 0),
    ([model, "--dim", "N=1", "--target", "c", "--advice", "on"], 0),
    ([model, "--dim", "N=3", "--target", "c", "--pack", "none"], 0),
    ([*TRAIN, "--dim", "N=64", "--optimizer", "adam"], 0),
    ([*TRAIN, "--dim", "N=64", "--budget", "80000", "--budget-of", "arena"], 0),
    ([*TRAIN, "--dim", "N=64", "--budget", "8KiB", "--budget-of", "arena"], 4),
    ([*TRAIN, "--dim", "N=64", "--micro-batches", "auto", "--budget", "80000", "--budget-of", "arena"], 0),
    ([*TRAIN, "--dim", "N=64", "--precision", "bf16", "--optimizer", "adam", "--budget", "88000", "--budget-of", "arena"], 0),
    ([*TRAIN, "--dim", "N=64", "--target", "cpu", "--precision", "amp-fp16"], 0),
    ([*TRAIN, "--dim", "N=64", "--target", "cuda", "--precision", "bf16", "--clip-norm", "1"], 0),
]
LADDERS = [
    [model, "--dim", "N=3", "--target", "c"],
    [model, "--dim", "N=3", "--target", "cpu", "--threads", "2"],
    [*TRAIN, "--dim", "N=64"],
]


def expect(condition, what):
    if not condition:
        print(f"schemas.py: {what}")
        sys.exit(1)


def made(folder, name, words, code=0):
    done = subprocess.run([ullage, *words, "--json", "-"], capture_output=True, text=True, timeout=300, cwd=folder, check=False)
    expect(done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stderr}")
    document = json.loads(done.stdout)
    try:
        schema.validate(document, name)
    except schema.Mismatch as mismatch:
        expect(False, f"{words}: {mismatch}")
    return document


def make_net(folder):
    layers = "".join(f"  a{i} = MatMul (x{i}, w{i})\n  x{i + 1} = Tanh (a{i})\n" for i in range(DEPTH))
    net = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\nnet (float[N,32] x0) => (float[N,4] y) {{\n{layers}  y = MatMul (x{DEPTH}, w{DEPTH})\n}}')
    rng = numpy.random.default_rng(1)
    for i in range(DEPTH + 1):
        weight = rng.standard_normal((32, 32 if i < DEPTH else 4), dtype=numpy.float32)
        net.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    save_model(net, os.path.join(folder, "net.onnx"))


def save(document, folder, name):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    return path


def refuses(document, name, change):
    broken = copy.deepcopy(document)
    change(broken)
    try:
        schema.validate(broken, name)
    except schema.Mismatch:
        return
    expect(False, f"{name} takes a document that was broken")


def check_kept(words, plan):
    """Each value that is f32 where 16 bits are asked for is in one list of reasons, with its bytes."""
    ranges, lists = plan["ranges"], plan.get("stays_f32", [])
    is_f32 = {v: kind.startswith("f32") and storage == "f32" for v, kind, storage in
              zip(ranges["value"], ranges["type"], ranges.get("storage", [])) if v is not None}
    sizes = dict(zip(ranges["value"], ranges["size_bytes"]))
    listed = [v for row in lists for v in row["values"]]
    expect(sorted(listed) == sorted(v for v in is_f32 if is_f32[v]), f"{words}: what stays f32 is not what is listed")
    for row in lists:
        expect(row["count"] == len(row["values"]) and row["bytes"] == sum(sizes[v] for v in row["values"]),
               f"{words}: count or bytes of {row['reason']}")
    return {row["reason"] for row in lists}


def check_refusals(plan, ladder, diff):
    refuses(plan, "plan.schema.json", lambda d: d.pop("rows"))
    refuses(plan, "plan.schema.json", lambda d: d.update(more=1))
    refuses(plan, "plan.schema.json", lambda d: d.update(version=2))
    refuses(plan, "plan.schema.json", lambda d: d.update(reserved_bytes=-1))
    refuses(plan, "plan.schema.json", lambda d: d.update(fits=1))
    refuses(plan, "plan.schema.json", lambda d: d["rows"].update(weights="many"))
    refuses(plan, "plan.schema.json", lambda d: d["ranges"]["class"].__setitem__(0, "bytes"))
    refuses(plan, "plan.schema.json", lambda d: d["steps"]["flops"].__setitem__(0, 0.5))
    refuses(plan, "plan.schema.json", lambda d: d["options"].append(["dim"]))
    refuses(ladder, "ladder.schema.json", lambda d: d["plans"][0].pop("cost"))
    refuses(ladder, "ladder.schema.json", lambda d: d["plans"].clear())
    refuses(diff, "diff.schema.json", lambda d: d["rows"].update(holes=[1]))
    refuses(diff, "diff.schema.json", lambda d: d["values"].append({"name": "x"}))


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_net(folder)
        plans = [made(folder, "plan.schema.json", ["plan", *words], code) for words, code in PLANS]
        reasons = [check_kept(words, plan) for (words, _), plan in zip(PLANS, plans)]
        expect(reasons[13] >= {"edge", "state", "gradient"} and not reasons[0], f"reasons {reasons[13]}")
        for key in ("flash", "for_library", "for_precision", "max_batch", "micro_batches", "training", "budget_bytes", "remedies"):
            expect(any(key in plan for plan in plans), f"no plan has {key}")
        ladders = [made(folder, "ladder.schema.json", ["plan", *words, "--sweep"]) for words in LADDERS]
        expect(len(ladders[1]["plans"]) > 1 and len(ladders[2]["plans"]) > 1, "a ladder of one plan")
        table = made(folder, "table.schema.json", ["plan", model, "--target", "c", "--sweep", "--dim", "N=1,2", "--budget", "180000,1", "--budget-of", "arena"])
        expect({row["fits"] for row in table["plans"]} == {True, False}, "a table of one kind of rows")
        first, last = save(plans[0], folder, "old.json"), save(plans[9], folder, "new.json")
        diff = made(folder, "diff.schema.json", ["diff", first, last])
        expect(diff["values"] and made(folder, "diff.schema.json", ["diff", first, first])["growth"] == 0, "diff")
        check_refusals(plans[1], ladders[0], diff)


main()
