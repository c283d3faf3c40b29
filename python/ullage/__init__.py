# SPDX-License-Identifier: Apache-2.0
"""Ullage from Python: plan an ONNX model's memory, compile it, run it, train it.

    import ullage
    plan = ullage.plan("model.onnx", budget="64MiB", dims={"N": 1})
    model = ullage.compile("model.onnx", dims={"N": 1})
    y = model(x)

Every option of the command line is a keyword: --budget-of arena is budget_of="arena". The names
here load what they need on first use, so that importing costs nothing.
"""

from importlib import import_module as _import

_PLACES = {
    "plan": "_plan",
    "Plan": "_plan",
    "Sweep": "_plan",
    "compile": "_compile",
    "load": "_compile",
    "Model": "_model",
    "Tensor": "_library",
    "Trainer": "_trainer",
    "Evaluation": "_trainer",
    "options": "_options",
    "program": "_program",
    "Error": "errors",
    "UsageError": "errors",
    "InvalidModel": "errors",
    "Unsupported": "errors",
    "DoesNotFit": "errors",
    "FileError": "errors",
    "VerificationFailed": "errors",
    "CompilerFailed": "errors",
    "InternalError": "errors",
    "RunError": "errors",
    "DataFault": "errors",
}

__all__ = sorted(_PLACES)


def __getattr__(name):
    if name == "__version__":
        value = _import("._program", __name__).version()
    elif name in _PLACES:
        value = getattr(_import("." + _PLACES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return [*__all__, "__version__"]
