# SPDX-License-Identifier: Apache-2.0
# oneDNN, which target cpu hands convolutions, matrix products and pooling to. Its interface changes
# with the major version: the compiler asks it and compiled programs call it through that of 2.x.
#
# ullage_onednn is the library. The compiler, which has no threads of its own, links ULLAGE_GOMP_LIBRARY
# as well, the OpenMP runtime that the library brings along; what is built with OpenMP must not, where
# the C compiler has another one, or threads would be started by one and counted by the other.
# ULLAGE_ONEDNN_CFLAGS and ULLAGE_ONEDNN_LIBS are what programs need besides -ldnnl to find the same
# library: nothing where compilers look for it by themselves.
find_path(ULLAGE_ONEDNN_INCLUDE dnnl.h)
find_library(ULLAGE_ONEDNN_LIBRARY dnnl)
find_library(ULLAGE_GOMP_LIBRARY NAMES libgomp.so.1 gomp)
if(NOT ULLAGE_ONEDNN_INCLUDE OR NOT ULLAGE_ONEDNN_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found: install its development files, version 2 (Debian and "
                      "Ubuntu: libdnnl-dev)")
endif()
if(NOT ULLAGE_GOMP_LIBRARY)
  message(FATAL_ERROR "libgomp, which oneDNN runs its threads by, was not found (Debian: libgomp1)")
endif()

# What follows `#define before` in the library's header of that name, or "unknown". The header that
# compilers are given may only include the one in oneapi/dnnl.
function(onednn_define result header before value)
  set(${result} unknown PARENT_SCOPE)
  foreach(folder IN ITEMS oneapi/dnnl/ "")
    set(path ${ULLAGE_ONEDNN_INCLUDE}/${folder}${header})
    if(EXISTS ${path})
      file(STRINGS ${path} line LIMIT_COUNT 1 REGEX "#define ${before}${value}")
      if(line)
        string(REGEX REPLACE ".*${before}(${value}).*" "\\1" found "${line}")
        set(${result} ${found} PARENT_SCOPE)
        break()
      endif()
    endif()
  endforeach()
endfunction()

onednn_define(onednn_version dnnl_version.h "DNNL_VERSION_MAJOR[ ]+" "[0-9]+")
if(NOT onednn_version STREQUAL "2")
  message(FATAL_ERROR "oneDNN ${onednn_version}.x was found in ${ULLAGE_ONEDNN_INCLUDE}; ullage is "
                      "made for oneDNN 2.x (Debian: libdnnl-dev 2.6 or 2.7)")
endif()

# Programs run their own kernels on the threads that the library uses, and say how many there are.
onednn_define(onednn_runtime dnnl_config.h "DNNL_CPU_THREADING_RUNTIME[ ]+DNNL_RUNTIME_" "[A-Z]+")
if(NOT onednn_runtime STREQUAL "OMP")
  message(FATAL_ERROR "oneDNN in ${ULLAGE_ONEDNN_INCLUDE} was built for the threads of "
                      "${onednn_runtime} (DNNL_CPU_THREADING_RUNTIME); ullage needs OpenMP's: build "
                      "it with -DDNNL_CPU_RUNTIME=OMP, or take the distribution's (Debian: libdnnl-dev)")
endif()

set(ULLAGE_ONEDNN_CFLAGS "")
set(ULLAGE_ONEDNN_LIBS "")
get_filename_component(onednn_include ${ULLAGE_ONEDNN_INCLUDE} ABSOLUTE)
get_filename_component(onednn_folder ${ULLAGE_ONEDNN_LIBRARY} DIRECTORY)
if(NOT onednn_include IN_LIST CMAKE_C_IMPLICIT_INCLUDE_DIRECTORIES)
  set(ULLAGE_ONEDNN_CFLAGS " -I${onednn_include}")
endif()
if(NOT onednn_folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
  set(ULLAGE_ONEDNN_LIBS " -L${onednn_folder} -Wl,-rpath,${onednn_folder}")
endif()

add_library(ullage_onednn INTERFACE)
target_include_directories(ullage_onednn INTERFACE ${ULLAGE_ONEDNN_INCLUDE})
target_link_libraries(ullage_onednn INTERFACE ${ULLAGE_ONEDNN_LIBRARY})
