/* SPDX-License-Identifier: Apache-2.0 */
/* Terms (ir/term.h) as nodes: what an operator comes to, or what a pattern becomes.
 *
 * Numbers are computed when a term is evaluated. A number beside a value is a constant of that
 * value's type, unless a type stands behind it. A list is a vector of i64, or, where one of its
 * numbers is a float, of floats of the type of what is beside it. What is absent is left out of a
 * sum, a product, and the operands of an operator; an attribute whose value is absent is not set.
 * A choice builds only what it chooses. "*" is the node that the row is for: the builder's name as
 * it is, and its attributes but those that the row asks for; "**" is all of them. Operands are
 * built from left to right.
 *
 * Invariants: a defect in a term is one of the program; what it is evaluated with is a file's, and
 * `wrong` says what is wrong with that: nothing is built from there on.
 * Ownership: nodes and constants are the graph's, lists and texts those of `scratch`. */
#ifndef UL_IR_ROW_H
#define UL_IR_ROW_H

#include "ir/build.h"
#include "ir/term.h"

enum { UL_ROW_NAMES = 96, UL_ROW_OPERANDS = 16, UL_ROW_SETS = 16 };
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
    ul_value_id like;     /* has the type of a number that stands beside none; UL_NONE: f32 */
    uint32_t all_count;
    const struct ul_attr *all_attrs;
    uint32_t own_count; /* what is left of the attributes of the node that the row is for */
    const struct ul_attr *own_attrs;
    const char *wrong;   /* why there is no result, or NULL */
    bool is_invalid;     /* the file is, rather than that it asks for too much */
    ul_value_id unknown; /* whose shape is wanted and not known, where that is what is wrong */
    uint32_t name_count;
    struct ul_row_span {
        const char *text;
        uint32_t length;
        struct ul_row_item item;
    } names[UL_ROW_NAMES];
    uint32_t outputs; /* of the next node */
};

/* What a node is made of, before it is there. */
struct ul_row_call {
    char op[64];
    bool is_own, is_all; /* "*", "**" */
    uint32_t count, set_count;
    struct ul_row_item items[UL_ROW_OPERANDS];
    struct ul_row_span sets[UL_ROW_SETS]; /* attributes, in their order */
};

struct ul_row_item ul_row_value(ul_value_id value); /* or UL_NONE */
struct ul_row_item ul_row_int(int64_t number);
struct ul_row_item ul_row_float(double number);
struct ul_row_item ul_row_text(const char *text);
struct ul_row_item ul_row_ints(uint32_t count, const int64_t *ints);
struct ul_row_item ul_row_floats(uint32_t count, const double *floats);

void ul_row_bind(struct ul_row_builder *row, const char *name, uint32_t length,
                 struct ul_row_item item);
/* Notes what is wrong, unless something is already. */
void ul_row_refuse(struct ul_row_builder *row, bool is_invalid, const char *reason);
struct ul_row_item ul_row_evaluate(struct ul_row_builder *row, const struct ul_term *term);
/* Runs the statements of a body; returns its first result, or NULL. */
const struct ul_term *ul_row_run_statements(struct ul_row_builder *row, const struct ul_term *body);
/* Runs a body. Result i goes to results[i] where bit i of `wanted` is set; those that there are
 * not, or that are wrong, are UL_NONE. */
void ul_row_run(struct ul_row_builder *row, const struct ul_term *body, uint32_t wanted,
                uint32_t count, ul_value_id *results);
/* The operator of that name, ours or of ai.onnx. */
ul_op_id ul_row_find_op(const char *name);
/* A node in three steps: evaluates what a call is made of; makes the operands, whose number
 * without absent ones at the end it returns; sets the attributes of the node. */
void ul_row_read_call(struct ul_row_builder *row, const struct ul_term *term,
                      struct ul_row_call *call);
uint32_t ul_row_make_operands(struct ul_row_builder *row, const struct ul_row_call *call,
                              ul_value_id *values);
void ul_row_apply_sets(struct ul_row_builder *row, ul_node_id node, const struct ul_row_call *call);

#endif
