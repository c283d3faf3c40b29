#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs for a range of sizes.

    sizes.py ULLAGE [MODEL.onnx | --make NETWORK] --dim NAME=LOW..HIGH ... [--points N] [--keep DIR]

The model is compiled once for the ranges, and once for each of some points of them: smallest, largest, odd ones.
On equal inputs the outputs must have equal bytes, and the shapes of the point. Then the library form runs points in that order,
in one arena whose bytes are spoilt between runs, but for weights; and what must be refused is. Exit: 0 ok, 1 not.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import numpy

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
COMMON = """
#include "model.h"
#include "ul_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_weights(void *context, uint64_t offset, void *target, uint64_t size)
{
    return fseek(context, (long)offset, SEEK_SET) != 0 || fread(target, 1, (size_t)size, context) != size;
}

static unsigned char *inputs[MODEL_INPUT_COUNT + 1], *outputs[MODEL_OUTPUT_COUNT + 1];
static struct ul_weights_source source = {.read = read_weights};
enum { COUNT = sizeof(struct model_sizes) / sizeof(int64_t) };

/* Opens the weights, and allocates what is read and written. */
static int begin(const char *weights)
{
    source.context = fopen(weights, "rb");
    if (source.context == NULL || fseek(source.context, 0, SEEK_END) != 0)
        return 1;
    source.size_bytes = (uint64_t)ftell(source.context);
    for (int i = 0; i < MODEL_INPUT_COUNT; i++)
        inputs[i] = calloc(1, (size_t)model_model.inputs[i].size_bytes + 1);
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
        outputs[i] = calloc(1, (size_t)model_model.outputs[i].size_bytes + 1);
    return 0;
}

static struct model_sizes take_sizes(char **words)
{
    struct model_sizes sizes;
    for (int k = 0; k < COUNT; k++)
        ((int64_t *)&sizes)[k] = strtoll(words[k], NULL, 10);
    return sizes;
}

/* Runs with outputs that were zero; their hash. */
static int run(void *arena, const struct model_sizes *sizes, unsigned long long *hash, struct ul_failure *failure)
{
    *hash = 0;
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
        memset(outputs[i], 0, (size_t)model_model.outputs[i].size_bytes);
    int result = model_run(arena, sizes, (const void *const *)inputs, (void *const *)outputs, failure);
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
        for (uint64_t b = 0; b < model_model.outputs[i].size_bytes; b++)
            *hash = (*hash ^ outputs[i][b]) * 0x100000001B3;
    return result;
}
"""
HARNESS = COMMON + """
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
    unsigned char *arena = aligned_alloc(MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES), *ready = malloc(MODEL_ARENA_BYTES);
    struct ul_failure failure;
    unsigned long long hash;
    if (begin(argv[1]) != 0)
        return 1;
    if (model_init(arena, MODEL_ARENA_BYTES, &source, &failure) != UL_OK)
        return 2;
    memcpy(ready, arena, MODEL_ARENA_BYTES);
    for (int at = 2; at < argc; at += COUNT) {
        struct model_sizes sizes = take_sizes(argv + at);
        spoil(arena, ready);
        if (run(arena, &sizes, &hash, &failure) != UL_OK)
            return 3;
        printf("%016llx\\n", hash);
    }
    struct model_sizes none = {0}, over;
    for (int k = 0; k < COUNT; k++)
        ((int64_t *)&over)[k] = model_model.sizes[k].high + 1;
    if (run(arena, &none, &hash, &failure) != UL_SIZE_INVALID || strcmp(failure.detail, model_model.sizes[0].name) != 0)
        return 4;
    if (run(arena, &over, &hash, NULL) != UL_SIZE_INVALID)
        return 5;
    if (run(arena, NULL, &hash, NULL) != UL_SIZE_INVALID)
        return 6;
    return 0;
}
"""
BY_SIZE = COMMON + """
int main(int argc, char **argv)
{
    struct ul_failure failure;
    unsigned long long hash, other;
    if (begin(argv[1]) != 0)
        return 1;
    for (int at = 2; at < argc; at += COUNT) {
        struct model_sizes sizes = take_sizes(argv + at), most;
        uint64_t bytes = model_arena_bytes_at(&sizes);
        unsigned char *block = malloc(bytes + 2 * MODEL_ARENA_ALIGN + 4096), *arena = block + MODEL_ARENA_ALIGN;
        arena -= (uintptr_t)arena % MODEL_ARENA_ALIGN;
        memset(block, 0xA5, bytes + 2 * MODEL_ARENA_ALIGN + 4096);
        if (model_init(arena, bytes, &source, &failure) != UL_OK)
            return 2;
        if (run(arena, &sizes, &hash, &failure) != UL_OK)
            return 3;
        for (unsigned char *end = arena + bytes; end < arena + bytes + 4096; end++)
            if (*end != 0xA5)
                return 4;
        printf("%016llx %llu\\n", hash, (unsigned long long)bytes);
        for (int k = 0; k < COUNT; k++)
            ((int64_t *)&most)[k] = model_model.sizes[k].high;
        int result = run(arena, &most, &other, &failure);
        if (model_arena_bytes_at(&most) > bytes &&
            (result != UL_ARENA_TOO_SMALL || failure.available_bytes != bytes || failure.needed_bytes != model_arena_bytes_at(&most)))
            return 5;
        if (model_arena_bytes_at(&most) > MODEL_ARENA_BYTES || bytes > model_arena_bytes_at(&most) + 65536)
            return 6;
        free(block);
    }
    struct model_sizes none = {0};
    return model_arena_bytes_at(&none) != 0 || model_arena_bytes_at(NULL) != 0 ? 7 : 0;
}
"""

parser = argparse.ArgumentParser()
parser.add_argument("ullage")
parser.add_argument("model", nargs="?")
parser.add_argument("--make", help="convolutions (n, h, w), attention (b, s), settled (a), products, folded, branches (s), or a network of models/make.py, made small with batch b and length s")
parser.add_argument("--dim", action="append", required=True)
parser.add_argument("--target", default="c", help="of the program for the ranges; those for one size are of target c")
parser.add_argument("--option", action="append", default=[], help="more of a compile: --option=--quantize=int8")
parser.add_argument("--points", type=int, default=8)
parser.add_argument("--top", type=int, default=10, help="integers of inputs are below it")
parser.add_argument("--most", type=float, default=1.05, help="an arena by sizes, of the bytes of the plan for a size alone")
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


def make_attention(file):
    """Attention whose kernel has other forms from 257 keys on, one of them for a batch of 1."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["y"]),
    ]
    shape = ["b", 2, "s", 8]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "qkv"]
    scale = numpy_helper.from_array(numpy.float32(0.35), "scale")
    graph = helper.make_graph(nodes, "attention", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def save(file, inputs, nodes, weights, output="y"):
    """A model of float32 whose inputs are name and shape."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    made = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "model", ports, [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def make_settled(file):
    """Two inputs whose first dimensions an operator needs to be equal."""
    from onnx import helper

    nodes = [helper.make_node("Add", ["u", "v"], ["w"]), helper.make_node("Softmax", ["w"], ["y"], axis=0)]
    save(file, (("u", ["a", 3]), ("v", ["other", 3])), nodes, {})


def make_products(file):
    """Products whose weights --quantize keeps in few bits."""
    from onnx import helper

    data = numpy.random.default_rng(3)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    weights = {"w1": data.standard_normal((64, 96)).astype(numpy.float32), "w2": data.standard_normal((96, 64)).astype(numpy.float32)}
    save(file, (("x", ["s", 64]),), nodes, weights)


def make_folded(file):
    """A large constant in which one row follows from the size."""
    from onnx import helper

    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Sub", ["shape", "one"], ["last"]),
        helper.make_node("Reshape", ["last", "index_shape"], ["index"]),
        helper.make_node("ScatterND", ["table", "index", "row"], ["changed"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=1),
        helper.make_node("Add", ["changed", "sum"], ["y"]),
    ]
    weights = {
        "one": numpy.int64([1]),
        "index_shape": numpy.int64([1, 1]),
        "table": numpy.random.default_rng(0).standard_normal((1024, 128)).astype(numpy.float32),
        "row": numpy.ones((1, 128), numpy.float32),
    }
    save(file, (("x", ["s"]),), nodes, weights)


def make_branches(file):
    """An If whose branch follows from the size."""
    from onnx import TensorProto, helper

    out = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("ReduceSum", ["x", "axes"], ["t"])], "then", [], [out("t")])
    other = helper.make_graph([helper.make_node("ReduceMax", ["x"], ["e"], axes=[1])], "else", [], [out("e")])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["size"]),
        helper.make_node("Greater", ["size", "five"], ["is_long"]),
        helper.make_node("If", ["is_long"], ["y"], then_branch=then, else_branch=other),
    ]
    save(file, (("x", ["s", 4]),), nodes, {"axes": numpy.int64([1]), "zero": numpy.int64(0), "five": numpy.int64(5)})


MAKERS = {
    "convolutions": make_convolutions,
    "attention": make_attention,
    "settled": make_settled,
    "products": make_products,
    "folded": make_folded,
    "branches": make_branches,
}
REFUSED = ((make_folded, "600..640", "more than 16 parts"),)
if args.make in MAKERS:
    args.model = os.path.join(folder, args.make + ".onnx")
    MAKERS[args.make](args.model)
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
    if command[0] == args.ullage and command[1] in ("compile", "plan"):
        command = (*command, *[word for option in args.option for word in option.split("=", 1)])
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


names, ranges, steps, lists = [], [], [], []
for text in args.dim:
    name, value = text.rsplit("=", 1)
    value, _, step = value.partition(":")
    values = [int(n) for n in value.split(",")] if "," in value else None
    low, high = (values[0], values[-1]) if values else (int(n) for n in value.split(".."))
    names.append(name)
    ranges.append((low, high))
    steps.append(int(step or 1))
    lists.append(values or range(low, high + 1, int(step or 1)))
chance = random.Random(1)
points = [tuple(low for low, _ in ranges), tuple(high for _, high in ranges)]
while len(points) < args.points:
    points.append(tuple(chance.choice(values) for values in lists))
points = list(dict.fromkeys(points[:1] + sorted(points[2:]) + points[1:2]))

program = path("range")
run(args.ullage, "compile", args.model, "--target", args.target, *[w for d in args.dim for w in ("--dim", d)], "-o", program)
if args.target == "cpu":  # whose libraries have files of the runtime, which no range calls: the source must do without
    run(args.ullage, "compile", args.model, "--target", args.target, *[w for d in args.dim for w in ("--dim", d)], "--emit", path("source"))
    run("make", "-s", "-j2", "-C", path("source"), "CFLAGS=-O1", "program")
    program = path("source/program")
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

run(args.ullage, "compile", args.model, "--target", args.target, *[w for d in args.dim for w in ("--dim", d)], "--emit", path("lib"), "--library")
with open(path("lib/harness.c"), "w") as file:
    file.write(HARNESS)
run("cc", "-std=c11", "-O1", "-I", path("lib"), path("lib/harness.c"), path("lib/model.c"), "-lm", "-fopenmp", "-ffp-contract=off", "-o", path("harness"))
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

# ---- offsets that follow from sizes ----

run(args.ullage, "compile", args.model, "--target", args.target, *[w for d in args.dim for w in ("--dim", d)], "--emit", path("by"), "--library",
    "--offsets", "sizes")
with open(path("by/harness.c"), "w") as file:
    file.write(BY_SIZE)
run("cc", "-std=c11", "-O1", "-I", path("by"), path("by/harness.c"), path("by/model.c"), "-lm", "-fopenmp", "-ffp-contract=off", "-o", path("by/run"))
lines = run(path("by/run"), path("by/weights.bin"), *[word for point in rising for word in point]).stdout.splitlines()
excess = []
for point, small, line in zip(points, rising, lines):
    hashed, size = line.split()
    if hashed != sums[tuple(small)]:
        fail(f"{point}: other outputs where offsets follow from sizes")
    run(args.ullage, "plan", args.model, "--target", "c", *dims_of(point), "--json", path("alone.json"), "--advice", "off")
    with open(path("alone.json")) as file:
        excess.append((int(size) - 64) / json.load(file)["reserved_bytes"])  # without the place where the arena's bytes are noted
if len(lines) != len(points):
    fail(f"{len(lines)} of {len(points)} points ran in an arena of their own size")
elif max(excess) > args.most:
    fail(f"an arena by sizes has {max(excess):.3f} of the bytes of the plan for the sizes alone")
else:
    print("an arena by sizes, of the plan alone: " + " ".join(f"{e:.4f}" for e in excess))

# ---- what is refused ----

ranged = [w for d in args.dim for w in ("--dim", d)]
for more, code, said in (
    (["--target", "cuda"], 3, "target cuda has no programs for a range of sizes"),
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
    (["--size", "nothing=3"], 1, "no size of that name"),
    (["--size", f"{first}={high}", *inputs], 0 if points[-1][names.index(first)] == high else 2, ""),
    (["--size", f"{first}={high - steps[names.index(first)]}", *inputs], 2, "but "),
):
    done = run(program, "--random", "1", *words, code=code)
    if said not in done.stderr:
        fail(f"{words}: {done.stderr}")
for make, value, said in () if args.option else REFUSED:
    make(path("refused.onnx"))
    done = run(args.ullage, "plan", path("refused.onnx"), "--target", "c", "--dim", f"s={value}", code=3)
    if said not in done.stderr:
        fail(f"{make.__name__}: {done.stderr}")
plan = path("plan.json")
run(args.ullage, "plan", args.model, "--target", "c", *ranged, "--json", plan)
run(args.ullage, "check", args.model, plan)
if not args.keep:
    shutil.rmtree(folder)
print(f"{len(points)} points, {failures} failures")
sys.exit(1 if failures else 0)
