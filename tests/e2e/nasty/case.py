# SPDX-License-Identifier: Apache-2.0
"""How a model is written down: its text or a function that builds it, under its name in MODELS."""

import numpy as np
from onnx import numpy_helper, parser

MODELS = {}


class Case:
    def __init__(self, model, inputs=None, tolerance=1e-5, outputs=None):
        self.model = model
        self.inputs = inputs or {}
        self.tolerance = tolerance
        self.outputs = outputs  # instead of the reference's


def text(name, body, inputs=None, opset=17, tolerance=1e-5, head="", outputs=None):
    """A model in ONNX's text form; `inputs` replaces random numbers, `outputs` the reference."""
    source = f'<ir_version: 8, opset_import: ["": {opset}{head}]> {body}'
    assert name not in MODELS, name
    MODELS[name] = lambda: Case(parser.parse_model(source), inputs, tolerance, outputs)


def built(function):
    assert function.__name__ not in MODELS, function.__name__
    MODELS[function.__name__] = function
    return function


def weighted(name, body, weights, inputs=None, opset=17, tolerance=1e-4):
    """As text(), and the named weights of these shapes (or arrays) are constants of the model."""
    source = f'<ir_version: 8, opset_import: ["": {opset}]> {body}'
    assert name not in MODELS, name

    def case():
        model = parser.parse_model(source)
        rng = np.random.default_rng(11)
        for weight, shape in weights.items():
            array = shape
            if not isinstance(shape, np.ndarray):
                scale = 1 / np.sqrt(max(1, np.prod(shape[1:])))
                array = np.asarray(rng.standard_normal(shape) * scale, np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, weight))
        return Case(model, inputs, tolerance)

    MODELS[name] = case
