/* SPDX-License-Identifier: Apache-2.0 */
/* An environment that changes nothing of a plan.
 *
 * Problem: what oneDNN keeps is counted by making its primitives in this process, on a heap that
 * variables of the C library tune; and oneDNN and OpenMP read some of their own, by which they
 * offer other implementations, add otherwise, or write to standard output. The same model and
 * options are to give the same bytes. Method: where one is set, the program begins again without
 * them: glibc has read its tunables before main. What a plan may depend on are options (--isa,
 * --threads), which it names.
 *
 * Problem: threads of OpenMP that have nothing to do look out for more in a loop, for about as long
 * as a plan takes, and programs in pieces are tried by the library (codegen/cpu/pieces.c) in many
 * runs of microseconds. Method: where a search may try some, the program begins again with the
 * variable by which they sleep at once. It changes when they wait, and nothing of what they do. */
#define _GNU_SOURCE /* environ */
#include "cli/cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names that begin so; OMP_NUM_THREADS and what else is OpenMP's is for programs too, which those
 * that `ullage verify` runs do not need: they have the threads that were planned. */
static const char *const prefixes[] = {"GLIBC_TUNABLES=", "MALLOC_", "DNNL_",
                                       "ONEDNN_",         "OMP_",    "GOMP_"};
enum { PREFIXES = sizeof prefixes / sizeof *prefixes };

static const char sleeping[] = "GOMP_SPINCOUNT=0";

static bool is_left_out(const char *variable)
{
    for (int i = 0; i < PREFIXES; i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

/* Moves what stays to the front; whether all did, but for what has threads sleep, which programs
 * that this one runs are not to have. */
static bool keep_others(char **variables, bool *threads_sleep)
{
    char **to = variables;
    bool all = true;
    for (char **from = variables; *from != NULL; from++) {
        bool stays = !is_left_out(*from), sleeps = strcmp(*from, sleeping) == 0;
        all = all && (stays || sleeps);
        *threads_sleep = *threads_sleep || sleeps;
        if (stays)
            *to++ = *from;
    }
    *to = NULL;
    return all;
}

/* By its own name, where that still leads to it: so it is called in lists of processes. */
static void begin_again(char **argv)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length > 0) {
        path[length] = '\0';
        (void)execve(path, argv, environ);
    }
    (void)execve("/proc/self/exe", argv, environ);
}

bool ul_cli_settle_environment(char **argv, bool *threads_sleep)
{
    *threads_sleep = false;
    if (environ == NULL || keep_others(environ, threads_sleep))
        return true;
    begin_again(argv);
    return false;
}

void ul_cli_let_threads_sleep(char **argv)
{
    if (setenv("GOMP_SPINCOUNT", strchr(sleeping, '=') + 1, 1) == 0)
        begin_again(argv);
    (void)unsetenv("GOMP_SPINCOUNT");
}
