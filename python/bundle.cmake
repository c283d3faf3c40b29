# SPDX-License-Identifier: Apache-2.0
# Copies the libraries that `program` needs into `tree`, except those that every Linux with glibc
# has, with Debian's files on their licences. In: patchelf, program, tree.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} RESOLVED_DEPENDENCIES_VAR libraries
     PRE_EXCLUDE_REGEXES "^ld-linux" "^libc\\.so" "^libm\\.so" "^libdl\\.so" "^libpthread\\.so"
                         "^librt\\.so" "^libstdc\\+\\+\\.so" "^libgcc_s\\.so")

set(onednn ${tree}/share/ullage/onednn/lib)
file(MAKE_DIRECTORY ${tree}/lib ${onednn} ${tree}/share/licenses)
foreach(library IN LISTS libraries)
  get_filename_component(name ${library} NAME)
  # A wheel has no links: the file gets the name by which it is loaded.
  file(REAL_PATH ${library} real)
  set(folder ${tree}/lib)
  if(name MATCHES "^lib(dnnl|OpenCL)\\.so")
    set(folder ${onednn})
  endif()
  file(COPY_FILE ${real} ${folder}/${name})
  execute_process(COMMAND ${patchelf} --set-rpath "$ORIGIN" ${folder}/${name}
                  COMMAND_ERROR_IS_FATAL ANY)
  if(name MATCHES "^libdnnl\\.so")
    file(WRITE ${onednn}/libdnnl.so "/* for ld: -ldnnl */\nINPUT(${name})\n")
  endif()
  # dpkg knows paths of merged folders by their old or by their new names.
  string(REGEX REPLACE "^/usr" "" old "${real}")
  execute_process(COMMAND dpkg-query -S ${real} ${old} OUTPUT_VARIABLE owner ERROR_QUIET)
  string(REGEX REPLACE ":.*" "" owner "${owner}")
  if(owner AND EXISTS /usr/share/doc/${owner}/copyright)
    file(COPY_FILE /usr/share/doc/${owner}/copyright ${tree}/share/licenses/${owner})
  endif()
endforeach()
if(EXISTS /usr/share/common-licenses/GPL-3) # to which GLPK's licence refers
  file(COPY_FILE /usr/share/common-licenses/GPL-3 ${tree}/share/licenses/GPL-3)
endif()
