/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a model: the steps in order. */
#include "frontend/frontend_internal.h"

#include <string.h>

static void *allocate(void *arena, size_t size)
{
    return ul_arena_alloc(arena, size);
}

/* The decoder's memory goes with the scratch arena. */
static void release(void *arena, void *memory)
{
    (void)arena;
    (void)memory;
}

ProtobufCAllocator ul_proto_allocator(struct ul_arena *arena)
{
    return (ProtobufCAllocator){allocate, release, arena};
}

static enum ul_status read_opsets(struct ul_model_builder *builder, struct ul_opsets *opsets)
{
    const Onnx__ModelProto *proto = builder->proto;
    struct ul_model_opset *sets =
        UL_NEW_ARRAY(builder->graph->arena, struct ul_model_opset, proto->n_opset_import);
    for (size_t i = 0; i < proto->n_opset_import; i++) {
        sets[i].domain = ul_arena_copy_string(builder->graph->arena,
                                              ul_domain_canonical(proto->opset_import[i]->domain));
        sets[i].version = proto->opset_import[i]->version;
    }
    opsets->sets = sets;
    opsets->count = (uint32_t)proto->n_opset_import;
    builder->model->opsets = sets;
    builder->model->opset_count = opsets->count;
    builder->opsets = opsets;
    return UL_OK;
}

enum ul_status ul_opsets_check(struct ul_model_builder *builder, const struct ul_opsets *opsets)
{
    int64_t version = ul_opsets_version(opsets, "");
    if (version < 0 || version > UL_FRONTEND_OPSET_MAX)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "operator set %lld of ai.onnx is not supported, %d to %d are; convert "
                           "the model with onnx.version_converter or export it again",
                           (long long)version, UL_FRONTEND_OPSET_MIN, UL_FRONTEND_OPSET_MAX);
    return UL_OK;
}

/* Where sizes are missing, problems that only need them are not reported. */
static enum ul_status report_problems(struct ul_model_builder *builder, bool has_sizes)
{
    const struct ul_onnx_model *model = builder->model;
    struct ul_text text;
    if (model->problem_count == (has_sizes ? 0 : builder->unsized_count))
        return UL_OK;
    ul_text_init(&text, builder->scratch);
    for (uint32_t i = 0; i < model->problem_count; i++) {
        const struct ul_model_problem *problem = &model->problems[i];
        const char *quoted = ul_quote(builder->scratch, problem->op);
        ul_text_printf(&text, "\n  %.*s", (int)strlen(quoted) - 2, quoted + 1);
        if (problem->domain[0] != '\0')
            ul_text_printf(&text, " of %s", ul_quote(builder->scratch, problem->domain));
        ul_text_printf(&text, " (%u, first at %s): %s", (unsigned)problem->node_count,
                       problem->node, problem->reason);
    }
    return ul_diag_set(builder->diag, UL_UNSUPPORTED, "the model needs what is not supported:%s",
                       text.data);
}

static enum ul_status build(struct ul_model_builder *builder)
{
    struct ul_scope scope = {0};
    struct ul_opsets opsets = {0};
    const char *unbound = NULL;
    ul_names_init(&scope.names, builder->scratch);
    UL_TRY(read_opsets(builder, &opsets));
    UL_TRY(ul_functions_index(builder));
    ul_gradient_collect(builder);
    ul_describe_model(builder);
    UL_TRY(ul_opsets_check(builder, &opsets));
    UL_TRY(ul_inputs_build(builder, &scope, &unbound));
    builder->has_open_inputs = unbound != NULL;
    ul_record_rename(builder, builder->proto->graph);
    UL_TRY(ul_order_cut(builder, builder->proto->graph));
    UL_TRY(ul_build_graph(builder, builder->proto->graph, &scope));
    ul_record_read(builder, builder->proto->graph, &scope);
    UL_TRY(report_problems(builder, unbound == NULL));
    builder->model->has_open_dims = unbound != NULL;
    if (unbound != NULL)
        return ul_diag_set(builder->diag, UL_USAGE, "every dimension needs a size:%s", unbound);
    return UL_OK;
}

/* Files that people give for a model by mistake, recognized by bytes at a place. */
static const struct {
    uint64_t at;
    const char *bytes, *what;
} others[] = {
    {0, "\x93NUMPY", "an array of numpy (.npy), as inputs and data are given"},
    {0, "PK\x03\x04",
     "a zip archive, such as an .npz, or a checkpoint of PyTorch, which exports to ONNX"},
    {0, "version https://git-lfs", "a pointer of Git LFS to the model; git lfs pull fetches that"},
    {0, "\177ELF", "a program or a library"},
    {0, "\x89HDF", "an HDF5 file, as Keras writes; export the model to ONNX"},
    {0, "\x1f\x8b", "compressed by gzip; unpack it first"},
    {0, "(\xb5/\xfd", "compressed by zstd; unpack it first"},
    {0, "<", "a page of HTML or XML; a download may have given it instead of the model"},
    {0, "{", "JSON, such as plan.json"},
    {4, "TFL3", "a model of TensorFlow Lite; convert it to ONNX"},
    {4, "ORTM",
     "a model in onnxruntime's own format (.ort); give the ONNX model that it was made of"},
};

/* Says what a file is that is not a model, where that is known. */
static enum ul_status say_what(const unsigned char *data, uint64_t size_bytes, struct ul_diag *diag)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t length = strlen(others[i].bytes);
        if (size_bytes < others[i].at + length ||
            memcmp(data + others[i].at, others[i].bytes, length) != 0)
            continue;
        *diag = (struct ul_diag){.status = UL_OK};
        return ul_diag_set(diag, UL_INVALID, "not a valid ONNX file, but %s", others[i].what);
    }
    return diag->status;
}

static enum ul_status load(struct ul_model_builder *builder, const void *data, uint64_t size_bytes)
{
    struct ul_wire wire;
    ProtobufCAllocator allocator = ul_proto_allocator(builder->scratch);
    if (!builder->options->is_trial && builder->model->sha256[0] == '\0')
        ul_hash_hex(data, size_bytes, builder->model->sha256);
    if (ul_wire_scan(&wire, builder->scratch, UL_WIRE_MODEL, data, size_bytes, builder->diag) !=
        UL_OK)
        return say_what(data, size_bytes, builder->diag);
    builder->wire = &wire;
    builder->allocator = &allocator;
    builder->proto =
        onnx__model_proto__unpack(&allocator, wire.slim.length, (const uint8_t *)wire.slim.data);
    if (builder->proto == NULL)
        return ul_diag_set(builder->diag, UL_INVALID, "not a valid ONNX file");
    if (builder->proto->graph == NULL)
        return ul_diag_set(builder->diag, UL_INVALID,
                           "the file holds no graph; is it an ONNX model?");
    const char *name = builder->proto->graph->name;
    builder->graph->name = ul_arena_copy_string(builder->graph->arena, name == NULL ? "" : name);
    return build(builder);
}

static enum ul_status load_into(struct ul_graph *graph, struct ul_arena *arena, const void *data,
                                uint64_t size_bytes, const char *directory,
                                const struct ul_frontend_options *options,
                                struct ul_onnx_model *model, struct ul_diag *diag)
{
    static const struct ul_frontend_options nothing;
    struct ul_arena scratch;
    struct ul_model_builder builder = {
        .graph = graph,
        .scratch = &scratch,
        .diag = diag,
        .model = model,
        .options = options == NULL ? &nothing : options,
        .directory = directory,
        .prefix = "",
    };
    ul_arena_init(&scratch);
    ul_graph_init(graph, arena, "");
    enum ul_status status = load(&builder, data, size_bytes);
    ul_arena_done(&scratch);
    return status;
}

enum ul_status ul_frontend_load_bytes(struct ul_graph *graph, struct ul_arena *arena,
                                      const void *data, uint64_t size_bytes, const char *directory,
                                      const struct ul_frontend_options *options,
                                      struct ul_onnx_model *model, struct ul_diag *diag)
{
    memset(model, 0, sizeof *model);
    return load_into(graph, arena, data, size_bytes, directory, options, model, diag);
}

const char *ul_model_directory(struct ul_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(path, "-") == 0)
        return NULL;
    if (slash == NULL)
        return ".";
    if (slash == path)
        return "/";
    return ul_arena_printf(arena, "%.*s", (int)(slash - path), path);
}

enum ul_status ul_frontend_load(struct ul_graph *graph, struct ul_arena *arena, const char *path,
                                const struct ul_frontend_options *options,
                                struct ul_onnx_model *model, struct ul_diag *diag)
{
    memset(model, 0, sizeof *model);
    struct ul_file file;
    UL_TRY(ul_model_map(options, arena, path, &file, diag));
    if (options != NULL && options->lender != NULL && strcmp(options->lender->path, path) == 0)
        memcpy(model->sha256, options->lender->sha256, sizeof model->sha256);
    UL_GROW(arena, model->files, model->file_count, model->file_capacity);
    model->files[0].file = file;
    model->files[0].path = ul_arena_copy_string(arena, path);
    model->file_count = 1;
    UL_ASSERT(model->files[0].path[0] != '\0');
    model->path = model->files[0].path;
    const char *directory = ul_model_directory(arena, path);
    enum ul_status status =
        load_into(graph, arena, file.data, file.size_bytes, directory, options, model, diag);
    if (status != UL_OK)
        ul_diag_prefix(diag, strcmp(path, "-") == 0 ? "standard input" : path);
    return status;
}

void ul_model_done(struct ul_onnx_model *model)
{
    for (uint32_t i = 0; i < model->file_count; i++)
        ul_file_unmap(&model->files[i].file);
    model->file_count = 0;
}

static enum ul_status read_tensor(struct ul_model_builder *builder, const unsigned char *data,
                                  uint64_t size_bytes, const char *owner,
                                  const struct ul_tensor **tensor, const char **name)
{
    struct ul_wire wire;
    struct ul_arena *arena = builder->graph->arena;
    ProtobufCAllocator allocator = ul_proto_allocator(builder->scratch);
    if (ul_wire_holds_tensors(data, size_bytes))
        return ul_diag_set(builder->diag, UL_INVALID, "%s", UL_WIRE_NO_TENSOR);
    UL_TRY(ul_wire_scan(&wire, builder->scratch, UL_WIRE_TENSOR, data, size_bytes, builder->diag));
    builder->wire = &wire;
    const Onnx__TensorProto *proto =
        onnx__tensor_proto__unpack(&allocator, wire.slim.length, (const uint8_t *)wire.slim.data);
    if (proto == NULL)
        return ul_diag_set(builder->diag, UL_INVALID, "not a valid ONNX tensor");
    const char *own_name = proto->name == NULL ? "" : proto->name;
    const struct ul_tensor *borrowed = NULL;
    UL_TRY(ul_tensor_decode(builder, proto, own_name[0] == '\0' ? owner : own_name, &borrowed));
    *tensor = ul_tensor_new(arena, &borrowed->type, borrowed->data);
    if (name != NULL)
        *name = ul_arena_copy_string(arena, own_name);
    return UL_OK;
}

enum ul_status ul_tensor_parse(struct ul_arena *arena, const unsigned char *data,
                               uint64_t size_bytes, const char *owner,
                               const struct ul_tensor **tensor, const char **name,
                               struct ul_diag *diag)
{
    struct ul_arena scratch;
    struct ul_onnx_model model = {0};
    struct ul_graph graph;
    ul_arena_init(&scratch);
    ul_graph_init(&graph, arena, "");
    struct ul_model_builder builder = {
        .graph = &graph, .scratch = &scratch, .diag = diag, .model = &model, .prefix = ""};
    enum ul_status status = read_tensor(&builder, data, size_bytes, owner, tensor, name);
    ul_arena_done(&scratch);
    return status;
}

enum ul_status ul_frontend_read_tensor(struct ul_arena *arena, const char *path,
                                       const struct ul_tensor **tensor, const char **name,
                                       struct ul_diag *diag)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, arena, path, diag));
    enum ul_status status =
        ul_tensor_parse(arena, file.data, file.size_bytes, path, tensor, name, diag);
    return ul_file_close(&file, path, status, diag);
}
