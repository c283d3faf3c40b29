#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shared libraries of target cuda on the emulation, called from Python: ullage.compile, ullage.load,
and by ctypes what these leave out.

usage: library.py [NAME...] with $ULLAGE and $NVCC (tests/python/cases.py)

Results are ONNX's own, of several libraries in one process, in any number of threads. What is wrong
with a device is said by name and number. A library that is unloaded has given back all that it took:
memory of the device and of the host, streams, events and graphs."""

import collections
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python"))
import cases  # noqa: E402

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"library.py: skipped: {error}")
    sys.exit(77)

import ullage  # noqa: E402
from ullage import _device  # noqa: E402

NVCC = os.environ.setdefault("NVCC", os.path.join(HERE, "nvcc"))
FAST = {"target": "cuda", "cflags": "-O1", "with_cudnn": "on"}
WORK = tempfile.TemporaryDirectory()


def digits():
    """Images, and the scores that ONNX has for them."""
    tensors = []
    for name in ("input_0.pb", "output_0.pb"):
        with open(os.path.join(cases.DIGITS, "test_data_set_0", name), "rb") as file:
            tensors.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return tensors


def made(nodes, inputs, outputs):
    """A model; inputs and outputs are (name, type, shape)."""
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*x) for x in inputs],
                              [helper.make_tensor_value_info(*x) for x in outputs])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def gather():
    """y = rows of x by index."""
    return made([helper.make_node("Gather", ["x", "i"], ["y"])],
                [("x", TensorProto.FLOAT, [5, 3]), ("i", TensorProto.INT64, [2])],
                [("y", TensorProto.FLOAT, [2, 3])])  # fmt: skip


def product():
    """y = a b, which is cuBLASLt's."""
    return made([helper.make_node("MatMul", ["a", "b"], ["y"])],
                [(name, TensorProto.FLOAT, [256, 256]) for name in "ab"], [("y", TensorProto.FLOAT, [256, 256])])  # fmt: skip


def total():
    """y_out = y + x, which goes on from call to call."""
    return made([helper.make_node("Add", ["y", "x"], ["y_out"])],
                [("x", TensorProto.FLOAT, [4]), ("y", TensorProto.FLOAT, [4])],
                [("y_out", TensorProto.FLOAT, [4])])  # fmt: skip


_paths = {}


def library(name):
    """The path of the library of digits, or of one of the models above, compiled once."""
    if name not in _paths:
        path = os.path.join(WORK.name, f"{name}.so")
        if name == "digits":
            ullage.compile(os.path.join(cases.DIGITS, "digits.onnx"), dims={"N": 16}, path=path, **FAST)
        else:
            more = {"donate": {"y_out": "y"}} if name == "total" else {}
            ullage.compile(globals()[name](), path=path, **FAST, **more)
        _paths[name] = path
    return _paths[name]


def close(got, want):
    return numpy.allclose(got, want, 1e-3, 1e-5)


def child(code, *arguments, **environment):
    """Exit status and what another process says that runs these lines."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300,
                          check=False, env={**os.environ, "PYTHONPATH": path, **environment})  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip()


def test_results_and_what_it_says_of_itself():
    x, y = digits()
    model = ullage.load(library("digits"))
    assert model.target == "cuda" and model.thread_count == 1
    assert [t.name for t in (*model.inputs, *model.outputs)] == ["x", "y"]
    first, second = model(x), model(x=x, out=numpy.empty_like(y))
    assert close(first, y) and (first == second).all() and (model(x * 2) != first).any() and (first == second).all()


def test_the_plan_and_the_files():
    """Sizes that can be asked are those of the plan and of the weights."""
    model = ullage.compile(os.path.join(cases.DIGITS, "digits.onnx"), dims={"N": 2}, **FAST)
    assert model.arena_bytes == model.plan.reserved_bytes, model
    folder = os.path.join(WORK.name, "source")
    subprocess.run([ullage.program(), "compile", os.path.join(cases.DIGITS, "digits.onnx"), "--target", "cuda", "--dim",
                    "N=16", "--library", "--emit", folder], check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    asked = ctypes.CDLL(library("digits"))
    for name in ("arena_bytes", "arena_align", "offload_bytes", "stack_bytes", "weights_bytes"):
        getattr(asked, f"model_{name}").restype = ctypes.c_uint64
    assert asked.model_weights_bytes() == os.path.getsize(os.path.join(folder, "weights.bin"))
    assert asked.model_arena_align() == 64 and asked.model_stack_bytes() == 0 and asked.model_offload_bytes() == 0


def test_data_out_of_range():
    x, model = numpy.arange(15, dtype=numpy.float32).reshape(5, 3), ullage.load(library("gather"))
    assert (model(x, numpy.array([4, -5])) == x[[4, 0]]).all()
    error = cases.raises(ullage.errors.DataFault, lambda: model(x, numpy.array([7, 1])), "index 7, valid are -5 to 4")
    assert (error.outputs == x[[4, 1]]).all()
    assert (model(x, numpy.array([2, 1])) == x[[2, 1]]).all()


def test_state_stays_on_the_device():
    model, ones = ullage.load(library("total")), numpy.ones(4, numpy.float32)
    assert model.state_names == ("y",) and [model(ones)[0] for _ in range(3)] == [1, 2, 3]
    model.set_state(y=ones * 9)
    assert model(ones)[0] == 10


LOAD = """
import sys, numpy, ullage
try:
    model = ullage.load(sys.argv[1])
    y = model(*[numpy.ones(t.shape, t.dtype) for t in model.inputs])
    print(f"{model.arena_bytes} {y.sum():.4g}")
except ullage.RunError as error:
    print(error)
"""
LACKS = [
    ({"UL_EMULATE_NO_DEVICE": "1"}, "there is no device to run on: no CUDA-capable device is detected: target cuda runs on an NVIDIA GPU"),
    ({"UL_EMULATE_NO_DRIVER": "1"}, "there is no device to run on"),
    ({"UL_EMULATE_OLD_DRIVER": "1"}, "the device's driver is older than the program needs (needed 13000, available 12020)"),
    ({"UL_EMULATE_OLD_DEVICE": "1"}, "the device is older than the program needs (needed 80, available 75)"),
    ({"UL_EMULATE_FREE_BYTES": "1000"}, "the device has too little free memory (needed SIZE, available 0)"),
    ({"UL_EMULATE_NO_CUBLAS": "1"}, "a library that the program calls is not installed: cuBLASLt of the"),
    ({"UL_EMULATE_NO_CUDNN": "1", "MODEL": "digits"}, "a library that the program calls is not installed: cuDNN was not found"),
    ({"UL_EMULATE_FAIL_KERNEL": "k", "MODEL": "gather"}, "the device failed: unspecified launch failure"),
]  # fmt: skip


def test_what_a_device_lacks():
    """Each is an answer of one line; the process goes on and ends as it should."""
    size = str(ullage.load(library("product")).arena_bytes)
    for environment, text in LACKS:
        code, said = child(LOAD, library(environment.get("MODEL", "product")), **environment)
        assert code == 0 and said.startswith(text.replace("SIZE", size)) and "\n" not in said, (environment, said)


def emulation():
    """The device that all libraries of this process have."""
    ullage.load(library("digits"))
    with open("/proc/self/maps", encoding="utf-8") as file:
        path = next(line.split()[-1] for line in file if line.rstrip().endswith("libul_emulate.so"))
    return ctypes.CDLL(path)


def free_bytes(device):
    free, all_bytes = ctypes.c_size_t(), ctypes.c_size_t()
    assert device.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(all_bytes)) == 0
    return free.value


def begun(functions, arena, size):
    """What model_begin answers for an arena of the caller's, and the handle."""
    functions.model_failure_bytes.restype = ctypes.c_size_t
    failure, handle = ctypes.create_string_buffer(functions.model_failure_bytes()), ctypes.c_void_p()
    code = functions.model_begin(ctypes.byref(handle), arena, ctypes.c_size_t(size), None, ctypes.c_size_t(0), None, failure)
    text = ctypes.create_string_buffer(300)
    functions.model_failure_text(failure, text, len(text))
    return handle if code == 0 else None, text.value.decode()


def test_an_arena_of_the_caller():
    device, functions = emulation(), ctypes.CDLL(library("digits"))
    size = ullage.load(library("digits")).arena_bytes
    place, host = ctypes.c_void_p(), ctypes.create_string_buffer(size + 512)
    assert device.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(size + 256)) == 0
    aligned = ctypes.addressof(host) + 255 & ~255
    for arena, of, text in [(place, size - 1, f"the arena is too small (needed {size}, available {size - 1})"),
                            (ctypes.c_void_p(place.value + 8), size, "the arena is not aligned as the model needs it (needed 64, available 8)"),
                            (ctypes.c_void_p(aligned), size, "the arena is not memory of the device")]:  # fmt: skip
        handle, said = begun(functions, arena, of)
        assert handle is None and said.startswith(text), said
    handle, said = begun(functions, place, size)
    x, y = digits()
    got = numpy.empty_like(y)
    pointers = [(ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, got)]
    assert handle is not None and functions.model_run(handle, *pointers, None) == 0, said
    functions.model_end(handle)
    assert close(got, y) and device.cudaFree(place) == 0


def test_libraries_side_by_side():
    """Names of one are not those of another, loaded for all to see as well."""
    x, y = digits()
    rows, index = numpy.arange(15, dtype=numpy.float32).reshape(5, 3), numpy.array([3, 1])
    for name in ("gather", "digits", "total"):
        ctypes.CDLL(library(name), os.RTLD_NOW | os.RTLD_GLOBAL)
    models = {name: ullage.load(library(name)) for name in ("digits", "gather", "total")}
    again = ullage.load(library("digits"))
    for _ in range(2):
        assert close(models["digits"](x), y) and (models["gather"](rows, index) == rows[index]).all()
        assert (again(x) == models["digits"](x)).all()
    del models["digits"]
    gc.collect()
    assert close(again(x), y)


UNLOADED = """
import ctypes, gc, sys, numpy, ullage
def maps():
    with open("/proc/self/maps") as file:
        return file.read()
def load(path, arenas):
    return ullage.load(path, arenas=arenas)
def call(model):
    model(*[numpy.zeros(t.shape, t.dtype) for t in model.inputs])
first = load(sys.argv[1], 1)
device = ctypes.CDLL(next(w for w in maps().split() if w.endswith("libul_emulate.so")))
def free():
    sizes = (ctypes.c_size_t * 2)()
    assert device.cudaMemGetInfo(ctypes.byref(sizes, 0), ctypes.byref(sizes, 8)) == 0
    return sizes[0]
del first
gc.collect()
before = free()
for path in sys.argv[1:]:
    model = load(path, 1)
    call(model)
    assert free() < before and path in maps()
    del model
    gc.collect()
    assert free() == before, (free(), before)
    assert path not in maps()
"""


def check_unloading(*names):
    log = os.path.join(WORK.name, "log")
    if os.path.exists(log):
        os.remove(log)
    code, said = child(UNLOADED, *map(library, names), UL_EMULATE_LOG=log)
    assert code == 0, said
    with open(log, encoding="utf-8") as file:
        counts = collections.Counter(line.strip() for line in file)
    pairs = {"malloc ": "free ", "host_alloc ": "host_free ", "new stream": "end stream", "new event": "end event",
             "instantiate": "end graph"}  # fmt: skip
    assert counts["new stream"] > 0
    for begin, end in pairs.items():
        taken = {line.replace(begin, end, 1): count for line, count in counts.items() if line.startswith(begin)}
        assert taken == {line: counts[line] for line in taken}, (begin, counts)


def test_unloading_gives_all_back():
    check_unloading("digits")


def test_unloading_one_after_the_other():
    check_unloading("gather", "product", "total", "gather")


FORKED = """
import os, signal, sys, numpy, ullage
model = ullage.load(sys.argv[1])
x = numpy.ones(model.inputs[0].shape, model.inputs[0].dtype)
y = model(x)
child = os.fork()
if child == 0:
    signal.alarm(60)
    for again in (lambda: model(x), lambda: ullage.load(sys.argv[1])):
        try:
            again()
        except ullage.RunError as error:
            print(error, flush=True)
    del model, again
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
assert (model(x) == y).all()
"""


def test_a_fork_is_explained():
    """The child has no device, and takes nothing from its parent."""
    code, said = child(FORKED, library("digits"))
    lines = said.split("\n")
    assert code == 0 and len(lines) == 2, said
    assert all(line.startswith("the device failed: ") and "forked" in line and "spawn" in line for line in lines), said


DEVICES = """
import ctypes, sys, threading, numpy, ullage
def now():
    number = ctypes.c_int()
    assert device.cudaGetDevice(ctypes.byref(number)) == 0
    return number.value
first = ullage.load(sys.argv[1])
with open("/proc/self/maps") as file:
    device = ctypes.CDLL(next(w for w in file.read().split() if w.endswith("libul_emulate.so")))
x = numpy.ones(first.inputs[0].shape, numpy.float32)
assert device.cudaSetDevice(1) == 0
second = ullage.load(sys.argv[1], arenas=2)
assert now() == 1
def elsewhere():
    assert now() == 0
    results.append((first(x) == second(x)).all())
    assert now() == 0
results = [(first(x) == second(x)).all()]
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
assert results == [True, True] and now() == 1
del first, second
assert now() == 1
"""


def test_the_device_of_a_thread():
    """A model stays on the device that it was loaded on, and leaves the thread on its own."""
    code, said = child(DEVICES, library("digits"), UL_EMULATE_DEVICES="2")
    assert code == 0, said


def in_threads(count, call):
    """call(number) in so many threads at once; what they returned."""
    results = [None] * count

    def one(number):
        results[number] = call(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads():
    """Calls at once have the results of calls in turn, in an arena each and in one."""
    x, y = digits()
    given = [x * (1 + i / 8) for i in range(6)]
    plain = ullage.load(library("digits"))
    want = [plain(a) for a in given]
    for arenas in (1, 4):
        model = ullage.load(library("digits"), arenas=arenas)
        for got in in_threads(6, lambda i, model=model: [model(given[i]) for _ in range(3)]):
            assert any(all((a == w).all() for a in got) for w in want)
    loaded = in_threads(4, lambda i: ullage.load(library("digits"))(x))
    assert all(close(got, y) for got in loaded)


def test_threads_by_the_sanitizer():
    """Handles that run at once in C++ touch nothing of each other's."""
    environment = {**os.environ, "UL_EMULATE_RACE": "1"}
    for name in ("digits", "product", "gather"):
        folder, model = os.path.join(WORK.name, f"race_{name}"), os.path.join(WORK.name, f"{name}.onnx")
        if name == "digits":
            model = os.path.join(cases.DIGITS, "digits.onnx")
        else:
            onnx.save(globals()[name](), model)
        commands = [
            [ullage.program(), "compile", model, "--target", "cuda", "--with-cudnn", "on", "--emit", folder,
             *(["--dim", "N=4"] if name == "digits" else [])],
            ["make", "-s", "-j2", "-C", folder, "lib", f"NVCC={NVCC}", "NVCCFLAGS=-O1"],
            ["g++", "-std=c++17", "-fsanitize=thread", "-g", "-Wall", "-Wextra", "-Werror", f"-I{folder}", "-o", f"{folder}/threads",
             os.path.join(HERE, "..", "e2e", "shared_library_threads.cc"), f"-L{folder}", "-lmodel", f"-Wl,-rpath,{folder}"],
            [f"{folder}/threads"]]  # fmt: skip
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
            assert done.returncode == 0, (command, (done.stdout + done.stderr)[:2000])


def trained(target, **options):
    """A trainer, and its losses of three steps."""
    images, labels = (numpy.load(os.path.join(cases.DIGITS, f"train_{name}.npy")) for name in "xy")
    trainer = ullage.Trainer(os.path.join(cases.DIGITS, "untrained.onnx"), target=target, cflags="-O1", dims={"N": 4}, train_mode=True,
                             output="/fc/Gemm_output_0", optimizer="adamw", **options)  # fmt: skip
    steps = [(images[at : at + 4], labels[at : at + 4]) for at in range(0, 12, 4)]
    return trainer, steps, [trainer.step(*step) for step in steps]


def test_a_trainer():
    """Losses of the device are the host's; a training goes on from what was saved, bit for bit."""
    trainer, steps, losses = trained("cuda", offload="host", budget="400KiB", budget_of="arena")
    assert close(losses, trained("c")[2]), losses
    path = os.path.join(WORK.name, "checkpoint.npz")
    trainer.save(path)
    after, known = [trainer.step(*step) for step in steps], trainer.parameters()
    trainer.load(path)
    assert [trainer.step(*step) for step in steps] == after
    assert all((known[name] == array).all() for name, array in trainer.parameters().items())
    trainer.set_parameters({"fc.bias": numpy.full_like(known["fc.bias"], 3)})
    assert (trainer.parameters()["fc.bias"] == 3).all() and trainer.eval(*steps[0]).samples == 4
    refused = [trainer.parameters, lambda: trainer.parameters(with_state=True), lambda: trainer.step(*steps[0])]
    process = os.fork()
    if process == 0:
        for case in refused:
            cases.raises(ullage.RunError, case)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7


# ---- arrays that are on the device ----


class There:
    """One of another package. What makes it is enqueued in a stream of its own, and done when
    somebody waits for it."""

    def __init__(self, array, code=2, strides=None):
        self.device, self.array, self.code, self.strides = emulation(), array, code, strides
        self.data, self.stream, staged = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        size = ctypes.c_size_t(array.nbytes)
        self.call("cudaMalloc", ctypes.byref(self.data), size)
        self.call("cudaHostAlloc", ctypes.byref(staged), size, 0)
        self.call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), 1)
        ctypes.memmove(staged, array.ctypes.data, array.nbytes)
        self.call("cudaMemcpyAsync", self.data, staged, size, 4, self.stream)

    def call(self, name, *arguments):
        assert getattr(self.device, name)(*arguments) == 0, name

    def get(self):
        """What is there now."""
        copy = numpy.empty_like(self.array)
        self.call("cudaMemcpy", ctypes.c_void_p(copy.ctypes.data), self.data, ctypes.c_size_t(copy.nbytes), 4)
        return copy

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        event = ctypes.c_void_p()
        self.call("cudaEventCreateWithFlags", ctypes.byref(event), 2)
        self.call("cudaEventRecord", event, self.stream)
        self.call("cudaStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * self.array.ndim)(*self.strides)
        self.tensor = _device._Tensor(self.data, 2, 0, self.array.ndim, self.code, 8 * self.array.itemsize, 1, shape, strides, 0)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(self.tensor), b"dltensor", None)


def test_capsules_are_read_as_they_are():
    for array in (numpy.zeros((3, 1, 2), numpy.float32), numpy.zeros((4, 6), numpy.int16)[:, ::2], numpy.zeros(0, bool),
                  numpy.zeros((), numpy.uint64), numpy.zeros((1, 5), numpy.float16).T):  # fmt: skip
        capsule = array.__dlpack__()
        tensor = _device.read(capsule)
        assert (tensor.data or 0) + tensor.byte_offset == array.ctypes.data and tensor.bits == 8 * array.itemsize
        assert tuple(tensor.shape[: tensor.ndim]) == array.shape and tensor.lanes == 1 and tensor.device_type == 1
        assert _device.is_contiguous(tensor) == array.flags.c_contiguous, array.flags


def check_arrays_there(io):
    """Inputs are waited for, whatever stream makes them; results are there when the call returns."""
    path = os.path.join(WORK.name, f"{io}.so")
    model = ullage.compile(gather(), io=io, path=path, **FAST)
    rows, index = numpy.arange(15, dtype=numpy.float32).reshape(5, 3), numpy.array([3, 1])
    for _ in range(3):
        x, i, y = There(rows), There(index, 0), There(numpy.zeros((2, 3), numpy.float32))
        assert model(x, i, out=y) is y and (y.get() == rows[index]).all()
        assert model(x=x, i=i, out={"y": y}) is y
    return model, x, i, y, rows, index


def test_arrays_on_the_device():
    model, x, i, y, rows, index = check_arrays_there("arena")
    assert (model(x, index) == rows[index]).all() and (model(rows, i) == rows[index]).all()
    assert model(rows, index, out=y) is y and (y.get() == rows[index]).all()
    bad = numpy.array([9, 1])
    assert cases.raises(ullage.errors.DataFault, lambda: model(rows, There(bad, 0), out=y)).outputs is y
    cases.raises(TypeError, lambda: model(There(rows.view(numpy.int32), 0), i), "expected float32, not int32")
    cases.raises(ValueError, lambda: model(There(rows.T.copy()), i), "expected shape (5, 3), not (3, 5)")
    cases.raises(TypeError, lambda: model(There(rows, 2, (1, 5)), i), "C-contiguous")
    cases.raises(ValueError, lambda: model(x, i, out=x), "expected shape (2, 3)")
    host = ullage.compile(gather(), target="c", cflags="-O0")
    cases.raises(TypeError, lambda: host(x, index), "expected a C-contiguous numpy array", "not There")
    assert (model(x, i) == rows[index]).all()  # goes on


def test_arrays_on_the_device_in_place():
    """io='caller': none is copied, and those of the host are refused."""
    model, x, i, y, rows, index = check_arrays_there("caller")
    for given in ((rows, i), (x, index)):
        cases.raises(ullage.RunError, lambda given=given: model(*given, out=y), "input buffer is not memory of the device")
    cases.raises(ullage.RunError, lambda: model(x, i), "output buffer is not memory of the device", ": y")
    add = ullage.compile(made([helper.make_node("Relu", ["x"], ["y"])], [("x", TensorProto.FLOAT, [5, 3])],
                              [("y", TensorProto.FLOAT, [5, 3])]), io="caller", **FAST)  # fmt: skip
    cases.raises(ValueError, lambda: add(x, out=x), "shares bytes")


if __name__ == "__main__":
    cases.run(globals())
