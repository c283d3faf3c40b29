/* Pieces of calls: whether the library computes a part of a call with the bits of the whole.
 *
 * Problem: chains are computed in pieces to keep a budget (passes/split.c), and a piece must have
 * the bits that the whole has. Method: a piece is a call of the same implementation on the same
 * weights, packed as the whole packs them, since both are to be held once. It is what a plan should
 * hold if a trial (trial.c) of it has the bits of a trial of the whole, in the rows that it is of.
 *
 * What was found is kept: a search for splits asks about the same pieces many times, and all pieces
 * of a call are compared with one run of the whole. Trials are bounded, each by its memory and all
 * together by their products; what is beyond has no answer, and stays whole.
 *
 * What holds here holds on machines with the same instruction set and caches, for the planned
 * number of threads. Left undone: pieces of channels; calls by Winograd's method. */
#include "codegen/dnnl_internal.h"

#include "runtime/ul_winograd.h"

#include <string.h>

#define MOST_TRIAL_BYTES ((uint64_t)1 << 30)
#define MOST_TRIAL_PRODUCTS ((uint64_t)1 << 38)

/* The bits of a call, by rows along an axis. */
struct rows {
    struct ul_call call;
    uint32_t axis;
    bool good;
    uint64_t *hashes;
    struct rows *next;
};

/* What was found about a piece. */
struct verdict {
    struct ul_call asked;
    const struct rows *whole;
    int64_t begin; /* the piece's first row in the whole */
    bool good;
    struct ul_call call;
    struct verdict *next; /* of the same hash */
};

struct ul_pieces {
    uint64_t product_count; /* of all trials so far */
    struct rows *rows;
    struct verdict *table[UL_DNNL_TABLE];
};

/* ---- where a piece lies in the whole ---- */

static bool is_part(const struct ul_call_tensor *part, const struct ul_call_tensor *whole,
                    const int64_t *at)
{
    bool fits = part->rank == whole->rank;
    for (uint32_t d = 0; fits && d < whole->rank; d++)
        fits = at[d] >= 0 && at[d] <= whole->dims[d] - part->dims[d];
    return fits;
}

/* Elements that no axis of the piece begins at are those of the whole. */
static bool is_same(const struct ul_call_tensor *part, const struct ul_call_tensor *whole)
{
    return part->rank == whole->rank &&
           memcmp(part->dims, whole->dims, part->rank * sizeof *part->dims) == 0;
}

static bool has_same_posts(const struct ul_trial *trial)
{
    const struct ul_call *part = trial->part, *whole = trial->whole;
    bool same = part->post_count == whole->post_count;
    for (uint32_t i = 0; same && i < part->post_count; i++) {
        const struct ul_post *a = &part->posts[i], *b = &whole->posts[i];
        bool adds = (a->kind == UL_POST_ADD || a->kind == UL_POST_SUM) &&
                    (b->kind == UL_POST_ADD || b->kind == UL_POST_SUM);
        const struct ul_call_tensor *to = a->kind == UL_POST_SUM ? &part->dst : &a->tensor;
        const struct ul_call_tensor *from = b->kind == UL_POST_SUM ? &whole->dst : &b->tensor;
        int64_t at[UL_CALL_RANK] = {0};
        same = (a->kind == b->kind || adds) && a->alpha == b->alpha && a->beta == b->beta;
        if (!same || a->kind < UL_POST_SUM)
            continue;
        for (uint32_t d = 0; d < from->rank; d++)
            at[d] = from->dims[d] > 1 ? trial->dst_at[d] : 0;
        same = is_part(to, from, at);
    }
    return same;
}

/* Where the source of rows from `begin` on lies. */
static bool place_source(struct ul_trial *trial, int64_t begin)
{
    const struct ul_call *part = trial->part, *whole = trial->whole;
    uint32_t axis = trial->axis, rank = whole->dst.rank;
    if (whole->kind == UL_CALL_MATMUL) {
        if (axis + 1 == rank)
            return false;
        trial->src_at[axis] = whole->src.dims[axis] > 1 ? begin : 0;
        if (axis + 2 < rank)
            trial->weights_at[axis] = whole->weights.dims[axis] > 1 ? begin : 0;
        return true;
    }
    if (axis < 2) {
        trial->src_at[axis] = begin;
        return true;
    }
    int64_t step = whole->steps[axis - 2];
    int64_t shift = whole->pads[axis - 2] - part->pads[axis - 2];
    bool transposed = whole->kind == UL_CALL_DECONVOLUTION;
    trial->src_at[axis] = transposed ? (begin + shift) / step : begin * step - shift;
    return !transposed || (begin + shift) % step == 0;
}

/* Fills the places of a piece whose first result is `offset` elements behind that of the whole;
 * false where it is none that could be compared. */
static bool place(struct ul_trial *trial, int64_t offset)
{
    const struct ul_call *part = trial->part, *whole = trial->whole;
    bool good = part->kind == whole->kind && part->group_count == whole->group_count &&
                part->dst.rank == whole->dst.rank && part->src.rank == whole->src.rank &&
                part->weights.rank == whole->weights.rank &&
                memcmp(part->window, whole->window, sizeof part->window) == 0 &&
                memcmp(part->steps, whole->steps, sizeof part->steps) == 0 &&
                memcmp(part->dilations, whole->dilations, sizeof part->dilations) == 0;
    for (uint32_t d = part->dst.rank; good && d-- > 0;)
        trial->axis = part->dst.dims[d] != whole->dst.dims[d] ? d : trial->axis;
    if (!good)
        return false;
    int64_t begin = offset / whole->dst.strides[trial->axis];
    trial->dst_at[trial->axis] = begin;
    return offset % whole->dst.strides[trial->axis] == 0 && place_source(trial, begin) &&
           is_part(&part->dst, &whole->dst, trial->dst_at) &&
           is_part(&part->src, &whole->src, trial->src_at) &&
           is_part(&part->weights, &whole->weights, trial->weights_at) &&
           (whole->pack == NULL || is_same(&part->weights, &whole->weights)) &&
           is_same(&part->bias, &whole->bias) && has_same_posts(trial);
}

/* ---- trials ---- */

static bool may_try(struct ul_pieces *pieces, const struct ul_call *call, uint64_t product_count)
{
    if (ul_trial_bytes(call) > MOST_TRIAL_BYTES ||
        product_count > MOST_TRIAL_PRODUCTS - pieces->product_count)
        return false;
    pieces->product_count += product_count;
    return true;
}

static const struct rows *rows_of(struct ul_dnnl *dnnl, const struct ul_call *call, uint32_t axis,
                                  uint64_t product_count)
{
    struct rows *rows = dnnl->pieces->rows;
    struct ul_trial trial = {.whole = call, .part = call, .axis = axis};
    while (rows != NULL && (rows->axis != axis || memcmp(&rows->call, call, sizeof *call) != 0))
        rows = rows->next;
    if (rows != NULL)
        return rows;
    rows = UL_NEW(dnnl->arena, struct rows);
    rows->call = *call;
    rows->axis = axis;
    rows->hashes = UL_NEW_ARRAY(dnnl->arena, uint64_t, (uint64_t)call->dst.dims[axis]);
    rows->good =
        may_try(dnnl->pieces, call, product_count) && ul_trial_run(dnnl, &trial, rows->hashes);
    rows->next = dnnl->pieces->rows;
    dnnl->pieces->rows = rows;
    return rows;
}

static bool has_bits(struct ul_dnnl *dnnl, const struct ul_trial *trial, const struct rows *whole,
                     uint64_t product_count)
{
    uint64_t count = (uint64_t)trial->part->dst.dims[trial->axis];
    uint64_t *hashes = UL_NEW_ARRAY(dnnl->arena, uint64_t, count);
    return whole->good && may_try(dnnl->pieces, trial->part, product_count) &&
           ul_trial_run(dnnl, trial, hashes) &&
           memcmp(hashes, &whole->hashes[trial->dst_at[trial->axis]], count * sizeof *hashes) == 0;
}

/* ---- answers ---- */

static struct verdict *find_verdict(struct ul_dnnl *dnnl, const struct ul_call *asked,
                                    const struct rows *whole, int64_t begin)
{
    struct verdict *verdict = dnnl->pieces->table[ul_dnnl_hash(asked)];
    while (verdict != NULL && (verdict->whole != whole || verdict->begin != begin ||
                               memcmp(&verdict->asked, asked, sizeof *asked) != 0))
        verdict = verdict->next;
    return verdict;
}

static struct verdict *judge(struct ul_dnnl *dnnl, const struct ul_group_call *call,
                             const struct rows *whole, struct ul_trial *trial)
{
    struct verdict **slot = &dnnl->pieces->table[ul_dnnl_hash(&call->call)];
    struct verdict *verdict = UL_NEW(dnnl->arena, struct verdict);
    verdict->asked = verdict->call = call->call;
    verdict->whole = whole;
    verdict->begin = trial->dst_at[trial->axis];
    verdict->next = *slot;
    *slot = verdict;
    verdict->call.pack = trial->whole->pack;
    verdict->call.layout = trial->whole->layout;
    trial->part = &verdict->call;
    verdict->good = whole->good &&
                    ul_dnnl_ask(dnnl, &verdict->call, call->product_count, false,
                                trial->whole->implementation) &&
                    has_bits(dnnl, trial, whole, call->product_count);
    verdict->call.implementation = trial->whole->implementation; /* equal calls are equal bytes */
    return verdict;
}

/* `offset`: of the piece's first result from that of the whole, in elements. */
static bool answer_piece(struct ul_dnnl *dnnl, const struct ul_call *whole, int64_t offset,
                         uint64_t whole_product_count, struct ul_group_call *call)
{
    struct ul_trial trial = {.whole = whole, .part = &call->call};
    if (ul_winograd_is(whole) || !place(&trial, offset))
        return false;
    if (dnnl->pieces == NULL)
        dnnl->pieces = UL_NEW(dnnl->arena, struct ul_pieces);
    const struct rows *rows = rows_of(dnnl, whole, trial.axis, whole_product_count);
    int64_t begin = trial.dst_at[trial.axis];
    const struct verdict *verdict = find_verdict(dnnl, &call->call, rows, begin);
    if (verdict == NULL)
        verdict = judge(dnnl, call, rows, &trial);
    call->call = verdict->call;
    return verdict->good;
}

/* ---- the whole ---- */

void ul_whole_init(struct ul_whole *whole, struct ul_arena *arena, const struct ul_program *program)
{
    whole->program = program;
    whole->steps = UL_NEW_ARRAY(arena, uint32_t, program->graph->node_count);
    memset(whole->steps, 0xFF, program->graph->node_count * sizeof *whole->steps);
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (program->steps[s].kind == UL_STEP_KERNEL || program->steps[s].kind == UL_STEP_CALL)
            whole->steps[program->steps[s].node] = s;
    }
}

bool ul_node_is_piece(const struct ul_graph *graph, ul_node_id node)
{
    return ul_node_find_attr(&graph->nodes[node], "ul_part_of") != NULL;
}

uint32_t ul_whole_step(const struct ul_whole *whole, const struct ul_graph *graph, ul_node_id node)
{
    int64_t origin = ul_node_get_int(&graph->nodes[node], "ul_part_of", (int64_t)node);
    if (whole == NULL || origin < 0 || origin >= whole->program->graph->node_count)
        return UL_NONE;
    return whole->steps[origin];
}

const struct ul_call *ul_whole_call(const struct ul_whole *whole, const struct ul_graph *graph,
                                    ul_node_id node)
{
    uint32_t step = ul_whole_step(whole, graph, node);
    if (step == UL_NONE || whole->program->steps[step].kind != UL_STEP_CALL)
        return NULL;
    return &whole->program->calls[whole->program->steps[step].kernel];
}

/* Where a piece begins in the whole, in elements. */
static int64_t offset_of(const struct ul_graph *graph, ul_node_id node,
                         const struct ul_program *whole, const struct ul_program_step *step)
{
    uint32_t count = 0;
    const int64_t *at = ul_node_get_ints(&graph->nodes[node], "ul_part_at", &count);
    const struct ul_value *result = &whole->graph->values[step->views[UL_CALL_DST]];
    UL_ASSERT(count == 0 || (count == 2 && at[0] < result->type.rank));
    return count == 0 ? 0 : at[1] * result->view.strides[at[0]];
}

bool ul_whole_answer(const struct ul_whole *whole, struct ul_dnnl *dnnl,
                     const struct ul_graph *graph, ul_node_id node, struct ul_group_call *call)
{
    const struct ul_call *of = ul_whole_call(whole, graph, node);
    if (of == NULL)
        return false;
    struct ul_group_call asked = *call;
    if (!ul_node_is_piece(graph, node) && ul_dnnl_answer(dnnl, &asked, of->pack != NULL) &&
        (ul_winograd_is(of) || memcmp(&asked.call, of, sizeof *of) == 0)) {
        *call = asked;
        return true;
    }
    const struct ul_program_step *step = &whole->program->steps[ul_whole_step(whole, graph, node)];
    return answer_piece(dnnl, of, offset_of(graph, node, whole->program, step),
                        step->work.flop_count / 2, call);
}
