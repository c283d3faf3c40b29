#!/usr/bin/env python3
"""docs/shared-arena.md, run as it stands there.

    shared_doc.py ULLAGE

Its models are made, its commands run in the order of the page, and what it shows is what is printed.
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
    print(f"shared_doc.py: skipped: {error}")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.S | re.M)


def main():
    ullage = os.path.abspath(sys.argv[1])
    with open(os.path.join(ROOT, "docs", "shared-arena.md"), encoding="utf-8") as file:
        page = file.read()
    shown = [line[4:] for line in page.splitlines() if line.startswith("    ") or line == ""]
    start = next(i for i, line in enumerate(shown) if line.startswith("$ "))
    command, shown = shown[start][2:], "\n".join(shown[start + 1:])
    environment = dict(os.environ, PATH=os.path.dirname(ullage) + os.pathsep + os.environ["PATH"])
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(ROOT, "models", "digits", "digits.onnx"), folder)
        subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), "mobilenet_v2", "--small", "-o", os.path.join(folder, "mobilenet_v2.onnx")],
                       check=True, capture_output=True)
        with open(os.path.join(folder, "both.c"), "w", encoding="ascii") as file:
            file.write(blocks(page, "c")[0])
        script = "\n".join([command, *blocks(page, "sh")])
        done = subprocess.run(["sh", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stdout.splitlines()
    rounds = [line.split() for line in lines if re.fullmatch(r"[012] [-0-9.]+ [-0-9.]+", line)]
    table = done.stdout[:done.stdout.index("another keeps.")]
    good = done.returncode == 0 and table in shown and [row[0] for row in rounds] == ["0", "1", "2"] and len({row[1] for row in rounds}) == 3
    if not good:
        print(f"shared_doc.py: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
