# SPDX-License-Identifier: Apache-2.0
# Run by cpack on what it packs: manual pages are compressed, what only names compilers is stripped, and
# the licence stands in copyright alone.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
file(GLOB pages ${share}/man/man1/*.1)
execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
find_program(strip strip REQUIRED)
execute_process(COMMAND ${strip} --remove-section=.comment --remove-section=.note
                        ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/ullage COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${strip} --strip-debug --enable-deterministic-archives --remove-section=.comment
                        --remove-section=.note ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/lib/ullage/libul_runtime.a
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${share}/doc/ullage/LICENSE)
