/* SPDX-License-Identifier: Apache-2.0 */
/* Building, rewriting and interpreting kernels. */
#ifndef UL_IR_KERNEL_BUILD_H
#define UL_IR_KERNEL_BUILD_H

#include "ir/kernel.h"

/* kernel.c: building. Smart constructors fold constants and simplify index arithmetic. */

void ul_kernel_init(struct ul_kernel *kernel, struct ul_arena *arena);
/* A copy in another arena, to which a target that rewrites kernels may add. */
struct ul_kernel *ul_kernel_copy(const struct ul_kernel *kernel, struct ul_arena *arena);
uint32_t ul_kernel_add_buffer(struct ul_kernel *kernel, enum ul_buffer_role role,
                              enum ul_dtype dtype, uint64_t element_count);
/* A variable of any value that statements may set. */
uint32_t ul_kernel_add_var(struct ul_kernel *kernel, enum ul_dtype dtype);
/* The i64 variable of a loop over [0, count). */
uint32_t ul_kernel_add_index(struct ul_kernel *kernel, int64_t count);

/* The type in which a stored type is computed: f16 gives f32, i8 gives i32, bool bool. */
enum ul_dtype ul_compute_dtype(enum ul_dtype dtype);
/* The integer at `index`, of 2 or 4 bits, where they lie packed in bytes, as operands do. */
ul_kx ul_kx_load_packed(struct ul_kernel *kernel, uint32_t buffer, enum ul_dtype dtype,
                        ul_kx index);
/* The type of an operand's elements in memory. */
enum ul_dtype ul_operand_dtype(const struct ul_kernel *kernel, const struct ul_operand *operand);

ul_kx ul_kx_int(struct ul_kernel *kernel, enum ul_dtype dtype, int64_t value);
ul_kx ul_kx_index_const(struct ul_kernel *kernel, int64_t value); /* an i64 */
ul_kx ul_kx_float(struct ul_kernel *kernel, enum ul_dtype dtype, double value);
/* A number in any dtype. */
ul_kx ul_kx_number(struct ul_kernel *kernel, enum ul_dtype dtype, double value);
ul_kx ul_kx_var(struct ul_kernel *kernel, uint32_t var);
/* Gives the buffer's compute type. */
ul_kx ul_kx_load(struct ul_kernel *kernel, uint32_t buffer, ul_kx index);
ul_kx ul_kx_unary(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a);
ul_kx ul_kx_binary(struct ul_kernel *kernel, enum ul_kx_op op, ul_kx a, ul_kx b);
ul_kx ul_kx_select(struct ul_kernel *kernel, ul_kx condition, ul_kx yes, ul_kx no);
ul_kx ul_kx_fma(struct ul_kernel *kernel, ul_kx a, ul_kx b, ul_kx c);
ul_kx ul_kx_cast(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx a);
ul_kx ul_kx_bitcast(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx a);
ul_kx ul_kx_round_to(struct ul_kernel *kernel, enum ul_dtype storage, bool saturate, ul_kx a);
/* `a` (any integer) as an index in [0, bound), clamped and reported at run time; with
 * `wrap_negative`, bound is first added to negative ones (ONNX Gather and the like). */
ul_kx ul_kx_checked_index(struct ul_kernel *kernel, ul_kx a, int64_t bound, bool wrap_negative);
/* Clamps to 0 .. high without a report: for loads behind a select. */
ul_kx ul_kx_clamp(struct ul_kernel *kernel, ul_kx a, int64_t high);
ul_kx ul_kx_random(struct ul_kernel *kernel, ul_kx counter, int64_t seed);
/* An operation with its operands, types and number as given: nothing is folded. Its own type and
 * range are found. */
ul_kx ul_kx_as_is(struct ul_kernel *kernel, const struct ul_kx_data *operation);
/* Short forms on i64 index expressions. */
ul_kx ul_kx_add(struct ul_kernel *kernel, ul_kx a, ul_kx b);
ul_kx ul_kx_sub(struct ul_kernel *kernel, ul_kx a, ul_kx b);
ul_kx ul_kx_mul(struct ul_kernel *kernel, ul_kx a, ul_kx b);
ul_kx ul_kx_addi(struct ul_kernel *kernel, ul_kx a, int64_t b);
ul_kx ul_kx_muli(struct ul_kernel *kernel, ul_kx a, int64_t b);
ul_kx ul_kx_divi(struct ul_kernel *kernel, ul_kx a, int64_t b); /* floor; a >= 0 is cheaper */
ul_kx ul_kx_modi(struct ul_kernel *kernel, ul_kx a, int64_t b);
enum ul_dtype ul_kx_dtype(const struct ul_kernel *kernel, ul_kx a);
/* The index of a load is its operand. */
uint32_t ul_kx_operand_count(enum ul_kx_op op);
/* True and the value when the expression is an integer constant. */
bool ul_kx_is_int(const struct ul_kernel *kernel, ul_kx a, int64_t *value);
/* The operand of a sum or difference of floats that is itself a product: where the processor has
 * fused multiply-add, the product is not rounded before it is added (ul_fma_f32 of the runtime).
 * The first operand comes first; a product that is bound to a variable is rounded. UL_NONE: there
 * is none. */
ul_kx ul_kx_fused_product(const struct ul_kernel *kernel, ul_kx sum);
/* `a`; where it is a product of floats, one that every sum rounds. */
ul_kx ul_kx_round_product(struct ul_kernel *kernel, ul_kx a);
/* Whether it is what ul_kx_round_product makes, or rounds to the type that its operand has anyway:
 * it is printed as its operand and costs nothing. */
bool ul_kx_rounds_to_itself(const struct ul_kx_data *expr);
/* Gives the same bits as ul_ks_let without a statement: what that would name is rounded. */
ul_kx ul_kx_round_shared(struct ul_kernel *kernel, ul_kx value);
/* The factor of `var` in an index; false where that is not constant. Values of other variables are
 * taken to stay the same. */
bool ul_kx_factor(const struct ul_kernel *kernel, ul_kx id, uint32_t var, int64_t *factor);

/* Statements go to the end of the innermost open list. */
/* The variable; constants pass through. Parts of `value` that it uses more than once get variables
 * of their own. */
ul_kx ul_ks_let(struct ul_kernel *kernel, ul_kx value);
ul_kx ul_ks_name(struct ul_kernel *kernel, ul_kx value); /* the same without looking inside */
uint32_t ul_ks_var(struct ul_kernel *kernel, enum ul_dtype dtype, ul_kx first);
void ul_ks_set(struct ul_kernel *kernel, uint32_t var, ul_kx value);
void ul_ks_store(struct ul_kernel *kernel, uint32_t buffer, ul_kx index, ul_kx value);
void ul_ks_break(struct ul_kernel *kernel);
/* Opens a loop over [0, count); returns the i64 variable. Close with ul_ks_end. */
ul_kx ul_ks_for(struct ul_kernel *kernel, int64_t count, uint32_t flags);
/* The same with a count that is an expression whose value stays within [0, max]. */
ul_kx ul_ks_for_expr(struct ul_kernel *kernel, ul_kx count, int64_t max, uint32_t flags);
void ul_ks_if(struct ul_kernel *kernel, ul_kx condition);
void ul_ks_else(struct ul_kernel *kernel);
void ul_ks_end(struct ul_kernel *kernel);
/* Whether a list of statements holds a loop, or a contraction, which is one. */
bool ul_ks_holds_loop(const struct ul_kernel *kernel, ul_ks first);
/* Adds the contraction and opens its epilogue, where ul_kx_var(acc) is the sum. The caller fills
 * extents, operands and counts before; vars and acc are made by ul_contraction_init. */
void ul_contraction_init(struct ul_kernel *kernel, struct ul_contraction *contraction,
                         enum ul_dtype acc_dtype, const int64_t *m_extents, uint32_t m_count,
                         const int64_t *n_extents, uint32_t n_count, const int64_t *k_extents,
                         uint32_t k_count);
/* A contraction without dimensions and operands; one that is added belongs to a statement once its
 * maker says so. */
struct ul_contraction ul_contraction_blank(void);
uint32_t ul_kernel_add_contraction(struct ul_kernel *kernel,
                                   const struct ul_contraction *contraction);
void ul_ks_contract(struct ul_kernel *kernel, const struct ul_contraction *contraction);
/* Opens a list that is in no other one: the body of the statement that is returned, once ul_ks_end
 * closes it. */
ul_ks ul_ks_aside(struct ul_kernel *kernel);
/* Adds a statement after *last, which it becomes, to a list that its maker keeps; UL_NONE: it is
 * the first. */
ul_ks ul_ks_link(struct ul_kernel *kernel, ul_ks *last, enum ul_ks_kind kind, uint32_t var,
                 ul_kx value);
/* Marks a loop, and the innermost open one. */
void ul_ks_mark_attend(struct ul_kernel *kernel, ul_ks loop, const struct ul_attend *attend);
void ul_ks_attend(struct ul_kernel *kernel, const struct ul_attend *attend);

/* tile.c: cuts nests that move elements from one order in memory to another into blocks. */
void ul_ks_tile(struct ul_kernel *kernel);

/* For share.c: the expression `id` over other operands. */
ul_kx ul_kx_rebuild(struct ul_kernel *kernel, ul_kx id, ul_kx a, ul_kx b, ul_kx c);

/* kernel_eval.c: interprets a kernel. `buffers[i]` are the bytes of buffer i's base (INPUT and
 * OUTPUT: at offset 0 of the view); scratch and locals are made here. Steps of the interpreter are
 * subtracted from *work_left; false when they are not enough. `report` is set when an index was out
 * of range. */
bool ul_kernel_eval(const struct ul_kernel *kernel, unsigned char *const *buffers,
                    uint64_t *work_left, struct ul_arena *scratch, bool *report);

#endif
