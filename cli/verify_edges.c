/* SPDX-License-Identifier: Apache-2.0 */
/* Files of recorded floats, for a program whose inputs and outputs are integers (--no-float). */
#include "cli/cli.h"

#include <math.h>

/* Quantizes as QuantizeLinear does, in f32: ties to even, values outside the range to its ends. */
static int64_t quantize(double number, const struct ul_cli_edge *edge)
{
    int64_t low = 0, high = 0;
    bool is_ranged = ul_dtype_range(edge->dtype, &low, &high);
    UL_ASSERT(is_ranged && edge->scale > 0);
    double steps = nearbyint((double)((float)number / (float)edge->scale)) + (double)edge->zero;
    return (int64_t)fmax((double)low, fmin((double)high, steps));
}

static const struct ul_tensor *quantize_all(struct ul_arena *arena, const struct ul_tensor *tensor,
                                            const struct ul_cli_edge *edge)
{
    struct ul_type type = tensor->type;
    uint64_t count = ul_type_elements(&type);
    type.dtype = edge->dtype;
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(&type));
    uint32_t size = ul_dtype_get(type.dtype)->size_bytes;
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_int(bytes + i * size, type.dtype,
                           quantize(ul_tensor_get_float(tensor, i), edge));
    return ul_tensor_new(arena, &type, bytes);
}

enum ul_status ul_cli_write_edge(const struct ul_tensor *tensor, const char *source,
                                 const char *name, const struct ul_cli_edge *edge,
                                 const char *target, struct ul_diag *diag)
{
    if (edge->scale == 0)
        return ul_frontend_write_tensor(tensor, name, target, diag);
    if (!ul_dtype_get(tensor->type.dtype)->is_float)
        return ul_diag_set(diag, UL_INVALID, "%s: is %s, and the model has floats there", source,
                           ul_dtype_get(tensor->type.dtype)->name);
    struct ul_arena arena;
    ul_arena_init(&arena);
    enum ul_status status =
        ul_frontend_write_tensor(quantize_all(&arena, tensor, edge), name, target, diag);
    ul_arena_done(&arena);
    return status;
}
