/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers for which weights of a few bits stand, as --quantize finds them in a program that
 * trains: factors were trained with these. */
#include "compile/compile_internal.h"

#include "passes/passes.h"

#include <string.h>

/* One option on each line, as in a checkpoint. */
static struct ul_texts split_lines(struct ul_compile *compile, const char *lines)
{
    struct ul_texts texts = {.count = 0};
    const char **items = UL_NEW_ARRAY(&compile->keep, const char *, strlen(lines) + 1);
    for (const char *at = lines; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        items[texts.count++] = ul_arena_printf(&compile->keep, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
    }
    texts.items = items;
    return texts;
}

/* code * scale for each element; blocks along an axis have one scale. */
static const struct ul_tensor *dequantize(struct ul_compile *compile, const struct ul_node *node)
{
    const struct ul_graph *graph = &compile->graph;
    const struct ul_tensor *codes = graph->values[node->inputs[0]].tensor;
    const struct ul_tensor *scales = graph->values[node->inputs[1]].tensor;
    const struct ul_type type = ul_type_make(UL_F32, 2, codes->type.dims);
    int64_t axis = ul_node_get_int(node, "axis", 0), block = ul_node_get_int(node, "block_size", 0);
    unsigned char *bytes = ul_arena_alloc(&compile->keep, ul_type_bytes(&type));
    UL_ASSERT(codes->type.rank == 2 && scales->type.rank == 2 && block > 0);
    for (int64_t i = 0; i < type.dims[0]; i++)
        for (int64_t j = 0; j < type.dims[1]; j++) {
            int64_t row = axis == 0 ? i / block : i, column = axis == 0 ? j : j / block;
            uint64_t at = (uint64_t)(i * type.dims[1] + j);
            float scale =
                (float)ul_tensor_get_float(scales, (uint64_t)(row * scales->type.dims[1] + column));
            float number = (float)ul_tensor_get_int(codes, at) * scale;
            memcpy(bytes + at * sizeof number, &number, sizeof number);
        }
    return ul_tensor_new(&compile->keep, &type, bytes);
}

enum ul_status ul_compile_dequantize(struct ul_compile *compile, const char *model_path,
                                     const char *lines, struct ul_compile_dequantized **list,
                                     uint32_t *count)
{
    struct ul_texts texts = split_lines(compile, lines);
    struct ul_passes_options options = {.only = "quantize",
                                        .training = &compile->training,
                                        .quantize = texts.items,
                                        .quantize_count = texts.count};
    compile->options.train = true; /* initializers are marked */
    UL_TRY(ul_compile_load(compile, model_path));
    UL_TRY(ul_passes_run(&compile->graph, &compile->scratch, &options, &compile->diag));
    const struct ul_graph *graph = &compile->graph;
    *list = UL_NEW_ARRAY(&compile->keep, struct ul_compile_dequantized, graph->node_count);
    *count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (ul_node_get_int(node, "any_scale", 0) == 0) /* made by pass quantize */
            continue;
        struct ul_compile_dequantized *made = &(*list)[(*count)++];
        made->name = graph->values[node->inputs[0]].name;
        made->tensor = dequantize(compile, node);
    }
    return UL_OK;
}
