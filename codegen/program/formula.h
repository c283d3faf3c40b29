/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers as functions of sizes that vary: what a program for a range of sizes has where a
 * program for fixed sizes has numbers.
 *
 * Ownership: formulas live in the arena that made them, and share their parts. Division rounds
 * down, and its divisor is a number above 0. */
#ifndef UL_CODEGEN_PROGRAM_FORMULA_H
#define UL_CODEGEN_PROGRAM_FORMULA_H

#include "base/base.h"

enum ul_formula_kind {
    UL_FORMULA_NUMBER,
    UL_FORMULA_SIZE,    /* of the program, by its number */
    UL_FORMULA_SUM,     /* left + right */
    UL_FORMULA_PRODUCT, /* left * right */
    UL_FORMULA_QUOTIENT /* left / number */
};

struct ul_formula {
    enum ul_formula_kind kind;
    int64_t number; /* or the number of the size */
    const struct ul_formula *left, *right;
};

const struct ul_formula *ul_formula_number(struct ul_arena *arena, int64_t number);
const struct ul_formula *ul_formula_size(struct ul_arena *arena, uint32_t size);
/* Numbers in sums and products are gathered on the right. */
const struct ul_formula *ul_formula_sum(struct ul_arena *arena, const struct ul_formula *left,
                                        const struct ul_formula *right);
const struct ul_formula *ul_formula_product(struct ul_arena *arena, const struct ul_formula *left,
                                            const struct ul_formula *right);
const struct ul_formula *ul_formula_quotient(struct ul_arena *arena, const struct ul_formula *left,
                                             int64_t divisor);

/* False where a part of it, which must not be below 0 where it is divided, has more than 63 bits.
 */
bool ul_formula_eval(const struct ul_formula *formula, const int64_t *sizes,
                     int64_t *value) UL_MUST_CHECK;
/* Whether it is the same for all sizes. */
bool ul_formula_is_fixed(const struct ul_formula *formula);
/* As an expression: with a name of each size, or, as C writes it, n0, n1 ... (NULL). */
void ul_formula_print(struct ul_text *text, const struct ul_formula *formula,
                      const char *const *names);
/* As C writes it; NULL: the number. */
void ul_formula_put(struct ul_text *text, const struct ul_formula *formula, int64_t number);

#endif
