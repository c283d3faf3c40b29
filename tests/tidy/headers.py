#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rows by which generated sources include the runtime's headers know all functions of these.

usage: headers.py: run in the root of the tree; gcc lists the functions of each header.
Each function of a header with a row begins with a word of the row, and with no word of a header that
this one does not include. No row knows a function of ul_scalar.h, which all kernels include."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIB = pathlib.Path("runtime/lib")


def read_rows():
    text = pathlib.Path("codegen/emit/emit_headers.c").read_text(encoding="ascii")
    table = text[text.index("rows[] = {") : text.index("\n};")]
    rows = {}
    for header, words in re.findall(r'\{"(\w+\.\w+)",\s*((?:"[^"]*"\s*)+),', table):
        rows[header] = "".join(re.findall(r'"([^"]*)"', words)).split()
    return rows


def functions(header, flags, work):
    """The names that it defines itself, and the headers that it opens."""
    source, listed = work / "x.c", work / "x.txt"
    source.write_text(f'#include "{header}"\n', encoding="ascii")
    command = ["gcc", "-std=c99", *flags, f"-I{LIB}"]
    subprocess.run([*command, "-aux-info", listed, "-fsyntax-only", source], check=True)
    names = re.findall(rf"/\* {re.escape(str(LIB / header))}:\d+:\S+ \*/.*?\b(ul_\w+) \(", listed.read_text(encoding="ascii"))
    opened = subprocess.run([*command, "-MM", source], check=True, capture_output=True, text=True).stdout
    return names, set(re.findall(r"\w+\.h\b", opened))


def matching(rows, name):
    return {header for header, words in rows.items() if header.endswith(".h")
            for word in words if (name + "(").startswith(word)}  # fmt: skip


def main():
    if not shutil.which("gcc"):
        print("headers.py: skipped: gcc is not installed")
        return 77
    rows, wrong = read_rows(), []
    with tempfile.TemporaryDirectory() as work:
        for header in sorted(path.name for path in LIB.glob("*.h")):
            if header not in rows and header != "ul_scalar.h":
                continue
            for flags in (["-O2", "-march=native"], ["-DUL_NO_VECTOR"]):
                names, opened = functions(header, flags, pathlib.Path(work))
                for name in names:
                    found = matching(rows, name)
                    if header in rows and header not in found:
                        wrong.append(f"{header}: no word of its row begins {name}")
                    wrong += [f"{header}: {name} is taken for one of {other}" for other in found - opened - {header}]
    for line in sorted(set(wrong)):
        print(f"FAIL: {line}")
    print(f"{len(rows)} rows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
