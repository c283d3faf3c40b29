/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces loops by the attention that they compute, for target cuda.
 *
 * Problem: a few queries of a few heads with many keys (one token after a long text) would be one
 * block for each head. Method: keys are cut; each part is attention of its own whose result is not
 * divided yet, and loops after it add the parts in order:
 *
 *     for heads: attention, epilogue  ->  for heads: for part: attention to its keys:
 *                                             parts[head][query][part] = result, largest, sum
 *                                         for heads, query, element:
 *                                             acc = sum of w(part) result / sum of w(part) sum,
 *                                             epilogue
 *
 * where w(part) corrects for the difference of the part's largest score from the largest of all. */
#include "codegen/cuda/attend_cuda.h"
#include "ir/kernel_build.h"

#include <math.h>
#include <string.h>

enum {
    MAX_LOOPS = 8,
    BLOCK_QUERIES = 16, /* at least, in a block of threads */
    UNIT_KEYS = 128,    /* a multiple of what blocks take at a time */
    MIN_KEYS = 1024,    /* fewer are not worth a launch */
    MIN_PARTIAL = 256,  /* of keys */
    MAX_PARTIALS = 32,
    MAX_BYTES = 1 << 20 /* of parts */
};

/* A nest that ends with attention. */
struct rewrite {
    struct ul_kernel *kernel;
    uint32_t count;
    ul_ks loops[MAX_LOOPS]; /* outermost first */
    int64_t rounds[MAX_LOOPS], heads;
    int64_t processors; /* of the device, as attention counts them */
    int64_t partials;
    const struct ul_attend *attend;
    uint32_t buffer; /* for parts */
    int64_t pitch;   /* for a part of a query */
};

/* for var < count: body; returns the loop. */
static ul_ks loop_of(struct ul_kernel *kernel, uint32_t var, int64_t count, uint32_t flags,
                     ul_ks body)
{
    ul_ks link = UL_NONE;
    ul_ks id = ul_ks_link(kernel, &link, UL_KS_FOR, var, ul_kx_index_const(kernel, count));
    kernel->stmts[id].flags = flags;
    kernel->stmts[id].body = body;
    return id;
}

/* The place of `element` of part `part` of a query. */
static ul_kx place_of(const struct rewrite *t, ul_kx partial, ul_kx element)
{
    struct ul_kernel *kernel = t->kernel;
    ul_kx at = ul_kx_index_const(kernel, 0);
    for (uint32_t i = 0; i < t->count; i++)
        at = ul_kx_add(kernel, ul_kx_muli(kernel, at, t->rounds[i]),
                       ul_kx_var(kernel, kernel->stmts[t->loops[i]].var));
    at = ul_kx_add(kernel, ul_kx_muli(kernel, at, t->attend->queries),
                   ul_kx_var(kernel, t->attend->values[0].vars[0]));
    at = ul_kx_add(kernel, ul_kx_muli(kernel, at, t->partials), partial);
    return ul_kx_add(kernel, ul_kx_muli(kernel, at, t->pitch), element);
}

static ul_kx load_partial(const struct rewrite *t, uint32_t partial, ul_kx element)
{
    ul_kx at = place_of(t, ul_kx_var(t->kernel, partial), element);
    return ul_kx_load(t->kernel, t->buffer, at);
}

static ul_kx number(const struct rewrite *t, double value)
{
    return ul_kx_number(t->kernel, UL_F32, value);
}

/* Makes the loop that finds the largest score of all parts, after the statement `link`. */
static ul_kx put_largest(const struct rewrite *t, ul_ks *link)
{
    struct ul_kernel *kernel = t->kernel;
    uint32_t partial = ul_kernel_add_index(kernel, t->partials),
             max = ul_kernel_add_var(kernel, UL_F32);
    uint32_t next = ul_kernel_add_var(kernel, UL_F32);
    ul_kx old = ul_kx_var(kernel, max), x = ul_kx_var(kernel, next);
    ul_kx at = ul_kx_index_const(kernel, t->attend->value_size);
    ul_ks inner = UL_NONE;
    ul_ks_link(kernel, link, UL_KS_VAR, max, number(t, -INFINITY));
    ul_ks body = ul_ks_link(kernel, &inner, UL_KS_LET, next, load_partial(t, partial, at));
    ul_ks_link(kernel, &inner, UL_KS_SET, max,
               ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, old, x), x, old));
    ul_ks loop = loop_of(kernel, partial, t->partials, 0, body);
    kernel->stmts[*link].next = loop;
    *link = loop;
    uint32_t shift = ul_kernel_add_var(kernel, UL_F32);
    ul_kx is_none = ul_kx_binary(kernel, UL_KX_EQ, old, number(t, -INFINITY));
    ul_ks_link(kernel, link, UL_KS_LET, shift, ul_kx_select(kernel, is_none, number(t, 0), old));
    return ul_kx_var(kernel, shift);
}

/* Appends *sum = *sum + x to the list that ends with `link`. */
static void put_sum(const struct rewrite *t, ul_ks *link, uint32_t sum, ul_kx x)
{
    ul_kx old = ul_kx_var(t->kernel, sum);
    ul_ks_link(t->kernel, link, UL_KS_SET, sum, ul_kx_binary(t->kernel, UL_KX_ADD, old, x));
}

/* Makes the statements that join the parts of one element. */
static ul_ks put_join(const struct rewrite *t)
{
    struct ul_kernel *kernel = t->kernel;
    const struct ul_contraction *values = &t->attend->values[0];
    uint32_t partial = ul_kernel_add_index(kernel, t->partials),
             weight = ul_kernel_add_var(kernel, UL_F32);
    uint32_t sum = ul_kernel_add_var(kernel, UL_F32), total = ul_kernel_add_var(kernel, UL_F32);
    ul_kx size = ul_kx_index_const(kernel, t->attend->value_size), w = ul_kx_var(kernel, weight);
    ul_ks link = UL_NONE, inner = UL_NONE;
    ul_ks first = ul_ks_link(kernel, &link, UL_KS_VAR, sum, number(t, 0));
    ul_ks_link(kernel, &link, UL_KS_VAR, total, number(t, 0));
    ul_kx below =
        ul_kx_binary(kernel, UL_KX_SUB, load_partial(t, partial, size), put_largest(t, &link));
    ul_ks body =
        ul_ks_link(kernel, &inner, UL_KS_LET, weight, ul_kx_unary(kernel, UL_KX_EXP, below));
    ul_kx x = load_partial(t, partial, ul_kx_var(kernel, values->vars[1]));
    put_sum(t, &inner, sum, ul_kx_binary(kernel, UL_KX_MUL, w, x));
    x = load_partial(t, partial, ul_kx_addi(kernel, size, 1));
    put_sum(t, &inner, total, ul_kx_binary(kernel, UL_KX_MUL, w, x));
    ul_ks loop = loop_of(kernel, partial, t->partials, 0, body);
    kernel->stmts[link].next = loop;
    link = loop;
    ul_kx all = ul_kx_var(kernel, total);
    if (t->attend->empty == UL_EMPTY_IS_ZERO)
        all = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_EQ, all, number(t, 0)), number(t, 1),
                           all);
    x = ul_kx_binary(kernel, UL_KX_DIV, ul_kx_var(kernel, sum), all);
    if (t->attend->empty == UL_NAN_IS_ZERO)
        x = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, number(t, 0), all), x,
                         number(t, 0));
    ul_ks_link(kernel, &link, UL_KS_LET, values->acc, x);
    kernel->stmts[link].next = values->epilogue;
    return first;
}

/* Makes the statements that store the norm of a query, from its parts. */
static ul_ks put_norm(const struct rewrite *t)
{
    struct ul_kernel *kernel = t->kernel;
    const struct ul_attend *attend = t->attend;
    uint32_t partial = ul_kernel_add_index(kernel, t->partials);
    uint32_t weight = ul_kernel_add_var(kernel, UL_F32), total = ul_kernel_add_var(kernel, UL_F32);
    ul_kx size = ul_kx_index_const(kernel, attend->value_size), w = ul_kx_var(kernel, weight);
    ul_kx all = ul_kx_var(kernel, total), zero = number(t, 0);
    ul_ks link = UL_NONE, inner = UL_NONE;
    ul_ks first = ul_ks_link(kernel, &link, UL_KS_VAR, total, zero);
    ul_kx shift = put_largest(t, &link);
    ul_kx below = ul_kx_binary(kernel, UL_KX_SUB, load_partial(t, partial, size), shift);
    ul_ks body =
        ul_ks_link(kernel, &inner, UL_KS_LET, weight, ul_kx_unary(kernel, UL_KX_EXP, below));
    ul_kx sum = load_partial(t, partial, ul_kx_addi(kernel, size, 1));
    put_sum(t, &inner, total, ul_kx_binary(kernel, UL_KX_MUL, w, sum));
    ul_ks loop = loop_of(kernel, partial, t->partials, 0, body);
    kernel->stmts[link].next = loop;
    link = loop;
    ul_kx norm = ul_kx_binary(kernel, UL_KX_ADD, shift, ul_kx_unary(kernel, UL_KX_LOG, all));
    if (attend->empty == UL_EMPTY_IS_ZERO)
        norm = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_EQ, all, zero), zero, norm);
    else if (attend->empty == UL_NAN_IS_ZERO)
        norm = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, zero, all), norm,
                            number(t, INFINITY));
    ul_ks_link(kernel, &link, UL_KS_LET, attend->norm_query,
               ul_kx_var(kernel, attend->values[0].vars[0]));
    ul_ks_link(kernel, &link, UL_KS_LET, attend->norm, norm);
    kernel->stmts[link].next = attend->norms;
    return first;
}

/* Puts a nest over all queries, whose statements are `body`, after the statement `before`. */
static void put_nest(const struct rewrite *t, ul_ks before, ul_ks body)
{
    struct ul_kernel *kernel = t->kernel;
    ul_ks nest =
        loop_of(kernel, t->attend->values[0].vars[0], t->attend->queries, UL_FOR_PARALLEL, body);
    for (uint32_t i = t->count; i-- > 0;)
        nest = loop_of(kernel, kernel->stmts[t->loops[i]].var, t->rounds[i], UL_FOR_PARALLEL, nest);
    kernel->stmts[nest].next = kernel->stmts[before].next;
    kernel->stmts[before].next = nest;
}

/* Turns the nest's attention into attention to the keys of one part, and adds loops that join the
 * parts. */
static void split(struct rewrite *t, struct ul_contraction *c, int64_t keys)
{
    struct ul_kernel *kernel = t->kernel;
    struct ul_attend *own = ul_arena_copy(kernel->arena, t->attend, sizeof *own);
    struct ul_contraction *values = &own->values[0];
    uint32_t partial = ul_kernel_add_index(kernel, t->partials);
    ul_ks innermost = t->loops[t->count - 1], outermost = t->loops[0], link = UL_NONE;
    t->pitch = own->value_size + 2;
    t->buffer = ul_kernel_add_buffer(kernel, UL_BUFFER_SCRATCH, UL_F32,
                                     (uint64_t)(t->heads * own->queries * t->partials * t->pitch));
    if (own->has_norms)
        put_nest(t, outermost, put_norm(t));
    put_nest(t, outermost,
             loop_of(kernel, values->vars[1], own->value_size, UL_FOR_PARALLEL, put_join(t)));
    uint32_t element = ul_kernel_add_index(kernel, t->pitch);
    ul_kx at = place_of(t, ul_kx_var(kernel, partial), ul_kx_var(kernel, element));
    values->vars[1] = element; /* it also counts what comes after the products */
    values->acc = ul_kernel_add_var(kernel, UL_F32);
    ul_ks store = ul_ks_link(kernel, &link, UL_KS_STORE, UL_NONE, ul_kx_var(kernel, values->acc));
    kernel->stmts[store].buffer = t->buffer;
    kernel->stmts[store].index = at;
    values->epilogue = store;
    own->has_norms = false;
    own->split_var = partial;
    own->split_keys = keys;
    c->epilogue = store;
    memcpy(c->extents, values->extents, sizeof c->extents);
    memcpy(c->vars, values->vars, sizeof c->vars);
    c->acc = values->acc;
    c->attend = own;
    ul_ks loop =
        loop_of(kernel, partial, t->partials, UL_FOR_PARALLEL, kernel->stmts[innermost].body);
    kernel->stmts[innermost].body = loop;
}

/* Returns the statement that replaces the body of loop `loop`. */
static struct ul_contraction *take(struct ul_kernel *kernel, ul_ks loop)
{
    const struct ul_attend *attend = &kernel->attends[kernel->stmts[loop].contraction];
    UL_GROW(kernel->arena, kernel->contractions, kernel->contraction_count,
            kernel->contraction_capacity);
    struct ul_contraction *to = &kernel->contractions[kernel->contraction_count];
    *to = attend->values[0];
    to->a = attend->scores[0].a;
    to->attend = attend;
    ul_ks link = UL_NONE, statement = ul_ks_link(kernel, &link, UL_KS_CONTRACT, UL_NONE, UL_NONE);
    kernel->stmts[statement].contraction = kernel->contraction_count++;
    kernel->stmts[loop].body = statement;
    return to;
}

/* Finds the loops from the top statement `id` down to `loop`, if nothing else is between them. */
static bool find_nest(struct rewrite *t, ul_ks id, ul_ks loop)
{
    t->count = 0;
    t->heads = 1;
    for (;;) {
        const struct ul_ks_data *stmt = &t->kernel->stmts[id];
        if (t->count == MAX_LOOPS || stmt->kind != UL_KS_FOR ||
            (stmt->flags & UL_FOR_PARALLEL) == 0 ||
            !ul_kx_is_int(t->kernel, stmt->value, &t->rounds[t->count]))
            return false;
        t->heads *= t->rounds[t->count];
        t->loops[t->count++] = id;
        if (id == loop)
            return true;
        id = stmt->body;
        if (id == UL_NONE || t->kernel->stmts[id].next != UL_NONE)
            return false;
    }
}

/* The number of parts into which cutting the keys pays off, and their length. */
static int64_t partials_of(const struct rewrite *t, int64_t *keys)
{
    const struct ul_attend *attend = t->attend;
    int64_t blocks = t->heads * ((attend->queries + BLOCK_QUERIES - 1) / BLOCK_QUERIES);
    int64_t bytes = t->heads * attend->queries * (attend->value_size + 2) * 4;
    int64_t last = attend->queries + attend->reach; /* that a query sees */
    if (attend->keys < MIN_KEYS || last < MIN_KEYS || 2 * blocks > t->processors || bytes < 1)
        return 1;
    int64_t partials = 2 * t->processors / blocks;
    partials = partials < attend->keys / MIN_PARTIAL ? partials : attend->keys / MIN_PARTIAL;
    partials = partials < MAX_BYTES / bytes ? partials : MAX_BYTES / bytes;
    partials = partials < MAX_PARTIALS ? partials : MAX_PARTIALS;
    if (partials < 2)
        return 1;
    *keys = (attend->keys + partials - 1) / partials;
    *keys = (*keys + UNIT_KEYS - 1) / UNIT_KEYS * UNIT_KEYS;
    return (attend->keys + *keys - 1) / *keys;
}

const struct ul_kernel *ul_attend_cuda_rewrite(const struct ul_kernel *kernel,
                                               const struct ul_profile_device *device,
                                               struct ul_arena *arena)
{
    if (kernel->attend_count == 0)
        return kernel;
    struct rewrite t = {.kernel = ul_kernel_copy(kernel, arena),
                        .processors = ul_attend_cuda_processors(device)};
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind != UL_KS_FOR || (stmt->flags & UL_FOR_ATTEND) == 0 ||
            !ul_attend_cuda_can(kernel, &kernel->attends[stmt->contraction]))
            continue;
        struct ul_contraction *c = take(t.kernel, id);
        t.attend = c->attend;
        for (ul_ks top = kernel->first; top != UL_NONE; top = kernel->stmts[top].next) {
            int64_t keys = 0;
            if (t.attend->kind != UL_ATTEND_RESULT || !find_nest(&t, top, id) ||
                (t.partials = partials_of(&t, &keys)) < 2)
                continue;
            split(&t, c, keys);
        }
    }
    return t.kernel;
}
