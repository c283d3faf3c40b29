# SPDX-License-Identifier: Apache-2.0
"""Turns keywords into options of the command line, by the program's own table of options.

The rule: underscores for dashes; True for a flag; a list where an option is repeatable, which may
also be named by its plural (dims for dim); a dict for NAME=VALUE; elsewhere a list is joined by
commas, as --sweep takes it. Where an option takes a file, a numpy array (for an .npz: a dict of
arrays) or a Plan is written to one.
"""

from __future__ import annotations

import functools
import json
import os

from . import _files, _program, errors

_REPEATABLE = ("texts", "pairs", "sizes")


def set_defaults(options: dict):
    """Defaults for planning and compiling: the process is Python's, its arrays are read and written
    in place (copies of them on a device), and a call depends only on its inputs. A given plan has
    its own settings."""
    if options.get("plan") is not None:
        return
    keeps_state = bool(options.get("donate") or options.get("donates"))
    options.setdefault(
        "io", "arena" if options.get("target") == "cuda" or keeps_state else "caller"
    )
    if not keeps_state and not options.get("train"):
        options.setdefault("no_donate", True)


@functools.lru_cache(maxsize=None)
def _table(program: str) -> dict:
    try:
        commands = json.loads(_program.run(["help", "--json"])[0])["commands"]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, errors.Error):
            raise
        raise errors.FileError(f"{program}: is not the program ullage of this version") from error
    return {
        command["name"]: {row["name"].replace("-", "_"): row for row in command["options"]}
        for command in commands
    }


def _rows(command: str) -> dict:
    table = _table(_program.program())
    if command not in table:
        raise errors.UsageError(f"there is no command {command!r}; there are {', '.join(table)}")
    return table[command]


def options(command: str = "compile") -> dict:
    """The keywords that a command takes, each with one line of help."""
    return {name: row["help"] for name, row in _rows(command).items()}


def _plural(name: str) -> str:
    return name + ("es" if name.endswith("s") else "s")


def _find(command: str, rows: dict, keyword: str, refused) -> dict:
    row = rows.get(keyword)
    if row is None:
        row = next(
            (r for n, r in rows.items() if _plural(n) == keyword and r["kind"] in _REPEATABLE), None
        )
    name = None if row is None else row["name"].replace("-", "_")
    if row is not None and name not in refused:
        return row
    if row is not None:
        raise errors.UsageError(f"{keyword}: {refused[name]}")
    import difflib

    near = difflib.get_close_matches(keyword, [n for n in rows if n not in refused], 3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise errors.UsageError(
        f"there is no option {keyword}{hint}; ullage.options({command!r}) has all of them"
    )


def _plain_array(keyword: str, value):
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        raise errors.UsageError(
            f"{keyword}: a masked array, whose mask would be lost; x.filled(value) gives masked "
            "elements a value"
        )
    return numpy.asarray(value)


class _Writer:
    """Writes values in the form of the command line; those that are no text go to files in
    `folder`."""

    def __init__(self, folder: str):
        self._folder = folder
        self._count = 0

    def _path(self, ending: str) -> str:
        self._count += 1
        return os.path.join(self._folder, f"value{self._count}{ending}")

    def text(self, keyword: str, value, is_file: bool = False) -> str:
        if is_file and isinstance(value, (str, os.PathLike)):
            return _files.plain(value)
        if isinstance(value, str):
            return value
        if isinstance(value, os.PathLike):
            return os.fsdecode(value)
        if hasattr(value, "to_json"):
            path = self._path(".json")
            value.to_json(path)
            return path
        if hasattr(value, "__array_interface__") and is_file:
            return self._array(keyword, value)
        if hasattr(value, "__array_interface__"):
            value = value.tolist()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return repr(value)
        if isinstance(value, (list, tuple)):
            return ",".join(self.text(keyword, item) for item in value)
        raise errors.UsageError(
            f"{keyword}: expected text, a number or a list, not {type(value).__name__}"
        )

    def _array(self, keyword: str, value) -> str:
        import numpy

        path = self._path(".npy")
        numpy.save(path, _plain_array(keyword, value), allow_pickle=False)
        return path

    def arrays(self, keyword: str, value: dict) -> str:
        path = self._path(".npz")
        with open(path, "wb") as file:
            _files.write_npz(
                file, {n: _plain_array(f"{keyword}: {n}", a) for n, a in value.items()}
            )
        return path

    def words(self, row: dict, keyword: str, value):
        """The values after --name, one for each time that it is given; None for a flag."""
        kind = row["kind"]
        is_file = kind in ("input", "result") or "FILE" in row.get("argument", "")
        if value is None:
            return
        if kind == "flag":
            if not isinstance(value, bool):
                raise errors.UsageError(f"{keyword}: expected True or False, not {value!r}")
            if value:
                yield None
        elif kind in ("pairs", "sizes") and isinstance(value, dict):
            for name, item in value.items():
                yield f"{name}={self.text(keyword, item, is_file)}"
        elif kind in _REPEATABLE and isinstance(value, (list, tuple)):
            for item in value:
                yield self.text(keyword, item)
        elif kind == "input" and isinstance(value, dict):
            yield self.arrays(keyword, value)
        else:
            yield self.text(keyword, value, is_file)


def arguments(command: str, keywords: dict, folder: str, refused=()) -> list:
    """The words of the command line; `refused` has keywords that are not allowed here, with
    reasons."""
    rows = _rows(command)
    writer = _Writer(folder)
    words = []
    for keyword, value in keywords.items():
        row = _find(command, rows, keyword, refused or {})
        for text in writer.words(row, keyword, value):
            words.append(f"--{row['name']}" if text is None else f"--{row['name']}={text}")
    return words


def model_file(model, folder: str) -> str:
    """The path of a model: that of a file; bytes or an onnx.ModelProto are written to `folder`."""
    if isinstance(model, (str, os.PathLike)):
        return _files.plain(model)
    if hasattr(model, "SerializeToString"):
        try:
            model = model.SerializeToString()
        except Exception as error:  # protobuf has several: its limit is 2 GiB
            raise errors.UsageError(
                f"the model cannot be serialized: {error}; save it to a file, its weights beside it"
            ) from error
    if not isinstance(model, (bytes, bytearray, memoryview)):
        raise errors.UsageError(
            "expected a model: a path, its bytes or an onnx.ModelProto, not "
            f"{type(model).__name__}"
        )
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(model)
    return path
