#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs for a set of sizes (--dim n=1,2,4), each of which has steps of its own.

    size_sets.py ULLAGE --target c|cpu|cuda [--make NETWORK]

On equal inputs the program has the bytes of those that are compiled for each size alone on the same target (on cpu, where
another implementation may be chosen, nearly), and reserves what that for the largest does, give or take its alignment; --guard finds nothing with any size; what is in no set is refused,
by the program and by its library. The plan says the bytes of each size, and check takes it. Exit: 0 ok, 1 not, 77 skipped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
CALLER = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>

/* Prints the values that the size may have, and whether runs with 0 to 9 are taken. */
int main(void)
{
    struct ul_failure failure;
    void *arena = aligned_alloc(MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES);
    for (uint32_t v = 0; v < model_size_value_count(0); v++)
        printf("%lld ", (long long)model_size_value(0, v));
    if (model_init(arena, MODEL_ARENA_BYTES, NULL, &failure) != UL_OK)
        return 1;
    for (int64_t n = 0; n < 10; n++) {
        struct model_sizes sizes = {.b = n};
        if (model_run(arena, &sizes, NULL, NULL, &failure) == UL_OK)
            printf("%lld,", (long long)n);
        else if (failure.result != UL_SIZE_INVALID)
            return 1;
    }
    return 0;
}
"""
parser = argparse.ArgumentParser()
parser.add_argument("ullage")
parser.add_argument("--target", required=True)
parser.add_argument("--make", default="lstm", help="a network of models/make.py, made small with a batch b")
args = parser.parse_args()
SIZES = (1, 2, 5)
failures = 0


def fail(text):
    global failures
    failures += 1
    print("size_sets.py:", text, flush=True)


def run(*command, code=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != code:
        fail(f"{' '.join(command)}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done


def reserved(plan):
    with open(plan) as file:
        return json.load(file)["reserved_bytes"]


def read(path):
    with open(path, "rb") as file:
        return file.read()


with tempfile.TemporaryDirectory() as folder:
    path = lambda name: os.path.join(folder, name)
    model, program = path("model.onnx"), path("set")
    made = run(sys.executable, MAKE, args.make, "--small", "--batch", "b", "-o", model)
    if failures:
        sys.exit(77)
    wanted = ["--target", args.target, "--dim", f"b={','.join(map(str, SIZES))}"]
    run(args.ullage, "compile", model, *wanted, "-o", program, "--json", path("set.json"))
    run(args.ullage, "check", model, path("set.json"))
    run(args.ullage, "compile", model, *wanted, "--plan", path("set.json"), "-o", path("again"), "--json", path("again.json"))
    if read(path("set.json")) != read(path("again.json")):
        fail("another plan comes of its own plan")
    with open(path("set.json")) as file:
        plan = json.load(file)
    if plan["sizes"][0]["values"] != list(SIZES) or [p["sizes"] for p in plan["pieces"]] != [f"b = {n}" for n in SIZES]:
        fail(f"sizes {plan['sizes']}, pieces {plan['pieces']}")
    inputs = [line.split() for line in run(program, "--help").stdout.split("\nInputs:\n")[1].split("\n\n")[0].splitlines()]
    for n in SIZES:
        words = []
        for name, kind, shape in inputs:
            dims = [int(d) for d in shape.strip("[],").split(",")]
            dims[0] = n
            numpy.save(path(f"{name}.npy"), numpy.random.default_rng(n).standard_normal(dims).astype(kind))
            words += ["--input", f"{name}={path(name)}.npy"]
        run(args.ullage, "compile", model, "--target", args.target, "--dim", f"b={n}", "-o", path("alone"), "--json", path("alone.json"))
        run(path("alone"), *words, "--output-dir", path("want"))
        run(program, *words, "--output-dir", path("got"))
        for name in os.listdir(path("want")):
            want, got = (numpy.load(os.path.join(path(kind), name)) for kind in ("want", "got"))
            same = want.tobytes() == got.tobytes() if args.target != "cpu" else numpy.allclose(want, got, rtol=1e-5, atol=1e-6)
            if want.shape != got.shape or not same:
                fail(f"b = {n}: {name} differs")
        run(program, "--guard", *words)
        piece = plan["pieces"][SIZES.index(n)]
        if args.target == "c" and piece["peak_bytes"] != reserved(path("alone.json")):
            fail(f"b = {n}: {piece['peak_bytes']} bytes, and {reserved(path('alone.json'))} alone")
    if plan["reserved_bytes"] > reserved(path("alone.json")) * 1.02:
        fail(f"reserves {plan['reserved_bytes']}, and for the largest alone {reserved(path('alone.json'))}")
    done = run(program, "--random", "1", "--size", "b=3", code=2)
    if "is for 1, 2, 5" not in done.stderr:
        fail(done.stderr)
    done = run(args.ullage, "plan", model, "--dim", "b=" + ",".join(map(str, range(1, 20))), code=3)
    if "more combinations than 16" not in done.stderr:
        fail(done.stderr)
    done = run(args.ullage, "plan", model, "--dim", "b=2,1", code=1)
    if "ascending" not in done.stderr:
        fail(done.stderr)
    if args.target == "c":
        run(args.ullage, "compile", model, *wanted, "--emit", path("lib"), "--library", "--weights", "rom")
        with open(path("caller.c"), "w") as file:
            file.write(CALLER)
        sources = [os.path.join(path("lib"), f) for f in os.listdir(path("lib")) if f.endswith((".c", ".S")) and f != "weights.S"]
        run("cc", "-std=gnu11", "-O1", "-I", path("lib"), path("caller.c"), *sources, "-lm", "-o", path("caller"))
        said = run(path("caller")).stdout
        if said != "1 2 5 1,2,5,":
            fail(f"the library says {said!r}")
print(f"{args.target}: {failures} failures")
sys.exit(1 if failures else 0)
