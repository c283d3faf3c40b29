/* TfIdfVectorizer on integers: how often each n-gram of a pool occurs in a row.
 *
 * An n-gram matches at i with skip s where x[i + j * (s + 1)] equals its j-th number for every j;
 * single numbers are counted for s = 0 only. The pool is part of the kernel's text, so its size is
 * limited. Source: ONNX Operators.md, TfIdfVectorizer-9. */
#include "ir/ops/text.h"

#include <string.h>

enum { MOST_POOL = 4096, MOST_SKIP = 64, MOST_GRAM = 64 };

struct pool {
    const int64_t *numbers;
    const int64_t *counts;  /* per n: where its n-grams begin in numbers */
    const int64_t *indexes; /* per n-gram: which output counts it */
    const double *weights;  /* per n-gram, or NULL */
    uint32_t number_count, count_count, index_count, weight_count;
    int64_t min_gram, max_gram, max_skip;
};

static struct pool pool_of(const struct ul_node *node)
{
    struct pool pool = {.min_gram = ul_node_get_int(node, "min_gram_length", 0),
                        .max_gram = ul_node_get_int(node, "max_gram_length", 0),
                        .max_skip = ul_node_get_int(node, "max_skip_count", -1)};
    pool.numbers = ul_node_get_ints(node, "pool_int64s", &pool.number_count);
    pool.counts = ul_node_get_ints(node, "ngram_counts", &pool.count_count);
    pool.indexes = ul_node_get_ints(node, "ngram_indexes", &pool.index_count);
    const struct ul_attr *weights = ul_node_find_attr(node, "weights");
    if (weights != NULL && weights->kind == UL_ATTR_FLOATS) {
        pool.weights = weights->floats;
        pool.weight_count = weights->count;
    }
    return pool;
}

/* Where the n-grams of length n end in the pool. */
static int64_t section_end(const struct pool *pool, uint32_t n)
{
    return n < pool->count_count ? pool->counts[n] : (int64_t)pool->number_count;
}

static enum ul_status check_pool(struct ul_infer *infer, const struct pool *pool)
{
    uint32_t grams = 0;
    if (pool->numbers == NULL || pool->counts == NULL || pool->indexes == NULL)
        return ul_infer_unsupported(infer, "needs pool_int64s, ngram_counts and ngram_indexes; "
                                           "strings are not supported");
    if (pool->number_count > MOST_POOL || pool->count_count > MOST_GRAM)
        return ul_infer_unsupported(infer, "its pool has %u numbers; up to %d are supported",
                                    pool->number_count, MOST_POOL);
    if (pool->min_gram < 1 || pool->max_gram < pool->min_gram || pool->max_gram > MOST_GRAM ||
        pool->max_skip < 0 || pool->max_skip > MOST_SKIP)
        return ul_infer_invalid(infer, "its gram lengths or its skip count are out of range");
    for (uint32_t n = 1; n <= pool->count_count; n++) {
        int64_t begin = pool->counts[n - 1];
        int64_t end = section_end(pool, n);
        if (begin < 0 || end < begin || end > (int64_t)pool->number_count ||
            (end - begin) % (int64_t)n != 0)
            return ul_infer_invalid(infer, "ngram_counts do not divide the pool into n-grams");
        grams += (uint32_t)((end - begin) / (int64_t)n);
    }
    if (grams != pool->index_count || (pool->weights != NULL && pool->weight_count != grams))
        return ul_infer_invalid(infer, "the pool has %u n-grams, but %u indexes and %u weights",
                                grams, pool->index_count, pool->weight_count);
    for (uint32_t i = 0; i < pool->index_count; i++) {
        if (pool->indexes[i] < 0 || pool->indexes[i] >= MOST_POOL)
            return ul_infer_invalid(infer, "ngram_indexes are out of range");
    }
    return UL_OK;
}

static int64_t output_length(const struct pool *pool)
{
    int64_t most = -1;
    for (uint32_t i = 0; i < pool->index_count; i++)
        most = pool->indexes[i] > most ? pool->indexes[i] : most;
    return most + 1;
}

enum ul_status ul_text_infer_tfidf(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0);
    struct pool pool = pool_of(infer->node);
    const char *mode = ul_node_get_string(infer->node, "mode", "");
    if (x->dtype != UL_I32 && x->dtype != UL_I64)
        return ul_infer_unsupported(infer, "takes int32 or int64, not strings");
    if (x->rank != 1 && x->rank != 2)
        return ul_infer_invalid(infer, "its input must have 1 or 2 dimensions");
    if (strcmp(mode, "TF") != 0 && strcmp(mode, "IDF") != 0 && strcmp(mode, "TFIDF") != 0)
        return ul_infer_invalid(infer, "its mode must be TF, IDF or TFIDF");
    UL_TRY(check_pool(infer, &pool));
    int64_t dims[2] = {x->dims[0], output_length(&pool)};
    ul_infer_set(infer, 0, UL_F32, x->rank, x->rank == 1 ? dims + 1 : dims);
    return UL_OK;
}

/* Adds to `count` how often the n-gram at `gram` occurs in the row. */
static void count_gram(struct ul_lower *lower, ul_node_id node, const struct pool *pool,
                       const int64_t *gram, uint32_t n, ul_kx *index, uint32_t count)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *x = ul_lower_input_type(lower, node, 0);
    int64_t skips = n == 1 ? 0 : pool->max_skip;
    for (int64_t skip = 0; skip <= skips; skip++) {
        int64_t places = x->dims[x->rank - 1] - (int64_t)(n - 1) * (skip + 1);
        if (places <= 0)
            continue;
        ul_kx at = ul_ks_for(kernel, places, 0);
        ul_kx equal = ul_kx_int(kernel, UL_BOOL, 1);
        for (uint32_t j = 0; j < n; j++) {
            index[x->rank - 1] = ul_kx_addi(kernel, at, (int64_t)j * (skip + 1));
            ul_kx number = ul_lower_load(lower, lower->graph->nodes[node].inputs[0], index);
            ul_kx wanted = ul_kx_int(kernel, UL_I64, gram[j]);
            equal = ul_kx_binary(
                kernel, UL_KX_AND, equal,
                ul_kx_binary(kernel, UL_KX_EQ, ul_kx_cast(kernel, UL_I64, number), wanted));
        }
        ul_kx more = ul_kx_binary(kernel, UL_KX_ADD, ul_kx_var(kernel, count),
                                  ul_kx_cast(kernel, UL_F32, equal));
        ul_ks_set(kernel, count, more);
        ul_ks_end(kernel);
    }
}

static ul_kx weigh(struct ul_lower *lower, ul_node_id node, ul_kx count, double weight)
{
    struct ul_kernel *kernel = lower->kernel;
    const char *mode = ul_node_get_string(&lower->graph->nodes[node], "mode", "");
    ul_kx factor = ul_kx_float(kernel, UL_F32, weight);
    ul_kx zero = ul_kx_float(kernel, UL_F32, 0);
    if (strcmp(mode, "TF") == 0)
        return count;
    if (strcmp(mode, "TFIDF") == 0)
        return ul_kx_binary(kernel, UL_KX_MUL, count, factor);
    return ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LT, zero, count), factor, zero);
}

/* One output element: the n-grams that the pool assigns to it, one after the other. */
static ul_kx count_output(struct ul_lower *lower, ul_node_id node, const struct pool *pool,
                          ul_kx *index, int64_t output)
{
    struct ul_kernel *kernel = lower->kernel;
    uint32_t count = ul_ks_var(kernel, UL_F32, ul_kx_float(kernel, UL_F32, 0));
    double weight = 1;
    uint32_t number = 0;
    for (uint32_t n = 1; n <= pool->count_count; n++) {
        for (int64_t at = pool->counts[n - 1]; at < section_end(pool, n); at += n, number++) {
            if (pool->indexes[number] != output)
                continue;
            weight = pool->weights != NULL ? pool->weights[number] : 1;
            if ((int64_t)n >= pool->min_gram && (int64_t)n <= pool->max_gram)
                count_gram(lower, node, pool, pool->numbers + at, n, index, count);
        }
    }
    return weigh(lower, node, ul_kx_var(kernel, count), weight);
}

void ul_text_lower_tfidf(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *x = ul_lower_input_type(lower, node, 0);
    struct pool pool = pool_of(&lower->graph->nodes[node]);
    ul_kx index[2];
    ul_kx place[2];
    if (x->rank == 2) {
        ul_lower_open(lower, 1, x->dims, index);
        place[0] = index[0];
    }
    for (int64_t output = 0; output < output_length(&pool); output++) {
        place[x->rank - 1] = ul_kx_index_const(lower->kernel, output);
        ul_kx value = count_output(lower, node, &pool, index, output);
        ul_lower_store(lower, lower->graph->nodes[node].outputs[0], place, value);
    }
    if (x->rank == 2)
        ul_lower_close(lower, 1);
}
