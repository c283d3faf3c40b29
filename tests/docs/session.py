# SPDX-License-Identifier: Apache-2.0
"""The Python blocks of a page, one after the other in one interpreter.

    session.py ASK ANSWER STATUS

Reads from the pipe ASK the kind of a block in a line, then its text; writes to the pipe ANSWER what it prints, and to the
file STATUS 1 where it failed. Ends where nothing is asked.
"""

import code
import contextlib
import os
import sys
import traceback


class Interpreter(code.InteractiveInterpreter):
    """Remembers that a statement raised something, or was no statement."""

    failed = False

    def showtraceback(self):
        self.failed = True
        super().showtraceback()

    def showsyntaxerror(self, *arguments, **named):
        self.failed = True
        super().showsyntaxerror(*arguments, **named)


def run_statement(interpreter, text):
    interpreter.failed = False
    try:
        if interpreter.runsource(text + "\n", symbol="single"):
            print("this statement is not complete: a line is missing, or an empty one at its end")
            return 2
    except SystemExit:  # what else it raises the interpreter shows
        traceback.print_exc()
        return 1
    return int(interpreter.failed)


def run(interpreter, kind, text):
    if kind == "statement":
        return run_statement(interpreter, text)
    try:
        exec(compile(text, "<page>", "exec"), interpreter.locals)  # pylint: disable=exec-used
    except BaseException:  # what the page's code raises is shown, and is no error of this
        traceback.print_exc()
        return 1
    return 0


def main():
    ask, answer, status = sys.argv[1:]
    interpreter = Interpreter({"__name__": "__main__"})
    sys.path.insert(0, os.getcwd())
    while True:
        with open(ask, encoding="utf-8") as file:
            kind, _, text = file.read().partition("\n")
        if not kind:
            return
        with open(answer, "w", encoding="utf-8") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code_of_it = run(interpreter, kind, text)
            with open(status, "w", encoding="ascii") as file:
                file.write(str(code_of_it))


main()
