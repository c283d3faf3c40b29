#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage plan --sweep with lists of values: a table of plans.

    what_if.py ULLAGE UNTRAINED.onnx

Each row is the plan that the same options give alone, to the byte; text, CSV and JSON say the same;
marked rows are those that no other of the same process beats; what cannot be planned stands in its row and says why; a
list that is none of an option's is refused before anything is planned.
Exit: 0 ok, 1 a promise is broken.
"""

import csv
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

ullage, untrained = sys.argv[1:3]
TRAIN = ("--output", "/fc/Gemm_output_0", "--train", "--train-mode")


def run(*words, code=0):
    env = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([ullage, *words], capture_output=True, text=True, timeout=300, env=env)
    expect(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}")
    return done


def expect(condition, what):
    if not condition:
        print(f"what_if: {what}")
        sys.exit(1)


def table(*words, code=0):
    return json.loads(run("plan", *words, "--sweep", "--json", "-", code=code).stdout)


def alone(values, *words):
    """The plan of one row, asked for by itself."""
    said = [word for option, value in values for word in (f"--{option}", value)]
    done = subprocess.run([ullage, "plan", *words, *said, "--json", "-"], capture_output=True, text=True, timeout=300)
    expect(done.returncode in (0, 4), f"{values}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def combinations(axes):
    return list(itertools.product(*[[(option, value) for value in values] for option, values in axes]))


def check_rows(axes, words, compared):
    """Rows are the combinations in order; every `compared`-th equals the plan made alone."""
    lists = [f"{'dim' if option == 'dim' else option}" for option, _ in axes]
    said = []
    for (option, values), name in zip(axes, lists):
        value = "N=" + ",".join(v.split("=")[1] for v in values) if option == "dim" else ",".join(values)
        said += [f"--{name}", value]
    found = table(*words, *said)
    rows, wanted = found["plans"], combinations(axes)
    expect(found["format"] == "ullage-table" and found["version"] == 1, "not a table")
    expect(len(rows) == len(wanted), f"{len(rows)} rows of {len(wanted)}")
    for row, values in zip(rows, wanted):
        shown = [value.split("=")[1] if option == "dim" else value for option, value in values]
        expect(row["values"] == shown, f"{row['values']} where {shown} was due")
    for row, values in list(zip(rows, wanted))[::compared]:
        plan = alone(values, *words)
        expect(row["fits"] == plan["fits"], f"{values}: fits")
        for key in ("reserved_bytes", "process_bytes", "overhead"):
            expect(row[key] == plan[key], f"{values}: {key} {row[key]} in the table, {plan[key]} alone")
        expect(row["cost"] >= plan["cost"], f"{values}: a step takes less than one of its runs")
        expect(row["peak"]["node"] == plan["steps"]["node"][plan["peak_step"]], f"{values}: the peak")
    return found, said


def check_best(rows):
    """No row is better than a marked one; a row without a mark is beaten, or equalled, by another."""
    def key(row):
        return row["process_bytes"], 1 / row["samples_per_second"]

    for i, row in enumerate(rows):
        if not row["fits"]:
            expect(not row.get("best"), "a row that does not fit is marked")
            continue
        others = [key(other) for k, other in enumerate(rows) if k != i and other["fits"] and other["process_of"] == row["process_of"]]
        beaten = any(a <= key(row)[0] and b <= key(row)[1] * (1 + 1e-9) for a, b in others)
        strictly = any(a < key(row)[0] and b < key(row)[1] * (1 - 1e-9) for a, b in others)
        expect(not (row["best"] and strictly), f"{row['values']} is marked and beaten")
        expect(row["best"] or beaten, f"{row['values']} is not marked, and nothing beats it")


def check_forms(found, words, said):
    """Text and CSV have the numbers of the JSON."""
    lines = list(csv.reader(io.StringIO(run("plan", *words, *said, "--sweep", "--csv", "-").stdout, newline=""), strict=True))
    head, rows = lines[0], lines[1:]
    expect(all(len(row) == len(head) for row in rows), "CSV: lines of different lengths")
    expect(head[:len(found["axes"])] == [axis["label"] for axis in found["axes"]], "CSV: the axes")
    for line, row in zip(rows, found["plans"]):
        line = dict(zip(head, line))
        for key in ("reserved_bytes", "process_bytes", "cost"):
            expect(line[key] == (str(row[key]) if key in row else ""), f"CSV: {key}")
    text = run("plan", *words, *said, "--sweep").stdout
    for row in found["plans"]:
        if row["status"] in (0, 4):
            line = [line for line in text.splitlines()
                    if line.lstrip("* ").split()[:len(row["values"])] == row["values"] and str(row["reserved_bytes"]) in line]
            expect(len(line) == 1, f"text: {row['values']} has {len(line)} lines")
            expect(line[0].startswith("*") == row["best"], f"text: the mark of {row['values']}")


def check_refusals():
    for words, what in (
            (("--dim", "N=2,1"), "expected NAME=N"),  # no table was asked for
            (("--precision", "fp32,fp19", "--sweep"), "fp19"),
            (("--budget", "1MiB,,2MiB", "--sweep"), "empty"),
            (("--precision", "fp32,fp32", "--sweep"), "twice"),
            (("--dim", "N=1,2", "--dim", "N=3,4", "--sweep"), "two lists"),
            (("--dim", "N=1,x", "--sweep"), "expected NAME=N"),
            (("--dim", "M=1,2", "--sweep"), "no such dimension"),
            (("--seed", ",".join(map(str, range(100))), "--dim", "N=" + ",".join(map(str, range(1, 101))), "--sweep"), "more than")):
        done = run("plan", untrained, *words, code=1)
        expect(what in done.stderr and not done.stdout, f"{words}: {done.stderr}")


def check_max_dim(batch):
    """The largest size of a dimension fits, the next does not; multiples; where the model ends, it says so."""
    words = (untrained, "--no-pass", "split", "--budget-of", "arena", "--budget", "600KiB")
    plan = json.loads(run("plan", *words, "--max-dim", "N", "--json", "-").stdout)
    expect(plan["max_dim"]["name"] == "N" and plan["max_dim"]["size"] == batch, f"max-dim: {plan['max_dim']}, not {batch}")
    run("plan", *words, "--dim", f"N={batch}")
    run("plan", *words, "--dim", f"N={batch + 1}", code=4)
    even = json.loads(run("plan", *words, "--max-dim", "N:8", "--json", "-").stdout)["max_dim"]
    expect(even["size"] == batch // 8 * 8 and all(row["size"] % 8 == 0 for row in even["planned"]), f"max-dim N:8: {even}")
    text = run("plan", *words, "--max-dim", "N").stdout
    expect(f"N = {batch} fits; the smallest plan known for {batch + 1} takes" in text, text)
    for option, what in ((("--max-dim", "N:0"), "multiples"), (("--max-dim", "M"), "no such dimension"),
                         (("--max-dim", "N", "--dim", "N=1"), "leave it out"),
                         (("--max-dim", "N", "--max-batch"), "both ask")):
        done = run("plan", *words, *option, code=1)
        expect(what in done.stderr, f"{option}: {done.stderr}")
    done = run("plan", untrained, "--max-dim", "N", code=1)
    expect("give --budget" in done.stderr, done.stderr)


def check_device(folder):
    """A device is a budget and a profile: what fits it says what is left, what does not is made to."""
    kinds = ("matmul_f32", "matmul_tf32", "matmul_f64", "matmul_f16", "matmul_int8", "window", "vector", "special", "scalar")

    def device(name, memory_bytes):
        path = os.path.join(folder, name)
        profile = {"format": "ullage-profile", "version": 1, "name": name, "source": "a test", "overhead_nanoseconds": 10,
                   "giga_operations_per_second": dict.fromkeys(kinds, 1.5), "memory_bytes": memory_bytes,
                   "memory_levels": [{"up_to_bytes": None, "gigabytes_per_second": 2}]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(profile, file)
        return path

    words = (untrained, "--dim", "N=16", "--no-pass", "split")
    large, none = device("large", 1 << 34), device("none", 1 << 16)
    ladder = json.loads(run("plan", *words, "--profile", large, "--sweep", "--json", "-").stdout)["plans"]
    room = ladder[1]["process_bytes"]
    small = device("small", room)
    plan = json.loads(run("plan", *words, "--device", large, "--json", "-").stdout)
    expect(plan["device"] == {"name": "large", "memory_bytes": 1 << 34} and plan["budget_bytes"] == 1 << 34, "the device of plan.json")
    expect(["profile", "large"] in plan["options"], "its time does not count")
    text = run("plan", *words, "--device", large, "--advice", "off").stdout
    expect("It fits large, which has 16.00 GiB = 17179869184 bytes, with 15.9" in " ".join(text.split()), text)
    free = json.loads(run("plan", *words, "--profile", small, "--json", "-").stdout)
    tight = json.loads(run("plan", *words, "--device", small, "--json", "-").stdout)
    expect(free["process_bytes"] > room >= tight["process_bytes"] and tight["cost"] > free["cost"], "the plan is not made to fit")
    less = json.loads(run("plan", *words, "--device", large, "--budget", str(room), "--json", "-").stdout)
    expect(less["budget_bytes"] == room and less["reserved_bytes"] == tight["reserved_bytes"], "a smaller budget")
    expect("does not fit" in run("plan", *words, "--device", none, "--advice", "off", code=4).stdout, "what does not fit")
    rows = table(*words, "--device", f"{large},{small},{none}")["plans"]
    expect([row["status"] for row in rows] == [0, 0, 4], f"a table of devices: {rows}")
    implied = json.loads(run("plan", *words, "--device", "rtx-4090", "--json", "-").stdout)
    expect(implied["target"] == "cuda" and implied["device"]["name"] == "rtx-4090", "a graphics processor is not for cuda")
    for more, what in ((("--device", "rtx-4090", "--target", "c"), "give --target cuda"), (("--device", "generic-core"), "memory_bytes"),
                       (("--device", "rtx-4090", "--threads", "2"), "as --device says"),
                       (("--device", large, "--profile", small), "leave one"), (("--device", "rtx-4091"), "neither a file")):
        done = subprocess.run([ullage, "plan", *words, *more], capture_output=True, text=True)
        expect(done.returncode in (1, 5) and what in done.stderr, f"{more}: {done.stderr}")


def check_shortfall():
    """Where not even the smallest size fits there is no plan, and the row says why; the table has the model's hash."""
    found = table(untrained, "--max-batch", "--target", "c", "--no-pass", "split", "--budget", "300KiB,2700KiB")
    none, large = found["plans"]
    expect(none["status"] == 4 and "reserved_bytes" not in none and "not even" in none["message"], f"{none}")
    expect(large["largest"] >= 1 and len(found["model_sha256"]) == 64, f"{large}")


def check_reasons():
    """A combination that has no plan says why, and the others are planned."""
    words = (untrained, "--dim", "N=4", *TRAIN)
    found = table(*words, "--loss", "softmax-cross-entropy,bogus")
    good, bad = found["plans"]
    expect(good["fits"] and bad["status"] == 1 and "bogus" in bad["message"], f"{bad}")
    text = run("plan", *words, "--loss", "softmax-cross-entropy,bogus", "--sweep").stdout
    expect("no plan (1)" in text and "(1) " in text and bad["message"] in text, text)


def check_models(folder):
    """Several models are the first axis; the largest that fits a budget, the fastest of its plans, is named."""
    other = os.path.join(folder, "other.onnx")
    shutil.copy(untrained, other)
    words = ("--dim", "N=16", "--budget-of", "arena", "--budget", "700KiB,1MiB", "--precision", "fp32,bf16")
    found = table(untrained, other, *words)
    expect("model_sha256" not in found and found["axes"][0] == {"option": "model", "label": "model"}, f"{found['axes']}")
    one = table(untrained, *words)["plans"]
    expect([row["values"][1:] for row in found["plans"]] == 2 * [row["values"] for row in one], "the axes behind the model")
    for row, same in zip(found["plans"], 2 * one):
        expect(all(row[key] == same[key] for key in ("reserved_bytes", "cost", "weight_elements", "best")), f"{row} is not {same}")
        expect(len(row["model_sha256"]) == 64, f"{row}")
    check_best(found["plans"][:len(one)])
    text = run("plan", untrained, other, *words, "--sweep").stdout
    fits = [row for row in one if row["fits"] and row["values"][0] == "1MiB"]
    fastest = min(fits, key=lambda row: row["cost"])
    expect(f'1MiB: the largest that fits is "untrained.onnx", with precision {fastest["values"][1]}' in text, text)
    expect(f"{fastest['weight_elements'] * 1e-6:.4g} million weights" in text, text)
    text = run("plan", untrained, other, "--dim", "N=16", "--budget", "1KiB", "--sweep").stdout
    expect("none of these plans fits" in text, text)
    for more, what in ((("--sweep", untrained), "twice"), ((), "--shared")):
        done = run("plan", untrained, *more, other, code=1)
        expect(what in done.stderr, done.stderr)


axes = [("dim", ["N=1", "N=3"]), ("precision", ["fp32", "bf16"]), ("io", ["arena", "caller"])]
found, said = check_rows(axes, (untrained,), 1)
check_best(found["plans"])
expect({row["process_of"] for row in found["plans"] if row["best"]} == {"program", "caller"}, "a caller's process beats a whole one")
text = run("plan", untrained, "--dim", "N=1", "--io", "arena,caller", "--sweep").stdout
expect("among those whose process is the same" in text and text.count("\n*") == 3, text)
check_forms(found, (untrained,), said)
words = (untrained, "--dim", "N=16", *TRAIN)
found, said = check_rows([("optimizer", ["sgd", "adam"]), ("micro-batches", ["1", "2"])], words, 3)
check_best(found["plans"])
words = (untrained, "--dim", "N=4", "--budget-of", "arena")
found, said = check_rows([("budget", ["1GiB", "400KiB", "1KiB"])], words, 1)
expect([row["fits"] for row in found["plans"]] == [True, True, False], "budgets")
largest = table(untrained, "--max-batch", "--no-pass", "split", "--budget-of", "arena", "--budget", "400KiB,600KiB")["plans"]
expect(largest[0]["largest"] < largest[1]["largest"], "a larger budget holds a larger batch")
check_max_dim(largest[1]["largest"])
with tempfile.TemporaryDirectory() as made:
    check_device(made)
    check_models(made)
check_refusals()
check_shortfall()
check_reasons()
first = run("plan", untrained, "--sweep", "--dim", "N=1,2", "--json", "-").stdout
expect(first == run("plan", untrained, "--sweep", "--dim", "N=1,2", "--json", "-").stdout, "not the same bytes again")
print("what_if: ok")
