#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several models in one arena: plan and compile --shared.

    shared.py ULLAGE --target c|cpu|cuda

Two classifiers and a model with state run one after the other, again and again, in one arena, with
the bits that each computes in an arena of its own. No run changes a byte outside of its own live
ranges, nor what another model keeps. Budgets are met, and the smallest that is named works; sums add
up; each plan is a plan as any other for check, report, diff and --plan; what is misused is said.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import numpy_helper, parser, save
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


def kept_ranges(plan):
    """What is live at all positions and no other model's."""
    ranges, end = plan["ranges"], max(1, len(plan["steps"]["step"]))
    return [(ranges["offset_bytes"][i], ranges["offset_bytes"][i] + ranges["size_bytes"][i]) for i in range(len(ranges["value"]))
            if ranges["space"][i] == 0 and ranges["class"][i] in ("weights", "scratch") and (ranges["begin"][i], ranges["end"][i]) == (0, end)
            and ranges["value"][i] is not None]


def check_document(suite, document, text):
    schema.validate(document, "shared.schema.json")
    models = document["models"]
    expect([model["prefix"] for model in models] == suite.prefixes, "prefixes")
    expect(document["kept_bytes"] == sum(model["kept_bytes"] for model in models), "kept_bytes")
    expect(document["run_bytes"] == max(model["run_bytes"] for model in models), "run_bytes")
    expect(document["run_bytes"] == models[document["largest_run"]]["run_bytes"], "largest_run")
    expect(document["reserved_bytes"] == document["kept_bytes"] + document["run_bytes"], "reserved_bytes")
    expect(document["separate_bytes"] == sum(model["alone_bytes"] for model in models), "separate_bytes")
    expect(document["saved_bytes"] == document["separate_bytes"] - document["reserved_bytes"] > 0, "saved_bytes")
    expect(document["order_lower_bound_bytes"] <= document["reserved_bytes"], "bound")
    for model in models:
        schema.validate(model["plan"], "plan.schema.json")
        expect(model["plan"]["reserved_bytes"] == document["reserved_bytes"], f"{model['prefix']}: reserved")
        check_rows(model["plan"])
    lines = text.splitlines()
    expect(all(len(line) <= 80 for line in lines) and f"= {document['reserved_bytes']} bytes" in lines[0], text)


def check_alone(suite, document):
    """Without a budget a model takes in its own arena what the table says."""
    for model, path, own in zip(document["models"], suite.models, suite.own):
        text = run([suite.ullage, "plan", path, *own, *suite.common, "--json", "-"]).stdout
        with open(os.path.join(suite.folder, "alone.json"), "w", encoding="utf-8") as file:
            file.write(text)
        expect(json.loads(text)["reserved_bytes"] == model["alone_bytes"], f"{path}: alone {model['alone_bytes']}")


def check_saved(suite, document):
    """Each is a plan as any other."""
    old = os.path.join(suite.folder, "alone.json")
    for model, path in zip(document["models"], suite.models):
        target = os.path.join(suite.folder, "plan.json")
        with open(target, "w", encoding="utf-8") as file:
            json.dump(model["plan"], file)
        run([suite.ullage, "check", path, target])
        report = run([suite.ullage, "report", target]).stdout
        expect("other models" in report and f"= {document['reserved_bytes']} bytes" in report, report)
        expect("other models" in run([suite.ullage, "diff", old, target]).stdout, "diff: other models")
        others = [i for i, kind in enumerate(model["plan"]["ranges"]["class"]) if kind == "other_models"]
        broken = json.loads(json.dumps(model["plan"]))
        broken["ranges"]["offset_bytes"][max(others, key=lambda i: broken["ranges"]["size_bytes"][i])] += document["alignment_bytes"]
        with open(target, "w", encoding="utf-8") as file:
            json.dump(broken, file)
        run([suite.ullage, "check", path, target], 6)


def check_budgets(suite, free):
    for of in ([[]] if suite.target == "cpu" else [["--budget-of", "arena"], []]):
        document, done = suite.plan("--budget", "1", *of, code=4)
        schema.validate(document, "shared.schema.json")
        smallest = document["smallest_budget_bytes"]
        expect(not document["fits"] and str(smallest) in done.stderr and suite.models[1] in done.stderr, done.stderr)
        for budget in {smallest} if suite.target == "cpu" else {smallest, (smallest + max(smallest, free)) // 2}:
            met, done = suite.plan("--budget", str(budget), *of)
            check_document(suite, met, done.stdout)
            expect(met["fits"] and met["needed_bytes"] <= budget, f"budget {budget}: {met['needed_bytes']}")
            expect(all(model["plan"]["fits"] for model in met["models"]), "a plan that does not fit")
            check_rows(met["models"][0]["plan"])
        check_saved(suite, met)


# ---- programs ----


def make_inputs(folder, prefixes):
    rng = numpy.random.default_rng(7)
    shapes = {"digits": [(2, 1, 8, 8)], "digits_2": [(2, 1, 8, 8)], "tally": [(3, 24), (24,)]}
    for index, prefix in enumerate(prefixes):
        for number in range(ORDER.count(index)):
            for i, shape in enumerate(shapes[prefix]):
                rng.standard_normal(shape, dtype=numpy.float32).tofile(f"{folder}/{prefix}.in.{number}.{i}")


def link(suite, folder, prefixes, objects, libs):
    with open(os.path.join(folder, "models.h"), "w", encoding="ascii") as file:
        file.writelines(f"MODEL({prefix})\n" for prefix in prefixes)
    target = os.path.join(folder, "main")
    source = os.path.join(HERE, "shared.c")
    if suite.target == "cuda":
        words = [os.environ["NVCC"], "-DSHARED_CUDA", "-Xcompiler=-std=c99"]
    else:
        words = ["cc", *FLAGS]
    run([*words, "-I", folder, "-o", target, source, *objects, *libs], folder=folder)
    return target


def build_shared(suite, folder):
    run([suite.ullage, "compile", *suite.words, "--cflags", "-O1", "--emit", folder])
    run(["make", "-s", "-j2"], folder=folder)
    libs = run(["make", "-s", "libs"], folder=folder).stdout.split()
    return link(suite, folder, suite.prefixes, [os.path.join(folder, "libshared.a")], libs)


def build_alone(suite, index, folder):
    prefix = suite.prefixes[index]
    run([suite.ullage, "compile", suite.models[index], *suite.own[index], *suite.common, "--prefix", prefix,
         "--cflags", "-O1", "--emit", folder])
    objects = ["model.o", *[name[:-2] + ".o" for name in ("ul_dnnl.c", "ul_nbits.c", "ul_posts.c", "ul_winograd.c") if os.path.exists(os.path.join(folder, name))]]
    objects += sorted(name[:-3] + ".o" for name in os.listdir(folder) if name.endswith(".cu"))
    run(["make", "-s", "-j2", *objects], folder=folder)
    with open(os.path.join(folder, "shared.h"), "w", encoding="ascii") as file:
        big = prefix.upper()
        file.write(f'#include "model.h"\n#define SHARED_MODEL_COUNT 1\n#define SHARED_ARENA_BYTES {big}_ARENA_BYTES\n'
                   f"#define SHARED_ARENA_ALIGN {big}_ARENA_ALIGN\n")
    with open(os.path.join(folder, "Makefile"), encoding="utf-8") as file:
        needs = re.findall(r"^(?:LIBS|OPENMP) = ?(.*)$", file.read(), re.MULTILINE)
    libs = ["-ldl", "-lm"] if suite.target == "cuda" else " ".join(needs).split()
    return link(suite, folder, [prefix], [os.path.join(folder, name) for name in objects], libs)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def check_untouched(suite, folder, data):
    """A run changes bytes of its own ranges alone, and nothing that another keeps."""
    plans = [load(os.path.join(folder, prefix, "plan.json")) for prefix in suite.prefixes]
    arena = plans[0]["reserved_bytes"]
    kept = [numpy.zeros(arena, bool) for _ in plans]
    own = [numpy.zeros(arena, bool) for _ in plans]
    for i, plan in enumerate(plans):
        for begin, end in kept_ranges(plan):
            kept[i][begin:end] = True
        ranges = plan["ranges"]
        for r, kind in enumerate(ranges["class"]):
            if kind != "other_models" and ranges["space"][r] == 0:
                own[i][ranges["offset_bytes"][r]:ranges["offset_bytes"][r] + ranges["size_bytes"][r]] = True
    expect(all(mask.any() for mask in kept), "a model that keeps nothing")
    for number, index in enumerate(ORDER):
        before, after = (numpy.fromfile(f"{data}/run.{number}.{when}", numpy.uint8) for when in ("before", "after"))
        changed = before != after
        expect(before.size == arena and changed.any(), f"run {number}: no byte changed")
        expect(not (changed & ~own[index]).any(), f"run {number}: bytes outside of the model's ranges changed")
        for other, mask in enumerate(kept):
            expect(other == index or not (changed & mask).any(), f"run {number} changed what {suite.prefixes[other]} keeps")


def check_programs(suite):
    folder, data = (os.path.join(suite.folder, name) for name in ("together", "data"))
    os.mkdir(data)
    make_inputs(data, suite.prefixes)
    program = build_shared(suite, folder)
    for prefix in suite.prefixes:
        shutil.copy(os.path.join(folder, prefix, "weights.bin"), os.path.join(data, f"{prefix}.weights"))
    run([program, data, *map(str, ORDER)])
    check_untouched(suite, folder, data)
    results = {name: read_bytes(os.path.join(data, name)) for name in sorted(os.listdir(data)) if ".out." in name}
    expect(len(results) == len(ORDER) + ORDER.count(1), f"results: {sorted(results)}")
    for index, prefix in enumerate(suite.prefixes):
        alone = build_alone(suite, index, os.path.join(suite.folder, f"alone_{prefix}"))
        shutil.copy(os.path.join(suite.folder, f"alone_{prefix}", "weights.bin"), os.path.join(data, f"{prefix}.weights"))
        run([alone, data, *["0"] * ORDER.count(index)])
        for name, expected in results.items():
            if name.split(".")[0] == prefix:
                expect(read_bytes(os.path.join(data, name)) == expected, f"{name}: other bits than alone")


def check_again(suite):
    """The same folder again, over an earlier one, which keeps files that are none of it."""
    folder, again = (os.path.join(suite.folder, name) for name in ("together", "again"))
    run([suite.ullage, "compile", *suite.words, "--cflags", "-O1", "--emit", again])
    for prefix in suite.prefixes:
        for name in ("model.c", "model.h", "plan.json", "weights.bin"):
            expect(filecmp.cmp(os.path.join(folder, prefix, name), os.path.join(again, prefix, name), shallow=False), f"{prefix}/{name}: not the same again")
    run([suite.ullage, "compile", *suite.words, "--emit", again])  # over an earlier result
    own = os.path.join(again, "tally", "notes.txt")
    with open(own, "w", encoding="ascii") as file:
        file.write("mine\n")
    said = run([suite.ullage, "compile", *suite.words, "--emit", again], 5).stderr
    expect("notes.txt" in said and os.path.exists(own), "a file that is none of ours is gone")
    expect(os.path.exists(os.path.join(again, "digits", "model.c")), "an earlier result is gone")


def check_guard(suite):
    """The program of one of the plans touches nothing of the others."""
    plan = os.path.join(suite.folder, "together", "digits", "plan.json")
    program = os.path.join(suite.folder, "guarded")
    run([suite.ullage, "compile", DIGITS, "--plan", plan, "--cflags", "-O1", "-o", program])
    text = run([program, "--memory"]).stdout
    line = next(line for line in text.splitlines() if line.startswith("other_models")).split()
    expect(int(line[1]) == int(line[2]) > 0 == int(line[3]), text)
    run([program, "--guard"])


# ---- misuse ----


def check_misuse(suite):
    tally = suite.models[1]
    own = os.path.join(suite.folder, "own")
    bad = os.path.join(suite.folder, "bad.onnx")
    with open(bad, "wb") as file:
        file.write(b"\x0a\x03abc")
    plan = os.path.join(suite.folder, "together", "tally", "plan.json")
    two = [DIGITS, tally, "--dim", "N=2", "--dim", "M=3"]
    cases = [
        (["plan", DIGITS, "--dim", "N=2", "--shared"], 1, "several models"),
        (["plan", *two], 1, "--shared"),
        (["compile", *two, "-o", own], 1, "--shared"),
        (["compile", *two, "--shared", "-o", own], 1, "--emit DIR"),
        (["compile", *two, "--shared"], 1, "--emit DIR"),
        (["plan", *two, "--shared", "--train"], 3, "--train"),
        (["plan", *two, "--shared", "--plan", plan], 1, "--plan"),
        (["plan", *two, "--shared", "--sweep"], 1, "--sweep"),
        (["plan", *two, "--shared", "--output", "y"], 1, "--output"),
        (["plan", *two, "--shared", "--dim", "K=3"], 1, "none of the models has such a dimension"),
        (["plan", *two, "--shared", "--shape", "z=3,4"], 1, "none of the models has such an input"),
        (["plan", *two, "--shared", "--donate", "next=nobody"], 1, tally),
        (["plan", DIGITS, tally, "--dim", "N=2", "--shared"], 1, tally),
        (["report", os.path.join(suite.folder, "shared.json")], 2, "several models"),
        (["check", tally, os.path.join(suite.folder, "shared.json")], 2, "several models"),
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
    expect(sorted(name for name in os.listdir(own) if os.path.isdir(os.path.join(own, name))) == ["first", "second"], "--prefix")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("ullage")
    arguments.add_argument("--target", default="c")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(given.ullage, given.target, folder)
        document, done = suite.plan()
        check_document(suite, document, done.stdout)
        check_alone(suite, document)
        check_saved(suite, document)
        check_programs(suite)
        if given.target != "cuda":
            check_budgets(suite, document["reserved_bytes"])
        if given.target == "c":
            check_again(suite)
            check_guard(suite)
            check_misuse(suite)


if __name__ == "__main__":
    main()
