/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a kernel as its form, which is the text without its numbers, and the numbers. Kernels
 * of one form differ in numbers alone, and are one kernel where formulas give these. */
#ifndef UL_COMPILE_SIZES_KERNEL_FORM_H
#define UL_COMPILE_SIZES_KERNEL_FORM_H

#include "codegen/program/formula.h"

/* In a form, in place of a whole number, and of a float that is one ("24.0f"). */
#define UL_FORM_NUMBER '\001'
#define UL_FORM_FLOAT '\002'

struct ul_kernel_form {
    const char *text;
    size_t length;
    uint32_t number_count;
};

/* Distinct forms; an id is an index. Lives in the arena. */
struct ul_kernel_forms {
    struct ul_arena *arena;
    struct ul_kernel_form *items;
    uint32_t count, capacity;
    uint32_t *table; /* hash -> index + 1 */
    uint32_t table_size;
};

/* A kernel's form, and its numbers in the order of the text. */
struct ul_kernel_numbers {
    uint32_t form;
    const int64_t *numbers;
};

void ul_kernel_forms_init(struct ul_kernel_forms *forms, struct ul_arena *arena);
/* `text` as struct ul_program_kernel has it. */
struct ul_kernel_numbers ul_kernel_form_of(struct ul_kernel_forms *forms, const char *text);

/* A form with a formula for each number, and the largest value of each: arrays on the stack have
 * that many elements. */
struct ul_filled_form {
    const struct ul_kernel_form *form;
    const struct ul_formula *const *formulas;
    const int64_t *largest;
};

/* The parameters of the kernel, up to the brace that opens its body. */
const char *ul_kernel_form_parameters(struct ul_arena *arena, const struct ul_kernel_form *form);
/* Writes the body with its braces; formulas are computed at its begin. `indent`: in fours. */
void ul_kernel_form_put_body(struct ul_text *text, const struct ul_filled_form *filled,
                             uint32_t indent);

#endif
