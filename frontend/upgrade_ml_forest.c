/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the tables that Trees walks from a forest.
 *
 * Problem: files have six comparisons, and tests of membership, with children anywhere. Trees asks
 * whether a feature is at most a limit, or equal to it, and its second child follows the first.
 * Method: comparisons that hold for greater numbers exchange the children, strict ones take the
 * next smaller limit, and a test in a set becomes a search, whose ends jump to either child:
 *
 *     x < 3        x <= 2.99...            x in {1, 4}     x <= 1 ? (x == 1 ? yes : no)
 *     x > 3        x <= 3 ? no : yes                              : (x == 4 ? yes : no)
 *
 * Rows are laid breadth first, tree by tree, after all the roots. Where each tree has weights for
 * one target only, as boosted ones do, trees are sorted by target and leaves hold their weights;
 * else a leaf has a row of weights, one for each target. */
#include "frontend/upgrade_ml_forest.h"
#include "ir/trees.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct row {
    uint32_t node;     /* UL_NONE: nothing is left to do */
    uint32_t distance; /* to the children; 0: a leaf */
    uint32_t flags;
    uint32_t depth;
    int64_t feature;
    double limit;
};

struct layout {
    struct ul_old_node *node;
    struct ul_ml_forest *forest;
    struct ul_arena *scratch;
    int64_t features;
    uint32_t count, capacity;
    struct row *rows;
    uint32_t depth; /* in the tree at hand */
    int64_t target; /* of the tree at hand: the one for which its leaves have weights, or one of: */
    const char *wrong;
    struct tree *trees;
};
enum { NO_TARGET = -1, SEVERAL = -2 };

struct tree {
    uint32_t depth;
    int64_t target;
    uint32_t slot; /* the slot of its root */
};

/* The tables, once it is decided how leaves hold their weights. */
struct tables {
    uint32_t tree_count; /* with trees of one neutral leaf, which fill up targets */
    bool holds_weights;  /* leaves hold their weights */
    uint32_t feature_bits;
    enum ul_dtype word;
    uint32_t leaf_count;
    ul_value_id words, limits, depths, weights;
    int64_t deepest;
};

static uint32_t add_row(struct layout *l, uint32_t node, uint32_t depth)
{
    UL_GROW(l->scratch, l->rows, l->count, l->capacity);
    l->rows[l->count] = (struct row){.node = node, .depth = depth};
    l->depth = depth > l->depth ? depth : l->depth;
    return l->count++;
}

/* ---- Branches ---- */

/* The largest number of the forest's type below `limit`; where there is none, NaN, which nothing is
 * at most. */
static double below(const struct layout *l, double limit)
{
    if (isinf(limit) && limit < 0)
        return (double)NAN;
    if (l->forest->dtype == UL_F32)
        return (double)nextafterf((float)limit, -INFINITY);
    return nextafter(limit, -(double)INFINITY);
}

/* Sets rows for both children of a branch; the second is taken where the comparison holds. */
static void set_children(struct layout *l, uint32_t at, uint32_t first, uint32_t second)
{
    uint32_t depth = l->rows[at].depth + 1, begin = add_row(l, first, depth);
    (void)add_row(l, second, depth);
    l->rows[at].distance = begin - at;
}

static void set_branch(struct layout *l, uint32_t at, const struct ul_ml_node *node, uint32_t flags,
                       double limit)
{
    struct row *row = &l->rows[at];
    row->feature = node->feature;
    row->flags = UL_TREE_BRANCHES | flags;
    row->limit = limit;
    row->node = UL_NONE;
}

static void lay_comparison(struct layout *l, uint32_t at, const struct ul_ml_node *node)
{
    bool is_turned = node->mode == UL_ML_GTE || node->mode == UL_ML_GT || node->mode == UL_ML_NEQ;
    bool is_equal = node->mode == UL_ML_EQ || node->mode == UL_ML_NEQ;
    bool is_strict = node->mode == UL_ML_LT || node->mode == UL_ML_GTE;
    /* A NaN differs from every limit, even where a NaN is taken for true. */
    bool takes_missing = node->mode != UL_ML_NEQ && node->missing_is_true != is_turned;
    set_branch(l, at, node,
               (is_equal ? UL_TREE_EQUAL : 0u) | (takes_missing ? UL_TREE_MISSING : 0u),
               is_strict ? below(l, node->limit) : node->limit);
    set_children(l, at, is_turned ? node->yes : node->no, is_turned ? node->no : node->yes);
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Lays a row that leads to `to`, which follows it, whatever the feature is. */
static void lay_jump(struct layout *l, uint32_t at, const struct ul_ml_node *node, uint32_t to)
{
    set_branch(l, at, node, 0, (double)NAN);
    l->rows[at].distance = to - at;
    if (l->rows[to].depth < l->rows[at].depth + 1)
        l->rows[to].depth = l->rows[at].depth + 1;
    l->depth = l->rows[to].depth > l->depth ? l->rows[to].depth : l->depth;
}

/* Lays the rows of a search among numbers, breadth first from row `at` on; `ends` gets the rows
 * that end it, in pairs of no and yes. */
static uint32_t lay_search(struct layout *l, uint32_t at, const struct ul_ml_node *node,
                           const double *numbers, uint32_t count, uint32_t *ends)
{
    struct range {
        uint32_t row, first, count;
    } *ranges = UL_NEW_ARRAY(l->scratch, struct range, 2 * (uint64_t)count);
    uint32_t missing = node->missing_is_true ? UL_TREE_MISSING : 0u;
    uint32_t range_count = 0, end_count = 0;
    ranges[range_count++] = (struct range){at, 0, count};
    for (uint32_t i = 0; i < range_count; i++) {
        struct range range = ranges[i];
        uint32_t half = range.count / 2;
        set_branch(l, range.row, node, missing | (half == 0 ? UL_TREE_EQUAL : 0u),
                   numbers[range.first + (half == 0 ? 0 : half - 1)]);
        set_children(l, range.row, UL_NONE, UL_NONE);
        uint32_t child = range.row + l->rows[range.row].distance;
        if (half == 0) {
            ends[end_count++] = child;
            continue;
        }
        ranges[range_count++] = (struct range){child, range.first + half, range.count - half};
        ranges[range_count++] = (struct range){child + 1, range.first, half};
    }
    return end_count;
}

static void lay_member(struct layout *l, uint32_t at, const struct ul_ml_node *node)
{
    uint32_t unique = 0;
    /* An empty set gets one number, which nothing is equal to. */
    double *numbers = UL_NEW_ARRAY(l->scratch, double, (uint64_t)node->count + 1);
    for (uint32_t i = 0; i < node->count; i++)
        numbers[i] = l->forest->numbers[node->first + i];
    qsort(numbers, node->count, sizeof *numbers, by_number);
    for (uint32_t i = 0; i < node->count; i++)
        if (i == 0 || numbers[i] > numbers[unique - 1])
            numbers[unique++] = numbers[i];
    if (unique == 0)
        numbers[unique++] = (double)NAN;
    uint32_t *ends = UL_NEW_ARRAY(l->scratch, uint32_t, unique);
    uint32_t end_count = lay_search(l, at, node, numbers, unique, ends);
    /* The target of a jump must be followed by a row, though that is never taken. */
    uint32_t no = add_row(l, node->no, 0), yes = add_row(l, node->yes, 0);
    (void)add_row(l, UL_NONE, 0);
    for (uint32_t i = 0; i < end_count; i++) {
        lay_jump(l, ends[i], node, no);
        lay_jump(l, ends[i] + 1, node, yes);
    }
}

/* ---- Trees ---- */

static void note_target(struct layout *l, int64_t target)
{
    if (l->target == NO_TARGET)
        l->target = target;
    else if (l->target != target)
        l->target = SEVERAL;
}

static void lay_row(struct layout *l, uint32_t at)
{
    struct ul_ml_node *node = &l->forest->nodes[l->rows[at].node];
    for (uint32_t i = 0; node->mode == UL_ML_LEAF && i < node->count; i++)
        note_target(l, l->forest->entries[node->first + i].target);
    if (node->mode == UL_ML_LEAF)
        return;
    if (node->is_reached)
        l->wrong = "has a node that is reached twice: its trees have a cycle, or share branches";
    else if (node->feature < 0 || node->feature >= l->features)
        l->wrong = "asks for a feature that input 0 does not have";
    else if (node->mode != UL_ML_MEMBER && isnan(node->limit))
        l->wrong = "compares with a NaN";
    else if (l->count > INT32_MAX / 2)
        l->wrong = "has too many nodes";
    if (l->wrong != NULL)
        return;
    node->is_reached = true;
    if (node->mode == UL_ML_MEMBER)
        lay_member(l, at, node);
    else
        lay_comparison(l, at, node);
}

/* Lays the rows of all trees, roots first. */
static void lay_trees(struct layout *l)
{
    const struct ul_ml_forest *forest = l->forest;
    l->trees = UL_NEW_ARRAY(l->scratch, struct tree, forest->tree_count);
    for (uint32_t t = 0; t < forest->tree_count; t++)
        (void)add_row(l, forest->roots[t], 0);
    for (uint32_t t = 0; t < forest->tree_count && l->wrong == NULL; t++) {
        uint32_t next = l->count;
        l->depth = 0;
        l->target = NO_TARGET;
        lay_row(l, t);
        for (; next < l->count && l->wrong == NULL; next++)
            if (l->rows[next].node != UL_NONE)
                lay_row(l, next);
        l->trees[t] = (struct tree){.depth = l->depth, .target = l->target, .slot = t};
    }
}

/* ---- Weights ---- */

/* The weight of a missing entry: it changes nothing. */
static double neutral(const struct ul_ml_forest *forest)
{
    return forest->aggregate == UL_ML_MIN   ? (double)INFINITY
           : forest->aggregate == UL_ML_MAX ? -(double)INFINITY
                                            : 0;
}

static double combine(const struct ul_ml_forest *forest, double a, double b)
{
    if (forest->aggregate == UL_ML_MIN)
        return a < b ? a : b;
    if (forest->aggregate == UL_ML_MAX)
        return a > b ? a : b;
    return a + b;
}

/* Reads the weights of a leaf, one for each target. */
static void read_weights(const struct ul_ml_forest *forest, const struct ul_ml_node *leaf,
                         double *weights)
{
    for (int64_t j = 0; j < forest->target_count; j++)
        weights[j] = neutral(forest);
    for (uint32_t i = leaf->first; i < leaf->first + leaf->count; i++) {
        const struct ul_ml_entry *entry = &forest->entries[i];
        weights[entry->target] = combine(forest, weights[entry->target], entry->weight);
    }
}

/* The weight in a leaf of a tree for one target. */
static double weight_of(const struct ul_ml_forest *forest, const struct ul_ml_node *leaf)
{
    double weight = neutral(forest);
    for (uint32_t i = leaf->first; i < leaf->first + leaf->count; i++)
        weight = combine(forest, weight, forest->entries[i].weight);
    return weight;
}

/* Sorts the roots by target, the same number for each, where every tree is for one target and few
 * trees fill up the rest. */
static bool sort_roots(struct layout *l, struct tables *tables)
{
    const struct ul_ml_forest *forest = l->forest;
    uint64_t most = 0;
    if (forest->target_count > forest->tree_count)
        return false;
    uint32_t *counts = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)forest->target_count);
    for (uint32_t t = 0; t < forest->tree_count; t++) {
        if (l->trees[t].target == SEVERAL)
            return false;
        int64_t target = l->trees[t].target == NO_TARGET ? 0 : l->trees[t].target;
        l->trees[t].target = target;
        l->trees[t].slot = counts[target]++;
        most = counts[target] > most ? counts[target] : most;
    }
    if (most * (uint64_t)forest->target_count > 2 * (uint64_t)forest->tree_count)
        return false;
    for (uint32_t t = 0; t < forest->tree_count; t++)
        l->trees[t].slot += (uint32_t)(l->trees[t].target * (int64_t)most);
    tables->tree_count = (uint32_t)(most * (uint64_t)forest->target_count);
    tables->holds_weights = true;
    return true;
}

/* Decides for rows of weights for leaves, unless these are many more than the file has. */
static bool count_leaves(struct layout *l, struct tables *tables)
{
    enum { FEW = 1 << 22, SPARSE = 16 };
    const struct ul_ml_forest *forest = l->forest;
    for (uint32_t i = 0; i < l->count; i++)
        tables->leaf_count += l->rows[i].distance == 0;
    for (uint32_t t = 0; t < forest->tree_count; t++)
        l->trees[t].slot = t;
    tables->tree_count = forest->tree_count;
    double weights = (double)tables->leaf_count * (double)forest->target_count;
    if (weights <= FEW || weights <= SPARSE * (double)forest->entry_count)
        return true;
    l->wrong = "has trees that are each for a few of very many targets, which is not supported";
    return false;
}

/* ---- The tables ---- */

static uint32_t bits_of(uint64_t largest)
{
    uint32_t bits = 1;
    while (bits < 64 && largest >> bits != 0)
        bits++;
    return bits;
}

/* The index in the tables of a row of the layout. */
static uint32_t place_of(const struct layout *l, const struct tables *tables, uint32_t row)
{
    uint32_t trees = l->forest->tree_count;
    return row < trees ? l->trees[row].slot : row - trees + tables->tree_count;
}

static uint32_t distance_of(const struct layout *l, const struct tables *tables, uint32_t row)
{
    if (l->rows[row].distance == 0)
        return 0;
    return place_of(l, tables, row + l->rows[row].distance) - place_of(l, tables, row);
}

static bool choose_word(struct layout *l, struct tables *tables)
{
    uint32_t farthest = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        uint32_t distance = distance_of(l, tables, i);
        farthest = distance > farthest ? distance : farthest;
    }
    tables->feature_bits = bits_of((uint64_t)l->features - 1);
    uint32_t bits = tables->feature_bits + bits_of(farthest) + UL_TREE_FLAG_BITS;
    tables->word = bits <= 32 ? UL_U32 : UL_U64;
    return bits <= 64;
}

static ul_value_id add_table(const struct layout *l, const char *what, enum ul_dtype dtype,
                             uint32_t rank, const int64_t *dims, const unsigned char *bytes)
{
    struct ul_graph *graph = l->node->builder->graph;
    struct ul_type type = ul_type_make(dtype, rank, dims);
    return ul_graph_add_weight(graph, ul_ml_name(l->node, what),
                               ul_tensor_new(graph->arena, &type, bytes));
}

static unsigned char *new_table(const struct layout *l, enum ul_dtype dtype, uint64_t count)
{
    return ul_arena_alloc(l->node->builder->graph->arena,
                          ul_size_mul_or_die(count, ul_dtype_get(dtype)->size_bytes));
}

/* Makes words and limits; leaves that do not hold weights are numbered. */
static void make_rows(const struct layout *l, struct tables *tables)
{
    enum ul_dtype dtype = l->forest->dtype;
    int64_t count = (int64_t)l->count - l->forest->tree_count + tables->tree_count;
    uint64_t word_size = ul_dtype_get(tables->word)->size_bytes;
    uint64_t size = ul_dtype_get(dtype)->size_bytes, leaf = 0;
    unsigned char *words = new_table(l, tables->word, (uint64_t)count);
    unsigned char *limits = new_table(l, dtype, (uint64_t)count);
    for (uint32_t t = 0; t < tables->tree_count && tables->holds_weights; t++)
        ul_element_put_float(limits + t * size, dtype, neutral(l->forest));
    for (uint32_t i = 0; i < l->count; i++) {
        const struct row *row = &l->rows[i];
        uint64_t place = place_of(l, tables, i), distance = distance_of(l, tables, i);
        uint64_t word = row->flags | (uint64_t)row->feature << UL_TREE_FLAG_BITS |
                        distance << (UL_TREE_FLAG_BITS + tables->feature_bits);
        ul_element_put_int(words + place * word_size, tables->word, (int64_t)word);
        double limit = row->limit;
        if (distance == 0 && tables->holds_weights && row->node != UL_NONE)
            limit = weight_of(l->forest, &l->forest->nodes[row->node]);
        ul_element_put_float(limits + place * size, dtype, limit);
        if (distance == 0 && !tables->holds_weights)
            ul_element_put_int(limits + place * size, dtype == UL_F64 ? UL_U64 : UL_U32,
                               (int64_t)leaf++);
    }
    tables->words = add_table(l, "words", tables->word, 1, &count, words);
    tables->limits = add_table(l, "limits", dtype, 1, &count, limits);
}

/* Makes the weights of leaves, in the order of rows. */
static void make_weights(const struct layout *l, struct tables *tables)
{
    const struct ul_ml_forest *forest = l->forest;
    int64_t dims[2] = {tables->leaf_count, forest->target_count};
    uint64_t size = ul_dtype_get(forest->dtype)->size_bytes, leaf = 0;
    uint64_t columns = (uint64_t)forest->target_count;
    unsigned char *bytes =
        new_table(l, forest->dtype, ul_size_mul_or_die(tables->leaf_count, columns));
    double *weights = UL_NEW_ARRAY(l->scratch, double, columns);
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->rows[i].distance != 0)
            continue;
        if (l->rows[i].node != UL_NONE)
            read_weights(forest, &forest->nodes[l->rows[i].node], weights);
        for (uint64_t j = 0; j < columns; j++)
            ul_element_put_float(bytes + (leaf * columns + j) * size, forest->dtype, weights[j]);
        leaf++;
    }
    tables->weights = add_table(l, "weights", forest->dtype, 2, dims, bytes);
}

static void make_depths(const struct layout *l, struct tables *tables)
{
    int64_t count = ((int64_t)tables->tree_count + UL_TREE_LANES - 1) / UL_TREE_LANES;
    int64_t *depths = UL_NEW_ARRAY(l->scratch, int64_t, (uint64_t)count);
    unsigned char *bytes = new_table(l, UL_I32, (uint64_t)count);
    for (uint32_t t = 0; t < l->forest->tree_count; t++) {
        int64_t *depth = &depths[l->trees[t].slot / UL_TREE_LANES];
        *depth = l->trees[t].depth > *depth ? l->trees[t].depth : *depth;
        tables->deepest = *depth > tables->deepest ? *depth : tables->deepest;
    }
    for (int64_t i = 0; i < count; i++)
        ul_element_put_int(bytes + i * 4, UL_I32, depths[i]);
    tables->depths = add_table(l, "depths", UL_I32, 1, &count, bytes);
}

static uint32_t all_flags(const struct layout *l)
{
    uint32_t flags = 0;
    for (uint32_t i = 0; i < l->count; i++)
        flags |= l->rows[i].flags;
    return flags;
}

ul_value_id ul_ml_emit_forest(struct ul_old_node *node, ul_value_id x, int64_t features,
                              struct ul_ml_forest *forest)
{
    static const char *const aggregates[] = {"sum", "sum", "min", "max"};
    struct layout l = {
        .node = node, .forest = forest, .scratch = node->builder->scratch, .features = features};
    struct tables tables = {.weights = UL_NONE};
    lay_trees(&l);
    bool fits = l.wrong == NULL && (sort_roots(&l, &tables) || count_leaves(&l, &tables));
    if (l.wrong == NULL && fits && !choose_word(&l, &tables))
        l.wrong = "has too many nodes and features";
    if (l.wrong != NULL) {
        ul_old_invalid(node, l.wrong);
        return UL_NONE;
    }
    make_rows(&l, &tables);
    make_depths(&l, &tables);
    if (!tables.holds_weights)
        make_weights(&l, &tables);
    return ul_old_make(
        node,
        UL_WITH({"x", ul_row_value(x)}, {"words", ul_row_value(tables.words)},
                {"limits", ul_row_value(tables.limits)}, {"depths", ul_row_value(tables.depths)},
                {"weights", ul_row_value(tables.weights)},
                {"aggregate", ul_row_text(aggregates[forest->aggregate])},
                {"depth", ul_row_int(tables.deepest)}, {"bits", ul_row_int(tables.feature_bits)},
                {"flags", ul_row_int(all_flags(&l))}, {"targets", ul_row_int(forest->target_count)},
                {"trees", ul_row_int(tables.tree_count)}),
        "Trees(x, words, limits, depths, weights) {aggregate=aggregate, depth=depth, "
        "feature_bits=bits, flags=flags, targets=targets, trees=trees}");
}
