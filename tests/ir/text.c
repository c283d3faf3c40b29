/* SPDX-License-Identifier: Apache-2.0 */
/* The law parse(print(g)) = print(g), and what the parser refuses. */
#include "ir/text.h"
#include "test.h"

#include <string.h>

static const char everything[] =
    "graph \"all \\\"of\\\" it\\n\\xFF\"\n"
    "input %0 \"x\" f32[1,4] donor=%0 own\n"
    "input %1 \"state\" f16[?,3] persistent\n"
    "weight %2 \"w\" f32[4] = [1.0,-2.5,inf,1e+20]\n"
    "weight %3 \"nan\" f32[1] = 0x0000c07f\n"
    "weight %4 \"zeros\" f64[100,100] = splat [-0.0]\n"
    "weight %5 \"axes\" i64[2] = [-1,9223372036854775807]\n"
    "weight %6 \"big\" u64[] = [18446744073709551615]\n"
    "weight %7 \"none\" i32[0,3] = []\n"
    "weight %8 \"yes\" bool[2] = [1,0]\n"
    "%10 \"sum\" f32[1,4] own = Add n3 \"add\" (%0, %2) {alpha=0.5, note=\"a\\tb\", "
    "axes=ints[1,2], none=ints[], scales=floats[1.0,nan], names=strings[\"\",\"q\"], "
    "value=tensor f32[2] = [1.0,2.0], \"odd name\"=3} source=\"net.py:7\"\n"
    "%11 \"part\" f32[2] view=%10+8[1] = Relu n4 \"\" (%10) group=2\n"
    "%12 \"out\" f32[*] = If n6 \"if\" (%8)\n"
    "  block b2\n"
    "    %13 \"t\" none[*] = Relu n7 \"then\" (%11)\n"
    "    return %13\n"
    "  block b3\n"
    "    return %2\n"
    "return %12, %0\n";

static enum ul_status parse(const char *text, struct ul_graph *graph, struct ul_arena *arena,
                            struct ul_diag *diag)
{
    ul_arena_init(arena);
    memset(diag, 0, sizeof *diag);
    return ul_graph_parse(graph, arena, text, NULL, diag);
}

static void law(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    struct ul_text text;
    enum ul_status status = parse(everything, &graph, &arena, &diag);
    if (status != UL_OK)
        fail_msg("%s", diag.text);
    ul_text_init(&text, &arena);
    ul_graph_print(&text, &graph);
    assert_string_equal(text.data, everything);
    ul_arena_done(&arena);
}

static void pool(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_graph again;
    struct ul_diag diag = {0};
    int64_t dims[] = {64};
    struct ul_type type = ul_type_make(UL_F32, 1, dims);
    float data[64] = {0};
    ul_arena_init(&arena);
    ul_graph_init(&graph, &arena, "pool");
    ul_graph_add_weight(&graph, "a", ul_tensor_new(&arena, &type, data));
    data[5] = 1;
    ul_graph_add_weight(&graph, "b", ul_tensor_new(&arena, &type, data));
    struct ul_text text;
    ul_text_init(&text, &arena);
    ul_graph_print(&text, &graph);
    assert_non_null(strstr(text.data, "\"b\" f32[64] = pool=1"));
    assert_int_equal(ul_graph_parse(&again, &arena, text.data, &graph, &diag), UL_OK);
    assert_ptr_equal(again.values[1].tensor, graph.values[1].tensor);
    assert_int_equal(ul_graph_parse(&again, &arena, text.data, NULL, &diag), UL_INVALID);
    ul_arena_done(&arena);
}

static void refused(const char *text, const char *part)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag;
    assert_int_equal(parse(text, &graph, &arena, &diag), UL_INVALID);
    if (strstr(diag.text, part) == NULL)
        fail_msg("%s", diag.text);
    ul_arena_done(&arena);
}

static void bad_texts(void **state)
{
    (void)state;
    refused("", "line 1: expected graph");
    refused("graph \"a\n", "closing quote");
    refused("graph \"\"\n", "line 2");
    refused("graph \"\"\ninput %0 \"x\" f31[1]\nreturn\n", "element type");
    refused("graph \"\"\ninput %0 \"x\" f32[1,2,3,4,5,6,7,8,9]\nreturn\n", "8 dimensions");
    refused("graph \"\"\nreturn %7\n", "not defined");
    refused("graph \"\"\ninput %99999999999 \"x\" f32[]\nreturn\n", "smaller number");
    refused("graph \"\"\n= Nonsense n0 \"\" ()\nreturn\n", "operator");
    refused("graph \"\"\n%1 \"y\" f32[] = Relu n0 \"\" (%1)\nreturn\n", "not defined before");
    refused("graph \"\"\nweight %0 \"w\" f32[99999999] = [1.0]\nreturn\n", "as many elements");
    refused("graph \"\"\nweight %0 \"w\" i64[2] = [1]\nreturn\n", "expected ,");
    refused("graph \"\"\ninput %0 \"x\" f32[]\ninput %0 \"x\" f32[]\nreturn\n", "not yet defined");
    refused("graph \"\"\ninput %0 \"x\" f32[-1]\nreturn\n", "not negative");
    refused("graph \"\"\nreturn\nreturn\n", "end of the text");
}

/* Any prefix and any single changed byte parses or is refused, without a crash. */
static void mutations(void **state)
{
    (void)state;
    char text[sizeof everything];
    for (size_t i = 0; i < sizeof everything - 1; i++) {
        static const char bytes[] = "\0\n \"%[]={9-~";
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            struct ul_arena arena;
            struct ul_graph graph;
            struct ul_diag diag;
            memcpy(text, everything, sizeof text);
            text[i] = bytes[b];
            enum ul_status status = parse(text, &graph, &arena, &diag);
            assert_true(status == UL_OK || (status == UL_INVALID && diag.text[0] != '\0'));
            ul_arena_done(&arena);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(law),
        cmocka_unit_test(pool),
        cmocka_unit_test(bad_texts),
        cmocka_unit_test(mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
