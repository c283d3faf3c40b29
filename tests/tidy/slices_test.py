#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a slice of the slow tier says of tests that it has to end, by a ctest that never ends.

    slices_test.py
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import slices  # noqa: E402

NEVER = """#!/bin/sh
echo '    Start 1: good'
echo '1/4 Test #1: good .....   Passed    0.10 sec'
echo '    Start 2: hangs'
echo '    Start 3: late'
exec sleep 600
"""
BAD = """#!/bin/sh
echo '    Start 1: good'
echo '1/2 Test #1: good .....   Passed    0.10 sec'
exit 8
"""


def run(folder, script, seconds):
    with open(os.path.join(folder, "ctest"), "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(file.name, 0o755)
    rows = {"good": 1, "hangs": 0, "late": 1e9, "waits": 0}
    return slices.run_batch(folder, list(rows), None, seconds, rows)


with tempfile.TemporaryDirectory() as folder:
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    got = [run(folder, NEVER, 1), run(folder, BAD, 600)]
want = [(1, 0, ["hangs"], ["late", "waits"]), (1, 0, ["hangs", "late", "waits"], [])]
if got != want:
    sys.exit(f"slices_test.py: {got}, not {want}")
