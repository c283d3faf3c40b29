/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas of sizes: made, found from values, put into the text of kernels. */
#include "compile/sizes/fit.h"
#include "compile/sizes/kernel_form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST_LOW = 1, FIRST_HIGH = 8, SECOND_LOW = 2, SECOND_HIGH = 70 };
enum { POINTS = (FIRST_HIGH - FIRST_LOW + 1) * (SECOND_HIGH - SECOND_LOW + 1) };

static const char *text_of(struct ul_arena *arena, const struct ul_formula *formula)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_formula_print(&text, formula, NULL);
    return text.data;
}

static void test_numbers_are_gathered(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    const struct ul_formula *n = ul_formula_size(&arena, 0), *two = ul_formula_number(&arena, 2);
    const struct ul_formula *sum = ul_formula_sum(&arena, two, ul_formula_sum(&arena, n, two));
    assert_string_equal(text_of(&arena, sum), "(n0 + 4)");
    assert_string_equal(text_of(&arena, ul_formula_product(&arena, sum, two)), "((n0 * 2) + 8)");
    assert_string_equal(text_of(&arena, ul_formula_quotient(&arena, sum, 1)), "(n0 + 4)");
    assert_string_equal(
        text_of(&arena, ul_formula_product(&arena, ul_formula_number(&arena, 0), n)), "0");
    ul_arena_done(&arena);
}

static void test_overflow_is_seen(void **state)
{
    (void)state;
    struct ul_arena arena;
    int64_t value, sizes[] = {INT64_MAX / 2}, negative[] = {-8};
    ul_arena_init(&arena);
    const struct ul_formula *n = ul_formula_size(&arena, 0);
    const struct ul_formula *square = ul_formula_product(&arena, n, n);
    const struct ul_formula *half = ul_formula_quotient(&arena, n, 2);
    assert_false(ul_formula_eval(square, sizes, &value));
    assert_true(ul_formula_eval(ul_formula_sum(&arena, n, n), sizes, &value));
    assert_int_equal(value, INT64_MAX - 1);
    assert_false(ul_formula_eval(half, negative, &value)); /* C would round up */
    ul_arena_done(&arena);
}

/* Guesses on the way overflow, which a sanitizer sees; none of them is taken. */
static void test_guesses_may_overflow(void **state)
{
    (void)state;
    enum { FEW = 6 };
    struct ul_arena arena;
    struct ul_fit fit;
    int64_t points[FEW],
        values[] = {3, INT64_C(1) << 40, 0, INT64_C(1) << 39, 5, 1 - (INT64_C(1) << 40)};
    ul_arena_init(&arena);
    for (uint32_t i = 0; i < FEW; i++)
        points[i] = (INT64_C(1) << 39) + i;
    ul_fit_init(&fit, &arena, 1, points, FEW);
    assert_null(ul_fit_find(&fit, values, false));
    const struct ul_formula *most = ul_formula_number(&arena, INT64_MAX);
    const struct ul_formula *sum = ul_formula_sum(&arena, most, most);
    int64_t value;
    assert_false(ul_formula_eval(sum, points, &value));
    assert_false(ul_formula_eval(ul_formula_product(&arena, most, most), points, &value));
    ul_arena_done(&arena);
}

/* Numbers as programs have them, of a batch b and a length s. */
static int64_t number(uint32_t kind, int64_t b, int64_t s)
{
    switch (kind) {
    case 0:
        return 7;
    case 1:
        return s;
    case 2:
        return 768 * b * s + 64;
    case 3:
        return (s - 1) / 2 + 1; /* a stride of 2 */
    case 4:
        return s % 8; /* rows of the last block */
    case 5:
        return (s + 31) / 32 * 32 - s; /* lanes that are filled up */
    case 6:
        return b * ((s + 15) / 16 * 16) * 4;
    case 7:
        return (4 * 12 * b * s + 63) / 64 * 64; /* aligned bytes */
    case 8:
        return b * s - 3 * b + 2 * s;
    case 9:
        return (s - 1) / 4 * b; /* strides of 2, twice */
    default:
        return (b * 7919 + s * 104729) % 1009; /* no formula at all */
    }
}

enum { KINDS = 10 };

static void test_formulas_are_found(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_fit fit;
    static int64_t points[2 * POINTS], values[POINTS];
    ul_arena_init(&arena);
    for (uint32_t i = 0; i < POINTS; i++) {
        points[2 * i] = FIRST_LOW + i / (SECOND_HIGH - SECOND_LOW + 1);
        points[2 * i + 1] = SECOND_LOW + i % (SECOND_HIGH - SECOND_LOW + 1);
    }
    ul_fit_init(&fit, &arena, 2, points, POINTS);
    for (uint32_t kind = 0; kind <= KINDS; kind++) {
        for (uint32_t i = 0; i < POINTS; i++)
            values[i] = number(kind, points[2 * i], points[2 * i + 1]);
        (void)ul_fit_find(&fit, values, true); /* notes dimensions */
        const struct ul_formula *formula = ul_fit_find(&fit, values, false);
        if (kind == KINDS) {
            assert_null(formula);
            continue;
        }
        if (formula == NULL)
            print_error("kind %u\n", kind);
        assert_non_null(formula);
        for (uint32_t i = 0; i < POINTS; i++) {
            int64_t value;
            assert_true(ul_formula_eval(formula, points + 2 * i, &value));
            assert_int_equal(value, values[i]);
        }
        assert_ptr_equal(ul_fit_find(&fit, values, false), formula);
    }
    ul_arena_done(&arena);
}

static void test_dimensions_are_factors(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_fit fit;
    int64_t points[40], dims[40], values[40];
    ul_arena_init(&arena);
    for (uint32_t i = 0; i < 40; i++) {
        points[i] = 30 + i;
        dims[i] = (points[i] + 1) / 2;
        values[i] = 3 * dims[i] * dims[i] * points[i];
    }
    ul_fit_init(&fit, &arena, 1, points, 40);
    assert_null(ul_fit_find(&fit, values, true));
    assert_non_null(ul_fit_find(&fit, dims, true));
    assert_non_null(ul_fit_find(&fit, values, true));
    ul_arena_done(&arena);
}

static const char small_kernel[] = "const float *b0, struct ul_run *run)\n"
                                   "{\n"
                                   "    UL_LOCAL float b1[16];\n"
                                   "    const int64_t v2 = 0x10 + INT64_C(16) + 1e-3f;\n"
                                   "    b1[v2] = b0[(v2 * 16)] / 16.0f + 0.5f;\n"
                                   "}\n";
static const char large_kernel[] = "const float *b0, struct ul_run *run)\n"
                                   "{\n"
                                   "    UL_LOCAL float b1[48];\n"
                                   "    const int64_t v2 = 0x10 + INT64_C(48) + 1e-3f;\n"
                                   "    b1[v2] = b0[(v2 * 48)] / 48.0f + 0.5f;\n"
                                   "}\n";
static const char filled_kernel[] = "{\n"
                                    "    const float *const b0 = p0;\n"
                                    "    const int64_t h0 = n0;\n"
                                    "    (void)h0;\n"
                                    "    UL_LOCAL float b1[48];\n"
                                    "    const int64_t v2 = 0x10 + (h0) + 1e-3f;\n"
                                    "    b1[v2] = b0[(v2 * h0)] / (float)h0 + 0.5f;\n"
                                    "}\n";

static void test_kernels_are_forms(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_kernel_forms forms;
    struct ul_text text;
    ul_arena_init(&arena);
    ul_kernel_forms_init(&forms, &arena);
    struct ul_kernel_numbers small = ul_kernel_form_of(&forms, small_kernel);
    struct ul_kernel_numbers large = ul_kernel_form_of(&forms, large_kernel);
    struct ul_kernel_numbers other = ul_kernel_form_of(&forms, "struct ul_run *run)\n{\n}\n");
    assert_int_equal(small.form, large.form);
    assert_int_not_equal(small.form, other.form);
    const struct ul_kernel_form *form = &forms.items[small.form];
    assert_int_equal(form->number_count, 4);
    const struct ul_formula *n = ul_formula_size(&arena, 0), *formulas[] = {n, n, n, n};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(small.numbers[i], 16);
        assert_int_equal(large.numbers[i], 48);
    }
    const int64_t *tables[4] = {NULL}, values[] = {16, 48};
    const struct ul_filled_form filled = {.form = form,
                                          .formulas = formulas,
                                          .tables = tables,
                                          .point_count = 2,
                                          .largest = large.numbers};
    ul_text_init(&text, &arena);
    ul_kernel_form_put_body(&text, &filled, 0);
    assert_string_equal(text.data, filled_kernel);
    for (uint32_t i = 0; i < 4; i++) {
        formulas[i] = NULL;
        tables[i] = values;
    }
    ul_text_init(&text, &arena);
    ul_kernel_form_put_body(&text, &filled, 0);
    assert_non_null(strstr(text.data, "const int64_t h0 = t0[run->size_point];"));
    assert_null(strstr(text.data, "h1"));
    struct ul_kernel_parameters parameters = ul_kernel_form_parameters(&arena, form);
    assert_int_equal(parameters.count, 1);
    assert_false(parameters.has_scratch);
    ul_text_init(&text, &arena);
    ul_kernel_form_put_parameters(&text, &parameters);
    assert_string_equal(text.data, "const float *p0, struct ul_run *run)\n");
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_gathered),   cmocka_unit_test(test_overflow_is_seen),
        cmocka_unit_test(test_guesses_may_overflow),   cmocka_unit_test(test_formulas_are_found),
        cmocka_unit_test(test_dimensions_are_factors), cmocka_unit_test(test_kernels_are_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
