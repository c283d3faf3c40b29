/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <openssl/evp.h>

void ul_hash_hex(const void *data, uint64_t size_bytes, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (uint64_t at = 0; ok && at < size_bytes; at += UL_FILE_CHUNK_BYTES) {
        uint64_t left = size_bytes - at;
        uint64_t part = left < UL_FILE_CHUNK_BYTES ? left : UL_FILE_CHUNK_BYTES;
        ok = EVP_DigestUpdate(context, (const unsigned char *)data + at, (size_t)part) == 1;
        if (part == UL_FILE_CHUNK_BYTES)
            ul_file_release((const unsigned char *)data + at, part);
    }
    ok = ok && EVP_DigestFinal_ex(context, digest, &length) == 1;
    EVP_MD_CTX_free(context);
    UL_ASSERT(ok && length == 32);
    for (unsigned i = 0; i < length; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", digest[i]);
}

uint32_t ul_hash_more(uint32_t hash, const void *bytes, uint64_t count)
{
    const unsigned char *at = bytes;
    for (uint64_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 16777619u;
    return hash;
}
