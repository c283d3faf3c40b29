#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gets the trained text detection and recognition networks that the PyPI package
# rapidocr-onnxruntime ships (PP-OCRv4) and prints the folder that holds them.
# exit: 0, 77 when PyPI is out of reach, 1 anything else
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=1.4.4
folder=$root/build/rapidocr-$version/rapidocr_onnxruntime/models
if [ ! -d "$folder" ]; then
    "$root/scripts/setup_python.sh" --into "$root/build/rapidocr-$version" "rapidocr-onnxruntime==$version" >&2
fi
echo "$folder"
