/* SPDX-License-Identifier: 0BSD */
/*
 * ONNX's TensorProto, read straight from its wire format (protobuf's "Encoding" page; onnx.proto).
 * The bytes are untrusted: every length is checked before it is followed. Two passes: one notes
 * name, type, dims and raw data; the second, once type and shape are known to fit, decodes the
 * typed fields to their place. Repeated numbers may be packed or not, and come in several pieces.
 */
#include "ul_internal.h"

#include "ul_run.h"

#include <inttypes.h>
#include <string.h>

enum field {
    FIELD_DIMS = 1,
    FIELD_DATA_TYPE = 2,
    FIELD_FLOAT_DATA = 4,
    FIELD_INT32_DATA = 5,
    FIELD_INT64_DATA = 7,
    FIELD_NAME = 8,
    FIELD_RAW_DATA = 9,
    FIELD_DOUBLE_DATA = 10,
    FIELD_UINT64_DATA = 11,
    FIELD_EXTERNAL_DATA = 13
};

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct cursor {
    const unsigned char *at;
    const unsigned char *end;
};

struct item {
    uint64_t field;
    uint32_t wire;
    uint64_t number; /* varint, 64 and 32 bit; the length of bytes */
    const unsigned char *bytes;
};

static bool get_varint(struct cursor *cursor, uint64_t *value)
{
    *value = 0;
    for (uint32_t shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
        unsigned char byte = *cursor->at++;
        if (shift < 64)
            *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return true;
    }
    return false;
}

static bool get_fixed(struct cursor *cursor, uint32_t size_bytes, uint64_t *value)
{
    if ((size_t)(cursor->end - cursor->at) < size_bytes)
        return false;
    *value = 0;
    for (uint32_t i = 0; i < size_bytes; i++)
        *value |= (uint64_t)cursor->at[i] << 8 * i;
    cursor->at += size_bytes;
    return true;
}

static bool get_number(struct cursor *cursor, uint32_t wire, uint64_t *value)
{
    if (wire == WIRE_VARINT)
        return get_varint(cursor, value);
    return get_fixed(cursor, wire == WIRE_64 ? 8 : 4, value);
}

/* The next field; false at the end and on nonsense, told apart by cursor->at == cursor->end. */
static bool next_item(struct cursor *cursor, struct item *item)
{
    uint64_t key;
    const unsigned char *start = cursor->at;
    if (cursor->at == cursor->end)
        return false;
    bool good = get_varint(cursor, &key);
    item->field = key >> 3;
    item->wire = (uint32_t)(key & 7);
    item->bytes = NULL;
    if (good && item->wire == WIRE_BYTES) {
        good = get_varint(cursor, &item->number) &&
               item->number <= (uint64_t)(cursor->end - cursor->at);
        item->bytes = cursor->at;
        cursor->at += good ? item->number : 0;
    } else if (good) {
        good = (item->wire == WIRE_VARINT || item->wire == WIRE_64 || item->wire == WIRE_32) &&
               get_number(cursor, item->wire, &item->number);
    }
    if (!good)
        cursor->at = start;
    return good;
}

static bool add_dim(struct ul_pb *pb, uint64_t dim)
{
    if (pb->rank == UL_RANK_LIMIT)
        return false;
    pb->dims[pb->rank++] = (int64_t)dim;
    return true;
}

static bool add_dims(struct ul_pb *pb, const struct item *item)
{
    uint64_t dim;
    if (item->wire == WIRE_VARINT)
        return add_dim(pb, item->number);
    if (item->wire != WIRE_BYTES)
        return false;
    struct cursor packed = {item->bytes, item->bytes + item->number};
    while (packed.at < packed.end)
        if (!get_varint(&packed, &dim) || !add_dim(pb, dim))
            return false;
    return true;
}

static bool note_item(struct ul_pb *pb, const struct item *item)
{
    bool bytes = item->wire == WIRE_BYTES;
    if (item->field == FIELD_DIMS)
        return add_dims(pb, item);
    if (item->field == FIELD_DATA_TYPE && item->wire == WIRE_VARINT)
        pb->type = item->number;
    if (item->field == FIELD_NAME && bytes) {
        pb->name = item->bytes;
        pb->name_bytes = item->number;
    }
    if (item->field == FIELD_RAW_DATA && bytes) {
        pb->raw = item->bytes;
        pb->raw_bytes = item->number;
    }
    return item->field != FIELD_EXTERNAL_DATA;
}

int ul_pb_parse(const struct ul_session *s, const char *file, const unsigned char *bytes,
                uint64_t size_bytes, struct ul_pb *pb)
{
    struct cursor cursor = {bytes, bytes + size_bytes};
    struct item item;
    char shown[UL_SHOWN_BYTES];
    memset(pb, 0, sizeof *pb);
    pb->bytes = bytes;
    pb->size_bytes = size_bytes;
    while (next_item(&cursor, &item))
        if (!note_item(pb, &item))
            return ul_error(s, UL_EXIT_UNSUPPORTED,
                            "%s: its tensor has external data or too many dimensions",
                            ul_shown(shown, file));
    if (cursor.at != cursor.end)
        return ul_error(s, UL_EXIT_INVALID, "%s: not a sound ONNX tensor: bad bytes at offset %td",
                        ul_shown(shown, file), cursor.at - bytes);
    if (size_bytes == 0 || pb->type == 0)
        return ul_error(s, UL_EXIT_INVALID, "%s: holds no ONNX tensor", ul_shown(shown, file));
    return UL_EXIT_OK;
}

/* The typed field that holds elements of a type. */
static uint64_t field_of(enum ul_rt_type type)
{
    switch ((int)type) {
    case UL_TYPE_F32:
        return FIELD_FLOAT_DATA;
    case UL_TYPE_F64:
        return FIELD_DOUBLE_DATA;
    case UL_TYPE_I64:
        return FIELD_INT64_DATA;
    case UL_TYPE_U32:
    case UL_TYPE_U64:
        return FIELD_UINT64_DATA;
    default:
        return FIELD_INT32_DATA;
    }
}

/* Where the typed numbers go. 4-bit elements come two to a number. */
struct target {
    unsigned char *data;
    uint32_t element_bytes;
    uint64_t capacity;
    uint64_t count; /* numbers seen, also those beyond capacity */
};

static void put_number(struct target *target, uint64_t number)
{
    if (target->count++ >= target->capacity)
        return;
    unsigned char *at = target->data + (target->count - 1) * target->element_bytes;
    for (uint32_t i = 0; i < target->element_bytes; i++)
        at[i] = (unsigned char)(number >> 8 * i & 0xff);
}

static bool decode_item(const struct item *item, uint32_t wire, struct target *target)
{
    uint64_t number;
    if (item->wire == wire) {
        put_number(target, item->number);
        return true;
    }
    if (item->wire != WIRE_BYTES)
        return false;
    struct cursor packed = {item->bytes, item->bytes + item->number};
    while (packed.at < packed.end) {
        if (!get_number(&packed, wire, &number))
            return false;
        put_number(target, number);
    }
    return true;
}

/* Decodes the typed field of the type; returns false on nonsense or a wrong number of elements. */
static bool decode_typed(const struct ul_pb *pb, enum ul_rt_type type, struct target *target)
{
    struct cursor cursor = {pb->bytes, pb->bytes + pb->size_bytes};
    struct item item;
    uint32_t wire = type == UL_TYPE_F32 ? WIRE_32 : type == UL_TYPE_F64 ? WIRE_64 : WIRE_VARINT;
    while (next_item(&cursor, &item))
        if (item.field == field_of(type) && !decode_item(&item, wire, target))
            return false;
    return target->count == target->capacity;
}

/* Types that numpy lacks have been stored as unsigned integers of their size, by ONNX's own test
   data among others. */
static bool type_fits(uint64_t found, enum ul_rt_type wanted)
{
    const struct ul_type_info *info = ul_type_find(wanted);
    if (info->npy[0] == 'V' && info->bits >= 8 &&
        found == (info->bytes == 2 ? UL_TYPE_U16 : UL_TYPE_U8))
        return true;
    return found == (uint64_t)wanted;
}

static int check_shape(const struct ul_session *s, const char *file, const struct ul_pb *pb,
                       const char *what, const struct ul_rt_tensor *tensor)
{
    char shown_file[UL_SHOWN_BYTES], shown_name[UL_SHOWN_BYTES];
    char want[UL_SHAPE_TEXT_BYTES], got[UL_SHAPE_TEXT_BYTES];
    if (type_fits(pb->type, tensor->type) && pb->rank == tensor->rank &&
        (pb->rank == 0 || memcmp(pb->dims, tensor->dims, pb->rank * sizeof pb->dims[0]) == 0))
        return UL_EXIT_OK;
    enum ul_rt_type type = pb->type < 64 ? (enum ul_rt_type)pb->type : UL_TYPE_NONE;
    return ul_error(s, UL_EXIT_INVALID, "%s: %s '%s' needs %s, this file holds %s",
                    ul_shown(shown_file, file), what, ul_shown(shown_name, tensor->name),
                    ul_shape_text(want, tensor->type, tensor->rank, tensor->dims),
                    ul_shape_text(got, type, pb->rank, pb->dims));
}

/* Unpacks elements below 8 bits, which lie side by side, the first in the low bits; in place, from
 * the end. */
static void unpack(unsigned char *data, uint64_t count, uint32_t bits)
{
    for (uint64_t i = count; i-- > 0;) {
        const unsigned char *from = data + i / 8 * bits + i % 8 * bits / 8;
        uint32_t shift = (uint32_t)(i % 8) * bits % 8;
        uint32_t above = shift + bits > 8 ? (uint32_t)from[1] << 8 : 0;
        data[i] = (unsigned char)((from[0] | above) >> shift & ((1u << bits) - 1));
    }
}

int ul_pb_decode(const struct ul_session *s, const char *file, const struct ul_pb *pb,
                 const char *what, const struct ul_rt_tensor *tensor, void *data)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    int status = ul_sizes_learn(s, file, tensor, pb->rank, pb->dims);
    if (status != UL_EXIT_OK || data == NULL)
        return status;
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    /* In a typed field each element of 6 bits has a number of its own. */
    bool is_packed = info->bits < 8 && (pb->raw != NULL || 8 % info->bits == 0);
    uint64_t packed_count =
        is_packed ? count / 8 * info->bits + (count % 8 * info->bits + 7) / 8 : count;
    uint64_t packed_bytes = packed_count * info->bytes;
    struct target target = {data, info->bytes, packed_count, 0};
    char shown[UL_SHOWN_BYTES];
    status = check_shape(s, file, pb, what, tensor);
    if (status != UL_EXIT_OK)
        return status;
    bool good =
        pb->raw != NULL ? pb->raw_bytes == packed_bytes : decode_typed(pb, tensor->type, &target);
    if (!good)
        return ul_error(s, UL_EXIT_INVALID,
                        "%s: the tensor's data do not fill its shape of %" PRIu64 " bytes",
                        ul_shown(shown, file), packed_bytes);
    if (pb->raw != NULL && packed_bytes != 0)
        memcpy(data, pb->raw, (size_t)packed_bytes);
    if (ul_run_is_big_endian())
        ul_run_swap(data, packed_bytes, info->bytes);
    if (is_packed)
        unpack(data, count, info->bits);
    ul_normalise(tensor, data);
    return UL_EXIT_OK;
}
