/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapper around shape rules and the helpers that rules use. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/text.h"
#include "test.h"

#include <string.h>

static const char add_text[] = "graph \"\"\n"
                               "input %%0 \"a\" %s\n"
                               "input %%1 \"b\" %s\n"
                               "%%2 \"c\" none[*] = Add n0 \"add\" (%%0, %%1)\n"
                               "return %%2\n";

static enum ul_status infer_add(struct ul_arena *arena, struct ul_graph *graph, const char *a,
                                const char *b, struct ul_diag *diag)
{
    char text[512];
    ul_arena_init(arena);
    memset(diag, 0, sizeof *diag);
    snprintf(text, sizeof text, add_text, a, b);
    assert_int_equal(ul_graph_parse(graph, arena, text, NULL, diag), UL_OK);
    return ul_node_infer(graph, 0, arena, diag);
}

static void add_gives(const char *a, const char *b, const char *wanted)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    struct ul_text text;
    assert_int_equal(infer_add(&arena, &graph, a, b, &diag), UL_OK);
    ul_text_init(&text, &arena);
    ul_type_print(&text, &graph.values[2].type);
    assert_string_equal(text.data, wanted);
    ul_arena_done(&arena);
}

static void add_fails(const char *a, const char *b, enum ul_status wanted, const char *part)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    assert_int_equal(infer_add(&arena, &graph, a, b, &diag), wanted);
    if (strstr(diag.text, part) == NULL)
        fail_msg("%s", diag.text);
    assert_non_null(strstr(diag.text, "node 0 \"add\" (Add)"));
    ul_arena_done(&arena);
}

static void broadcasting(void **state)
{
    (void)state;
    add_gives("f32[2,3]", "f32[2,3]", "f32[2,3]");
    add_gives("f32[2,1]", "f32[3]", "f32[2,3]");
    add_gives("i64[]", "i64[4,1,5]", "i64[4,1,5]");
    add_gives("f32[0]", "f32[1]", "f32[0]");
}

static void errors(void **state)
{
    (void)state;
    add_fails("f32[2]", "f32[3]", UL_INVALID, "broadcast");
    add_fails("f32[2]", "f16[2]", UL_INVALID, "differ in type");
    add_fails("f32[?]", "f32[2]", UL_UNSUPPORTED, "--dim");
    add_fails("string[2]", "string[2]", UL_UNSUPPORTED, "string");
    add_fails("f32[1099511627776,1]", "f32[1,1099511627776]", UL_INVALID, "limit");
}

static void operators_by_name(void **state)
{
    (void)state;
    assert_int_equal(ul_op_find(NULL, "Relu"), UL_OP_Relu);
    assert_int_equal(ul_op_find("ai.onnx", "Relu"), UL_OP_Relu);
    assert_int_equal(ul_op_find("", "relu"), UL_OP_NONE);
    assert_int_equal(ul_op_find("elsewhere", "Relu"), UL_OP_NONE);
    for (unsigned op = 1; op < UL_OP_COUNT; op++) {
        const struct ul_op_info *row = ul_op_get((ul_op_id)op);
        assert_non_null(row->name);
        assert_int_equal(ul_op_find(row->domain, row->name), op);
        assert_true(row->max_inputs <= UL_LIMIT_NODE_INPUTS);
        assert_true(row->min_inputs <= row->max_inputs && row->min_outputs <= row->max_outputs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(errors),
        cmocka_unit_test(operators_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
