/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a block: as fibers where they wait for each other, as iterations of a loop where not.
 *
 *     main --> fiber 1: thread 0 ... waits at a barrier
 *              fiber 2: thread 1 ... waits ...            whoever comes last goes on, and makes
 *              ...                                        the others ready
 *              fiber n: the last thread --> ready ones, oldest first --> main: the block is done
 *
 * A fiber that ends its thread takes the next one that has not begun. When nobody is ready and
 * all have begun while some wait, the block can never end: the program's mistake.
 *
 * A switch saves the registers that a call preserves and exchanges stack pointers (x86-64); other
 * machines use swapcontext, which costs two system calls. The address and thread sanitizers are
 * told of each switch.
 *
 * Blocks of a launch that is together (UL_LAUNCH_TOGETHER) are all there at once and take turns: a
 * block has the processor until each of its threads waits, has ended, or spins for another block.
 * Shared arrays of the blocks that do not run are put aside. When all only spin, round after round,
 * the launch can never end.
 *
 * With the thread sanitizer each thread has its fiber to itself, fibers are reused in turn, and
 * what orders memory is told: launch before threads, threads before the next launch, barriers.
 * A shuffle or a vote orders nothing, as on a device. This file itself is not instrumented.
 */
#include "emulate.h"
#include "ul_emulate_tensor.h"

#include <fcntl.h>
#include <inttypes.h>
#include <map>
#include <set>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(UL_EMULATE_RACE)
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#define IN_TURN 521 /* fibers: more than a block's threads, and no multiple of them */
#else
static inline void __tsan_acquire(void *)
{
}
static inline void __tsan_release(void *)
{
}
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size_bytes);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size_bytes);
}
#endif

#if defined(UL_EMULATE_RACE) || defined(__SANITIZE_ADDRESS__)
#define STACK_BYTES ((size_t)1 << 20)
#else
#define STACK_BYTES ((size_t)256 << 10)
#endif
#define GUARD_BYTES ((size_t)64 << 10)
#define GUARDED 16384u /* fibers: the system has 65530 mappings, a guard makes two */
#define MAX_THREADS 1024u
#define SHARED_BYTES ((size_t)UL_EMULATE_SHARED_BYTES) /* of a block, without asking for more */
#define SHARED_OPTIN_BYTES ((size_t)UL_EMULATE_SHARED_OPTIN_BYTES)

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
struct ul_emulate_now ul_emulate_now;

namespace
{

struct fiber {
    struct fiber *next; /* in the list that it stands in */
    unsigned thread;    /* that it runs */
    bool has_thread;
    unsigned char *stack; /* NULL: main */
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t context;
#endif
#if defined(UL_EMULATE_RACE)
    void *tsan;
#endif
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    const void *bottom;
    size_t size_bytes;
#endif
};

struct list {
    struct fiber *first, *last;
};

void put_last(struct list *list, struct fiber *fiber)
{
    fiber->next = NULL;
    if (list->first == NULL)
        list->first = fiber;
    else
        list->last->next = fiber;
    list->last = fiber;
}

struct fiber *pop_first(struct list *list)
{
    struct fiber *fiber = list->first;
    if (fiber != NULL)
        list->first = fiber->next;
    return fiber;
}

/* Lanes of a warp that meet at a shuffle, a vote or __syncwarp. Several masks may be waited for at
   the same time: some lanes shuffle among themselves while others are further on. */
#define MEETINGS 32
struct meeting {
    unsigned mask, arrived;
    const char *what;
    int line;
    void *given[32];
    struct list waiting;
    uint64_t round;
};

/* A shared array, in a block that does not run now. */
struct aside {
    struct ul_emulate_shared *shared;
    void *place;                      /* with the thread sanitizer */
    std::vector<unsigned char> bytes; /* without */
};

struct block_barrier {
    unsigned arrived, ones;
    unsigned result[2]; /* of this round and the last one */
    const char *what;
    int line;
    struct list waiting;
    uint64_t round;
};

/* Copies of a thread that are under way: a ring, for the thread sanitizer has an eye on the heap.
 */
#define MAX_COPIES 256u
struct copy_under_way {
    struct ul_emulate_copy copy;
    uint64_t group;
};
struct copies {
    struct copy_under_way ring[MAX_COPIES];
    unsigned first, count;
    uint64_t group; /* that is open */
};

struct shared_range {
    const unsigned char *begin, *end;
};

/* Addresses that the thread sanitizer orders threads of a block by, two for each place where they
 * meet. Each block has its own: what orders its threads orders no others. */
#define ORDERS (2 + MAX_THREADS / 32 * MEETINGS * 2)

/* A block of the launch; where blocks are together, each has one, else all have the same in turn.
 */
struct block {
    struct list ready, spinning;
    struct meeting meetings[MAX_THREADS / 32][MEETINGS];
    struct block_barrier barrier;
    char *orders; /* for the race check alone */
    unsigned waiting_count;
    size_t shared_bytes;
    unsigned char *rest; /* shared memory whose size the launch says */
    struct shared_range shared_ranges[64];
    unsigned shared_count;
    struct copies *copies; /* of each thread; NULL: there were none */
    uint64_t copy_count;   /* under way, of all threads */
    /* What is put aside while another block runs. */
    bool has_begun, is_done;
    unsigned index;
    struct ul_emulate_now now;
    std::vector<struct aside> asides;
};

struct fiber main_fiber, *current = &main_fiber, *left;
struct list idle;
struct block only_block, *in = &only_block;
unsigned thread_count, fiber_count;
uint64_t salt, event_count;
const struct ul_emulate_kernel *kernel;
const void *kernel_arguments;
char launch_order, end_order;

/* ---- switching ---- */

#if defined(__x86_64__)
extern "C" void ul_emulate_switch(void **from, void *to);
asm(R"(
    .text
    .globl ul_emulate_switch
    .type ul_emulate_switch, @function
ul_emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size ul_emulate_switch, . - ul_emulate_switch
)");
#endif

#if defined(__SANITIZE_ADDRESS__)
/* The stack of main is the calling thread's, and known once it has been left. */
void finish_switch(void *fake)
{
    const void *bottom;
    size_t size_bytes;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size_bytes);
    if (left == &main_fiber) {
        main_fiber.bottom = bottom;
        main_fiber.size_bytes = size_bytes;
    }
}
#endif

void switch_to(struct fiber *to)
{
    struct fiber *from = current;
    from->thread = threadIdx.x;
    left = from;
    current = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->size_bytes);
#endif
#if defined(UL_EMULATE_RACE)
    __tsan_switch_to_fiber(to->tsan, 1); /* orders nothing */
#endif
#if defined(__x86_64__)
    ul_emulate_switch(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    finish_switch(from->fake);
#endif
    threadIdx.x = from->thread;
}

void fiber_main();

/* In front of its first switch, a stack looks as if fiber_main's caller had switched away. */
void fiber_start(struct fiber *fiber)
{
#if defined(__x86_64__)
    void **top = (void **)(void *)(fiber->stack + STACK_BYTES);
    *--top = NULL; /* no caller; keeps the stack aligned to 16 bytes at a function's entry */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    fiber->stack_pointer = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, fiber_main, 0);
#endif
}

struct fiber *fiber_new()
{
    struct fiber *fiber = (struct fiber *)calloc(1, sizeof *fiber);
    void *block = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber == NULL || block == MAP_FAILED ||
        (fiber_count < GUARDED && mprotect(block, GUARD_BYTES, PROT_NONE) != 0))
        ul_emulate_fail("the host is out of memory for stacks");
    fiber->stack = (unsigned char *)block + GUARD_BYTES;
#if defined(UL_EMULATE_RACE)
    fiber->tsan = __tsan_create_fiber(0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    fiber->bottom = fiber->stack;
    fiber->size_bytes = STACK_BYTES;
#endif
    fiber_count++;
    fiber_start(fiber);
    return fiber;
}

struct fiber *fiber_idle()
{
#if defined(UL_EMULATE_RACE)
    while (fiber_count < IN_TURN)
        put_last(&idle, fiber_new());
#endif
    struct fiber *fiber = pop_first(&idle);
    return fiber != NULL ? fiber : fiber_new();
}

/* The current fiber has nothing to do until somebody switches to it. */
void go_on()
{
    struct fiber *to = pop_first(&in->ready);
    if (to == NULL && ul_emulate_now.begun < thread_count)
        to = fiber_idle();
    switch_to(to != NULL ? to : &main_fiber);
}

void fiber_main()
{
#if defined(__SANITIZE_ADDRESS__)
    finish_switch(NULL);
#endif
    for (;;) {
        kernel->body(kernel_arguments);
        put_last(&idle, current);
        go_on();
    }
}

void wait_in(struct list *waiting)
{
    put_last(waiting, current);
    in->waiting_count++;
    go_on();
}

/* Those that waited are ready, oldest first; with an odd order newest first. */
void release(struct list *waiting)
{
    struct fiber *fiber;
    while ((fiber = pop_first(waiting)) != NULL) {
        in->waiting_count--;
        if (settings_get().order % 2 != 0) {
            fiber->next = in->ready.first;
            if (in->ready.first == NULL)
                in->ready.last = fiber;
            in->ready.first = fiber;
        } else {
            put_last(&in->ready, fiber);
        }
    }
}

/* ---- blocks ---- */

void fail_block(const char *what)
{
    ul_emulate_fail("kernel %s, block %u, thread %u: %s", kernel->name, blockIdx.x, threadIdx.x,
                    what);
}

[[noreturn]] void fail_stuck()
{
    char text[160];
    if (in->barrier.arrived != 0)
        snprintf(text, sizeof text, "only %u of %u threads reach %s in line %d",
                 in->barrier.arrived, thread_count, in->barrier.what, in->barrier.line);
    for (unsigned w = 0; in->barrier.arrived == 0 && w < MAX_THREADS / 32; w++)
        for (unsigned i = 0; i < MEETINGS; i++)
            if (in->meetings[w][i].arrived != 0)
                snprintf(text, sizeof text,
                         "warp %u: lanes %08x of mask %08x reach %s in line %d, the others do not",
                         w, in->meetings[w][i].arrived, in->meetings[w][i].mask,
                         in->meetings[w][i].what, in->meetings[w][i].line);
    ul_emulate_fail("kernel %s, block %u: %s", kernel->name, blockIdx.x, text);
}

/* Shared memory of the size that the launch says, which nobody set. */
unsigned char *rest_new()
{
    if (kernel->rest_bytes == 0)
        return NULL;
    void *rest = aligned_alloc(128, (kernel->rest_bytes + 127) / 128 * 128);
    if (rest == NULL)
        ul_emulate_fail("the host is out of memory");
    memset(rest, 0xff, kernel->rest_bytes);
    return (unsigned char *)rest;
}

/* New addresses for the running block, before its threads begin; and none, after its end. */
void orders_new()
{
#if defined(UL_EMULATE_RACE)
    in->orders = (char *)malloc(ORDERS);
    if (in->orders == NULL)
        ul_emulate_fail("the host is out of memory");
#endif
}

void orders_free(struct block *block)
{
    free(block->orders);
    block->orders = NULL;
}

/* The order of a round of threads that meet: at the barrier, which is number 0, or in a warp. */
char *order_of([[maybe_unused]] size_t number, [[maybe_unused]] uint64_t round)
{
#if defined(UL_EMULATE_RACE)
    return in->orders + 2 * number + round % 2;
#else
    return NULL;
#endif
}

/* Gives control to the running block, until all of its threads wait or have ended. */
void block_go_on()
{
    struct fiber *fiber;
    while ((fiber = pop_first(&in->spinning)) != NULL)
        put_last(&in->ready, fiber);
    fiber = pop_first(&in->ready);
    switch_to(fiber != NULL ? fiber : fiber_idle());
}

void block_begin(unsigned index)
{
    static uint64_t count;
    blockIdx.x = index;
    ul_emulate_now.block = ++count;
    ul_emulate_now.begun = 0;
    ul_emulate_now.in_row = thread_count;
    in->shared_bytes = kernel->rest_bytes;
    in->shared_count = 0;
#if defined(UL_EMULATE_RACE)
    ul_emulate_now.in_row = 0;
    __tsan_release(&launch_order);
#else
    if (settings_get().order != 0)
        ul_emulate_now.in_row = 0;
#endif
    block_go_on();
}

#define MAX_IDLE_ROUNDS 1000

/* Whether something other than spinning was done since there were `before` events; not for long. */
bool goes_on(uint64_t before, uint64_t *idle_rounds)
{
    *idle_rounds = event_count == before ? *idle_rounds + 1 : 0;
    return *idle_rounds <= MAX_IDLE_ROUNDS;
}

void check_copies()
{
    if (in->copy_count != 0)
        ul_emulate_fail("kernel %s, block %u: ends before %" PRIu64 " of its copies have come",
                        kernel->name, blockIdx.x, in->copy_count);
}

/* A block of a launch whose blocks know nothing of each other: its threads may spin for one of
 * their own. */
void run_alone(unsigned index)
{
    uint64_t before = event_count, idle_rounds = 0;
    in->rest = rest_new();
    orders_new();
    block_begin(index);
    while (in->spinning.first != NULL && goes_on(before, &idle_rounds)) {
        before = event_count;
        block_go_on();
    }
    if (in->spinning.first != NULL)
        ul_emulate_fail("kernel %s, block %u: threads spin for ever; blocks may wait for each "
                        "other in a cooperative launch only",
                        kernel->name, blockIdx.x);
    if (in->waiting_count != 0)
        fail_stuck();
    check_copies();
    if (in->rest != NULL)
        __tsan_acquire(&end_order);
    free(in->rest);
    orders_free(in);
}

/* ---- blocks that are there together ---- */

/* Puts the running block aside. */
void block_leave()
{
    in->now = ul_emulate_now;
    for (struct aside &aside : in->asides) {
#if defined(UL_EMULATE_RACE)
        aside.place = aside.shared->bytes;
#else
        memcpy(aside.bytes.data(), aside.shared->bytes, aside.bytes.size());
#endif
    }
}

void block_enter(struct block *block)
{
    in = block;
    blockIdx.x = block->index;
    ul_emulate_now = block->now;
    for (struct aside &aside : block->asides) {
        aside.shared->block = block->now.block;
#if defined(UL_EMULATE_RACE)
        aside.shared->bytes = aside.place;
#else
        memcpy(aside.shared->bytes, aside.bytes.data(), aside.bytes.size());
#endif
    }
}

/* A block's turn: until all of its threads wait, spin or have ended. */
void block_turn(struct block *block)
{
    block_enter(block);
    if (block->has_begun) {
        block_go_on();
    } else {
        orders_new();
        block_begin(block->index);
    }
    block->has_begun = true;
    if (in->spinning.first == NULL && in->waiting_count != 0)
        fail_stuck();
    in->is_done = in->spinning.first == NULL;
    if (in->is_done)
        check_copies();
    block_leave();
}

/* All blocks in turn, round after round, in an order that changes. */
void run_together()
{
    std::vector<struct block *> blocks(kernel->blocks);
    uint64_t idle_rounds = 0, done = 0;
    for (uint64_t i = 0; i < kernel->blocks; i++) {
        blocks[i] = new block();
        blocks[i]->index = (unsigned)i;
        blocks[i]->rest = rest_new();
    }
    for (uint64_t round = 0; done < kernel->blocks; round++) {
        const uint64_t before = event_count;
        for (uint64_t i = 0; i < kernel->blocks; i++) {
            struct block *block = blocks[ordered(i, kernel->blocks, salt + round)];
            if (block->is_done)
                continue;
            block_turn(block);
            done += block->is_done;
        }
        if (!goes_on(before, &idle_rounds))
            ul_emulate_fail("kernel %s: its blocks wait for each other for ever", kernel->name);
    }
    __tsan_acquire(&end_order);
    for (struct block *block : blocks) {
        free(block->rest);
        orders_free(block);
        if (block->copies != NULL)
            munmap(block->copies, MAX_THREADS * sizeof *block->copies);
        delete block;
    }
    in = &only_block;
}

/* Names go to the file at once: a program may end in many ways. */
void note_coverage(const struct ul_emulate_kernel &of)
{
    static std::set<std::string> seen;
    const char *path = settings_get().coverage;
    if (path == NULL)
        return;
    std::string line = of.when != NULL && *of.when == 0 ? "skipped " : "ran ";
    line += of.name;
    if (!seen.insert(line).second)
        return;
    line += "\n";
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line.data(), line.size()) != (ssize_t)line.size())
        perror(path);
    if (file >= 0)
        close(file);
}

} // namespace

#if defined(UL_EMULATE_RACE)
namespace
{

/* Addresses for shared memory, taken in turn. Mapping them anew makes the sanitizer forget. */
#define PLACES_BYTES ((size_t)64 << 20)
unsigned char *places;
size_t places_used;

void places_renew(uint64_t blocks)
{
    if (places != NULL && places_used + blocks * 2 * SHARED_BYTES <= PLACES_BYTES)
        return;
    if (places != NULL)
        munmap(places, PLACES_BYTES);
    places = (unsigned char *)mmap(NULL, PLACES_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (places == MAP_FAILED)
        ul_emulate_fail("the host is out of memory");
    places_used = 0;
}

} // namespace
#endif

enum { SHUT_LAUNCHES = 4 };
static uint64_t waited_count; /* threads of an overlapping launch */

void kernel_run(const struct ul_emulate_kernel &of, const void *arguments)
{
    note_coverage(of);
    kernel = &of;
    kernel_arguments = arguments;
    thread_count = (unsigned)of.threads;
    gridDim = dim3((unsigned)of.blocks);
    blockDim = dim3(thread_count);
    salt++;
    /* The first launches of a kernel tell: taking and giving rights takes longer than a small one.
     */
    static std::map<const void *, int> launch_counts;
    bool is_shut = of.overlaps && launch_counts[of.function]++ < SHUT_LAUNCHES;
    ul_emulate_now.overlaps = of.overlaps;
    waited_count = 0;
    if (is_shut)
        device_shut(true);
#if defined(UL_EMULATE_RACE)
    main_fiber.tsan = __tsan_get_current_fiber();
    __tsan_acquire(&end_order);
#endif
    if (of.is_together) {
#if defined(UL_EMULATE_RACE)
        places_renew(of.blocks);
#endif
        run_together();
    } else {
        for (uint64_t i = 0; i < of.blocks; i++) {
#if defined(UL_EMULATE_RACE)
            places_renew(1);
#endif
            run_alone((unsigned)ordered(i, of.blocks, salt));
        }
    }
    __tsan_acquire(&end_order);
    if (of.overlaps && waited_count < of.blocks * of.threads)
        ul_emulate_fail("kernel %s: %llu of its %llu threads end without a wait for the kernels "
                        "before it",
                        of.name, (unsigned long long)(of.blocks * of.threads - waited_count),
                        (unsigned long long)(of.blocks * of.threads));
    kernel = NULL;
}

void ul_emulate_waits(void)
{
    if (waited_count++ == 0)
        device_shut(false);
}

bool ul_emulate_next_slowly(void)
{
    bool ended = current->has_thread;
    current->has_thread = false;
    event_count++;
#if defined(UL_EMULATE_RACE)
    if (ended) {
        __tsan_release(&end_order);
        return false; /* the next thread gets another fiber */
    }
#else
    (void)ended;
#endif
    if (ul_emulate_now.begun == thread_count)
        return false;
    threadIdx.x = (unsigned)ordered(ul_emulate_now.begun++, thread_count, salt + blockIdx.x);
    current->has_thread = true;
    __tsan_acquire(&launch_order);
    return true;
}

/* ---- shared memory ---- */

static void count_shared(struct ul_emulate_shared *shared)
{
    const unsigned char *begin = (const unsigned char *)shared->bytes;
    if (in->shared_count == sizeof in->shared_ranges / sizeof *in->shared_ranges)
        ul_emulate_fail("kernel %s: too many arrays of shared memory", kernel->name);
    in->shared_ranges[in->shared_count++] = {begin, begin + shared->size_bytes};
    if (kernel->is_together) {
        struct aside aside = {shared, NULL, {}};
#if !defined(UL_EMULATE_RACE)
        aside.bytes.resize(shared->size_bytes);
#endif
        in->asides.push_back(aside);
    }
    in->shared_bytes += (shared->size_bytes + 127) / 128 * 128;
    const bool has_asked =
        kernel->rest_bytes != 0 && rest_bytes_asked(kernel->function) >= kernel->rest_bytes;
    const size_t allowed = has_asked ? SHARED_OPTIN_BYTES : SHARED_BYTES;
    if (in->shared_bytes > allowed)
        ul_emulate_fail("kernel %s: %zu bytes of shared memory, %zu are allowed (at %s)",
                        kernel->name, in->shared_bytes, allowed, shared->name);
}

void *ul_emulate_shared_rest(void)
{
    return in->rest;
}

#if defined(UL_EMULATE_RACE)
void *ul_emulate_shared_place(struct ul_emulate_shared *shared)
{
    if (shared->block != ul_emulate_now.block) {
        shared->block = ul_emulate_now.block;
        shared->bytes = places + places_used;
        places_used += (shared->size_bytes + 127) / 128 * 128;
        count_shared(shared);
        /* Not memset, which the sanitizer would see as the first thread's. */
        for (size_t i = 0; i < shared->size_bytes; i += 8)
            *(volatile uint64_t *)((unsigned char *)shared->bytes + i) = UINT64_MAX;
    }
    return shared->bytes;
}
#else
void ul_emulate_shared_begin(struct ul_emulate_shared *shared)
{
    shared->block = ul_emulate_now.block;
    count_shared(shared);
    memset(shared->bytes, 0xff, shared->size_bytes);
}
#endif

/* ---- waiting for other blocks ---- */

void ul_emulate_spin(void)
{
    if (kernel == NULL)
        ul_emulate_fail("a thread spins outside of a kernel");
    put_last(&in->spinning, current);
    go_on();
}

/* ---- barriers ---- */

/* All threads of the block; gives the number of predicates that are not 0. */
static unsigned block_meet(const char *what, int predicate, int line)
{
    if (kernel == NULL)
        ul_emulate_fail("%s in line %d outside of a kernel", what, line);
    const uint64_t round = in->barrier.round;
    event_count++;
    if (in->barrier.arrived == 0) {
        in->barrier.what = what;
        in->barrier.line = line;
        in->barrier.ones = 0;
    } else if (in->barrier.line != line || in->barrier.what != what) {
        char text[160];
        snprintf(text, sizeof text, "waits at %s in line %d, others at %s in line %d", what, line,
                 in->barrier.what, in->barrier.line);
        fail_block(text);
    }
    in->barrier.ones += predicate != 0;
    __tsan_release(order_of(0, round));
    if (++in->barrier.arrived == thread_count) {
        in->barrier.arrived = 0;
        in->barrier.result[round % 2] = in->barrier.ones;
        in->barrier.round++;
        release(&in->barrier.waiting);
    } else {
        wait_in(&in->barrier.waiting);
    }
    __tsan_acquire(order_of(0, round));
    return in->barrier.result[round % 2];
}

void __syncthreads(int line)
{
    (void)block_meet("__syncthreads()", 0, line);
}

int __syncthreads_or(int predicate, int line)
{
    return block_meet("__syncthreads_or()", predicate, line) != 0;
}

int __syncthreads_and(int predicate, int line)
{
    return block_meet("__syncthreads_and()", predicate, line) == thread_count;
}

int __syncthreads_count(int predicate, int line)
{
    return (int)block_meet("__syncthreads_count()", predicate, line);
}

/* Where lanes of this mask wait, or a free one. */
static struct meeting *find_meeting(unsigned warp, unsigned mask)
{
    struct meeting *free = NULL;
    for (unsigned i = 0; i < MEETINGS; i++) {
        struct meeting *at = &in->meetings[warp][i];
        if (at->arrived != 0 && at->mask == mask)
            return at;
        if (at->arrived == 0 && free == NULL)
            free = at;
    }
    return free; /* at most 31 lanes wait while one comes */
}

void ul_emulate_meet(unsigned mask, void *given, void (*combine)(unsigned mask, void *const *given),
                     bool orders, const char *what, int line)
{
    if (kernel == NULL)
        ul_emulate_fail("%s in line %d outside of a kernel", what, line);
    event_count++;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned lanes = thread_count - warp * 32 >= 32 ? 32 : thread_count - warp * 32;
    char text[160];
    text[0] = '\0';
    if ((mask >> lane & 1) == 0)
        snprintf(text, sizeof text, "calls %s in line %d with mask %08x, in which it is not", what,
                 line, mask);
    else if (lanes < 32 && mask >> lanes != 0)
        snprintf(text, sizeof text, "calls %s in line %d with mask %08x in a warp of %u lanes",
                 what, line, mask, lanes);
    if (text[0] != '\0')
        fail_block(text);
    struct meeting *at = find_meeting(warp, mask);
    if (at->arrived == 0) {
        at->mask = mask;
        at->what = what;
        at->line = line;
    } else if (at->mask != mask || at->what != what || at->line != line) {
        snprintf(text, sizeof text,
                 "calls %s in line %d with mask %08x, another lane %s in line %d with mask %08x",
                 what, line, mask, at->what, at->line, at->mask);
        fail_block(text);
    }
    const uint64_t round = at->round;
    const size_t number = 1 + (size_t)(at - in->meetings[0]);
    if (orders)
        __tsan_release(order_of(number, round));
    at->given[lane] = given;
    at->arrived |= 1u << lane;
    if (at->arrived == mask) {
        at->arrived = 0;
        at->round++;
        if (orders)
            __tsan_acquire(order_of(number, round));
        if (combine != NULL)
            combine(mask, at->given);
        if (orders)
            __tsan_release(order_of(number, round));
        release(&at->waiting);
    } else {
        wait_in(&at->waiting);
        if (orders)
            __tsan_acquire(order_of(number, round));
    }
}

void __syncwarp(unsigned mask, int line)
{
    ul_emulate_meet(mask, NULL, NULL, true, "__syncwarp()", line);
}

/* ---- copies and matrices ---- */

void ul_emulate_need_shared(const void *place, size_t size_bytes, const char *who, int line)
{
    const unsigned char *at = (const unsigned char *)place;
    bool is_inside = at >= in->rest && at + size_bytes <= in->rest + kernel->rest_bytes;
    for (unsigned i = 0; i < in->shared_count; i++)
        is_inside = is_inside || (at >= in->shared_ranges[i].begin &&
                                  at + size_bytes <= in->shared_ranges[i].end);
    if (!is_inside || (uintptr_t)place % size_bytes != 0)
        ul_emulate_fail("kernel %s, block %u, thread %u: %s in line %d: %p is not shared memory or "
                        "no multiple of %zu bytes",
                        kernel->name, blockIdx.x, threadIdx.x, who, line, place, size_bytes);
}

static struct copies *thread_copies(void)
{
    if (in->copies == NULL) {
        void *place = mmap(NULL, MAX_THREADS * sizeof *in->copies, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED)
            ul_emulate_fail("the host is out of memory");
        in->copies = (struct copies *)place;
    }
    return &in->copies[threadIdx.x];
}

bool ul_emulate_copy_begin(const struct ul_emulate_copy *copy, const void *from, int line)
{
    if (kernel == NULL)
        ul_emulate_fail("a copy in line %d outside of a kernel", line);
    ul_emulate_need_shared(copy->to, copy->size_bytes, "a copy", line);
    count_touch(copy->from, copy->from != NULL ? copy->size_bytes : 0, false);
    if ((uintptr_t)from % copy->size_bytes != 0)
        ul_emulate_fail("kernel %s, block %u, thread %u: a copy in line %d: from %p, which is no "
                        "multiple of %u bytes",
                        kernel->name, blockIdx.x, threadIdx.x, line, from, copy->size_bytes);
    if (settings_get().order % 2 != 0)
        return true;
    struct copies *mine = thread_copies();
    if (mine->count == MAX_COPIES)
        fail_block("has too many copies under way for the emulation");
    mine->ring[(mine->first + mine->count++) % MAX_COPIES] = {*copy, mine->group};
    in->copy_count++;
    return false;
}

void ul_emulate_copies_close(void)
{
    thread_copies()->group++;
}

bool ul_emulate_copy_next(struct ul_emulate_copy *copy, unsigned left)
{
    struct copies *mine = thread_copies();
    const struct copy_under_way *oldest = &mine->ring[mine->first];
    if (mine->count == 0 || oldest->group + left >= mine->group)
        return false;
    *copy = oldest->copy;
    mine->first = (mine->first + 1) % MAX_COPIES;
    mine->count--;
    in->copy_count--;
    return true;
}

/* Rows of a matrix that lie in the same banks are read one after the other. */
static void check_banks(void *const *given, int matrix)
{
    unsigned seen = 0;
    for (int row = 0; row < 8; row++) {
        const struct ul_emulate_row *of = (const struct ul_emulate_row *)given[matrix * 8 + row];
        const unsigned bank = 1u << ((uintptr_t)of->place / 16 % 8);
        if ((seen & bank) != 0)
            ul_emulate_fail("kernel %s, block %u: rows of a matrix share banks", kernel->name,
                            blockIdx.x);
        seen |= bank;
    }
}

void ul_emulate_matrices(unsigned, void *const *given)
{
    for (int matrix = 0; matrix < 4; matrix++) {
        if (settings_get().banks)
            check_banks(given, matrix);
        for (int lane = 0; lane < 32; lane++) {
            const struct ul_emulate_row *mine = (const struct ul_emulate_row *)given[lane];
            uint32_t word = 0;
            for (int e = 0; e < 2; e++) {
                const int row = mine->turns ? lane % 4 * 2 + e : lane / 4;
                const int column = mine->turns ? lane / 4 : lane % 4 * 2 + e;
                word |= (uint32_t)((const struct ul_emulate_row *)given[matrix * 8 + row])
                            ->elements[column]
                        << 16 * e;
            }
            mine->to[matrix] = word;
        }
    }
}

/* ---- shuffles and votes ---- */

namespace
{

struct shuffle {
    unsigned char value[16];
    int from;
};

void combine_shuffle(unsigned mask, void *const *given)
{
    unsigned char values[32][16];
    for (int i = 0; i < 32; i++)
        if ((mask >> i & 1) != 0)
            __builtin_memcpy(values[i], ((const struct shuffle *)given[i])->value, 16);
    for (int i = 0; i < 32; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        struct shuffle *shuffle = (struct shuffle *)given[i];
        if (shuffle->from < 0 || shuffle->from > 31 || (mask >> shuffle->from & 1) == 0)
            ul_emulate_fail(
                "kernel %s, block %u, lane %d: a shuffle reads lane %d, which is not in "
                "its mask %08x",
                kernel->name, blockIdx.x, i, shuffle->from, mask);
        __builtin_memcpy(shuffle->value, values[shuffle->from], 16);
    }
}

struct vote {
    unsigned value;
    int how;
};

void combine_vote(unsigned mask, void *const *given)
{
    const struct vote *first = (const struct vote *)given[__builtin_ctz(mask)];
    const int how = first->how;
    unsigned all = how == '?' ? 0 : first->value;
    for (unsigned rest = how == '?' ? mask : mask & (mask - 1); rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const unsigned value = ((const struct vote *)given[lane])->value;
        if (how == '?')
            all |= value != 0 ? 1u << lane : 0;
        else if (how == '+')
            all += value;
        else if (how == '>' ? value > all : value < all)
            all = value;
    }
    for (unsigned rest = mask; rest != 0; rest &= rest - 1)
        ((struct vote *)given[__builtin_ctz(rest)])->value = all;
}

} // namespace

void ul_emulate_shuffle(unsigned mask, void *value, size_t size_bytes, int from, int line)
{
    struct shuffle shuffle;
    unsigned char *bytes = (unsigned char *)value;
    for (size_t i = 0; i < 16; i++)
        shuffle.value[i] = i < size_bytes ? bytes[i] : 0;
    shuffle.from = from;
    ul_emulate_meet(mask, &shuffle, combine_shuffle, false, "a shuffle", line);
    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = shuffle.value[i];
}

unsigned ul_emulate_vote(unsigned mask, int predicate, int line)
{
    struct vote vote = {predicate != 0, '?'};
    ul_emulate_meet(mask, &vote, combine_vote, false, "a vote", line);
    return vote.value;
}

unsigned ul_emulate_reduce(unsigned mask, unsigned value, int how, int line)
{
    struct vote vote = {value, how};
    ul_emulate_meet(mask, &vote, combine_vote, false, "a reduction", line);
    return vote.value;
}

void __trap(void)
{
    fail_block("__trap()");
    abort();
}

/* ---- failures ---- */

void ul_emulate_fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "cuda_emulation: %s\n", text);
    fflush(stderr);
    _exit(70);
}
