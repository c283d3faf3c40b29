#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folder of --emit --library: what it holds, and that make, CMake and pkg-config know it.

    library_form.py ULLAGE [--target c|cpu|cuda] [--within]

The folder has the files that its sources include and no others, named by --prefix: of digits on
target c those of DIGITS_C, of every model what the compiler opens; no generated source includes a
header that it could do without. It is built and
installed by make and by CMake; what is installed is moved, and then found by find_package and by
pkg-config for a program in C++ (shared_library.cc), linked with the shared and the static library.
gcc takes from the source what another compiler must be told: code is the same with the flag and
without. With --within a project takes the folder by add_subdirectory as well.
Exit: 0 ok, 1 a promise is broken, 77 something is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits")
FORM = {"CMakeLists.txt", "LICENSE", "Makefile", "digits-config.cmake", "digits.c", "digits.h", "digits.pc",
        "library.c", "weights.S", "weights.bin"}  # fmt: skip
# What digits on target c has beside FORM: the model's description; its runs; kernels and their floats; their
# products; weights that are loaded; what library.c answers.
DIGITS_C = {"ul_model.h", "ul_run.h", "ul_kernel.h", "ul_scalar.h", "ul_contract.h", "ul_weights.h", "ul_binding.h"}
# Models, how they are compiled for target c, and what they have more than digits, or do without.
OTHERS = [
    ("digits", "--weights rom", set(), {"ul_weights.h"}),
    ("digits", "--precision fp16", {"ul_small_float.h"}, set()),
    ("digits", "--quantize int8:*", {"ul_integer.h", "ul_small_float.h"}, set()),
    ("untrained", "--train --train-mode --loss softmax-cross-entropy --output /fc/Gemm_output_0",
     {"ul_train.h", "ul_binding_train.h", "ul_random.h", "ul_integer.h"}, set()),
]  # fmt: skip
PROJECT = """cmake_minimum_required(VERSION 3.18)
project(caller LANGUAGES CXX)
find_package(digits REQUIRED)
add_executable(caller caller.cc)
target_link_libraries(caller PRIVATE digits::digits)
"""
WITHIN = PROJECT.replace("CXX", "C CXX").replace("find_package(digits REQUIRED)", "add_subdirectory(digits)")


def run(command, folder, **environment):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder, check=False,
                          env={**os.environ, **environment})  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


def expect(what, good):
    if not good:
        raise RuntimeError(what)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def opened(folder, sources, *flags):
    """The files of the folder that a compiler opens."""
    rules = run(["gcc", "-std=c99", "-MM", *flags, *sources], folder)
    return {name for name in re.findall(r"[\w./-]+\.\w+", rules) if not name.endswith(".o")}


def included(folder, sources):
    """The same by the text, for want of a compiler."""
    seen, todo = set(), list(sources)
    while todo:
        name = todo.pop()
        seen.add(name)
        text = read(os.path.join(folder, name)).decode()
        todo += [other for other in re.findall(r'^#include "(\w+\.\w+)"', text, re.M)
                 if other not in seen and not other.startswith("ul_emulate")]  # of tests/cuda_emulation
    return seen


def check_files(folder, target):
    """All that is opened, and nothing else."""
    names = set(os.listdir(folder))
    sources = sorted(name for name in names if name.endswith((".c", ".cu")))
    seen = included(folder, sources) if target == "cuda" else opened(folder, sources)
    runtime = {name for name in names if name.startswith("ul_")}
    expect(f"files {names ^ (FORM | runtime)}", names ^ (FORM | runtime) == ({"kernels.cu"} if target == "cuda" else set()))
    expect(f"not included {runtime - seen}, not there {seen - names}", runtime <= seen <= names)
    expect(f"of digits {runtime ^ DIGITS_C}", target != "c" or runtime == DIGITS_C)
    expect("a licence in each", all(b"SPDX-License-Identifier: 0BSD" in read(os.path.join(folder, name))
                                    for name in names - {"LICENSE", "weights.bin"}))  # fmt: skip
    print(f"{target}: {len(names)} files")


def check_includes(folder):
    """Without any of its lines a generated source does not compile, or opens the header all the same."""
    for name in ("digits.c", "library.c"):
        text = read(os.path.join(folder, name)).decode()
        for line, header in re.findall(r'^(#include "(ul_\w+\.h)"\n)', text, re.M):
            with open(os.path.join(folder, "less.c"), "w", encoding="ascii") as file:
                file.write(text.replace(line, ""))
            command = ["gcc", "-std=c99", "-fopenmp", "-fsyntax-only", "-Werror=implicit-function-declaration", "less.c"]
            does = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
            expect(f"{name} includes {header} for nothing", not does or header in opened(folder, ["less.c"]))
    os.remove(os.path.join(folder, "less.c"))


def check_others(ullage, work):
    """Also of a model whose own names are like the runtime's, which says nothing of what it uses."""
    with open(os.path.join(work, "named.onnx"), "wb") as file:
        file.write(read(os.path.join(DIGITS, "digits.onnx")).replace(b"/stem/0/Conv", b"ul_offload_a"))
    named = (os.path.join(work, "named"), "", set(), set())
    for model, options, more, less in [*OTHERS, named]:
        folder = os.path.join(work, "other_model")
        run([ullage, "compile", os.path.join(DIGITS, f"{model}.onnx"), "--target", "c", "--dim", "N=4", *options.split(),
             "--library", "--emit", folder], work)  # fmt: skip
        runtime = {name for name in os.listdir(folder) if name.startswith("ul_")}
        expect(f"{options}: {sorted(runtime)}", runtime == (DIGITS_C | more) - less)
        sources = [name for name in os.listdir(folder) if name.endswith(".c")]
        expect(f"{options}: not opened", runtime <= opened(folder, sources))
        shutil.rmtree(folder)


def check_aliasing(folder):
    codes = []
    for flags in (["-fno-strict-aliasing", "-DUL_MAY_ALIAS"], []):
        run(["gcc", "-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-c", "digits.c", "-o", "digits.o"], folder)
        codes.append(run(["objdump", "-d", "digits.o"], folder))
    expect("the pragma is not the flag", codes[0] == codes[1])
    os.remove(os.path.join(folder, "digits.o"))


def check_names(archive, target):
    """All begin with the prefix; on target cpu others are the runtime's, the same for every model."""
    names = {line.split()[-1] for line in run(["nm", "-g", "--defined-only", archive], ".").splitlines() if " " in line}
    apart = {name for name in names if not name.startswith("digits_")}
    expect(f"names {apart}", all(target == "cpu" and name.startswith("ul_") for name in apart) and len(names) > len(apart))


class Caller:
    """A program that calls the library, and what it is to answer."""

    def __init__(self, work, target):
        self.work = work
        with open(os.path.join(HERE, "shared_library.cc"), encoding="ascii") as file:
            text = file.read().replace("model_", "digits_").replace("model.h", "digits.h").replace("MODEL_", "DIGITS_")
        if target == "cuda":  # whose handle is a context, with an arena that it takes itself
            text = text.replace("run(handle,", "run(static_cast<ul_context *>(handle),")
            text = text.replace("&handle, arena, digits_arena_bytes()", "&handle, nullptr, 0")
        self.put("caller.cc", text)
        # Tensors of ONNX end in their raw data: 16 images of 64 floats, 16 times 10 scores.
        self.put("x.raw", read(os.path.join(DIGITS, "test_data_set_0", "input_0.pb"))[-16 * 64 * 4 :])

    def put(self, name, text):
        with open(os.path.join(self.work, name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def check(self, program, reference, **environment):
        """The scores are the reference's bits; the first one is that."""
        run([program, "x.raw", "y.raw"], self.work, **environment)
        scores = read(os.path.join(self.work, "y.raw"))
        expect(f"{program}: {len(scores)} bytes, not the same", len(scores) == 640 and reference in (None, scores))
        return scores

    def project(self, name, text, *options):
        folder = os.path.join(self.work, name)
        os.mkdir(folder)
        shutil.copy(os.path.join(self.work, "caller.cc"), folder)
        self.put(os.path.join(name, "CMakeLists.txt"), text)
        return folder, os.path.join(folder, "b"), ["cmake", "-S", folder, "-B", os.path.join(folder, "b"), *options]


def link(caller, opt, name, static, *more):
    pc = {"PKG_CONFIG_PATH": os.path.join(opt, "lib", "pkgconfig")}
    flags = run(["pkg-config", *(["--static"] if static else []), "--cflags", "--libs", "digits"], caller.work, **pc).split()
    run(["g++", "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", name, "caller.cc", *flags, *more], caller.work)
    return os.path.join(caller.work, name)


def check_make(caller, folder, opt, target):
    """Installed by make, found by pkg-config and by CMake."""
    built = os.path.join(caller.work, "built")
    shutil.copytree(folder, built)
    run(["make", "-s", "-j2", "install", f"prefix={opt} at first", "CFLAGS=-O1"], built)
    os.rename(f"{opt} at first", opt)
    check_names(os.path.join(opt, "lib", "libdigits.a"), target)
    lib = {"LD_LIBRARY_PATH": os.path.join(opt, "lib")}
    scores = caller.check(link(caller, opt, "by_make", False), None, **lib)
    _, build, configure = caller.project("found", PROJECT, f"-DCMAKE_PREFIX_PATH={opt}")
    run(configure, caller.work)
    run(["cmake", "--build", build], caller.work)
    caller.check(os.path.join(build, "caller"), scores)
    return scores


def check_cmake(caller, folder, opt, scores):
    """Installed by CMake as an archive, found by pkg-config."""
    build = os.path.join(caller.work, "by_cmake_built")
    run(["cmake", "-S", folder, "-B", build, "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O1"], caller.work)
    run(["cmake", "--build", build, "-j2"], caller.work)
    run(["cmake", "--install", build, "--prefix", opt], caller.work)
    expect("two libraries", not os.path.exists(os.path.join(opt, "lib", "libdigits.so")))
    caller.check(link(caller, opt, "by_cmake", True), scores)


def check_within(caller, folder, scores):
    place, build, configure = caller.project("within", WITHIN, "-DBUILD_SHARED_LIBS=ON", "-DCMAKE_BUILD_TYPE=None",
                                             "-DCMAKE_C_FLAGS=-O1")  # fmt: skip
    shutil.copytree(folder, os.path.join(place, "digits"))
    run(configure, caller.work)
    run(["cmake", "--build", build, "-j2"], caller.work)
    caller.check(os.path.join(build, "caller"), scores)


def check_device(caller, folder):
    """By CUDA's own compiler, which needs no device to be there: as a shared library and as an archive,
    found by pkg-config and by CMake. The program answers, or says that there is no device."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cuda = os.path.join(os.path.dirname(os.path.realpath(nvcc)), "..")
    for shared in ("ON", "OFF"):
        build, opt = (os.path.join(caller.work, name + shared) for name in ("b", "opt"))
        run(["cmake", "-S", folder, "-B", build, f"-DBUILD_SHARED_LIBS={shared}", "-DCMAKE_CUDA_ARCHITECTURES=90",
             f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror",
             "-DCMAKE_CUDA_FLAGS=-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror"], caller.work)  # fmt: skip
        run(["cmake", "--build", build, "-j2"], caller.work)
        run(["cmake", "--install", build, "--prefix", opt], caller.work)
        programs = [link(caller, opt, f"by_cmake{shared}", shared == "OFF", f"-L{cuda}/lib64")]
        _, build, configure = caller.project(f"found{shared}", PROJECT, f"-DCMAKE_PREFIX_PATH={opt}", f"-DCUDAToolkit_ROOT={cuda}")
        run(configure, caller.work)
        run(["cmake", "--build", build], caller.work)
        for program in (*programs, os.path.join(build, "caller")):
            done = subprocess.run([program, "x.raw", "y.raw"], capture_output=True, text=True, cwd=caller.work, check=False,
                                  env={**os.environ, "LD_LIBRARY_PATH": os.path.join(opt, "lib")})  # fmt: skip
            expect(f"{program}: {done.returncode} {done.stderr}",
                   done.returncode == 0 or (done.returncode == 1 and "device" in done.stderr))  # fmt: skip


def check(ullage, target, within, work):
    folder = os.path.join(work, "digits")
    command = [ullage, "compile", os.path.join(DIGITS, "digits.onnx"), "--target", target, "--dim", "N=16", "--prefix",
               "digits", "--library", "--emit", folder]  # fmt: skip
    run(command, work)
    run(command, work)  # over an earlier result
    check_files(folder, target)
    caller = Caller(work, target)
    if target == "cuda":
        check_device(caller, folder)
        return
    check_aliasing(folder)
    check_includes(folder)
    if target == "c":
        check_others(ullage, work)
    scores = check_make(caller, folder, os.path.join(work, "opt"), target)
    check_cmake(caller, folder, os.path.join(work, "other"), scores)
    if within:
        check_within(caller, folder, scores)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--within", action="store_true")
    args = parser.parse_args()
    tools = ["cmake", "pkg-config", "g++"] + ([] if args.target != "cuda" or os.path.exists("/usr/local/cuda/bin/nvcc") else ["nvcc"])
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        print(f"library_form.py: skipped: {missing} is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        try:
            check(os.path.abspath(args.ullage), args.target, args.within, work)
        except RuntimeError as error:
            print(f"FAIL: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
