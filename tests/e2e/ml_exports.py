#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scikit-learn, XGBoost and LightGBM models become as ONNX: what onnxruntime computes.

    ml_exports.py [--target c] ULLAGE [NAME]...

Each model is trained on a few hundred rows, exported by skl2onnx or onnxmltools, compiled, and run on
rows that it has not seen, some of them with NaN where the model takes these. Labels must be equal,
scores within 1e-5 of the largest. Exit: 0 ok, 1 results differ or a command failed, 77 a Python
package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnxruntime
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType
except ImportError as error:
    print(f"ml_exports.py: skipped: {error}")
    sys.exit(77)

ROWS, FEATURES, LIMIT = 300, 8, 1e-5
MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


def data(classes, holes=False):
    """Features, and numbers (classes 0) or classes that depend on them."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2 * ROWS, FEATURES)).astype(np.float32)
    y = x[:, 0] + np.abs(x[:, 1]) * x[:, 2] + 0.3 * rng.standard_normal(2 * ROWS)
    if classes:
        y = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)
    if holes:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x, y


def sklearn_model(estimator, classes=0, holes=False, options=None):
    x, y = data(classes, holes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x[:ROWS], y[:ROWS])
    if options is None:
        options = {"zipmap": False} if classes else {}
    exported = skl2onnx.convert_sklearn(estimator, initial_types=[
        ("X", FloatTensorType([ROWS, FEATURES]))], options={id(estimator): options})
    return exported, x[ROWS:]


def boosted_model(convert, estimator, classes=0, holes=False, **more):
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats
    x, y = data(classes, holes)
    estimator.fit(x[:ROWS], y[:ROWS])
    return convert(estimator, initial_types=[("X", Floats([ROWS, FEATURES]))], **more), x[ROWS:]


@model
def forest_two():
    from sklearn.ensemble import RandomForestClassifier
    return sklearn_model(RandomForestClassifier(20, max_depth=5, random_state=1), 2)


@model
def forest_names():
    """With ZipMap, which is left out."""
    from sklearn.ensemble import RandomForestClassifier
    return sklearn_model(RandomForestClassifier(20, max_depth=5, random_state=1), 4, options={})


@model
def forest_strings():
    """Labels that are strings, which --output leaves out."""
    from sklearn.ensemble import RandomForestClassifier
    x, y = data(3)
    names = np.array(["one", "two", "three"])[y]
    estimator = RandomForestClassifier(20, max_depth=5, random_state=1).fit(x[:ROWS], names[:ROWS])
    return skl2onnx.convert_sklearn(estimator, options={"zipmap": False}, initial_types=[
        ("X", FloatTensorType([ROWS, FEATURES]))]), x[ROWS:]


@model
def forest_regressor():
    from sklearn.ensemble import RandomForestRegressor
    return sklearn_model(RandomForestRegressor(20, max_depth=8, random_state=1))


@model
def extra_trees():
    from sklearn.ensemble import ExtraTreesClassifier
    return sklearn_model(ExtraTreesClassifier(13, random_state=1), 3)


@model
def tree():
    from sklearn.tree import DecisionTreeClassifier
    return sklearn_model(DecisionTreeClassifier(random_state=1), 3)


@model
def boosted_two():
    from sklearn.ensemble import GradientBoostingClassifier
    return sklearn_model(GradientBoostingClassifier(n_estimators=20, random_state=1), 2)


@model
def boosted_many():
    from sklearn.ensemble import GradientBoostingClassifier
    return sklearn_model(GradientBoostingClassifier(n_estimators=10, random_state=1), 3)


@model
def logistic():
    from sklearn.linear_model import LogisticRegression
    return sklearn_model(LogisticRegression(), 3)


@model
def logistic_scaled():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler
    return sklearn_model(make_pipeline(StandardScaler(), Normalizer(), LogisticRegression()), 2)


@model
def linear():
    from sklearn.linear_model import LinearRegression
    return sklearn_model(LinearRegression())


@model
def support_vectors():
    from sklearn.svm import SVC
    return sklearn_model(SVC(), 3)


@model
def support_vectors_regressor():
    from sklearn.svm import SVR
    return sklearn_model(SVR(C=10))


@model
def xgboost_two():
    import onnxmltools
    import xgboost
    return boosted_model(onnxmltools.convert_xgboost, xgboost.XGBClassifier(n_estimators=30), 2)


@model
def xgboost_many():
    import onnxmltools
    import xgboost
    return boosted_model(onnxmltools.convert_xgboost, xgboost.XGBClassifier(n_estimators=10), 3,
                         holes=True)


@model
def xgboost_regressor():
    import onnxmltools
    import xgboost
    return boosted_model(onnxmltools.convert_xgboost,
                         xgboost.XGBRegressor(n_estimators=30, max_depth=4), holes=True)


@model
def lightgbm_two():
    import lightgbm
    import onnxmltools
    return boosted_model(onnxmltools.convert_lightgbm,
                         lightgbm.LGBMClassifier(n_estimators=20, verbose=-1), 2, zipmap=False)


@model
def lightgbm_many():
    import lightgbm
    import onnxmltools
    return boosted_model(onnxmltools.convert_lightgbm,
                         lightgbm.LGBMClassifier(n_estimators=10, verbose=-1), 3)


@model
def lightgbm_regressor():
    import lightgbm
    import onnxmltools
    return boosted_model(onnxmltools.convert_lightgbm,
                         lightgbm.LGBMRegressor(n_estimators=20, verbose=-1), holes=True)


def as_tensor(result):
    """A ZipMap's maps as the values that they are made from."""
    if isinstance(result, list):
        return np.array([[row[key] for key in row] for row in result], np.float32)
    return result


def difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    if want.dtype.kind in "iu":
        wrong = int((got != want).sum())
        return f"{wrong} labels differ" if wrong else ""
    error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-3)
    return "" if error <= LIMIT else f"relative error {error:.2g}"


def run(ullage, target, exported, x):
    """What is wrong, or ""."""
    session = onnxruntime.InferenceSession(exported.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    want = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"X": x})))
    strings = [name for name, value in want.items() if getattr(value, "dtype", None) == object]
    want = {name: value for name, value in want.items() if name not in strings}
    kept = [word for name in want for word in ("--output", name) if strings]
    with tempfile.TemporaryDirectory() as folder:
        path, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
        with open(path, "wb") as file:
            file.write(exported.SerializeToString())
        np.save(f"{folder}/x.npy", x)
        for command in ([ullage, "compile", "--target", target, "--cflags", "-O1", *kept, path,
                         "-o", program],
                        [program, "--input", f"X={folder}/x.npy", "--output-dir", folder]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                return f"exit {done.returncode}: {done.stderr.strip()}"
            if command[0] == ullage and "ZipMap" in str(exported) and "left out" not in done.stderr:
                return f"no note of a ZipMap: {done.stderr}"
        wrong = [(name, difference(np.load(f"{folder}/{name}.npy"), as_tensor(value)))
                 for name, value in want.items()]
        return "; ".join(f"{name}: {text}" for name, text in wrong if text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    failed = 0
    for name in options.models or MODELS:
        try:
            exported, x = MODELS[name]()
        except ImportError as error:
            print(f"ml_exports.py: skipped: {error}")
            return 77
        wrong = run(options.ullage, options.target, exported, x)
        failed += wrong != ""
        print(f"{'FAIL ' if wrong else ''}{name}{': ' if wrong else ''}{wrong}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
