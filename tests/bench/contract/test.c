/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the printed kernels on the operands in argv[1] and compares with the interpreter's results.
 * Memory around every buffer is checked, and the results must be the same bits at another
 * alignment, and over each input that they may be written over. */
#include "case.h"
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include KERNELS

#define GUARD_BYTES 4096

/* Copies `size` bytes to a fresh place of its own, `shift` bytes off a multiple of 64. */
static unsigned char *place_of(const unsigned char *from, size_t size, size_t shift,
                               unsigned char **owner)
{
    *owner = malloc(size + 2 * GUARD_BYTES + 128);
    if (*owner == NULL)
        exit(70);
    memset(*owner, 0xa5, size + 2 * GUARD_BYTES + 128);
    unsigned char *place = *owner + GUARD_BYTES;
    place += (64 - (uintptr_t)place % 64) % 64 + shift;
    if (from != NULL)
        memcpy(place, from, size);
    return place;
}

static int guards_hold(const unsigned char *owner, const unsigned char *place, size_t size)
{
    for (const unsigned char *p = owner; p < place; p++)
        if (*p != 0xa5)
            return 0;
    for (const unsigned char *p = place + size; p < owner + size + 2 * GUARD_BYTES + 128; p++)
        if (*p != 0xa5)
            return 0;
    return 1;
}

struct run_result {
    unsigned char *owners[12], *places[12];
};

/* The output lies on input `taken`, unless that is -1. */
static int run_case(const struct kernel_case *c, unsigned char *const *data, size_t shift,
                    int taken, struct run_result *result)
{
    struct ul_run run;
    memset(&run, 0, sizeof run);
    run.threads = 3;
    void *params[12];
    int failed = 0, b;
    for (b = 0; c->buffers[b].element_count > 0; b++) {
        size_t size = size_of(c->buffers[b].dtype) * c->buffers[b].element_count;
        size_t off = shift * size_of(c->buffers[b].dtype);
        result->places[b] =
            place_of(c->buffers[b].is_output ? NULL : data[b], size, off, &result->owners[b]);
        params[b] = result->places[b];
    }
    for (b = 0; c->buffers[b].element_count > 0; b++)
        if (taken >= 0 && c->buffers[b].is_output)
            params[b] = result->places[taken];
    unsigned char *owner, *scratch = place_of(NULL, c->scratch_bytes, 0, &owner);
    c->call(params, scratch, &run);
    if (!guards_hold(owner, scratch, c->scratch_bytes)) {
        fprintf(stderr, "%s: wrote outside of its scratch\n", c->name);
        failed = 1;
    }
    free(owner);
    for (b = 0; c->buffers[b].element_count > 0; b++) {
        size_t size = size_of(c->buffers[b].dtype) * c->buffers[b].element_count;
        memmove(result->places[b], params[b], size);
        if (!guards_hold(result->owners[b], result->places[b], size)) {
            fprintf(stderr, "%s: wrote outside of buffer %d\n", c->name, b);
            failed = 1;
        }
        if (c->buffers[b].is_output)
            failed |= compare(c->name, result->places[b], data[b], &c->buffers[b]);
    }
    return failed;
}

/* Runs it at another place, and holds the results against those of the first time. */
static int run_again(const struct kernel_case *c, unsigned char *const *data, size_t shift,
                     int taken, const struct run_result *first)
{
    struct run_result second;
    int failed = run_case(c, data, shift, taken, &second);
    for (int b = 0; c->buffers[b].element_count > 0; b++) {
        size_t size = size_of(c->buffers[b].dtype) * c->buffers[b].element_count;
        if (c->buffers[b].is_output && memcmp(first->places[b], second.places[b], size) != 0) {
            fprintf(stderr, "%s: other bits at another place, %d\n", c->name, taken);
            failed = 1;
        }
        free(second.owners[b]);
    }
    return failed;
}

static int test_case(const struct kernel_case *c, unsigned char *const *data)
{
    struct run_result first;
    int failed = run_case(c, data, 0, -1, &first);
    failed |= run_again(c, data, 3, -1, &first);
    for (int b = 0; c->buffers[b].element_count > 0; b++)
        if (c->taken >> b & 1u)
            failed |= run_again(c, data, 0, b, &first);
    for (int b = 0; c->buffers[b].element_count > 0; b++)
        free(first.owners[b]);
    return failed;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL)
        return 1;
    size_t count = sizeof cases / sizeof cases[0], failures = 0;
    for (size_t i = 0; i < count; i++) {
        unsigned char *data[12];
        int buffers = 0;
        for (; cases[i].buffers[buffers].element_count > 0; buffers++) {
            const struct kernel_buffer *b = &cases[i].buffers[buffers];
            data[buffers] = malloc(size_of(b->dtype) * b->element_count);
            if (data[buffers] == NULL ||
                fread(data[buffers], size_of(b->dtype), b->element_count, file) != b->element_count)
                return 5;
        }
        failures += (size_t)test_case(&cases[i], data);
        for (int b = 0; b < buffers; b++)
            free(data[b]);
    }
    fclose(file);
    printf("%zu of %zu kernels agree\n", count - failures, count);
    return failures != 0;
}
