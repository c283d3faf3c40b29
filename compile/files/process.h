/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs, and folders for them. */
#ifndef UL_COMPILE_PROCESS_H
#define UL_COMPILE_PROCESS_H

#include "base/base.h"

/* Runs a program and waits. Returns its exit code, UL_PROCESS_SIGNAL plus the signal that ended it,
 * or -1 where it could not start. Its output goes to the file `capture` unless that is NULL. A stop
 * (Ctrl-C) goes to all that the program started; then it ends this process as soon as no temporary
 * folder is left. */
enum { UL_PROCESS_SIGNAL = 256 };
int ul_process_run(const char *const *argv, const char *capture);
/* "exit code 3", "signal 11, Segmentation fault" */
const char *ul_process_end_text(struct ul_arena *arena, int code);
/* Says why a program failed where neither it nor its input is at fault. UL_NO_FIT: it was killed,
 * as systems do when memory runs out. UL_IO: no file of `size_bytes` can be written next to `path`,
 * which the message names. UL_OK: it failed for another reason. `name` is the message's subject. */
enum ul_status ul_process_check(struct ul_arena *arena, const char *name, int code,
                                const char *path, uint64_t size_bytes,
                                struct ul_diag *diag) UL_MUST_CHECK;
/* A folder that must appear completely or not at all is written next to its place, or inside it
 * where that exists; stops wait meanwhile. `status` says whether everything was written. */
struct ul_staging {
    const char *directory; /* its place */
    const char *path;      /* where to write */
    bool exists;           /* the place existed before */
    /* Set by the caller: whether a file of this name belongs to an earlier result; it is removed if
     * the new result has none of that name. */
    bool (*is_own)(const char *name);
};
enum ul_status ul_staging_begin(struct ul_arena *arena, const char *directory,
                                struct ul_staging *staging, struct ul_diag *diag) UL_MUST_CHECK;
enum ul_status ul_staging_end(struct ul_arena *arena, const struct ul_staging *staging,
                              enum ul_status status, struct ul_diag *diag) UL_MUST_CHECK;
/* Makes a new folder below TMPDIR. Until ul_temporary_remove, which the same thread must call,
 * stops wait: SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE. After the last folder of a thread its
 * mask of signals is as it was before the first. */
enum ul_status ul_temporary_make(struct ul_arena *arena, const char **directory,
                                 struct ul_diag *diag) UL_MUST_CHECK;
void ul_temporary_remove(const char *directory);
/* Adds the remedy to a message about a file in the folder that cannot be written. */
void ul_temporary_explain(const char *directory, struct ul_diag *diag);
/* Removes the folder with everything in it. */
void ul_tree_remove(const char *directory);

#endif
