#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Integers on ARM of 64 bits: the bits of the host's program, by instructions for products of bytes.

    arm64.py ULLAGE [--march NAME] [--keep DIR]

The quantized operators of integers.py that have a form without floats are compiled for target c by
ARM's compiler, for processors without such instructions, with sdot and udot, and with usdot, and run
under qemu: outputs must be those of the host, bit for bit, and the object code must hold the
instructions that the processor has. Exit: 0 ok, 1 not, 77 aarch64-linux-gnu-gcc, qemu-aarch64 or a
Python package is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

CPUS = {  # what the compiler is told, and what it must have used
    "armv8-a": set(),
    "armv8.2-a+dotprod": {"sdot", "udot"},
    "armv8.2-a+dotprod+i8mm": {"sdot", "udot", "usdot"},
}
EMULATORS = ("qemu-aarch64", "qemu-aarch64-static")
PRODUCTS = re.compile(r"\t(sdot|udot|usdot)\t")


def tools():
    """The emulator and None, or None and what is missing."""
    for tool in ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump"):
        if shutil.which(tool) is None:
            return None, tool
    emulator = next((tool for tool in EMULATORS if shutil.which(tool)), None)
    try:
        import onnx, onnxruntime  # noqa: F401
    except ImportError as error:
        return None, str(error)
    return emulator, EMULATORS[0]


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"FAIL {' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def check(ullage, emulator, march, path, folder, model, wanted):
    """What is wrong."""
    program, out = os.path.join(folder, march), os.path.join(folder, f"{march}.out")
    run([ullage, "compile", path, "-o", program, "--target", "c", "--no-float", "--march", march,
         "--cc", "aarch64-linux-gnu-gcc", "--cflags", "-O2 -static"])
    used = set(PRODUCTS.findall(run(["aarch64-linux-gnu-objdump", "-d", program])))
    faults = [] if used >= CPUS[march] else [f"{march}: {' '.join(sorted(used))} in the object code"]
    command = [emulator, "-cpu", "max", program, "--output-dir", out]
    for value in model.inputs:
        command += ["--input", f"{value.name}={os.path.join(folder, value.name)}.npy"]
    run(command)
    for name, want in wanted.items():
        if not np.array_equal(np.load(os.path.join(out, f"{name}.npy")), want):
            faults.append(f"{march}: {name} differs from the host's")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("--march", choices=CPUS, help="this processor alone")
    parser.add_argument("--keep", help="a folder for what is made")
    arguments = parser.parse_args()
    cpus = [arguments.march] if arguments.march else list(CPUS)
    emulator, lacks = tools()
    if emulator is None:
        print(f"arm64.py: skipped: no {lacks}")
        return 77
    import integers
    import microcontroller

    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(arguments.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        path, model = microcontroller.make_model(folder)
        wanted = integers.run(arguments.ullage, path, folder, model.feeds,
                              ["--target", "c", "--no-float"])
        for march in cpus:
            faults += check(arguments.ullage, emulator, march, path, folder, model, wanted)
    for fault in faults:
        print(f"FAIL {fault}")
    print(f"{len(wanted)} outputs on {len(cpus)} processors, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
