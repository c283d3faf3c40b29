/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels are spread over a graphics processor: which loops become items, lanes or a team's,
 * where a team waits for itself, and where it need not wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cuda/cuda.h"
#include "codegen/device/grid.h"
#include "ir/text.h"

/* The CUDA text of the graph's main block as one group, for a device by its profile; long sums of
 * up to 256 partial results. */
static const char *print_for(struct ul_arena *arena, const char *text, const char *profile,
                             uint64_t *scratch_bytes)
{
    struct ul_diag diag = {0};
    struct ul_graph graph;
    struct ul_lower_result result;
    const struct ul_target_traits traits = {.partial_count = 256, .spread_products = 32768};
    if (ul_graph_parse(&graph, arena, text, NULL, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_block *block = &graph.blocks[0];
    ul_lower_group(&graph, block->nodes, block->node_count, NULL, &traits, arena, &result);
    struct ul_text out;
    ul_text_init(&out, arena);
    const struct ul_profile_device device = ul_profile_device(ul_profile_find(profile));
    struct ul_kernel_printed printed;
    if (ul_kernel_print_cuda(&out, result.kernel, &device, &printed, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    *scratch_bytes = printed.scratch_bytes;
    return out.data;
}

static const char *print(struct ul_arena *arena, const char *text, uint64_t *scratch_bytes)
{
    return print_for(arena, text, UL_PROFILE_DEFAULT_DEVICE, scratch_bytes);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t found = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        found++;
    return found;
}

/* A node from x to y of one shape. */
static const char *unary(struct ul_arena *arena, const char *shape, const char *node)
{
    return ul_arena_printf(arena,
                           "graph \"t\"\ninput %%0 \"x\" f32[%s] own\n"
                           "%%1 \"y\" f32[%s] own = %s\nreturn %%1\n",
                           shape, shape, node);
}

struct expectation {
    const char *name, *shape, *node;
    const char *has[4];   /* what the text has, up to NULL */
    const char *lacks[4]; /* and has not */
};

static const struct expectation expectations[] = {
    {"elements one by one where they are few",
     "3,5",
     "Relu n0 \"n\" (%0)",
     {"t_item < 15"},
     {"pack"}},
    {"16 bytes at once where they are many",
     "1000,512",
     "Relu n0 \"n\" (%0)",
     {"ul_pack_read<4>", "t_item < 128000", "ul_is_aligned(b"},
     {"ul_pack_read<8>"}},
    {"a row that no vector divides",
     "1001,513",
     "Softmax n0 \"n\" (%0) {axis=0}",
     {"t_lane <"},
     {"pack"}},
    {"lanes are items, their state in registers",
     "7,20,96",
     "Softmax n0 \"n\" (%0) {axis=1}",
     {"t_lane < 672", "float b"},
     {"__sync", "UL_SHARED"}},
    {"partial sums are folded in registers",
     "640,1024",
     "Softmax n0 \"n\" (%0) {axis=1}",
     {"ul_fold<256>", "t_item < 640", "ul_max_f32(x, y)"},
     {"UL_SHARED", "__sync", "t_thread == 0"}},
    {"a row is stored 16 bytes at a time where they are aligned",
     "640,1024",
     "Softmax n0 \"n\" (%0) {axis=1}",
     {"if (ul_is_aligned(b3)) {", "t_round = t_thread; t_round < 256) {", "ul_pack_write",
      "} else {"},
     {"return;"}},
    {"and 32 where each thread has one round less then",
     "640,2048",
     "LayerNormalization n0 \"n\" (%0, %0) {axis=1}",
     {"ul_pack_read<8>", "t_round = t_thread; t_round < 256) {"},
     {"ul_pack_read<4>"}},
    {"not where no vector divides the row",
     "640,1022",
     "Softmax n0 \"n\" (%0) {axis=1}",
     {"t_thread; v"},
     {"pack"}},
    {"a warp where a row is short",
     "640,130",
     "Softmax n0 \"n\" (%0) {axis=1}",
     {"ul_fold<32>", "__launch_bounds__(128)"},
     {"UL_SHARED"}},
    {"rows end with lanes of their own",
     "4,6,45",
     "LpNormalization n0 \"n\" (%0) {axis=2, p=2}",
     {"ul_fold<32>"},
     {"t_thread == 0"}},
};

static void expectation_holds(void **state)
{
    const struct expectation *e = *state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *graph = unary(&arena, e->shape, e->node);
    const char *text = print(&arena, graph, &scratch_bytes);
    for (uint32_t i = 0; i < 4 && e->has[i] != NULL; i++) {
        if (strstr(text, e->has[i]) == NULL)
            fail_msg("%s: no \"%s\" in\n%s", e->name, e->has[i], text);
    }
    for (uint32_t i = 0; i < 4 && e->lacks[i] != NULL; i++) {
        if (strstr(text, e->lacks[i]) != NULL)
            fail_msg("%s: \"%s\" in\n%s", e->name, e->lacks[i], text);
    }
    assert_int_equal(scratch_bytes, 0);
    assert_string_equal(text, print(&arena, graph, &scratch_bytes));
    ul_arena_done(&arena);
}

/* A loop without a round, among others that a team shares, leaves nothing to store. */
static void nothing_is_stored_without_a_round(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *text = print(&arena,
                             "graph \"t\"\ninput %0 \"x\" f32[2,0,7] own\n"
                             "input %1 \"w\" f32[7,9] own\n"
                             "%2 \"y\" f32[2,0,9] own = MatMul n0 \"n\" (%0, %1)\nreturn %2\n",
                             &scratch_bytes);
    if (strstr(text, "] = ") != NULL)
        fail_msg("a store in\n%s", text);
    ul_arena_done(&arena);
}

/* A barrier is needed where all threads read something that one of them overwrites because the
 * output lies on the input. */
static void team_waits_before_overwriting(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *text = print(&arena,
                             "graph \"t\"\ninput %0 \"x\" f32[6,4,5] own\n"
                             "weight %1 \"s\" f32[4,5] own = splat [1]\n"
                             "%2 \"y\" f32[6,4,5] own = LayerNormalization n0 \"n\" (%0, %1) "
                             "{axis=1}\nreturn %2\n",
                             &scratch_bytes);
    const char *barrier = strstr(text, "__syncwarp();");
    assert_non_null(barrier);
    assert_non_null(strstr(barrier, "t_round"));
    ul_arena_done(&arena);
}

/* Where outputs are contiguous, terms come in parts; many outputs need no more threads than that.
 */
static void long_sums_come_in_parts(void **state)
{
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" f32[2048,%d] own\n"
                               "weight %%1 \"axes\" i64[1] = [0]\n"
                               "%%2 \"y\" f32[%d] own = ReduceMean n0 \"n\" (%%0, %%1) "
                               "{keepdims=0}\nreturn %%2\n";
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *few = print(&arena, ul_arena_printf(&arena, form, 96, 96), &scratch_bytes);
    assert_int_equal(scratch_bytes, 32 * 96 * sizeof(float)); /* 32 parts of 64 terms */
    assert_int_equal(count(few, "UL_LAUNCH("), 1);
    assert_non_null(strstr(few, "t_item < 3072"));
    assert_non_null(strstr(few, "if (ul_is_last<8>(counters, 0u, 24u)) {"));
    const char *two = print(&arena,
                            "graph \"t\"\ninput %0 \"x\" f32[524288,2] own\n"
                            "weight %1 \"axes\" i64[1] = [0]\n"
                            "%2 \"y\" f32[2] own = ReduceSum n0 \"n\" (%0, %1) {keepdims=0}\n"
                            "return %2\n",
                            &scratch_bytes);
    assert_non_null(strstr(two, "UL_LAUNCH(@_0, 32, 32")); /* 1024 terms each: more blocks */
    const char *many = print(&arena, ul_arena_printf(&arena, form, 50000, 50000), &scratch_bytes);
    assert_int_equal(scratch_bytes, 0);
    assert_int_equal(count(many, "UL_LAUNCH("), 1);
    assert_non_null(strstr(many, "t_item < 50000"));
    assert_non_null(strstr(many, "< 32;"));
    assert_non_null(strstr(many, "< 64;"));
    ul_arena_done(&arena);
}

/* The parts are added up by the last block of each group of columns, as wide as that is quick; by
 * larger blocks where there are many parts. */
static void parts_are_added_up_by_the_last_block(void **state)
{
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" %s[%d,%d] own\n"
                               "weight %%1 \"axes\" i64[1] = [0]\n"
                               "%%2 \"y\" f32[%d] own = %s (%%0, %%1) {keepdims=0}\n"
                               "return %%2\n";
    static const struct {
        const char *type, *op;
        int rows, columns;
        const char *launch, *last;
    } cases[] = {
        /* 32 parts of 6 times 128 columns */
        {"f32", "ReduceSum n0 \"n\"", 2048, 768, "UL_LAUNCH(@_0, 192, 128, ",
         "ul_is_last<8>(counters, t_group, 32u)"},
        /* packs of four, 2 parts in a block */
        {"f32", "ReduceSum n0 \"n\"", 2048, 3072, "UL_LAUNCH(@_0, 192, 128, ",
         "ul_is_last<8>(counters, t_group, t_in_rows ? 16u : 192u)"},
        /* 256 parts of 4 times 16 columns, 8 in a block */
        {"f32", "ReduceSum n0 \"n\"", 100352, 64, "UL_LAUNCH(@_0, 128, 128, ",
         "ul_is_last<8>(counters, t_group, 32u)"},
    };
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *graph = ul_arena_printf(&arena, form, cases[i].type, cases[i].rows,
                                            cases[i].columns, cases[i].columns, cases[i].op);
        const char *text = print(&arena, graph, &scratch_bytes);
        if (strstr(text, cases[i].launch) == NULL || strstr(text, cases[i].last) == NULL)
            fail_msg("%d x %d: not so in\n%s", cases[i].rows, cases[i].columns, text);
    }
    ul_arena_done(&arena);
}

/* So do contiguous terms, each part a block's, where there are many; outputs that fill the device
 * have a block each, which adds the parts up in the same order. */
static void long_rows_come_in_parts(void **state)
{
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" f32[%d,512,256] own\n"
                               "weight %%1 \"axes\" i64[2] = [1,2]\n"
                               "%%2 \"y\" f32[%d] own = ReduceSum n0 \"n\" (%%0, %%1) "
                               "{keepdims=0}\nreturn %%2\n";
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *few = print(&arena, ul_arena_printf(&arena, form, 3, 3), &scratch_bytes);
    assert_int_equal(scratch_bytes, 32 * 3 * sizeof(float)); /* 32 parts of 16 rounds of 256 */
    assert_int_equal(count(few, "ul_fold<256>"), 1);
    assert_non_null(strstr(few, "UL_LAUNCH(@_0, 96, 256, "));
    assert_non_null(strstr(few, "if (ul_is_last<8>(counters, 0u, 96u)) {"));
    assert_non_null(strstr(few, "< 16;"));
    assert_null(strstr(few, " / 256")); /* one index runs over both dimensions */
    const char *many = print(&arena, ul_arena_printf(&arena, form, 300, 300), &scratch_bytes);
    assert_int_equal(scratch_bytes, 0);
    assert_int_equal(count(many, "ul_fold<256>"), 1);
    assert_non_null(strstr(many, "UL_LAUNCH(@_0, 300, 256, "));
    assert_non_null(strstr(many, "< 32;"));
    assert_non_null(strstr(many, "< 16;"));
    ul_arena_done(&arena);
}

/* Statistics of few long groups: parts and averages, parts and deviations, the last pass. */
static void long_groups_are_normalised_in_steps(void **state)
{
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" f32[1,8,%d,256] own\n"
                               "weight %%1 \"s\" f32[8] own = splat [1]\n"
                               "%%2 \"y\" f32[1,8,%d,256] own = %s n0 \"n\" (%%0, %%1, %%1)%s\n"
                               "return %%2\n";
    static const struct {
        const char *op, *attributes;
        int rows;
        uint32_t launches;
    } cases[] = {
        {"GroupNormalization", " {num_groups=2}", 128, 3},
        {"GroupNormalization", " {num_groups=2}", 16, 1},
        {"InstanceNormalization", "", 512, 3},
        {"InstanceNormalization", "", 128, 1},
    };
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *graph = ul_arena_printf(&arena, form, cases[i].rows, cases[i].rows, cases[i].op,
                                            cases[i].attributes);
        const char *text = print(&arena, graph, &scratch_bytes);
        assert_int_equal(count(text, "UL_LAUNCH("), cases[i].launches);
        assert_int_equal(scratch_bytes > 0, cases[i].launches > 1);
        assert_int_equal(count(text, "ul_fold<256>"), 2);
    }
    ul_arena_done(&arena);
}

/* Updates of places that are known to differ are applied by a thread each. */
static void updates_that_never_meet_run_at_once(void **state)
{
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" f32[40] own\n"
                               "input %%1 \"u\" f32[5] own\n"
                               "weight %%2 \"i\" i64[5,1] = [3,0,%d,39,7]\n"
                               "%%3 \"y\" f32[40] own = ScatterND n0 \"n\" (%%0, %%2, %%1)\n"
                               "return %%3\n";
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *apart = print(&arena, ul_arena_printf(&arena, form, -2), &scratch_bytes);
    assert_non_null(strstr(apart, "t_to = 5;"));
    const char *meet = print(&arena, ul_arena_printf(&arena, form, -1), &scratch_bytes);
    assert_non_null(strstr(meet, "if (threadIdx.x < 1) {"));
    ul_arena_done(&arena);
}

/* Operands that take turns within a row are copied by one launch. */
static void copies_apart_share_a_launch(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *text = print(&arena,
                             "graph \"t\"\ninput %0 \"a\" f32[40,6,8] own\n"
                             "input %1 \"b\" f32[40,2,8] own\n"
                             "%2 \"y\" f32[40,8,8] own = Concat n0 \"n\" (%0, %1) {axis=1}\n"
                             "return %2\n",
                             &scratch_bytes);
    assert_int_equal(count(text, "__global__"), 1);
    assert_non_null(strstr(text, "if (blockIdx.x < 15) {"));
    assert_non_null(strstr(text, "t_item = ul_item_first() - 1920; t_item < 640; t_item += 640"));
    assert_non_null(strstr(text, "UL_LAUNCH(@_0, 20, 128, "));
    ul_arena_done(&arena);
}

/* The rounds of a recurrent cell are in one launch where the device holds its weights; otherwise
 * they are launched one after the other, or one block goes through them. */
static const char *lstm(struct ul_arena *arena, int hidden)
{
    return ul_arena_printf(arena,
                           "graph \"t\"\ninput %%0 \"x\" f32[20,2,8] own\n"
                           "weight %%1 \"w\" f32[1,%d,8] own = splat [1]\nweight %%2 \"r\" "
                           "f32[1,%d,%d] own = splat [1]\n"
                           "%%3 \"y\" f32[20,1,2,%d] own = LSTM n0 \"n\" (%%0, %%1, %%2) "
                           "{hidden_size=%d}\nreturn %%3\n",
                           4 * hidden, 4 * hidden, hidden, hidden, hidden);
}

static void rounds_run_on_the_host_where_they_are_long(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    /* 64 MiB of weights: more than an H100 holds */
    const char *text = print(&arena, lstm(&arena, 2048), &scratch_bytes);
    const char *host = strstr(text, "static void @(");
    assert_non_null(host);
    assert_non_null(strstr(host, "for ("));
    assert_int_equal(count(host, "UL_LAUNCH(@_"), count(text, "__global__"));
    assert_true(scratch_bytes > 0);
    ul_arena_done(&arena);
}

static void rounds_are_in_a_launch_that_holds_what_they_read(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *text = print(&arena, lstm(&arena, 512), &scratch_bytes);
    const char *apart = strstr(text, "static void @_"), *host = strstr(text, "static void @(");
    assert_true(apart != NULL && host != NULL && apart < host);
    assert_non_null(strstr(apart, "_apart(const struct ul_cuda_step *at"));
    assert_null(strstr(host, "for ("));
    assert_null(strstr(host, "UL_LAUNCH("));
    /* a unit for each of 4 warps of 128 blocks */
    assert_non_null(
        strstr(host, "if (ul_cuda_is_resident(at, (const void *)@_4, 128, 256, 32768))"));
    assert_non_null(strstr(host, "UL_LAUNCH_TOGETHER(@_4, 128, 256, 32768, at, "));
    assert_non_null(strstr(host, "if (ul_cuda_is_apart(at))"));
    assert_int_equal(count(text, "ul_meet(meeting);"), 3);
    ul_arena_done(&arena);
}

static uint32_t launches_of(struct ul_arena *arena, const char *graph)
{
    uint64_t scratch_bytes;
    return count(print(arena, graph, &scratch_bytes), "UL_LAUNCH(");
}

/* So is one of two directions, where their functions are the same. */
static void a_step_of_a_cell_is_one_launch(void **state)
{
    (void)state;
    static const char form[] = "graph \"t\"\ninput %%0 \"x\" f32[20,1,8] own\n"
                               "weight %%1 \"w\" f32[2,%d,8] own = splat [1]\n"
                               "weight %%2 \"r\" f32[2,%d,128] own = splat [1]\n"
                               "%%3 \"y\" f32[20,2,1,128] own = %s n0 \"n\" (%%0, %%1, %%2) "
                               "{hidden_size=128, direction=\"bidirectional\"%s}\nreturn %%3\n";
    struct ul_arena arena;
    ul_arena_init(&arena);
    /* initial states, products of inputs of each direction, the step */
    assert_int_equal(launches_of(&arena, ul_arena_printf(&arena, form, 512, 512, "LSTM", "")), 4);
    assert_int_equal(launches_of(&arena, ul_arena_printf(&arena, form, 384, 384, "GRU",
                                                         ", linear_before_reset=1")),
                     4);
    assert_int_equal(launches_of(&arena, ul_arena_printf(&arena, form, 384, 384, "GRU", "")), 5);
    ul_arena_done(&arena);
}

static void rounds_run_in_a_block_where_they_are_short(void **state)
{
    (void)state;
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *text = print(&arena, lstm(&arena, 4), &scratch_bytes);
    const char *host = strstr(text, "static void @(");
    assert_non_null(host);
    assert_null(strstr(host, "for ("));
    assert_non_null(strstr(text, "__sync"));
    ul_arena_done(&arena);
}

/* There are as many blocks as a device's processors take in a few turns. */
static void blocks_follow_the_device(void **state)
{
    (void)state;
    static const struct {
        const char *profile, *launch;
    } cases[] = {{"h100-sxm", "UL_LAUNCH(@_0, 8448, "},
                 {"t4", "UL_LAUNCH(@_0, 2560, "},
                 {UL_PROFILE_DEFAULT, "UL_LAUNCH(@_0, 8448, "}};
    struct ul_arena arena;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    const char *graph = unary(&arena, "1000,20000", "Relu n0 \"n\" (%0)");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = print_for(&arena, graph, cases[i].profile, &scratch_bytes);
        assert_non_null(strstr(text, cases[i].launch));
    }
    ul_arena_done(&arena);
}

int main(void)
{
    enum { CASES = sizeof expectations / sizeof *expectations, OTHERS = 11 };
    struct CMUnitTest tests[OTHERS + CASES] = {
        cmocka_unit_test(nothing_is_stored_without_a_round),
        cmocka_unit_test(team_waits_before_overwriting),
        cmocka_unit_test(long_sums_come_in_parts),
        cmocka_unit_test(parts_are_added_up_by_the_last_block),
        cmocka_unit_test(long_rows_come_in_parts),
        cmocka_unit_test(long_groups_are_normalised_in_steps),
        cmocka_unit_test(copies_apart_share_a_launch),
        cmocka_unit_test(updates_that_never_meet_run_at_once),
        cmocka_unit_test(rounds_run_on_the_host_where_they_are_long),
        cmocka_unit_test(rounds_are_in_a_launch_that_holds_what_they_read),
        cmocka_unit_test(a_step_of_a_cell_is_one_launch),
        cmocka_unit_test(rounds_run_in_a_block_where_they_are_short),
        cmocka_unit_test(blocks_follow_the_device),
    };
    for (size_t i = 0; i < CASES; i++)
        tests[OTHERS + i] =
            (struct CMUnitTest){.name = expectations[i].name,
                                .test_func = expectation_holds,
                                .initial_state = (void *)(uintptr_t)&expectations[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
