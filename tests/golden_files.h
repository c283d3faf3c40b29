/* SPDX-License-Identifier: Apache-2.0 */
/* Golden tests over files: what came out is compared with a file as a whole, or rewrites it. */
#ifndef UL_TESTS_GOLDEN_FILES_H
#define UL_TESTS_GOLDEN_FILES_H

#include "base/base.h"

struct golden {
    struct ul_arena arena;
    const char *root;
    bool update;
    uint32_t count, failed;
};

/* [--update] DIR; false where that is not what there is. */
bool golden_init(struct golden *golden, int argc, char **argv);
/* Says how many failed; the exit code. */
int golden_done(struct golden *golden);
/* The names in a folder that end in `suffix`, sorted. */
uint32_t golden_list(struct golden *golden, const char *path, const char *suffix,
                     const char ***names);
/* The file as a string, or NULL. */
const char *golden_read(struct golden *golden, const char *path);
void golden_compare(struct golden *golden, const char *path, const char *got);

#endif
