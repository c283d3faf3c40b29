#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gets the trained text detection and recognition networks that the PyPI package
# rapidocr-onnxruntime ships (PP-OCRv4) and prints the folder that holds them.
# exit: 0, 77 when PyPI is out of reach
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=1.4.4
folder=$root/build/rapidocr-$version/rapidocr_onnxruntime/models
if [ ! -d "$folder" ]; then
    "$root/scripts/setup_python.sh" >&2 || exit $?
    part=$root/build/rapidocr-part
    rm -rf "$part"
    if ! "$root/build/venv/bin/python" -m pip install -q --disable-pip-version-check --retries 2 \
        --no-deps --target "$part" "rapidocr-onnxruntime==$version" >&2; then
        echo "fetch_ocr.sh: the package rapidocr-onnxruntime cannot be had" >&2
        exit 77
    fi
    mv "$part" "$root/build/rapidocr-$version"
fi
echo "$folder"
