/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a model and prints what the frontend makes of it: the graph's text, or status and message.
 *
 * usage: frontend_dump MODEL.onnx [--dim NAME=N]... [--shape INPUT=1,2]... [--const
 * INPUT=FILE.pb]...
 *        [--output NAME]...
 */
#include "frontend/frontend.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 16 };

struct given {
    struct ul_frontend_dim dims[MAX_OPTIONS];
    struct ul_frontend_shape shapes[MAX_OPTIONS];
    struct ul_frontend_const consts[MAX_OPTIONS];
    const char *outputs[MAX_OPTIONS];
    struct ul_frontend_options options;
};

static void add_shape(struct ul_frontend_shape *shape, const char *name, const char *dims)
{
    char *at = (char *)(uintptr_t)dims;
    shape->input = name;
    while (*at != '\0' && shape->rank < UL_LIMIT_RANK) {
        shape->dims[shape->rank++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
}

/* One option and its value; false when it is unknown or its file cannot be read. */
static bool add_option(struct given *given, struct ul_arena *arena, const char *flag,
                       const char *value)
{
    struct ul_frontend_options *options = &given->options;
    char *name = ul_arena_copy_string(arena, value);
    char *equals = strrchr(name, '=');
    if (strcmp(flag, "--output") == 0 && options->output_count < MAX_OPTIONS) {
        given->outputs[options->output_count++] = name;
        return true;
    }
    if (equals == NULL)
        return false;
    *equals = '\0';
    if (strcmp(flag, "--dim") == 0 && options->dim_count < MAX_OPTIONS) {
        given->dims[options->dim_count].name = name;
        given->dims[options->dim_count++].size = strtoll(equals + 1, NULL, 10);
        return true;
    }
    if (strcmp(flag, "--shape") == 0 && options->shape_count < MAX_OPTIONS) {
        add_shape(&given->shapes[options->shape_count++], name, equals + 1);
        return true;
    }
    if (strcmp(flag, "--const") == 0 && options->const_count < MAX_OPTIONS) {
        struct ul_diag diag = {0};
        struct ul_frontend_const *constant = &given->consts[options->const_count++];
        constant->input = name;
        if (ul_frontend_read_tensor(arena, equals + 1, &constant->tensor, NULL, &diag) == UL_OK)
            return true;
        fprintf(stderr, "%s\n", diag.text);
    }
    return false;
}

int main(int argc, char **argv)
{
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_onnx_model model;
    struct ul_diag diag = {0};
    struct ul_text text;
    struct given given = {0};
    given.options.dims = given.dims;
    given.options.shapes = given.shapes;
    given.options.consts = given.consts;
    given.options.outputs = given.outputs;
    ul_arena_init(&arena);
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!add_option(&given, &arena, argv[i], argv[i + 1]))
            argc = 0;
    }
    if (argc < 2) {
        fputs("usage: frontend_dump MODEL.onnx [--dim NAME=N] [--shape INPUT=1,2] "
              "[--const INPUT=FILE.pb] [--output NAME]\n",
              stderr);
        return UL_USAGE;
    }
    ul_text_init(&text, &arena);
    enum ul_status status =
        ul_frontend_load(&graph, &arena, argv[1], &given.options, &model, &diag);
    if (status == UL_OK && ul_graph_verify(&graph, &diag) != UL_OK)
        status = UL_INTERNAL;
    if (status == UL_OK)
        ul_graph_print(&text, &graph);
    else
        ul_text_printf(&text, "status %d\n%s\n", (int)status, diag.text);
    fputs(text.data, stdout);
    ul_model_done(&model);
    ul_arena_done(&arena);
    return status == UL_INTERNAL ? UL_INTERNAL : UL_OK;
}
