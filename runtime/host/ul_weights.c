/* SPDX-License-Identifier: 0BSD */
/* Where a program's weights are: in a file that was named, in the program's own file, or beside
 * it. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "ul_internal.h"

#include "ul_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    struct ul_weights_file *file = context;
    unsigned char *at = target;
    while (size_bytes > 0) {
        size_t chunk = size_bytes < ((size_t)1 << 30) ? (size_t)size_bytes : (size_t)1 << 30;
        ssize_t got = pread(file->descriptor, at, chunk, (off_t)offset_bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            file->error = got < 0 ? errno : 0;
            return 1;
        }
        at += got;
        offset_bytes += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
    return 0;
}

/* Puts the file's pages where whole pages of the arena are, and reads what is around them. The
   pages belong to this process: what is written to the arena does not go into the file. */
static int map_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    struct ul_weights_file *file = context;
    long page = sysconf(_SC_PAGESIZE);
    uint64_t page_bytes = page > 0 ? (uint64_t)page : UL_PAGE_BYTES;
    uint64_t head = (page_bytes - (uint64_t)(uintptr_t)target % page_bytes) % page_bytes;
    uint64_t body = size_bytes > head ? (size_bytes - head) / page_bytes * page_bytes : 0;
    uint64_t tail = head + body;
    unsigned char *bytes = target;
    if (!file->pages || body == 0 || (offset_bytes + head) % page_bytes != 0 ||
        mmap(bytes + head, (size_t)body, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             file->descriptor, (off_t)(offset_bytes + head)) == MAP_FAILED)
        return 1;
    return read_weights(context, offset_bytes, bytes, head) ||
           read_weights(context, offset_bytes + tail, bytes + tail, size_bytes - tail);
}

static bool open_path(struct ul_weights_file *file)
{
    struct stat status;
    file->descriptor = open(file->path, O_RDONLY);
    if (file->descriptor < 0)
        return false;
    if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file->descriptor);
        errno = EINVAL;
        return false;
    }
    file->source.size_bytes = (uint64_t)status.st_size;
    file->source.memory = NULL;
    file->source.read = read_weights;
    file->source.context = file;
    file->source.map = map_weights;
    return true;
}

static bool has_trailer(const struct ul_weights_file *file)
{
    unsigned char magic[8];
    return file->source.size_bytes >= UL_TRAILER_BYTES &&
           file->source.read(file->source.context, file->source.size_bytes - UL_TRAILER_BYTES,
                             magic, 8) == 0 &&
           memcmp(magic, UL_TRAILER_MAGIC, 8) == 0;
}

/* The program's own path, as the kernel says it, or else as it was called. */
static void own_path(const struct ul_session *s, char path[UL_PATH_BYTES])
{
    ssize_t size = readlink("/proc/self/exe", path, UL_PATH_BYTES - 1);
    if (size > 0)
        path[size] = '\0';
    else
        snprintf(path, UL_PATH_BYTES, "%s", s->program);
}

int ul_weights_open(const struct ul_session *s, struct ul_weights_file *file)
{
    char shown[UL_SHOWN_BYTES];
    const char *requested = s->options != NULL ? s->options->weights : NULL;
    size_t length;
    file->error = 0;
    if (requested != NULL) {
        snprintf(file->path, sizeof file->path, "%s", requested);
        if (open_path(file))
            return UL_EXIT_OK;
        return ul_error(s, UL_EXIT_IO, "cannot open weights %s: %s", ul_shown(shown, requested),
                        strerror(errno));
    }
    own_path(s, file->path);
    if (open_path(file)) {
        if (has_trailer(file))
            return UL_EXIT_OK;
        close(file->descriptor);
    }
    length = strlen(file->path);
    if (length + 9 <= sizeof file->path) {
        memcpy(file->path + length, ".weights", 9);
        if (open_path(file))
            return UL_EXIT_OK;
        file->path[length] = '\0';
    }
    return ul_error(s, UL_EXIT_INVALID,
                    "%s carries no weights (was it stripped or copied in part?), and there is no "
                    "%s.weights beside it; name the file with --weights FILE",
                    ul_shown(shown, file->path), shown);
}

void ul_weights_close(struct ul_weights_file *file)
{
    close(file->descriptor);
}
