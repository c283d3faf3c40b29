/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How kernels run on the host (tests/cuda_emulation): what UL_LAUNCH and UL_SHARED of ul_cuda.h are
 * without nvcc, what the built-in functions of cuda_runtime.h stand on, and what emulated libraries
 * enqueue their work with.
 *
 * A launch copies the kernel's arguments and a pointer to `body`, which runs threads of the block
 * one after the other, in one call as long as none of them waits:
 *
 *     body:  while (ul_emulate_next()) kernel(arguments)      on a fiber
 *
 * A thread that waits at a barrier keeps its fiber, and another fiber goes on with the threads that
 * have not begun. Kernels without barriers so cost a loop, one fiber and no switch.
 *
 * Invariants: one operating-system thread runs one kernel at a time. With UL_EMULATE_RACE (that is,
 * -fsanitize=thread) every thread has a fiber that the sanitizer knows, threads are ordered by
 * barriers alone, and each block has shared memory at addresses of its own.
 * Failures: what CUDA leaves undefined (a barrier that not all threads reach, a shuffle with lanes
 * missing, a pointer to host memory as an argument) is reported with kernel and block by
 * ul_emulate_fail, which ends the program with status 70.
 */
#ifndef UL_EMULATE_H
#define UL_EMULATE_H

#include "cuda_runtime.h"

#include <new>
#include <stdint.h>
#include <string.h>
#include <utility>

/* ---- for emulated libraries ---- */

/* Enqueues run(arguments), of which the bytes are copied. Device memory is open while it runs; from
   a graph it runs as often as the graph does. */
cudaError_t ul_emulate_enqueue(cudaStream_t stream, const char *name, void (*run)(const void *),
                               const void *arguments, size_t size_bytes);
/* size_bytes from pointer on are device memory of one allocation, or ul_emulate_fail. */
void ul_emulate_need(const void *pointer, size_t size_bytes, const char *who);
/* A defect of the program under test: printf's arguments; status 70. */
[[noreturn]] void ul_emulate_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a library's handle takes of the device's free memory; negative gives it back. */
void ul_emulate_take(long bytes);

/* What is enqueued from now on is of that step of the plan. */
void ul_emulate_begin_step(unsigned step);
/* Whether what each step touches is counted. */
bool ul_emulate_counts_steps(void);
/* A library enqueues a call; its operands, and its result, for what is counted. */
void ul_emulate_count_call(void);
void ul_emulate_count_operand(const void *pointer, size_t size_bytes, bool is_result);

/* ---- what kernels say of themselves, where that is counted ---- */

void ul_emulate_count_pack(bool is_whole);
void ul_emulate_count_product(void);

/* So many elements are moved at once, or one by one. */
static inline void ul_note_pack([[maybe_unused]] int elements, [[maybe_unused]] bool is_whole)
{
#if defined(UL_EMULATE_COUNT)
    if (elements > 1)
        ul_emulate_count_pack(is_whole);
#endif
}

/* A warp multiplies on tensor cores. */
static inline void ul_note_product(void)
{
#if defined(UL_EMULATE_COUNT)
    ul_emulate_count_product();
#endif
}

/* ---- launches ---- */

/* A kernel of the program under test. */
struct ul_emulate_kernel {
    const char *name;
    uint64_t blocks, threads;
    void (*body)(const void *arguments);
    const unsigned char *when; /* of its struct ul_where: 0 there means that it does nothing */
    const void *function;
    size_t rest_bytes; /* of UL_SHARED_REST */
    bool overlaps;     /* it may begin before the one before it has ended: it has to wait */
    bool is_together;  /* all blocks are there at once, and may wait for each other */
    /* Makes `arguments` and `when` from pointers to the values of the kernel's parameters. */
    void (*give)(void *const *values, void *arguments, struct ul_emulate_kernel *kernel);
};

/* What a block has without asking for more, and with; what a multiprocessor has. */
#define UL_EMULATE_SHARED_BYTES (48 << 10)
#define UL_EMULATE_SHARED_OPTIN_BYTES (99 << 10)
#define UL_EMULATE_SHARED_ALL_BYTES (100 << 10)

cudaError_t ul_emulate_launch(const struct ul_emulate_kernel *kernel, const void *arguments,
                              size_t size_bytes, cudaStream_t stream);
/* A pointer that a kernel gets must be to memory that a device can reach. */
void ul_emulate_check_argument(const char *kernel, const void *pointer);
/* Ends the running thread of the block and begins another one; false: this fiber has none left. */
bool ul_emulate_next_slowly(void);

/* The running thread waits for what another block is to do; blocks take turns. */
void ul_emulate_spin(void);

/* The running block, as far as headers read it. */
struct ul_emulate_now {
    unsigned begun;  /* threads of the block */
    unsigned in_row; /* of these, how many may begin in order of their numbers */
    uint64_t block;  /* counts blocks of all launches */
    bool overlaps;   /* the kernel has to wait for those before it */
};
extern struct ul_emulate_now ul_emulate_now;

/* A thread waits for the kernels before its own; until one has, device memory is out of reach. */
void ul_emulate_waits(void);
static inline void ul_emulate_wait(void)
{
    if (ul_emulate_now.overlaps)
        ul_emulate_waits();
}

static inline bool ul_emulate_next(void)
{
    if (ul_emulate_now.begun < ul_emulate_now.in_row) {
        threadIdx.x = ul_emulate_now.begun++;
        return true;
    }
    return ul_emulate_next_slowly();
}

/* What of an argument is checked, and `when` of a struct ul_where. */
template <class T> static inline void ul_emulate_check(const char *, const T &)
{
}

template <class T> static inline void ul_emulate_check(const char *kernel, T *const &pointer)
{
    ul_emulate_check_argument(kernel, (const void *)pointer);
}

template <class T> static inline auto ul_emulate_when(const T &where, int) -> decltype(where.when)
{
    return where.when;
}

template <class T> static inline const unsigned char *ul_emulate_when(const T &, long)
{
    return NULL;
}

template <auto KERNEL, class... P> static inline auto ul_emulate_close(P... values)
{
    return [values...] {
        while (ul_emulate_next())
            KERNEL(values...);
    };
}

template <auto KERNEL> struct ul_emulate_of;

template <class... P, void (*KERNEL)(P...)> struct ul_emulate_of<KERNEL> {
    static cudaError_t launch(const char *name, uint64_t blocks, uint64_t threads, bool overlaps,
                              cudaStream_t stream, P... values)
    {
        return launch_as(name, blocks, threads, 0, overlaps, false, stream, values...);
    }

    static cudaError_t launch_together(const char *name, uint64_t blocks, uint64_t threads,
                                       size_t rest_bytes, cudaStream_t stream, P... values)
    {
        return launch_as(name, blocks, threads, rest_bytes, false, true, stream, values...);
    }

    typedef decltype(ul_emulate_close<KERNEL, P...>(std::declval<P>()...)) closure_type;
    static_assert(__is_trivially_copyable(closure_type), "arguments are copied as bytes");

    static void look_at(struct ul_emulate_kernel *kernel, const P &...values)
    {
        kernel->when = NULL;
        (ul_emulate_check(kernel->name, values), ...);
        ((kernel->when = kernel->when != NULL ? kernel->when : ul_emulate_when(values, 0)), ...);
    }

    template <size_t... I>
    static void give(void *const *values, void *arguments, struct ul_emulate_kernel *kernel,
                     std::index_sequence<I...>)
    {
        new (arguments) closure_type(ul_emulate_close<KERNEL, P...>(*(const P *)values[I]...));
        look_at(kernel, *(const P *)values[I]...);
    }

    static cudaError_t launch_as(const char *name, uint64_t blocks, uint64_t threads,
                                 size_t rest_bytes, bool overlaps, bool is_together,
                                 cudaStream_t stream, P... values)
    {
        closure_type closure = ul_emulate_close<KERNEL, P...>(values...);
        struct ul_emulate_kernel kernel = {
            name,       blocks,   threads,     NULL, NULL, (const void *)KERNEL,
            rest_bytes, overlaps, is_together, NULL};
        kernel.body = [](const void *arguments) { (*(const closure_type *)arguments)(); };
        kernel.give = [](void *const *all, void *arguments, struct ul_emulate_kernel *of) {
            give(all, arguments, of, std::index_sequence_for<P...>());
        };
        look_at(&kernel, values...);
        return ul_emulate_launch(&kernel, &closure, sizeof closure, stream);
    }
};

#define UL_LAUNCH(kernel, blocks, threads, at, ...)                                                \
    do {                                                                                           \
        bool overlaps = (at)->run->overlaps && (at)->run->is_behind;                               \
        if (UL_GIVE(kernel, blocks, threads, 0, at, __VA_ARGS__) ||                                \
            !ul_cuda_may_launch((at)->run))                                                        \
            break;                                                                                 \
        ul_cuda_note((at)->run, ul_emulate_of<kernel>::launch(                                     \
                                    #kernel, (uint64_t)(blocks), (uint64_t)(threads), overlaps,    \
                                    (at)->run->stream, __VA_ARGS__, (at)->where));                 \
        ul_cuda_note_node((at)->run, (const void *)(kernel));                                      \
        (at)->run->is_behind = 1;                                                                  \
    } while (0)

#define UL_LAUNCH_TOGETHER(kernel, blocks, threads, rest_bytes, at, ...)                           \
    do {                                                                                           \
        if (UL_GIVE(kernel, blocks, threads, rest_bytes, at, __VA_ARGS__) ||                       \
            !ul_cuda_may_launch((at)->run))                                                        \
            break;                                                                                 \
        ul_cuda_note_together((at), ul_emulate_of<kernel>::launch_together(                        \
                                        #kernel, (uint64_t)(blocks), (uint64_t)(threads),          \
                                        (size_t)(rest_bytes), (at)->run->stream, __VA_ARGS__,      \
                                        (at)->where));                                             \
        ul_cuda_note_node((at)->run, (const void *)(kernel));                                      \
    } while (0)

/* ---- shared memory ---- */

/* The block's, of the size that the launch says. */
void *ul_emulate_shared_rest(void);
#define UL_SHARED_REST(name) unsigned char *const name = (unsigned char *)ul_emulate_shared_rest()

/* One array of it. Undefined when a block begins: filled with NaN by the block's first thread. */
struct ul_emulate_shared {
    void *bytes;
    size_t size_bytes;
    const char *name;
    uint64_t block; /* that filled it */
};

#ifdef UL_EMULATE_RACE
/* The block's own place, the same for all of its threads. */
void *ul_emulate_shared_place(struct ul_emulate_shared *shared);
#define UL_SHARED(type, name, count)                                                               \
    static struct ul_emulate_shared name##_shared = {NULL, sizeof(type[count]), #name, 0};         \
    type(&name)[count] = *(type(*)[count])ul_emulate_shared_place(&name##_shared)
#else
void ul_emulate_shared_begin(struct ul_emulate_shared *shared);
#define UL_SHARED(type, name, count)                                                               \
    alignas(128) static type name[count];                                                          \
    static struct ul_emulate_shared name##_shared = {name, sizeof name, #name, 0};                 \
    if (name##_shared.block != ul_emulate_now.block)                                               \
    ul_emulate_shared_begin(&name##_shared)
#endif

#endif
