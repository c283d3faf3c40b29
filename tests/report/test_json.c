/* SPDX-License-Identifier: Apache-2.0 */
/* plan.json carries plans over several spaces and streams: what is written is read back. */
#include "planner/solve/solve_internal.h"
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char problem_text[] = "problem 1\n"
                                   "space 0 \"arena\"\n"
                                   "space 1 \"host\" bandwidth 100 transfers\n"
                                   "value 0 \"x\" inputs 64 from-start\n"
                                   "value 1 \"a\" other_activations 256\n"
                                   "value 2 \"b\" other_activations 256\n"
                                   "value 3 \"y\" outputs 64 to-end\n"
                                   "step 0 \"a\"\n  alternative\n    substep reads 0 writes 1\n"
                                   "step 1 \"b\"\n  alternative\n    substep reads 0 writes 2\n"
                                   "step 2 \"y\"\n  alternative\n    substep reads 1 2 writes 3\n";
static const char moves_text[] = "position 0 run 0\n"
                                 "position 1 save 1 space 1 stream 1\n"
                                 "position 2 wait 1\n"
                                 "position 3 run 1\n"
                                 "position 4 load 1 space 1\n"
                                 "position 5 run 2\n";
static const char runs_text[] = "position 0 run 0\nposition 1 run 1\nposition 2 run 2\n";

struct fixture {
    struct ul_arena arena;
    struct ul_problem *problem;
    struct ul_plan plan;
    struct ul_diag diag;
};

static void fixture_init(struct fixture *f, const char *positions)
{
    struct ul_plan_options options = {.alignment_bytes = 64};
    memset(f, 0, sizeof *f);
    ul_arena_init(&f->arena);
    assert_int_equal(
        ul_problem_parse(&f->arena, problem_text, strlen(problem_text), &f->problem, &f->diag),
        UL_OK);
    assert_int_equal(
        ul_positions_parse(&f->arena, positions, strlen(positions), &f->plan, &f->diag), UL_OK);
    f->plan.order_method = f->plan.remat_method = "by hand";
    assert_int_equal(ul_plan_complete(&f->arena, f->problem, &options, &f->plan, &f->diag), UL_OK);
    f->plan.orders_lower_bound_bytes = f->plan.lower_bound_bytes;
    ul_plan_judge(f->problem, 0, NULL, &f->plan);
}

static struct ul_text json_of(struct fixture *f)
{
    static const struct ul_report_step steps[] = {{.name = "a", .op = "A", .node = "a"},
                                                  {.name = "b", .op = "B", .node = "b"},
                                                  {.name = "y", .op = "Y", .node = "y"}};
    static const struct ul_report_value values[] = {
        {.name = "x"}, {.name = "a"}, {.name = "b"}, {.name = "y"}};
    const struct ul_report report = {.problem = f->problem,
                                     .plan = &f->plan,
                                     .facts = {.model = "m",
                                               .model_sha256 = "",
                                               .target = "c",
                                               .budget_of = "process",
                                               .process_of = "caller"},
                                     .steps = steps,
                                     .values = values};
    struct ul_text text;
    ul_text_init(&text, &f->arena);
    ul_report_put_json(&text, &report);
    return text;
}

static enum ul_status read_back(struct fixture *f, const struct ul_text *json, struct ul_plan *plan)
{
    struct ul_saved said;
    UL_TRY(ul_report_read_header(&f->arena, json->data, json->length, &said, &f->diag));
    return ul_report_read_plan(&f->arena, &said, f->problem, plan, &f->diag);
}

static void assert_reads_back(struct fixture *f, const struct ul_text *json)
{
    struct ul_plan again;
    struct ul_text text, same;
    enum ul_status status = read_back(f, json, &again);
    assert_string_equal(f->diag.text, "");
    assert_int_equal(status, UL_OK);
    assert_int_equal(ul_plan_check(&f->arena, f->problem, &again, &f->diag), UL_OK);
    ul_text_init(&text, &f->arena);
    ul_text_init(&same, &f->arena);
    ul_plan_print(&text, &f->plan);
    ul_plan_print(&same, &again);
    assert_string_equal(same.data, text.data);
}

static void test_transfers_are_columns(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, moves_text);
    struct ul_text json = json_of(&f);
    assert_non_null(
        strstr(json.data, "\"kind\": [\"run\", \"save\", \"wait\", \"run\", \"load\", \"run\"]"));
    assert_non_null(strstr(json.data, "\"step\": [0, null, null, 1, null, 2]"));
    assert_reads_back(&f, &json);
    ul_arena_done(&f.arena);
}

/* As every plan.json was before transfers existed. */
static void test_plans_of_runs_alone_say_no_more(void **state)
{
    (void)state;
    struct fixture f;
    fixture_init(&f, runs_text);
    struct ul_text json = json_of(&f);
    assert_null(strstr(json.data, "\"kind\""));
    assert_reads_back(&f, &json);
    ul_arena_done(&f.arena);
}

static void test_unknown_kinds_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct ul_plan again;
    fixture_init(&f, moves_text);
    struct ul_text json = json_of(&f);
    memcpy(strstr(strstr(json.data, "\"kind\""), "\"save\""), "\"fish\"", 6);
    assert_int_equal(read_back(&f, &json, &again), UL_INVALID);
    assert_string_equal(f.diag.text,
                        "\"steps\": entry 1 of \"kind\", of \"a\", is no kind: \"fish\"");
    ul_arena_done(&f.arena);
}

/* The inputs of one entry point, or its outputs; never those of two. */
static void test_entries_have_floors_of_their_own(void **state)
{
    static const char text[] = "problem 1\n"
                               "region 1 entry in 0\n"
                               "region 2 entry in 0\n"
                               "value 0 \"x\" inputs 640 from-start\n"
                               "value 1 \"y\" outputs 64 to-end\n"
                               "value 2 \"u\" inputs 320 from-start\n"
                               "value 3 \"v\" outputs 1280 to-end\n"
                               "value 4 \"w\" weights 128 persistent\n"
                               "step 0 \"y\" region 1\n  alternative\n"
                               "    substep reads 0 4 writes 1\n"
                               "step 1 \"v\" region 2\n  alternative\n"
                               "    substep reads 2 4 writes 3\n";
    struct fixture f = {.plan = {.alignment_bytes = 64}};
    (void)state;
    ul_arena_init(&f.arena);
    assert_int_equal(ul_problem_parse(&f.arena, text, strlen(text), &f.problem, &f.diag), UL_OK);
    const struct ul_report report = {.problem = f.problem, .plan = &f.plan};
    assert_int_equal(ul_report_floor_bytes(&report), 128 + 1280);
    ul_arena_done(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries_have_floors_of_their_own),
        cmocka_unit_test(test_transfers_are_columns),
        cmocka_unit_test(test_plans_of_runs_alone_say_no_more),
        cmocka_unit_test(test_unknown_kinds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
