"""Random inputs for a model and onnxruntime's outputs, in ONNX's test data layout.

usage: verify_onnxruntime.py MODEL.onnx DIR [--dim=NAME=N ...] [--shape=INPUT=N,N ...]
Exit code 3: onnx or onnxruntime is not installed. 4: a size is missing, as the last line says.
"""

import sys

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError:
    sys.exit(3)


def split(option):
    name, _, value = option.partition("=")[2].rpartition("=")
    return name, value


def random_array(rng, dtype, shape, most):
    """Integers are from 0 to below `most`."""
    if dtype == "tensor(bool)":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0, most, shape).astype(dtype[7:-1])
    name = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}
    return rng.standard_normal(shape).astype(name[dtype])


def main():
    model, directory = sys.argv[1:3]
    dims = dict(split(o) for o in sys.argv[3:] if o.startswith("--dim="))
    shapes = dict(split(o) for o in sys.argv[3:] if o.startswith("--shape="))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    ports = []
    for port in session.get_inputs():
        shape = [int(dims[d]) if isinstance(d, str) and d in dims else d for d in port.shape]
        if port.name in shapes:
            shape = [int(n) for n in shapes[port.name].split(",")]
        if not all(isinstance(d, int) for d in shape):
            print(f"input {port.name}: give a size for each of {port.shape} (--dim, --shape)")
            sys.exit(4)
        ports.append((port, shape))
    # Integers are often indices (words, token types) of which only the model knows how many it has.
    for most in (10, 2, 1):
        rng = numpy.random.default_rng(1)
        feeds = {port.name: random_array(rng, port.type, shape, most) for port, shape in ports}
        try:
            outputs = session.run(None, feeds)
            break
        except Exception:
            if most == 1 or not any("int" in port.type for port, _ in ports):
                raise
    for number, (port, _) in enumerate(ports):
        tensor = numpy_helper.from_array(numpy.asarray(feeds[port.name], order="C"), port.name)
        onnx.save_tensor(tensor, f"{directory}/input_{number}.pb")
    for number, (port, array) in enumerate(zip(session.get_outputs(), outputs)):
        tensor = numpy_helper.from_array(numpy.asarray(array, order="C"), port.name)
        onnx.save_tensor(tensor, f"{directory}/output_{number}.pb")


main()
