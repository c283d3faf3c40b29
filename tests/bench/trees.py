#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forests against onnxruntime in the same run: time at batch 1 and 256, bytes, results.

    trees.py [--ullage build/ci/cli/ullage] [--models FOLDER] [--threads 1,2] [--batches 1,256]
             [--rounds 9] [--only NAME,NAME]
             [--json FILE]

Forests of 500 trees of depth 8 and boosted ones of 1,000 trees (scikit-learn, XGBoost, LightGBM) are
trained on 4,000 rows of 30 features once, and kept in FOLDER. Both sides are called from this process:
ours through ctypes as the library that --emit makes, onnxruntime by bindings made before, with no
spinning of its threads while ours run. Each call takes other rows than the one before it, of 2,048
that no model has seen, so that no branch is known in advance.

time    microseconds a call: the mean over calls of the least that each took in the rounds, which
        alternate between both
bytes   what ours reserves, weights included; the size of the ONNX file; the peak of onnxruntime's
        process that loads it and runs once, less that of one that imports it
labels  are equal, and scores within 1e-5 of the largest, or the row is marked

Wanted: time at most 1.0 of onnxruntime's in each row. What misses that is marked "!"; exit code 6.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

import environment  # noqa: E402

environment.need("onnxruntime", "sklearn", "xgboost", "lightgbm")

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ROWS, FEATURES, TREES, BOOSTED, DEPTH, LIMIT = 2048, 30, 500, 1000, 8, 1e-5


# ---- Models ----


def training_data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, FEATURES)).astype(np.float32)
    y = (x[:, :5] ** 2).sum(1) + x[:, 6] * x[:, 7] + 0.5 * rng.standard_normal(len(x))
    return x, y, np.searchsorted(np.quantile(y, (0.25, 0.5, 0.75)), y)


def by_sklearn(estimator, x, y, **options):
    from skl2onnx import to_onnx
    return to_onnx(estimator.fit(x, y), x[:1], options=options)


def by_onnxmltools(convert, estimator, x, y):
    from onnxmltools.convert.common.data_types import FloatTensorType
    return convert(estimator.fit(x, y), initial_types=[("X", FloatTensorType([None, FEATURES]))])


def forest_two():
    from sklearn.ensemble import RandomForestClassifier
    x, _, classes = training_data()
    return by_sklearn(RandomForestClassifier(TREES, max_depth=DEPTH, random_state=0), x,
                      (classes > 1).astype(int), zipmap=False)


def forest_four():
    from sklearn.ensemble import RandomForestClassifier
    x, _, classes = training_data()
    return by_sklearn(RandomForestClassifier(TREES, max_depth=DEPTH, random_state=0), x, classes,
                      zipmap=False)


def forest_regressor():
    from sklearn.ensemble import RandomForestRegressor
    x, y, _ = training_data()
    return by_sklearn(RandomForestRegressor(TREES, max_depth=DEPTH, random_state=0), x, y)


def boosted_sklearn():
    from sklearn.ensemble import GradientBoostingRegressor
    x, y, _ = training_data()
    return by_sklearn(GradientBoostingRegressor(n_estimators=BOOSTED, random_state=0), x, y)


def boosted_xgboost():
    import onnxmltools
    import xgboost
    x, y, _ = training_data()
    return by_onnxmltools(onnxmltools.convert_xgboost,
                          xgboost.XGBRegressor(n_estimators=BOOSTED, max_depth=6), x, y)


def boosted_lightgbm():
    import lightgbm
    import onnxmltools
    x, y, _ = training_data()
    return by_onnxmltools(onnxmltools.convert_lightgbm,
                          lightgbm.LGBMRegressor(n_estimators=BOOSTED, verbose=-1), x, y)


MODELS = (forest_two, forest_four, forest_regressor, boosted_sklearn, boosted_xgboost,
          boosted_lightgbm)


def find_model(folder, make):
    path = os.path.join(folder, f"{make.__name__}.onnx")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        data = make().SerializeToString()
        with open(path, "wb") as file:
            file.write(data)
    return path


# ---- Both sides ----


def build_library(folder):
    """What the Makefile of an emitted folder has, as a library; the runtime once for all of them."""
    library = os.path.join(folder, "model.so")
    subprocess.run(["sh", "-ec", """
        for f in ul_*.c; do
            [ -e ../$f.o ] || cc -fPIC -O1 -std=c99 -c $f -o ../$f.o
        done
        cc -shared -fPIC -O3 -march=native -std=c99 -fopenmp -fno-strict-aliasing \\
            -ffp-contract=off -fno-math-errno -fno-trapping-math -o "$0" model.c ../ul_*.o \\
            -lm -pthread""", library], cwd=folder, check=True)
    return library


class Ours:
    """An emitted model as a shared library, over an arena of this process."""

    def __init__(self, folder, ullage, path, batch, threads):
        subprocess.run([ullage, "compile", "--target", "cpu", "--threads", str(threads), "--emit",
                        folder, "--shape", f"X={batch},{FEATURES}", path, "--json",
                        f"{folder}.json"], check=True, capture_output=True)
        library = build_library(folder)
        with open(f"{folder}.json", encoding="utf-8") as file:
            self.bytes = json.load(file)["reserved_bytes"]
        self.code = ctypes.CDLL(library)
        self.keep = ctypes.create_string_buffer(self.bytes + 64)
        self.arena = ctypes.c_void_p((ctypes.addressof(self.keep) + 63) // 64 * 64)
        self.code.model_init.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                         ctypes.c_void_p)
        weights = np.fromfile(os.path.join(folder, "weights.bin"), np.uint8)
        source = (ctypes.c_uint64 * 5)(len(weights), weights.ctypes.data, 0, 0, 0)
        if self.code.model_init(self.arena, self.bytes, source, None) != 0:
            raise RuntimeError("model_init failed")

    def prepare(self, inputs, outputs):
        self.outputs = [np.empty(array.shape, array.dtype) for array in outputs]
        pointers = (ctypes.c_void_p * len(outputs))(*(a.ctypes.data for a in self.outputs))
        self.calls = [(self.arena, (ctypes.c_void_p * 1)(x.ctypes.data), pointers, None)
                      for x in inputs]

    def run(self, call):
        self.code.model_run(*call)

    def results(self):
        for call in self.calls:
            if self.code.model_run(*call) != 0:
                raise RuntimeError("model_run failed")
            yield [array.copy() for array in self.outputs]


class Theirs:
    def __init__(self, path, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(path, options,
                                                    providers=["CPUExecutionProvider"])

    def prepare(self, inputs, outputs):
        names = [output.name for output in self.session.get_outputs()]
        self.calls, self.made = [], []
        for x in inputs:
            binding = self.session.io_binding()
            binding.bind_cpu_input("X", x)
            for name, array in zip(names, outputs):
                value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(array))
                self.made.append(value)
                binding.bind_ortvalue_output(name, value)
            self.calls.append(binding)

    def run(self, call):
        self.session.run_with_iobinding(call)


def peak_bytes(code):
    done = subprocess.run([sys.executable, "-c", code + """
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""], capture_output=True, text=True, check=True)
    return 1024 * int(done.stdout.split()[-1])


def their_bytes(path, batch):
    imports = "import numpy, onnxruntime\n"
    return peak_bytes(imports + f"""
session = onnxruntime.InferenceSession({path!r}, providers=["CPUExecutionProvider"])
session.run(None, {{"X": numpy.zeros(({batch}, {FEATURES}), numpy.float32)}})
""") - peak_bytes(imports)


# ---- Rows of the table ----


def difference(got, want):
    if want.dtype.kind == "i":
        return float((got != want).sum())
    return float(np.abs(got - want).max() / np.abs(want).max())


def run_all(side, best):
    """Lowers the seconds of each call, in `best`, to what it takes now."""
    clock = time.perf_counter
    for i, call in enumerate(side.calls):
        begin = clock()
        side.run(call)
        best[i] = min(best[i], clock() - begin)


def measure(options, folder, path, batch, threads):
    rows = np.random.default_rng(7).standard_normal((ROWS, FEATURES)).astype(np.float32)
    inputs = [np.ascontiguousarray(part) for part in np.split(rows, ROWS // batch)]
    theirs = Theirs(path, threads)
    wanted = [theirs.session.run(None, {"X": x}) for x in inputs]
    name = f"{os.path.basename(path)}.{batch}.{threads}"
    ours = Ours(os.path.join(folder, name), options.ullage, path, batch, threads)
    best = {}
    for side in (ours, theirs):
        side.prepare(inputs, wanted[0])
        best[side] = [float("inf")] * len(inputs)
    worst = max(difference(np.concatenate(got), np.concatenate(want)) for got, want in
                zip(zip(*ours.results()), zip(*wanted)))
    for _ in range(options.rounds):
        for side, seconds in best.items():
            for _ in range(max(1, 128 // len(inputs))):
                run_all(side, seconds)
            time.sleep(0.05)  # until the threads of either sleep
    our_us, their_us = (float(np.mean(seconds)) * 1e6 for seconds in best.values())
    return {"batch": batch, "threads": threads, "ours_us": our_us, "their_us": their_us,
            "ratio": our_us / their_us, "bytes": ours.bytes, "difference": worst}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build/ci/cli/ullage"))
    parser.add_argument("--models", default=os.path.join(ROOT, "build/bench-trees"))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batches", default="1,256")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    known = [make.__name__ for make in MODELS]
    names = options.only.split(",") if options.only else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    table, missed = [], False
    folder = tempfile.TemporaryDirectory()
    print(f"onnxruntime {onnxruntime.__version__}")
    print("model             file KiB  ort KiB  batch threads   ours us  theirs us  ratio  bytes")
    for make in MODELS:
        if make.__name__ not in names:
            continue
        path = find_model(options.models, make)
        file_bytes, their = os.path.getsize(path), their_bytes(path, 256)
        for batch in map(int, options.batches.split(",")):
            for threads in map(int, options.threads.split(",")):
                row = measure(options, folder.name, path, batch, threads)
                row.update(model=make.__name__, file_bytes=file_bytes, their_bytes=their)
                table.append(row)
                mark = (" !" if row["ratio"] > 1 else "") + (
                    f" differs by {row['difference']:.2g}" if row["difference"] > LIMIT else "")
                missed = missed or mark != ""
                print(f"{make.__name__:17} {file_bytes / 1024:8.0f} {their / 1024:8.0f} {batch:6}"
                      f" {threads:7} {row['ours_us']:9.1f} {row['their_us']:10.1f}"
                      f" {row['ratio']:6.2f}  {row['bytes']}{mark}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return 6 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
