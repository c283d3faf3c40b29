/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel IR, second level of ir/: what one fused group of nodes computes, as loops over typed
 * scalars. One lowering; printed as C and as CUDA, and interpreted for constant folding.
 *
 * A kernel is a list of statements over parameters (buffers), scratch arrays, local variables and
 * expressions. Loops say whether their iterations are independent (PARALLEL), and carried state is
 * a mutable local. A contraction (sum over k of a[m,k] * b[k,n], then an epilogue for each m, n)
 * is a statement of its own, so that a target can tile it. How a kernel is tiled, vectorised or
 * mapped to threads is the target's schedule, not part of this IR.
 *
 * Invariants: expressions are hash-consed (equal means same id) and acyclic; a variable is used
 * only inside the statement list that declares it; indexes are int64 elements into a buffer and
 * in bounds (data-dependent ones go through UL_KX_INDEX, which clamps and reports).
 * Expression types: bool, the integers, f32 and f64. Loads of 16- and 8-bit floats give f32 and
 * stores round; arithmetic on integers narrower than 32 bits is done in i32 (u32 for unsigned)
 * and narrowed by UL_KX_CAST, which wraps.
 * Ownership: everything lives in kernel->arena.
 */
#ifndef UL_IR_KERNEL_H
#define UL_IR_KERNEL_H

#include "ir/geometry.h"
#include "ir/graph.h"

/* Ranges of i64 expressions and variables end here: sums of two cannot overflow. */
#define UL_KX_RANGE_MAX ((int64_t)1 << 61)

typedef uint32_t ul_kx; /* an expression */
typedef uint32_t ul_ks; /* a statement */

enum ul_kx_op {
    UL_KX_INT,   /* imm_int, typed */
    UL_KX_FLOAT, /* imm_float, typed */
    UL_KX_VAR,   /* `var` */
    UL_KX_LOAD,  /* buffer[a] */
    /* one operand */
    UL_KX_NEG,
    UL_KX_NOT, /* logical */
    UL_KX_BITNOT,
    UL_KX_ABS,
    UL_KX_SQRT,
    UL_KX_EXP,
    UL_KX_EXPM1,
    UL_KX_LOG,
    UL_KX_LOG1P,
    UL_KX_SIN,
    UL_KX_COS,
    UL_KX_TAN,
    UL_KX_ASIN,
    UL_KX_ACOS,
    UL_KX_ATAN,
    UL_KX_SINH,
    UL_KX_COSH,
    UL_KX_TANH,
    UL_KX_ASINH,
    UL_KX_ACOSH,
    UL_KX_ATANH,
    UL_KX_ERF,
    UL_KX_FLOOR,
    UL_KX_CEIL,
    UL_KX_TRUNC,
    UL_KX_ROUND, /* half to even */
    UL_KX_ISNAN,
    UL_KX_ISINF,
    UL_KX_BITCAST,  /* same-size reinterpretation, e.g. f32 as u32 */
    UL_KX_CAST,     /* to dtype; float to integer saturates, NaN gives 0; integers wrap; anything to
                       bool is != 0 */
    UL_KX_ROUND_TO, /* f32 rounded to the storage dtype imm_int (f16, bf16, f8...) and back;
                       bit 8 of imm_int: saturate to the largest finite value. To its own type (f64
                       too): the value as it is, for a product that no sum may fuse */
    /* two operands of one type */
    UL_KX_ADD,
    UL_KX_SUB,
    UL_KX_MUL,
    UL_KX_DIV,  /* integers truncate; by zero gives 0, never a trap */
    UL_KX_MOD,  /* sign of the divisor (Python); by zero gives 0; floats too */
    UL_KX_FMOD, /* sign of the dividend (C); by zero gives 0 for integers */
    UL_KX_MIN,  /* NaN wins */
    UL_KX_MAX,
    UL_KX_POW,
    UL_KX_ATAN2,
    UL_KX_AND, /* bitwise on integers, logical on bool */
    UL_KX_OR,
    UL_KX_XOR,
    /* Shifts by a number below 0, or not below the width, give 0; to the right they give -1 for
     * what is negative. */
    UL_KX_SHL,
    UL_KX_SHR,
    UL_KX_LT, /* comparisons give bool */
    UL_KX_LE,
    UL_KX_EQ,
    UL_KX_NE,
    UL_KX_INDEX,  /* a clamped into [0, imm_int); reports when it was outside */
    UL_KX_RANDOM, /* u32 from Philox4x32-10: counter a (u64), seed imm_int */
    /* three operands */
    UL_KX_SELECT, /* a (bool) ? b : c; both sides may be evaluated */
    UL_KX_FMA     /* a * b + c; rounded once where the processor can, else twice */
};

struct ul_kx_data {
    enum ul_kx_op op;
    enum ul_dtype dtype;
    uint32_t a, b, c; /* operands */
    uint32_t var;     /* UL_KX_VAR: variable; UL_KX_LOAD: buffer */
    int64_t imm_int;
    double imm_float;
    int64_t low, high; /* for an i64 expression its range, for simplifying; else the whole range */
};

struct ul_kernel_var {
    enum ul_dtype dtype;
    int64_t low, high; /* i64 loop variables: range */
    bool is_mutable;
};

enum ul_buffer_role {
    UL_BUFFER_INPUT,
    UL_BUFFER_OUTPUT,
    UL_BUFFER_SCRATCH, /* planned bytes of the step, contents lost after it */
    UL_BUFFER_LOCAL    /* a few elements, on the stack or in registers */
};

struct ul_buffer {
    enum ul_buffer_role role;
    enum ul_dtype dtype;
    uint64_t element_count; /* addressed: [0, element_count) after element_offset is added */
    ul_value_id value;      /* the base value of an input or output; else UL_NONE */
    ul_value_id view;       /* the value that is there */
    int64_t offset_bytes;   /* INPUT, OUTPUT: first element of this view in the base value;
                               part of the call, not of the kernel's text */
};
uint64_t ul_buffer_bytes(const struct ul_buffer *buffer);

enum ul_ks_kind {
    UL_KS_FOR,   /* for var in [0, count) step 1: body. count is an i64 expression */
    UL_KS_IF,    /* if (value) body else orelse */
    UL_KS_LET,   /* var = value, immutable from here to the end of the list */
    UL_KS_SET,   /* var = value, a mutable local declared by VAR */
    UL_KS_VAR,   /* declares mutable var with first value */
    UL_KS_STORE, /* buffer[index] = value */
    UL_KS_CONTRACT,
    UL_KS_BREAK /* leaves the innermost sequential FOR */
};

enum ul_for_flag {
    UL_FOR_PARALLEL = 1u << 0, /* iterations are independent */
    UL_FOR_REDUCE = 1u << 1,   /* sequential; carried locals may be combined in a fixed tree */
    UL_FOR_ATTEND = 1u << 2,   /* a round is also what attends[contraction] says */
    UL_FOR_LAUNCHED = 1u << 3, /* sequential; on a device, a round is worth a launch of its own */
    UL_FOR_ALONE = 1u << 4     /* iterations are independent, but not worth several threads */
};

struct ul_ks_data {
    enum ul_ks_kind kind;
    uint32_t flags;
    uint32_t var;
    uint32_t buffer;
    ul_kx value;        /* LET, SET, VAR, STORE: value; IF: condition; FOR: count */
    ul_kx index;        /* STORE */
    ul_ks body, orelse; /* first statement of a list, or UL_NONE */
    ul_ks next;
    uint32_t contraction; /* CONTRACT; for a FOR that is marked UL_FOR_ATTEND its attend */
};

/* An affine function of the contraction's variables: base + sum of stride[v] * v; variables are
 * numbered m first, then n, then k. `base` may use variables of enclosing loops. */
#define UL_CONTRACT_DIMS 12
struct ul_affine {
    ul_kx base;
    int64_t strides[UL_CONTRACT_DIMS];
};

/* An operand: buffer[at], as long as every bound holds (0 <= bound.at < extent, and bound.at is
 * a multiple of `multiple` when that is above 1, the index then using bound.at / multiple
 * through the strides of `at`), else `outside`. `transform` is an expression over the variable
 * `loaded` (and the contraction's variables through LET-free expressions); UL_NONE: none. */
struct ul_operand_bound {
    struct ul_affine at;
    int64_t extent;
};
struct ul_operand {
    uint32_t buffer;
    enum ul_dtype packed; /* UL_DTYPE_NONE: elements as the buffer has them; else its bytes hold
                             integers of this type, of 2 or 4 bits, the first in the lowest bits
                             of a byte, and `at` counts these */
    struct ul_affine at;
    uint32_t bound_count;
    struct ul_operand_bound bounds[4];
    double outside;  /* in the accumulator's type */
    uint32_t loaded; /* variable, of the elements' compute type */
    ul_kx transform; /* of the accumulator's dtype */
};

/* for m, n: acc = sum over k, in order, of a(m,k) * b(k,n); then the epilogue with `acc` and the
 * variables of m and n bound. The sum may be formed in a fixed tree chosen by the schedule. */
struct ul_contraction {
    uint32_t m_count, n_count, k_count; /* dims in each list; m_count + n_count + k_count <= 12 */
    uint32_t vars[UL_CONTRACT_DIMS];
    int64_t extents[UL_CONTRACT_DIMS];
    enum ul_dtype acc_dtype;
    uint32_t acc; /* variable */
    struct ul_operand a, b;
    ul_ks epilogue;
    const struct ul_attend *attend; /* NULL; or what takes the place of the sums, in a kernel
                                       that a target made for its printer: a and b then say
                                       nothing */
};

/* Attention of one head, given once more for targets that have a form of their own for it: what the
 * body of a loop marked UL_FOR_ATTEND computes. For each query, with weight(key) = exp(score(query,
 * key) - the largest score of the query):
 *
 *     result(element) = sum over keys of weight * value(key, element) / sum over keys of weight
 *
 * then the epilogue for each element. Keys come in parts, one after the other. The statements of
 * `before` and `epilogue` belong to no list of the kernel.
 *
 * Three other kinds make the gradient. They have one part, and a second product of each query and
 * key, scores[1], whose acc stands in `before` and `score` too:
 *
 *     STATISTICS    element 0 of the result is log(sum over keys of exp(score)), element 1 the
 *                   mean of the second products, weighted by exp(score)
 *     SUM           result(element) = sum over keys of score * value(key, element)
 *     EACH          result(key) = score; an element is a key, and there are no values
 *
 * A query that sees no key has statistics 0 and 0 where it gives zeros; where a NaN gives zeros,
 * such a query has infinity and 0. Only a SUM may be without the second product; with it, the
 * values are the keys of the first product. A SUM may have keys in the place of queries. With
 * `has_shares` it has a second result, values[1]: the sum over keys of share times the keys of the
 * second product.
 *
 * A RESULT with `has_norms` also gives element 0 of the statistics of a query; `norms` stores it.
 */
enum { UL_ATTEND_PARTS = 2 };
enum ul_attend_kind { UL_ATTEND_RESULT, UL_ATTEND_STATISTICS, UL_ATTEND_SUM, UL_ATTEND_EACH };

struct ul_attend {
    enum ul_attend_kind kind;
    uint32_t part_count;
    int64_t key_counts[UL_ATTEND_PARTS];
    int64_t queries, keys, size, value_size;
    /* In each part m is the query, n the key, k the element; a holds queries, b keys. In
     * `before` and `score`, the variables of the first part stand for all keys, and its acc for
     * the product. */
    struct ul_contraction scores[UL_ATTEND_PARTS];
    /* The same: m is the query, n the element, k the key; b holds values. The first one's
     * variables and acc stand in its epilogue. */
    struct ul_contraction values[UL_ATTEND_PARTS];
    ul_ks before;
    ul_kx score;
    /* Multiplies the weight of a query and a key after that was added to the sum of weights; in
     * STATISTICS, the second product. It uses no name of `before`. UL_NONE: 1. */
    ul_kx factor;
    ul_kx share;   /* where has_shares */
    int64_t reach; /* query q sees keys up to q + reach at most */
    enum ul_attention_empty empty;
    /* Set by a target that cuts keys: this is the part from split_var * split_keys on. Results come
     * undivided, and after them, as elements value_size and on, a query's largest score and the sum
     * of its weights. 0: all keys. */
    int64_t split_keys;
    uint32_t split_var;
    bool rounds_weights; /* to the type in which values are stored, which the model does not ask
                            for */
    bool has_norms;
    uint32_t norm_query, norm; /* variables that `norms` uses for a query and its norm */
    ul_ks norms;
    /* Only the kinds that make the gradient use these. */
    bool has_slopes;    /* scores[1] is there */
    bool has_shares;    /* values[1] is there */
    bool is_turned;     /* rows are keys: queries from r - reach on see row r */
    uint32_t round_var; /* sums go on over so many rounds of this variable */
    int64_t rounds;     /* 0: there is none */
};

/* How many scores it has, and how many values. */
static inline uint32_t ul_attend_scores(const struct ul_attend *attend)
{
    return attend->part_count + (attend->has_slopes ? 1 : 0);
}

static inline uint32_t ul_attend_values(const struct ul_attend *attend)
{
    bool has_values = attend->kind == UL_ATTEND_RESULT || attend->kind == UL_ATTEND_SUM;
    return has_values ? attend->part_count + (attend->has_shares ? 1 : 0) : 0;
}

/* What is known of an expression while shared parts are named; stale when the epoch is another
 * one. */
struct ul_kx_mark {
    uint32_t epoch;
    uint32_t uses;
    ul_kx as; /* what stands for it now */
};

struct ul_kernel {
    struct ul_arena *arena;
    uint32_t buffer_count, buffer_capacity;
    struct ul_buffer *buffers;
    uint32_t var_count, var_capacity;
    struct ul_kernel_var *vars;
    uint32_t expr_count, expr_capacity;
    struct ul_kx_data *exprs;
    uint32_t *expr_table; /* hash table of the consing */
    uint32_t expr_table_size;
    struct ul_kx_mark *marks; /* scratch of ul_ks_let */
    uint32_t mark_capacity, mark_epoch;
    uint32_t stmt_count, stmt_capacity;
    struct ul_ks_data *stmts;
    uint32_t contraction_count, contraction_capacity;
    struct ul_contraction *contractions;
    uint32_t attend_count, attend_capacity;
    struct ul_attend *attends;
    ul_ks first;          /* the kernel's statement list */
    bool rounds_products; /* copied from the graph: for the interpreter */
    /* builder: the open lists, innermost last */
    uint32_t open_count;
    ul_ks open_owner[64];
    ul_ks open_last[64];
};

#endif
