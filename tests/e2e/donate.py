#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Outputs that overwrite an input in place: --donate.

    donate.py ULLAGE [--target c] [MODEL]...

Models with state, made here: a counter, a running mean with momentum, a regression that learns by
gradient descent. Each is compiled with its state donated, in the arena and in the caller's buffers;
run 2 sees what run 1 wrote, with the bits of the program without donation that is fed its own
outputs. --guard, --memory, --bench, `check` and --plan know such plans, an edited plan that breaks a
donation is refused, and so is a donation that some reader forbids.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, numpy_helper, parser, save
except ImportError as error:
    print(f"donate.py: skipped: {error}")
    sys.exit(77)

HEAD = '<ir_version: 8, opset_import: ["": 17]>'

# Text, and what overwrites what.
MODELS = {
    "counter": ("""
counter (int64[1] n) => (int64[1] next) {
  one = Constant <value = int64[1] {1}> ()
  next = Add (n, one)
}""", {"next": "n"}),
    # `y` reads the mean after the node that makes the new one: it has to run before.
    "mean": ("""
mean (float[1000] x, float[1000] mean, float[1000] speed, float count)
  => (float[1000] new_mean, float[1000] new_speed, float new_count, float[1000] y) {
  one = Constant <value = float {1}> ()
  keep = Constant <value = float {0.9}> ()
  new_count = Add (count, one)
  delta = Sub (x, mean)
  kept = Mul (speed, keep)
  new_speed = Add (kept, delta)
  step = Div (new_speed, new_count)
  new_mean = Add (mean, step)
  total = ReduceSum <keepdims = 0> (mean)
  y = Mul (x, total)
}""", {"new_mean": "mean", "new_speed": "speed", "new_count": "count"}),
    "regression": ("""
regression (float[16,24] x, float[16,8] t, float[24,8] w, float[24,8] m)
  => (float loss, float[24,8] new_w, float[24,8] new_m) {
  rate = Constant <value = float {0.01}> ()
  keep = Constant <value = float {0.9}> ()
  y = MatMul (x, w)
  error = Sub (y, t)
  square = Mul (error, error)
  loss = ReduceMean <keepdims = 0> (square)
  turned = Transpose <perm = [1, 0]> (x)
  gradient = MatMul (turned, error)
  kept = Mul (m, keep)
  new_m = Add (kept, gradient)
  change = Mul (new_m, rate)
  new_w = Sub (w, change)
}""", {"new_w": "w", "new_m": "m"}),
    "branch": ("""
branch (float[8] n, bool c) => (float[8] next) {
  next = If (c) <
    then_branch = then () => (float[8] a) { a = Neg (n) },
    else_branch = otherwise () => (float[8] b) { b = Exp (n) }
  >
}""", {"next": "n"}),
    "carried": ("""
carried (float[64] n, float[64] x) => (float[64] next, float last) {
  trips = Constant <value = int64 {40}> ()
  go = Constant <value = bool {1}> ()
  zero = Constant <value = float {0}> ()
  next, last = Loop (trips, go, n, zero) <
    body = round (int64 i, bool c, float[64] h, float s) => (bool d, float[64] g, float r) {
      d = Identity (c)
      half = Constant <value = float {0.5}> ()
      halved = Mul (h, half)
      g = Add (halved, x)
      r = ReduceSum <keepdims = 0> (g)
    }
  >
}""", {"next": "n"}),
    # Each output overwrites what the other is computed from.
    "butterfly": ("""
butterfly (float[1000] a, float[1000] b) => (float[1000] minus, float[1000] plus) {
  minus = Sub (a, b)
  plus = Add (a, b)
}""", {"minus": "a", "plus": "b"}),
    "rotation": ("""
rotation (float[8,100] a, float[8,100] b, float[8,100] x)
  => (float[8,100] p, float[8,100] q, float[8,100] r) {
  p = Neg (b)
  q = Exp (x)
  sum = ReduceMax <axes = [1], keepdims = 1> (a)
  r = Add (a, sum)
}""", {"p": "a", "q": "b", "r": "x"}),
}

# Inputs of the models above that are initializers in the program with donation: weights that are
# updated in place.
LEARNED = {"regression_weights": ("regression", ["w", "m"]),
           "carried_weights": ("carried", ["n"])}

# Outputs that are made elsewhere first, since donations wait for each other.
COPIED = {"rotation": ["r"]}

# Text, donation, exit code, and what the message must name.
REFUSED = {
    "late_reader": ("""
late (float[8] n) => (float[8] next, float[1] y) {
  one = Constant <value = float {1}> ()
  next = Add (n, one)
  total = ReduceSum <keepdims = 1> (next)
  late = Sub (n, total)
  y = ReduceMax <keepdims = 1> (late)
}""", ["next=n"], 3, "late"),
    # Whether the other branch is taken is asked when this one has written.
    "flag": ("""
flag (bool n, float[8] x) => (bool next, float[8] y) {
  next, y = If (n) <
    then_branch = then () => (bool a, float[8] p) { a = Not (n) p = Neg (x) },
    else_branch = otherwise () => (bool b, float[8] q) { b = Not (n) q = Exp (x) }
  >
}""", ["next=n"], 3, "still reads it"),
    "product_in_place": ("""
product (float[8,8] h, float[8,8] w) => (float[8,8] next) { next = MatMul (h, w) }""",
                         ["next=h"], 3, "next"),
    "no_output": (MODELS["counter"][0], ["nothing=n"], 1, "nothing"),
    "no_input": (MODELS["counter"][0], ["next=nothing"], 1, "nothing"),
    "no_pair": (MODELS["counter"][0], ["next"], 1, "NAME=VALUE"),
    "other_type": ("""
other (float[8] n) => (float[1] next) { next = ReduceSum <keepdims = 1> (n) }""",
                   ["next=n"], 1, "f32[8]"),
    "twice": ("""
twice (float[8] n) => (float[8] a, float[8] b) {
  one = Constant <value = float {1}> ()
  a = Add (n, one)
  b = Sub (n, one)
}""", ["a=n", "b=n"], 1, "n"),
}

LIBRARY = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct ul_failure *failure)
{
    fprintf(stderr, "%s\\n", ul_result_text(failure->result));
    return 1;
}

/* Three runs of the counter from 40, by the functions of model.h. */
int main(void)
{
    unsigned char *block = malloc(MODEL_ARENA_BYTES + 2 * MODEL_ARENA_ALIGN);
    unsigned char *arena =
        block + (MODEL_ARENA_ALIGN - (uintptr_t)block % MODEL_ARENA_ALIGN);
    int64_t state = 40, seen = -1;
    struct ul_failure failure;
    const void *inputs[MODEL_INPUT_COUNT] = {&state};
    void *outputs[MODEL_OUTPUT_COUNT] = {IO_CALLER ? &state : &seen};
    memset(block, 0x5a, MODEL_ARENA_BYTES + 2 * MODEL_ARENA_ALIGN);
    if (model_init(arena, MODEL_ARENA_BYTES, NULL, &failure) != UL_OK)
        return fail(&failure);
#if IO_CALLER
    void *apart[MODEL_OUTPUT_COUNT] = {&seen};
    if (model_run(arena, inputs, apart, &failure) != UL_BUFFERS_APART || failure.tensor != 0)
        return 1;
#else
    if (model_run(arena, NULL, outputs, &failure) != UL_OK || seen != 1)
        return 2; /* a state that nobody gave is 0 */
    if (model_set_up(arena, inputs, &failure) != UL_OK)
        return fail(&failure);
#endif
    for (int i = 0; i < 3; i++)
        if (model_run(arena, inputs, outputs, &failure) != UL_OK)
            return fail(&failure);
    if ((IO_CALLER ? state : seen) != 43 || (!IO_CALLER && state != 40))
        return 3;
    model_done(arena);
    free(block);
    return 0;
}
"""


# main.c of a program whose weight counts: three runs, then all begins anew.
WEIGHT_LIBRARY = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>

static unsigned char file[1 << 16];
static unsigned char block[MODEL_ARENA_BYTES + 2 * MODEL_ARENA_ALIGN];

static int count(const struct ul_weights_source *weights)
{
    int64_t seen = -1;
    void *outputs[MODEL_OUTPUT_COUNT] = {&seen};
#if ON_DEVICE
    struct ul_context *handle;
    if (model_open(&handle, NULL, 0, NULL, weights, NULL) != UL_OK)
        return 1;
#else
    unsigned char *handle =
        block + (MODEL_ARENA_ALIGN - (uintptr_t)block % MODEL_ARENA_ALIGN);
    if (model_init(handle, MODEL_ARENA_BYTES, weights, NULL) != UL_OK)
        return 1;
#endif
    for (int i = 1; i <= 3; i++)
        if (model_run(handle, NULL, outputs, NULL) != UL_OK || seen != 40 + i)
            return 2;
#if ON_DEVICE
    model_close(handle);
#else
    model_done(handle);
#endif
    return 0;
}

int main(void)
{
    FILE *stream = fopen("weights.bin", "rb");
    struct ul_weights_source weights = {0};
    if (stream == NULL || model_model.outputs[0].donated != UL_DONATED_WEIGHT)
        return 3;
    weights.size_bytes = fread(file, 1, sizeof file, stream);
    weights.memory = file;
    fclose(stream);
    (void)block;
    int first = count(&weights);
    return first != 0 ? first : count(&weights);
}
"""


class Broken(Exception):
    pass


def run(command, folder, *codes):
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=300)
    if done.returncode not in (codes or (0,)):
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-800:]
        raise Broken(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def check(holds, text):
    if not holds:
        raise Broken(text)


def pairs_of(donated):
    return [word for out, into in donated.items() for word in ("--donate", f"{out}={into}")]


def start_values(model):
    generator = numpy.random.default_rng(7)
    values = {}
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        values[value.name] = (numpy.full(dims, 40, numpy.int64) if kind == TensorProto.INT64 else
                              numpy.full(dims, True) if kind == TensorProto.BOOL else
                              numpy.asarray(generator.standard_normal(dims), numpy.float32))
    if "count" in values:
        values["count"] = numpy.asarray(0, numpy.float32)
    return values


def execute(program, values, outputs, folder, more=()):
    command = [program]
    for name, value in values.items():
        numpy.save(os.path.join(folder, f"{name}.npy"), value)
        command += ["--input", f"{name}={name}.npy"]
    run(command + ["--output-dir", "out"] + list(more), folder)
    return {name: numpy.load(os.path.join(folder, "out", f"{name}.npy")) for name in outputs}


def fed(program, values, donated, outputs, folder, runs):
    """What the program without donation gives where it is fed its own outputs."""
    values = dict(values)
    for _ in range(runs):
        results = execute(program, values, outputs, folder)
        for out, into in donated.items():
            values[into] = results[out]
    return results


def load(folder, name):
    with open(os.path.join(folder, name)) as file:
        return json.load(file)


def check_plan(ullage, name, donated, options, folder):
    """plan.json knows of the donation; `check` and --plan take it; one that breaks it is refused."""
    run([ullage, "plan", f"{name}.onnx", "--json", "plan.json"] + options + pairs_of(donated), folder)
    plan = load(folder, "plan.json")
    recorded = sorted(value for key, value in plan["options"] if key == "donate")
    check(recorded == sorted(f"{o}={i}" for o, i in donated.items()), f"{name}: options {recorded}")
    ranges = plan["ranges"]
    length = len(plan["steps"]["name"])
    for out, into in donated.items():
        check(out not in ranges["name"] or out in COPIED.get(name, []),
              f"{name}: {out} has bytes of its own")
        at = ranges["name"].index(into)
        check((ranges["begin"][at], ranges["end"][at]) == (0, length), f"{name}: {into} is not kept")
    run([ullage, "check", f"{name}.onnx", "plan.json"], folder)
    if name != "mean":
        return
    # The sum of the old mean is formed of the new one.
    steps = plan["steps"]
    reads = next(i for i, text in enumerate(steps["name"]) if text.startswith("total"))
    writes = next(i for i, text in enumerate(steps["name"]) if text.startswith("new_mean"))
    check(reads + 1 == writes, f"{name}: the steps are {steps['name']}")
    for column in steps.values():
        column[reads], column[writes] = column[writes], column[reads]
    ranges["begin"][ranges["name"].index("total")] = writes
    with open(os.path.join(folder, "broken.json"), "w") as file:
        json.dump(plan, file)
    said = run([ullage, "check", f"{name}.onnx", "broken.json"], folder, 6)
    check("reads mean, which does not hold" in said, f"{name}: the broken plan is {said}")


def learn(model, values, names):
    """The inputs of these names become weights with these values."""
    for value in [value for value in model.graph.input if value.name in names]:
        model.graph.input.remove(value)
        model.graph.initializer.append(numpy_helper.from_array(values[value.name], value.name))


def check_model(ullage, target, name, folder):
    source, learned = LEARNED.get(name, (name, []))
    text, donated = MODELS[source]
    model = parser.parse_model(HEAD + text)
    save(model, os.path.join(folder, "plain.onnx"))
    outputs = [value.name for value in model.graph.output]
    values = start_values(model)
    options = ["--target", target]
    run([ullage, "compile", "plain.onnx", "--cflags", "-O0"] + options + ["-o", "./plain"], folder)
    learn(model, values, learned)
    save(model, os.path.join(folder, f"{name}.onnx"))
    compiler = [ullage, "compile", f"{name}.onnx", "--cflags", "-O0"] + options
    check_plan(ullage, name, donated, options, folder)
    given = {key: value for key, value in values.items() if key not in learned}
    for io in (["--io", "arena"], ["--io", "caller"]):
        run(compiler + io + pairs_of(donated) + ["-o", "./donated"], folder)
        for runs in (1, 3):
            want = fed("./plain", values, donated, outputs, folder, runs)
            got = execute("./donated", given, outputs, folder, ["--repeat", str(runs)])
            for output in outputs:
                check(want[output].tobytes() == got[output].tobytes(),
                      f"{name} {' '.join(io)}: {output} differs after {runs} runs:\n"
                      f"{got[output].ravel()[:4]} for {want[output].ravel()[:4]}")
        said = run(["./donated", "--help"], folder)
        for output, donor in donated.items():
            state = f"state: becomes {output} " if donor in given else ", overwrites a weight"
            check(state in said, f"{name}: --help does not say of {donor}:{state}\n{said}")
        run(["./donated", "--guard", "--random", "1"], folder)
        run(["./donated", "--memory", "--random", "1"], folder)
        said = run(["./donated", "--bench", "--warmup", "0", "--duration", "0.01"], folder)
        check("state" in said, f"{name}: --bench does not say that it changes the state\n{said}")
    if target == "c":
        run(compiler + ["--plan", "plan.json", "-o", "./planned"], folder)
        want = execute("./planned", given, outputs, folder, ["--repeat", "2"])
        got = fed("./plain", values, donated, outputs, folder, 2)
        check(all(want[o].tobytes() == got[o].tobytes() for o in outputs), f"{name}: --plan differs")


def check_library(ullage, target, folder):
    """The library form: three runs by model_run, without a command line."""
    save(parser.parse_model(HEAD + MODELS["counter"][0]), os.path.join(folder, "counter.onnx"))
    with open(os.path.join(folder, "library.c"), "w") as file:
        file.write(LIBRARY)
    for io in ("arena", "caller"):
        run([ullage, "compile", "counter.onnx", "--target", target, "--io", io, "--donate", "next=n",
             "--emit", io], folder)
        run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{io}",
             f"-DIO_CALLER={int(io == 'caller')}", "-o", f"library-{io}", "library.c",
             f"{io}/model.c", "-lm"], folder)
        run([f"./library-{io}"], folder)


def check_weight_library(ullage, target, folder):
    """The same for a weight, which is in the arena with any --io."""
    model = parser.parse_model(HEAD + MODELS["counter"][0])
    learn(model, {"n": numpy.full([1], 40, numpy.int64)}, ["n"])
    save(model, os.path.join(folder, "counter.onnx"))
    for io in ("arena", "caller"):
        run([ullage, "compile", "counter.onnx", "--target", target, "--io", io, "--donate", "next=n",
             "--emit", io], folder)
        with open(os.path.join(folder, io, "main.c"), "w") as file:
            file.write(f"#define ON_DEVICE {int(target == 'cuda')}" + WEIGHT_LIBRARY)
        run(["make", "-C", io, "CUDA_ARCH=sm_90"], folder)
        run(["./program"], os.path.join(folder, io))
    # Each set of test data begins with the weight of the file.
    for each in ("test_data_set_0", "test_data_set_1"):
        os.makedirs(os.path.join(folder, "data", each))
        want = numpy_helper.from_array(numpy.full([1], 41, numpy.int64), "next")
        with open(os.path.join(folder, "data", each, "output_0.pb"), "wb") as file:
            file.write(want.SerializeToString())
    compiler = [ullage, "compile", "counter.onnx", "--target", target, "--donate", "next=n"]
    run(compiler + ["-o", "./tested"], folder)
    run(["./tested", "--test-data", "data"], folder)
    if target != "cuda":
        said = run(compiler + ["--weights", "rom", "-o", "./tested"], folder, 3)
        check("--weights rom" in said, f"a weight that is read-only data is overwritten: {said}")


def check_refused(ullage, target, name, folder):
    text, pairs, code, named = REFUSED[name]
    save(parser.parse_model(HEAD + text), os.path.join(folder, f"{name}.onnx"))
    options = [word for pair in pairs for word in ("--donate", pair)]
    said = run([ullage, "plan", f"{name}.onnx", "--target", target] + options, folder, code)
    check(named in said, f"{name}: the message does not name {named}: {said}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("ullage")
    arguments.add_argument("--target", default="c")
    arguments.add_argument("models", nargs="*")
    given = arguments.parse_args()
    ullage = os.path.abspath(given.ullage)
    checks = [(check_model, name) for name in list(MODELS) + list(LEARNED)] + [(check_refused, name) for name in REFUSED]
    failed = 0
    for function, name in checks:
        if given.models and name not in given.models:
            continue
        folder = tempfile.mkdtemp(prefix="donate-")
        try:
            function(ullage, given.target, name, folder)
            if name == "counter":
                check_weight_library(ullage, given.target, folder)
            if name == "counter" and given.target != "cuda":
                check_library(ullage, given.target, folder)
            print(f"{name}: ok")
        except Broken as broken:
            failed += 1
            print(f"{name}: {broken}")
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
