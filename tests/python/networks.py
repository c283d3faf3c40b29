#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks as callables, beside onnxruntime, on targets c and cpu, from several threads and several
processes.

usage: networks.py [NAME...] with $ULLAGE, or installed (cases.py)."""

import os
import subprocess
import sys
import tempfile
import threading

import cases

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"networks.py: skipped: {error}")
    sys.exit(77)

import ullage

NETWORKS = ["resnet50", "mobilenet_v2", "bert_base", "gpt2", "lstm", "unet", "qdq_convnet"]


def network(name, folder):
    path = os.path.join(folder, f"{name}.onnx")
    make = os.path.join(cases.ROOT, "models", "make.py")
    subprocess.run(
        [sys.executable, make, name, "--small", "-o", path], check=True, capture_output=True
    )
    return path


def inputs(model, seed):
    random = numpy.random.default_rng(seed)
    for tensor in model.inputs:
        if tensor.dtype.kind in "iu":
            yield random.integers(0, 2, tensor.shape).astype(tensor.dtype)
        else:
            yield random.standard_normal(tensor.shape).astype(tensor.dtype)


def listed(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def check(target):
    with tempfile.TemporaryDirectory() as folder:
        for name in NETWORKS:
            path = network(name, folder)
            model = ullage.compile(path, target=target)
            session = onnxruntime.InferenceSession(path)
            for seed in range(2):
                given = list(inputs(model, seed))
                kept = [x.copy() for x in given]
                ours = listed(model(*given))
                assert all((x == k).all() for x, k in zip(given, kept)), f"{name}: input written"
                feed = {t.name: x for t, x in zip(model.inputs, given)}
                theirs = session.run([t.name for t in model.outputs], feed)
                for tensor, mine, other in zip(model.outputs, ours, theirs):
                    error = numpy.linalg.norm(mine - other) / max(numpy.linalg.norm(other), 1e-30)
                    limit = 2e-2 if name == "qdq_convnet" else 1e-4
                    assert error <= limit, f"{name} {tensor.name}: {error}"


def test_target_c():
    check("c")


def test_target_cpu():
    check("cpu")


def test_threads_of_target_cpu():
    """Several arenas at once, each run on threads of OpenMP."""
    with tempfile.TemporaryDirectory() as folder:
        model = ullage.compile(network("mobilenet_v2", folder), target="cpu", arenas=3, threads=2)
        given = [list(inputs(model, seed)) for seed in range(4)]
        wanted = [model(*x) for x in given]
        wrong = []

        def work(x, y):
            for _ in range(20):
                if not (model(*x) == y).all():
                    wrong.append(1)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(given, wanted)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_others_run_meanwhile():
    """Python's lock is released while a model runs: another thread counts during one call."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resnet50.onnx")
        make = os.path.join(cases.ROOT, "models", "make.py")
        subprocess.run([sys.executable, make, "resnet50", "-o", path], check=True,
                       capture_output=True)  # fmt: skip
        model = ullage.compile(path, target="c")
    given = list(inputs(model, 0))
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    model(*given)
    during = counted[0] - before
    ended.set()
    thread.join()
    assert during > 1000, during


FORKED = """
import os, signal, sys, numpy, ullage
model = ullage.load(sys.argv[1])
x = numpy.ones(model.inputs[0].shape, model.inputs[0].dtype)
model(x)
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        (model if sys.argv[2] == "call" else ullage.load(sys.argv[1]))(x)
    except ullage.RunError as error:
        os._exit(42 if "forked" in str(error) else 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_is_no_hang():
    """Where threads are gone the child is told so; with one thread it runs."""
    with tempfile.TemporaryDirectory() as folder:
        network_path = network("mobilenet_v2", folder)
        for threads, code in ((2, 42), (1, 0)):
            path = os.path.join(folder, f"{threads}.so")
            ullage.compile(network_path, target="cpu", threads=threads, path=path)
            for what in ("call", "load"):
                done = subprocess.run(
                    [sys.executable, "-c", FORKED, path, what], capture_output=True, text=True,
                    timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    check=True,
                )  # fmt: skip
                assert int(done.stdout) == code, (what, done.stdout)


MEMORY = """
import sys, numpy, ullage
from ullage import _compile, _trainer
def anonymous():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
numpy.zeros(1)
before = anonymous()
model = ullage.load(sys.argv[1])
given = [numpy.ones(t.shape, t.dtype) for t in model.inputs]
arrays = sum(x.nbytes for x in given) + sum(t.nbytes for t in model.outputs)
for _ in range(3):
    model(*given)
print(anonymous() - before - arrays)
"""


def test_memory_is_what_the_plan_says():
    """A process that loads and runs a model takes as much more memory of its own, beside the arrays
    and pages of files."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "mobilenet_v2.onnx")
        make = os.path.join(cases.ROOT, "models", "make.py")
        subprocess.run([sys.executable, make, "mobilenet_v2", "-o", model], check=True,
                       capture_output=True)  # fmt: skip
        for target in ("c", "cpu"):
            path = os.path.join(folder, f"{target}.so")
            plan = ullage.compile(model, target=target, path=path).plan
            done = subprocess.run(
                [sys.executable, "-c", MEMORY, path], capture_output=True, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True,
            )  # fmt: skip
            taken = int(done.stdout)
            print(f"{target}: {taken} bytes taken, {plan.process_bytes} planned")
            assert abs(taken - plan.process_bytes) < max(3 << 19, 0.03 * plan.process_bytes)


def test_budgets():
    """A budget of the library: buffer and what oneDNN keeps; the same numbers come out."""
    with tempfile.TemporaryDirectory() as folder:
        path = network("unet", folder)
        whole = ullage.compile(path, target="c")
        budget = ullage.plan(path, target="c", sweep=True)[-1]["reserved_bytes"]
        small = ullage.compile(path, target="c", budget=budget, budget_of="arena")
        assert small.arena_bytes <= budget < whole.arena_bytes
        given = list(inputs(whole, 0))
        assert (small(*given) == whole(*given)).all()


def test_onnx_external_data():
    with tempfile.TemporaryDirectory() as folder:
        path = network("lstm", folder)
        beside = os.path.join(folder, "beside.onnx")
        onnx.save(onnx.load(path), beside, save_as_external_data=True, size_threshold=0)
        a, b = ullage.compile(path, target="c"), ullage.compile(beside, target="c")
        given = list(inputs(a, 0))
        assert all((x == y).all() for x, y in zip(listed(a(*given)), listed(b(*given))))


if __name__ == "__main__":
    cases.run(globals())
