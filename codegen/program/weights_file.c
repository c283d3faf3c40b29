/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's own functions, under names that the compiler does not use. */
#include "codegen/program/weights_file.h"

#include "runtime/lib/ul_weights.h"

_Static_assert(UL_FILE_PAGE_BYTES == UL_PAGE_BYTES, "as programs read it");
_Static_assert(UL_FILE_PAGED_BYTES == UL_PAGED_WEIGHT_BYTES, "as programs read it");
_Static_assert(UL_FILE_TRAILER_BYTES == UL_TRAILER_BYTES, "as programs read it");
_Static_assert(sizeof(struct ul_hash) <= sizeof(struct ul_weights_hash), "room for it");

void ul_weights_hash_init(struct ul_weights_hash *hash)
{
    struct ul_hash state = {.total_bytes = 0};
    ul_hash_init(&state);
    memcpy(hash->state, &state, sizeof state);
}

void ul_weights_hash_add(struct ul_weights_hash *hash, const void *data, size_t size_bytes)
{
    struct ul_hash state;
    memcpy(&state, hash->state, sizeof state);
    ul_hash_add(&state, data, size_bytes);
    memcpy(hash->state, &state, sizeof state);
}

uint64_t ul_weights_hash_get(const struct ul_weights_hash *hash)
{
    struct ul_hash state;
    memcpy(&state, hash->state, sizeof state);
    return ul_hash_get(&state);
}

uint64_t ul_weights_file_gap(uint64_t offset_bytes, uint64_t size_bytes, int is_packed,
                             uint64_t at_bytes)
{
    return ul_weights_gap(offset_bytes, size_bytes, is_packed, at_bytes);
}

static void put_word(unsigned char *place, uint64_t word)
{
    for (unsigned i = 0; i < 8; i++)
        place[i] = (unsigned char)(word >> (8 * i));
}

void ul_weights_file_trailer(uint64_t payload_bytes, uint64_t payload_hash,
                             unsigned char trailer[UL_FILE_TRAILER_BYTES])
{
    memcpy(trailer, UL_TRAILER_MAGIC, 8);
    put_word(trailer + 8, UL_TRAILER_VERSION | (uint64_t)UL_TRAILER_BYTES << 32);
    put_word(trailer + 16, payload_bytes);
    put_word(trailer + 24, payload_hash);
}
