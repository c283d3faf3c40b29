/* SPDX-License-Identifier: Apache-2.0 */
/* Constants for --const: numpy's .npy (format 1.0 to 3.0, C order) or an ONNX TensorProto. */
#include "compile/files/tensor_file.h"
#include "frontend/frontend.h"

#include <stdlib.h>
#include <string.h>

static enum ul_dtype npy_dtype(const char *code)
{
    static const struct {
        const char *code;
        enum ul_dtype dtype;
    } codes[] = {{"<f4", UL_F32},  {"<f8", UL_F64}, {"<f2", UL_F16}, {"|u1", UL_U8},
                 {"|i1", UL_I8},   {"<u2", UL_U16}, {"<i2", UL_I16}, {"<u4", UL_U32},
                 {"<i4", UL_I32},  {"<u8", UL_U64}, {"<i8", UL_I64}, {"|b1", UL_BOOL},
                 {"<V2", UL_BF16}, {"|V2", UL_BF16}}; /* as numpy writes ml_dtypes' type */
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strncmp(code, codes[i].code, 3) == 0 && code[3] == '\'')
            return codes[i].dtype;
    }
    return UL_DTYPE_NONE;
}

/* The header is a Python dict literal: 'descr': '<f4', 'fortran_order': False, 'shape': (1, 3). */
static enum ul_status npy_header(const char *header, struct ul_type *type, const char *path,
                                 struct ul_diag *diag)
{
    const char *descr = strstr(header, "'descr': '");
    const char *order = strstr(header, "'fortran_order': ");
    const char *shape = strstr(header, "'shape': (");
    if (descr == NULL || order == NULL || shape == NULL)
        return ul_diag_set(diag, UL_INVALID, "%s: the .npy header cannot be read", path);
    type->dtype = npy_dtype(descr + strlen("'descr': '"));
    if (type->dtype == UL_DTYPE_NONE)
        return ul_diag_set(diag, UL_UNSUPPORTED, "%s: this element type is not supported", path);
    if (strncmp(order + strlen("'fortran_order': "), "False", 5) != 0)
        return ul_diag_set(diag, UL_UNSUPPORTED,
                           "%s: is in Fortran order; save numpy.ascontiguousarray of it", path);
    const char *at = shape + strlen("'shape': (");
    type->rank = 0;
    while (*at != ')' && *at != '\0') {
        char *end;
        long long dim = strtoll(at, &end, 10);
        if (end == at || dim < 0 || dim > UL_LIMIT_DIM || type->rank == UL_LIMIT_RANK)
            return ul_diag_set(diag, UL_INVALID, "%s: the shape in the header is wrong", path);
        type->dims[type->rank++] = dim;
        at = end;
        while (*at == ',' || *at == ' ')
            at++;
    }
    return UL_OK;
}

enum ul_status ul_tensor_read_npy(struct ul_arena *arena, const struct ul_file *file,
                                  const char *path, const struct ul_tensor **tensor,
                                  struct ul_diag *diag)
{
    static const char magic[] = "\x93NUMPY";
    enum { PREFIX_BYTES = 12 };
    if (file->size_bytes < PREFIX_BYTES || memcmp(file->data, magic, sizeof magic - 1) != 0)
        return ul_diag_set(diag, UL_INVALID, "%s: is no .npy file, or cut short", path);
    bool wide = file->data[6] >= 2; /* the version's major number */
    uint64_t header_bytes = (uint64_t)file->data[8] | (uint64_t)file->data[9] << 8;
    if (wide)
        header_bytes |= (uint64_t)file->data[10] << 16 | (uint64_t)file->data[11] << 24;
    uint64_t start = wide ? 12 : 10;
    if (header_bytes > file->size_bytes - start)
        return ul_diag_set(diag, UL_INVALID, "%s: is cut short", path);
    char *header = ul_arena_alloc(arena, header_bytes + 1);
    memcpy(header, file->data + start, (size_t)header_bytes);
    struct ul_type type = {.dtype = UL_DTYPE_NONE};
    UL_TRY(npy_header(header, &type, path, diag));
    if (!ul_type_in_limits(&type) || ul_type_bytes(&type) > file->size_bytes - start - header_bytes)
        return ul_diag_set(diag, UL_INVALID, "%s: holds fewer bytes than its shape needs", path);
    *tensor = ul_tensor_new(arena, &type, file->data + start + header_bytes);
    return UL_OK;
}

enum ul_status ul_tensor_read_file(struct ul_arena *arena, const char *path,
                                   const struct ul_tensor **tensor, struct ul_diag *diag)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, arena, path, diag));
    bool npy = file.size_bytes >= 6 && memcmp(file.data, "\x93NUMPY", 6) == 0;
    enum ul_status status = UL_OK;
    if (npy)
        status = ul_tensor_read_npy(arena, &file, path, tensor, diag);
    ul_file_unmap(&file);
    const char *name;
    return npy ? status : ul_frontend_read_tensor(arena, path, tensor, &name, diag);
}
