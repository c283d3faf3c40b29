/* SPDX-License-Identifier: Apache-2.0 */
/* FlexAttention of ai.onnx.preview: attention with graphs that change scores and probabilities.
 * Without graphs it is Attention. With graphs it is written out, the graphs in their places, and
 * pass pattern finds what needs no matrix of scores: masks, biases, caps. */
#include "frontend/old_emit.h"
#include "frontend/rows.h"

#include <math.h>
#include <string.h>

enum { SCORE_MOD, PROB_MOD }; /* indexes into node->graphs */

struct flex {
    struct ul_type q, k, v;
    enum ul_dtype dtype, precision;
    double scale;
};

static bool read_flex(struct ul_old_node *node, struct flex *flex)
{
    for (uint32_t i = 0; i < 3; i++) {
        if (!ul_old_has_input(node, i))
            return ul_old_invalid(node, "needs queries, keys and values");
    }
    if (!ul_old_shape(node, 0, 1u << 4, &flex->q) || !ul_old_shape(node, 1, 1u << 4, &flex->k) ||
        !ul_old_shape(node, 2, 1u << 4, &flex->v))
        return false;
    const int64_t *q = flex->q.dims, *k = flex->k.dims, *v = flex->v.dims;
    if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || q[3] != k[3] || k[1] == 0 ||
        q[1] % k[1] != 0)
        return ul_old_invalid(node, "shapes of queries, keys and values do not belong together");
    flex->dtype = flex->q.dtype;
    int64_t precision =
        ul_old_int(node, "softmax_precision", flex->dtype == UL_F64 ? UL_F64 : UL_F32);
    if (precision != UL_F32 && precision != UL_F64 && precision != UL_F16 && precision != UL_BF16)
        return ul_old_invalid(node, "softmax_precision is no type of floats");
    flex->precision = (enum ul_dtype)precision;
    flex->scale = ul_old_float(node, "scale", 1 / sqrt((double)(q[3] < 1 ? 1 : q[3])));
    return true;
}

/* Applies the graph to x; x stays where there is none. */
static enum ul_status apply(struct ul_old_node *node, uint32_t which, ul_value_id *x)
{
    if (node->graphs[which] == NULL)
        return UL_OK;
    ul_value_id made = UL_NONE;
    const struct ul_graph_call call = {
        .input_count = 1, .inputs = x, .output_count = 1, .outputs = &made};
    UL_TRY(ul_build_called(node, node->graphs[which], &call));
    *x = made;
    return UL_OK;
}

/* Repeats heads of keys or values until there are as many as of queries: each serves queries that
 * follow each other. */
#define REPEATED(x)                                                                                \
    x " = " x ".1 == q.1 ? " x " : Reshape(Expand(Unsqueeze(" x ", [2]), [" x ".0, " x             \
      ".1, q.1 / " x ".1, " x ".2, " x ".3]), [" x ".0, q.1, " x ".2, " x ".3]); "
#define AS(x, from, to) "(" from " == " to " ? " x " : Cast(" x ") {to=" to "})"

static enum ul_status write_out(struct ul_old_node *node, const struct flex *flex)
{
    ul_value_id made[2];
    const struct ul_row_name names[] = {
        {"q", ul_row_value(node->inputs[0])}, {"k", ul_row_value(node->inputs[1])},
        {"v", ul_row_value(node->inputs[2])}, {"x", ul_row_value(UL_NONE)},
        {"from", ul_row_int(flex->dtype)},    {"to", ul_row_int(flex->precision)},
        {"scale", ul_row_float(flex->scale)}, {NULL, {0}}};
    struct ul_row_name later[sizeof names / sizeof *names];
    memcpy(later, names, sizeof names);
    if (!ul_old_run(node, names,
                    REPEATED("k")
                        REPEATED("v") "x = MatMul(q * scale, Transpose(k) {perm=[0, 1, 3, "
                                      "2]}); " AS("x", "from", "to") ", v",
                    2, made))
        return UL_OK;
    UL_TRY(apply(node, SCORE_MOD, &made[0]));
    later[3].item = ul_row_value(made[0]);
    made[0] = ul_old_make(node, later, "Softmax(x) {axis=-1}");
    UL_TRY(apply(node, PROB_MOD, &made[0]));
    later[2].item = ul_row_value(made[1]);
    later[3].item = ul_row_value(made[0]);
    ul_old_finish(node, later, "y = MatMul(x, " AS("v", "from", "to") "); " AS("y", "to", "from"));
    return UL_OK;
}

void ul_upgrade_flex_attention(struct ul_old_node *node)
{
    struct flex flex;
    if (!read_flex(node, &flex))
        return;
    if (node->graph_count > 0) {
        (void)!write_out(node, &flex); /* the diag has the message; ul_upgrade_node returns it */
        return;
    }
    ul_old_become(node, "Attention");
}
