/* SPDX-License-Identifier: Apache-2.0 */
/* RotaryEmbedding as a map: each element reads its partner in the pair that is rotated. */
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/lower.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention.h"

struct rotary {
    bool is_flat, is_interleaved, has_positions;
    int64_t batch, length, size; /* of a head */
    int64_t rotated;             /* leading elements of a head that rotate */
    int64_t positions;           /* rows of the caches, where positions are given */
};

static const char *read_heads(struct rotary *r, const struct ul_node *node, const struct ul_type *x)
{
    int64_t heads = ul_node_get_int(node, "num_heads", 0);
    if (x->rank != 3 && x->rank != 4)
        return "the input must have rank 3 or 4";
    r->is_flat = x->rank == 3;
    if (r->is_flat && (heads < 1 || x->dims[2] % heads != 0))
        return "num_heads must divide the hidden size";
    r->batch = x->dims[0];
    r->length = x->dims[r->is_flat ? 1 : 2];
    r->size = r->is_flat ? x->dims[2] / heads : x->dims[3];
    r->rotated = ul_node_get_int(node, "rotary_embedding_dim", 0);
    r->rotated = r->rotated == 0 ? r->size : r->rotated;
    if (r->rotated < 0 || r->rotated > r->size || r->rotated % 2 != 0)
        return "rotary_embedding_dim, or the size of a head, must be even and not above it";
    return NULL;
}

static const char *read_rotary(struct rotary *r, const struct ul_node *node,
                               const struct ul_type *x, const struct ul_type *cosine,
                               const struct ul_type *sine, const struct ul_type *positions)
{
    *r = (struct rotary){.has_positions = positions != NULL,
                         .is_interleaved = ul_node_get_int(node, "interleaved", 0) != 0};
    const char *wrong = read_heads(r, node, x);
    if (wrong != NULL)
        return wrong;
    int64_t each[] = {r->batch, r->length, r->rotated / 2};
    if (positions == NULL &&
        (!ul_type_has_dims(cosine, 3, each) || !ul_type_has_dims(sine, 3, each)))
        return "without positions the caches must have the shape [batch, length, rotated / 2]";
    if (positions == NULL)
        return NULL;
    if (!ul_type_has_dims(positions, 2, each))
        return "position_ids must have the shape [batch, length]";
    int64_t table[] = {cosine->rank == 2 ? cosine->dims[0] : 0, r->rotated / 2};
    if (!ul_type_has_dims(cosine, 2, table) || !ul_type_has_dims(sine, 2, table) || table[0] == 0)
        return "the caches must have the shape [positions, rotated / 2]";
    r->positions = table[0];
    return NULL;
}

enum ul_status ul_infer_rotary(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0), *positions = ul_infer_input(infer, 3);
    enum ul_dtype dtype = x->dtype;
    if (dtype != UL_F32 && !ul_dtype_is_half(dtype) && dtype != UL_F64)
        return ul_infer_unsupported(infer, "RotaryEmbedding takes f16, bf16, f32 and f64, not %s",
                                    ul_dtype_get(dtype)->name);
    if (ul_infer_input(infer, 1)->dtype != dtype || ul_infer_input(infer, 2)->dtype != dtype)
        return ul_infer_invalid(infer, "the caches must have the type of the input");
    if (positions != NULL && positions->dtype != UL_I64)
        return ul_infer_invalid(infer, "position_ids must be int64");
    struct rotary r;
    const char *wrong = read_rotary(&r, infer->node, x, ul_infer_input(infer, 1),
                                    ul_infer_input(infer, 2), positions);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    ul_infer_set_type(infer, 0, x);
    return UL_OK;
}

/* Where the caches hold the angle of `pair` for the token at `index`. */
static uint32_t angle_index(struct ul_lower *lower, const struct ul_node *node,
                            const struct rotary *r, ul_kx batch, ul_kx position, ul_kx pair,
                            ul_kx angle[3])
{
    ul_kx token[] = {batch, position};
    if (!r->has_positions) {
        angle[0] = batch;
        angle[1] = position;
        angle[2] = pair;
        return 3;
    }
    ul_kx id = ul_lower_load(lower, node->inputs[3], token);
    angle[0] = ul_kx_checked_index(lower->kernel, id, r->positions, true);
    angle[1] = pair;
    return 2;
}

ul_kx ul_map_rotary(struct ul_lower *lower, ul_node_id node_id, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    struct rotary r;
    const char *wrong = read_rotary(
        &r, node, x, ul_lower_input_type(lower, node_id, 1), ul_lower_input_type(lower, node_id, 2),
        ul_lower_has_input(lower, node_id, 3) ? ul_lower_input_type(lower, node_id, 3) : NULL);
    UL_ASSERT(wrong == NULL && output == 0);
    ul_kx own = ul_lower_load(lower, node->inputs[0], index);
    if (r.rotated == 0)
        return own;
    uint32_t last = x->rank - 1;
    int64_t half = r.rotated / 2;
    ul_kx element = r.is_flat ? ul_kx_modi(kernel, index[last], r.size) : index[last];
    ul_kx at = ul_kx_clamp(kernel, element, r.rotated - 1), pair, is_first, shift;
    if (r.is_interleaved) {
        pair = ul_kx_divi(kernel, at, 2);
        is_first =
            ul_kx_binary(kernel, UL_KX_EQ, ul_kx_modi(kernel, at, 2), ul_kx_index_const(kernel, 0));
    } else {
        pair = ul_kx_modi(kernel, at, half);
        is_first = ul_kx_binary(kernel, UL_KX_LT, at, ul_kx_index_const(kernel, half));
    }
    int64_t distance = r.is_interleaved ? 1 : half;
    shift = ul_kx_select(kernel, is_first, ul_kx_index_const(kernel, distance),
                         ul_kx_index_const(kernel, -distance));
    ul_kx partner[4] = {index[0], index[1], index[2], index[last]};
    ul_kx start = ul_kx_sub(kernel, index[last], element);
    partner[last] = ul_kx_add(kernel, start, ul_kx_add(kernel, at, shift));
    ul_kx angle[3];
    uint32_t rank = angle_index(lower, node, &r, index[0], index[r.is_flat ? 1 : 2], pair, angle);
    UL_ASSERT(rank <= 3);
    ul_kx cosine = ul_lower_load(lower, node->inputs[1], angle);
    ul_kx sine = ul_lower_load(lower, node->inputs[2], angle);
    ul_kx other =
        ul_kx_binary(kernel, UL_KX_MUL, sine, ul_lower_load(lower, node->inputs[0], partner));
    other = ul_kx_select(kernel, is_first, ul_kx_unary(kernel, UL_KX_NEG, other), other);
    ul_kx turned =
        ul_kx_binary(kernel, UL_KX_ADD, ul_kx_binary(kernel, UL_KX_MUL, cosine, own), other);
    if (r.rotated == r.size)
        return turned;
    return ul_kx_select(
        kernel, ul_kx_binary(kernel, UL_KX_LT, element, ul_kx_index_const(kernel, r.rotated)),
        turned, own);
}
