#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python package costs: importing it, a call of a model, and the way from the wheel to a first result.

    callable.py --ullage build/release/cli/ullage [--wheel build/wheel/ullage-*.whl] [--model resnet50]

A call: a model of one addition of four numbers, which takes nothing, called from Python and from C
through the same shared library, beside onnxruntime's session.run where that is installed. The least
of many rounds, since what disturbs only adds. Importing: the least of many processes, with numpy and
with numpy and ullage. First result, with --wheel: pip install of the wheel into a new venv that has
numpy, then FIRST of below, a process that compiles a network and runs it once.
Exit: 0, 6 when a limit is passed: 20 us a call above C, 0.1 s to import, 5 s to the first result.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "python"))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

C_LOOP = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW), *handle;
    int (*begin)(void **, void *, size_t, void *, size_t, const void *, void *);
    int (*run)(void *, const void *const *, void *const *, void *);
    uint64_t (*arena_bytes)(void);
    *(void **)&begin = dlsym(library, "model_begin");
    *(void **)&run = dlsym(library, "model_run");
    *(void **)&arena_bytes = dlsym(library, "model_arena_bytes");
    size_t bytes = (size_t)arena_bytes();
    float a[4] = {1, 2, 3, 4}, b[4] = {1, 1, 1, 1}, c[4];
    const void *inputs[] = {a, b};
    void *outputs[] = {c}, *arena = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (argc < 2 || begin(&handle, arena, bytes, NULL, 0, NULL, NULL) != 0)
        return 1;
    double least = 1;
    for (int round = 0; round < 200; round++) {
        double start = now();
        for (int i = 0; i < 10000; i++)
            run(handle, inputs, outputs, NULL);
        double took = (now() - start) / 10000;
        least = took < least ? took : least;
    }
    printf("%.9f\n", least);
    return 0;
}
"""

FIRST = """
import sys, time
begin = time.perf_counter()
import numpy, ullage
model = ullage.compile(sys.argv[1])
x = numpy.zeros(model.inputs[0].shape, numpy.float32)
y = model(x)
print(time.perf_counter() - begin, y.shape)
"""


def add_model():
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [4])])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def least(call, rounds=300, count=200):
    best = 1.0
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    return best


def bench_call():
    """Seconds above C of a call, with what else is told."""
    import numpy
    import ullage

    with tempfile.TemporaryDirectory() as folder:
        path, source, program = (os.path.join(folder, n) for n in ("m.so", "loop.c", "loop"))
        model = ullage.compile(add_model(), target="c", path=path)
        with open(source, "w", encoding="ascii") as file:
            file.write(C_LOOP)
        subprocess.run(["cc", "-O2", "-o", program, source, "-ldl"], check=True)
        from_c = float(subprocess.run([program, path], capture_output=True, check=True).stdout)
        a, b = numpy.arange(4, dtype=numpy.float32), numpy.ones(4, numpy.float32)
        out = numpy.empty(4, numpy.float32)
        plain = least(lambda: model(a, b))
        given = least(lambda: model(a, b, out=out))
        print(f"a call from C {1e6 * from_c:.3f} us, from Python {1e6 * plain:.2f} us, with out= "
              f"{1e6 * given:.2f} us")  # fmt: skip
        try:
            import onnxruntime

            session = onnxruntime.InferenceSession(add_model())
            feed = {"a": a, "b": b}
            print(f"onnxruntime's session.run {1e6 * least(lambda: session.run(None, feed)):.2f} us")
        except ImportError:
            print("onnxruntime is not installed")
        return max(plain, given) - from_c


def bench_import():
    def process(names):
        code = f"import time; b = time.perf_counter(); import {names}; print(time.perf_counter() - b)"
        return min(
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True,
                                 env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}).stdout)
            for _ in range(15)
        )  # fmt: skip

    numpy, both = process("numpy"), process("numpy, ullage")
    used = process("numpy, ullage, ullage._plan, ullage._model, ullage._trainer, ullage._compile")
    print(f"importing numpy {numpy:.4f} s, numpy and ullage {both:.4f} s, with all that its "
          f"functions load {used:.4f} s")  # fmt: skip
    return used - numpy


def bench_first(wheel, name):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{name}.onnx")
        subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), name, "-o", path],
                       check=True, capture_output=True)  # fmt: skip
        venv = os.path.join(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        python = os.path.join(venv, "bin", "python")
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "numpy"], check=True)
        begin = time.perf_counter()
        subprocess.run([*pip, "--no-index", wheel], check=True)
        installed = time.perf_counter() - begin
        environment = {k: v for k, v in os.environ.items() if k not in ("ULLAGE", "PYTHONPATH")}
        begin = time.perf_counter()
        done = subprocess.run([python, "-c", FIRST, path], capture_output=True, text=True,
                              env=environment, check=True)  # fmt: skip
        ran = time.perf_counter() - begin
        print(f"pip install {installed:.2f} s, {name} compiled and run once {ran:.2f} s (of it in "
              f"Python {done.stdout.strip()}); {len(FIRST.split(chr(10))) - 2} lines")  # fmt: skip
        return installed + ran


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--wheel")
    parser.add_argument("--model", default="resnet50")
    arguments = parser.parse_args()
    if arguments.wheel and not os.path.isfile(arguments.wheel):
        parser.error(f"{arguments.wheel}: there is no such wheel; scripts/build_wheel.sh makes one")
    os.environ["ULLAGE"] = os.path.abspath(arguments.ullage)
    passed = [bench_call() > 20e-6, bench_import() > 0.1]
    if arguments.wheel:
        passed.append(bench_first(os.path.abspath(arguments.wheel), arguments.model) > 5)
    sys.exit(6 if any(passed) else 0)


if __name__ == "__main__":
    main()
