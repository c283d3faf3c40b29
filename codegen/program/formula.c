/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers as functions of sizes: made, computed, printed. */
#include "codegen/program/formula.h"

#include <inttypes.h>

static const struct ul_formula *make(struct ul_arena *arena, enum ul_formula_kind kind,
                                     int64_t number, const struct ul_formula *left,
                                     const struct ul_formula *right)
{
    struct ul_formula *formula = UL_NEW(arena, struct ul_formula);
    *formula = (struct ul_formula){.kind = kind, .number = number, .left = left, .right = right};
    return formula;
}

static bool is_number(const struct ul_formula *formula, int64_t number)
{
    return formula->kind == UL_FORMULA_NUMBER && formula->number == number;
}

const struct ul_formula *ul_formula_number(struct ul_arena *arena, int64_t number)
{
    return make(arena, UL_FORMULA_NUMBER, number, NULL, NULL);
}

const struct ul_formula *ul_formula_size(struct ul_arena *arena, uint32_t size)
{
    return make(arena, UL_FORMULA_SIZE, size, NULL, NULL);
}

/* Whether it is something and a number, which is on the right. */
static bool has_number(const struct ul_formula *formula, enum ul_formula_kind kind)
{
    return formula->kind == kind && formula->right->kind == UL_FORMULA_NUMBER;
}

/* The sum or product of two numbers: one number, unless that overflows. */
static const struct ul_formula *fold(struct ul_arena *arena, enum ul_formula_kind kind,
                                     const struct ul_formula *left, const struct ul_formula *right)
{
    const struct ul_formula *formula = make(arena, kind, 0, left, right);
    int64_t number;
    return ul_formula_eval(formula, NULL, &number) ? ul_formula_number(arena, number) : formula;
}

const struct ul_formula *ul_formula_sum(struct ul_arena *arena, const struct ul_formula *left,
                                        const struct ul_formula *right)
{
    if (left->kind == UL_FORMULA_NUMBER && right->kind == UL_FORMULA_NUMBER)
        return fold(arena, UL_FORMULA_SUM, left, right);
    if (left->kind == UL_FORMULA_NUMBER)
        return ul_formula_sum(arena, right, left);
    if (right->kind == UL_FORMULA_NUMBER && has_number(left, UL_FORMULA_SUM))
        return ul_formula_sum(arena, left->left, fold(arena, UL_FORMULA_SUM, left->right, right));
    if (is_number(right, 0))
        return left;
    return make(arena, UL_FORMULA_SUM, 0, left, right);
}

const struct ul_formula *ul_formula_product(struct ul_arena *arena, const struct ul_formula *left,
                                            const struct ul_formula *right)
{
    if (left->kind == UL_FORMULA_NUMBER && right->kind == UL_FORMULA_NUMBER)
        return fold(arena, UL_FORMULA_PRODUCT, left, right);
    if (left->kind == UL_FORMULA_NUMBER)
        return ul_formula_product(arena, right, left);
    if (is_number(right, 0))
        return right;
    if (is_number(right, 1))
        return left;
    if (right->kind == UL_FORMULA_NUMBER && has_number(left, UL_FORMULA_PRODUCT))
        return ul_formula_product(arena, left->left,
                                  fold(arena, UL_FORMULA_PRODUCT, left->right, right));
    if (right->kind == UL_FORMULA_NUMBER && has_number(left, UL_FORMULA_SUM))
        return ul_formula_sum(arena, ul_formula_product(arena, left->left, right),
                              fold(arena, UL_FORMULA_PRODUCT, left->right, right));
    return make(arena, UL_FORMULA_PRODUCT, 0, left, right);
}

const struct ul_formula *ul_formula_quotient(struct ul_arena *arena, const struct ul_formula *left,
                                             int64_t divisor)
{
    UL_ASSERT(divisor > 0);
    return divisor == 1 ? left : make(arena, UL_FORMULA_QUOTIENT, divisor, left, NULL);
}

bool ul_formula_eval(const struct ul_formula *formula, const int64_t *sizes, int64_t *value)
{
    int64_t left, right;
    switch (formula->kind) {
    case UL_FORMULA_NUMBER:
        *value = formula->number;
        return true;
    case UL_FORMULA_SIZE:
        *value = sizes[formula->number];
        return true;
    case UL_FORMULA_SUM:
        return ul_formula_eval(formula->left, sizes, &left) &&
               ul_formula_eval(formula->right, sizes, &right) &&
               !__builtin_add_overflow(left, right, value);
    case UL_FORMULA_PRODUCT:
        return ul_formula_eval(formula->left, sizes, &left) &&
               ul_formula_eval(formula->right, sizes, &right) &&
               !__builtin_mul_overflow(left, right, value);
    case UL_FORMULA_QUOTIENT:
        if (!ul_formula_eval(formula->left, sizes, &left) || left < 0)
            return false;
        *value = left / formula->number;
        return true;
    }
    return false;
}

bool ul_formula_is_fixed(const struct ul_formula *formula)
{
    return formula->kind == UL_FORMULA_NUMBER;
}

void ul_formula_print(struct ul_text *text, const struct ul_formula *formula,
                      const char *const *names)
{
    switch (formula->kind) {
    case UL_FORMULA_NUMBER:
        ul_text_printf(text, formula->number < 0 ? "(%" PRId64 ")" : "%" PRId64, formula->number);
        return;
    case UL_FORMULA_SIZE:
        if (names != NULL)
            ul_text_put(text, names[formula->number]);
        else
            ul_text_printf(text, "n%" PRId64, formula->number);
        return;
    case UL_FORMULA_SUM:
    case UL_FORMULA_PRODUCT:
        ul_text_put(text, "(");
        ul_formula_print(text, formula->left, names);
        ul_text_put(text, formula->kind == UL_FORMULA_SUM ? " + " : " * ");
        ul_formula_print(text, formula->right, names);
        ul_text_put(text, ")");
        return;
    case UL_FORMULA_QUOTIENT:
        ul_text_put(text, "(");
        ul_formula_print(text, formula->left, names);
        ul_text_printf(text, " / %" PRId64 ")", formula->number);
        return;
    }
}

void ul_formula_put(struct ul_text *text, const struct ul_formula *formula, int64_t number)
{
    if (formula != NULL)
        ul_formula_print(text, formula, NULL);
    else
        ul_text_printf(text, "%" PRId64, number);
}
