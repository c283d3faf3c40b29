/* SPDX-License-Identifier: Apache-2.0 */
/* ul_pack.h against the definition in ul_call.h, element by element, over random layouts and random
   pieces; `pack_test bench` prints how fast the common ones go. */
#define _POSIX_C_SOURCE 200809L

#include "ul_pack.h"

#include "test.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

static uint64_t random_state = 1;

static int64_t pick(int64_t low, int64_t high)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

/* The place of an element, by the words of ul_call.h. */
static int64_t naive_place(const struct ul_pack *pack, const int64_t *index)
{
    int64_t place = 0, inner = 1, rest[UL_CALL_RANK];
    for (uint32_t d = 0; d < pack->rank; d++)
        rest[d] = index[d];
    for (uint32_t b = pack->block_count; b-- > 0;) {
        uint32_t d = pack->block_dims[b];
        place += rest[d] % pack->blocks[b] * inner;
        rest[d] /= pack->blocks[b];
        inner *= pack->blocks[b];
    }
    for (uint32_t d = 0; d < pack->rank; d++)
        place += rest[d] * pack->strides[d];
    return place;
}

/* Tiles nested in a random order of the axes, or as they come. */
static void lay_out(struct ul_pack *pack, int shuffle, int64_t gap)
{
    int64_t size = 1, block;
    uint32_t order[UL_CALL_RANK];
    for (uint32_t b = 0; b < pack->block_count; b++)
        size *= pack->blocks[b];
    for (uint32_t d = 0; d < pack->rank; d++)
        order[d] = d;
    for (uint32_t d = pack->rank; shuffle && d-- > 1;) {
        uint32_t other = (uint32_t)pick(0, d), held = order[d];
        order[d] = order[other];
        order[other] = held;
    }
    for (uint32_t i = pack->rank; i-- > 0;) {
        pack->strides[order[i]] = size;
        size = size * ul_packer_tiles(pack, order[i], &block) + gap;
    }
    pack->size_bytes = (uint64_t)size * pack->element_bytes;
}

/* Tables of sums by some of the axes, whose words have room for padded axes. */
static void add_sums(struct ul_pack *pack)
{
    pack->sum_count = 1;
    for (uint32_t d = pack->rank; d-- > 0;) {
        if (pick(0, 1) == 0)
            continue;
        pack->sum_strides[d] = pack->sum_count;
        pack->sum_count *= pack->dims[d] + pick(0, 2);
    }
    pack->sum_flags = 1;
    pack->sum_factors[0] = pick(0, 1) == 0 ? -128 : -1;
    pack->sum_factors[1] = (int32_t)pick(-1, 0);
    pack->sums_offset_bytes = pack->size_bytes;
    pack->size_bytes += (uint64_t)(2 * pack->sum_count + pick(0, 9)) * 4;
}

/* One weight in the tables, by the words of ul_call.h. */
static void naive_sum(const struct ul_pack *pack, const int64_t *index, int8_t weight,
                      unsigned char *target)
{
    int64_t word = 0;
    for (uint32_t d = 0; d < pack->rank; d++)
        word += index[d] * pack->sum_strides[d];
    for (int64_t t = 0; t < 2; t++) {
        unsigned char *at = target + pack->sums_offset_bytes + (t * pack->sum_count + word) * 4;
        int32_t sum;
        memcpy(&sum, at, 4);
        sum += pack->sum_factors[t] * weight;
        memcpy(at, &sum, 4);
    }
}

static void make_random(struct ul_pack *pack)
{
    memset(pack, 0, sizeof *pack);
    pack->element_bytes = (uint32_t)1 << pick(0, 2);
    pack->rank = (uint32_t)pick(1, 5);
    for (uint32_t d = 0; d < pack->rank; d++)
        pack->dims[d] = pick(0, 3) == 0 ? 1 : pick(1, 20);
    pack->block_count = (uint32_t)pick(0, 3);
    for (uint32_t b = 0; b < pack->block_count; b++) {
        pack->block_dims[b] = (uint32_t)pick(0, pack->rank - 1);
        pack->blocks[b] = (int64_t)1 << pick(0, 3);
    }
    lay_out(pack, 1, pick(0, 4) == 0 ? 3 : 0);
    if (pack->element_bytes == 1 && pick(0, 2) > 0)
        add_sums(pack);
}

static int64_t element_count(const struct ul_pack *pack)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < pack->rank; d++)
        count *= pack->dims[d];
    return count;
}

static void check_one(const struct ul_pack *pack)
{
    int64_t count = element_count(pack), index[UL_CALL_RANK] = {0}, done = 0;
    const size_t element_bytes = pack->element_bytes;
    unsigned char *stored = malloc((size_t)count * element_bytes);
    unsigned char *got = malloc((size_t)pack->size_bytes + 64);
    unsigned char *want = calloc(1, (size_t)pack->size_bytes);
    struct ul_packer packer;
    for (int64_t i = 0; i < count; i++) {
        uint32_t element = element_bytes == 1 ? (uint32_t)i * 37 % 255 + 1 : (uint32_t)i + 1;
        memcpy(stored + (size_t)i * element_bytes, &element, element_bytes);
        memcpy(want + (size_t)naive_place(pack, index) * element_bytes, &element, element_bytes);
        if (pack->sum_flags != 0)
            naive_sum(pack, index, (int8_t)element, want);
        for (uint32_t d = pack->rank; d-- > 0 && ++index[d] == pack->dims[d];)
            index[d] = 0;
    }
    memset(got, 0xa5, (size_t)pack->size_bytes + 64);
    ul_packer_init(&packer, pack, got);
    while (done < count) {
        int64_t piece = pick(1, pick(0, 1) == 0 ? 7 : 5000);
        if (piece > count - done)
            piece = count - done;
        ul_packer_add(&packer, stored + (size_t)done * element_bytes, (uint64_t)piece);
        done += piece;
    }
    CHECK(memcmp(got, want, (size_t)pack->size_bytes) == 0);
    for (int i = 0; i < 64; i++)
        CHECK(got[pack->size_bytes + (uint64_t)i] == 0xa5);
    free(stored);
    free(got);
    free(want);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void bench_one(const char *name, struct ul_pack *pack)
{
    pack->element_bytes = 4;
    lay_out(pack, 0, 0);
    uint64_t count = (uint64_t)element_count(pack);
    unsigned char *stored = malloc((size_t)count * 4), *target = malloc((size_t)pack->size_bytes);
    double best = 1e9;
    memset(stored, 1, (size_t)count * 4);
    for (int round = 0; round < 7; round++) {
        struct ul_packer packer;
        double begin = now();
        ul_packer_init(&packer, pack, target);
        for (uint64_t done = 0; done < count; done += 2048)
            ul_packer_add(&packer, stored + done * 4, count - done < 2048 ? count - done : 2048);
        double time = now() - begin;
        best = time < best ? time : best;
    }
    printf("%-40s %8.2f GB/s of %" PRIu64 " bytes\n", name, (double)count * 4e-9 / best, count * 4);
    free(stored);
    free(target);
}

static void bench(void)
{
#define BLOCKED(...) .rank = 4, .dims = __VA_ARGS__, .block_count = 2, .block_dims
#define MATRIX(...) .rank = 2, .dims = __VA_ARGS__, .block_count = 2, .block_dims
    static struct ul_pack packs[] = {
        {BLOCKED({512, 512, 3, 3}) = {1, 0}, .blocks = {16, 16}},
        {BLOCKED({512, 512, 3, 3}) = {1, 0}, .blocks = {16, 64}},
        {BLOCKED({2048, 1024, 1, 1}) = {1, 0}, .blocks = {16, 16}},
        {BLOCKED({2048, 1024, 1, 1}) = {1, 0}, .blocks = {16, 64}},
        {MATRIX({768, 3072}) = {0, 1}, .blocks = {16, 64}},
        {MATRIX({3072, 768}) = {1, 0}, .blocks = {16, 64}},
        {MATRIX({3072, 768}) = {1, 0}, .blocks = {1, 64}},
    };
    static const char *const names[] = {"conv 3x3 16i16o",   "conv 3x3 16i64o",
                                        "conv 1x1 16i16o",   "conv 1x1 16i64o",
                                        "matmul 16k64n",     "matmul, stored [n,k], 16k64n",
                                        "matmul, [n,k], 64n"};
    for (size_t i = 0; i < sizeof packs / sizeof packs[0]; i++)
        bench_one(names[i], &packs[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        bench();
        return 0;
    }
    for (int i = 0; i < 3000; i++) {
        struct ul_pack pack;
        make_random(&pack);
        check_one(&pack);
    }
    return TEST_RESULT();
}
