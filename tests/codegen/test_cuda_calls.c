/* SPDX-License-Identifier: Apache-2.0 */
/* What target cuda passes to cuBLASLt and cuDNN, decided from the graph alone: layouts, epilogues,
 * workspaces, alignments; and what stays a kernel of ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cuda/cuda.h"
#include "codegen/program/calls_internal.h"
#include "codegen/target.h"
#include "ir/text.h"
#include "ir/view.h"

enum { WORKSPACE = 4 << 20, LITTLE = 64 << 10 };

struct fixture {
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_group_call call;
    bool is_call;
};

static const struct ul_libraries *open_all(struct ul_arena *arena,
                                           const struct ul_program_options *options)
{
    const struct ul_libraries *libraries;
    struct ul_diag diag = {0};
    struct ul_program_options all = *options;
    all.target = ul_target_find("cuda");
    assert_int_equal(ul_libraries_open(arena, &all, &libraries, &diag), UL_OK);
    return libraries;
}

/* The main block as one group, answered; the values that it returns are needed outside. */
static void ask(struct fixture *fixture, const struct ul_program_options *options, const char *text)
{
    struct ul_diag diag = {0};
    struct ul_group_call described;
    ul_arena_init(&fixture->arena);
    if (ul_graph_parse(&fixture->graph, &fixture->arena, text, NULL, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_libraries *libraries = open_all(&fixture->arena, options);
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
    fixture->is_call = false;
    if (!ul_group_call_make(graph, nodes, count, escapes, true, &described))
        return;
    for (uint32_t i = 0; i < libraries->count && !fixture->is_call; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        fixture->call = described;
        fixture->call.library = library;
        fixture->is_call = library->answer(library->context, &fixture->call, true);
    }
    ul_libraries_close(libraries);
}

static const struct ul_program_options plain = {
    .workspace_bytes = WORKSPACE, .workspace_free_bytes = WORKSPACE, .has_cudnn = true};

/* "cublaslt [8x16] [16x32] > [8x32]" and its workspace, NULL: no call */
static void expect(const struct ul_program_options *options, const char *text, const char *wanted,
                   uint64_t workspace_bytes)
{
    struct fixture fixture;
    struct ul_text said;
    ask(&fixture, options, text);
    assert_int_equal(fixture.is_call, wanted != NULL);
    if (wanted != NULL) {
        const struct ul_call *call = &fixture.call.call;
        const struct ul_call_tensor *tensors[] = {&call->src, &call->weights, &call->dst};
        ul_text_init(&said, &fixture.arena);
        ul_text_put(&said, call->implementation);
        for (int i = 0; i < 3; i++) {
            ul_text_put(&said, i == 2 ? " > [" : " [");
            for (uint32_t d = 0; d < tensors[i]->rank; d++)
                ul_text_printf(&said, "%s%lld", d == 0 ? "" : "x", (long long)tensors[i]->dims[d]);
            ul_text_put(&said, "]");
        }
        assert_string_equal(said.data, wanted);
        assert_int_equal(call->scratch_bytes, workspace_bytes);
        assert_int_equal(call->tail_count, 0);
        assert_true(call->pack == NULL);
    }
    ul_arena_done(&fixture.arena);
}

#define HEAD "graph \"g\"\n"
#define X "input %0 \"x\" f32[64,128] own\n"
#define W "weight %1 \"w\" f32[128,64] own = splat [0.5]\n"
#define PRODUCT HEAD X W "%2 \"y\" f32[64,64] own = MatMul n0 \"y\" (%0, %1)\n"

/* Against one kernel of ours for both: a launch more counts where there is little to multiply, and
 * a pass over the result where sums are short. */
static void test_worth(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_program_options options = plain;
    struct ul_group_call call = {.call = {.kind = UL_CALL_MATMUL,
                                          .src = {.type = UL_CALL_F16},
                                          .weights = {.type = UL_CALL_F16},
                                          .dst = {.type = UL_CALL_F16}}};
    options.profile = ul_profile_find("h100-sxm"); /* 1.5 us a launch, 989.5 T, 3350 GB/s */
    ul_arena_init(&arena);
    const struct ul_libraries *libraries = open_all(&arena, &options);
    const struct ul_target_library *library = &libraries->rows[0];
    call.product_count = (uint64_t)1 << 28; /* 0.5 us */
    assert_false(library->is_worth(library->context, &call, 1 << 20));
    call.product_count = (uint64_t)1 << 30; /* 2.2 us */
    assert_true(library->is_worth(library->context, &call, 1 << 20));
    assert_false(library->is_worth(library->context, &call, 4 << 20));
    assert_true(libraries->rows[1].is_worth == NULL);
    ul_libraries_close(libraries);
    ul_arena_done(&arena);
}

static void test_products(void **state)
{
    (void)state;
    expect(&plain, PRODUCT "return %2\n", "cublaslt [64x128] [128x64] > [64x64]", LITTLE);
    /* few tiles and long sums: cut in parts, each with results of its own */
    expect(&plain,
           HEAD "input %0 \"x\" f32[64,1024] own\n"
                "weight %1 \"w\" f32[1024,64] own = splat [0.5]\n"
                "%2 \"y\" f32[64,64] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           "cublaslt [64x1024] [1024x64] > [64x64]", LITTLE + 4 * 64 * 64 * 4);
    /* rows of a batch with one right operand are rows */
    expect(&plain,
           HEAD "input %0 \"x\" f32[4,16,128] own\n" W
                "%2 \"y\" f32[4,16,64] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           "cublaslt [64x128] [128x64] > [64x64]", LITTLE);
    expect(&plain,
           HEAD "input %0 \"x\" f32[4,32,32] own\ninput %1 \"z\" f32[4,32,32] own\n"
                "%2 \"y\" f32[4,32,32] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           "cublaslt [4x32x32] [4x32x32] > [4x32x32]", LITTLE);
    /* of many matrices of few rows, the longer axis is that of the rows */
    expect(&plain,
           HEAD "input %0 \"x\" f32[3,40,128] own\n" W
                "%2 \"t\" f32[40,3,128] view=%0+0[128,5120,1] = Transpose n0 \"t\" (%0) "
                "{perm=ints[1,0,2]}\n"
                "%3 \"y\" f32[40,3,64] own = MatMul n1 \"y\" (%2, %1)\nreturn %3\n",
           "cublaslt [3x40x128] [1x128x64] > [3x40x64]", LITTLE);
    /* few operations, of all or of each matrix; short sums */
    expect(&plain,
           HEAD "input %0 \"x\" f32[8,16] own\ninput %1 \"z\" f32[16,8] own\n"
                "%2 \"y\" f32[8,8] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           NULL, 0);
    expect(&plain,
           HEAD "input %0 \"x\" f32[512,8,8] own\ninput %1 \"z\" f32[512,8,8] own\n"
                "%2 \"y\" f32[512,8,8] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           NULL, 0);
    expect(&plain,
           HEAD "input %0 \"x\" f32[512,2] own\ninput %1 \"z\" f32[2,512] own\n"
                "%2 \"y\" f32[512,512] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n",
           NULL, 0);
}

static void test_sums(void **state)
{
    (void)state;
    /* 2^30 products, whose sums become floats in their place */
#define FACTORS(type, columns)                                                                     \
    HEAD "input %0 \"x\" " type "[1024,1024] own\n"                                                \
         "weight %1 \"w\" i8[" columns ",1024] own = splat [5]\n"                                  \
         "%2 \"t\" i8[1024," columns "] view=%1+0[1,1024] = Transpose n0 \"t\" (%1) "              \
         "{perm=ints[1,0]}\n"                                                                      \
         "%3 \"y\" i32[1024," columns "] own = MatMulInteger n1 \"y\" (%0, %2)\n"
    expect(&plain, FACTORS("i8", "1024") "return %3\n",
           "cublaslt [1024x1024] [1024x1024] > [1024x1024]", WORKSPACE);
    expect(&plain, FACTORS("u8", "1024") "return %3\n", NULL, 0);
    expect(&plain, FACTORS("i8", "1026") "return %3\n", NULL, 0);
    expect(&plain, FACTORS("i8", "1020") "return %3\n", NULL, 0);
}

static void test_epilogues(void **state)
{
    (void)state;
    const char *wanted = "cublaslt [64x128] [128x64] > [64x64]";
#define BIAS "input %3 \"b\" f32[64] own\n"
#define BIASED                                                                                     \
    HEAD X W BIAS "input %4 \"r\" f32[64,64] own\n"                                                \
                  "%2 \"m\" f32[64,64] own = MatMul n0 \"m\" (%0, %1)\n"                           \
                  "%5 \"a\" f32[64,64] own = Add n1 \"a\" (%2, %3)\n"
    expect(&plain, BIASED "return %5\n", wanted, LITTLE);
    expect(&plain, BIASED "%6 \"y\" f32[64,64] own = Relu n2 \"y\" (%5)\nreturn %6\n", wanted,
           LITTLE);
    expect(&plain,
           BIASED "%6 \"s\" f32[64,64] own = Add n2 \"s\" (%5, %4)\n"
                  "%7 \"y\" f32[64,64] own = Relu n3 \"y\" (%6)\nreturn %7\n",
           wanted, LITTLE);
    expect(&plain,
           BIASED
           "%6 \"y\" f32[64,64] own = Gelu n2 \"y\" (%5) {approximate=\"tanh\"}\nreturn %6\n",
           wanted, LITTLE);
    /* ONNX's default is the error function */
    expect(&plain, BIASED "%6 \"y\" f32[64,64] own = Gelu n2 \"y\" (%5)\nreturn %6\n", NULL, 0);
    expect(&plain, BIASED "%6 \"y\" f32[64,64] own = Tanh n2 \"y\" (%5)\nreturn %6\n", NULL, 0);
    /* nothing follows an activation */
    expect(&plain,
           BIASED "%6 \"s\" f32[64,64] own = Relu n2 \"s\" (%5)\n"
                  "%7 \"y\" f32[64,64] own = Add n3 \"y\" (%6, %4)\nreturn %7\n",
           NULL, 0);
}

static void test_bounds(void **state)
{
    (void)state;
    struct ul_program_options options = plain;
    struct fixture fixture;
    options.workspace_bytes = 100;
    expect(&options, PRODUCT "return %2\n", "cublaslt [64x128] [128x64] > [64x64]", 64);
    options.align_bytes = 32; /* scratch must start at a multiple of 64, or there is none */
    expect(&options, PRODUCT "return %2\n", "cublaslt [64x128] [128x64] > [64x64]", 0);
    options.align_bytes = 0;
    options.workspace_bytes = 0;
    options.io_caller = true;
    options.tf32 = true;
    ask(&fixture, &options, PRODUCT "return %2\n");
    assert_true(fixture.is_call);
    assert_int_equal(fixture.call.call.scratch_bytes, 0);
    assert_int_equal(fixture.call.call.tf32, 1);
    assert_int_equal(fixture.call.call.align_bytes, 16);
    ul_arena_done(&fixture.arena);
    ask(&fixture, &plain, PRODUCT "return %2\n");
    assert_int_equal(fixture.call.call.tf32, 0);
    assert_int_equal(fixture.call.call.align_bytes, UL_PLAN_ALIGN_BYTES);
    ul_arena_done(&fixture.arena);
}

/* How much of a workspace a budget may take away, and that this costs time. */
static void test_leaner(void **state)
{
    (void)state;
    struct fixture fixture;
    ask(&fixture, &plain,
        HEAD "input %0 \"x\" f32[64,1024] own\n"
             "weight %1 \"w\" f32[1024,64] own = splat [0.5]\n"
             "%2 \"y\" f32[64,64] own = MatMul n0 \"y\" (%0, %1)\nreturn %2\n");
    assert_true(fixture.is_call);
    const struct ul_target_library *library = fixture.call.library;
    struct ul_call *call = &fixture.call.call;
    assert_true(library->leaner(library->context, call) > 1);
    assert_int_equal(call->scratch_bytes, LITTLE);
    assert_true(library->leaner(library->context, call) > 1);
    assert_int_equal(call->scratch_bytes, 0);
    assert_true(library->leaner(library->context, call) == 0);
    ul_arena_done(&fixture.arena);
}

/* Dense, with channels innermost in memory: a view of [n, h, w, c]. */
#define IMAGE                                                                                      \
    "input %0 \"image\" f32[1,10,10,16] own\n"                                                     \
    "%1 \"x\" f32[1,16,10,10] view=%0+0[1600,1,160,16] = Transpose n0 \"x\" (%0) "                 \
    "{perm=ints[0,3,1,2]}\n"
#define FILTER                                                                                     \
    "weight %2 \"stored\" f32[32,3,3,16] own = splat [0.5]\n"                                      \
    "%3 \"w\" f32[32,16,3,3] view=%2+0[144,1,48,16] = Transpose n1 \"w\" (%2) "                    \
    "{perm=ints[0,3,1,2]}\nweight %4 \"b\" f32[32] own = splat [1.0]\n"

static void test_convolutions(void **state)
{
    (void)state;
    struct ul_program_options without = plain;
    const char *wanted = "cudnn [1x16x10x10] [32x16x3x3] > [1x32x10x10]";
    const uint64_t bytes = LITTLE + 4 * (16 * 100 + 32 * 144 + 32 * 100);
#define CONV                                                                                       \
    HEAD IMAGE FILTER "%5 \"y\" f32[1,32,10,10] channels_last own = Conv n2 \"y\" (%1, %3, %4) "   \
                      "{pads=ints[1,1,1,1]}\n"
    expect(&plain, CONV "return %5\n", wanted, bytes);
    expect(&plain,
           CONV "%6 \"z\" f32[1,32,10,10] channels_last own = Relu n3 \"z\" (%5)\nreturn %6\n",
           wanted, bytes);
    without.has_cudnn = false;
    expect(&without, CONV "return %5\n", NULL, 0);
    /* other sizes of padding at the ends; an activation without a bias */
    expect(&plain,
           HEAD IMAGE FILTER "%5 \"y\" f32[1,32,9,9] channels_last own = Conv n2 \"y\" (%1, %3, "
                             "%4) {pads=ints[1,1,0,0]}\n"
                             "return %5\n",
           NULL, 0);
    expect(
        &plain,
        HEAD IMAGE FILTER
        "%5 \"y\" f32[1,32,10,10] channels_last own = Conv n2 \"y\" (%1, %3) {pads=ints[1,1,1,1]}\n"
        "%6 \"z\" f32[1,32,10,10] channels_last own = Relu n3 \"z\" (%5)\nreturn %6\n",
        NULL, 0);
    /* one place: a product of pixels, without cuDNN */
    expect(&without,
           HEAD IMAGE
           "weight %2 \"w\" f32[32,16,1,1] own = splat [0.5]\n"
           "%3 \"y\" f32[1,32,10,10] channels_last own = Conv n1 \"y\" (%1, %2)\nreturn %3\n",
           "cublaslt [100x16] [16x32] > [100x32]", LITTLE);
}

static void test_attention(void **state)
{
    (void)state;
    enum { BYTES = 448 }; /* 256 of them wherever scratch begins */
    struct ul_program_options without = plain;
    const char *wanted = "cudnn [1x8x512x64] [1x8x512x64] > [1x8x512x64]";
#define HEADS(type, size)                                                                          \
    HEAD "input %0 \"q\" f32[1,8,512," size "] " type "own\n"                                      \
         "input %1 \"k\" f32[1,8,512," size "] " type "own\n"                                      \
         "input %2 \"v\" f32[1,8,512," size "] " type "own\n"
#define ATTENTION(type, size, inputs, attributes)                                                  \
    "%9 \"y\" f32[1,8,512," size "] " type                                                         \
    "own = ullage::FusedAttention n0 \"y\" (%0, %1, %2" inputs ") {" attributes "}\nreturn %9\n"
    expect(&plain, HEADS("storage=f16 ", "64") ATTENTION("storage=f16 ", "64", "", "is_causal=1"),
           wanted, BYTES);
    expect(&plain, HEADS("storage=bf16 ", "64") ATTENTION("storage=bf16 ", "64", "", "scale=0.5"),
           wanted, BYTES);
    /* a mask for all heads, and one of what is no number; a soft cap */
    expect(&plain,
           HEADS("storage=f16 ", "64") "input %3 \"m\" f32[512] own\n" ATTENTION(
               "storage=f16 ", "64", ", %3", "is_causal=0"),
           wanted, BYTES);
    expect(&plain,
           HEADS("storage=f16 ", "64") "input %3 \"m\" bool[512,512] own\n" ATTENTION(
               "storage=f16 ", "64", ", %3", "is_causal=0"),
           NULL, 0);
    expect(&plain, HEADS("storage=f16 ", "64") ATTENTION("storage=f16 ", "64", "", "softcap=2.0"),
           NULL, 0);
    /* weights are dropped by Dropout's own counter */
    expect(&plain,
           HEADS("storage=f16 ", "64") "input %3 \"key\" i64[] own\n" ATTENTION(
               "storage=f16 ", "64", ", -, -, -, -, -, %3", "ratio=0.1, seed=3"),
           NULL, 0);
    /* zeros where no key is seen: all see one unless a mask says otherwise */
    expect(&plain, HEADS("storage=f16 ", "64") ATTENTION("storage=f16 ", "64", "", "nan_is_zero=1"),
           wanted, BYTES);
    expect(&plain,
           HEADS("storage=f16 ", "64") "input %3 \"m\" f32[512,512] own\n" ATTENTION(
               "storage=f16 ", "64", ", %3", "nan_is_zero=1"),
           NULL, 0);
    /* norms, which a gradient reads, in f32 */
    expect(
        &plain,
        HEADS(
            "storage=f16 ",
            "64") "%9 \"y\" f32[1,8,512,64] storage=f16 own, %10 \"n\" f32[1,8,512] own"
                  " = ullage::FusedAttention n0 \"y\" (%0, %1, %2) {is_causal=1}\nreturn %9, %10\n",
        wanted, BYTES);
    expect(
        &plain,
        HEADS(
            "storage=f16 ",
            "64") "%9 \"y\" f32[1,8,512,64] storage=f16 own, %10 \"n\" f32[1,8,512] storage=f16 own"
                  " = ullage::FusedAttention n0 \"y\" (%0, %1, %2) {is_causal=1}\nreturn %9, %10\n",
        NULL, 0);
    /* other types, other sizes, no cuDNN */
    expect(&plain, HEADS("", "64") ATTENTION("", "64", "", "is_causal=1"), NULL, 0);
    expect(&plain, HEADS("storage=f16 ", "64") ATTENTION("", "64", "", "is_causal=1"), NULL, 0);
    expect(&plain, HEADS("storage=f16 ", "68") ATTENTION("storage=f16 ", "68", "", "is_causal=1"),
           NULL, 0);
    expect(&plain, HEADS("storage=f16 ", "264") ATTENTION("storage=f16 ", "264", "", "is_causal=1"),
           NULL, 0);
    without.has_cudnn = false;
    expect(&without, HEADS("storage=f16 ", "64") ATTENTION("storage=f16 ", "64", "", "is_causal=1"),
           NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worth),        cmocka_unit_test(test_products),
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_epilogues),
        cmocka_unit_test(test_bounds),       cmocka_unit_test(test_leaner),
        cmocka_unit_test(test_convolutions), cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
