# SPDX-License-Identifier: Apache-2.0
"""Files that are written completely or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat

from . import errors

_numbers = itertools.count()


def plain(path) -> str:
    """A path for an option of the command line: `-` is a file here, not a stream."""
    text = os.fsdecode(path)
    return os.path.join(".", text) if text.startswith("-") else text


def _is_in_place(path: str, real: str) -> bool:
    """Whether the path exists but a new file could not replace it: it is a pipe, or has no name,
    such as a removed file behind a descriptor (/dev/stdout). `open` reports links that form a
    circle."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return True
        return not os.path.exists(real) or not os.path.samestat(found, os.stat(real))
    except FileNotFoundError:
        return False
    except OSError:
        return True


@contextlib.contextmanager
def written(path):
    """A file open for bytes, which appears at `path` once all of it is on the disk: it is written
    under another name and renamed, at the target of a link; a pipe or device is written in place.
    FileError where that fails."""
    path = os.fsdecode(path)
    try:
        real = os.path.realpath(path)
        if _is_in_place(path, real):
            with open(path, "wb") as file:
                yield file
            return
        beside = f"{real}.{os.getpid()}.{next(_numbers)}.part"
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, real)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
    except errors.Error:
        raise
    except OSError as error:
        raise errors.FileError(f"{path}: cannot write: {error.strerror or error}") from error


def write_text(path, text: str):
    """A text as UTF-8."""
    with written(path) as file:
        file.write(text.encode("utf-8"))


def write_npz(file, entries: dict):
    """Writes arrays by name like numpy.savez, whose keyword arguments do not allow every name."""
    import zipfile

    import numpy

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in entries.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, numpy.asanyarray(array), allow_pickle=False)
