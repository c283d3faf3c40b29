# SPDX-License-Identifier: Apache-2.0
# Run by cpack on what it packs: manual pages are compressed, and the licence stands in copyright alone.
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
file(GLOB pages ${share}/man/man1/*.1)
execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${share}/doc/ullage/LICENSE)
