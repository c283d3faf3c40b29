/* SPDX-License-Identifier: 0BSD */
/*
 * The library calls of target cpu by oneDNN 2.x: one primitive for each call of the table, made at
 * set-up with exactly the planned layouts, and run on the places that the plan names.
 *
 *      descriptor      the call in the library's words: kind, layouts, post-operations
 *      choice          the planned implementation, else another one within the planned bytes
 *      binding         memory objects and argument lists, made once; a run only sets addresses
 *      run             [copies in] primitive [copy out]
 *
 * Invariants: scratch is the caller's (scratchpad mode "user"), so that a run allocates nothing but
 * the library's own bookkeeping of arguments. A call reads and writes what its arguments and its
 * scratch say, nothing else. An arena has one state, at most one thread at a time runs on it; there
 * is nothing global here, and the library's own global state (its cache of primitives) is
 * thread-safe.
 * Ownership: the state of an arena is one block of the heap and the objects of the library that it
 * names; ul_library_done gives them back.
 * Units: dims and strides in elements, sizes in bytes. Failures: see ul_library.h.
 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "ul_dnnl_desc.h"
#include "ul_library.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#if DNNL_VERSION_MAJOR != 2
#error "this program is made for oneDNN 2 (Debian: libdnnl-dev)"
#endif

enum { SRC, WEIGHTS, BIAS, DST, FIRST_POST };

#define ARGS_LIMIT (UL_CALL_ARGS + 2) /* and the scratchpad, and a zero point */

/* A primitive and what it runs on. source[i] says which argument of the call goes into args[i]. */
struct bound {
    dnnl_primitive_t primitive;
    int arg_count;
    dnnl_exec_arg_t args[ARGS_LIMIT];
    uint32_t source[ARGS_LIMIT];
};

/* Places that are not arguments of the call. */
enum { FROM_SCRATCH = UL_CALL_ARGS, FROM_ZERO, FROM_SRC_COPY, FROM_WEIGHTS_COPY, FROM_DST_COPY };

struct call_state {
    int32_t zero; /* the source's zero point, for UL_ZERO_ARG, as the library reads it */
    struct bound main;
    struct bound src_in;     /* source to its dense copy; no primitive: not needed */
    struct bound weights_in; /* weights to the library's layout, or to a dense copy */
    struct bound dst_in;     /* what the sum is added to, into the dense copy of the result */
    struct bound dst_out;    /* the copy of the result to its place */
};

struct ul_library_state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
    uint64_t heap_bytes;
    const struct ul_library *library; /* the library of the set-up that is under way */
    struct ul_dnnl_desc desc;         /* the descriptor of the call that is being made: it is
                                         large for a stack */
    uint32_t call_count;
    struct call_state calls[];
};

/* ---- threads ---- */

/* The most threads that a region gets now. The number must be right: the library's matrix products
 * are made for their number of threads, and leave out what a missing one would have done. */
static int thread_supply(void)
{
    int limit = omp_get_thread_limit();
    return omp_in_parallel() || omp_get_max_active_levels() < 1 || limit < 1 ? 1 : limit;
}

/* What the calling thread has set for OpenMP, which is changed for the library for a while. */
struct lent {
    int threads;
    int dynamic; /* smaller teams on a busy machine */
};

static struct lent lend_threads(int threads)
{
    struct lent before = {omp_get_max_threads(), omp_get_dynamic()};
    if (before.threads != threads)
        omp_set_num_threads(threads);
    if (before.dynamic)
        omp_set_dynamic(0);
    return before;
}

static void return_threads(struct lent before, int threads)
{
    if (before.threads != threads)
        omp_set_num_threads(before.threads);
    if (before.dynamic)
        omp_set_dynamic(1);
}

/* ---- the choice of an implementation ---- */

/* Gives back pages: each implementation that is asked for, and each that is made, runs through
 * different code. */
static void rest(const struct ul_library_state *state)
{
    if (state->library->made != NULL)
        state->library->made(state->library);
}

static uint64_t scratch_needed(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return scratch != NULL ? dnnl_memory_desc_get_size(scratch) : 0;
}

/* The planned implementation where the library still has it and it fits, else the first one that
 * fits. NULL: none; the failure says whether for lack of scratch. */
static dnnl_primitive_desc_t choose(const struct ul_library_state *state,
                                    const struct ul_call *call, struct ul_failure *failure)
{
    const struct ul_dnnl_desc *desc = &state->desc;
    uint64_t own_bytes = ul_call_scratch_own(call);
    uint64_t min = UINT64_MAX;
    dnnl_primitive_desc_t best = NULL;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    bool exact = false;
    bool more = dnnl_primitive_desc_iterator_create(&iterator, &desc->op, desc->attr, state->engine,
                                                    NULL) == dnnl_success;
    while (more && !exact) {
        const char *name = "ref";
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(iterator);
        if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) !=
            dnnl_success)
            name = "ref";
        uint64_t needed = own_bytes + scratch_needed(pd);
        bool allowed = !ul_call_refuses(call, name);
        if (allowed && needed < min)
            min = needed;
        exact = allowed && needed <= call->scratch_bytes && call->implementation != NULL &&
                strcmp(name, call->implementation) == 0;
        if (exact || (allowed && needed <= call->scratch_bytes && best == NULL)) {
            if (best != NULL)
                dnnl_primitive_desc_destroy(best);
            best = pd;
        } else {
            dnnl_primitive_desc_destroy(pd);
        }
        rest(state);
        more = !exact && dnnl_primitive_desc_iterator_next(iterator) == dnnl_success;
    }
    if (iterator != NULL)
        dnnl_primitive_desc_iterator_destroy(iterator);
    if (best == NULL) {
        bool scratch = min != UINT64_MAX;
        failure->result = scratch ? UL_LIBRARY_NEEDS_MORE : UL_LIBRARY_UNSUPPORTED;
        failure->needed_bytes = scratch ? min : 0;
        failure->available_bytes = call->scratch_bytes;
    }
    return best;
}

/* ---- binding ---- */

/* Makes a memory object of a layout, without an address. */
static bool bind_layout(struct ul_library_state *state, struct bound *bound, int arg,
                        const dnnl_memory_desc_t *layout, uint32_t source)
{
    int at = bound->arg_count;
    bound->args[at].arg = arg;
    bound->source[at] = source;
    if (dnnl_memory_create(&bound->args[at].memory, layout, state->engine, DNNL_MEMORY_NONE) !=
        dnnl_success)
        return false;
    bound->arg_count++;
    return true;
}

/* Binds it as a plain row of floats: the library takes the layout from its primitive, and at every
 * new address would write zeros to the padding of a blocked one. */
static bool bind(struct ul_library_state *state, struct bound *bound, int arg, uint64_t size_bytes,
                 uint32_t source)
{
    dnnl_memory_desc_t row;
    dnnl_dims_t dims = {(dnnl_dim_t)((size_bytes + 3) / 4)};
    return dnnl_memory_desc_init_by_tag(&row, 1, dims, dnnl_f32, dnnl_a) == dnnl_success &&
           bind_layout(state, bound, arg, &row, source);
}

static bool bind_zero(struct ul_library_state *state, struct bound *bound)
{
    dnnl_memory_desc_t one;
    dnnl_dims_t dims = {1};
    return dnnl_memory_desc_init_by_tag(&one, 1, dims, dnnl_s32, dnnl_a) == dnnl_success &&
           bind_layout(state, bound, DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, &one, FROM_ZERO);
}

static bool bind_main(struct ul_library_state *state, struct bound *bound,
                      const struct ul_dnnl_desc *desc, const struct ul_call *call,
                      uint64_t scratch_bytes)
{
    bool back = call->kind == UL_CALL_WEIGHT_GRADIENT;
    bool good = bind(state, bound, DNNL_ARG_SRC, dnnl_memory_desc_get_size(&desc->src),
                     call->src_copy_bytes != 0 ? FROM_SRC_COPY : SRC) &&
                bind(state, bound, back ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DST,
                     dnnl_memory_desc_get_size(&desc->dst),
                     call->dst_copy_bytes != 0 ? FROM_DST_COPY : DST);
    if (call->weights.rank != 0)
        good = good && bind(state, bound, back ? DNNL_ARG_DIFF_DST : DNNL_ARG_WEIGHTS,
                            dnnl_memory_desc_get_size(&desc->weights),
                            call->weights_copy_bytes != 0 ? FROM_WEIGHTS_COPY : WEIGHTS);
    if (call->bias.rank != 0)
        good =
            good && bind(state, bound, DNNL_ARG_BIAS, dnnl_memory_desc_get_size(&desc->bias), BIAS);
    uint32_t next = FIRST_POST;
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].kind >= UL_POST_ADD)
            good = good && next < UL_CALL_ARGS &&
                   bind(state, bound, DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)i) | DNNL_ARG_SRC_1,
                        dnnl_memory_desc_get_size(&desc->posts[i]), next++);
    if (call->src_zero_kind == UL_ZERO_ARG)
        good = good && bind_zero(state, bound);
    if (scratch_bytes != 0)
        good = good && bind(state, bound, DNNL_ARG_SCRATCHPAD, scratch_bytes, FROM_SCRATCH);
    return good;
}

/* A copy from one layout to another, whose padding becomes 0. */
static bool bind_copy(struct ul_library_state *state, struct bound *bound,
                      const dnnl_memory_desc_t *from, uint32_t from_source,
                      const dnnl_memory_desc_t *to, uint32_t to_source)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool good =
        dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnnl_reorder_primitive_desc_create(&pd, from, state->engine, to, state->engine, attr) ==
            dnnl_success &&
        scratch_needed(pd) == 0 && dnnl_primitive_create(&bound->primitive, pd) == dnnl_success &&
        bind(state, bound, DNNL_ARG_FROM, dnnl_memory_desc_get_size(from), from_source) &&
        bind_layout(state, bound, DNNL_ARG_TO, to, to_source);
    if (pd != NULL)
        dnnl_primitive_desc_destroy(pd);
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    return good;
}

static bool bind_copies(struct ul_library_state *state, struct call_state *call_state,
                        const struct ul_dnnl_desc *desc, const struct ul_call *call)
{
    dnnl_memory_desc_t place;
    bool good = true, sum = false;
    for (uint32_t i = 0; i < call->post_count; i++)
        sum = sum || call->posts[i].kind == UL_POST_SUM;
    if (call->src_copy_bytes != 0)
        good = ul_dnnl_plain(&place, &call->src) &&
               bind_copy(state, &call_state->src_in, &place, SRC, &desc->src, FROM_SRC_COPY);
    if (good && call->weights_copy_bytes != 0)
        good = ul_dnnl_plain(&place, &call->weights) &&
               bind_copy(state, &call_state->weights_in, &place, WEIGHTS, &desc->weights,
                         FROM_WEIGHTS_COPY);
    if (good && call->dst_copy_bytes != 0)
        good =
            ul_dnnl_plain(&place, &call->dst) &&
            bind_copy(state, &call_state->dst_out, &desc->dst, FROM_DST_COPY, &place, DST) &&
            (!sum || bind_copy(state, &call_state->dst_in, &place, DST, &desc->dst, FROM_DST_COPY));
    return good;
}

/* Makes everything for one call. */
static enum ul_result make_call(struct ul_library_state *state, struct call_state *call_state,
                                const struct ul_call *call, const float *scales,
                                struct ul_failure *failure)
{
    struct ul_dnnl_desc *desc = &state->desc;
    dnnl_primitive_desc_t pd = NULL;
    failure->result = UL_LIBRARY_UNSUPPORTED;
    if (ul_dnnl_describe(desc, call, false, scales))
        pd = choose(state, call, failure);
    if (pd != NULL) {
        failure->result = UL_LIBRARY_FAILED;
        bool good = dnnl_primitive_create(&call_state->main.primitive, pd) == dnnl_success;
        rest(state);
        if (good && bind_main(state, &call_state->main, desc, call, scratch_needed(pd)) &&
            bind_copies(state, call_state, desc, call))
            failure->result = UL_OK;
        dnnl_primitive_desc_destroy(pd);
    }
    if (desc->attr != NULL)
        dnnl_primitive_attr_destroy(desc->attr);
    rest(state);
    return failure->result;
}

/* ---- the state of an arena ---- */

static void set_state(const struct ul_library *library, void *arena, struct ul_library_state *state)
{
    memcpy((unsigned char *)arena + library->state_offset_bytes, &state, sizeof state);
}

static struct ul_library_state *get_state(const struct ul_library *library, const void *arena)
{
    struct ul_library_state *state;
    memcpy(&state, (const unsigned char *)arena + library->state_offset_bytes, sizeof state);
    return state;
}

static void bound_done(struct bound *bound)
{
    for (int i = 0; i < bound->arg_count; i++)
        dnnl_memory_destroy(bound->args[i].memory);
    if (bound->primitive != NULL)
        dnnl_primitive_destroy(bound->primitive);
}

static void state_done(struct ul_library_state *state)
{
    for (uint32_t i = 0; i < state->call_count; i++) {
        bound_done(&state->calls[i].main);
        bound_done(&state->calls[i].src_in);
        bound_done(&state->calls[i].weights_in);
        bound_done(&state->calls[i].dst_in);
        bound_done(&state->calls[i].dst_out);
    }
    if (state->stream != NULL)
        dnnl_stream_destroy(state->stream);
    if (state->engine != NULL)
        dnnl_engine_destroy(state->engine);
    free(state);
}

/* Memory of this process that no file backs, as the kernel counts it; 0 where it does not say. */
static uint64_t anonymous_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

static enum ul_result make_engine(struct ul_library_state *state, struct ul_failure *failure)
{
    if (dnnl_engine_create(&state->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags) ==
            dnnl_success)
        return UL_OK;
    return failure->result = UL_LIBRARY_FAILED;
}

/* The scales of a call, among the weights; NULL: it has none per channel. */
static const float *find_scales(const struct ul_call *call, const void *arena)
{
    const unsigned char *place = call->scales;
    if (call->scale_count == 0)
        return NULL;
    if (place == NULL)
        place = (const unsigned char *)arena + call->scales_offset_bytes;
    return (const float *)(const void *)place;
}

/* Makes the calls with scales per channel, or those without. */
static enum ul_result make_calls(const struct ul_library *library, const void *arena,
                                 struct ul_library_state *state, bool scaled,
                                 struct ul_failure *failure)
{
    for (uint32_t i = 0; i < library->call_count; i++) {
        const struct ul_call *call = &library->calls[library->first_call + i];
        if ((call->scale_count > 0) != scaled)
            continue;
        failure->tensor = library->first_call + i;
        if (make_call(state, &state->calls[i], call, find_scales(call, arena), failure) != UL_OK)
            return failure->result;
    }
    failure->tensor = 0;
    return UL_OK;
}

static void count_heap(struct ul_library_state *state, uint64_t before_bytes)
{
    uint64_t after_bytes = anonymous_bytes();
    state->heap_bytes += after_bytes > before_bytes ? after_bytes - before_bytes : 0;
}

static bool uses_tiles(const struct ul_library *library)
{
    bool uses = false;
    for (uint32_t i = 0; i < library->call_count; i++) {
        const char *name = library->calls[library->first_call + i].implementation;
        uses = uses || (name != NULL && strstr(name, "amx") != NULL);
    }
    return uses;
}

/* Runs a product of bytes that is large enough for tile registers, of numbers that nobody reads:
 * oneDNN makes the code that sets these registers up when it first needs it, which is to be now and
 * not in a run. */
static void touch_tiles(const struct ul_library_state *state)
{
    enum { ROWS = 32, DEPTH = 64, COLS = 16, COUNT = 3 };
    static const struct {
        dnnl_dims_t dims;
        dnnl_data_type_t type;
        int argument;
    } rows[COUNT] = {{{ROWS, DEPTH}, dnnl_s8, DNNL_ARG_SRC},
                     {{DEPTH, COLS}, dnnl_s8, DNNL_ARG_WEIGHTS},
                     {{ROWS, COLS}, dnnl_s32, DNNL_ARG_DST}};
    dnnl_memory_desc_t descs[COUNT];
    dnnl_matmul_desc_t product;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t args[COUNT] = {{0, NULL}};
    bool good = true;
    for (int i = 0; i < COUNT; i++) {
        good = good && dnnl_memory_desc_init_by_tag(&descs[i], 2, rows[i].dims, rows[i].type,
                                                    dnnl_ab) == dnnl_success;
        args[i].arg = rows[i].argument;
        good = good && dnnl_memory_create(&args[i].memory, &descs[i], state->engine,
                                          DNNL_MEMORY_ALLOCATE) == dnnl_success;
    }
    good = good &&
           dnnl_matmul_desc_init(&product, &descs[0], &descs[1], NULL, &descs[2]) == dnnl_success &&
           dnnl_primitive_desc_create(&pd, &product, NULL, state->engine, NULL) == dnnl_success &&
           dnnl_primitive_create(&primitive, pd) == dnnl_success;
    if (good)
        (void)dnnl_primitive_execute(primitive, state->stream, COUNT, args);
    if (primitive != NULL)
        (void)dnnl_primitive_destroy(primitive);
    if (pd != NULL)
        (void)dnnl_primitive_desc_destroy(pd);
    for (int i = 0; i < COUNT; i++)
        if (args[i].memory != NULL)
            (void)dnnl_memory_destroy(args[i].memory);
}

enum ul_result ul_library_init(const struct ul_library *library, void *arena, uint32_t threads,
                               struct ul_failure *failure)
{
    size_t state_bytes =
        sizeof(struct ul_library_state) + (size_t)library->call_count * sizeof(struct call_state);
    uint64_t before_bytes = anonymous_bytes();
    struct ul_library_state *state = calloc(1, state_bytes);
    set_state(library, arena, NULL);
    failure->tensor = library->first_call;
    if (state == NULL) {
        failure->needed_bytes = state_bytes;
        return failure->result = UL_LIBRARY_FAILED;
    }
    state->call_count = library->call_count;
    state->library = library;
    state->threads = threads == 0 ? 1 : (int)threads;
    if (state->threads > thread_supply())
        state->threads = thread_supply();
    struct lent lent = lend_threads(state->threads);
    enum ul_result result = make_engine(state, failure);
    rest(state);
    if (result == UL_OK && uses_tiles(library))
        touch_tiles(state);
    rest(state);
    if (result == UL_OK)
        result = make_calls(library, arena, state, false, failure);
    return_threads(lent, state->threads);
    if (result != UL_OK) {
        state_done(state);
        return result;
    }
    count_heap(state, before_bytes);
    set_state(library, arena, state);
    return UL_OK;
}

enum ul_result ul_library_init_scaled(const struct ul_library *library, void *arena,
                                      struct ul_failure *failure)
{
    struct ul_library_state *state = get_state(library, arena);
    uint64_t before_bytes = anonymous_bytes();
    state->library = library;
    struct lent lent = lend_threads(state->threads);
    enum ul_result result = make_calls(library, arena, state, true, failure);
    return_threads(lent, state->threads);
    count_heap(state, before_bytes);
    return result;
}

void ul_library_done(const struct ul_library *library, void *arena)
{
    struct ul_library_state *state = get_state(library, arena);
    if (state != NULL)
        state_done(state);
    set_state(library, arena, NULL);
}

const char *ul_library_implementation(const struct ul_library *library, const void *arena,
                                      uint32_t index)
{
    const struct ul_library_state *state = get_state(library, arena);
    const uint32_t at = index - library->first_call;
    const_dnnl_primitive_desc_t pd;
    const char *name;
    if (state == NULL || state->calls[at].main.primitive == NULL ||
        dnnl_primitive_get_primitive_desc(state->calls[at].main.primitive, &pd) != dnnl_success ||
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) != dnnl_success)
        return NULL;
    return name;
}

uint64_t ul_library_heap_bytes(const struct ul_library *library, const void *arena)
{
    const struct ul_library_state *state = get_state(library, arena);
    return state != NULL ? state->heap_bytes : 0;
}

/* ---- running ---- */

enum ul_result ul_library_ready(const struct ul_library *library, const void *arena,
                                struct ul_failure *failure)
{
    const struct ul_library_state *state = get_state(library, arena);
    if (state == NULL)
        return failure->result = UL_NOT_READY;
    int needed = state->threads, available = thread_supply();
    if (needed <= available)
        return UL_OK;
    failure->needed_bytes = (uint64_t)needed;
    failure->available_bytes = (uint64_t)available;
    return failure->result = UL_THREADS_MISSING;
}

/* Everything that can fail was made at set-up; what is left is the library's bookkeeping, which
 * fails only where a few hundred bytes cannot be had. */
static void execute(const struct ul_library_state *state, const struct bound *bound,
                    void *const *places)
{
    bool good = true;
    if (bound->primitive == NULL)
        return;
    for (int i = 0; i < bound->arg_count; i++)
        good = dnnl_memory_set_data_handle(bound->args[i].memory, places[bound->source[i]]) ==
                   dnnl_success &&
               good;
    good = good && dnnl_primitive_execute(bound->primitive, state->stream, bound->arg_count,
                                          bound->args) == dnnl_success;
    if (!good) {
        fputs("oneDNN failed while running, out of memory\n", stderr);
        abort();
    }
}

static int32_t read_zero(const struct ul_call *call, const unsigned char *zero)
{
    return call->src.type == UL_CALL_I8 ? (int32_t)*zero - (*zero > INT8_MAX ? 256 : 0)
                                        : (int32_t)*zero;
}

void ul_library_run(const struct ul_library *library, unsigned char *arena, uint32_t index,
                    const void *const *args, unsigned char *scratch)
{
    struct ul_library_state *state = get_state(library, arena);
    const struct ul_call *call = &library->calls[index];
    struct call_state *call_state = &state->calls[index - library->first_call];
    struct lent lent = lend_threads(state->threads);
    void *places[FROM_DST_COPY + 1] = {NULL};
    uint32_t arg_count = FIRST_POST;
    for (uint32_t i = 0; i < call->post_count; i++)
        arg_count += call->posts[i].kind >= UL_POST_ADD;
    memcpy(places, args, arg_count * sizeof *args); /* the library takes sources without const */
    if (call->src_zero_kind == UL_ZERO_ARG) {
        call_state->zero = read_zero(call, args[arg_count]);
        places[FROM_ZERO] = &call_state->zero;
    }
    if (scratch != NULL) {
        places[FROM_SRC_COPY] = scratch;
        places[FROM_DST_COPY] = scratch + ul_call_scratch_dst(call);
        places[FROM_WEIGHTS_COPY] = scratch + ul_call_scratch_weights(call);
        places[FROM_SCRATCH] = scratch + ul_call_scratch_own(call);
    }
    execute(state, &call_state->src_in, places);
    execute(state, &call_state->weights_in, places);
    execute(state, &call_state->dst_in, places);
    execute(state, &call_state->main, places);
    execute(state, &call_state->dst_out, places);
    if (call->tail_count > 0)
        library->posts(call, places[DST], (uint32_t)state->threads);
    return_threads(lent, state->threads);
}
