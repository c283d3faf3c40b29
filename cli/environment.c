/* SPDX-License-Identifier: Apache-2.0 */
/* An environment that changes nothing of a plan.
 *
 * Problem: what oneDNN keeps is counted by making its primitives in this process, on a heap that
 * variables of the C library tune; and oneDNN and OpenMP read some of their own, by which they
 * offer other implementations, add otherwise, or write to standard output. The same model and
 * options are to give the same bytes. Method: where one is set, the program begins again without
 * them: glibc has read its tunables before main. What a plan may depend on are options (--isa,
 * --threads), which it names. */
#define _GNU_SOURCE /* environ */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names that begin so; OMP_NUM_THREADS and what else is OpenMP's is for programs too, which those
 * that `ullage verify` runs do not need: they have the threads that were planned. */
static const char *const prefixes[] = {"GLIBC_TUNABLES=", "MALLOC_", "DNNL_",
                                       "ONEDNN_",         "OMP_",    "GOMP_"};
enum { PREFIXES = sizeof prefixes / sizeof *prefixes };

static bool is_left_out(const char *variable)
{
    for (int i = 0; i < PREFIXES; i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

/* Moves what stays to the front; whether all did. */
static bool keep_others(char **variables)
{
    char **to = variables;
    bool all = true;
    for (char **from = variables; *from != NULL; from++) {
        bool stays = !is_left_out(*from);
        all = all && stays;
        if (stays)
            *to++ = *from;
    }
    *to = NULL;
    return all;
}

bool ul_cli_settle_environment(char **argv)
{
    if (environ == NULL || keep_others(environ))
        return true;
    (void)execve("/proc/self/exe", argv, environ);
    return false;
}
