# SPDX-License-Identifier: Apache-2.0
"""A compiled model that is called with numpy arrays."""

from __future__ import annotations

import os
import threading
import weakref

import numpy

from . import _device, errors
from ._library import DATA_FAULT, OK, Arena, Library, address

_CONTIGUOUS_ALIGNED = 0x0101  # of numpy's flags.num
_WRITEABLE = 0x0400
_ARENAS_MAX = 1024

_threads_have_run = False
_is_forked = False
_lanes = weakref.WeakSet()


class Lane:
    """An arena, or the place for one, in which one call runs at a time; other threads wait. A call
    from within a call, from a signal handler or finalizer, would wait for itself, and is an
    error."""

    def __init__(self, library: Library):
        self._library = library
        self._arena = None
        self._lock = threading.RLock()  # `owner` shows a call from within a call
        self.owner = 0
        _lanes.add(self)

    def run(self, work, *arguments):
        """Returns work(arena, *arguments), which has the arena for itself even when it is
        interrupted: no exception can come between the lock's own `with` and the code in it."""
        with self._lock:
            if self.owner:
                raise errors.RunError(
                    "this model is called from within a call of it by the same thread, as by a "
                    "signal handler or a finalizer: let that note what is to be done, and do it "
                    "behind the call; a Model of arenas=2 has room for both"
                )
            self.owner = threading.get_ident()
            try:
                if self._arena is None:
                    self._arena = Arena(self._library)
                return work(self._arena, *arguments)
            finally:
                self.owner = 0

    def _after_fork(self):
        """Other threads that ran in it are gone, and would be waited for forever."""
        if self.owner != threading.get_ident():
            self._lock, self.owner = threading.RLock(), 0


def _after_fork():
    global _is_forked
    _is_forked = _threads_have_run
    for lane in _lanes:
        lane._after_fork()


os.register_at_fork(after_in_child=_after_fork)


def check_fork(library: Library):
    """Threads of OpenMP are gone after a fork, and would be waited for forever."""
    global _threads_have_run
    if library.thread_count() > 1:
        if _is_forked:
            raise errors.RunError(
                "this process was forked from one that had run a model on several threads, which "
                "are gone here; start processes by spawn, or compile with threads=1"
            )
        _threads_have_run = True


def _converts(tensor, array) -> str:
    """How to convert the array to the type."""
    if tensor.bits_of is not None and array.dtype.kind == "f":
        return (
            f"those are the bits of {tensor.bits_of}: with the package ml_dtypes, "
            f"x.astype(ml_dtypes.{tensor.bits_of}) converts"
        )
    return f"x.astype({tensor.dtype.name!r}) converts"


def plain(array):
    """The array without its subclass: shape, type and bytes as numpy has them. A masked array, or
    an object that is no array, stays, and is refused."""
    if type(array) is numpy.ndarray or isinstance(array, numpy.ma.MaskedArray):
        return array
    return numpy.ndarray.view(array, numpy.ndarray) if isinstance(array, numpy.ndarray) else array


def refuse_kind(what: str, tensor, array):
    """Raises the error for a masked array, or an object that is no array."""
    wanted = f"a C-contiguous numpy array, {tensor.dtype} of shape {tensor.shape}"
    if not isinstance(array, numpy.ndarray):
        raise TypeError(
            f"{what}: expected {wanted}, not {type(array).__name__}; "
            f"numpy.asarray(x, {tensor.dtype.name!r}) makes one"
        )
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(
            f"{what}: expected {wanted}, not a masked array, whose mask would be lost; "
            "x.filled(value) gives masked elements a value"
        )


def refuse(kind: str, tensor, array, writes: bool = False):
    """Raises the error for an array that a run cannot take."""
    what = f"{kind} {tensor.name!r}"
    refuse_kind(what, tensor, array)
    if array.dtype not in tensor.dtypes:
        plain = array.dtype.newbyteorder("=") == tensor.dtype
        given = "the other byte order" if plain else f"{array.dtype}"
        raise TypeError(
            f"{what}: expected {tensor.dtype}, not {given}; {_converts(tensor, array)}"
        )
    if array.shape != tensor.shape:
        raise ValueError(
            f"{what}: expected shape {tensor.shape}, not {array.shape}; shapes are fixed when a "
            "model is compiled"
        )
    if array.flags.num & _CONTIGUOUS_ALIGNED != _CONTIGUOUS_ALIGNED:
        raise TypeError(
            f"{what}: expected a C-contiguous numpy array; this one is not contiguous or not "
            "aligned: numpy.ascontiguousarray(x), or x.copy(), makes it so"
        )
    if writes and not array.flags.num & _WRITEABLE:
        raise TypeError(f"{what}: the array cannot be written")


def check_range(kind: str, tensor, array):
    """Refuses elements that do not fit a type of fewer than 8 bits."""
    least, most = tensor.range
    if array.size and (int(array.min()) < least or int(array.max()) > most):
        raise ValueError(
            f"{kind} {tensor.name!r}: an element is not from {least} to {most}, as its type has it"
        )


_SHARED = "the array shares bytes with another that this call reads or writes"


def check_arenas(count):
    """Checks the number of arenas before anything is compiled for them."""
    if not isinstance(count, int) or not 1 <= count <= _ARENAS_MAX:
        raise errors.UsageError(
            f"arenas: expected a number of at least 1, at most {_ARENAS_MAX}, not {count!r}"
        )


class Model:
    """A compiled model: call it with arrays, it returns arrays.

    Inputs are given by position or by name, as C-contiguous arrays of the exact type and shape;
    nothing is converted. Outputs are new arrays in each call, or those of `out`: one array where
    the model has one output, else a tuple. Neither is copied, unless the model was compiled with
    io="arena". For target cuda they may be on the device, by DLPack. Any number of threads may call
    it; at most `arenas` calls run at once, the others wait. Python's lock is released during a run.
    """

    plan = None

    def __init__(self, library, arenas: int = 1):
        library = library if isinstance(library, Library) else Library(library, "model")
        if library.trains:
            raise errors.UsageError("this library trains: ullage.Trainer, or ullage.load, takes it")
        check_arenas(arenas)
        self._library = library
        self._on_device = library.target() == b"cuda"
        self._states = [tensor for tensor in library.inputs if tensor.donated]
        if self._states and not all(tensor.in_arena for tensor in self._states):
            raise errors.Unsupported(
                f"input {self._states[0].name!r} is overwritten in the caller's buffer: compile "
                "with io='arena', so that it stays in the model's, or without donate"
            )
        if self._states and arenas > 1:
            raise errors.UsageError("arenas: a model that keeps a state has one")
        self._is_narrow = any(tensor.range for tensor in library.inputs)
        self._given = [(i, t) for i, t in enumerate(library.inputs) if not t.donated]
        self.inputs = tuple(tensor for _, tensor in self._given)
        self.outputs = tuple(library.outputs)
        check_fork(library)  # oneDNN's preparations run on threads too
        self._lanes = [Lane(library) for _ in range(arenas)]
        self._turns = 0
        self._lanes[0].run(lambda arena: None)  # makes the arena, or reports what is missing

    # ---- properties ----

    @property
    def arena_bytes(self) -> int:
        """Bytes of one arena; the model takes as many arenas as calls have run at once."""
        return self._library.arena_bytes()

    @property
    def target(self) -> str:
        return self._library.target().decode()

    @property
    def model_sha256(self) -> str:
        return self._library.model_sha256().decode()

    @property
    def plan_sha256(self) -> str:
        return self._library.plan_sha256().decode()

    @property
    def thread_count(self) -> int:
        """The number of threads of one call."""
        return self._library.thread_count()

    @property
    def state_names(self) -> tuple:
        """Inputs that stay in the arena from call to call, since an output overwrites them."""
        return tuple(tensor.name for tensor in self._states)

    def __repr__(self) -> str:
        takes = ", ".join(map(repr, self.inputs))
        makes = ", ".join(map(repr, self.outputs))
        return f"<ullage.Model ({takes}) -> ({makes}), {self.arena_bytes} bytes>"

    def __reduce__(self):
        raise TypeError(
            "a Model is not copied or pickled: compile with path=..., and ullage.load it again, also "
            "in another process"
        )

    # ---- a run ----

    def _lane(self) -> Lane:
        """The first free lane; else one to wait for."""
        lanes = self._lanes
        if len(lanes) == 1:
            return lanes[0]
        for lane in lanes:
            if not lane.owner:
                return lane
        self._turns += 1
        me = threading.get_ident()
        mine = [lane for lane in lanes if lane.owner == me]
        return mine[0] if mine else lanes[self._turns % len(lanes)]

    def _by_name(self, arrays: tuple, named: dict) -> tuple:
        rest = [tensor.name for tensor in self.inputs[len(arrays) :]]
        for name in named:
            if name not in rest:
                twice = name in (tensor.name for tensor in self.inputs)
                raise TypeError(
                    f"input {name!r} was given twice"
                    if twice
                    else f"there is no input {name!r}; there are "
                    + ", ".join(repr(tensor.name) for tensor in self.inputs)
                )
        missing = [name for name in rest if name not in named]
        if missing:
            raise TypeError(f"input {missing[0]!r} is missing")
        return arrays + tuple(named[name] for name in rest)

    def _is_there(self, array) -> bool:
        """Whether the array is on the device; it is read once the call's arena and stream are
        known."""
        return self._on_device and _device.is_array(array)

    def _outputs(self, out, arrays) -> list:
        """The arrays to write to; a None becomes a new array."""
        if len(self.outputs) == 1 and (isinstance(out, numpy.ndarray) or self._is_there(out)):
            out = [out]
        if isinstance(out, dict):
            unknown = set(out) - {tensor.name for tensor in self.outputs}
            if unknown:
                raise TypeError(f"out: there is no output {sorted(unknown)[0]!r}")
            out = [out.get(tensor.name) for tensor in self.outputs]
        if not isinstance(out, (list, tuple)) or len(out) != len(self.outputs):
            raise TypeError(
                f"out: expected an array for each of {len(self.outputs)} outputs, in a list or by "
                "name in a dict"
            )
        results = [plain(array) for array in out]
        for number, (tensor, array) in enumerate(zip(self.outputs, results)):
            if array is None or self._is_there(array):
                continue
            if (
                type(array) is not numpy.ndarray
                or array.dtype not in tensor.dtypes
                or array.shape != tensor.shape
                or array.flags.num & (_CONTIGUOUS_ALIGNED | _WRITEABLE)
                != _CONTIGUOUS_ALIGNED | _WRITEABLE
            ):
                refuse("output", tensor, array, writes=True)
            for other in (*arrays, *results[:number]):
                if isinstance(other, numpy.ndarray) and numpy.may_share_memory(array, other):
                    raise ValueError(f"output {tensor.name!r}: {_SHARED}")
        return results

    def _places_there(self, arena: Arena, arrays, results) -> list:
        """Puts the addresses of arrays on the device into the arena's lists; returns what must stay
        alive until the run is over."""
        kept, taken = [], []
        stream = self._library.stream(arena.handle)
        given = [("input", n, t, a) for (n, t), a in zip(self._given, arrays)]
        written = [("output", n, t, a) for n, (t, a) in enumerate(zip(self.outputs, results))]
        for kind, number, tensor, array in given + written:
            if array is None or isinstance(array, numpy.ndarray):
                continue
            begin, capsule = _device.place(kind, tensor, array, stream)
            kept.append(capsule)
            end = begin + tensor.nbytes
            if kind == "output" and any(begin < b and a < end for a, b in taken):
                raise ValueError(f"output {tensor.name!r}: {_SHARED}")
            taken.append((begin, end))
            (arena.inputs if kind == "input" else arena.outputs)[number] = begin
        return kept

    def __call__(self, /, *arrays, out=None, **named):
        if named:
            arrays = self._by_name(arrays, named)
        if len(arrays) != len(self._given):
            self._by_name(arrays, {}) if len(arrays) < len(self._given) else None
            raise TypeError(f"{len(arrays)} arrays were given, of {len(self._given)} inputs")
        there = self._on_device and out is not None  # whether some may be on the device
        if any(type(array) is not numpy.ndarray for array in arrays):
            arrays = tuple(map(plain, arrays))
        for (_, tensor), array in zip(self._given, arrays):
            if (
                type(array) is not numpy.ndarray
                or array.dtype not in tensor.dtypes
                or array.shape != tensor.shape
                or array.flags.num & _CONTIGUOUS_ALIGNED != _CONTIGUOUS_ALIGNED
            ):
                if self._is_there(array):
                    there = True
                else:
                    refuse("input", tensor, array)
        if self._is_narrow:
            for (_, tensor), array in zip(self._given, arrays):
                if tensor.range and isinstance(array, numpy.ndarray):
                    check_range("input", tensor, array)
        results = [None] * len(self.outputs) if out is None else self._outputs(out, arrays)
        if _is_forked:
            check_fork(self._library)
        self._lane().run(self._run, arrays, results, there)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, arena: Arena, arrays, results: list, there: bool):
        kept = self._places_there(arena, arrays, results) if there else ()
        for (number, _), array in zip(self._given, arrays):
            if not kept or isinstance(array, numpy.ndarray):
                arena.inputs[number] = address(array)
        for number, tensor in enumerate(self.outputs):
            if results[number] is None:
                results[number] = numpy.empty(tensor.shape, tensor.dtype)
            if not kept or isinstance(results[number], numpy.ndarray):
                arena.outputs[number] = address(results[number])
        code = self._library.run(arena.handle, arena.inputs, arena.outputs, arena.failure)
        if code != OK:
            self._fail(code, arena, results)

    def _fail(self, code: int, arena: Arena, results: list):
        message = self._library.explain(arena.failure)
        if code != DATA_FAULT:
            raise errors.RunError(message)
        error = errors.DataFault(message)
        error.outputs = results[0] if len(results) == 1 else tuple(results)
        raise error

    def set_state(self, /, **arrays):
        """Sets inputs that stay in the arena; those that are not named become 0."""
        unknown = set(arrays) - set(self.state_names)
        if unknown or not self._states:
            raise errors.UsageError(
                f"{sorted(unknown)[0] if unknown else 'this model'}: "
                + ("no state of this model" if self._states else "has no state")
            )
        given = {}
        for number, tensor in enumerate(self._library.inputs):
            if not tensor.donated:
                continue
            array = plain(arrays.get(tensor.name))
            if array is None:
                array = numpy.zeros(tensor.shape, tensor.dtype)
            refuse("state", tensor, array)
            if tensor.range:
                check_range("state", tensor, array)
            given[number] = array
        self._lanes[0].run(self._set_up, given)

    def _set_up(self, arena: Arena, given: dict):
        for number, array in given.items():
            arena.inputs[number] = address(array)
        code = self._library.set_up(arena.handle, arena.inputs, arena.failure)
        for number in given:
            arena.inputs[number] = None
        if code != OK:
            raise errors.RunError(self._library.explain(arena.failure))
