# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a model and onnxruntime's outputs, in ONNX's test data layout.

usage: verify_onnxruntime.py MODEL.onnx DIR [--dim=NAME=N] [--shape=INPUT=N,N] [--const=INPUT=FILE]
                             [--output=NAME] [--keep-defaults] [--precision=fp16]
The outputs are those of the graph as the file has it: onnxruntime's own optimisations change what a
quantized model computes. Where they do, a printed line says by how much. Inputs are what their names
and the operators that take them suggest (masks, lengths, positions, indices of a table,
probabilities), else random numbers; where an output is all zero, other numbers are tried.
Exit code 3: onnx or onnxruntime is not installed. 4: a size is missing. 5: onnxruntime cannot run
the model at all. 6: it cannot run it on random inputs. 7: a file in DIR cannot be written. The printed text says why.
"""

import contextlib
import os
import re
import sys

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError:
    sys.exit(3)

NO_SIZE, NO_KERNELS, NO_RUN, NO_ROOM = 4, 5, 6, 7
NAMES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
DEFAULT = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
# Distributions of floats, which are tried in turn while an output is all zero.
DRAWS = (("normal", 1), ("from 0 to 1", 1), ("normal", 10), ("from 0 to 255", 255))
F16_LARGEST = 65504
MOST_VALUES = 3000 # values of a graph that are compared one by one


notes = [] # lines that are printed after the runtime's version


def give_up(code, reason):
    print(reason)
    sys.exit(code)


@contextlib.contextmanager
def writing(path):
    try:
        yield path
    except OSError as error:
        give_up(NO_ROOM, f"{path}: cannot write: {error.strerror}")


def split(option):
    name, _, value = option.partition("=")[2].rpartition("=")
    return name, value


def options(kind):
    return dict(split(o) for o in sys.argv[3:] if o.startswith(f"--{kind}="))


def open_model(path):
    try:
        return onnx.load(path, load_external_data=False) # bytes of a model end at 2 GiB: see open_session
    except Exception as error: # of protobuf
        return give_up(NO_KERNELS, error)


def cut(path, model):
    """The model to run, and the names of the program's outputs: the values that --output names, and the
    operands of ZipMap, which makes maps from names."""
    names = [o.partition("=")[2] for o in sys.argv[3:] if o.startswith("--output=")]
    outputs = names or [port.name for port in model.graph.output]
    maps = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "ZipMap"}
    left_out = [name for name in outputs if name in maps]
    if not names and not left_out:
        return path, outputs
    for name in left_out:
        notes.append(f"(ZipMap is left out: {name} is compared as the tensor of scores that it names)")
    del model.graph.output[:]
    made = [onnx.ValueInfoProto(name=maps.get(name, name)) for name in outputs]
    model.graph.output.extend(made)
    nodes = [node for node in model.graph.node if node.op_type != "ZipMap"]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString(), outputs


def read_file(path):
    try:
        if path.endswith(".npy"):
            return numpy.load(path)
        with open(path, "rb") as file:
            return numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
    except Exception as error: # loading the model reports what is wrong with the file
        give_up(NO_KERNELS, f"{path}: {error}")


# ---- The meaning of an input ----

SAME_ELEMENTS = {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Flatten", "Expand"}
# Inputs that are numbers of steps: at most the size of that axis of that input.
LENGTHS = {("LSTM", 4): (0, 0), ("GRU", 4): (0, 0), ("RNN", 4): (0, 0), ("Attention", 6): (1, -2),
           ("ReverseSequence", 1): (0, None)}
# Inputs that are indices of rows: which input is the table.
TABLES = {("Gather", 1): 0, ("EmbedLayerNormalization", 0): 2, ("EmbedLayerNormalization", 1): 4}


class Uses:
    """The operators that take an input, directly or after operators that only move its elements."""

    def __init__(self, model):
        self.takers = {}
        self.shapes = {t.name: list(t.dims) for t in model.graph.initializer}
        for node in model.graph.node:
            for index, name in enumerate(node.input):
                self.takers.setdefault(name, []).append((node, index))
        for port in model.graph.input:
            self.shapes.setdefault(port.name, None)

    def of(self, name, seen=None):
        seen = seen if seen is not None else set()
        for node, index in self.takers.get(name, ()):
            yield node, index
            if node.op_type in SAME_ELEMENTS and index == 0 and node.output[0] not in seen:
                seen.add(node.output[0])
                yield from self.of(node.output[0], seen)

    def rows(self, name):
        """The rows of the smallest table that it has indices of; None: no such table is known."""
        found = []
        for node, index in self.of(name):
            table = TABLES.get((node.op_type, index))
            shape = self.shapes.get(node.input[table]) if table is not None else None
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            if shape:
                found.append(shape[axis])
        return min(found, default=None)


def is_like(name, *words):
    """Whether one of the words is in the name, whose words are separated by _ . / or by capitals."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name)
    return any(part.lower() in words for part in parts)


def is_length(name, uses):
    return (is_like(name, "len", "lens", "length", "lengths", "seqlen", "seqlens")
            or any((node.op_type, index) in LENGTHS for node, index in uses.of(name)))


def least_size(name, shapes):
    """The upper limit of a length: the least size after the first axis of any other input."""
    return min((n for other, shape in shapes.items() if other != name
                for n in shape[1:] if n > 0), default=1)


def length_limit(name, uses, shapes):
    limits = []
    for node, index in uses.of(name):
        operand, axis = LENGTHS.get((node.op_type, index), (0, None))
        shape = shapes.get(node.input[operand]) if axis is not None else None
        if shape:
            limits.append(shape[axis])
    return min(limits, default=least_size(name, shapes))


def known_array(port, shape, uses, shapes):
    """The array that names and operators suggest; None: they suggest none."""
    name, is_integer, is_float = port.name, "int" in port.type, port.type in NAMES
    dtype = NAMES.get(port.type, port.type[7:-1])
    rows = uses.rows(name) if is_integer else None
    if is_like(name, "mask", "masks") and (not is_float or len(shape) < 4 or is_like(name, "attention", "attn")):
        return numpy.ones(shape, "bool" if port.type == "tensor(bool)" else dtype)
    if is_integer and any((n.op_type, i) == ("GroupQueryAttention", 5) for n, i in uses.of(name)):
        return numpy.full(shape, least_size(name, shapes) - 1, dtype)
    if is_integer and is_length(name, uses):
        return numpy.full(shape, length_limit(name, uses, shapes), dtype)
    if is_integer and is_like(name, "position", "positions") and shape:
        return numpy.broadcast_to(numpy.arange(shape[-1]) % (rows or shape[-1]), shape).astype(dtype)
    return None


def is_probability(name, uses):
    return (is_like(name, "prob", "probs", "probability", "probabilities", "ratio", "threshold", "score", "scores")
            or any((n.op_type, i) in {("Bernoulli", 0), ("Dropout", 1)} for n, i in uses.of(name)))


def random_array(rng, port, shape, uses, draw, end):
    """Integers are from 0 to below `end`, or to the end of the table that they are indices of."""
    if port.type == "tensor(bool)":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in port.type:
        rows = uses.rows(port.name)
        if is_like(port.name, "timestep", "timesteps"):
            rows = rows or 1000
        return rng.integers(0, rows or end, shape).astype(port.type[7:-1])
    kind, scale = draw
    if kind != "normal" or is_probability(port.name, uses):
        scale = 1 if is_probability(port.name, uses) else scale
        return numpy.asarray(rng.random(shape) * scale, NAMES[port.type])
    return numpy.asarray(rng.standard_normal(shape) * scale, NAMES[port.type]) # of rank 0 too


# ---- Running ----

def open_session(model, level):
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = level
    settings.log_severity_level = 4
    if isinstance(model, bytes): # a model that was cut has no folder of its own
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path",
                                          os.path.dirname(os.path.abspath(sys.argv[1])))
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def element_type(port):
    """The type of a tensor, or of a sequence's tensors: tensor(float)."""
    return port.type[4:-1] if port.type.startswith("seq(") else port.type


def is_array(kind):
    return "int" in kind and "4" not in kind.replace("64", "") or kind in NAMES or kind == "tensor(bool)"


def inputs_of(session):
    ports = list(session.get_inputs())
    if "--keep-defaults" in sys.argv:
        ports += session.get_overridable_initializers()
    return ports


def open_plain(model):
    try:
        session = open_session(model, PLAIN)
    except Exception as error: # the runtime has one class for each kind of failure
        give_up(NO_KERNELS, error)
    for port in inputs_of(session):
        if not is_array(element_type(port)):
            give_up(NO_KERNELS, f"input {port.name} is a {port.type}, which it takes from no numpy array")
    return session


class Port:
    """An input of the program: a tensor, or one of a sequence's."""

    def __init__(self, name, kind):
        self.name, self.type = name, kind


def list_ports(session, model):
    """The program's inputs, each with its shape."""
    dims, shapes, consts = options("dim"), options("shape"), options("const")
    defaults = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    ports = []
    for port in inputs_of(session):
        if port.type.startswith("seq("):
            count = 0
            while (item := f"{port.name}[{count}]") in shapes or item in consts:
                shape = [int(n) for n in shapes[item].split(",")] if item in shapes else read_file(consts[item]).shape
                ports.append((Port(item, element_type(port)), list(shape)))
                count += 1
            if count == 0:
                give_up(NO_SIZE, f"input {port.name} is a sequence: give each of its tensors a shape "
                                 f"(--shape {port.name}[0]=N,N)")
            continue
        shape = [int(dims[d]) if isinstance(d, str) and d in dims else d for d in port.shape]
        if port.name in shapes:
            shape = [int(n) for n in shapes[port.name].split(",")]
        elif port.name in defaults:
            shape = defaults[port.name]
        if port.name not in consts and not all(isinstance(d, int) for d in shape):
            give_up(NO_SIZE,
                    f"input {port.name}: give a size for each of {port.shape} (--dim, --shape)")
        ports.append((port, shape))
    return ports


def feeds_of(session, arrays):
    """The arrays in the form that the session takes: sequences are lists."""
    feeds = {}
    for port in inputs_of(session):
        if port.type.startswith("seq("):
            items = (f"{port.name}[{k}]" for k in range(len(arrays)))
            feeds[port.name] = [arrays[item] for item in items if item in arrays]
        else:
            feeds[port.name] = arrays[port.name]
    return feeds


def run(session, arrays):
    return session.run(None, feeds_of(session, arrays))


def flatten(names, outputs):
    """Makes an output of each tensor of a sequence, as in the program."""
    pairs = []
    for name, array in zip(names, outputs):
        items = [(f"{name}[{k}]", item) for k, item in enumerate(array)] if isinstance(array, list) else None
        pairs += items if items is not None else [(name, array)]
    return pairs


def make_arrays(model, ports, draw, end):
    fixed = {name: read_file(path) for name, path in options("const").items()}
    defaults = {t.name: t for t in model.graph.initializer}
    uses, shapes, arrays = Uses(model), {port.name: shape for port, shape in ports}, {}
    rng = numpy.random.default_rng(1)
    for port, shape in ports:
        if port.name in fixed:
            arrays[port.name] = fixed[port.name]
        elif port.name in defaults and port.type not in NAMES:
            arrays[port.name] = numpy_helper.to_array(defaults[port.name])
        else:
            known = known_array(port, shape, uses, shapes)
            arrays[port.name] = random_array(rng, port, shape, uses, draw, end) if known is None else known
    return arrays


def try_draw(session, model, ports, draw):
    """The arrays, the outputs of the session, and the reason where there are none."""
    # Integers are often indices (words, token types); only the model knows how many of them there are.
    for end in (10, 2, 1):
        arrays = make_arrays(model, ports, draw, end)
        try:
            return arrays, run(session, arrays), None
        except Exception as error:
            if end == 1 or not any("int" in port.type for port, _ in ports):
                return arrays, None, error
    return None


def count_zeros(outputs):
    return sum(isinstance(array, numpy.ndarray) and array.size > 1 and not array.any() for array in outputs)


def run_random(session, model, ports, names):
    """The arrays with the fewest outputs that are all zero, and the outputs of the session."""
    best = None
    for draw in DRAWS:
        arrays, outputs, error = try_draw(session, model, ports, draw)
        if best is None and outputs is None:
            give_up(NO_RUN, error)
        if outputs is None:
            continue
        if best is None or count_zeros(outputs) < count_zeros(best[1]):
            best = arrays, outputs
        if count_zeros(best[1]) == 0 or not any(port.type in NAMES for port, _ in ports):
            break
    for name, array in zip(names, best[1]):
        if isinstance(array, list) and all(isinstance(item, numpy.ndarray) for item in array):
            continue
        if not isinstance(array, numpy.ndarray):
            give_up(NO_KERNELS, f"output {name} is no tensor")
        if count_zeros([array]):
            notes.append(f"(output {name} is all zero on every random input that was tried: that it is the "
                         "same says little; give test data)")
    return best


# ---- How much onnxruntime differs from itself ----

def apart(want, got):
    """The norm error of floats; 0 for other types."""
    if not isinstance(want, numpy.ndarray) or want.dtype.kind != "f":
        return 0.0
    want, got = want.astype("float64"), got.astype("float64")
    return numpy.linalg.norm(got - want) / max(numpy.linalg.norm(want), 1e-30)


def move(array, amount, rng=None):
    """Moves each element by a fraction of it, or randomly up or down by that fraction."""
    signs = 1 if rng is None else rng.choice([-1.0, 1.0], array.shape)
    return numpy.asarray(array * (1 + amount * signs), array.dtype) if array.dtype.kind == "f" else array


def note_noise(model, directory, session, arrays, plain, names):
    """Notes where the runtime's default computes another function than the file. noise.txt gets a line
    for each output: how much the default differs, and how much it changes when inputs are moved a
    little, or by what f32 rounds."""
    optimised = plain
    try:
        optimised = run(open_session(model, DEFAULT), arrays)
    except Exception as error:
        notes.append(f"(with its own optimisations onnxruntime fails: {error})")
    rng = numpy.random.default_rng(2)
    moved = run(session, {name: move(array, 1e-5) for name, array in arrays.items()})
    rounded = run(session, {name: move(array, 2.0**-23, rng) for name, array in arrays.items()})
    with writing(f"{directory}/noise.txt") as path, open(path, "w") as file:
        runs = [flatten(names, outputs) for outputs in (plain, optimised, moved, rounded)]
        for (name, want), *others in zip(*runs):
            errors = [apart(want, got) for _, got in others]
            if errors[0] > 1e-4:
                notes.append(f"(with its own optimisations onnxruntime's {name} is elsewhere, by a norm "
                             f"error of {errors[0]:.2g})")
            file.write(" ".join(f"{error:g}" for error in errors) + "\n")


def note_overflow(model, ports, proto):
    """With --precision=fp16, notes values that are too large for it, for pictures with numbers up to
    255 too."""
    values = [name for node in proto.graph.node for name in node.output if name]
    if "--precision=fp16" not in sys.argv or len(values) > MOST_VALUES:
        return
    proto = onnx.ModelProto.FromString(model if isinstance(model, bytes) else open(model, "rb").read())
    have = {port.name for port in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values if name not in have)
    try:
        session = open_session(proto.SerializeToString(), PLAIN)
    except Exception: # a value that is no tensor
        return
    pictures = any(len(shape) == 4 and port.type in NAMES for port, shape in ports)
    for draw in DRAWS[:1] + (DRAWS[3:] if pictures else ()):
        outputs = try_draw(session, proto, ports, draw)[1]
        if outputs is None:
            continue
        for port, array in zip(session.get_outputs(), outputs):
            if isinstance(array, numpy.ndarray) and array.dtype.kind == "f" and array.size:
                largest = numpy.abs(array[numpy.isfinite(array)]).max(initial=0)
                if largest > F16_LARGEST:
                    what = "random numbers" if draw[0] == "normal" else f"numbers {draw[0]}"
                    notes.append(f"(fp16 overflows: {port.name} is up to {largest:.3g} on {what}, and fp16 "
                                 f"ends at {F16_LARGEST}; --precision bf16 does not)")
                    return


def save(directory, kind, number, name, array):
    tensor = numpy_helper.from_array(numpy.asarray(array, order="C"), name)
    with writing(f"{directory}/{kind}_{number}.pb") as path:
        onnx.save_tensor(tensor, path)


def main():
    proto, directory = open_model(sys.argv[1]), sys.argv[2]
    model, names = cut(sys.argv[1], proto)
    session = open_plain(model)
    ports = list_ports(session, proto)
    arrays, outputs = run_random(session, proto, ports, names)
    open_inputs = [port.name for port, _ in ports if port.name not in options("const")]
    for number, name in enumerate(open_inputs):
        save(directory, "input", number, name, arrays[name])
    for number, (name, array) in enumerate(flatten(names, outputs)):
        save(directory, "output", number, name, array)
    note_noise(model, directory, session, arrays, outputs, names)
    note_overflow(model, ports, proto)
    print("\n".join([f"onnxruntime {onnxruntime.__version__}, without optimisations", *notes]))


try:
    main()
except Exception as failure: # of any kind: its text goes into a message
    give_up(NO_RUN, f"{type(failure).__name__}: {failure}")
