#!/usr/bin/env python3
"""Operators of ai.onnx.ml on numbers: what onnxruntime computes.

    ml.py [--target c] ULLAGE [FAMILY]...

As contributed.py, whose cases these are: labels must be equal, scores within 1e-5 of the largest.
"""

import sys

from contributed import F32, I64, Case, integers, main, random, rng, weight  # exits without onnx

import numpy as np

FAMILIES = {}
LIMIT = 1e-5
F64, I32 = np.float64, np.int32


def family(function):
    FAMILIES[function.__name__] = function
    return function


def ml(name, op, inputs, outputs=1, version=3, **attributes):
    return Case(name, op, inputs, outputs, limit=LIMIT, steps=0, domain="ai.onnx.ml",
                version=version, **attributes)


def of_types(x):
    """x as each type of T1."""
    for dtype in (F32, F64, I64, I32):
        yield np.dtype(dtype).name, (x * (1 if dtype in (F32, F64) else 10)).astype(dtype)


@family
def features():
    offset, scale = random(5).tolist(), random(5).tolist()
    for name, x in of_types(random(4, 5)):
        yield ml(f"scaler_{name}", "Scaler", [x], offset=offset, scale=scale)
        for norm in ("MAX", "L1", "L2"):
            yield ml(f"normalizer_{norm}_{name}", "Normalizer", [x], norm=norm)
        picks = np.array([[3, 0, 4]], I64)
        yield ml(f"extract_{name}", "ArrayFeatureExtractor", [x, weight(picks)])
    x = random(5)
    yield ml("scaler_one", "Scaler", [random(3, 5)], offset=[0.5], scale=[2.0])
    yield ml("scaler_vector", "Scaler", [x], offset=offset, scale=scale)
    yield ml("normalizer_zero", "Normalizer", [np.zeros((2, 3), F32)], norm="L2")
    yield ml("normalizer_zero_max", "Normalizer", [np.array([[-1, 0], [-3, -2]], F32)])
    yield ml("normalizer_vector", "Normalizer", [x], norm="L1")
    yield ml("binarizer", "Binarizer", [random(2, 3, 4)], threshold=0.25)
    yield ml("binarizer_default", "Binarizer", [random(7)])
    yield ml("extract_data", "ArrayFeatureExtractor", [random(2, 3, 6), np.array([5, 5, 1], I64)])
    yield ml("extract_vector", "ArrayFeatureExtractor", [random(6), weight(np.array([2, 1], I64))])


@family
def labels():
    keys = [7, -3, 12, 0, 7, 1 << 40]
    x = np.array([[7, 1, -3], [1 << 40, 12, 0]], I64)
    yield ml("int_int", "LabelEncoder", [x], keys_int64s=keys, values_int64s=[1, 2, 3, 4, 5, 6])
    yield ml("int_float", "LabelEncoder", [x], keys_int64s=keys, default_float=0.5,
             values_floats=[1.5, 2.5, 3.5, 4.5, 5.5, 6.5])
    x = np.array([0.5, np.nan, -1.5, 0.25, np.inf, 2.0], F32)
    yield ml("float_int", "LabelEncoder", [x], keys_floats=[2.0, 0.5, -1.5, np.inf],
             values_int64s=[1, 2, 3, 4], default_int64=9)
    yield ml("float_float", "LabelEncoder", [x], keys_floats=[0.25], values_floats=[7.0])
    many = rng.permutation(1000)[:300]
    yield ml("many", "LabelEncoder", [rng.integers(0, 1000, (40, 5))], keys_int64s=many.tolist(),
             values_int64s=np.arange(300).tolist())


@family
def labels_nan():
    x = np.array([0.5, np.nan, -1.5, 0.25, np.inf, 2.0], F32)
    yield ml("nan_key", "LabelEncoder", [x], version=4, keys_floats=[2.0, np.nan, -1.5, np.nan],
             values_int64s=[1, 2, 3, 4], default_int64=9)
    yield ml("nan_alone", "LabelEncoder", [x], version=4, keys_floats=[np.nan],
             values_floats=[3.0])


@family
def linear():
    x = random(6, 4)
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield ml(f"classes_{post}", "LinearClassifier", [x], ["scores"],
                 coefficients=random(12).tolist(), intercepts=random(3).tolist(),
                 classlabels_ints=[4, 5, 9], post_transform=post)
        yield ml(f"regressor_{post}", "LinearRegressor", [x], targets=3, post_transform=post,
                 coefficients=random(12).tolist(), intercepts=random(3).tolist())
        yield ml(f"two_of_one_{post}", "LinearClassifier", [x], ["scores"],
                 coefficients=random(4).tolist(), intercepts=[0.25], classlabels_ints=[3, 8],
                 post_transform=post)
    inner = np.abs(random(6, 4, scale=0.1))
    for count in (1, 3):
        yield ml(f"probit_{count}", "LinearRegressor", [inner], targets=count,
                 post_transform="PROBIT", coefficients=[0.3] * 4 * count, intercepts=[0.2] * count)
    for name, data in of_types(x):
        yield ml(f"classes_{name}", "LinearClassifier", [data], ["scores"],
                 coefficients=random(8).tolist(), intercepts=random(2).tolist(),
                 classlabels_ints=[0, 1], post_transform="LOGISTIC")
    yield ml("vector", "LinearRegressor", [random(4)], coefficients=random(4).tolist(),
             intercepts=[1.0])
    yield ml("unshifted", "LinearRegressor", [x], coefficients=random(4).tolist())


def bad():
    """Exit code, a part of the message, and the case."""
    x = random(2, 3)
    yield 2, "coefficients", ml("few", "LinearRegressor", [x], coefficients=[1.0, 2.0])
    yield 2, "labels", ml("labels", "LinearClassifier", [x], ["scores"],
                          coefficients=[1.0] * 6, intercepts=[1.0] * 2,
                          classlabels_ints=[1, 2, 3])
    yield 2, "labels", ml("one", "LinearClassifier", [x], ["scores"], classlabels_ints=[1],
                          coefficients=[1.0] * 3, intercepts=[1.0])
    yield 3, "PROBIT", ml("probit", "LinearClassifier", [x], ["scores"], classlabels_ints=[1, 2],
                          coefficients=[1.0] * 3, intercepts=[1.0], post_transform="PROBIT")
    yield 2, "classlabels", ml("none", "LinearClassifier", [x], ["scores"],
                               coefficients=[1.0] * 6, intercepts=[1.0] * 2)
    yield 3, "--output", ml("strings", "LinearClassifier", [x], ["scores"],
                            coefficients=[1.0] * 6, intercepts=[1.0] * 2,
                            classlabels_strings=["a", "b"])
    yield 3, "strings", ml("words", "LabelEncoder", [x], keys_floats=[1.0], values_strings=["a"])
    yield 3, "type", ml("other_type", "LabelEncoder", [x], keys_int64s=[1], values_int64s=[1])
    yield 2, "norm", ml("norm", "Normalizer", [x], norm="L3")
    yield 2, "offset", ml("offset", "Scaler", [x], offset=[1.0, 2.0], scale=[1.0, 2.0])


if __name__ == "__main__":
    sys.exit(main(FAMILIES, bad))
