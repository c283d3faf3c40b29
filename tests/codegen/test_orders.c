/* SPDX-License-Identifier: Apache-2.0 */
/* Which contractions of target cuda always form their sums in the same way, so that a piece of a
 * step may replace a part of the whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/cuda/contract_cuda.h"
#include "codegen/kernel/contract.h"
#include "ir/lower_group.h"
#include "ir/text.h"

struct expectation {
    const char *name, *text;
    bool is_sure;
};

static const struct expectation expectations[] = {
    {"as many tiles as a device has processors",
     "input %0 \"a\" f32[2048,512] own\ninput %1 \"b\" f32[512,2048] own\n"
     "%2 \"y\" f32[2048,2048] own = MatMul n0 \"n\" (%0, %1)\nreturn %2\n",
     true},
    {"k is cut by how few tiles there are",
     "input %0 \"a\" f32[64,8192] own\ninput %1 \"b\" f32[8192,64] own\n"
     "%2 \"y\" f32[64,64] own = MatMul n0 \"n\" (%0, %1)\nreturn %2\n",
     false},
    {"attention shares and cuts keys by how few queries and heads there are",
     "input %0 \"q\" f32[1,4,20,64] own\ninput %1 \"k\" f32[1,4,90,64] own\n"
     "input %2 \"v\" f32[1,4,90,64] own\n"
     "%3 \"y\" f32[1,4,20,64] own = Attention n0 \"n\" (%0, %1, %2)\nreturn %3\n",
     false},
};

static void order_is_known(void **state)
{
    const struct expectation *e = *state;
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_graph graph;
    struct ul_lower_result result;
    const struct ul_target_traits traits = {.partial_count = 1024};
    ul_arena_init(&arena);
    const char *text = ul_arena_printf(&arena, "graph \"t\"\n%s", e->text);
    if (ul_graph_parse(&graph, &arena, text, NULL, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_block *block = &graph.blocks[0];
    ul_lower_group(&graph, block->nodes, block->node_count, NULL, &traits, &arena, &result);
    const struct ul_profile_device device =
        ul_profile_device(ul_profile_find(UL_PROFILE_DEFAULT_DEVICE));
    uint32_t orders = ul_contract_cuda_orders(result.kernel, &device);
    assert_int_not_equal(orders, 0);
    assert_int_equal(orders != UL_CONTRACT_LOOSE, e->is_sure);
    ul_arena_done(&arena);
}

int main(void)
{
    enum { CASES = sizeof expectations / sizeof *expectations };
    struct CMUnitTest tests[CASES] = {{0}};
    for (size_t i = 0; i < CASES; i++)
        tests[i] = (struct CMUnitTest){.name = expectations[i].name,
                                       .test_func = order_is_known,
                                       .initial_state = (void *)(uintptr_t)&expectations[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
