/* SPDX-License-Identifier: Apache-2.0 */
/* Problems and plans in text: what is printed reads back to the same bytes; anything else that is
 * read ends in a problem that can be planned, or in a message. */
#include "planner/solve/solve.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ul_text print(struct ul_arena *arena, const struct ul_problem *problem)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_problem_print(&text, problem);
    return text;
}

/* What the text says, or NULL with the reason in the diag. */
static struct ul_problem *read(struct ul_arena *arena, const char *text, size_t length,
                               struct ul_diag *diag)
{
    struct ul_problem *problem;
    memset(diag, 0, sizeof *diag);
    enum ul_status status = ul_problem_parse(arena, text, length, &problem, diag);
    assert_true(status == UL_OK ? diag->text[0] == '\0' : status == UL_INVALID && diag->text[0]);
    return status == UL_OK ? problem : NULL;
}

static void assert_reads_back(struct ul_arena *arena, const struct ul_problem *problem)
{
    struct ul_diag diag;
    struct ul_text text = print(arena, problem);
    struct ul_problem *again = read(arena, text.data, text.length, &diag);
    assert_string_equal(diag.text, "");
    assert_string_equal(print(arena, again).data, text.data);
}

static struct ul_text print_plan(struct ul_arena *arena, const struct ul_plan *plan)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_plan_print(&text, plan);
    return text;
}

/* A plan in text says the same, and the checker finds it as good. */
static void test_random_plans_read_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ul_arena arena;
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan, again;
        struct ul_plan_options options = {.pack = UL_PACK_GREEDY, .order = UL_ORDER_FILE};
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, seed, 20);
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        struct ul_text text = print_plan(&arena, &plan);
        enum ul_status status =
            ul_plan_parse(&arena, text.data, text.length, problem, &again, &diag);
        assert_string_equal(diag.text, "");
        assert_int_equal(status, UL_OK);
        assert_string_equal(print_plan(&arena, &again).data, text.data);
        assert_int_equal(ul_plan_check(&arena, problem, &again, &diag), UL_OK);
        ul_arena_done(&arena);
    }
}

static void test_random_problems_read_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct ul_arena arena;
        ul_arena_init(&arena);
        assert_reads_back(&arena, random_problem(&arena, seed, 40));
        ul_arena_done(&arena);
    }
}

/* Everything that the random ones do not have. */
static const char everything[] =
    "problem 1\n"
    "cost 7\n"
    "space 0 \"arena\" capacity 4096\n"
    "space 1 beside\n"
    "space 2 capacity 64\n"
    "resource 1 \"second\" compute stream 1 latency 3\n"
    "resource 2 copy stream 1 space 2 bandwidth 5 latency 7\n"
    "resource 3 link stream 63\n"
    "region 1 loop in 0\n"
    "region 2 branch in 1\n"
    "region 3 sequence in 0\n"
    "value 0 \"\\\"in\\\\ \\n\\t\\x01\\xFF\" inputs 10 align 256 from-start\n"
    "value 1 weights 20 space 1 persistent at 640\n"
    "value 2 \"\" optimizer_state 0 region 1 persistent\n"
    "value 3 \"y\" outputs 18446744073 to-end once\n"
    "value 4 gradients 1\n"
    "value 5 activations_kept_for_backward 1\n"
    "value 6 other_activations 1\n"
    "value 7 scratch 1\n"
    "value 8 \"w\" weights 8 persistent optional\n"
    "step 0 \"s\" region 1\n"
    "  alternative\n"
    "    substep reads 0 1 2 writes 3 in-place 3:0 3:1 scratch 9 align 64 space 1\n"
    "  alternative \"split\" cost 12 stack 700 other-bits\n"
    "    substep reads 0 writes 4\n"
    "    substep reads 4 writes 3\n"
    "step 1 after 0\n"
    "  alternative \"nothing\"\n"
    "    substep\n"
    "step 2\n"
    "  alternative on 3 moves 9 cost 4\n"
    "    substep\n";

static void test_every_word_reads_back(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_diag diag;
    ul_arena_init(&arena);
    struct ul_problem *problem = read(&arena, everything, sizeof everything - 1, &diag);
    assert_string_equal(diag.text, "");
    assert_string_equal(print(&arena, problem).data, everything);
    assert_string_equal(problem->values[0].name, "\"in\\ \n\t\x01\xFF");
    assert_null(problem->values[1].name);
    assert_int_equal(problem->steps[0].alternatives[1].substep_count, 2);
    assert_false(problem->steps[0].alternatives[0].other_bits);
    assert_true(problem->steps[0].alternatives[1].other_bits);
    assert_int_equal(problem->steps[1].predecessors[0], 0);
    ul_arena_done(&arena);
}

/* Words of a space, and "join", are short for rows. */
static void test_short_words_are_rows(void **state)
{
    static const char text[] = "problem 1\njoin 3\nspace 0 \"arena\"\n"
                               "space 1 \"host\" bandwidth 5 latency 7 transfers duplex\n"
                               "space 2 capacity 64 bandwidth 9 transfers\n"
                               "resource 5 link stream 3 bandwidth 10 latency 2\n"
                               "step 0\n  alternative on 5 moves 1000 cost 100002\n    substep\n";
    static const char rows[] = "problem 1\nspace 0 \"arena\"\nspace 1 \"host\"\n"
                               "space 2 capacity 64\n"
                               "resource 1 compute stream 1 latency 3\n"
                               "resource 2 copy stream 1 space 1 bandwidth 5 latency 7\n"
                               "resource 3 copy stream 2 space 1 bandwidth 5 latency 7\n"
                               "resource 4 copy stream 1 space 2 bandwidth 9\n"
                               "resource 5 link stream 3 bandwidth 10 latency 2\n"
                               "step 0\n  alternative on 5 moves 1000\n    substep\n";
    struct ul_arena arena;
    struct ul_diag diag;
    (void)state;
    ul_arena_init(&arena);
    struct ul_problem *problem = read(&arena, text, sizeof text - 1, &diag);
    assert_string_equal(diag.text, "");
    assert_string_equal(print(&arena, problem).data, rows);
    assert_int_equal(problem->steps[0].alternatives[0].cost, 100002);
    ul_arena_done(&arena);
}

static void test_comments_and_blanks_count_for_nothing(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n\nproblem 1\n  space 0 \"arena\"\n\n # another\n"
                               "value 0   \"x\"  outputs 8  from-start  to-end";
    struct ul_arena arena;
    struct ul_diag diag;
    ul_arena_init(&arena);
    struct ul_problem *problem = read(&arena, text, sizeof text - 1, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(problem->value_count, 1);
    ul_arena_done(&arena);
}

static void assert_refused(const char *text, const char *why)
{
    struct ul_arena arena;
    struct ul_diag diag;
    ul_arena_init(&arena);
    assert_null(read(&arena, text, strlen(text), &diag));
    if (strstr(diag.text, why) == NULL)
        fail_msg("%s: refused for another reason: %s", text, diag.text);
    ul_arena_done(&arena);
}

static void test_messages_name_the_line(void **state)
{
    (void)state;
    assert_refused("", "line 1: expected problem 1");
    assert_refused("problem 2\n", "line 1");
    assert_refused("problem 1\nvalue 1 inputs 4\n", "line 2: expected the next id");
    assert_refused("problem 1\nvalue 0 inputs\n", "line 2: expected a number");
    assert_refused("problem 1\nvalue 0 \"x inputs 4\n", "line 2: expected a closing quote");
    assert_refused("problem 1\nvalue 0 \"\\x00\" inputs 4\n", "line 2: expected two hex digits");
    assert_refused("problem 1\nvalue 0 fish 4\n", "line 2: expected a class");
    assert_refused("problem 1\nvalue 0 inputs 99999999999999999999\n", "line 2: expected a number");
    assert_refused("problem 1\nregion 1 loop in 1\n", "line 2: expected a smaller number");
    assert_refused("problem 1\n\n#\nvalue 0 inputs 4 fish\n", "line 4: expected the end of the");
    assert_refused("problem 1\nstep 0\n", "no alternative");
    assert_refused("problem 1\nstep 0\nalternative cost 3\nsubstep\n"
                   "alternative cost 2 other-bits\nsubstep\n",
                   "other bits costs less");
    assert_refused("problem 1\nspace 0\nspace 1 transfers\nstep 0\nalternative on 1\nsubstep\n",
                   "resource 1 runs no such step");
    assert_refused("problem 1\nspace 0\nresource 1 fish\n", "line 3: expected compute, copy or");
    assert_refused("problem 1\nspace 0\nresource 1 link\n", "streams are from 1 to 63");
    assert_refused("problem 1\nspace 0\nresource 1 copy stream 1\n", "is the arena, or beside");
    assert_refused("problem 1\nspace 0\nresource 1 link stream 1\nresource 2 compute stream 1\n",
                   "another one runs steps on stream 1");
    assert_refused("problem 1\nfish\n",
                   "line 2: expected another space, resource, region, value or step");
}

/* Solving is quick: what is sought is whether hostile numbers come through. */
static void plan_quickly(struct ul_arena *arena, const struct ul_problem *problem)
{
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan plan;
    struct ul_plan_options options = {
        .pack = UL_PACK_GREEDY, .order = UL_ORDER_FILE, .remat = UL_REMAT_NONE};
    enum ul_status status = ul_plan_solve(arena, problem, &options, &plan, &diag);
    if (status != UL_OK && status != UL_INVALID)
        fail_msg("planned to status %d: %s\n%s", (int)status, diag.text,
                 print(arena, problem).data);
}

/* One change: a bit, a byte, a cut, a line twice or nowhere. */
static size_t text_damage(char *text, size_t length, uint64_t *random)
{
    size_t at = random_below(random, (uint32_t)length);
    switch (random_below(random, 5)) {
    case 0:
        text[at] = (char)(text[at] ^ (1 << random_below(random, 8)));
        return length;
    case 1:
        return at;
    case 2: /* another digit */
        while (at < length && (text[at] < '0' || text[at] > '9'))
            at++;
        if (at < length)
            text[at] = (char)('0' + random_below(random, 10));
        return length;
    case 3: /* a byte is lost */
        memmove(text + at, text + at + 1, length - at - 1);
        return length - 1;
    default:
        text[at] = " \n\"\\:0189xb-"[random_below(random, 12)];
        return length;
    }
}

static void test_damaged_text_is_planned_or_refused(void **state)
{
    (void)state;
    uint64_t random = 11;
    uint32_t read_count = 0, refused_count = 0;
    for (uint32_t i = 0; i < 6000; i++) {
        struct ul_arena arena;
        struct ul_diag diag;
        ul_arena_init(&arena);
        struct ul_text text = print(&arena, random_problem(&arena, 1 + i % 64, 9));
        if (i % 8 == 0) {
            ul_text_init(&text, &arena);
            ul_text_put(&text, everything);
        }
        size_t length = text.length;
        for (uint32_t changes = 1 + random_below(&random, 3); changes > 0 && length > 1; changes--)
            length = text_damage(text.data, length, &random);
        struct ul_problem *problem = read(&arena, text.data, length, &diag);
        read_count += problem != NULL;
        refused_count += problem == NULL;
        if (problem != NULL) {
            assert_reads_back(&arena, problem);
            plan_quickly(&arena, problem);
        }
        ul_arena_done(&arena);
    }
    assert_true(read_count > 500 && refused_count > 500);
}

/* The checker says what is wrong with whatever can be read. */
static void test_damaged_plans_are_checked_or_refused(void **state)
{
    (void)state;
    uint64_t random = 5;
    uint32_t read_count = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        struct ul_arena arena;
        struct ul_diag diag = {.status = UL_OK};
        struct ul_plan plan;
        struct ul_plan_options options = {.pack = UL_PACK_GREEDY, .order = UL_ORDER_FILE};
        ul_arena_init(&arena);
        struct ul_problem *problem = random_problem(&arena, 1 + i % 64, 9);
        assert_int_equal(ul_plan_solve(&arena, problem, &options, &plan, &diag), UL_OK);
        struct ul_text text = print_plan(&arena, &plan);
        size_t length = text_damage(text.data, text.length, &random);
        enum ul_status status = ul_plan_parse(&arena, text.data, length, problem, &plan, &diag);
        read_count += status == UL_OK;
        if (status == UL_OK)
            status = ul_plan_check(&arena, problem, &plan, &diag);
        assert_true(status == UL_OK ? diag.text[0] == '\0' : diag.text[0] != '\0');
        ul_arena_done(&arena);
    }
    assert_true(read_count > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems_read_back),
        cmocka_unit_test(test_random_plans_read_back),
        cmocka_unit_test(test_every_word_reads_back),
        cmocka_unit_test(test_short_words_are_rows),
        cmocka_unit_test(test_comments_and_blanks_count_for_nothing),
        cmocka_unit_test(test_messages_name_the_line),
        cmocka_unit_test(test_damaged_text_is_planned_or_refused),
        cmocka_unit_test(test_damaged_plans_are_checked_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
