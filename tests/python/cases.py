# SPDX-License-Identifier: Apache-2.0
"""Runs the functions test_* of a script, which are told what fails by AssertionError, and counts.

    if __name__ == "__main__":
        cases.run(globals())

With names after the script, those alone. The package is that of the tree, and its program
$ULLAGE, unless it is installed (ULLAGE_INSTALLED=1)."""

import os
import sys
import time
import traceback

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DIGITS = os.path.join(ROOT, "models", "digits")

if not os.environ.get("ULLAGE_INSTALLED"):
    sys.path.insert(0, os.path.join(ROOT, "python"))


class Skipped(Exception):
    """What a machine lacks."""


def raises(kind, call, *words):
    """The error of this class that the call raises, whose message has these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def run(scope):
    tests = {name: f for name, f in scope.items() if name.startswith("test_") and callable(f)}
    failed = 0
    for name in sys.argv[1:] or tests:
        begin = time.monotonic()
        try:
            tests[name]()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        except Skipped as reason:
            print(f"{name}: skipped: {reason}", flush=True)
        except Exception:  # any failure is one; the others still run
            failed += 1
            print(f"FAIL: {name}", flush=True)
            traceback.print_exc()
    sys.exit(failed != 0)
