#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Values that leave the buffer: programs whose every value that waits for a reader is offloaded.

    offload.py ULLAGE COMPILE_OFFLOAD [--target c]

The digits network trains with AdamW, with micro-batches and without, and offloads activations, parameters
and the optimizer's state to memory and to a file (tests/compile/offload.c plans it). Losses, evaluations
and checkpoints are those of the program that offloads nothing, bit for bit, interrupted and resumed or
not. Steps and transfers come in the order of the predicted timeline. --memory finds the planned bytes in
both places, --guard nothing outside of values, and the step where a wait is left out. Nothing of the file is left behind. What has no room, or fails under way,
is exit 5, and never a wrong result. As a library it trains over two arrays of the caller's.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError as error:
    print(f"offload.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits", "untrained.onnx")
BATCH = 8
OPTIONS = {"dim": f"N={BATCH}", "train": None, "train-mode": None, "output": "/fc/Gemm_output_0", "optimizer": "adamw"}
DATA = ["--data", "x.npy", "--labels", "y.npy", "--val", "x.npy", "y.npy"]
# Stands before the C library: room or writes give out where the environment says so.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
static int calls;
/* Whether the next call on a file without a name fails. */
static int gives_out(int file, const char *name)
{
    struct stat status;
    const char *count = getenv(name);
    if (fstat(file, &status) != 0 || status.st_nlink != 0)
        return 0;
    return count != NULL && ++calls > atoi(count);
}
int posix_fallocate(int file, off_t offset, off_t size)
{
    if (getenv("NO_ROOM") != NULL)
        return ENOSPC;
    return ftruncate(file, offset + size) == 0 ? 0 : errno;
}
int posix_fallocate64(int file, off_t offset, off_t size)
{
    return posix_fallocate(file, offset, size);
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    errno = ENOSPC;
    return gives_out(file, "WRITES") ? -1 : next(file, bytes, size, offset);
}
ssize_t pread64(int file, void *bytes, size_t size, off_t offset)
{
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    return gives_out(file, "READS") ? 0 : next(file, bytes, size, offset);
}
"""
failures = 0


def check(holds, text):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {text}")


def run(*command, code=0, says="", environment=None):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    text = f"{' '.join(command)}: {done.returncode}\n{done.stderr[-800:]}"
    check(done.returncode == code and says in done.stderr, text)
    return done.stdout


def dashed(options):
    return [word for name, value in options.items() for word in [f"--{name}", value] if word is not None]


def assigned(options):
    return [name if value is None else f"{name}={value}" for name, value in options.items()]


def content(path):
    with open(path, "rb") as file:
        return file.read()


def learned(program, name):
    """What two epochs leave, and a third one after them: checkpoint, losses, evaluations."""
    first = run(program, *DATA, "--epochs", "2", "--save", f"{name}.npz", "--metrics", f"{name}.csv")
    losses = [row.split(",")[:4] for row in content(f"{name}.csv").decode().split()]
    second = run(program, *DATA, "--epochs", "3", "--resume", f"{name}.npz", "--save", f"{name}2.npz")
    spoken = re.sub(r"[\d.e+]+ samples/s", "", first + second)
    return losses, spoken, content(f"{name}.npz"), content(f"{name}2.npz")


def test_bits(tools, options, where, name):
    plain = os.path.join(".", f"plain_{name}")
    program = os.path.join(".", f"offloads_{name}")
    run(tools.ullage, "compile", DIGITS, *dashed(options), "-o", plain)
    said = run(tools.compile, DIGITS, program, "plan.json", *assigned({**options, "offload": where}))
    transfers, _, offloaded = [int(number) for number in re.findall(r"\d+", said)]
    run(tools.ullage, "check", DIGITS, "plan.json")
    run(tools.ullage, "compile", DIGITS, "--plan", "plan.json", "--budget", str(1 << 50), "--emit", "again")
    again, first = [re.sub(rb"\.(plan_sha256|start_bytes|making_bytes) = .*", b"", content(f"{at}/model.c"))
                    for at in ("again", f"{program}.src")]
    check(again == first, f"{name}: another program by --plan")  # whose process is a caller's
    check(transfers > 40 and offloaded > 0, f"{name}: {said}")
    check(learned(plain, "a") == learned(program, "b"), f"{name}: other bits than without")
    run(program, "--guard", "--random", "1")
    run(program, "--memory", "--random", "1", "--json", "memory.json")
    with open("memory.json", encoding="utf-8") as file:
        memory = json.load(file)["offload"]
    check(memory == {"predicted_bytes": offloaded, "reserved_bytes": offloaded}, f"{name}: --memory {memory}")
    check(os.listdir("room") == [], f"{name}: left behind {os.listdir('room')}")
    return program


def predicted_spans(plan, seconds):
    """When each position begins and is done, by the plan: each stream has a clock, and waits move that of stream 0."""
    clocks, spans = {}, []
    steps = plan["steps"]
    for p, (kind, stream, cost) in enumerate(zip(steps["kind"], steps["stream"], seconds)):
        begin = max(clocks.get(stream, 0.0), clocks.get(0, 0.0))
        end = max(begin, spans[steps["awaited"][p]][1]) if kind == "wait" else begin + cost
        clocks[stream] = end
        spans.append((begin, end))
    return spans


def test_order(program):
    """A run does what the plan's timeline has, in its order, and the profile shows both times of each transfer."""
    said = run(program, "--bench", "--profile", "--random", "1", "--warmup", "0", "--duration", "0.05", "--iterations", "3", "--json", "bench.json")
    with open("plan.json", encoding="utf-8") as file:
        plan = json.load(file)
    with open("bench.json", encoding="utf-8") as file:
        by_name = {step["name"]: step for step in json.load(file)["steps"]}
    names = re.findall(r'^    \{"((?:[^"\\]|\\.)*)", "[^"]*", "(?:[^"\\]|\\.)*", "[^"]*", \d+', content(f"{program}.src/model.c").decode(), re.M)
    rows = [by_name[name] for name in names]
    kinds = plan["steps"]["kind"]
    check(len(rows) == len(kinds), f"{len(rows)} steps for {len(kinds)} positions")
    begins = [row["begin_seconds"] for row in rows]
    check(begins == sorted(begins), "steps do not begin in the order of the plan")
    predicted = predicted_spans(plan, [row["predicted_seconds"] for row in rows])
    cost = max(end for (_, end), stream in zip(predicted, plan["steps"]["stream"]) if stream == 0)
    check(abs(cost * 1e9 - plan["cost"]) <= 1e-6 * plan["cost"] + 1, f"the timeline ends at {cost}, and the plan at {plan['cost']} ns")
    moved = [p for p, kind in enumerate(kinds) if kind in ("save", "load")]
    check(sorted(moved, key=lambda p: predicted[p][0]) == sorted(moved, key=lambda p: rows[p]["transfer_begin_seconds"]) == moved,
          "transfers come in another order than predicted")  # fmt: skip
    for p, before in zip(moved[1:], moved):
        check(rows[p]["transfer_begin_seconds"] >= rows[before]["transfer_end_seconds"], f"transfers at {before} and {p} overlap")
    for p in moved:
        check(begins[p] <= rows[p]["transfer_begin_seconds"] <= rows[p]["transfer_end_seconds"], f"the transfer at {p} begins early")
        check(rows[p]["transfer_seconds"] > 0 and rows[p]["predicted_seconds"] > 0, f"no time for the transfer at {p}")
    for wait, kind in enumerate(kinds[:-1]):
        if kind == "wait":
            awaited = plan["steps"]["awaited"][wait]
            done = max(rows[p]["transfer_end_seconds"] for p in moved if p <= awaited)
            check(done <= begins[wait + 1], f"what comes behind the wait at {wait} begins before the transfer at {awaited} is done")
    check(f"all {len(moved)} " in said and "waited for" in said, f"--profile: {said[-300:]}")


def test_waits(source):
    """--guard names a step where a wait is left out."""
    path = os.path.join(source, "model.c")
    model = content(path).decode()
    begin = model.index("static void run_steps(")
    waits = [match.start() for match in re.finditer(r"ul_offload_wait\(run", model) if match.start() > begin]
    loads = {number for number in re.findall(r"ul_offload_begin\(run, UL_OFFLOAD_LOAD, (\d+)", model)}
    chosen = [at for at in waits if re.match(r"ul_offload_wait\(run, (\d+)\)", model[at:]).group(1) in loads]
    for at in chosen[:2]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(model[:at] + "/* left out */ (void)" + model[at + len("ul_offload_wait") :].replace("(run, ", "(", 1))
        run("make", "-s", "-C", source, "CFLAGS=-O1", "program")
        run(os.path.join(source, "program"), "--guard", "--random", "1", code=6, says="outside of its values")
    with open(path, "w", encoding="utf-8") as file:
        file.write(model)


def test_failures(program):
    train = [program, *DATA, "--epochs", "1", "--save", "lost.npz"]
    with open("shim.c", "w", encoding="utf-8") as file:
        file.write(SHIM)
    run("cc", "-shared", "-fPIC", "-D_FILE_OFFSET_BITS=64", "-o", "shim.so", "shim.c", "-ldl")
    shim = {"LD_PRELOAD": os.path.abspath("shim.so")}
    run(*train, "--offload", "room/none/file", code=5, says="No such file")
    run(*train, "--offload", "x.npy", code=5, says="there is such a file already")
    run(*train, code=5, says="No space left", environment={**shim, "NO_ROOM": "1"})
    for name, count in (("WRITES", 3), ("WRITES", 700), ("READS", 3), ("READS", 700)):
        run(*train, code=5, says="offload to", environment={**shim, name: str(count)})
    check(not os.path.exists("lost.npz"), "a checkpoint of a run that failed")
    check(os.listdir("room") == [], f"left behind {os.listdir('room')}")
    run(*train, "--offload", "room/file")
    check(os.listdir("room") == [], "the file that was named is left behind")


def test_library(plain, source):
    sums = []
    for folder, define in ((plain, ["-DPLAIN"]), (source, [])):
        program = os.path.join(folder, "library")
        others = [os.path.join(folder, name) for name in ("ul_dnnl.c", "ul_nbits.c", "ul_posts.c", "ul_winograd.c")]
        others = [name for name in others if os.path.exists(name)]
        run(
            "cc", "-std=c99", "-O2", "-fno-strict-aliasing", "-ffp-contract=off", "-fopenmp", *define, "-I", folder, "-o", program,
            os.path.join(HERE, "offload_library.c"), os.path.join(folder, "model.c"), *others,
            *(["-ldnnl"] if others else []), "-lm",
        )  # fmt: skip
        sums.append(run(program, os.path.join(folder, "weights.bin")))
    check(sums[0] == sums[1] != "", f"a library learns otherwise: {sums}")


def test_beside(tools, options):
    """A host has one stream: what may run on another runs where it begins."""
    said = run(tools.compile, DIGITS, "beside", "beside.json", "beside", *assigned({**options, "offload": "host"}))
    check(int(re.findall(r"(\d+) beside", said)[0]) > 20, f"nothing is beside: {said}")
    run(tools.ullage, "check", DIGITS, "beside.json")
    run(tools.ullage, "compile", DIGITS, "--plan", "beside.json", "--budget", str(1 << 50), "-o", "again_beside")
    check(learned("./again_beside", "d") == learned("./plain_memory", "a"), "other bits where steps have a second stream")
    run("./beside", "--guard", "--random", "1")


def test_options(ullage):
    budget = ["--budget", "1MiB"]
    compile_ = [ullage, "compile", DIGITS, *dashed(OPTIONS), "-o", "none"]
    run(*compile_, "--offload", "host", code=1, says="give --budget")
    run(*compile_, *budget, "--offload-budget", "1MiB", code=1, says="--offload host|FILE")
    run(*compile_, *budget, "--offload", "file", "--target", "cuda", code=3, says="use --offload host")
    check(not os.path.exists("none"), "a program of options that do not serve")


def test_target(tools, target):
    options = {**OPTIONS, "target": target}
    if target == "cpu":
        options["threads"] = "2"
    memory = test_bits(tools, options, "host", "memory")
    test_order(memory)
    program = test_bits(tools, {**options, "micro-batches": "2"}, os.path.abspath("room"), "file")
    test_failures(program)
    if target == "c":
        test_waits(f"{memory}.src")
        test_beside(tools, options)
    run(tools.ullage, "compile", DIGITS, *dashed(options), "--emit", "plain")
    test_library("plain", f"{memory}.src")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("compile")
    parser.add_argument("--target", default="c")
    tools = parser.parse_args()
    tools.ullage, tools.compile = os.path.abspath(tools.ullage), os.path.abspath(tools.compile)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("room")
        draw = numpy.random.default_rng(1)
        numpy.save("x.npy", draw.normal(size=(6 * BATCH, 1, 8, 8)).astype(numpy.float32))
        numpy.save("y.npy", draw.integers(0, 10, 6 * BATCH).astype(numpy.int32))
        test_target(tools, tools.target)
        if tools.target == "c":
            test_options(tools.ullage)
        os.chdir(HERE)
    print(f"offload.py: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
