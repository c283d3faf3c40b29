#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small models made to break a compiler that fuses, aliases and reuses bytes: a file of them for each
concern beside this one.

    run.py --list
    run.py --make DIR [NAME...]               DIR/NAME/model.onnx and DIR/NAME/test_data_set_0
    run.py --run ULLAGE [--target c] [--full] [NAME...]
                                              makes each, compiles it, compares with the reference
    run.py --run ULLAGE --random 100 [--seed 1]   the same with three times as many random graphs
    run.py --plans 100 --run ULLAGE           graphs with dead branches are planned, with passes left out

The reference is onnxruntime, else ONNX's own evaluator where that has no such operator or type.
--run compiles, runs on the data, runs again with --guard, and demands the same bytes from
--pack none and from no passes; --full adds all that tests/e2e/model.sh checks.
Exit: 0 ok, 1 a model failed, 77 a Python package is missing.
"""

import argparse
import concurrent.futures
import functools
import importlib
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as error:
    print(f"run.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.dirname(HERE)
sys.path.append(os.path.dirname(E2E))

from case import MODELS  # noqa: E402
from part import part  # noqa: E402
from random_graphs import RandomDead, random_graphs  # noqa: E402

for concern in ("groups", "concat", "names", "views", "sizes", "elements", "control", "functions",
                "chains", "products", "calls", "beside"):
    importlib.import_module(concern)


def random_value(rng, info):
    kind = info.type.tensor_type
    dims = [dim.dim_value for dim in kind.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype == np.bool_:
        return rng.integers(0, 2, dims).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, dims).astype(dtype)
    return np.asarray(rng.standard_normal(dims) * 1.5).astype(dtype)


def reference(model, inputs):
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, inputs)
    except Exception as error:  # noqa: BLE001: onnxruntime's errors have no common type
        first = error
    try:
        return ReferenceEvaluator(model).run(None, inputs)
    except Exception as error:
        raise RuntimeError(f"no reference: {first}; {error}") from error


def make(name, folder):
    """Writes the model and its data; returns the case."""
    case = MODELS[name]()
    rng = np.random.default_rng(7)
    weights = {tensor.name for tensor in case.model.graph.initializer}
    inputs = {}
    for info in case.model.graph.input:
        if info.name not in weights:
            value = case.inputs.get(info.name)
            inputs[info.name] = random_value(rng, info) if value is None else value
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(case.model, os.path.join(folder, "model.onnx"))
    wanted = case.outputs or reference(case.model, inputs)
    outputs = zip(case.model.graph.output, wanted)
    for kind, pairs in (("input", inputs.items()), ("output", ((o.name, v) for o, v in outputs))):
        for i, (value_name, value) in enumerate(pairs):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                tensor = numpy_helper.from_array(np.asarray(value), value_name)
                file.write(tensor.SerializeToString())
    return case


def run(command, folder, what):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", timeout=300, check=False)  # fmt: skip
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-1500:]
        raise RuntimeError(f"{what}: exit code {done.returncode}\n{output}")


def inputs_of(case, folder):
    """Options of the program: the inputs of the data."""
    weights = {tensor.name for tensor in case.model.graph.initializer}
    names = [info.name for info in case.model.graph.input if info.name not in weights]
    options = []
    for i, name in enumerate(names):
        options += ["--input", f"{name}={folder}/test_data_set_0/input_{i}.pb"]
    return options


def bytes_of(folder):
    return {entry: open(os.path.join(folder, entry), "rb").read() for entry in os.listdir(folder)}


THREAD_COUNTS = [["--threads", str(count)] for count in (4, 3, 2, 1)]


def check(name, ullage, target, full):
    """Returns nothing, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="ullage-nasty-") as folder:
        try:
            case = make(name, folder)
            build = [ullage, "compile", "model.onnx", "--target", target, "--cflags", "-O1"]
            run(build + ["-o", "program"], folder, "compile")
            tolerance = ["--rtol", str(case.tolerance), "--atol", str(case.tolerance)]
            run(["./program", "--test-data", "test_data_set_0"] + tolerance, folder, "run")
            given = inputs_of(case, folder)
            run(["./program", "--guard"] + given, folder, "--guard")
            run(["./program", "--output-dir", "planned"] + given, folder, "run")
            run(build + ["--pack", "none", "-o", "plain"], folder, "compile --pack none")
            run(["./plain", "--output-dir", "apart"] + given, folder, "run")
            if bytes_of(folder + "/planned") != bytes_of(folder + "/apart"):
                return "reuse of memory changes the result"
            off = [word for row in ("simplify", "bnfold", "cse", "einsum", "pattern", "transposed", "sink",
                                    "join", "layout", "views", "concat", "fuse")
                   for word in ("--no-pass", row)]  # fmt: skip
            more, counts = (["--threads", "4"], THREAD_COUNTS) if target == "cpu" else ([], [[]])
            run(build + off + more + ["-o", "direct"], folder, "compile without passes")
            for threads in counts:
                run(["./direct", "--test-data", "test_data_set_0"] + tolerance + threads, folder,
                    " ".join(["no passes", *threads]))
            if full:
                script, model = os.path.join(E2E, "model.sh"), os.path.join(folder, "model.onnx")
                run(["bash", script, "--target", target, ullage, model], folder, "model.sh")
        except (RuntimeError, subprocess.TimeoutExpired, OSError, UnicodeError) as error:
            return str(error)
    return None


# Passes that may be left out alone; without dce what is dead stays to the end.
PASSES = ("dce", "weights", "simplify", "bnfold", "cse", "einsum", "pattern", "nbits", "transposed",
          "filters", "sink", "layout", "views", "concat", "fuse", "join", "integers", "halves")


def plan_without(number, ullage, target):
    """Plans of a graph with dead branches: by all passes, without each of some, without several."""
    rng = np.random.default_rng(number)
    model = RandomDead(number).case(8 + number % 40).model
    with tempfile.TemporaryDirectory(prefix="ullage-nasty-") as folder:
        onnx.save(model, os.path.join(folder, "model.onnx"))
        sets = [[], ["dce"], ["dce", *rng.choice(PASSES, 3)], list(rng.choice(PASSES, 2))]
        for left_out in sets:
            off = [word for name in left_out for word in ("--no-pass", str(name))]
            try:
                run([ullage, "plan", "model.onnx", "--target", target, *off], folder, " ".join(off))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                return str(error)
    return None


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--list", action="store_true")
    parse.add_argument("--make", metavar="DIR")
    parse.add_argument("--run", metavar="ULLAGE")
    parse.add_argument("--target", default="c")
    parse.add_argument("--full", action="store_true", help="tests/e2e/model.sh on each as well")
    parse.add_argument("--random", type=int, default=0, metavar="N", help="random graphs")
    parse.add_argument("--plans", type=int, default=0, metavar="N", help="graphs to plan only")
    parse.add_argument("--seed", type=int, default=1, help="of the first random graph")
    parse.add_argument("--jobs", type=int, default=2)
    parse.add_argument("names", nargs="*", metavar="NAME")
    args = parse.parse_args()
    names = args.names or list(MODELS)
    if args.random:
        names = random_graphs(args.seed, args.random)
    if args.list:
        print("\n".join(names))
    if args.make:
        for name in names:
            make(name, os.path.join(args.make, name))
    work = functools.partial(check, full=args.full)
    if args.plans:
        names, work = range(args.seed, args.seed + args.plans), plan_without
    if args.run:
        ullage, names = os.path.abspath(args.run), part(names)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            one = functools.partial(work, ullage=ullage, target=args.target)
            results = list(pool.map(one, names))
        for name, problem in zip(names, results):
            if problem:
                print(f"FAIL {name}: {problem}")
        failed = sum(problem is not None for problem in results)
        print(f"{len(names) - failed} of {len(names)} ok")
        sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
