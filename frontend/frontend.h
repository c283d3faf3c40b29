/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX bytes to a graph: the only folder that knows ONNX's file format and its old operator sets.
 *
 * Invariants of a graph that was loaded: it holds the newest operator semantics only, model-local
 * functions are inlined, every node stands after the producers of its inputs, constants are weights
 * (initializers, Constant nodes, Identity of a weight, inputs fixed by --const), and the types of
 * all inputs are static. Types of node outputs are left to shape inference. Ownership: graph,
 * tensors and the model's description live in the arena passed in. Large tensors borrow the bytes
 * of mapped files, so call ul_model_done after the last use of the graph. Units: dims count
 * elements; sizes and offsets count bytes. Failure: the file is hostile. Every error is an enum
 * ul_status with a text that names the node or the tensor; the description is filled as far as the
 * file could be read. */
#ifndef UL_FRONTEND_H
#define UL_FRONTEND_H

#include "ir/graph.h"

/* A value for a symbolic dimension: --dim NAME=N. */
struct ul_frontend_dim {
    const char *name;
    int64_t size;
};

/* The shape of an input: --shape INPUT=1,3,224,224. */
struct ul_frontend_shape {
    const char *input;
    uint32_t rank;
    int64_t dims[UL_LIMIT_RANK];
};

/* An input, or one tensor of an input that is a sequence (NAME[0]), that is a constant of the
 * compile: --const INPUT=FILE. */
struct ul_frontend_const {
    const char *input;
    const struct ul_tensor *tensor;
};

/* What the user said about the inputs; all zero means nothing. */
struct ul_frontend_options {
    uint32_t dim_count;
    const struct ul_frontend_dim *dims;
    uint32_t shape_count;
    const struct ul_frontend_shape *shapes;
    uint32_t const_count;
    const struct ul_frontend_const *consts;
    uint32_t output_count;
    const char *const *outputs; /* values to make, and no other outputs: --output NAME */
    bool marks_initializers;    /* sets UL_VALUE_TRAINED on them, but not on Constant nodes */
    bool is_trial;              /* the caller does not need the model's hash */
    bool takes_any_size;        /* an expression whose size is given may contradict its parts */
    bool keeps_defaults;        /* inputs that have an initializer stay inputs: --keep-defaults */
    /* A model that was loaded before and outlives this one, which uses its files as they are
     * mapped, and its hash, where it is of the same path; or NULL. */
    const struct ul_onnx_model *lender;
};

struct ul_model_opset {
    const char *domain; /* "" is ai.onnx */
    int64_t version;
};

/* A dimension as the file declares it. */
struct ul_model_dim {
    int64_t size;       /* -1: symbolic */
    const char *symbol; /* the name of a symbolic dimension, else NULL */
};

/* A named dimension of an input, or a name inside a dimension that is an expression of others. */
struct ul_model_dimension {
    const char *name;
    int64_t size;        /* what the options and the other dimensions say; -1: not known */
    uint32_t name_count; /* names in an expression; 0 for a plain name */
    const char *const *names;
};

/* An input or output as the file declares it. */
struct ul_model_port {
    const char *name;
    const char *kind; /* "tensor", "sequence", "map", "optional", "sparse tensor", "unknown" */
    enum ul_dtype dtype;
    uint32_t rank; /* UL_RANK_UNKNOWN when the file gives no shape */
    const struct ul_model_dim *dims;
    const char *sequence; /* the sequence that this output is a tensor of, or NULL */
    bool is_weight;       /* an input fixed by --const */
    bool has_default;     /* an input whose value an initializer gives by default */
};

/* An operator as the file names it; `count` covers every node of graphs, nested graphs and
 * functions. */
struct ul_model_operator {
    const char *domain;
    const char *name;
    int64_t version; /* the operator set of this domain that the model imports */
    uint32_t node_count;
    bool is_function; /* defined by the model itself */
};

/* Something that keeps the model from being compiled. */
struct ul_model_problem {
    const char *domain;
    const char *op;
    const char *node;   /* the first node concerned, quoted for messages */
    const char *reason; /* with the remedy where there is one */
    uint32_t node_count;
    bool is_unsized; /* as far as is known, it disappears once all dimensions have a size */
};

struct ul_model_file {
    struct ul_file file;
    const char *path;
};

/* A description of the model file. */
struct ul_onnx_model {
    const char *path;
    char sha256[65]; /* hash of the model file without external data */
    int64_t ir_version;
    const char *producer_name;
    const char *producer_version;
    uint32_t opset_count;
    const struct ul_model_opset *opsets;
    /* without inputs that are weights: those with a default that is not kept */
    uint32_t input_count;
    const struct ul_model_port *inputs;
    uint32_t default_count; /* inputs that are weights because they have a default */
    const struct ul_model_port *defaults;
    uint32_t output_count;
    const struct ul_model_port *outputs;
    uint32_t dimension_count;
    const struct ul_model_dimension *dimensions;
    uint32_t operator_count; /* sorted by domain and name */
    const struct ul_model_operator *operators;
    uint32_t problem_count, problem_capacity;
    struct ul_model_problem *problems;
    const char *notice; /* parts of the file that the graph leaves out; NULL: none */
    /* Parameters that torch's exporter names (record.c) and that are no longer initializers. */
    uint32_t lost_count, lost_capacity;
    const char **lost;
    /* UL_USAGE was only because dimensions have no size, or tensors of sequences are not given. */
    bool has_open_dims;
    bool has_unnamed_dims; /* some have no name that --dim could give a size */
    uint32_t weight_count;
    uint64_t weight_bytes;              /* of initializers and Constant nodes */
    uint32_t file_count, file_capacity; /* the model itself comes first, then external data */
    struct ul_model_file *files;
};

/* The oldest and the newest operator set of ai.onnx that is understood. Below set 7, only operators
 * whose meaning has not changed since are. */
#define UL_FRONTEND_OPSET_MIN 7
#define UL_FRONTEND_OPSET_MAX 28

/* load.c */

/* Reads the model at `path` ("-": standard input) into `graph`, which it initialises, and describes
 * it in `model`. Errors: UL_IO, UL_INVALID (not ONNX, or against its rules), UL_UNSUPPORTED (the
 * text lists every operator that is missing), UL_USAGE (an option does not fit the model, or a
 * dimension has no size: the text lists every one with the flag that gives it one). Call
 * ul_model_done after any result. */
enum ul_status ul_frontend_load(struct ul_graph *graph, struct ul_arena *arena, const char *path,
                                const struct ul_frontend_options *options,
                                struct ul_onnx_model *model, struct ul_diag *diag) UL_MUST_CHECK;
/* The same from memory. External data are looked for in `directory` (NULL: there are none). `data`
 * must outlive the graph. */
enum ul_status ul_frontend_load_bytes(struct ul_graph *graph, struct ul_arena *arena,
                                      const void *data, uint64_t size_bytes, const char *directory,
                                      const struct ul_frontend_options *options,
                                      struct ul_onnx_model *model,
                                      struct ul_diag *diag) UL_MUST_CHECK;
/* Unmaps the files. */
void ul_model_done(struct ul_onnx_model *model);

/* export.c */

/* What the initializer of that name becomes: a tensor, or itself plus scale * left right, where
 * left [d0, rank (1 ...)] and right [rank, d1 ...] are factors in its dimensions. */
struct ul_export_tensor {
    const char *name;
    const struct ul_tensor *tensor; /* NULL: there are factors */
    /* for factors: the weight to which they are added; NULL: the model's own */
    const struct ul_tensor *base;
    const struct ul_tensor *left, *right;
    const char *left_name, *right_name;
    double scale;
    bool is_apart; /* the factors become initializers of the model, and nodes add their product */
};

/* Writes the model at `path` to `target` with these tensors in place of initializers of the same
 * type and shape, or with factors added. Nodes in training mode become those of inference;
 * *turned_count is how many (NULL: they stay). Everything else stays byte for byte. If the model
 * has external data, they go to one file in the target's folder, named like the target with ".data"
 * added. UL_INVALID names what differs, or a tensor that is no initializer; UL_UNSUPPORTED:
 * something reads a result of training mode that inference does not have. Nothing is written
 * then. */
enum ul_status ul_frontend_export(struct ul_arena *arena, const char *path, const char *target,
                                  const struct ul_export_tensor *tensors, uint32_t count,
                                  uint32_t *turned_count, struct ul_diag *diag) UL_MUST_CHECK;

/* save.c */

/* Writes a graph whose types are known, with its weights inside, as an ONNX model. UL_UNSUPPORTED:
 * it has nested graphs, or would be over 2 GiB. */
enum ul_status ul_frontend_save(const struct ul_graph *graph, const char *path,
                                struct ul_diag *diag) UL_MUST_CHECK;

/* Writes a tensor as a TensorProto file. */
enum ul_status ul_frontend_write_tensor(const struct ul_tensor *tensor, const char *name,
                                        const char *path, struct ul_diag *diag) UL_MUST_CHECK;

/* Reads a TensorProto file (.pb) into the arena; `name` may be NULL. UL_INVALID also if the file
 * holds a sequence. */
enum ul_status ul_frontend_read_tensor(struct ul_arena *arena, const char *path,
                                       const struct ul_tensor **tensor, const char **name,
                                       struct ul_diag *diag) UL_MUST_CHECK;

/* sequence.c */

/* The name of one tensor of a sequence: NAME[index]. */
const char *ul_sequence_item_name(struct ul_arena *arena, const char *name, uint32_t index);

/* recorded.c */

/* A file of recorded data, input_K.pb or output_K.pb, for an input or output that the model
 * declares. */
struct ul_recorded {
    const char *path;
    const char *kind; /* what it holds, as in ul_model_port */
    /* the port that it belongs to, or the first tensor of a sequence; UL_NONE: none */
    uint32_t port;
    /* how many ports it fills: for a sequence whose tensors are ports, all of these */
    uint32_t width;
};

/* Lists the files KIND_0.pb, KIND_1.pb ... of a folder (KIND is "input" or "output") with the ports
 * that they belong to. A sequence is one port of kind "sequence", or one port for each of its
 * tensors, which are adjacent and have its name in `sequence`; each of these tensors may have a
 * file of its own. A file belongs to the port whose name it has, or to the port with its number;
 * where names find a file for every port, the other files belong to none. UL_INVALID: there are
 * more files than ports. */
enum ul_status ul_recorded_list(struct ul_arena *arena, const char *directory, const char *kind,
                                const struct ul_model_port *ports, uint32_t port_count,
                                struct ul_recorded **files, uint32_t *count,
                                struct ul_diag *diag) UL_MUST_CHECK;
/* Reads the tensors of such a file into the arena: one, or those of a sequence, at most
 * UL_LIMIT_SEQUENCE. UL_INVALID: the file holds something other than its port; UL_UNSUPPORTED: an
 * optional, a map, or a sequence of such. */
enum ul_status ul_recorded_read(struct ul_arena *arena, const struct ul_recorded *file,
                                const struct ul_tensor ***tensors, uint32_t *count,
                                struct ul_diag *diag) UL_MUST_CHECK;

#endif
