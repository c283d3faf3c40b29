/* SPDX-License-Identifier: Apache-2.0 */
/* Transposed convolutions of narrow constants, as convolutions.
 *
 * Problem: convolutions read constants of 8 or 16 bits as they are stored; a transposed one is a
 * call of a library that reads floats. Method: results whose places have the same remainder by the
 * stride (a phase) depend on the same taps of the kernel, so that each phase is a convolution by
 * stride 1 with a part of the kernel, turned round; phases are further channels of one convolution,
 * whose results are then put side by side (one axis, stride 2, w of four taps):
 *
 *      y[2q]     = x[q] w[0] + x[q-1] w[2]         x -> Conv, w' [2 m, c, 2] -> [n, 2 m, q]
 *      y[2q + 1] = x[q] w[1] + x[q-1] w[3]           -> Reshape, Transpose, Reshape -> Slice
 *
 * The codes of w' are those of w in another order. Elementwise nodes that follow move in front of
 * the movements (followers.c). Results of phases lie there twice for a time, so that they have to
 * be smaller than what codes save.
 *
 * Left undone: kernels that are no multiple of the stride, whose phases differ in taps; groups;
 * dilations beside strides; scales of blocks; codes of less than 8 bits, and of floats `fnuz`. */
#include "ir/geometry.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/integers/nbits_internal.h"

enum {
    /* ul_nbits_supports_window asks the same: */
    MIN_CHANNELS = 16, /* channels of the input, at least */
    WORD_CHANNELS = 4, /* with codes of 8 bits, a multiple of it */
    COLUMNS = 16,      /* results in a panel */
    FILLED_PART = 10,  /* a panel's padding is at most that part of the results */
    CUT_PART = 6,      /* what is cut off is at most that part of the results' places */
    MAX_AXES = UL_CONV_SPATIAL
};

/* One axis of space. */
struct axis {
    int64_t stride, dilation, taps; /* of the kernel in one phase */
    int64_t first, count;           /* places of the convolution that results lie at */
    int64_t pad_begin, pad_end;
    int64_t skipped, length; /* of the results of all phases: in front, and that are the node's */
};

struct phases {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_followers followers;
    struct ul_rewrite rewrite;
    /* the node in hand */
    struct ul_build build;
    struct ul_nbits_source source;
    uint32_t rank; /* of space */
    struct axis axes[MAX_AXES];
    int64_t channels, results, count; /* of x, of y, and of phases */
};

/* ---- Whether ---- */

static bool find_axis(struct axis *axis, const struct ul_conv *conv, uint32_t at)
{
    int64_t pad = conv->pad_begin[at], last = 0;
    axis->stride = conv->stride[at];
    axis->dilation = conv->dilation[at];
    axis->length = conv->out[at];
    if (pad < 0 || conv->kernel[at] % axis->stride != 0 ||
        (axis->stride > 1 && axis->dilation != 1))
        return false;
    last = (axis->length - 1 + pad) / axis->stride;
    axis->taps = conv->kernel[at] / axis->stride;
    axis->first = pad / axis->stride;
    axis->count = last - axis->first + 1;
    axis->pad_begin = axis->dilation * (axis->taps - 1) - axis->first;
    axis->pad_end = last - (conv->in[at] - 1);
    axis->skipped = pad - axis->first * axis->stride;
    return axis->pad_begin >= 0 && axis->pad_end >= 0;
}

/* One scale, or one for each channel of the result. */
static bool has_plain_scales(const struct phases *phases)
{
    const struct ul_nbits_source *source = &phases->source;
    for (uint32_t d = 0; d < phases->rank + 2; d++) {
        int64_t scales = ul_nbits_source_scales(source, source->axes[d]);
        if (scales > 1 && (d != 1 || scales != phases->results))
            return false;
    }
    return source->node == NULL || source->node->op != UL_OP_DequantizeLinear;
}

/* A call reads the codes as they are stored. */
static bool is_read_by_call(const struct phases *phases)
{
    const struct ul_nbits_source *source = &phases->source;
    enum ul_dtype dtype = source->codes->type.dtype;
    int64_t columns = phases->count * phases->results;
    int64_t filled = (columns + COLUMNS - 1) / COLUMNS * COLUMNS - columns;
    bool is_plain = ul_dtype_is_half(dtype) || dtype == UL_I8 || dtype == UL_U8 ||
                    dtype == UL_F8E4M3FN || dtype == UL_F8E5M2;
    return is_plain && source->codes->data != NULL && phases->channels >= MIN_CHANNELS &&
           (source->bits > 8 || phases->channels % WORD_CHANNELS == 0) &&
           filled * FILLED_PART <= columns;
}

/* Little is computed that is cut off again, and codes save more bytes than the call wants of
 * scratch and than the results take, which lie there twice. A kernel as large as the stride is one
 * product, which takes less time than any transposed convolution. */
static bool is_worth(const struct phases *phases, const struct ul_type *y)
{
    const struct ul_type *codes = &phases->source.codes->type;
    uint64_t saved_bytes = ul_type_elements(codes) * sizeof(float) - ul_type_bytes(codes);
    double made = 1, wanted = 1;
    int64_t taps = 1;
    for (uint32_t a = 0; a < phases->rank; a++) {
        made *= (double)(phases->axes[a].count * phases->axes[a].stride);
        wanted *= (double)phases->axes[a].length;
        taps *= phases->axes[a].taps;
    }
    return saved_bytes >= phases->pass->traits->codes_scratch_bytes &&
           (phases->count == 1 ||
            (made <= wanted + wanted / CUT_PART &&
             (taps == 1 || ul_type_elements(y) * sizeof(float) < saved_bytes)));
}

static bool fits(struct phases *phases, const struct ul_node *node)
{
    const struct ul_graph *graph = phases->graph;
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    const struct ul_type *w = &graph->values[node->inputs[1]].type;
    const struct ul_type *y = &graph->values[node->outputs[0]].type;
    struct ul_conv conv;
    if (x->rank < 3 || x->rank - 2 > MAX_AXES || x->dtype != UL_F32 || w->dtype != UL_F32 ||
        ul_type_elements(y) == 0 || ul_conv_transpose_read(&conv, node, x, w) != NULL ||
        conv.groups != 1 ||
        (node->input_count > 2 && node->inputs[2] != UL_NONE &&
         ul_graph_get_constant(graph, node->inputs[2]) == NULL))
        return false;
    phases->rank = conv.spatial;
    phases->channels = x->dims[1];
    phases->results = w->dims[1];
    phases->count = 1;
    for (uint32_t a = 0; a < phases->rank; a++) {
        if (!find_axis(&phases->axes[a], &conv, a))
            return false;
        phases->count *= phases->axes[a].stride;
    }
    return ul_nbits_source_read(graph, node->inputs[1], &phases->source) &&
           has_plain_scales(phases) && is_read_by_call(phases) && is_worth(phases, y) &&
           ul_nbits_is_alone(graph, &phases->source, node->inputs[1], phases->followers.uses);
}

/* ---- Constants ---- */

/* Finds the place in w of an element of the convolution's weights, which are [phase m, c, taps]. */
static uint64_t find_code(const struct phases *phases, const int64_t *at)
{
    int64_t from[UL_LIMIT_RANK];
    int64_t phase = at[0] / phases->results;
    from[phases->source.axes[0]] = at[1];
    from[phases->source.axes[1]] = at[0] % phases->results;
    for (uint32_t a = phases->rank; a-- > 0;) {
        const struct axis *axis = &phases->axes[a];
        int64_t tap = axis->taps - 1 - at[2 + a];
        from[phases->source.axes[2 + a]] = phase % axis->stride + axis->stride * tap;
        phase /= axis->stride;
    }
    return ul_nbits_source_code(&phases->source, from);
}

static ul_value_id add_codes(const struct phases *phases, const struct ul_type *type)
{
    const struct ul_tensor *codes = phases->source.codes;
    uint64_t size = ul_dtype_get(type->dtype)->size_bytes, count = ul_type_elements(type);
    unsigned char *bytes = ul_arena_alloc(phases->graph->arena, count * size);
    int64_t at[UL_LIMIT_RANK] = {0};
    UL_ASSERT(count == ul_type_elements(&codes->type) && type->dtype == codes->type.dtype);
    for (uint64_t i = 0; i < count; i++) {
        ul_tensor_read(codes, find_code(phases, at), 1, bytes + i * size);
        for (uint32_t d = type->rank; d-- > 0;) {
            if (++at[d] < type->dims[d])
                break;
            at[d] = 0;
        }
    }
    return ul_nbits_add_weight(phases->graph, phases->source.inputs[0], type->dtype, type->rank,
                               type->dims, bytes);
}

/* Repeats a constant of one number for each channel for every phase, along the first of `rank`
 * dimensions. A constant of one number in all stays as it is. */
static ul_value_id repeat(const struct phases *phases, ul_value_id value, uint32_t rank)
{
    const struct ul_tensor *tensor = value == UL_NONE ? NULL : phases->graph->values[value].tensor;
    uint64_t each = tensor == NULL ? 0 : ul_type_elements(&tensor->type);
    if (tensor == NULL || (each == 1 && rank > 1))
        return value;
    uint64_t size = ul_dtype_get(tensor->type.dtype)->size_bytes;
    int64_t dims[UL_LIMIT_RANK] = {phases->count * (int64_t)each};
    unsigned char *bytes =
        ul_arena_alloc(phases->graph->arena, each * (uint64_t)phases->count * size);
    for (uint32_t d = 1; d < rank; d++)
        dims[d] = 1;
    for (int64_t phase = 0; phase < phases->count; phase++)
        ul_tensor_read(tensor, 0, each, bytes + (uint64_t)phase * each * size);
    return ul_nbits_add_weight(phases->graph, value, tensor->type.dtype, rank, dims, bytes);
}

/* Elementwise nodes after the convolution read a constant so. */
static ul_value_id repeat_for_followers(void *context, ul_value_id value)
{
    const struct phases *phases = context;
    return repeat(phases, value, phases->rank + 1);
}

/* ---- Nodes ---- */

static ul_value_id add_weights(struct phases *phases)
{
    struct ul_type type = {.dtype = phases->source.codes->type.dtype, .rank = phases->rank + 2};
    type.dims[0] = phases->count * phases->results;
    type.dims[1] = phases->channels;
    for (uint32_t a = 0; a < phases->rank; a++)
        type.dims[2 + a] = phases->axes[a].taps;
    const ul_value_id inputs[3] = {add_codes(phases, &type),
                                   repeat(phases, phases->source.inputs[1], type.rank),
                                   repeat(phases, phases->source.inputs[2], type.rank)};
    type.dtype = UL_F32;
    return ul_nbits_widen(&phases->build, &phases->source, &type, inputs);
}

static ul_value_id add_convolution(struct phases *phases, const struct ul_node *node)
{
    struct ul_graph *graph = phases->graph;
    ul_value_id inputs[3] = {node->inputs[0], add_weights(phases), UL_NONE};
    struct ul_type type = graph->values[node->outputs[0]].type;
    int64_t pads[2 * MAX_AXES], dilations[MAX_AXES];
    type.dims[1] = phases->count * phases->results;
    for (uint32_t a = 0; a < phases->rank; a++) {
        pads[a] = phases->axes[a].pad_begin;
        pads[phases->rank + a] = phases->axes[a].pad_end;
        dilations[a] = phases->axes[a].dilation;
        type.dims[2 + a] = phases->axes[a].count;
    }
    if (node->input_count > 2)
        inputs[2] = repeat(phases, node->inputs[2], 1);
    ul_value_id made =
        ul_build_value(&phases->build, UL_OP_Conv, inputs, inputs[2] == UL_NONE ? 2 : 3, &type);
    ul_node_set_ints(graph, graph->values[made].producer, "pads", pads, 2 * phases->rank);
    ul_node_set_ints(graph, graph->values[made].producer, "dilations", dilations, phases->rank);
    return made;
}

/* Turns [n, phases m, places] into [n, m, places by phases], and cuts the node's results out. */
static ul_value_id add_interleaving(struct phases *phases, ul_value_id value)
{
    int64_t parts[UL_LIMIT_RANK], perm[UL_LIMIT_RANK], whole[UL_LIMIT_RANK];
    uint32_t rank = phases->rank;
    parts[0] = whole[0] = phases->graph->values[value].type.dims[0];
    parts[1 + rank] = whole[1] = phases->results;
    perm[0] = 0;
    perm[1] = 1 + rank;
    for (uint32_t a = 0; a < rank; a++) {
        parts[1 + a] = phases->axes[a].stride;
        parts[2 + rank + a] = phases->axes[a].count;
        perm[2 + 2 * a] = 2 + rank + a;
        perm[3 + 2 * a] = 1 + a;
        whole[2 + a] = phases->axes[a].count * phases->axes[a].stride;
    }
    value = ul_build_reshape(&phases->build, value, 2 + 2 * rank, parts);
    value = ul_build_transpose(&phases->build, value, perm);
    value = ul_build_reshape(&phases->build, value, 2 + rank, whole);
    for (uint32_t a = 0; a < rank; a++) {
        const struct axis *axis = &phases->axes[a];
        if (axis->skipped > 0 || axis->length < whole[2 + a])
            value = ul_build_slice(&phases->build, value, 2 + a, axis->skipped,
                                   axis->skipped + axis->length);
    }
    return value;
}

static void rewrite_node(struct phases *phases, ul_node_id id)
{
    struct ul_graph *graph = phases->graph;
    const struct ul_node node = graph->nodes[id];
    phases->build = ul_build_before(graph, id);
    ul_value_id last = node.outputs[0], made = add_convolution(phases, &node);
    if (phases->count > 1) {
        phases->followers.channels = phases->results;
        made = ul_followers_move(&phases->followers, &phases->build, &last, made);
        made = add_interleaving(phases, made);
    }
    UL_ASSERT(ul_type_equal(&graph->values[made].type, &graph->values[last].type));
    graph->values[made].name = graph->values[last].name;
    (void)ul_rewrite_forward(&phases->rewrite, last, made);
}

enum ul_status ul_pass_phases(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct phases phases = {.pass = pass, .graph = graph};
    enum ul_dtype asked = pass->options->precision;
    /* Only the runtime's own convolution reads codes, and it computes in f32. */
    if (pass->traits->codes_scratch_bytes == 0 || pass->options->is_call == NULL ||
        (asked != UL_DTYPE_NONE && asked != UL_F32))
        return UL_OK;
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    uint32_t before = graph->node_count;
    phases.followers = ul_followers_new(graph, pass->scratch, repeat_for_followers, &phases);
    ul_rewrite_init(&phases.rewrite, graph, pass->scratch);
    for (uint32_t n = 0; n < order.count; n++) {
        if (graph->nodes[order.nodes[n]].op != UL_OP_ConvTranspose)
            continue;
        ul_rewrite_inputs(&phases.rewrite, order.nodes[n]);
        if (fits(&phases, &graph->nodes[order.nodes[n]]))
            rewrite_node(&phases, order.nodes[n]);
    }
    ul_rewrite_apply(&phases.rewrite);
    return graph->node_count == before ? UL_OK : ul_pass_dce(pass); /* what was rewritten goes */
}
