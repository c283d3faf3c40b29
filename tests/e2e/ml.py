#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml on numbers: what onnxruntime computes.

    ml.py [--target c] ULLAGE [FAMILY]...

As contributed.py, whose cases these are: labels must be equal, scores within 1e-5 of the largest.
"""

import sys

from contributed import F32, I64, Case, integers, main, random, rng, weight  # exits without onnx

import numpy as np
from onnx import numpy_helper

FAMILIES = {}
LIMIT = 1e-5
F64, I32 = np.float64, np.int32


def family(function):
    FAMILIES[function.__name__] = function
    return function


def ml(name, op, inputs, outputs=1, version=4, **attributes):
    """A case; `like` may be among the attributes."""
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
    holes = np.where(rng.random((4, 5)) < 0.4, np.float32(np.nan), random(4, 5)).astype(F32)
    zeros = rng.integers(0, 3, (4, 5)).astype(I64)
    each = [0.5, -1.0, 2.0, 3.0, 4.0]
    yield ml("imputer_nan", "Imputer", [holes], imputed_value_floats=each,
             replaced_value_float=float("nan"))
    yield ml("imputer_one", "Imputer", [zeros.astype(F32)], imputed_value_floats=[7.5],
             replaced_value_float=1.0)
    yield ml("imputer_ints", "Imputer", [zeros], imputed_value_int64s=[5, 6, 7, 8, -9],
             replaced_value_int64=2)
    for dtype in (F32, F64, I64):  # onnxruntime has no other
        yield ml(f"one_hot_{np.dtype(dtype).name}", "OneHotEncoder", [zeros.astype(dtype)],
                 cats_int64s=[0, 2, 5, -1])
    yield ml("one_hot_vector", "OneHotEncoder", [zeros[0]], cats_int64s=[0, 1, 2], zeros=0)
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
    yield ml("nan_key", "LabelEncoder", [x], keys_floats=[2.0, np.nan, -1.5, np.nan],
             values_int64s=[1, 2, 3, 4], default_int64=9)
    yield ml("nan_alone", "LabelEncoder", [x], keys_floats=[np.nan], values_floats=[3.0])


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


def svm(name, op, kernel, x, vectors, rho, coefficients, **attributes):
    if vectors:
        attributes["support_vectors"] = random(vectors * 4).tolist()
    return ml(name, op, [x], ["scores"] if op == "SVMClassifier" else 1, kernel_type=kernel,
              kernel_params=[0.3, 0.5, 3.0],
              coefficients=random(coefficients).tolist(), rho=random(rho).tolist(), **attributes)


@family
def support_vectors():
    x = random(7, 4)
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        yield svm(f"regressor_{kernel}", "SVMRegressor", kernel, x, 6, 1, 6, n_supports=6)
        for classes, labels in ((2, [3, 8]), (4, [0, 1, 2, 3])):
            pairs = classes * (classes - 1) // 2
            more = {"vectors_per_class": [3, 2, 4, 1][:classes], "classlabels_ints": labels}
            count = sum(more["vectors_per_class"])
            name = f"{kernel}_{classes}"
            yield svm(name, "SVMClassifier", kernel, x, count, pairs, count * (classes - 1), **more)
            yield svm(f"probabilities_{name}", "SVMClassifier", kernel, x, count, pairs,
                      count * (classes - 1), prob_a=random(pairs).tolist(),
                      prob_b=random(pairs).tolist(), **more)
    for post in ("LOGISTIC", "SOFTMAX"):
        yield svm(f"two_{post}", "SVMClassifier", "RBF", x, 5, 1, 5, vectors_per_class=[3, 2],
                  classlabels_ints=[0, 1], post_transform=post)
        yield svm(f"three_{post}", "SVMClassifier", "RBF", x, 6, 3, 12, post_transform=post,
                  vectors_per_class=[3, 2, 1], classlabels_ints=[0, 1, 2])
    yield svm("one_class", "SVMRegressor", "RBF", x, 6, 1, 6, n_supports=6, one_class=1)
    yield svm("products", "SVMRegressor", "LINEAR", x, 0, 1, 4, n_supports=0)
    for classes in (2, 3):
        yield svm(f"products_{classes}", "SVMClassifier", "LINEAR", x, 0, 1, 4 * classes,
                  classlabels_ints=list(range(classes)))


# ---- Trees ----

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")


class Forest:
    """Random trees, as lists of nodes: (mode, feature, limit, missing, yes, no) or a leaf."""

    def __init__(self, trees, depth, features=5, modes=("LEQ",), missing=False, values=None,
                 early=0.2):
        self.features, self.modes, self.missing, self.values = features, modes, missing, values
        self.early = early
        self.trees = [[] for _ in range(trees)]
        for tree in self.trees:
            self.grow(tree, depth)

    def grow(self, tree, depth):
        at = len(tree)
        tree.append(None)
        if depth == 0 or (at > 0 and rng.random() < self.early):
            return at
        limit = rng.choice(self.values) if self.values is not None else rng.standard_normal()
        mode, feature = rng.choice(self.modes), int(rng.integers(self.features))
        missing = int(self.missing and rng.integers(2))
        yes = self.grow(tree, depth - 1)
        tree[at] = (str(mode), feature, float(F32(limit)), missing, yes, self.grow(tree, depth - 1))
        return at

    def old(self, kind, classes, tensors=None, positive=False):
        """Attributes of the older form; `classes` gives the targets of a leaf of tree t."""
        names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                 "falsenodeids", "missing_value_tracks_true")
        nodes = {name: [] for name in names}
        weights = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
        for t, tree in enumerate(self.trees):
            for i, node in enumerate(tree):
                mode, feature, limit, missing, yes, no = node or ("LEAF", 0, 0.0, 0, 0, 0)
                mode = mode if node is None else f"BRANCH_{mode}"
                for name, value in zip(names, (t, i, feature, limit, mode, yes, no, missing)):
                    nodes[name].append(value)
                for target in classes(t) if node is None else ():
                    value = float(F32(rng.standard_normal()))
                    for name, item in zip(weights, (t, i, target, abs(value) if positive else value)):
                        weights[name].append(item)
        result = {f"nodes_{k}": v for k, v in nodes.items()}
        result.update((f"{kind}_{k}", v) for k, v in weights.items())
        if not self.missing:
            del result["nodes_missing_value_tracks_true"]
        for name in ("nodes_values", f"{kind}_weights") if tensors else ():
            array = np.asarray(result.pop(name), tensors)
            result[f"{name}_as_tensor"] = numpy_helper.from_array(array, name)
        return result

    def new(self, targets, dtype=F32):
        """Attributes of TreeEnsemble, for `targets` targets."""
        nodes = {name: [] for name in ("featureids", "splits", "modes", "truenodeids", "trueleafs",
                                       "falsenodeids", "falseleafs", "missing_value_tracks_true")}
        roots, leaves, weights, members = [], [], [], []
        for tree in self.trees:
            begin, places = len(nodes["modes"]), {}
            for i, node in enumerate(tree):
                if node is None:
                    places[i] = (len(leaves), 1)
                    leaves.append(int(rng.integers(targets)))
                    weights.append(rng.standard_normal())
                else:
                    places[i] = (begin + sum(n is not None for n in tree[:i]), 0)
            roots.append(begin)
            for node in tree if tree[0] else [("LEQ", 0, 0.0, 0, 0, 0)]:
                if node is None:
                    continue
                mode, feature, limit, missing, yes, no = node
                if mode == "MEMBER":
                    members += [*rng.choice(self.values, rng.integers(1, 6)), np.nan]
                for name, value in zip(nodes, (feature, limit, (*MODES, "MEMBER").index(mode),
                                               *places[yes], *places[no], missing)):
                    nodes[name].append(value)
        result = {f"nodes_{k}": v for k, v in nodes.items()}
        for name, array in (("nodes_splits", nodes["splits"]), ("leaf_weights", weights)):
            result[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        result["nodes_modes"] = numpy_helper.from_array(np.asarray(nodes["modes"], np.uint8), "modes")
        if members:
            result["membership_values"] = numpy_helper.from_array(np.asarray(members, dtype), "m")
        return {**result, "tree_roots": roots, "leaf_targetids": leaves, "n_targets": targets}


def holes(x):
    """x with some NaN in it."""
    return np.where(rng.random(x.shape) < 0.2, np.nan, x).astype(x.dtype)


def regressor(name, forest, targets, x=None, classes=None, tensors=None, **attributes):
    classes = classes or (lambda t: range(targets))
    return ml(name, "TreeEnsembleRegressor", [random(19, 5) if x is None else x],
              n_targets=targets, **forest.old("target", classes, tensors), **attributes)


def classifier(name, forest, labels, classes, x=None, positive=False, **attributes):
    return ml(name, "TreeEnsembleClassifier", [random(19, 5) if x is None else x], ["scores"],
              classlabels_int64s=labels, **forest.old("class", classes, positive=positive),
              **attributes)


@family
def trees():
    small = np.array([-1, 0, 1, 2], F32)
    whole = rng.integers(-2, 4, (19, 5)).astype(F32)
    for mode in MODES:
        for missing in (False, True):
            yield regressor(f"{mode}_{missing}", Forest(3, 4, modes=(mode,), values=small,
                                                        missing=missing), 1, holes(whole))
    yield regressor("modes", Forest(9, 5, modes=MODES, values=small, missing=True), 1, holes(whole))
    yield regressor("ends", Forest(4, 3, modes=("LT", "GTE", "LEQ", "GT"),
                                   values=np.array([np.inf, -np.inf, 0], F32)), 1,
                    rng.choice(np.array([np.inf, -np.inf, -0.0, 0, 1e-45, -1e-45], F32), (19, 5)))
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield regressor(aggregate, Forest(17, 4), 1, aggregate_function=aggregate)
        yield regressor(f"{aggregate}_base", Forest(8, 4), 3, base_values=[0.5, -1.0, 2.0],
                        aggregate_function=aggregate)
        yield regressor(f"{aggregate}_apart", Forest(7, 3), 3, classes=lambda t: [t % 3],
                        aggregate_function=aggregate)
    for post in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield regressor(post, Forest(4, 3), 3, post_transform=post)
    yield regressor("leaf", Forest(2, 0), 1)
    yield regressor("one_row", Forest(40, 6), 1, random(1, 5))
    yield regressor("deep", Forest(3, 40, early=0.45), 2)
    yield regressor("double", Forest(11, 5), 2, random(19, 5).astype(F64), tensors=F64)
    yield regressor("double_of_floats", Forest(11, 5), 1, random(19, 5).astype(F64))


@family
def tree_classes():
    for positive in (False, True):
        for base in ([], [0.25], [0.25, -0.5]):
            name = f"{positive}_{len(base)}"
            more = {"base_values": base} if base else {}
            for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
                yield classifier(f"first_{post}_{name}", Forest(3, 3), [4, 7], lambda t: [0],
                                 positive=positive, post_transform=post, **more)
                yield classifier(f"both_{post}_{name}", Forest(3, 3), [0, 1], lambda t: [0, 1],
                                 positive=positive, post_transform=post, **more)
            if len(base) < 2:
                yield classifier(f"second_{name}", Forest(3, 3), [4, 7], lambda t: [1],
                                 positive=positive, **more)
            yield classifier(f"apart_{name}", Forest(4, 3), [0, 1], lambda t: [t % 2],
                             positive=positive, post_transform="SOFTMAX", **more)
    yield classifier("many", Forest(6, 4), [3, 5, 9], lambda t: range(3), positive=True)
    yield classifier("many_apart", Forest(6, 4), [3, 5, 9], lambda t: [t % 3],
                     post_transform="SOFTMAX", base_values=[0.5, 0.25, 0.125])
    yield classifier("absent", Forest(6, 4), [0, 1, 2, 3], lambda t: [1, 3])
    for name, x in of_types(random(19, 5)):
        yield classifier(name, Forest(6, 4), [0, 1, 2], lambda t: range(3), x=x)


@family
def tree_ensemble():
    values = np.arange(-3, 9).astype(F32)
    whole = rng.integers(-4, 10, (29, 5)).astype(F32)
    for dtype in (F32, F64):
        for count, modes, missing in ((1, ("MEMBER",), False), (9, ("MEMBER",), False),
                                      (9, (*MODES, "MEMBER"), True), (9, MODES, True)):
            forest = Forest(count, 4, modes=modes, values=values, missing=missing)
            yield ml(f"e{count}_{len(modes)}_{np.dtype(dtype).name}_{missing}", "TreeEnsemble",
                     [(holes(whole) if missing else whole).astype(dtype)], version=5,
                     **forest.new(3, dtype))
    for aggregate in range(4):
        yield ml(f"aggregate_{aggregate}", "TreeEnsemble", [random(19, 5)], version=5,
                 aggregate_function=aggregate, **Forest(9, 3).new(2))
    # onnxruntime takes ONNX's SOFTMAX (1) for LOGISTIC (2) and the other way round
    for post, theirs in enumerate((0, 2, 1, 3)):
        x, forest = random(19, 5), Forest(9, 3).new(2)
        yield ml(f"post_{post}", "TreeEnsemble", [x], version=5, post_transform=post, **forest,
                 like=ml("", "TreeEnsemble", [x], version=5, post_transform=theirs, **forest))


def tree(**changes):
    """Two leaves, with some attributes replaced."""
    attributes = {"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2],
                  "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
                  "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
                  "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
                  "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
    return {**attributes, **changes}


def bad_trees():
    wrong = {
        "cycle": ("cycle", {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
                            "nodes_truenodeids": [1, 1, 0], "nodes_falsenodeids": [2, 2, 0],
                            "target_nodeids": [2, 2]}),
        "back": ("cycle", {"nodes_truenodeids": [0, 0, 0]}),
        "child": ("node 7", {"nodes_truenodeids": [7, 0, 0]}),
        "negative": ("node -1", {"nodes_falsenodeids": [-1, 0, 0]}),
        "feature": ("feature", {"nodes_featureids": [3, 0, 0]}),
        "feature_below": ("feature", {"nodes_featureids": [-1, 0, 0]}),
        "nan": ("NaN", {"nodes_values": [float("nan"), 0.0, 0.0]}),
        "mode": ("BRANCH", {"nodes_modes": ["BRANCH_LIKE", "LEAF", "LEAF"]}),
        "twice": ("twice", {"nodes_nodeids": [0, 1, 1]}),
        "short": ("nodes_values", {"nodes_values": [0.5]}),
        "weight": ("finite", {"target_weights": [float("inf"), 0.0]}),
        "target": ("target", {"target_ids": [0, 1]}),
        "branch": ("no leaf", {"target_nodeids": [0, 1]}),
        "nowhere": ("node 9", {"target_nodeids": [9, 1]}),
    }
    for name, (text, changes) in wrong.items():
        yield 2, text, ml(name, "TreeEnsembleRegressor", [random(2, 3)], n_targets=1,
                          **tree(**changes))
    yield 2, "no trees", ml("empty", "TreeEnsembleRegressor", [random(2, 3)], n_targets=1)
    few = Forest(2, 3, modes=("MEMBER",), values=np.arange(5)).new(1)
    few["membership_values"] = numpy_helper.from_array(np.array([1, 2], F32), "m")
    yield 2, "membership", ml("members", "TreeEnsemble", [random(2, 5)], version=5, **few)


def bad():
    """Exit code, a part of the message, and the case."""
    yield from bad_trees()
    x = random(2, 3)
    yield 2, "coefficients", ml("few", "LinearRegressor", [x], coefficients=[1.0, 2.0])
    yield 2, "labels", ml("labels", "LinearClassifier", [x], ["scores"],
                          coefficients=[1.0] * 6, intercepts=[1.0] * 2,
                          classlabels_ints=[1, 2, 3])
    yield 2, "labels", ml("one", "LinearClassifier", [x], ["scores"], classlabels_ints=[1],
                          coefficients=[1.0] * 3, intercepts=[1.0])
    yield 3, "PROBIT", ml("probit", "LinearClassifier", [x], ["scores"], classlabels_ints=[1, 2],
                          coefficients=[1.0] * 3, intercepts=[1.0], post_transform="PROBIT")
    yield 2, "rho", svm("rho", "SVMClassifier", "RBF", random(2, 4), 6, 1, 12,
                        vectors_per_class=[3, 2, 1], classlabels_ints=[0, 1, 2])
    yield 2, "vectors_per_class", svm("vectors", "SVMClassifier", "RBF", random(2, 4), 6, 3, 12,
                                      vectors_per_class=[3, -2, 5], classlabels_ints=[0, 1, 2])
    yield 2, "support_vectors", svm("features", "SVMRegressor", "RBF", x, 6, 1, 6, n_supports=6)
    yield 2, "classlabels", ml("none", "LinearClassifier", [x], ["scores"],
                               coefficients=[1.0] * 6, intercepts=[1.0] * 2)
    yield 3, "--output", ml("strings", "LinearClassifier", [x], ["scores"],
                            coefficients=[1.0] * 6, intercepts=[1.0] * 2,
                            classlabels_strings=["a", "b"])
    yield 3, "strings", ml("words", "LabelEncoder", [x], keys_floats=[1.0], values_strings=["a"])
    yield 3, "type", ml("other_type", "LabelEncoder", [x], keys_int64s=[1], values_int64s=[1])
    yield 2, "norm", ml("norm", "Normalizer", [x], norm="L3")
    yield 2, "offset", ml("offset", "Scaler", [x], offset=[1.0, 2.0], scale=[1.0, 2.0])


def older():
    """All but the newest operator, which has a version of its own: compiled together."""
    for name, make in FAMILIES.items():
        for case in make() if name != "tree_ensemble" else ():
            case.name = f"{name}_{case.name}"
            yield case


if __name__ == "__main__":
    sys.exit(main({**FAMILIES, "older": older}, bad, ("older", "tree_ensemble")))
