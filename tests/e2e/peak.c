/* SPDX-License-Identifier: Apache-2.0 */
/* peak FILE PROGRAM [ARGUMENTS...]: runs the program and writes to FILE the most bytes that it had
 * resident (VmHWM) and in page tables (VmPTE), as the kernel counts them at its end, where its
 * memory is still there. The exit code is the program's; 125 where it cannot be traced. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_TRACED = 125, NOT_STARTED = 127, POLL_US = 2000 };

static unsigned long long field_bytes(pid_t child, const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    snprintf(line, sizeof line, "/proc/%d/status", (int)child);
    FILE *status = fopen(line, "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    if (status != NULL)
        fclose(status);
    return kib * 1024;
}

struct peak {
    unsigned long long resident_bytes, table_bytes;
};

/* Page tables have no high-water mark of their own. */
static void look(pid_t child, struct peak *peak)
{
    unsigned long long resident_bytes = field_bytes(child, "VmHWM:");
    unsigned long long table_bytes = field_bytes(child, "VmPTE:");
    if (resident_bytes > peak->resident_bytes)
        peak->resident_bytes = resident_bytes;
    if (table_bytes > peak->table_bytes)
        peak->table_bytes = table_bytes;
}

/* Until it ends; its wait status. */
static int follow(pid_t child, struct peak *peak)
{
    int status = 0;
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == 0) {
            look(child, peak);
            usleep(POLL_US);
            continue;
        }
        if (got < 0 || WIFEXITED(status) || WIFSIGNALED(status))
            return status;
        int number = WSTOPSIG(status);
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            look(child, peak);
        ptrace(PTRACE_CONT, child, NULL, number == SIGTRAP || number == SIGSTOP ? 0 : number);
    }
}

int main(int argc, char **argv)
{
    struct peak peak = {0};
    int status;
    if (argc < 3)
        return NOT_TRACED;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(NOT_TRACED);
        raise(SIGSTOP);
        execvp(argv[2], argv + 2);
        _exit(NOT_STARTED);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL) != 0)
        return NOT_TRACED;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    status = follow(child, &peak);
    FILE *file = fopen(argv[1], "w");
    if (file == NULL || fprintf(file, "%llu %llu\n", peak.resident_bytes, peak.table_bytes) < 0 ||
        fclose(file) != 0)
        return NOT_TRACED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
