/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of the movement family on hostile input, and its views against its copies. */
#include "case.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text.h"

#include <string.h>

#define MAX "9223372036854775807"
#define MIN "-9223372036854775808"

/* Nothing to make, but a dimension that would take hours to count up. */
static void empty(void **state)
{
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "ConstantOfShape", "i64[2] = [1099511627776,0]", NULL, 1);
    assert_false(case_run(&graph, &arena));
    case_graph(&graph, &arena, "Slice",
               "f32[1099511627776,0]; i64[1] = [0]; i64[1] = [-1]; -; i64[1] = [2]", NULL, 1);
    assert_false(case_run(&graph, &arena));
    ul_arena_done(&arena);
}

/* Chains of operators over a constant whose elements are their own positions: wherever a chain is
 * views all along, the copies' elements must be what the views point at. */
struct chain {
    const char *text;    /* nodes after the constant %0 "x" i32[2,3,4] = 0..23 and others */
    const char *is_view; /* 'y' or 'n' for each output of each node */
};

static const char chain_head[] = "graph \"\"\n"
                                 "weight %0 \"x\" i32[2,3,4] = pool=0\n"
                                 "weight %1 \"six\" i64[2] = [6,4]\n"
                                 "weight %2 \"all\" i64[1] = [-1]\n"
                                 "weight %3 \"zero\" i64[1] = [0]\n"
                                 "weight %4 \"three\" i64[1] = [3]\n"
                                 "weight %5 \"last\" i64[1] = [-1]\n"
                                 "weight %6 \"least\" i64[1] = [-9223372036854775808]\n"
                                 "weight %7 \"wide\" i64[4] = [5,2,3,4]\n"
                                 "weight %8 \"split\" i64[2] = [1,3]\n"
                                 "weight %9 \"nine\" i64[2] = [2,9]\n"
                                 "weight %10 \"cut\" i64[5] = [3,2,1,2,2]\n";

static const struct chain chains[] = {
    {"%20 \"a\" none[*] = Reshape n0 \"\" (%0, %1)\n"
     "%21 \"b\" none[*] = Transpose n1 \"\" (%20)\n"
     "%22 \"c\" none[*] = Reshape n2 \"\" (%21, %2)\n"
     "return %22\n",
     "yyn"},
    {"%20 \"a\" none[*] = Slice n0 \"\" (%0, %3, %4, %2)\n"
     "%21 \"b\" none[*] = Reshape n1 \"\" (%20, %9)\n"
     "return %21\n",
     "yn"},
    {"%20 \"a\" none[*] = Transpose n0 \"\" (%0) {perm=ints[1,0,2]}\n"
     "%21 \"b\" none[*] = Reshape n1 \"\" (%20, %10)\n"
     "return %21\n",
     "yy"},
    {"%20 \"a\" none[*] = Slice n0 \"\" (%0, %5, %6, %2, %5)\n"
     "%21 \"b\" none[*] = Unsqueeze n1 \"\" (%20, %3)\n"
     "%22 \"c\" none[*] = Flatten n2 \"\" (%21) {axis=3}\n"
     "%23 \"d\" none[*] = Squeeze n3 \"\" (%21)\n"
     "return %22, %23\n",
     "yyyy"},
    {"%20 \"a\" none[*], %21 \"b\" none[*] = Split n0 \"\" (%0, %8) {axis=2}\n"
     "%22 \"c\" none[*] = Flatten n1 \"\" (%21) {axis=2}\n"
     "%23 \"d\" none[*] = Flatten n2 \"\" (%20) {axis=0}\n"
     "return %22, %23\n",
     "yyyy"},
    {"%20 \"a\" none[*] = Expand n0 \"\" (%0, %7)\n"
     "%21 \"b\" none[*] = Identity n1 \"\" (%20)\n"
     "%22 \"c\" none[*] = Flatten n2 \"\" (%21) {axis=1}\n"
     "%23 \"d\" none[*] = Flatten n3 \"\" (%21) {axis=0}\n"
     "return %22, %23\n",
     "yyyn"},
};

static ul_value_id positions(struct ul_graph *pool, struct ul_arena *arena)
{
    static const int64_t dims[3] = {2, 3, 4};
    int64_t values[24];
    for (int64_t i = 0; i < 24; i++)
        values[i] = i;
    ul_graph_init(pool, arena, "");
    return ul_graph_add_weight(pool, "x", ul_tensor_new_ints(arena, UL_I32, 3, dims, values));
}

static void check_view(const struct ul_value *value, const struct ul_view *view)
{
    int64_t index[UL_LIMIT_RANK] = {0};
    for (uint64_t i = 0; i < ul_type_elements(&value->type); i++) {
        int64_t at = view->offset_bytes / 4;
        for (uint32_t d = 0; d < value->type.rank; d++)
            at += index[d] * view->strides[d];
        assert_int_equal(ul_tensor_get_int(value->tensor, i), at);
        for (uint32_t d = value->type.rank; d-- > 0 && ++index[d] == value->type.dims[d];)
            index[d] = 0;
    }
}

static void run_chain(const struct chain *chain)
{
    struct ul_arena arena;
    struct ul_graph pool;
    struct ul_graph graph;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_view views[32];
    const char *wanted = chain->is_view;
    ul_arena_init(&arena);
    positions(&pool, &arena);
    char *text = ul_arena_printf(&arena, "%s%s", chain_head, chain->text);
    if (ul_graph_parse(&graph, &arena, text, &pool, &diag) != UL_OK)
        fail_msg("%s in\n%s", diag.text, text);
    views[0] = (struct ul_view){.base = 0, .strides = {12, 4, 1}};
    for (ul_node_id node = 0; node < graph.node_count; node++) {
        const struct ul_node *info = &graph.nodes[node];
        if (ul_node_infer(&graph, node, &arena, &diag) != UL_OK)
            fail_msg("%s", diag.text);
        assert_true(ul_node_fold(&graph, node, &arena));
        for (uint32_t i = 0; i < info->output_count; i++, wanted++) {
            bool is_view = ul_op_get(info->op)->view(&graph, info, i, &views[info->inputs[0]],
                                                     &views[info->outputs[i]]);
            if (is_view != (*wanted == 'y'))
                fail_msg("node %u of\n%s", (unsigned)node, chain->text);
            if (is_view)
                check_view(&graph.values[info->outputs[i]], &views[info->outputs[i]]);
        }
    }
    ul_arena_done(&arena);
}

static void views(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        run_chain(&chains[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views),
        cmocka_unit_test(empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
