# SPDX-License-Identifier: Apache-2.0
# A Debian package: cmake --build --preset release, then cpack -G DEB --config build/release/CPackConfig.cmake.
# What the program links is found by dpkg-shlibdeps; what compiling for its targets calls for is
# recommended: planning needs none of it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ullage)
# Whoever makes it answers for it, by the names that Debian's own tools ask for.
set(ullage_contact "The authors of Ullage <nobody@example.org>")
if(DEFINED ENV{DEBEMAIL})
  string(STRIP "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>" ullage_contact)
endif()
set(ULLAGE_PACKAGE_CONTACT "${ullage_contact}" CACHE STRING "NAME <EMAIL> of whoever maintains the Debian package")
set(CPACK_PACKAGE_CONTACT "${ULLAGE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "static memory planner and compiler for ONNX models")
set(CPACK_PACKAGE_DESCRIPTION
"Ullage compiles an ONNX model into a program that runs in one preallocated
buffer, and says before anything runs how large that buffer is, to the byte,
what is in it and what would make it smaller. Programs are for microcontrollers
(C99 without libraries), CPUs (OpenMP and oneDNN) and CUDA.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "gcc, libc6-dev, make, libdnnl-dev")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "nvidia-cuda-toolkit, python3")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# Debian's manual wants these in every package, the changelogs compressed without a date: that of the
# package and, since its version has a revision of Debian's, that of the source.
file(WRITE ${PROJECT_BINARY_DIR}/package/copyright
"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ullage

Files: *
Copyright: 2026 The authors of Ullage
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.

Files: usr/bin/ullage
Copyright: 2026 The authors of Ullage
License: Apache-2.0 and GPL-3+
 The source is under Apache-2.0. The program is linked with GLPK, which is under
 GPL-3 or later: whoever passes it on does so by the terms of that, of which the
 full text is in /usr/share/common-licenses/GPL-3.

Files: usr/share/ullage/runtime/* usr/lib/ullage/libul_runtime.a
Copyright: 2026 The authors of Ullage
License: 0BSD
 The text is in /usr/share/ullage/runtime/LICENSE: what a compiled model has of
 it is its author's own.
")
# The day of the commit, so that the same source makes the same package.
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%cd --date=rfc OUTPUT_VARIABLE ullage_day
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(ullage_day "Thu, 01 Jan 1970 00:00:00 +0000")
endif()
file(WRITE ${PROJECT_BINARY_DIR}/package/changelog.Debian
"ullage (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * See the changelog of the source.

 -- ${CPACK_PACKAGE_CONTACT}  ${ullage_day}
")
configure_file(CHANGELOG.md ${PROJECT_BINARY_DIR}/package/changelog COPYONLY)
execute_process(COMMAND gzip -9nkf ${PROJECT_BINARY_DIR}/package/changelog.Debian
                                   ${PROJECT_BINARY_DIR}/package/changelog COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${PROJECT_BINARY_DIR}/package/changelog.Debian.gz ${PROJECT_BINARY_DIR}/package/changelog.gz
              ${PROJECT_BINARY_DIR}/package/copyright
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT package EXCLUDE_FROM_ALL)
# What Debian's checker finds and is meant.
file(WRITE ${PROJECT_BINARY_DIR}/package/overrides/ullage
"# Not a package of Debian's archive, where nobody asked for it.
ullage: initial-upload-closes-no-bugs
# These files are copied into the folder of a compiled model, each with its licence.
ullage: extra-license-file [usr/share/ullage/runtime/LICENSE]
ullage: package-contains-documentation-outside-usr-share-doc [usr/share/ullage/runtime/LICENSE]
")
install(FILES ${PROJECT_BINARY_DIR}/package/overrides/ullage
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT package EXCLUDE_FROM_ALL)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)
# What embeds the compiler in another program comes with cmake --install alone.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};ullage;Unspecified;/;${PROJECT_BINARY_DIR};ullage;package;/")
include(CPack)
