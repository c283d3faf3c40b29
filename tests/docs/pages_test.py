#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How pages are read, compared and renewed.

Exit: 0 ok, 1 not."""

import sys
import unittest

from pages import Page, is_line, is_shown, renewed, varying
from run import difference, failure, missing_tests, outcomes

ROW = "    $ ./a --bench\n    needs 120 bytes in 1.25 ms\n    $ echo $?\n    0\n"


def kinds(text):
    return [(item.kind, item.text) for item in Page("p.md", text).items]


class Reading(unittest.TestCase):
    def test_prompts_in_either_block(self):
        self.assertEqual(kinds("So:\n\n    $ a b\n    > c\n    out\n\n    $ d\n"), [("command", "a b\nc"), ("command", "d")])
        self.assertEqual(kinds("```console\n$ a\nout\n\n$ b\n```\n"), [("command", "a"), ("command", "b")])

    def test_what_is_shown_ends_before_blank_lines(self):
        page = Page("p.md", "    $ a\n    one\n\n    two\n\nText.\n")
        self.assertEqual(page.shown(page.items[0]), ["one", "", "two"])

    def test_files_scripts_and_python(self):
        self.assertEqual(kinds("```c\n/* both.c: two */\nint x;\n```\n"), [("file", "/* both.c: two */\nint x;\n")])
        self.assertEqual(kinds("```c\nint x;\n```\n"), [])
        self.assertEqual(kinds("```sh\nmake\n```\n"), [("script", "make\n")])
        self.assertEqual(kinds("```python\nx = 1\n```\n"), [("python", "x = 1\n")])
        self.assertEqual(kinds("```python\n>>> for x in (1, 2):\n...     x\n1\n2\n```\n"), [("statement", "for x in (1, 2):\n    x")])

    def test_marks(self):
        page = Page("p.md", "<!-- run: cp x . -->\n<!-- slow: large -->\n\n    $ a\n\n<!-- not run: root -->\n    $ b\n")
        self.assertEqual([item.kind for item in page.items], ["hidden", "command"])
        self.assertEqual(page.items[1].marks, {"slow": "large"})
        self.assertEqual([reason for _, reason in page.not_run], ["root"])
        self.assertEqual(page.wrong, [])

    def test_what_is_wrong(self):
        self.assertIn("without", Page("p.md", "    ullage plan x\n").wrong[0])
        self.assertIn("no block follows", Page("p.md", "<!-- slow: x -->\nText.\n").wrong[0])
        self.assertIn("says nothing", Page("p.md", "<!-- slow: -->\n    $ x\n").wrong[0])
        self.assertIn("no mark numbers", Page("p.md", "<!-- numbers: times -->\n    $ x\n    1\n").wrong[0])
        self.assertIn("above the first command", Page("p.md", "    one\n    $ x\n").wrong[0])
        self.assertIn("without", Page("p.md", "```console\nanything at all\n```\n").wrong[0])
        for text in ("   $ x\n", "- A list:\n\n  $ x\n", "> $ x\n", "\t$ x\n", "<pre>\n$ x\n</pre>\n", "Text\n    $ x\n"):
            self.assertIn("a command in no block", Page("p.md", text).wrong[0])
        self.assertIn("without", Page("p.md", "1. A list:\n\n       $ x\n").wrong[0])
        self.assertIn("this is no mark", Page("p.md", "<!--run: x -->\n").wrong[0])
        self.assertIn("there is no mark Run", Page("p.md", "<!-- Run: x -->\n").wrong[0])
        self.assertIn("a fence within", Page("p.md", "- A list:\n\n  ```sh\n  x\n  ```\n").wrong[0])

    def test_what_a_mark_names_is_there(self):
        self.assertEqual(Page("p.md", "<!-- varies: N ms -->\n" + ROW).wrong, [])
        self.assertIn("is like: N s", Page("p.md", "<!-- varies: N s -->\n" + ROW).wrong[0])
        self.assertIn("is like: ms", Page("p.md", "<!-- varies: ms -->\n" + ROW).wrong[0])
        self.assertEqual(missing_tests(Page("p.md", "<!-- not run: tests/docs/run.py does -->\n    $ x\n")), [])
        self.assertIn("no test is named", missing_tests(Page("p.md", "<!-- not run: needs root -->\n    $ x\n"))[0])
        self.assertIn("no tests/none.py", missing_tests(Page("p.md", "<!-- not run: tests/none.py does -->\n    $ x\n"))[0])


class Comparing(unittest.TestCase):
    def test_parts_left_out(self):
        self.assertTrue(is_line("a ... c", "a b c"))
        self.assertTrue(is_line("... KiB", "12 KiB"))
        self.assertFalse(is_line("a ... c", "a b d"))
        self.assertTrue(is_shown(["...", "b", "..."], "a\nb\nc\n"))
        self.assertFalse(is_shown(["...", "c", "b"], "a\nb\nc\n"))
        self.assertTrue(is_shown([], ""))
        self.assertFalse(is_shown([], "a\n"))

    def test_numbers_that_vary(self):
        varies = varying("loss N, N % right, N samples/s")
        self.assertTrue(is_line("epoch 1: loss 1.25, 9.5 % right,  78 samples/s", "epoch 1: loss 0.5e-3, 100.00 % right, 1,024.5 samples/s", varies))
        self.assertTrue(is_line("loss 1.5, ... samples/s", "loss -2, 7 samples/s", varies))
        self.assertFalse(is_line("epoch 1: loss 1.25", "epoch 2: loss 1.25", varies))
        self.assertFalse(is_line("loss 1.25 of 7", "loss 1.25 of 8", varies))
        self.assertFalse(is_line("gloss 1", "gloss 2", varies))
        self.assertFalse(is_line("1 samples/step", "2 samples/step", varies))
        self.assertFalse(is_line("loss 1.25", "loss nan", varies))
        self.assertFalse(is_line("takes 1.25 ms", "takes 1.5 ms"))

    def test_every_other_number_is_compared(self):
        page = Page("p.md", "<!-- varies: N ms -->\n" + ROW)
        self.assertIsNone(difference(page, page.items[0], "needs 120 bytes in 99 ms\n"))
        self.assertIn("prints", difference(page, page.items[0], "needs 121 bytes in 1.25 ms\n"))
        self.assertIn("prints", difference(page, page.items[0], "takes 120 bytes in 1.25 ms\n"))
        self.assertIn("prints", difference(page, page.items[1], "4\n"))

    def test_exit_codes(self):
        page = Page("p.md", "    $ a\n    ...\n\n    $ b\n    no such file\n    $ echo $?\n    1\n")
        self.assertIsNone(failure(page, page.items[0], "0"))
        self.assertIn("ends with 3", failure(page, page.items[0], "3"))
        self.assertIsNone(failure(page, page.items[1], "1"))
        self.assertIn("ends with 1", failure(page, page.items[2], "1"))

    def test_what_python_raises(self):
        page = Page("p.md", "```python\n>>> a\nTraceback (most recent call last):\n...\nNameError: a\n>>> b\n...\n>>> c\n```\n")
        self.assertIsNone(failure(page, page.items[0], "1"))
        self.assertIn("ends with 1", failure(page, page.items[1], "1"))
        self.assertIn("ends with 1", failure(page, page.items[2], "1"))


class Sessions(unittest.TestCase):
    """By the interpreter itself: one that waits for more lines, or leaves, is a failure."""

    def outcomes(self, text):
        page = Page("p.md", f"```python\n{text}```\n")
        runs, _ = outcomes(page.items, sys.executable, 60)
        return [(code, printed) for printed, code in runs]

    def test_statements(self):
        (code, printed), after = self.outcomes(">>> if True:\n>>> print(2)\n")
        self.assertEqual(code, "2")
        self.assertIn("not complete", printed)
        self.assertEqual(after, ("0", "2\n"))
        self.assertEqual(self.outcomes(">>> exit(3)\n>>> 1 / 0\n>>> 1 +\n>>> 4\n")[3], ("0", "4\n"))
        self.assertEqual([code for code, _ in self.outcomes(">>> exit(3)\n>>> 1 / 0\n>>> 1 +\n>>> 4\n")], ["1", "1", "1", "0"])


class Renewing(unittest.TestCase):
    def test_all(self):
        self.assertEqual(renewed(["a"], "b\nc\n"), ["b", "c"])

    def test_what_varies_stays_where_nothing_else_is_new(self):
        varies = varying("N ms")
        self.assertEqual(renewed(["a 1 in 5 ms", "b 1 in 6 ms"], "a 1 in 7 ms\nb 2 in 8 ms\n", varies), ["a 1 in 5 ms", "b 2 in 8 ms"])
        self.assertEqual(renewed(["a 1 in 5 ms", "b 1"], "c 3\na 1 in 7 ms\nb 2\n", varies), ["c 3", "a 1 in 5 ms", "b 2"])
        self.assertEqual(renewed(["size 1 of ..."], "size 2 of x\n", varies), ["size 2 of ..."])

    def test_what_was_left_out_stays_so(self):
        self.assertEqual(renewed(["...", "bytes 12", "..."], "x\ny\nbytes 13\nz\n"), ["...", "bytes 13", "..."])
        self.assertEqual(renewed(["needs 12", "...", "exit code 4"], "needs 13\nq\nexit code 6\n"), ["needs 13", "...", "exit code 6"])
        self.assertEqual(renewed(["...", "size 12 of ... ms", "..."], "x\nsize 13 of 0.5 ms\nz"), ["...", "size 13 of ... ms", "..."])


if __name__ == "__main__":
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=0).result.wasSuccessful() else 1)
