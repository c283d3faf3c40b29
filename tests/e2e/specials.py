#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators of NaN, infinities, zeros of both signs, subnormal and huge numbers.

    specials.py [--targets c,cpu] ULLAGE [OPERATOR]...

Each operator of the table runs in f32, f64, f16 and bf16 on each special number, or pair of them:
as a program of each target, and folded into a constant. What is NaN, what is infinite and the sign
of it must be as ONNX's formula says, computed in f64 or in the type that kernels compute in (where
these differ, either is right); other numbers as near as their type has digits. Zeros keep their
sign where the formula keeps it ("signed"). Exit: 0 ok, 1 results differ or a command failed, 77 a
Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"specials.py: skipped: {error}")
    sys.exit(77)

TYPES = {"f32": (np.float32, np.float32, 2e-5), "f64": (np.float64, np.float64, 1e-9),
         "f16": (np.float16, np.float32, 2e-3), "bf16": (ml_dtypes.bfloat16, np.float32, 1.6e-2)}
PLAIN = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 3.01, -3.01, 0.3, -0.3,
         6.0, -6.0, 20.0, -20.0, 87.0, -87.0, 100.0, -100.0, 1e-3, -1e-3]
PAIRED = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, 3.0]


def numbers(dtype, plain):
    info = ml_dtypes.finfo(dtype)
    ends = [float(info.max), float(info.tiny), float(info.smallest_subnormal)]
    both = [sign * end for end in ends for sign in (1, -1)]
    return np.array(plain + both + [np.inf, -np.inf, np.nan], dtype)


def erf(x):
    from math import erf as one
    return np.array([one(v) for v in x.astype(np.float64).ravel()]).reshape(x.shape).astype(x.dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.where(x > 0, x, 0) + np.log1p(np.exp(-np.abs(x))) + np.where(np.isnan(x), x, 0)


def clamp(x, low, high):
    return np.minimum(np.maximum(x, low), high)


def shrink(x, lambd, bias):
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def elu(x, alpha):
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(x.dtype.type(0.7978845608028654) *
                                  (x + x.dtype.type(0.044715) * x * x * x)))


# operator: formula, attributes, and whether the sign of zero counts
ONE = {
    "Abs": (np.abs, {}, True), "Neg": (np.negative, {}, True), "Sign": (np.sign, {}, False),
    "Reciprocal": (lambda x: 1 / x, {}, True), "Floor": (np.floor, {}, True),
    "Ceil": (np.ceil, {}, True), "Round": (np.rint, {}, True), "Sqrt": (np.sqrt, {}, True),
    "Exp": (np.exp, {}, True), "Log": (np.log, {}, False), "Sin": (np.sin, {}, True),
    "Cos": (np.cos, {}, False), "Tan": (np.tan, {}, True), "Asin": (np.arcsin, {}, True),
    "Acos": (np.arccos, {}, False), "Atan": (np.arctan, {}, True), "Sinh": (np.sinh, {}, True),
    "Cosh": (np.cosh, {}, False), "Tanh": (np.tanh, {}, True), "Asinh": (np.arcsinh, {}, True),
    "Acosh": (np.arccosh, {}, False), "Atanh": (np.arctanh, {}, True), "Erf": (erf, {}, True),
    "Relu": (lambda x: np.where(x < 0, 0, x), {}, False),
    "LeakyRelu": (lambda x: np.where(x < 0, x * x.dtype.type(0.01), x), {}, True),
    "ThresholdedRelu": (lambda x: np.where(x > 1, x, 0), {}, False),
    "Elu": (lambda x: elu(x, 1), {}, False),
    "Celu": (lambda x: elu(x / 2, 1) * 2, {"alpha": 2.0}, False),
    "Selu": (lambda x: np.where(x > 0, x, elu(x, x.dtype.type(1.6732631921768188))) *
             x.dtype.type(1.0507010221481323), {}, False),
    "Sigmoid": (sigmoid, {}, False),
    "HardSigmoid": (lambda x: clamp(x * x.dtype.type(0.2) + x.dtype.type(0.5), 0, 1), {}, False),
    "HardSwish": (lambda x: x * clamp(x / 6 + x.dtype.type(0.5), 0, 1), {}, True),
    "Softplus": (softplus, {}, False), "Softsign": (lambda x: x / (1 + np.abs(x)), {}, True),
    "Mish": (lambda x: x * np.tanh(softplus(x)), {}, True),
    "Swish": (lambda x: x * sigmoid(x), {}, True),
    "Gelu": (lambda x: 0.5 * x * (1 + erf(x * x.dtype.type(0.7071067811865476))), {}, True),
    "Gelu_tanh": (gelu_tanh, {"approximate": "tanh"}, True),
    "Shrink": (lambda x: shrink(x, 0.5, 0.25), {"lambd": 0.5, "bias": 0.25}, False),
    "IsNaN": (np.isnan, {}, False), "IsInf": (np.isinf, {}, False),
    "IsInf_positive": (np.isposinf, {"detect_negative": 0}, False),
    "IsInf_negative": (np.isneginf, {"detect_positive": 0}, False),
}
TWO = {
    "Add": (np.add, {}, True), "Sub": (np.subtract, {}, True), "Mul": (np.multiply, {}, True),
    "Div": (np.divide, {}, True), "Pow": (np.power, {}, True), "Mod": (np.fmod, {"fmod": 1}, True),
    "Max": (np.maximum, {}, False), "Min": (np.minimum, {}, False), "Sum": (np.add, {}, True),
    "Mean": (lambda a, b: (a + b) / 2, {}, True),
    "PRelu": (lambda a, b: np.where(a < 0, a * b, a), {}, True),
    "Equal": (np.equal, {}, False), "Less": (np.less, {}, False),
    "LessOrEqual": (np.less_equal, {}, False), "Greater": (np.greater, {}, False),
    "GreaterOrEqual": (np.greater_equal, {}, False),
}
CONSTANT = {  # operator and constants after the operand
    "Pow_2": ("Pow", [2.0], lambda x: x ** 2), "Pow_3": ("Pow", [3.0], lambda x: x ** 3),
    "Pow_half": ("Pow", [0.5], lambda x: np.power(x, np.full_like(x, 0.5))),
    "Pow_minus": ("Pow", [-1.0], lambda x: 1 / x), "Pow_zero": ("Pow", [0.0], lambda x: x ** 0),
    "Clip": ("Clip", [-1.0, 2.0], lambda x: np.where(np.isnan(x), x, clamp(x, -1, 2))),
    "Clip_turned": ("Clip", [2.0, -1.0], lambda x: np.where(np.isnan(x), x, -1)),
    "Max_zero": ("Max", [0.0], lambda x: np.maximum(x, 0)),
    "Min_zero": ("Min", [0.0], lambda x: np.minimum(x, 0)),
    "Add_zero": ("Add", [0.0], lambda x: x + 0), "Sub_zero": ("Sub", [0.0], lambda x: x - 0),
    "Mul_zero": ("Mul", [0.0], lambda x: x * 0), "Mul_one": ("Mul", [1.0], lambda x: x * 1),
    "Div_one": ("Div", [1.0], lambda x: x / 1), "Div_zero": ("Div", [0.0], lambda x: x / 0),
    "Div_three": ("Div", [3.0], lambda x: x / 3),
}
ROWS = {  # along the last axis
    "Softmax": lambda e, s, x: e / s,
    "LogSoftmax": lambda e, s, x: x - x.max(-1, keepdims=True) - np.log(s),
}
ROW_NUMBERS = [[0, 1, 2], [np.inf, 0, 1], [-np.inf, 0, 1], [np.nan, 0, 1], [-np.inf] * 3,
               [1e4, -1e4, 0], [-0.0, 0.0, -0.0]]


class Case:
    """Operator, its inputs (arrays, or names of the table's), what must come out."""

    def __init__(self, name, op, type_name, arrays, constants, formula, attributes, signed):
        self.arrays = {f"{key}_{type_name}": array for key, array in arrays.items()}
        arrays = list(arrays.values())
        self.dtype, self.compute, self.limit = TYPES[type_name]
        self.operator, self.name, self.signed = name, f"{name}_{type_name}", signed
        self.constants = [np.array(c, self.dtype) for c in constants]
        self.node = (op, attributes)
        with np.errstate(all="ignore"):
            self.wants = [np.asarray(formula(*(a.astype(kind) for a in arrays)))
                          for kind in (np.float64, self.compute)]

    def check(self, got):
        """What is wrong, or ""."""
        with np.errstate(all="ignore"):
            return self.differences(got)

    def differences(self, got):
        if got.dtype == np.dtype("V2"):
            got = got.view(ml_dtypes.bfloat16)
        if self.wants[0].dtype == bool:
            bad = got != self.wants[0]
        else:
            bad = np.ones(got.shape, bool)
            for want in self.wants:
                bad &= ~self.agrees(got, want.astype(self.dtype))
        texts = []
        for at in np.argwhere(bad)[:4]:
            at = tuple(at)
            inputs = ", ".join(str(a[at]) for a in self.arrays.values())
            texts.append(f"({inputs}) = {got[at]}, not {self.wants[0][at]}")
        return "; ".join(texts)

    def agrees(self, got, want):
        got, want = got.astype(np.float64), want.astype(np.float64)
        least = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)
        tiny = float(ml_dtypes.finfo(self.compute).tiny)
        near = np.abs(got - want) <= self.limit * np.abs(want) + 2 * max(least, tiny * 1e-3)
        same = np.where(np.isfinite(want), near, got == want) | (np.isnan(got) & np.isnan(want))
        if self.signed:
            zero = (got == 0) & (want == 0)
            same &= ~zero | (np.signbit(got) == np.signbit(want))
        return same


def cases():
    for kind, (dtype, _, _) in TYPES.items():
        x, p = numbers(dtype, PLAIN), numbers(dtype, PAIRED)
        a, b = np.repeat(p, len(p)), np.tile(p, len(p))
        rows = np.array(ROW_NUMBERS, dtype)
        for name, (formula, attributes, signed) in ONE.items():
            yield Case(name, name.split("_")[0], kind, {"x": x}, [], formula, attributes, signed)
        for name, (formula, attributes, signed) in TWO.items():
            yield Case(name, name, kind, {"a": a, "b": b}, [], formula, attributes, signed)
        for name, (op, constants, formula) in CONSTANT.items():
            yield Case(name, op, kind, {"x": x}, constants, formula, {}, False)
        for name, of in ROWS.items():
            def formula(x, of=of):
                e = np.exp(x - x.max(-1, keepdims=True))
                return of(e, e.sum(-1, keepdims=True), x)
            yield Case(name, name, kind, {"rows": rows}, [], formula, {}, False)


def model(every, folded):
    """Inputs are initializers where all is folded."""
    nodes, weights, outputs, feeds = [], [], [], {}
    for case in every:
        feeds.update(case.arrays)
        names = [*case.arrays]
        for array in case.constants:
            names.append(f"{case.name}_{len(names)}")
            weights.append(numpy_helper.from_array(array, names[-1]))
        op, attributes = case.node
        nodes.append(helper.make_node(op, names, [case.name], **attributes))
        of = (TensorProto.BOOL if case.wants[0].dtype == bool else
              helper.np_dtype_to_tensor_dtype(np.dtype(case.dtype)))
        outputs.append(helper.make_tensor_value_info(case.name, of, case.wants[0].shape))
    if folded:
        weights += [numpy_helper.from_array(array, name) for name, array in feeds.items()]
        feeds = {}
    inputs = [helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()]
    graph = helper.make_graph(nodes, "specials", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=11,
                             opset_imports=[helper.make_opsetid("", 24)]), feeds


def run(ullage, target, every, folded, folder):
    """The outputs by name."""
    made, feeds = model(every, folded)
    path, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    with open(path, "wb") as file:
        file.write(made.SerializeToString())
    given = []
    for name, array in feeds.items():
        given += ["--input", f"{name}={folder}/{name}.npy"]
        np.save(os.path.join(folder, f"{name}.npy"),
                array.view("V2") if array.dtype == ml_dtypes.bfloat16 else array)
    for command in ([ullage, "compile", "--target", target, "--cflags", "-O1", path, "-o", program],
                    [program, "--output-dir", folder, *given]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"FAIL {target}: exit {done.returncode}: {done.stderr}")
    return {case.name: np.load(os.path.join(folder, f"{case.name}.npy")) for case in every}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--targets", default="c,cpu")
    parser.add_argument("operators", nargs="*")
    options = parser.parse_intermixed_args()
    every = [*cases()]
    unknown = set(options.operators) - {case.operator for case in every}
    if unknown:
        parser.error(f"no case is of {', '.join(sorted(unknown))}")
    every = [case for case in every if not options.operators or case.operator in options.operators]
    failed = 0
    for target in options.targets.split(","):
        for folded in (False, True):
            if folded and target != "c":
                continue
            with tempfile.TemporaryDirectory() as folder:
                got = run(options.ullage, target, every, folded, folder)
            for case in every:
                text = case.check(got[case.name])
                failed += text != ""
                if text:
                    print(f"FAIL {case.name} ({'folded' if folded else target}): {text}")
    print(f"{len(every)} cases, {failed} wrong")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
