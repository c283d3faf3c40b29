/* SPDX-License-Identifier: Apache-2.0 */
/* How fast values move out of a program's buffer and back, to other memory and to a file in the
 * current folder, in the way of the runtime (runtime/host/ul_offload.c). A file's bytes go
 * through the system's page cache, as they do in programs. */
#define _XOPEN_SOURCE 700
#include "compile/measure/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5 };
static const size_t VALUE_BYTES = (size_t)8 << 20, FILE_VALUES = 8;

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static bool move_all(int fd, unsigned char *bytes, bool writes)
{
    for (size_t i = 0; i < FILE_VALUES; i++) {
        off_t at = (off_t)(i * VALUE_BYTES);
        ssize_t moved =
            writes ? pwrite(fd, bytes, VALUE_BYTES, at) : pread(fd, bytes, VALUE_BYTES, at);
        if (moved != (ssize_t)VALUE_BYTES)
            return false;
    }
    return true;
}

/* Bytes per nanosecond of a way out and back, as the median of some rounds: the first one makes
 * pages of the file, and a busy disk slows others down. */
static bool measure_file(int fd, unsigned char *bytes, double *rate)
{
    double rates[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_ns();
        if (!move_all(fd, bytes, true) || !move_all(fd, bytes, false))
            return false;
        rates[i] = 2.0 * (double)(FILE_VALUES * VALUE_BYTES) / (now_ns() - begin);
        for (int k = i; k > 0 && rates[k] < rates[k - 1]; k--) {
            double other = rates[k];
            rates[k] = rates[k - 1];
            rates[k - 1] = other;
        }
    }
    *rate = rates[ROUNDS / 2];
    return true;
}

static void measure_host(unsigned char *bytes, unsigned char *other, double *rate)
{
    double least = 1e300;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_ns();
        memcpy(other, bytes, VALUE_BYTES);
        memcpy(bytes, other, VALUE_BYTES);
        double ns = now_ns() - begin;
        least = ns < least ? ns : least;
    }
    *rate = 2.0 * (double)VALUE_BYTES / least;
}

enum ul_status ul_profile_measure_transfers(struct ul_compile *compile, struct ul_profile *profile)
{
    char name[] = "./ullage-profile-XXXXXX";
    unsigned char *bytes = ul_arena_alloc(&compile->scratch, 2 * VALUE_BYTES);
    memset(bytes, 1, 2 * VALUE_BYTES);
    measure_host(bytes, bytes + VALUE_BYTES, &profile->host_rate);
    int fd = mkstemp(name);
    if (fd < 0)
        return ul_diag_set(&compile->diag, UL_IO,
                           "the current folder takes no file to measure with: %s", strerror(errno));
    (void)unlink(name);
    bool good = measure_file(fd, bytes, &profile->file_rate);
    int error = errno;
    close(fd);
    if (!good)
        return ul_diag_set(&compile->diag, UL_IO,
                           "a file of %zu bytes in the current folder, to measure with: %s",
                           FILE_VALUES * VALUE_BYTES, strerror(error));
    return UL_OK;
}
