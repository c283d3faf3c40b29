#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans that were edited by hand: what is wrong is reported with the step and the value.

    edited.py ULLAGE MODEL.onnx TEST_DATA

Edits as a user makes them in plan.json, one kind after the other: `check` and `plan --plan` refuse
each with the same exit code and name what does not hold, and where. An edit that holds is taken:
two weights of one size change places, and the program that is made of it gives the same results.
Exit: 0 ok, 1 a promise is broken.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile

ullage, model, data = sys.argv[1:4]
OPTIONS = ["--dim", "N=16", "--target", "c"]


def expect(condition, what):
    if not condition:
        print(f"edited.py: {what}")
        sys.exit(1)


def run(*words, code=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == code, f"{words}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done


def find(plan, class_name, number=0):
    """The range of that class, by number, in the arena."""
    ranges = plan["ranges"]
    return [i for i, name in enumerate(ranges["class"]) if name == class_name and ranges["space"][i] == 0 and ranges["value"][i] is not None][number]


def set_range(column, change):
    """Changes the range of the first activation."""
    def edit(plan):
        i = find(plan, "other_activations")
        plan["ranges"][column][i] = change(plan["ranges"][column][i])
    return edit


def set_step(column, change, step=3):
    def edit(plan):
        plan["steps"][column][step] = change(plan["steps"][column][step])
    return edit


def exchange_steps(plan):
    for column in plan["steps"].values():
        column[1], column[2] = column[2], column[1]


def repeat_step(plan):
    for column in plan["steps"].values():
        column.insert(4, column[3])


def drop_step(plan):
    for column in plan["steps"].values():
        del column[3]


def drop_range(plan):
    i = find(plan, "other_activations")
    for column in plan["ranges"].values():
        del column[i]


def drop_scratch(plan):
    for column in plan["ranges"].values():
        column.pop()


def overlap(plan):
    """The first weight where the input is."""
    plan["ranges"]["offset_bytes"][find(plan, "weights")] = plan["ranges"]["offset_bytes"][find(plan, "inputs")]


def set_option(name, value):
    def edit(plan):
        plan["options"] = [[other, value if other == name else old] for other, old in plan["options"]]
    return edit


def shorten(plan):
    plan["ranges"]["begin"].pop()


# What is edited, the exit code, and what is said; V, S and W are the first activation, the step that
# makes it and the first weight, S3 is step 3.
EDITS = [
    ("an offset that is not aligned", set_range("offset_bytes", lambda n: n + 4), 6, ["V", "no multiple of 64"]),
    ("two values in one place", overlap, 6, ["W", "overlap at position 0", "S"]),
    ("steps out of order", exchange_steps, 6, ["position 1", "reads", "not live"]),
    ("a lifetime that ends early", set_range("end", lambda n: n - 1), 6, ["V", "not live", "position", "step"]),
    ("a lifetime that begins late", set_range("begin", lambda n: n + 1), 6, ["position 0", "S", "V"]),
    ("a lifetime of nothing", set_range("end", lambda n: 0), 6, ["V", "lifetime"]),
    ("a range that is gone", drop_range, 6, ["position 0", "S", "V"]),
    ("scratch that is gone", drop_scratch, 6, ["position", "step", "its scratch of", "has no range"]),
    ("another size", set_range("size_bytes", lambda n: 64), 6, ["V", "has 64 bytes"]),
    ("a negative size", set_range("size_bytes", lambda n: -n), 2, ["V", "size_bytes", "entry"]),
    ("a size that is no number", set_range("size_bytes", str), 2, ["V", "size_bytes", "entry"]),
    ("another class", set_range("class", lambda n: "weights"), 6, ["V", "class weights", "other_activations"]),
    ("no class", set_range("class", lambda n: "wights"), 2, ["V", "no class", "wights"]),
    ("another space", set_range("space", lambda n: 2), 6, ["V", "S", "space 2"]),
    ("bytes of a value that goes on", set_range("alias", lambda n: 0), 6, ["V", "range 0"]),
    ("a value that is not there", set_range("value", lambda n: 99999), 2, ["V", "value", "entry"]),
    ("a way that there is not", set_step("alternative", lambda n: 7), 6, ["position 3", "S3", "alternative"]),
    ("a step that runs twice", repeat_step, 6, ["position 4", "S3"]),
    ("a step that is gone", drop_step, 6, ["S3", "never runs"]),
    ("a step of another number", set_step("step", lambda n: 99999), 2, ["S3", "step", "entry 3"]),
    ("a recomputation that is none", set_step("copy", lambda n: 1), 6, ["position 3", "S3"]),
    ("a column that is short", shorten, 2, ["begin", "entries"]),
    ("another row", lambda plan: plan["rows"].update(weights=5), 6, ['row "weights" is 5']),
    ("another sum", lambda plan: plan.update(reserved_bytes=plan["reserved_bytes"] - 64), 6, ["reserved_bytes"]),
    ("another peak", lambda plan: plan.update(peak_step=0), 6, ["peak_step"]),
    ("an option without its value", set_option("profile", ""), 6, ["profile", "ullage profile --list"]),
    ("a profile by its path", set_option("profile", "/etc/hostname"), 6, ["/etc/hostname", "ullage profile --list"]),
    ("an option in another form", set_option("dim", "N=016"), 6, ["dim", "N=016", "N=16"]),
    ("an option that cannot be read", set_option("dim", "N"), 2, ["its options", "--dim"]),
    ("an option that is said twice", lambda plan: plan["options"].append(["profile", "t4"]), 6, ["profile", "twice"]),
    ("a flag with a value", lambda plan: plan["options"].append(["keep-inputs", "no"]), 6, ["keep-inputs", "no"]),
    ("another cost", lambda plan: plan.update(cost=plan["cost"] + 1), 6, ["cost"]),
]


def check_edit(plan, path, edit, code, wanted):
    edited = copy.deepcopy(plan)
    edit(edited)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(edited, file)
    i = find(plan, "other_activations")
    names = {"V": plan["ranges"]["name"][i], "S": plan["steps"]["name"][plan["ranges"]["begin"][i]], "S3": plan["steps"]["name"][3],
             "W": plan["ranges"]["name"][find(plan, "weights")]}
    for words in (["check", model, path], ["plan", model, "--plan", path]):
        said = run(ullage, *words, code=code).stderr
        expect(said.startswith(f"ullage: error: {path}: ") and said.count("\n") == 1, said)
        for word in wanted:
            expect(names.get(word, word) in said, f"{names.get(word, word)!r} is not in {said}")


def check_taken(plan, path, folder):
    ranges = plan["ranges"]
    weights = [i for i, name in enumerate(ranges["class"]) if name == "weights"]
    pairs = [(a, b) for a in weights for b in weights if a < b and ranges["size_bytes"][a] == ranges["size_bytes"][b]]
    a, b = pairs[0]
    edited = copy.deepcopy(plan)
    places = edited["ranges"]["offset_bytes"]
    places[a], places[b] = places[b], places[a]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(edited, file)
    run(ullage, "check", model, path)
    program = os.path.join(folder, "program")
    run(ullage, "compile", model, "--plan", path, "--cflags", "-O1", "-o", program)
    run(program, "--test-data", data)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.json")
        plan = json.loads(run(ullage, "plan", model, *OPTIONS, "--json", "-").stdout)
        for what, edit, code, wanted in EDITS:
            try:
                check_edit(plan, path, edit, code, wanted)
            except SystemExit:
                print(f"edited.py: that was {what}")
                raise
        check_taken(plan, path, folder)


main()
