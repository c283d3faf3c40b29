# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m ullage, and the script `ullage` of the package."""

import os
import sys

from . import _program


def main():
    path = _program.program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
