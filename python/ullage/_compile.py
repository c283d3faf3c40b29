# SPDX-License-Identifier: Apache-2.0
"""Makes callables from models, through a shared library, which can be kept and loaded again."""

from __future__ import annotations

import os

from . import _files, _options, _plan, _program, errors

_OWN = "the library goes where path=... says, or nowhere"
REFUSED = {
    "out": _OWN,
    "emit": "source is the command line's: ullage compile --emit DIR",
    "library": "it always is one",
    "json": "the plan is the attribute `plan` of what is returned",
    "shared": "several models in one arena are the command line's: ullage compile --shared",
    "link": "models in one arena are the command line's: ullage compile --shared --link",
    "shared_library": "it always is one",
    "prefix": "names of a library are C's: ullage compile --shared-library --prefix",
}
_NO_FILES = "a library has its weights inside: weights='arena', or 'rom'"


def build(model, path, options: dict, load):
    """Compiles to `path`, or to a library that is removed from the disk once it is loaded. Returns
    what `load` makes from its path, and the plan."""
    if str(options.get("weights")) == "file":
        raise errors.UsageError(f"weights: {_NO_FILES}")
    _options.set_defaults(options)
    with _program.folder() as folder:
        words = _options.arguments("compile", options, folder, REFUSED)
        file = _options.model_file(model, folder)
        library = os.path.join(folder, "model.so") if path is None else _files.plain(path)
        json = os.path.join(folder, "plan.json")
        command = ["compile", file, f"--out={library}", "--shared-library", f"--json={json}"]
        try:
            _program.run([*command, *words], folder)
        except errors.DoesNotFit as error:
            found = _plan._read_if_there(json)
            raise error if found is None else _plan._with_plan(error, found) from None
        result = load(library)
        result.plan = _plan._read_if_there(json)
        return result


def compile(model, *, path=None, arenas: int = 1, **options):
    """Compiles a model and returns it as a callable, a Model.

    `model` is a path, the bytes of a model, or an onnx.ModelProto. `path` is where the shared
    library is kept, for ullage.load; without it nothing stays on the disk. `arenas` is how many
    calls may run at once, each in a buffer of its own. `options` are those of `ullage compile`;
    unless they say otherwise, inputs are read and outputs written in the arrays themselves
    (io="caller"; on target cuda they are copied), and every call depends only on its inputs
    (no_donate=True). With plan=... the plan decides both.
    """
    from ._model import Model, check_arenas

    check_arenas(arenas)
    options = dict(options)
    if options.get("train"):
        raise errors.UsageError("train: ullage.Trainer makes programs that train")
    return build(model, path, options, lambda library: Model(library, arenas=arenas))


def load(path, *, arenas: int = 1, prefix: str = "model"):
    """Loads the Model or Trainer that compile, Trainer or `ullage compile --shared-library` left at
    `path`. `prefix` is the --prefix of the command line."""
    from ._library import Library
    from ._model import Model
    from ._trainer import Trainer

    library = Library(os.fsdecode(path), prefix)
    if library.trains:
        return Trainer._of(library)
    return Model(library, arenas=arenas)
