/* SPDX-License-Identifier: Apache-2.0 */
#include "case.h"
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/lower_group.h"
#include "ir/text.h"

#include <string.h>

static void put_input(struct ul_text *head, struct ul_text *list, const char *input, size_t length,
                      uint32_t *value)
{
    while (length > 0 && *input == ' ') {
        input++;
        length--;
    }
    ul_text_put(list, list->length == 0 ? "" : ", ");
    if (length == 1 && *input == '-') {
        ul_text_put(list, "-");
        return;
    }
    bool constant = memchr(input, '=', length) != NULL;
    ul_text_printf(head, "%s %%%u \"v%u\" ", constant ? "weight" : "input", (unsigned)*value,
                   (unsigned)*value);
    ul_text_put_bytes(head, input, length);
    ul_text_put(head, "\n");
    ul_text_printf(list, "%%%u", (unsigned)*value);
    (*value)++;
}

void case_parse(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs)
{
    struct ul_diag diag = {.status = UL_OK};
    struct ul_text text;
    struct ul_text list;
    uint32_t value = 0;
    ul_text_init(&text, arena);
    ul_text_init(&list, arena);
    ul_text_put(&text, "graph \"\"\n");
    for (const char *at = inputs; *at != '\0';) {
        size_t length = strcspn(at, ";");
        put_input(&text, &list, at, length, &value);
        at += length + (at[length] == ';');
    }
    for (uint32_t i = 0; i < outputs; i++)
        ul_text_printf(&text, "%s%%%u \"y%u\" none[*]", i == 0 ? "" : ", ", (unsigned)(value + i),
                       (unsigned)i);
    ul_text_printf(&text, " = %s n0 \"node\" (%s)", op, list.data);
    if (attributes != NULL)
        ul_text_printf(&text, " {%s}", attributes);
    ul_text_printf(&text, "\nreturn %%%u\n", (unsigned)value);
    if (ul_graph_parse(graph, arena, text.data, NULL, &diag) != UL_OK)
        fail_msg("%s in\n%s", diag.text, text.data);
    graph->check_text = true;
}

void case_graph(struct ul_graph *graph, struct ul_arena *arena, const char *op, const char *inputs,
                const char *attributes, uint32_t outputs)
{
    struct ul_diag diag = {.status = UL_OK};
    case_parse(graph, arena, op, inputs, attributes, outputs);
    if (ul_node_infer(graph, 0, arena, &diag) != UL_OK)
        fail_msg("%s: %s", op, diag.text);
}

/* A copy of a constant's elements, or room for a result's. */
static unsigned char *place_of(const struct ul_graph *graph, ul_value_id value,
                               struct ul_arena *arena)
{
    const struct ul_value *info = &graph->values[value];
    unsigned char *place = ul_arena_alloc(arena, ul_type_bytes(&info->type));
    if (info->tensor != NULL)
        ul_tensor_read(info->tensor, 0, ul_type_elements(&info->type), place);
    return place;
}

static unsigned char **buffers_of(const struct ul_graph *graph, const struct ul_kernel *kernel,
                                  unsigned char **places, struct ul_arena *arena)
{
    unsigned char **buffers = UL_NEW_ARRAY(arena, unsigned char *, kernel->buffer_count);
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        ul_value_id value = kernel->buffers[b].value;
        if (value == UL_NONE)
            continue;
        if (places[value] == NULL)
            places[value] = place_of(graph, value, arena);
        buffers[b] = places[value];
    }
    return buffers;
}

/* Iterations one after the other give the bits that they gave side by side. */
static void run_one_by_one(const struct ul_graph *graph, struct ul_kernel *kernel,
                           unsigned char *const *wanted, struct ul_arena *arena)
{
    bool reported = false;
    uint64_t work = (uint64_t)1 << 32;
    unsigned char **places = UL_NEW_ARRAY(arena, unsigned char *, graph->value_count);
    unsigned char **buffers = buffers_of(graph, kernel, places, arena);
    for (uint32_t i = 0; i < kernel->stmt_count; i++)
        kernel->stmts[i].flags &= ~(uint32_t)(UL_FOR_PARALLEL | UL_FOR_ALONE);
    assert_true(ul_kernel_eval(kernel, buffers, &work, arena, &reported));
    for (ul_value_id value = 0; value < graph->value_count; value++) {
        if (places[value] != NULL)
            assert_memory_equal(places[value], wanted[value],
                                ul_type_bytes(&graph->values[value].type));
    }
}

bool case_run(struct ul_graph *graph, struct ul_arena *arena)
{
    const ul_node_id node = 0;
    struct ul_lower_result result;
    unsigned char **places = UL_NEW_ARRAY(arena, unsigned char *, graph->value_count);
    ul_lower_group(graph, &node, 1, NULL, NULL, arena, &result);
    unsigned char **buffers = buffers_of(graph, result.kernel, places, arena);
    bool reported = false;
    uint64_t work = (uint64_t)1 << 32;
    assert_true(ul_kernel_eval(result.kernel, buffers, &work, arena, &reported));
    run_one_by_one(graph, result.kernel, places, arena);
    for (uint32_t i = 0; i < graph->nodes[node].output_count; i++) {
        struct ul_value *value = &graph->values[graph->nodes[node].outputs[i]];
        if (places[graph->nodes[node].outputs[i]] != NULL)
            value->tensor =
                ul_tensor_new(arena, &value->type, places[graph->nodes[node].outputs[i]]);
    }
    return reported;
}
