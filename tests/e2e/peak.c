/* SPDX-License-Identifier: Apache-2.0 */
/* peak FILE PROGRAM [ARGUMENTS...]: runs the program and writes to FILE the most bytes that it had
 * resident and in page tables (VmPTE). The exit code is the program's; 125 where it cannot be
 * traced.
 *
 * Resident bytes are the larger of VmHWM and of what the page tables hold (Rss of smaps_rollup)
 * each time that its first thread is about to give memory back or to end: VmHWM alone is behind,
 * by 32 pages for each processor and each kind of memory. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A stop at a call of the kernel is SIGTRAP with this bit, by PTRACE_O_TRACESYSGOOD. */
enum { CALL_BIT = 0x80 };
enum { NOT_TRACED = 125, NOT_STARTED = 127, POLL_NS = 2000000 };

static unsigned long long field_bytes(pid_t child, const char *file_name, const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    snprintf(line, sizeof line, "/proc/%d/%s", (int)child, file_name);
    FILE *file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

struct peak {
    unsigned long long resident_bytes, table_bytes;
};

static void raise_to(unsigned long long *most, unsigned long long bytes)
{
    if (bytes > *most)
        *most = bytes;
}

/* Page tables have no high-water mark of their own. */
static void look(pid_t child, struct peak *peak)
{
    raise_to(&peak->resident_bytes, field_bytes(child, "status", "VmHWM:"));
    raise_to(&peak->table_bytes, field_bytes(child, "status", "VmPTE:"));
}

static void look_closely(pid_t child, struct peak *peak)
{
    look(child, peak);
    raise_to(&peak->resident_bytes, field_bytes(child, "smaps_rollup", "Rss:"));
}

/* Whether the child, which stopped at a call of the kernel, is about to give memory back. */
static int gives_back(pid_t child)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return 0;
    unsigned long long call = info.entry.nr;
    return call == SYS_munmap || call == SYS_madvise || call == SYS_mremap || call == SYS_brk ||
           call == SYS_exit_group;
}

/* Until it ends; its wait status. `stops` holds SIGCHLD, which is blocked. */
static int follow(pid_t child, const sigset_t *stops, struct peak *peak)
{
    const struct timespec wait = {.tv_nsec = POLL_NS};
    int status = 0;
    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == 0) {
            look(child, peak);
            (void)sigtimedwait(stops, NULL, &wait);
            continue;
        }
        if (got < 0 || WIFEXITED(status) || WIFSIGNALED(status))
            return status;
        int number = WSTOPSIG(status), is_call = number == (SIGTRAP | CALL_BIT);
        if (is_call ? gives_back(child) : status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
            look_closely(child, peak);
        int is_own = is_call || number == SIGTRAP || number == SIGSTOP;
        ptrace(PTRACE_SYSCALL, child, NULL, is_own ? 0 : number);
    }
}

int main(int argc, char **argv)
{
    struct peak peak = {0};
    int status;
    if (argc < 3)
        return NOT_TRACED;
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGCHLD);
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(NOT_TRACED);
        raise(SIGSTOP);
        execvp(argv[2], argv + 2);
        _exit(NOT_STARTED);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL) != 0)
        return NOT_TRACED;
    sigprocmask(SIG_BLOCK, &stops, NULL);
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    status = follow(child, &stops, &peak);
    FILE *file = fopen(argv[1], "w");
    if (file == NULL || fprintf(file, "%llu %llu\n", peak.resident_bytes, peak.table_bytes) < 0 ||
        fclose(file) != 0)
        return NOT_TRACED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
