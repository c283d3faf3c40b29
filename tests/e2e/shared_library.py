#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model as a shared library: loaded by another language, linked by C++.

    shared_library.py ULLAGE [--target c|cpu|cuda]

libdigits.so of compile --shared-library is one file: it is loaded where nothing else lies, shows
the functions of model.h and nothing more, says what its inputs and outputs are, and runs in memory
that Python gives it. Its results are ONNX's own; what is wrong is said by name. make lib in an
emitted folder makes the same library, and one to be linked statically, which a program in C++ uses
without a warning. A library that trains goes on from what it saved, bit for bit, its state beside the arena too (--offload). Weights are not
resident twice: beside the arena at most a few windows of them ever are. Target cuda does all that on a device, or where
NVCC is tests/cuda_emulation/nvcc; elsewhere the library says that there is no device.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"shared_library.py: skipped: {error}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "models", "digits")
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
OK = 0
OFFLOAD = ["--offload", "host", "--budget", "400KiB", "--budget-of", "arena"]
OFFLOAD = {"c": OFFLOAD, "cpu": [], "cuda": OFFLOAD}
# On the device arrays are memory of the host, of which it has copies.
IO = {"c": "caller", "cpu": "caller", "cuda": "arena"}
NEEDS = {"libc", "libm", "libdl", "librt", "libpthread", "libstdc", "libgcc_s", "ld", "libgomp", "libdnnl", "libul_emulate"}
NVCC = os.environ.get("NVCC") or shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
RESULTS = {  # of a name that begins so, else int
    "const char *": ctypes.c_char_p, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32, "size_t": ctypes.c_size_t, "double": ctypes.c_double,
    "const int64_t *": ctypes.POINTER(ctypes.c_int64), "void": None}  # fmt: skip


class Trainer(ctypes.Structure):
    """struct ul_trainer of ul_model.h."""

    _fields_ = [("step", ctypes.c_uint64), ("micro_batch", ctypes.c_uint32),
                ("seed", ctypes.c_uint64), ("learning_rate", ctypes.c_double)]  # fmt: skip


def run(command, folder=None):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
    return done.stdout + done.stderr


def expect(what, good):
    if not good:
        raise RuntimeError(what)


def declared(folder):
    """The functions of model.h, with what each returns."""
    with open(os.path.join(folder, "model.h"), encoding="ascii") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    return {name: result.strip() for result, name in
            re.findall(r"^((?:const )?(?:struct )?\w+ \*?)(model_\w+)\(", text, re.M)}  # fmt: skip


class Library:
    """What a caller in another language gets from it."""

    def __init__(self, path, results):
        self.handle = ctypes.c_void_p()
        self.functions = ctypes.CDLL(path)
        for name, result in results.items():
            getattr(self.functions, name).restype = RESULTS.get(result, ctypes.c_int)
        self.failure = ctypes.create_string_buffer(self.model_failure_bytes())
        self.tensors = {kind: [self.tensor(kind, i) for i in range(getattr(self, f"model_{kind}_count")())]
                        for kind in ("input", "output")}  # fmt: skip

    def __getattr__(self, name):
        return getattr(self.functions, name)

    def tensor(self, kind, number):
        ask = {fact: getattr(self, f"model_{kind}_{fact}")(number) for fact in ("name", "type", "rank", "dims", "bytes")}
        shape = [ask["dims"][d] for d in range(ask["rank"])]
        dtype = helper.tensor_dtype_to_np_dtype(ask["type"])
        expect(f"bytes of {ask}", numpy.dtype(dtype).itemsize * numpy.prod(shape, dtype=int) == ask["bytes"])
        return ask["name"].decode(), dtype, shape

    def explain(self):
        text = ctypes.create_string_buffer(300)
        self.model_failure_text(self.failure, text, len(text))
        return text.value.decode()

    def memory(self, size, align):
        block = numpy.zeros(size + align, numpy.uint8)
        skip = -block.ctypes.data % align
        return block[skip : skip + size]

    def begin(self, beside=True):
        """Whether the arena was made ready."""
        on_device = self.model_target() == b"cuda"
        self.arena = self.memory(0 if on_device else self.model_arena_bytes(), self.model_arena_align())
        self.offload = self.memory(self.model_offload_bytes() if beside else 0, 64)
        place = None if on_device else ctypes.c_void_p(self.arena.ctypes.data)
        return OK == self.model_begin(
            ctypes.byref(self.handle), place, ctypes.c_size_t(len(self.arena)),
            ctypes.c_void_p(self.offload.ctypes.data), ctypes.c_size_t(len(self.offload)), None, self.failure)  # fmt: skip

    def pointers(self, arrays):
        return (ctypes.c_void_p * max(1, len(arrays)))(*[None if a is None else a.ctypes.data for a in arrays])

    def new_outputs(self):
        return [numpy.zeros(shape, dtype) for _, dtype, shape in self.tensors["output"]]

    def call(self, function, inputs, outputs, *between):
        return getattr(self, f"model_{function}")(
            self.handle, *between, self.pointers(inputs), self.pointers(outputs), self.failure)  # fmt: skip


def visible(path):
    return {line.split()[-1] for line in run(["nm", "-D", "--defined-only", path]).splitlines()}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check_needs(path):
    """Libraries that are named in it have all that it calls; CUDA is called only by name."""
    needs = re.findall(r"\(NEEDED\).*\[(\w+)", run(["readelf", "-d", path]))
    expect(f"needs {needs}", set(needs) <= NEEDS)
    expect("not there", "undefined symbol" not in run(["ldd", "-r", path]))


def test_data():
    tensors = []
    for name in ("input_0.pb", "output_0.pb"):
        with open(os.path.join(DIGITS, "test_data_set_0", name), "rb") as file:
            tensors.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return tensors


def check_one_file(ullage, work, target):
    """Python's part; the folder of its source, or None: there is no device."""
    folder, alone = os.path.join(work, "source"), os.path.join(work, "alone")
    os.mkdir(alone)
    x, y = test_data()
    path = os.path.join(alone, "libdigits.so")
    run([ullage, "compile", os.path.join(DIGITS, "digits.onnx"), "--target", target, "--dim", f"N={len(x)}", "--io",
         IO[target], "--shared-library", "-o", path, "--emit", folder])  # fmt: skip
    results = declared(folder)
    expect(f"visible {visible(path) ^ (set(results) | {'model_model'})}", visible(path) == set(results) | {"model_model"})
    expect("files beside the library", os.listdir(alone) == ["libdigits.so"])
    expect("weights are not in it", read(os.path.join(folder, "weights.bin")) in read(path))
    check_needs(path)
    library = Library(path, results)
    expect(library.tensors, library.tensors == {"input": [("x", numpy.float32, list(x.shape))],
                                                "output": [("y", numpy.float32, list(y.shape))]})  # fmt: skip
    expect("its hash", len(library.model_model_sha256()) == 64 and library.model_input_name(7) is None)
    expect(library.explain(), library.model_target() == target.encode())
    if target == "cuda" and not library.begin():
        expect(library.explain(), "device" in library.explain())
        return None
    if target == "cuda":
        library.model_end(library.handle)
        library.handle = ctypes.c_void_p()
    if target != "cuda":
        expect("no arena was made ready", OK != library.model_begin(
            ctypes.byref(library.handle), None, ctypes.c_size_t(0), None, ctypes.c_size_t(0), None, library.failure))
        expect(library.explain(), f"needed {library.model_arena_bytes()}, available 0" in library.explain())
    expect("ran in nothing", library.call("run", [x], library.new_outputs()) != OK)
    expect(library.explain(), "was not made ready" in library.explain())
    expect(library.explain(), library.begin())
    for _ in range(2):
        got = library.new_outputs()
        expect(library.explain(), library.call("run", [x], got) == OK)
        expect(f"{got[0]} for {y}", numpy.allclose(got[0], y, 1e-3, 1e-5))
    if target != "cuda":
        expect("no output ran", library.call("run", [x], [None]) != OK)
        expect(library.explain(), library.explain().startswith("an output buffer is missing: y (needed"))
    library.model_end(library.handle)
    return folder


def put_caller(folder, target):
    """shared_library.cc; on a device the arena is the library's own, and its handle a context."""
    with open(os.path.join(HERE, "shared_library.cc"), encoding="ascii") as file:
        text = file.read()
    if target == "cuda":
        text = text.replace("run(handle,", "run(static_cast<ul_context *>(handle),")
        text = text.replace("&handle, arena, model_arena_bytes()", "&handle, nullptr, 0")
    with open(os.path.join(folder, "caller.cc"), "w", encoding="ascii") as file:
        file.write(text)


def check_linked(folder, target):
    """A program in C++, with either library."""
    x, y = test_data()
    x.tofile(os.path.join(folder, "x.raw"))
    run(["make", "-s", "lib", "NVCCFLAGS=-O1" if target == "cuda" else "CFLAGS=-O1"], folder)
    put_caller(folder, target)
    libraries = ["-ldnnl", "-fopenmp"] if target == "cpu" else []
    for name, link in {"shared": ["-L.", "-lmodel", "-Wl,-rpath,."], "static": ["libmodel.a", *libraries]}.items():
        of_device = [NVCC] if target == "cuda" and name == "static" else []
        words = [f"-Xcompiler={','.join(WARNINGS)}"] if of_device else ["-std=c++17", *WARNINGS]
        run([*(of_device or ["g++"]), *words, "-o", name, "caller.cc", *link], folder)
        run([f"./{name}", "x.raw", "y.raw"], folder)
        got = numpy.fromfile(os.path.join(folder, "y.raw"), numpy.float32).reshape(y.shape)
        expect(f"{name}: {got} for {y}", numpy.allclose(got, y, 1e-3, 1e-5))


def check_training(ullage, work, options):
    folder, path = os.path.join(work, "training"), os.path.join(work, "libtraining.so")
    run([ullage, "compile", os.path.join(DIGITS, "untrained.onnx"), "--train", "--train-mode", "--output",
         "/fc/Gemm_output_0", "--dim", "N=4", "--optimizer", "adamw", *options, "--cflags", "-O1",
         "--shared-library", "-o", path, "--emit", folder])  # fmt: skip
    library = Library(path, declared(folder))
    x, y = (numpy.load(os.path.join(DIGITS, f"train_{name}.npy"))[:4] for name in "xy")
    on_host = library.model_offload_bytes() > 0
    if "--offload" in options:
        expect("it is asked for or taken", on_host == (library.model_page_locked_bytes() == 0))
        expect("state is offloaded", any(library.model_parameter_space(i) == 5 for i in range(library.model_parameter_count())))
    if on_host:  # a device takes that itself
        expect("values were offloaded to nothing", not library.begin(beside=False))
        expect(library.explain(), f"needed {library.model_offload_bytes()}, available 0" in library.explain())
    nothing = ctypes.c_void_p()
    expect("read from nothing", OK != library.model_parameter_get(nothing, 0, nothing, library.failure))
    expect(library.explain(), "was not made ready" in library.explain())
    expect("trainer", library.model_trainer_bytes() == ctypes.sizeof(Trainer))
    expect(library.explain(), library.begin())
    trainer, given = Trainer(), [None] * library.model_input_count()
    library.model_train_init(ctypes.byref(trainer))
    given[library.model_data_input()] = x
    given[library.model_labels_input()] = y.reshape(library.tensors["input"][library.model_labels_input()][2])

    def steps(count):
        losses = []
        for _ in range(count):
            got = library.new_outputs()
            expect(library.explain(), library.call("train_step", given, got, ctypes.byref(trainer)) == OK)
            losses.append(float(got[library.model_loss_output()].reshape(())))
        return losses

    first = steps(2)
    saved = numpy.zeros(library.model_checkpoint_bytes(), numpy.uint8)
    place = ctypes.c_void_p(saved.ctypes.data)
    size = ctypes.c_size_t(len(saved))
    expect("saved to less", OK != library.model_save_to(library.handle, ctypes.byref(trainer), place,
                                                       ctypes.c_size_t(9), library.failure))  # fmt: skip
    expect(library.explain(), OK == library.model_save_to(library.handle, ctypes.byref(trainer), place, size, library.failure))
    second = steps(3)
    expect(library.explain(), OK == library.model_load_from(library.handle, ctypes.byref(trainer), place, size, library.failure))
    expect("step", trainer.step == 2)
    expect(f"losses {second} again", steps(3) == second and second[-1] < first[0])
    bias = next(i for i in range(library.model_parameter_count()) if library.model_parameter_name(i) == b"fc.bias")
    ones = numpy.ones(library.model_parameter_bytes(bias) // 4, numpy.float32)
    back = numpy.zeros_like(ones)
    for name, array in {"set": ones, "get": back}.items():
        expect(library.explain(), OK == getattr(library, f"model_parameter_{name}")(
            library.handle, bias, ctypes.c_void_p(array.ctypes.data), library.failure))  # fmt: skip
    expect(f"bias {back}", (back == ones).all())
    library.model_end(library.handle)


def resident(kind):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{kind}:"))


def check_resident(ullage, work):
    """48 MiB of weights, read by pieces: the library's own pages go as they are read."""
    weights = numpy.random.default_rng(3).standard_normal((12, 1024, 1024), numpy.float32)
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(12)]
    graph = helper.make_graph(
        nodes, "wide", [helper.make_tensor_value_info("v0", 1, [1, 1024])],
        [helper.make_tensor_value_info("v12", 1, [1, 1024])],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])  # fmt: skip
    model, path, folder = (os.path.join(work, name) for name in ("wide.onnx", "libwide.so", "wide"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    run([ullage, "compile", model, "--target", "c", "--shared-library", "-o", path, "--cflags", "-O1", "--emit", folder])
    library = Library(path, declared(folder))
    before = resident("RssFile")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    expect(library.explain(), library.begin())
    peak, whole = resident("VmHWM"), resident("VmRSS")
    library.model_end(library.handle)
    expect(f"pages of the library: {before} and then {resident('RssFile')}", resident("RssFile") - before < 4 << 20)
    expect(f"peak {peak} over {whole}", peak - whole < 4 << 20)


def check(ullage, work, target):
    folder = check_one_file(ullage, work, target)
    if folder is None:
        return
    check_linked(folder, target)
    check_training(ullage, work, ["--target", target, "--io", IO[target], *OFFLOAD[target]])
    if target == "c":
        check_resident(ullage, work)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    args = parser.parse_args()
    if args.target == "cuda" and not NVCC:
        print("shared_library.py: skipped: there is no nvcc")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        try:
            check(os.path.abspath(args.ullage), work, args.target)
        except RuntimeError as error:
            print(f"FAIL: {error}")
            sys.exit(1)


if __name__ == "__main__":
    main()
