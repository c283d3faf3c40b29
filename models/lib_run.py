"""Random inputs for a model, and onnxruntime's answer to them."""

import numpy as np
import onnx
from onnx import helper


def random_inputs(model, seed, dims=None):
    """{name: array} for every graph input that is no initializer.

    Floats are normal; integers are drawn below the bound that the model's metadata names
    ("upper:INPUT", written by models/make.py), else from 0 and 1; booleans are mostly true.
    dims gives values of symbolic dimensions; one without a value is 1.
    """
    rng = np.random.default_rng(seed)
    upper = {entry.key: int(entry.value) for entry in model.metadata_props
             if entry.key.startswith("upper:")}  # fmt: skip
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [
            dim.dim_value if dim.HasField("dim_value") else (dims or {}).get(dim.dim_param, 1)
            for dim in tensor.shape.dim
        ]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            array = rng.random(shape) < 0.9
        elif np.issubdtype(dtype, np.integer):
            array = rng.integers(0, upper.get("upper:" + value.name, 2), shape)
        else:
            array = rng.standard_normal(shape)
        inputs[value.name] = np.asarray(array, dtype)
    return inputs


def reference(path, inputs):
    """onnxruntime's outputs, {name: array}, with its graph optimizations off: the graph as written,
    so that rounding differs from the standard's own order of operations as little as possible."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def load_structure(path):
    """The model without its external weights."""
    return onnx.load(path, load_external_data=False)
