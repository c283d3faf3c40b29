# SPDX-License-Identifier: Apache-2.0
"""What tests of one operator's gradients share.

Each case is trained one step by SGD: what a parameter loses is its gradient. It is held against the
same network in double on target c, whose gradients are held against finite differences
(tests/gradient, learn_ops.py). A name that ends with _bf16 or _amp-fp16 is that case with --precision.
"""

import argparse
import collections
import os

from learn import check_numbers, run, run_cases, train  # exits with 77 where a package is missing

import numpy

RATE = 1000  # so that gradients are not lost in the parameters' last bits
LIMITS = {"fp32": 2e-5, "bf16": 3e-2, "amp-fp16": 4e-3}

# write(path, weights, dtype): the model; weights by name, which begins with w, in double; data and
# labels of a step; more options for the network in double; in 16 bits at least this limit, where a
# rounding may turn what a ReLU lets pass
Case = collections.namedtuple("Case", "write weights data labels reference half_limit",
                              defaults=[[], 0.0])


def options_of(precision):
    return ["--train", "--loss", "mse", "--optimizer", "sgd", "--lr", str(RATE), "--train-only", "w*",
            "--precision", precision, *(["--loss-scale", "256"] if precision == "amp-fp16" else [])]


def gradients(ullage, folder, case, dtype, target, precision, *more):
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    case.write(model, {name: value.astype(dtype) for name, value in case.weights.items()}, dtype)
    run([ullage, "compile", model, "-o", program, "--target", target, *options_of(precision),
         *more])
    _, saved = train(program, folder, case.data.astype(dtype), case.labels.astype(dtype), 1)
    return {name: (value.astype(dtype) - saved[name]) / RATE for name, value in case.weights.items()}


def check(args, name, case, precision, folder):
    want = gradients(args.ullage, folder, case, numpy.float64, "c", "fp32", *case.reference)
    got = gradients(args.ullage, folder, case, numpy.float32, args.target, precision)
    limit = LIMITS[precision] if precision == "fp32" else max(LIMITS[precision], case.half_limit)
    for key, value in want.items():
        check_numbers(f"{name}: gradient of {key}", got[key] * 1e3, value * 1e3, limit)


def main(names, make, more=None, others=None):
    """make(name): the Case; more(args, name, precision, folder): what else is checked of it, whose
    model of float32 lies in the folder; others: what checks other cases, by name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()

    def check_one(name, folder):
        if name in (others or {}):
            others[name](args, name, folder)
            return
        base, _, precision = name.partition("_")
        check(args, name, make(base), precision or "fp32", folder)
        if more is not None:
            more(args, base, precision or "fp32", folder)

    return run_cases(args.cases or [name + end for name in names for end in ("", "_bf16", "_amp-fp16")]
                     + list(others or []), check_one)
