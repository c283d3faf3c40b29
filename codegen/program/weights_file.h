/* SPDX-License-Identifier: Apache-2.0 */
/* The file of weights that runtime/lib/ul_weights.h reads, for the compiler, some of whose names
 * the runtime has too: hash, trailer, gaps before large weights.
 *
 * Ownership: all memory is the caller's. Nothing fails. */
#ifndef UL_WEIGHTS_FILE_H
#define UL_WEIGHTS_FILE_H

#include <stddef.h>
#include <stdint.h>

enum {
    UL_FILE_PAGE_BYTES = 4096,
    UL_FILE_PAGED_BYTES = 1048576, /* larger weights may stay in the file's pages */
    UL_FILE_TRAILER_BYTES = 32
};

/* The hash of the bytes added so far. */
struct ul_weights_hash {
    uint64_t state[10];
};
void ul_weights_hash_init(struct ul_weights_hash *hash);
void ul_weights_hash_add(struct ul_weights_hash *hash, const void *data, size_t size_bytes);
uint64_t ul_weights_hash_get(const struct ul_weights_hash *hash);

/* Zeros before a weight at offset_bytes of the arena, after at_bytes of the payload. */
uint64_t ul_weights_file_gap(uint64_t offset_bytes, uint64_t size_bytes, int is_packed,
                             uint64_t at_bytes);
/* The bytes after the payload. */
void ul_weights_file_trailer(uint64_t payload_bytes, uint64_t payload_hash,
                             unsigned char trailer[UL_FILE_TRAILER_BYTES]);

#endif
