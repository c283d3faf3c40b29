#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the folders that `ullage compile --target cuda --emit` makes, with the real nvcc.

    build.py --ullage build/release/cli/ullage [--small] [--arch "sm_80 sm_90 compute_90"] [NAME...]

Every network of models/ (or those named) is emitted and built by `make` alone, warnings as errors,
for all devices of the Makefile or those of --arch. What does not depend on the network is compiled
with the first one. A program without a device must say so in one line and end with exit code 3;
one with a device must run. exit: 0 ok, 6 a folder does not build, 77 there is no nvcc here
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "ref"), os.path.join(HERE, "..")]

import bytes as reference_bytes  # noqa: E402  tests/ref/bytes.py
from part import part  # noqa: E402

WARNINGS = "-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror"
NO_DEVICE = 3
# What the folder of a target must not hold: the other ones' runtime.
FOREIGN = {"cuda": r"ul_(dnnl|posts\.c|winograd\.c|nbits\.c|nbits_bytes|contract\.h)", "c": r"ul_cu|.*\.cuh?$|ul_dnnl"}


def run(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False, **more)  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip()


def emit(args, path, options, target, folder):
    command = [args.ullage, "compile", path, *options, "--target", target, "--emit", folder]
    code, said = run(command)
    if code != 0:
        return f"exit {code}: {said[-1000:]}"
    foreign = [name for name in sorted(os.listdir(folder)) if re.match(FOREIGN[target], name)]
    return f"the folder of target {target} holds {', '.join(foreign)}" if foreign else None


def share(shared, folder):
    """Objects of the runtime from an earlier folder, where they are of the same source."""
    for name in sorted(os.listdir(shared)):
        source = os.path.splitext(name)[0]
        for end in (".cu", ".c"):
            if os.path.exists(os.path.join(folder, source + end)):
                shutil.copy(os.path.join(shared, name), os.path.join(folder, name))


def keep(folder, shared):
    for name in os.listdir(folder):
        if name.startswith("ul_") and name.endswith(".o"):
            shutil.copy(os.path.join(folder, name), os.path.join(shared, name))


def starts(program):
    """A run on random inputs where there is a device; otherwise a line that says there is none."""
    code, said = run([program, "--random", "1"])
    if code == NO_DEVICE and len(said.splitlines()) == 1 and "no CUDA device" in said:
        return None
    return None if code == 0 else f"the program ends with {code}: {said[-500:]}"


def build(args, path, options, shared):
    with tempfile.TemporaryDirectory(prefix="ullage-nvcc-") as work:
        folder = os.path.join(work, "source")
        problem = emit(args, path, [*options, "--weights", "file"], "cuda", folder)
        if problem:
            return problem
        share(shared, folder)
        make = ["make", "-s", f"-j{args.jobs}", "-C", folder, f"NVCC={args.nvcc}",
                f"WARNINGS={WARNINGS}"]  # fmt: skip
        code, said = run(make + ([f"CUDA_ARCH={args.arch}"] if args.arch else []))
        if code != 0 or said:
            return f"make: exit {code}: {said[-2000:]}"
        keep(folder, shared)
        return starts(os.path.join(folder, "program"))


def find_nvcc(given):
    usual = "/usr/local/cuda/bin/nvcc"
    return given or shutil.which("nvcc") or (usual if os.access(usual, os.X_OK) else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--nvcc")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--arch", help="CUDA_ARCH of make (default: the Makefile's)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    args.ullage, args.nvcc = os.path.abspath(args.ullage), find_nvcc(args.nvcc)
    if args.nvcc is None:
        print("build.py: nvcc is not installed; no folder was built")
        return 77
    failed = 0
    pattern = "^(" + "|".join(args.names or [".*"]) + ")$"
    with tempfile.TemporaryDirectory(prefix="ullage-objects-") as shared:
        for name, path, options in part(reference_bytes.networks(args.small, pattern)):
            problem = build(args, path, options, shared)
            failed += problem is not None
            print(f"FAIL {name}: {problem}" if problem else f"ok {name}", flush=True)
        problem = emit(args, reference_bytes.ROOT + "/models/digits/digits.onnx",
                       ["--dim", "N=1"], "c", os.path.join(shared, "c"))  # fmt: skip
    if problem:
        print(f"FAIL {problem}")
    return 6 if failed or problem else 0


if __name__ == "__main__":
    sys.exit(main())
