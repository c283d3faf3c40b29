#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Single values of plans, forged: `check` refuses each but those that are the planner's word.

    forge.py ULLAGE PLAN_FORMAT.md [--all] [CASE...]

Every value of plans of all kinds is changed, one at a time: numbers by one and to 2^62 (with --all
also to twice as much and 0), texts, flags turned, entries of lists left out and said twice. `check`
must refuse each with exit 2, 3 or 6 unless docs/plan-format.md has its place among what is the
planner's word, what was given, or what may be chosen otherwise; the program's own list is the same.
An option may be left out; each that is there stands as `plan` writes it, once.
The planner's word has bounds: what is far from it (FAR) must be refused but in FREE places.
The plan itself is taken, and `check` names what of it is of these kinds. In columns the first and
the last entry are changed, with --all each, and more plans and values.
Exit: 0 ok, 1 a forged plan was taken, 77 a package is missing.
"""

import concurrent.futures
import copy
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import onnx
    from onnx import parser
except ImportError as error:
    print(f"forge.py: skipped: {error}")
    sys.exit(77)

ullage, pages = os.path.abspath(sys.argv[1]), sys.argv[2]
is_full, wanted = "--all" in sys.argv[3:], [word for word in sys.argv[3:] if word != "--all"]
BATCH = 60
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
MODELS = {
    "net": """
net (float[8,16] x) => (float[8,16] y, float[8,16] side)
<float[16,16] a = {WEIGHTS}, float[16,16] b = {WEIGHTS}> {
  p = MatMul (x, a)
  q = Relu (p)
  r = Softmax (q)
  s = MatMul (r, b)
  side = Softmax <axis = 0> (s)
  y = Add (side, q)
}""",
    "deep": """
deep (float[64,16] x) => (float[64,16] y)
<float[16,16] a = {WEIGHTS}, float[16,16] b = {WEIGHTS}, float[16,16] c = {WEIGHTS}> {
  p = MatMul (x, a)
  q = Tanh (p)
  r = MatMul (q, b)
  s = Tanh (r)
  t = MatMul (s, c)
  y = Tanh (t)
}""",
}
MODELS["free"] = MODELS["net"].replace("net (", "free (").replace("[8,16] x", "[N,16] x").replace("[8,16] y", "[N,16] y")
MODELS["free"] = MODELS["free"].replace("[8,16] side", "[N,16] side")
TRAIN = ["--train", "--optimizer", "adam"]
ARENA = ["--budget-of", "arena", "--budget"]
CASES = {
    "c": ("net", ["--target", "c"]),
    "cpu": ("net", ["--target", "cpu", "--advice", "on"]),
    "cuda": ("net", ["--target", "cuda", "--with-cudnn", "off", "--device", "t4"]),
    "rom": ("net", ["--target", "c", "--weights", "rom", "--io", "caller"]),
    "half": ("net", ["--target", "cpu", "--precision", "bf16"]),
    "none": ("net", ["--target", "c", "--budget", "64", "--budget-of", "arena"]),
    "train": ("deep", ["--target", "c", *TRAIN, "--clip-norm", "1", "--micro-batches", "2"]),
    "tight": ("deep", ["--target", "c", *TRAIN, "--budget-of", "arena"]),
    "offload": ("deep", ["--target", "c", *TRAIN, "--offload", "host", "--budget-of", "arena"]),
}
CASES["batch"] = ("free", ["--target", "c", *ARENA, "20000", "--max-batch", "--advice", "on"])
CASES["dim"] = ("free", ["--target", "c", *ARENA, "20000", "--max-dim", "N:3"])
CASES["parts"] = ("deep", ["--target", "c", *TRAIN, *ARENA, "30000", "--micro-batches", "auto", "--advice", "on"])
SEARCHES = ("batch", "dim", "parts")  # of these what a search found alone is forged
FAR = {"2^62", "turned", "last twice"}
FREE = {"stopped_by_time", "remedies[].same_bits"}
FEW = ("c", "cpu", "cuda", "rom", "tight", "offload", "batch", "dim", "parts")


def expect(condition, what):
    if not condition:
        print(f"forge.py: {what}")
        sys.exit(1)


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)


def make(folder, case):
    """The model's path, and its plan."""
    name, words = CASES[case]
    weights = ", ".join(str(((i * 7) % 13 - 6) / 16) for i in range(256))
    path, plan = os.path.join(folder, f"{name}.onnx"), os.path.join(folder, f"{case}.json")
    onnx.save(parser.parse_model(HEAD + MODELS[name].replace("WEIGHTS", weights)), path)
    if case in ("tight", "offload"):
        sweep = json.loads(run(ullage, "plan", path, *words, "--sweep", "--json", "-").stdout)
        sizes = [row["reserved_bytes"] for row in sweep["plans"]]
        words = [*words, "--budget", str(sizes[len(sizes) // 2] if case == "tight" else sizes[-1])]
    done = run(ullage, "plan", path, *words, "--json", plan)
    expect(done.returncode == (4 if case == "none" else 0), f"{case}: {done.stderr}")
    with open(plan, encoding="utf-8") as file:
        return path, json.load(file)


def places(value, path=()):
    """Every place of a value, lists and objects included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def at(plan, path):
    for key in path:
        plan = plan[key]
    return plan


def changes(value):
    """Other values for a place, with what was done."""
    if isinstance(value, bool):
        return [("turned", not value)]
    if isinstance(value, int):
        news = [("+1", value + 1), ("2^62", 1 << 62)] + (value > 0) * [("-1", value - 1)] + is_full * [("x2", value * 2), ("0", 0)]
        return [(what, new) for what, new in news if new != value]
    if isinstance(value, float):
        return [("+1", value + 1), ("x2", value * 2 + 1e-3), ("0", 0 if value else 0.5)]
    if isinstance(value, str):
        return [("text", f"{value}x"), ("empty", "")][:1 + is_full] if value else [("text", "x")]
    if value is None:
        return [("0", 0), ("text", "x")]
    if isinstance(value, list):
        return [("last left out", value[:-1]), ("last twice", [*value, value[-1]])] if value else [("0", [0])]
    return []


def added(options):
    """Options of their own, of a kind that only making a plan reads, as no plan has them."""
    return [(f"{name} {value!r}", [*options, [name, value]]) for name, value in (("align", ""), ("align", "48"), ("keep-inputs", "no"), ("seed", "07"), ("order", "none"))]


def forge(plan, path, value):
    forged = copy.deepcopy(plan)
    at(forged, path[:-1])[path[-1]] = value
    return forged


def place_name(path):
    """"steps.flops[]": a number counts for any."""
    return "".join("[]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def read_places(title):
    """The first column of the table under that heading of the page."""
    with open(pages, encoding="utf-8") as file:
        text = file.read().split(f"### {title}\n")[1].split("\n#")[0]
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row[1])}


def read_words():
    """Places that are nobody's to compute; the program's own list is the page's."""
    titles = {"WORD": "The planner's word", "GIVEN": "What was given", "CHOICE": "Another plan"}
    lists = {kind: read_places(title) for kind, title in titles.items()}
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "report", "facts.def"), encoding="utf-8") as file:
        classes = file.read().split("\nUL_CLASS(")[1:]
    rows = [(("" if body.startswith("plan,") else f"{body.split(',')[0]}s.") + key, held) for body in classes
            for key, held in re.findall(r'^UL_(?:FACT_OF\(\w+, |PLANNED\(\w+, \w+, |SEARCH\()(\w+), .*?(?:NEED|LATER|SOME|TOO), (\w+),\s', body, re.MULTILINE)]
    for kind, places_of in lists.items():
        expect({name.replace("[]", "") for name in places_of} == {place for place, held in rows if kind in held.split("_")}, f"the page and report/facts.def differ: {kind}")
    return lists["WORD"], lists["GIVEN"], lists["CHOICE"]


def is_word(words, name):
    """A row holds for what is below its place."""
    pieces = name.replace("[]", ".[]").split(".")
    return {word for word in words for n in range(1, len(pieces) + 1) if fnmatch.fnmatchcase(".".join(pieces[:n]).replace(".[]", "[]"), word)}


def is_held_option(name, what):
    """An option appears as `plan` writes it, once; an older plan has fewer of them."""
    return name.startswith("options") and what != "last left out"


def sample(case, plan, planners):
    """The first and the last entry of columns: the others are of a kind."""
    for path in places(plan):
        if path == ():
            continue
        if case in SEARCHES and path[0] not in planners:
            continue
        in_column = len(path) >= 3 and path[0] in ("steps", "ranges") and isinstance(path[2], int)
        count = len(plan[path[0]][path[1]]) if in_column else 0
        if is_full or not in_column or path[2] in (0, count - 1):
            yield path


def check_batch(task):
    folder, number, model, case, forged = task
    paths = []
    for i, (_, _, plan) in enumerate(forged):
        paths.append(os.path.join(folder, f"{case}{number}_{i}.json"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            json.dump(plan, file)
    done = run(ullage, "check", model, *paths, paths[0])
    expect(done.returncode in (0, 2, 3, 6), f"{case}: exit {done.returncode}: {done.stderr[-2000:]}")
    ok = [line.split(": ok: ")[0] for line in done.stdout.splitlines() if ": ok: " in line]
    return [(name, what) for (name, what, _), path in zip(forged, paths) if path in ok]


def check_case(folder, case, words):
    """Places of this case whose forged values were taken and should not be."""
    model, plan = make(folder, case)
    done = run(ullage, "check", model, os.path.join(folder, f"{case}.json"))
    expect(done.returncode == 0, f"{case}: the plan itself is refused: {done.stderr}")
    forged = [(place_name(path), what, forge(plan, path, new)) for path in sample(case, plan, words[0]) for what, new in changes(at(plan, path))]
    forged += [("options", what, {**plan, "options": new}) for what, new in added(plan["options"])]
    forged += [("options[][]", "empty", forge(plan, ("options", i, 1), "")) for i, (_, value) in enumerate(plan["options"]) if value]
    tasks = [(folder, i, model, case, forged[i:i + BATCH]) for i in range(0, len(forged), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        taken = [item for items in pool.map(check_batch, tasks) for item in items]
    planners, given, choices = words
    wrong = sorted({f"{name} ({what})" for name, what in taken if is_held_option(name, what) or not is_word(given | choices, name) and
                    (not is_word(planners, name) or what in FAR and name not in FREE)})  # fmt: skip
    print(f"{case}: {len(forged)} forged, {len(taken)} taken, {len(wrong)} of them wrongly", *wrong, sep="\n  ")
    check_named(case, plan, done.stdout, words)
    return wrong


def check_named(case, plan, stdout, words):
    """`check` names of each kind what the plan has, and nothing else of it is taken otherwise."""
    lines = dict(line.split(": ", 1) for line in stdout.splitlines())
    has = {place_name(path).replace("[]", "") for path in places(plan)}
    for kind, names in zip(("the planner's word", "as it was given", "as it was chosen"), words):
        said = set(lines[kind].split(", "))
        expect(said == {name.replace("[]", "") for name in names} & has, f"{case}: check names {sorted(said)} {kind}")


def main():
    words = read_words()
    with tempfile.TemporaryDirectory() as folder:
        wrong = [item for case in wanted or (CASES if is_full else FEW) for item in check_case(folder, case, words)]
    sys.exit(1 if wrong else 0)


main()
