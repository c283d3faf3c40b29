/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads to the end of what need not be a regular file. */
static enum ul_status read_stream(struct ul_file *file, struct ul_arena *arena, int fd,
                                  const char *path, bool is_file, struct ul_diag *diag)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    char chunk[65536];
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ul_diag_set(diag, UL_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            break;
        if (!is_file && text.length >= UL_LIMIT_STREAM_BYTES)
            return ul_diag_set(diag, UL_IO, "%s: more than 2 GiB come from it: give a file", path);
        ul_text_put_bytes(&text, chunk, (size_t)got);
    }
    file->data = (const unsigned char *)text.data;
    file->size_bytes = text.length;
    return UL_OK;
}

static enum ul_status map_fd(struct ul_file *file, struct ul_arena *arena, int fd, const char *path,
                             struct ul_diag *diag)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return ul_diag_set(diag, UL_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return ul_diag_set(diag, UL_IO, "%s: is a directory; give a file", path);
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return read_stream(file, arena, fd, path, false, diag);
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED && errno == ENOMEM)
        return ul_diag_set(diag, UL_NO_FIT,
                           "%s: out of memory: its %llu bytes cannot be mapped; give ullage more "
                           "(ulimit -v, the limit of the container)",
                           path, (unsigned long long)info.st_size);
    if (memory == MAP_FAILED)
        return read_stream(file, arena, fd, path, true, diag);
    file->data = memory;
    file->size_bytes = (uint64_t)info.st_size;
    file->mapped = true;
    return UL_OK;
}

enum ul_status ul_file_map(struct ul_file *file, struct ul_arena *arena, const char *path,
                           struct ul_diag *diag)
{
    memset(file, 0, sizeof *file);
    if (strcmp(path, "-") == 0)
        return map_fd(file, arena, STDIN_FILENO, "standard input", diag);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ul_diag_set(diag, UL_IO, "%s: cannot open: %s", path, strerror(errno));
    enum ul_status status = map_fd(file, arena, fd, path, diag);
    close(fd);
    return status;
}

bool ul_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

const char *ul_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void ul_file_release(const void *data, uint64_t size_bytes)
{
#ifdef MADV_PAGEOUT
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)data + (uintptr_t)size_bytes) & ~(page - 1);
    int saved = errno;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_PAGEOUT); /* a hint: failure changes nothing */
    errno = saved;
#else
    (void)data;
    (void)size_bytes;
#endif
}

void ul_file_unmap(struct ul_file *file)
{
    if (file->mapped)
        munmap((void *)(uintptr_t)file->data, (size_t)file->size_bytes);
    memset(file, 0, sizeof *file);
}

enum ul_status ul_file_close(struct ul_file *file, const char *path, enum ul_status status,
                             struct ul_diag *diag)
{
    ul_file_unmap(file);
    if (status != UL_OK)
        ul_diag_prefix(diag, path);
    return status;
}

/* Opens a file without a name where the file system has those: whatever ends the program, nothing
 * is left of it. Else one with a temporary name. */
static void open_beside(struct ul_file_writer *writer)
{
    char folder[UL_LIMIT_PATH_BYTES];
    const char *slash = strrchr(writer->path, '/');
    if (slash == NULL)
        memcpy(folder, ".", 2);
    else
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - writer->path + 1), writer->path);
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0) {
        snprintf(writer->temporary, sizeof writer->temporary, "%.*s.XXXXXX",
                 (int)(sizeof writer->temporary - 16), writer->path);
        fd = mkstemp(writer->temporary);
        if (fd >= 0) {
            mode_t mask = umask(0);
            umask(mask);
            fchmod(fd, 0666 & ~mask);
        }
    }
    if (fd >= 0)
        writer->stream = fdopen(fd, "wb");
}

/* Gives a nameless file a temporary name, so that it can be renamed over the target. */
static bool name_file(struct ul_file_writer *writer)
{
    char descriptor[64];
    if (writer->temporary[0] != '\0')
        return true;
    snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", fileno(writer->stream));
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        snprintf(writer->temporary, sizeof writer->temporary, "%.*s.%ld.%u",
                 (int)(sizeof writer->temporary - 32), writer->path, (long)getpid(), attempt);
        if (linkat(AT_FDCWD, descriptor, AT_FDCWD, writer->temporary, AT_SYMLINK_FOLLOW) == 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    writer->temporary[0] = '\0';
    return false;
}

static bool is_same_file(const struct stat *left, const struct stat *right)
{
    return left->st_dev == right->st_dev && left->st_ino == right->st_ino;
}

bool ul_file_is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* "-", or a link to it, such as /dev/stdout: whatever else was written there stays. */
static bool is_standard_output(const char *path)
{
    struct stat info, standard;
    return strcmp(path, "-") == 0 ||
           (ul_file_is_link(path) && stat(path, &info) == 0 &&
            fstat(STDOUT_FILENO, &standard) == 0 && is_same_file(&info, &standard));
}

/* Whether a new file takes the place of what lies at the path. `path` becomes what a link leads to.
 * A link that leads to no file is not replaced, nor one to a descriptor whose file was removed: no
 * name leads to that file. */
static bool is_replaced(char path[UL_LIMIT_PATH_BYTES])
{
    char real[UL_LIMIT_PATH_BYTES]; /* PATH_MAX of Linux */
    struct stat info, found;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode))
        return false;
    if (!ul_file_is_link(path))
        return true;
    if (!exists || realpath(path, real) == NULL || strlen(real) + 16 > sizeof real ||
        stat(real, &found) != 0 || !is_same_file(&info, &found))
        return false;
    memcpy(path, real, strlen(real) + 1);
    return true;
}

enum ul_status ul_file_begin(struct ul_file_writer *writer, const char *path, struct ul_diag *diag)
{
    memset(writer, 0, sizeof *writer);
    if (is_standard_output(path)) {
        writer->in_place = true;
        writer->stream = stdout;
        memcpy(writer->path, "standard output", sizeof "standard output");
        return UL_OK;
    }
    if (strlen(path) + 16 > sizeof writer->path)
        return ul_diag_set(diag, UL_IO, "%.100s...: the path is too long", path);
    memcpy(writer->path, path, strlen(path) + 1);
    writer->in_place = !is_replaced(writer->path);
    if (writer->in_place)
        writer->stream = fopen(path, "wb");
    else
        open_beside(writer);
    if (writer->stream == NULL)
        return ul_diag_set(diag, UL_IO, "%s: cannot write: %s", path, strerror(errno));
    return UL_OK;
}

enum ul_status ul_file_commit(struct ul_file_writer *writer, struct ul_diag *diag)
{
    bool failed = fflush(writer->stream) != 0 || ferror(writer->stream);
    int reason = errno;
    if (!failed && !writer->in_place && !name_file(writer)) {
        failed = true;
        reason = errno;
    }
    if (writer->stream != stdout) {
        if (fclose(writer->stream) != 0 && !failed) {
            failed = true;
            reason = errno;
        }
        writer->stream = NULL;
    }
    if (!failed && !writer->in_place && rename(writer->temporary, writer->path) != 0) {
        failed = true;
        reason = errno;
    }
    if (!failed)
        return UL_OK;
    if (writer->temporary[0] != '\0')
        unlink(writer->temporary);
    return ul_diag_set(diag, UL_IO, "%s: cannot write: %s", writer->path, strerror(reason));
}

void ul_file_abandon(struct ul_file_writer *writer)
{
    if (writer->stream != NULL && writer->stream != stdout)
        fclose(writer->stream);
    if (writer->temporary[0] != '\0')
        unlink(writer->temporary);
    writer->stream = NULL;
}

enum ul_status ul_file_write(const char *path, const void *data, uint64_t size_bytes,
                             struct ul_diag *diag)
{
    struct ul_file_writer writer;
    UL_TRY(ul_file_begin(&writer, path, diag));
    if (size_bytes > 0)
        fwrite(data, 1, (size_t)size_bytes, writer.stream);
    return ul_file_commit(&writer, diag);
}
