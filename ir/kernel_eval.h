/* SPDX-License-Identifier: Apache-2.0 */
/* What the interpreter's files share: one scalar at a time (kernel_eval.c), or the iterations of a
 * loop side by side (kernel_eval_lanes.c), by the same operations (kernel_eval_scalar.c), which
 * round where the program does. */
#ifndef UL_IR_KERNEL_EVAL_H
#define UL_IR_KERNEL_EVAL_H

#include "ir/kernel_build.h"

/* One scalar; which member counts follows from the expression's dtype. */
union ul_scalar {
    int64_t i;
    double f;
};

/* Functions of floats that printed kernels call (runtime/lib/ul_scalar.h). */
struct ul_machine_functions {
    float (*exp)(float), (*log)(float), (*tanh)(float), (*erf)(float);
};
extern const struct ul_machine_functions ul_functions_rounded; /* kernel_eval_scalar.c */
extern const struct ul_machine_functions ul_functions_fused;   /* kernel_eval_fused.c */

struct ul_machine {
    const struct ul_kernel *kernel;
    const struct ul_machine_functions *functions;
    unsigned char **places; /* of each buffer's element 0 */
    union ul_scalar *vars;
    union ul_scalar **lanes;  /* per variable: its number in each lane, while a loop runs in
                                 lanes; or NULL */
    union ul_scalar **stores; /* per variable of a loop that can run in lanes: where its lanes
                                 are */
    unsigned char *loops;     /* per statement that is a loop: enum ul_loop_form */
    struct ul_arena *scratch;
    uint64_t work_left;
    bool reported;
    bool breaking;
};

enum ul_loop_form { UL_LOOP_UNKNOWN, UL_LOOP_SCALAR, UL_LOOP_LANES };

/* kernel_eval_scalar.c: an operation on known operands. `from` is the type of the first. */
union ul_scalar ul_machine_unary(struct ul_machine *machine, const struct ul_kx_data *expr,
                                 enum ul_dtype from, union ul_scalar a);
union ul_scalar ul_machine_binary(const struct ul_kx_data *expr, enum ul_dtype from,
                                  union ul_scalar a, union ul_scalar b);
/* a * b + c, rounded once or twice. */
union ul_scalar ul_machine_fma(const struct ul_machine *machine, enum ul_dtype dtype,
                               union ul_scalar a, union ul_scalar b, union ul_scalar c);
/* A sum or difference of the product a * b, which may be its first operand, and of c, rounded
 * once. */
union ul_scalar ul_machine_fused(const struct ul_kx_data *sum, bool is_first, union ul_scalar a,
                                 union ul_scalar b, union ul_scalar c);
/* The product in a sum that is not rounded; UL_NONE: there is none. */
ul_kx ul_machine_fused_product(const struct ul_machine *machine, ul_kx sum);
union ul_scalar ul_machine_cast(enum ul_dtype from, enum ul_dtype to, union ul_scalar value);
union ul_scalar ul_machine_load(const struct ul_machine *machine, uint32_t buffer, int64_t index);
void ul_machine_store(const struct ul_machine *machine, uint32_t buffer, int64_t index,
                      union ul_scalar value);

/* kernel_eval_lanes.c */

/* Whether the loop can run in lanes; if so, it gets room for them. */
bool ul_machine_has_lanes(struct ul_machine *machine, const struct ul_ks_data *loop);
/* Runs such a loop, `count` times. False: the work is used up. */
bool ul_machine_run_lanes(struct ul_machine *machine, const struct ul_ks_data *loop, int64_t count);

#endif
