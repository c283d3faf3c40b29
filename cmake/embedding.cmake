# SPDX-License-Identifier: Apache-2.0
# Installs what a program that embeds the compiler needs: compile/compile.h with what it includes,
# one static library per folder, and ullage.pc, by which pkg-config says how to compile and to link.

# Appends to the list `result` the header and all that it includes of this tree, each once.
function(ullage_headers result header)
  set(list ${${result}})
  if(NOT header IN_LIST list)
    list(APPEND list ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      ullage_headers(list ${included})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  endif()
  set(${result} ${list} PARENT_SCOPE)
endfunction()

set(ullage_headers "")
ullage_headers(ullage_headers compile/compile.h)
foreach(header IN LISTS ullage_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ullage/${folder} COMPONENT embedding)
endforeach()

# In the order in which a linker wants them.
set(ULLAGE_LIBRARIES compile report codegen passes frontend ir planner base)
set(ULLAGE_LINK "")
foreach(name IN LISTS ULLAGE_LIBRARIES)
  string(APPEND ULLAGE_LINK " -lul_${name}")
  install(TARGETS ul_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/ullage
          COMPONENT embedding)
endforeach()
foreach(path IN LISTS ULLAGE_ONEDNN_LIBRARY ULLAGE_GOMP_LIBRARY GLPK_LIBRARY)
  string(APPEND ULLAGE_LINK " ${path}")
endforeach()

# Relative to where ullage.pc lies, so that the folder may move.
set(ullage_pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH ULLAGE_PREFIX /${ullage_pc_folder} /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/ullage.pc.in ${PROJECT_BINARY_DIR}/ullage.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ullage.pc DESTINATION ${ullage_pc_folder} COMPONENT embedding)
