/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses convolutions that may run by Winograd's method instead of the library's direct one.
 *
 * Problem: the transformed weights take 16/9 of the bytes of the plain ones, and the method is only
 * faster where its products, 16 for 36, outweigh its transforms. Method: for every weight that only
 * calls read, predict the nanoseconds that its calls would save and the bytes that it would add.
 * Weights whose calls save at least a tenth are taken, the most nanoseconds per byte first, as long
 * as all together add at most a tenth of the model's weights. This depends only on the graph, the
 * profile and the number of threads. Their calls have both alternatives, each with its own form of
 * the weights, and the planner chooses.
 *
 * Left undone: convolutions that the library has no answer to; 1-d and 3-d ones; tiles of 4x4,
 * whose weights take four times the plain bytes and whose errors are some ten times larger. */
#include "codegen/program/library_internal.h"

#include "ir/view.h"
#include "runtime/lib/ul_winograd.h"

#include <stdlib.h>
#include <string.h>

/* ---- cost of a call ---- */

static void count(const struct ul_call *call, struct ul_work *work)
{
    /* A tile's 16 loads, 32 additions and 16 stores for a channel; for an output 32 loads and
     * stores, 24 additions, and 4 results. */
    enum { OPS_PER_CHANNEL = 64, OPS_PER_OUTPUT = 60 };
    struct ul_winograd tiling;
    ul_winograd_tiling(&tiling, call, 1);
    UL_ASSERT(tiling.tile_count > 0 && tiling.channels > 0);
    uint64_t tiles = (uint64_t)tiling.tile_count, channels = (uint64_t)tiling.channels;
    uint64_t outputs = (uint64_t)(tiling.panel_cols * tiling.panel_count);
    work->counts[UL_WORK_MATMUL_F32] += 2 * UL_WINOGRAD_POINTS * tiles * channels * outputs;
    work->counts[UL_WORK_VECTOR] += tiles * (OPS_PER_CHANNEL * channels + OPS_PER_OUTPUT * outputs);
}

static uint64_t tensor_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t bytes = sizeof(float);
    for (uint32_t d = 0; d < tensor->rank; d++)
        bytes *= (uint64_t)tensor->dims[d];
    return bytes;
}

static uint64_t cost_of(const struct ul_program_options *options, const struct ul_call *call,
                        struct ul_work *work, uint64_t weight_bytes, uint64_t all_weight_bytes)
{
    uint64_t threads = options->thread_count;
    uint64_t copied = call->src_copy_bytes + call->dst_copy_bytes;
    struct ul_traffic traffic = {.weight_bytes = weight_bytes,
                                 .all_weight_bytes = all_weight_bytes,
                                 .moved_bytes = tensor_bytes(&call->src) +
                                                tensor_bytes(&call->dst) + weight_bytes};
    work->counts[UL_WORK_VECTOR] += copied / sizeof(float) * 2;
    for (int k = 0; k < UL_WORK_KINDS; k++)
        work->counts[k] = (work->counts[k] + threads - 1) / threads;
    return ul_profile_cost(options->profile, work, &traffic, 1);
}

/* The complete call, with Winograd's method. */
static void convert(struct ul_arena *arena, struct ul_call *call, uint32_t threads)
{
    UL_ASSERT(ul_winograd_supports(call));
    struct ul_winograd tiling;
    struct ul_pack *pack = UL_NEW(arena, struct ul_pack);
    ul_winograd_tiling(&tiling, call, threads);
    ul_winograd_pack(pack, &tiling);
    call->pack = pack;
    call->layout = *pack;
    call->implementation = "ullage winograd_2x3";
    call->src_copy_bytes = 0;
    call->dst_copy_bytes = 0;
    call->tail_count = 0; /* the method does everything itself */
    call->scratch_bytes = tiling.scratch_bytes;
}

/* ---- the choice ---- */

/* A weight, by its base value, and what taking it would gain. */
struct candidate {
    ul_value_id base;
    bool good; /* all calls that read it can be converted, and gain */
    uint64_t saved_ns, added_bytes;
};

struct chooser {
    struct ul_arena *arena;
    const struct ul_target_library *library;
    const struct ul_graph *graph;
    const struct ul_program_options *options;
    const struct ul_calls *calls;
    uint64_t weight_bytes;        /* of the model, as the calls have them so far */
    struct candidate *candidates; /* by base */
};

static ul_value_id weights_of(const struct chooser *chooser, const struct ul_group_call *call)
{
    return chooser->graph->values[call->args[UL_CALL_WEIGHTS]].view.base;
}

/* Adds what a call would save; a weight is as good as the worst of its calls. */
static void judge(struct chooser *chooser, const struct ul_group_call *group)
{
    const struct ul_call *call = &group->call;
    struct candidate *candidate;
    if (call->pack == NULL)
        return;
    candidate = &chooser->candidates[weights_of(chooser, group)];
    if (candidate->base == UL_NONE) {
        candidate->base = weights_of(chooser, group);
        candidate->good = true;
    }
    if (!ul_winograd_supports(call)) {
        candidate->good = false;
        return;
    }
    struct ul_call other = *call;
    struct ul_work direct_work = {.counts = {[UL_WORK_MATMUL_F32] = 2 * group->product_count}};
    struct ul_work work = {.counts = {0}};
    convert(chooser->arena, &other, chooser->options->thread_count);
    count(&other, &work);
    uint64_t direct = cost_of(chooser->options, call, &direct_work, call->pack->size_bytes,
                              chooser->weight_bytes);
    uint64_t cost =
        cost_of(chooser->options, &other, &work, other.pack->size_bytes, chooser->weight_bytes);
    UL_ASSERT(other.pack != NULL && other.scratch_bytes > 0);
    bool gains = cost <= direct - direct / 10;
    candidate->good = candidate->good && (gains || chooser->options->conv == UL_CONV_WINOGRAD);
    candidate->saved_ns += gains ? direct - cost : 0;
    candidate->added_bytes = other.pack->size_bytes > call->pack->size_bytes
                                 ? other.pack->size_bytes - call->pack->size_bytes
                                 : 0;
}

/* More nanoseconds per byte first; then the earlier value. */
static int by_gain(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    double first = (double)a->saved_ns * (double)(b->added_bytes + 1);
    double second = (double)b->saved_ns * (double)(a->added_bytes + 1);
    if (first != second)
        return first > second ? -1 : 1;
    return a->base < b->base ? -1 : a->base > b->base;
}

static uint64_t model_weight_bytes(const struct ul_graph *graph, const struct ul_calls *calls)
{
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_WEIGHT && value->view.base == v)
            bytes +=
                calls->packs[v] != NULL ? calls->packs[v]->size_bytes : ul_value_bytes(graph, v);
    }
    return bytes;
}

/* Marks in `chosen`, by base, the weights that are transformed. */
static void mark_best(struct chooser *chooser, bool *chosen)
{
    uint64_t left =
        chooser->options->conv == UL_CONV_WINOGRAD ? UINT64_MAX : chooser->weight_bytes / 10;
    uint32_t count = 0;
    for (uint32_t v = 0; v < chooser->graph->value_count; v++) {
        if (chooser->candidates[v].base != UL_NONE && chooser->candidates[v].good)
            chooser->candidates[count++] = chooser->candidates[v];
    }
    qsort(chooser->candidates, count, sizeof *chooser->candidates, by_gain);
    for (uint32_t i = 0; i < count; i++) {
        const struct candidate *candidate = &chooser->candidates[i];
        if (candidate->added_bytes > left)
            continue;
        UL_ASSERT(!chosen[candidate->base]);
        left -= candidate->added_bytes;
        chosen[candidate->base] = true;
    }
}

/* Says where the call of a node that is a piece begins between the tiles of the whole. False: it is
 * cut along an axis without tiles. */
static bool cut_tiles(const struct ul_graph *graph, ul_node_id node, struct ul_call *call)
{
    uint32_t count = 0;
    const int64_t *at = ul_node_get_ints(&graph->nodes[node], "ul_piece_at", &count);
    if (!ul_node_is_piece(graph, node))
        return true;
    if (count != 2 || at[0] < 0 || at[0] == 1 || at[0] > 3)
        return false;
    if (at[0] >= 2)
        call->tile_begin[at[0] - 2] = at[1] % 2;
    return true;
}

/* Where nothing but the method is wanted, the call becomes that; else it may be both. */
static void take(const struct chooser *chooser, ul_node_id node)
{
    struct ul_group_call *call = chooser->calls->by_node[node];
    struct ul_call cut = call->call;
    if (!cut_tiles(chooser->graph, node, &cut))
        return;
    if (chooser->options->conv != UL_CONV_WINOGRAD) {
        call = ul_arena_copy(chooser->arena, call, sizeof *call);
        chooser->calls->faster[node] = call;
    }
    call->call = cut;
    call->library = chooser->library;
    convert(chooser->arena, &call->call, chooser->options->thread_count);
}

/* A graph before splitting keeps the methods that it had, and so do its pieces, which have its
 * bits. */
static void apply_whole(const struct chooser *chooser, const struct ul_unsplit *unsplit)
{
    for (uint32_t n = 0; n < chooser->graph->node_count; n++) {
        const struct ul_group_call *call = chooser->calls->by_node[n];
        if (call != NULL && call->call.pack != NULL &&
            ul_unsplit_has_other(unsplit, chooser->graph, n, chooser->library) &&
            ul_winograd_supports(&call->call))
            take(chooser, n);
    }
}

/* Gives the calls that gain by it the method as another alternative, or as options->conv says, or
 * as the whole has it. */
static void choose(const struct ul_target_library *library, struct ul_arena *arena,
                   const struct ul_graph *graph, const struct ul_program_options *options,
                   const struct ul_unsplit *unsplit, struct ul_calls *calls)
{
    struct chooser chooser = {.arena = arena,
                              .library = library,
                              .graph = graph,
                              .options = options,
                              .calls = calls,
                              .weight_bytes = model_weight_bytes(graph, calls)};
    if (unsplit != NULL)
        apply_whole(&chooser, unsplit);
    if (unsplit != NULL || options->conv == UL_CONV_DIRECT)
        return;
    bool *chosen = UL_NEW_ARRAY(arena, bool, graph->value_count);
    chooser.candidates = UL_NEW_ARRAY(arena, struct candidate, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        chooser.candidates[v].base = UL_NONE;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (calls->by_node[n] != NULL)
            judge(&chooser, calls->by_node[n]);
    }
    mark_best(&chooser, chosen);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct ul_group_call *call = calls->by_node[n];
        if (call != NULL && call->call.pack != NULL && chosen[weights_of(&chooser, call)])
            take(&chooser, n);
    }
}

/* ---- the row ---- */

/* A call of the whole was this one: what it is cut into has the same tiles. */
static bool answer_piece(void *context, const struct ul_piece *piece, struct ul_group_call *call)
{
    const struct ul_own *own = context;
    if (!call->may_pack || !cut_tiles(piece->graph, piece->node, &call->call) ||
        !ul_winograd_supports(&call->call))
        return false;
    convert(own->arena, &call->call, own->thread_count);
    return true;
}

static const struct ul_library_file files[] = {{.name = "ul_posts.c", .is_native = true},
                                               {.name = "ul_winograd.c", .is_native = true},
                                               {.name = NULL}};

const struct ul_target_library ul_winograd_library = {.name = "Winograd's method",
                                                      .is_own = true,
                                                      .without = "--conv direct",
                                                      .own_code_bytes = 48 << 10, /* 46 KB of it */
                                                      .symbol = "ul_winograd",
                                                      .packer = "ul_winograd_packer_take",
                                                      .files = files,
                                                      .open = ul_own_open,
                                                      .reopen = ul_own_reopen,
                                                      .answer_piece = answer_piece,
                                                      .choose = choose,
                                                      .count = count};
