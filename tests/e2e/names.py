#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who computes the convolutions, matrix products and pooling of every network of models/.

    names.py --ullage build/release/ullage [--small] [--isa NAME] [FILTER]

Plans each for target cpu, prints how often each implementation is named, and fails (exit 6) where
a plan names code that no plan should hold: the library's reference code, implementations that
allocate while they run (gemm), or its plain loops; or where a convolution falls to a kernel of our
own, or with AVX-512 a matrix product does. (For AVX2 oneDNN 2 has its gemm alone, which is refused.)
"""

import argparse
import collections
import json
import os
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ref")]

import bytes as reference_bytes  # noqa: E402  tests/ref/bytes.py

REFUSED = ("ref", "gemm:", "simple")
CONVOLUTIONS = {"Conv", "ConvTranspose"}
PRODUCTS = {"MatMul", "Gemm"}
MUCH = 8 << 20  # operations
EXCEPT = {"qdq_convnet"}  # weights are dequantised while it runs


def is_refused(implementation):
    name = implementation.removeprefix("onednn ")
    return name.startswith(REFUSED) or ":gemm:" in name


def faults(steps, isa):
    """Lines about steps with an implementation that they should not have."""
    anchors = CONVOLUTIONS | (PRODUCTS if "avx512" in isa else set())
    columns = (steps[key] for key in ("name", "op", "implementation", "flops"))
    for name, op, implementation, flops in zip(*columns):
        own = implementation == "ullage" and op.split("+")[0] in anchors and flops > MUCH
        if own or is_refused(implementation):
            yield f"  {name} ({op}): {implementation}"


def check(ullage, path, options):
    """Names by count, and faults, of one model; None and the compiler's complaint."""
    command = [ullage, "plan", path, "--target", "cpu", "--json", "-", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        return None, [f"  exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}"]
    report = json.loads(done.stdout)
    isa = dict(report["options"])["isa"]
    names = collections.Counter(report["steps"]["implementation"])
    return names, list(faults(report["steps"], isa))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--isa")
    parser.add_argument("filter", nargs="?", default=".")
    args = parser.parse_args()
    more = ["--isa", args.isa] if args.isa else []
    failed = 0
    for name, path, options in reference_bytes.networks(args.small, args.filter):
        names, lines = check(args.ullage, path, [*options, *more])
        lines = [] if name.removesuffix("_small") in EXCEPT and names else lines
        counts = ", ".join(f"{count} {n}" for n, count in (names or {}).items())
        print(f"{'FAIL' if lines else 'ok'} {name}: {counts}", *lines, sep="\n" if lines else " ")
        failed += bool(lines)
    return 6 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
