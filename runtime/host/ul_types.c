/* SPDX-License-Identifier: 0BSD */
/* Element types: one row each, and what can be done with single elements of any of them. */
#include "ul_internal.h"

#include "ul_random.h"
#include "ul_small_float.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct ul_type_info types[] = {
    {UL_TYPE_F32, 'f', 4, 32, "float32", "f4"},
    {UL_TYPE_U8, 'u', 1, 8, "uint8", "u1"},
    {UL_TYPE_I8, 'i', 1, 8, "int8", "i1"},
    {UL_TYPE_U16, 'u', 2, 16, "uint16", "u2"},
    {UL_TYPE_I16, 'i', 2, 16, "int16", "i2"},
    {UL_TYPE_I32, 'i', 4, 32, "int32", "i4"},
    {UL_TYPE_I64, 'i', 8, 64, "int64", "i8"},
    {UL_TYPE_BOOL, 'b', 1, 8, "bool", "b1"},
    {UL_TYPE_F16, 'f', 2, 16, "float16", "f2"},
    {UL_TYPE_F64, 'f', 8, 64, "float64", "f8"},
    {UL_TYPE_U32, 'u', 4, 32, "uint32", "u4"},
    {UL_TYPE_U64, 'u', 8, 64, "uint64", "u8"},
    /* numpy has no name for these: ml_dtypes stores them as opaque bytes */
    {UL_TYPE_BF16, 'f', 2, 16, "bfloat16", "V2"},
    {UL_TYPE_F8E4M3FN, 'f', 1, 8, "float8_e4m3fn", "V1"},
    {UL_TYPE_F8E4M3FNUZ, 'f', 1, 8, "float8_e4m3fnuz", "V1"},
    {UL_TYPE_F8E5M2, 'f', 1, 8, "float8_e5m2", "V1"},
    {UL_TYPE_F8E5M2FNUZ, 'f', 1, 8, "float8_e5m2fnuz", "V1"},
    /* a byte for each element, sign-extended */
    {UL_TYPE_U4, 'u', 1, 4, "uint4", "u1"},
    {UL_TYPE_I4, 'i', 1, 4, "int4", "i1"},
    {UL_TYPE_F4E2M1, 'f', 1, 4, "float4_e2m1", "V1"},
    {UL_TYPE_F8E8M0, 'f', 1, 8, "float8_e8m0", "V1"},
    {UL_TYPE_U2, 'u', 1, 2, "uint2", "u1"},
    {UL_TYPE_I2, 'i', 1, 2, "int2", "i1"},
    {UL_TYPE_F6E2M3, 'f', 1, 6, "float6_e2m3", "V1"},
    {UL_TYPE_F6E3M2, 'f', 1, 6, "float6_e3m2", "V1"},
};

const struct ul_type_info *ul_type_find(enum ul_rt_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const char *ul_precision_text(const struct ul_model *model)
{
    bool rounds = model->tf32 != 0;
    if (model->training != NULL && model->storage == UL_TYPE_F16)
        return "of the model, factors of products in fp16";
    if (model->training != NULL && model->storage == UL_TYPE_BF16)
        return "of the model, factors of products in bf16";
    if (model->declared != 0)
        return model->storage == UL_TYPE_F16 ? "of the model, which is in fp16"
                                             : "of the model, which is in bf16";
    if (model->storage == UL_TYPE_F16)
        return rounds ? "f32 stored as fp16, factors of f32 products in TF32"
                      : "f32 stored as fp16";
    if (model->storage == UL_TYPE_BF16)
        return rounds ? "f32 stored as bf16, factors of f32 products in TF32"
                      : "f32 stored as bf16";
    return rounds ? "of the model, factors of f32 products in TF32" : "of the model";
}

uint64_t ul_element_count(uint32_t rank, const int64_t *dims)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < rank; i++)
        count *= (uint64_t)dims[i];
    return count;
}

const char *ul_shape_text(char buffer[UL_SHAPE_TEXT_BYTES], enum ul_rt_type type, uint32_t rank,
                          const int64_t *dims)
{
    const struct ul_type_info *info = ul_type_find(type);
    size_t used = (size_t)snprintf(buffer, 40, "%s [", info != NULL ? info->name : "unknown type");
    for (uint32_t i = 0; i < rank && used + 32 < UL_SHAPE_TEXT_BYTES; i++)
        used += (size_t)snprintf(buffer + used, 32, "%s%" PRId64, i == 0 ? "" : ",", dims[i]);
    memcpy(buffer + used, "]", 2);
    return buffer;
}

/* The element's bits, low end first, for any width. */
static uint64_t element_bits(const struct ul_type_info *info, const void *data, uint64_t element)
{
    const unsigned char *bytes = data;
    uint16_t half;
    uint32_t word;
    uint64_t wide;
    switch (info->bytes) {
    case 1:
        return bytes[element];
    case 2:
        memcpy(&half, bytes + element * 2, 2);
        return half;
    case 4:
        memcpy(&word, bytes + element * 4, 4);
        return word;
    default:
        memcpy(&wide, bytes + element * 8, 8);
        return wide;
    }
}

static double float_value(enum ul_rt_type type, uint64_t bits)
{
    double wide;
    switch ((int)type) {
    case UL_TYPE_F64:
        memcpy(&wide, &bits, 8);
        return wide;
    case UL_TYPE_F32:
        return (double)ul_f32_from_bits((uint32_t)bits);
    case UL_TYPE_F16:
        return (double)ul_f16_to_f32((uint16_t)bits);
    case UL_TYPE_BF16:
        return (double)ul_bf16_to_f32((uint16_t)bits);
    case UL_TYPE_F8E4M3FN:
        return (double)ul_f8e4m3fn_to_f32((uint8_t)bits);
    case UL_TYPE_F8E4M3FNUZ:
        return (double)ul_f8e4m3fnuz_to_f32((uint8_t)bits);
    case UL_TYPE_F8E5M2:
        return (double)ul_f8e5m2_to_f32((uint8_t)bits);
    case UL_TYPE_F4E2M1:
        return (double)ul_f4e2m1_to_f32((uint8_t)bits);
    case UL_TYPE_F6E2M3:
        return (double)ul_f6e2m3_to_f32((uint8_t)bits);
    case UL_TYPE_F6E3M2:
        return (double)ul_f6e3m2_to_f32((uint8_t)bits);
    case UL_TYPE_F8E8M0:
        return (double)ul_f8e8m0_to_f32((uint8_t)bits);
    default:
        return (double)ul_f8e5m2fnuz_to_f32((uint8_t)bits);
    }
}

/* Extends two's complement of any width to 64 bits. */
static int64_t sign_extend(uint64_t bits, uint32_t width)
{
    uint64_t sign = UINT64_C(1) << (width - 1);
    return (int64_t)((bits ^ sign) - sign);
}

double ul_element_get(enum ul_rt_type type, const void *data, uint64_t element)
{
    const struct ul_type_info *info = ul_type_find(type);
    uint64_t bits = element_bits(info, data, element);
    if (info->kind == 'f')
        return float_value(type, bits);
    return info->kind == 'i' ? (double)sign_extend(bits, info->bytes * 8) : (double)bits;
}

bool ul_all_finite(enum ul_rt_type type, const void *data, uint64_t count)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; type == UL_TYPE_F32 && i < count; i++) { /* the most frequent type */
        uint32_t bits;
        memcpy(&bits, (const unsigned char *)data + i * 4, 4);
        wrong += (bits & 0x7f800000u) == 0x7f800000u;
    }
    for (uint64_t i = 0; type != UL_TYPE_F32 && i < count; i++)
        wrong += isfinite(ul_element_get(type, data, i)) ? 0 : 1;
    return wrong == 0;
}

const char *ul_element_text(char buffer[UL_SHOWN_BYTES], enum ul_rt_type type, const void *data,
                            uint64_t element)
{
    const struct ul_type_info *info = ul_type_find(type);
    uint64_t bits = element_bits(info, data, element);
    if (info->kind == 'f')
        snprintf(buffer, UL_SHOWN_BYTES, "%.*g", type == UL_TYPE_F64 ? 10 : 6,
                 float_value(type, bits));
    else if (info->kind == 'i')
        snprintf(buffer, UL_SHOWN_BYTES, "%" PRId64, sign_extend(bits, info->bytes * 8));
    else if (info->kind == 'b')
        snprintf(buffer, UL_SHOWN_BYTES, "%s", bits != 0 ? "true" : "false");
    else
        snprintf(buffer, UL_SHOWN_BYTES, "%" PRIu64, bits);
    return buffer;
}

static uint64_t float_bits(enum ul_rt_type type, double value)
{
    uint64_t wide;
    switch ((int)type) {
    case UL_TYPE_F64:
        memcpy(&wide, &value, 8);
        return wide;
    case UL_TYPE_F32:
        return ul_f32_bits((float)value);
    case UL_TYPE_F16:
        return ul_f64_to_f16(value);
    case UL_TYPE_BF16:
        return ul_f64_to_bf16(value);
    case UL_TYPE_F8E4M3FN:
        return ul_f32_to_f8e4m3fn((float)value, 1);
    case UL_TYPE_F8E4M3FNUZ:
        return ul_f32_to_f8e4m3fnuz((float)value, 1);
    case UL_TYPE_F8E5M2:
        return ul_f32_to_f8e5m2((float)value, 1);
    case UL_TYPE_F4E2M1:
        return ul_f32_to_f4e2m1((float)value, 1);
    case UL_TYPE_F6E2M3:
        return ul_f32_to_f6e2m3((float)value, 1);
    case UL_TYPE_F6E3M2:
        return ul_f32_to_f6e3m2((float)value, 1);
    case UL_TYPE_F8E8M0:
        return ul_f32_to_f8e8m0((float)value, 1);
    default:
        return ul_f32_to_f8e5m2fnuz((float)value, 1);
    }
}

/* The bits of a random element. */
static uint64_t random_bits(const struct ul_type_info *info, double uniform)
{
    double count = info->kind == 'b' || info->bits == 2 ? 2.0 : info->bits == 4 ? 8.0 : 10.0;
    if (info->kind != 'f')
        return (uint64_t)(uniform * count);
    return float_bits(info->type, uniform * 2.0 - 1.0);
}

static void store_bits(const struct ul_type_info *info, void *data, uint64_t element, uint64_t bits)
{
    unsigned char *bytes = data;
    uint16_t half = (uint16_t)bits;
    uint32_t word = (uint32_t)bits;
    if (info->bytes == 1)
        bytes[element] = (unsigned char)bits;
    else if (info->bytes == 2)
        memcpy(bytes + element * 2, &half, 2);
    else if (info->bytes == 4)
        memcpy(bytes + element * 4, &word, 4);
    else
        memcpy(bytes + element * 8, &bits, 8);
}

bool ul_integer_get(enum ul_rt_type type, const void *data, uint64_t element, int64_t *value)
{
    const struct ul_type_info *info = ul_type_find(type);
    uint64_t bits = element_bits(info, data, element);
    *value = info->kind == 'i' ? sign_extend(bits, info->bytes * 8) : (int64_t)bits;
    return info->kind == 'i' || bits <= INT64_MAX;
}

bool ul_integer_put(enum ul_rt_type type, void *data, uint64_t element, int64_t value)
{
    const struct ul_type_info *info = ul_type_find(type);
    uint32_t width = info->kind == 'i' ? info->bits - 1 : info->bits; /* without the sign */
    int64_t max = width > 62 ? INT64_MAX : ((int64_t)1 << width) - 1;
    if (info->kind == 'f') {
        store_bits(info, data, element, float_bits(type, (double)value));
        return true;
    }
    if (value > max || value < (info->kind == 'i' ? -max - 1 : 0))
        return false;
    store_bits(info, data, element, (uint64_t)value);
    return true;
}

void ul_normalise(const struct ul_rt_tensor *tensor, void *data)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    unsigned char *bytes = data;
    for (uint64_t i = 0; info->kind == 'b' && i < tensor->size_bytes; i++)
        bytes[i] = bytes[i] != 0;
    unsigned mask = (1u << info->bits % 8) - 1, sign = info->kind == 'i' ? (mask >> 1) + 1 : 0;
    for (uint64_t i = 0; info->bits < 8 && i < tensor->size_bytes; i++)
        bytes[i] = (unsigned char)(((bytes[i] & mask) ^ sign) - sign);
}

void ul_fill_random(const struct ul_rt_tensor *tensor, void *data, uint64_t seed, uint32_t stream)
{
    const struct ul_type_info *info = ul_type_find(tensor->type);
    uint64_t count = ul_element_count(tensor->rank, tensor->dims);
    memset(data, 0, (size_t)tensor->size_bytes);
    for (uint64_t i = 0; i < count; i++)
        store_bits(info, data, i, random_bits(info, ul_random_uniform_f64(seed, stream, 0, i)));
}
