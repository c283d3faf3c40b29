#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a Python script in the environment of scripts/setup_python.sh, made first where it is not
# there. exit: that of the script, 77 when PyPI is out of reach
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
"$root/scripts/setup_python.sh" >&2
exec "$root/build/venv/bin/python" "$@"
