/* SPDX-License-Identifier: Apache-2.0 */
/* Runs other programs, and makes temporary folders. */
#define _XOPEN_SOURCE 700
#include "compile/files/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals that end a program from outside; one that is ignored (nohup) stays ignored. */
static void stop_signals(sigset_t *signals)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action;
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(signals, numbers[i]);
    }
}

/* How many temporary folders this thread has, and which signals it had blocked before the first:
 * the mask belongs to the thread too. */
static _Thread_local struct {
    uint32_t count;
    sigset_t before;
} held;

/* From here on Ctrl-C waits, and so does the signal of a pipe without a reader. */
static void hold_stops(void)
{
    sigset_t stops;
    stop_signals(&stops);
    sigaddset(&stops, SIGPIPE);
    if (held.count++ == 0)
        pthread_sigmask(SIG_BLOCK, &stops, &held.before);
}

/* After the last folder everything is as before: a stop that waited ends the program now, unless
 * the caller had blocked it. */
static void release_stops(void)
{
    UL_ASSERT(held.count > 0);
    if (--held.count == 0)
        pthread_sigmask(SIG_SETMASK, &held.before, NULL);
}

enum ul_status ul_temporary_make(struct ul_arena *arena, const char **directory,
                                 struct ul_diag *diag)
{
    const char *base = getenv("TMPDIR");
    bool is_set = base != NULL && base[0] != '\0';
    char *path = ul_arena_printf(arena, "%s/ullage.XXXXXX", is_set ? base : "/tmp");
    if (mkdtemp(path) == NULL)
        return ul_diag_set(diag, UL_IO,
                           "%s: cannot make a temporary folder: %s; set TMPDIR to a folder that "
                           "can be written",
                           path, strerror(errno));
    hold_stops(); /* a running child gets them at once */
    *directory = path;
    return UL_OK;
}

void ul_temporary_explain(const char *directory, struct ul_diag *diag)
{
    size_t length = strlen(diag->text);
    if (diag->status == UL_IO && strstr(diag->text, directory) != NULL)
        snprintf(diag->text + length, sizeof diag->text - length,
                 "\nThat folder is a temporary one: set TMPDIR to a folder with more room");
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void ul_tree_remove(const char *directory)
{
    enum { OPEN_FOLDERS = 16 };
    nftw(directory, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

void ul_temporary_remove(const char *directory)
{
    ul_tree_remove(directory);
    release_stops();
}

enum ul_status ul_staging_begin(struct ul_arena *arena, const char *directory,
                                struct ul_staging *staging, struct ul_diag *diag)
{
    size_t length = strlen(directory);
    struct stat info;
    while (length > 1 && directory[length - 1] == '/')
        length--;
    staging->directory = ul_arena_printf(arena, "%.*s", (int)length, directory);
    bool exists = stat(staging->directory, &info) == 0;
    char *path =
        ul_arena_printf(arena, exists ? "%s/.ullage.XXXXXX" : "%s.XXXXXX", staging->directory);
    hold_stops();
    staging->exists = exists;
    staging->path = path;
    if (mkdtemp(path) != NULL)
        return UL_OK;
    ul_diag_set(diag, UL_IO, "%s: cannot write the folder: %s", directory, strerror(errno));
    release_stops();
    return UL_IO;
}

typedef bool use_file(struct ul_arena *arena, const struct ul_staging *staging, const char *name);

/* Applies `use` to all files of the folder, even after one that failed. */
static bool each_file(struct ul_arena *arena, const struct ul_staging *staging, const char *folder,
                      use_file *use)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    bool good = count >= 0;
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            good = use(arena, staging, name) && good;
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return good;
}

/* Removes a stale file: the Makefile uses every file that it finds. */
static bool remove_stale(struct ul_arena *arena, const struct ul_staging *staging, const char *name)
{
    return !staging->is_own(name) ||
           access(ul_arena_printf(arena, "%s/%s", staging->path, name), F_OK) == 0 ||
           unlink(ul_arena_printf(arena, "%s/%s", staging->directory, name)) == 0;
}

/* Replaces the file with that name. */
static bool move_file(struct ul_arena *arena, const struct ul_staging *staging, const char *name)
{
    return rename(ul_arena_printf(arena, "%s/%s", staging->path, name),
                  ul_arena_printf(arena, "%s/%s", staging->directory, name)) == 0;
}

enum ul_status ul_staging_end(struct ul_arena *arena, const struct ul_staging *staging,
                              enum ul_status status, struct ul_diag *diag)
{
    mode_t mask = umask(0);
    umask(mask);
    bool moved = status != UL_OK;
    if (status == UL_OK && staging->exists)
        moved = each_file(arena, staging, staging->directory, remove_stale) &&
                each_file(arena, staging, staging->path, move_file);
    else if (status == UL_OK)
        moved = chmod(staging->path, 0777 & ~mask) == 0 &&
                rename(staging->path, staging->directory) == 0;
    if (!moved)
        status = ul_diag_set(diag, UL_IO, "%s: cannot write the folder: %s", staging->directory,
                             strerror(errno));
    if (status != UL_OK || staging->exists)
        ul_tree_remove(staging->path);
    release_stops();
    return status;
}

static void on_child(int number)
{
    (void)number; /* a signal without a handler might not be kept for sigwait */
}

/* Runs in a process group of its own, so that a stop reaches all that the child started. The group
 * is in the background, so it must not read from the terminal. */
static void become(const char *const *argv, const char *capture, const sigset_t *blocked)
{
    int null = open("/dev/null", O_RDONLY);
    int file = capture != NULL ? open(capture, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    setpgid(0, 0);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (file >= 0) {
        dup2(file, STDOUT_FILENO);
        dup2(file, STDERR_FILENO);
    }
    pthread_sigmask(SIG_UNBLOCK, blocked, NULL);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    int error = errno;
    struct ul_arena arena;
    ul_arena_init(&arena);
    fprintf(stderr, "ullage: error: cannot run %s: %s\n", ul_shown(&arena, argv[0]),
            strerror(error));
    _exit(127);
}

/* Passes a stop on to the child's group, and leaves it in *stop. */
static int await(pid_t child, const sigset_t *awaited, int *stop)
{
    for (;;) {
        int status;
        int number;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status)     ? WEXITSTATUS(status)
                   : WIFSIGNALED(status) ? UL_PROCESS_SIGNAL + WTERMSIG(status)
                                         : -1;
        if (ended < 0 && errno != EINTR)
            return -1;
        if (sigwait(awaited, &number) == 0 && number != SIGCHLD) {
            *stop = number;
            kill(-child, SIGTERM); /* make does not forward SIGINT */
        }
    }
}

int ul_process_run(const char *const *argv, const char *capture)
{
    sigset_t awaited;
    sigset_t blocked;
    sigset_t before;
    struct sigaction handler = {.sa_handler = on_child};
    struct sigaction handler_before;
    stop_signals(&awaited);
    sigaddset(&awaited, SIGCHLD);
    blocked = awaited;
    sigaddset(&blocked, SIGPIPE);
    sigaction(SIGCHLD, &handler, &handler_before);
    fflush(NULL);
    pthread_sigmask(SIG_BLOCK, &awaited, &before);
    int code = -1;
    int stop = 0;
    pid_t child = fork();
    if (child == 0)
        become(argv, capture, &blocked);
    if (child > 0) {
        setpgid(child, child); /* parent and child both do it: either may run first */
        code = await(child, &awaited, &stop);
    }
    sigaction(SIGCHLD, &handler_before, NULL);
    if (stop != 0) {
        code = -1;
        raise(stop); /* takes effect once nothing is left to clean up */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

const char *ul_process_end_text(struct ul_arena *arena, int code)
{
    int number = code - UL_PROCESS_SIGNAL;
    return code <= UL_PROCESS_SIGNAL
               ? ul_arena_printf(arena, "exit code %d", code)
               : ul_arena_printf(arena, "signal %d, %s", number, strsignal(number));
}

/* The reason why no file of that size can be written next to the path; 0: one can. */
static int try_write(struct ul_arena *arena, const char *path, uint64_t size_bytes)
{
    char *probe = ul_arena_printf(arena, "%s.XXXXXX", path);
    int fd = mkstemp(probe);
    if (fd < 0)
        return errno;
    int reason = posix_fallocate(fd, 0, (off_t)size_bytes);
    close(fd);
    unlink(probe);
    return reason == EINVAL || reason == EOPNOTSUPP
               /* not every file system supports it */
               ? 0
               : reason;
}

enum ul_status ul_process_check(struct ul_arena *arena, const char *name, int code,
                                const char *path, uint64_t size_bytes, struct ul_diag *diag)
{
    enum { OF_SHELL = 128 }; /* plus the signal: the exit code of a shell whose command it ended */
    UL_ASSERT(size_bytes > 0 && size_bytes <= INT64_MAX);
    if (code == UL_PROCESS_SIGNAL + SIGKILL || code == OF_SHELL + SIGKILL)
        return ul_diag_set(diag, UL_NO_FIT,
                           "%s was killed (signal %d), as the system does where memory runs out: "
                           "give it more, or run it beside less",
                           name, SIGKILL);
    int reason = try_write(arena, path, size_bytes);
    if (reason != 0)
        return ul_diag_set(diag, UL_IO, "%s: cannot write: %s", path, strerror(reason));
    return UL_OK;
}
