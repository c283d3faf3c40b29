/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes as text: the other side of a row, what an operator or a pattern comes to.
 *
 *      x * Sigmoid(alpha * x)
 *      q, s, z = DynamicQuantizeLinear(x); Cast(MatMulInteger(q, w, z)) {to=f32} * (s * scale)
 *
 *   body      = { statement ";" } [ result ] { "," [ result ] }
 *   statement = name { "," name } "=" either           names what it gives; several outputs
 *             | ( "invalid" | "problem" ) TEXT [ "if" either ]      refuses, for that reason
 *   either    = any [ "?" either ":" either ]          only what is chosen is built
 *   any       = all { "||" all }     all = compared { "&&" compared }
 *   compared  = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum ]
 *   sum       = product { ( "+" | "-" ) product }      Add, Sub
 *   product   = unary { ( "*" | "/" | "%" ) unary }    Mul, Div
 *   unary     = ( "-" | "!" ) unary | part { "." which } [ ":" type ]
 *   part      = NUMBER | TEXT | name | type | "none" | "(" either ")" | list
 *             | Op "(" [ either { "," either } ] ")" [ "{" set { "," set } "}" ]
 *   which     = INTEGER | "rank" | "dims" | "type" | "half" | "float"     of a value
 *             | INTEGER | "count"                                           of a list
 *   list      = "[" [ run { "," run } ] "]"      run = either [ ".." either ]
 *   set       = "*" | "**" | name "=" either     none: it is not set
 *
 * Numbers are computed when the text is read. Beside a value one is a constant of that value's
 * type, unless a type stands behind it; a list is a vector of i64. What is absent is left out of a
 * sum, a product, and the operands of an operator. "*" is the node that the row is for: the
 * builder's name as it is, and its attributes but those that the row asks for; "**" is all of them.
 * Operands are built from left to right.
 *
 * Invariants: the text is ours, and a defect in it is one of the program; what it is read with is a
 * file's, and `wrong` says what is wrong with that: nothing is built from there on.
 * Ownership: nodes and constants are the graph's, lists and texts those of `scratch`. */
#ifndef UL_IR_ROW_H
#define UL_IR_ROW_H

#include "ir/build.h"

enum { UL_ROW_NAMES = 96 };
enum ul_row_kind {
    UL_ROW_VALUE,
    UL_ROW_INT,
    UL_ROW_FLOAT,
    UL_ROW_TEXT,
    UL_ROW_LIST,  /* of integers */
    UL_ROW_FLOATS /* a vector */
};

/* What a name, or a part of a row, stands for. */
struct ul_row_item {
    enum ul_row_kind kind;
    enum ul_dtype dtype; /* of a number as a constant; UL_DTYPE_NONE: that of what is beside it */
    ul_value_id value;   /* UL_NONE: absent */
    int64_t i;
    double f;       /* of an integer too */
    uint32_t count; /* of letters, of integers */
    const char *text;
    const int64_t *ints;
    const double *floats;
};

struct ul_row_name {
    const char *name;
    struct ul_row_item item;
};

struct ul_row_builder {
    struct ul_build *build; /* with scratch */
    struct ul_type (*type_of)(void *context, ul_value_id value);
    void *context;
    /* An operator that is none of ours, as *made; false: there is none of that name. NULL: none is.
     */
    bool (*step)(struct ul_row_builder *row, const char *name, const struct ul_row_item *operands,
                 uint32_t count, struct ul_row_item *made);
    const char *constant; /* what constants are called */
    enum ul_dtype dtype;  /* of a number that stands beside none; UL_DTYPE_NONE: f32 */
    uint32_t all_count;
    const struct ul_attr *all_attrs;
    uint32_t own_count; /* what is left of the attributes of the node that the row is for */
    const struct ul_attr *own_attrs;
    const char *wrong;   /* why there is no result, or NULL */
    bool is_invalid;     /* the file is, rather than that it asks for too much */
    ul_value_id unknown; /* whose shape is wanted and not known, where that is what is wrong */
    /* What the reader keeps. */
    uint32_t name_count;
    struct ul_row_span {
        const char *text;
        uint32_t length;
        struct ul_row_item item;
    } names[UL_ROW_NAMES];
    const char *at;
    uint32_t skipped; /* alternatives around that are not chosen */
    uint32_t outputs; /* of the next node */
};

struct ul_row_item ul_row_value(ul_value_id value); /* or UL_NONE */
struct ul_row_item ul_row_int(int64_t number);
struct ul_row_item ul_row_float(double number);
struct ul_row_item ul_row_text(const char *text);
struct ul_row_item ul_row_ints(uint32_t count, const int64_t *ints);
struct ul_row_item ul_row_floats(uint32_t count, const double *floats);

void ul_row_bind(struct ul_row_builder *row, const char *name, uint32_t length,
                 struct ul_row_item item);
/* Whether `token` is next, which is then read. */
bool ul_row_take(struct ul_row_builder *row, const char *token);
/* The name that is next, of *length letters; NULL: none is. */
const char *ul_row_take_name(struct ul_row_builder *row, uint32_t *length);
struct ul_row_item ul_row_read(struct ul_row_builder *row);
/* Notes what is wrong, unless something is already. */
void ul_row_refuse(struct ul_row_builder *row, bool is_invalid, const char *reason);
/* Reads the body at row->at. Result i goes to results[i] where bit i of `wanted` is set; those that
 * there are not, or that are wrong, are UL_NONE. */
void ul_row_run_statements(struct ul_row_builder *row);
void ul_row_run(struct ul_row_builder *row, uint32_t wanted, uint32_t count, ul_value_id *results);

#endif
