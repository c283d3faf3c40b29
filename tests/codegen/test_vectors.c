/* SPDX-License-Identifier: Apache-2.0 */
/* Which loops a device runs several rounds of at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cuda/cuda.h"
#include "ir/kernel_text.h"

static bool reads_packs(struct ul_arena *arena, const char *source)
{
    struct ul_diag diag = {0};
    struct ul_kernel kernel;
    struct ul_text text;
    struct ul_kernel_printed printed;
    ul_text_init(&text, arena);
    if (ul_kernel_parse(&kernel, arena, source, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_profile_device device =
        ul_profile_device(ul_profile_find(UL_PROFILE_DEFAULT_DEVICE));
    assert_int_equal(ul_kernel_print_cuda(&text, &kernel, &device, &printed, &diag), UL_OK);
    return strstr(text.data, "ul_pack_read") != NULL;
}

/* for i: y[i] = y[i] + 1 and z[i] = y[i] * 2, in the order given. */
static bool has_packs(const char *first, const char *second)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    const char *source = ul_arena_printf(&arena,
                                         "kernel\n"
                                         "output b0 f32[1048576] value=%%0\n"
                                         "output b1 f32[1048576] value=%%1\n"
                                         "for v0 < 1048576 parallel\n"
                                         "  b0[v0] = 0.0\n"
                                         "for v1 < 1048576 parallel\n"
                                         "  %s\n"
                                         "  %s\n",
                                         first, second);
    bool has = reads_packs(&arena, source);
    ul_arena_done(&arena);
    return has;
}

/* Sums of 9 terms, of 64 channels at each of 16384 places: where the condition holds, the element
 * at the index. */
static bool has_channels(const char *condition, const char *index)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    const char *source = ul_arena_printf(&arena,
                                         "kernel\n"
                                         "input b0 u8[1048576] value=%%0\n"
                                         "output b1 i32[1048576] value=%%1\n"
                                         "for v0 < 16384 parallel\n"
                                         "  for v1 < 64 parallel\n"
                                         "    let v2 i64 = v0 + -4\n"
                                         "    var v3 i32 = 0:i32\n"
                                         "    for v4 < 9\n"
                                         "      let v5 i64 = v2 + v4\n"
                                         "      if %s\n"
                                         "        v3 = v3 + cast(i32, b0[%s])\n"
                                         "    b1[v0 * 64 + v1] = v3\n",
                                         condition, index);
    bool has = reads_packs(&arena, source);
    ul_arena_done(&arena);
    return has;
}

/* Loops and branches are the same for all elements of a pack, and load neighbours alone. */
static void channels_are_summed_side_by_side(void **state)
{
    (void)state;
    static const char inside[] = "0 <= v5 & v5 < 16384";
    assert_true(has_channels(inside, "v5 * 64 + v1"));
    assert_false(has_channels(inside, "v1 * 64 + v5"));
    assert_false(has_channels(inside, "v5 * 63 + v1"));
    assert_false(has_channels("0 <= v5 & v5 + v1 < 16384", "v5 * 64 + v1"));
}

/* Packs are loaded before any is stored: what a round stored it would not see. */
static void nothing_stored_is_loaded(void **state)
{
    (void)state;
    static const char adds[] = "b0[v1] = b0[v1] + 1.0", doubles[] = "b1[v1] = b0[v1] * 2.0";
    assert_true(has_packs(doubles, adds));
    assert_false(has_packs(adds, doubles));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_stored_is_loaded),
                                       cmocka_unit_test(channels_are_summed_side_by_side)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
