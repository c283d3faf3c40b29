#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that trains as a library: model_train_step, model_eval, model_save and model_load of an emitted folder.

    train_library.py ULLAGE

The digits network is emitted with --train and linked with train_library.c, which trains it over an
array of its own, saves, loads, and is refused what is wrong. Its losses are those of the
command line's program, bit for bit, with the caller's buffers too; those of target cpu to
rounding.
For a microcontroller (target c, 256 KiB for the buffer) model.c is plain C99 that asks
nothing of its surroundings but four functions of string.h and some of math.h, has no data that
changes, and trains in an array of as many bytes as the plan says.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as error:
    print(f"train_library.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits")
BATCH, STEPS = 4, 6
TRAINING = ["--train", "--train-mode", "--output", "/fc/Gemm_output_0", "--dim", f"N={BATCH}"]
ADAMW = ["--optimizer", "adamw", "--schedule", "warmup:3,cosine:9"]
NEAR = 1e-4  # of losses whose sums are in another order
# What a freestanding C99 compiler does not bring along, as gcc's own code needs it too.
STRING_H = {"memcpy", "memset", "memcmp", "memmove", "strlen"}
MATH_H = {"pow", "cos", "floor", "sqrtf", "expf", "logf"}
MICRO_BUDGET = "256KiB"
MICRO_FLAGS = ["-std=c99", "-ffreestanding", "-Os", "-fno-pie", "-DUL_NO_TABLES",
               "-Wall", "-Wextra", "-Wpedantic", "-Werror"]  # fmt: skip


def run(command, folder=None, codes=(0,)):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def put_array(path, lines):
    with open(path, "a", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def listed(values, form):
    return "{" + ", ".join(form(value) for value in values) + "};"


def put_samples(folder):
    """As headers and, for the program, as files."""
    count = BATCH * STEPS
    x = numpy.load(os.path.join(DIGITS, "train_x.npy"))[:count]
    y = numpy.load(os.path.join(DIGITS, "train_y.npy"))[:count]
    numpy.save(os.path.join(folder, "x.npy"), x)
    numpy.save(os.path.join(folder, "y.npy"), y)
    with open(os.path.join(folder, "weights.bin"), "rb") as file:
        weights = file.read()
    put_array(os.path.join(folder, "weights.h"),
              ["static const unsigned char weights[] =", listed(weights, str)])
    put_array(os.path.join(folder, "samples.h"), [
        f"enum {{ SAMPLE_COUNT = {count} }};",
        "static const float x[] =", listed(x.ravel(), lambda value: f"{float(value)!r}f"),
        "static const int64_t y[] =", listed(y, str)])  # fmt: skip


def compile_model(ullage, options):
    run([ullage, "compile", os.path.join(DIGITS, "untrained.onnx"), *TRAINING, *options])


def emit(ullage, folder, options):
    compile_model(ullage, [*options, "--emit", folder])
    put_samples(folder)


def library_losses(folder, objects, libraries):
    run(["gcc", "-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror", "-I.", "-o", "caller",
         os.path.join(HERE, "train_library.c"), *objects, *libraries, "-lm"], folder)  # fmt: skip
    return numpy.array([numpy.float32(line) for line in run(["./caller"], folder).split()])


def program_losses(folder):
    run(["./program", "--data", "x.npy", "--labels", "y.npy", "--no-shuffle", "--steps", str(STEPS),
         "--seed", "5", "--metrics", "m.csv"], folder)  # fmt: skip
    with open(os.path.join(folder, "m.csv"), encoding="ascii") as file:
        return numpy.array([numpy.float32(row["loss"]) for row in csv.DictReader(file)])


def check_library(ullage, work):
    """The command line's program has the same losses as the caller of the library."""
    folder = os.path.join(work, "c")
    emit(ullage, folder, ["--target", "c", *ADAMW])
    run(["make", "CFLAGS=-O1", "model.o"], folder)
    compile_model(ullage, ["--target", "c", *ADAMW, "--cflags", "-O1", "-o", os.path.join(folder, "program")])
    losses = program_losses(folder)
    if len(losses) != STEPS or not losses[-1] < losses[0]:
        raise RuntimeError(f"losses {losses}")
    mine = {"c": library_losses(folder, ["model.o"], [])}
    for name, options in {"caller": ["--target", "c", "--io", "caller"], "cpu": ["--target", "cpu"]}.items():
        folder = os.path.join(work, name)
        emit(ullage, folder, [*options, *ADAMW])
        natives = [name for name in ("ul_dnnl", "ul_posts", "ul_winograd")
                   if os.path.exists(os.path.join(folder, f"{name}.c"))]  # fmt: skip
        objects = [f"{name}.o" for name in ["model", *natives]]
        run(["make", "CFLAGS=-O1", *objects], folder)
        mine[name] = library_losses(folder, objects, ["-fopenmp", "-ldnnl"] if natives else ["-fopenmp"])
    for name, other in mine.items():
        near = 0 if name != "cpu" else NEAR
        if not numpy.allclose(other, losses, rtol=near, atol=0):
            raise RuntimeError(f"losses of the library ({name}) {other}, of the program {losses}")


def check_micro(ullage, work):
    folder, plan = os.path.join(work, "micro"), os.path.join(work, "plan.json")
    emit(ullage, folder, ["--target", "c", "--optimizer", "sgd", "--budget", MICRO_BUDGET, "--budget-of",
                          "arena", "--json", plan])  # fmt: skip
    with open(plan, encoding="ascii") as file:
        reserved = json.load(file)["reserved_bytes"]  # 261056, as runtime/README.md has it
    run(["gcc", *MICRO_FLAGS, "-c", "model.c", "-o", "micro.o"], folder)
    wanted = {line.split()[-1] for line in run(["nm", "-u", "micro.o"], folder).splitlines()}
    if not wanted <= STRING_H | MATH_H:
        raise RuntimeError(f"model.c asks for {wanted - STRING_H - MATH_H}")
    sizes = run(["size", "micro.o"], folder).splitlines()[1].split()
    if sizes[1:3] != ["0", "0"]:
        raise RuntimeError(f"model.c has data that changes: {sizes}")
    losses = library_losses(folder, ["micro.o"], ["-no-pie"])
    arena = [line.split() for line in run(["nm", "-S", "caller"], folder).splitlines() if line.endswith(" arena")]
    if int(arena[0][1], 16) != reserved or not losses[-1] < losses[0]:
        raise RuntimeError(f"the arena has {arena} bytes, planned are {reserved}; losses {losses}")
    print(f"microcontroller: {reserved} bytes, of code and tables {sizes[0]}")


def main():
    ullage, failed = os.path.abspath(sys.argv[1]), 0
    with tempfile.TemporaryDirectory() as work:
        for check in (check_library, check_micro):
            try:
                check(ullage, work)
            except RuntimeError as error:
                failed += 1
                print(f"FAIL: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
