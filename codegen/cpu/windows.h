/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a file that the kernel maps around those that are touched. */
#ifndef UL_CODEGEN_CPU_WINDOWS_H
#define UL_CODEGEN_CPU_WINDOWS_H

#include <stdint.h>

enum { UL_WINDOWS_PAGE_BYTES = 4096, UL_WINDOWS_PAGES = 16 };

/* Bytes of the windows of UL_WINDOWS_PAGES pages in which the touched ones lie, a bit each of
 * `word_count` words: windows follow each other from some page on, any one, that with the most. */
uint64_t ul_windows_bytes(const uint64_t *pages, uint32_t word_count);

#endif
