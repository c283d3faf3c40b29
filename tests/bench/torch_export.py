#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a network of torchvision with random weights as torch's own exporters do.

    torch_export.py NAME [traced|captured] FILE.onnx

`traced` is the exporter by TorchScript, `captured` that by torch.export (it needs onnxscript).
Run by a Python that has torch and torchvision; tests/bench/latency looks for one. Exit 77: it has
not what is needed.
"""

import sys

try:
    import torch
    import torchvision
except ImportError as error:
    print(f"torch_export.py: {error}", file=sys.stderr)
    sys.exit(77)


def main():
    name, how, path = sys.argv[1:4]
    torch.manual_seed(1)
    network = getattr(torchvision.models, name)(weights=None).eval()
    picture = torch.randn(1, 3, 224, 224)
    names = {"input_names": ["input"], "output_names": ["output"]}
    newer = "dynamo" in torch.onnx.export.__code__.co_varnames
    if how == "captured" and not newer:
        print(f"torch_export.py: torch {torch.__version__} has no torch.onnx.export(dynamo=True)",
              file=sys.stderr)
        sys.exit(77)
    with torch.no_grad():
        if how == "captured":
            program = torch.onnx.export(network, (picture,), dynamo=True, verbose=False, **names)
            program.save(path, external_data=False)
            return
        traced = {"dynamo": False} if newer else {}
        torch.onnx.export(network, (picture,), path, opset_version=16, **names, **traced)


if __name__ == "__main__":
    main()
