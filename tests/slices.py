#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slices of the slow tier: what continuous integration runs of it beside the quick one, another slice
after each landing.

    slices.py --build build/ci --run [K] [--minutes M]
                                             runs slice K, for M minutes at most; without K the one that
                                             the number of commits chooses, so that each has its turn
    slices.py --list [K]                     prints which tests the slices have, and which slice is next
    slices.py --build build/ci --check       each slow test has its row in slow.tsv
    slices.py --build build/ci --update      takes over the seconds that ctest has measured

slow.tsv has a row a test: its seconds alone on two cores, how many of these it uses, and into how
many parts it is cut (ULLAGE_PART=K/N, part.py and part.sh), since no slice may take longer than
LIMIT. The longest part goes to the slice with the least to do, and so on: equal tables make equal
slices. What is left after LIMIT is named and not run, or ended; a test that is ended after more than
four times the seconds of its row hangs, and fails.
exit: 0 all that ran passed or was skipped; 6 a test failed; 1 usage, or slow.tsv does not fit
"""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "slow.tsv")
CORES, LIMIT, BATCH = 2, 20 * 60, 5 * 60
WANTED = 17 * 60  # seconds of a slice by the table, so that a slower machine has room
HANGS = 4  # times its row: many rows are guesses yet


def read_table():
    """{test: (seconds, cores, parts)}"""
    with open(TABLE, encoding="utf-8") as file:
        rows = [line.split("\t") for line in file.read().splitlines()[1:]]
    return {name: tuple(map(int, numbers)) for name, *numbers in rows}


def write_table(table):
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("test\tseconds\tcores\tparts\n")
        for name, numbers in sorted(table.items()):
            file.write("\t".join([name, *map(str, numbers)]) + "\n")


def total(items):
    """Seconds that items take, a part of the cores each."""
    return sum(item[0] for item in items)


def make_slices(table):
    """Lists of (seconds of all cores, test, part or None)."""
    items = [(seconds * cores / CORES / parts, name, f"{part}/{parts}" if parts > 1 else None)
             for name, (seconds, cores, parts) in table.items() for part in range(1, parts + 1)]  # fmt: skip
    slices = [[] for _ in range(math.ceil(total(items) / WANTED))]
    for item in sorted(items, key=lambda item: (-item[0], item[1], item[2] or "")):
        min(slices, key=total).append(item)
    return slices


def next_slice(slices):
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=HERE, capture_output=True,
                           text=True, check=False)  # fmt: skip
    return int(count.stdout or "0") % len(slices) + 1  # the first where the tree is no repository


def slow_tests(build):
    """{test: how many cores it uses}"""
    shown = subprocess.run(["ctest", "--test-dir", build, "-L", "^slow$", "--show-only=json-v1"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    facts = {test["name"]: {one["name"]: one["value"] for one in test["properties"]}
             for test in json.loads(shown.stdout)["tests"]}  # fmt: skip
    return {name: int(fact.get("PROCESSORS", 1)) for name, fact in facts.items()}


def check(build):
    table, tests, failed = read_table(), slow_tests(build), 0
    for name in sorted(tests.keys() - table.keys()):
        print(f"slow.tsv: {name} has no row")
        failed += 1
    absent = sorted(table.keys() - tests.keys())
    if absent:
        print(f"no slow tests of this machine: {', '.join(absent)}")
    for name in sorted(tests.keys() & table.keys()):
        if tests[name] != table[name][1]:
            print(f"slow.tsv: {name} uses {tests[name]} cores")
            failed += 1
    slices = make_slices(table)
    longest = max(map(total, slices))
    print(f"{len(table)} slow tests, {len(slices)} slices, the longest takes {longest / 60:.1f} minutes")
    if longest > LIMIT:
        print(f"slow.tsv: a slice may take {LIMIT / 60:.0f}: cut its longest tests into more parts")
        failed += 1
    return 1 if failed else 0


def batches(items, most):
    """(seconds, tests, part): what one ctest runs, tests of one part, `most` seconds of them or one."""
    found = []
    for seconds, name, part in items:
        last = found[-1] if found else None
        if last and last[2] == part and last[0] + seconds <= most:
            found[-1] = (last[0] + seconds, [*last[1], name], part)
        else:
            found.append((seconds, [name], part))
    return found


def run_ctest(command, part, seconds):
    """(what it printed, its exit code or None where so many seconds were too few, {test: how long it
    ran, if it did not end})"""
    env = {**os.environ, **({"ULLAGE_PART": part} if part else {})}
    printed, begun = [], {}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, errors="replace",
                             stderr=subprocess.STDOUT, env=env, start_new_session=True)  # fmt: skip
    is_over = threading.Event()

    def end():
        is_over.set()
        os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    for line in child.stdout:
        printed.append(line)
        if start := re.match(r" *Start +\d+: (\S+)", line):
            begun[start[1]] = time.monotonic()
    code, now = child.wait(), time.monotonic()
    timer.cancel()
    return "".join(printed), None if is_over.is_set() else code, {name: now - at for name, at in begun.items()}


def run_batch(build, names, part, seconds, rows):
    """(passed, skipped, failed tests, those that so many seconds were too few for); `rows` has the
    seconds of each test."""
    pattern = "^(" + "|".join(map(re.escape, names)) + ")$"
    command = ["ctest", "--test-dir", build, "-R", pattern, "--no-tests=error", "-j", str(CORES),
               "--output-on-failure"]  # fmt: skip
    printed, code, begun = run_ctest(command, part, seconds)
    lines = re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*(.*?) +([\d.]+) sec", printed, re.MULTILINE)
    passed = [name for name, word, _ in lines if word.strip() == "Passed"]
    skipped = [name for name, word, _ in lines if "Skipped" in word]
    for name, word, took in lines:
        label = name + (f" part {part}" if part else "")
        print(f"  {label:60} {word.strip(' *'):8} {float(took):7.1f} s", flush=True)
    failed = [name for name, word, _ in lines if name not in passed + skipped]
    silent = [name for name in names if name not in passed + skipped + failed]
    hung = [name for name in silent if begun.get(name, 0) > HANGS * rows[name]]
    for name in hung:
        print(f"  {name:60} ended after {begun[name]:.0f} s, of {rows[name]:.0f} s by slow.tsv", flush=True)
    failed += silent if code is not None else hung
    late = [] if code is not None else [name for name in silent if name not in hung]
    if failed or code:
        print(printed, flush=True)
    return len(passed), len(skipped), failed, late


def run(build, number, limit):
    table = read_table()
    slices = make_slices(table)
    number = number or next_slice(slices)
    if number > len(slices):
        sys.exit(f"slices.py: there are {len(slices)} slices")
    there = slow_tests(build)
    items = [item for item in slices[number - 1] if item[1] in there]
    print(f"slice {number} of {len(slices)} of the slow tier: {len(items)} tests, about "
          f"{total(items) / 60:.0f} minutes", flush=True)  # fmt: skip
    begin, passed, skipped, failed, left_out = time.monotonic(), 0, 0, [], []
    for seconds, names, part in batches(items, min(BATCH, limit / 4)):
        if time.monotonic() - begin + seconds > limit:
            left_out += names
            continue
        left = begin + limit - time.monotonic()
        rows = {name: table[name][0] / table[name][2] for name in names}
        counts = run_batch(build, names, part, left, rows)
        passed, skipped, failed = passed + counts[0], skipped + counts[1], failed + counts[2]
        left_out += counts[3]
    if left_out:
        print(f"left out, since they would exceed {limit / 60:.0f} minutes: {', '.join(left_out)}")
    print(f"slice {number}: {passed} passed, {len(failed)} failed, {skipped} skipped"
          f"{': ' + ', '.join(failed) if failed else ''}")  # fmt: skip
    return 6 if failed else 0


def show(number):
    slices = make_slices(read_table())
    for index, items in enumerate(slices, 1):
        if number in (None, index):
            print(f"slice {index}, {total(items) / 60:.0f} minutes:")
            for seconds, name, part in items:
                print(f"  {name + (f' part {part}' if part else ''):60} {seconds:5.0f} s")
    print(f"next: slice {next_slice(slices)} of {len(slices)}")
    return 0


def update(build):
    """Seconds of tests that ran in full; ctest keeps their mean."""
    table = read_table()
    with open(os.path.join(build, "Testing", "Temporary", "CTestCostData.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file if len(line.split()) == 3]
    for name, runs, seconds in rows:
        if name in table and int(runs) > 0 and table[name][2] == 1:
            table[name] = (max(1, round(float(seconds))), *table[name][1:])
    write_table(table)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build")
    parser.add_argument("--minutes", type=float, default=LIMIT / 60, metavar="M")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", nargs="?", type=int, const=0, metavar="K")
    what.add_argument("--list", nargs="?", type=int, const=0, metavar="K")
    what.add_argument("--check", action="store_true")
    what.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.list is not None:
        return show(args.list or None)
    if not args.build:
        parser.error("--build names the tree that was built")
    if args.check or args.update:
        return check(args.build) if args.check else update(args.build)
    return run(args.build, args.run, 60 * min(args.minutes, LIMIT / 60))


if __name__ == "__main__":
    sys.exit(main())
