/* SPDX-License-Identifier: Apache-2.0 */
/* Groups as calls of a library: what is one and what not, its post-operations in a line, and what
 * oneDNN answers on whatever machine the test runs on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cpu/dnnl.h"
#include "codegen/cpu/dnnl_internal.h"
#include "codegen/program/calls_internal.h"
#include "ir/text.h"
#include "ir/view.h"

struct fixture {
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_group_call call;
};

/* The main block as one group; the values that it returns are needed outside. */
static bool describe(struct fixture *fixture, const char *text, bool sums)
{
    struct ul_diag diag = {0};
    ul_arena_init(&fixture->arena);
    enum ul_status status = ul_graph_parse(&fixture->graph, &fixture->arena, text, NULL, &diag);
    if (status != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_graph *graph = &fixture->graph;
    const struct ul_block *block = &graph->blocks[0];
    bool *escapes = UL_NEW_ARRAY(&fixture->arena, bool, graph->value_count);
    for (uint32_t i = 0; i < block->output_count; i++)
        escapes[block->outputs[i]] = true;
    ul_node_id nodes[16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < block->node_count; i++) {
        if (!ul_node_is_view(graph, block->nodes[i]))
            nodes[count++] = block->nodes[i];
    }
    return ul_group_call_make(graph, nodes, count, escapes, sums, &fixture->call);
}

static void done(struct fixture *fixture)
{
    ul_arena_done(&fixture->arena);
}

/* "bias, relu, add[1,4,1,1]" */
static const char *posts_text(struct fixture *fixture)
{
    static const char *const names[] = {
        "relu",   "clip",  "gelu", "gelu tanh", "swish", "hard swish", "logistic", "tanh", "elu",
        "linear", "round", "sum",  "add",       "sub",   "mul",        "div",      "max",  "min"};
    const struct ul_call *call = &fixture->call.call;
    struct ul_text text;
    ul_text_init(&text, &fixture->arena);
    ul_text_put(&text, call->bias.rank > 0 ? "bias" : "");
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        ul_text_printf(&text, "%s%s", text.length > 0 ? ", " : "", names[post->kind]);
        if (post->kind == UL_POST_LINEAR || post->kind == UL_POST_CLIP)
            ul_text_printf(&text, "(%g %g)", (double)post->alpha, (double)post->beta);
        for (uint32_t d = 0; d < post->tensor.rank; d++)
            ul_text_printf(&text, "%s%lld", d == 0 ? " " : "x", (long long)post->tensor.dims[d]);
    }
    return text.data;
}

static void expect(const char *text, const char *wanted)
{
    struct fixture fixture;
    bool is_call = describe(&fixture, text, true);
    if (wanted == NULL)
        assert_false(is_call);
    else {
        assert_true(is_call);
        assert_string_equal(posts_text(&fixture), wanted);
    }
    done(&fixture);
}

#define CONV                                                                                       \
    "graph \"t\"\n"                                                                                \
    "input %0 \"x\" f32[1,4,8,8] channels_last own\n"                                              \
    "input %1 \"r\" f32[1,4,8,8] channels_last own\n"                                              \
    "weight %2 \"w\" f32[4,4,3,3] own = splat [0.5]\n"                                             \
    "weight %3 \"b\" f32[4] own = [1.0,2.0,3.0,4.0]\n"                                             \
    "weight %4 \"c\" f32[4,1,1] own = [1.0,2.0,3.0,4.0]\n"                                         \
    "weight %5 \"s\" f32[] own = [2.0]\n"
#define OUT(id, name) "%" #id " \"" name "\" f32[1,4,8,8] channels_last own"
#define BARE OUT(6, "y") " = Conv n0 \"conv\" (%0, %2) {pads=ints[1,1,1,1]}\n"
#define BIASED OUT(6, "y") " = Conv n0 \"conv\" (%0, %2, %3) {pads=ints[1,1,1,1]}\n"

static void convolutions_take_what_follows(void **state)
{
    (void)state;
    expect(CONV BARE "return %6\n", "");
    expect(CONV BIASED OUT(7, "z") " = Relu n1 \"z\" (%6)\nreturn %7\n", "bias, relu");
    expect(CONV BARE OUT(7, "z") " = Add n1 \"z\" (%4, %6)\nreturn %7\n", "bias");
    expect(CONV BIASED OUT(7, "z") " = Mul n1 \"z\" (%6, %4)\nreturn %7\n", "bias, mul 1x4x1x1");
    expect(CONV BARE OUT(7, "z") " = Add n1 \"z\" (%1, %6)\n" OUT(
               8, "a") " = Relu n2 \"a\" (%7)\nreturn %8\n",
           "sum, relu");
    expect(CONV BARE OUT(7, "z") " = Sub n1 \"z\" (%5, %6)\nreturn %7\n", "linear(-1 2)");
    expect(CONV BARE OUT(7, "z") " = Max n1 \"z\" (%6, %5)\nreturn %7\n", "clip(2 inf)");
    expect(CONV BARE OUT(7, "z") " = Clip n1 \"z\" (%6, -, %5)\nreturn %7\n", "clip(-inf 2)");
    expect(CONV BARE OUT(7, "z") " = Gelu n1 \"z\" (%6) {approximate=\"tanh\"}\nreturn %7\n",
           "gelu tanh");
}

/* What a convolution followed by two operations on numbers becomes. */
static void expect_numbers(const char *first, const char *a, const char *second, const char *b,
                           const char *wanted)
{
    char text[1024];
    snprintf(text, sizeof text,
             "graph \"t\"\n"
             "input %%0 \"x\" f32[1,4,8,8] channels_last own\n"
             "weight %%1 \"w\" f32[4,4,3,3] own = splat [0.5]\n"
             "weight %%2 \"a\" f32[] own = [%s]\n"
             "weight %%3 \"b\" f32[] own = [%s]\n"
             "%%4 \"c\" f32[1,4,8,8] channels_last own = Conv n0 \"c\" (%%0, %%1) "
             "{pads=ints[1,1,1,1]}\n"
             "%%5 \"d\" f32[1,4,8,8] channels_last own = %s n1 \"d\" (%%4, %%2)\n"
             "%%6 \"y\" f32[1,4,8,8] channels_last own = %s n2 \"y\" (%%5, %%3)\n"
             "return %%6\n",
             a, b, first, second);
    expect(text, wanted);
}

static void numbers_that_follow(void **state)
{
    (void)state;
    expect_numbers("Mul", "2.0", "Add", "3.0", "linear(2 3)");
    expect_numbers("Add", "3.0", "Mul", "2.0", "linear(2 6)");
    /* Two shifts may be there because they round. */
    expect_numbers("Add", "12582912.0", "Sub", "12582912.0", NULL);
    expect_numbers("Add", "0.5", "Add", "0.25", NULL);
    /* Out of the range of a factor, alone or together. */
    expect_numbers("Mul", "1e30", "Mul", "1e30", NULL);
    expect_numbers("Mul", "1e-30", "Mul", "1e-30", NULL);
    expect_numbers("Mul", "2.0", "Div", "1e-40", NULL);
    expect_numbers("Mul", "2.0", "Div", "0.0", NULL);
    expect_numbers("Mul", "2.0", "Div", "4.0", "linear(0.5 0)");
    /* No numbers. */
    expect_numbers("Mul", "2.0", "Mul", "nan", NULL);
    expect_numbers("Mul", "2.0", "Add", "nan", NULL);
    expect_numbers("Mul", "2.0", "Max", "nan", NULL);
}

static void gates_are_one_function(void **state)
{
    (void)state;
    expect(CONV BARE OUT(7, "g") " = Sigmoid n1 \"g\" (%6)\n" OUT(
               8, "z") " = Mul n2 \"z\" (%6, %7)\nreturn %8\n",
           "swish");
    expect(CONV BARE OUT(7, "g") " = HardSigmoid n1 \"g\" (%6) {alpha=0.16666667, beta=0.5}\n" OUT(
               8, "z") " = Mul n2 \"z\" (%7, %6)\nreturn %8\n",
           "hard swish");
    /* With another function, or where the gate is needed elsewhere, it is not a call. */
    expect(CONV BARE OUT(7, "g") " = Tanh n1 \"g\" (%6)\n" OUT(
               8, "z") " = Mul n2 \"z\" (%6, %7)\nreturn %8\n",
           NULL);
    expect(CONV BARE OUT(7, "g") " = Sigmoid n1 \"g\" (%6)\n" OUT(
               8, "z") " = Mul n2 \"z\" (%6, %7)\nreturn %8, %7\n",
           NULL);
}

static uint32_t tail_of(const char *text)
{
    struct fixture fixture;
    assert_true(describe(&fixture, text, true));
    uint32_t count = fixture.call.call.tail_count;
    done(&fixture);
    return count;
}

static void slow_functions_at_the_end_are_the_tail(void **state)
{
    (void)state;
    assert_int_equal(tail_of(CONV BARE OUT(7, "z") " = Swish n1 \"z\" (%6)\nreturn %7\n"), 1);
    assert_int_equal(tail_of(CONV BARE OUT(7, "z") " = Relu n1 \"z\" (%6)\nreturn %7\n"), 0);
    assert_int_equal(
        tail_of(CONV BARE OUT(7, "z") " = Add n1 \"z\" (%1, %6)\n" OUT(
            8, "a") " = Sigmoid n2 \"a\" (%7)\n" OUT(9, "b") " = Gelu n3 \"b\" (%8)\nreturn %9\n"),
        2);
    /* The library continues after it. */
    assert_int_equal(tail_of(CONV BARE OUT(7, "z") " = Gelu n1 \"z\" (%6)\n" OUT(
                         8, "a") " = Add n2 \"a\" (%1, %7)\nreturn %8\n"),
                     0);
}

static void other_groups_are_no_calls(void **state)
{
    (void)state;
    /* The result in between is needed; a node in front; a function that is no post-operation. */
    expect(CONV BARE OUT(7, "z") " = Relu n1 \"z\" (%6)\nreturn %7, %6\n", NULL);
    expect(CONV OUT(6, "q") " = Relu n0 \"q\" (%0)\n" OUT(
               7, "y") " = Conv n1 \"conv\" (%6, %2) {pads=ints[1,1,1,1]}\nreturn %7\n",
           NULL);
    expect(CONV BARE OUT(7, "z") " = Softsign n1 \"z\" (%6)\nreturn %7\n", NULL);
    expect(CONV BARE OUT(7, "z") " = Div n1 \"z\" (%5, %6)\nreturn %7\n", NULL);
    expect("graph \"t\"\ninput %0 \"x\" i32[2,3] own\nweight %1 \"w\" i32[3,4] own = splat [2]\n"
           "%2 \"y\" i32[2,4] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           NULL);
}

#define SUMS                                                                                       \
    "graph \"t\"\ninput %0 \"x\" u8[1,4,8,8] own\ninput %1 \"r\" u8[1,6,8,8] own\n"                \
    "weight %2 \"w\" i8[6,4,3,3] own = splat [2]\n"                                                \
    "weight %3 \"b\" i32[6,1,1] own = [1,2,3,4,5,6]\n"                                             \
    "weight %4 \"f\" f32[6,1,1] own = [1.0,2.0,3.0,4.0,5.0,6.0]\n"                                 \
    "weight %5 \"z\" u8[] own = [7]\nweight %6 \"g\" f32[] own = [0.5]\n"                          \
    "%7 \"s\" i32[1,6,8,8] own = ConvInteger n0 \"s\" (%0, %2) "                                   \
    "{pads=ints[1,1,1,1], pad_value=9}\n"                                                          \
    "%8 \"a\" i32[1,6,8,8] own = Add n1 \"a\" (%7, %3)\n"

static void sums_of_integers_are_scaled(void **state)
{
    (void)state;
    struct fixture fixture;
    assert_true(
        describe(&fixture,
                 SUMS "%9 \"y\" u8[1,6,8,8] own = ullage::Rescale n2 \"y\" (%5, %8, %4, -, %1, %6, "
                      "%5) {low=7}\nreturn %9\n",
                 true));
    const struct ul_call *call = &fixture.call.call;
    assert_string_equal(posts_text(&fixture), "bias, sum, clip(0 248)");
    assert_int_equal(call->bias.type, UL_CALL_I32);
    assert_int_equal(call->scale_count, 6);
    assert_int_equal(call->src_zero_kind, UL_ZERO_PADDING);
    assert_int_equal(call->src_zero, 9);
    assert_int_equal(call->dst_zero, 7);
    assert_true(call->posts[0].alpha == 0.5f && call->posts[0].beta == 7);
    assert_int_equal(fixture.call.residual, 1);
    assert_int_equal(fixture.call.args[fixture.call.arg_count - 1], 4);
    done(&fixture);
    assert_true(describe(&fixture,
                         SUMS "%9 \"c\" f32[1,6,8,8] own = Cast n2 \"c\" (%8) {to=1}\n"
                              "%10 \"y\" f32[1,6,8,8] own = Mul n3 \"y\" (%6, %9)\nreturn %10\n",
                         true));
    assert_true(fixture.call.call.scale == 0.5f && fixture.call.call.scale_count == 0);
    done(&fixture);
    /* What is rounded in between is rounded in the call as well; a zero point that is not its own
     * is compensated. */
    assert_true(describe(
        &fixture,
        SUMS "%9 \"q\" u8[1,6,8,8] own = ullage::Rescale n2 \"q\" (%5, %8, %4, -) {low=7}\n"
             "weight %10 \"o\" u8[] own = [9]\n"
             "%11 \"y\" u8[1,6,8,8] own = ullage::Rescale n3 \"y\" (%10, %1, %6, %5, %9, %6, %10)\n"
             "return %11\n",
        true));
    assert_string_equal(posts_text(&fixture), "bias, clip(0 248), round, linear(0.5 -1), sum");
    assert_int_equal(fixture.call.call.dst_zero, 9);
    assert_int_equal(fixture.call.residual, 1);
    done(&fixture);
    /* No other node knows that the zero point is still to be added. */
    expect(SUMS "%9 \"q\" u8[1,6,8,8] own = ullage::Rescale n2 \"q\" (%5, %8, %4, -)\n"
                "%10 \"y\" u8[1,6,8,8] own = Max n3 \"y\" (%9, %1)\nreturn %10\n",
           NULL);
    /* i32 can only be added to as i32; the library has no result of 16 bits. */
    expect(SUMS "%9 \"y\" i32[1,6,8,8] own = Mul n2 \"y\" (%8, %3)\nreturn %9\n", NULL);
    expect(SUMS "weight %9 \"q\" u16[] own = [7]\n%10 \"y\" u16[1,6,8,8] own = ullage::Rescale n2 "
                "\"y\" (%9, "
                "%8, %4, -)\nreturn %10\n",
           NULL);
}

static void a_residual_can_be_an_operand(void **state)
{
    (void)state;
    struct fixture fixture;
    assert_true(
        describe(&fixture, CONV BARE OUT(7, "z") " = Add n1 \"z\" (%1, %6)\nreturn %7\n", false));
    assert_string_equal(posts_text(&fixture), "add 1x4x8x8");
    assert_int_equal(fixture.call.residual, UL_NONE);
    assert_int_equal(fixture.call.args[UL_CALL_FIRST_POST], 1);
    done(&fixture);
}

static void expect_dims(const struct ul_call_tensor *tensor, uint32_t rank, const int64_t *dims)
{
    assert_int_equal(tensor->rank, rank);
    for (uint32_t d = 0; d < rank; d++)
        assert_int_equal(tensor->dims[d], dims[d]);
}

static void batches_become_rows(void **state)
{
    (void)state;
    struct fixture fixture;
    assert_true(describe(&fixture,
                         "graph \"t\"\ninput %0 \"x\" f32[2,3,4] own\n"
                         "weight %1 \"w\" f32[4,5] own = splat [2.0]\n"
                         "weight %2 \"b\" f32[5] own = [1.0,2.0,3.0,4.0,5.0]\n"
                         "%3 \"y\" f32[2,3,5] own = MatMul n0 \"y\" (%0, %1)\n"
                         "%4 \"z\" f32[2,3,5] own = Add n1 \"z\" (%2, %3)\nreturn %4\n",
                         true));
    const struct ul_call *call = &fixture.call.call;
    expect_dims(&call->src, 2, (int64_t[]){6, 4});
    expect_dims(&call->weights, 2, (int64_t[]){4, 5});
    expect_dims(&call->bias, 2, (int64_t[]){1, 5});
    expect_dims(&call->dst, 2, (int64_t[]){6, 5});
    assert_true(fixture.call.may_pack);
    done(&fixture);
    /* Heads between the rows stay an axis of their own; a batch of one is no axis. */
    assert_true(describe(&fixture,
                         "graph \"t\"\ninput %0 \"q\" f32[1,3,2,4] own\n"
                         "input %1 \"k\" f32[1,2,4,5] own\n"
                         "%2 \"t\" f32[1,2,3,4] view=%0+0[24,4,8,1] = Transpose n0 \"t\" (%0) "
                         "{perm=ints[0,2,1,3]}\n"
                         "%3 \"y\" f32[1,2,3,5] own = MatMul n1 \"y\" (%2, %1)\nreturn %3\n",
                         true));
    expect_dims(&call->src, 3, (int64_t[]){2, 3, 4});
    assert_int_equal(call->src.strides[0], 4);
    assert_int_equal(call->src.strides[1], 8);
    expect_dims(&call->weights, 3, (int64_t[]){2, 4, 5});
    assert_false(fixture.call.may_pack);
    done(&fixture);
}

static void factors_of_gemm(void **state)
{
    (void)state;
#define GEMM(attributes)                                                                           \
    "graph \"t\"\ninput %0 \"x\" f32[4,2] own\nweight %1 \"w\" f32[5,4] own = splat [2.0]\n"       \
    "weight %2 \"c\" f32[5] own = [1.0,2.0,3.0,4.0,5.0]\n"                                         \
    "%3 \"y\" f32[2,5] own = Gemm n0 \"y\" (%0, %1, %2) {transA=1, transB=1" attributes "}\n"      \
    "return %3\n"
    struct fixture fixture;
    assert_true(describe(&fixture, GEMM(""), true));
    assert_string_equal(posts_text(&fixture), "bias");
    expect_dims(&fixture.call.call.src, 2, (int64_t[]){2, 4});
    assert_int_equal(fixture.call.call.src.strides[1], 2);
    expect_dims(&fixture.call.call.weights, 2, (int64_t[]){4, 5});
    assert_int_equal(fixture.call.call.weights.strides[0], 1);
    done(&fixture);
    expect(GEMM(", alpha=0.5"), "linear(0.5 0), add 1x5");
    expect(GEMM(", beta=0.5"), NULL);
    expect(GEMM(", alpha=0.5, beta=0.0"), "linear(0.5 0)");
#undef GEMM
}

static void windows_over_the_edge(void **state)
{
    (void)state;
#define POOL(op, attributes)                                                                       \
    "graph \"t\"\ninput %0 \"x\" f32[1,4,8,8] channels_last own\n"                                 \
    "%1 \"y\" f32[1,4,4,4] channels_last own = " op " n0 \"y\" (%0) {kernel_shape=ints[3,3], "     \
    "strides=ints[2,2], ceil_mode=1" attributes "}\nreturn %1\n"
    struct fixture fixture;
    assert_true(describe(&fixture, POOL("AveragePool", ""), true));
    assert_int_equal(fixture.call.call.pads[2], 1);
    done(&fixture);
    expect(POOL("MaxPool", ""), NULL);
    expect(POOL("AveragePool", ", count_include_pad=1"), NULL);
#undef POOL
}

/* ---- answers ---- */

static void expect_answer(struct ul_dnnl *dnnl, const char *text, bool pack)
{
    struct fixture fixture;
    assert_true(describe(&fixture, text, true));
    assert_true(ul_dnnl_answer(dnnl, &fixture.call, pack));
    const struct ul_call *call = &fixture.call.call;
    assert_false(ul_library_refuses(call->implementation));
    assert_int_equal(call->pack != NULL, pack && fixture.call.may_pack);
    if (call->pack != NULL) {
        const struct ul_type *type = &fixture.graph.values[fixture.call.args[UL_CALL_WEIGHTS]].type;
        uint64_t elements = 1;
        for (uint32_t d = 0; d < call->pack->rank; d++)
            elements *= (uint64_t)call->pack->dims[d];
        assert_int_equal(elements, ul_type_elements(type));
        assert_true(call->pack->size_bytes >= ul_type_bytes(type));
    }
    struct ul_group_call again;
    const struct ul_block *block = &fixture.graph.blocks[0];
    bool escapes[16] = {false};
    escapes[block->outputs[0]] = true;
    assert_true(
        ul_group_call_make(&fixture.graph, block->nodes, block->node_count, escapes, true, &again));
    assert_true(ul_dnnl_answer(dnnl, &again, pack));
    assert_memory_equal(&again.call, call, sizeof *call);
    done(&fixture);
}

static void answers_are_no_reference_code(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_dnnl *dnnl;
    ul_arena_init(&arena);
    assert_int_equal(ul_dnnl_open(&arena, NULL, 1, &dnnl, &diag), UL_OK);
    expect_answer(dnnl,
                  CONV BIASED OUT(7, "z") " = Add n1 \"z\" (%1, %6)\n" OUT(
                      8, "a") " = Relu n2 \"a\" (%7)\nreturn %8\n",
                  true);
    expect_answer(dnnl,
                  "graph \"t\"\ninput %0 \"x\" f32[1,16,9,9] channels_last own\n"
                  "weight %1 \"w\" f32[16,1,3,3] own = splat [0.5]\n"
                  "%2 \"y\" f32[1,16,9,9] channels_last own = Conv n0 \"y\" (%0, %1) "
                  "{pads=ints[1,1,1,1], group=16}\nreturn %2\n",
                  true);
    expect_answer(dnnl,
                  "graph \"t\"\ninput %0 \"x\" f32[1,16,9,9] channels_last own\n"
                  "%1 \"y\" f32[1,16,4,4] channels_last own = AveragePool n0 \"y\" (%0) "
                  "{kernel_shape=ints[3,3], strides=ints[2,2]}\nreturn %1\n",
                  true);
    /* Not the library's first offer where that is AVX-512's brdgmm_dw. */
    struct fixture rows;
    assert_true(describe(&rows,
                         "graph \"t\"\ninput %0 \"x\" f32[1,32,9,9] channels_last own\n"
                         "weight %1 \"w\" f32[32,1,3,3] own = splat [0.5]\n"
                         "%2 \"y\" f32[1,32,9,9] channels_last own = Conv n0 \"y\" (%0, %1) "
                         "{pads=ints[1,1,1,1], group=32}\nreturn %2\n",
                         true));
    assert_true(ul_dnnl_answer(dnnl, &rows.call, true));
    assert_memory_equal(rows.call.call.implementation, "jit_dw:", 7);
    done(&rows);
    /* A source that is not channels-last goes through a copy, where there is enough to compute. */
    struct fixture fixture;
    assert_true(describe(&fixture,
                         "graph \"t\"\ninput %0 \"x\" f32[1,32,16,16] own\n"
                         "weight %1 \"w\" f32[64,32,3,3] own = splat [0.5]\n"
                         "%2 \"y\" f32[1,64,16,16] channels_last own = Conv n0 \"y\" (%0, %1) "
                         "{pads=ints[1,1,1,1]}\nreturn %2\n",
                         true));
    assert_true(ul_dnnl_answer(dnnl, &fixture.call, true));
    assert_int_equal(fixture.call.call.src_copy_bytes, 4 * 32 * 16 * 16);
    assert_int_equal(fixture.call.call.dst_copy_bytes, 0);
    assert_true(fixture.call.call.scratch_bytes >= fixture.call.call.src_copy_bytes);
    done(&fixture);
    ul_dnnl_close(dnnl);
    ul_arena_done(&arena);
}

/* A convolution of integers, `k` by `k`. */
#define INTEGER_CONV(in, out, side, k, pad)                                                        \
    "graph \"t\"\ninput %0 \"x\" u8[1," in "," side "," side "] channels_last own\n"               \
    "weight %1 \"w\" i8[" out "," in "," k "," k "] own = splat [1]\n"                             \
    "weight %2 \"z\" u8[] own = [7]\nweight %3 \"f\" f32[] own = [0.5]\n"                          \
    "%4 \"s\" i32[1," out "," side "," side "] channels_last own = ConvInteger n0 \"s\" (%0, %1) " \
    "{pads=ints[" pad "," pad "," pad "," pad "]}\n"                                               \
    "%5 \"y\" u8[1," out "," side "," side "] channels_last own = ullage::Rescale n1 \"y\" (%2, "  \
    "%4, %3, -)\nreturn %5\n"

static void expect_tiles(struct ul_dnnl *dnnl, const char *text, bool expected)
{
    struct fixture fixture;
    assert_true(describe(&fixture, text, true));
    assert_true(ul_dnnl_answer(dnnl, &fixture.call, true));
    assert_int_equal(strstr(fixture.call.call.implementation, "amx") != NULL, expected);
    done(&fixture);
}

/* Integers are computed in tiles where a processor has them, but not for sums of few products, nor
 * for one pixel. */
static void integers_are_computed_in_tiles(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_dnnl *dnnl;
    ul_arena_init(&arena);
    assert_int_equal(ul_dnnl_open(&arena, NULL, 1, &dnnl, &diag), UL_OK);
    bool has_tiles = strcmp(dnnl->isa, "avx512_core_amx") == 0;
    if (has_tiles) {
        expect_tiles(dnnl, INTEGER_CONV("64", "64", "28", "3", "1"), true);
        expect_tiles(dnnl, INTEGER_CONV("256", "256", "14", "1", "0"), true);
        expect_tiles(dnnl, INTEGER_CONV("16", "96", "28", "1", "0"), false);
        expect_tiles(dnnl, INTEGER_CONV("256", "256", "1", "1", "0"), false);
    }
    ul_dnnl_close(dnnl);
    ul_arena_done(&arena);
    if (!has_tiles)
        skip();
}

/* The one node of a graph, whose weights cannot be packed once, as the library answers it. */
static struct ul_call answer_changing(struct ul_dnnl *dnnl, const char *text)
{
    struct fixture fixture;
    assert_true(describe(&fixture, text, true));
    assert_false(fixture.call.may_pack);
    assert_true(ul_dnnl_answer(dnnl, &fixture.call, true));
    struct ul_call call = fixture.call.call;
    done(&fixture);
    assert_null(call.pack);
    assert_int_equal(call.src_copy_bytes, 0);
    assert_int_equal(ul_call_layout_bytes(&call), call.layout.size_bytes);
    assert_true(ul_call_layout_bytes(&call) >= 4 * 48 * 32 * 9);
    assert_true(call.scratch_bytes >= ul_call_layout_bytes(&call));
    return call;
}

#define CONV_OF_CHANGING                                                                           \
    "graph \"t\"\ninput %0 \"x\" f32[2,32,9,9] channels_last own\n"                                \
    "weight %1 \"w\" f32[48,32,3,3] persistent own = splat [0.5]\n"                                \
    "%2 \"y\" f32[2,48,5,5] channels_last own = Conv n0 \"y\" (%0, %1) "                           \
    "{pads=ints[1,1,1,1], strides=ints[2,2]}\nreturn %2\n"
#define GRADIENT_OF_CONV                                                                           \
    "graph \"t\"\ninput %0 \"x\" f32[2,32,9,9] channels_last own\n"                                \
    "input %1 \"dy\" f32[2,48,5,5] channels_last own\n"                                            \
    "%2 \"dw\" f32[48,32,3,3] own = ullage::ConvWeightGradient n0 \"dw\" (%0, %1) "                \
    "{pads=ints[1,1,1,1], strides=ints[2,2], kernel_shape=ints[3,3]}\nreturn %2\n"

/* The code that a convolution runs through, its gradient, and both: in this order or the other. */
static void count_both(bool turned, uint64_t *bytes)
{
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_dnnl *dnnl;
    ul_arena_init(&arena);
    assert_int_equal(ul_dnnl_open(&arena, NULL, 2, &dnnl, &diag), UL_OK);
    const struct ul_call conv = answer_changing(dnnl, CONV_OF_CHANGING),
                         gradient = answer_changing(dnnl, GRADIENT_OF_CONV);
    const struct ul_call *const calls[] = {&conv, &gradient};
    if (turned)
        bytes[2] = ul_dnnl_reached_bytes(dnnl, calls, 2);
    bytes[turned] = ul_dnnl_reached_bytes(dnnl, &calls[turned], 1);
    bytes[!turned] = ul_dnnl_reached_bytes(dnnl, &calls[!turned], 1);
    if (!turned)
        bytes[2] = ul_dnnl_reached_bytes(dnnl, calls, 2);
    ul_dnnl_close(dnnl);
    ul_arena_done(&arena);
}

static void code_that_calls_reach_is_counted(void **state)
{
    (void)state;
    uint64_t bytes[3], again[3];
    count_both(false, bytes);
    count_both(true, again);
    assert_memory_equal(bytes, again, sizeof bytes);
    if (bytes[2] == 0)
        skip();
    assert_true(bytes[0] > 0 && bytes[1] > 0);
    assert_true(bytes[2] > bytes[0] && bytes[2] > bytes[1] && bytes[2] < bytes[0] + bytes[1]);
}

static void weights_that_change_are_copied(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_dnnl *dnnl;
    ul_arena_init(&arena);
    assert_int_equal(ul_dnnl_open(&arena, NULL, 2, &dnnl, &diag), UL_OK);
    struct ul_call call = answer_changing(dnnl, CONV_OF_CHANGING);
    assert_int_equal(call.kind, UL_CALL_CONVOLUTION);
    assert_int_equal(call.weights_copy_bytes, call.layout.size_bytes);
    call =
        answer_changing(dnnl, "graph \"t\"\ninput %0 \"dy\" f32[2,48,5,5] channels_last own\n"
                              "weight %1 \"w\" f32[48,32,3,3] persistent own = splat [0.5]\n"
                              "%2 \"dx\" f32[2,32,9,9] channels_last own = ConvTranspose n0 \"dx\" "
                              "(%0, %1) {pads=ints[1,1,1,1], strides=ints[2,2]}\nreturn %2\n");
    assert_int_equal(call.kind, UL_CALL_DECONVOLUTION);
    call = answer_changing(dnnl, GRADIENT_OF_CONV);
    assert_int_equal(call.kind, UL_CALL_WEIGHT_GRADIENT);
    assert_int_equal(call.weights_copy_bytes, 0);
    assert_int_equal(call.dst_copy_bytes, call.layout.size_bytes);
    ul_dnnl_close(dnnl);
    ul_arena_done(&arena);
}

#define TRANSPOSED(shape)                                                                          \
    "graph \"t\"\n"                                                                                \
    "input %0 \"x\" f32[2,32,9,9] channels_last own\n"                                             \
    "input %1 \"r\" f32[2,48,9,9] channels_last own\n"                                             \
    "weight %2 \"w\" f32[32,48," shape "] persistent own = splat [0.5]\n"                          \
    "%3 \"y\" f32[2,48,9,9] channels_last own = ConvTranspose n0 \"y\" (%0, %2) "

static void expect_transposed(struct ul_dnnl *dnnl, const char *text, enum ul_call_kind kind,
                              bool answered)
{
    struct fixture fixture;
    assert_true(describe(&fixture, text, true));
    assert_int_equal(fixture.call.call.kind, kind);
    assert_int_equal(ul_dnnl_answer(dnnl, &fixture.call, true), answered);
    done(&fixture);
}

/* oneDNN computes what follows them by reference code; those of one place are convolutions. */
static void transposed_convolutions_stand_alone(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_dnnl *dnnl;
    ul_arena_init(&arena);
    assert_int_equal(ul_dnnl_open(&arena, NULL, 2, &dnnl, &diag), UL_OK);
    expect_transposed(dnnl, TRANSPOSED("3,3") "{pads=ints[1,1,1,1]}\nreturn %3\n",
                      UL_CALL_DECONVOLUTION, true);
    expect_transposed(dnnl,
                      TRANSPOSED("3,3") "{pads=ints[1,1,1,1]}\n"
                                        "%4 \"z\" f32[2,48,9,9] channels_last own"
                                        " = Add n1 \"z\" (%3, %1)\nreturn %4\n",
                      UL_CALL_DECONVOLUTION, false);
    expect_transposed(dnnl,
                      TRANSPOSED("1,1") "\n"
                                        "%4 \"z\" f32[2,48,9,9] channels_last own"
                                        " = Add n1 \"z\" (%3, %1)\nreturn %4\n",
                      UL_CALL_CONVOLUTION, true);
    ul_dnnl_close(dnnl);
    ul_arena_done(&arena);
}

#undef TRANSPOSED

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_take_what_follows),
        cmocka_unit_test(numbers_that_follow),
        cmocka_unit_test(gates_are_one_function),
        cmocka_unit_test(slow_functions_at_the_end_are_the_tail),
        cmocka_unit_test(other_groups_are_no_calls),
        cmocka_unit_test(sums_of_integers_are_scaled),
        cmocka_unit_test(a_residual_can_be_an_operand),
        cmocka_unit_test(batches_become_rows),
        cmocka_unit_test(factors_of_gemm),
        cmocka_unit_test(windows_over_the_edge),
        cmocka_unit_test(answers_are_no_reference_code),
        cmocka_unit_test(integers_are_computed_in_tiles),
        cmocka_unit_test(weights_that_change_are_copied),
        cmocka_unit_test(code_that_calls_reach_is_counted),
        cmocka_unit_test(transposed_convolutions_stand_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
