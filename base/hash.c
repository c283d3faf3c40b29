#include "base/base.h"

#include <openssl/evp.h>

void ul_hash_hex(const void *data, uint64_t size_bytes, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    int ok = EVP_Digest(data, (size_t)size_bytes, digest, &length, EVP_sha256(), NULL);
    UL_ASSERT(ok == 1 && length == 32);
    for (unsigned i = 0; i < length; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", digest[i]);
}
