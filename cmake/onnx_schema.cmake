# SPDX-License-Identifier: Apache-2.0
# Generates C from the installed ONNX schema at build time and adds it to ul_frontend.
#
# The schema is that of libonnx-dev or of an installed `onnx` Python package; any version from
# ONNX 1.12 on will do, since newer fields are read from protobuf-c's unknown fields.
# ULLAGE_ONNX_PROTO overrides the search.

find_program(PROTOC_C protoc-c REQUIRED)
find_file(ULLAGE_ONNX_PROTO NAMES onnx/onnx-ml.proto onnx/onnx.proto
          DOC "The ONNX schema (onnx-ml.proto or onnx.proto)")
if(NOT ULLAGE_ONNX_PROTO)
  find_program(ULLAGE_PYTHON NAMES python3)
  if(ULLAGE_PYTHON)
    execute_process(
      COMMAND ${ULLAGE_PYTHON} -c
              "import importlib.util as u; print(u.find_spec('onnx').submodule_search_locations[0])"
      OUTPUT_VARIABLE onnx_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(onnx_package)
      find_file(ULLAGE_ONNX_PROTO NAMES onnx-ml.proto onnx.proto PATHS ${onnx_package}
                NO_DEFAULT_PATH)
    endif()
  endif()
endif()
if(NOT ULLAGE_ONNX_PROTO)
  message(FATAL_ERROR "No ONNX schema found: install libonnx-dev or the onnx Python package, or "
                      "set ULLAGE_ONNX_PROTO to an onnx.proto")
endif()

set(onnx_schema_dir ${PROJECT_BINARY_DIR}/onnx_schema)
file(MAKE_DIRECTORY ${onnx_schema_dir})
add_custom_command(
  OUTPUT ${onnx_schema_dir}/onnx.pb-c.c ${onnx_schema_dir}/onnx.pb-c.h
  COMMAND ${CMAKE_COMMAND} -E copy ${ULLAGE_ONNX_PROTO} ${onnx_schema_dir}/onnx.proto
  COMMAND ${PROTOC_C} --c_out=${onnx_schema_dir} --proto_path=${onnx_schema_dir}
          ${onnx_schema_dir}/onnx.proto
  DEPENDS ${ULLAGE_ONNX_PROTO}
  COMMENT "Generating C from ${ULLAGE_ONNX_PROTO}"
  VERBATIM)
# The generated code is protobuf-c's affair: it is compiled without our warnings.
set_source_files_properties(${onnx_schema_dir}/onnx.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
target_sources(ul_frontend PRIVATE ${onnx_schema_dir}/onnx.pb-c.c ${onnx_schema_dir}/onnx.pb-c.h)
target_include_directories(ul_frontend SYSTEM PRIVATE ${onnx_schema_dir})
target_link_libraries(ul_frontend PRIVATE PkgConfig::PROTOBUF_C)
