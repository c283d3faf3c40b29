/* SPDX-License-Identifier: 0BSD */
/* Files: bounded reading from front to back, and writing that shows only complete files. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "ul_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ul_reader_open(const struct ul_session *s, struct ul_reader *reader, const char *path)
{
    struct stat status;
    char shown[UL_SHOWN_BYTES];
    bool standard = strcmp(path, "-") == 0;
    reader->name = standard ? "standard input" : path;
    reader->left_bytes = UINT64_MAX;
    reader->file = standard ? stdin : fopen(path, "rb");
    if (reader->file == NULL)
        return ul_error(s, UL_EXIT_IO, "cannot open %s: %s", ul_shown(shown, path),
                        strerror(errno));
    if (fstat(fileno(reader->file), &status) != 0 || S_ISDIR(status.st_mode)) {
        ul_reader_close(reader);
        return ul_error(s, UL_EXIT_IO, "%s is not a file", ul_shown(shown, path));
    }
    if (S_ISREG(status.st_mode) && !standard)
        reader->left_bytes = (uint64_t)status.st_size;
    return UL_EXIT_OK;
}

void ul_reader_close(struct ul_reader *reader)
{
    if (reader->file != NULL && reader->file != stdin)
        fclose(reader->file);
    reader->file = NULL;
}

bool ul_reader_get(struct ul_reader *reader, void *target, uint64_t size_bytes)
{
    if (size_bytes > reader->left_bytes ||
        fread(target, 1, (size_t)size_bytes, reader->file) != size_bytes)
        return false;
    if (reader->left_bytes != UINT64_MAX)
        reader->left_bytes -= size_bytes;
    return true;
}

bool ul_reader_seek(struct ul_reader *reader, uint64_t offset_bytes)
{
    struct stat status;
    if (fstat(fileno(reader->file), &status) != 0 || !S_ISREG(status.st_mode) ||
        offset_bytes > (uint64_t)status.st_size ||
        fseeko(reader->file, (off_t)offset_bytes, SEEK_SET) != 0)
        return false;
    reader->left_bytes = (uint64_t)status.st_size - offset_bytes;
    return true;
}

int ul_reader_all(const struct ul_session *s, struct ul_reader *reader, unsigned char **bytes,
                  uint64_t *size_bytes)
{
    char shown[UL_SHOWN_BYTES];
    *size_bytes = reader->left_bytes;
    if (reader->left_bytes == UINT64_MAX)
        return ul_error(s, UL_EXIT_UNSUPPORTED, "%s: this format needs a regular file, not a pipe",
                        ul_shown(shown, reader->name));
    *bytes = malloc((size_t)(*size_bytes != 0 ? *size_bytes : 1));
    if (*bytes == NULL)
        return ul_out_of_memory(s, *size_bytes);
    if (ul_reader_get(reader, *bytes, *size_bytes))
        return UL_EXIT_OK;
    free(*bytes);
    *bytes = NULL;
    return ul_error(s, UL_EXIT_IO, "%s: cannot read", ul_shown(shown, reader->name));
}

static void hold_signals(struct ul_writer *writer)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGHUP);
    sigprocmask(SIG_BLOCK, &held, &writer->signals);
}

static void release_signals(struct ul_writer *writer)
{
    if (writer->temporary[0] != '\0')
        sigprocmask(SIG_SETMASK, &writer->signals, NULL);
}

static bool is_same_file(const struct stat *left, const struct stat *right)
{
    return left->st_dev == right->st_dev && left->st_ino == right->st_ino;
}

static bool is_link(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

/* "-", or a link to it, such as /dev/stdout: whatever else was written there stays. */
static bool is_standard_output(const char *path)
{
    struct stat status, standard;
    return strcmp(path, "-") == 0 ||
           (is_link(path) && stat(path, &status) == 0 && fstat(STDOUT_FILENO, &standard) == 0 &&
            is_same_file(&status, &standard));
}

FILE *ul_results(const struct ul_session *s)
{
    return s->options != NULL && s->options->results != NULL ? s->options->results : stdout;
}

/* Whether a new file takes the place of what lies at the path. `path` becomes what a link leads to.
   A link that leads to no file is not replaced, nor one to a descriptor whose file was removed: no
   name leads to that file. */
static bool is_replaced(char path[UL_PATH_BYTES])
{
    struct stat status, found;
    bool exists = stat(path, &status) == 0;
    if (exists && !S_ISREG(status.st_mode))
        return false;
    if (!is_link(path))
        return true;
    char *real = exists ? realpath(path, NULL) : NULL;
    bool leads_there = real != NULL && strlen(real) + 32 <= UL_PATH_BYTES &&
                       stat(real, &found) == 0 && is_same_file(&status, &found);
    if (leads_there)
        memcpy(path, real, strlen(real) + 1);
    free(real);
    return leads_there;
}

/* Whoever writes a file keeps it locked, so that others see that it is not left over. */
static bool lock_file(int fd, short kind)
{
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    return fcntl(fd, F_SETLK, &lock) == 0;
}

/* The number of the process in BASE.PID.tmp; 0: the name has another form. */
static long writer_of(const char *name, const char *base)
{
    size_t length = strlen(base);
    char *end = NULL;
    if (strncmp(name, base, length) != 0 || name[length] != '.' || name[length + 1] < '1' ||
        name[length + 1] > '9')
        return 0;
    long process = strtol(name + length + 1, &end, 10);
    return strcmp(end, ".tmp") == 0 ? process : 0;
}

/* Removes the file unless a process writes it. */
static void remove_leftover(const char *path, long process)
{
    if (kill((pid_t)process, 0) == 0 || errno != ESRCH)
        return;
    int fd = open(path, O_RDWR | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (lock_file(fd, F_WRLCK))
        remove(path);
    close(fd);
}

/* Removes what a writer of the same path left beside it when it was killed. */
static void remove_leftovers(const struct ul_writer *writer)
{
    char folder[UL_PATH_BYTES], path[UL_PATH_BYTES];
    const char *slash = strrchr(writer->path, '/');
    const char *base = slash != NULL ? slash + 1 : writer->path;
    int length = (int)(base - writer->path);
    snprintf(folder, sizeof folder, "%.*s", length > 0 ? length : 1,
             length > 0 ? writer->path : ".");
    DIR *entries = opendir(folder);
    const struct dirent *entry = NULL;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        long process = writer_of(entry->d_name, base);
        if (process == 0 || (size_t)length + strlen(entry->d_name) >= sizeof path)
            continue;
        memcpy(path, writer->path, (size_t)length);
        memcpy(path + length, entry->d_name, strlen(entry->d_name) + 1);
        remove_leftover(path, process);
    }
    if (entries != NULL)
        closedir(entries);
}

int ul_writer_open(const struct ul_session *s, struct ul_writer *writer, const char *path)
{
    char shown[UL_SHOWN_BYTES];
    bool standard = is_standard_output(path);
    writer->temporary[0] = '\0';
    writer->durable = false;
    if (strlen(path) + 32 > UL_PATH_BYTES)
        return ul_error(s, UL_EXIT_IO, "%s: the path is too long", ul_shown(shown, path));
    memcpy(writer->path, path, strlen(path) + 1);
    bool in_place = standard || !is_replaced(writer->path);
    if (!in_place) {
        snprintf(writer->temporary, UL_PATH_BYTES, "%.*s.%ld.tmp", UL_PATH_BYTES - 32, writer->path,
                 (long)getpid()); /* there is room for all of it */
        remove_leftovers(writer);
        hold_signals(writer);
    }
    writer->file = standard ? ul_results(s) : fopen(in_place ? path : writer->temporary, "wb");
    if (writer->file != NULL && !in_place)
        (void)lock_file(fileno(writer->file), F_WRLCK);
    if (writer->file != NULL)
        return UL_EXIT_OK;
    int cause = errno;
    release_signals(writer);
    return ul_error(s, UL_EXIT_IO, "cannot write %s: %s", ul_shown(shown, path), strerror(cause));
}

int ul_writer_close(const struct ul_session *s, struct ul_writer *writer, bool good)
{
    char shown[UL_SHOWN_BYTES];
    bool failed = ferror(writer->file) != 0 || fflush(writer->file) != 0 ||
                  (good && writer->durable && writer->temporary[0] != '\0' &&
                   fsync(fileno(writer->file)) != 0);
    int cause = errno;
    if (writer->file != ul_results(s) && fclose(writer->file) != 0 && !failed) {
        failed = true;
        cause = errno;
    }
    writer->file = NULL;
    if (good && !failed && writer->temporary[0] != '\0' &&
        rename(writer->temporary, writer->path) != 0) {
        failed = true;
        cause = errno;
    }
    if ((!good || failed) && writer->temporary[0] != '\0')
        remove(writer->temporary);
    release_signals(writer);
    if (failed)
        return ul_error(s, UL_EXIT_IO, "cannot write %s: %s", ul_shown(shown, writer->path),
                        strerror(cause));
    return UL_EXIT_OK;
}
