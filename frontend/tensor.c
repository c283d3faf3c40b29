/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a TensorProto into a constant: bytes are borrowed from the file where they have the form
 * that the graph wants (raw_data, one packed run of floats, external data), else they are decoded
 * into its arena. Nothing is allocated before the number of elements in the file is known to fit
 * the shape. */
#include "frontend/frontend_internal.h"

#include <string.h>

struct source {
    struct ul_model_builder *builder;
    const Onnx__TensorProto *proto;
    const char *owner;
    struct ul_type type;
    uint64_t element_count;
    const struct ul_wire_segment *segments;
    uint32_t segment_count;
};

static enum ul_status bad(const struct source *source, const char *what)
{
    return ul_diag_set(source->builder->diag, UL_INVALID, "tensor %s: %s",
                       ul_quote(source->builder->scratch, source->owner), what);
}

static bool is_packed(enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->bits < 8;
}

enum ul_status ul_tensor_type(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                              const char *owner, struct ul_type *type)
{
    const char *quoted = ul_quote(builder->scratch, owner);
    if (proto->data_type <= 0 || proto->data_type >= UL_DTYPE_COUNT ||
        proto->data_type == UL_STRING)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED, "tensor %s: element type %s%d %s", quoted,
                           proto->data_type == UL_STRING ? "string, " : "", (int)proto->data_type,
                           "of ONNX's TensorProto.DataType is not supported");
    if (proto->n_dims > UL_LIMIT_RANK)
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "tensor %s: rank %zu is above the limit of %d", quoted, proto->n_dims,
                           UL_LIMIT_RANK);
    for (size_t i = 0; i < proto->n_dims; i++) {
        if (proto->dims[i] < 0 || proto->dims[i] > UL_LIMIT_DIM)
            return ul_diag_set(builder->diag, UL_INVALID,
                               "tensor %s: dimension %zu is %lld, outside 0..%lld", quoted, i,
                               (long long)proto->dims[i], (long long)UL_LIMIT_DIM);
    }
    *type = ul_type_make((enum ul_dtype)proto->data_type, (uint32_t)proto->n_dims, proto->dims);
    if (!ul_type_in_limits(type))
        return ul_diag_set(builder->diag, UL_INVALID,
                           "tensor %s: the shape takes more bytes than a tensor may have", quoted);
    return UL_OK;
}

static enum ul_status find_segments(struct source *source)
{
    const Onnx__TensorProto *proto = source->proto;
    const struct ul_wire *wire = source->builder->wire;
    if (!proto->has_raw_data)
        return UL_OK;
    uint32_t index = UINT32_MAX;
    if (proto->raw_data.len == sizeof index)
        memcpy(&index, proto->raw_data.data, sizeof index);
    if (index >= wire->tensor_count)
        return bad(source, "the data of two tensors is mixed");
    UL_ASSERT(wire->tensors[index].first + wire->tensors[index].count <= wire->segment_count);
    source->segments = wire->segments + wire->tensors[index].first;
    source->segment_count = wire->tensors[index].count;
    return UL_OK;
}

/* Unpacks elements of 2, 4 or 6 bits, which follow each other from the low bits of the first byte
 * on, into one byte each, with signs extended. */
static void unpack(unsigned char *out, const unsigned char *packed, uint64_t count,
                   const struct ul_dtype_info *info)
{
    UL_ASSERT(info->bits == 2 || info->bits == 4 || info->bits == 6);
    unsigned bits = info->bits, mask = (1u << bits) - 1;
    unsigned sign = info->is_integer && info->is_signed ? (mask >> 1) + 1 : 0;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *place = packed + i / 8 * bits + i % 8 * bits / 8;
        unsigned shift = (unsigned)(i % 8) * bits % 8;
        unsigned above = shift + bits > 8 ? (unsigned)place[1] << 8 : 0;
        unsigned code = (place[0] | above) >> shift & mask;
        out[i] = (unsigned char)((code ^ sign) - sign);
    }
}

/* Makes a tensor of bytes; `packed`: elements below 8 bits are packed as in ONNX's raw_data. */
static const struct ul_tensor *tensor_of_bytes(const struct source *source,
                                               const unsigned char *bytes, bool packed)
{
    UL_ASSERT(bytes != NULL || source->element_count == 0);
    struct ul_arena *arena = source->builder->graph->arena;
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    tensor->type = source->type;
    tensor->data = bytes;
    uint64_t count = source->element_count;
    if (packed) {
        unsigned char *unpacked = ul_arena_alloc(arena, count);
        unpack(unpacked, bytes, count, ul_dtype_get(source->type.dtype));
        tensor->data = unpacked;
    } else if (source->type.dtype == UL_BOOL) {
        uint64_t clean = 0;
        while (clean < count && bytes[clean] <= 1)
            clean++;
        if (clean == count)
            return tensor;
        /* Any non-zero byte is true; C's bool knows 0 and 1 only. */
        unsigned char *truth = ul_arena_alloc(arena, count);
        for (uint64_t i = 0; i < count; i++)
            truth[i] = bytes[i] != 0;
        tensor->data = truth;
    }
    return tensor;
}

static const struct ul_tensor *tensor_of_raw(const struct source *source,
                                             const unsigned char *bytes)
{
    return tensor_of_bytes(source, bytes, is_packed(source->type.dtype));
}

/* The TensorProto field that holds the elements of a type when they are not raw. */
static uint32_t typed_field(enum ul_dtype dtype)
{
    switch ((int)dtype) {
    case UL_F32:
    case UL_C64:
        return 4;
    case UL_I64:
        return 7;
    case UL_F64:
    case UL_C128:
        return 10;
    case UL_U32:
    case UL_U64:
        return 11;
    default:
        return 5;
    }
}

/* Elements of 6 bits have a number each; those of 2 and 4 bits share a number as they share a
 * byte. */
static bool shares_numbers(enum ul_dtype dtype)
{
    return is_packed(dtype) && 8 % ul_dtype_get(dtype)->bits == 0;
}

static uint64_t typed_count(const struct source *source)
{
    if (source->type.dtype == UL_C64 || source->type.dtype == UL_C128)
        return source->element_count * 2;
    if (shares_numbers(source->type.dtype))
        return ul_type_packed_bytes(&source->type);
    return source->element_count;
}

static uint64_t count_numbers(const struct ul_wire *wire, const struct ul_wire_segment *segment)
{
    UL_ASSERT(segment->offset + segment->size_bytes <= wire->size_bytes);
    if (!segment->packed)
        return 1;
    if (segment->field == 4)
        return segment->size_bytes / 4;
    if (segment->field == 10)
        return segment->size_bytes / 8;
    uint64_t count = 0;
    for (uint64_t i = 0; i < segment->size_bytes; i++)
        count += wire->data[segment->offset + i] < 0x80;
    return count;
}

static uint64_t next_varint(const unsigned char *data, uint64_t *at, uint64_t end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < end; shift += 7) {
        unsigned char byte = data[(*at)++];
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            break;
    }
    return value;
}

/* Writes one number of a varint field as an element; packed elements stay packed. Returns false if
 * the number is out of an integer's range, or has more bits than the element, signed or not. */
static bool put_number(unsigned char *place, enum ul_dtype dtype, uint32_t size, uint64_t value)
{
    UL_ASSERT(size >= 1 && size <= 8);
    unsigned char bytes[8];
    uint64_t above = size < 8 ? value >> (8 * size - 1) : 0, all = UINT64_MAX >> (8 * size - 1);
    int64_t low, high;
    if (dtype != UL_BOOL && above > 1 && above != all)
        return false;
    if (is_packed(dtype) && !shares_numbers(dtype) && value >> ul_dtype_get(dtype)->bits != 0)
        return false;
    if (!is_packed(dtype) && ul_dtype_range(dtype, &low, &high) &&
        ((int64_t)value < low || (int64_t)value > high))
        return false;
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    if (dtype == UL_BOOL)
        bytes[0] = value != 0;
    memcpy(place, bytes, size);
    return true;
}

static enum ul_status decode_segment(const struct source *source,
                                     const struct ul_wire_segment *segment, uint32_t size,
                                     unsigned char **place)
{
    const unsigned char *data = source->builder->wire->data;
    uint64_t at = segment->offset;
    uint64_t end = at + segment->size_bytes;
    if (segment->field == 4 || segment->field == 10) {
        uint64_t whole = segment->size_bytes - segment->size_bytes % (segment->field == 4 ? 4 : 8);
        if (whole > 0)
            memcpy(*place, data + at, (size_t)whole);
        *place += whole;
        return UL_OK;
    }
    uint64_t count = count_numbers(source->builder->wire, segment);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = next_varint(data, &at, end);
        if (!put_number(*place, source->type.dtype, size, value))
            return bad(source,
                       ul_arena_printf(source->builder->scratch,
                                       "%lld in its data is out of its type %s", (long long)value,
                                       ul_dtype_get(source->type.dtype)->name));
        *place += size;
    }
    return UL_OK;
}

static enum ul_status wrong_count(const struct source *source, uint64_t found, uint64_t wanted,
                                  const char *unit)
{
    struct ul_arena *arena = source->builder->scratch;
    return ul_diag_set(source->builder->diag, UL_INVALID,
                       "tensor %s: %llu %s of data, but its type %s needs %llu",
                       ul_quote(arena, source->owner), (unsigned long long)found, unit,
                       ul_type_text(arena, &source->type), (unsigned long long)wanted);
}

static enum ul_status decode_typed(const struct source *source, const struct ul_tensor **out)
{
    const struct ul_wire *wire = source->builder->wire;
    uint32_t field = typed_field(source->type.dtype);
    uint64_t wanted = typed_count(source);
    uint64_t found = 0;
    const struct ul_wire_segment *only = NULL;
    for (uint32_t i = 0; i < source->segment_count; i++) {
        if (source->segments[i].field != field)
            continue;
        only = &source->segments[i];
        found += count_numbers(wire, only);
    }
    if (found != wanted)
        return wrong_count(source, found, wanted, "numbers");
    bool borrow =
        (field == 4 || field == 10) && only != NULL && count_numbers(wire, only) == wanted;
    if (borrow) {
        *out = tensor_of_raw(source, wire->data + only->offset);
        return UL_OK;
    }
    bool shares = shares_numbers(source->type.dtype);
    uint64_t bytes = shares ? wanted : ul_type_bytes(&source->type);
    unsigned char *data = ul_arena_alloc(source->builder->graph->arena, bytes);
    unsigned char *place = data;
    uint32_t size = bytes == 0 || wanted == 0 ? 0 : (uint32_t)(bytes / wanted);
    for (uint32_t i = 0; i < source->segment_count && wanted > 0; i++) {
        if (source->segments[i].field == field)
            UL_TRY(decode_segment(source, &source->segments[i], size, &place));
    }
    UL_ASSERT(place == data + bytes);
    *out = tensor_of_bytes(source, data, shares);
    return UL_OK;
}

enum ul_status ul_tensor_decode(struct ul_model_builder *builder, const Onnx__TensorProto *proto,
                                const char *owner, const struct ul_tensor **out)
{
    struct source source = {.builder = builder, .proto = proto, .owner = owner};
    UL_TRY(ul_tensor_type(builder, proto, owner, &source.type));
    source.element_count = ul_type_elements(&source.type);
    UL_TRY(find_segments(&source));
    if (proto->data_location == 1) {
        const unsigned char *bytes = NULL;
        UL_TRY(ul_external_find(builder, proto, owner, ul_type_packed_bytes(&source.type), &bytes));
        *out = tensor_of_raw(&source, bytes);
        return UL_OK;
    }
    const struct ul_wire_segment *raw = NULL;
    for (uint32_t i = 0; i < source.segment_count; i++) {
        if (source.segments[i].field == 9)
            raw = &source.segments[i];
    }
    /* Some exporters write an empty raw_data as well as typed fields. */
    if (raw == NULL || (raw->size_bytes == 0 && source.segment_count > 1))
        return decode_typed(&source, out);
    if (raw->size_bytes != ul_type_packed_bytes(&source.type))
        return wrong_count(&source, raw->size_bytes, ul_type_packed_bytes(&source.type), "bytes");
    *out = tensor_of_raw(&source, builder->wire->data + raw->offset);
    return UL_OK;
}
