#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradient of attention by the emulated cuDNN.

    attention_gradient.py ULLAGE [NAME]...

ULLAGE is a compiler that hands over all that the libraries take (ullage_calls). The cases are those
of tests/e2e/attention_gradient.py in which the gradient is a call. Gradients are held against the
same network in double on target c: where the library runs the call, with slopes of all scores in
its workspace and, on a device of compute capability 10, without, and where it has nothing for it.
Two runs, --pack none and the smallest budget have the same bits; --guard finds nothing; with --tune
and the file that it writes the numbers are the same or nearly so. A network in which nothing needs
more than attention keeps kernels of ours, whose scratch is small.
Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import attention_gradient  # exits with 77 where a package is missing
from gradient_cases import LIMITS, RATE, gradients, options_of
from learn import check_numbers

import numpy

if shutil.which("g++") is None:
    print("attention_gradient.py: skipped: g++ is missing")
    sys.exit(77)

QUICK = "call-causal_bf16"  # what the quick tier runs
CALLED = ("call", "call-causal", "call-masked")
CALLS = [f"{name}_{precision}" for name in CALLED for precision in ("bf16", "amp-fp16")]


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stderr


def need(good, text):
    if not good:
        raise AssertionError(text)


class Trainer:
    """One of the case, by options of the compiler."""

    def __init__(self, ullage, folder, case, precision, *words):
        self.case, self.folder, self.program = case, folder, os.path.join(folder, "trainer")
        model, plan = os.path.join(folder, "net.onnx"), os.path.join(folder, "plan.json")
        case.write(model, {k: v.astype(numpy.float32) for k, v in case.weights.items()}, numpy.float32)
        numpy.save(os.path.join(folder, "x.npy"), case.data.astype(numpy.float32))
        numpy.save(os.path.join(folder, "y.npy"), case.labels.astype(numpy.float32))
        run(ullage, "compile", model, "-o", self.program, "--target", "cuda", "--cflags", "-O1",
            "--json", plan, *options_of(precision), *words)
        with open(plan, encoding="utf-8") as file:
            self.plan = json.load(file)

    def implementation(self):
        steps = self.plan["steps"]
        return [how for op, how in zip(steps["op"], steps["implementation"]) if op == "AttentionGradient"]

    def train(self, *words, **environment):
        """Parameters after a step, and what the program says."""
        x, y, saved = (os.path.join(self.folder, name) for name in ("x.npy", "y.npy", "saved.npz"))
        text = run(self.program, "--data", x, "--labels", y, "--save", saved, "--steps", "1", "--seed",
                   "1", *words, **environment)
        with numpy.load(saved) as file:
            return {key: file[key] for key in file}, text


def check_gradients(case, name, want, saved, precision):
    for key, value in want.items():
        got = (case.weights[key].astype(numpy.float32) - saved[key]) / RATE
        check_numbers(f"{name}: gradient of {key}", got * 1e3, value * 1e3, LIMITS[precision])


def profile(folder):
    """A device of compute capability 10."""
    path = os.path.join(folder, "profile.json")
    kinds = ("matmul_f32", "matmul_f64", "matmul_f16", "matmul_int8", "matmul_tf32", "window", "vector",
             "special", "scalar")
    text = {"format": "ullage-profile", "version": 1, "name": "ten", "source": "a test",
            "overhead_nanoseconds": 1500, "device": {"processors": 148, "launch_cycles": 4000, "compute_capability": 100},
            "giga_operations_per_second": {kind: 50000 for kind in kinds},
            "memory_levels": [{"up_to_bytes": None, "gigabytes_per_second": 8000}]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(text, file)
    return path


def same(a, b):
    return all(a[key].tobytes() == b[key].tobytes() for key in b)


def check_slow(trainer, case, want, precision, tuned, choices):
    """Kernels of ours take less time than a library that waits."""
    got, text = trainer.train("--tune", choices, UL_EMULATE_SLOW_CUDNN="500")
    need(not same(got, tuned), "--tune keeps an engine that is slower than kernels of ours")
    need("kernels of the program" not in text, f"kernels of ours are no algorithm that lacks: {text}")
    check_gradients(case, "--tune, slow", want, got, precision)
    need(same(trainer.train("--choices", choices)[0], got), "what --tune has chosen has other bits")


def check(ullage, name, folder):
    base, _, precision = name.partition("_")
    case = attention_gradient.make(base)
    if base not in CALLED:
        how = Trainer(ullage, folder, case, precision).implementation()
        need(how == ["ullage"], f"the gradient is by {how}, for which plans have no room")
        return
    want = gradients(ullage, folder, case, numpy.float64, "c", "fp32")
    trainer = Trainer(ullage, folder, case, precision)
    need(trainer.implementation() == ["cudnn"], f"the gradient is by {trainer.implementation()}")
    bits, text = trainer.train()
    need("kernels of the program" not in text, f"the library does not run it: {text}")
    check_gradients(case, "by cuDNN", want, bits, precision)
    need(same(trainer.train()[0], bits), "a second run has other bits")
    run(trainer.program, "--guard", "--random", "5")
    own, text = trainer.train(UL_EMULATE_NO_ALGORITHMS="1")
    need("kernels of the program run" in text, "the library runs what it has nothing for")
    check_gradients(case, "by kernels of ours", want, own, precision)
    need(not same(own, bits), "kernels of ours run in both")
    choices = os.path.join(folder, "choices")
    check_gradients(case, "--tune", want, trainer.train("--tune", choices)[0], precision)
    tuned, text = trainer.train("--choices", choices)
    need(same(trainer.train("--choices", choices)[0], tuned), "choices of a file have other bits")
    need("kernels of the program" not in text, f"the library does not run what it was chosen for: {text}")
    if name == QUICK:
        check_slow(trainer, case, want, precision, tuned, choices)
    smallest = str(trainer.plan["smallest_budget_bytes"])
    for words in (["--pack", "none"], ["--budget", smallest]):
        other = Trainer(ullage, folder, case, precision, *words)
        need(other.implementation() == ["cudnn"], f"{words}: by {other.implementation()}")
        need(same(other.train()[0], bits), f"{words}: other bits")
    lean = Trainer(ullage, folder, case, precision, "--profile", profile(folder))
    need(lean.implementation() == ["cudnn"], f"b200: by {lean.implementation()}")
    got, text = lean.train(UL_EMULATE_MAJOR="10")
    need("kernels of the program" not in text, f"b200: the library does not run it: {text}")
    check_gradients(case, "b200", want, got, precision)
    text = lean.train()[1]
    need("kernels of the program run" in text, "without a workspace there is an engine")


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(HERE, "nvcc"))
    failed = 0
    for name in sys.argv[2:] or [*CALLS, "net-causal_bf16"]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(ullage, name, folder)
                print(f"{name}: ok")
            except AssertionError as error:
                print(f"{name}: {error}")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
