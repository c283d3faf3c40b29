# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m ullage, and the script `ullage` of the package."""

import os
import sys

from . import _program, errors

_MARK = "ULLAGE_BY_PYTHON"


def main():
    try:
        path = _program.program()
        if os.environ.get(_MARK) == path:
            raise errors.UsageError(f"{path} is this script: $ULLAGE has to name the program")
    except errors.Error as error:
        print(f"ullage: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.environ[_MARK] = path
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
