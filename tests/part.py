# SPDX-License-Identifier: Apache-2.0
"""The part of a test that a slice of the slow tier runs (slices.py); tests/part.sh for Python."""

import os


def part(items):
    """The items that ULLAGE_PART=K/N chooses, every N-th from the K-th on; all of them without it."""
    number, of = map(int, os.environ.get("ULLAGE_PART", "1/1").split("/"))
    return list(items)[number - 1 :: of]
