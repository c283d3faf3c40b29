/* SPDX-License-Identifier: Apache-2.0 */
#include "codegen/cpu/windows.h"

/* The first window has `before` pages before the first page. */
static uint64_t count_windows(const uint64_t *pages, uint32_t word_count, uint64_t before)
{
    uint64_t count = 0, next = 0; /* the first window that is not counted yet */
    for (uint64_t page = 0; page < (uint64_t)word_count * 64; page++) {
        if (pages[page / 64] == 0) {
            page |= 63;
            continue;
        }
        uint64_t window = (page + before) / UL_WINDOWS_PAGES;
        if ((pages[page / 64] >> page % 64 & 1) == 0 || window < next)
            continue;
        count++;
        next = window + 1;
    }
    return count;
}

uint64_t ul_windows_bytes(const uint64_t *pages, uint32_t word_count)
{
    uint64_t most = 0;
    for (uint64_t before = 0; before < UL_WINDOWS_PAGES; before++) {
        uint64_t count = count_windows(pages, word_count, before);
        most = count > most ? count : most;
    }
    return most * UL_WINDOWS_PAGES * UL_WINDOWS_PAGE_BYTES;
}
