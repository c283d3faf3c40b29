/* SPDX-License-Identifier: 0BSD */
/*
 * Gives back resident pages that set-up no longer needs: pages of files, which are code and
 * constants of the program and of its libraries, and free ones of the heap. Also counts what is
 * resident, for --memory.
 *
 * Problem: oneDNN is 38 MiB of code, of which set-up runs through some 6, descriptors, generators
 * and relocations, and a run needs a third of that. Such pages stay resident beside weights and
 * activations as long as the process lives, though nothing uses them again; in a small network they
 * are a quarter of all that it takes. Method: between the library's set-up and the loading of the
 * weights, the kernel is told that they are not needed. A page that is used again is mapped again
 * from the file's cache, at about a microsecond for 16 of them.
 *
 * Invariants: only pages that still are the file's own are given back, by the kernel's word
 * (/proc/self/pagemap), so that nothing that was ever written is lost: neither relocations nor a
 * debugger's breakpoints. Where the kernel does not say (not Linux), nothing happens.
 */
#define _DEFAULT_SOURCE /* madvise */
#include "ul_internal.h"
#include "ul_library.h"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

/* Bits of an entry of pagemap. */
#define PAGE_OF_FILE ((uint64_t)1 << 61)
#define PAGE_SWAPPED ((uint64_t)1 << 62)
#define PAGE_PRESENT ((uint64_t)1 << 63)

enum { ENTRIES = 512 };

/* Whether the page was written to: it belongs to the process then, and no longer to the file. */
static bool is_written(uint64_t entry)
{
    return (entry & PAGE_PRESENT) != 0 ? (entry & PAGE_OF_FILE) == 0 : (entry & PAGE_SWAPPED) != 0;
}

/* Releases pages [begin, end) of a mapping of a file, by their numbers; with as few calls of the
 * kernel as possible, so across pages that are not resident. */
static void release_pages(int pagemap, uint64_t begin, uint64_t end, uint64_t page_bytes)
{
    uint64_t entries[ENTRIES];
    while (begin < end) {
        size_t count = end - begin < ENTRIES ? (size_t)(end - begin) : ENTRIES;
        if (pread(pagemap, entries, count * sizeof *entries, (off_t)(begin * sizeof *entries)) !=
            (ssize_t)(count * sizeof *entries))
            return;
        for (size_t i = 0, next; i < count; i = next) {
            bool resident = false;
            for (next = i; next < count && !is_written(entries[next]); next++)
                resident = resident || (entries[next] & PAGE_PRESENT) != 0;
            if (resident)
                (void)madvise((void *)(uintptr_t)((begin + i) * page_bytes),
                              (next - i) * (size_t)page_bytes, MADV_DONTNEED);
            next += next == i;
        }
        begin += count;
    }
}

void ul_pages_release(void)
{
    char line[UL_PATH_BYTES + 128];
    long page = sysconf(_SC_PAGESIZE);
    uint64_t page_bytes = page > 0 ? (uint64_t)page : 1;
    FILE *maps = fopen("/proc/self/maps", "r");
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    while (page > 0 && maps != NULL && pagemap >= 0 && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin, end, inode;
        char rights[5];
        if (sscanf(line, "%llx-%llx %4s %*x %*s %llu", &begin, &end, rights, &inode) == 4 &&
            inode != 0 && rights[1] == '-' && rights[3] == 'p')
            release_pages(pagemap, begin / page_bytes, end / page_bytes, page_bytes);
    }
    if (maps != NULL)
        fclose(maps);
    if (pagemap >= 0)
        close(pagemap);
#ifdef __GLIBC__
    malloc_trim(0); /* descriptors and generators come and go by the hundred */
#endif
}

/* Making a primitive runs through pages; those that are there need not come again. But one
 * primitive is made otherwise than the one before, so that some come in any case. */
void ul_pages_bound(const struct ul_library *library)
{
    unsigned long long all = 0, of_files = 0;
    long page = sysconf(_SC_PAGESIZE);
    FILE *statm = library->making_bytes != 0 ? fopen("/proc/self/statm", "r") : NULL;
    bool known = statm != NULL && fscanf(statm, "%*u %llu %llu", &all, &of_files) == 2;
    if (statm != NULL)
        fclose(statm);
    if (!known || page <= 0)
        return;
    uint64_t others = (all - of_files) * (uint64_t)page, there = of_files * (uint64_t)page;
    uint64_t new_ones = library->making_bytes / 2;
    uint64_t needed =
        there + new_ones > library->making_bytes ? there + new_ones : library->making_bytes;
    if (there > new_ones && others + needed > library->start_bytes)
        ul_pages_release();
}

struct ul_resident ul_pages_resident(void)
{
    struct ul_resident resident = {0};
    unsigned long long kib;
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            resident.anonymous_bytes = (uint64_t)kib * 1024;
        else if (sscanf(line, "RssFile: %llu kB", &kib) == 1)
            resident.file_bytes = (uint64_t)kib * 1024;
        else if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            resident.peak_bytes = (uint64_t)kib * 1024;
    }
    if (status != NULL)
        fclose(status);
    return resident;
}

struct ul_resident ul_pages_of(const void *bytes, uint64_t size_bytes)
{
    struct ul_resident resident = {0};
    uint64_t entries[ENTRIES];
    long page = sysconf(_SC_PAGESIZE);
    uint64_t page_bytes = page > 0 ? (uint64_t)page : 1;
    uint64_t at = (uintptr_t)bytes / page_bytes;
    uint64_t end = ((uintptr_t)bytes + size_bytes + page_bytes - 1) / page_bytes;
    int pagemap = open("/proc/self/pagemap", O_RDONLY);
    while (pagemap >= 0 && page > 0 && size_bytes != 0 && at < end) {
        size_t count = end - at < ENTRIES ? (size_t)(end - at) : ENTRIES;
        if (pread(pagemap, entries, count * sizeof *entries, (off_t)(at * sizeof *entries)) !=
            (ssize_t)(count * sizeof *entries))
            break;
        for (size_t i = 0; i < count; i++) {
            if ((entries[i] & PAGE_PRESENT) != 0 && (entries[i] & PAGE_OF_FILE) != 0)
                resident.file_bytes += page_bytes;
            else if ((entries[i] & PAGE_PRESENT) != 0)
                resident.anonymous_bytes += page_bytes;
        }
        at += count;
    }
    if (pagemap >= 0)
        close(pagemap);
    return resident;
}
