/* SPDX-License-Identifier: Apache-2.0 */
/* Data for calibrating a network: a .npz with an array for each input, by name, whose first
 * dimension is that of the input or a multiple of it; the multiple is the number of runs. */
#include "compile/quantize/quantize_graph.h"

#include <math.h>
#include <string.h>

static ul_value_id find_input(const struct ul_graph *graph, const char *name, uint32_t *position)
{
    const struct ul_block *root = ul_graph_only_root(graph);
    for (uint32_t i = 0; i < root->input_count; i++) {
        if (strcmp(graph->values[root->inputs[i]].name, name) == 0) {
            *position = i;
            return root->inputs[i];
        }
    }
    return UL_NONE;
}

static enum ul_status check_finite(const struct ul_tensor *tensor, const char *shown,
                                   struct ul_diag *diag)
{
    uint64_t count = ul_type_elements(&tensor->type);
    if (!ul_dtype_get(tensor->type.dtype)->is_float)
        return UL_OK;
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(ul_tensor_get_float(tensor, i)))
            return ul_diag_set(diag, UL_INVALID,
                               "%s: element %llu is infinite or no number; leave such data out",
                               shown, (unsigned long long)i);
    }
    return UL_OK;
}

/* For how many runs an array is; 0: it does not fit. */
static uint64_t run_count(const struct ul_type *want, const struct ul_type *got)
{
    if (want->dtype != got->dtype || want->rank != got->rank)
        return 0;
    for (uint32_t d = 1; d < want->rank; d++) {
        if (want->dims[d] != got->dims[d])
            return 0;
    }
    if (want->rank == 0)
        return 1;
    return want->dims[0] > 0 && got->dims[0] % want->dims[0] == 0
               ? (uint64_t)(got->dims[0] / want->dims[0])
               : 0;
}

static enum ul_status take(struct ul_arena *arena, const struct ul_value *value, const char *shown,
                           const struct ul_tensor *tensor, struct ul_quantize_data *data,
                           struct ul_diag *diag)
{
    uint64_t runs = run_count(&value->type, &tensor->type);
    if (runs == 0)
        return ul_diag_set(diag, UL_INVALID,
                           "%s: is %s, and the input is %s: the types must agree, and all "
                           "dimensions but the first, which may be a multiple",
                           shown, ul_type_text(arena, &tensor->type),
                           ul_type_text(arena, &value->type));
    if (value->type.rank > 0 && data->sample_count != 0 && data->sample_count != runs)
        return ul_diag_set(diag, UL_INVALID,
                           "%s: holds data for %llu runs, and the arrays before it for %llu", shown,
                           (unsigned long long)runs, (unsigned long long)data->sample_count);
    if (value->type.rank > 0)
        data->sample_count = runs;
    return check_finite(tensor, shown, diag);
}

static enum ul_status read_entries(struct ul_arena *arena, const struct ul_graph *graph,
                                   const struct ul_npz_entry *entries, uint32_t count,
                                   const char *path, struct ul_quantize_data *data,
                                   struct ul_diag *diag)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *shown =
            ul_arena_printf(arena, "%s, %s", path, ul_quote(arena, entries[i].name));
        uint32_t position = 0;
        ul_value_id input = find_input(graph, entries[i].name, &position);
        if (input == UL_NONE)
            return ul_diag_set(diag, UL_INVALID, "%s: the model has no such input", shown);
        if (data->tensors[position] != NULL)
            return ul_diag_set(diag, UL_INVALID, "%s: is there twice", shown);
        UL_TRY(ul_npz_read(arena, &entries[i], path, &data->tensors[position], diag));
        UL_TRY(take(arena, &graph->values[input], shown, data->tensors[position], data, diag));
    }
    return UL_OK;
}

enum ul_status ul_quantize_read(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_file *file, const char *path,
                                struct ul_quantize_data *data, struct ul_diag *diag)
{
    const struct ul_block *root = ul_graph_only_root(graph);
    const struct ul_npz_entry *entries = NULL;
    uint32_t count = 0;
    *data = (struct ul_quantize_data){.input_count = root->input_count};
    data->tensors = UL_NEW_ARRAY(arena, const struct ul_tensor *, root->input_count);
    UL_TRY(ul_npz_list(arena, file, path, &entries, &count, diag));
    UL_TRY(read_entries(arena, graph, entries, count, path, data, diag));
    for (uint32_t i = 0; i < root->input_count; i++) {
        if (data->tensors[i] == NULL)
            return ul_diag_set(diag, UL_INVALID, "%s: has no array for the input %s", path,
                               ul_quote(arena, graph->values[root->inputs[i]].name));
    }
    if (data->sample_count == 0)
        data->sample_count = 1;
    return UL_OK;
}

/* numpy's names for the types of inputs. */
static const char *npy_code(enum ul_dtype dtype)
{
    static const char *const codes[UL_DTYPE_COUNT] = {
        [UL_F32] = "<f4", [UL_F64] = "<f8",  [UL_F16] = "<f2", [UL_U8] = "|u1",  [UL_I8] = "|i1",
        [UL_U16] = "<u2", [UL_I16] = "<i2",  [UL_U32] = "<u4", [UL_I32] = "<i4", [UL_U64] = "<u8",
        [UL_I64] = "<i8", [UL_BOOL] = "|b1", [UL_BF16] = "<V2"};
    UL_ASSERT(codes[dtype] != NULL); /* the input was read from such a file */
    return codes[dtype];
}

enum ul_status ul_quantize_write(struct ul_arena *arena, const struct ul_graph *graph,
                                 const struct ul_quantize_data *data, uint32_t input,
                                 uint64_t sample, const char *path, struct ul_diag *diag)
{
    enum { PREFIX_BYTES = 10, ALIGN_BYTES = 64 };
    const struct ul_type *type = &graph->values[ul_graph_only_root(graph)->inputs[input]].type;
    uint64_t element_count = ul_type_elements(type), size_bytes = ul_type_bytes(type);
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_text_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                   npy_code(type->dtype));
    for (uint32_t d = 0; d < type->rank; d++)
        ul_text_printf(&text, "%lld,", (long long)type->dims[d]);
    ul_text_put(&text, "), }");
    while ((PREFIX_BYTES + text.length + 1) % ALIGN_BYTES != 0)
        ul_text_put(&text, " ");
    ul_text_put(&text, "\n");
    struct ul_file_writer writer;
    UL_TRY(ul_file_begin(&writer, path, diag));
    fwrite("\x93NUMPY\x01\x00", 1, 8, writer.stream);
    fputc((int)(text.length & 255), writer.stream);
    fputc((int)(text.length >> 8), writer.stream);
    fwrite(text.data, 1, text.length, writer.stream);
    unsigned char *bytes = ul_arena_alloc(arena, size_bytes);
    ul_tensor_read(data->tensors[input], type->rank == 0 ? 0 : sample * element_count,
                   element_count, bytes);
    fwrite(bytes, 1, (size_t)size_bytes, writer.stream);
    return ul_file_commit(&writer, diag);
}
