/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps move: programs that UL_EMULATE_COUNT built call the functions of the thread sanitizer
 * for each access, and here these are not the sanitizer's but count. Copies and calls of libraries
 * count their operands.
 *
 * Counted of each launch (kernel, copy, call): bytes that threads read and write, and the sectors of
 * 32 bytes among them, each once, which is what memory behind a cache that holds it all would move.
 * Kernels also say for themselves: packs that are moved whole, what is moved one by one
 * because a place is not aligned, and products on tensor cores.
 * Without that variable at building nothing here is called.
 */
#include "emulate.h"

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <utility>
#include <vector>

#define SECTOR 32

namespace
{

struct sums {
    uint64_t launches, bytes[2], sectors[2]; /* read, written */
    uint64_t packs, unaligned, products;
};

/* The launch that touched a sector last, 0 for none; read, written. */
struct memory {
    uintptr_t begin, end;
    std::vector<uint32_t> seen[2];
};

std::map<std::pair<uint32_t, std::string>, struct sums> steps; /* of a step, by kernel */
std::vector<struct memory *> memories;
struct memory *last;
uint32_t step_now = UL_EMULATE_NO_STEP, launch;
struct sums *running; /* of the launch that is counted now; NULL: nothing is */

struct memory *find_memory(uintptr_t at)
{
    if (last != NULL && at >= last->begin && at < last->end)
        return last;
    for (struct memory *memory : memories)
        if (at >= memory->begin && at < memory->end)
            return last = memory;
    return NULL;
}

void touch(uintptr_t at, size_t size_bytes, int writes)
{
    struct memory *memory = find_memory(at);
    if (memory == NULL)
        return;
    running->bytes[writes] += size_bytes;
    for (uintptr_t i = (at - memory->begin) / SECTOR;
         i <= (at + size_bytes - 1 - memory->begin) / SECTOR && i < memory->seen[writes].size();
         i++) {
        running->sectors[writes] += memory->seen[writes][i] != launch;
        memory->seen[writes][i] = launch;
    }
}

void write_counts()
{
    FILE *file = fopen(getenv("UL_EMULATE_COUNT"), "w");
    if (file == NULL) {
        perror(getenv("UL_EMULATE_COUNT"));
        return;
    }
    fprintf(file,
            "step\tkernel\tlaunches\tread_bytes\twritten_bytes\tread_sectors\twritten_sectors\t"
            "packs\tunaligned\tproducts\n");
    for (const auto &[at, sums] : steps) {
        fprintf(file, "%u\t%s", at.first, at.second.c_str());
        for (uint64_t number : {sums.launches, sums.bytes[0], sums.bytes[1], sums.sectors[0],
                                sums.sectors[1], sums.packs, sums.unaligned, sums.products})
            fprintf(file, "\t%llu", (unsigned long long)number);
        fprintf(file, "\n");
    }
    fclose(file);
}

bool counts()
{
    static int state; /* 0: not asked yet */
    if (state == 0) {
        state = getenv("UL_EMULATE_COUNT") != NULL ? 1 : -1;
        if (state > 0)
            atexit(write_counts);
    }
    return state > 0;
}

} // namespace

void ul_emulate_begin_step(unsigned step)
{
    step_now = step;
}

bool ul_emulate_counts_steps(void)
{
    return counts();
}

uint32_t count_step(void)
{
    return step_now;
}

void count_memory(const void *begin, size_t size_bytes)
{
    if (!counts())
        return;
    struct memory *memory = new struct memory();
    memory->begin = (uintptr_t)begin;
    memory->end = memory->begin + size_bytes;
    for (std::vector<uint32_t> &seen : memory->seen)
        seen.resize(size_bytes / SECTOR + 1);
    memories.push_back(memory);
}

void count_begin(uint32_t step, const char *name)
{
    if (step == UL_EMULATE_NO_STEP || !counts())
        return;
    running = &steps[{step, name}];
    running->launches++;
    launch++;
}

void count_end(void)
{
    running = NULL;
}

void count_touch(const void *begin, size_t size_bytes, bool writes)
{
    if (running != NULL && size_bytes > 0)
        touch((uintptr_t)begin, size_bytes, writes);
}

void count_copy(uint32_t step, const void *from, const void *to, size_t size_bytes)
{
    if (!counts() || find_memory((uintptr_t)from) == NULL || find_memory((uintptr_t)to) == NULL)
        return;
    count_begin(step, "copy");
    count_touch(from, size_bytes, false);
    count_touch(to, size_bytes, true);
    count_end();
}

void ul_emulate_count_pack(bool is_whole)
{
    if (running != NULL)
        (is_whole ? running->packs : running->unaligned)++;
}

void ul_emulate_count_product(void)
{
    if (running != NULL)
        running->products++;
}

static bool call_counts;

void ul_emulate_count_call(void)
{
    call_counts = step_now != UL_EMULATE_NO_STEP && counts();
    count_begin(step_now, "call");
    count_end();
}

void ul_emulate_count_operand(const void *pointer, size_t size_bytes, bool is_result)
{
    if (!call_counts || size_bytes == 0)
        return;
    running = &steps[{step_now, "call"}];
    touch((uintptr_t)pointer, size_bytes, is_result);
    running = NULL;
}

#if defined(UL_EMULATE_COUNT)
/* The sanitizer's names, as g++ -fsanitize=thread calls them. */
#define ACCESS(size)                                                                               \
    void __tsan_read##size(void *at)                                                               \
    {                                                                                              \
        count_touch(at, size, false);                                                              \
    }                                                                                              \
    void __tsan_write##size(void *at)                                                              \
    {                                                                                              \
        count_touch(at, size, true);                                                               \
    }
#define UNALIGNED(size)                                                                            \
    void __tsan_unaligned_read##size(void *at)                                                     \
    {                                                                                              \
        count_touch(at, size, false);                                                              \
    }                                                                                              \
    void __tsan_unaligned_write##size(void *at)                                                    \
    {                                                                                              \
        count_touch(at, size, true);                                                               \
    }
#define ATOMIC(bits, type)                                                                         \
    type __tsan_atomic##bits##_load(const volatile type *at, int)                                  \
    {                                                                                              \
        count_touch((const void *)at, sizeof *at, false);                                          \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int)                           \
    {                                                                                              \
        count_touch((const void *)at, sizeof *at, true);                                           \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int)                        \
    {                                                                                              \
        count_touch((const void *)at, sizeof *at, true);                                           \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                   \
    }                                                                                              \
    type __tsan_atomic##bits##_fetch_add(volatile type *at, type value, int)                       \
    {                                                                                              \
        count_touch((const void *)at, sizeof *at, true);                                           \
        return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                    \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, type *before, type value, \
                                                      int, int)                                    \
    {                                                                                              \
        count_touch((const void *)at, sizeof *at, true);                                           \
        return __atomic_compare_exchange_n(at, before, value, false, __ATOMIC_SEQ_CST,             \
                                           __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at, type *before, type value,   \
                                                    int, int)                                      \
    {                                                                                              \
        return __tsan_atomic##bits##_compare_exchange_strong(at, before, value, 0, 0);             \
    }
extern "C" {
void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_read(void *)
{
}
void __tsan_vptr_update(void *, void *)
{
}
void __tsan_read_range(void *at, unsigned long size_bytes)
{
    count_touch(at, size_bytes, false);
}
void __tsan_write_range(void *at, unsigned long size_bytes)
{
    count_touch(at, size_bytes, true);
}
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned)
ATOMIC(64, unsigned long)
void __tsan_atomic_thread_fence(int)
{
}
}
#endif
