/* SPDX-License-Identifier: Apache-2.0 */
/* A step whose operands are known, computed by the interpreter of kernels as its kernel would. */
#include "ir/kernel_build.h"
#include "ir/lower_group.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

unsigned char *ul_fold_bytes_of(const struct ul_graph *graph, struct ul_arena *arena,
                                unsigned char **bytes, ul_value_id base)
{
    const struct ul_value *info = &graph->values[base];
    UL_ASSERT(base < graph->value_count && info->view.base == base);
    const struct ul_tensor *tensor = info->tensor;
    if (bytes[base] == NULL && tensor != NULL && tensor->data != NULL &&
        tensor->type.dtype == ul_value_storage(graph, base)) {
        bytes[base] = (unsigned char *)(uintptr_t)tensor->data;
    } else if (bytes[base] == NULL) {
        bytes[base] = ul_arena_alloc(arena, ul_value_bytes(graph, base));
        if (tensor != NULL)
            ul_tensor_read_as(tensor, ul_value_storage(graph, base), 0,
                              ul_type_elements(&info->type), bytes[base]);
    }
    return bytes[base];
}

bool ul_fold_step(const struct ul_graph *graph, const struct ul_fold_step *step,
                  uint64_t *work_left, struct ul_arena *arena, unsigned char **bytes)
{
    struct ul_arena scratch;
    struct ul_lower_result result;
    bool reported = false;
    UL_ASSERT(step->count > 0 && !ul_node_is_view(graph, step->nodes[0]));
    ul_arena_init(&scratch);
    ul_lower_group(graph, step->nodes, step->count, step->escapes, step->traits, &scratch, &result);
    const struct ul_kernel *kernel = result.kernel;
    unsigned char **buffers = UL_NEW_ARRAY(&scratch, unsigned char *, kernel->buffer_count);
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        if (kernel->buffers[b].value != UL_NONE)
            buffers[b] = ul_fold_bytes_of(graph, arena, bytes, kernel->buffers[b].value);
    }
    bool done = ul_kernel_eval(kernel, buffers, work_left, &scratch, &reported);
    ul_arena_done(&scratch);
    return done && !reported;
}
