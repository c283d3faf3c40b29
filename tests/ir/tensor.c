/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of constants: every code of every small format, against the runtime's conversions. */
#include "test.h"

#include "ir/tensor.h"
#include "runtime/lib/ul_small_float.h"

#include <math.h>
#include <string.h>

static bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static float runtime_decode(enum ul_dtype dtype, uint32_t code)
{
    if (dtype == UL_F16)
        return ul_f16_to_f32((uint16_t)code);
    if (dtype == UL_BF16)
        return ul_bf16_to_f32((uint16_t)code);
    if (dtype == UL_F8E4M3FN)
        return ul_f8e4m3fn_to_f32((uint8_t)code);
    if (dtype == UL_F8E4M3FNUZ)
        return ul_f8e4m3fnuz_to_f32((uint8_t)code);
    if (dtype == UL_F4E2M1)
        return ul_f4e2m1_to_f32((uint8_t)code);
    if (dtype == UL_F6E2M3)
        return ul_f6e2m3_to_f32((uint8_t)code);
    if (dtype == UL_F6E3M2)
        return ul_f6e3m2_to_f32((uint8_t)code);
    if (dtype == UL_F8E8M0)
        return ul_f8e8m0_to_f32((uint8_t)code);
    return dtype == UL_F8E5M2 ? ul_f8e5m2_to_f32((uint8_t)code)
                              : ul_f8e5m2fnuz_to_f32((uint8_t)code);
}

static uint32_t runtime_encode(enum ul_dtype dtype, float value)
{
    if (dtype == UL_F16)
        return ul_f32_to_f16(value);
    if (dtype == UL_BF16)
        return ul_f32_to_bf16(value);
    if (dtype == UL_F8E4M3FN)
        return ul_f32_to_f8e4m3fn(value, 0);
    if (dtype == UL_F8E4M3FNUZ)
        return ul_f32_to_f8e4m3fnuz(value, 0);
    if (dtype == UL_F4E2M1)
        return ul_f32_to_f4e2m1(value, 0);
    if (dtype == UL_F6E2M3)
        return ul_f32_to_f6e2m3(value, 0);
    if (dtype == UL_F6E3M2)
        return ul_f32_to_f6e3m2(value, 0);
    if (dtype == UL_F8E8M0)
        return ul_f32_to_f8e8m0(value, 0);
    return dtype == UL_F8E5M2 ? ul_f32_to_f8e5m2(value, 0) : ul_f32_to_f8e5m2fnuz(value, 0);
}

static const enum ul_dtype small_floats[] = {UL_F16,    UL_BF16,       UL_F8E4M3FN, UL_F8E4M3FNUZ,
                                             UL_F8E5M2, UL_F8E5M2FNUZ, UL_F4E2M1,   UL_F6E2M3,
                                             UL_F6E3M2, UL_F8E8M0};

static uint32_t place_code(const unsigned char *place, enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->size_bytes == 2 ? place[0] | (uint32_t)place[1] << 8 : place[0];
}

static void small_float_codes(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof small_floats / sizeof *small_floats; t++) {
        enum ul_dtype dtype = small_floats[t];
        uint32_t codes = 1u << ul_dtype_get(dtype)->bits;
        for (uint32_t code = 0; code < codes; code++) {
            unsigned char place[2] = {(unsigned char)code, (unsigned char)(code >> 8)};
            double value = ul_element_get_float(place, dtype);
            assert_true(same_double(value, (double)runtime_decode(dtype, code)));
            if (isnan(value))
                continue;
            ul_element_put_float(place, dtype, value);
            assert_int_equal(place_code(place, dtype), code);
        }
    }
}

/* Floats with random bits, and those between two neighbours of each format. */
static void small_float_rounding(void **state)
{
    (void)state;
    uint32_t seed = 12345;
    for (uint32_t i = 0; i < 200000; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t bits = i % 2 == 0 ? seed : (seed & 0xFF801000u) + 0x38000000u;
        float value = ul_f32_from_bits(bits);
        if (isnan(value))
            continue;
        for (size_t t = 0; t < sizeof small_floats / sizeof *small_floats; t++) {
            unsigned char place[2];
            ul_element_put_float(place, small_floats[t], (double)value);
            uint32_t code = place_code(place, small_floats[t]);
            assert_int_equal(code, runtime_encode(small_floats[t], value));
        }
    }
}

static void f4_values(void **state)
{
    (void)state;
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (unsigned i = 0; i < 16; i++) {
        unsigned char code = (unsigned char)i;
        double wanted = i < 8 ? values[i] : -values[i - 8];
        assert_true(same_double(ul_element_get_float(&code, UL_F4E2M1), wanted));
    }
    unsigned char place;
    ul_element_put_float(&place, UL_F4E2M1, 100.0);
    assert_int_equal(place, 7);
    ul_element_put_float(&place, UL_F4E2M1, 2.5); /* a tie: to even, 2 */
    assert_int_equal(place, 4);
    ul_element_put_float(&place, UL_F4E2M1, 3.5); /* a tie: to even, 4 */
    assert_int_equal(place, 6);
}

static void integers_wrap(void **state)
{
    (void)state;
    unsigned char place[8];
    ul_element_put_int(place, UL_I8, 200);
    assert_int_equal(ul_element_get_int(place, UL_I8), -56);
    ul_element_put_int(place, UL_I4, 9);
    assert_int_equal(ul_element_get_int(place, UL_I4), -7);
    ul_element_put_int(place, UL_U4, -1);
    assert_int_equal(ul_element_get_int(place, UL_U4), 15);
    ul_element_put_int(place, UL_I2, 2);
    assert_int_equal(ul_element_get_int(place, UL_I2), -2);
    ul_element_put_int(place, UL_U2, 5);
    assert_int_equal(ul_element_get_int(place, UL_U2), 1);
    ul_element_put_int(place, UL_U16, -1);
    assert_int_equal(ul_element_get_int(place, UL_U16), 65535);
    ul_element_put_int(place, UL_BOOL, 256);
    assert_int_equal(ul_element_get_int(place, UL_BOOL), 1);
    ul_element_put_float(place, UL_U64, 1e19);
    assert_true(ul_element_get_float(place, UL_U64) == 1e19);
    ul_element_put_float(place, UL_I32, -2.75);
    assert_int_equal(ul_element_get_int(place, UL_I32), -2);
}

static void read_splat_and_unaligned(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    int64_t dims[] = {3};
    struct ul_type type = ul_type_make(UL_F32, 1, dims);
    float one = 1.0f;
    unsigned char bytes[12];
    struct ul_tensor *splat = ul_tensor_new_splat(&arena, &type, &one);
    ul_tensor_read(splat, 1, 2, bytes);
    assert_memory_equal(bytes, &one, 4);
    assert_memory_equal(bytes + 4, &one, 4);
    unsigned char file[13] = {0};
    float half = 0.5f;
    memcpy(file + 1 + 8, &half, 4);
    struct ul_tensor mapped = {.type = type, .data = file + 1};
    assert_true(ul_tensor_get_float(&mapped, 2) == 0.5);
    ul_arena_done(&arena);
}

/* Constants as they are in memory under --precision: more than one part, from any element on. */
static void read_rounded(void **state)
{
    (void)state;
    enum { COUNT = 5000, BEGIN = 3 };
    static const enum ul_dtype halves[] = {UL_F16, UL_BF16};
    static const uint32_t special[] = {0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF, 0x477FEFFF,
                                       0x477FF000, 0x3F808000, 0x3F818000, 0x33000000, 0x80000001};
    static float values[COUNT];
    static unsigned char out[2 * COUNT];
    int64_t dims[] = {COUNT};
    uint32_t bits = 1;
    for (uint32_t i = 0; i < COUNT; i++) {
        bits = bits * 1664525u + 1013904223u;
        values[i] = ul_f32_from_bits(i < sizeof special / sizeof *special ? special[i] : bits);
    }
    struct ul_tensor tensor = {.type = ul_type_make(UL_F32, 1, dims),
                               .data = (const unsigned char *)values};
    for (int h = 0; h < 2; h++) {
        ul_tensor_read_as(&tensor, halves[h], BEGIN, COUNT - BEGIN, out);
        for (uint32_t i = BEGIN; i < COUNT; i++) {
            uint32_t code = place_code(out + (size_t)2 * (i - BEGIN), halves[h]);
            if (isnan(values[i]))
                assert_true(isnan(runtime_decode(halves[h], code)));
            else
                assert_int_equal(code, runtime_encode(halves[h], values[i]));
        }
        struct ul_tensor splat = {.type = tensor.type};
        memcpy(splat.splat, &values[20], sizeof(float));
        ul_tensor_read_as(&splat, halves[h], 7, 2, out);
        assert_int_equal(place_code(out, halves[h]), runtime_encode(halves[h], values[20]));
        assert_memory_equal(out, out + 2, 2);
    }
    ul_tensor_read_as(&tensor, UL_F32, 1, 2, out);
    assert_memory_equal(out, &values[1], 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_float_codes),
        cmocka_unit_test(small_float_rounding),
        cmocka_unit_test(f4_values),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(read_splat_and_unaligned),
        cmocka_unit_test(read_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
