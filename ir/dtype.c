/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/type.h"

#include <string.h>

static const struct ul_dtype_info infos[UL_DTYPE_COUNT] = {
    [UL_DTYPE_NONE] = {"none", 0, 0, false, false, false},
    [UL_F32] = {"f32", 4, 32, true, true, false},
    [UL_U8] = {"u8", 1, 8, false, false, true},
    [UL_I8] = {"i8", 1, 8, false, true, true},
    [UL_U16] = {"u16", 2, 16, false, false, true},
    [UL_I16] = {"i16", 2, 16, false, true, true},
    [UL_I32] = {"i32", 4, 32, false, true, true},
    [UL_I64] = {"i64", 8, 64, false, true, true},
    [UL_STRING] = {"string", 0, 0, false, false, false},
    [UL_BOOL] = {"bool", 1, 8, false, false, false},
    [UL_F16] = {"f16", 2, 16, true, true, false},
    [UL_F64] = {"f64", 8, 64, true, true, false},
    [UL_U32] = {"u32", 4, 32, false, false, true},
    [UL_U64] = {"u64", 8, 64, false, false, true},
    [UL_C64] = {"c64", 8, 64, false, true, false},
    [UL_C128] = {"c128", 16, 128, false, true, false},
    [UL_BF16] = {"bf16", 2, 16, true, true, false},
    [UL_F8E4M3FN] = {"f8e4m3fn", 1, 8, true, true, false},
    [UL_F8E4M3FNUZ] = {"f8e4m3fnuz", 1, 8, true, true, false},
    [UL_F8E5M2] = {"f8e5m2", 1, 8, true, true, false},
    [UL_F8E5M2FNUZ] = {"f8e5m2fnuz", 1, 8, true, true, false},
    [UL_U4] = {"u4", 1, 4, false, false, true},
    [UL_I4] = {"i4", 1, 4, false, true, true},
    [UL_F4E2M1] = {"f4e2m1", 1, 4, true, true, false},
    [UL_F8E8M0] = {"f8e8m0", 1, 8, true, false, false},
    [UL_U2] = {"u2", 1, 2, false, false, true},
    [UL_I2] = {"i2", 1, 2, false, true, true},
    [UL_F6E2M3] = {"f6e2m3", 1, 6, true, true, false},
    [UL_F6E3M2] = {"f6e3m2", 1, 6, true, true, false},
};

const struct ul_dtype_info *ul_dtype_get(enum ul_dtype dtype)
{
    UL_ASSERT((unsigned)dtype < UL_DTYPE_COUNT);
    return &infos[dtype];
}

bool ul_dtype_is_computed(enum ul_dtype dtype)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    return info->is_float || info->is_integer || dtype == UL_BOOL;
}

bool ul_dtype_is_half(enum ul_dtype dtype)
{
    return dtype == UL_F16 || dtype == UL_BF16;
}

bool ul_dtype_is_wide(enum ul_dtype dtype)
{
    return dtype == UL_F32 || dtype == UL_F64;
}

bool ul_dtype_is_real(enum ul_dtype dtype)
{
    return ul_dtype_is_wide(dtype) || ul_dtype_is_half(dtype);
}

bool ul_dtype_is_8bit(enum ul_dtype dtype)
{
    return dtype == UL_U8 || dtype == UL_I8;
}

bool ul_dtype_range(enum ul_dtype dtype, int64_t *low, int64_t *high)
{
    enum { MAX_BITS = 16 };
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (!info->is_integer || info->bits > MAX_BITS)
        return false;
    *low = info->is_signed ? -((int64_t)1 << (info->bits - 1)) : 0;
    *high = *low + ((int64_t)1 << info->bits) - 1;
    return true;
}

enum ul_dtype ul_dtype_find(const char *name)
{
    for (unsigned i = 1; i < UL_DTYPE_COUNT; i++) {
        if (strcmp(infos[i].name, name) == 0)
            return (enum ul_dtype)i;
    }
    return UL_DTYPE_NONE;
}

bool ul_type_known(const struct ul_type *type)
{
    if (type->dtype == UL_DTYPE_NONE || type->rank > UL_LIMIT_RANK)
        return false;
    for (uint32_t i = 0; i < type->rank; i++) {
        if (type->dims[i] < 0)
            return false;
    }
    return true;
}

uint64_t ul_type_elements(const struct ul_type *type)
{
    UL_ASSERT(ul_type_known(type));
    uint64_t count = 1;
    for (uint32_t i = 0; i < type->rank; i++) {
        if (type->dims[i] == 0)
            return 0;
        count = ul_size_mul_or_die(count, (uint64_t)type->dims[i]);
    }
    return count;
}

uint64_t ul_type_bytes(const struct ul_type *type)
{
    return ul_size_mul_or_die(ul_type_elements(type), ul_dtype_get(type->dtype)->size_bytes);
}

uint64_t ul_type_packed_bytes(const struct ul_type *type)
{
    uint32_t bits = ul_dtype_get(type->dtype)->bits;
    if (bits == 0 || bits >= 8)
        return ul_type_bytes(type);
    /* Eight elements of any width fill whole bytes. */
    uint64_t count = ul_type_elements(type);
    return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

bool ul_type_same_dims(const struct ul_type *a, const struct ul_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

bool ul_type_has_dims(const struct ul_type *type, uint32_t rank, const int64_t *dims)
{
    return type->rank == rank && memcmp(type->dims, dims, rank * sizeof *dims) == 0;
}

bool ul_type_equal(const struct ul_type *a, const struct ul_type *b)
{
    if (a->rank == UL_RANK_UNKNOWN || b->rank == UL_RANK_UNKNOWN)
        return a->dtype == b->dtype && a->rank == b->rank;
    return a->dtype == b->dtype && ul_type_same_dims(a, b);
}

bool ul_type_in_limits(const struct ul_type *type)
{
    /* An empty dimension counts as 1, so that strides stay in range too. */
    uint64_t bytes = ul_dtype_get(type->dtype)->size_bytes;
    if (!ul_type_known(type))
        return false;
    for (uint32_t i = 0; i < type->rank; i++) {
        uint64_t dim = type->dims[i] == 0 ? 1 : (uint64_t)type->dims[i];
        if (type->dims[i] > UL_LIMIT_DIM || !ul_size_mul(bytes, dim, &bytes) ||
            bytes > UL_LIMIT_TENSOR_BYTES)
            return false;
    }
    return true;
}

struct ul_type ul_type_make(enum ul_dtype dtype, uint32_t rank, const int64_t *dims)
{
    UL_ASSERT(rank <= UL_LIMIT_RANK);
    struct ul_type type = {.dtype = dtype, .rank = rank};
    if (rank > 0)
        memcpy(type.dims, dims, rank * sizeof *dims);
    return type;
}

void ul_type_print(struct ul_text *text, const struct ul_type *type)
{
    ul_text_put(text, ul_dtype_get(type->dtype)->name);
    if (type->rank == UL_RANK_UNKNOWN) {
        ul_text_put(text, "[*]");
        return;
    }
    ul_text_put(text, "[");
    for (uint32_t i = 0; i < type->rank; i++) {
        ul_text_put(text, i == 0 ? "" : ",");
        if (type->dims[i] < 0)
            ul_text_put(text, "?");
        else
            ul_text_printf(text, "%lld", (long long)type->dims[i]);
    }
    ul_text_put(text, "]");
}

const char *ul_type_text(struct ul_arena *arena, const struct ul_type *type)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_type_print(&text, type);
    return text.data;
}
