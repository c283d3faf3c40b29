/* SPDX-License-Identifier: Apache-2.0 */
/* How a program is written out as source. */
#ifndef UL_CODEGEN_EMIT_EMIT_H
#define UL_CODEGEN_EMIT_EMIT_H

#include "base/base.h"

struct ul_emit_options {
    const char *prefix; /* of the library's names: "model" */
    /* The folder has only a library: the prefix names its files, and files for a program are
     * missing. Else they are model.h and model.c. */
    bool is_library_alone;
    const char *model_sha256; /* hex */
    const char *plan_sha256;  /* hex */
    const char *runtime_dir;  /* where the runtime's files are */
    uint64_t start_bytes;     /* in struct ul_library; 0: not known */
    uint64_t making_bytes;    /* likewise */
    const char *cc;           /* for the Makefile: the target's compiler */
    const char *cflags;
    const char *march; /* "native", or NULL: none */
    /* Where the target's library is: "" or " -I...", "" or " -L..." */
    const char *library_cflags, *library_links;
    bool weights_beside; /* in PROGRAM.weights, not appended to the program */
};

/* emit_files.c: whether a file of this name in an emitted folder is a copy of the runtime's. */
bool ul_emit_is_runtime_file(const char *name);

#endif
