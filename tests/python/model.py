#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage.compile and ullage.load: callables of numpy arrays, on target c.

usage: model.py [NAME...] with $ULLAGE, or installed (cases.py)."""

import _ctypes
import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

import cases

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"model.py: skipped: {error}")
    sys.exit(77)

import ullage

FAST = {"target": "c", "cflags": "-O0"}


def made(nodes, inputs, outputs, initializers=()):
    """A model; inputs and outputs are (name, type, shape)."""
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*x) for x in inputs],
        [helper.make_tensor_value_info(*x) for x in outputs], initializer=list(initializers),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_by_two():
    """s = a + b, d = a - b."""
    shape = [2, 3]
    return made(
        [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Sub", ["a", "b"], ["d"])],
        [("a", TensorProto.FLOAT, shape), ("b", TensorProto.FLOAT, shape)],
        [("s", TensorProto.FLOAT, shape), ("d", TensorProto.FLOAT, shape)],
    )


def chain():
    """y = relu(w x) w, with weights and a buffer between."""
    w = numpy.random.default_rng(1).standard_normal((16, 16)).astype(numpy.float32)
    return made(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
         helper.make_node("MatMul", ["r", "w"], ["y"])],
        [("x", TensorProto.FLOAT, [4, 16])], [("y", TensorProto.FLOAT, [4, 16])],
        [onnx.numpy_helper.from_array(w, "w")])  # fmt: skip


_models = {}


def compiled(make, **options):
    """Each is compiled once in a run of the script."""
    key = (make.__name__, *sorted(options.items()))
    if key not in _models:
        _models[key] = ullage.compile(make(), **FAST, **options)
    return _models[key]


def arrays(*shapes, seed=0):
    random = numpy.random.default_rng(seed)
    return [random.standard_normal(shape).astype(numpy.float32) for shape in shapes]


def test_what_it_says_of_itself():
    model = compiled(two_by_two)
    assert [(t.name, t.shape, t.dtype) for t in model.inputs] == [
        ("a", (2, 3), numpy.float32), ("b", (2, 3), numpy.float32)]  # fmt: skip
    assert [t.name for t in model.outputs] == ["s", "d"] and model.outputs[0].nbytes == 24
    assert model.plan.reserved_bytes == model.arena_bytes
    assert model.target == "c" and model.thread_count == 1 and len(model.plan_sha256) == 64
    assert "a: float32[2, 3]" in repr(model)
    cases.raises(TypeError, lambda: pickle.dumps(model), "path")


def test_inputs_by_position_and_by_name():
    model = compiled(two_by_two)
    a, b = arrays((2, 3), (2, 3))
    for s, d in (model(a, b), model(a, b=b), model(b=b, a=a)):
        assert (s == a + b).all() and (d == a - b).all()
    for call, word in (
        (lambda: model(a), "'b' is missing"),
        (lambda: model(a, b, a), "3 arrays"),
        (lambda: model(a, a=b), "given twice"),
        (lambda: model(a, c=b), "no input 'c'"),
    ):
        cases.raises(TypeError, call, word)


def test_every_call_has_outputs_of_its_own():
    model = compiled(two_by_two)
    a, b = arrays((2, 3), (2, 3))
    first = model(a, b)
    kept = [y.copy() for y in first]
    second = model(b, a)
    assert all((y == k).all() for y, k in zip(first, kept))
    everything = [*first, *second, a, b]
    for i, x in enumerate(everything):
        assert not any(numpy.may_share_memory(x, y) for y in everything[:i])
    del model
    gc.collect()
    assert (first[0] == kept[0]).all()


def test_inputs_stay_as_they_are():
    model = compiled(chain)
    (x,) = arrays((4, 16))
    before = x.copy()
    x.flags.writeable = False
    y = model(x)
    assert (x == before).all() and (model(x) == y).all()


def test_out():
    model = compiled(two_by_two)
    a, b = arrays((2, 3), (2, 3))
    s, d = numpy.empty((2, 3), numpy.float32), numpy.empty((2, 3), numpy.float32)
    result = model(a, b, out=[s, d])
    assert result[0] is s and result[1] is d and (s == a + b).all() and (d == a - b).all()
    assert model(b, a, out={"d": d})[1] is d and (d == b - a).all()
    assert model(a, b, out=[None, d])[1] is d
    (x,) = arrays((4, 16))
    y = numpy.empty((4, 16), numpy.float32)
    assert compiled(chain)(x, out=y) is y
    readonly = s.copy()
    readonly.flags.writeable = False
    for out, kind, word in (
        ([s], TypeError, "2 outputs"),
        (s, TypeError, "2 outputs"),
        ({"e": s}, TypeError, "no output 'e'"),
        ([readonly, d], TypeError, "cannot be written"),
        ([s.astype(numpy.float64), d], TypeError, "float64"),
        ([s[:1], d], ValueError, "shape"),
        ([a, d], ValueError, "shares bytes"),
        ([s, s], ValueError, "shares bytes"),
        ([numpy.empty((3, 2), numpy.float32).T, d], TypeError, "contiguous"),
    ):
        cases.raises(kind, lambda o=out: model(a, b, out=o), word)


def test_arrays_of_other_classes():
    """Whatever is laid out in memory like an array is taken; a mask is not lost in silence."""
    model = compiled(two_by_two)
    a, b = arrays((2, 3), (2, 3))
    own = type("Own", (numpy.ndarray,), {})
    assert (model(a.view(own), b.view(numpy.recarray))[0] == a + b).all()
    class Liar(numpy.ndarray):
        """Says that it has a shape and a type that it has not."""

        shape = property(lambda self: (2, 3))
        dtype = property(lambda self: numpy.dtype(numpy.float32))

    small, other = numpy.zeros(1, numpy.float32), numpy.zeros((2, 3), numpy.float64)
    cases.raises(ValueError, lambda: model(small.view(Liar), b), "not (1,)")
    cases.raises(TypeError, lambda: model(other.view(Liar), b), "float64")
    cases.raises(ValueError, lambda: model(a, b, out=[small.view(Liar), None]), "not (1,)")
    masked = numpy.ma.masked_array(a, a > 0)
    cases.raises(TypeError, lambda: model(masked, b), "x.filled(value)")
    cases.raises(TypeError, lambda: model(a, b, out=[masked.copy(), None]), "x.filled(value)")
    cases.raises(TypeError, lambda: model(a[0, 0], b), "numpy.asarray(x, 'float32')")
    graph = made([helper.make_node("Reshape", ["x", "s"], ["y"])],
                 [("x", TensorProto.FLOAT, [6]), ("s", TensorProto.INT64, [2])],
                 [("y", TensorProto.FLOAT, ["a", "b"])])  # fmt: skip
    shape = numpy.ma.masked_array([2, 3], [False, True])
    cases.raises(
        ullage.UsageError, lambda: ullage.compile(graph, consts={"s": shape}, **FAST), "x.filled"
    )


def test_inputs_of_any_name():
    names = ["self", "out", "x.1:0"]
    model = ullage.compile(
        made([helper.make_node("Sum", names, ["y"])],
             [(n, TensorProto.FLOAT, [2]) for n in names], [("y", TensorProto.FLOAT, [2])]),
        **FAST)  # fmt: skip
    x = numpy.ones(2, numpy.float32)
    assert model(x, x, **{"x.1:0": x}).tolist() == [3, 3]
    cases.raises(TypeError, lambda: model(**{"self": x, "x.1:0": x}), "'out' is missing")


def test_wrong_arrays():
    model = compiled(two_by_two)
    a, b = arrays((2, 3), (2, 3))
    odd = numpy.frombuffer(bytearray(25), numpy.uint8)[1:].view(numpy.float32).reshape(2, 3)
    for wrong, kind, word in (
        (a.astype(numpy.float64), TypeError, "expected float32, not float64; x.astype('float32')"),
        (a.astype(">f4"), TypeError, "the other byte order"),
        (a[:, ::-1], TypeError, "numpy.ascontiguousarray(x)"),
        (numpy.asfortranarray(a), TypeError, "contiguous"),
        (odd, TypeError, "not aligned"),
        (a.reshape(3, 2), ValueError, "expected shape (2, 3), not (3, 2)"),
        (a[0], ValueError, "shape"),
        (a.tolist(), TypeError, "not list"),
        (None, TypeError, "not NoneType"),
    ):
        cases.raises(kind, lambda w=wrong: model(w, b), word)
        cases.raises(kind, lambda w=wrong: model(a, w), "input 'b'")
    with tempfile.TemporaryFile() as file:
        file.write(a.tobytes())
        file.flush()
        mapped = numpy.memmap(file, numpy.float32, "r", shape=(2, 3))
        assert (model(mapped, b)[0] == a + b).all()


def test_results_are_those_of_numpy():
    model = compiled(chain)
    w = onnx.numpy_helper.to_array(chain().graph.initializer[0])
    for seed in range(5):
        (x,) = arrays((4, 16), seed=seed)
        numpy.testing.assert_allclose(model(x), numpy.maximum(x @ w, 0) @ w, rtol=1e-4, atol=1e-5)


def test_inputs_and_outputs_in_the_buffer():
    model = compiled(chain, io="arena")
    (x,) = arrays((4, 16))
    y = model(x)
    assert (y == compiled(chain)(x)).all()
    model(numpy.zeros_like(x))
    assert y.any() and model.arena_bytes > compiled(chain).arena_bytes


def test_a_plan_that_was_made_before():
    """What is compiled by it is what it says, whichever way it reads its inputs."""
    (x,) = arrays((4, 16))
    for options in ({}, {"io": "caller"}):
        plan = ullage.plan(chain(), target="c", **options)
        model = ullage.compile(chain(), plan=plan, cflags="-O0")
        assert model.arena_bytes == plan.reserved_bytes and (model(x) == model(x)).all()
        assert (model(x) == compiled(chain)(x)).all()


def promised(model, **options):
    """The plan of options, and that by which they are compiled, which have to be one."""
    plan = ullage.plan(model, target="c", **options)
    made = ullage.compile(model, **FAST, **options)
    assert plan.to_json() == made.plan.to_json(), options
    assert plan.reserved_bytes == made.arena_bytes, options
    return plan


def test_plans_promise_what_is_compiled():
    """By the same keywords, whatever they are: as many bytes, byte for byte the same plan."""
    digits = os.path.join(cases.DIGITS, "digits.onnx")
    promised(two_by_two())
    promised(counter())
    promised(counter(), donate={"total_out": "total"})
    promised(digits, dims={"N": 1}, io="arena", budget="200KiB")
    cases.raises(ullage.DoesNotFit, lambda: promised(chain(), io="arena", budget="2KiB"))


def test_plans_promise_what_is_compiled_by_all_options():
    digits = os.path.join(cases.DIGITS, "digits.onnx")
    for options in ({}, {"keep_inputs": True}, {"align": 256}, {"weights": "rom"}, {"seed": 3},
                    {"io": "arena"}, {"budget": "300KiB"}, {"pack": "none"}, {"order": "dfs"},
                    {"donate": None}, {"donate": {}}, {"no_donate": False},
                    {"io": "arena", "keep_inputs": True}):  # fmt: skip
        promised(chain(), **options)
        promised(digits, dims={"N": 4}, **options)
    for target in ("c", "cpu"):
        options = {"target": target, "dims": {"N": 4}}
        made = ullage.compile(digits, cflags="-O0", **options)
        assert made.plan.to_json() == ullage.plan(digits, **options).to_json()
        trained = {**options, "train_mode": True, "output": "/fc/Gemm_output_0", "lr": 0.1}
        made = ullage.Trainer(
            os.path.join(cases.DIGITS, "untrained.onnx"), cflags="-O0", **trained
        )
        plan = ullage.plan(os.path.join(cases.DIGITS, "untrained.onnx"), train=True, **trained)
        assert made.plan.to_json() == plan.to_json() and made.arena_bytes == plan.reserved_bytes


def test_data_out_of_range():
    table = onnx.numpy_helper.from_array(numpy.arange(5, dtype=numpy.float32), "t")
    model = ullage.compile(
        made([helper.make_node("Gather", ["t", "i"], ["y"])], [("i", TensorProto.INT64, [3])],
             [("y", TensorProto.FLOAT, [3])], [table]), **FAST)  # fmt: skip
    assert model(numpy.array([0, 4, -1])).tolist() == [0, 4, 4]
    error = cases.raises(ullage.DataFault, lambda: model(numpy.array([0, 9, 1])), "index 9")
    assert error.outputs.tolist() == [0, 4, 1]
    assert model(numpy.array([1, 1, 1])).tolist() == [1, 1, 1]


def test_types():
    kinds = [TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT16, TensorProto.FLOAT16,
             TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.UINT64]  # fmt: skip
    names = [f"x{kind}" for kind in kinds]
    model = ullage.compile(
        made([helper.make_node("Identity", [n], [f"y{n}"]) for n in names],
             [(n, kind, [3]) for n, kind in zip(names, kinds)],
             [(f"y{n}", kind, [3]) for n, kind in zip(names, kinds)]), **FAST)  # fmt: skip
    given = [numpy.array([0, 1, 1]).astype(tensor.dtype) for tensor in model.inputs]
    for x, y in zip(given, model(*given)):
        assert x.dtype == y.dtype and (x == y).all()
    bits = [x.view(numpy.uint16) if x.dtype.itemsize == 2 and i == 4 else x
            for i, x in enumerate(given)]  # fmt: skip
    assert (model(*bits)[4].view(numpy.uint16) == bits[4]).all()


def test_elements_of_fewer_bits():
    """Have a byte each, which holds no more than they do."""
    model = ullage.compile(
        made([helper.make_node("Identity", ["x"], ["y"])], [("x", TensorProto.INT4, [4])],
             [("y", TensorProto.INT4, [4])]), **FAST)  # fmt: skip
    given = numpy.array([-8, 7, -1, 0], numpy.int8)
    assert (model(given) == given).all()
    for wrong in (8, -9, 127):
        given[2] = wrong
        cases.raises(ValueError, lambda: model(given), "-8 to 7")


def test_shapes_without_elements_or_dimensions():
    model = ullage.compile(
        made([helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Neg", ["c"], ["d"])],
             [("a", TensorProto.FLOAT, []), ("c", TensorProto.FLOAT, [0, 3])],
             [("b", TensorProto.FLOAT, []), ("d", TensorProto.FLOAT, [0, 3])]), **FAST)  # fmt: skip
    b, d = model(numpy.array(2, numpy.float32), numpy.zeros((0, 3), numpy.float32))
    assert b.shape == () and float(b) == -2 and d.shape == (0, 3)


def counter():
    return made(
        [helper.make_node("Add", ["total", "x"], ["total_out"]),
         helper.make_node("Mul", ["total_out", "x"], ["y"])],
        [("total", TensorProto.FLOAT, [2]), ("x", TensorProto.FLOAT, [2])],
        [("total_out", TensorProto.FLOAT, [2]), ("y", TensorProto.FLOAT, [2])])  # fmt: skip


def test_state():
    plain = compiled(counter)
    one = numpy.ones(2, numpy.float32)
    assert plain.state_names == () and plain(one, one)[0].tolist() == [2, 2]
    cases.raises(ullage.UsageError, lambda: plain.set_state(total=one), "has no state")
    model = ullage.compile(counter(), **FAST, donate={"total_out": "total"})
    assert model.state_names == ("total",) and [t.name for t in model.inputs] == ["x"]
    assert [model(one)[0].tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    model.set_state(total=numpy.array([10, 20], numpy.float32))
    assert model(one)[0].tolist() == [11, 21]
    model.set_state()
    assert model(one)[0].tolist() == [1, 1]
    cases.raises(ullage.UsageError, lambda: model.set_state(x=one), "no state of this model")
    cases.raises(
        ullage.UsageError,
        lambda: ullage.compile(counter(), **FAST, donate={"total_out": "total"}, arenas=2),
        "one",
    )


def test_a_library_is_kept_and_loaded():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.so")
        (x,) = arrays((4, 16))
        y = ullage.compile(chain(), path=path, **FAST)(x)
        assert os.listdir(folder) == ["model.so"]
        moved = os.path.join(folder, "moved.so")
        os.rename(path, moved)
        model = ullage.load(moved)
        assert (model(x) == y).all() and model.plan is None
        code = ("import numpy, sys, ullage; m = ullage.load(sys.argv[1]); "
                "print(float(m(numpy.ones((4, 16), numpy.float32)).sum()))")  # fmt: skip
        done = subprocess.run([sys.executable, "-c", code, moved], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                              check=True)  # fmt: skip
        assert float(done.stdout) == float(model(numpy.ones((4, 16), numpy.float32)).sum())


def test_paths_of_any_name():
    """A file may be called - too, which is standard output elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            for path in ("-", "a b \u00fc.so", "--help", os.fsdecode(b"\xff.so")):
                ullage.compile(two_by_two(), path=path, **FAST)
                assert os.listdir(".") == [path]
                os.unlink(path)
        finally:
            os.chdir(before)


def test_a_library_that_is_made_anew_at_its_path():
    """It is the new one that is loaded, while the old one still runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.so")
        one = numpy.ones((2, 3), numpy.float32)
        old = ullage.compile(two_by_two(), path=path, **FAST)
        swapped = two_by_two()
        swapped.graph.node[0].op_type, swapped.graph.node[1].op_type = "Sub", "Add"
        new = ullage.compile(swapped, path=path, **FAST)
        assert old(one, one)[0].max() == 2 and new(one, one)[0].max() == 0
        assert ullage.load(path).model_sha256 == new.model_sha256 != old.model_sha256


def test_what_is_no_library():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "garbage.so")
        with open(path, "wb") as file:
            file.write(os.urandom(1000))
        cases.raises(ullage.InvalidModel, lambda: ullage.load(path), "garbage.so", "no library")
        onnx_file = os.path.join(cases.DIGITS, "digits.onnx")
        cases.raises(ullage.InvalidModel, lambda: ullage.load(onnx_file), "ullage.compile")
        cases.raises(ullage.FileError, lambda: ullage.load(os.path.join(folder, "none.so")), "none")
        with open(_ctypes.__file__, "rb") as file:
            whole = file.read()
        for size in (10, 63, 64, 100, 1000, 4096, len(whole) // 8):
            with open(path, "wb") as file:
                file.write(whole[:size])
            cases.raises(ullage.Error, lambda: ullage.load(path), "short" if size > 63 else "")
        cases.raises(ullage.InvalidModel, lambda: ullage.load(_ctypes.__file__), "no model_")


def test_errors_of_compiling():
    model = chain()
    for options, kind, word in (
        ({"traget": "c"}, ullage.UsageError, "did you mean target"),
        ({"out": "x"}, ullage.UsageError, "path="),
        ({"train": True}, ullage.UsageError, "Trainer"),
        ({"weights": "file"}, ullage.UsageError, "inside"),
        ({"arenas": 0}, ullage.UsageError, "at least 1"),
        ({"cc": "false"}, ullage.CompilerFailed, "failed"),
        ({"cc": "no-such-compiler"}, ullage.CompilerFailed, "no-such-compiler"),
    ):
        cases.raises(kind, lambda o=options: ullage.compile(model, **{**FAST, **o}), word)
    error = cases.raises(
        ullage.DoesNotFit,
        lambda: ullage.compile(model, **FAST, budget=100, budget_of="arena"),
        "does not fit",
    )
    assert error.shortfall_bytes > 0 and error.plan.budget_bytes == 100
    cases.raises(ullage.InvalidModel, lambda: ullage.compile(b"garbage", **FAST))


_kept = {}


def in_a_process(code):
    """What it prints, on target c from a library of `chain`; not longer than 30 s."""
    begin = ("import os, signal, sys, threading, time\nimport numpy, ullage\n"
             "model = ullage.load(sys.argv[1])\n"
             "x = numpy.random.default_rng(0).random((4, 16), numpy.float32)\n"
             "y = model(x)\n")  # fmt: skip
    if "folder" not in _kept:
        _kept["folder"] = tempfile.TemporaryDirectory()
        ullage.compile(chain(), path=os.path.join(_kept["folder"].name, "model.so"), **FAST)
    path = os.path.join(_kept["folder"].name, "model.so")
    done = subprocess.run(
        [sys.executable, "-c", begin + code, path], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=30,
        check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_call_within_a_call():
    """By a signal handler: never a hang, never another result of the call that was under way."""
    code = """
seen = []
inside = False
def handler(number, frame):
    global inside
    if not inside:
        inside = True
        try:
            seen.append((model(x) == y).all())
        except ullage.RunError as error:
            seen.append(str(error))
        inside = False
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while sum(isinstance(s, str) for s in seen) < 20:
    assert (model(x) == y).all()
signal.setitimer(signal.ITIMER_REAL, 0)
assert all("within a call" in s if isinstance(s, str) else s for s in seen)
model = ullage.load(sys.argv[1], arenas=2)
del seen[:]
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
while len(seen) < 200:
    assert (model(x) == y).all()
signal.setitimer(signal.ITIMER_REAL, 0)
assert not any(isinstance(s, str) for s in seen)
print("done")
"""
    assert in_a_process(code) == ["done"]


def test_interrupted_calls():
    """An exception of a handler, wherever it comes, leaves a model that can be called."""
    code = """
def handler(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
for arenas in (1, 2):
    model = ullage.load(sys.argv[1], arenas=arenas)
    count = 0
    while count < 200:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0004)
            while True:
                assert (model(x) == y).all()
        except KeyboardInterrupt as error:
            kept = error  # with all its frames, as notebooks keep it
            count += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert (model(x) == y).all()
print("done")
"""
    assert in_a_process(code) == ["done"]


def test_forked_processes():
    """Each runs by itself, also where another thread was within a call when it began."""
    code = """
def work():
    for _ in range(3000):
        assert (model(x) == y).all()
    os._exit(0)
stop = False
def loop():
    while not stop:
        model(x)
thread = threading.Thread(target=loop)
thread.start()
children = []
for _ in range(4):
    x = x + 1
    y = ullage.load(sys.argv[1])(x)
    children.append(os.fork())
    if children[-1] == 0:
        try:
            work()
        finally:
            os._exit(1)
codes = [os.waitpid(child, 0)[1] for child in children]
stop = True
thread.join()
assert codes == [0] * 4, codes
print("done")
"""
    assert in_a_process(code) == ["done"]


def list_of_session(number):
    """The processes of it that still run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, _, _, session = file.read().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended since
            continue
        if session == str(number) and state != "Z":
            found.append(name)
    return found


def test_an_interrupt_leaves_nothing():
    """An interrupt of the process alone, as notebooks send it, leaves no compiler that goes on, and no file."""
    code = ("import signal, sys, ullage; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "ullage.compile(sys.argv[1], target='c', dims={'N': 1}, cc=sys.argv[2])")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        compiler, started = os.path.join(folder, "cc"), os.path.join(folder, "started")
        temporary = os.path.join(folder, "temporary")
        os.mkdir(temporary)
        os.mkfifo(started)
        with open(compiler, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\necho $$ >{started}\nexec sleep 100\n")
        os.chmod(compiler, 0o755)
        path = os.path.join(cases.DIGITS, "digits.onnx")
        process = subprocess.Popen(
            [sys.executable, "-c", code, path, compiler], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": temporary},
            start_new_session=True)  # fmt: skip
        with open(started, encoding="ascii") as file:
            file.readline()
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
        deadline = time.monotonic() + 5  # it was told to end, and may not have yet
        while list_of_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not list_of_session(process.pid)
        assert not os.listdir(temporary)


def test_many_threads():
    """With one arena, and with several at once, each caller gets what is its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.so")
        ullage.compile(chain(), path=path, **FAST)
        for arenas in (1, 3):
            model = ullage.load(path, arenas=arenas)
            given = [arrays((4, 16), seed=seed)[0] for seed in range(8)]
            wanted = [model(x) for x in given]
            wrong = []

            def work(x, y, model=model, wrong=wrong):
                for _ in range(200):
                    if not (model(x) == y).all():
                        wrong.append(x)

            threads = [threading.Thread(target=work, args=pair) for pair in zip(given, wanted)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def test_nothing_grows():
    """Neither by calls nor by models that come and go."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.so")
        ullage.compile(chain(), path=path, **FAST)
        model = ullage.load(path)
        (x,) = arrays((4, 16))

        def calls():
            for _ in range(3000):
                model(x)

        def models():
            for _ in range(60):
                ullage.load(path)(x)

        def refusals():
            for _ in range(500):
                cases.raises(TypeError, lambda: model(x[::-1]))

        for work in (calls, models, refusals):
            work()
            gc.collect()
            before = resident_kib()
            work()
            gc.collect()
            grown = resident_kib() - before
            assert grown < 1024, f"{work.__name__}: {grown} KiB more"
        with open("/proc/self/maps", encoding="ascii") as file:
            assert file.read().count(path) <= 8


if __name__ == "__main__":
    cases.run(globals())
