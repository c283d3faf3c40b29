/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of frontend/ share: the wire scan, names, the builder and the upgrade interface.
 *
 * Invariants: strings in decoded messages hold no NUL; the raw_data of every tensor in a decoded
 * message is an index into the wire scan's table, never the tensor's bytes. Ownership: `scratch`
 * lives until the load ends, `graph->arena` as long as the graph. */
#ifndef UL_FRONTEND_INTERNAL_H
#define UL_FRONTEND_INTERNAL_H

#include "frontend/frontend.h"
#include "ir/build.h"
#include "onnx.pb-c.h"

/* wire.c: the scan over the protobuf's bytes before decoding. */

/* A run of a tensor's data in the file. */
struct ul_wire_segment {
    /* number in TensorProto: 4 float, 5 int32, 7 int64, 9 raw, 10 double, 11 uint64 */
    uint32_t field;
    uint32_t packed; /* several elements without tags between them */
    uint64_t offset;
    uint64_t size_bytes;
};

struct ul_wire_tensor {
    uint32_t first;
    uint32_t count;
};

struct ul_wire {
    const unsigned char *data;
    uint64_t size_bytes;
    uint32_t tensor_count, tensor_capacity;
    struct ul_wire_tensor *tensors;
    uint32_t segment_count, segment_capacity;
    struct ul_wire_segment *segments;
    struct ul_text slim; /* the message without tensor data and without what is never read */
};

enum ul_wire_kind { UL_WIRE_MODEL, UL_WIRE_TENSOR };

/* Fields that older schemas do not know get their number plus this in the slim message, so that any
 * schema leaves them in the unknown fields. */
#define UL_WIRE_MOVED 1000
#define UL_WIRE_NODE_OVERLOAD (UL_WIRE_MOVED + 8)
#define UL_WIRE_NODE_METADATA (UL_WIRE_MOVED + 9)
#define UL_WIRE_GRAPH_METADATA (UL_WIRE_MOVED + 16)
#define UL_WIRE_FUNCTION_ATTRIBUTE (UL_WIRE_MOVED + 11)
#define UL_WIRE_FUNCTION_OVERLOAD (UL_WIRE_MOVED + 13)

/* What follows a field's number, by protobuf's encoding. */
enum { UL_WIRE_VARINT = 0, UL_WIRE_FIXED64 = 1, UL_WIRE_BYTES = 2, UL_WIRE_FIXED32 = 5 };

/* One field as the file has it. */
struct ul_wire_field {
    uint32_t number;
    uint32_t wire_type;
    uint64_t value;      /* of a varint or fixed field; for bytes their length */
    uint64_t begin, end; /* of the payload */
};

/* Reads the field at *at and moves *at past it; returns what is wrong with it, or NULL. */
const char *ul_wire_next(const unsigned char *data, uint64_t *at, uint64_t end,
                         struct ul_wire_field *field) UL_MUST_CHECK;
void ul_wire_put_varint(struct ul_text *out, uint64_t value);
/* Writes what a field begins with. */
void ul_wire_put_key(struct ul_text *out, uint32_t number, uint32_t wire_type);
void ul_wire_put_bytes(struct ul_text *out, uint32_t number, const void *bytes, uint64_t count);
void ul_wire_put_string(struct ul_text *out, uint32_t number, const char *string);
/* Whether the bytes are not a TensorProto, but a message of onnx-data.proto that holds tensors. */
bool ul_wire_holds_tensors(const unsigned char *data, uint64_t size_bytes);
#define UL_WIRE_NO_TENSOR                                                                          \
    "holds a sequence or an optional (SequenceProto, OptionalProto), and a tensor is wanted"
enum ul_status ul_wire_scan(struct ul_wire *wire, struct ul_arena *arena, enum ul_wire_kind kind,
                            const void *data, uint64_t size_bytes,
                            struct ul_diag *diag) UL_MUST_CHECK;

/* names.c: a map from untrusted names to numbers. */

struct ul_names {
    struct ul_arena *arena;
    uint32_t count, capacity; /* capacity is 0 or a power of two */
    const char **keys;
    uint32_t *values;
};

void ul_names_init(struct ul_names *names, struct ul_arena *arena);
/* The number of a name, or UL_NONE. */
uint32_t ul_names_find(const struct ul_names *names, const char *key);
/* Returns false when the name exists already. The key is borrowed. */
bool ul_names_add(struct ul_names *names, const char *key, uint32_t value) UL_MUST_CHECK;

/* The value of a function's formal input where the caller gives none. */
#define UL_ABSENT (UL_NONE - 1)

/* Values that are lists of values: a number from here on is UL_SEQUENCE_FIRST plus an index into
 * builder->sequences. The graph itself never holds one. */
#define UL_SEQUENCE_FIRST 0xC0000000u

struct ul_sequence {
    uint32_t count;
    const ul_value_id *items;
};

/* A value that a node has in the file and not here, and the reason for nodes that use it. */
struct ul_withheld {
    ul_value_id value;
    const char *reason;
};

/* A value that a node overwrites in place with another. */
struct ul_overwritten {
    ul_value_id old, made;
};

/* The values that a graph sees by name: its own, then those of the graphs around it. */
struct ul_scope {
    const struct ul_scope *outer; /* NULL for the main graph and for a function's body */
    struct ul_names names;
};

/* The attributes that a function's body may refer to. */
struct ul_bindings {
    uint32_t count;
    const char **names;
    const Onnx__AttributeProto **attrs; /* without unresolved references */
};

/* The operator sets in force: the model's, or a function's own. */
struct ul_opsets {
    uint32_t count;
    const struct ul_model_opset *sets;
};

struct ul_model_builder {
    struct ul_graph *graph;
    struct ul_arena *scratch;
    struct ul_diag *diag;
    struct ul_onnx_model *model;
    const struct ul_frontend_options *options;
    const struct ul_wire *wire;
    const Onnx__ModelProto *proto;
    ProtobufCAllocator *allocator; /* its memory is scratch */
    const char *directory;         /* of external data; NULL: they are not allowed */
    const char *last_location;     /* of the last external file, and its index in model->files */
    uint32_t last_file;

    struct ul_names functions;   /* function_key -> index into proto->functions */
    struct ul_names independent; /* names that the xs of some Gradient contain */
    /* The position of the node that is being built. */
    ul_block_id block;
    const struct ul_scope *scope;
    const struct ul_bindings *bindings;
    const struct ul_opsets *opsets;
    const char *prefix;          /* for names inside inlined functions; "" outside */
    uint32_t depth;              /* counts nested graphs and functions */
    uint32_t call_count;         /* functions inlined so far */
    uint64_t inlined_bytes;      /* memory that finished calls took */
    uint64_t inlined_from_bytes; /* memory in use before the outermost active call */
    uint32_t active_count;
    const Onnx__FunctionProto *active[UL_LIMIT_NESTING]; /* functions being inlined */
    uint32_t sequence_count, sequence_capacity;
    struct ul_sequence *sequences;
    uint32_t overwritten_count, overwritten_capacity;
    struct ul_overwritten *overwritten;
    uint32_t withheld_count, withheld_capacity;
    struct ul_withheld *withheld;
    ul_node_id next_to_infer; /* see ul_upgrade_type */
    bool has_named_cut;       /* a problem has already said where --output may cut */
    bool has_open_inputs;     /* some inputs have dimensions without a size */
    uint32_t unsized_count;   /* problems that disappear once inputs have their sizes */
};

/* A node while it is rewritten from the file's operator set to the newest one. */
struct ul_old_node {
    struct ul_model_builder *builder;
    const char *domain; /* "" for ai.onnx */
    const char *op;
    int64_t version; /* of the operator set */
    const char *name;
    const char *source;
    uint32_t input_count, input_capacity;
    ul_value_id *inputs;
    uint32_t output_count;   /* without absent ones at the end */
    uint32_t declared_count; /* with absent ones at the end */
    const char **outputs;    /* "" where absent */
    ul_value_id *results;    /* what the outputs became, UL_NONE until then */
    uint32_t attr_count, attr_capacity;
    struct ul_attr *attrs;
    uint32_t graph_count;
    const Onnx__GraphProto *graphs[2]; /* in the order of the node's blocks */
    ul_node_id emitted;                /* the node that owns the blocks; UL_NONE before */
    bool finished;                     /* results are set; nothing is left to emit */
    struct ul_build build;             /* what ul_old_build returns */
    struct ul_row_builder *row;        /* the row that is being applied, or NULL (rows.h) */
};

/* tensor.c */

/* Decodes a tensor of the model; its bytes are borrowed from the file where their form allows that.
 * `owner` names it in messages. */
enum ul_status ul_tensor_decode(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                                const char *owner, const struct ul_tensor **out) UL_MUST_CHECK;

/* external.c */

/* Finds the bytes of a tensor in an external file. */
enum ul_status ul_external_find(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                                const char *owner, uint64_t wanted_bytes,
                                const unsigned char **out) UL_MUST_CHECK;
/* Maps a file of a model, unless options (or NULL) have one that lends it. */
enum ul_status ul_model_map(const struct ul_frontend_options *options, struct ul_arena *arena,
                            const char *path, struct ul_file *file,
                            struct ul_diag *diag) UL_MUST_CHECK;

/* tensor.c: checks and returns the type of a TensorProto. */
enum ul_status ul_tensor_type(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                              const char *owner, struct ul_type *type) UL_MUST_CHECK;

/* load.c: an allocator of decoders that takes memory from an arena; and the directory of a model's
 * external data: the path up to its last slash, NULL for standard input. */
ProtobufCAllocator ul_proto_allocator(struct ul_arena *arena);
const char *ul_model_directory(struct ul_arena *arena, const char *path);
/* Parses a TensorProto of `size_bytes` at `data` into the arena. `owner` names it in messages where
 * it has no name; `name` may be NULL. */
enum ul_status ul_tensor_parse(struct ul_arena *arena, const unsigned char *data,
                               uint64_t size_bytes, const char *owner,
                               const struct ul_tensor **tensor, const char **name,
                               struct ul_diag *diag) UL_MUST_CHECK;

/* describe.c: fills builder->model from the decoded file. */
void ul_describe_model(struct ul_model_builder *builder);
/* Describes one dimension, the dtype and the kind of an input or output. */
void ul_describe_port(struct ul_model_builder *builder, const Onnx__ValueInfoProto *info,
                      struct ul_model_port *port);

/* expression.c: a dimension as an expression of others. There is one size, at least 0, for each
 * name. */

struct ul_expression;
/* Returns NULL where the text is a plain name or is not understood. */
struct ul_expression *ul_expression_parse(struct ul_arena *arena, const char *text);
uint32_t ul_expression_name_count(const struct ul_expression *expression);
const char *ul_expression_name(const struct ul_expression *expression, uint32_t index);
/* Returns false where the size is not a whole number: a fraction, a division by 0, or out of
 * range. */
bool ul_expression_size(const struct ul_expression *expression, const int64_t *sizes,
                        int64_t *size) UL_MUST_CHECK;
/* Computes the size of one name from the size of the expression; -1 where none fits. Returns false
 * where the expression is not linear in the name, so that several sizes may fit, or does not depend
 * on it. */
bool ul_expression_solve(const struct ul_expression *expression, const int64_t *sizes,
                         uint32_t unknown, int64_t size, int64_t *solution) UL_MUST_CHECK;

/* dimensions.c: the names of dimensions, including those inside expressions. */

struct ul_dimension {
    const char *name;
    int64_t size;                     /* -1: not known */
    struct ul_expression *expression; /* NULL: a plain name */
    uint32_t *parts;                  /* indexes of the dimensions whose names are in it */
    const char *input; /* the first input that has it, and its axis; NULL: none has it */
    uint32_t axis;
    uint32_t use_count; /* expressions that contain it */
};

struct ul_dimensions {
    struct ul_model_builder *builder;
    struct ul_names names; /* -> index into items */
    uint32_t count, capacity;
    struct ul_dimension *items;
    struct ul_names hinted; /* names that were asked for */
};

void ul_dimensions_init(struct ul_dimensions *dimensions, struct ul_model_builder *builder);
uint32_t ul_dimensions_find(const struct ul_dimensions *dimensions, const char *name);
/* Gives a dimension its size; UL_USAGE where it has another one. */
enum ul_status ul_dimensions_bind(struct ul_dimensions *dimensions, const char *name, int64_t size,
                                  const char *input) UL_MUST_CHECK;
/* Computes what follows from the known sizes; UL_USAGE where they contradict each other. */
enum ul_status ul_dimensions_settle(struct ul_dimensions *dimensions) UL_MUST_CHECK;
/* Lists all names, for messages. */
const char *ul_dimensions_list(const struct ul_dimensions *dimensions);
/* The flags that give a dimension its size, without flags that were asked for before. */
const char *ul_dimensions_ask(struct ul_dimensions *dimensions, const char *name);
/* Writes the dimensions into the model's description. */
void ul_dimensions_describe(const struct ul_dimensions *dimensions);

/* inputs.c: makes the main graph's inputs. Dimensions without a size are collected into one
 * UL_USAGE text, which the caller reports after all worse errors. */
enum ul_status ul_inputs_build(struct ul_model_builder *builder, struct ul_scope *scope,
                               const char **unbound) UL_MUST_CHECK;

/* order.c: the order in which to build the nodes of a graph; NULL where the file's own order is
 * right. */
enum ul_status ul_order_nodes(struct ul_model_builder *builder, size_t node_count,
                              Onnx__NodeProto *const *nodes, const uint32_t **order) UL_MUST_CHECK;

/* Leaves out the nodes that no value of --output needs, as far as names in the file show it. */
enum ul_status ul_order_cut(struct ul_model_builder *builder,
                            Onnx__GraphProto *graph) UL_MUST_CHECK;

/* build.c */
enum ul_status ul_build_graph(struct ul_model_builder *builder, const Onnx__GraphProto *proto,
                              struct ul_scope *scope) UL_MUST_CHECK;
/* Memory in use now; and memory that inlined functions took, including those being inlined. */
uint64_t ul_builder_used_bytes(const struct ul_model_builder *builder);
uint64_t ul_builder_inlined_bytes(const struct ul_model_builder *builder);
/* A graph of a node that is built in place of the node, with as many inputs and outputs as
 * given. */
struct ul_graph_call {
    uint32_t number;      /* how many such calls came before */
    bool makes_sequences; /* outputs may be sequences; otherwise they are tensors */
    uint32_t input_count, output_count;
    const ul_value_id *inputs;
    ul_value_id *outputs;
};
enum ul_status ul_build_called(struct ul_old_node *node, const Onnx__GraphProto *proto,
                               const struct ul_graph_call *call) UL_MUST_CHECK;
enum ul_status ul_build_nodes(struct ul_model_builder *builder, size_t node_count,
                              Onnx__NodeProto *const *nodes, struct ul_scope *scope) UL_MUST_CHECK;
/* The value of a name seen from a scope; UL_ABSENT for a function's input that was not given; or
 * UL_NONE. */
ul_value_id ul_scope_find(const struct ul_scope *scope, const char *name);
/* Binds a name; UL_INVALID when it is taken. */
enum ul_status ul_scope_bind(struct ul_model_builder *builder, struct ul_scope *scope,
                             const char *name, ul_value_id value) UL_MUST_CHECK;
/* Makes a name for the graph, in its arena: the prefix of the functions around it, then the
 * name. */
const char *ul_builder_name(const struct ul_model_builder *builder, const char *name);
/* Says that `made` overwrites `old` in place. If `old` is an input or a weight, the model gets an
 * output for it, with the same name plus _out. */
void ul_builder_overwrite(struct ul_model_builder *builder, ul_value_id old, ul_value_id made);
/* Notes why the model cannot be compiled. Building goes on with a value of unknown type, so that
 * later problems of the model are found too; the load then fails. */
void ul_builder_problem(struct ul_model_builder *builder, const char *domain, const char *op,
                        const char *node, const char *reason);
/* The quoted text: node "name" (Op). */
const char *ul_builder_describe(const struct ul_model_builder *builder, const char *name,
                                const char *op);
/* UL_UNSUPPORTED when the version of ai.onnx is out of range. */
enum ul_status ul_opsets_check(struct ul_model_builder *builder,
                               const struct ul_opsets *opsets) UL_MUST_CHECK;
int64_t ul_opsets_version(const struct ul_opsets *opsets, const char *domain);
const char *ul_domain_canonical(const char *domain);
/* The payload of the `nth` unknown length-delimited field of that number; false past the last. */
bool ul_proto_unknown(const ProtobufCMessage *message, uint32_t field, uint32_t nth,
                      const unsigned char **data, size_t *size_bytes);
/* The value of the first metadata entry whose key contains `key`, among a message's fields of that
 * number; or NULL. It stays until scratch is reset. */
const char *ul_proto_entry(const struct ul_model_builder *builder, const ProtobufCMessage *message,
                           uint32_t field, const char *key);

/* function.c: model-local functions. */
enum ul_status ul_functions_index(struct ul_model_builder *builder) UL_MUST_CHECK;
/* The function that a node calls, or NULL. */
const Onnx__FunctionProto *ul_function_find(const struct ul_model_builder *builder,
                                            const Onnx__NodeProto *node);
/* Called before and after building the nodes that replace a call of a function, or a node with a
 * graph (`function` is NULL then). The first counts calls, depth and memory, and refuses too
 * much. */
enum ul_status ul_function_enter(struct ul_model_builder *builder, const struct ul_old_node *node,
                                 const Onnx__FunctionProto *function) UL_MUST_CHECK;
void ul_function_leave(struct ul_model_builder *builder);
enum ul_status ul_function_inline(struct ul_model_builder *builder,
                                  const Onnx__FunctionProto *function, const Onnx__NodeProto *proto,
                                  struct ul_old_node *node) UL_MUST_CHECK;

/* attribute.c */
/* The attribute itself, or what a reference inside a function's body resolves to; NULL when the
 * caller did not give it and it has no default. */
const Onnx__AttributeProto *ul_attribute_resolve(const struct ul_model_builder *builder,
                                                 const Onnx__AttributeProto *attr);
/* Adds attributes and nested graphs to the node. */
enum ul_status ul_attributes_decode(struct ul_old_node *node,
                                    const Onnx__NodeProto *proto) UL_MUST_CHECK;

/* schema.c: says what is wrong with an attribute of that AttributeProto.type: in its operator set
 * the node's operator has no attribute of that name, or one of another type. The text follows the
 * attribute's name. NULL: nothing is wrong, or no table has the operator. */
const char *ul_schema_wrong(const struct ul_old_node *node, const char *name, int type);

/* sequence.c */

bool ul_sequence_is(ul_value_id value);
/* Makes one value of a list of values; `items` is the builder's. */
ul_value_id ul_builder_add_sequence(struct ul_model_builder *builder, const ul_value_id *items,
                                    uint32_t count);
const struct ul_sequence *ul_sequence_get(const struct ul_model_builder *builder,
                                          ul_value_id value);
/* sequence_graphs.c: SequenceMap, and Loop and If that take or make a sequence. */
enum ul_status ul_sequence_graphs(struct ul_old_node *node) UL_MUST_CHECK;
/* Resolves an operator on sequences; the node is finished then, as it is when it wrongly takes a
 * sequence. */
enum ul_status ul_sequence_node(struct ul_old_node *node) UL_MUST_CHECK;

/* gradient.c */

/* Collects the names of the values by which gradients are taken, before anything is built. */
void ul_gradient_collect(struct ul_model_builder *builder);
/* Whether some gradient is taken by the value of that name. */
bool ul_gradient_is_by(const struct ul_model_builder *builder, const char *name);
/* Gradient of ai.onnx.preview.training. */
void ul_upgrade_gradient(struct ul_old_node *node);

/* upgrade.c: the table of semantic changes between operator sets. */

/* Rewrites a node to the newest semantics and emits it, with the other nodes that this needs. */
enum ul_status ul_upgrade_node(struct ul_old_node *node) UL_MUST_CHECK;

/* old_node.c: functions for the rows of the table. */

const struct ul_attr *ul_old_attr(const struct ul_old_node *node, const char *name);
int64_t ul_old_int(const struct ul_old_node *node, const char *name, int64_t otherwise);
const char *ul_old_string(const struct ul_old_node *node, const char *name, const char *otherwise);
void ul_old_set_int(struct ul_old_node *node, const char *name, int64_t value);
void ul_old_set_string(struct ul_old_node *node, const char *name, const char *value);
void ul_old_remove_attr(struct ul_old_node *node, const char *name);
/* Input `index`, UL_NONE when absent; setting one grows the list. */
ul_value_id ul_old_input(const struct ul_old_node *node, uint32_t index);
void ul_old_set_input(struct ul_old_node *node, uint32_t index, ul_value_id value);
/* A builder of further nodes, which come after all others: they are called name/Op, and their types
 * are not known. */
struct ul_build *ul_old_build(struct ul_old_node *node);
/* Emits the node as it is now; its outputs become the results. */
void ul_old_emit_self(struct ul_old_node *node);
/* Makes `value` the result of an output, under the output's name. */
void ul_old_set_result(struct ul_old_node *node, uint32_t output, ul_value_id value);
/* What is known of a value's type: shape inference and folding run over the nodes emitted so far.
 * Where nothing is known, dtype is NONE and the rank unknown. */
struct ul_type ul_old_type(struct ul_old_node *node, ul_value_id value);
const struct ul_tensor *ul_old_tensor(struct ul_old_node *node, ul_value_id value);
/* The element type of an input; float32 where it is not known. */
enum ul_dtype ul_old_dtype(struct ul_old_node *node, uint32_t input);
/* Says that the output cannot be made, for a reason that follows its name in a message; it is a
 * problem only where something uses the output. */
void ul_old_withhold(struct ul_old_node *node, uint32_t output, const char *reason);
/* Notes a problem with this node: its outputs become values of unknown type, and the load fails.
 * Returns false. */
bool ul_old_problem(struct ul_old_node *node, const char *reason);
/* Notes a problem that disappears once all dimensions have a size. */
void ul_old_unsized(struct ul_old_node *node, const char *reason);
/* The same where `value`, which would have to be known, depends only on sizes that are open; else
 * ul_old_problem. */
void ul_old_not_known(struct ul_old_node *node, ul_value_id value, const char *reason);

/* Rows of the table: upgrade_attributes.c, upgrade_by_data.c, upgrade_nn.c, upgrade_scan.c,
 * upgrade_tfidf.c. Each takes a node of an operator set below the one that the table names. */
typedef void ul_upgrade_fn(struct ul_old_node *node);
ul_upgrade_fn ul_upgrade_axes, ul_upgrade_split, ul_upgrade_split_equal, ul_upgrade_slice,
    ul_upgrade_pad, ul_upgrade_topk, ul_upgrade_clip, ul_upgrade_dropout, ul_upgrade_dft,
    ul_upgrade_scatter, ul_upgrade_grid_sample, ul_upgrade_roi_align, ul_upgrade_broadcast,
    ul_upgrade_too_old;
ul_upgrade_fn ul_upgrade_batch_normalization, ul_upgrade_softmax, ul_upgrade_upsample_scales,
    ul_upgrade_upsample, ul_upgrade_resize_10, ul_upgrade_resize, ul_upgrade_group_normalization,
    ul_upgrade_one_hot, ul_upgrade_swiglu;
ul_upgrade_fn ul_upgrade_compress, ul_upgrade_non_max_suppression, ul_upgrade_non_zero,
    ul_upgrade_unique;
ul_upgrade_fn ul_upgrade_scan_8, ul_upgrade_stft, ul_upgrade_tfidf;
ul_upgrade_fn ul_upgrade_attention_window, ul_upgrade_flex_attention;
ul_upgrade_fn ul_upgrade_gemm_6, ul_upgrade_prelu_6, ul_upgrade_batch_normalization_6,
    ul_upgrade_simplified_layer_norm;

/* upgrade_microsoft_training.c: gradients of pooling, which onnxruntime puts into ai.onnx. */
ul_upgrade_fn ul_microsoft_average_pool_grad, ul_microsoft_max_pool_grad;

/* upgrade_microsoft.c: operators of com.microsoft, in terms of ai.onnx; those of
 * com.microsoft.nchwc are refused with a remedy. */
ul_upgrade_fn ul_upgrade_microsoft, ul_upgrade_microsoft_nchwc;
/* upgrade_ml.c: operators of ai.onnx.ml on numbers. */
ul_upgrade_fn ul_upgrade_ml;

/* record.c: how torch's exporter says that a network is trained. */

/* In a file with torch's record, renames results of the main graph that have the name of an
 * initializer. */
void ul_record_rename(struct ul_model_builder *builder, const Onnx__GraphProto *proto);
/* Puts what the record says of the range of a size, if it does. */
void ul_record_put_range(const struct ul_model_builder *builder, const char *name,
                         struct ul_text *text);
/* Reads the record of the main graph where the options mark initializers. The graph is already
 * built: its initializers are in the scope. */
void ul_record_read(struct ul_model_builder *builder, const Onnx__GraphProto *proto,
                    const struct ul_scope *scope);

#endif
