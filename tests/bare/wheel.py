#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package on a machine that has nothing else: a plan of each target, then a model of target c
and of cpu beside each other. Numpy comes with the package.

usage: wheel.py [no-compiler|load]
no-compiler: compiling must say what is missing; load: the libraries of an earlier run are loaded,
where there is no compiler any more, nor what comes with one"""

import os
import sys

import numpy

import ullage

MODEL = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "digits", "digits.onnx"
)

mode = sys.argv[1] if len(sys.argv) > 1 else "compile"
for target in ("c", "cpu", "cuda"):
    plan = ullage.plan(MODEL, dims={"N": 1}, target=target)
    assert plan.fits and plan.reserved_bytes > 0, plan
print(plan)
results = []
x = numpy.random.default_rng(0).random((1, 1, 8, 8), numpy.float32)
for target in ("c", "cpu"):
    library = f"digits-{target}.so"
    try:
        model = (
            ullage.load(library)
            if mode == "load"
            else ullage.compile(MODEL, dims={"N": 1}, target=target, path=library)
        )
        results.append(model(x))
    except ullage.CompilerFailed as error:
        assert mode == "no-compiler", error
        assert "the C compiler, cc, is not here: install one" in str(error), error
        print(error)
if mode != "no-compiler":
    assert numpy.abs(results[0] - results[1]).max() < 1e-5, results
    print(results[1])
