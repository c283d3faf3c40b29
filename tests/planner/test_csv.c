/* SPDX-License-Identifier: Apache-2.0 */
/* The CSV form of packing problems: what is read, written and refused. */
#include "planner/pack/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_round_trip(void **state)
{
    (void)state;
    static const char in[] = "size,id,note,lower,end,alignment,offset,gaps\r\n"
                             "10,a,x,0,5,4,,1-2 3-4@0:4\r\n"
                             "\n"
                             "3,\"b,\"\"c\",,2,2,0,7,\n";
    static const char want[] = "id,lower,end,size,alignment,gaps,offset\n"
                               "a,0,5,10,4,1-2 3-4@0:4,0\n"
                               "\"b,\"\"c\",2,2,3,0,,7\n";
    struct ul_arena arena;
    ul_arena_init(&arena);
    struct ul_pack_table table;
    struct ul_diag diag = {.status = UL_OK};
    enum ul_status status = ul_pack_read_csv(&arena, in, sizeof in - 1, &table, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(status, UL_OK);
    assert_int_equal(table.count, 2);
    assert_int_equal(table.buffers[0].end, 6);
    assert_int_equal(table.buffers[0].gap_count, 2);
    assert_true(table.buffers[1].pinned && !table.buffers[0].pinned);
    struct ul_text text;
    ul_text_init(&text, &arena);
    ul_pack_write_csv(&text, &table);
    assert_string_equal(text.data, want);
    ul_arena_done(&arena);
}

static void test_bad_tables_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "id,lower,size\n",
                                        "id,lower,upper,end,size\n",
                                        "id,id,lower,upper,size\n",
                                        "id,lower,upper,size\n1,0,1\n",
                                        "id,lower,upper,size\n1,0,1,2,3\n",
                                        "id,lower,upper,size\n1,3,3,2\n",
                                        "id,lower,upper,size\n1,0,x,2\n",
                                        "id,lower,upper,size\n1,0,-1,2\n",
                                        "id,lower,upper,size\n1,0,4294967296,2\n",
                                        "id,lower,upper,size\n1,0,1,99999999999999999999999\n",
                                        "id,lower,upper,size\n\"1,0,1,2\n",
                                        "id,lower,upper,size,gaps\n1,0,9,2,3\n",
                                        "id,lower,upper,size,gaps\n1,0,9,2,3-4@0:5\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        struct ul_pack_table table;
        struct ul_diag diag = {.status = UL_OK};
        assert_int_equal(ul_pack_read_csv(&arena, texts[i], strlen(texts[i]), &table, &diag),
                         UL_INVALID);
        assert_non_null(strstr(diag.text, "line "));
        ul_arena_done(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_bad_tables_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
