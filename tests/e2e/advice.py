#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage plan --advice: what would make a plan smaller.

    advice.py ULLAGE UNTRAINED.onnx

Each remedy is the plan that its change gives when it is asked for by hand, to the byte and the
nanosecond; what it saves is the difference; the best come first; what stands in the way needs what
the lower bound says; the ladder begins with the plan without a budget; what does not fit names what
would; advice changes nothing of the plan. A process of another owner is not compared.
Exit: 0 ok, 1 a promise is broken.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile

ullage, untrained = sys.argv[1:3]
TRAIN = ("--target", "c", "--output", "/fc/Gemm_output_0", "--train", "--train-mode")


def run(*words, code=0, **environment):
    done = subprocess.run([ullage, *words], capture_output=True, text=True, timeout=300, env=dict(os.environ, **environment))
    expect(done.returncode == code, f"{words}: exit {done.returncode}\n{done.stderr}")
    return done


def expect(condition, what):
    if not condition:
        print(f"advice: {what}")
        sys.exit(1)


def advise(*words, code=0):
    return json.loads(run("plan", *words, "--advice", "on", "--json", "-", code=code).stdout)


def changed(words, change):
    """The command's words with the change: an option of that name, or dimension, is replaced."""
    words, new = list(words), shlex.split(change)
    at = 0
    while at < len(new):
        if new[at] == "without":
            k = words.index(new[at + 1])
            del words[k:k + (1 if k + 1 == len(words) or words[k + 1].startswith("--") else 2)]
            at += 2
            continue
        option, value = new[at:at + 2]
        for k in range(len(words) - 1):
            if words[k] == option and (option != "--dim" or words[k + 1].split("=")[0] == value.split("=")[0]):
                del words[k:k + 2]
                break
        words += [option, value]
        at += 2
    return words


def check_remedy(plan, words, remedy):
    done = subprocess.run([ullage, "plan", *changed(words, remedy["change"]), "--json", "-"],
                          capture_output=True, text=True, timeout=300)
    expect(done.returncode in (0, 4), f"{remedy['change']}: {done.stderr}")
    other = json.loads(done.stdout)
    for key in ("reserved_bytes", "process_bytes", "fits"):
        expect(other[key] == remedy[key], f"{remedy['change']}: {key} is {other[key]}, not {remedy[key]}")
    expect(remedy.get("process_of", plan["process_of"]) == other["process_of"], f"{remedy['change']}: of another process")
    is_alike = other["process_of"] == plan["process_of"]
    expect(is_alike or plan["budget_of"] == "arena" or (remedy["fits"] and not plan["fits"]), f"{remedy['change']}: unlike things are compared")
    of = "reserved_bytes" if plan["budget_of"] == "arena" or not is_alike else "process_bytes"
    saved = plan[of] - other[of]
    expect(remedy["saved_bytes"] == saved, f"{remedy['change']}: saves {saved}, not {remedy['saved_bytes']}")
    if "--dim" not in remedy["change"] and "--micro-batches" not in remedy["change"]:
        extra = other["cost"] - plan["cost"]
        expect(remedy["extra_cost"] == extra, f"{remedy['change']}: {extra} ns more, not {remedy['extra_cost']}")


def check(words, code=0, kinds=()):
    plan = advise(*words, code=code)
    remedies = plan["remedies"]
    for remedy in remedies:
        check_remedy(plan, words, remedy)
    own = [remedy for remedy in remedies if not remedy["applied"]]
    expect(remedies[:len(own)] == own, "what the plan has stands before what it has not")
    expect(all((remedy["saved_bytes"] > 0) != remedy["applied"] or remedy["fits"] != plan["fits"] for remedy in remedies), "a remedy that saves nothing")
    if plan["fits"]:
        paid = [remedy for remedy in own if remedy["extra_cost"] > 0]
        rates = [remedy["saved_bytes"] / remedy["extra_cost"] for remedy in paid]
        expect(own[len(own) - len(paid):] == paid and rates == sorted(rates, reverse=True), f"not ranked: {own}")
    else:
        fitting = [remedy for remedy in own if remedy["fits"]]
        expect(own[:len(fitting)] == fitting, "what fits does not come first")
    found = {remedy["kind"] for remedy in remedies}
    expect(set(kinds) <= found, f"{set(kinds) - found} missing of {found}")
    bare = json.loads(run("plan", *words, "--json", "-", code=code).stdout)
    for key in plan:
        if key not in ("remedies", "remedies_tried", "ladder", "smallest_budget_bytes"):
            expect(plan[key] == bare[key], f"advice changes {key}")
    expect(not {"remedies", "ladder"} & bare.keys(), "advice where none was asked for")
    return plan


def check_blockers(plan):
    blockers = plan["blockers"]
    sizes = [blocker["bytes"] for blocker in blockers]
    expect(sizes == sorted(sizes, reverse=True) and len(sizes) == 3, f"{blockers}")
    expect(sizes[0] < plan["lower_bound_bytes"], "a step needs more than the bound")
    ranges = plan["ranges"]
    for blocker in blockers:
        touched = sum(size for size, begin, end, space in zip(ranges["size_bytes"], ranges["begin"], ranges["end"], ranges["space"])
                      if space == 0 and begin <= blocker["step"] < end)
        expect(touched >= blocker["bytes"], f"step {blocker['step']} has {touched} bytes alive, not {blocker['bytes']}")


def check_ladder(plan):
    ladder = plan["ladder"]
    expect(len(ladder) > 1 and ladder[0]["reserved_bytes"] == plan["reserved_bytes"] and ladder[0]["cost"] == plan["cost"], "the ladder begins elsewhere")
    expect(all(a["process_bytes"] > b["process_bytes"] and a["cost"] <= b["cost"] for a, b in zip(ladder, ladder[1:])), "no ladder")


def check_older(words):
    """A plan from before processes were compared says what is saved of the buffer: it is taken, and shown as a newer one."""
    with tempfile.TemporaryDirectory() as folder:
        new, old = os.path.join(folder, "new.json"), os.path.join(folder, "old.json")
        run("plan", *words, "--advice", "on", "--json", new)
        with open(new, encoding="utf-8") as file:
            plan = json.load(file)
        own = plan["reserved_bytes"]
        saved = {remedy["change"]: own - remedy["reserved_bytes"] for remedy in plan["remedies"]}
        plan["remedies"] = [remedy for remedy in plan["remedies"] if abs(saved[remedy["change"]]) > own // 1000]
        with open(new, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        expect(any(remedy["saved_bytes"] != saved[remedy["change"]] for remedy in plan["remedies"]), "nothing is older")
        for remedy in plan["remedies"]:
            remedy["saved_bytes"] = saved[remedy["change"]]
        with open(old, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        run("check", words[0], new)
        run("check", words[0], old)
        expect(run("report", new).stdout == run("report", old).stdout, "an older plan is shown otherwise")
        plan["remedies"][0]["saved_bytes"] += 1
        with open(old, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        expect('"remedies", entry 0,' in run("check", words[0], old, code=6).stderr, "a remedy saves anything")


def check_text(*words, code=0):
    """What a terminal gets: less than 40 lines of 80 columns, with remedies that JSON has."""
    text = run("plan", *words, code=code, COLUMNS="80").stdout
    lines = text.splitlines()
    expect(len(lines) < 40 and all(len(line) <= 80 for line in lines), f"{words}: {len(lines)} lines\n{text}")
    expect("each planned" in text or "Nothing that was planned" in text, text)
    return text


def expect_whose(text, whose):
    """Whose bytes the changes save, which is what a budget bounds."""
    expect(f"{whose}, each planned" in text, f"not {whose}: {text}")


expect_whose(check_text(untrained, "--dim", "N=16", "--no-pass", "split"), "A smaller process")
expect_whose(check_text(untrained, "--dim", "N=16", "--no-pass", "split", "--budget-of", "arena"), "A smaller buffer")
expect_whose(check_text(untrained, "--dim", "N=16", "--library", "--no-pass", "split"), "Less of the caller's process")
expect_whose(check_text(untrained, "--dim", "N=16", "--target", "cuda", "--device", "rtx-3090", "--no-pass", "split"), "Less of the device")
check_text(untrained, "--dim", "N=8", *TRAIN, "--optimizer", "adamw", "--clip-norm", "1", "--micro-batches", "2", "--no-pass", "split",
           "--no-pass", "inside")
rom = check_text(untrained, "--dim", "N=1", "--target", "c", "--device", "stm32f746", "--no-pass", "split", code=4)
expect("--weights rom" in rom and "in a caller's process" in rom and "of the buffer alone" in rom, rom)
tight = ("--target", "c", "--dim", "N=1", "--no-pass", "split", "--budget")
check((untrained, *tight, "256KiB"), code=4, kinds=("weights", "precision"))
expect("weights" not in {remedy["kind"] for remedy in check((untrained, *tight, "3MiB"), kinds=("precision",))["remedies"]}, "a caller's process is no smaller one")
check_older((untrained, "--dim", "N=256", "--no-pass", "split"))
# At batch 16 the process is largest at set-up, where another layout helps and half the batch does not.
plan = check((untrained, "--dim", "N=16", "--no-pass", "split", "--isa", "avx2"), kinds=("layout", "precision"))
expect(plan["process_peak_at_start"] and "batch" not in {remedy["kind"] for remedy in plan["remedies"]}, "half the batch makes no set-up smaller")
check((untrained, "--dim", "N=16", "--no-pass", "split", "--budget-of", "arena"), kinds=("precision", "batch", "reuse"))
check((untrained, "--dim", "N=256", "--no-pass", "split"), kinds=("batch", "reuse"))
check_blockers(plan)
check_ladder(plan)
check((untrained, "--dim", "N=256", "--order", "file", "--pack", "none", "--keep-inputs"), kinds=("reuse",))
check((untrained, "--dim", "N=8", "--target", "c", "--no-pass", "split", "--budget-of", "arena"), kinds=("weights", "precision"))
check((untrained, "--dim", "N=16", "--no-pass", "split", "--no-pass", "inside", *TRAIN, "--optimizer", "adamw"), kinds=("optimizer", "recompute", "together"))
plan = check((untrained, "--target", "c", "--dim", "N=16", "--no-pass", "split", "--budget-of", "arena", "--budget", "150KiB"), code=4)
expect(plan["remedies"][0]["fits"], "nothing that fits, though bf16 does")
nothing = advise(untrained, "--dim", "N=1", "--precision", "bf16", "--order", "file", "--no-pass", "fuse", "--no-pass", "split")
expect(nothing["remedies_tried"] > 0, "nothing was tried")
text = run("plan", untrained, "--dim", "N=8", "--plan", "/dev/null", "--advice", "on", code=1).stderr
expect("leave one" in text, text)
first = run("plan", untrained, "--dim", "N=4", "--no-pass", "split", "--advice", "on", "--json", "-").stdout
expect(first == run("plan", untrained, "--dim", "N=4", "--no-pass", "split", "--advice", "on", "--json", "-").stdout, "not the same bytes again")
print("advice: ok")
