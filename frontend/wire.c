/* SPDX-License-Identifier: Apache-2.0 */
/* The scan over a model's protobuf bytes that comes before decoding.
 *
 * Problem: a decoder copies every tensor's bytes, and trusts the message's nesting. Method: walk
 * the wire format (protobuf.dev/programming-guides/encoding) along a table of the messages that
 * lead to tensors, write a slim copy of what the compiler reads, and put the offsets of tensor data
 * into a table; the raw_data of a slim tensor is the index of its row. Depth, lengths and wire
 * types are checked here, so the decoder sees well-formed messages only. Left undone: groups
 * (deprecated since proto2; ONNX has none) are refused. */
#include "frontend/frontend_internal.h"

#include <string.h>

enum {
    MAX_DEPTH = 4 * UL_LIMIT_NESTING /* a nested graph is three messages deep */
};

enum kind {
    MODEL = UL_WIRE_MODEL,
    TENSOR = UL_WIRE_TENSOR,
    GRAPH,
    NODE,
    ATTRIBUTE,
    SPARSE,
    FUNCTION,
    VALUE_INFO,
    TYPE,
    TYPE_TENSOR,
    TYPE_ELEMENT,
    TYPE_MAP,
    SHAPE,
    DIMENSION,
    ENTRY,
    OPSET,
    NONE
};

enum action {
    END,    /* of a table */
    VALUE,  /* a scalar, or several packed */
    TEXT,   /* bytes that may hold anything */
    NAME,   /* bytes without NUL */
    NESTED, /* a message */
    DATA    /* data of a tensor: becomes a segment */
};

struct rule {
    uint32_t field;
    enum action action;
    enum kind nested;
    uint32_t renumber; /* the field's number in the slim message; 0: the same */
};

/* Fields that are missing here are dropped: training info, quantization annotations, value_info
 * (inferred again), doc strings except those of nodes, device configurations. */
static const struct rule model_rules[] = {
    {1, VALUE, NONE, 0},   {2, NAME, NONE, 0},        {3, NAME, NONE, 0}, {8, NESTED, OPSET, 0},
    {7, NESTED, GRAPH, 0}, {25, NESTED, FUNCTION, 0}, {0, END, NONE, 0}};
static const struct rule tensor_rules[] = {
    {1, VALUE, NONE, 0},    {2, VALUE, NONE, 0},  {4, DATA, NONE, 0},  {5, DATA, NONE, 0},
    {7, DATA, NONE, 0},     {8, NAME, NONE, 0},   {9, DATA, NONE, 0},  {10, DATA, NONE, 0},
    {13, NESTED, ENTRY, 0}, {14, VALUE, NONE, 0}, {11, DATA, NONE, 0}, {0, END, NONE, 0}};
static const struct rule graph_rules[] = {{1, NESTED, NODE, 0},
                                          {2, NAME, NONE, 0},
                                          {5, NESTED, TENSOR, 0},
                                          {15, NESTED, SPARSE, 0},
                                          {11, NESTED, VALUE_INFO, 0},
                                          {12, NESTED, VALUE_INFO, 0},
                                          {16, NESTED, ENTRY, UL_WIRE_GRAPH_METADATA},
                                          {0, END, NONE, 0}};
static const struct rule node_rules[] = {{1, NAME, NONE, 0},
                                         {2, NAME, NONE, 0},
                                         {3, NAME, NONE, 0},
                                         {4, NAME, NONE, 0},
                                         {7, NAME, NONE, 0},
                                         {5, NESTED, ATTRIBUTE, 0},
                                         {6, TEXT, NONE, 0},
                                         {8, NAME, NONE, UL_WIRE_NODE_OVERLOAD},
                                         {9, NESTED, ENTRY, UL_WIRE_NODE_METADATA},
                                         {0, END, NONE, 0}};
static const struct rule attribute_rules[] = {
    {1, NAME, NONE, 0},      {21, NAME, NONE, 0},    {20, VALUE, NONE, 0},    {2, VALUE, NONE, 0},
    {3, VALUE, NONE, 0},     {4, TEXT, NONE, 0},     {5, NESTED, TENSOR, 0},  {6, NESTED, GRAPH, 0},
    {22, NESTED, SPARSE, 0}, {7, VALUE, NONE, 0},    {8, VALUE, NONE, 0},     {9, TEXT, NONE, 0},
    {10, NESTED, TENSOR, 0}, {11, NESTED, GRAPH, 0}, {23, NESTED, SPARSE, 0}, {14, NESTED, TYPE, 0},
    {15, NESTED, TYPE, 0},   {0, END, NONE, 0}};
static const struct rule sparse_rules[] = {
    {1, NESTED, TENSOR, 0}, {2, NESTED, TENSOR, 0}, {3, VALUE, NONE, 0}, {0, END, NONE, 0}};
static const struct rule function_rules[] = {{1, NAME, NONE, 0},
                                             {4, NAME, NONE, 0},
                                             {5, NAME, NONE, 0},
                                             {6, NAME, NONE, 0},
                                             {7, NESTED, NODE, 0},
                                             {9, NESTED, OPSET, 0},
                                             {10, NAME, NONE, 0},
                                             {11, NESTED, ATTRIBUTE, UL_WIRE_FUNCTION_ATTRIBUTE},
                                             {13, NAME, NONE, UL_WIRE_FUNCTION_OVERLOAD},
                                             {0, END, NONE, 0}};
static const struct rule value_info_rules[] = {
    {1, NAME, NONE, 0}, {2, NESTED, TYPE, 0}, {0, END, NONE, 0}};
static const struct rule type_rules[] = {{1, NESTED, TYPE_TENSOR, 0}, {4, NESTED, TYPE_ELEMENT, 0},
                                         {5, NESTED, TYPE_MAP, 0},    {9, NESTED, TYPE_ELEMENT, 0},
                                         {8, NESTED, TYPE_TENSOR, 0}, {0, END, NONE, 0}};
static const struct rule type_tensor_rules[] = {
    {1, VALUE, NONE, 0}, {2, NESTED, SHAPE, 0}, {0, END, NONE, 0}};
static const struct rule type_element_rules[] = {{1, NESTED, TYPE, 0}, {0, END, NONE, 0}};
static const struct rule type_map_rules[] = {
    {1, VALUE, NONE, 0}, {2, NESTED, TYPE, 0}, {0, END, NONE, 0}};
static const struct rule shape_rules[] = {{1, NESTED, DIMENSION, 0}, {0, END, NONE, 0}};
static const struct rule dimension_rules[] = {
    {1, VALUE, NONE, 0}, {2, NAME, NONE, 0}, {0, END, NONE, 0}};
static const struct rule entry_rules[] = {
    {1, NAME, NONE, 0}, {2, TEXT, NONE, 0}, {0, END, NONE, 0}};
static const struct rule opset_rules[] = {
    {1, NAME, NONE, 0}, {2, VALUE, NONE, 0}, {0, END, NONE, 0}};

static const struct {
    const char *name;
    const struct rule *rules;
} messages[] = {
    [MODEL] = {"ModelProto", model_rules},
    [TENSOR] = {"TensorProto", tensor_rules},
    [GRAPH] = {"GraphProto", graph_rules},
    [NODE] = {"NodeProto", node_rules},
    [ATTRIBUTE] = {"AttributeProto", attribute_rules},
    [SPARSE] = {"SparseTensorProto", sparse_rules},
    [FUNCTION] = {"FunctionProto", function_rules},
    [VALUE_INFO] = {"ValueInfoProto", value_info_rules},
    [TYPE] = {"TypeProto", type_rules},
    [TYPE_TENSOR] = {"TypeProto.Tensor", type_tensor_rules},
    [TYPE_ELEMENT] = {"TypeProto.Sequence", type_element_rules},
    [TYPE_MAP] = {"TypeProto.Map", type_map_rules},
    [SHAPE] = {"TensorShapeProto", shape_rules},
    [DIMENSION] = {"TensorShapeProto.Dimension", dimension_rules},
    [ENTRY] = {"StringStringEntryProto", entry_rules},
    [OPSET] = {"OperatorSetIdProto", opset_rules},
};

struct scan {
    struct ul_wire *wire;
    struct ul_arena *arena;
    struct ul_diag *diag;
};

static enum ul_status bad(const struct scan *scan, enum kind kind, uint64_t at, const char *what)
{
    UL_ASSERT(kind < NONE);
    return ul_diag_set(scan->diag, UL_INVALID, "not a valid ONNX file: %s in a %s at byte %llu",
                       what, messages[kind].name, (unsigned long long)at);
}

static bool read_varint(const unsigned char *data, uint64_t *at, uint64_t end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char byte = data[(*at)++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static uint64_t read_fixed(const unsigned char *data, uint64_t at, unsigned byte_count)
{
    UL_ASSERT(byte_count == 4 || byte_count == 8);
    uint64_t value = 0;
    for (unsigned i = 0; i < byte_count; i++)
        value |= (uint64_t)data[at + i] << (8 * i);
    return value;
}

const char *ul_wire_next(const unsigned char *data, uint64_t *at, uint64_t end,
                         struct ul_wire_field *field)
{
    UL_ASSERT(*at < end);
    uint64_t tag = 0;
    if (!read_varint(data, at, end, &tag))
        return "cut-off tag";
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF)
        return "field number out of range";
    field->number = (uint32_t)(tag >> 3);
    field->wire_type = (uint32_t)(tag & 7);
    field->begin = *at;
    if (field->wire_type == UL_WIRE_VARINT) {
        if (!read_varint(data, at, end, &field->value))
            return "cut-off number";
    } else if (field->wire_type == UL_WIRE_FIXED64 || field->wire_type == UL_WIRE_FIXED32) {
        unsigned size = field->wire_type == UL_WIRE_FIXED64 ? 8 : 4;
        if (end - *at < size)
            return "cut-off number";
        field->value = read_fixed(data, *at, size);
        *at += size;
    } else if (field->wire_type == UL_WIRE_BYTES) {
        if (!read_varint(data, at, end, &field->value) || field->value > end - *at)
            return "length beyond the end";
        field->begin = *at;
        *at += field->value;
    } else {
        return "unknown wire type";
    }
    field->end = *at;
    UL_ASSERT(field->begin <= field->end && field->end <= end);
    return NULL;
}

bool ul_wire_holds_tensors(const unsigned char *data, uint64_t size_bytes)
{
    /* A field for tensors that a TensorProto has for segments of itself, which nobody writes. */
    enum { TENSOR_VALUES = 3, TENSOR_NAME = 8 };
    bool has_values = false;
    struct ul_wire_field field;
    for (uint64_t at = 0; at < size_bytes;) {
        if (ul_wire_next(data, &at, size_bytes, &field) != NULL)
            return false;
        if (field.number > TENSOR_VALUES && field.number != TENSOR_NAME)
            return false;
        has_values |= field.number == TENSOR_VALUES && field.wire_type == UL_WIRE_BYTES;
    }
    return has_values;
}

static enum ul_status read_field(const struct scan *scan, enum kind kind, uint64_t *at,
                                 uint64_t end, struct ul_wire_field *field)
{
    uint64_t start = *at;
    const char *wrong = ul_wire_next(scan->wire->data, at, end, field);
    return wrong == NULL ? UL_OK : bad(scan, kind, start, wrong);
}

void ul_wire_put_varint(struct ul_text *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    while (value >= 0x80) {
        bytes[count++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes[count++] = (unsigned char)value;
    ul_text_put_bytes(out, bytes, count);
}

void ul_wire_put_key(struct ul_text *out, uint32_t number, uint32_t wire_type)
{
    UL_ASSERT(number != 0 && wire_type <= UL_WIRE_FIXED32);
    ul_wire_put_varint(out, (uint64_t)number << 3 | wire_type);
}

void ul_wire_put_bytes(struct ul_text *out, uint32_t number, const void *bytes, uint64_t count)
{
    ul_wire_put_key(out, number, UL_WIRE_BYTES);
    ul_wire_put_varint(out, count);
    ul_text_put_bytes(out, bytes, count);
}

void ul_wire_put_string(struct ul_text *out, uint32_t number, const char *string)
{
    ul_wire_put_bytes(out, number, string, strlen(string));
}

/* A length is written in five bytes, so that it can be filled in after the message. */
enum { LENGTH_BYTES = 5 };

static enum ul_status fill_length(const struct scan *scan, size_t place)
{
    struct ul_text *out = &scan->wire->slim;
    uint64_t length = out->length - place - LENGTH_BYTES;
    if (length > INT32_MAX)
        return ul_diag_set(scan->diag, UL_UNSUPPORTED,
                           "the graph alone, without its weights, takes over 2 GiB");
    for (size_t i = 0; i < LENGTH_BYTES; i++) {
        unsigned char more = i + 1 < LENGTH_BYTES ? 0x80 : 0;
        out->data[place + i] = (char)((length >> (7 * i) & 0x7F) | more);
    }
    return UL_OK;
}

static bool data_wire_type_fits(const struct ul_wire_field *field)
{
    switch (field->number) {
    case 4:
        return field->wire_type == UL_WIRE_BYTES || field->wire_type == UL_WIRE_FIXED32;
    case 10:
        return field->wire_type == UL_WIRE_BYTES || field->wire_type == UL_WIRE_FIXED64;
    case 9:
        return field->wire_type == UL_WIRE_BYTES;
    default:
        return field->wire_type == UL_WIRE_BYTES || field->wire_type == UL_WIRE_VARINT;
    }
}

static enum ul_status add_segment(const struct scan *scan, const struct ul_wire_field *field)
{
    struct ul_wire *wire = scan->wire;
    if (!data_wire_type_fits(field))
        return bad(scan, TENSOR, field->begin, "data of the wrong wire type");
    if (wire->segment_count == UL_LIMIT_VALUES * 8u)
        return ul_diag_set(scan->diag, UL_UNSUPPORTED,
                           "tensor data in more than %u pieces; store it as raw_data",
                           UL_LIMIT_VALUES * 8u);
    UL_GROW(scan->arena, wire->segments, wire->segment_count, wire->segment_capacity);
    struct ul_wire_segment *segment = &wire->segments[wire->segment_count++];
    segment->field = field->number;
    segment->packed = field->wire_type == UL_WIRE_BYTES;
    segment->offset = field->begin;
    segment->size_bytes = field->end - field->begin;
    return UL_OK;
}

/* Ends a tensor: its segments get a row of the table, whose index is written as raw_data. */
static void close_tensor(const struct scan *scan, uint32_t first_segment)
{
    struct ul_wire *wire = scan->wire;
    if (wire->segment_count == first_segment)
        return;
    UL_GROW(scan->arena, wire->tensors, wire->tensor_count, wire->tensor_capacity);
    wire->tensors[wire->tensor_count].first = first_segment;
    wire->tensors[wire->tensor_count].count = wire->segment_count - first_segment;
    uint32_t index = wire->tensor_count++;
    ul_wire_put_key(&wire->slim, 9, UL_WIRE_BYTES);
    ul_wire_put_varint(&wire->slim, sizeof index);
    ul_text_put_bytes(&wire->slim, &index, sizeof index);
}

static enum ul_status copy_bytes(const struct scan *scan, enum kind kind, const struct rule *rule,
                                 uint32_t number, const struct ul_wire_field *field)
{
    const unsigned char *bytes = scan->wire->data + field->begin;
    if (field->wire_type != UL_WIRE_BYTES)
        return bad(scan, kind, field->begin, "text of the wrong wire type");
    if (field->value > INT32_MAX)
        return bad(scan, kind, field->begin, "text over 2 GiB");
    if (rule->action == NAME && field->value > 0 && memchr(bytes, 0, (size_t)field->value))
        return bad(scan, kind, field->begin, "NUL inside a name");
    ul_wire_put_key(&scan->wire->slim, number, UL_WIRE_BYTES);
    ul_wire_put_varint(&scan->wire->slim, field->value);
    ul_text_put_bytes(&scan->wire->slim, bytes, (size_t)field->value);
    return UL_OK;
}

static enum ul_status copy_value(const struct scan *scan, enum kind kind, uint32_t number,
                                 const struct ul_wire_field *field)
{
    struct ul_text *out = &scan->wire->slim;
    if (field->wire_type == UL_WIRE_BYTES && field->value > INT32_MAX)
        return bad(scan, kind, field->begin, "numbers over 2 GiB");
    ul_wire_put_key(out, number, field->wire_type);
    if (field->wire_type == UL_WIRE_BYTES)
        ul_wire_put_varint(out, field->value);
    ul_text_put_bytes(out, scan->wire->data + field->begin, (size_t)(field->end - field->begin));
    return UL_OK;
}

static enum ul_status scan_message(const struct scan *scan, enum kind kind, uint64_t begin,
                                   uint64_t end, uint32_t depth);

static enum ul_status scan_nested(const struct scan *scan, enum kind kind, const struct rule *rule,
                                  uint32_t number, const struct ul_wire_field *field,
                                  uint32_t depth)
{
    struct ul_text *out = &scan->wire->slim;
    if (field->wire_type != UL_WIRE_BYTES)
        return bad(scan, kind, field->begin, "message of the wrong wire type");
    if (depth == MAX_DEPTH)
        return ul_diag_set(scan->diag, UL_INVALID,
                           "graphs or types are nested more than %d deep at byte %llu",
                           UL_LIMIT_NESTING, (unsigned long long)field->begin);
    ul_wire_put_key(out, number, UL_WIRE_BYTES);
    size_t place = out->length;
    ul_text_put_bytes(out, "\0\0\0\0\0", LENGTH_BYTES);
    UL_TRY(scan_message(scan, rule->nested, field->begin, field->end, depth + 1));
    return fill_length(scan, place);
}

static const struct rule *find_rule(enum kind kind, uint32_t number)
{
    const struct rule *rule = messages[kind].rules;
    while (rule->action != END && rule->field != number)
        rule++;
    return rule->action == END ? NULL : rule;
}

static enum ul_status scan_message(const struct scan *scan, enum kind kind, uint64_t begin,
                                   uint64_t end, uint32_t depth)
{
    uint32_t first_segment = scan->wire->segment_count;
    for (uint64_t at = begin; at < end;) {
        struct ul_wire_field field = {0};
        UL_TRY(read_field(scan, kind, &at, end, &field));
        const struct rule *rule = find_rule(kind, field.number);
        if (rule == NULL)
            continue;
        uint32_t number = rule->renumber != 0 ? rule->renumber : field.number;
        if (rule->action == NESTED)
            UL_TRY(scan_nested(scan, kind, rule, number, &field, depth));
        else if (rule->action == DATA)
            UL_TRY(add_segment(scan, &field));
        else if (rule->action == VALUE)
            UL_TRY(copy_value(scan, kind, number, &field));
        else
            UL_TRY(copy_bytes(scan, kind, rule, number, &field));
    }
    if (kind == TENSOR)
        close_tensor(scan, first_segment);
    return UL_OK;
}

enum ul_status ul_wire_scan(struct ul_wire *wire, struct ul_arena *arena, enum ul_wire_kind kind,
                            const void *data, uint64_t size_bytes, struct ul_diag *diag)
{
    memset(wire, 0, sizeof *wire);
    wire->data = data;
    wire->size_bytes = size_bytes;
    ul_text_init(&wire->slim, arena);
    struct scan scan = {wire, arena, diag};
    return scan_message(&scan, (enum kind)kind, 0, size_bytes, 0);
}
