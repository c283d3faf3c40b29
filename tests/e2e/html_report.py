#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planning report, without a browser.

    html_report.py ULLAGE MODEL.onnx TRAINED.onnx

Pages of plans for inference and for training, of one that does not fit, of hostile names, of a
plan without steps, of an older plan: each parses with every element closed, says the plan's bytes,
sums that add up, the plan's values in the tables below the pictures and in the script's data; it
names nothing outside of itself, its policy has the hashes of its style and script, and plan writes
the same bytes as report, twice.
Exit: 0 ok, 1 a promise is broken.
"""

import base64
import hashlib
import html.parser
import json
import os
import subprocess
import sys
import tempfile

ullage, model, trained = sys.argv[1:4]
VOID = {"meta", "br", "hr", "input", "link", "img"}
HOSTILE = '</script><img src=x onerror=alert(1)>{i}"\'&amp;\u202eabc\u2028{{"a": [1]}}\u0007' + "é" * 30


def expect(condition, what):
    if not condition:
        print(f"html: {what}")
        sys.exit(1)


def run(*words, code=0):
    done = subprocess.run([ullage, *words], capture_output=True, text=True, timeout=120)
    expect(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}")
    return done


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def save(plan, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)


class Page(html.parser.HTMLParser):
    """Tables by the class, texts by the id, and that every element is closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.counts, self.ids, self.tables, self.attributes = [], {}, {}, {}, []
        self.raw, self.cell, self.policy, self.rects = {}, None, "", []
        self.feed(text)
        self.close()
        expect(self.open == [], f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.attributes += [(tag, name, value) for name, value in attrs.items()]
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag == "rect" and "data-range" in attrs:
            self.rects.append(int(attrs["data-range"]))
        if tag == "table":
            self.rows = self.tables.setdefault(attrs["class"], [])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = []
        if "id" in attrs:
            expect(attrs["id"] not in self.ids, f"two elements have the id {attrs['id']}")
            self.ids[attrs["id"]] = attrs.get("value", "")
        if tag not in VOID:
            self.open.append((tag, attrs.get("id")))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1][0] == tag, f"</{tag}> in {self.open[-3:]}")
        self.open.pop()
        if tag in ("td", "th"):
            self.rows[-1].append("".join(self.cell))
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.append(data)
        if self.open and self.open[-1][0] in ("script", "style"):
            self.raw[self.open[-1]] = data


def number(text):
    return int(text.replace(",", ""))


def check_safety(page, text):
    for kind, tag in (("style", ("style", None)), ("script", ("script", None))):
        digest = base64.b64encode(hashlib.sha256(page.raw[tag].encode()).digest()).decode()
        expect(f"{kind}-src 'sha256-{digest}'" in page.policy, f"{kind}: {page.policy}")
    expect(page.policy.startswith("default-src 'none';"), page.policy)
    for tag, name, value in page.attributes:
        expect(not name.startswith("on") and name != "style", f"<{tag} {name}={value}>")
        expect(name not in ("src", "srcset", "data", "action") and (name != "href" or value.startswith("#")), f"<{tag} {name}={value}>")
        expect(name != "fill" or value.startswith("url(#"), f"<{tag} {name}={value}>")
    expect("://" not in text and "@import" not in text, "the page names a place outside")
    expect(not any(character in text for character in "\u202e\u2028\u0007"), "hidden characters")
    expect(page.counts["script"] == 2 and "img" not in page.counts, f"{page.counts}")
    svg = sum(page.counts.get(tag, 0) for tag in ("svg", "rect", "path", "line", "circle", "text", "tspan", "g", "pattern", "defs"))
    expect(svg <= 5000, f"{svg} elements of SVG")


def check_sums(page, plan):
    expect(int(page.ids["reserved"]) == plan["reserved_bytes"], "the headline")
    rows = {row[0].replace(" ", "_"): number(row[6]) for row in page.tables["sums"][1:] if not row[0].startswith("of it")}
    total = rows.pop("reserved")
    none = {name: 0 for name in ("optimizer_state", "gradients", "activations_kept_for_backward") if name not in plan["ranges"]["class"] and plan["rows"][name] == 0}
    expect({**none, **rows} == plan["rows"] and not set(none) & set(rows), f"rows: {rows}")
    expect(sum(rows.values()) == total == plan["reserved_bytes"], "the sums do not add up")
    for row in page.tables["sums"][1:]:
        expect(row[1] == "" or number(row[2]) + number(row[3]) == number(row[4]), f"{row}")
    if "process_bytes" in plan:
        process = [number(row[2]) for row in page.tables["process"][1:]]
        expect(sum(process[:-1]) == process[-1] == plan["process_bytes"], f"process: {process}")


def check_tables(page, plan):
    ranges, steps = plan["ranges"], plan["steps"]
    arena = [i for i, space in enumerate(ranges["space"]) if space == 0 and ranges["begin"][i] < ranges["end"][i] and ranges["size_bytes"][i] > 0]
    expect(sorted(page.rects) == arena, f"{len(page.rects)} boxes of {len(arena)}")
    rows = sorted((number(row[3]), number(row[4]), int(row[5]), int(row[6]) + 1) for row in page.tables.get("ranges", [])[1:])
    expect(rows == sorted((ranges["size_bytes"][i], ranges["offset_bytes"][i], ranges["begin"][i], ranges["end"][i]) for i in arena), "the table of the map")
    curve = page.tables["curve"]
    expect([int(row[0]) for row in curve[1:]] == list(range(max(1, len(steps["op"])))), "steps of the curve")
    live = [number(row[-1]) for row in curve[1:]]
    expect(all(sum(map(number, row[3:-1])) == number(row[-1]) for row in curve[1:]), "classes of the curve do not add up")
    expect(max(live) == live[plan["peak_step"]], "the peak of the curve")
    if steps["op"]:
        expect(live[plan["peak_step"]] == plan["order_lower_bound_bytes"], "the curve at the peak")
    alive = [row for row in page.tables["values"][1:]]
    expect(sum(number(row[1]) for row in alive[:-1]) == number(alive[-1][1]), "values at the peak do not add up")


def shown(name):
    """As people may read it: what hides, or turns text, is escaped."""
    for hidden in "\u202e\u2028\u0007":
        name = name.replace(hidden, "".join(f"\\x{byte:02X}" for byte in hidden.encode()))
    return name


def check_data(page, plan):
    text = page.raw[("script", "plan")]
    expect("<" not in text, "a < in the data")
    data = json.loads(text)
    ranges = data["ranges"]
    for key, column in (("offset", "offset_bytes"), ("size", "size_bytes"), ("begin", "begin"), ("end", "end")):
        expect(ranges[key] == plan["ranges"][column], f"data: {key}")
    expect([ranges["type"]["texts"][at] for at in ranges["type"]["at"]] == [shown(name) for name in plan["ranges"]["type"]], "data: type")
    for i, at in enumerate(ranges["name"]["at"]):
        expect(plan["ranges"]["value"][i] is None or ranges["name"]["texts"][at] == shown(plan["ranges"]["name"][i]), f"data: name {i}")
    expect(ranges["readers"] == plan["ranges"].get("readers", [[] for _ in ranges["size"]]), "data: readers")
    expect([data["steps"]["node"]["texts"][at] for at in data["steps"]["node"]["at"]] == [shown(name) for name in plan["steps"]["node"]], "data: node")


def check(folder, path, *words):
    plan, out = load(path), os.path.join(folder, "report.html")
    run("report", path, "--html", out, *words)
    with open(out, encoding="utf-8") as file:
        text = file.read()
    expect(run("report", path, "--html", "-", *words).stdout == text, "another run gives other bytes")
    page = Page(text)
    check_safety(page, text)
    check_sums(page, plan)
    check_tables(page, plan)
    check_data(page, plan)
    for i in range(1, 12):
        expect(f"s{i}" in page.ids, f"section {i} is missing")
    return page, text


UNCHECKED = "This page shows what the plan.json says, and nothing of it was checked here: the last command below does that."


def check_made(folder, *words, code=0):
    """What plan writes beside the plan is what report makes from it, except that plan has checked it."""
    path, made = os.path.join(folder, "plan.json"), os.path.join(folder, "made.html")
    run("plan", *words, "--json", path, "--html", made, code=code)
    page, text = check(folder, path)
    with open(made, encoding="utf-8") as file:
        of_plan = file.read()
    for checked, unchecked in (("<p class=\"lead\">Checked, by code", f"<p class=\"lead\">{UNCHECKED} Then checked, by code"), (": checked</td>", ": says the file</td>")):
        expect(checked in of_plan and checked not in text and unchecked not in of_plan, f"{words}: who checked what")
        of_plan = of_plan.replace(checked, unchecked)
    expect(of_plan == text, f"{words}: plan and report differ")
    return page, text, load(path)


def spoil(plan):
    for table, column in (("ranges", "name"), ("ranges", "type"), ("steps", "name"), ("steps", "node"), ("steps", "op"), ("steps", "source")):
        plan[table][column] = [name if name is None else HOSTILE.format(i=i) + name for i, name in enumerate(plan[table][column])]
    plan["steps"]["source"] = [HOSTILE.format(i=i) for i in range(len(plan["steps"]["op"]))]
    for key in ("model", "target", "tool", "model_sha256"):
        plan[key] = HOSTILE.format(i=0) + plan[key]
    plan["options"] += [["dim", HOSTILE.format(i=1)], [HOSTILE.format(i=2), HOSTILE.format(i=3)]]
    plan["spaces"]["name"] = [HOSTILE.format(i=4) for _ in plan["spaces"]["name"]]
    plan["method"] = {key: HOSTILE.format(i=5) for key in plan["method"]}
    rest = {"reserved_bytes": 100, "process_bytes": 200, "cost": 300, "fits": True}
    plan["remedies"] = [{"kind": HOSTILE.format(i=6), "change": HOSTILE.format(i=7), "applied": False, "saved_bytes": 1, "extra_cost": -5, **rest}]
    plan["ladder"] = [{"recomputed_steps": 0, "splits": 0, "row_major": 0, "inside": 0, **rest}]
    plan["blockers"] = [{"step": 0, "bytes": 100}]
    plan["max_dim"] = {"name": HOSTILE.format(i=8), "size": 7, "planned": [{"size": 7, "bytes": 5, "fits": True}, {"size": 8, "bytes": 6, "fits": False}], "why_not_larger": HOSTILE.format(i=9)}
    plan["micro_batches"] = {"count": 2, "planned": [{"count": 2, "bytes": 5, "cost": 1000000, "fits": True}]}
    return plan


def check_refused(plan, path):
    """Members of a plan that was edited, and do not hold together."""
    def broken(table, column, entry):
        other = json.loads(json.dumps(plan))
        (other[table] if table else other)[column] = entry(other[table][column] if table else other.get(column))
        save(other, path)
        expect("ullage: error: " + path in run("report", path, "--html", path + ".html", code=2).stderr, f"{table} {column}")

    first, rest = plan["ranges"]["begin"][0], plan["ranges"]["readers"][1:]
    for list_ in ([[first, first], *rest], [[-1], *rest], [["x"], *rest], [[1 << 40], *rest], rest, [None, *rest], {}):
        broken("ranges", "readers", lambda _, list_=list_: list_)
    broken("steps", "source", lambda column: column[1:])
    broken("steps", "pass", lambda column: [1] * len(column))
    broken("spaces", "name", lambda column: column[1:])
    broken(None, "ladder", lambda _: 3)
    broken(None, "ladder", lambda _: [{}])
    broken(None, "remedies", lambda _: [{"kind": "reuse"}])
    broken(None, "blockers", lambda _: [{"step": len(plan["steps"]["op"]), "bytes": 1}])
    broken(None, "max_batch", lambda _: {"batch": 3})
    broken(None, "micro_batches", lambda _: {"count": 3, "planned": [{"count": 3, "bytes": "5"}]})
    broken(None, "opset", lambda _: "17")
    broken(None, "process", lambda _: {"buffer": -1})


def main():
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "other.json")
        train = [trained, "--dim", "N=16", "--train-mode", "--output", "/fc/Gemm_output_0", "--train", "--optimizer", "adam", "--target", "c"]
        page, _, plan = check_made(folder, model, "--dim", "N=3", "--target", "c", "--advice", "on")
        expect(len(page.tables["ladder"]) == len(plan["ladder"]) + 1 and len(page.tables["blockers"]) == len(plan["blockers"]) + 1, "ladder, blockers")
        rows = [row for kind in ("advice", "advice applied") for row in page.tables.get(kind, [])[1:]]
        expect([number(row[3].replace("\u2212", "-")) for row in rows] == [remedy["saved_bytes"] * (-1 if remedy["applied"] else 1) for applied in (False, True) for remedy in plan["remedies"] if remedy["applied"] == applied], "advice")
        page, text, plan = check_made(folder, *train, "--budget-of", "arena", "--budget", "64KiB", "--advice", "off", code=4)
        expect("does not fit" in text and "text" in page.counts, "what does not fit says so")
        plan["budget_bytes"] = 2 * plan["reserved_bytes"]  # as of a plan whose other limits are not met
        save(plan, other)
        limit = "another limit than its bytes is not met"
        expect(limit in " ".join(run("report", other, "--html", other + ".html").stdout.split()), "a plan within its bytes that does not fit")
        with open(other + ".html", encoding="utf-8") as file:
            expect(limit in file.read(), "its page")
        page, text, plan = check_made(folder, *train, "--advice", "off")
        expect(">forward</text>" in text and ">backward</text>" in text, "passes are not marked")
        save(plan, other)
        page, text = check(folder, other, "--baseline", other)
        expect("compared" in page.tables and all(row[-1] == "0" for row in page.tables["compared"][1:]), "compared with itself")
        check_refused(plan, os.path.join(folder, "refused.json"))
        old = json.loads(json.dumps(plan))
        for table, column in (("ranges", "readers"), ("steps", "source"), ("steps", "pass")):
            del old[table][column]
        del old["opset"], old["process"], old["process_bytes"]
        save(old, other)
        check(folder, other)
        save(spoil(plan), other)
        page, text = check(folder, other, "--baseline", other)
        expect(page.tables["ladder"][1][1] == "100" and page.tables["advice"] and page.tables["blockers"], "advice, ladder, blockers")
        expect([row[0] for row in page.tables["tried"]] == ["size", "7", "8", "size", "2"] and "the smallest plan known for 8 takes" in text, f"sizes: {page.tables['tried']}")
        for table in ("steps", "ranges"):
            plan[table] = {key: [] for key in plan[table]}
        save({**plan, "blockers": [], "remedies": [], "ladder": [], "peak_step": 0}, other)
        _, text = check(folder, other)
        expect("Nothing helps" in text, "no remedies")
        run("report", other, "--baseline", other, code=1)
        run("plan", model, model, "--dim", "N=1", "--shared", "--json", other)
        check(folder, other)


if __name__ == "__main__":
    main()
