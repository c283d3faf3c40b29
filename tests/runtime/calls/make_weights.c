/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the weights file of the model `calls`; with --hash, prints the hash that model.c names. */
#include "ul_model.h"
#include "ul_weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PAYLOAD_BYTES = 18560 };

static void put_word(unsigned char *target, uint64_t value, unsigned size_bytes)
{
    for (unsigned i = 0; i < size_bytes; i++)
        target[i] = (unsigned char)(value >> 8 * i & 0xff);
}

int main(int argc, char **argv)
{
    static unsigned char file[PAYLOAD_BYTES + UL_TRAILER_BYTES];
    struct ul_hash hash;
    for (uint32_t i = 0; i < PAYLOAD_BYTES / 4; i++) {
        float value = (float)(int32_t)(i * 2654435761u >> 20 & 255) / 256.0f - 0.5f;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        put_word(file + 4 * i, bits, 4);
    }
    ul_hash_init(&hash);
    ul_hash_add(&hash, file, PAYLOAD_BYTES);
    memcpy(file + PAYLOAD_BYTES, UL_TRAILER_MAGIC, 8);
    put_word(file + PAYLOAD_BYTES + 8, UL_TRAILER_VERSION, 4);
    put_word(file + PAYLOAD_BYTES + 12, UL_TRAILER_BYTES, 4);
    put_word(file + PAYLOAD_BYTES + 16, PAYLOAD_BYTES, 8);
    put_word(file + PAYLOAD_BYTES + 24, ul_hash_get(&hash), 8);
    if (argc == 2 && strcmp(argv[1], "--hash") == 0)
        return printf("0x%016" PRIx64 "\n", ul_hash_get(&hash)) < 0;
    FILE *out = argc == 2 ? fopen(argv[1], "wb") : NULL;
    if (out == NULL)
        return 1;
    size_t written = fwrite(file, 1, sizeof file, out);
    return fclose(out) != 0 || written != sizeof file;
}
