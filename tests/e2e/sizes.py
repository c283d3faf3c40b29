#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs for a range of sizes.

    sizes.py ULLAGE [MODEL.onnx | --make NETWORK] --dim NAME=LOW..HIGH ... [--points N] [--keep DIR]

The model is compiled once for the ranges, and once for each of some points of them: smallest, largest, odd ones.
On equal inputs the outputs must have equal bytes, and the shapes of the point. Then the library form runs points in that order,
in one arena whose bytes are spoilt between runs, but for weights; and what must be refused is. Exit: 0 ok, 1 not.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile

import numpy

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
HARNESS = """
#include "model.h"
#include "ul_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_weights(void *context, uint64_t offset, void *target, uint64_t size)
{
    return fseek(context, (long)offset, SEEK_SET) != 0 || fread(target, 1, (size_t)size, context) != size;
}

/* Spoils all bytes but those that set-up has written. */
static void spoil(unsigned char *arena, const unsigned char *ready)
{
    memset(arena, 0xA5, MODEL_ARENA_BYTES);
    for (uint32_t i = 0; i < model_model.section_count; i++)
        memcpy(arena + model_model.sections[i].offset_bytes, ready + model_model.sections[i].offset_bytes,
               (size_t)model_model.sections[i].size_bytes);
    for (uint32_t i = 0; i < model_model.splat_count; i++)
        memcpy(arena + model_model.splats[i].offset_bytes, ready + model_model.splats[i].offset_bytes,
               (size_t)(model_model.splats[i].element_count * model_model.splats[i].element_bytes));
}

int main(int argc, char **argv)
{
    static unsigned char *inputs[MODEL_INPUT_COUNT + 1], *outputs[MODEL_OUTPUT_COUNT + 1];
    struct ul_weights_source source = {.read = read_weights, .context = fopen(argv[1], "rb")};
    unsigned char *arena = aligned_alloc(MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES), *ready = malloc(MODEL_ARENA_BYTES);
    int count = (int)(sizeof(struct model_sizes) / sizeof(int64_t));
    struct ul_failure failure;
    if (source.context == NULL || fseek(source.context, 0, SEEK_END) != 0)
        return 1;
    source.size_bytes = (uint64_t)ftell(source.context);
    if (model_init(arena, MODEL_ARENA_BYTES, &source, &failure) != UL_OK)
        return 2;
    memcpy(ready, arena, MODEL_ARENA_BYTES);
    for (int i = 0; i < MODEL_INPUT_COUNT; i++)
        inputs[i] = calloc(1, (size_t)model_model.inputs[i].size_bytes + 1);
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
        outputs[i] = calloc(1, (size_t)model_model.outputs[i].size_bytes + 1);
    for (int at = 2; at < argc; at += count) {
        struct model_sizes sizes;
        uint64_t hash = 0;
        for (int k = 0; k < count; k++)
            ((int64_t *)&sizes)[k] = strtoll(argv[at + k], NULL, 10);
        spoil(arena, ready);
        for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
            memset(outputs[i], 0, (size_t)model_model.outputs[i].size_bytes);
        if (model_run(arena, &sizes, (const void *const *)inputs, (void *const *)outputs, &failure) != UL_OK)
            return 3;
        for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
            for (uint64_t b = 0; b < model_model.outputs[i].size_bytes; b++)
                hash = (hash ^ outputs[i][b]) * UINT64_C(0x100000001B3);
        printf("%016llx\\n", (unsigned long long)hash);
    }
    struct model_sizes none = {0};
    int64_t *over = malloc(sizeof(struct model_sizes));
    for (int k = 0; k < count; k++)
        over[k] = model_model.sizes[k].high + 1;
    if (model_run(arena, &none, (const void *const *)inputs, (void *const *)outputs, &failure) != UL_SIZE_INVALID ||
        strcmp(failure.detail, model_model.sizes[0].name) != 0)
        return 4;
    if (model_run(arena, (const struct model_sizes *)over, (const void *const *)inputs, (void *const *)outputs, NULL) !=
        UL_SIZE_INVALID)
        return 5;
    if (model_run(arena, NULL, (const void *const *)inputs, (void *const *)outputs, NULL) != UL_SIZE_INVALID)
        return 6;
    return 0;
}
"""

parser = argparse.ArgumentParser()
parser.add_argument("ullage")
parser.add_argument("model", nargs="?")
parser.add_argument("--make", help="convolutions (n, h, w), or a network of models/make.py, made small with batch b and length s")
parser.add_argument("--dim", action="append", required=True)
parser.add_argument("--points", type=int, default=8)
parser.add_argument("--top", type=int, default=10, help="integers of inputs are below it")
parser.add_argument("--keep")
args = parser.parse_args()
folder = args.keep or tempfile.mkdtemp()
os.makedirs(folder, exist_ok=True)
failures = 0


def make_convolutions(file):
    """Pictures of any height and width: strides, a pool, odd sizes, a mean over what is left."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    data = numpy.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "w3": (8, 5)}
    weights = [numpy_helper.from_array((data.standard_normal(s) * 0.2).astype(numpy.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w2"], ["d"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3"], ["y"]),
        helper.make_node("Concat", ["e", "c"], ["z"], axis=1),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])]
    ports += [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"]
    graph = helper.make_graph(nodes, "convolutions", ports[:1], ports[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


if args.make == "convolutions":
    args.model = os.path.join(folder, "convolutions.onnx")
    make_convolutions(args.model)
elif args.make:
    args.model = os.path.join(folder, args.make + ".onnx")
    made = subprocess.run([sys.executable, MAKE, args.make, "--small", "--batch", "b", *(["--seq", "s"] if len(args.dim) > 1 else []),
                           "-o", args.model], capture_output=True, text=True)
    if made.returncode:
        print(f"sizes.py: skipped: {made.stderr}")
        sys.exit(77)


def fail(text):
    global failures
    failures += 1
    print("sizes.py:", text, flush=True)


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != code:
        fail(f"{' '.join(command)}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done


def path(name):
    return os.path.join(folder, name)


def dims_of(point):
    return [word for name, value in zip(names, point) for word in ("--dim", f"{name}={value}")]


def shapes(program, kind):
    """Names, types and shapes of the inputs or outputs in --help."""
    lines = run(program, "--help").stdout.split(f"\n{kind}:\n")[1].split("\n\n")[0].splitlines()
    found = []
    for line in lines:
        words = line.split()
        shape = [int(n) for n in words[2].strip(",[]").split(",") if n] if len(words) > 2 else []
        found.append((words[0], words[1], shape))
    return found


names, ranges, steps = [], [], []
for text in args.dim:
    name, value = text.rsplit("=", 1)
    value, _, step = value.partition(":")
    low, high = (int(n) for n in value.split(".."))
    names.append(name)
    ranges.append((low, high))
    steps.append(int(step or 1))
chance = random.Random(1)
points = [tuple(low for low, _ in ranges), tuple(high for _, high in ranges)]
while len(points) < args.points:
    points.append(tuple(chance.randrange(low, high + 1, step) for (low, high), step in zip(ranges, steps)))
points = list(dict.fromkeys(points[:1] + sorted(points[2:]) + points[1:2]))

program = path("range")
run(args.ullage, "compile", args.model, "--target", "c", *[w for d in args.dim for w in ("--dim", d)], "-o", program)
if failures:
    sys.exit(1)
for point in points:
    alone = path("alone")
    run(args.ullage, "compile", args.model, "--target", "c", *dims_of(point), "-o", alone)
    inputs = []
    for name, kind, shape in shapes(alone, "Inputs"):
        data = numpy.random.default_rng(hash(point) % 1000)
        array = data.integers(0, args.top, shape) if kind.startswith(("int", "uint")) else data.standard_normal(shape)
        file = path(f"{'_'.join(map(str, point))}_{len(inputs)}.npy")
        numpy.save(file, array.astype(kind))
        inputs += ["--input", f"{name}={file}"]
    run(alone, *inputs, "--output-dir", path("want"))
    run(program, *inputs, "--output-dir", path("got"))
    for name, _, shape in shapes(alone, "Outputs"):
        file = "".join(c if c.isalnum() or c in "-." else "_" for c in name) + ".npy"
        want, got = numpy.load(path("want/" + file)), numpy.load(path("got/" + file))
        if want.shape != got.shape or want.tobytes() != got.tobytes():
            fail(f"{point}: {name} differs: {want.shape} {got.shape}")

# ---- the library form ----

run(args.ullage, "compile", args.model, "--target", "c", *[w for d in args.dim for w in ("--dim", d)], "--emit", path("lib"), "--library")
with open(path("lib/harness.c"), "w") as file:
    file.write(HARNESS)
run("cc", "-std=c11", "-O1", "-I", path("lib"), path("lib/harness.c"), path("lib/model.c"), "-lm", "-o", path("harness"))
varied = [k for k, (low, high) in enumerate(ranges) if low < high]
rising = [[str(point[k]) for k in varied] for point in points]
sums = {}
for order in (rising, rising[::-1], rising[:2] + rising[::-1]):
    lines = run(path("harness"), path("lib/weights.bin"), *[word for point in order for word in point]).stdout.splitlines()
    if len(lines) != len(order):
        fail(f"the library ran {len(lines)} of {len(order)} points")
    for point, line in zip(order, lines):
        if sums.setdefault(tuple(point), line) != line:
            fail(f"{point}: the library's outputs depend on what ran before")

# ---- what is refused ----

ranged = [w for d in args.dim for w in ("--dim", d)]
for more, code, said in (
    (["--target", "cpu"], 3, "target cpu has no programs for a range of sizes"),
    (["--target", "c", "--train"], 1, "cannot be combined with --train"),
    (["--target", "c", "--space", "a=1MiB"], 1, "cannot be combined with --space"),
):
    done = run(args.ullage, "plan", args.model, *ranged, *more, code=code)
    if said not in done.stderr:
        fail(f"{more}: {done.stderr}")
done = run(args.ullage, "plan", args.model, "--target", "c", *[w for n in names for w in ("--dim", f"{n}=1..5000")], code=3)
if "each of which is compiled" not in done.stderr:
    fail(f"too many sizes: {done.stderr}")
first = [n for n, (low, high) in zip(names, ranges) if low < high][0]
high = dict(zip(names, ranges))[first][1]
for words, code, said in (
    (["--size", f"{first}={high + 1}"], 2, f"size {first} is {high + 1}"),
    (["--size", f"{first}"], 1, "NAME=N"),
    (["--size", "nothing=3"], 1, "no size 'nothing'"),
    (["--size", f"{first}={high}", *inputs], 0 if points[-1][names.index(first)] == high else 2, ""),
    (["--size", f"{first}={high - steps[names.index(first)]}", *inputs], 2, "but "),
):
    done = run(program, "--random", "1", *words, code=code)
    if said not in done.stderr:
        fail(f"{words}: {done.stderr}")
plan = path("plan.json")
run(args.ullage, "plan", args.model, "--target", "c", *ranged, "--json", plan)
run(args.ullage, "check", args.model, plan)
if not args.keep:
    shutil.rmtree(folder)
print(f"{len(points)} points, {failures} failures")
sys.exit(1 if failures else 0)
