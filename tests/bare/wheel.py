#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package on a machine that has nothing else: a plan of each target, then a model of target c
and of cpu beside each other. Numpy comes with the package.

usage: wheel.py [no-compiler]: then compiling must say what is missing"""

import os
import sys

import numpy

import ullage

MODEL = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "digits", "digits.onnx"
)

for target in ("c", "cpu", "cuda"):
    plan = ullage.plan(MODEL, dims={"N": 1}, target=target)
    assert plan.fits and plan.reserved_bytes > 0, plan
print(plan)
results = []
x = numpy.random.default_rng(0).random((1, 1, 8, 8), numpy.float32)
for target in ("c", "cpu"):
    try:
        results.append(ullage.compile(MODEL, dims={"N": 1}, target=target)(x))
    except ullage.CompilerFailed as error:
        assert sys.argv[1:] == ["no-compiler"], error
        assert "the C compiler, cc, is not here: install one" in str(error), error
        print(error)
if sys.argv[1:] != ["no-compiler"]:
    assert numpy.abs(results[0] - results[1]).max() < 1e-5, results
    print(results[1])
