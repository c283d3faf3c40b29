#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How pages are read, compared and renewed.

Exit: 0 ok, 1 not."""

import sys
import unittest

from pages import Page, is_line, is_shown, renewed
from run import complaint


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


class Comparing(unittest.TestCase):
    def test_parts_left_out(self):
        self.assertTrue(is_line("a ... c", "a b c"))
        self.assertTrue(is_line("... KiB", "12 KiB"))
        self.assertFalse(is_line("a ... c", "a b d"))
        self.assertTrue(is_shown(["...", "b", "..."], "a\nb\nc\n"))
        self.assertFalse(is_shown(["...", "c", "b"], "a\nb\nc\n"))
        self.assertTrue(is_shown([], ""))
        self.assertFalse(is_shown([], "a\n"))

    def test_numbers(self):
        self.assertTrue(is_line("takes  1.25 ms of 10", "takes 13 ms of 9", True))
        self.assertFalse(is_line("takes 1.25 ms", "took 1.25 ms", True))
        self.assertTrue(is_line("by x ..., two of 1,024", "by x 0.1.0, two of 2,048", True))
        self.assertTrue(is_line("   |:.#  ", "   |#: .:", True))
        self.assertTrue(is_line("   |#: : ....", "   |#: : ....     ", True))


    def test_failures_that_are_left_out(self):
        page = Page("p.md", "    $ a\n    ...\n\n    $ b\n    no such file\n    ...\n")
        self.assertIsNone(complaint(page, page.items[0], "one\ntwo\n", "0"))
        self.assertIn("ends with 3", complaint(page, page.items[0], "unsupported\n", "3"))
        self.assertIsNone(complaint(page, page.items[1], "no such file\nb: 2\n", "1"))


class Renewing(unittest.TestCase):
    def test_all(self):
        self.assertEqual(renewed(["a"], "b\nc\n"), ["b", "c"])

    def test_what_was_left_out_stays_so(self):
        self.assertEqual(renewed(["...", "bytes 12", "..."], "x\ny\nbytes 13\nz\n"), ["...", "bytes 13", "..."])
        self.assertEqual(renewed(["needs 12", "...", "exit code 4"], "needs 13\nq\nexit code 6\n"), ["needs 13", "...", "exit code 6"])
        self.assertEqual(renewed(["...", "size 12 of ... ms", "..."], "x\nsize 13 of 0.5 ms\nz"), ["...", "size 13 of ... ms", "..."])


if __name__ == "__main__":
    sys.exit(0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=0).result.wasSuccessful() else 1)
