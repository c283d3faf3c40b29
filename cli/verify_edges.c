/* SPDX-License-Identifier: Apache-2.0 */
/* Files of recorded floats for a program whose inputs and outputs are integers (--no-float). */
#include "cli/cli.h"

#include <math.h>
#include <string.h>

/* TensorProto's fields, as keys of protobuf's wire format. */
enum { DIMS = 1 << 3, DATA_TYPE = 2 << 3, NAME = (8 << 3) | 2, RAW_DATA = (9 << 3) | 2 };

static void put_varint(FILE *stream, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        (void)fputc((int)(value & 0x7F) | 0x80, stream);
    (void)fputc((int)value, stream);
}

static void put_field(FILE *stream, int key, uint64_t value)
{
    put_varint(stream, (uint64_t)key);
    put_varint(stream, value);
}

/* As QuantizeLinear does, in f32: ties to even, and what is outside at the end of the range. */
static int64_t quantize(double number, const struct ul_cli_edge *edge)
{
    int64_t low = 0, high = 0;
    bool is_ranged = ul_dtype_range(edge->dtype, &low, &high);
    UL_ASSERT(is_ranged && edge->scale > 0);
    double steps = nearbyint((double)((float)number / (float)edge->scale)) + (double)edge->zero;
    return (int64_t)fmax((double)low, fmin((double)high, steps));
}

enum ul_status ul_cli_quantize_file(const char *source, const char *target,
                                    const struct ul_cli_edge *edge, struct ul_diag *diag)
{
    struct ul_arena arena;
    struct ul_file_writer writer;
    const struct ul_tensor *tensor;
    const char *name = NULL;
    ul_arena_init(&arena);
    enum ul_status status = ul_frontend_read_tensor(&arena, source, &tensor, &name, diag);
    if (status == UL_OK && !ul_dtype_get(tensor->type.dtype)->is_float)
        status = ul_diag_set(diag, UL_INVALID, "%s: is %s, and the model has floats there", source,
                             ul_dtype_get(tensor->type.dtype)->name);
    if (status == UL_OK)
        status = ul_file_begin(&writer, target, diag);
    if (status == UL_OK) {
        struct ul_type type = tensor->type;
        uint64_t count = ul_type_elements(&type);
        type.dtype = edge->dtype;
        unsigned char *bytes = ul_arena_alloc(&arena, ul_type_bytes(&type));
        uint32_t size = ul_dtype_get(type.dtype)->size_bytes;
        for (uint64_t i = 0; i < count; i++)
            ul_element_put_int(bytes + i * size, type.dtype,
                               quantize(ul_tensor_get_float(tensor, i), edge));
        for (uint32_t d = 0; d < type.rank; d++)
            put_field(writer.stream, DIMS, (uint64_t)type.dims[d]);
        put_field(writer.stream, DATA_TYPE, (uint64_t)type.dtype);
        name = name == NULL ? "" : name;
        put_field(writer.stream, NAME, strlen(name));
        (void)fputs(name, writer.stream);
        put_field(writer.stream, RAW_DATA, ul_type_bytes(&type));
        (void)fwrite(bytes, 1, (size_t)ul_type_bytes(&type), writer.stream);
        status = ul_file_commit(&writer, diag);
    }
    ul_arena_done(&arena);
    return status;
}
