/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the schedules of contractions: the shape as flat m, n and k, and text helpers. */
#ifndef UL_CONTRACT_INTERNAL_H
#define UL_CONTRACT_INTERNAL_H

#include "codegen/kernel/contract.h"

/* The most rounds of a loop that gcc unrolls completely. */
enum { UL_UNROLLED_ROUNDS = 16 };

/* Dimensions of one class (m, n or k) after merging: consecutive dimensions that every use has only
 * as outer * extent(inner) + inner become one, carried by the innermost; the others stay at 0, as
 * do dimensions of extent 1. */
struct ul_contract_dims {
    uint32_t count;
    uint32_t carrier[UL_CONTRACT_DIMS]; /* contraction dimension that holds the merged value */
    int64_t extents[UL_CONTRACT_DIMS];
};

/* Index expressions of one user of the variables. */
struct ul_contract_uses {
    uint32_t count, capacity;
    struct ul_affine *indexes;           /* bases unused */
    bool is_opaque[UL_CONTRACT_DIMS];    /* used other than in an index */
    bool is_mentioned[UL_CONTRACT_DIMS]; /* named in an expression */
    bool mentions_acc;
};

enum ul_contract_schedule {
    UL_CONTRACT_PLAIN,  /* loops over m, n, k */
    UL_CONTRACT_TILE,   /* register tiles over a packed panel */
    UL_CONTRACT_WINDOW, /* one row, few k: a sliding window over padded planes */
    UL_CONTRACT_ROW,    /* few rows: sums of a run of columns, one k after the other */
    UL_CONTRACT_DOT     /* one row or column, k contiguous in both operands */
};

/* The form to which an operand is packed. */
enum ul_contract_width {
    UL_CONTRACT_WIDE, /* the accumulator's type */
    UL_CONTRACT_U8,
    UL_CONTRACT_I8,
    UL_CONTRACT_I16
};

struct ul_contract_plan {
    const struct ul_contraction *contraction;
    enum ul_contract_schedule schedule;
    int64_t m, n, k;        /* products of extents */
    const char *tag, *type; /* of sums: "f32" and "float"; integers are summed unsigned, to wrap */
    const char *acc_type;   /* the type of the accumulator in the epilogue */
    int64_t element_bytes, block_cols; /* of a sum */
    struct ul_contract_uses a_uses, b_uses, epilogue_uses;
    struct ul_contract_dims a_m, a_k, b_n, b_k, out_m, out_n;
    bool a_same, b_same;   /* stored in the accumulator's type */
    bool a_plain, b_plain; /* stored in the accumulator's type, no transform, no bounds */
    enum ul_contract_width a_width, b_width; /* both wide, both bytes, or both of 16 bits */
    const char *products; /* tag of the multiplied types: that of sums, or "i8u8" and the like */
    const char *a_type, *b_type; /* C types of packed elements */
    int64_t group;               /* k that are together in panels; 1 for wide ones */
    int64_t packed_bytes;        /* of an element */
    int64_t depth;               /* k of a panel */
    int64_t rows;                /* rows of m whose sums are kept for all panels of k */
    int64_t row_cols;            /* columns at a time in the row form */
    bool packs_a;
    bool reads_b_in_place; /* full blocks of columns need no packing */
    int64_t panel_bytes, sums_bytes, a_bytes;
    int64_t strips;  /* of the window schedule */
    uint32_t shares; /* threads that share it; 1: it is not shared */
    int64_t items;   /* what they share: columns_each columns (or dots, strips) by rows_each rows */
    int64_t columns_each, rows_each;
};

/* contract_shape.c */

/* Chooses the schedule; memory for it comes from `arena`. It is not shared. */
void ul_contract_plan_init(struct ul_contract_plan *plan, const struct ul_kernel *kernel,
                           const struct ul_contraction *contraction, struct ul_arena *arena);
/* Merges dimensions [first, first + count) by the indexes in `uses`. */
void ul_contract_merge(const struct ul_contraction *contraction,
                       const struct ul_contract_uses *uses, uint32_t first, uint32_t count,
                       struct ul_contract_dims *dims);
/* Whether no operand depends on the other operand's side. A transform may. */
bool ul_contract_is_regular(const struct ul_contract_plan *plan);
/* contract_narrow.c */

/* Finds the widths of the operands of a sum of 32-bit integers; wide ones for other sums. */
void ul_contract_narrow_find(struct ul_contract_plan *plan, const struct ul_kernel *kernel);
/* Whether both are multiplied as 8 bits. */
bool ul_contract_is_bytes(const struct ul_contract_plan *plan);
/* Whether this operand's elements are stored like that in memory too. */
bool ul_contract_stores_bytes(const struct ul_contract_plan *plan,
                              const struct ul_operand *operand);
/* Whether a window of bytes closes the gaps between rows of sums before the epilogue, so that this
 * runs along a whole strip. */
bool ul_contract_closes_rows(const struct ul_contract_plan *plan);
/* Sets the names of types and functions, once it is known whether the schedule takes narrow
 * operands. */
void ul_contract_narrow_set(struct ul_contract_plan *plan, bool is_narrow);
#define UL_CONTRACT_GROUP_BYTES 4  /* k that are together, for one column */
#define UL_CONTRACT_FEW 256        /* packed elements that are unpacked at a time */
#define UL_CONTRACT_LINE_BYTES 128 /* UL_LINE_BYTES of runtime/lib/ul_contract_int.h */
/* contract_items.c */

/* Sets the items for that many threads; leaves 1 where there is nothing to share. */
void ul_contract_share(struct ul_contract_plan *plan, uint32_t shares);
/* The dimension of m or n by which plain loops are shared. */
uint32_t ul_contract_shared_dim(const struct ul_contraction *contraction);
#define UL_CONTRACT_ROWS 8          /* UL_BLOCK_ROWS of runtime/lib/ul_contract.h */
#define UL_CONTRACT_BLOCK_BYTES 192 /* UL_BLOCK_BYTES */

/* contract_text.c: one line, and its parts. */

struct ul_contract_out {
    const struct ul_contract_printer *printer;
    const struct ul_contract_plan *plan;
    struct ul_text *text;
    const char *coordinate; /* C type of coordinates */
    const char *unused;     /* attribute of variables that may not be used; "": there is none */
    bool is_narrow;         /* operands are read in the form to which the plan packs them */
    /* By variable: it is declared with 32 bits, which suffice for all that is computed from it;
     * NULL: all have 64. */
    const bool *is_short;
};
void ul_contract_line(const struct ul_contract_out *out, uint32_t indent, const char *format, ...)
    UL_PRINTF(3, 4);
void ul_contract_indent(const struct ul_contract_out *out, uint32_t indent);
/* " + 12 * name0 + name1 ..." for dims whose stride is not 0; names are `prefix` + index. */
void ul_contract_strides(const struct ul_contract_out *out, const struct ul_affine *affine,
                         const struct ul_contract_dims *dims, const char *prefix);
/* const int64_t t_<name> = base; */
void ul_contract_base(const struct ul_contract_out *out, uint32_t indent, const char *name,
                      ul_kx base);
/* Splits flat `value` into prefix0, prefix1 ...: declarations. */
void ul_contract_split(const struct ul_contract_out *out, uint32_t indent,
                       const struct ul_contract_dims *dims, const char *prefix, const char *value);
/* int64_t name<position> = value; */
void ul_contract_coordinate(const struct ul_contract_out *out, uint32_t indent, const char *name,
                            uint32_t position, const char *value);
/* Steps prefix0, prefix1 ... by one, the last fastest; the last is skipped when `skip_last`. */
void ul_contract_step(const struct ul_contract_out *out, uint32_t indent,
                      const struct ul_contract_dims *dims, const char *prefix, bool skip_last);
/* Declares the kernel's variables of `dims` that `uses` mentions: the carriers from prefix0 ...,
 * the last one from `last` when that is not NULL, other dimensions of the class as 0. */
void ul_contract_declare(const struct ul_contract_out *out, uint32_t indent,
                         const struct ul_contract_uses *uses, const struct ul_contract_dims *dims,
                         uint32_t first, uint32_t count, const char *prefix, const char *last);
/* The C type as which elements of the operand are read. */
const char *ul_contract_type_of(const struct ul_contract_out *out,
                                const struct ul_operand *operand);
/* The value of an operand at `index` as an expression of that type; may print a declaration of the
 * loaded variable before it. */
void ul_contract_value(const struct ul_contract_out *out, uint32_t indent,
                       const struct ul_operand *operand, const char *index, const char *target);
/* The same where the C expression `loaded` is the stored element. */
void ul_contract_value_of(const struct ul_contract_out *out, uint32_t indent,
                          const struct ul_operand *operand, const char *loaded, const char *target);
/* The epilogue over rows t_m + [0, t_rows) and columns t_n + [0, t_cols) of the sums at
 * `sums`[row * pitch + column]. */
void ul_contract_epilogue(const struct ul_contract_out *out, uint32_t indent, const char *sums,
                          int64_t pitch);

/* contract_pack.c: reading the operands. Names in the text: coordinates of columns t_s (of the
 * first one) and t_c, of rows t_q, of k t_k, of the epilogue's columns t_o; bases t_a and t_b, of
 * bounds t_ab and t_bb; flat positions t_m, t_n, t_k with t_rows and t_cols. */

enum ul_contract_action {
    UL_CONTRACT_PACK,      /* panel[k - t_kb][column - t_n] = b; narrow: panel[group][column][k] */
    UL_CONTRACT_ACCUMULATE /* sums[column - t_n] += t_from[(k - t_kb) * t_a_k] * b */
};
/* Visits b for k in [t_kb, t_ke) and columns t_n + [0, t_cols). */
void ul_contract_columns(const struct ul_contract_out *out, uint32_t indent,
                         enum ul_contract_action action);
/* Coordinates prefix0, prefix1 ... of the contraction's dimensions [first, first + count). */
struct ul_contract_place {
    const struct ul_contract_dims *dims;
    uint32_t first, count;
    const char *prefix;
};
/* For operand `name`, a or b, at these coordinates: t_e<i>, where its bounds must be within their
 * extents, and its index t_at. */
void ul_contract_position(const struct ul_contract_out *out, uint32_t indent, char name,
                          const struct ul_contract_place *places, uint32_t count);
/* if (every bound holds) { */
void ul_contract_if_inside(const struct ul_contract_out *out, uint32_t indent,
                           const struct ul_operand *operand);
/* Stores the value of operand `name`, a or b, at these coordinates in `target`, with its bounds
 * checked; declares the kernel's variables that it needs. */
void ul_contract_element(const struct ul_contract_out *out, uint32_t indent, char name,
                         const struct ul_contract_uses *uses,
                         const struct ul_contract_place *places, uint32_t count,
                         const char *target);
/* Elements from one row of t_as to the next. */
int64_t ul_contract_a_pitch(const struct ul_contract_plan *plan);
/* The text of `outside`. */
void ul_contract_outside(const struct ul_contract_out *out, const struct ul_operand *operand);
/* Copies rows t_m + [0, t_rows) of a, k in [t_kb, t_ke), to t_as[row * pitch + k - t_kb]; narrow
 * ones are filled with zeros to whole groups. */
void ul_contract_pack_a(const struct ul_contract_out *out, uint32_t indent);

/* contract_window.c */

#define UL_CONTRACT_TAPS 64 /* the most k of a window */
/* Sets the sizes of the window schedule; false where the contraction has no such form. */
bool ul_contract_window_size(struct ul_contract_plan *plan);

#endif
