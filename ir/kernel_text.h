/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as text, and what must hold of them: ir/README.md has the grammar.
 *
 * Invariants: parse(print(k)) prints the same bytes, and what a target makes of it is the same; ids
 * of variables and buffers are the kernel's own. Ownership: texts are the caller's; a kernel that
 * is read lives in the arena given. Failure: a text that is no kernel is UL_INVALID with the line,
 * or the statement. */
#ifndef UL_IR_KERNEL_TEXT_H
#define UL_IR_KERNEL_TEXT_H

#include "ir/kernel.h"

/* kernel_op.c: how an operation of expressions is written. */
struct ul_kx_op_info {
    const char *name;   /* of the function, "max" */
    const char *symbol; /* what stands between the operands, "+"; NULL: it is a function */
    uint32_t level;     /* of the symbol: operands of a lower level need parentheses */
};
const struct ul_kx_op_info *ul_kx_op_get(enum ul_kx_op op);
/* Finds the operation that is written as a function `name` of `length` bytes; false: there is
 * none. */
bool ul_kx_op_find(const char *name, size_t length, enum ul_kx_op *op);

/* kernel_print.c */

void ul_kernel_print(struct ul_text *text, const struct ul_kernel *kernel);
/* Remarks of a schedule: what follows a statement's line, before its end. */
struct ul_kernel_notes {
    void (*put)(void *context, struct ul_text *text, ul_ks statement);
    void *context;
};
/* The statements [first, end) of one list, with all that is inside of them; `notes` NULL: none. */
void ul_kernel_print_list(struct ul_text *text, const struct ul_kernel *kernel, ul_ks first,
                          ul_ks end, uint32_t indent, const struct ul_kernel_notes *notes);
/* The line of one statement, without what is inside of it and without its end. */
void ul_kernel_print_statement(struct ul_text *text, const struct ul_kernel *kernel, ul_ks id);

/* kernel_parse.c */

/* Reads one kernel and verifies it. */
enum ul_status ul_kernel_parse(struct ul_kernel *kernel, struct ul_arena *arena, const char *text,
                               struct ul_diag *diag) UL_MUST_CHECK;

/* kernel_verify.c */

/* Checks the invariants of kernel.h: ids, types and operands of expressions; that variables are
 * used where they are declared; accesses, where affine bounds tell, lie within their buffers; an
 * index depends on every parallel loop that stores by it, and is no sum that two of its rounds have
 * in common; a buffer that is read was stored to before, at least in part. Quick: it runs after
 * every lowering. `broken`, unless NULL: the statement at fault, or UL_NONE. */
enum ul_status ul_kernel_verify(const struct ul_kernel *kernel, struct ul_arena *scratch,
                                ul_ks *broken, struct ul_diag *diag) UL_MUST_CHECK;
/* Whether an expression whose operands are known has the type that they give. */
bool ul_kx_agrees(const struct ul_kernel *kernel, ul_kx id);
/* Checks that the text form survives a round trip, as ul_kernel_print promises. */
enum ul_status ul_kernel_check_text(const struct ul_kernel *kernel, struct ul_arena *scratch,
                                    struct ul_diag *diag) UL_MUST_CHECK;
/* Checks both, the text where `check_text`; what does not hold is a defect of `maker`, which made
 * the kernel. */
void ul_kernel_verify_or_die(const struct ul_kernel *kernel, bool check_text,
                             struct ul_arena *scratch, const char *maker);

#endif
