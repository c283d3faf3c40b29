#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs under a budget: they fit it, compute the same bits (the same to rounding, where they cut
calls of libraries whose order of sums is their own, run steps another way or lay values out
otherwise), and stay within their values.

    budget.py --run ULLAGE [--target c] [--threads N] [--small NAME]... [MODEL.onnx]...
    budget.py --run ULLAGE --alone [--target c] [--threads N] [--small NAME]... [MODEL.onnx]...
    budget.py --run ULLAGE --units [--target c] [--threads N] [--small NAME]... [MODEL.onnx]...

Runs models made here, whose skips are cheap to compute again, the named networks of models/ scaled
down, and the files given. For each, `plan --sweep` says which budgets there are; programs of
several of them must reserve no more, pass --guard, --memory and `check`, and give the bits of the
program without any reuse. Below the smallest budget, exit code 4 and plan.json say so.

With --alone no programs are made: at budgets between the smallest and the plan without one, the
planner alone, on the problem that `plan --budget --print-problem` writes, finds nothing cheaper
than the compiler did, and the compiler's plan is one of that problem. The models are the networks
and files that are named, or all networks of models/.

With --units no programs are made either: what --sweep lists for budgets of the process fits budgets
of the arena, and the other way round, for no more time. The models are those of --alone.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import parser, save
except ImportError as error:
    print(f"budget.py: skipped: {error}")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
# From s over a large value, which is read again at the end.
SKIP = """
    sizes = Constant <value = int64[4] {1, 4, 64, 64}> ()
    skip = Resize <mode = "nearest"> (s, , , sizes)
    down = Conv <strides = [4, 4]> (skip, w0)
    deep = Conv <pads = [1, 1, 1, 1]> (down, w1)
    full = Relu (deep)
    back = Conv <pads = [1, 1, 1, 1]> (full, w2)
    flat = Conv (back, w3)
    up = Resize <mode = "nearest"> (flat, , , sizes)
    both = Concat <axis = 1> (skip, up)"""
SKIP_WEIGHTS = "float[8,4,4,4] w0, float[64,8,3,3] w1, float[8,64,3,3] w2, float[4,8,1,1] w3"
# Each holds a large value over a step that needs much itself; making it again is cheap.
CHEAP = {
    "upsampled_skip": f"""
g (float[1,4,16,16] s, {SKIP_WEIGHTS}) => (float[1,8,64,64] both) {{{SKIP}
}}""",
    "scan_body": f"""
g (float[3,1,4,16,16] x, float[1,1,64,64] c, {SKIP_WEIGHTS})
  => (float[1,1,64,64] last, float[3,1,8,64,64] y) {{
  last, y = Scan <num_scan_inputs = 1, body = b (float[1,1,64,64] h, float[1,4,16,16] s)
    => (float[1,1,64,64] next, float[1,8,64,64] both) {{{SKIP}
    mean = ReduceMean <axes = [1]> (up)
    next = Add (h, mean)
  }}> (c, x)
}}""",
    "noise_twice": """
g (float[1,8,8] x, float[8,2048] w0, float[2048,8] w1) => (float[1,64,128] y) {
  shape = Constant <value = int64[3] {1, 64, 128}> ()
  noise = RandomNormal <shape = [1, 64, 128], mean = 0.5> ()
  mean = ReduceMean <axes = [1, 2]> (noise)
  a = Add (x, mean)
  wide = MatMul (a, w0)
  act = Tanh (wide)
  b = MatMul (act, w1)
  top = ReduceMax <axes = [1, 2]> (b)
  scaled = Mul (noise, noise)
  y = Add (scaled, top)
}""",
}


def run(command, folder, *codes):
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=600)
    if done.returncode not in (codes or (0,)):
        said = (done.stderr + done.stdout).decode("utf-8", "replace")[-600:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done.stdout.decode("utf-8", "replace")


def outputs_of(program, folder):
    target = os.path.join(folder, os.path.basename(program) + "-out")
    os.makedirs(target, exist_ok=True)
    # Random indexes may be out of range, which is said with 2 after the outputs are written.
    run([program, "--random", "1", "--output-dir", target], folder, 0, 2)
    return {name: open(os.path.join(target, name), "rb").read() for name in os.listdir(target)}


def load(folder, name):
    with open(os.path.join(folder, name)) as file:
        return json.load(file)


def unfolded(ullage, model, folder):
    """What the steps of plan.json give each once, in the same ways, without any reuse."""
    run([ullage, "compile", model, "--plan", "plan.json", "--pack", "none", "--cflags", "-O1",
         "-o", "./unfolded"], folder)  # fmt: skip
    return outputs_of("./unfolded", folder)


def whole(ullage, model, options, folder):
    """The plan without a budget and without any reuse, and what the model gives by it."""
    run([ullage, "compile", model, "--pack", "none", "--cflags", "-O1", "-o", "./whole", "--json",
         "whole.json"] + options, folder)  # fmt: skip
    return load(folder, "whole.json"), outputs_of("./whole", folder)


def has_option(plan, option):
    return any(name == option for name, _ in plan["options"])


def ways_of(plan):
    """Per node the implementations of its step, or of its pieces."""
    ways = {}
    for name, way in zip(plan["steps"]["name"], plan["steps"]["implementation"]):
        ways.setdefault(name.rsplit(" #", 1)[0].rsplit(" [", 1)[0], set()).add(way)
    return ways


def is_other(plan, free):
    """Whether something runs another way than without a budget, or is laid out otherwise."""
    before = ways_of(free)
    return has_option(plan, "row-major") or any(
        not ways <= before.get(name, ways) for name, ways in ways_of(plan).items()
    )


def is_leaner(plan):
    """Steps that are run another way than their first."""
    return any(alternative > 0 for alternative in plan["steps"]["alternative"])


def has_other_calls(plan):
    """Calls of libraries whose order of sums is their own, in pieces or with less workspace."""
    calls = any(name in ("cublaslt", "cudnn") for name in plan["steps"]["implementation"])
    return calls and (has_option(plan, "split") or is_leaner(plan))


def same(results, wanted, to_rounding):
    if not to_rounding or results.keys() != wanted.keys():
        return results == wanted
    pairs = [(numpy.load(io.BytesIO(results[name])), numpy.load(io.BytesIO(wanted[name])))
             for name in wanted]  # fmt: skip
    return all(numpy.linalg.norm(a - b) <= 1e-5 * numpy.linalg.norm(b) for a, b in pairs)


def check_program(ullage, model, options, folder, budget, free, wanted):
    """Returns how many steps run again."""
    name = f"./p{budget}"
    run([ullage, "compile", model, "--budget", str(budget), "-o", name, "--json", "plan.json",
         "--cflags", "-O1"] + options, folder)  # fmt: skip
    plan = load(folder, "plan.json")
    if not plan["fits"] or plan["reserved_bytes"] > budget:
        raise RuntimeError(f"budget {budget}: reserves {plan['reserved_bytes']}")
    run([ullage, "check", model, "plan.json"], folder)
    run([name, "--random", "1", "--guard"], folder)
    table = run([name, "--random", "1", "--memory"], folder)
    if not any(line.split() == ["unaccounted", "0"] for line in table.splitlines()):
        raise RuntimeError(f"budget {budget}: unaccounted bytes\n{table}")
    results = outputs_of(name, folder)
    if results != unfolded(ullage, model, folder) and not has_other_calls(plan):
        raise RuntimeError(f"budget {budget}: other results than without reuse")
    other = is_other(plan, free)
    if not same(results, wanted, other or has_other_calls(plan)):
        raise RuntimeError(f"budget {budget}: other results than without a budget")
    again = sum(copy > 0 for copy in plan["steps"]["copy"])
    pays = again > 0 or has_option(plan, "split") or other or is_leaner(plan)
    if not pays and plan["cost"] > plan["base_cost"]:
        raise RuntimeError(f"budget {budget}: costs more for nothing")
    return again


def check_sweep(ullage, model, options, folder, rungs):
    """Budgets in steps of 2 %, by commands of their own, agree with the ladder."""
    first, last = rungs[0]["reserved_bytes"], rungs[-1]["reserved_bytes"]
    largest, cost = first, 0
    for percent in range(98, 0, -2):
        budget = first * percent // 100
        code = 0 if budget >= last else 4
        run([ullage, "plan", model, "--budget", str(budget), "--json", "swept.json"] + options,
            folder, code)  # fmt: skip
        plan = load(folder, "swept.json")
        if (
            plan["fits"] != (code == 0)
            or plan["reserved_bytes"] > largest
            or plan["cost"] < cost
            or plan["smallest_budget_bytes"] != last
            or (plan["proven"] and code == 4 and budget >= plan["lower_bound_bytes"])
        ):
            raise RuntimeError(f"budget {budget}: not what the ladder says")
        largest, cost = plan["reserved_bytes"], plan["cost"]
        if code == 4:
            break


def check_problem(ullage, model, options, folder, budgets):
    """The planner alone, on the problem in text, finds nothing cheaper than the compiler does."""
    for budget in budgets:
        run([ullage, "plan", model, "--budget", str(budget), "--print-problem", "problem.txt",
             "--json", "plan.json"] + options, folder)  # fmt: skip
        run([ullage, "check", "problem.txt", "plan.json"], folder)
        run([ullage, "solve", "problem.txt", "--budget", str(budget), "--json", "alone.json"], folder, 0, 4)
        plan, alone = load(folder, "plan.json"), load(folder, "alone.json")
        if alone["fits"] and plan["cost"] > alone["cost"]:
            raise RuntimeError(f"budget {budget}: costs {plan['cost']}, {alone['cost']} alone")
        if not 0 < plan["cost_bound"] <= plan["cost"]:
            raise RuntimeError(f"budget {budget}: costs {plan['cost']}, below its bound")
        if not isinstance(plan["optimal"], bool) or plan["optimal"] and "optimal_within" in plan:
            raise RuntimeError(f"budget {budget}: contradicts itself about what is optimal")


def sweep(ullage, model, options, folder):
    """The plans of the ladder; the first is the plan without a budget."""
    run([ullage, "plan", model, "--sweep", "--json", "ladder.json"] + options, folder)
    run([ullage, "plan", model, "--json", "free.json"] + options, folder)
    rungs, free = load(folder, "ladder.json")["plans"], load(folder, "free.json")
    for key in ("reserved_bytes", "cost", "base_cost"):
        if rungs[0][key] != free[key]:
            raise RuntimeError(f"the first plan of the sweep is not the one without a budget: {key}")
    return rungs


def check_alone(ullage, options, model, folder):
    rungs = sweep(ullage, model, options, folder)
    first, last = rungs[0]["reserved_bytes"], rungs[-1]["reserved_bytes"]
    budgets = sorted({last + (first - last) * quarter // 4 for quarter in range(4)})
    check_problem(ullage, model, options, folder, budgets)
    print(f"ok {os.path.basename(model)}: {first} to {last} bytes, {len(rungs)} plans, as cheap as "
          f"alone at {len(budgets)} budgets")  # fmt: skip


def check_units(ullage, options, model, folder):
    """The rows of a sweep by one unit, as budgets in the other."""
    key = {"arena": "reserved_bytes", "process": "process_bytes"}
    rows = {}
    for unit in key:
        run([ullage, "plan", model, "--sweep", "--budget-of", unit, "--json", f"{unit}.json"] + options,
            folder)  # fmt: skip
        rows[unit] = load(folder, f"{unit}.json")["plans"]
    for unit, other in (("arena", "process"), ("process", "arena")):
        for row in rows[unit]:
            budget = row[key[other]]
            if budget >= rows[other][0][key[other]]:
                continue  # a sweep holds nothing as large as the plan without a budget but that plan
            costs = [plan["cost"] for plan in rows[other] if plan[key[other]] <= budget]
            if not costs or min(costs) > row["cost"]:
                raise RuntimeError(f"a plan of {unit} {row[key[unit]]} takes {budget} of {other} and "
                                   f"costs {row['cost']}; by {other}: {min(costs, default='none')}")  # fmt: skip
        smallest = min(row[key[other]] for row in rows[unit])
        run([ullage, "plan", model, "--budget-of", other, "--budget", str(smallest)] + options, folder)
    print(f"ok {os.path.basename(model)}: {len(rows['arena'])} plans by arena, "
          f"{len(rows['process'])} by process")  # fmt: skip


def check(ullage, target, options, model, folder, must_repeat):
    options = options + (["--no-pass", "split"] if must_repeat else [])
    rungs = sweep(ullage, model, options, folder)
    free, wanted = whole(ullage, model, options, folder)
    budgets = sorted({rungs[i]["reserved_bytes"] for i in (0, 1 % len(rungs), len(rungs) // 2, -1)})
    again = max(
        check_program(ullage, model, options, folder, budget, free, wanted) for budget in budgets
    )
    check_sweep(ullage, model, options, folder, rungs)
    if must_repeat:
        check_problem(ullage, model, options, folder, budgets)
    if must_repeat and again == 0:
        raise RuntimeError("no step was run again")
    first, last = rungs[0]["reserved_bytes"], rungs[-1]["reserved_bytes"]
    print(f"ok {os.path.basename(model)} ({target}): {first} to {last} bytes, {len(rungs)} plans, "
          f"{again} steps again at {100 * rungs[-1]['overhead']:.2f} % more time")  # fmt: skip


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--run", metavar="ULLAGE", required=True)
    parse.add_argument("--alone", action="store_true")
    parse.add_argument("--units", action="store_true")
    parse.add_argument("--target", default="c")
    parse.add_argument("--threads")
    parse.add_argument("--small", metavar="NAME", action="append", default=[])
    parse.add_argument("models", nargs="*", metavar="MODEL.onnx")
    args = parse.parse_args()
    ullage = os.path.abspath(args.run)
    options = ["--target", args.target] + (["--threads", args.threads] if args.threads else [])
    options += [] if args.units else ["--budget-of", "arena"]
    if args.alone and args.target == "cuda":
        options += ["--streams", "1"]  # as the plans of a ladder have it, and what is proven of costs
    plans_only = args.alone or args.units
    make = os.path.join(ROOT, "models", "make.py")
    if plans_only and not args.small and not args.models:
        args.small = run([sys.executable, make, "--list"], ROOT).split()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ullage-budget-") as work:
        jobs = [(os.path.abspath(model), False) for model in args.models]
        for name, body in CHEAP.items() if not plans_only else ():
            jobs.append((os.path.join(work, name + ".onnx"), True))
            save(parser.parse_model(HEAD + body), jobs[-1][0])
        for name in args.small:
            jobs.append((os.path.join(work, name + ".onnx"), False))
            run([sys.executable, make, name, "--small", "-o", jobs[-1][0]], work)
        for model, must_repeat in jobs:
            try:
                with tempfile.TemporaryDirectory(prefix="ullage-budget-") as folder:
                    if args.alone:
                        check_alone(ullage, options, model, folder)
                    elif args.units:
                        check_units(ullage, options, model, folder)
                    else:
                        check(ullage, args.target, options, model, folder, must_repeat)
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                print(f"FAIL {os.path.basename(model)}: {error}")
                failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
