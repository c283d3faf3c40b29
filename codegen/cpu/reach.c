/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the pages of oneDNN's code that calls run through.
 *
 * Problem: a program has only those of the library's 40 MiB resident that its calls run through.
 * They differ by processor, kind of call and implementation, and the library does not say which
 * they are. Method: a child process makes a call's primitives, protects the library's code, and
 * runs them. A fault opens one page and notes it. The pages are the same in every run, wherever the
 * library is loaded and whatever part of its file is in memory.
 *
 *      operands                      a little memory, mapped again and again
 *      code generated for the call   becomes returns: nothing is computed, whatever the sizes
 *      first run                     with the code open: the library makes what it makes only once
 *      second run                    notes pages
 *
 * The kernel maps pages around a fault, in windows whose beginnings depend on random addresses: the
 * result is the bytes of the windows in the worst case.
 *
 * Left undone: the code that makes what the library makes only once, for which a profile has bytes.
 * Nothing is counted where the processor is not x86-64, or the library is linked into the compiler
 * itself. */
#define _GNU_SOURCE
#include "codegen/cpu/dnnl_internal.h"
#include "codegen/cpu/windows.h"

#include "runtime/lib/ul_nbits.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#define KNOWS_RETURN 1
#else
#define KNOWS_RETURN 0
#endif

enum {
    PAGE_BYTES = UL_WINDOWS_PAGE_BYTES,
    MAX_WORDS = 1 << 8,      /* bits for pages: a library of 64 MiB */
    BACK_BYTES = 16 << 20,   /* memory that stands for operands */
    MAX_SECONDS = 60,        /* for a call, so that a child that would wait for ever ends */
    ARGS = 9 + UL_CALL_POSTS /* arguments of a primitive */
};

/* The pages that one call reaches, in memory that the child shares. */
struct ul_dnnl_reach {
    bool counted;
    uint64_t pages[MAX_WORDS]; /* a bit for each */
};

/* ---- the library in this process ---- */

/* The parts that are never written: code, and constants after it. */
struct image {
    uintptr_t begin, end;
};

static int find_image(struct dl_phdr_info *info, size_t size, void *context)
{
    struct image *image = context;
    uintptr_t theirs = (uintptr_t)dnnl_primitive_execute, ours = (uintptr_t)find_image;
    bool is_theirs = false, is_ours = false;
    (void)size;
    *image = (struct image){UINTPTR_MAX, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type != PT_LOAD)
            continue;
        is_theirs = is_theirs || (begin <= theirs && theirs < end);
        is_ours = is_ours || (begin <= ours && ours < end);
        /* The loader looks up names in the first part. */
        if ((part->p_flags & PF_W) != 0 || part->p_offset == 0)
            continue;
        image->begin = begin < image->begin ? begin : image->begin;
        image->end = end > image->end ? end : image->end;
    }
    image->begin = image->begin / PAGE_BYTES * PAGE_BYTES;
    return is_theirs && !is_ours && image->begin < image->end;
}

/* ---- in the child ---- */

/* State of the handler of faults. It is set in a child process, never in the compiler's. */
static struct {
    struct image image;
    struct ul_dnnl_reach *reach;
} forbidden;

static void on_fault(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    if (at < forbidden.image.begin || at >= forbidden.image.end) {
        (void)signal(number, SIG_DFL);
        return;
    }
    uintptr_t page = (at - forbidden.image.begin) / PAGE_BYTES;
    (void)__atomic_fetch_or(&forbidden.reach->pages[page / 64], (uint64_t)1 << page % 64,
                            __ATOMIC_RELAXED); /* several threads may set it */
    if (mprotect((void *)(forbidden.image.begin + page * PAGE_BYTES), PAGE_BYTES,
                 PROT_READ | PROT_EXEC) != 0)
        _exit(1);
}

static bool set_rights(int rights)
{
    return mprotect((void *)forbidden.image.begin, forbidden.image.end - forbidden.image.begin,
                    rights) == 0;
}

/* Does so in all executable memory without a file. */
static bool make_returns(void)
{
    enum { RETURN = 0xc3 };
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    bool good = maps != NULL;
    while (good && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin, end, inode;
        char rights[5];
        if (sscanf(line, "%llx-%llx %4s %*x %*s %llu", &begin, &end, rights, &inode) != 4 ||
            inode != 0 || rights[2] != 'x' || strchr(line, '[') != NULL)
            continue;
        void *code = (void *)(uintptr_t)begin;
        good = mprotect(code, (size_t)(end - begin), PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
        if (good)
            memset(code, RETURN, (size_t)(end - begin));
    }
    if (maps != NULL)
        (void)fclose(maps);
    return good;
}

/* That many bytes of address space, of which BACK_BYTES are memory. */
struct operands {
    unsigned char *bytes;
    size_t size_bytes;
};

static bool map_operands(struct operands *operands, uint64_t size_bytes)
{
    int file = memfd_create("operands", 0);
    bool good = file >= 0 && ftruncate(file, BACK_BYTES) == 0 && size_bytes < SIZE_MAX / 2;
    operands->size_bytes = good ? (size_t)(size_bytes / BACK_BYTES + 1) * BACK_BYTES : 0;
    void *all = good ? mmap(NULL, operands->size_bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                     : MAP_FAILED;
    operands->bytes = all != MAP_FAILED ? all : NULL;
    good = operands->bytes != NULL;
    for (size_t at = 0; good && at < operands->size_bytes; at += BACK_BYTES)
        good = mmap(operands->bytes + at, BACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    if (file >= 0)
        (void)close(file);
    return good;
}

struct bound {
    int arg_count;
    dnnl_exec_arg_t args[ARGS];
};

struct run {
    struct ul_dnnl_made made;
    struct bound bound[UL_DNNL_PRIMITIVES];
    dnnl_stream_t stream;
    struct operands operands; /* the same for all: nothing is computed */
    uint64_t most_bytes;      /* of an argument */
    bool good;
};

static void bind(struct run *run, struct bound *bound, int arg, dnnl_data_type_t type,
                 uint64_t count)
{
    dnnl_memory_desc_t row;
    dnnl_dims_t dims = {(dnnl_dim_t)count};
    UL_ASSERT(bound->arg_count < ARGS);
    bound->args[bound->arg_count].arg = arg;
    run->good = run->good &&
                dnnl_memory_desc_init_by_tag(&row, 1, dims, type, dnnl_a) == dnnl_success &&
                dnnl_memory_create(&bound->args[bound->arg_count].memory, &row,
                                   run->made.dnnl->engine, DNNL_MEMORY_NONE) == dnnl_success;
    bound->arg_count += run->good;
}

/* Binds an argument as a plain row of floats, as programs do, if the primitive has it. */
static void bind_queried(struct run *run, struct bound *bound, const_dnnl_primitive_desc_t desc,
                         int arg)
{
    const dnnl_memory_desc_t *md =
        arg == DNNL_ARG_SCRATCHPAD
            ? dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)
            : dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, arg);
    uint64_t bytes = md != NULL ? dnnl_memory_desc_get_size(md) : 0;
    run->most_bytes = bytes > run->most_bytes ? bytes : run->most_bytes;
    if (bytes > 0)
        bind(run, bound, arg, dnnl_f32, (bytes + 3) / 4);
}

static void bind_all(struct run *run, uint32_t index)
{
    static const int args[] = {DNNL_ARG_SRC,      DNNL_ARG_WEIGHTS,   DNNL_ARG_BIAS,
                               DNNL_ARG_DST,      DNNL_ARG_DIFF_SRC,  DNNL_ARG_DIFF_WEIGHTS,
                               DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD};
    const struct ul_call *call = run->made.call;
    struct bound *bound = &run->bound[index];
    const_dnnl_primitive_desc_t desc;
    run->good = run->good && dnnl_primitive_get_primitive_desc(run->made.primitives[index],
                                                               &desc) == dnnl_success;
    for (size_t i = 0; run->good && i < sizeof args / sizeof *args; i++)
        bind_queried(run, bound, desc, args[i]);
    for (uint32_t i = 0; run->good && index == 0 && i < call->post_count; i++) {
        if (call->posts[i].kind >= UL_POST_ADD)
            bind_queried(run, bound, desc, DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)i) | DNNL_ARG_SRC_1);
    }
    if (run->good && index == 0 && call->src_zero_kind == UL_ZERO_ARG)
        bind(run, bound, DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, dnnl_s32, 1);
}

static void prepare(struct run *run)
{
    ul_dnnl_make(&run->made);
    run->good = run->made.good && dnnl_stream_create(&run->stream, run->made.dnnl->engine,
                                                     dnnl_stream_default_flags) == dnnl_success;
    for (uint32_t i = 0; run->good && i < run->made.count; i++)
        bind_all(run, i);
    run->good = run->good && map_operands(&run->operands, run->most_bytes) && make_returns();
}

static void execute(struct run *run)
{
    for (uint32_t i = 0; run->good && i < run->made.count; i++) {
        struct bound *bound = &run->bound[i];
        for (int a = 0; run->good && a < bound->arg_count; a++)
            run->good = dnnl_memory_set_data_handle(bound->args[a].memory, run->operands.bytes) ==
                        dnnl_success;
        run->good =
            run->good && dnnl_primitive_execute(run->made.primitives[i], run->stream,
                                                bound->arg_count, bound->args) == dnnl_success;
    }
}

static void clean(struct run *run)
{
    for (uint32_t i = 0; i < UL_DNNL_PRIMITIVES; i++) {
        for (int a = 0; a < run->bound[i].arg_count; a++)
            (void)dnnl_memory_destroy(run->bound[i].args[a].memory);
    }
    ul_dnnl_unmake(&run->made);
    if (run->stream != NULL)
        (void)dnnl_stream_destroy(run->stream);
    if (run->operands.bytes != NULL)
        (void)munmap(run->operands.bytes, run->operands.size_bytes);
}

/* What the first run makes only once is generated code too. */
static void count_call(struct ul_dnnl *dnnl, const struct ul_call *call,
                       struct ul_dnnl_reach *reach)
{
    struct run run = {.made = {.dnnl = dnnl, .call = call}};
    (void)alarm(MAX_SECONDS);
    forbidden.reach = reach;
    prepare(&run);
    execute(&run);
    run.good = run.good && make_returns() && set_rights(PROT_NONE);
    execute(&run);
    reach->counted = set_rights(PROT_READ | PROT_EXEC) && run.good;
    clean(&run);
}

/* ---- the child ---- */

struct counting {
    struct ul_dnnl *dnnl;
    const struct ul_call **calls;
    uint32_t count;
    struct ul_dnnl_reach *reaches;
};

/* OpenMP's library has this function, and compilers call it. */
void GOMP_parallel(void (*body)(void *), void *data, unsigned thread_count, unsigned flags);

static void do_nothing(void *data)
{
    (void)data;
}

/* With more threads than processors, threads that wait for others do not spin. */
static void *crowd(void *ready)
{
    GOMP_parallel(do_nothing, NULL, (unsigned)sysconf(_SC_NPROCESSORS_ONLN) + 2, 0);
    (void)pthread_barrier_wait(ready);
    (void)pause();
    return NULL;
}

static void *count_all(void *context)
{
    struct counting *counting = context;
    omp_set_num_threads((int)counting->dnnl->thread_count);
    (void)dnnl_set_primitive_cache_capacity(0);
    for (uint32_t i = 0; i < counting->count; i++)
        count_call(counting->dnnl, counting->calls[i], &counting->reaches[i]);
    return NULL;
}

/* Runs in a thread without a team: the parent's thread may have one, whose threads do not exist
 * here. */
static void be_child(struct counting *counting, const struct image *image)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    pthread_t thread, other;
    pthread_barrier_t ready;
    forbidden.image = *image;
    (void)pthread_barrier_init(&ready, NULL, 2);
    (void)pthread_create(&other, NULL, crowd, &ready);
    (void)pthread_barrier_wait(&ready);
    bool good = sigaction(SIGSEGV, &action, NULL) == 0 &&
                pthread_create(&thread, NULL, count_all, counting) == 0 &&
                pthread_join(thread, NULL) == 0;
    _exit(good ? 0 : 1);
}

/* The reaches stay uncounted where no child counts. */
static void count_in_child(struct counting *counting)
{
    struct image image;
    int status;
    if (!KNOWS_RETURN || sysconf(_SC_PAGESIZE) != PAGE_BYTES ||
        dl_iterate_phdr(find_image, &image) == 0 ||
        (image.end - image.begin) / PAGE_BYTES >= (uintptr_t)MAX_WORDS * 64)
        return;
    pid_t child = fork();
    if (child == 0)
        be_child(counting, &image);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
}

/* Lists calls that are not counted yet, each once. */
static void find_new(struct counting *counting, const struct ul_call *const *calls, uint32_t count)
{
    struct ul_dnnl *dnnl = counting->dnnl;
    counting->calls = UL_NEW_ARRAY(dnnl->arena, const struct ul_call *, count);
    for (uint32_t i = 0; i < count; i++) {
        struct ul_dnnl_known *known = ul_dnnl_know(dnnl, calls[i]);
        if (known->reach != NULL)
            continue;
        known->reach = UL_NEW(dnnl->arena, struct ul_dnnl_reach);
        counting->calls[counting->count++] = calls[i];
    }
}

/* Counts all at once: a child has to start a team of threads. */
static bool count_new(struct ul_dnnl *dnnl, const struct ul_call *const *calls, uint32_t count)
{
    struct counting counting = {.dnnl = dnnl};
    find_new(&counting, calls, count);
    size_t bytes = counting.count * sizeof *counting.reaches;
    if (counting.count == 0)
        return true;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    counting.reaches = shared;
    count_in_child(&counting);
    for (uint32_t i = 0; i < counting.count; i++)
        *ul_dnnl_know(dnnl, counting.calls[i])->reach = counting.reaches[i];
    return munmap(shared, bytes) == 0;
}

uint64_t ul_dnnl_reached_bytes(struct ul_dnnl *dnnl, const struct ul_call *const *calls,
                               uint32_t count)
{
    uint64_t pages[MAX_WORDS] = {0};
    bool good = count_new(dnnl, calls, count);
    for (uint32_t i = 0; good && i < count; i++) {
        const struct ul_dnnl_reach *reach = ul_dnnl_know(dnnl, calls[i])->reach;
        good = reach->counted;
        for (uint32_t w = 0; w < MAX_WORDS; w++)
            pages[w] |= reach->pages[w];
    }
    return good ? ul_windows_bytes(pages, MAX_WORDS) : 0;
}
