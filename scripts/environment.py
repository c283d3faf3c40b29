# SPDX-License-Identifier: Apache-2.0
"""The Python environment of scripts/setup_python.sh, for scripts that any Python may have started.

    sys.path.insert(0, .../scripts)
    import environment

    environment.need("onnx")
"""

import importlib.util
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, "build", "venv")


def need(*modules):
    """Starts the script anew in the environment, which is made first, where one of the modules is
    missing. exit: 77 where PyPI is out of reach, that of setup_python.sh where it fails otherwise"""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    script = os.path.basename(sys.argv[0])
    if os.path.realpath(sys.prefix) == os.path.realpath(VENV):
        sys.exit(f"{script}: {sys.prefix} has no {', '.join(missing)}")
    made = subprocess.run([os.path.join(ROOT, "scripts", "setup_python.sh")], stdout=sys.stderr, check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    sys.stdout.flush()
    python = os.path.join(VENV, "bin", "python")
    os.execv(python, [python, os.path.abspath(sys.argv[0]), *sys.argv[1:]])
