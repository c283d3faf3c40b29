/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls a library has that keeps much for some: those stay whose bytes are within what they
 * compute with, and within the buffer all together. Which of several libraries has a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "codegen/program/calls_internal.h"
#include "codegen/program/library.h"
#include "ir/text.h"
#include "ir/view.h"

enum { MIB = 1 << 20, NODES = 3 };

/* Per call, told apart by its output channels. */
struct keeps {
    uint64_t bytes[NODES];
};

static bool answer(void *context, struct ul_group_call *call, bool pack)
{
    (void)context;
    (void)pack;
    call->call.implementation = "any";
    return true;
}

static uint64_t kept_bytes(void *context, const struct ul_call *call)
{
    const struct keeps *keeps = context;
    return keeps->bytes[call->dst.dims[1] - 1];
}

/* It has a call for results of two channels alone, and leaves its mark on others, too. */
static bool answer_two(void *context, struct ul_group_call *call, bool pack)
{
    (void)answer(context, call, pack);
    call->call.scratch_bytes = 64;
    return call->call.dst.dims[1] == 2;
}

/* Says of each of three convolutions whether it is a call (c) or a kernel (k): they go over lines
 * of `length` elements in one channel, into 1, 2 and 3 channels. Where `has_first`, another library
 * is asked first (f). */
static void choose_of(int length, const struct keeps *keeps, bool has_first, const char *wanted)
{
    struct keeps copy = *keeps;
    struct ul_target_library rows[] = {{.name = "first", .answer = answer_two},
                                       {.name = "fake",
                                        .skips_padding = true,
                                        .context = &copy,
                                        .answer = answer,
                                        .kept_bytes = kept_bytes}};
    const struct ul_libraries libraries = {.count = has_first ? 2 : 1,
                                           .rows = has_first ? rows : &rows[1]};
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_calls calls;
    struct ul_diag diag = {0};
    char text[1024], got[NODES + 1] = "";
    int used = snprintf(text, sizeof text,
                        "graph \"t\"\ninput %%0 \"x\" f32[1,1,%d] own\n"
                        "weight %%1 \"a\" f32[1,1,3] own = splat [0.5]\n"
                        "weight %%2 \"b\" f32[2,1,3] own = splat [0.5]\n"
                        "weight %%3 \"c\" f32[3,1,3] own = splat [0.5]\n",
                        length);
    for (int i = 0; i < NODES; i++)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "%%%d \"y%d\" f32[1,%d,%d] own = Conv n%d \"y%d\" (%%0, %%%d) "
                         "{pads=ints[1,1]}\n",
                         4 + i, i, 1 + i, length, i, i, 1 + i);
    snprintf(text + used, sizeof text - (size_t)used, "return %%4, %%5, %%6\n");
    ul_arena_init(&arena);
    if (ul_graph_parse(&graph, &arena, text, NULL, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    bool *escapes = ul_graph_escapes(&graph, &arena);
    assert_int_equal(ul_calls_choose(&arena, &graph, escapes, &libraries, NULL, &calls, &diag),
                     UL_OK);
    for (int i = 0; i < NODES; i++) {
        const struct ul_group_call *call = calls.by_node[i];
        got[i] = call == NULL ? 'k' : call->library == &rows[0] ? 'f' : 'c';
        assert_int_equal(call != NULL ? call->call.scratch_bytes : 0, got[i] == 'f' ? 64 : 0);
    }
    assert_string_equal(got, wanted);
    ul_arena_done(&arena);
}

static void choose(int length, const struct keeps *keeps, const char *wanted)
{
    choose_of(length, keeps, false, wanted);
}

/* A line of 2^20 elements is 4 MiB: a call reads and writes 8, 12 and 16. */
static void none_above_its_operands(void **state)
{
    (void)state;
    choose(1 << 20, &(struct keeps){{1 * MIB, 1 * MIB, 1 * MIB}}, "ccc");
    choose(1 << 20, &(struct keeps){{9 * MIB, 1 * MIB, 1 * MIB}}, "kcc");
    choose(1 << 20, &(struct keeps){{1 * MIB, 9 * MIB, 500 * MIB}}, "cck");
}

/* At most 16 MiB, and the dearest go: by bytes for a multiplication, not by bytes. */
static void all_within_the_buffer(void **state)
{
    (void)state;
    choose(1 << 20, &(struct keeps){{5 * MIB, 5 * MIB, 5 * MIB}}, "ccc");
    choose(1 << 20, &(struct keeps){{6 * MIB, 6 * MIB, 6 * MIB}}, "kcc");
    choose(1 << 20, &(struct keeps){{7 * MIB, 11 * MIB, 12 * MIB}}, "kkc");
}

static void little_is_free(void **state)
{
    (void)state;
    choose(64, &(struct keeps){{MIB / 4, MIB / 4, MIB / 2}}, "ccc");
    choose(64, &(struct keeps){{MIB / 4, MIB / 4, MIB / 2 + 1}}, "kcc");
    choose(64, &(struct keeps){{0, 0, MIB + 1}}, "cck");
}

/* A library that keeps nothing has what it takes, whatever the next one would keep for it. */
static void libraries_are_asked_in_turn(void **state)
{
    (void)state;
    choose_of(64, &(struct keeps){{0, 0, 0}}, true, "cfc");
    choose_of(64, &(struct keeps){{0, 2 * MIB, 2 * MIB}}, true, "cfk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_above_its_operands), cmocka_unit_test(all_within_the_buffer),
        cmocka_unit_test(little_is_free), cmocka_unit_test(libraries_are_asked_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
