/* Building, editing and verifying graphs. */
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
    /* Route around the second node; the map is a chain 2 -> 1 -> 0 with the first removed too. */
    ul_value_id map[] = {0, 0, 1};
    ul_graph_replace(&graph, map);
    assert_int_equal(graph.blocks[0].outputs[0], 0);
    ul_graph_remove_node(&graph, 0);
    ul_graph_remove_node(&graph, 1);
    ul_graph_sweep(&graph);
    assert_int_equal(graph.blocks[0].node_count, 0);
    verify_holds(&graph);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edits),          cmocka_unit_test(attributes),
        cmocka_unit_test(broken_graphs),  cmocka_unit_test(broken_views),
        cmocka_unit_test(broken_storage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
