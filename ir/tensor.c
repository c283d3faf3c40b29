/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of constants. The small float formats are all described by one table and converted
 * through double, which holds every one of them exactly; runtime/lib/ul_small_float.h is the fast
 * form of the same conversions, and a test compares the two.
 *
 * Source of the formats: IEEE 754-2019 (binary16), OCP 8-bit Floating Point Specification 1.0
 * (E4M3, E5M2), "8-bit Numerical Formats for Deep Neural Networks" (Noune et al., 2022: FNUZ),
 * OCP Microscaling Formats 1.0 (E2M1, E2M3, E3M2, E8M0).
 */
#include "ir/tensor.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum overflow {
    OVERFLOW_INFINITY, /* the top exponent is infinity and NaN, as in IEEE 754 */
    OVERFLOW_NAN,      /* no infinity */
    OVERFLOW_SATURATE  /* neither infinity nor NaN */
};

struct small_float {
    int exponent_bits, mantissa_bits, bias;
    uint32_t largest; /* code of the largest finite number */
    uint32_t nan;
    enum overflow overflow;
    bool no_minus_zero; /* FNUZ: the code of -0 is NaN */
};

static const struct small_float *small_float_get(enum ul_dtype dtype)
{
    static const struct small_float formats[UL_DTYPE_COUNT] = {
        [UL_F16] = {5, 10, 15, 0x7BFF, 0x7E00, OVERFLOW_INFINITY, false},
        [UL_BF16] = {8, 7, 127, 0x7F7F, 0x7FC0, OVERFLOW_INFINITY, false},
        [UL_F8E4M3FN] = {4, 3, 7, 0x7E, 0x7F, OVERFLOW_NAN, false},
        [UL_F8E4M3FNUZ] = {4, 3, 8, 0x7F, 0x80, OVERFLOW_NAN, true},
        [UL_F8E5M2] = {5, 2, 15, 0x7B, 0x7E, OVERFLOW_INFINITY, false},
        [UL_F8E5M2FNUZ] = {5, 2, 16, 0x7F, 0x80, OVERFLOW_NAN, true},
        [UL_F4E2M1] = {2, 1, 1, 0x7, 0x0, OVERFLOW_SATURATE, false},
        [UL_F6E2M3] = {2, 3, 1, 0x1F, 0x0, OVERFLOW_SATURATE, false},
        [UL_F6E3M2] = {3, 2, 3, 0x1F, 0x0, OVERFLOW_SATURATE, false},
    };
    const struct small_float *format = &formats[dtype];
    return format->exponent_bits == 0 ? NULL : format;
}

static double small_float_decode(const struct small_float *format, uint32_t code)
{
    uint32_t sign = 1u << (format->exponent_bits + format->mantissa_bits);
    uint32_t magnitude = code & (sign - 1);
    double minus = (code & sign) != 0 ? -1.0 : 1.0;
    if (format->no_minus_zero && code == sign)
        return (double)NAN;
    if (magnitude > format->largest) {
        bool infinite = format->overflow == OVERFLOW_INFINITY && magnitude == format->largest + 1;
        return infinite ? minus * (double)INFINITY : copysign((double)NAN, minus);
    }
    uint32_t exponent = magnitude >> format->mantissa_bits;
    uint32_t fraction = magnitude & ((1u << format->mantissa_bits) - 1);
    if (exponent > 0)
        fraction |= 1u << format->mantissa_bits;
    int power = (exponent == 0 ? 1 : (int)exponent) - format->bias - format->mantissa_bits;
    return minus * ldexp((double)fraction, power);
}

static uint32_t small_float_encode(const struct small_float *format, double value)
{
    uint32_t sign = 1u << (format->exponent_bits + format->mantissa_bits);
    uint32_t minus = signbit(value) ? sign : 0;
    if (isnan(value))
        return format->no_minus_zero ? format->nan : (minus | format->nan);
    /* Rounds in units of the last place at this exponent; rint rounds to nearest even. A carry into
     * the next exponent is right by itself, since codes are in the order of the numbers. */
    double magnitude = fabs(value);
    int exponent = 0;
    (void)frexp(magnitude, &exponent);
    int biased = exponent - 1 + format->bias;
    uint32_t code = format->largest + 1;
    if (isinf(value)) /* frexp gives it no exponent */
        biased = 1 << format->exponent_bits;
    if (biased < 1 || magnitude == 0)
        code = (uint32_t)rint(ldexp(magnitude, format->bias - 1 + format->mantissa_bits));
    else if (biased < 1 << format->exponent_bits)
        code = ((uint32_t)(biased - 1) << format->mantissa_bits) +
               (uint32_t)rint(ldexp(magnitude, format->mantissa_bits - (exponent - 1)));
    if (code > format->largest) {
        if (format->overflow == OVERFLOW_NAN)
            return format->no_minus_zero ? format->nan : (minus | format->nan);
        code = format->overflow == OVERFLOW_INFINITY ? format->largest + 1 : format->largest;
    }
    return code == 0 && format->no_minus_zero ? 0 : (minus | code);
}

enum { SCALE_NAN = 0xFF, SCALE_BIAS = 127 };

/* E8M0: an exponent and nothing else. */
static double scale_decode(uint32_t code)
{
    return code == SCALE_NAN ? (double)NAN : ldexp(1, (int)code - SCALE_BIAS);
}

/* The next power of two of the magnitude; NaN where there is none and for 0. */
static uint32_t scale_encode(double value)
{
    int exponent = 0;
    double fraction = frexp(fabs(value), &exponent);
    if (isnan(value) || isinf(value) || fraction == 0)
        return SCALE_NAN;
    int code = exponent - (fraction <= 0.5 ? 1 : 0) + SCALE_BIAS;
    return code < 0 ? 0 : code >= SCALE_NAN ? SCALE_NAN : (uint32_t)code;
}

/* Little-endian bytes, whatever the machine. */
static uint64_t bits_get(const unsigned char *place, uint32_t size_bytes)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < size_bytes; i++)
        bits |= (uint64_t)place[i] << (8 * i);
    return bits;
}

static void bits_put(unsigned char *place, uint32_t size_bytes, uint64_t bits)
{
    for (uint32_t i = 0; i < size_bytes; i++)
        place[i] = (unsigned char)(bits >> (8 * i));
}

double ul_dtype_largest(enum ul_dtype dtype)
{
    const struct small_float *format = small_float_get(dtype);
    if (format != NULL)
        return small_float_decode(format, format->largest);
    if (dtype == UL_F8E8M0)
        return scale_decode(SCALE_NAN - 1);
    return dtype == UL_F32 ? (double)FLT_MAX : DBL_MAX;
}

double ul_element_get_float(const unsigned char *place, enum ul_dtype dtype)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    uint64_t bits = bits_get(place, info->size_bytes);
    if (dtype == UL_F32) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof value);
        return (double)value;
    }
    if (dtype == UL_F64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (dtype == UL_U64)
        return (double)bits;
    if (dtype == UL_F8E8M0)
        return scale_decode((uint32_t)bits);
    const struct small_float *format = small_float_get(dtype);
    if (format != NULL)
        return small_float_decode(format, (uint32_t)bits);
    return (double)ul_element_get_int(place, dtype);
}

int64_t ul_element_get_int(const unsigned char *place, enum ul_dtype dtype)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (info->is_float) {
        double value = ul_element_get_float(place, dtype);
        if (isnan(value))
            return 0;
        return value >= 0x1p63 ? INT64_MAX : value < -0x1p63 ? INT64_MIN : (int64_t)value;
    }
    UL_ASSERT(info->is_integer || dtype == UL_BOOL);
    uint64_t bits = bits_get(place, info->size_bytes);
    if (dtype == UL_BOOL)
        return bits != 0;
    uint32_t width = info->bits;
    if (width < 64) {
        uint64_t mask = ((uint64_t)1 << width) - 1;
        uint64_t sign = (uint64_t)1 << (width - 1);
        bits &= mask;
        if (info->is_signed && (bits & sign) != 0)
            bits |= ~mask;
    }
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void ul_element_put_int(unsigned char *place, enum ul_dtype dtype, int64_t value)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (info->is_float) {
        ul_element_put_float(place, dtype, (double)value);
        return;
    }
    UL_ASSERT(info->is_integer || dtype == UL_BOOL);
    uint64_t bits = (uint64_t)value;
    if (dtype == UL_BOOL)
        bits = value != 0;
    else if (info->bits < 8) { /* kept as a byte, sign-extended where signed */
        uint64_t mask = ((uint64_t)1 << info->bits) - 1, sign = (mask >> 1) + 1;
        bits &= mask;
        bits = info->is_signed && (bits & sign) != 0 ? bits | ~mask : bits;
    }
    bits_put(place, info->size_bytes, bits);
}

/* Towards zero; what does not fit saturates, NaN gives 0. */
static uint64_t double_to_bits(double value, bool is_signed)
{
    if (isnan(value))
        return 0;
    if (!is_signed && value >= 0x1p63)
        return value >= 0x1p64 ? UINT64_MAX : (uint64_t)value;
    if (value >= 0x1p63)
        return (uint64_t)INT64_MAX;
    return (uint64_t)(value < -0x1p63 ? INT64_MIN : (int64_t)value);
}

void ul_element_put_float(unsigned char *place, enum ul_dtype dtype, double value)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    const struct small_float *format = small_float_get(dtype);
    if (format != NULL) {
        bits_put(place, info->size_bytes, small_float_encode(format, value));
    } else if (dtype == UL_F8E8M0) {
        place[0] = (unsigned char)scale_encode(value);
    } else if (dtype == UL_F32) {
        float narrow = (float)value;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        bits_put(place, 4, bits);
    } else if (dtype == UL_F64) {
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits_put(place, 8, bits);
    } else if (dtype == UL_BOOL) {
        place[0] = value != 0;
    } else {
        uint64_t bits = double_to_bits(value, info->is_signed);
        int64_t whole;
        memcpy(&whole, &bits, sizeof whole);
        ul_element_put_int(place, dtype, whole);
    }
}

static const unsigned char *tensor_place(const struct ul_tensor *tensor, uint64_t index)
{
    if (tensor->data == NULL)
        return tensor->splat;
    return tensor->data + index * ul_dtype_get(tensor->type.dtype)->size_bytes;
}

int64_t ul_tensor_get_int(const struct ul_tensor *tensor, uint64_t index)
{
    return ul_element_get_int(tensor_place(tensor, index), tensor->type.dtype);
}

double ul_tensor_get_float(const struct ul_tensor *tensor, uint64_t index)
{
    return ul_element_get_float(tensor_place(tensor, index), tensor->type.dtype);
}

struct ul_tensor *ul_tensor_new(struct ul_arena *arena, const struct ul_type *type,
                                const void *data)
{
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    tensor->type = *type;
    tensor->data = ul_arena_copy(arena, data, ul_type_bytes(type));
    return tensor;
}

struct ul_tensor *ul_tensor_of(struct ul_arena *arena, const struct ul_type *type, const void *data)
{
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    *tensor = (struct ul_tensor){.type = *type, .data = data};
    return tensor;
}

struct ul_tensor *ul_tensor_new_ints(struct ul_arena *arena, enum ul_dtype dtype, uint32_t rank,
                                     const int64_t *dims, const int64_t *values)
{
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    tensor->type = ul_type_make(dtype, rank, dims);
    uint64_t count = ul_type_elements(&tensor->type);
    uint32_t size_bytes = ul_dtype_get(dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(arena, ul_type_bytes(&tensor->type));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_int(data + i * size_bytes, dtype, values[i]);
    tensor->data = data;
    return tensor;
}

struct ul_tensor *ul_tensor_new_floats(struct ul_arena *arena, const struct ul_type *type,
                                       const double *values)
{
    uint64_t count = ul_type_elements(type), size_bytes = ul_dtype_get(type->dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(arena, ul_type_bytes(type));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(data + i * size_bytes, type->dtype, values[i]);
    return ul_tensor_of(arena, type, data);
}

struct ul_tensor *ul_tensor_new_splat(struct ul_arena *arena, const struct ul_type *type,
                                      const void *element)
{
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    tensor->type = *type;
    memcpy(tensor->splat, element, ul_dtype_get(type->dtype)->size_bytes);
    return tensor;
}

void ul_tensor_read(const struct ul_tensor *tensor, uint64_t begin, uint64_t count,
                    unsigned char *out)
{
    uint64_t size_bytes = ul_dtype_get(tensor->type.dtype)->size_bytes;
    if (count == 0)
        return;
    if (tensor->data != NULL) {
        memcpy(out, tensor->data + begin * size_bytes, (size_t)(count * size_bytes));
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        memcpy(out + i * size_bytes, tensor->splat, (size_t)size_bytes);
}

void ul_tensor_pack(const struct ul_tensor *tensor, unsigned char *out)
{
    unsigned bits = ul_dtype_get(tensor->type.dtype)->bits;
    uint64_t count = ul_type_elements(&tensor->type);
    UL_ASSERT(bits < 8);
    memset(out, 0, (size_t)ul_type_packed_bytes(&tensor->type));
    for (uint64_t i = 0; i < count; i++) {
        unsigned code = *tensor_place(tensor, i) & ((1u << bits) - 1);
        unsigned char *place = out + i / 8 * bits + i % 8 * bits / 8;
        code <<= i * bits % 8;
        place[0] = (unsigned char)(place[0] | code);
        if (code > 255)
            place[1] = (unsigned char)(place[1] | code >> 8);
    }
}

/* NaN stays NaN. */
static uint32_t bf16_of(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded;
}

/* What follows handles elements one by one, so that compilers vectorise the loop. */
static void round_bf16(const unsigned char *from, uint64_t count, unsigned char *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = bf16_of((uint32_t)from[4 * i] | (uint32_t)from[4 * i + 1] << 8 |
                                (uint32_t)from[4 * i + 2] << 16 | (uint32_t)from[4 * i + 3] << 24);
        out[2 * i] = (unsigned char)bits;
        out[2 * i + 1] = (unsigned char)(bits >> 8);
    }
}

void ul_tensor_read_as(const struct ul_tensor *tensor, enum ul_dtype storage, uint64_t begin,
                       uint64_t count, unsigned char *out)
{
    enum { PART = 1024 };
    unsigned char part[PART * sizeof(float)];
    if (storage == tensor->type.dtype) {
        ul_tensor_read(tensor, begin, count, out);
        return;
    }
    UL_ASSERT(tensor->type.dtype == UL_F32 && ul_dtype_is_half(storage));
    for (uint64_t at = 0; at < count; at += PART) {
        uint64_t size = count - at < PART ? count - at : PART;
        ul_tensor_read(tensor, begin + at, size, part);
        if (storage == UL_BF16)
            round_bf16(part, size, out + 2 * at);
        for (uint64_t i = 0; storage == UL_F16 && i < size; i++)
            ul_element_put_float(out + 2 * (at + i), UL_F16,
                                 ul_element_get_float(part + 4 * i, UL_F32));
    }
}
