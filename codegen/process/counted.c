/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the bytes that objects of a library take of a process.
 *
 * Method: the objects are made by a separate thread with an empty heap. The C library counts the
 * bytes in use in that heap before and after, and generated code is in whole pages of executable
 * memory. Another thread, with another heap, has made the same objects before, so that what the
 * library makes only once exists already, and is not in the heap that counts. */
#define _GNU_SOURCE
#include "codegen/process/counted.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#define COUNTS_HEAP 1
#else
#define COUNTS_HEAP 0
#endif

enum { PIECE = 512 };

static uint64_t heap_bytes(void)
{
#if COUNTS_HEAP
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* Joins what is free in all heaps: an empty one is as it was at first. */
static void heap_settle(void)
{
#if COUNTS_HEAP
    (void)malloc_trim(0);
#endif
}

/* Adds the pages of [begin, end) that were ever written, resident or swapped out. */
static bool count_pages(int pagemap, uint64_t begin, uint64_t end, uint64_t *count)
{
    static const uint64_t written = (uint64_t)3 << 62;
    uint64_t entries[PIECE];
    while (begin < end) {
        size_t wanted = end - begin < PIECE ? (size_t)(end - begin) : PIECE;
        if (pread(pagemap, entries, wanted * sizeof *entries, (off_t)(begin * sizeof *entries)) !=
            (ssize_t)(wanted * sizeof *entries))
            return false;
        for (size_t i = 0; i < wanted; i++)
            *count += (entries[i] & written) != 0;
        begin += wanted;
    }
    return true;
}

/* Counts executable memory without a file: the library's generated code. False: it is not known. */
static bool count_code(uint64_t *bytes)
{
    char line[512];
    uint64_t count = 0;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *maps = fopen("/proc/self/maps", "r");
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool counted = maps != NULL && pagemap >= 0;
    while (counted && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin, end, inode;
        char rights[5];
        if (sscanf(line, "%llx-%llx %4s %*x %*s %llu", &begin, &end, rights, &inode) == 4 &&
            inode == 0 && rights[2] == 'x' && strchr(line, '[') == NULL)
            counted = count_pages(pagemap, begin / page_bytes, end / page_bytes, &count);
    }
    if (maps != NULL)
        (void)fclose(maps);
    if (pagemap >= 0)
        (void)close(pagemap);
    *bytes = count * page_bytes;
    return counted;
}

struct counting {
    const struct ul_counted_work *work;
    struct ul_counted counted;
    bool good, started;
};

/* Runs in the counting thread: nothing else of the process runs meanwhile. */
static void *count_objects(void *context)
{
    struct counting *counting = context;
    const struct ul_counted_work *work = counting->work;
    uint64_t code_before = 0, code_after = 0;
    work->begin(work->context);
    bool good = count_code(&code_before); /* comes first: its stream's buffer must not count */
    uint64_t heap_before = heap_bytes();
    bool made = work->make(work->context);
    uint64_t heap_after = heap_bytes();
    counting->good = count_code(&code_after) && good && made;
    counting->counted.heap_bytes = heap_after > heap_before ? heap_after - heap_before : 0;
    counting->counted.code_bytes = code_after > code_before ? code_after - code_before : 0;
    work->unmake(work->context);
    return NULL;
}

/* Makes the same before, and lets another thread count while this thread and its heap exist. */
static void *count_behind(void *context)
{
    struct counting *counting = context;
    const struct ul_counted_work *work = counting->work;
    pthread_t thread;
    work->begin(work->context);
    (void)work->make(work->context);
    work->unmake(work->context);
    heap_settle();
    counting->started = pthread_create(&thread, NULL, count_objects, counting) == 0;
    if (counting->started)
        (void)pthread_join(thread, NULL);
    return NULL;
}

bool ul_counted_make(const struct ul_counted_work *work, struct ul_counted *counted)
{
    struct counting counting = {.work = work};
    pthread_t thread;
    bool began = COUNTS_HEAP && pthread_create(&thread, NULL, count_behind, &counting) == 0;
    if (began)
        (void)pthread_join(thread, NULL);
    *counted = counting.counted;
    return began && counting.started && counting.good;
}
