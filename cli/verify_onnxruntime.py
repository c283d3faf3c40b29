# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a model and onnxruntime's outputs, in ONNX's test data layout.

usage: verify_onnxruntime.py MODEL.onnx DIR [--dim=NAME=N] [--shape=INPUT=N,N] [--const=INPUT=FILE]
                             [--output=NAME]
The outputs are those of the graph as the file has it: onnxruntime's own optimisations change what a
quantized model computes. Where they do, the last line printed says by how much.
Exit code 3: onnx or onnxruntime is not installed. 4: a size is missing. 5: onnxruntime cannot run
the model at all. 6: it cannot on random inputs. What is printed says why.
"""

import os
import sys

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError:
    sys.exit(3)

NO_SIZE, NO_KERNELS, NO_RUN = 4, 5, 6
NAMES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
PLAIN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
DEFAULT = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def give_up(code, reason):
    print(reason)
    sys.exit(code)


def split(option):
    name, _, value = option.partition("=")[2].rpartition("=")
    return name, value


def options(kind):
    return dict(split(o) for o in sys.argv[3:] if o.startswith(f"--{kind}="))


def cut(path):
    """The model, with the values that --output names as its outputs."""
    names = [o.partition("=")[2] for o in sys.argv[3:] if o.startswith("--output=")]
    if not names:
        return path
    model = onnx.load(path, load_external_data=False) # bytes of a model end at 2 GiB: see open_session
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model.SerializeToString()


def read_file(path):
    try:
        if path.endswith(".npy"):
            return numpy.load(path)
        with open(path, "rb") as file:
            return numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
    except Exception as error: # who loads the model says what is wrong with the file
        give_up(NO_KERNELS, f"{path}: {error}")


def random_array(rng, dtype, shape, end):
    """Integers are from 0 to below `end`."""
    if dtype == "tensor(bool)":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0, end, shape).astype(dtype[7:-1])
    return rng.standard_normal(shape).astype(NAMES[dtype])


def open_session(model, level):
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = level
    settings.log_severity_level = 4
    if isinstance(model, bytes): # a model that was cut has no folder of its own
        settings.add_session_config_entry("session.model_external_initializers_file_folder_path",
                                          os.path.dirname(os.path.abspath(sys.argv[1])))
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def open_plain(model):
    try:
        session = open_session(model, PLAIN)
    except Exception as error: # the runtime has one class for each kind of failure
        give_up(NO_KERNELS, error)
    for port in session.get_inputs():
        if "int" not in port.type and port.type not in NAMES and port.type != "tensor(bool)":
            give_up(NO_KERNELS, f"input {port.name} is a {port.type}, which it takes from no numpy array")
    return session


def list_ports(session):
    dims, shapes, consts = options("dim"), options("shape"), options("const")
    ports = []
    for port in session.get_inputs():
        shape = [int(dims[d]) if isinstance(d, str) and d in dims else d for d in port.shape]
        if port.name in shapes:
            shape = [int(n) for n in shapes[port.name].split(",")]
        if port.name not in consts and not all(isinstance(d, int) for d in shape):
            give_up(NO_SIZE,
                    f"input {port.name}: give a size for each of {port.shape} (--dim, --shape)")
        ports.append((port, shape))
    return ports


def run_random(session, ports):
    """The feeds, and what the session makes of them."""
    fixed = {name: read_file(path) for name, path in options("const").items()}
    # Integers are often indices (words, token types) of which only the model knows how many it has.
    for end in (10, 2, 1):
        rng = numpy.random.default_rng(1)
        feeds = {port.name: fixed[port.name] if port.name in fixed else
                 random_array(rng, port.type, shape, end) for port, shape in ports}
        try:
            return feeds, session.run(None, feeds)
        except Exception as error:
            if end == 1 or not any("int" in port.type for port, _ in ports):
                give_up(NO_RUN, error)
    return None


def apart(want, got):
    """The norm error of floats; 0 of others."""
    if not isinstance(want, numpy.ndarray) or want.dtype.kind != "f":
        return 0.0
    want, got = want.astype("float64"), got.astype("float64")
    return numpy.linalg.norm(got - want) / max(numpy.linalg.norm(want), 1e-30)


def move(array):
    """By about as little as f32 rounds."""
    return (array * (1 + 1e-5)).astype(array.dtype) if array.dtype.kind == "f" else array


def note_optimisations(model, directory, session, feeds, plain):
    """A line where the runtime's default is another function than the file. In noise.txt how far that
    is from it, and how far inputs that are moved a little take the outputs."""
    try:
        optimised = open_session(model, DEFAULT).run(None, feeds)
    except Exception as error:
        print(f"(with its own optimisations onnxruntime fails: {error})")
        return
    errors = [apart(want, got) for want, got in zip(plain, optimised)]
    for port, want, got in zip(session.get_outputs(), plain, optimised):
        error = apart(want, got)
        if error > 1e-4:
            print(f"(with its own optimisations onnxruntime's {port.name} is elsewhere, by a norm "
                  f"error of {error:.2g})")
    moved = session.run(None, {name: move(array) for name, array in feeds.items()})
    errors += [apart(want, got) for want, got in zip(plain, moved)]
    with open(f"{directory}/noise.txt", "w") as file:
        file.writelines(f"{error:g}\n" for error in errors)


def save(directory, kind, number, name, array):
    tensor = numpy_helper.from_array(numpy.asarray(array, order="C"), name)
    onnx.save_tensor(tensor, f"{directory}/{kind}_{number}.pb")


def main():
    model, directory = cut(sys.argv[1]), sys.argv[2]
    session = open_plain(model)
    ports = list_ports(session)
    feeds, outputs = run_random(session, ports)
    open_inputs = [name for name in feeds if name not in options("const")]
    for number, name in enumerate(open_inputs):
        save(directory, "input", number, name, feeds[name])
    for number, (port, array) in enumerate(zip(session.get_outputs(), outputs)):
        save(directory, "output", number, port.name, array)
    print(f"onnxruntime {onnxruntime.__version__}, without optimisations")
    note_optimisations(model, directory, session, feeds, outputs)


main()
