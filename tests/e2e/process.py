#!/usr/bin/env python3
"""What the process of a program takes.

    process.py same ULLAGE PEAK     --bench and --repeat take what one run does, however large the
                                    inputs are

PEAK is the program of peak.c. Exit: 0 ok, 1 a promise is broken, 77 something is missing here.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    from onnx import parser, save
except ImportError as error:
    print(f"process.py: skipped: {error}")
    sys.exit(77)

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
MIB = 1 << 20
# 8 MiB in, of which the plan keeps none behind the first step.
LARGE_INPUT = "g (float[2048,1024] x) => (float[2048,1024] y) { t = Neg (x) y = Relu (t) }"


def run(command, codes=(0,)):
    done = subprocess.run(command, capture_output=True, timeout=900)
    if done.returncode not in codes:
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done


def peak_bytes(peak, command, folder):
    """Resident bytes and those of page tables, at most."""
    path = os.path.join(folder, "peak")
    done = subprocess.run([peak, path, *command], capture_output=True, timeout=900)
    if done.returncode == 125:
        print("process.py: skipped: this machine lets nobody look at a process")
        sys.exit(77)
    if done.returncode not in (0, 2):
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    with open(path) as file:
        return sum(int(word) for word in file.read().split())


def once(folder):
    return ["--random", "1", "--output-dir", os.path.join(folder, "out")]


BENCH = ["--bench", "--iterations", "4", "--duration", "0"]


def same(ullage, peak, folder):
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    save(parser.parse_model(HEAD + LARGE_INPUT), model)
    run([ullage, "compile", model, "--target", "c", "-o", program])
    first = peak_bytes(peak, [program, *once(folder)], folder)
    for more in (BENCH, [*once(folder), "--repeat", "3"]):
        taken = peak_bytes(peak, [program, *more], folder)
        if taken > first + MIB:
            raise RuntimeError(f"{' '.join(more)}: {taken} bytes, one run takes {first}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("what", choices=["same"])
    arguments.add_argument("ullage")
    arguments.add_argument("peak")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            globals()[options.what](options.ullage, options.peak, folder)
        except RuntimeError as error:
            print(f"process.py: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
