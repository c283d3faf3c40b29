/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of a few bits as calls: src [m, k] times codes [n, blocks, bytes], and
 * their gradients, src [m, n] times the same codes transposed.
 *
 * Such a call is the program's own (runtime/cpu/ul_nbits.c) on targets that run it;
 * ul_nbits_supports checks the layouts that it needs. Its weights are described as the matrix that
 * they stand for, f32 [k, n] or [n, k], so that post-operations and the batch are joined as in
 * other products.
 *
 * A convolution whose weights come from a constant of 8 or 16 bits, by a Cast, a Cast and a Mul by
 * a scale for each channel of the result, or a Dequantize, is such a call too, together with these
 * nodes:
 *
 *      [ Cast -> Mul ] -> Conv -> Relu
 *
 * Left undone: groups of k in any order (g_idx), odd numbers of bits, floats of 6 bits and those
 * without a -0, scales of blocks that are not along k; transposed convolutions that pass phases
 * leaves. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include "ir/geometry.h"
#include "runtime/lib/ul_nbits.h"

/* ---- products ---- */

static enum ul_call_type type_of(enum ul_dtype dtype)
{
    return dtype == UL_F16 ? UL_CALL_F16 : dtype == UL_BF16 ? UL_CALL_BF16 : UL_CALL_F32;
}

/* The type of codes that are floats. UL_CALL_F32: the codes are integers, or floats that no call
 * reads. */
static enum ul_call_type float_type_of(enum ul_dtype dtype)
{
    return dtype == UL_F8E4M3FN ? UL_CALL_F8E4M3FN
           : dtype == UL_F8E5M2 ? UL_CALL_F8E5M2
           : dtype == UL_F4E2M1 ? UL_CALL_F4E2M1
                                : type_of(dtype);
}

static bool is_whole(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->kind == UL_VALUE_WEIGHT && info->view.base == value &&
           info->storage == UL_DTYPE_NONE && (info->flags & UL_VALUE_PERSISTENT) == 0;
}

/* Whether all are 1, which no program stores. */
static bool is_one(const struct ul_graph *graph, ul_value_id scales)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, scales);
    return tensor != NULL && tensor->data == NULL && ul_tensor_get_float(tensor, 0) == 1;
}

/* Scales, and zero points if there are any, as the runtime reads them. */
static bool describe_tables(struct ul_describer *describer, const struct ul_node *node,
                            const struct ul_nbits *nbits, const struct ul_type *const types[6])
{
    struct ul_group_call *out = describer->out;
    struct ul_call_nbits *call = &out->call.nbits;
    call->bits = (uint32_t)nbits->bits;
    call->block = nbits->block < nbits->depth ? nbits->block : nbits->depth;
    call->code_type = float_type_of(nbits->is_e2m1 ? UL_F4E2M1 : nbits->dtype);
    call->zero = (uint32_t)nbits->zero;
    call->scale_type = type_of(types[UL_NBITS_SCALES]->dtype);
    call->turned = node->op == UL_OP_MatMulNBitsGradient;
    bool is_float = call->code_type != UL_CALL_F32;
    call->by_bytes =
        nbits->in_bytes && call->block <= UL_NBITS_BYTE_DEPTH && !call->turned && !is_float;
    if (types[UL_NBITS_ZEROS] != NULL)
        call->zeros = nbits->zeros_packed ? UL_NBITS_PACKED : UL_NBITS_FLOATS;
    if ((call->zeros == UL_NBITS_FLOATS && types[UL_NBITS_ZEROS]->dtype != UL_F32) ||
        (call->zeros != UL_NBITS_FIXED && is_float) || (nbits->dtype != UL_U8 && !is_float))
        return false;
    if (!is_one(describer->graph, node->inputs[UL_NBITS_SCALES]))
        out->args[UL_NBITS_ARG_SCALES] = node->inputs[UL_NBITS_SCALES];
    out->args[UL_NBITS_ARG_ZEROS] =
        types[UL_NBITS_ZEROS] != NULL ? node->inputs[UL_NBITS_ZEROS] : UL_NONE;
    out->arg_count = UL_NBITS_FIRST_POST;
    return is_whole(describer->graph, node->inputs[UL_NBITS_B]) &&
           is_whole(describer->graph, node->inputs[UL_NBITS_SCALES]);
}

static void describe_matrix(struct ul_call *call, const struct ul_nbits *nbits)
{
    int64_t rows = call->nbits.turned ? nbits->columns : nbits->depth;
    int64_t columns = call->nbits.turned ? nbits->depth : nbits->columns;
    call->weights = (struct ul_call_tensor){.rank = call->dst.rank};
    for (uint32_t d = 0; d < call->dst.rank; d++)
        call->weights.dims[d] = 1;
    call->weights.dims[call->dst.rank - 2] = rows;
    call->weights.dims[call->dst.rank - 1] = columns;
    call->weights.strides[call->dst.rank - 2] = columns;
    call->weights.strides[call->dst.rank - 1] = 1;
}

bool ul_describe_nbits(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    const struct ul_type *types[6] = {NULL};
    struct ul_nbits nbits;
    for (uint32_t i = 0; i < node->input_count; i++)
        types[i] = node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]].type;
    if (ul_nbits_read(&nbits, node, types) != NULL || !nbits.by_block ||
        ul_node_get_int(node, "round_to", UL_DTYPE_NONE) != UL_DTYPE_NONE ||
        types[UL_NBITS_GROUPS] != NULL || nbits.scale_k != nbits.block || nbits.scale_n != 1 ||
        types[UL_NBITS_A]->rank < 2 ||
        !ul_describe_tensor(graph, node->inputs[UL_NBITS_A], &out->call.src) ||
        !ul_describe_tensor(graph, out->args[UL_CALL_DST], &out->call.dst) ||
        !describe_tables(describer, node, &nbits, types))
        return false;
    out->call.kind = UL_CALL_NBITS;
    out->args[UL_CALL_SRC] = node->inputs[UL_NBITS_A];
    out->args[UL_CALL_WEIGHTS] = node->inputs[UL_NBITS_B];
    describe_matrix(&out->call, &nbits);
    out->product_count = ul_describe_products(1, out->call.dst.rank, out->call.dst.dims);
    out->product_count = ul_describe_products(
        out->product_count, 1, out->call.nbits.turned ? &nbits.columns : &nbits.depth);
    return types[UL_NBITS_BIAS] == NULL || ul_describe_add(describer, node->inputs[UL_NBITS_BIAS]);
}

/* ---- convolutions ---- */

/* A constant, and the nodes that make floats from it; values UL_NONE: none. */
struct stored {
    ul_value_id codes, scales, zeros;
};

static bool widens(ul_op_id op)
{
    return op == UL_OP_Cast || op == UL_OP_Mul || op == UL_OP_Dequantize;
}

uint32_t ul_describe_front(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count)
{
    uint32_t front = 0;
    while (front < count && widens(graph->nodes[nodes[front]].op))
        front++;
    return front < count && graph->nodes[nodes[front]].op == UL_OP_Conv ? front : 0;
}

static bool makes_floats(const struct ul_graph *graph, const struct ul_node *node)
{
    return graph->values[node->outputs[0]].type.dtype == UL_F32;
}

/* `front` nodes that only make `weights`. */
static bool read_stored(const struct ul_describer *describer, const ul_node_id *nodes,
                        uint32_t front, ul_value_id weights, struct stored *stored)
{
    const struct ul_graph *graph = describer->graph;
    const struct ul_node *first = &graph->nodes[nodes[0]], *last = &graph->nodes[nodes[front - 1]];
    *stored = (struct stored){first->inputs[0], UL_NONE, UL_NONE};
    for (uint32_t i = 0; i < front; i++) {
        if (describer->escapes[graph->nodes[nodes[i]].outputs[0]])
            return false;
    }
    if (last->outputs[0] != weights || !makes_floats(graph, first))
        return false;
    if (front == 1 && last->op == UL_OP_Dequantize) {
        stored->scales = last->inputs[1];
        stored->zeros = last->input_count > 2 ? last->inputs[2] : UL_NONE;
        return true;
    }
    if (first->op != UL_OP_Cast)
        return false;
    if (front == 1)
        return true;
    uint32_t at = last->inputs[0] == first->outputs[0] ? 1 : 0;
    stored->scales = last->inputs[at];
    return front == 2 && last->op == UL_OP_Mul && last->inputs[1 - at] == first->outputs[0] &&
           stored->scales != first->outputs[0];
}

/* Whether a constant has one element for each channel of the result, in other dimensions. */
static bool is_by_channel(const struct ul_graph *graph, ul_value_id value, ul_value_id codes)
{
    const struct ul_type *type = &graph->values[value].type;
    const struct ul_type *whole = &graph->values[codes].type;
    const struct ul_view *view = &graph->values[value].view;
    return view->base != UL_NONE && is_whole(graph, view->base) && view->offset_bytes == 0 &&
           type->rank == whole->rank && type->dims[0] == whole->dims[0] &&
           (type->dims[0] == 1 || view->strides[0] == 1) &&
           ul_type_elements(type) == (uint64_t)whole->dims[0];
}

static bool describe_codes(const struct ul_graph *graph, ul_value_id codes,
                           struct ul_call_nbits *nbits)
{
    enum ul_dtype dtype = graph->values[codes].type.dtype;
    enum ul_call_type type = float_type_of(dtype);
    nbits->bits = ul_dtype_is_half(dtype) ? 16 : 8;
    nbits->code_type = dtype == UL_I8 ? UL_CALL_I8 : dtype == UL_U8 ? UL_CALL_U8 : type;
    nbits->zero = dtype == UL_I8 ? 128 : 0;
    return is_whole(graph, codes) && nbits->code_type != UL_CALL_F32 && dtype != UL_F4E2M1;
}

static bool describe_scales(struct ul_describer *describer, const struct stored *stored)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    double number;
    if (stored->scales == UL_NONE)
        return true;
    if (ul_graph_get_number(graph, stored->scales, &number)) {
        out->call.nbits.scale = (float)number;
        return out->call.nbits.scale != 0 && number == (double)out->call.nbits.scale;
    }
    enum ul_dtype dtype = graph->values[stored->scales].type.dtype;
    out->call.nbits.scale_type = type_of(dtype);
    out->args[UL_NBITS_ARG_SCALES] = stored->scales;
    return (dtype == UL_F32 || ul_dtype_is_half(dtype)) &&
           is_by_channel(graph, stored->scales, stored->codes);
}

static bool describe_stored_zeros(struct ul_describer *describer, const struct stored *stored)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    struct ul_call_nbits *nbits = &out->call.nbits;
    double number;
    bool is_float = nbits->code_type != UL_CALL_U8 && nbits->code_type != UL_CALL_I8;
    /* for floats it is 0, the only value that ONNX allows */
    if (stored->zeros == UL_NONE || is_float)
        return true;
    if (nbits->bits != 8 ||
        graph->values[stored->zeros].type.dtype != graph->values[stored->codes].type.dtype)
        return false;
    if (ul_graph_get_number(graph, stored->zeros, &number)) {
        nbits->zero = (uint32_t)((int32_t)nbits->zero + (int32_t)number);
        return true;
    }
    nbits->zeros = UL_NBITS_PACKED;
    out->args[UL_NBITS_ARG_ZEROS] = stored->zeros;
    return is_by_channel(graph, stored->zeros, stored->codes);
}

bool ul_describe_stored(struct ul_describer *describer, const ul_node_id *nodes, uint32_t front,
                        const struct ul_node *node)
{
    struct ul_group_call *out = describer->out;
    struct stored stored;
    if (!read_stored(describer, nodes, front, node->inputs[1], &stored) ||
        !describe_codes(describer->graph, stored.codes, &out->call.nbits) ||
        !describe_scales(describer, &stored) || !describe_stored_zeros(describer, &stored))
        return false;
    out->args[UL_CALL_WEIGHTS] = stored.codes;
    out->arg_count = UL_NBITS_FIRST_POST;
    return true;
}

void ul_describe_stored_end(struct ul_call *call)
{
    UL_ASSERT(call->kind == UL_CALL_CONVOLUTION && call->src.rank > 2);
    call->kind = UL_CALL_NBITS;
    call->nbits.block = ul_nbits_depth(call);
}

/* ---- the row ---- */

static bool answer(void *context, struct ul_group_call *group, bool pack)
{
    const struct ul_own *own = context;
    struct ul_call *call = &group->call;
    struct ul_nbits_cut cut;
    if (call->kind != UL_CALL_NBITS || !pack || !ul_nbits_supports(call))
        return false;
    struct ul_pack *layout = UL_NEW(own->arena, struct ul_pack);
    ul_nbits_cut_init(&cut, call, own->thread_count);
    if (ul_nbits_is_window(call))
        ul_nbits_pack_window(layout, &cut, call);
    else
        ul_nbits_pack(layout, &cut);
    call->pack = layout;
    call->layout = *layout;
    call->implementation = call->nbits.by_bytes ? "ullage nbits int8" : "ullage nbits";
    call->tail_count = 0; /* it does all itself */
    call->scratch_bytes = cut.scratch_bytes;
    UL_ASSERT(layout->size_bytes > 0);
    return true;
}

static const struct ul_library_file files[] = {{.name = "ul_nbits.c", .is_native = true},
                                               {.name = "ul_posts.c", .is_native = true},
                                               {.name = NULL}};

const struct ul_target_library ul_nbits_library = {.name = "weights of a few bits",
                                                   .is_own = true,
                                                   .own_code_bytes = 112 << 10, /* 101 KB of it */
                                                   .symbol = "ul_nbits",
                                                   .files = files,
                                                   .open = ul_own_open,
                                                   .reopen = ul_own_reopen,
                                                   .answer = answer};
