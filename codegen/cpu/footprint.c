/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the bytes that oneDNN keeps for a call outside the buffer, as long as a program lives.
 *
 * Problem: a primitive is tables and generated code, 20 KiB to a megabyte of it, and the library
 * does not say how much. Method: the primitives of the call are made here as in a program, by a
 * separate thread with an empty heap. The C library counts the bytes in use in that heap before and
 * after, and generated code is in whole pages of executable memory. Another thread, with another
 * heap, has made the same primitives before, so that what the library makes only once exists
 * already, and is not in the heap that counts. The result is the objects' own bytes: the same for
 * one version of the library, instruction set and number of threads, whatever was counted before.
 *
 * Where the C library or the kernel cannot count, every call is taken to be large. */
#define _GNU_SOURCE
#include "codegen/cpu/dnnl_internal.h"

#include "runtime/lib/ul_nbits.h"
#include "runtime/lib/ul_winograd.h"

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

enum {
    LARGE_BYTES = 1 << 20, /* for a call that could not be counted */
    QUANTUM_BYTES = 1024,  /* results are rounded up: free lists differ by a few bytes */
    PIECE = 512
};

/* ---- current memory ---- */

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

/* ---- memory that one call adds ---- */

struct counted {
    struct ul_dnnl_made made;
    uint64_t heap_bytes, code_bytes;
    bool good, started;
};

/* Runs in the counting thread: nothing else of the process runs meanwhile. */
static void *count_objects(void *context)
{
    struct counted *counted = context;
    struct ul_dnnl_made *made = &counted->made;
    omp_set_num_threads((int)made->dnnl->thread_count);
    uint64_t code_before = 0, code_after = 0;
    bool good = count_code(&code_before); /* comes first: its stream's buffer must not count */
    uint64_t heap_before = heap_bytes();
    ul_dnnl_make(made);
    uint64_t heap_after = heap_bytes();
    counted->good = count_code(&code_after) && good && made->good;
    counted->heap_bytes = heap_after > heap_before ? heap_after - heap_before : 0;
    counted->code_bytes = code_after > code_before ? code_after - code_before : 0;
    ul_dnnl_unmake(made);
    return NULL;
}

/* Makes the same before, and lets another thread count while this thread and its heap exist. */
static void *count_behind(void *context)
{
    struct counted *counted = context;
    pthread_t thread;
    omp_set_num_threads((int)counted->made.dnnl->thread_count);
    ul_dnnl_make(&counted->made);
    ul_dnnl_unmake(&counted->made);
    heap_settle();
    counted->started = pthread_create(&thread, NULL, count_objects, counted) == 0;
    if (counted->started)
        (void)pthread_join(thread, NULL);
    return NULL;
}

/* ---- answers ---- */

/* The library shares equal primitives while its cache holds them, so the cache is emptied
 * meanwhile. */
static uint64_t count_call(struct ul_dnnl *dnnl, const struct ul_call *call)
{
    struct counted counted = {.made = {.dnnl = dnnl, .call = call}};
    pthread_t thread;
    int cached = 0;
    (void)dnnl_get_primitive_cache_capacity(&cached);
    (void)dnnl_set_primitive_cache_capacity(0);
    bool began = COUNTS_HEAP && pthread_create(&thread, NULL, count_behind, &counted) == 0;
    if (began)
        (void)pthread_join(thread, NULL);
    (void)dnnl_set_primitive_cache_capacity(cached);
    if (!began || !counted.started || !counted.good)
        return LARGE_BYTES;
    uint64_t heap = (counted.heap_bytes + QUANTUM_BYTES - 1) / QUANTUM_BYTES * QUANTUM_BYTES;
    return heap + counted.code_bytes;
}

uint64_t ul_dnnl_kept_bytes(void *dnnl, const struct ul_call *call)
{
    if (ul_call_is_own(call))
        return 0;
    struct ul_dnnl_known *known = ul_dnnl_know(dnnl, call);
    if (known->kept_bytes == 0)
        known->kept_bytes = count_call(dnnl, call);
    UL_ASSERT(known->kept_bytes > 0);
    return known->kept_bytes;
}
