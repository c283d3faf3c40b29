/* Which loops a device runs several rounds of at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cuda/cuda.h"
#include "ir/kernel_text.h"

/* for i: y[i] = y[i] + 1 and z[i] = y[i] * 2, in the order given. */
static bool has_packs(const char *first, const char *second)
{
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_kernel kernel;
    struct ul_text text;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    ul_text_init(&text, &arena);
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
    if (ul_kernel_parse(&kernel, &arena, source, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const struct ul_profile_device device =
        ul_profile_device(ul_profile_find(UL_PROFILE_DEFAULT_DEVICE));
    assert_int_equal(ul_kernel_print_cuda(&text, &kernel, &device, &scratch_bytes, &diag), UL_OK);
    bool has = strstr(text.data, "ul_pack_read") != NULL;
    ul_arena_done(&arena);
    return has;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_stored_is_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
