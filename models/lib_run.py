# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a model, and onnxruntime's answer to them."""

import numpy as np
from onnx import helper


def random_inputs(model, seed, shapes=None, ramp=False):
    """{name: array} for every graph input that is no initializer.

    Floats are normal; integers are drawn below the bound that the model's metadata names
    ("upper:INPUT", written by models/make.py), else from 0 and 1; booleans are mostly true.
    shapes gives whole shapes by input; a dimension still unknown is 1. ramp fills every float
    input with i/n for its n elements in order, as the expected outputs of ONNX's light models want.
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
        shape = (shapes or {}).get(value.name)
        if shape is None:
            shape = [max(1, dim.dim_value) for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            array = rng.random(shape) < 0.9
        elif np.issubdtype(dtype, np.integer):
            array = rng.integers(0, upper.get("upper:" + value.name, 2), shape)
        elif ramp:
            array = (np.arange(np.prod(shape)) / np.float64(np.prod(shape))).reshape(shape)
        else:
            array = rng.standard_normal(shape)
        inputs[value.name] = np.asarray(array, dtype)
    return inputs


def open_shapes(model):
    """Names of inputs that have a dimension without a positive number: they need --shape."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        value.name
        for value in model.graph.input
        if value.name not in weights
        and any(dim.dim_value <= 0 for dim in value.type.tensor_type.shape.dim)
    ]


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
