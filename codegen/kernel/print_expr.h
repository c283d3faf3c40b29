/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, and the statements that need nothing else, as text that is valid C99 and CUDA C++,
 * shared by the printers of all targets. Only for codegen/.
 *
 * Invariants: variable v<id>, buffer b<id> as a pointer to its storage type, `run` in scope; the
 * program includes runtime/lib/ul_kernel.h. Equal kernels have equal text. Ownership: everything
 * lives in the text's arena. Nothing fails. */
#ifndef UL_PRINT_EXPR_H
#define UL_PRINT_EXPR_H

#include "ir/kernel.h"

struct ul_expr_printer {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    bool *used;            /* variables that something reads */
    const char **names;    /* by expression: its replacement, or NULL; NULL: none has one */
    const char **elements; /* the same for elements that a load loads, as they are stored */
    const char *store_to;  /* what stores assign to, in place of an element; or NULL */
    const bool *is_short;  /* by variable: an i64 that is declared with 32 bits; NULL: none */
    const bool *is_scalar; /* by buffer: its one element is a variable; NULL: none is */
    bool fuses; /* C: products in sums are calls of ul_fma_*; else only FMA is, of fmaf */
};

/* NULL: C has no such type. */
const char *ul_storage_type(enum ul_dtype dtype);
/* For variables and expressions. */
const char *ul_c_type(enum ul_dtype dtype);

void ul_expr_printer_init(struct ul_expr_printer *printer, struct ul_text *text,
                          const struct ul_kernel *kernel);
void ul_put_indent(const struct ul_expr_printer *printer, uint32_t indent);
/* Indents a line and prints what it begins with. */
void ul_put_line(const struct ul_expr_printer *printer, uint32_t indent, const char *format, ...)
    UL_PRINTF(3, 4);
/* In parentheses where it needs them. */
void ul_put_expr(const struct ul_expr_printer *printer, ul_kx id);
/* The same as a text of its own. */
const char *ul_expr_text(const struct ul_expr_printer *printer, ul_kx id);
/* buffer[index] in its compute type. */
void ul_put_load(const struct ul_expr_printer *printer, uint32_t buffer, const char *index);
/* A STORE, without indent. */
void ul_put_store(const struct ul_expr_printer *printer, const struct ul_ks_data *stmt);
/* A line for a LET, VAR or SET, where something reads the variable. */
void ul_put_definition(const struct ul_expr_printer *printer, const struct ul_ks_data *stmt,
                       uint32_t indent);

#endif
