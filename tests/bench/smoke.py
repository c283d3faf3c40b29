#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command of BENCHMARKS.md in its smallest form, a row of smoke.tsv, so that none rots.

    smoke.py NAME --ullage ULLAGE --build DIR      runs a row
    smoke.py --unknown --ullage ULLAGE --build DIR  runs each row that names what it measures with a
                                                   name that nothing has, which must be an error
    smoke.py --list                                prints the names of all rows
    smoke.py --check                               holds PAGES against the rows: each script that they
                                                   name has one, or is a test of its own, and each
                                                   option that they give a script is in one of its rows

exit: 0 the command ended with 0, or with 6, a limit that this machine misses; 1 anything else; 77 what
the command needs is not there
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGES = ("BENCHMARKS.md", "docs/cuda-on-paper.md", "docs/training-figures.md")
TORCH = os.path.join(ROOT, "build", "venv-torch", "bin", "python")
NOBODY = "nosuchname"
VALUES = {"--group", "--part"}  # options whose words are forms of their own


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def read_rows():
    with open(os.path.join(HERE, "smoke.tsv"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return {name: (chosen, command) for name, chosen, command in lines[1:]}


def needs_torch(command):
    """run.sh would install it, some gigabytes."""
    is_training = "tests/bench/training/run.sh" in command and "--part offload" not in command
    return is_training or "build/venv-torch" in command


def output_of(args, command):
    """What the command prints, its exit code."""
    os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ullage-smoke-") as work:
        command = command.format(ullage=os.path.abspath(args.ullage), work=work,
                                 build=os.path.abspath(args.build))  # fmt: skip
        print(command, flush=True)
        done = subprocess.run(["/bin/bash", "-e", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False)  # fmt: skip
    print(done.stdout, end="", flush=True)
    return done.stdout, done.returncode


def run(args, chosen, command):
    if needs_torch(command) and not os.path.exists(TORCH):
        print(f"skipped: {os.path.relpath(TORCH, ROOT)} is not there; tests/bench/training/run.sh makes it")
        return 77
    text, code = output_of(args, command)
    if code == 77:
        return 77
    broken = re.search(r"Traceback|^usage:|\berror\b", text, re.MULTILINE)
    if code not in (0, 6) or broken or not re.search(r"\d", text):
        print(f"smoke.py: exit {code}{': ' + broken.group() if broken else ''}")
        return 1
    if chosen not in text:
        print(f"smoke.py: {chosen} was not measured")
        return 1
    return 0


def run_unknown(args, rows):
    """A name that nothing has is an error that says so, not an empty table."""
    failed = 0
    for name, (chosen, command) in rows.items():
        if not chosen or (needs_torch(command) and not os.path.exists(TORCH)):
            continue
        words = command.split(" && ")[-1].split()
        words[len(words) - 1 - words[::-1].index(chosen)] = NOBODY
        text, code = output_of(args, " ".join(words))
        if code != 77 and (code in (0, 6) or "Traceback" in text or NOBODY not in text):
            print(f"smoke.py: {name}: exit {code} of a name that nothing has")
            failed += 1
    return 1 if failed else 0


# --- the page against the rows ---------------------------------------------------------------------


def commands_of(text):
    """Words of each command that the page names: a script of the tree, or ullage and its command. A
    block that is marked as not run names its tests (tests/docs)."""
    text = re.sub(r"<!-- not run: [^>]*-->\s*```.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    for line in lines + re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        words = line.split()
        if words and words[0] == "ullage" and len(words) > 1:
            yield " ".join(words[:2]), words[2:]
        elif words and re.match(r"(tests|models|scripts)/", words[0]) and is_script(words[0]):
            yield words[0], words[1:]


def is_script(word):
    path = os.path.join(ROOT, word)
    return os.path.isfile(path) and os.access(path, os.X_OK)


def facts(words):
    """Options, and what is said to those of VALUES."""
    found = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
    for option, value in zip(words, words[1:]):
        if option in VALUES:
            found |= {f"{option} {one}" for one in value.split("|")}
    return found


def covered(rows):
    """{script: facts of all its rows}"""
    found = {}
    for _, command in rows.values():
        for part in command.replace("{ullage}", "ullage").split(" && "):
            words = re.sub(r"^(tests/ref/python.sh|[A-Z_]+=\S+) ", "", part).split()
            script = " ".join(words[:2]) if words[0] == "ullage" else words[0]
            found.setdefault(script, set()).update(facts(words))
    return found


def tests():
    """The text of all files that add tests."""
    text = ""
    for path in glob.glob(os.path.join(ROOT, "tests", "**", "CMakeLists.txt"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return text


def check():
    known, added, failed = covered(read_rows()), tests(), 0
    for script, words in commands_of("\n".join(read(page) for page in PAGES)):
        if script not in known:
            if script.startswith("ullage ") or os.path.basename(script) in added:
                continue
            print(f"{script}: neither a row of smoke.tsv nor a test")
            failed += 1
            continue
        for missing in sorted(facts(words) - known[script]):
            print(f"{script}: no row of smoke.tsv has {missing}")
            failed += 1
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--ullage")
    parser.add_argument("--build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.check:
        return check()
    rows = read_rows()
    if args.list:
        print("\n".join(rows))
        return 0
    if args.unknown and args.ullage and args.build:
        return run_unknown(args, rows)
    if args.name not in rows or not args.ullage or not args.build:
        parser.error("a row, --ullage and --build are needed; --list prints the rows")
    return run(args, *rows[args.name])


if __name__ == "__main__":
    sys.exit(main())
