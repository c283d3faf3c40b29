#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of README.md and docs/ as they stand there, and compares what they print (README.md here has the rules).

    run.py ULLAGE [--slow] [--update] [PAGE...]
    run.py --list

Without pages: all. --slow runs blocks of the slow tier as well; --update writes what is printed now into the pages; --list
says which blocks nothing runs, and why.
Exit: 0 ok, 1 a page says something else, 77 a Python package is missing.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile

from pages import Page, is_shown, renewed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "docs")
MARK = "\1"  # around the exit codes behind what each prints


def page_paths():
    """Of all pages, relative to the root."""
    paths = [path for path in ("README.md", "python/README.md") if os.path.exists(os.path.join(ROOT, path))]
    for folder, _, names in sorted(os.walk(os.path.join(ROOT, "docs"))):
        paths += [os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(names) if name.endswith(".md")]
    return paths


def read_page(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return Page(path, file.read())


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
        lines.append(f'mkfifo "$ask" "$answer"; python {HERE}/session.py "$ask" "$answer" "$status" &')
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
    """What is run now, and how many items are left out for lack of something."""
    needs, items, lacking = {}, [], 0
    for item in page.items:
        need = item.marks.get("needs")
        if need is not None and need not in needs:
            needs[need] = subprocess.run(["sh", "-c", need], cwd=ROOT, env=environment_of(ullage), stdin=subprocess.DEVNULL,
                                         capture_output=True, check=False).returncode == 0
        if need is not None and not needs[need]:
            lacking += 1
        elif slow or "slow" not in item.marks:
            items.append(item)
    return items, lacking


def complaint(page, item, printed, code):
    """What is wrong with it, or None."""
    place = f"{page.path}:{item.line + 1}: {item.text.strip()}"
    if item.kind in ("command", "statement"):
        shown = page.shown(item)
        if code != "0" and {line.strip() for line in shown} == {"..."}:
            return f"{place}\nends with {code}, and the page shows nothing of it\n{printed}"
        if is_shown(shown, printed, "numbers" in item.marks):
            return None
        return f"{place}\nprints\n{printed}where the page shows\n" + "\n".join(shown)
    return None if code == "0" else f"{place}\nends with {code}\n{printed}"


def update(page, wrong):
    """Writes what the items print now into the page."""
    for item, printed in sorted(wrong, key=lambda pair: -pair[0].begin):
        page.lines[item.begin:item.end] = [(item.prefix + line).rstrip() for line in renewed(page.shown(item), printed)]
    with open(os.path.join(ROOT, page.path), "w", encoding="utf-8") as file:
        file.write("\n".join(page.lines))


def run_page(page, options):
    """Complaints about the page; says what ran."""
    items, lacking = selected(page, options.slow, options.ullage)
    runs, rest = outcomes(items, options.ullage, 3600 if options.slow else 300) if items else ([], "")
    wrong, stale = list(page.wrong), []
    for item, (printed, code) in zip(items, runs):
        text = complaint(page, item, printed, code)
        if text is not None and options.update and item.kind in ("command", "statement"):
            stale.append((item, printed))
        elif text is not None:
            wrong.append(text)
    if len(runs) != len(items):
        wrong.append(f"{page.path}:{items[len(runs)].line + 1}: ended, or took too long, at: {items[len(runs)].text}\n{rest}")
    if stale:
        update(page, stale)
    left = len(page.items) - len(items) - lacking
    print(f"{page.path}: {len(items)} ran, {left} for the slow tier, {lacking} for lack of what they need, {len(page.not_run)} blocks are not run"
          + (f"; {len(stale)} updated" if stale else ""))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ullage", nargs="?", type=os.path.abspath)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_intermixed_args()
    pages = [read_page(path) for path in options.pages or page_paths()]
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
