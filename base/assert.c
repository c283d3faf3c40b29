/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* How many bytes of address space the process uses, as its limits and malloc count them; 0: not
 * known. Asks for no memory. */
static unsigned long long used_bytes(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    return length <= 0 ? 0 : strtoull(text, NULL, 10) * (unsigned long long)sysconf(_SC_PAGESIZE);
}

void ul_memory_fail(uint64_t size_bytes)
{
    fprintf(stderr,
            "ullage: error: out of memory: %llu bytes more could not be allocated for ullage "
            "itself, beside %llu that it has.\n"
            "Give it more (ulimit -v, the limit of the container); this is not what the program "
            "that it makes takes.\n",
            (unsigned long long)size_bytes, used_bytes());
    exit(UL_NO_FIT);
}

void ul_assert_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr,
            "ullage: internal error at %s:%d: %s does not hold.\n"
            "This is a defect of ullage, not of your model: please report it with the command.\n",
            file, line, condition);
    abort();
}
