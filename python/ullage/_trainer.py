# SPDX-License-Identifier: Apache-2.0
"""Training steps of a model, in one buffer: forward, backward and update."""

from __future__ import annotations

import ctypes
import os
import re
import warnings
import zipfile
from collections import namedtuple

import numpy

from . import _compile, _files, _options, _program, errors
from ._library import BF16, DATA_FAULT, NONE, OK, Library, address
from ._model import Lane, check_fork, plain, refuse, refuse_kind

Evaluation = namedtuple("Evaluation", "loss correct samples")
Evaluation.__doc__ = """The result for a batch without learning: its mean loss, how many of its
labels were right (None where they are not classes), and how many samples it had."""

_STATES = ("momentum", "exp_avg", "exp_avg_sq", "row_var", "col_var", "variance", "m", "vmean")
# In a checkpoint (runtime/README.md): bytes of entries, and kinds of order of samples.
_OPTIMIZER_BYTES, _QUANTIZE_BYTES = 16, 256
_SHUFFLES, _PADS = 1, 2
_LEAST_SCALE = 1 / 65536  # trainers of the command line give up below it too


class _State(ctypes.Structure):
    """struct ul_trainer of ul_model.h."""

    _fields_ = [
        ("step", ctypes.c_uint64),
        ("micro_batch", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("learning_rate", ctypes.c_double),
    ]


def _widen(bits):
    """bf16 numbers as float32."""
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def _narrow(floats):
    """The nearest bf16 numbers, halves to even; a NaN stays a NaN."""
    bits = floats.view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return numpy.where(numpy.isnan(floats), (bits >> 16) | 0x40, rounded).astype(numpy.uint16)


def _not_finite(loss: float) -> str:
    return "not a number" if numpy.isnan(loss) else "infinite"


class Trainer:
    """A compiled training step of a model.

    Trainer(model, loss=..., optimizer=..., dims=...) takes the options of `ullage compile --train`;
    `path` keeps the library for ullage.load. The model's input shape gives the batch. One step runs
    at a time: other threads wait. Python's lock is released during a step.
    """

    plan = None
    _model = None
    _class_weights = None

    def __init__(self, model, *, path=None, **options):
        if options.pop("train", True) is not True:
            raise errors.UsageError("train: a Trainer always trains; ullage.compile does not")
        options["train"] = True
        made = _compile.build(model, path, options, lambda at: _Compiled(Library(at, "model")))
        self.plan = made.plan
        self._model = model
        self._begin(made.loaded)

    @classmethod
    def _of(cls, library: Library) -> Trainer:
        trainer = cls.__new__(cls)
        trainer._begin(library)
        return trainer

    def _begin(self, library: Library):
        if library.trainer_bytes() != ctypes.sizeof(_State):
            raise errors.InvalidModel(f"{library.path}: it is of another version of ullage")
        check_fork(library)
        self._library = library
        self._state = _State()
        self._lane = Lane(library)
        self._arena = self._lane.run(lambda arena: arena)
        self._order = (0, 0)  # the order of samples, and how many there are; 0: not known
        self._order_shift = 0  # add it to a step to get the one whose samples it takes
        self._announced_step = None
        library.train_init(ctypes.byref(self._state))
        labels, step = library.labels_input(), library.step_input()
        order = [i for i in range(len(library.inputs)) if i not in (labels, step)]
        self._given = [*order, *([labels] if labels != NONE else [])]
        self._labels = labels
        self._parts = library.micro_batches()
        is_labelled = labels != NONE and library.inputs[labels].dtype.kind in "iu"
        self._class_count = library.class_count() if is_labelled else 0  # 0: labels are not classes
        self._ignored = library.ignore_index()
        self._parameters = {t.name: (i, t) for i, t in enumerate(library.parameters())}
        self._results = self._make_results()

    def _make_results(self) -> dict:
        """Arrays for the outputs of a step, except those that it updates in place."""
        results = {}
        for number, tensor in enumerate(self._library.outputs):
            if tensor.donated:
                continue
            results[number] = numpy.zeros(tensor.shape, tensor.dtype)
            self._arena.outputs[number] = address(results[number])
        return results

    # ---- properties ----

    @property
    def inputs(self) -> tuple:
        """What a step takes, in this order, labels last. Shapes are those of a micro-batch;
        `micro_batches` of them are a batch."""
        return tuple(self._library.inputs[i] for i in self._given)

    @property
    def arena_bytes(self) -> int:
        return self._library.arena_bytes()

    @property
    def batch_size(self) -> int:
        """The number of samples of a step."""
        return self._library.sample_count() * self._parts

    @property
    def micro_batches(self) -> int:
        return self._parts

    @property
    def loss(self) -> str:
        return self._library.loss().decode()

    @property
    def optimizer(self) -> str:
        return self._library.optimizer().decode()

    @property
    def step_count(self) -> int:
        """The number of updates so far."""
        return self._state.step

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step, before schedules; may be set."""
        return self._state.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float):
        self._state.learning_rate = _number("learning_rate", rate, float("inf"), "a number")

    lr = learning_rate

    @property
    def seed(self) -> int:
        """The seed of random numbers in a step, such as those of Dropout; may be set."""
        return self._state.seed

    @seed.setter
    def seed(self, seed: int):
        number = _number("seed", seed, 1 << 53, "an integer below 2^53")
        if number != int(number):
            raise ValueError(f"seed: expected an integer, not {seed}")
        self._state.seed = int(seed)

    def __repr__(self) -> str:
        takes = ", ".join(map(repr, self.inputs))
        return (
            f"<ullage.Trainer ({takes}), {self.loss}, {self.optimizer}, batches of "
            f"{self.batch_size}, {self.arena_bytes} bytes, {self.step_count} steps>"
        )

    def __reduce__(self):
        raise TypeError("a Trainer is not pickled: save a checkpoint, and load it in the other one")

    # ---- steps ----

    def _arrays(self, arrays: tuple, named: dict) -> list:
        tensors = [self._library.inputs[i] for i in self._given]
        names = [tensor.name for tensor in tensors]
        given = dict(zip(names, arrays))
        for name, array in named.items():
            if name not in names or name in given:
                what = "was given twice" if name in given else f"is none of {', '.join(names)}"
                raise TypeError(f"input {name!r} {what}")
            given[name] = array
        if len(arrays) > len(names) or len(given) < len(names):
            raise TypeError(f"a step takes {len(names)} arrays: {', '.join(names)}")
        return [self._batch(i, t, given[t.name]) for i, t in zip(self._given, tensors)]

    def _classes(self, tensor, labels):
        """Labels in the form of the loss: integers of any type, each a class or the ignored
        label."""
        if labels.dtype.kind not in "iub" or tensor.dtype.kind not in "iu" or not labels.size:
            return labels.astype(tensor.dtype) if labels.dtype.kind in "iub" else labels
        classes, range_of = self._class_count, numpy.iinfo(tensor.dtype)
        least, most = (0, classes - 1) if classes else (range_of.min, range_of.max)
        if int(labels.min()) < least or int(labels.max()) > most:
            wrong = (labels < least) | (labels > most)
            if classes:
                wrong &= labels != self._ignored
            if wrong.any():
                place = tuple(int(i) for i in numpy.argwhere(wrong)[0])
                valid = f"; {self._ignored} is ignored" if classes else ""
                raise ValueError(
                    f"labels {tensor.name!r}: {int(labels[place])} of sample "
                    f"{place[0] if place else 0} is not from {least} to {most}{valid}"
                )
        return labels.astype(tensor.dtype, copy=False)

    def _batch(self, number: int, tensor, array):
        """The array, divided into micro-batches."""
        if type(array) is not numpy.ndarray:
            refuse_kind(f"input {tensor.name!r}", tensor, array)
            array = plain(array)
        if number == self._labels:
            array = self._classes(tensor, array)
        samples = tensor.shape[0] if tensor.shape else 1
        whole = (samples * self._parts, *tensor.shape[1:])
        if array.shape != whole:
            if array.shape[:1] != whole[:1] or array.size != tensor.size * self._parts:
                raise ValueError(
                    f"input {tensor.name!r}: expected shape {whole}, not {array.shape}; the batch "
                    "is that of the model's input shape when it is compiled"
                )
            array = array.reshape(whole)
        parts = [array[i * samples : (i + 1) * samples] for i in range(self._parts)]
        for part in parts:
            refuse("input", tensor, part)
        return parts

    def _run(self, batch: list, part: int, call):
        for number, parts in zip(self._given, batch):
            self._arena.inputs[number] = address(parts[part])
        code = call(self._arena.inputs, self._arena.outputs, self._arena.failure)
        if code not in (OK, DATA_FAULT):
            raise errors.RunError(self._library.explain(self._arena.failure))
        return self._library.explain(self._arena.failure) if code == DATA_FAULT else None

    def _loss(self) -> float:
        return float(self._results[self._library.loss_output()].reshape(-1)[0])

    def next_samples(self, count: int, shuffle: bool | None = None):
        """Which of `count` samples the next step takes in the order of the command line's trainers:
        an array of batch_size indexes. Epochs follow each other; samples at the end of one that do
        not fill a batch are left out. A checkpoint then records the order, so that either kind of
        trainer continues from the other's. `shuffle`: by the seed, the default; False: in order.
        """
        flags, known = self._order
        steps = count // self.batch_size
        if known and (count != known or shuffle not in (None, bool(flags & _SHUFFLES))):
            raise ValueError(
                f"samples come {'shuffled' if flags & _SHUFFLES else 'as they stand'} of {known} "
                "in this training; it goes on so, or begins anew"
            )
        if flags & _PADS:
            raise errors.Unsupported(
                "this training was begun with --last pad, and a step here takes whole batches"
            )
        if steps < 1:
            raise ValueError(f"{count} samples are too few for a batch of {self.batch_size}")
        epoch, step = divmod(self.step_count + self._order_shift, steps)
        shuffles = bool(flags & _SHUFFLES) if known else shuffle is None or bool(shuffle)
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        if shuffles:
            places = [self._library.sample_at(self.seed, epoch, count, i) for i in places]
        self._order = (_SHUFFLES if shuffles else 0, count)
        self._announced_step = self.step_count
        return numpy.array(places, numpy.int64)

    def step(self, /, *arrays, **named) -> float:
        """Makes one update from a batch, inputs then labels; returns the loss before it. An index
        in the data that is out of range is a DataFault, after the update. A loss that is not finite
        is a VerificationFailed: parameters are lost, and load() restores a checkpoint's. With a
        loss scale such a step is skipped, which leaves parameters and state as they were; where a
        sample is the cause, a RuntimeWarning names it."""
        batch = self._arrays(arrays, named)
        if self._class_count and all((part == self._ignored).all() for part in batch[-1]):
            raise ValueError("all labels of the batch are ignored: nothing can be learned of it")
        check_fork(self._library)
        loss, faults, taken = self._lane.run(self._step, batch)
        self._judge(loss, batch, taken)
        return self._checked(loss, faults)

    def _judge(self, loss: float, batch: list, taken):
        """Raises where the step lost what was learned. `taken`: the number of steps taken and the
        scale, before the step and after it; None: there is no loss scale."""
        is_skipped = taken is not None and taken[0][1] == taken[1][1]
        if numpy.isfinite(loss) and not is_skipped:
            return
        blame = self._blame(batch)
        step = f"step {self._state.step}"
        remedy = "leave such samples out" if blame else "a lower learning_rate may help"
        if not is_skipped:
            raise errors.VerificationFailed(
                f"{step}: the loss is {_not_finite(loss)}{blame}; what was learned since the last "
                f"checkpoint is lost: load() one, or make another Trainer ({remedy})"
            )
        if taken[1][0] < _LEAST_SCALE:
            raise errors.VerificationFailed(
                f"{step}: gradients are not finite by a loss scale of {taken[1][0]:g} either{blame} "
                f"({remedy})"
            )
        if blame:
            warnings.warn(f"{step} is skipped{blame}", RuntimeWarning, stacklevel=3)

    def _blame(self, batch: list) -> str:
        """The first sample of the batch that holds a number that is not finite."""
        for number, parts in zip(self._given, batch):
            for at, part in enumerate(parts):
                if part.dtype.kind != "f" or numpy.isfinite(part).all():
                    continue
                bad = int(numpy.argwhere(~numpy.isfinite(part))[0][0]) if part.ndim else 0
                sample = at * len(part) + bad if part.ndim else at
                name = self._library.inputs[number].name
                return f", for sample {sample} of input {name!r} is not finite"
        return ""

    def _scale(self, arena):
        """The loss scale, and how many steps were taken."""
        if not self._library.has_scale:
            return None
        scale, taken = ctypes.c_float(), ctypes.c_int64()
        code = self._library.loss_scale(
            arena.handle, ctypes.byref(scale), ctypes.byref(taken), arena.failure
        )
        if code != OK:
            raise errors.RunError(self._library.explain(arena.failure))
        return scale.value, taken.value

    def _step(self, arena, batch: list) -> tuple:
        state = ctypes.byref(self._state)
        before = self._scale(arena)
        if self._announced_step != self._state.step:
            self._order, self._order_shift = (0, 0), 0
        self._state.micro_batch = 0  # an earlier step may have failed halfway
        faults = [
            self._run(batch, p, lambda *a: self._library.train_step(arena.handle, state, *a))
            for p in range(self._parts)
        ]
        taken = None if before is None else (before, self._scale(arena))
        return self._loss(), faults, taken

    def _weights(self, batch: list) -> list:
        """The weight of each micro-batch in the loss of the batch: its labels that are not ignored,
        by the weights of their classes."""
        if self._parts == 1 or not self._class_count:
            return [1.0] * self._parts
        if self._class_weights is None:
            weights = map(self._library.class_weight, range(self._class_count))
            self._class_weights = numpy.fromiter(weights, float, self._class_count)
        return [float(self._class_weights[part[part != self._ignored]].sum()) for part in batch[-1]]

    def eval(self, /, *arrays, **named) -> Evaluation:
        """Loss and right answers for a batch. Nothing is learned, nothing is dropped, and running
        statistics replace those of batches. The loss is the mean over all labels that count,
        however the batch is divided into micro-batches. Where it is not finite, a RuntimeWarning
        says so."""
        batch = self._arrays(arrays, named)
        check_fork(self._library)
        losses, correct, faults = self._lane.run(self._eval, batch)
        counted = [(loss, weight) for loss, weight in zip(losses, self._weights(batch)) if weight]
        total = sum(weight for _, weight in counted)
        loss = sum(loss * weight for loss, weight in counted) / total if counted else losses[0]
        if counted and not numpy.isfinite(loss):
            what = f"the loss of this evaluation is {_not_finite(loss)}{self._blame(batch)}"
            warnings.warn(what, RuntimeWarning, stacklevel=2)
        return self._checked(Evaluation(loss, correct, self.batch_size), faults)

    def _eval(self, arena, batch: list) -> tuple:
        library = self._library
        losses, correct, faults = [], None, []
        for part in range(self._parts):
            faults.append(self._run(batch, part, lambda *a: library.eval(arena.handle, *a)))
            losses.append(self._loss())
            if library.correct_output() != NONE:
                right = int(self._results[library.correct_output()].reshape(-1)[0])
                correct = right + (correct or 0)
        return losses, correct, faults

    @staticmethod
    def _checked(result, faults: list):
        for message in faults:
            if message is not None:
                error = errors.DataFault(message)
                error.outputs = result
                raise error
        return result

    # ---- parameters ----

    def _get(self, number: int, tensor):
        kind = numpy.uint16 if tensor.storage == BF16 else tensor.dtype
        array = numpy.empty(tensor.shape, kind)
        code = self._library.parameter_get(
            self._arena.handle, number, address(array), self._arena.failure
        )
        if code != OK:
            raise errors.RunError(self._library.explain(self._arena.failure))
        is_narrow = tensor.storage == BF16 and tensor.dtype == numpy.float32
        return _widen(array) if is_narrow else array.view(tensor.dtype)

    def _set(self, number: int, tensor, array):
        if tensor.storage == BF16 and tensor.dtype == numpy.float32:
            array = _narrow(array)
        code = self._library.parameter_set(
            self._arena.handle, number, address(array), self._arena.failure
        )
        if code != OK:
            raise errors.RunError(self._library.explain(self._arena.failure))

    def _is_state(self, name: str) -> bool:
        """Whether the name is that of state of the optimizer or of the loss scale."""
        name = name[: -len("/absmax")] if name.endswith("/absmax") else name
        base, _, kind = name.rpartition("/")
        is_scale = base == "loss" and kind in ("scale", "growth_tracker", "steps")
        return is_scale or (kind in _STATES and base in self._parameters)

    def parameters(self, with_state: bool = False) -> dict:
        """Copies of all parameters by name; with_state=True adds the optimizer's state."""
        return self._lane.run(self._copies, with_state)

    def _copies(self, arena, with_state: bool) -> dict:
        return {
            name: self._get(number, tensor)
            for name, (number, tensor) in self._parameters.items()
            if with_state or not self._is_state(name)
        }

    def set_parameters(self, arrays: dict):
        """Sets parameters, or state, by name; the others stay."""
        self._lane.run(self._take, self._check_parameters(arrays))

    def _check_parameters(self, arrays: dict) -> list:
        checked = []
        for name, array in arrays.items():
            if self._is_frozen(name):
                raise errors.InvalidModel(
                    f"{name!r} is frozen (freeze=), a constant of this trainer: write it into the "
                    "model, and compile that; checkpoints hold what is trained alone"
                )
            if name not in self._parameters:
                raise errors.InvalidModel(f"this training has no parameter {name!r}")
            number, tensor = self._parameters[name]
            if isinstance(array, numpy.ma.MaskedArray):
                refuse_kind(f"parameter {name!r}", tensor, array)
            array = numpy.asarray(plain(array))
            if array.dtype not in tensor.dtypes or array.shape != tensor.shape:
                raise errors.InvalidModel(
                    f"parameter {name!r}: expected {tensor.dtype} of shape {tensor.shape}, not "
                    f"{array.dtype} of shape {array.shape}"
                )
            self._check_numbers(name, tensor, array)
            checked.append((number, tensor, numpy.ascontiguousarray(array)))
        return checked

    def _is_frozen(self, name: str) -> bool:
        """Whether a pattern of freeze, in which * is any text and ? a letter, matches the name."""
        if name in self._parameters:
            return False
        for line in (self._library.frozen() or b"").decode().splitlines():
            pattern = re.escape(line).replace(r"\*", ".*").replace(r"\?", ".")
            if re.fullmatch(pattern, name, re.DOTALL):
                return True
        return False

    @staticmethod
    def _check_numbers(name: str, tensor, array):
        """Refuses numbers from which no training can continue."""
        is_float = array.dtype.kind == "f"
        what = None
        if is_float and not numpy.isfinite(array).all():
            what = "a number that is not finite"
        elif is_float and tensor.is_squares and (array < 0).any():
            what = "a number below 0, which none of its squares is"
        elif name == "loss/scale" and not array > 0:
            what = "no loss scale: it is 0 or less"
        if what is not None:
            raise errors.InvalidModel(f"parameter {name!r} holds {what}")

    def _take(self, arena, checked: list, state=None):
        """Takes parameters, and with them the state of the training: (step, rate, seed, order,
        shift)."""
        for number, tensor, array in checked:
            self._set(number, tensor, array)
        if state is not None:
            self._state.step, self._state.learning_rate, self._state.seed = state[:3]
            self._order, self._order_shift = state[3:]
            self._state.micro_batch = 0
            self._announced_step = None

    # ---- checkpoints ----

    def _entries(self, arena) -> dict:
        library = self._library
        entries = self._copies(arena, with_state=True)
        taken = entries.keys() & {"step", "learning_rate", "generator", "optimizer", "order_step"}
        if taken:
            raise errors.Unsupported(
                f"a parameter is called {min(taken)!r}, as what a checkpoint has beside them: "
                "rename it in the model"
            )
        entries["step"] = numpy.int64(self._state.step)
        entries["learning_rate"] = numpy.float64(self._state.learning_rate)
        flags, count = self._order
        entries["generator"] = numpy.array(
            [self._state.seed, flags, count, self.batch_size], numpy.uint64
        )
        if self._order_shift != 0:
            entries["order_step"] = numpy.int64(self._state.step + self._order_shift)
        entries["optimizer"] = _text_entry(library.optimizer(), _OPTIMIZER_BYTES)
        if library.lora_alpha() > 0:
            entries["lora_alpha"] = numpy.float64(library.lora_alpha())
            if library.quantize() is not None:
                entries["quantize"] = _text_entry(library.quantize(), _QUANTIZE_BYTES)
        return entries

    def save(self, path):
        """Writes a checkpoint, an .npz that trainers of the command line write and take too:
        parameters, state, step, learning rate and seed."""
        entries = self._lane.run(self._entries)
        for name, array in entries.items():
            if array.dtype.kind == "f" and not numpy.isfinite(array).all():
                raise errors.RunError(f"{name!r} is not finite: no checkpoint is written")
        with _files.written(path) as file:
            _files.write_npz(file, entries)

    def load(self, path, parameters_only: bool = False):
        """Continues from a checkpoint, bit for bit; with batches of another size, after the samples
        that its epoch has taken. With parameters_only=True it takes the parameters and leaves
        state, step and rate. A file that does not fit changes nothing."""
        entries = _read_npz(path)
        wanted = [n for n in self._parameters if not (parameters_only and self._is_state(n))]
        missing = [name for name in wanted if name not in entries]
        if missing:
            raise errors.InvalidModel(
                f"{os.fspath(path)}: has no {missing[0]!r}; it is of another model, or of another "
                "optimizer: parameters_only=True takes the parameters alone"
            )
        self._check_factors(entries, path)
        if parameters_only:
            self.set_parameters({name: entries[name] for name in wanted})
            return
        optimizer = _text_of(_entry(entries, "optimizer", path, numpy.uint8))
        if optimizer != self.optimizer:
            raise errors.InvalidModel(
                f"{os.fspath(path)}: was written by a training with optimizer {optimizer}, this "
                f"one has {self.optimizer}; parameters_only=True takes the parameters alone"
            )
        step = int(_entry(entries, "step", path, numpy.int64))
        name = "order_step" if "order_step" in entries else "step"
        at = int(_entry(entries, name, path, numpy.int64))
        rate = float(_entry(entries, "learning_rate", path, numpy.float64))
        generator = _entry(entries, "generator", path, numpy.uint64)
        numbers = [int(number) for number in generator.reshape(-1)]
        is_sound = 0 <= step and 0 <= at and 0 <= rate < float("inf") and generator.shape == (4,)
        if not is_sound or numbers[0] >= 1 << 53 or numbers[1] > _SHUFFLES | _PADS:
            raise errors.InvalidModel(
                f"{os.fspath(path)}: 'step', 'learning_rate' or 'generator' holds nonsense"
            )
        seed, flags, count, batch = numbers
        if batch != self.batch_size and 0 < batch <= count and self.batch_size <= count:
            filled = bool(flags & _PADS)
            epoch, behind = divmod(at, count // batch + (filled and count % batch != 0))
            steps = count // self.batch_size + (filled and count % self.batch_size != 0)
            at = epoch * steps + min(behind * batch // self.batch_size, steps)
        place = ((flags, count), at - step) if count >= self.batch_size else ((0, 0), 0)
        checked = self._check_parameters({name: entries[name] for name in wanted})
        self._lane.run(self._take, checked, (step, rate, seed, *place))

    def _check_factors(self, entries: dict, path):
        """Checks that factors have the scale of the file's, and weights of the same number of
        bits."""
        alpha, quantize = self._library.lora_alpha(), self._library.quantize() or b""
        if alpha <= 0:
            return
        theirs = float(_entry(entries, "lora_alpha", path, numpy.float64))
        lines = _text_of(entries.get("quantize", numpy.zeros(0, numpy.uint8)))
        for name, mine, other in (
            ("lora_alpha", alpha, theirs),
            ("quantize", quantize.decode(), lines),
        ):
            if mine != other:
                raise errors.InvalidModel(
                    f"{os.fspath(path)}: was written by a training with {name} {other!r}, this one "
                    f"has {mine!r}"
                )

    def export(self, path, model=None, apart: bool = False, training_mode: bool = False):
        """Writes the model with the parameters as they are now. `model` is the ONNX model that was
        compiled, which a trainer from ullage.load needs; apart=True keeps factors of lora apart
        from their weights. The result computes as in inference; training_mode=True leaves a model
        in training mode as it is."""
        model = self._model if model is None else model
        if model is None:
            raise errors.UsageError("export: this trainer was loaded; give the model it is of")
        with _program.folder() as folder:
            checkpoint = os.path.join(folder, "checkpoint.npz")
            self.save(checkpoint)
            file = _options.model_file(model, folder)
            words = ["--apart"] * apart + ["--training-mode"] * training_mode
            _program.run(
                ["export", file, checkpoint, f"--out={_files.plain(path)}", *words], folder
            )


class _Compiled:
    """A library with its plan."""

    def __init__(self, library: Library):
        self.loaded = library
        self.plan = None


def _text_entry(text: bytes, size: int):
    return numpy.frombuffer(text.ljust(size, b"\0")[:size], numpy.uint8)


def _text_of(array) -> str:
    return array.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def _number(name: str, value, end, expected: str):
    """A number from 0 up to, but not including, `end`."""
    try:
        if not isinstance(value, str) and 0 <= float(value) < end:
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    kind = TypeError if isinstance(value, str) or value is None else ValueError
    raise kind(f"{name}: expected {expected} of at least 0, not {value!r}")


def _read_npz(path) -> dict:
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise errors.InvalidModel(f"{os.fspath(path)}: no checkpoint: it is no .npz")
            file.seek(0)
            with numpy.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except errors.Error:
        raise
    except OSError as error:
        raise errors.FileError(f"{os.fspath(path)}: {error.strerror or error}") from error
    except Exception as error:  # of any kind: zipfile, zlib or numpy read a damaged file
        raise errors.InvalidModel(f"{os.fspath(path)}: no checkpoint: {error}") from error


def _entry(entries: dict, name: str, path, kind):
    if name not in entries or entries[name].dtype != kind:
        raise errors.InvalidModel(f"{os.fspath(path)}: has no {name!r}, as a checkpoint has")
    return entries[name]
