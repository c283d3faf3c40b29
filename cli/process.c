/* Other programs and temporary folders. */
#define _XOPEN_SOURCE 700
#include "cli/cli.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGHUP);
}

enum ul_status ul_cli_temporary(struct ul_arena *arena, const char **directory,
                                struct ul_diag *diag)
{
    const char *base = getenv("TMPDIR");
    char *path = ul_arena_printf(arena, "%s/ullage.XXXXXX", base != NULL ? base : "/tmp");
    if (mkdtemp(path) == NULL)
        return ul_diag_set(diag, UL_IO, "%s: cannot make a temporary folder: %s", path,
                           strerror(errno));
    /* From here to the removal of the folder a Ctrl-C waits; a child that runs gets it at once. */
    sigset_t stops;
    stop_signals(&stops);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    *directory = path;
    return UL_OK;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void ul_cli_remove_tree(const char *directory)
{
    enum { OPEN_FOLDERS = 16 };
    nftw(directory, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

void ul_cli_remove_temporary(const char *directory)
{
    sigset_t stops;
    ul_cli_remove_tree(directory);
    stop_signals(&stops);
    sigprocmask(SIG_UNBLOCK, &stops, NULL); /* one that waited ends the program now */
}

void ul_cli_progress(const char *what)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, what != NULL ? "\r\033[K%s ..." : "\r\033[K", what);
        fflush(stderr);
    }
}

int ul_cli_execute(const char *const *argv)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        sigset_t stops;
        stop_signals(&stops);
        sigprocmask(SIG_UNBLOCK, &stops, NULL);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "ullage: error: cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    int status;
    if (child < 0)
        return -1;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
