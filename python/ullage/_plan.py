# SPDX-License-Identifier: Apache-2.0
"""Plans: what a model takes, before anything runs."""

from __future__ import annotations

import html as _html
import json as _json
import os

from . import _facts, _files, _options, _program, errors

_ELSEWHERE = "the result is returned; see the methods of Plan"
_REFUSED = {
    "json": _ELSEWHERE,
    "csv": _ELSEWHERE,
    "csv_steps": _ELSEWHERE,
    "html": _ELSEWHERE,
    "trace": _ELSEWHERE,
    "baseline": "give it to Plan.html",
    "shared": "several models in one arena are the command line's: ullage plan --shared",
    "link": "models in one arena are the command line's: ullage plan --shared --link",
    "prefix": "a plan of one model has no names of models: ullage plan --shared --prefix",
    "stop_after": "graphs are printed by the command line: ullage plan --stop-after",
}


def plan(model, *, must_fit: bool = True, **options):
    """Plans a model and returns a Plan; with sweep=True a Sweep, also for a list of models.

    `model` is a path, the bytes of a model, or an onnx.ModelProto. `options` are those of `ullage
    plan`; unless they say otherwise it plans what ullage.compile, or with train=True
    ullage.Trainer, makes with the same options: a part of this process, not a program
    (library=True), which reads and writes arrays in place (io="caller"), and whose calls depend
    only on their inputs (no_donate=True). If no plan fits the budget it raises DoesNotFit; with
    must_fit=False it returns the smallest plan, whose `fits` is False.
    """
    options = {"library": True, **options}
    _options.set_defaults(options)
    with _program.folder() as folder:
        is_list = isinstance(model, (list, tuple))
        models = model if is_list else [model]
        words = _options.arguments("plan", options, folder, _REFUSED)
        if len(models) != 1 and not options.get("sweep"):
            raise errors.UsageError("give one model; several are for sweep=True")
        files = []
        for number, item in enumerate(models):
            own = os.path.join(folder, str(number)) if is_list else folder
            os.makedirs(own, exist_ok=True)
            files.append(_options.model_file(item, own))
        path = os.path.join(folder, "plan.json")
        try:
            text, said = _program.run(["plan", *words, "--json", path, *files], folder)
        except errors.DoesNotFit as error:
            found = _read_if_there(path)
            if found is None:
                raise
            if must_fit:
                raise _with_plan(error, found) from None
            return found
        if options.get("sweep"):
            return Sweep(_read(path), text)
        return Plan(_read(path), said)


def _read(path) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _read_if_there(path):
    return Plan(_read(path)) if os.path.exists(path) else None


def _with_plan(error: errors.DoesNotFit, found: Plan) -> errors.DoesNotFit:
    error.plan = found
    error.budget_bytes = found.budget_bytes
    error.needed_bytes = found.needed_bytes
    error.shortfall_bytes = found.shortfall_bytes
    error.smallest_budget_bytes = found.smallest_budget_bytes
    return error


def _records(columns: dict) -> list:
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _exact(count: int) -> str:
    """A size in the form of the command line: 1.50 MiB = 1572864 bytes."""
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    unit, size = "GiB", 1 << 30
    if count < 10 << 30:
        unit, size = ("KiB", 1 << 10) if count < 1 << 20 else ("MiB", 1 << 20)
    return f"{count / size:.2f} {unit} = {count} bytes"


def _missing(data: dict) -> list:
    """The keys that every plan has and that are missing here, or have another type."""
    kinds = _facts.Needed.__annotations__
    numbers = {name: (int, float) for name in kinds if kinds[name] is float}
    return [
        name
        for name, kind in {**kinds, **numbers}.items()
        if not isinstance(data.get(name), kind)
    ]


class Plan(_facts.Facts):
    """A plan: plan.json, its facts as attributes, and the reports that are drawn from it.

    Every top-level key of plan.json is an attribute: reserved_bytes, process_bytes, fits,
    smallest_budget_bytes, lower_bound_bytes, proven, peak_step, method ... docs/plan-format.md has
    the meaning of each.
    """

    def __init__(self, text: str, messages: str = ""):
        try:
            data = _json.loads(text)
        except ValueError as error:
            raise errors.InvalidModel(f"no plan.json: {error}") from error
        if not isinstance(data, dict) or data.get("format") != "ullage-plan":
            raise errors.InvalidModel("no plan.json: its format is not ullage-plan")
        missing = _missing(data)
        if missing:
            names = ", no ".join(missing)
            raise errors.InvalidModel(f"no plan.json: it has no {names}, or not as a plan has it")
        self._text = text
        self._data = data
        self.messages = messages
        """What the command said on standard error."""

    @classmethod
    def load(cls, path) -> Plan:
        """Reads a plan.json."""
        try:
            return cls(_read(path))
        except OSError as error:
            raise errors.FileError(f"{os.fspath(path)}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise errors.InvalidModel(f"{os.fspath(path)}: no plan.json: it is no text") from error

    def to_json(self, path=None) -> str:
        """The text of plan.json, byte for byte; also written to a file."""
        if path is not None:
            _files.write_text(path, self._text)
        return self._text

    def to_dict(self) -> dict:
        """plan.json as Python objects."""
        return _json.loads(self._text)

    def __getattr__(self, name):
        if name.startswith("_"):  # copying asks for these before there are any
            raise AttributeError(name)
        if name not in self._data:
            raise AttributeError(f"this plan has no {name}; it has {', '.join(self._data)}")
        return self._data[name]

    def __dir__(self):
        return [*super().__dir__(), *self._data]

    @property
    def rows(self) -> dict:
        """Bytes by kind at the peak; their sum is reserved_bytes."""
        return dict(self._data["rows"])

    @property
    def steps(self) -> list:
        """The steps in order, a dict for each."""
        return _records(self._data["steps"])

    @property
    def ranges(self) -> list:
        """The live ranges, a dict for each, with offset_bytes, size_bytes, begin, end."""
        return _records(self._data["ranges"])

    @property
    def budget_bytes(self):
        """The budget, or None."""
        return self._data.get("budget_bytes")

    @property
    def needed_bytes(self) -> int:
        """The bytes that a budget of this kind bounds: those of the process, or of the buffer
        alone."""
        whole = self._data.get("budget_of") != "arena" and "process_bytes" in self._data
        return self._data["process_bytes" if whole else "reserved_bytes"]

    @property
    def shortfall_bytes(self) -> int:
        """How many bytes the plan is above its budget; 0 where it fits."""
        if self.budget_bytes is None:
            return 0
        return max(0, self.needed_bytes - self.budget_bytes)

    def _report(self, *words) -> str:
        with _program.folder() as folder:
            path = os.path.join(folder, "plan.json")
            self.to_json(path)
            return _program.run(["report", path, *words], folder)[0]

    def _written(self, text: str, path) -> str:
        if path is not None:
            _files.write_text(path, text)
        return text

    def html(self, path=None, baseline=None) -> str:
        """The planning report, one page without network; also written to a file. `baseline` is an
        older plan to compare with: a Plan or a path."""
        with _program.folder() as folder:
            words = ["--html", "-"]
            if baseline is not None:
                words += _options.arguments("report", {"baseline": baseline}, folder)
            return self._written(self._report(*words), path)

    def csv(self, path=None) -> str:
        """The live ranges as CSV; also written to a file."""
        return self._written(self._report("--csv", "-"), path)

    def csv_steps(self, path=None) -> str:
        """The steps as CSV, with the bytes that live at each; also written to a file."""
        return self._written(self._report("--csv-steps", "-"), path)

    def trace(self, path=None) -> str:
        """The plan as a trace for Perfetto; also written to a file."""
        return self._written(self._report("--trace", "-"), path)

    def __str__(self) -> str:
        return self._report().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        data = self._data
        reserved = data["reserved_bytes"]
        process = data.get("process_bytes", reserved)
        whose = {"program": "process ", "caller": "this process for it ", "device": "device "}
        lines = [
            f"<b>{_html.escape(data['model'])}</b> (target {_html.escape(data['target'])}): "
            f"{whose.get(data.get('process_of'), '')}<b>{_exact(process)}</b>"
            f"{' at set-up' if data.get('process_peak_at_start') else ''}",
            f"buffer {_exact(reserved)}",
        ]
        if self.budget_bytes is not None:
            short = self.shortfall_bytes
            verdict = f"{_exact(short)} short of" if short else "within"
            lines.append(f"{verdict} the budget of {_exact(self.budget_bytes)}")
        bars = "".join(
            f"<tr><td style='text-align:left'>{_html.escape(name.replace('_', ' '))}</td>"
            f"<td>{size}</td><td style='text-align:left'><div style='background:#4477aa;height:1em;"
            f"width:{200 * size / max(reserved, 1):.1f}px'></div></td></tr>"
            for name, size in self.rows.items()
            if size
        )
        peak = data["steps"]["node"][data["peak_step"]]
        return (
            f"<div><p>{', '.join(lines)}.</p><table><tr><th>at the peak</th><th>bytes</th><th></th>"
            f"</tr>{bars}</table><p>The peak is made by {_html.escape(str(peak))}.</p></div>"
        )


class Sweep:
    """The plans for ever smaller budgets, or for each combination of the options that were lists.

    `plans` has a dict for each plan, as in the --json of `ullage plan --sweep`.
    """

    def __init__(self, json_text: str, text: str):
        self._json = json_text
        self._text = text
        self.plans = _json.loads(json_text)["plans"]

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self):
        return iter(self.plans)

    def __getitem__(self, index):
        return self.plans[index]

    def to_json(self, path=None) -> str:
        """The table as JSON, byte for byte; also written to a file."""
        if path is not None:
            _files.write_text(path, self._json)
        return self._json

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{_html.escape(str(self))}</pre>"
