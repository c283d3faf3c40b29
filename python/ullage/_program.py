# SPDX-License-Identifier: Apache-2.0
"""The ullage program that comes with the package: its path, and a run of it.

Only that process reads, plans and compiles models, so a hostile model cannot hurt this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile

from . import errors

_ERROR = "ullage: error: "


def program() -> str:
    """The path of the program: $ULLAGE, the one of this package, or the first of $PATH."""
    named = os.environ.get("ULLAGE")
    if named:
        return named
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree", "bin", "ullage")
    found = own if os.access(own, os.X_OK) else shutil.which("ullage")
    if found is None:
        raise errors.FileError(
            "the program ullage is neither in this package nor in $PATH; $ULLAGE says where it is"
        )
    return found


def version() -> str:
    return run(["--version"])[0].split()[1]


@contextlib.contextmanager
def folder():
    """A temporary folder, which is removed with its files at the end of its `with`. FileError where
    there is no room for it, or for its files."""
    try:
        with tempfile.TemporaryDirectory(prefix="ullage.") as path:
            yield path
    except errors.Error:
        raise
    except OSError as error:
        what = os.path.dirname(error.filename or "") or "temporary files"
        raise errors.FileError(
            f"{what}: {error.strerror or error}; $TMPDIR says where temporary files go"
        ) from error


def _finish(command: list, environment: dict) -> tuple[int, str, str]:
    """Its exit code and what it prints. When interrupted, it ends itself and what it has
    started."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            text, said = process.communicate()
        except BaseException:
            process.terminate()
            try:
                process.wait(timeout=10)
            finally:
                process.kill()
            raise
        return process.returncode, text, said


_DIMENSIONS = """(from Python: dims={"NAME": SIZE}, shapes={"INPUT": (1, 3, 224, 224)})\n"""


def _without_folder(said: str, folder: str) -> str:
    """Messages without the temporary folder, which the caller has not named and which is gone by
    then."""
    text = said.replace(folder + os.sep, "")
    if text != said and os.strerror(errno.ENOSPC) in said:
        text += f"(in {os.path.dirname(folder)}; $TMPDIR says where temporary files go)\n"
    if text != said and "external data" in said:
        text += "(a model that has data beside its file is given by its path)\n"
    return text


def run(arguments, temporary: str | None = None) -> tuple[str, str]:
    """Runs the program; returns what it prints on standard output and on standard error.

    `temporary` is the folder for its own temporary folders. Raises the error of its exit code.
    """
    environment = dict(os.environ)
    if temporary is not None:
        environment["TMPDIR"] = temporary
    command = [program(), *arguments]
    try:
        code, text, said = _finish(command, environment)
    except OSError as error:
        raise errors.FileError(f"{command[0]}: {error.strerror}") from error
    except ValueError as error:  # a zero byte in an argument
        raise errors.UsageError(str(error)) from error
    if code == 0:
        return text, said
    if temporary is not None:
        said = _without_folder(said, temporary)
    if "--dim " in said or "--shape " in said:
        said += _DIMENSIONS
    before, found, message = said.rpartition(_ERROR)
    if code < 0:
        raise errors.InternalError(f"ullage ended by signal {-code}\n{said}")
    if not found:
        raise errors.of_code(code, said.strip() or "ullage failed")
    if code == errors.CompilerFailed.exit_code:
        message = before + message
    raise errors.of_code(code, message.rstrip("\n"))
