/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the environment from changing a plan.
 *
 * Problem: to count what oneDNN keeps, this process makes its primitives, on a heap that variables
 * of the C library tune. oneDNN and OpenMP also read variables, by which they choose other
 * implementations, add in another order, or write to standard output. But the same model and
 * options must give the same bytes. Method: where one is set, the program begins again without
 * them, since glibc has read its tunables before main. Everything on which a plan may depend is an
 * option (--isa, --threads), and the plan names it.
 *
 * Problem: idle threads of OpenMP look for work in a loop, for about as long as a plan takes, and
 * the library tries programs in pieces (codegen/cpu/pieces.c) in many runs of microseconds. Method:
 * where a search may try some, the program begins again with the variable that makes them sleep at
 * once. This changes when they wait, not what they compute. */
#define _GNU_SOURCE /* environ */
#include "cli/cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beginnings of names. OMP_NUM_THREADS and OpenMP's other variables are meant for programs too, but
 * those that `ullage verify` runs do not need them: they have the threads that were planned. */
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

/* Moves the variables that stay to the front. Returns whether all stay, apart from the one that
 * makes threads sleep, which programs that this one runs must not inherit. */
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

/* Uses the program's own name where that still leads to it: lists of processes show it. */
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
