# oneDNN, which target cpu hands convolutions, matrix products and pooling to. Its interface changes
# with the major version: the compiler asks it and compiled programs call it through that of 2.x.
#
# ullage_onednn is what the compiler links: the library, and the OpenMP runtime that it brings along,
# whatever the C compiler's own is.
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
set(onednn_version unknown)
foreach(header IN ITEMS oneapi/dnnl/dnnl_version.h dnnl_version.h)
  if(onednn_version STREQUAL unknown AND EXISTS ${ULLAGE_ONEDNN_INCLUDE}/${header})
    file(STRINGS ${ULLAGE_ONEDNN_INCLUDE}/${header} onednn_major
         REGEX "#define DNNL_VERSION_MAJOR[ ]+[0-9]+")
    if(onednn_major)
      string(REGEX MATCH "[0-9]+" onednn_version "${onednn_major}")
    endif()
  endif()
endforeach()
if(NOT onednn_version STREQUAL "2")
  message(FATAL_ERROR "oneDNN ${onednn_version}.x was found in ${ULLAGE_ONEDNN_INCLUDE}; ullage is "
                      "made for oneDNN 2.x (Debian: libdnnl-dev 2.6 or 2.7)")
endif()

add_library(ullage_onednn INTERFACE)
target_include_directories(ullage_onednn INTERFACE ${ULLAGE_ONEDNN_INCLUDE})
target_link_libraries(ullage_onednn INTERFACE ${ULLAGE_ONEDNN_LIBRARY} ${ULLAGE_GOMP_LIBRARY})
