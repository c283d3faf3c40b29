/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of pages around those that are touched, by hand. */
#include "codegen/cpu/windows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WORDS = 4, WINDOW = UL_WINDOWS_PAGES * UL_WINDOWS_PAGE_BYTES };

static uint64_t bytes_of(const uint32_t *touched, uint32_t count)
{
    uint64_t pages[WORDS] = {0};
    for (uint32_t i = 0; i < count; i++)
        pages[touched[i] / 64] |= (uint64_t)1 << touched[i] % 64;
    return ul_windows_bytes(pages, WORDS);
}

static void windows_begin_where_they_are_most(void **state)
{
    (void)state;
    assert_int_equal(bytes_of(NULL, 0), 0);
    assert_int_equal(bytes_of((const uint32_t[]){0}, 1), WINDOW);
    assert_int_equal(bytes_of((const uint32_t[]){255}, 1), WINDOW);
    /* Neighbours are in two windows where one begins between them. */
    assert_int_equal(bytes_of((const uint32_t[]){7, 8}, 2), 2 * WINDOW);
    assert_int_equal(bytes_of((const uint32_t[]){63, 64}, 2), 2 * WINDOW);
    /* Pages that are 16 apart are never in one. */
    assert_int_equal(bytes_of((const uint32_t[]){0, 16}, 2), 2 * WINDOW);
    assert_int_equal(bytes_of((const uint32_t[]){0, 8, 17}, 3), 3 * WINDOW);
    /* No border parts both pairs. */
    assert_int_equal(bytes_of((const uint32_t[]){15, 16, 40, 41}, 4), 3 * WINDOW);
    assert_int_equal(bytes_of((const uint32_t[]){15, 16, 47, 48}, 4), 4 * WINDOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_begin_where_they_are_most)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
