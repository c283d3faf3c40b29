#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage report: saved plans as text, CSV and traces.

    report.py ULLAGE MODEL.onnx TRAINED.onnx

Tables and traces say what plan.json says, with names that are hostile too; the curve of live bytes
has the rows of the plan at its peak and is nowhere higher; slices of a track do not overlap, and
those that do are pairs; plan writes the same files as report. The text says of a plan that was just
made that it is checked, and of a file that it is not.
Exit: 0 ok, 1 a promise is broken.
"""

import copy
import csv
import json
import os
import subprocess
import sys
import tempfile

ullage, model, trained = sys.argv[1:4]
FORMS = ("--csv", "--csv-steps", "--trace")


def run(*words, code=0):
    done = subprocess.run([ullage, *words], capture_output=True, text=True, env=dict(os.environ, COLUMNS="80"), timeout=120)
    expect(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}")
    return done


def expect(condition, what):
    if not condition:
        print(f"report: {what}")
        sys.exit(1)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    expect("\n" not in text.replace("\r\n", "") or '"' in text, "lines do not end with CR LF")
    rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
    expect(all(len(row) == len(rows[0]) for row in rows), "lines of different lengths")
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def check_values(plan, rows):
    ranges = plan["ranges"]
    expect(len(rows) == len(ranges["name"]), "values: another number of lines")
    for i, row in enumerate(rows):
        for key, column in (("type", "type"), ("class", "class"), ("offset_bytes", "offset_bytes"),
                            ("size_bytes", "size_bytes"), ("begin_step", "begin"), ("end_step", "end")):
            expect(row[key] == str(ranges[column][i] if ranges[column][i] is not None else ""), f"values: {i}: {key}: {row}")
        name, alias = ranges["name"][i], ranges["alias"][i]
        step = f"(scratch) {plan['steps']['node'][ranges['begin'][i]]}" if ranges["value"][i] is None else None
        expect(row["name"] == shown(step or name), f"values: {row['name']!r}")
        expect(row["alias_line"] == ("" if alias is None else str(alias + 2)), f"values: {i}: alias")


def shown(name):
    """As tables have it: what hides, or moves a cursor, is escaped."""
    for hidden in "\r\x1b\u2028":
        name = name.replace(hidden, "".join(f"\\x{byte:02X}" for byte in hidden.encode()))
    return name.replace("\n", "\\n")


def check_curve(plan, rows):
    live = [int(row["live_bytes"]) for row in rows]
    peak = rows[plan["peak_step"]]
    for name, size in plan["rows"].items():
        expect(name in ("holes", "unaccounted") or int(peak[name + "_bytes"]) == size, f"{name} at the peak: {peak}, {size}")
    expect(max(live) == live[plan["peak_step"]] == plan["order_lower_bound_bytes"], f"{max(live)} is not the peak")
    for i, row in enumerate(rows):
        expect(row["op"] == plan["steps"]["op"][i] and int(row["flops"]) == plan["steps"]["flops"][i], f"steps: {row}")
        expect(live[i] == sum(int(row[key]) for key in row if key.endswith("_bytes") and key not in ("live_bytes", "moved_bytes")), f"steps: {row}")


def check_trace(plan, trace, steps):
    events = trace["traceEvents"]
    slices = sorted((event["ts"], event["dur"]) for event in events if event["ph"] == "X")
    expect(slices == [(i, 1) for i in range(len(steps))], "steps are not one behind the other")
    counters = [event["args"] for event in events if event["ph"] == "C"]
    expect(len(counters) == len(steps) + 1 and not any(counters[-1].values()), "counters")
    for i, row in enumerate(steps):
        expect(sum(counters[i].values()) == int(row["live_bytes"]), f"counters at {i}")
    opened = {event["id"]: event for event in events if event["ph"] == "b"}
    closed = {event["id"]: event for event in events if event["ph"] == "e"}
    alive = [i for i, begin in enumerate(plan["ranges"]["begin"]) if begin < plan["ranges"]["end"][i]]
    expect(sorted(opened) == sorted(closed) == alive, "values are no pairs")
    for i in alive:
        expect((opened[i]["ts"], closed[i]["ts"]) == (plan["ranges"]["begin"][i], plan["ranges"]["end"][i]), f"value {i}")
        expect(opened[i]["name"] == closed[i]["name"] and opened[i]["cat"] == closed[i]["cat"], f"value {i}")


def check_users(plan, trains):
    """Who reads what, by the columns of plan.json alone."""
    steps, ranges = plan["steps"], plan["ranges"]
    for begin, end, readers in zip(ranges["begin"], ranges["end"], ranges["readers"]):
        expect(readers == sorted(set(readers)) and all(begin <= reader < end for reader in readers), f"readers: {readers}")
    for i, begin in enumerate(ranges["begin"]):
        is_made = ranges["class"][i] in ("other_activations", "activations_kept_for_backward") and ranges["value"][i] is not None
        expect(not is_made or begin not in ranges["readers"][i], f"{ranges['name'][i]} is read by the step that makes it")
    passes = set(steps["pass"])
    expect(passes == ({"forward", "backward"} if trains else {None}), f"passes: {passes}")
    for node, name in zip(steps["node"], steps["pass"]):
        expect(name != "forward" or not node.endswith(("/gradient", "/update")), f"{node} is forward")
        expect(name != "backward" or not node.endswith("Conv"), f"{node} is backward")
    expect(plan["opset"] >= 7, f"opset {plan['opset']}")


def size(count):
    """As messages say it; what is planned here is of KiB and MiB."""
    return f"{count / 1024:.2f} KiB = {count} bytes" if count < 1 << 20 else f"{count / (1 << 20):.2f} MiB = {count} bytes"


def check_text(text, plan):
    lines = text.splitlines()
    expect(len(lines) < 40 and all(len(line) <= 80 and line.isprintable() for line in lines), text)
    headline = " ".join(lines[:2])
    expect(f" = {plan['process_bytes']} bytes" in headline and f"buffer {size(plan['reserved_bytes'])}." in headline, headline)
    expect((" at set-up" in headline) == ("process_peak_at_start" in plan), headline)
    start = [i for i, line in enumerate(lines) if line.startswith("  at the peak")][0] + 1
    table = [line for line in lines[start:lines.index("", start)] if not line.startswith("    ")]
    rows = {line[2:34].strip().replace(" ", "_"): int(line.split()[-1]) for line in table}
    total, process = rows.pop("reserved"), rows.pop("process_at_set-up,_at_most" if "process_peak_at_start" in plan else "process,_at_most")
    expect(total == plan["reserved_bytes"] == sum(rows.values()) and process == plan["process_bytes"], text)
    expect(rows["unaccounted"] == 0 and "live bytes" in text, text)
    expect(f"step {plan['peak_step']} of 0 to {len(plan['steps']['step']) - 1}" in text, text)


def check(folder, path):
    plan = load(path)
    files = [os.path.join(folder, form.strip("-")) for form in FORMS]
    words = [word for pair in zip(FORMS, files) for word in pair]
    text = run("report", path, *words).stdout
    check_text(text, plan)
    expect("Not checked" in text and "hecked independently" not in text and "(checked)" not in text, f"a file that nobody has checked: {text}")
    steps = read_csv(files[1])
    check_values(plan, read_csv(files[0]))
    check_curve(plan, steps)
    check_trace(plan, load(files[2]), steps)
    return files


def main():
    with tempfile.TemporaryDirectory() as folder:
        path, other = os.path.join(folder, "plan.json"), os.path.join(folder, "other.json")
        train = [trained, "--dim", "N=16", "--train-mode", "--output", "/fc/Gemm_output_0", "--train", "--optimizer", "adam", "--target", "c"]
        small = load_smallest(train)
        for words in ([model, "--dim", "N=3"], [model, "--dim", "N=2", "--target", "c", "--pack", "none"], train,
                      [*train, "--budget-of", "arena", "--budget", str(small)]):
            made = [os.path.join(folder, "made" + form.strip("-")) for form in FORMS]
            text = run("plan", *words, "--json", path, *[word for pair in zip(FORMS, made) for word in pair]).stdout
            expect("Checked independently." in text and "Proven (" in text and "says the file" not in text, text)
            for first, second in zip(check(folder, path), made):
                with open(first, "rb") as a, open(second, "rb") as b:
                    expect(a.read() == b.read(), f"{words}: plan and report differ in {first}")
            check_users(load(path), "--train" in words)
        hostile = load(path)
        for table, column in (("ranges", "name"), ("steps", "name"), ("steps", "node")):
            for i, name in enumerate(hostile[table][column]):
                hostile[table][column][i] = name and f'{i},"\r\n\x1b[31m</script>\u2028{{"a": 1}}{"é" * 40}{name}'
        with open(other, "w", encoding="utf-8") as file:
            json.dump(hostile, file)
        check(folder, other)
        empty = copy.deepcopy(hostile)
        empty["steps"] = {key: [] for key in empty["steps"]}
        with open(other, "w", encoding="utf-8") as file:
            json.dump(empty, file)
        run("report", other, code=2)
        run("report", code=1)
        run("plan", model, "--dim", "N=1", "--sweep", "--trace", other, code=1)


def load_smallest(train):
    sweep = json.loads(run("plan", *train, "--budget-of", "arena", "--sweep", "--json", "-").stdout)
    return sweep["plans"][-1]["reserved_bytes"]


main()
