/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of calls: taken where the library computes them with the bits of the whole, refused where
 * it would add in another order, whatever the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cpu/dnnl.h"
#include "codegen/cpu/dnnl_internal.h"
#include "ir/text.h"

struct fixture {
    struct ul_arena arena;
    struct ul_dnnl *dnnl;
};

static void done(struct fixture *fixture)
{
    ul_dnnl_close(fixture->dnnl);
    ul_arena_done(&fixture->arena);
}

/* The graph's main block as one call, not yet answered. */
static void describe(struct fixture *fixture, const char *text, struct ul_group_call *call)
{
    struct ul_diag diag = {0};
    struct ul_graph graph;
    if (ul_graph_parse(&graph, &fixture->arena, text, NULL, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_block *block = &graph.blocks[0];
    bool *escapes = UL_NEW_ARRAY(&fixture->arena, bool, graph.value_count);
    escapes[block->outputs[0]] = true;
    assert_true(ul_group_call_make(&graph, block->nodes, block->node_count, escapes, true, call));
}

/* "f32[1,16,%d,12]": a convolution of so many rows, its pads at the ends. */
static void convolution(struct fixture *fixture, int rows, int top, int bottom,
                        struct ul_group_call *call)
{
    describe(fixture,
             ul_arena_printf(&fixture->arena,
                             "graph \"t\"\n"
                             "input %%0 \"x\" f32[1,16,%d,12] channels_last own\n"
                             "weight %%1 \"w\" f32[32,16,3,3] own = splat [0.5]\n"
                             "%%2 \"y\" f32[1,32,%d,12] channels_last own = Conv n0 \"conv\" "
                             "(%%0, %%1) {pads=ints[%d,1,%d,1]}\n"
                             "%%3 \"z\" f32[1,32,%d,12] channels_last own = Relu n1 \"relu\" "
                             "(%%2)\nreturn %%3\n",
                             rows, rows + top + bottom - 2, top, bottom, rows + top + bottom - 2),
             call);
}

/* A convolution that the library was asked for, whose pieces are to come. */
static void begin(struct fixture *fixture, int rows, struct ul_group_call *unsplit)
{
    struct ul_diag diag = {0};
    ul_arena_init(&fixture->arena);
    assert_int_equal(ul_dnnl_open(&fixture->arena, NULL, 1, &fixture->dnnl, &diag), UL_OK);
    convolution(fixture, rows, 1, 1, unsplit);
    assert_true(ul_dnnl_answer(fixture->dnnl, unsplit, true));
}

static bool answer(struct fixture *fixture, const struct ul_call *unsplit, int64_t first_row,
                   struct ul_group_call *call)
{
    struct ul_piece piece = {.unsplit = unsplit,
                             .unsplit_product_count = 1 << 20,
                             .offset = first_row * unsplit->dst.strides[2]};
    return ul_piece_answer(fixture->dnnl, &piece, call);
}

static void rows_of_a_convolution(void **state)
{
    (void)state;
    struct fixture fixture;
    struct ul_group_call unsplit, top, middle, other, bottom;
    begin(&fixture, 24, &unsplit);
    convolution(&fixture, 9, 1, 0, &top);
    convolution(&fixture, 10, 0, 0, &middle);
    convolution(&fixture, 10, 0, 0, &other);
    convolution(&fixture, 9, 0, 1, &bottom);
    assert_true(answer(&fixture, &unsplit.call, 0, &top));
    assert_true(answer(&fixture, &unsplit.call, 8, &middle));
    assert_true(answer(&fixture, &unsplit.call, 11, &other));
    assert_true(answer(&fixture, &unsplit.call, 16, &bottom));
    /* They have the same implementation and the same weights; pieces of one shape are one call. */
    assert_string_equal(top.call.implementation, unsplit.call.implementation);
    assert_ptr_equal(top.call.pack, unsplit.call.pack);
    assert_memory_equal(&middle.call, &other.call, sizeof other.call);
    done(&fixture);
}

/* A row with padding is no row without: the rows at the edge have sums of their own, and what
 * would put them elsewhere is found out. */
static void rows_of_another_place(void **state)
{
    (void)state;
    struct fixture fixture;
    struct ul_group_call unsplit, top;
    begin(&fixture, 24, &unsplit);
    convolution(&fixture, 9, 1, 0, &top);
    assert_false(answer(&fixture, &unsplit.call, 8, &top));
    done(&fixture);
}

/* Another compile gets the answers that it would have without the one before. */
static void answers_begin_again(void **state)
{
    (void)state;
    struct fixture fixture;
    struct ul_group_call unsplit;
    begin(&fixture, 24, &unsplit);
    struct ul_piece piece = {.unsplit = &unsplit.call,
                             .unsplit_product_count = 1 << 20,
                             .offset = 8 * unsplit.call.dst.strides[2]};
    for (int compile = 0; compile < 3; compile++) {
        static const bool is_unproven[] = {true, false, true}, expected[] = {true, false, false};
        for (int i = 0; i < 3; i++) {
            struct ul_group_call top;
            convolution(&fixture, 9, 1, 0, &top);
            piece.unproven = is_unproven[i];
            assert_int_equal(ul_piece_answer(fixture.dnnl, &piece, &top), expected[i]);
        }
        ul_pieces_restart(fixture.dnnl);
    }
    done(&fixture);
}

/* The library's reference code adds channel by channel, its fast code tap by tap: the same sums in
 * another order have other bits in every row, though any program would take the one for the other.
 */
static void another_order_of_sums(void **state)
{
    (void)state;
    enum { ROWS = 22 };
    struct fixture fixture;
    struct ul_group_call call;
    uint64_t hashes[ROWS] = {0}, again[ROWS] = {0}, others[ROWS] = {0};
    begin(&fixture, ROWS, &call);
    struct ul_call other = call.call;
    struct ul_piece_trial trial = {.unsplit = &call.call, .piece = &call.call, .axis = 2};
    assert_true(ul_trial_run(fixture.dnnl, &trial, hashes));
    assert_true(ul_trial_run(fixture.dnnl, &trial, again));
    other.implementation = "ref:any";
    trial.piece = &other;
    assert_true(ul_trial_run(fixture.dnnl, &trial, others));
    assert_memory_equal(hashes, again, sizeof hashes);
    for (uint32_t r = 0; r < ROWS; r++)
        assert_int_not_equal(hashes[r], others[r]);
    done(&fixture);
}

static void other_calls_are_no_pieces(void **state)
{
    (void)state;
    struct fixture fixture;
    struct ul_group_call unsplit, piece;
    begin(&fixture, 24, &unsplit);
    convolution(&fixture, 9, 1, 0, &piece);
    piece.call.posts[0].alpha = 0.5f;
    assert_false(answer(&fixture, &unsplit.call, 0, &piece));
    convolution(&fixture, 9, 1, 0, &piece);
    piece.call.dilations[0] = 2;
    assert_false(answer(&fixture, &unsplit.call, 0, &piece));
    /* Beyond the last row, or between two. */
    convolution(&fixture, 9, 1, 0, &piece);
    assert_false(answer(&fixture, &unsplit.call, 20, &piece));
    struct ul_piece between = {.unsplit = &unsplit.call, .offset = 5};
    assert_false(ul_piece_answer(fixture.dnnl, &between, &piece));
    done(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_convolution),     cmocka_unit_test(rows_of_another_place),
        cmocka_unit_test(answers_begin_again),       cmocka_unit_test(another_order_of_sums),
        cmocka_unit_test(other_calls_are_no_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
