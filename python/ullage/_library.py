# SPDX-License-Identifier: Apache-2.0
"""A compiled model as a shared library: its description, and arenas to run it in."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import mmap
import os
import struct
import weakref

import numpy

from . import errors

_TEXT, _U32, _U64, _INT = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_I32, _SIZE, _DOUBLE, _ADDRESS = ctypes.c_int32, ctypes.c_size_t, ctypes.c_double, ctypes.c_void_p

# Result types of the functions of model.h, by their names without the prefix.
_OF_ALL = {
    "compiler": _TEXT,
    "target": _TEXT,
    "model_sha256": _TEXT,
    "plan_sha256": _TEXT,
    "arena_bytes": _U64,
    "arena_align": _U64,
    "offload_bytes": _U64,
    "stack_bytes": _U64,
    "thread_count": _U32,
    "input_count": _U32,
    "output_count": _U32,
    "failure_bytes": _SIZE,
    "weights_bytes": _U64,
}
_OF_TENSORS = {
    "name": _TEXT,
    "type": _I32,
    "rank": _U32,
    "dims": ctypes.POINTER(ctypes.c_int64),
    "bytes": _U64,
    "space": _I32,
}
_OF_TRAINING = {
    "checkpoint_bytes": _U64,
    "trainer_bytes": _SIZE,
    "loss": _TEXT,
    "optimizer": _TEXT,
    "learning_rate": _DOUBLE,
    "sample_count": _U32,
    "micro_batches": _U32,
    "data_input": _U32,
    "labels_input": _U32,
    "step_input": _U32,
    "loss_output": _U32,
    "correct_output": _U32,
    "class_count": _U32,
    "ignore_index": ctypes.c_int64,
    "parameter_count": _U32,
    "lora_alpha": _DOUBLE,
    "quantize": _TEXT,
    "frozen": _TEXT,
}
# Argument types of calls; all return an enum ul_result.
_CALLS = {
    "begin": [_ADDRESS, _ADDRESS, _SIZE, _ADDRESS, _SIZE, _ADDRESS, _ADDRESS],
    "run": [_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS],
    "failure_text": [_ADDRESS, _TEXT, _SIZE],
}
_SCALE_CALL = [
    _ADDRESS,
    ctypes.POINTER(ctypes.c_float),
    ctypes.POINTER(ctypes.c_int64),
    _ADDRESS,
]
_STATE_CALLS = {"set_up": [_ADDRESS, _ADDRESS, _ADDRESS]}
_OF_SAMPLES = {
    "class_weight": ([_U32], _DOUBLE),
    "sample_at": ([_U64, _U64, _U64, _U64], _U64),
}
_TRAINING_CALLS = {
    "train_init": [_ADDRESS],
    "train_step": [_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS],
    "eval": [_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS],
    "parameter_get": [_ADDRESS, _U32, _ADDRESS, _ADDRESS],
    "parameter_set": [_ADDRESS, _U32, _ADDRESS, _ADDRESS],
}

OK, DEVICE_MISSING, DATA_FAULT = 0, 15, 30  # enum ul_result of ul_model.h
CALLERS = (1, 2)  # enum ul_space: the caller's buffers
NONE = 0xFFFFFFFF

# ONNX's element types. Types that numpy lacks are those of ml_dtypes where that is installed, else
# unsigned integers of the same size; elements of 2 and 4 bits take a byte each.
_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    21: "uint8",
    22: "int8",
    23: "uint8",
    25: "uint8",
    26: "int8",
    27: "uint8",
    28: "uint8",
}
_SMALL_FLOATS = {
    16: ("bfloat16", "uint16"),
    17: ("float8_e4m3fn", "uint8"),
    18: ("float8_e4m3fnuz", "uint8"),
    19: ("float8_e5m2", "uint8"),
    20: ("float8_e5m2fnuz", "uint8"),
    24: ("float8_e8m0fnu", "uint8"),
}
BF16 = 16
_SQUARES = 1  # of enum ul_rt_parameter_fact
_RANGES = {  # of types whose elements take a byte each
    21: (0, 15),
    22: (-8, 7),
    23: (0, 15),
    25: (0, 3),
    26: (-2, 1),
    27: (0, 63),
    28: (0, 63),
}


def _dtypes(number: int) -> tuple:
    """The dtypes that an array of this element type may have; outputs have the first."""
    if number in _TYPES:
        return (numpy.dtype(_TYPES[number]),)
    if number not in _SMALL_FLOATS:
        raise errors.Unsupported(f"this version of ullage knows no element type {number}")
    name, bits = _SMALL_FLOATS[number]
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name)), numpy.dtype(bits)
    except (ImportError, AttributeError):
        return (numpy.dtype(bits),)


class Tensor:
    """An input, an output or a parameter: name, dtype, shape, nbytes."""

    __slots__ = (
        "name", "dtype", "dtypes", "shape", "nbytes", "donated", "in_arena", "storage",
        "bits_of", "range", "is_squares",
    )  # fmt: skip

    def __init__(self, fields: dict):
        self.name = fields["name"].decode("utf-8", "replace")
        self.dtypes = _dtypes(fields["type"])
        self.dtype = self.dtypes[0]
        kind = _SMALL_FLOATS.get(fields["type"], (None,))[0]
        self.bits_of = kind if self.dtype.kind == "u" else None  # a float that numpy lacks here
        self.shape = tuple(fields["dims"][i] for i in range(fields["rank"]))
        self.range = _RANGES.get(fields["type"])  # of elements, where it is not the dtype's
        self.nbytes = fields["bytes"]
        self.donated = fields.get("donated", 0)
        self.in_arena = fields["space"] not in CALLERS
        self.storage = fields.get("storage", fields["type"])
        self.is_squares = bool(fields.get("facts", 0) & _SQUARES)

    @property
    def size(self) -> int:
        """Elements."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


def address(array) -> int:
    return array.__array_interface__["data"][0]


_kept = None


def _keep_libraries():
    """Loads the libraries that a model needs, and keeps them: OpenMP, whose threads outlive a
    model, from the system or else from the package; and the package's oneDNN, so that a model finds
    it wherever it was compiled."""
    global _kept
    if _kept is not None:
        return
    mode = os.RTLD_NOW | getattr(os, "RTLD_NODELETE", 0)
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")
    own_openmp = os.path.join(tree, "lib", "libgomp.so.1")
    own_onednn = os.path.join(tree, "share", "ullage", "onednn", "lib", "libdnnl.so.2")
    kept = []
    for names in (("libgomp.so.1", own_openmp), (own_onednn, "libdnnl.so.2")):
        for name in names:
            try:
                kept.append(ctypes.CDLL(name, mode))
                break
            except OSError:
                pass  # a model that needs it says so
    _kept = kept  # only now: other threads skip this once it is set


_loads = itertools.count(1)


def _own_name(path: str) -> str:
    """The path in a spelling that no earlier load used: the loader identifies libraries by name,
    even where there is another file now. It still loads the same file only once."""
    folder, name = os.path.split(os.path.abspath(path))
    return folder + "/" + format(next(_loads), "b").replace("0", "/").replace("1", "./") + name


def _check_file(path: str):
    """Refuses a file that is no library, or is truncated and would kill the process when it is
    loaded: checks the head of a 64-bit ELF file, and the segments that its program headers load. A
    file that cannot be read, or is of another kind, is left to the loader."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            size = os.fstat(file.fileno()).st_size
            if head[:4] != b"\x7fELF":
                raise errors.InvalidModel(
                    f"{path}: no library: ullage.load takes what ullage.compile keeps at path=...; "
                    "ullage.compile takes a model"
                )
            if len(head) < 64 or head[4:6] != b"\2\1":
                return
            begin, (each, count) = _number(head, 32), struct.unpack_from("<HH", head, 54)
            file.seek(begin if begin <= size else size)
            table = file.read(each * count)
    except OSError:
        return
    ends = [
        _number(table, at + 8) + _number(table, at + 32)
        for at in range(0, len(table) - 55, each or 1)
        if table[at : at + 4] == b"\1\0\0\0"  # PT_LOAD
    ]
    needed = max([begin + each * count, *ends])
    if needed > size:
        raise errors.InvalidModel(f"{path}: is cut short: {size} bytes, of at least {needed}")


def _number(data: bytes, at: int) -> int:
    return struct.unpack_from("<Q", data, at)[0]


class Library:
    """The functions of a model's library, which is unloaded when nothing refers to it any more."""

    def __init__(self, path: str, prefix: str):
        self.path = path
        self.prefix = prefix
        _check_file(path)
        _keep_libraries()
        own_name = _own_name(path)
        try:
            self._functions = ctypes.CDLL(own_name, os.RTLD_NOW)
        except OSError as error:
            if "failed to map segment" in str(error):
                error = OSError(f"{error}: its file system may refuse to run what lies on it")
            reason = str(error).replace(f"{own_name}: ", "").replace(own_name, path)
            raise errors.FileError(f"{path}: {reason}") from error
        self._finalizer = weakref.finalize(self, _ctypes.dlclose, self._functions._handle)
        self._finalizer.atexit = False  # a thread may still run it
        if self._find("size_count") is not None:
            raise errors.Unsupported(
                f"{path}: it is for a range of sizes, which Python does not run: compile the model "
                "with one value for each size"
            )
        for name, result in _OF_ALL.items():
            self._declare(name, [], result)
        for name, takes in _CALLS.items():
            self._declare(name, takes, _INT)
        self._declare("end", [_ADDRESS], None)
        if self.target() == b"cuda":
            self._declare("stream", [_ADDRESS], _ADDRESS)
        self.trains = self._find("train_step") is not None
        for name, takes in (_TRAINING_CALLS if self.trains else {}).items():
            self._declare(name, takes, _INT if name != "train_init" else None)
        for name, result in (_OF_TRAINING if self.trains else {}).items():
            self._declare(name, [], result)
        for name, (takes, result) in (_OF_SAMPLES if self.trains else {}).items():
            self._declare(name, takes, result)
        self.has_scale = self._find("loss_scale") is not None
        if self.has_scale:
            self._declare("loss_scale", _SCALE_CALL, _INT)
        self.has_state = self._find("set_up") is not None
        for name, takes in (_STATE_CALLS if self.has_state else {}).items():
            self._declare(name, takes, _INT)
        self.inputs = self._tensors("input", self.input_count())
        self.outputs = self._tensors("output", self.output_count())

    def _find(self, name: str):
        """The function of that name after the prefix, or None."""
        try:
            return getattr(self._functions, f"{self.prefix}_{name}")
        except (AttributeError, UnicodeDecodeError):  # a name that is no text
            return None

    def _declare(self, name: str, takes, result):
        function = self._find(name)
        if function is None:
            raise errors.InvalidModel(
                f"{self.path}: no {self.prefix}_{name} in it: it is no library that ullage.compile "
                "or ullage compile --shared-library made, or one of another version or --prefix"
            )
        function.argtypes, function.restype = takes, result
        setattr(self, name, function)

    def _tensors(self, kind: str, count: int, **more) -> list:
        fields = {**_OF_TENSORS, **(more or {"donated": _U32})}
        for field, result in fields.items():
            self._declare(f"{kind}_{field}", [_U32], result)
        return [
            Tensor({field: getattr(self, f"{kind}_{field}")(i) for field in fields})
            for i in range(count)
        ]

    def parameters(self) -> list:
        """The parameters, which training changes."""
        return self._tensors("parameter", self.parameter_count(), storage=_I32, facts=_U32)

    def explain(self, failure) -> str:
        text = ctypes.create_string_buffer(1024)
        self.failure_text(failure, text, len(text))
        return text.value.decode("utf-8", "replace")


_REMEDIES = {
    DEVICE_MISSING: ": target cuda runs on an NVIDIA GPU, by its driver; ullage.compile(path=...) "
    "keeps the library for a machine that has them, and target='cpu' runs on this one"
}


class Arena:
    """The memory that a model runs in, prepared, with room for the pointers of a run."""

    def __init__(self, library: Library):
        self.owner = library  # keeps the library loaded
        self.failure = ctypes.create_string_buffer(library.failure_bytes())
        self.inputs = (_ADDRESS * max(1, len(library.inputs)))()
        self.outputs = (_ADDRESS * max(1, len(library.outputs)))()
        on_device = library.target() == b"cuda"
        memory, place, size = None, None, library.arena_bytes()
        if not on_device:
            if library.arena_align() > mmap.PAGESIZE:
                raise errors.Unsupported("the arena is to be aligned to more than a page")
            memory, place = _pages(size)
        beside_size = library.offload_bytes()
        beside, beside_place = _pages(beside_size) if beside_size else (None, None)
        handle = _ADDRESS()
        result = library.begin(
            ctypes.byref(handle), place, 0 if on_device else size, beside_place, beside_size,
            None, self.failure,
        )  # fmt: skip
        if result != OK:
            raise errors.RunError(library.explain(self.failure) + _REMEDIES.get(result, ""))
        self.handle = handle.value
        self._finalizer = weakref.finalize(self, _end, library, self.handle, memory, beside)
        self._finalizer.atexit = False


def _pages(size: int) -> tuple:
    """Anonymous memory, which is taken when it is touched, and its address. It is private: a forked
    process has a copy of its own."""
    try:
        memory = mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError, OverflowError) as error:
        raise errors.RunError(f"an arena of {size} bytes cannot be had: {error}") from error
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _end(library: Library, handle, *memory):
    library.end(handle)
    del memory
