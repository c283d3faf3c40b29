/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a file that the kernel maps around touched pages. */
#ifndef UL_CODEGEN_CPU_WINDOWS_H
#define UL_CODEGEN_CPU_WINDOWS_H

#include <stdint.h>

enum { UL_WINDOWS_PAGE_BYTES = 4096, UL_WINDOWS_PAGES = 16 };

/* The bytes of the windows of UL_WINDOWS_PAGES pages that contain touched pages, which have a bit
 * each in `word_count` words. Windows follow each other from an unknown page on; the result is for
 * the page that gives the most. */
uint64_t ul_windows_bytes(const uint64_t *pages, uint32_t word_count);

#endif
