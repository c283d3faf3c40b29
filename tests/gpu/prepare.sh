#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs what tests/gpu/run.sh needs on a machine with a GPU and nothing of ours: emitted folders,
# inputs and expected results. See prepare.py; README.md says how the two go together.
#
# usage: tests/gpu/prepare.sh [options] OUT        (OUT: a folder, or a .tar.gz)
# exit: 0 ready, 4 larger than --limit, 6 something could not be emitted, 77 no Python packages
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../ref/python.sh" "$here/prepare.py" "$@"
