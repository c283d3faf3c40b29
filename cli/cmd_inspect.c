/* SPDX-License-Identifier: Apache-2.0 */
/* ullage inspect: what a model file holds, which sizes are open, and what prevents compiling it. */
#include "cli/cli.h"

#include <string.h>

/* What inspection adds to the description of the file. */
struct inspection {
    struct ul_compile *compile;
    const struct ul_onnx_model *model;
    const struct ul_type *types;  /* inferred types of the outputs; NULL when they are not known */
    const struct ul_block *block; /* known with the types: has outputs for overwritten values too */
    const char *refusal; /* by shape inference: why the model cannot be compiled, or NULL */
};

static void put_dims(struct ul_text *text, const struct ul_model_port *port)
{
    if (port->rank == UL_RANK_UNKNOWN) {
        ul_text_put(text, "[shape unknown]");
        return;
    }
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < port->rank; i++) {
        const struct ul_model_dim *dim = &port->dims[i];
        ul_text_put(text, i == 0 ? "" : ",");
        if (dim->size >= 0)
            ul_text_printf(text, "%lld", (long long)dim->size);
        else if (dim->symbol != NULL)
            ul_text_quote(text, dim->symbol, strlen(dim->symbol));
        else
            ul_text_put(text, "?");
    }
    ul_text_put(text, "]");
}

static void put_port(struct ul_text *text, const struct ul_model_port *port,
                     const struct ul_type *type)
{
    ul_text_put(text, "  ");
    ul_text_quote(text, port->name, strlen(port->name));
    if (port->dtype == UL_DTYPE_NONE && strcmp(port->kind, "tensor") == 0) {
        /* an output of --output, which the file does not declare */
    } else if (strcmp(port->kind, "tensor") == 0) {
        ul_text_printf(text, " %s", ul_dtype_get(port->dtype)->name);
        put_dims(text, port);
    } else {
        ul_text_printf(text, " %s", port->kind);
    }
    if (port->is_weight)
        ul_text_put(text, ", fixed by --const");
    if (port->has_default)
        ul_text_put(text, ", with a default");
    if (type != NULL) {
        ul_text_put(text, " = ");
        ul_type_print(text, type);
    }
    ul_text_put(text, "\n");
}

static uint32_t count_added(const struct inspection *inspection)
{
    return inspection->types == NULL
               ? 0
               : inspection->block->output_count - inspection->model->output_count;
}

static const char *output_name(const struct inspection *inspection, uint32_t output)
{
    return inspection->compile->graph.values[inspection->block->outputs[output]].name;
}

static void put_ports(struct ul_text *text, const struct inspection *inspection)
{
    const struct ul_onnx_model *model = inspection->model;
    ul_text_printf(text, "inputs: %u\n", (unsigned)model->input_count);
    for (uint32_t i = 0; i < model->input_count; i++)
        put_port(text, &model->inputs[i], NULL);
    if (model->default_count > 0)
        ul_text_printf(text, "constants by their default, inputs with --keep-defaults: %u\n",
                       (unsigned)model->default_count);
    for (uint32_t i = 0; i < model->default_count; i++)
        put_port(text, &model->defaults[i], NULL);
    ul_text_printf(text, "outputs: %u\n", (unsigned)model->output_count);
    for (uint32_t i = 0; i < model->output_count; i++)
        put_port(text, &model->outputs[i],
                 inspection->types == NULL ? NULL : &inspection->types[i]);
    if (count_added(inspection) > 0)
        ul_text_printf(text, "outputs for what nodes overwrite: %u\n", count_added(inspection));
    for (uint32_t i = 0; i < count_added(inspection); i++) {
        uint32_t output = model->output_count + i;
        ul_text_printf(text, "  %s ", ul_quote(text->arena, output_name(inspection, output)));
        ul_type_print(text, &inspection->types[output]);
        ul_text_put(text, "\n");
    }
}

/* Lists dimensions that are computed from others. */
static void put_dimensions(struct ul_text *text, const struct ul_onnx_model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->dimension_count; i++)
        count += model->dimensions[i].name_count > 0;
    if (count == 0)
        return;
    ul_text_printf(text, "dimensions computed of others: %u\n", (unsigned)count);
    for (uint32_t i = 0; i < model->dimension_count; i++) {
        const struct ul_model_dimension *dimension = &model->dimensions[i];
        if (dimension->name_count == 0)
            continue;
        ul_text_printf(text, "  %s of", ul_quote(text->arena, dimension->name));
        for (uint32_t k = 0; k < dimension->name_count; k++)
            ul_text_printf(text, "%s %s", k == 0 ? "" : ",",
                           ul_quote(text->arena, dimension->names[k]));
        if (dimension->size >= 0)
            ul_text_printf(text, " = %lld", (long long)dimension->size);
        ul_text_put(text, "\n");
    }
}

static const struct ul_model_problem *find_problem(const struct ul_onnx_model *model,
                                                   const struct ul_model_operator *row)
{
    for (uint32_t i = 0; i < model->problem_count; i++) {
        if (!model->problems[i].is_unsized && strcmp(model->problems[i].op, row->name) == 0 &&
            strcmp(model->problems[i].domain, row->domain) == 0)
            return &model->problems[i];
    }
    return NULL;
}

static uint64_t count_nodes(const struct ul_onnx_model *model)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < model->operator_count; i++)
        count += model->operators[i].node_count;
    return count;
}

static void put_quoted_inside(struct ul_text *text, const char *string)
{
    struct ul_text quoted;
    ul_text_init(&quoted, text->arena);
    ul_text_quote(&quoted, string, strlen(string));
    ul_text_put_bytes(text, quoted.data + 1, quoted.length - 2);
}

static void put_operators(struct ul_text *text, const struct ul_onnx_model *model)
{
    ul_text_printf(text, "operators: %u, nodes: %llu\n", (unsigned)model->operator_count,
                   (unsigned long long)count_nodes(model));
    for (uint32_t i = 0; i < model->operator_count; i++) {
        const struct ul_model_operator *row = &model->operators[i];
        ul_text_printf(text, "  %6u  ", (unsigned)row->node_count);
        if (row->domain[0] != '\0') {
            put_quoted_inside(text, row->domain);
            ul_text_put(text, "::");
        }
        put_quoted_inside(text, row->name);
        if (row->is_function)
            ul_text_put(text, " (a function of the model)");
        if (find_problem(model, row) != NULL)
            ul_text_put(text, " (not supported, see below)");
        ul_text_put(text, "\n");
    }
}

/* Counts problems that disappear once dimensions have sizes, or the others. */
static uint32_t count_problems(const struct ul_onnx_model *model, bool are_unsized)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->problem_count; i++)
        count += model->problems[i].is_unsized == are_unsized;
    return count;
}

static void put_problems_of(struct ul_text *text, const struct ul_onnx_model *model,
                            bool are_unsized)
{
    for (uint32_t i = 0; i < model->problem_count; i++) {
        const struct ul_model_problem *problem = &model->problems[i];
        if (problem->is_unsized != are_unsized)
            continue;
        ul_text_put(text, "  ");
        put_quoted_inside(text, problem->op);
        ul_text_printf(text, " (%u, first at %s): %s\n", (unsigned)problem->node_count,
                       problem->node, problem->reason);
    }
}

static void put_problems(struct ul_text *text, const struct inspection *inspection)
{
    const struct ul_onnx_model *model = inspection->model;
    if (count_problems(model, true) > 0)
        ul_text_put(text, "not known yet, while dimensions have no size:\n");
    put_problems_of(text, model, true);
    if (count_problems(model, false) == 0 && inspection->refusal == NULL)
        return;
    ul_text_put(text, "not supported:\n");
    put_problems_of(text, model, false);
    if (inspection->refusal != NULL)
        ul_text_printf(text, "  %s\n", inspection->refusal);
}

static void put_text(struct ul_text *text, const struct inspection *inspection)
{
    const struct ul_onnx_model *model = inspection->model;
    ul_text_put(text, "producer: ");
    ul_text_quote(text, model->producer_name, strlen(model->producer_name));
    ul_text_put(text, " ");
    ul_text_quote(text, model->producer_version, strlen(model->producer_version));
    ul_text_printf(text, "\nIR version: %lld\noperator sets:", (long long)model->ir_version);
    for (uint32_t i = 0; i < model->opset_count; i++) {
        const struct ul_model_opset *set = &model->opsets[i];
        ul_text_put(text, i == 0 ? " " : ", ");
        put_quoted_inside(text, set->domain[0] == '\0' ? "ai.onnx" : set->domain);
        ul_text_printf(text, " %lld", (long long)set->version);
    }
    ul_text_printf(text, "\nsha256: %s\nweights: %u, %s\n", model->sha256,
                   (unsigned)model->weight_count, ul_size_exact(text->arena, model->weight_bytes));
    put_ports(text, inspection);
    put_dimensions(text, model);
    put_operators(text, model);
    put_problems(text, inspection);
    if (model->has_open_dims) {
        /* The frontend's message lists them with the flags that close them. */
        const char *list = strchr(inspection->compile->diag.text, '\n');
        ul_text_printf(text, "to compile, every dimension needs a size:%s\n",
                       list == NULL ? "" : list);
    }
}

static void json_dims(struct ul_text *text, const struct ul_model_port *port)
{
    if (port->rank == UL_RANK_UNKNOWN) {
        ul_text_put(text, "null");
        return;
    }
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < port->rank; i++) {
        const struct ul_model_dim *dim = &port->dims[i];
        ul_text_put(text, i == 0 ? "" : ", ");
        if (dim->size >= 0)
            ul_text_printf(text, "%lld", (long long)dim->size);
        else if (dim->symbol != NULL)
            ul_text_put_json(text, dim->symbol);
        else
            ul_text_put(text, "null");
    }
    ul_text_put(text, "]");
}

static void json_ports(struct ul_text *text, const char *key, uint32_t count,
                       const struct ul_model_port *ports, const struct ul_type *types)
{
    ul_text_printf(text, ",\n  \"%s\": [", key);
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ");
        ul_text_put_json(text, ports[i].name);
        ul_text_put(text, ", \"kind\": ");
        ul_text_put_json(text, ports[i].kind);
        ul_text_printf(text, ", \"dtype\": \"%s\", \"dims\": ", ul_dtype_get(ports[i].dtype)->name);
        json_dims(text, &ports[i]);
        ul_text_printf(text, ", \"is_constant\": %s", ports[i].is_weight ? "true" : "false");
        if (ports[i].has_default)
            ul_text_put(text, ", \"has_default\": true");
        if (types != NULL) {
            ul_text_put(text, ", \"inferred\": \"");
            ul_type_print(text, &types[i]);
            ul_text_put(text, "\"");
        }
        ul_text_put(text, "}");
    }
    ul_text_put(text, count == 0 ? "]" : "\n  ]");
}

static void json_added(struct ul_text *text, const struct inspection *inspection)
{
    uint32_t count = count_added(inspection);
    ul_text_put(text, inspection->types == NULL ? ",\n  \"added_outputs\": null"
                                                : ",\n  \"added_outputs\": [");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t output = inspection->model->output_count + i;
        ul_text_put(text, i == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ");
        ul_text_put_json(text, output_name(inspection, output));
        ul_text_put(text, ", \"inferred\": \"");
        ul_type_print(text, &inspection->types[output]);
        ul_text_put(text, "\"}");
    }
    if (inspection->types != NULL)
        ul_text_put(text, count == 0 ? "]" : "\n  ]");
}

static void json_dimensions(struct ul_text *text, const struct ul_onnx_model *model)
{
    ul_text_put(text, ",\n  \"dimensions\": [");
    for (uint32_t i = 0; i < model->dimension_count; i++) {
        const struct ul_model_dimension *dimension = &model->dimensions[i];
        ul_text_put(text, i == 0 ? "\n    {\"name\": " : ",\n    {\"name\": ");
        ul_text_put_json(text, dimension->name);
        if (dimension->size >= 0)
            ul_text_printf(text, ", \"size\": %lld, \"of\": [", (long long)dimension->size);
        else
            ul_text_put(text, ", \"size\": null, \"of\": [");
        for (uint32_t k = 0; k < dimension->name_count; k++) {
            ul_text_put(text, k == 0 ? "" : ", ");
            ul_text_put_json(text, dimension->names[k]);
        }
        ul_text_put(text, "]}");
    }
    ul_text_put(text, model->dimension_count == 0 ? "]" : "\n  ]");
}

static void json_operators(struct ul_text *text, const struct ul_onnx_model *model)
{
    ul_text_put(text, ",\n  \"operators\": [");
    for (uint32_t i = 0; i < model->operator_count; i++) {
        const struct ul_model_operator *row = &model->operators[i];
        ul_text_put(text, i == 0 ? "\n    {\"domain\": " : ",\n    {\"domain\": ");
        ul_text_put_json(text, row->domain);
        ul_text_put(text, ", \"name\": ");
        ul_text_put_json(text, row->name);
        ul_text_printf(text,
                       ", \"version\": %lld, \"nodes\": %u, \"is_function\": %s, "
                       "\"is_supported\": %s}",
                       (long long)row->version, (unsigned)row->node_count,
                       row->is_function ? "true" : "false",
                       find_problem(model, row) == NULL ? "true" : "false");
    }
    ul_text_put(text, model->operator_count == 0 ? "]" : "\n  ]");
}

static void json_problem(struct ul_text *text, const char *op, const char *domain, uint32_t count,
                         const char *node, const char *reason)
{
    ul_text_put(text, "{\"op\": ");
    ul_text_put_json(text, op);
    ul_text_put(text, ", \"domain\": ");
    ul_text_put_json(text, domain);
    ul_text_printf(text, ", \"nodes\": %u, \"first\": ", (unsigned)count);
    ul_text_put_json(text, node);
    ul_text_put(text, ", \"reason\": ");
    ul_text_put_json(text, reason);
    ul_text_put(text, "}");
}

static void json_problems(struct ul_text *text, const struct inspection *inspection,
                          bool are_unsized)
{
    const struct ul_onnx_model *model = inspection->model;
    uint32_t count = 0;
    ul_text_printf(text, ",\n  \"%s\": [", are_unsized ? "not_known" : "not_supported");
    for (uint32_t i = 0; i < model->problem_count; i++) {
        const struct ul_model_problem *problem = &model->problems[i];
        if (problem->is_unsized != are_unsized)
            continue;
        ul_text_put(text, count++ == 0 ? "\n    " : ",\n    ");
        json_problem(text, problem->op, problem->domain, problem->node_count, problem->node,
                     problem->reason);
    }
    if (inspection->refusal != NULL && !are_unsized) {
        ul_text_put(text, count++ == 0 ? "\n    " : ",\n    ");
        json_problem(text, "", "", 1, "", inspection->refusal);
    }
    ul_text_put(text, count == 0 ? "]" : "\n  ]");
}

static void put_json(struct ul_text *text, const struct inspection *inspection)
{
    const struct ul_onnx_model *model = inspection->model;
    ul_text_printf(text,
                   "{\n  \"format\": \"ullage-inspect\",\n  \"version\": 1,\n"
                   "  \"model_sha256\": \"%s\",\n  \"ir_version\": %lld,\n  \"producer\": ",
                   model->sha256, (long long)model->ir_version);
    ul_text_put_json(text, model->producer_name);
    ul_text_put(text, ",\n  \"producer_version\": ");
    ul_text_put_json(text, model->producer_version);
    ul_text_put(text, ",\n  \"operator_sets\": {");
    for (uint32_t i = 0; i < model->opset_count; i++) {
        ul_text_put(text, i == 0 ? "" : ", ");
        ul_text_put_json(text, model->opsets[i].domain);
        ul_text_printf(text, ": %lld", (long long)model->opsets[i].version);
    }
    ul_text_printf(text, "},\n  \"weights\": %u,\n  \"weight_bytes\": %llu",
                   (unsigned)model->weight_count, (unsigned long long)model->weight_bytes);
    json_ports(text, "inputs", model->input_count, model->inputs, NULL);
    json_ports(text, "defaults", model->default_count, model->defaults, NULL);
    json_ports(text, "outputs", model->output_count, model->outputs, inspection->types);
    json_added(text, inspection);
    json_dimensions(text, model);
    json_operators(text, model);
    json_problems(text, inspection, false);
    json_problems(text, inspection, true);
    ul_text_printf(text, ",\n  \"has_open_dims\": %s\n}\n",
                   model->has_open_dims ? "true" : "false");
}

/* Infers shapes, for the types of outputs and for errors that only inference finds. */
static void infer(struct inspection *inspection, const char *path)
{
    struct ul_compile *compile = inspection->compile;
    struct ul_passes_options options = {.stop_after = "infer"};
    struct ul_diag diag = {0};
    enum ul_status status = ul_passes_run(&compile->graph, &compile->scratch, &options, &diag);
    if (status == UL_INVALID)
        ul_compile_explain_sizes(compile, path, &diag);
    if (status != UL_OK) {
        inspection->refusal = ul_arena_copy_string(&compile->keep, diag.text);
        return;
    }
    const struct ul_block *block = ul_graph_only_root(&compile->graph);
    struct ul_type *types = UL_NEW_ARRAY(&compile->keep, struct ul_type, block->output_count);
    for (uint32_t i = 0; i < block->output_count; i++)
        types[i] = compile->graph.values[block->outputs[i]].type;
    inspection->types = types;
    inspection->block = block;
}

static enum ul_status inspect(struct ul_cli_job *job)
{
    struct ul_compile *compile = &job->compile;
    const char *json = job->options.json;
    struct inspection inspection = {.compile = compile, .model = &compile->model};
    struct ul_text text;
    if (job->files.count != 1)
        return ul_diag_set(&compile->diag, UL_USAGE, "give one model: ullage inspect MODEL.onnx");
    if (compile->options.train)
        return json == NULL
                   ? ul_cli_inspect_training(job)
                   : ul_diag_set(&compile->diag, UL_USAGE, "--json is for inspect without --train");
    enum ul_status status = ul_compile_load_settled(compile, job->files.items[0]);
    bool described =
        status == UL_OK || compile->model.has_open_dims || compile->model.problem_count > 0;
    if (!described)
        return status;
    if (status == UL_OK)
        infer(&inspection, job->files.items[0]);
    ul_text_init(&text, &compile->keep);
    if (json != NULL) {
        struct ul_diag diag = {0};
        put_json(&text, &inspection);
        if (ul_file_write(json, text.data, text.length, &diag) != UL_OK) {
            compile->diag = diag;
            return diag.status;
        }
    } else {
        put_text(&text, &inspection);
        ul_cli_print(&text);
        ul_cli_put_notice(job);
    }
    compile->diag = (struct ul_diag){0};
    if (count_problems(&compile->model, false) > 0 || inspection.refusal != NULL)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED, "%s: cannot be compiled as it is",
                           job->files.items[0]);
    return UL_OK;
}

static const struct ul_cli_example examples[] = {
    {"What it holds, and what is missing", "ullage inspect model.onnx"},
    {"What would be trained", "ullage inspect net.onnx --dim N=32 --train --train-mode"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_inspect = {
    .name = "inspect",
    .arguments = "MODEL.onnx [options]",
    .summary = "Says what a model holds, which dimensions are open, and what is unsupported.",
    .details = "With --train it lists the tensors that would be trained, and those that would not.",
    .group = "models",
    .endings = "onnx",
    .examples = examples,
    .bit = UL_IN_INSPECT,
    .run = inspect};
