/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a kernel as its form, which is the text without its numbers, and the numbers. Kernels
 * of one form differ in numbers alone, and are one kernel where formulas give these. */
#ifndef UL_COMPILE_SIZES_KERNEL_FORM_H
#define UL_COMPILE_SIZES_KERNEL_FORM_H

#include "codegen/program/formula.h"

/* Tables of constants ("static ...") are part of the form, with their numbers. In a form, in place
 * of a whole number, and of a float that is one ("24.0f"). */
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
 * that many elements. A number without a formula has a table. */
struct ul_filled_form {
    const struct ul_kernel_form *form;
    const struct ul_formula *const *formulas;
    const int64_t *const *tables; /* by point of the piece, `point_count` of them */
    uint32_t point_count;
    const int64_t *largest;
};

/* What a kernel takes: buffers, in the order of its step's arguments, then scratch, where it has
 * any, and the run. Forms of one kernel may name their buffers otherwise. */
struct ul_kernel_parameters {
    const char **types; /* "const float *" */
    const char **names; /* "b3" */
    uint32_t count;     /* of buffers */
    bool has_scratch;
};
struct ul_kernel_parameters ul_kernel_form_parameters(struct ul_arena *arena,
                                                      const struct ul_kernel_form *form);
/* Writes them up to the end of the line, with buffers called p0, p1 and so on. */
void ul_kernel_form_put_parameters(struct ul_text *text,
                                   const struct ul_kernel_parameters *parameters);
/* Writes the body with its braces: first its buffers by their names, then formulas. `indent`: in
 * fours. */
void ul_kernel_form_put_body(struct ul_text *text, const struct ul_filled_form *filled,
                             uint32_t indent);

#endif
