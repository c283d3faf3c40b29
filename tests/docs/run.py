#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of README.md, docs/ and the READMEs of folders as they are, and compares what they print (README.md
here has the rules).

    run.py ULLAGE [--slow] [--update] [--folders] [PAGE...]
    run.py --list

Without pages: all; with --folders those that are neither README.md, docs/ nor python/README.md. --slow runs blocks of the slow
tier as well; --update writes what is printed now into the pages, slow blocks included; --list says which blocks nothing runs, and
why.
Exit: 0 ok, 1 a page says something else, 77 a Python package is missing.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile

from pages import Page, is_shown, renewed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "docs")
OWN = ("README.md", "python/README.md")
MARK = "\1"  # around the exit codes after what each prints


def page_paths(folders_alone=False):
    """The paths of all pages, relative to the root; or of those that have no test of their own."""
    paths = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in ("build", "shared") and not name.startswith("."))
        paths += [os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(names) if name.endswith(".md")]
    return [path for path in paths if not folders_alone or path not in OWN and not path.startswith("docs/")]


def read_page(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return Page(path, file.read())


def missing_tests(page):
    """What a reason says to run the block, and is not there; or that it says none."""
    named = [(line, re.findall(r"\btests/[\w/.-]*\w", reason)) for line, reason in page.not_run]
    return [f"{page.path}:{line}: no test is named that runs what is not run here" for line, paths in named if not paths] + [
        f"{page.path}:{line}: there is no {path}" for line, paths in named for path in paths if not os.path.exists(os.path.join(ROOT, path))]


def environment_of(ullage):
    folders = [os.path.dirname(ullage), os.path.dirname(sys.executable), os.environ["PATH"]]
    environment = dict(os.environ, PATH=os.pathsep.join(folders), LC_ALL="C.UTF-8", ULLAGE_SOURCE=ROOT,
                       PYTHONPATH=os.path.join(ROOT, "python"))
    for name in ("COLUMNS", "CC", "NVCC", "CUDA_ARCH", "MAKEFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    return environment


def script_of(items, work):
    """One shell for all of them, in the order of the page; $? is the exit code of the one before."""
    lines = ["last=0", f"ask={work}/ask answer={work}/answer status={work}/status"]
    if any(item.kind in ("statement", "python") for item in items):
        session = shlex.join([sys.executable, os.path.join(HERE, "session.py")])  # python may not be on PATH, and nobody would answer
        lines.append(f'mkfifo "$ask" "$answer"; {session} "$ask" "$answer" "$status" &')
    for number, item in enumerate(items):
        path = os.path.join(work, f"block{number}")
        lines.append("(exit $last)")
        with open(path, "w", encoding="utf-8") as file:
            file.write((item.kind + "\n" if item.kind in ("statement", "python") else "") + item.text)
        if item.kind in ("command", "hidden"):
            lines.append(item.text)
        elif item.kind == "script":
            lines.append(f"(set -e; . {path})")
        elif item.kind == "file":
            lines.append(f"mkdir -p {shlex.quote(os.path.dirname(item.name) or '.')}; cp {path} {shlex.quote(item.name)}")
        else:
            lines.append(f'cat {path} >"$ask"; cat "$answer"; (exit "$(cat "$status")")')
        lines.append(f'last=$?; printf "{MARK}$last{MARK}"')
    if len(lines) > 2 and "mkfifo" in lines[2]:
        lines.append(': >"$ask"; wait')
    return "\n".join(lines) + "\n"


def outcomes(items, ullage, seconds):
    """(what it prints, standard error included, and its exit code) of each, in a folder of the page's own."""
    with tempfile.TemporaryDirectory() as folder:
        work, scratch = os.path.join(folder, "work"), os.path.join(folder, "page")
        os.mkdir(work)
        os.mkdir(scratch)
        os.symlink(os.path.join(ROOT, "models"), os.path.join(scratch, "models"))
        script = os.path.join(work, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write(script_of(items, work))
        try:
            done = subprocess.run(["sh", script], cwd=scratch, env=environment_of(ullage), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=seconds, check=False)
            output = done.stdout
        except subprocess.TimeoutExpired as expired:
            output = expired.stdout or b""
    parts = output.decode("utf-8", "replace").split(MARK)
    return list(zip(parts[0:-1:2], parts[1::2])), parts[-1]


def selected(page, slow, ullage):
    """What is run now, and of each item that is left out for lack of something what it needs."""
    needs, items, lacking = {}, [], []
    for item in page.items:
        need = item.marks.get("needs")
        if need is not None and need not in needs:
            needs[need] = subprocess.run(["sh", "-c", need], cwd=ROOT, env=environment_of(ullage), stdin=subprocess.DEVNULL,
                                         capture_output=True, check=False).returncode == 0
        if need is not None and not needs[need]:
            lacking.append(need)
        elif slow or "slow" not in item.marks:
            items.append(item)
    return items, lacking


def failure(page, item, code):
    """What is wrong with how it ends, or None."""
    if code == "0" or item.may_fail:
        return None
    remedy = {"command": "; where it is to, show it by `$ echo $?` below", "statement": "; where it is to, show what it raises"}.get(item.kind, "")
    return f"{page.path}:{item.line + 1}: {item.text.strip()}\nends with {code}{remedy}\n"


def difference(page, item, printed):
    """What is wrong with what it prints, or None."""
    if item.kind not in ("command", "statement") or is_shown(page.shown(item), printed, item.varying()):
        return None
    return f"{page.path}:{item.line + 1}: {item.text.strip()}\nprints\n{printed}where the page shows\n" + "\n".join(page.shown(item))


def update(page, wrong):
    """Writes what the items print now into the page."""
    for item, printed in sorted(wrong, key=lambda pair: -pair[0].begin):
        page.lines[item.begin:item.end] = [(item.prefix + line).rstrip() for line in renewed(page.shown(item), printed, item.varying())]
    with open(os.path.join(ROOT, page.path), "w", encoding="utf-8") as file:
        file.write("\n".join(page.lines))


def run_page(page, options):
    """Complaints about the page; says what ran."""
    items, lacking = selected(page, options.slow, options.ullage)
    runs, rest = outcomes(items, options.ullage, 3600 if options.slow else 300) if items else ([], "")
    wrong, stale = page.wrong + missing_tests(page), []
    for item, (printed, code) in zip(items, runs):
        failed, other = failure(page, item, code), difference(page, item, printed)
        if failed is not None:
            wrong.append(failed + (other or printed))
        elif other is not None and options.update:
            stale.append((item, printed))
        elif other is not None:
            wrong.append(other)
    if len(runs) != len(items):
        wrong.append(f"{page.path}:{items[len(runs)].line + 1}: ended, or took too long, at: {items[len(runs)].text}\n{rest}")
    if stale:
        update(page, stale)
    left = len(page.items) - len(items) - len(lacking)
    print(f"{page.path}: {len(items)} ran, {left} for the slow tier, {len(lacking)} for lack of what they need, {len(page.not_run)} blocks are not run"
          + "".join(f"; skipped without: {need}" for need in dict.fromkeys(lacking))
          + (f"; {len(stale)} updated" if stale else ""))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ullage", nargs="?", type=os.path.abspath)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--folders", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_intermixed_args()
    options.slow |= options.update  # a change shows in slow blocks too, which nobody would run before their slice
    pages = [read_page(path) for path in options.pages or page_paths(options.folders)]
    if options.list:
        for page in pages:
            for line, reason in page.not_run:
                print(f"{page.path}:{line + 1}: {reason}")
        return 0
    if options.ullage is None:
        parser.error("give the program")
    makes_models = any("python" in item.text for page in pages for item in page.items)
    if makes_models and subprocess.run([sys.executable, "-c", "import onnx"], capture_output=True, check=False).returncode != 0:
        print("run.py: skipped: there is no Python package onnx, which models are made with")
        return 77
    wrong = [text for page in pages for text in run_page(page, options)]
    print("\n".join(wrong) if wrong else "all print what the pages show")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
