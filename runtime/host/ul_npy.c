/* SPDX-License-Identifier: 0BSD */
/*
 * numpy's .npy (NEP 1; versions 1.0 to 3.0): a magic, a header that is a Python dictionary, the
 * elements. The file is untrusted: the header is parsed with a bound, and type, shape and length
 * are checked against the tensor before one element is read.
 */
#include "ul_internal.h"

#include "ul_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_LIMIT 65536

static const char *skip_spaces(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n')
        at++;
    return at;
}

/* A quoted string without escapes; NULL when it is not one or too long. */
static const char *parse_string(const char *at, char *text, size_t text_bytes)
{
    char quote = *at;
    size_t used = 0;
    if (quote != '\'' && quote != '"')
        return NULL;
    for (at++; *at != quote; at++) {
        if (*at == '\0' || *at == '\\' || used + 1 >= text_bytes)
            return NULL;
        text[used++] = *at;
    }
    text[used] = '\0';
    return at + 1;
}

/* "(2, 3)"; numpy of Python 2 wrote "2L". */
static const char *parse_shape(const char *at, struct ul_npy *header)
{
    if (*at != '(')
        return NULL;
    header->rank = 0;
    for (at = skip_spaces(at + 1); *at != ')'; at = skip_spaces(at)) {
        int64_t dim = 0;
        if (*at < '0' || *at > '9' || header->rank == UL_RANK_LIMIT)
            return NULL;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (dim > (INT64_MAX - 9) / 10)
                return NULL;
            dim = dim * 10 + (*at - '0');
        }
        header->dims[header->rank++] = dim;
        at = skip_spaces(*at == 'L' ? at + 1 : at);
        if (*at == ',')
            at++;
        else if (*at != ')')
            return NULL;
    }
    return at + 1;
}

static const char *parse_entry(const char *at, const char *key, struct ul_npy *header)
{
    if (strcmp(key, "descr") == 0) {
        header->has_descr = true;
        return parse_string(at, header->descr, sizeof header->descr);
    }
    if (strcmp(key, "shape") == 0) {
        header->has_shape = true;
        return parse_shape(at, header);
    }
    if (strcmp(key, "fortran_order") != 0)
        return NULL;
    header->has_fortran = true;
    header->fortran = strncmp(at, "True", 4) == 0;
    return header->fortran ? at + 4 : strncmp(at, "False", 5) == 0 ? at + 5 : NULL;
}

static bool parse_header(const char *at, struct ul_npy *header)
{
    memset(header, 0, sizeof *header);
    at = skip_spaces(at);
    if (*at != '{')
        return false;
    at = skip_spaces(at + 1);
    while (*at != '}') {
        char key[32];
        at = parse_string(at, key, sizeof key);
        if (at == NULL || *(at = skip_spaces(at)) != ':')
            return false;
        at = parse_entry(skip_spaces(at + 1), key, header);
        if (at == NULL)
            return false;
        at = skip_spaces(at);
        if (*at == ',')
            at = skip_spaces(at + 1);
        else if (*at != '}')
            return false;
    }
    return header->has_descr && header->has_shape && header->has_fortran;
}

int ul_npy_read_header(const struct ul_session *s, struct ul_reader *reader, struct ul_npy *header)
{
    unsigned char start[12];
    char shown[UL_SHOWN_BYTES];
    ul_shown(shown, reader->name);
    if (!ul_reader_get(reader, start, 10))
        return ul_error(s, UL_EXIT_INVALID, "%s: too short for a .npy file", shown);
    if (memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: not a .npy file of version 1 to 3 (write it with numpy.save)", shown);
    uint32_t size = start[8] | (uint32_t)start[9] << 8;
    if (start[6] > 1) {
        if (!ul_reader_get(reader, start + 10, 2))
            return ul_error(s, UL_EXIT_INVALID, "%s: ends inside its header", shown);
        size |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
    }
    if (size > HEADER_LIMIT)
        return ul_error(s, UL_EXIT_INVALID, "%s: a .npy header of %" PRIu32 " bytes is absurd",
                        shown, size);
    char *text = calloc(1, size + 1);
    if (text == NULL)
        return ul_out_of_memory(s, size);
    bool whole = ul_reader_get(reader, text, size);
    bool parsed = whole && parse_header(text, header);
    free(text);
    if (!whole)
        return ul_error(s, UL_EXIT_INVALID, "%s: ends inside its header", shown);
    if (!parsed)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: not the header of a plain array (structured arrays are unsupported)",
                        shown);
    return UL_EXIT_OK;
}

/* Whether the elements of the file fit the tensor's type. Types that numpy lacks are accepted as
   opaque bytes, as unsigned integers of the same size, or as ml_dtypes calls float8_e5m2: "f1". */
static bool type_fits(const char *descr, const struct ul_type_info *info)
{
    const char *code = strchr("<>=|", descr[0]) != NULL ? descr + 1 : descr;
    if (descr[0] == '\0' || strcmp(code, info->npy) == 0 ||
        (info->kind == 'b' && strcmp(code, "?") == 0))
        return descr[0] != '\0';
    if (info->npy[0] == 'V')
        return (code[0] == 'u' && strcmp(code + 1, info->npy + 1) == 0) ||
               (info->type == UL_TYPE_F8E5M2 && strcmp(code, "f1") == 0);
    return info->bits < 8 && strcmp(code, "V1") == 0;
}

bool ul_npy_holds(const struct ul_npy *header, enum ul_rt_type type)
{
    return type_fits(header->descr, ul_type_find(type));
}

const char *ul_npy_type_name(const struct ul_npy *header, char buffer[UL_SHOWN_BYTES])
{
    static const enum ul_rt_type plain[] = {UL_TYPE_F32, UL_TYPE_F64, UL_TYPE_F16, UL_TYPE_I8,
                                            UL_TYPE_I16, UL_TYPE_I32, UL_TYPE_I64, UL_TYPE_U8,
                                            UL_TYPE_U16, UL_TYPE_U32, UL_TYPE_U64, UL_TYPE_BOOL};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (ul_npy_holds(header, plain[i]))
            return ul_type_find(plain[i])->name;
    return ul_shown(buffer, header->descr);
}

/* Where only sizes are learnt, others may still follow from files that come later. */
static int check_header(const struct ul_session *s, const char *file, const struct ul_npy *header,
                        const char *what, const struct ul_rt_tensor *tensor, bool only_sizes)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    char shown_file[UL_SHOWN_BYTES], shown_name[UL_SHOWN_BYTES], descr[UL_SHOWN_BYTES];
    char want[UL_SHAPE_TEXT_BYTES], got[UL_SHAPE_TEXT_BYTES];
    ul_shown(shown_file, file);
    ul_shown(shown_name, tensor->name);
    int status = ul_sizes_learn(s, file, tensor, header->rank, header->dims);
    if (status != UL_EXIT_OK || only_sizes)
        return status;
    if (!type_fits(header->descr, info))
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: %s '%s' needs %s, this file holds %s; save it with "
                        "numpy.save(file, a.astype('%s'))",
                        shown_file, what, shown_name,
                        ul_shape_text(want, tensor->type, tensor->rank, tensor->dims),
                        ul_npy_type_name(header, descr), info->name);
    if (header->rank == tensor->rank &&
        (tensor->rank == 0 ||
         memcmp(header->dims, tensor->dims, tensor->rank * sizeof tensor->dims[0]) == 0))
        return UL_EXIT_OK;
    return ul_error(s, UL_EXIT_INVALID,
                    "%s: %s '%s' needs %s, this file holds %s; reshape it, or %s", shown_file, what,
                    shown_name, ul_shape_text(want, tensor->type, tensor->rank, tensor->dims),
                    ul_shape_text(got, tensor->type, header->rank, header->dims),
                    s->sizes == NULL ? "compile the model for that shape"
                                     : "give the size that it follows from by --size NAME=N");
}

/* Puts elements in column-major order into row-major order. */
static void transpose(const struct ul_rt_tensor *tensor, uint32_t element_bytes,
                      const unsigned char *from, unsigned char *to)
{
    int64_t index[UL_RANK_LIMIT] = {0};
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    for (uint64_t k = 0; k < count; k++) {
        uint64_t at = 0;
        for (uint32_t i = tensor->rank; i-- > 0;)
            at = at * (uint64_t)tensor->dims[i] + (uint64_t)index[i];
        memcpy(to + k * element_bytes, from + at * element_bytes, element_bytes);
        for (uint32_t i = tensor->rank; i-- > 0 && ++index[i] == tensor->dims[i];)
            index[i] = 0;
    }
}

bool ul_npy_is_swapped(const struct ul_npy *header)
{
    return header->descr[0] == '>' ? !ul_run_is_big_endian()
                                   : header->descr[0] == '<' && ul_run_is_big_endian();
}

/* Bytes as they stand in the file -> elements as the arena holds them. */
static void convert(const struct ul_npy *header, const struct ul_rt_tensor *tensor,
                    unsigned char *bytes, uint64_t size_bytes, unsigned char *data)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    if (ul_npy_is_swapped(header))
        ul_run_swap(bytes, size_bytes, info->bytes);
    if (bytes != data)
        transpose(tensor, info->bytes, bytes, data);
    ul_normalise(tensor, data);
}

int ul_npy_read(const struct ul_session *s, struct ul_reader *reader, const char *what,
                const struct ul_rt_tensor *tensor, void *data)
{
    struct ul_npy header;
    char shown[UL_SHOWN_BYTES];
    int status = ul_npy_read_header(s, reader, &header);
    if (status == UL_EXIT_OK)
        status = check_header(s, reader->name, &header, what, tensor, data == NULL);
    if (status != UL_EXIT_OK || data == NULL)
        return status;
    uint64_t size_bytes = tensor->size_bytes;
    if (reader->left_bytes != UINT64_MAX && reader->left_bytes < size_bytes)
        return ul_error(s, UL_EXIT_INVALID, "%s: is cut short: %" PRIu64 " of %" PRIu64 " bytes",
                        ul_shown(shown, reader->name), reader->left_bytes, size_bytes);
    bool direct = !header.fortran || tensor->rank < 2;
    unsigned char *bytes = direct ? data : malloc((size_t)(size_bytes + 1));
    if (bytes == NULL)
        return ul_out_of_memory(s, size_bytes);
    bool whole = ul_reader_get(reader, bytes, size_bytes);
    if (whole)
        convert(&header, tensor, bytes, size_bytes, data);
    if (!direct)
        free(bytes);
    if (!whole)
        return ul_error(s, UL_EXIT_INVALID, "%s: is cut short: %" PRIu64 " bytes were expected",
                        ul_shown(shown, reader->name), size_bytes);
    return UL_EXIT_OK;
}

size_t ul_npy_header(const struct ul_rt_tensor *tensor, char *buffer, size_t buffer_bytes)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    char order = info->bytes == 1 ? '|' : ul_run_is_big_endian() ? '>' : '<';
    size_t used = 10;
    used +=
        (size_t)snprintf(buffer + used, buffer_bytes - used,
                         "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, info->npy);
    for (uint32_t i = 0; i < tensor->rank; i++)
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%" PRId64 "%s",
                                 i == 0 ? "" : " ", tensor->dims[i],
                                 i + 1 < tensor->rank || tensor->rank == 1 ? "," : "");
    used += (size_t)snprintf(buffer + used, buffer_bytes - used, "), }");
    size_t total = (used + 1 + 63) / 64 * 64;
    memset(buffer + used, ' ', total - used);
    buffer[total - 1] = '\n';
    memcpy(buffer, "\x93NUMPY\x01\x00", 8);
    buffer[8] = (char)((total - 10) & 0xff);
    buffer[9] = (char)((total - 10) >> 8);
    return total;
}

int ul_npy_write(const struct ul_session *s, const char *path, const struct ul_rt_tensor *tensor,
                 const void *data)
{
    struct ul_writer writer;
    char header[UL_NPY_HEADER_BYTES];
    int status = ul_writer_open(s, &writer, path);
    if (status != UL_EXIT_OK)
        return status;
    fwrite(header, 1, ul_npy_header(tensor, header, sizeof header), writer.file);
    fwrite(data, 1, (size_t)tensor->size_bytes, writer.file);
    return ul_writer_close(s, &writer, true);
}
