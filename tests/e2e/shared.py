#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several models in one arena: plan and compile --shared.

    shared.py ULLAGE --target c|cpu|cuda

Two classifiers and a model with state run one after the other, again and again, in one arena, with
the bits that each computes in an arena of its own. No run changes a byte outside of its own live
ranges, nor what another model keeps; equal weights are kept once. Budgets are met, and the smallest
that is named works; sums add up; the plan is one as any other for check, report and --plan; what is
misused is said. What one model leaves another reads where it lies (--link).
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import helper, numpy_helper, parser, save
except ImportError as error:
    print(f"shared.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "report"))
import schema  # noqa: E402

ROOT = os.path.join(HERE, "..", "..")
DIGITS = os.path.join(ROOT, "models", "digits", "digits.onnx")
UNTRAINED = os.path.join(ROOT, "models", "digits", "untrained.onnx")
TALLY = """<ir_version: 8, opset_import: ["": 17]>
tally (float[M,24] x, float[24] total) => (float[M,8] y, float[24] next) {
  sum = ReduceSum <keepdims = 0> (x, axis)
  next = Add (total, sum)
  scaled = Mul (x, next)
  y = MatMul (scaled, w)
}"""
TABLE = """<ir_version: 8, opset_import: ["": 17]>
table (float[S,256] x) => (float[S,64] y) {
  y = MatMul (x, w)
}"""
FIRST = """<ir_version: 8, opset_import: ["": 17]>
first (float[4,8] x) => (float[4,8] y) {
  y = Add (x, x)
}"""
SECOND = """<ir_version: 8, opset_import: ["": 17]>
second (float[4,8] a, float[4,8] b) => (float[4,8] z) {
  z = Sub (a, b)
}"""
# The first has a state and the second overwrites what the first leaves to it; `unread` has no reader.
ADDS = """<ir_version: 8, opset_import: ["": 17]>
adds (float[4,8] x, float[4,8] s) => (float[4,8] y, float[4,8] next) {
  next = Add (s, x)
  y = Mul (next, x)
}"""
ALTERS = """<ir_version: 8, opset_import: ["": 17]>
alters (float[4,8] a, float[4,8] b, float[4,8] unread) => (float[4,8] left, float[4,8] z) {
  left = Add (a, b)
  z = Mul (b, left)
}"""
HALF = """<ir_version: 8, opset_import: ["": 22]>
half (KIND[4,8] x) => (KIND[4,8] y) {
  y = MatMul (x, w)
}"""
WEIGHTED = """<ir_version: 8, opset_import: ["": 17]>
weighted (float[4,8] x) => (float[4,8] y, float[8,8] new) {
  y = MatMul (x, w)
  new = Tanh (w)
}"""
READS = """<ir_version: 8, opset_import: ["": 17]>
reads (float[8,8] b) => (float[8,8] z) {
  z = Neg (b)
}"""
ORDER = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1]
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


def expect(condition, what):
    if not condition:
        print(f"shared.py: {what}")
        sys.exit(1)


def run(words, code=0, folder=None):
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=folder, env=dict(os.environ, COLUMNS="80"), check=False)
    expect(done.returncode == code, f"{' '.join(words)}: exit {done.returncode}, not {code}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def make_tally(path):
    rng = numpy.random.default_rng(3)
    model = parser.parse_model(TALLY)
    weight = rng.standard_normal((24, 8), dtype=numpy.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(numpy_helper.from_array(numpy.array([0], dtype=numpy.int64), "axis"))
    save(model, path)


class Suite:
    """The models, and how each is compiled by itself."""

    def __init__(self, ullage, target, folder):
        self.ullage, self.target, self.folder = ullage, target, folder
        tally = os.path.join(folder, "tally.onnx")
        other = os.path.join(folder, "digits.onnx")
        make_tally(tally)
        shutil.copy(UNTRAINED, other)
        self.models = [DIGITS, tally, other]
        self.prefixes = ["digits", "tally", "digits_2"]
        self.own = [["--dim", "N=2"], ["--dim", "M=3", "--donate", "next=total"], ["--dim", "N=2"]]
        self.common = ["--target", target]
        if target == "cpu":
            self.common += ["--threads", "2"]
        self.words = [*self.models, "--shared", *self.common, "--dim", "N=2", *self.own[1]]

    def plan(self, *more, code=0):
        path = os.path.join(self.folder, "shared.json")
        done = run([self.ullage, "plan", *self.words, *more, "--json", path], code)
        return load(path), done


# ---- plans ----


def check_rows(plan):
    rows = plan["rows"]
    expect(rows["unaccounted"] == 0 and sum(rows.values()) == plan["reserved_bytes"], f"rows: {rows}")


def alone_bytes(suite, index):
    words = [suite.models[index], *suite.own[index], *suite.common]
    return json.loads(run([suite.ullage, "plan", *words, "--json", "-"]).stdout)["reserved_bytes"]


def check_together(suite, plan, text):
    """One plan, smaller than those of the models by themselves, which tools read as any other."""
    path = os.path.join(suite.folder, "shared.json")
    schema.validate(plan, "plan.schema.json")
    check_rows(plan)
    expect(plan["reserved_bytes"] < sum(alone_bytes(suite, i) for i in range(len(suite.models))), "no smaller together")
    expect(f"= {plan['reserved_bytes']} bytes" in text, text)
    run([suite.ullage, "check", *suite.models, path, "--shared"])
    expect(f"= {plan['reserved_bytes']} bytes" in run([suite.ullage, "report", path]).stdout, "report")
    again = os.path.join(suite.folder, "again.json")
    run([suite.ullage, "plan", *suite.models, "--shared", "--plan", path, "--json", again])
    expect(load(again)["reserved_bytes"] == plan["reserved_bytes"], "--plan")
    broken = json.loads(json.dumps(plan))
    ranges = broken["ranges"]
    moved = max((i for i, space in enumerate(ranges["space"]) if space == 0), key=lambda i: ranges["size_bytes"][i])
    ranges["offset_bytes"][moved] += plan["alignment_bytes"]
    with open(again, "w", encoding="utf-8") as file:
        json.dump(broken, file)
    run([suite.ullage, "check", *suite.models, again, "--shared"], 6)


def check_models(suite):
    """A plan names its models and says what each takes, so that nobody has to name them again."""
    path = os.path.join(suite.folder, "named.json")
    models = [DIGITS, UNTRAINED, DIGITS]
    words = [*models, "--shared", *suite.common, "--prefix", "a,b,c", "--dim", "a:N=1", "--dim", "b:N=4", "--dim", "c:N=2"]
    run([suite.ullage, "plan", *words, "--json", path])
    plan = load(path)
    expect([model["name"] for model in plan["models"]] == ["a", "b", "c"], str(plan["models"]))
    expect([model["file"] for model in plan["models"]] == [os.path.basename(path) for path in models], str(plan["models"]))
    expect(max(model["peak_bytes"] for model in plan["models"]) == plan["order_lower_bound_bytes"], str(plan["models"]))
    expect(sum(model["cost"] for model in plan["models"]) == plan["cost"], str(plan["models"]))
    weights = plan["rows"]["weights"]
    expect(all(model["own_weight_bytes"] <= model["weight_bytes"] <= weights for model in plan["models"]), str(plan["models"]))
    if suite.target == "c":  # where a weight has one layout
        a, b, c = plan["models"]
        expect(a["weight_bytes"] == c["weight_bytes"] and a["own_weight_bytes"] == c["own_weight_bytes"] == 0, str(a))
        expect(a["weight_bytes"] + b["own_weight_bytes"] == weights, str(b))
    run([suite.ullage, "check", *models, path, "--shared"])
    run([suite.ullage, "plan", *models, "--shared", "--plan", path])
    swapped = run([suite.ullage, "check", UNTRAINED, DIGITS, DIGITS, path, "--shared"], 6)
    expect('has "digits.onnx" as its model 1' in swapped.stderr, swapped.stderr)
    fewer = run([suite.ullage, "check", DIGITS, UNTRAINED, path, "--shared"], 6)
    expect('is of 3 models, "a, b, c": give those, in that order' in fewer.stderr, fewer.stderr)
    for name in ["b", "a b", "ul_x", "stdio"]:
        plan["models"][0]["name"] = name
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        run([suite.ullage, "check", *models, path, "--shared"], 6)


def check_budgets(suite, free):
    for of in [["--budget-of", "arena"], []]:
        plan, done = suite.plan("--budget", "1", *of, code=4)
        smallest = plan["smallest_budget_bytes"]
        expect(not plan["fits"] and str(smallest) in done.stderr, done.stderr)
        for budget in {smallest, (smallest + max(smallest, free)) // 2}:
            met, done = suite.plan("--budget", str(budget), *of)
            bounded = met["reserved_bytes"] if of else met["process_bytes"]
            expect(met["fits"] and bounded <= budget, f"budget {budget}: {bounded}")
            check_together(suite, met, done.stdout)


def check_weights(suite):
    """Equal weights of two models are kept once, and a size may be said for one of them."""
    path = os.path.join(suite.folder, "table.onnx")
    model = parser.parse_model(TABLE)
    weight = numpy.random.default_rng(5).standard_normal((256, 64), dtype=numpy.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    save(model, path)
    words = [path, path, "--shared", "--prefix", "long,short", *suite.common, "--dim"]
    both = os.path.join(suite.folder, "both.json")
    sizes = ["long:S=32", "--dim", "short:S=1", "--json", both]
    run([suite.ullage, "plan", *words, *sizes])
    if suite.target == "cpu":  # whose library has a layout for each, where nothing says otherwise
        smallest = run([suite.ullage, "plan", *words, *sizes, "--budget-of", "arena", "--budget", "1"], 4)
        expect(str(load(both)["smallest_budget_bytes"]) in smallest.stderr, smallest.stderr)
        run([suite.ullage, "plan", *words, *sizes, "--budget-of", "arena", "--budget", str(load(both)["smallest_budget_bytes"])])
    ranges = load(both)["ranges"]
    kept = sum(size for size, kind in zip(ranges["size_bytes"], ranges["class"]) if kind == "weights")
    expect(kept == weight.nbytes, f"{kept} bytes of weights, not {weight.nbytes}")
    types = {name: kind for name, kind in zip(ranges["name"], ranges["type"])}
    expect(types["long/x"] == "f32[32,256]" and types["short/x"] == "f32[1,256]", str(types))
    run([suite.ullage, "plan", *words, "S=8", "--dim", "short:S=1", "--json", both])
    types = dict(zip(load(both)["ranges"]["name"], load(both)["ranges"]["type"]))
    expect(types["long/x"] == "f32[8,256]" and types["short/x"] == "f32[1,256]", str(types))


# ---- programs ----


def make_inputs(folder, prefixes):
    rng = numpy.random.default_rng(7)
    shapes = {"digits": [(2, 1, 8, 8)], "digits_2": [(2, 1, 8, 8)], "tally": [(3, 24), (24,)]}
    for index, prefix in enumerate(prefixes):
        for number in range(ORDER.count(index)):
            for i, shape in enumerate(shapes[prefix]):
                rng.standard_normal(shape, dtype=numpy.float32).tofile(f"{folder}/{prefix}.in.{number}.{i}")


def build(suite, folder, library, prefixes, words):
    """A program of a library of these models."""
    more = [] if library == "shared" else ["--library", "--prefix", library]
    run([suite.ullage, "compile", *words, *more, "--cflags", "-O1", "--emit", folder])
    run(["make", "-s", "-j2", f"lib{library}.a"], folder=folder)
    libs = run(["make", "-s", "libs"], folder=folder).stdout.split()
    with open(os.path.join(folder, "models.h"), "w", encoding="ascii") as file:
        models = ", ".join(f"MODEL({prefix})" for prefix in prefixes)
        file.write(f'#include "{library}.h"\n#define LIBRARY(name) {library}_##name\n#define MODELS {models}\n')
    target = os.path.join(folder, "main")
    words = [os.environ["NVCC"], "-DSHARED_CUDA", "-Xcompiler=-std=c99"] if suite.target == "cuda" else ["cc", *FLAGS]
    run([*words, "-I", folder, "-o", target, os.path.join(HERE, "shared.c"), os.path.join(folder, f"lib{library}.a"), *libs], folder=folder)
    return target


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def masks(plan, prefixes):
    """Per model the bytes that it alone keeps between its runs, and those that its runs may change."""
    steps, ranges, end = plan["steps"], plan["ranges"], len(plan["steps"]["step"])
    kept, own = ([numpy.zeros(plan["reserved_bytes"], bool) for _ in prefixes] for _ in range(2))
    for r, begin in enumerate(ranges["begin"]):
        if ranges["space"][r] != 0:
            continue
        always = (begin, ranges["end"][r]) == (0, end)
        name = ranges["name"][r] if ranges["value"][r] is not None and "/" in ranges["name"][r] else steps["name"][begin]
        place = slice(ranges["offset_bytes"][r], ranges["offset_bytes"][r] + ranges["size_bytes"][r])
        for i, prefix in enumerate(prefixes):
            if always and ranges["class"][r] == "weights" or ranges["value"][r] is not None and always and "/" not in ranges["name"][r]:
                kept[i][place] = True  # of all of them
            elif name.startswith(prefix + "/"):
                own[i][place] = True
                kept[i][place] |= always
    return kept, own


def check_untouched(suite, folder, data):
    """A run changes bytes of its own ranges alone, and nothing that another keeps."""
    plan = load(os.path.join(suite.folder, "shared.json"))
    kept, own = masks(plan, suite.prefixes)
    for number, index in enumerate(ORDER):
        before, after = (numpy.fromfile(f"{data}/run.{number}.{when}", numpy.uint8) for when in ("before", "after"))
        changed = before != after
        if suite.target != "c":  # books of the library, of the run
            own[index] |= kept[index] & ~numpy.logical_or.reduce([kept[i] for i in range(len(kept)) if i != index])
        expect(before.size == plan["reserved_bytes"] and changed.any(), f"run {number}: no byte changed")
        expect(suite.target != "c" or not (changed & ~own[index]).any(), f"run {number}: bytes outside of the model's ranges changed")
        for other, mask in enumerate(kept):
            expect(other == index or not (changed & mask & ~own[index]).any() or suite.target == "cuda", f"run {number} changed what {suite.prefixes[other]} keeps")


def check_programs(suite):
    folder, data = (os.path.join(suite.folder, name) for name in ("together", "data"))
    os.mkdir(data)
    make_inputs(data, suite.prefixes)
    program = build(suite, folder, "shared", suite.prefixes, suite.words)
    run([program, data, *map(str, ORDER)])
    check_untouched(suite, folder, data)
    results = {name: read_bytes(os.path.join(data, name)) for name in sorted(os.listdir(data)) if ".out." in name}
    expect(len(results) == len(ORDER) + ORDER.count(1), f"results: {sorted(results)}")
    for index, prefix in enumerate(suite.prefixes):
        words = [suite.models[index], *suite.own[index], *suite.common]
        alone = build(suite, os.path.join(suite.folder, f"alone_{prefix}"), prefix, [prefix], words)
        run([alone, data, *["0"] * ORDER.count(index)])
        for name, expected in results.items():
            if name.split(".")[0] == prefix:
                expect(read_bytes(os.path.join(data, name)) == expected, f"{name}: other bits than alone")


def write_inputs(folder, arrays):
    os.mkdir(folder)
    for name, array in arrays.items():
        array.tofile(os.path.join(folder, name))


def made(folder, name, dtype=numpy.float32):
    return numpy.fromfile(os.path.join(folder, name), dtype).reshape(4, 8)


def check_link(suite):
    """A model reads what another has left, and nobody copies it."""
    models = [os.path.join(suite.folder, name) for name in ("first.onnx", "second.onnx")]
    for path, text in zip(models, (FIRST, SECOND)):
        save(parser.parse_model(text), path)
    words = [*models, "--shared", *suite.common, "--link"]
    data, folder = (os.path.join(suite.folder, name) for name in ("link_data", "linked"))
    numbers = numpy.random.default_rng(11).standard_normal((3, 4, 8), dtype=numpy.float32)
    inputs = ("first.in.0.0", "second.in.0.0", "second.in.0.1", "second.in.1.0", "second.in.1.1")
    write_inputs(data, dict(zip(inputs, (*numbers, numbers[0], numbers[2]))))
    program = build(suite, folder, "shared", ["first", "second"], [*words, "second:b=first:y"])
    run([program, data, "1", "0", "1"])
    results = [numpy.fromfile(os.path.join(data, f"second.out.{i}.0"), numpy.float32).reshape(4, 8) for i in range(2)]
    expect((results[0] == numbers[1]).all(), "what no run has left yet is not 0")
    expect((results[1] == numbers[0] - 2 * numbers[0]).all(), "the linked input is not the other's output")
    for link, said in (("second:c=first:y", "has no input"), ("second:b=first:q", "has no output"), ("second:b=third:y", "expected MODEL:INPUT"),
                       ("second:b=second:z", "--donate")):
        expect(said in run([suite.ullage, "plan", *words, link], 1).stderr, link)
    other = [suite.models[1], *models, "--shared", *suite.common, *suite.own[1], "--link", "second:b=tally:y"]
    expect("f32[3,8], not f32[4,8]" in run([suite.ullage, "plan", *other], 1).stderr, "types of a link")
    expect("--shared" in run([suite.ullage, "plan", models[0], "--link", "a:b=c:d"], 1).stderr, "a link of one model")
    run([suite.ullage, "plan", *words, "second:b=first:y", "--sweep"])


def check_link_of_states(suite):
    """A linked input that its model overwrites, where the other model overwrites an input too."""
    models = [os.path.join(suite.folder, name) for name in ("adds.onnx", "alters.onnx")]
    for path, text in zip(models, (ADDS, ALTERS)):
        save(parser.parse_model(text), path)
    data = os.path.join(suite.folder, "states_data")
    numbers = numpy.random.default_rng(13).standard_normal((5, 4, 8), dtype=numpy.float32)
    # Names of which one begins as the other's functions do.
    names = ["adds", "adds_run"]
    inputs = ["adds.in.0.0", "adds_run.in.0.0", "adds_run.in.1.0", "adds.in.1.0", "adds_run.in.2.0"]
    write_inputs(data, dict(zip(inputs, numbers)))
    words = [*models, "--shared", "--prefix", ",".join(names), *suite.common, "--donate", "next=s", "--donate", "left=b"]
    program = build(suite, os.path.join(suite.folder, "states"), "shared", names, [*words, "--link", "adds_run:b=adds:y"])
    run([program, data, "0", "1", "1", "0", "1"])
    state, left, turn = 0, None, [0, 0]
    for index, x in zip((0, 1, 1, 0, 1), numbers):
        if index == 0:
            state = state + x
            expected = left = state * x
        else:
            before, left = left, x + left
            expected = before * left
        found = made(data, f"{names[index]}.out.{turn[index]}.{index}")
        expect(numpy.allclose(found, expected, rtol=1e-6), f"run {turn[index]} of {names[index]}")
        turn[index] += 1


def check_link_of_weights(suite):
    """A weight is no input of another model, nor is what overwrites one."""
    models = [os.path.join(suite.folder, name) for name in ("weighted.onnx", "reads.onnx")]
    model = parser.parse_model(WEIGHTED)
    weight = numpy.random.default_rng(17).standard_normal((8, 8), dtype=numpy.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    save(model, models[0])
    save(parser.parse_model(READS), models[1])
    words = [suite.ullage, "plan", *models, "--shared", *suite.common, "--link", "reads:b=weighted:new"]
    expect("is a constant" in run(words, 3).stderr, "a link to a constant")
    expect("overwrites a weight" in run([*words, "--donate", "new=w"], 3).stderr, "a link to a weight")


def check_mixed(suite):
    """A model of 16 bits beside one of f32, which keeps its bits; two kinds of 16 bits are refused."""
    weight = numpy.random.default_rng(19).standard_normal((8, 8), dtype=numpy.float32)
    models = []
    for name, kind, dtype in (("half", "float16", 10), ("brain", "bfloat16", 16)):
        models.append(os.path.join(suite.folder, name + ".onnx"))
        model = parser.parse_model(HALF.replace("KIND", kind))
        model.graph.initializer.append(helper.make_tensor("w", dtype, (8, 8), weight.flatten().tolist()))
        save(model, models[-1])
    models.append(os.path.join(suite.folder, "first.onnx"))
    data = os.path.join(suite.folder, "mixed_data")
    x = numpy.random.default_rng(23).standard_normal((4, 8), dtype=numpy.float32)
    write_inputs(data, {"half.in.0.0": x.astype(numpy.float16), "first.in.0.0": x})
    words = [models[0], models[2], "--shared", *suite.common]
    run([build(suite, os.path.join(suite.folder, "mixed"), "shared", ["half", "first"], words), data, "0", "1"])
    expect((made(data, "first.out.0.0") == x + x).all(), "f32 beside 16 bits")
    together = read_bytes(os.path.join(data, "half.out.0.0"))
    alone = build(suite, os.path.join(suite.folder, "alone_half"), "half", ["half"], [models[0], *suite.common])
    run([alone, data, "0"])
    expect(read_bytes(os.path.join(data, "half.out.0.0")) == together, "16 bits beside f32")
    refused = run([suite.ullage, "plan", *models[:2], "--shared", *suite.common], 3).stderr
    expect("f16" in refused and "bf16" in refused, refused)


def check_again(suite):
    """The same folder again, also over an earlier one."""
    folder, again = (os.path.join(suite.folder, name) for name in ("together", "again"))
    for _ in range(2):
        run([suite.ullage, "compile", *suite.words, "--cflags", "-O1", "--emit", again])
        for name in ("shared.c", "shared.h", "digits.h", "tally.h", "library.c", "weights.bin"):
            expect(filecmp.cmp(os.path.join(folder, name), os.path.join(again, name), shallow=False), f"{name}: not the same again")


# ---- misuse ----


def check_misuse(suite):
    tally = suite.models[1]
    own = os.path.join(suite.folder, "own")
    bad = os.path.join(suite.folder, "bad.onnx")
    with open(bad, "wb") as file:
        file.write(b"\x0a\x03abc")
    two = [DIGITS, tally, "--dim", "N=2", "--dim", "M=3"]
    cases = [
        (["plan", DIGITS, "--dim", "N=2", "--shared"], 1, "several models"),
        (["plan", *two], 1, "--shared"),
        (["compile", *two, "-o", own], 1, "--shared"),
        (["compile", *two, "--shared", "-o", own], 1, "--emit DIR"),
        (["compile", *two, "--shared"], 1, "--emit DIR"),
        (["plan", *two, "--shared", "--train"], 3, "--train"),
        (["plan", *two, "--shared", "--advice", "on"], 1, "--advice"),
        (["plan", *two, "--shared", "--max-batch"], 1, "--max-batch"),
        (["check", *two[:2], "--shared"], 1, "several models"),
        (["plan", *two, "--shared", "--dim", "digits:M=3"], 1, "none of the models has such a dimension"),
        (["plan", *two, "--shared", "--output", "y"], 1, "--output"),
        (["plan", *two, "--shared", "--dim", "K=3"], 1, "none of the models has such a dimension"),
        (["plan", *two, "--shared", "--shape", "z=3,4"], 1, "none of the models has such an input"),
        (["plan", *two, "--shared", "--donate", "next=nobody"], 1, tally),
        (["plan", DIGITS, tally, "--dim", "N=2", "--shared"], 1, tally),
        (["check", tally, os.path.join(suite.folder, "shared.json")], 6, "another model"),
        (["plan", DIGITS, bad, "--dim", "N=2", "--shared"], 2, bad),
        (["plan", DIGITS, os.path.join(suite.folder, "none.onnx"), "--dim", "N=2", "--shared"], 5, "none.onnx"),
        (["plan", DIGITS, "-", "--dim", "N=2", "--shared"], 1, "give files"),
        (["compile", *two, "--shared", "--emit", own, "--prefix", "a"], 1, "expected 2 identifiers"),
        (["compile", *two, "--shared", "--emit", own, "--prefix", "a,A"], 1, "expected 2 identifiers"),
    ]
    for words, code, said in cases:
        done = run([suite.ullage, *words], code)
        expect(said in done.stderr and done.stderr.count("error:") == 1, f"{words}: {done.stderr}")
    run([suite.ullage, "compile", *two, "--shared", "--emit", own, "--prefix", "first,second"])
    expect(all(os.path.exists(os.path.join(own, name)) for name in ("shared.h", "first.h", "second.h")), "--prefix")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("ullage")
    arguments.add_argument("--target", default="c")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(given.ullage, given.target, folder)
        plan, done = suite.plan()
        check_together(suite, plan, done.stdout)
        check_models(suite)
        check_weights(suite)
        check_programs(suite)
        check_link(suite)
        check_link_of_states(suite)
        check_link_of_weights(suite)
        check_mixed(suite)
        if given.target != "cuda":
            check_budgets(suite, plan["reserved_bytes"])
        if given.target == "c":
            check_again(suite)
            check_misuse(suite)


if __name__ == "__main__":
    main()
