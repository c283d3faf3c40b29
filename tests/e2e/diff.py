#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage diff: two plans of the digits network, and files that are no plans.

    diff.py ULLAGE MODEL.onnx

The changes of classes and of values are those of the two plan.json, and add up to that of the
reserved bytes; --fail-above decides the exit code; what is broken is refused with the key; names
that are hostile stay on their line, in 80 columns.
Exit: 0 ok, 1 a promise is broken.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile

ullage, model = sys.argv[1:3]


def run(*words):
    return subprocess.run([ullage, *words], capture_output=True, text=True, env=dict(os.environ, COLUMNS="80"), timeout=60)


def expect(condition, what):
    if not condition:
        print(f"diff: {what}")
        sys.exit(1)


def write(path, plan):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)


def make_plan(path, *words):
    done = run("plan", model, "--target", "c", "--json", path, *words)
    expect(done.returncode == 0, done.stderr)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def alive_bytes(plan):
    """By name, of what lives at the peak: of what takes over another's bytes the newest alone."""
    ranges, peak, found = plan["ranges"], plan["peak_step"], {}
    taken = {alias for alias, begin in zip(ranges["alias"], ranges["begin"]) if alias is not None and begin <= peak}
    for i, name in enumerate(ranges["name"]):
        if ranges["begin"][i] <= peak < ranges["end"][i] and i not in taken and ranges["space"][i] == 0:
            key = name if ranges["value"][i] is not None else f"(scratch) {plan['steps']['node'][ranges['begin'][i]]}"
            found[key] = found.get(key, 0) + ranges["size_bytes"][i]
    return found


def check_numbers(old, new, diff):
    for row, pair in diff["rows"].items():
        expect(pair == [old["rows"][row], new["rows"][row]], f"rows: {row}: {pair}")
    expect(diff["reserved_bytes"] == [old["reserved_bytes"], new["reserved_bytes"]], "reserved bytes")
    expect(abs(diff["growth"] - (new["reserved_bytes"] / old["reserved_bytes"] - 1)) < 1e-9, "growth")
    before, now = alive_bytes(old), alive_bytes(new)
    for value in diff["values"]:
        pair = [before.get(value["name"], 0), now.get(value["name"], 0)]
        expect(value["bytes"] == pair, f"{value}, not {pair}")
    named = {value["name"] for value in diff["values"]}
    for name in before.keys() | now.keys():
        expect(name in named or before.get(name) == now.get(name), f"{name} is left out")


def check_text(text, old, new):
    lines = text.splitlines()
    expect(len(lines) < 40 and all(len(line) <= 80 for line in lines), f"not in 40 lines of 80 columns:\n{text}")
    changes = [line for line in lines if line.startswith("  ")]
    begin = next(i for i, line in enumerate(changes) if "made by" in line)
    total = sum(int(line.split()[0]) for line in changes[begin + 1:])
    expect(total == new["reserved_bytes"] - old["reserved_bytes"], f"values add up to {total}:\n{text}")


def broken(plan):
    """Edits, and a word that the message has to have."""
    def edit(change):
        other = copy.deepcopy(plan)
        change(other)
        return other
    yield edit(lambda p: p.pop("rows")), "weights"
    yield edit(lambda p: p.update(peak_step=len(p["steps"]["op"]))), "peak_step"
    yield edit(lambda p: p["ranges"]["alias"].__setitem__(0, len(p["ranges"]["name"]))), "ranges"
    yield edit(lambda p: p["ranges"]["end"].__setitem__(0, 1 << 20)), "ranges"
    yield edit(lambda p: p["ranges"]["alias"].__setitem__(0, 0)), "ranges"
    yield edit(lambda p: p["ranges"]["size_bytes"].__setitem__(slice(0, 9), [1 << 57] * 9)), "size_bytes"
    yield edit(lambda p: p["ranges"]["class"].__setitem__(0, "others")), "class"
    yield edit(lambda p: p["ranges"]["size_bytes"].__setitem__(0, -1)), "size_bytes"
    yield edit(lambda p: p["steps"]["node"].pop()), "node"
    yield edit(lambda p: p.update(version=2)), "version"
    yield [], "format"


def main():
    with tempfile.TemporaryDirectory() as folder:
        old_path, new_path, bad = (os.path.join(folder, name) for name in ("old.json", "new.json", "bad.json"))
        old, new = make_plan(old_path, "--dim", "N=2"), make_plan(new_path, "--dim", "N=8", "--no-pass", "fuse")
        done = run("diff", old_path, new_path, "--json", "-")
        expect(done.returncode == 0, done.stderr)
        check_numbers(old, new, json.loads(done.stdout))
        done = run("diff", old_path, new_path)
        check_text(done.stdout, old, new)
        expect("--dim N=2" in done.stdout and "--no-pass fuse" in done.stdout, done.stdout)
        for first, second, limit, code in ((old_path, new_path, "2%", 6), (old_path, new_path, "100000", 0),
                                           (new_path, old_path, "0", 0), (old_path, old_path, "0%", 0),
                                           (old_path, new_path, "-1", 1), (old_path, new_path, "2x", 1)):
            done = run("diff", first, second, "--fail-above", limit)
            expect(done.returncode == code, f"--fail-above {limit}: exit {done.returncode}, not {code}: {done.stderr}")
            expect(code != 6 or "made by" in done.stderr, done.stderr)
        for plan, word in broken(old):
            write(bad, plan)
            done = run("diff", old_path, bad)
            expect(done.returncode in (2, 3) and word in done.stderr and not done.stdout, f"{word}: {done}")
        hostile = copy.deepcopy(new)
        for i, name in enumerate(hostile["ranges"]["name"]):
            hostile["ranges"]["name"][i] = f"{i}\n\x1b[31m\"<script>{'é' * 50}{name}"
        write(bad, hostile)
        check_text(run("diff", old_path, bad).stdout, old, new)
        names = {value["name"] for value in json.loads(run("diff", old_path, bad, "--json", "-").stdout)["values"]}
        expect(names & set(hostile["ranges"]["name"]), "names are not what they were")
        expect(run("diff", old_path).returncode == 1, "one plan is enough")
        expect(run("diff", old_path, os.path.join(folder, "none.json")).returncode == 5, "no such file")


main()
