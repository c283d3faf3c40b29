/* SPDX-License-Identifier: Apache-2.0 */
/* Long sums in parts; see partials.h. */
#include "ir/ops/partials.h"
#include "ir/kernel_build.h"

enum {
    MIN_IN_TURN = 128,     /* terms of contiguous outputs that are worth it */
    MIN_LONG = 1 << 16,    /* contiguous terms that are worth more than one block */
    EACH_PARTIAL = 4,      /* terms for each partial result, at least */
    FULL_THREADS = 32768,  /* outputs of a thread each that fill a device */
    FULL_TEAMS = 132,      /* those of a block each */
    MIN_TEAM = 64,         /* parts that are worth a team of threads an output */
    MAX_PARTIALS = 1 << 20 /* elements of scratch */
};

static bool has_contiguous_terms(const struct ul_lanes *lanes, uint32_t mask)
{
    for (uint32_t i = lanes->rank; i-- > 0;) {
        uint32_t d = lanes->order[i];
        if (lanes->dims[d] != 1)
            return (mask >> d & 1u) != 0;
    }
    return false;
}

bool ul_partials_apply(const struct ul_lanes *lanes, uint32_t mask)
{
    int64_t terms = ul_lanes_product(lanes->dims, lanes->rank, mask);
    int64_t min = has_contiguous_terms(lanes, mask) ? UL_LANES_MAX : MIN_IN_TURN;
    return lanes->lower->traits->partial_count > 0 && lanes->lane_dim == UL_NONE && terms >= min &&
           ul_lanes_product(lanes->dims, lanes->rank, ~0u) > 0;
}

static int64_t root_of(int64_t n)
{
    int64_t root = 1;
    while (root + 1 <= n / (root + 1))
        root++;
    return root;
}

/* The first number in [min, 2 * min] that divides `n`, otherwise the smallest number that gives as
 * many parts as `min`. */
static int64_t near_divisor(int64_t n, int64_t min)
{
    for (int64_t each = min; each <= 2 * min; each++) {
        if (n % each == 0)
            return each;
    }
    int64_t count = (n + min - 1) / min;
    return (n + count - 1) / count;
}

static void choose_parts(struct ul_partials *p)
{
    if (!has_contiguous_terms(p->lanes, p->mask)) {
        p->each = near_divisor(p->terms, root_of(p->terms));
    } else {
        p->width = UL_LANES_MAX;
        while (2 * p->width <= p->lanes->lower->traits->partial_count &&
               2 * EACH_PARTIAL * p->width <= p->terms)
            p->width *= 2;
        p->each = p->terms;
        if (p->terms >= MIN_LONG) { /* two parts for each round: blocks run side by side */
            int64_t rounds = (p->terms + p->width - 1) / p->width;
            int64_t half = root_of(rounds) / 2;
            p->each = p->width * near_divisor(rounds, half > 0 ? half : 1);
        }
    }
    p->count = (p->terms + p->each - 1) / p->each;
}

void ul_partials_init(struct ul_partials *partials, struct ul_lanes *lanes, uint32_t mask,
                      enum ul_kx_op combine, ul_kx first, ul_lanes_term_fn *term,
                      const void *context)
{
    *partials = (struct ul_partials){.lanes = lanes,
                                     .mask = mask,
                                     .combine = combine,
                                     .first = first,
                                     .term = {term},
                                     .sum_count = 1,
                                     .context = context,
                                     .width = 1,
                                     .sums = {UL_NONE, UL_NONE}};
    partials->terms = ul_lanes_product(lanes->dims, lanes->rank, mask);
    partials->output_count =
        ul_lanes_product(lanes->dims, lanes->rank, ul_lanes_all(lanes->rank) & ~mask);
    choose_parts(partials);
}

void ul_partials_add(struct ul_partials *partials, ul_lanes_term_fn *term)
{
    UL_ASSERT(partials->sum_count < UL_PARTIALS_SUMS);
    partials->term[partials->sum_count++] = term;
}

/* The next dimension in the order that is longer than 1, or UL_NONE. */
static uint32_t next_dim(const struct ul_lanes *lanes, uint32_t place)
{
    for (uint32_t i = place + 1; i < lanes->rank; i++) {
        if (lanes->dims[lanes->order[i]] != 1)
            return lanes->order[i];
    }
    return UL_NONE;
}

/* Sets the coordinates of a term: dimensions that memory runs through as if they were one take one
 * index. */
static void set_term(const struct ul_partials *p, ul_kx term)
{
    struct ul_lanes *lanes = p->lanes;
    struct ul_kernel *k = lanes->lower->kernel;
    int64_t below = p->terms;
    int64_t run = 1;
    for (uint32_t i = 0; i < lanes->rank; i++) {
        uint32_t d = lanes->order[i];
        if ((p->mask >> d & 1u) == 0)
            continue;
        lanes->index[d] = ul_kx_index_const(k, 0);
        if (lanes->dims[d] == 1)
            continue;
        uint32_t next = next_dim(lanes, i);
        run *= lanes->dims[d];
        if (next != UL_NONE && (p->mask & lanes->joined) >> next & 1u)
            continue;
        bool outermost = below == p->terms;
        below /= run;
        ul_kx above = ul_kx_divi(k, term, below);
        lanes->index[d] = outermost ? above : ul_kx_modi(k, above, run);
        run = 1;
    }
}

/* Loads the terms at the coordinates, all of them before one is added to its sum: loads that they
 * share happen once. */
static void load_terms(const struct ul_partials *p, ul_kx *x)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    for (uint32_t i = 0; i < p->sum_count; i++) {
        x[i] = p->term[i](p->lanes, p->context);
        if (p->sum_count > 1)
            x[i] = ul_ks_let(k, x[i]);
    }
}

/* Adds one term after the other. */
static void sum_in_turn(const struct ul_partials *p, ul_kx begin, ul_kx each, ul_kx *x)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    uint32_t sums[UL_PARTIALS_SUMS];
    ul_kx terms[UL_PARTIALS_SUMS];
    for (uint32_t i = 0; i < p->sum_count; i++)
        sums[i] = ul_ks_var(k, ul_kx_dtype(k, p->first), p->first);
    set_term(p, ul_kx_add(k, begin, ul_ks_for_expr(k, each, p->each, 0)));
    load_terms(p, terms);
    for (uint32_t i = 0; i < p->sum_count; i++)
        ul_ks_set(k, sums[i], ul_kx_binary(k, p->combine, ul_kx_var(k, sums[i]), terms[i]));
    ul_ks_end(k);
    for (uint32_t i = 0; i < p->sum_count; i++)
        x[i] = ul_kx_var(k, sums[i]);
}

/* partial[j] = partial[j] combined with term begin + j, for j in [0, count) */
static void add_partials(const struct ul_partials *p, const uint32_t *partial, ul_kx begin,
                         ul_kx count, int64_t max)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    ul_kx terms[UL_PARTIALS_SUMS];
    ul_kx j = ul_ks_for_expr(k, count, max, UL_FOR_PARALLEL);
    set_term(p, ul_kx_add(k, begin, j));
    load_terms(p, terms);
    for (uint32_t i = 0; i < p->sum_count; i++)
        ul_ks_store(k, partial[i], j,
                    ul_kx_binary(k, p->combine, ul_kx_load(k, partial[i], j), terms[i]));
    ul_ks_end(k);
}

/* Adds rounds of partial results, then folds these. */
static void sum_partials(const struct ul_partials *p, ul_kx begin, ul_kx each, ul_kx *x)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    int64_t width = p->width;
    uint32_t partial[UL_PARTIALS_SUMS];
    for (uint32_t i = 0; i < p->sum_count; i++) {
        partial[i] = ul_lower_local(p->lanes->lower, ul_kx_dtype(k, p->first), (uint64_t)p->width);
        ul_kx j = ul_ks_for(k, width, UL_FOR_PARALLEL);
        ul_ks_store(k, partial[i], j, p->first);
        ul_ks_end(k);
    }
    ul_kx rounds = ul_kx_divi(k, each, width);
    ul_kx round = ul_ks_for_expr(k, rounds, p->each / width, 0);
    add_partials(p, partial, ul_kx_add(k, begin, ul_kx_muli(k, round, width)),
                 ul_kx_index_const(k, width), width);
    ul_ks_end(k);
    if (p->terms % width != 0)
        add_partials(p, partial, ul_kx_add(k, begin, ul_kx_muli(k, rounds, width)),
                     ul_kx_modi(k, each, width), p->terms % width);
    for (uint32_t i = 0; i < p->sum_count; i++)
        x[i] = ul_lanes_fold(k, partial[i], width, p->combine);
}

ul_kx ul_partials_part_terms(const struct ul_partials *partials, ul_kx part)
{
    struct ul_kernel *k = partials->lanes->lower->kernel;
    ul_kx each = ul_kx_index_const(k, partials->each);
    if (partials->each * partials->count == partials->terms)
        return each;
    ul_kx left =
        ul_kx_sub(k, ul_kx_index_const(k, partials->terms), ul_kx_muli(k, part, partials->each));
    return ul_kx_binary(k, UL_KX_MIN, left, each);
}

static void sum_part(const struct ul_partials *p, ul_kx part, ul_kx *x)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    ul_kx begin = ul_kx_muli(k, part, p->each);
    ul_kx each = ul_partials_part_terms(p, part);
    if (p->each * p->count != p->terms)
        each = ul_ks_let(k, each);
    if (p->width > 1)
        sum_partials(p, begin, each, x);
    else
        sum_in_turn(p, begin, each, x);
}

bool ul_partials_are_stored(const struct ul_partials *partials)
{
    int64_t full = partials->width > 1 ? FULL_TEAMS : FULL_THREADS;
    return partials->count > 1 && partials->output_count < full &&
           partials->output_count * partials->count <= MAX_PARTIALS;
}

void ul_partials_open(struct ul_partials *partials)
{
    struct ul_lanes *lanes = partials->lanes;
    struct ul_kernel *k = lanes->lower->kernel;
    partials->output = ul_kx_index_const(k, 0);
    for (uint32_t i = 0; i < lanes->rank; i++) {
        uint32_t d = lanes->order[i];
        if ((partials->mask >> d & 1u) != 0)
            continue;
        lanes->index[d] = ul_ks_for(k, lanes->dims[d], UL_FOR_PARALLEL);
        lanes->open_loops++;
        partials->output =
            ul_kx_add(k, ul_kx_muli(k, partials->output, lanes->dims[d]), lanes->index[d]);
    }
}

void ul_partials_close(struct ul_partials *partials)
{
    ul_lanes_close(partials->lanes);
}

ul_kx ul_partials_place(const struct ul_partials *partials, ul_kx part)
{
    struct ul_kernel *k = partials->lanes->lower->kernel;
    return ul_kx_add(k, ul_kx_muli(k, part, partials->output_count), partials->output);
}

void ul_partials_open_parts(struct ul_partials *partials)
{
    partials->part = ul_ks_for(partials->lanes->lower->kernel, partials->count, UL_FOR_PARALLEL);
    ul_partials_open(partials);
}

void ul_partials_close_parts(struct ul_partials *partials)
{
    ul_partials_close(partials);
    ul_ks_end(partials->lanes->lower->kernel);
}

ul_kx ul_partials_sum(const struct ul_partials *partials)
{
    ul_kx x[UL_PARTIALS_SUMS];
    UL_ASSERT(partials->sum_count == 1);
    sum_part(partials, partials->part, x);
    return x[0];
}

void ul_partials_store(struct ul_partials *partials)
{
    struct ul_lower *lower = partials->lanes->lower;
    struct ul_kernel *k = lower->kernel;
    if (!ul_partials_are_stored(partials))
        return;
    ul_kx x[UL_PARTIALS_SUMS];
    for (uint32_t i = 0; i < partials->sum_count; i++)
        partials->sums[i] = ul_lower_scratch(lower, ul_kx_dtype(k, partials->first),
                                             (uint64_t)(partials->output_count * partials->count));
    ul_partials_open_parts(partials);
    sum_part(partials, partials->part, x);
    for (uint32_t i = 0; i < partials->sum_count; i++)
        ul_ks_store(k, partials->sums[i], ul_partials_place(partials, partials->part), x[i]);
    ul_partials_close_parts(partials);
}

/* partial[j] = partial[j] combined with the number of part first + j, for j in [0, count) */
static void combine_parts(const struct ul_partials *p, uint32_t partial, ul_kx first, int64_t count,
                          ul_partials_part_fn *of_part, const void *context)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    ul_kx j = ul_ks_for(k, count, UL_FOR_PARALLEL);
    ul_kx x = of_part(p, ul_kx_add(k, first, j), context);
    ul_ks_store(k, partial, j, ul_kx_binary(k, p->combine, ul_kx_load(k, partial, j), x));
    ul_ks_end(k);
}

/* A team of threads adds up the numbers, each thread every UL_LANES_MAX-th of them. */
static ul_kx combine_many(const struct ul_partials *p, ul_partials_part_fn *of_part,
                          const void *context)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    const int64_t width = UL_LANES_MAX, rounds = p->count / width;
    uint32_t partial = ul_lower_local(p->lanes->lower, ul_kx_dtype(k, p->first), (uint64_t)width);
    ul_kx j = ul_ks_for(k, width, UL_FOR_PARALLEL);
    ul_ks_store(k, partial, j, p->first);
    ul_ks_end(k);
    ul_kx round = ul_ks_for(k, rounds, 0);
    combine_parts(p, partial, ul_kx_muli(k, round, width), width, of_part, context);
    ul_ks_end(k);
    if (p->count % width != 0)
        combine_parts(p, partial, ul_kx_index_const(k, rounds * width), p->count % width, of_part,
                      context);
    return ul_lanes_fold(k, partial, width, p->combine);
}

static ul_kx combine_in_turn(const struct ul_partials *p, ul_partials_part_fn *of_part,
                             const void *context)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    uint32_t total = ul_ks_var(k, ul_kx_dtype(k, p->first), p->first);
    ul_kx part = ul_ks_for(k, p->count, 0);
    ul_kx x = of_part(p, part, context);
    ul_ks_set(k, total, ul_kx_binary(k, p->combine, ul_kx_var(k, total), x));
    ul_ks_end(k);
    return ul_kx_var(k, total);
}

ul_kx ul_partials_combine(const struct ul_partials *partials, ul_partials_part_fn *of_part,
                          const void *context)
{
    bool is_team = partials->count >= MIN_TEAM && partials->output_count < FULL_THREADS;
    return is_team ? combine_many(partials, of_part, context)
                   : combine_in_turn(partials, of_part, context);
}

static ul_kx load_sum(const struct ul_partials *partials, ul_kx part, const void *context)
{
    const uint32_t *sums = context;
    return ul_kx_load(partials->lanes->lower->kernel, *sums, ul_partials_place(partials, part));
}

/* Adds up, where they are used, the parts whose sums are not stored. */
static void sum_here(const struct ul_partials *p, ul_kx *x)
{
    struct ul_kernel *k = p->lanes->lower->kernel;
    uint32_t totals[UL_PARTIALS_SUMS];
    ul_kx sums[UL_PARTIALS_SUMS];
    for (uint32_t i = 0; i < p->sum_count; i++)
        totals[i] = ul_ks_var(k, ul_kx_dtype(k, p->first), p->first);
    sum_part(p, ul_ks_for(k, p->count, 0), sums);
    for (uint32_t i = 0; i < p->sum_count; i++)
        ul_ks_set(k, totals[i], ul_kx_binary(k, p->combine, ul_kx_var(k, totals[i]), sums[i]));
    ul_ks_end(k);
    for (uint32_t i = 0; i < p->sum_count; i++)
        x[i] = ul_kx_var(k, totals[i]);
}

void ul_partials_totals(struct ul_partials *partials, ul_kx x[UL_PARTIALS_SUMS])
{
    if (partials->count == 1) {
        sum_part(partials, ul_kx_index_const(partials->lanes->lower->kernel, 0), x);
    } else if (partials->sums[0] == UL_NONE) {
        sum_here(partials, x);
    } else {
        for (uint32_t i = 0; i < partials->sum_count; i++)
            x[i] = ul_partials_combine(partials, load_sum, &partials->sums[i]);
    }
}

ul_kx ul_partials_total(struct ul_partials *partials)
{
    ul_kx x[UL_PARTIALS_SUMS];
    UL_ASSERT(partials->sum_count == 1);
    ul_partials_totals(partials, x);
    return x[0];
}
