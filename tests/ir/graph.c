/* SPDX-License-Identifier: Apache-2.0 */
/* Building, editing and verifying graphs. */
#include "ir/build.h"
#include "ir/op_names.h"
#include "ir/rewrite.h"
#include "ir/view.h"
#include "test.h"

#include <string.h>

static struct ul_type vector(int64_t size)
{
    return ul_type_make(UL_F32, 1, &size);
}

/* x -> Relu a -> Relu b -> output */
static void chain(struct ul_graph *graph, struct ul_arena *arena)
{
    struct ul_type type = vector(4);
    ul_arena_init(arena);
    ul_graph_init(graph, arena, "chain");
    ul_value_id x = ul_graph_add_value(graph, "x", UL_VALUE_INPUT, &type);
    ul_block_add_input(graph, 0, x);
    for (int i = 0; i < 2; i++) {
        ul_node_id node = ul_graph_add_node(graph, 0, UL_OP_Relu, i == 0 ? "a" : "b", 1, 1);
        graph->nodes[node].inputs[0] = x;
        x = graph->nodes[node].outputs[0];
        graph->values[x].type = type;
    }
    ul_block_add_output(graph, 0, x);
}

static void verify_holds(const struct ul_graph *graph)
{
    struct ul_diag diag = {0};
    assert_int_equal(ul_graph_verify(graph, &diag), UL_OK);
}

static void verify_fails(const struct ul_graph *graph, const char *part)
{
    struct ul_diag diag = {0};
    assert_int_equal(ul_graph_verify(graph, &diag), UL_INVALID);
    if (strstr(diag.text, part) == NULL)
        fail_msg("%s", diag.text);
}

static void edits(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    chain(&graph, &arena);
    verify_holds(&graph);
    assert_true(ul_graph_is_output(&graph, 2));
    uint32_t *uses = ul_graph_count_uses(&graph, &arena);
    assert_int_equal(uses[0], 1);
    assert_int_equal(uses[2], 1);
    /* Route around the second node, and in a chain 2 -> 1 -> 0 around the first. */
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, &graph, &arena);
    ul_rewrite_replace(&rewrite, 2, 1);
    ul_rewrite_replace(&rewrite, 1, 0);
    ul_rewrite_apply(&rewrite);
    assert_int_equal(graph.blocks[0].outputs[0], 0);
    ul_graph_remove_node(&graph, 0);
    ul_graph_remove_node(&graph, 1);
    ul_graph_sweep(&graph);
    assert_int_equal(graph.blocks[0].node_count, 0);
    verify_holds(&graph);
    ul_arena_done(&arena);
}

/* Nodes are in the order in which they were added, at their place, with known types. */
static void builder(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    const int64_t perm[2] = {1, 0}, dims[3] = {3, 1, 2};
    double number;
    chain(&graph, &arena);
    const struct ul_type matrix = ul_type_make(UL_F32, 2, (const int64_t[]){2, 3});
    graph.values[0].type = matrix;
    struct ul_build build = ul_build_before(&graph, 1);
    ul_value_id turned = ul_build_transpose(&build, 0, perm);
    ul_value_id shaped = ul_build_reshape(&build, turned, 3, dims);
    build = ul_build_after(&graph, 1);
    ul_value_id copy = ul_build_copy(&build, shaped);
    const struct ul_block *block = &graph.blocks[0];
    assert_int_equal(block->node_count, 5);
    assert_int_equal(block->nodes[1], graph.values[turned].producer);
    assert_int_equal(block->nodes[2], graph.values[shaped].producer);
    assert_int_equal(block->nodes[3], 1);
    assert_int_equal(block->nodes[4], graph.values[copy].producer);
    assert_string_equal(graph.values[turned].name, graph.nodes[1].name);
    assert_int_equal(graph.values[turned].type.dims[0], 3);
    assert_true(ul_type_equal(&graph.values[copy].type, &graph.values[shaped].type));
    assert_int_equal(graph.values[copy].type.rank, 3);
    ul_value_id half = ul_build_number(&graph, "half", UL_F16, 2, 0.5);
    assert_int_equal(graph.values[half].type.rank, 2);
    assert_true(ul_graph_get_number(&graph, half, &number));
    assert_true(number > 0.4 && number < 0.6);
    graph.values[half].flags |= UL_VALUE_PERSISTENT; /* state is no constant */
    assert_null(ul_graph_get_constant(&graph, half));
    assert_false(ul_graph_get_number(&graph, half, &number));
    ul_value_id inputs[1] = {copy};
    ul_node_become(&graph, graph.values[turned].producer, UL_OP_Neg, inputs, 1);
    assert_int_equal(graph.nodes[graph.values[turned].producer].attr_count, 0);
    ul_arena_done(&arena);
}

static void attributes(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    chain(&graph, &arena);
    int64_t axes[] = {1, 2};
    ul_node_set_int(&graph, 0, "axis", 3);
    ul_node_set_ints(&graph, 0, "axes", axes, 2);
    ul_node_set_int(&graph, 0, "axis", 4);
    ul_node_set_string(&graph, 0, "mode", "linear");
    const struct ul_node *node = &graph.nodes[0];
    uint32_t count;
    assert_int_equal(ul_node_get_int(node, "axis", 0), 4);
    assert_int_equal(ul_node_get_ints(node, "axes", &count)[1], 2);
    assert_int_equal(count, 2);
    assert_string_equal(ul_node_get_string(node, "mode", ""), "linear");
    ul_node_remove_attr(&graph, 0, "axis");
    assert_int_equal(ul_node_get_int(node, "axis", 7), 7);
    assert_int_equal(node->attr_count, 2);
    assert_string_equal(ul_node_describe(&graph, 0, &arena), "node 0 \"a\" (Relu)");
    ul_arena_done(&arena);
}

static void broken_graphs(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    chain(&graph, &arena);
    graph.nodes[0].inputs[0] = 2;
    verify_fails(&graph, "not defined before");
    ul_arena_done(&arena);
    chain(&graph, &arena);
    graph.blocks[0].nodes[1] = 0;
    verify_fails(&graph, "listed twice");
    ul_arena_done(&arena);
    chain(&graph, &arena);
    graph.values[2].producer = 0;
    verify_fails(&graph, "not the producer");
    ul_arena_done(&arena);
    chain(&graph, &arena);
    graph.nodes[1].group = 0;
    verify_holds(&graph);
    graph.nodes[1].group = 9;
    verify_fails(&graph, "group");
    ul_arena_done(&arena);
}

static void broken_views(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    chain(&graph, &arena);
    for (uint32_t v = 0; v < 3; v++) {
        graph.values[v].view.base = v;
        graph.values[v].view.strides[0] = 1;
    }
    verify_holds(&graph);
    graph.values[1].view = (struct ul_view){.base = 0, .offset_bytes = 12, .strides = {-1}};
    verify_holds(&graph);
    graph.values[1].view.offset_bytes = 8;
    verify_fails(&graph, "leaves its base");
    graph.values[1].view = (struct ul_view){.base = 0, .offset_bytes = 0, .strides = {2}};
    verify_fails(&graph, "leaves its base");
    graph.values[1].view = (struct ul_view){.base = 0, .strides = {INT64_MAX}};
    verify_fails(&graph, "out of range");
    graph.values[1].view = (struct ul_view){.base = 0, .strides = {1}};
    graph.values[2].view = (struct ul_view){.base = 1, .strides = {1}};
    verify_fails(&graph, "view itself");
    ul_arena_done(&arena);
}

/* A view is stored as its base is, and only f32 otherwise than by its type. */
static void broken_storage(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    chain(&graph, &arena);
    for (uint32_t v = 0; v < 3; v++) {
        graph.values[v].view.base = v;
        graph.values[v].view.strides[0] = 1;
    }
    graph.values[1].view.base = 0;
    graph.values[0].storage = UL_BF16;
    verify_fails(&graph, "another way than what it lies in");
    graph.values[1].storage = UL_BF16;
    verify_holds(&graph);
    assert_int_equal(ul_value_bytes(&graph, 0), ul_type_bytes(&graph.values[0].type) / 2);
    graph.values[1].view.offset_bytes = 2;
    verify_fails(&graph, "leaves its base");
    graph.values[1].view.offset_bytes = 0;
    graph.values[2].storage = UL_I8;
    verify_fails(&graph, "cannot be stored");
    graph.values[2].storage = UL_F16;
    verify_holds(&graph);
    graph.values[2].type.dtype = UL_F64;
    verify_fails(&graph, "cannot be stored");
    ul_arena_done(&arena);
}

/* Two graphs of one root become one, whose roots may be linked. */
static void joined(void **state)
{
    (void)state;
    struct ul_arena arenas[2], arena;
    struct ul_graph graphs[2], graph;
    const struct ul_graph *from[2] = {&graphs[0], &graphs[1]};
    const char *const names[2] = {"first", "second"};
    struct ul_diag diag = {0};
    chain(&graphs[0], &arenas[0]);
    chain(&graphs[1], &arenas[1]);
    ul_arena_init(&arena);
    ul_graph_join(&graph, &arena, from, names, 2);
    verify_holds(&graph);
    assert_int_equal(graph.root_count, 2);
    ul_value_id x = graph.blocks[1].inputs[0], y = graph.blocks[0].outputs[0];
    assert_string_equal(graph.values[x].name, "second/x");
    assert_string_equal(ul_root_plain_name(&graph, 1, graph.values[x].name), "x");
    assert_int_equal(ul_graph_root_of(&graph, graph.blocks[1].nodes[1]), 1);
    assert_true(ul_graph_is_output(&graph, y));
    const char *output = ul_root_plain_name(&graph, 0, graph.values[y].name);
    assert_int_equal(ul_graph_link(&graph, 1, "x", 0, "none", &diag), UL_USAGE);
    assert_int_equal(ul_graph_link(&graph, 1, "x", 1, output, &diag), UL_USAGE);
    assert_int_equal(ul_graph_link(&graph, 1, "x", 0, output, &diag), UL_OK);
    assert_int_equal(ul_graph_link(&graph, 1, "x", 0, output, &diag), UL_USAGE);
    verify_holds(&graph);
    assert_int_equal(ul_graph_linked(&graph, x), y);
    const bool *linked = ul_graph_find_linked(&graph, &arena);
    assert_true(linked[x] && linked[y] && !linked[graph.blocks[0].inputs[0]]);
    graph.values[x].link_output = 1;
    verify_fails(&graph, "is linked to no output");
    graph.values[x].link_output = 0;
    graph.nodes[graph.blocks[1].nodes[0]].inputs[0] = graph.blocks[0].inputs[0];
    verify_fails(&graph, "not defined before it");
    graph.nodes[graph.blocks[1].nodes[0]].inputs[0] = x;
    graph.blocks[1].name = "first";
    verify_fails(&graph, "two roots have one name");
    ul_arena_done(&arena);
    ul_arena_done(&arenas[0]);
    ul_arena_done(&arenas[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits),        cmocka_unit_test(builder),
        cmocka_unit_test(attributes),   cmocka_unit_test(broken_graphs),
        cmocka_unit_test(broken_views), cmocka_unit_test(broken_storage),
        cmocka_unit_test(joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
