/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that some work adds to this process, as long as its objects live. */
#ifndef UL_CODEGEN_PROCESS_COUNTED_H
#define UL_CODEGEN_PROCESS_COUNTED_H

#include "base/base.h"

struct ul_counted_work {
    void (*begin)(void *context); /* in a thread that is to make the objects, before it counts */
    bool (*make)(void *context);  /* false: they cannot be made */
    void (*unmake)(void *context);
    void *context;
};

struct ul_counted {
    uint64_t heap_bytes;
    uint64_t code_bytes; /* pages of generated code */
};

/* False where the objects cannot be made, or the C library or the kernel cannot count. */
bool ul_counted_make(const struct ul_counted_work *work, struct ul_counted *counted);

#endif
