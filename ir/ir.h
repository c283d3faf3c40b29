/* The graph: typed values, nodes in execution order, nested blocks; its operator table, text form
 * and verifier.
 *
 * Invariants (ul_graph_verify): handles are u32 indexes into the graph's arrays; every value has
 * one producer (an input, a weight, a node output or a block argument); a block's nodes stand in
 * execution order, so a node comes after the producers of its inputs; after shape inference every
 * type is known and static.
 * Ownership: everything lives in graph->arena; tensor bytes may be borrowed from a mapped file.
 * Units: dims and strides count elements, offsets and sizes count bytes.
 * Failure: hostile input was checked in frontend/; here a broken invariant is a defect, but text
 * IR and shape inference report through ul_diag.
 */
#ifndef UL_IR_H
#define UL_IR_H

#include "base/base.h"

typedef uint32_t ul_value_id;
typedef uint32_t ul_node_id;
typedef uint32_t ul_block_id;
#define UL_NONE UINT32_MAX /* no value, node, block or group */

/* Numbered as ONNX's TensorProto.DataType. Four-bit types take one byte an element here. */
enum ul_dtype {
    UL_DTYPE_NONE = 0,
    UL_F32 = 1,
    UL_U8 = 2,
    UL_I8 = 3,
    UL_U16 = 4,
    UL_I16 = 5,
    UL_I32 = 6,
    UL_I64 = 7,
    UL_STRING = 8, /* never computed with; named in messages */
    UL_BOOL = 9,
    UL_F16 = 10,
    UL_F64 = 11,
    UL_U32 = 12,
    UL_U64 = 13,
    UL_C64 = 14,
    UL_C128 = 15,
    UL_BF16 = 16,
    UL_F8E4M3FN = 17,
    UL_F8E4M3FNUZ = 18,
    UL_F8E5M2 = 19,
    UL_F8E5M2FNUZ = 20,
    UL_U4 = 21,
    UL_I4 = 22,
    UL_F4E2M1 = 23,
    UL_DTYPE_COUNT = 24
};

#define UL_RANK_UNKNOWN UINT32_MAX

struct ul_type {
    enum ul_dtype dtype;
    uint32_t rank; /* UL_RANK_UNKNOWN before inference */
    int64_t dims[UL_LIMIT_RANK];
};

/* A constant. `data` holds the dense little-endian elements, maybe unaligned (read it through
 * memcpy); NULL means that every element equals `splat`, of one element's size. */
struct ul_tensor {
    struct ul_type type;
    const unsigned char *data;
    unsigned char splat[16];
};

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
    UL_VALUE_TOO_LARGE = 1u << 2,     /* a weight with numbers that the storage asked for lacks */
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
    enum ul_dtype storage;    /* of its elements in memory: UL_F16 or UL_BF16 of an f32, the same as
                                 its base's; UL_DTYPE_NONE: as type.dtype */
    ul_node_id producer;      /* of a node output, or the owner of a block argument */
    uint32_t producer_output; /* which output or argument */
    ul_value_id donor;        /* an output that overwrites this input, else UL_NONE */
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

/* The operators: one row each in ir/ops/<family>.def. */
enum ul_op {
    UL_OP_NONE = 0, /* a removed node */
#define UL_OP(name, ...) UL_OP_##name,
#include "ir/ops/all.def"
#undef UL_OP
    UL_OP_COUNT
};

struct ul_node {
    enum ul_op op;
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
    ul_block_id parent;  /* the block that it stands in */
    uint32_t group;      /* nodes of one fused kernel share it; UL_NONE: not grouped */
};

struct ul_block {
    ul_node_id owner; /* UL_NONE for the main block */
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
    struct ul_block *blocks; /* 0 is the main block; its inputs and outputs are the model's */
};

/* dtype.c */

struct ul_dtype_info {
    const char *name; /* "f32" */
    uint32_t size_bytes;
    bool is_float, is_signed, is_integer;
};
const struct ul_dtype_info *ul_dtype_get(enum ul_dtype dtype);
/* The largest finite number of a float type. */
double ul_dtype_largest(enum ul_dtype dtype);
/* UL_DTYPE_NONE when there is no such name. */
enum ul_dtype ul_dtype_find(const char *name);

/* Elements of a known type, and their bytes; limits.h keeps both in range. */
uint64_t ul_type_elements(const struct ul_type *type);
uint64_t ul_type_bytes(const struct ul_type *type);
bool ul_type_equal(const struct ul_type *a, const struct ul_type *b);
bool ul_type_known(const struct ul_type *type);
/* Within UL_LIMIT_DIM and UL_LIMIT_TENSOR_BYTES. */
bool ul_type_in_limits(const struct ul_type *type);
struct ul_type ul_type_make(enum ul_dtype dtype, uint32_t rank, const int64_t *dims);
/* "f32[1,3,224,224]" */
void ul_type_print(struct ul_text *text, const struct ul_type *type);

/* tensor.c: reading and making constants. */

/* Element `index` of an integer or bool tensor, or of a float one. */
int64_t ul_tensor_get_int(const struct ul_tensor *tensor, uint64_t index);
double ul_tensor_get_float(const struct ul_tensor *tensor, uint64_t index);
/* Encodes one element; integers wrap, floats round to nearest even. */
void ul_element_put_int(unsigned char *place, enum ul_dtype dtype, int64_t value);
void ul_element_put_float(unsigned char *place, enum ul_dtype dtype, double value);
int64_t ul_element_get_int(const unsigned char *place, enum ul_dtype dtype);
double ul_element_get_float(const unsigned char *place, enum ul_dtype dtype);
struct ul_tensor *ul_tensor_new(struct ul_arena *arena, const struct ul_type *type,
                                const void *data);
struct ul_tensor *ul_tensor_new_ints(struct ul_arena *arena, enum ul_dtype dtype, uint32_t rank,
                                     const int64_t *dims, const int64_t *values);
struct ul_tensor *ul_tensor_new_splat(struct ul_arena *arena, const struct ul_type *type,
                                      const void *element);
/* Copies elements [begin, begin + count) to `out` as dense bytes. */
void ul_tensor_read(const struct ul_tensor *tensor, uint64_t begin, uint64_t count,
                    unsigned char *out);
/* The same as they lie in memory: `storage` is the tensor's dtype, or 16 bits of an f32, rounded to
 * nearest even. */
void ul_tensor_read_as(const struct ul_tensor *tensor, enum ul_dtype storage, uint64_t begin,
                       uint64_t count, unsigned char *out);

/* graph.c: building and editing. */

void ul_graph_init(struct ul_graph *graph, struct ul_arena *arena, const char *name);
/* The same graph with lists of its own; names, attributes and tensors are shared. */
void ul_graph_copy(struct ul_graph *graph, struct ul_arena *arena, const struct ul_graph *from);
ul_value_id ul_graph_add_value(struct ul_graph *graph, const char *name, enum ul_value_kind kind,
                               const struct ul_type *type);
ul_value_id ul_graph_add_weight(struct ul_graph *graph, const char *name,
                                const struct ul_tensor *tensor);
/* Makes a node at the end of `block` with room for the counts given; inputs start as UL_NONE and
 * outputs as fresh values of unknown type named `name` or `name:k`. */
ul_node_id ul_graph_add_node(struct ul_graph *graph, ul_block_id block, enum ul_op op,
                             const char *name, uint32_t input_count, uint32_t output_count);
/* The same, placed before position `at` of the block's list. */
ul_node_id ul_graph_insert_node(struct ul_graph *graph, ul_block_id block, uint32_t at,
                                enum ul_op op, const char *name, uint32_t input_count,
                                uint32_t output_count);
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
/* Marks a node removed (op NONE, outputs dead); ul_graph_sweep drops it from its block. */
void ul_graph_remove_node(struct ul_graph *graph, ul_node_id node);
void ul_graph_sweep(struct ul_graph *graph);
/* Replaces values in every use (node inputs, block outputs) by `map[value]`, which is the value
 * itself where nothing changes; chains are followed. `map` has value_count entries. */
void ul_graph_replace(struct ul_graph *graph, ul_value_id *map);
/* Uses of every value: node inputs of all blocks plus block outputs; an array of value_count. */
uint32_t *ul_graph_count_uses(const struct ul_graph *graph, struct ul_arena *arena);
bool ul_graph_is_output(const struct ul_graph *graph, ul_value_id value);
/* True and the number when all elements of a constant, of any shape, are one float. */
bool ul_graph_get_number(const struct ul_graph *graph, ul_value_id value, double *number);

/* Attribute look-up; the default where the node has none. */
const struct ul_attr *ul_node_find_attr(const struct ul_node *node, const char *name);
int64_t ul_node_get_int(const struct ul_node *node, const char *name, int64_t otherwise);
double ul_node_get_float(const struct ul_node *node, const char *name, double otherwise);
const char *ul_node_get_string(const struct ul_node *node, const char *name, const char *otherwise);
/* The ints of an attribute and their count; NULL and 0 where the node has none. */
const int64_t *ul_node_get_ints(const struct ul_node *node, const char *name, uint32_t *count);
/* "node 17 \"conv1\" (Conv)" for messages. */
const char *ul_node_describe(const struct ul_graph *graph, ul_node_id node, struct ul_arena *arena);

/* view.c */

/* How a value's elements lie in memory; only what has bytes of its own, or lies in such, has any.
 * Kernels compute with type.dtype all the same: loads widen, stores round. */
enum ul_dtype ul_value_storage(const struct ul_graph *graph, ul_value_id value);
uint32_t ul_value_element_bytes(const struct ul_graph *graph, ul_value_id value);
/* All of its elements. */
uint64_t ul_value_bytes(const struct ul_graph *graph, ul_value_id value);
/* The dense view of a value on itself. */
struct ul_view ul_view_own(const struct ul_graph *graph, ul_value_id value);
/* Elements follow each other in row-major order without gaps; strides of dimensions of size 1 do
 * not matter. */
bool ul_view_is_dense(const struct ul_type *type, const struct ul_view *view);
/* The dimensions from the outermost to the innermost as they lie in memory, by their strides;
 * those of size 1 keep their places. Row-major where a stride is 0 or nothing is known yet. `order`
 * has rank entries. */
void ul_view_order(const struct ul_type *type, const struct ul_view *view, uint32_t *order);
/* True when the views pass left nothing to do for the node: its outputs are views of input 0, or
 * (Concat) its inputs lie in the output already. Such a node gets no kernel. */
bool ul_node_is_view(const struct ul_graph *graph, ul_node_id node);
/* Where an operand of a Concat belongs in the output. */
struct ul_view ul_concat_slice(const struct ul_graph *graph, const struct ul_node *node,
                               uint32_t input);
/* An operand of a Concat that the concat pass has had produced in its slice of the output. */
bool ul_concat_is_placed(const struct ul_graph *graph, const struct ul_node *node, uint32_t input);

/* verify.c: the invariants above; text names the node. A failure after a pass is a defect. */
enum ul_status ul_graph_verify(const struct ul_graph *graph, struct ul_diag *diag) UL_MUST_CHECK;

/* print.c, parse.c: the text form (grammar in ir/README.md). Constants above 64 bytes print as
 * pool=K; `pool` gives the parser those tensors back, in the order of their values. */
void ul_graph_print(struct ul_text *text, const struct ul_graph *graph);
enum ul_status ul_graph_parse(struct ul_graph *graph, struct ul_arena *arena, const char *text,
                              const struct ul_graph *pool, struct ul_diag *diag) UL_MUST_CHECK;

/* op.c: the operator table. */

struct ul_infer;
struct ul_lower;
struct ul_op_info;
typedef uint32_t ul_kx; /* an expression of the kernel IR: ir/kernel.h */

enum ul_op_flag {
    UL_OP_ELEMENTWISE = 1u << 0, /* out[i] depends on broadcast inputs at i alone */
    UL_OP_RANDOM = 1u << 1,      /* never folded, never merged */
    UL_OP_CONTROL = 1u << 2,     /* owns blocks: If, Loop, Scan */
    UL_OP_COMMUTES = 1u << 3,    /* inputs 0 and 1 may change places */
    UL_OP_SHAPE_ONLY = 1u << 4,  /* its outputs are constants once its input types are known */
    UL_OP_COSTLY_MAP = 1u << 5,  /* a map too expensive to compute twice: not inlined into loads
                                    that repeat */
    UL_OP_COMBINES = 1u << 6,    /* stores elements of its output more than once and reads them
                                    back (scatter): nothing is fused behind it */
    UL_OP_SPATIAL = 1u << 7,    /* input 0 (Concat: each) and output 0 are [batch, channels, space],
                                   and best lie in memory alike, no matter how */
    UL_OP_CONVOLVES = 1u << 8,  /* the same, but by far the best with channels innermost, each for
                                   itself */
    UL_OP_GROWS = 1u << 9,      /* its results easily leave the range of f16 where inputs do not */
    UL_OP_MULTIPLIES = 1u << 10 /* adds up products of inputs 0 and 1: libraries and tensor cores
                                   want both stored alike */
};

/* Sets the types (and, where known, the constant values) of a node's outputs. */
typedef enum ul_status ul_infer_fn(struct ul_infer *infer);
/* The expression of output `output` at `index` (rank entries, element coordinates). Loads must be
 * in bounds for every index value, taken branch or not. */
typedef ul_kx ul_map_fn(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index);
/* Builds the loops of a node that is not a map; loads and stores through ir/lower.h. */
typedef void ul_lower_fn(struct ul_lower *lower, ul_node_id node);
/* The output as a view of input 0's view: fills `view` and returns true, or returns false where
 * the layout does not permit it and a copy must be made. */
typedef bool ul_view_fn(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                        const struct ul_view *input, struct ul_view *view);

/* Elements [begin, end) along `axis` of a value; axis UL_NONE: all of it. */
struct ul_part {
    uint32_t axis;
    int64_t begin, end;
};

/* What a node takes to compute a part of its outputs, and how its attributes change then. */
enum { UL_CUT_ATTRS = 4 };
struct ul_cut {
    const struct ul_graph *graph;
    const struct ul_node *node;
    struct ul_arena *arena; /* for attributes and constants */
    /* Wanted, of every output. The answer may be wider, where only whole blocks can be made. */
    struct ul_part output;
    /* The answer, per input: what is taken of it (at first all), and a constant that takes its
     * place, or NULL. */
    struct ul_part *inputs;
    const struct ul_tensor **constants;
    uint32_t attr_count;
    struct ul_attr attrs[UL_CUT_ATTRS];
};
/* Fills the answer in; false where parts along that axis cannot be computed apart. A part's
 * elements must be formed exactly as those of the whole are: the same numbers are combined by the
 * same operations in the same order. */
typedef bool ul_cut_fn(struct ul_cut *cut);

/* Bits of inputs or outputs, from 0 on; the last bit is that of all that follow. */
#define UL_EXACT(place) (1u << (place))
#define UL_EXACT_ALL UINT32_MAX

struct ul_op_info {
    const char *name;
    const char *domain; /* NULL: ai.onnx */
    uint32_t min_inputs, max_inputs;
    uint32_t min_outputs, max_outputs;
    uint32_t flags;
    /* What is not rounded to 16 bits in memory (passes/precision.c): inputs that decide something,
     * or are applied to every element; outputs that many elements were reduced to. */
    uint32_t exact_inputs, exact_outputs;
    ul_infer_fn *infer;
    const char *expression; /* of an elementwise operator, over inputs a b c and attributes; see
                               ir/README.md */
    ul_map_fn *map;         /* generated from the expression when NULL and expression is set */
    ul_lower_fn *lower;     /* of what is not a map */
    ul_view_fn *view;
    ul_cut_fn *cut; /* elementwise operators need none */
};

/* The row of an operator; rows are constant. */
const struct ul_op_info *ul_op_get(enum ul_op op);
/* By ONNX name and domain ("" and "ai.onnx" are the same); UL_OP_NONE when unsupported. */
enum ul_op ul_op_find(const char *domain, const char *name);

/* infer.c: what shape rules are written with. */

struct ul_infer {
    struct ul_graph *graph;
    struct ul_node *node;
    ul_node_id node_id;
    struct ul_arena *scratch;
    struct ul_diag *diag;
};

/* Infers one node (block-owning nodes: see ul_infer_blocks in passes); wraps the row's rule with
 * arity checks, limits on sizes and the node's name in messages. */
enum ul_status ul_node_infer(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch,
                             struct ul_diag *diag) UL_MUST_CHECK;

/* NULL when the optional input is absent. */
const struct ul_type *ul_infer_input(const struct ul_infer *infer, uint32_t input);
const struct ul_tensor *ul_infer_tensor(const struct ul_infer *infer, uint32_t input);
/* The constant integers of an input: UL_UNSUPPORTED, naming the input and --const, when it is no
 * constant. Absent input: *values NULL, count 0. */
enum ul_status ul_infer_ints(const struct ul_infer *infer, uint32_t input, const int64_t **values,
                             uint32_t *count) UL_MUST_CHECK;
void ul_infer_set(const struct ul_infer *infer, uint32_t output, enum ul_dtype dtype, uint32_t rank,
                  const int64_t *dims);
void ul_infer_set_type(const struct ul_infer *infer, uint32_t output, const struct ul_type *type);
/* Also fixes the value itself: a 1-d or 0-d int64 constant. */
void ul_infer_set_ints(const struct ul_infer *infer, uint32_t output, uint32_t rank,
                       const int64_t *values, uint32_t count);
/* Sets the message, with the node named, and returns UL_INVALID / UL_UNSUPPORTED. */
enum ul_status ul_infer_invalid(const struct ul_infer *infer, const char *format, ...)
    UL_PRINTF(2, 3);
enum ul_status ul_infer_unsupported(const struct ul_infer *infer, const char *format, ...)
    UL_PRINTF(2, 3);
/* Multidirectional broadcast of two shapes into `out`; false when they do not match. */
bool ul_broadcast(const struct ul_type *a, const struct ul_type *b, struct ul_type *out);
/* Makes an axis non-negative and checks it against `rank`. */
enum ul_status ul_infer_axis(const struct ul_infer *infer, int64_t axis, uint32_t rank,
                             uint32_t *out) UL_MUST_CHECK;
/* Common rules. */
enum ul_status ul_infer_same(struct ul_infer *infer);        /* output 0 = type of input 0 */
enum ul_status ul_infer_elementwise(struct ul_infer *infer); /* broadcast, dtype of input 0 */
enum ul_status ul_infer_compare(struct ul_infer *infer);     /* broadcast, bool */

/* cut.c */

/* Asks the row; `inputs` and `constants` have room for the node's inputs. False for what has no
 * hook, owns blocks or draws random numbers. */
bool ul_node_cut(struct ul_cut *cut);
/* What hooks are written with. Takes [begin, end) of `axis` of an input that is there. */
void ul_cut_take(struct ul_cut *cut, uint32_t input, uint32_t axis, int64_t begin, int64_t end);
/* The same part of the axis that lies as far from the last one as the output's, unless that is
 * broadcast or missing. */
void ul_cut_take_broadcast(struct ul_cut *cut, uint32_t input);
/* The part's value of an attribute. */
void ul_cut_set_ints(struct ul_cut *cut, const char *name, const int64_t *values, uint32_t count);
void ul_cut_set_int(struct ul_cut *cut, const char *name, int64_t value);
void ul_cut_set_string(struct ul_cut *cut, const char *name, const char *value);
const struct ul_type *ul_cut_input_type(const struct ul_cut *cut, uint32_t input);
const struct ul_type *ul_cut_output_type(const struct ul_cut *cut);
/* Widens the output to whole blocks of so many elements along its axis, which has no others. */
void ul_cut_widen(struct ul_cut *cut, int64_t block);
/* A window's outputs [begin, end) of one spatial dimension take inputs [low, high) and so much
 * padding; false where they see nothing but padding. Units: elements. */
struct ul_cut_window {
    int64_t stride, reach, pad_begin, in; /* of the whole; reach: from a window's first element to
                                             behind its last */
    int64_t low, high, part_begin, part_end; /* pads of the part */
};
bool ul_cut_window(const struct ul_cut *cut, struct ul_cut_window *window);
/* A part of extent 1 along `axis` of the value that loops follow is looped over in another way
 * where no dimension inside of it is longer than 1 (ir/ops/lanes.h), and sums may then be formed in
 * another order. */
bool ul_cut_keeps_lanes(const struct ul_cut *cut, ul_value_id value, uint32_t axis);

/* fold.c */

/* Evaluates a node whose inputs are all constant through the kernel IR's interpreter and gives
 * its outputs their tensors. False when it is too big (limits.h) or is not foldable. */
bool ul_node_fold(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch);

#endif
