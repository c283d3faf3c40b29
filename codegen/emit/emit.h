/* SPDX-License-Identifier: Apache-2.0 */
/* How a program is written out as source. */
#ifndef UL_CODEGEN_EMIT_EMIT_H
#define UL_CODEGEN_EMIT_EMIT_H

#include "base/base.h"

struct ul_emit_options {
    const char *prefix; /* of the library's names: "model" */
    /* The folder is of a library alone: its files are named by the prefix, and nothing is there
     * that a program has more. Else they are model.h and model.c. */
    bool is_library_alone;
    const char *model_sha256; /* hex */
    const char *plan_sha256;  /* hex */
    const char *runtime_dir;  /* where the runtime's files are */
    uint64_t start_bytes;     /* of struct ul_library; 0: none is said */
    uint64_t making_bytes;    /* likewise */
    const char *cc;           /* for the Makefile: the target's compiler */
    const char *cflags;
    const char *march; /* "native", or NULL: none */
    /* Where the target's library is: "" or " -I...", "" or " -L..." */
    const char *onednn_cflags, *onednn_libs;
    bool weights_beside; /* in PROGRAM.weights, not appended to the program */
    /* Where the runtime's files go of a model that is one of several: the model's folder has
     * neither them nor what is of a program of its own. NULL: all goes to one folder. */
    const char *common_directory;
};

/* The folder of models that share an arena, each of which is in a folder of its own there. */
struct ul_emit_shared {
    uint32_t count;
    const char *const *prefixes; /* of the models' names; of their folders too */
    uint64_t arena_bytes, alignment_bytes;
    bool has_rom, has_threads;
    const struct ul_emit_options *options; /* of any of them */
};

/* emit_files.c: a file of this name in an emitted folder is a copy of the runtime's. */
bool ul_emit_is_runtime_file(const char *name);

#endif
