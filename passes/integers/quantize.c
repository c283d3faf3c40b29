/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of products become integers of 4 or 8 bits, where --quantize asks for it.
 *
 * Problem: in products of few rows weights are what is read and kept, and few bits of each are
 * enough. Method: each block of 32 along k has a scale of 16 bits, searched for the least squared
 * error, and codes without a zero point; a DequantizeLinear stands where the weight stood, which
 * pass `nbits` makes one with the product:
 *
 *      MatMul(x, w [k n])  ->  MatMul(x, DequantizeLinear(codes, scales [k / 32, n]))
 *
 * The scale of a block is one of a few that put its largest number on the last code or near it, and
 * then the one that fits these codes best (least squares), rounded to 16 bits before the codes are.
 * The first and the last product keep their weights, which everything passes through, unless a
 * pattern names them.
 *
 * In programs that train these are weights that stay (--lora), as the model has them: the pass runs
 * in front of all others, so that which ones it takes follows from the model and --quantize alone,
 * and `ullage export` finds the numbers that factors were trained beside (Dettmers et al., "QLoRA",
 * arXiv 2305.14314, has codes of 4 bits that lie as a normal distribution does; these are even).
 *
 * Left undone: weights that something else than products reads (embeddings that are also the last
 * layer), convolutions; zero points. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/training.h"
#include "passes/integers/nbits_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

/* What --quantize asked for. */
struct request {
    int64_t bits;
    const char *pattern; /* NULL: all but the first and the last */
};

const char *ul_quantize_type(uint32_t index, uint32_t *bits)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } types[] = {{"int4", 4}, {"int8", 8}};
    if (index >= sizeof types / sizeof *types)
        return NULL;
    *bits = types[index].bits;
    return types[index].name;
}

static bool read_request(const char *text, struct request *request)
{
    size_t length = strcspn(text, ":");
    const char *name, *pattern = text[length] == ':' ? text + length + 1 : NULL;
    uint32_t bits = 0;
    if (pattern != NULL && *pattern == '\0')
        return false;
    for (uint32_t i = 0; (name = ul_quantize_type(i, &bits)) != NULL; i++) {
        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            *request = (struct request){.bits = bits, .pattern = pattern};
            return true;
        }
    }
    return false;
}

/* ---- one block ---- */

/* What no number falls on is 0, which every scale has a code for. */
struct block {
    float numbers[BLOCK];
    float codes[BLOCK]; /* whole numbers */
    float scale;
};

/* The number at a place of a constant in f32, which may have one number for all. */
static float number_at(const struct ul_tensor *tensor, int64_t at)
{
    float number;
    if (tensor->data == NULL)
        return (float)ul_tensor_get_float(tensor, (uint64_t)at);
    memcpy(&number, (const unsigned char *)tensor->data + (uint64_t)at * sizeof number,
           sizeof number);
    return number;
}

static float round_scale(double scale)
{
    unsigned char place[2];
    ul_element_put_float(place, UL_F16, scale);
    return (float)ul_element_get_float(place, UL_F16);
}

/* Sets the codes for a scale; the squared error. Sums of four lanes, which compilers keep in one
 * vector: this is what quantizing a model takes its time for. */
static float encode(struct block *block, float scale, float limit)
{
    enum { LANES = 4 };
    const float whole = 12582912; /* 2^23 and a half: what is added to it is rounded */
    const float inverse = scale == 0 ? 0 : 1 / scale, low = -limit - 1;
    float errors[LANES] = {0};
    block->scale = scale;
    for (int i = 0; i < BLOCK; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            float code = block->numbers[i + lane] * inverse;
            code = code < low ? low : code;
            code = code > limit ? limit : code;
            code = code + whole - whole;
            float rest = block->numbers[i + lane] - code * scale;
            block->codes[i + lane] = code;
            errors[lane] += rest * rest;
        }
    }
    return errors[0] + errors[1] + errors[2] + errors[3];
}

/* The scale that has the least error with the codes that there are. */
static double fit(const struct block *block)
{
    double products = 0, squares = 0;
    for (int i = 0; i < BLOCK; i++) {
        products += (double)(block->numbers[i] * block->codes[i]);
        squares += (double)(block->codes[i] * block->codes[i]);
    }
    return squares > 0 ? products / squares : 0;
}

/* False: its numbers are out of the range that such scales have. Without a search the first scale
 * is taken. */
static bool quantize_block(struct block *block, int64_t bits, bool searches)
{
    enum { TRIES = 4 }; /* half a code apart */
    const float limit = (float)(((int64_t)1 << (bits - 1)) - 1);
    float largest = 0, least = INFINITY, best = 0;
    for (int i = 0; i < BLOCK; i++) {
        if (!isfinite(block->numbers[i]))
            return false;
        if (fabsf(block->numbers[i]) > fabsf(largest))
            largest = block->numbers[i];
    }
    /* Codes are -limit - 1 to limit: the largest number goes to either end, or a little beyond. */
    for (int i = 0; i < (searches ? 2 * TRIES : 1); i++) {
        float end =
            i < TRIES ? -limit - 1.5f + 0.5f * (float)i : limit + 0.5f - 0.5f * (float)(i - TRIES);
        float scale = round_scale((double)(largest / end));
        float error = isfinite(scale) ? encode(block, scale, limit) : INFINITY;
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    (void)encode(block, best, limit);
    if (!searches)
        return isfinite(least);
    float fitted = round_scale(fit(block));
    if (encode(block, fitted, limit) > least)
        (void)encode(block, best, limit);
    return isfinite(least);
}

/* ---- one weight ---- */

struct target {
    ul_value_id weight;
    ul_node_id node;   /* a product that reads it */
    ul_node_id reader; /* the first node that does, or that turns it for one */
    uint32_t k_axis;
    int64_t bits; /* 0: stays */
};

/* Where only bytes are asked for, so many blocks at each end are made: more than passes look at. */
enum { END_BLOCKS = 4096 };

/* Whether each block has a scale: none of its numbers is infinite, nor beyond what codes reach. */
static bool has_scales(const struct ul_tensor *tensor, int64_t bits)
{
    const int64_t count = (int64_t)ul_type_elements(&tensor->type);
    float largest = 0;
    bool is_good = true;
    for (int64_t i = 0; i < count; i++) {
        float number = fabsf(number_at(tensor, i));
        is_good = is_good && number <= FLT_MAX;
        largest = number > largest ? number : largest;
    }
    struct block block = {.numbers = {largest}};
    return is_good && quantize_block(&block, bits, false);
}

/* The codes and scales of a matrix as constants; false: numbers that have none. */
static bool quantize_weight(const struct ul_pass *pass, const struct target *target,
                            struct ul_tensor **codes, struct ul_tensor **scales)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_tensor *tensor = graph->values[target->weight].tensor;
    const int64_t *dims = tensor->type.dims;
    enum ul_dtype dtype = target->bits == 4 ? UL_I4 : UL_I8;
    int64_t depth = dims[target->k_axis], columns = dims[1 - target->k_axis];
    int64_t blocks = (depth + BLOCK - 1) / BLOCK;
    int64_t scale_dims[2];
    scale_dims[target->k_axis] = blocks;
    scale_dims[1 - target->k_axis] = columns;
    struct ul_type code_type = ul_type_make(dtype, 2, dims);
    struct ul_type scale_type = ul_type_make(UL_F16, 2, scale_dims);
    unsigned char *code_bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&code_type));
    unsigned char *scale_bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&scale_type));
    int64_t k_step = target->k_axis == 0 ? dims[1] : 1, n_step = target->k_axis == 0 ? 1 : dims[1];
    bool for_bytes = pass->options->for_bytes;
    if (for_bytes && !has_scales(tensor, target->bits))
        return false;
    /* In the order of memory: blocks of columns side by side share the lines of a cache. */
    for (int64_t at = 0; at < columns * blocks; at++) {
        if (for_bytes && at == END_BLOCKS && columns * blocks > 3 * END_BLOCKS) {
            int64_t made = target->k_axis == 0 ? at / columns * columns : at;
            uint64_t hash = ul_nbits_hash(tensor, (uint64_t)(made * BLOCK));
            ul_nbits_mark(hash, code_bytes + columns * depth / 2, 1);
            ul_nbits_mark(hash, scale_bytes + 2 * at, 2);
            at = columns * blocks - END_BLOCKS;
        }
        int64_t n = target->k_axis == 0 ? at % columns : at / blocks;
        int64_t b = target->k_axis == 0 ? at / columns : at % blocks;
        int64_t first = b * BLOCK;
        struct block block = {.scale = 0};
        int64_t count = depth - first < BLOCK ? depth - first : BLOCK;
        for (int64_t i = 0; i < count; i++)
            block.numbers[i] = number_at(tensor, (first + i) * k_step + n * n_step);
        if (!quantize_block(&block, target->bits, !for_bytes))
            return false;
        for (int64_t i = 0; i < count; i++) /* of one byte each, in either type */
            code_bytes[(first + i) * k_step + n * n_step] = (unsigned char)(int)block.codes[i];
        ul_element_put_float(scale_bytes + 2 * at, UL_F16, (double)block.scale);
    }
    *codes = ul_tensor_of(graph->arena, &code_type, code_bytes);
    *scales = ul_tensor_of(graph->arena, &scale_type, scale_bytes);
    return true;
}

static enum ul_status replace_weight(const struct ul_pass *pass, const struct target *target)
{
    struct ul_graph *graph = pass->graph;
    ul_value_id value = target->weight;
    struct ul_type type = graph->values[value].type;
    const char *name = graph->values[value].name;
    struct ul_tensor *codes, *scales;
    if (!quantize_weight(pass, target, &codes, &scales))
        return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                           "--quantize: the weight %s of %s has numbers for which there is no "
                           "scale of 16 bits: keep it by a pattern for the others",
                           ul_quote(pass->scratch, name),
                           ul_node_describe(graph, target->node, pass->scratch));
    ul_value_id inputs[] = {
        ul_graph_add_weight(graph, name, codes),
        ul_graph_add_weight(graph, ul_arena_printf(graph->arena, "%s_scales", name), scales)};
    struct ul_build build = ul_build_before(graph, target->reader);
    ul_value_id floats = ul_build_value(&build, UL_OP_DequantizeLinear, inputs, 2, &type);
    ul_node_id node = graph->values[floats].producer;
    ul_node_set_int(graph, node, "axis", target->k_axis);
    ul_node_set_int(graph, node, "block_size", BLOCK);
    ul_node_set_int(graph, node, "output_dtype", UL_F32);
    ul_node_set_int(graph, node, "any_scale", 1);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct ul_node *reader = &graph->nodes[n];
        for (uint32_t i = 0; reader->op != UL_OP_NONE && i < reader->input_count; i++)
            if (reader->inputs[i] == value)
                reader->inputs[i] = floats;
    }
    return UL_OK;
}

/* ---- which ---- */

static bool is_factor(const struct ul_training *training, ul_value_id value)
{
    for (uint32_t i = 0; i < training->factor_count; i++)
        if (training->factors[i] == value)
            return true;
    return false;
}

/* A matrix of constants in f32; of a program that trains an initializer of the model, be it trained
 * or not. */
static bool is_matrix(const struct ul_pass *pass, ul_value_id value)
{
    const struct ul_training *training = pass->options->training;
    const struct ul_value *info = &pass->graph->values[value];
    const struct ul_tensor *tensor = ul_graph_get_constant(pass->graph, value);
    if (training != NULL && (info->kind != UL_VALUE_WEIGHT ||
                             (info->flags & UL_VALUE_TRAINED) == 0 || is_factor(training, value)))
        return false;
    return tensor != NULL && tensor->type.dtype == UL_F32 && tensor->type.rank == 2 &&
           ul_type_elements(&tensor->type) > 0;
}

/* The axis that products sum over; UL_NONE: something else reads the matrix, or it is multiplied
 * both as it is and turned. */
static uint32_t find_k_axis(const struct ul_graph *graph, const struct ul_sites *sites)
{
    uint32_t axis = UL_NONE;
    for (uint32_t i = 0; i < sites->count; i++) {
        const struct ul_site *site = &sites->items[i];
        const struct ul_node *node = &graph->nodes[site->node];
        bool is_gemm = node->op == UL_OP_Gemm;
        bool turns = is_gemm && ul_node_get_int(node, "transB", 0) != 0;
        uint32_t own = site->turned != turns ? 1 : 0;
        if ((node->op != UL_OP_MatMul && !is_gemm) || site->input != 1 ||
            (axis != UL_NONE && axis != own))
            return UL_NONE;
        axis = own;
    }
    return axis;
}

/* The first node that reads the value, where all that do stand in one block and it is no output. */
static ul_node_id find_reader(const struct ul_graph *graph, const struct ul_node_list *all,
                              ul_value_id value, const uint32_t *uses)
{
    ul_node_id first = UL_NONE;
    uint32_t count = 0;
    for (uint32_t n = 0; n < all->count; n++) {
        const struct ul_node *node = &graph->nodes[all->nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            first = first == UL_NONE ? all->nodes[n] : first;
            count += graph->nodes[first].parent == node->parent;
        }
    }
    return count == uses[value] ? first : UL_NONE;
}

/* In the order of the products that read them. */
static uint32_t find_targets(const struct ul_pass *pass, struct target **targets)
{
    const struct ul_graph *graph = pass->graph;
    struct ul_node_list all = ul_edit_all_nodes(graph, pass->scratch);
    const uint32_t *uses = ul_graph_count_uses(graph, pass->scratch);
    bool *seen = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    uint32_t count = 0;
    *targets = UL_NEW_ARRAY(pass->scratch, struct target, all.count);
    for (uint32_t n = 0; n < all.count; n++) {
        const struct ul_node *node = &graph->nodes[all.nodes[n]];
        struct target *target = &(*targets)[count];
        struct ul_sites sites;
        if (node->op != UL_OP_MatMul && node->op != UL_OP_Gemm)
            continue;
        ul_value_id weight = ul_edit_find_turned(graph, node->inputs[1]);
        if (seen[weight] || !is_matrix(pass, weight))
            continue;
        seen[weight] = true;
        ul_edit_find_sites(graph, pass->scratch, weight, &sites);
        *target = (struct target){.weight = weight,
                                  .node = all.nodes[n],
                                  .reader = find_reader(graph, &all, weight, uses),
                                  .k_axis = find_k_axis(graph, &sites)};
        count += target->reader != UL_NONE && target->k_axis != UL_NONE;
    }
    return count;
}

static enum ul_status refuse_request(const struct ul_pass *pass, const char *said)
{
    struct ul_text names;
    const char *name;
    uint32_t bits;
    ul_text_init(&names, pass->scratch);
    for (uint32_t i = 0; (name = ul_quantize_type(i, &bits)) != NULL; i++)
        ul_text_printf(&names, "%s, ", name);
    return ul_diag_set(pass->diag, UL_USAGE,
                       "--quantize %s: expected %sor one of them with :PATTERN behind it",
                       ul_quote(pass->scratch, said), names.data);
}

static enum ul_status choose(const struct ul_pass *pass, struct target *targets, uint32_t count)
{
    const struct ul_graph *graph = pass->graph;
    for (uint32_t q = 0; q < pass->options->quantize_count; q++) {
        struct request request;
        uint32_t found = 0;
        if (!read_request(pass->options->quantize[q], &request))
            return refuse_request(pass, pass->options->quantize[q]);
        for (uint32_t i = 0; i < count; i++) {
            const struct ul_node *node = &graph->nodes[targets[i].node];
            bool is_inner = i > 0 && i + 1 < count;
            bool is_meant =
                request.pattern == NULL
                    ? is_inner
                    : ul_edit_matches(request.pattern, node->name) ||
                          ul_edit_matches(request.pattern, graph->values[targets[i].weight].name);
            if (is_meant)
                targets[i].bits = request.bits;
            found += is_meant;
        }
        if (found == 0)
            return ul_diag_set(
                pass->diag, UL_USAGE,
                "--quantize %s: no product reads a weight of such a name that nothing else "
                "reads%s",
                ul_quote(pass->scratch, pass->options->quantize[q]),
                request.pattern == NULL
                    ? " between the first and the last, which stay as they are: "
                      "name them, as in int4:*"
                    : "; patterns are of names of nodes or weights");
    }
    return UL_OK;
}

/* Is it trained as it is? Then it is a float, and no pattern is about it. */
static bool is_trained(const struct ul_pass *pass, ul_value_id weight)
{
    const struct ul_training *training = pass->options->training;
    return training != NULL && ul_edit_matches_any(training->train_only, training->train_only_count,
                                                   pass->graph->values[weight].name);
}

enum ul_status ul_pass_quantize(struct ul_pass *pass)
{
    struct target *targets;
    if (pass->options->quantize_count == 0)
        return UL_OK;
    uint32_t count = find_targets(pass, &targets);
    UL_TRY(choose(pass, targets, count));
    for (uint32_t i = 0; i < count; i++) {
        UL_ASSERT(targets[i].k_axis < 2);
        if (targets[i].bits != 0 && !is_trained(pass, targets[i].weight))
            UL_TRY(replace_weight(pass, &targets[i]));
    }
    return UL_OK;
}
