/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the text form of kernels: any bytes either give a kernel that verifies, with a text that
 * survives a round trip, or an error with a message. */
#include "ir/kernel_text.h"

#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ul_arena arena;
    struct ul_kernel kernel;
    struct ul_diag diag = {0};
    ul_arena_init(&arena);
    char *text = ul_arena_alloc(&arena, (uint64_t)size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    enum ul_status status = ul_kernel_parse(&kernel, &arena, text, &diag);
    fuzz_require(status == diag.status, "status and message differ");
    if (status == UL_OK)
        fuzz_require(ul_kernel_check_text(&kernel, &arena, &diag) == UL_OK, diag.text);
    ul_arena_done(&arena);
    return 0;
}
