#!/usr/bin/env python3
"""docs/questions.md, run as it stands there.

    questions.py ULLAGE

Every line after "$ " is run ("> " goes on with it), in the order of the page and in one shell. What is shown below it is all
that it prints, "..." standing for lines that are left out, or for a part of a line. Links into the
page lead somewhere.
Exit: 0 ok, 1 the page says something else, 77 a Python package is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import onnx  # noqa: F401, of make.py
except ImportError as error:
    print(f"questions.py: skipped: {error}")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MARK = "\1"  # between what two commands print


def answers(page):
    """(command, lines shown) of all indented blocks."""
    found = []
    inside = False
    for line in page.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif inside and line.startswith("    > "):
            found[-1] = (found[-1][0] + "\n" + line[6:], [])
        elif inside and (line.startswith("    ") or line == ""):
            found[-1][1].append(line[4:])
        inside = line.startswith("    ") or (inside and line == "")
    return found


def is_line(shown, line):
    """Whether a line is as shown; "..." in it stands for a word or more."""
    parts = [re.escape(part.strip()) for part in shown.split("...")]
    return re.fullmatch(r"\s*.+?\s*".join(parts), line.strip()) is not None if len(parts) > 1 else shown.rstrip() == line.rstrip()


def is_shown(shown, output):
    """Whether the lines shown are all of the output, but for what is marked as left out."""
    lines = output.rstrip("\n").split("\n") if output.strip() else []
    ends = {0}  # how many lines of the output what was shown so far may be
    for line in "\n".join(shown).rstrip("\n").split("\n") if any(shown) else []:
        if line == "...":
            ends = set(range(min(ends), len(lines) + 1)) if ends else ends
        else:
            ends = {at + 1 for at in ends if at < len(lines) and is_line(line, lines[at])}
    return len(lines) in ends


def printed(commands, folder, ullage):
    """What each prints, standard error included; $? is the exit code of the one before."""
    script = ["last=0"]
    for command in commands:
        script += ["(exit $last)", command, f'last=$?; printf "{MARK}"']
    environment = dict(os.environ, PATH=os.path.dirname(ullage) + os.pathsep + os.environ["PATH"], LC_ALL="C")
    environment.pop("COLUMNS", None)
    done = subprocess.run(["sh", "-c", "\n".join(script)], cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    return done.stdout.split(MARK)[:-1]


def broken_links(page):
    heads = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall("^#+ (.*)", page, flags=re.M)}
    return [link for link in re.findall(r"\]\(#([^)]*)\)", page) if link not in heads]


def main():
    ullage = os.path.abspath(sys.argv[1])
    with open(os.path.join(ROOT, "docs", "questions.md"), encoding="utf-8") as file:
        page = file.read()
    found = [answer for answer in answers(page) if not answer[0].startswith("/") or os.path.exists(answer[0].split()[0])]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("digits.onnx", "untrained.onnx"):
            shutil.copy(os.path.join(ROOT, "models", "digits", name), folder)
        for name, more in (("bert_base", ("--seq", "S")), ("gpt2", ())):
            subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), name, "--small", "--batch", "N", *more,
                            "-o", os.path.join(folder, f"{name}.onnx")], check=True, stdout=subprocess.DEVNULL)
        outputs = printed([command for command, _ in found], folder, ullage)
    wrong = [link + ": a link to nowhere" for link in broken_links(page)]
    if len(outputs) != len(found) or len(found) < 30:
        wrong.append(f"{len(outputs)} of {len(found)} commands ran")
    for (command, shown), output in zip(found, outputs):
        if not is_shown(shown, output):
            wrong.append(f"$ {command}\nprints\n{output}where the page shows\n" + "\n".join(shown))
    print("\n".join(wrong) if wrong else f"questions: {len(found)} commands print what the page shows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
