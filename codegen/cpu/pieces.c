/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of calls: does the library compute a piece of a call with the bits of the whole?
 *
 * Problem: chains are computed in pieces to keep a budget (passes/memory/split.c), and a piece must
 * have the bits that the whole has. Method: a piece is a call of the same implementation on the
 * same weights, packed as for the whole, so that both share them. A plan may hold it if a trial
 * (trial.c) of it has the bits of a trial of the whole, in its rows.
 *
 * Sums of integers need no trial: they are exact.
 *
 * Results are cached: a search for splits asks about the same pieces many times, and all pieces of
 * a call are compared with one run of the whole. The memory of each trial is bounded, and so are
 * the products of all together; calls beyond that get no answer, and are not split.
 *
 * A library whose implementations are chosen when the program starts (cuBLASLt, cuDNN) promises no
 * order of additions that a plan could rely on: pieces of its calls are calls of their own, or
 * kernels, and correct to rounding like any of them.
 *
 * The results hold on machines with the same instruction set and caches, for the planned number of
 * threads. Left undone: pieces of channels; calls by Winograd's method; gradients of weights. */
#include "codegen/cpu/dnnl_internal.h"

#include <string.h>

#define MAX_TRIAL_BYTES ((uint64_t)1 << 30)
#define MAX_TRIAL_PRODUCTS ((uint64_t)1 << 38)

/* The bits of a call, by rows along an axis; `good`: it was run, and the bits are known. */
struct rows {
    struct ul_call call;
    uint32_t axis;
    uint64_t product_count;
    uint32_t asked_by; /* the last compile that asked, from 1 on */
    bool is_allowed;   /* for that compile, by the limit on its trials */
    bool has_run, good;
    uint64_t *hashes;
};

/* A call that was split. */
struct unsplit {
    struct rows rows;
    struct unsplit *next;
};

/* A piece of it, wherever it is. */
struct piece {
    struct ul_call requested;
    struct unsplit *unsplit;
    bool served; /* the library has the implementation for it */
    struct rows rows;
    struct piece *next; /* with the same hash */
};

struct ul_pieces {
    uint32_t compile;       /* the compile that asks, from 1 on */
    uint64_t product_count; /* in all its trials so far */
    struct unsplit *wholes;
    struct piece *table[UL_DNNL_TABLE];
};

/* ---- what can be compared ---- */

/* Sums of integers are the same in any order, and the same implementation computes what follows
 * them element by element. */
static bool is_exact(const struct ul_call *call)
{
    return ul_call_is_integer(call);
}

/* Whether the tensors differ only in their rows. */
static bool is_alike(const struct ul_call_tensor *piece, const struct ul_call_tensor *unsplit,
                     uint32_t axis)
{
    /* Results of 16 bits hide the bits of their sums: comparing them shows nothing. */
    bool alike = piece->rank == unsplit->rank && piece->type == unsplit->type &&
                 unsplit->type != UL_CALL_F16 && unsplit->type != UL_CALL_BF16;
    for (uint32_t d = 0; alike && d < unsplit->rank; d++)
        alike =
            piece->dims[d] == unsplit->dims[d] || (d == axis && piece->dims[d] < unsplit->dims[d]);
    return alike;
}

/* A residual may be added in the place of the result, or as an operand. */
static bool has_same_posts(const struct ul_call *piece, const struct ul_call *unsplit,
                           uint32_t axis)
{
    bool same = piece->post_count == unsplit->post_count;
    for (uint32_t i = 0; same && i < piece->post_count; i++) {
        const struct ul_post *a = &piece->posts[i], *b = &unsplit->posts[i];
        bool adds = (a->kind == UL_POST_ADD || a->kind == UL_POST_SUM) &&
                    (b->kind == UL_POST_ADD || b->kind == UL_POST_SUM);
        same = (a->kind == b->kind || adds) && a->alpha == b->alpha && a->beta == b->beta &&
               is_alike(a->kind == UL_POST_SUM ? &piece->dst : &a->tensor,
                        b->kind == UL_POST_SUM ? &unsplit->dst : &b->tensor, axis);
    }
    return same;
}

static bool has_same_numbers(const struct ul_call *piece, const struct ul_call *unsplit)
{
    return piece->src_zero_kind == unsplit->src_zero_kind && piece->src_zero == unsplit->src_zero &&
           piece->dst_zero == unsplit->dst_zero && piece->scale == unsplit->scale &&
           piece->scales_value == unsplit->scales_value;
}

/* The split axis of the result (the first where none is split) must be one along which nothing is
 * added, and the calls must be otherwise alike. */
static bool find_axis(const struct ul_call *piece, const struct ul_call *unsplit, uint32_t *axis)
{
    uint32_t rank = unsplit->dst.rank;
    bool is_product = unsplit->kind == UL_CALL_MATMUL;
    bool adds_channels =
        unsplit->kind == UL_CALL_CONVOLUTION || unsplit->kind == UL_CALL_DECONVOLUTION;
    if (piece->kind != unsplit->kind || piece->dst.rank != rank)
        return false;
    *axis = 0;
    for (uint32_t d = rank; d-- > 0;)
        *axis = piece->dst.dims[d] != unsplit->dst.dims[d] ? d : *axis;
    bool batch = is_product && *axis + 2 < rank;
    if ((is_product && *axis + 1 == rank) || (adds_channels && *axis == 1))
        return false;
    return piece->group_count == unsplit->group_count && has_same_numbers(piece, unsplit) &&
           memcmp(piece->window, unsplit->window, sizeof piece->window) == 0 &&
           memcmp(piece->steps, unsplit->steps, sizeof piece->steps) == 0 &&
           memcmp(piece->dilations, unsplit->dilations, sizeof piece->dilations) == 0 &&
           is_alike(&piece->dst, &unsplit->dst, *axis) &&
           is_alike(&piece->src, &unsplit->src, *axis) &&
           is_alike(&piece->weights, &unsplit->weights, batch ? *axis : UL_NONE) &&
           is_alike(&piece->bias, &unsplit->bias, UL_NONE) && has_same_posts(piece, unsplit, *axis);
}

/* ---- trials ---- */

static bool may_try(const struct ul_pieces *pieces, const struct rows *rows)
{
    return ul_trial_bytes(&rows->call) <= MAX_TRIAL_BYTES &&
           rows->product_count <= MAX_TRIAL_PRODUCTS - pieces->product_count;
}

static void run_trial(struct ul_dnnl *dnnl, struct rows *rows, const struct ul_call *unsplit)
{
    const struct ul_piece_trial trial = {
        .unsplit = unsplit, .piece = &rows->call, .axis = rows->axis};
    rows->hashes = UL_NEW_ARRAY(dnnl->arena, uint64_t, (uint64_t)rows->call.dst.dims[rows->axis]);
    rows->good = ul_trial_run(dnnl, &trial, rows->hashes);
    rows->has_run = true;
}

static bool is_tried(const struct ul_dnnl *dnnl, const struct rows *rows)
{
    return rows->asked_by == dnnl->pieces->compile;
}

/* Whether the rows' bits are known; the first call finds them. Bits that another compile found
 * count as work of this one too, so that its answers do not depend on the other. */
static bool has_bits(struct ul_dnnl *dnnl, struct rows *rows, const struct ul_call *unsplit)
{
    struct ul_pieces *pieces = dnnl->pieces;
    if (!is_tried(dnnl, rows)) {
        rows->asked_by = pieces->compile;
        rows->is_allowed = may_try(pieces, rows);
        pieces->product_count += rows->is_allowed ? rows->product_count : 0;
    }
    if (rows->is_allowed && !rows->has_run)
        run_trial(dnnl, rows, unsplit);
    return rows->is_allowed && rows->good;
}

/* ---- answers ---- */

static struct unsplit *whole_of(struct ul_dnnl *dnnl, const struct ul_call *call, uint32_t axis,
                                uint64_t product_count)
{
    struct unsplit *unsplit = dnnl->pieces->wholes;
    while (unsplit != NULL &&
           (unsplit->rows.axis != axis || memcmp(&unsplit->rows.call, call, sizeof *call) != 0))
        unsplit = unsplit->next;
    if (unsplit != NULL)
        return unsplit;
    unsplit = UL_NEW(dnnl->arena, struct unsplit);
    unsplit->rows = (struct rows){.call = *call, .axis = axis, .product_count = product_count};
    unsplit->next = dnnl->pieces->wholes;
    dnnl->pieces->wholes = unsplit;
    return unsplit;
}

static struct piece *piece_new(struct ul_dnnl *dnnl, const struct ul_group_call *call,
                               struct unsplit *unsplit)
{
    struct piece *piece = UL_NEW(dnnl->arena, struct piece);
    struct ul_call *answer = &piece->rows.call;
    piece->requested = call->call;
    piece->unsplit = unsplit;
    piece->rows = (struct rows){
        .call = call->call, .axis = unsplit->rows.axis, .product_count = call->product_count};
    answer->pack = unsplit->rows.call.pack;
    answer->layout = unsplit->rows.call.layout;
    answer->weights_copy_bytes = unsplit->rows.call.weights_copy_bytes;
    piece->served =
        ul_dnnl_query(dnnl, answer, call->product_count, false, unsplit->rows.call.implementation);
    answer->implementation = unsplit->rows.call.implementation; /* equal calls are equal bytes */
    return piece;
}

static struct piece *piece_of(struct ul_dnnl *dnnl, const struct ul_group_call *call,
                              struct unsplit *unsplit)
{
    struct piece **slot = &dnnl->pieces->table[ul_dnnl_hash(&call->call)];
    struct piece *piece = *slot;
    while (piece != NULL && (piece->unsplit != unsplit ||
                             memcmp(&piece->requested, &call->call, sizeof piece->requested) != 0))
        piece = piece->next;
    if (piece == NULL) {
        piece = piece_new(dnnl, call, unsplit);
        piece->next = *slot;
        *slot = piece;
    }
    return piece;
}

void ul_pieces_restart(struct ul_dnnl *dnnl)
{
    if (dnnl->pieces == NULL)
        return;
    dnnl->pieces->compile++;
    dnnl->pieces->product_count = 0;
}

bool ul_piece_answer(void *context, const struct ul_piece *requested, struct ul_group_call *call)
{
    struct ul_dnnl *dnnl = context;
    const struct ul_call *of = requested->unsplit;
    uint32_t axis;
    if (of->kind == UL_CALL_WEIGHT_GRADIENT || !find_axis(&call->call, of, &axis))
        return false;
    int64_t count = call->call.dst.dims[axis];
    int64_t begin = requested->offset / of->dst.strides[axis];
    if (requested->offset % of->dst.strides[axis] != 0 || begin > of->dst.dims[axis] - count)
        return false;
    if (dnnl->pieces == NULL) {
        dnnl->pieces = UL_NEW(dnnl->arena, struct ul_pieces);
        dnnl->pieces->compile = 1;
    }
    struct unsplit *unsplit = whole_of(dnnl, of, axis, requested->unsplit_product_count);
    struct piece *piece = piece_of(dnnl, call, unsplit);
    call->call = piece->rows.call;
    if (!piece->served)
        return false;
    if (is_exact(of))
        return true;
    if (requested->unproven && !(is_tried(dnnl, &piece->rows) && is_tried(dnnl, &unsplit->rows)))
        return true;
    return has_bits(dnnl, &unsplit->rows, of) && has_bits(dnnl, &piece->rows, of) &&
           memcmp(piece->rows.hashes, &unsplit->rows.hashes[begin],
                  (size_t)count * sizeof *piece->rows.hashes) == 0;
}
