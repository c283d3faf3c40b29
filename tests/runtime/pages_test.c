/* SPDX-License-Identifier: Apache-2.0 */
/* Giving back pages of files: what was only read goes and comes back the same, what was written
   stays. */
#define _DEFAULT_SOURCE /* fileno, sysconf */
#include "ul_internal.h"

#include "test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64, WRITTEN = 9, SKIPPED = 77 };

/* How many of the pages from `bytes` on are mapped now; -1: the kernel does not say. */
static int count_present(const unsigned char *bytes, size_t page_bytes)
{
    uint64_t entries[PAGES];
    int count = 0;
    FILE *pagemap = fopen("/proc/self/pagemap", "rb");
    bool good = pagemap != NULL &&
                fseek(pagemap, (long)((uintptr_t)bytes / page_bytes * 8), SEEK_SET) == 0 &&
                fread(entries, 8, PAGES, pagemap) == PAGES;
    if (pagemap != NULL)
        fclose(pagemap);
    for (int i = 0; good && i < PAGES; i++)
        count += entries[i] >> 63 != 0;
    return good ? count : -1;
}

static unsigned char content(size_t at)
{
    return (unsigned char)(at * 7 + at / 4096);
}

/* Fills a file without a name with PAGES pages. */
static void fill(FILE *file, size_t page_bytes)
{
    for (size_t i = 0; i < PAGES * page_bytes; i++)
        fputc(content(i), file);
    fflush(file);
}

static bool is_whole(const unsigned char *bytes, size_t page_bytes)
{
    bool good = true;
    for (size_t i = 0; i < PAGES * page_bytes; i++)
        good = good && bytes[i] == (i == WRITTEN * page_bytes ? 0xee : content(i));
    return good;
}

int main(void)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    FILE *file = tmpfile();
    CHECK(file != NULL);
    if (file == NULL)
        return TEST_RESULT();
    fill(file, page_bytes);
    unsigned char *bytes =
        mmap(NULL, PAGES * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    CHECK(bytes != MAP_FAILED);
    if (bytes == MAP_FAILED)
        return TEST_RESULT();
    bytes[WRITTEN * page_bytes] = 0xee;
    CHECK(is_whole(bytes, page_bytes));
    int before = count_present(bytes, page_bytes);
    if (before < 0)
        return SKIPPED;
    CHECK(before == PAGES);
    ul_pages_release(); /* of data that can still be written, nothing */
    CHECK(count_present(bytes, page_bytes) == PAGES);
    CHECK(mprotect(bytes, PAGES * page_bytes, PROT_READ) == 0);
    ul_pages_release();
    CHECK(count_present(bytes, page_bytes) == 1);
    CHECK(is_whole(bytes, page_bytes));
    CHECK(count_present(bytes, page_bytes) == PAGES);
    munmap(bytes, PAGES * page_bytes);
    fclose(file);
    return TEST_RESULT();
}
