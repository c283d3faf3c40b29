/* SPDX-License-Identifier: Apache-2.0 */
/* TopK: the k first elements of each line along an axis, and where they were.
 *
 * Problem: k is small in classifiers and beam search, thousands in detectors. Method: up to
 * MAX_INSERTED, insertion into a sorted list of k in a local array, O(n) for data in random order
 * and parallel over lines; above, a bottom-up merge sort of the line in scratch, line by line. Both
 * are stable, so that of equal elements the lower index comes first; a NaN counts as larger than
 * every number. Unsorted results are sorted as well. */
#include "ir/ops/sort/sort.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

enum { MAX_INSERTED = 64 };

enum ul_status ul_infer_top_k(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_NUMBERS));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", -1), type->rank, &axis));
    int64_t k;
    UL_TRY(ul_check_int(infer, 1, 0, &k));
    UL_TRY(ul_check_range(infer, "k", k, 0, type->dims[axis]));
    struct ul_type out = *type;
    out.dims[axis] = k;
    ul_infer_set_type(infer, 0, &out);
    out.dtype = UL_I64;
    ul_infer_set_type(infer, 1, &out);
    return UL_OK;
}

struct top_k {
    struct ul_lower *lower;
    const struct ul_node *node;
    ul_node_id id;
    uint32_t rank, axis;
    const int64_t *dims;
    int64_t length, count; /* of a line, and k */
    bool largest;
    enum ul_dtype dtype;
    ul_kx index[UL_LIMIT_RANK]; /* of the line; index[axis] is set by the loops */
    uint32_t values, places;    /* arrays */
};

/* Whether `a` comes strictly before `b` in the result. */
static ul_kx is_before(const struct top_k *t, ul_kx a, ul_kx b)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx larger = t->largest ? a : b;
    ul_kx smaller = t->largest ? b : a;
    ul_kx before = ul_kx_binary(k, UL_KX_LT, smaller, larger);
    if (!ul_dtype_get(t->dtype)->is_float)
        return before;
    ul_kx number = ul_kx_unary(k, UL_KX_NOT, ul_kx_unary(k, UL_KX_ISNAN, smaller));
    ul_kx nan = ul_kx_unary(k, UL_KX_ISNAN, larger);
    return ul_kx_binary(k, UL_KX_OR, before, ul_kx_binary(k, UL_KX_AND, nan, number));
}

static ul_kx load_at(struct top_k *t, ul_kx at)
{
    t->index[t->axis] = at;
    return ul_lower_load(t->lower, t->node->inputs[0], t->index);
}

static void store_result(struct top_k *t, ul_kx at, ul_kx value, ul_kx place)
{
    t->index[t->axis] = at;
    if (ul_lower_has_output(t->lower, t->id, 0))
        ul_lower_store(t->lower, t->node->outputs[0], t->index, value);
    if (ul_lower_has_output(t->lower, t->id, 1))
        ul_lower_store(t->lower, t->node->outputs[1], t->index, place);
}

/* Opens a loop for each dimension but the axis. */
static void open_lines(struct top_k *t, uint32_t flags)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d != t->axis)
            t->index[d] = ul_ks_for(t->lower->kernel, t->dims[d], flags);
    }
}

static void close_lines(const struct top_k *t)
{
    for (uint32_t d = 0; d + 1 < t->rank; d++)
        ul_ks_end(t->lower->kernel);
}

/* insertion */

/* Moves list elements from `slot` - 1 downwards back by one while x comes before them. */
static void make_room(const struct top_k *t, uint32_t slot, ul_kx x)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx zero = ul_kx_index_const(k, 0);
    ul_ks_for(k, t->count, 0);
    ul_kx at = ul_kx_var(k, slot);
    ul_kx below = ul_kx_clamp(k, ul_kx_addi(k, at, -1), t->count - 1);
    ul_kx moves = ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LT, zero, at),
                               is_before(t, x, ul_kx_load(k, t->values, below)));
    ul_ks_if(k, moves);
    ul_ks_store(k, t->values, at, ul_kx_load(k, t->values, below));
    ul_ks_store(k, t->places, at, ul_kx_load(k, t->places, below));
    ul_ks_set(k, slot, below);
    ul_ks_else(k);
    ul_ks_break(k);
    ul_ks_end(k);
    ul_ks_end(k);
}

static void insert_line(struct top_k *t)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx last = ul_kx_index_const(k, t->count - 1);
    ul_kx i = ul_ks_for(k, t->count, 0);
    ul_ks_store(k, t->values, i, ul_kx_number(k, t->dtype, 0.0));
    ul_ks_store(k, t->places, i, ul_kx_index_const(k, 0));
    ul_ks_end(k);
    ul_kx at = ul_ks_for(k, t->length, 0);
    ul_kx x = ul_ks_let(k, load_at(t, at));
    /* The list holds min(at, count) elements; one more enters, or replaces the last. */
    ul_kx enters = ul_kx_binary(k, UL_KX_OR, ul_kx_binary(k, UL_KX_LE, at, last),
                                is_before(t, x, ul_kx_load(k, t->values, last)));
    ul_ks_if(k, enters);
    uint32_t slot = ul_ks_var(k, UL_I64, ul_kx_binary(k, UL_KX_MIN, at, last));
    make_room(t, slot, x);
    ul_kx place = ul_kx_clamp(k, ul_kx_var(k, slot), t->count - 1);
    ul_ks_store(k, t->values, place, x);
    ul_ks_store(k, t->places, place, at);
    ul_ks_end(k);
    ul_ks_end(k);
    i = ul_ks_for(k, t->count, 0);
    store_result(t, i, ul_kx_load(k, t->values, i), ul_kx_load(k, t->places, i));
    ul_ks_end(k);
}

/* merge sort; arrays hold two lines, which change roles with every pass */

struct merge {
    ul_kx from, to;          /* where the two lines begin */
    ul_kx low, middle, high; /* runs [low, middle) and [middle, high) become one */
};

static void merge_runs(const struct top_k *t, const struct merge *m)
{
    struct ul_kernel *k = t->lower->kernel;
    uint32_t left = ul_ks_var(k, UL_I64, m->low);
    uint32_t right = ul_ks_var(k, UL_I64, m->middle);
    ul_kx step = ul_ks_for_expr(k, ul_kx_sub(k, m->high, m->low), t->length, 0);
    ul_kx i = ul_ks_let(k, ul_kx_var(k, left));
    ul_kx j = ul_ks_let(k, ul_kx_var(k, right));
    ul_kx at_i = ul_ks_let(k, ul_kx_add(k, m->from, ul_kx_clamp(k, i, t->length - 1)));
    ul_kx at_j = ul_ks_let(k, ul_kx_add(k, m->from, ul_kx_clamp(k, j, t->length - 1)));
    ul_kx a = ul_ks_let(k, ul_kx_load(k, t->values, at_i));
    ul_kx b = ul_ks_let(k, ul_kx_load(k, t->values, at_j));
    ul_kx b_first =
        ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LT, j, m->high), is_before(t, b, a));
    ul_kx take_b =
        ul_ks_let(k, ul_kx_binary(k, UL_KX_OR, ul_kx_binary(k, UL_KX_LE, m->middle, i), b_first));
    ul_kx out = ul_ks_let(k, ul_kx_add(k, ul_kx_add(k, m->to, m->low), step));
    ul_ks_store(k, t->values, out, ul_kx_select(k, take_b, b, a));
    ul_ks_store(k, t->places, out, ul_kx_load(k, t->places, ul_kx_select(k, take_b, at_j, at_i)));
    ul_ks_set(k, left, ul_kx_select(k, take_b, i, ul_kx_addi(k, i, 1)));
    ul_ks_set(k, right, ul_kx_select(k, take_b, ul_kx_addi(k, j, 1), j));
    ul_ks_end(k);
}

/* Merges neighbouring runs of `width`; an odd run at the end is copied, as a run whose neighbour is
 * empty. */
static void merge_pass(const struct top_k *t, ul_kx from, ul_kx width)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx length = ul_kx_index_const(k, t->length);
    ul_kx two = ul_ks_let(k, ul_kx_muli(k, width, 2));
    ul_kx pairs = ul_kx_binary(k, UL_KX_DIV, ul_kx_addi(k, ul_kx_add(k, length, two), -1), two);
    ul_kx pair = ul_ks_for_expr(k, pairs, (t->length + 1) / 2, 0);
    struct merge m = {.from = from, .to = ul_kx_sub(k, length, from)};
    m.low = ul_ks_let(k, ul_kx_mul(k, pair, two));
    m.middle = ul_ks_let(k, ul_kx_binary(k, UL_KX_MIN, ul_kx_add(k, m.low, width), length));
    m.high = ul_ks_let(k, ul_kx_binary(k, UL_KX_MIN, ul_kx_add(k, m.low, two), length));
    merge_runs(t, &m);
    ul_ks_end(k);
}

static void sort_line(struct top_k *t)
{
    struct ul_kernel *k = t->lower->kernel;
    ul_kx length = ul_kx_index_const(k, t->length);
    ul_kx at = ul_ks_for(k, t->length, 0);
    ul_ks_store(k, t->values, at, load_at(t, at));
    ul_ks_store(k, t->places, at, at);
    ul_ks_end(k);
    int64_t passes = 0;
    while ((int64_t)1 << passes < t->length)
        passes++;
    uint32_t from = ul_ks_var(k, UL_I64, ul_kx_index_const(k, 0));
    uint32_t width = ul_ks_var(k, UL_I64, ul_kx_index_const(k, 1));
    ul_ks_for(k, passes, 0);
    merge_pass(t, ul_ks_let(k, ul_kx_var(k, from)), ul_ks_let(k, ul_kx_var(k, width)));
    ul_ks_set(k, from, ul_kx_sub(k, length, ul_kx_var(k, from)));
    ul_ks_set(k, width, ul_kx_muli(k, ul_kx_var(k, width), 2));
    ul_ks_end(k);
    ul_kx i = ul_ks_for(k, t->count, 0);
    ul_kx sorted = ul_ks_let(k, ul_kx_add(k, ul_kx_var(k, from), i));
    store_result(t, i, ul_kx_load(k, t->values, sorted), ul_kx_load(k, t->places, sorted));
    ul_ks_end(k);
}

void ul_lower_top_k(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    struct top_k t = {.lower = lower, .node = ul_check_node(lower, node), .id = node};
    t.rank = type->rank;
    t.dims = type->dims;
    t.axis = ul_check_get_axis(ul_node_get_int(t.node, "axis", -1), type->rank);
    t.length = type->dims[t.axis];
    t.count = ul_check_get_int(lower, node, 1, 0);
    t.largest = ul_node_get_int(t.node, "largest", 1) != 0;
    t.dtype = ul_compute_dtype(type->dtype);
    if (t.count == 0)
        return;
    bool inserts = t.count <= MAX_INSERTED;
    open_lines(&t, inserts ? UL_FOR_PARALLEL : 0u);
    if (inserts) {
        t.values = ul_lower_local(lower, t.dtype, (uint64_t)t.count);
        t.places = ul_lower_local(lower, UL_I64, (uint64_t)t.count);
        insert_line(&t);
    } else {
        t.values = ul_lower_scratch(lower, t.dtype, 2 * (uint64_t)t.length);
        t.places = ul_lower_scratch(lower, UL_I64, 2 * (uint64_t)t.length);
        sort_line(&t);
    }
    close_lines(&t);
}
