/* SPDX-License-Identifier: Apache-2.0 */
/* The graph: typed values, nodes in execution order, nested blocks; building, editing and verifying
 * it.
 *
 * Invariants (ul_graph_verify): handles are u32 indexes into the graph's arrays; every value has
 * one producer (an input, a weight, a node output or a block argument); a block's nodes are in
 * execution order, so a node comes after the producers of its inputs; after shape inference every
 * type is known and static. Ownership: everything lives in graph->arena; tensor bytes may be
 * borrowed from a mapped file. Units: dims and strides count elements, offsets and sizes count
 * bytes. Failure: hostile input was checked in frontend/; here a broken invariant is a defect, but
 * text IR and shape inference report through ul_diag. */
#ifndef UL_IR_GRAPH_H
#define UL_IR_GRAPH_H

#include "ir/tensor.h"

typedef uint32_t ul_value_id;
typedef uint32_t ul_node_id;
typedef uint32_t ul_block_id;
#define UL_NONE UINT32_MAX /* no value, node, block or group */

enum ul_value_kind {
    UL_VALUE_INPUT,    /* of the model */
    UL_VALUE_WEIGHT,   /* constant; has `tensor` */
    UL_VALUE_NODE,     /* output of a node */
    UL_VALUE_ARGUMENT, /* of a nested block: loop counter, carried value, scan slice */
    UL_VALUE_DEAD      /* left behind by a pass; nothing refers to it */
};

enum ul_value_flag {
    UL_VALUE_PERSISTENT = 1u << 0,    /* same place in every run: state, trainable weight */
    UL_VALUE_CHANNELS_LAST = 1u << 1, /* its own bytes have dimension 1 innermost */
    UL_VALUE_TRAINED = 1u << 2,   /* a weight that training changes; as loaded: an initializer */
    UL_VALUE_OPTIMIZER = 1u << 3, /* a weight that is an optimizer's state */
    UL_VALUE_BACKWARD = 1u << 4,  /* made by the backward pass */
    UL_VALUE_GRADIENT = 1u << 5,  /* likewise: an update of a parameter reads it */
    UL_VALUE_ROUNDED = 1u << 6, /* rounded to its storage even where fusing leaves it no storage */
    UL_VALUE_INDEPENDENT = 1u << 7, /* gradients by it are still to be written out: it is no
                                       constant */
    UL_VALUE_GUARDED = 1u << 8,     /* a state of the model that a skipped step leaves alone */
    UL_VALUE_SQUARES = 1u << 9,     /* a state that is never below 0: a variance, a mean square */
    UL_VALUE_PARAMETER = 1u << 10,  /* a weight that the model's file says is a parameter */
    UL_VALUE_BUFFER = 1u << 11,     /* a weight that the file says is no parameter */
    UL_VALUE_WIDE = 1u << 12        /* a sum of many parts, which keeps all bits of f32 in memory */
};

/* Why an f32 that owns its bytes is not stored in the 16 bits that --precision asks for. */
enum ul_kept {
    UL_KEPT_NOT,
    UL_KEPT_EDGE,     /* an input or output of the model */
    UL_KEPT_STATE,    /* it stays from run to run */
    UL_KEPT_GRADIENT, /* an update reads it */
    UL_KEPT_RANGE,    /* its numbers, or what they are computed with, would be infinite */
    UL_KEPT_EXACT,    /* an operator's row asks for it, or it is computed only from such values */
    UL_KEPT_DECIDES,  /* integers or booleans are made from it */
    UL_KEPT_VECTOR,   /* a constant that enters every element, as a bias does */
    UL_KEPT_ELEMENT,  /* it has one element */
    UL_KEPT_SUMS,     /* what is added up in memory */
    UL_KEPT_BLOCK,    /* at the edge of a nested block */
    UL_KEPT_DECLARED, /* the model of 16 bits has it in f32 */
    UL_KEPT_COUNT
};

/* A view: where a value's elements are. A value that owns its bytes has itself as base, offset 0
 * and dense strides: row-major, or with dimension 1 innermost (UL_VALUE_CHANNELS_LAST). Strides
 * count elements and may be 0 (Expand) or negative (Slice with a negative
 * step). */
struct ul_view {
    ul_value_id base;
    int64_t offset_bytes;
    int64_t strides[UL_LIMIT_RANK];
};

struct ul_value {
    const char *name; /* untrusted bytes; never NULL */
    enum ul_value_kind kind;
    uint32_t flags;
    struct ul_type type;
    enum ul_dtype storage;    /* of its elements in memory: UL_F16 or UL_BF16 for an f32, the
                                 same as its base's; UL_DTYPE_NONE: as type.dtype */
    enum ul_dtype declared;   /* for an f32 in a model of 16 bits, the type that the model gives
                                 it: UL_F16, UL_BF16 or UL_F32; UL_DTYPE_NONE: none */
    enum ul_kept kept;        /* why it is that, where 16 bits are asked for; that of its base */
    ul_node_id producer;      /* the node of an output, or the owner of a block argument */
    uint32_t producer_output; /* which output or argument */
    double edge_scale;        /* for integers at the model's edge that were floats in its file, */
    int64_t edge_zero;        /* (x - zero) * scale, where floats are not wanted; 0: they were
                                 not */
    ul_value_id donor;        /* an output that overwrites this input or weight, else UL_NONE */
    ul_block_id link_root; /* an input that is, where it lies, what a run of this root has left */
    uint32_t link_output;  /* as this output of it; UL_NONE: it is not */
    const struct ul_tensor *tensor;
    struct ul_view view; /* valid from the views pass on; view.base == UL_NONE before */
};

enum ul_attr_kind {
    UL_ATTR_INT,
    UL_ATTR_FLOAT,
    UL_ATTR_STRING,
    UL_ATTR_INTS,
    UL_ATTR_FLOATS,
    UL_ATTR_STRINGS,
    UL_ATTR_TENSOR
};

struct ul_attr {
    const char *name;
    enum ul_attr_kind kind;
    int64_t i;
    double f;
    const char *s;
    uint32_t count; /* of ints, floats or strings */
    const int64_t *ints;
    const double *floats;
    const char *const *strings;
    const struct ul_tensor *tensor;
};

/* An operator: one of enum ul_op (op_names.h), which only what names operators includes. */
typedef uint32_t ul_op_id;
enum { UL_OP_NONE = 0 }; /* a removed node */

struct ul_node {
    ul_op_id op;
    const char *name;   /* untrusted; never NULL, may be empty */
    const char *source; /* metadata or doc string with the author's source line, or NULL */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t attr_count;
    uint32_t block_count;
    ul_value_id *inputs; /* UL_NONE where an optional input is absent */
    ul_value_id *outputs;
    struct ul_attr *attrs;
    ul_block_id *blocks; /* then/else of If, body of Loop and Scan */
    ul_block_id parent;  /* the block that it is in */
    uint32_t group;      /* nodes of one fused kernel share it; UL_NONE: not grouped */
};

struct ul_block {
    const char *name; /* of a root; NULL for any other block */
    ul_node_id owner; /* UL_NONE for a root */
    uint32_t node_count, node_capacity;
    ul_node_id *nodes; /* in execution order */
    uint32_t input_count, input_capacity;
    ul_value_id *inputs;
    uint32_t output_count, output_capacity;
    ul_value_id *outputs;
};

struct ul_graph {
    struct ul_arena *arena;
    const char *name;
    uint32_t value_count, value_capacity;
    struct ul_value *values;
    uint32_t node_count, node_capacity;
    struct ul_node *nodes;
    uint32_t block_count, block_capacity;
    struct ul_block *blocks;
    /* The first blocks are the roots: what can be run by itself, each with inputs and outputs of
     * its own. Weights and state belong to the graph, so that roots share them. */
    uint32_t root_count;
    bool rounds_products; /* the target has no fused multiply-add: a product is rounded before it is
                             added */
    /* In a program for a range of sizes, the graph for the largest ones: what only bounds memory is
     * chosen by it, so that kernels of all sizes are alike. NULL: sizes are fixed. */
    const struct ul_graph *largest;
    bool check_text; /* texts made from the graph must survive a round trip: for tests */
};

/* graph.c: building and editing. */

/* A graph of one empty root. */
void ul_graph_init(struct ul_graph *graph, struct ul_arena *arena, const char *name);
/* Copies the graph with lists of its own; names, attributes and tensors are shared. */
void ul_graph_copy(struct ul_graph *graph, struct ul_arena *arena, const struct ul_graph *from);
/* join.c: the roots of all these graphs in one, which borrows their names, attributes and tensors.
 * Root i, from a graph of one root, is called names[i]; so begin the names of its nodes and values,
 * "NAME/...", but for weights. Where one of the graphs is of a model of 16 bits, the values of
 * those that are not are declared to be f32. */
void ul_graph_join(struct ul_graph *graph, struct ul_arena *arena,
                   const struct ul_graph *const *from, const char *const *names, uint32_t count);
/* Has an input of a root be an output of another, of the same type, where that lies. UL_USAGE:
 * there are no such roots, input or output, or they are of two types. */
enum ul_status ul_graph_link(struct ul_graph *graph, ul_block_id root, const char *input,
                             ul_block_id from, const char *output,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* The output that an input is linked to. */
ul_value_id ul_graph_linked(const struct ul_graph *graph, ul_value_id input);
/* Per value, whether runs of one root leave its bytes to runs of another: linked inputs and
 * outputs, and what overwrites them or is overwritten by them. NULL: no input is linked. */
bool *ul_graph_find_linked(const struct ul_graph *graph, struct ul_arena *arena);
/* The 16 bits that some value is declared to have, or UL_DTYPE_NONE. */
enum ul_dtype ul_graph_declared(const struct ul_graph *graph);
/* The name that a value of a root has in its own model. */
const char *ul_root_plain_name(const struct ul_graph *graph, ul_block_id root, const char *name);
/* Whether a block is a root. */
bool ul_graph_is_root(const struct ul_graph *graph, ul_block_id block);
/* Whether a block is a root, or a node has it: passes leave others behind. */
bool ul_graph_has_block(const struct ul_graph *graph, ul_block_id block);
/* The root of a graph that has only one. */
struct ul_block *ul_graph_only_root(const struct ul_graph *graph);
/* The root that a node stands in, however deep. */
ul_block_id ul_graph_root_of(const struct ul_graph *graph, ul_node_id node);
ul_value_id ul_graph_add_value(struct ul_graph *graph, const char *name, enum ul_value_kind kind,
                               const struct ul_type *type);
ul_value_id ul_graph_add_weight(struct ul_graph *graph, const char *name,
                                const struct ul_tensor *tensor);
/* Makes a node at the end of `block` with room for the counts given; inputs start as UL_NONE and
 * outputs as fresh values of unknown type named `name` or `name:k`. */
ul_node_id ul_graph_add_node(struct ul_graph *graph, ul_block_id block, ul_op_id op,
                             const char *name, uint32_t input_count, uint32_t output_count);
/* The same, placed before position `at` of the block's list. */
ul_node_id ul_graph_insert_node(struct ul_graph *graph, ul_block_id block, uint32_t at, ul_op_id op,
                                const char *name, uint32_t input_count, uint32_t output_count);
/* Adds one more output, after the others. */
ul_value_id ul_graph_add_output(struct ul_graph *graph, ul_node_id node);
/* Adds one more input, after the others. */
void ul_graph_add_input(struct ul_graph *graph, ul_node_id node, ul_value_id value);
ul_block_id ul_graph_add_block(struct ul_graph *graph, ul_node_id owner);
void ul_block_add_input(struct ul_graph *graph, ul_block_id block, ul_value_id value);
void ul_block_add_output(struct ul_graph *graph, ul_block_id block, ul_value_id value);
void ul_node_set_attr(struct ul_graph *graph, ul_node_id node, const struct ul_attr *attr);
void ul_node_set_int(struct ul_graph *graph, ul_node_id node, const char *name, int64_t value);
void ul_node_set_float(struct ul_graph *graph, ul_node_id node, const char *name, double value);
void ul_node_set_string(struct ul_graph *graph, ul_node_id node, const char *name,
                        const char *value);
void ul_node_set_ints(struct ul_graph *graph, ul_node_id node, const char *name,
                      const int64_t *values, uint32_t count);
void ul_node_remove_attr(struct ul_graph *graph, ul_node_id node, const char *name);
/* Uses of every value: node inputs of all blocks plus block outputs; an array of value_count. */
uint32_t *ul_graph_count_uses(const struct ul_graph *graph, struct ul_arena *arena);
bool ul_graph_is_output(const struct ul_graph *graph, ul_value_id value);
/* The model's output of that name overwrites the input of that name, which is state from now on.
 * UL_USAGE: there is no such pair, or one of the two is in another pair already. Whether types
 * agree is known once they are inferred (passes/memory/donate.c). */
enum ul_status ul_graph_donate(struct ul_graph *graph, const char *output, const char *input,
                               struct ul_diag *diag) UL_MUST_CHECK;
/* A constant that may be computed with; NULL for a state, whose bytes change. */
const struct ul_tensor *ul_graph_get_constant(const struct ul_graph *graph, ul_value_id value);
/* True, with the number, when all elements of a constant of any shape are one number. */
bool ul_graph_get_number(const struct ul_graph *graph, ul_value_id value, double *number);

/* The node that makes the value, or NULL. */
struct ul_node *ul_graph_maker(const struct ul_graph *graph, ul_value_id value);
/* The kernel that a node belongs to, as a number below twice node_count: nodes of one group have
 * the same. */
uint32_t ul_node_kernel(const struct ul_graph *graph, ul_node_id node);
/* Attribute look-up; the default where the node has none. */
const struct ul_attr *ul_node_find_attr(const struct ul_node *node, const char *name);
int64_t ul_node_get_int(const struct ul_node *node, const char *name, int64_t otherwise);
double ul_node_get_float(const struct ul_node *node, const char *name, double otherwise);
const char *ul_node_get_string(const struct ul_node *node, const char *name, const char *otherwise);
/* The ints of an attribute and their count; NULL and 0 where the node has none. */
const int64_t *ul_node_get_ints(const struct ul_node *node, const char *name, uint32_t *count);
/* "node 17 \"conv1\" (Conv)" for messages. */
const char *ul_node_describe(const struct ul_graph *graph, ul_node_id node, struct ul_arena *arena);

/* verify.c: the invariants above; text names the node. A failure after a pass is a defect. */
enum ul_status ul_graph_verify(const struct ul_graph *graph, struct ul_diag *diag) UL_MUST_CHECK;

#endif
