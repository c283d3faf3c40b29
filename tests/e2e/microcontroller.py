#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--no-float on ARM's microcontrollers: no floats in the object code, the bits of the host's program.

    microcontroller.py ULLAGE [--keep DIR]

The quantized operators of integers.py that have a form without floats are compiled to a library with
--no-float and --weights rom, built for Cortex-M0 and Cortex-M4 with floating point, looked at with nm
and objdump, and run under qemu: outputs must be those of the host, bit for bit. The same with the
buffer in two memories (--space), which the linker puts at addresses of their own. Exit: 0 ok, 1 not,
77 arm-none-eabi-gcc, qemu-system-arm or a Python package is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CPUS = {  # the board that qemu runs it on, the processor's flag, and of the unit for floats that it has
    "cortex-m0": ("mps2-an385", "-mcpu=cortex-m0", ["-mfloat-abi=soft"]),
    "cortex-m4": ("mps2-an386", "-mcpu=cortex-m4", ["-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]),
}
# Options of each layout, and the linker script that it is built with.
LAYOUTS = {
    "one": (["--weights", "rom"], "microcontroller.ld"),
    "two": (["--space", "dtcm=8KiB,bandwidth=8GB/s", "--space", "psram=16MiB,bandwidth=100MB/s"], "two_banks.ld"),
}
# What the compiler calls for floats, and instructions of a unit for them.
FLOAT_CALLS = re.compile(r" U (__aeabi_(c?[fd]|[a-z0-9]+2[fd])\w*|\w*[sd]f[0-9]\w*)$", re.M)
FLOAT_CODE = re.compile(r"\tv(?!push|pop|ldm|stm)[a-z]+(\.f\d\d|\.s\d\d|\.u\d\d)+\t")


def missing():
    for tool in ("arm-none-eabi-gcc", "arm-none-eabi-nm", "qemu-system-arm"):
        if shutil.which(tool) is None:
            return tool
    try:
        import numpy, onnx, onnxruntime  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


def run(command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=100, **more)
    if done.returncode != 0:
        sys.exit(f"FAIL {' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def make_model(folder):
    import integers
    import onnx

    model = integers.Model()
    for case in integers.CASES:
        if case not in integers.FLOATS:
            model.case = case.__name__
            case(model)
    path = os.path.join(folder, "integers.onnx")
    onnx.save(model.build(), path)
    return path, model


def build(emitted, cpu, flag, unit, script):
    """The program, and what is wrong with the object code of the model where it uses floats."""
    compiler = ["arm-none-eabi-gcc", "-O2", "-mthumb", "-std=c99", flag]
    run([*compiler, *unit, "-Wall", "-c", "model.c", "-o", "model.o"], cwd=emitted)
    calls = FLOAT_CALLS.findall(run(["arm-none-eabi-nm", "model.o"], cwd=emitted))
    code = FLOAT_CODE.findall(run(["arm-none-eabi-objdump", "-d", "model.o"], cwd=emitted))
    faults = [f"{cpu}: model.o calls {call[0]}" for call in calls]
    faults += [f"{cpu}: model.o has {len(code)} instructions on floats"] if code else []
    print(run(["arm-none-eabi-size", "model.o"], cwd=emitted).splitlines()[-1].strip(), cpu)
    program = f"{cpu}.elf"
    rom = ["rom.S"] if os.path.exists(os.path.join(emitted, "rom.S")) else []
    run([*compiler, "-I.", "--specs=rdimon.specs", "-T", os.path.join(HERE, script),
         os.path.join(HERE, "microcontroller.c"), "model.c", *rom, "-o", program], cwd=emitted)
    return program, faults


def run_layout(emitted, model, wanted, script):
    """What is wrong on any processor."""
    faults = []
    for i, value in enumerate(model.inputs):
        model.feeds[value.name].tofile(os.path.join(emitted, f"input_{i}.bin"))
    for cpu, (board, flag, unit) in CPUS.items():
        program, wrong = build(emitted, cpu, flag, unit, script)
        faults += wrong
        run(["qemu-system-arm", "-machine", board, "-nographic", "-semihosting-config",
             "enable=on,target=native", "-kernel", program], cwd=emitted)
        for i, output in enumerate(model.outputs):
            path = os.path.join(emitted, f"output_{i}.bin")
            with open(path, "rb") as file:
                if file.read() != wanted[output.name].tobytes():
                    faults.append(f"{cpu}, {script}: {output.name} differs from the host's")
            os.remove(path)
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("--keep", help="a folder for what is made")
    arguments = parser.parse_args()
    lacks = missing()
    if lacks:
        print(f"microcontroller.py: skipped: no {lacks}")
        return 77
    import integers

    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(arguments.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        path, model = make_model(folder)
        options = ["--target", "c", "--no-float"]
        wanted = integers.run(arguments.ullage, path, folder, model.feeds, options)
        for layout, (more, script) in LAYOUTS.items():
            emitted = os.path.join(folder, layout)
            run([arguments.ullage, "compile", path, *options, *more, "--emit", emitted])
            faults += run_layout(emitted, model, wanted, script)
    for fault in faults:
        print(f"FAIL {fault}")
    print(f"{len(model.outputs)} outputs on {len(CPUS)} processors in {len(LAYOUTS)} layouts, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
