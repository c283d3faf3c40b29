# SPDX-License-Identifier: Apache-2.0
"""Errors by the exit code of the command line; the message is the command's own."""

from __future__ import annotations


class Error(Exception):
    """The base of all errors; `exit_code` is that of the command line for it."""

    exit_code = 70


class UsageError(Error, ValueError):
    """An option that does not exist, or a value that it does not take."""

    exit_code = 1


class InvalidModel(Error):
    """A file that is damaged, or is no model, plan or checkpoint."""

    exit_code = 2


class Unsupported(Error):
    """Something that Ullage, this processor or this machine cannot do; the message names the node
    and a way round it."""

    exit_code = 3


class DoesNotFit(Error):
    """No plan is known that fits the budget.

    `plan` is the smallest plan, `needed_bytes` its bytes of what the budget bounds,
    `shortfall_bytes` how much that is above `budget_bytes`, and `smallest_budget_bytes` the
    smallest budget that is known to work. All but the message are None where no plan was made.
    """

    exit_code = 4
    plan = None
    needed_bytes = budget_bytes = shortfall_bytes = smallest_budget_bytes = None


class FileError(Error, OSError):
    """A file that cannot be read or written."""

    exit_code = 5


class VerificationFailed(Error):
    """A plan that does not pass its checker."""

    exit_code = 6


class CompilerFailed(Error):
    """The C or CUDA compiler is missing, or failed; its messages come first."""

    exit_code = 7


class InternalError(Error):
    """A mistake of Ullage's own."""

    exit_code = 70


class RunError(Error):
    """A model that could not be made ready, or could not run."""

    exit_code = 3


class DataFault(RunError):
    """The data held an index or a count out of range. It was clamped and the run completed;
    `outputs` has the results with the clamped value."""

    exit_code = 2
    outputs = None


_BY_CODE = {
    kind.exit_code: kind
    for kind in (
        UsageError,
        InvalidModel,
        Unsupported,
        DoesNotFit,
        FileError,
        VerificationFailed,
        CompilerFailed,
        InternalError,
    )
}


def of_code(code: int, message: str) -> Error:
    return _BY_CODE.get(code, InternalError)(message)
