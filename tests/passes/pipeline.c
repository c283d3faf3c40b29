/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: options, dumps, and what a broken pass order would do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/op_names.h"
#include "ir/text.h"
#include "passes/passes.h"

#include <stdlib.h>
#include <string.h>

static const char small[] = "graph \"small\"\n"
                            "input %0 \"x\" f32[2,3]\n"
                            "weight %1 \"zero\" f32[] = splat [0.0]\n"
                            "%2 \"a\" none[*] = Add n0 \"add\" (%0, %1)\n"
                            "%3 \"b\" none[*] = Relu n1 \"relu\" (%2)\n"
                            "%4 \"unused\" none[*] = Neg n2 \"neg\" (%3)\n"
                            "return %3\n";

/* Attention with deep heads, beside which the result of a Gelu in parts is small where it is fused.
 */
static const char two_peaks[] = "graph \"two_peaks\"\n"
                                "input %0 \"x\" f32[1,400]\n"
                                "input %1 \"q\" f32[1,2,4,64]\n"
                                "input %2 \"k\" f32[1,2,64,4]\n"
                                "input %3 \"v\" f32[1,2,4,64]\n"
                                "weight %4 \"root\" f32[] = [1.4142135]\n"
                                "weight %5 \"one\" f32[] = [1.0]\n"
                                "weight %6 \"half\" f32[] = [0.5]\n"
                                "weight %7 \"axes\" i64[1] = [-1]\n"
                                "%8 \"n\" none[*] = Neg n0 \"n\" (%0)\n"
                                "%9 \"a\" none[*] = Div n1 \"a\" (%8, %4)\n"
                                "%10 \"b\" none[*] = Erf n2 \"b\" (%9)\n"
                                "%11 \"c\" none[*] = Add n3 \"c\" (%10, %5)\n"
                                "%12 \"d\" none[*] = Mul n4 \"d\" (%8, %11)\n"
                                "%13 \"g\" none[*] = Mul n5 \"g\" (%12, %6)\n"
                                "%14 \"z\" none[*] = ReduceMax n6 \"z\" (%13, %7)\n"
                                "%15 \"s\" none[*] = MatMul n7 \"s\" (%1, %2)\n"
                                "%16 \"p\" none[*] = Softmax n8 \"p\" (%15) {axis=-1}\n"
                                "%17 \"y\" none[*] = MatMul n9 \"y\" (%16, %3)\n"
                                "return %14, %17\n";

static enum ul_status run_text(const char *text, const struct ul_passes_options *options,
                               struct ul_graph *graph, struct ul_arena *arena, struct ul_diag *diag)
{
    struct ul_arena scratch;
    memset(diag, 0, sizeof *diag);
    ul_arena_init(arena);
    ul_arena_init(&scratch);
    assert_int_equal(ul_graph_parse(graph, arena, text, NULL, diag), UL_OK);
    graph->check_text = true;
    enum ul_status status = ul_passes_run(graph, &scratch, options, diag);
    ul_arena_done(&scratch);
    return status;
}

static enum ul_status run(const struct ul_passes_options *options, struct ul_graph *graph,
                          struct ul_arena *arena, struct ul_diag *diag)
{
    return run_text(small, options, graph, arena, diag);
}

static void whole(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    struct ul_passes_options options = {0};
    assert_int_equal(run(&options, &graph, &arena, &diag), UL_OK);
    assert_int_equal(graph.blocks[0].node_count, 1);
    assert_int_equal(graph.values[3].view.base, 3);
    ul_arena_done(&arena);
}

static void switched_off(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    const char *disabled[] = {"simplify", "dce"};
    struct ul_passes_options options = {.disabled = disabled, .disabled_count = 2};
    assert_int_equal(run(&options, &graph, &arena, &diag), UL_OK);
    assert_int_equal(graph.blocks[0].node_count, 3);
    ul_arena_done(&arena);
}

static uint32_t count_attention(const struct ul_passes_options *options)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    uint32_t count = 0;
    assert_int_equal(run_text(two_peaks, options, &graph, &arena, &diag), UL_OK);
    for (uint32_t n = 0; n < graph.node_count; n++)
        count += graph.nodes[n].op == UL_OP_FusedAttention;
    ul_arena_done(&arena);
    return count;
}

/* What a pattern costs is judged by the passes that will run after it. */
static void foreseen(void **state)
{
    (void)state;
    const char *disabled[] = {"fuse"};
    struct ul_passes_options options = {0};
    assert_int_equal(count_attention(&options), 0);
    options.disabled = disabled;
    options.disabled_count = 1;
    assert_int_equal(count_attention(&options), 1);
}

static void refused(struct ul_passes_options options, const char *part)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    assert_int_equal(run(&options, &graph, &arena, &diag), UL_USAGE);
    if (strstr(diag.text, part) == NULL)
        fail_msg("%s", diag.text);
    ul_arena_done(&arena);
}

static void bad_options(void **state)
{
    (void)state;
    const char *infer[] = {"infer"};
    const char *nonsense[] = {"nonsense"};
    refused((struct ul_passes_options){.disabled = infer, .disabled_count = 1}, "switched off");
    refused((struct ul_passes_options){.disabled = nonsense, .disabled_count = 1},
            "there are stop, lora, quantize, select, dce");
    refused((struct ul_passes_options){.print_after = "nonsense"}, "no pass");
    for (uint32_t i = 0; i < ul_passes_count(); i++) { /* each by its whole name */
        char name[64];
        snprintf(name, sizeof name, " %s%s", ul_passes_get(i)->name,
                 i + 1 < ul_passes_count() ? "," : "");
        refused((struct ul_passes_options){.disabled = nonsense, .disabled_count = 1}, name);
    }
    refused((struct ul_passes_options){.stop_after = "all"}, "no pass");
}

static void dumps(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    FILE *file = tmpfile();
    char text[4096];
    assert_non_null(file);
    struct ul_passes_options options = {.print_after = "all", .stop_after = "infer", .dump = file};
    assert_int_equal(run(&options, &graph, &arena, &diag), UL_OK);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_non_null(strstr(text, "# after dce\ngraph \"small\"\n"));
    assert_non_null(strstr(text, "# after infer\n"));
    assert_null(strstr(text, "# after simplify\n"));
    assert_non_null(strstr(text, "f32[2,3] = Relu"));
    fclose(file);
    ul_arena_done(&arena);
}

/* Each name once in the list of the error message, required facts made before they are needed. */
static void table(void **state)
{
    (void)state;
    uint32_t facts = 0;
    for (uint32_t i = 0; i < ul_passes_count(); i++) {
        const struct ul_pass_info *info = ul_passes_get(i);
        assert_true((info->needs & ~facts) == 0);
        assert_true(info->summary[strlen(info->summary) - 1] == '.');
        facts = (facts & info->keeps) | info->makes;
    }
    assert_int_equal(facts, UL_FACT_TYPES | UL_FACT_VIEWS | UL_FACT_GROUPS);
}

/* 6000 bytes are stored where that is little compared with the other weights; otherwise they are
 * computed in each run. */
static void small_beside_weights(void **state)
{
    static const char text[] = "graph \"fold\"\n"
                               "input %0 \"x\" f32[4000000]\n"
                               "input %7 \"z\" f32[1500]\n"
                               "weight %1 \"big\" f32[4000000] = splat [0.5]\n"
                               "weight %2 \"row\" f32[3] = [1.0,2.0,3.0]\n"
                               "weight %3 \"repeats\" i64[1] = [500]\n"
                               "%4 \"y\" none[*] = Add n0 \"add\" (%0, %1)\n"
                               "%5 \"many\" none[*] = Tile n1 \"tile\" (%2, %3)\n"
                               "%6 \"part\" none[*] = Sub n2 \"sub\" (%5, %7)\n"
                               "return %4, %6\n";
    (void)state;
    for (uint32_t stored = 0; stored < 2; stored++) {
        struct ul_arena arena, scratch;
        struct ul_graph graph;
        struct ul_diag diag = {0};
        const struct ul_passes_options options = {0};
        ul_arena_init(&arena);
        ul_arena_init(&scratch);
        assert_int_equal(ul_graph_parse(&graph, &arena, text, NULL, &diag), UL_OK);
        const struct ul_type type = graph.values[1].type;
        float *data = UL_NEW_ARRAY(&arena, float, 4000000);
        data[0] = 1;
        if (stored)
            graph.values[1].tensor = ul_tensor_new(&arena, &type, data);
        assert_int_equal(ul_passes_run(&graph, &scratch, &options, &diag), UL_OK);
        assert_int_equal(graph.blocks[0].node_count, stored ? 2 : 3);
        ul_arena_done(&scratch);
        ul_arena_done(&arena);
    }
}

/* Many such results are stored until all together have made the weights grow by 1/256. */
static void small_together(void **state)
{
    enum { MANY = 20, BIG = 4000000, STORED = BIG / 256 / 1500 };
    (void)state;
    struct ul_arena arena, scratch;
    struct ul_graph graph;
    struct ul_diag diag = {0};
    struct ul_text text;
    const struct ul_passes_options options = {0};
    ul_arena_init(&arena);
    ul_arena_init(&scratch);
    ul_text_init(&text, &arena);
    ul_text_printf(&text,
                   "graph \"fold\"\ninput %%0 \"x\" f32[%d]\ninput %%1 \"z\" f32[1500]\n"
                   "weight %%2 \"big\" f32[%d] = splat [0.5]\n"
                   "weight %%3 \"repeats\" i64[1] = [500]\n",
                   BIG, BIG);
    for (int i = 0; i < MANY; i++)
        ul_text_printf(&text, "weight %%%d \"r%d\" f32[3] = [1.0,2.0,%d.0]\n", 10 + i, i, 3 + i);
    ul_text_put(&text, "%4 \"y\" none[*] = Add n0 \"add\" (%0, %2)\n");
    for (int i = 0; i < MANY; i++)
        ul_text_printf(&text,
                       "%%%d \"t%d\" none[*] = Tile n%d \"t%d\" (%%%d, %%3)\n"
                       "%%%d \"s%d\" none[*] = Sub n%d \"s%d\" (%%%d, %%1)\n",
                       40 + i, i, 1 + 2 * i, i, 10 + i, 70 + i, i, 2 + 2 * i, i, 40 + i);
    ul_text_put(&text, "return %4");
    for (int i = 0; i < MANY; i++)
        ul_text_printf(&text, ", %%%d", 70 + i);
    ul_text_put(&text, "\n");
    assert_int_equal(ul_graph_parse(&graph, &arena, text.data, NULL, &diag), UL_OK);
    float *data = UL_NEW_ARRAY(&arena, float, BIG);
    data[0] = 1;
    for (ul_value_id id = 0; id < graph.value_count; id++)
        if (strcmp(graph.values[id].name, "big") == 0)
            graph.values[id].tensor = ul_tensor_new(&arena, &graph.values[id].type, data);
    assert_int_equal(ul_passes_run(&graph, &scratch, &options, &diag), UL_OK);
    assert_int_equal(graph.blocks[0].node_count, 1 + 2 * MANY - STORED);
    ul_arena_done(&scratch);
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(switched_off),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(dumps),
        cmocka_unit_test(table),
        cmocka_unit_test(foreseen),
        cmocka_unit_test(small_beside_weights),
        cmocka_unit_test(small_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
