/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the importer, the shape rules and the passes: any bytes either give a graph that verifies
 * and goes through all passes, or an error with a message. */
#include "frontend/frontend.h"
#include "passes/passes.h"

#include "fuzz.h"

/* Every open dimension gets a size, so that shape inference has something to work on: the first
 * load lists them. */
enum { MAX_INPUTS = 32, OPEN_DIM = 2 };

static void close_shapes(const struct ul_onnx_model *model, struct ul_frontend_shape *shapes,
                         struct ul_frontend_options *options)
{
    for (uint32_t i = 0; i < model->input_count && i < MAX_INPUTS; i++) {
        const struct ul_model_port *port = &model->inputs[i];
        if (port->rank > UL_LIMIT_RANK)
            continue;
        struct ul_frontend_shape *shape = &shapes[options->shape_count++];
        shape->input = port->name;
        shape->rank = port->rank;
        for (uint32_t d = 0; d < port->rank; d++)
            shape->dims[d] = port->dims[d].size < 0 ? OPEN_DIM : port->dims[d].size;
    }
    options->shapes = shapes;
}

/* The passes take what the frontend accepted: they finish, or say why not. */
static void run_passes(struct ul_graph *graph)
{
    struct ul_arena scratch;
    struct ul_diag diag = {0};
    struct ul_passes_options options = {0};
    ul_arena_init(&scratch);
    graph->check_text = true;
    enum ul_status status = ul_passes_run(graph, &scratch, &options, &diag);
    fuzz_require(status == diag.status, "the passes failed without a message");
    fuzz_require(status != UL_INTERNAL, diag.text);
    ul_arena_done(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_onnx_model model;
    struct ul_diag diag = {0};
    struct ul_frontend_shape shapes[MAX_INPUTS] = {{0}};
    struct ul_frontend_options options = {0};
    ul_arena_init(&arena);
    enum ul_status status =
        ul_frontend_load_bytes(&graph, &arena, data, size, NULL, &options, &model, &diag);
    fuzz_require(status == diag.status, "status and message differ");
    if (status == UL_USAGE) {
        diag = (struct ul_diag){0};
        close_shapes(&model, shapes, &options);
        ul_model_done(&model);
        status = ul_frontend_load_bytes(&graph, &arena, data, size, NULL, &options, &model, &diag);
    }
    if (status == UL_OK) {
        fuzz_require(ul_graph_verify(&graph, &diag) == UL_OK, diag.text);
        run_passes(&graph);
    }
    ul_model_done(&model);
    ul_arena_done(&arena);
    return 0;
}
