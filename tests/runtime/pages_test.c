/* Giving back pages of files: what was only read goes and comes back the same, what was written
   stays. */
#define _DEFAULT_SOURCE /* mkstemp, sysconf */
#include "ul_internal.h"

#include "test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64, WRITTEN = 9, SKIPPED = 77 };

/* Of the pages from `bytes` on, how many are mapped now; -1: the kernel does not say. */
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

/* A file of PAGES pages without a name. */
static int new_file(size_t page_bytes)
{
    char path[] = "/tmp/pages_test_XXXXXX";
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(dup(descriptor), "wb") : NULL;
    if (file == NULL)
        return -1;
    unlink(path);
    for (size_t i = 0; i < PAGES * page_bytes; i++)
        fputc(content(i), file);
    fclose(file);
    return descriptor;
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
    int file = new_file(page_bytes);
    unsigned char *bytes =
        mmap(NULL, PAGES * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(file >= 0 && bytes != MAP_FAILED);
    if (test_failures != 0)
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
    close(file);
    return TEST_RESULT();
}
