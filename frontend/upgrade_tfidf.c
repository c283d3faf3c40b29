/* SPDX-License-Identifier: Apache-2.0 */
/* TfIdfVectorizer in simpler operators: how often each n-gram of a pool occurs in a row of X.
 *
 * For n-grams of one length and one distance between their items, item k of all windows is a slice
 * of X; windows [..., 1, W] equal to the pool's items [G, 1] for every k, summed over W, are the
 * counts [..., G]. Counts of all distances are added, those of all lengths are concatenated, and
 * ngram_indexes gives the column of the result for each n-gram. The comparisons fuse into the sum,
 * so that nothing of size G * W is stored. Strings are not supported. */
#include "frontend/old_emit.h"
#include "frontend/rows.h"

#include <string.h>

/* Bounds the work that a hostile model can ask for. */
enum { LONGEST_GRAM = 16, MAX_SKIPS = 1000 };

struct tfidf {
    struct ul_old_node *node;
    ul_value_id x; /* int64 */
    struct ul_type type;
    int64_t length; /* items of a row */
    const struct ul_attr *pool, *starts, *columns;
    int64_t gram_count, column_count;
};

static ul_value_id add_weight(const struct tfidf *t, const struct ul_tensor *tensor)
{
    return ul_graph_add_weight(t->node->builder->graph, t->node->name, tensor);
}

/* Item `k` of `count` n-grams of length `n` whose items begin at `begin`, as [count, 1]. */
static ul_value_id pool_items(const struct tfidf *t, int64_t begin, int64_t count, int64_t n,
                              int64_t k)
{
    struct ul_model_builder *builder = t->node->builder;
    int64_t *items = UL_NEW_ARRAY(builder->scratch, int64_t, (uint64_t)count);
    int64_t dims[2] = {count, 1};
    for (int64_t g = 0; g < count; g++)
        items[g] = t->pool->ints[begin + g * n + k];
    return add_weight(t, ul_tensor_new_ints(builder->graph->arena, UL_I64, 2, dims, items));
}

/* Counts of `count` n-grams whose items are `distance` apart: [..., count]. */
static ul_value_id count_at(const struct tfidf *t, int64_t begin, int64_t count, int64_t n,
                            int64_t distance)
{
    int64_t windows = t->length - (n - 1) * distance;
    ul_value_id found = UL_NONE;
    for (int64_t k = 0; k < n; k++)
        found = ul_old_make(t->node,
                            UL_WITH({"x", ul_row_value(t->x)}, {"found", ul_row_value(found)},
                                    {"items", ul_row_value(pool_items(t, begin, count, n, k))},
                                    {"from", ul_row_int(k * distance)},
                                    {"to", ul_row_int(k * distance + windows)}),
                            "equal = Equal(Unsqueeze(Slice(x, [from], [to], [-1]), [-2]), items); "
                            "found ? And(found, equal) : equal");
    return ul_old_make(t->node, UL_WITH({"found", ul_row_value(found)}),
                       "ReduceSum(Cast(found) {to=f32}, [-1]) {keepdims=0}");
}

/* Zeros of [..., count]. */
static ul_value_id zeros(const struct tfidf *t, int64_t count)
{
    struct ul_type type = t->type;
    unsigned char zero[16] = {0};
    type.dtype = UL_F32;
    type.dims[type.rank - 1] = count;
    return add_weight(t, ul_tensor_new_splat(t->node->builder->graph->arena, &type, zero));
}

/* The counts of all n-grams of length `n`, over all distances; a single item has no distance. */
static ul_value_id count_length(const struct tfidf *t, int64_t begin, int64_t count, int64_t n)
{
    int64_t min = ul_old_int(t->node, "min_gram_length", 1);
    int64_t max = ul_old_int(t->node, "max_gram_length", 1);
    int64_t skips = n == 1 ? 0 : ul_old_int(t->node, "max_skip_count", 0);
    ul_value_id sum = UL_NONE;
    for (int64_t distance = 1; distance <= skips + 1 && n >= min && n <= max; distance++) {
        if (distance > t->length || (n - 1) * distance >= t->length)
            break;
        ul_value_id counts = count_at(t, begin, count, n, distance);
        sum = ul_old_make(t->node,
                          UL_WITH({"sum", ul_row_value(sum)}, {"counts", ul_row_value(counts)}),
                          "sum + counts");
    }
    return sum == UL_NONE ? zeros(t, count) : sum;
}

/* Reads the attributes; returns NULL, or what is wrong with them. */
static const char *read_attributes(struct tfidf *t)
{
    struct ul_old_node *node = t->node;
    t->pool = ul_old_attr(node, "pool_int64s");
    t->starts = ul_old_attr(node, "ngram_counts");
    t->columns = ul_old_attr(node, "ngram_indexes");
    if (t->pool == NULL || t->pool->kind != UL_ATTR_INTS)
        return "of strings is not supported; only pools of integers are";
    if (t->starts == NULL || t->starts->kind != UL_ATTR_INTS || t->columns == NULL ||
        t->columns->kind != UL_ATTR_INTS)
        return "lacks ngram_counts or ngram_indexes";
    if (t->starts->count > LONGEST_GRAM || ul_old_int(node, "max_skip_count", 0) > MAX_SKIPS)
        return "with such long n-grams or skips is not supported";
    for (uint32_t i = 0; i < t->starts->count; i++) {
        int64_t end = i + 1 < t->starts->count ? t->starts->ints[i + 1] : t->pool->count;
        int64_t size = end - t->starts->ints[i];
        if (t->starts->ints[i] < 0 || end > t->pool->count || size < 0 || size % (i + 1) != 0)
            return "has ngram_counts that do not fit its pool";
        t->gram_count += size / (i + 1);
    }
    if (t->gram_count != t->columns->count || t->gram_count == 0)
        return "has another number of ngram_indexes than of n-grams";
    for (uint32_t i = 0; i < t->columns->count; i++) {
        if (t->columns->ints[i] < 0 || t->columns->ints[i] >= UL_LIMIT_NODES)
            return "has an ngram_index out of range";
        if (t->columns->ints[i] >= t->column_count)
            t->column_count = t->columns->ints[i] + 1;
    }
    return NULL;
}

/* TF leaves the counts, IDF takes the weight where there is a count, TFIDF multiplies both. */
static ul_value_id apply_mode(const struct tfidf *t, ul_value_id counts)
{
    const char *mode = ul_old_string(t->node, "mode", "TF");
    const struct ul_attr *weights = ul_old_attr(t->node, "weights");
    bool is_weighted =
        strcmp(mode, "TF") != 0 && weights != NULL && weights->kind == UL_ATTR_FLOATS;
    if (is_weighted && weights->count != t->gram_count) {
        ul_old_problem(t->node, "has another number of weights than of n-grams");
        return counts;
    }
    const struct ul_row_item factors =
        is_weighted ? ul_row_floats(weights->count, weights->floats) : ul_row_value(UL_NONE);
    return ul_old_make(t->node,
                       UL_WITH({"counts", ul_row_value(counts)}, {"mode", ul_row_text(mode)},
                               {"weights", factors}),
                       "(mode == 'IDF' ? Sign(counts) : counts) * (weights ? weights:f32 : none)");
}

/* Puts n-gram g into column columns[g]; columns without an n-gram take the zeros after the last. */
static ul_value_id place_columns(const struct tfidf *t, ul_value_id counts)
{
    struct ul_model_builder *builder = t->node->builder;
    int64_t *source = UL_NEW_ARRAY(builder->scratch, int64_t, (uint64_t)t->column_count);
    for (int64_t i = 0; i < t->column_count; i++)
        source[i] = t->gram_count;
    for (int64_t g = 0; g < t->gram_count; g++) {
        if (source[t->columns->ints[g]] != t->gram_count) {
            ul_old_problem(t->node, "with several n-grams in one column is not supported");
            return counts;
        }
        source[t->columns->ints[g]] = g;
    }
    return ul_old_make(t->node,
                       UL_WITH({"counts", ul_row_value(counts)},
                               {"zeros", ul_row_value(zeros(t, 1))},
                               {"source", ul_row_ints((uint32_t)t->column_count, source)}),
                       "Gather(Concat(counts, zeros) {axis=-1}, source) {axis=-1}");
}

void ul_upgrade_tfidf(struct ul_old_node *node)
{
    struct tfidf t = {.node = node};
    const char *wrong = read_attributes(&t);
    t.type = ul_old_type(node, ul_old_input(node, 0));
    if (wrong == NULL && (!ul_type_known(&t.type) || t.type.rank < 1 || t.type.rank > 2))
        wrong = "needs a row or a batch of rows, of a size that is known here";
    if (wrong != NULL) {
        ul_old_problem(node, wrong);
        return;
    }
    ul_value_id parts[LONGEST_GRAM];
    uint32_t part_count = 0;
    t.length = t.type.dims[t.type.rank - 1];
    t.x = ul_build_cast(ul_old_build(node), node->inputs[0], UL_I64);
    for (uint32_t i = 0; i < t.starts->count; i++) {
        int64_t begin = t.starts->ints[i];
        int64_t end = i + 1 < t.starts->count ? t.starts->ints[i + 1] : t.pool->count;
        if (end > begin)
            parts[part_count++] = count_length(&t, begin, (end - begin) / (i + 1), i + 1);
    }
    ul_value_id counts = ul_old_concat(node, parts, part_count, -1);
    ul_value_id placed = place_columns(&t, apply_mode(&t, counts));
    if (!node->finished)
        ul_old_set_result(node, 0, placed);
    node->finished = true;
}
