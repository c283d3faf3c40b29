# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, C that says which commit SOURCE is of: git's, where SOURCE is its own repository, or
# the one that `git archive` wrote into commit.txt; else none. The same bytes are not written again.
file(READ ${SOURCE}/cmake/commit.txt commit)
string(STRIP "${commit}" commit)
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "")
endif()
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
string(SUBSTRING "${commit}" 0 12 commit)
if(commit)
  set(commit " (commit ${commit})")
endif()
set(text "extern const char ul_cli_commit[];\nconst char ul_cli_commit[] = \"${commit}\";\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
