/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions, exhaustively where the source has 16 bits or less; integers against wide arithmetic;
   casts at their limits; indexes; Philox against its authors' vectors; the hash. */
#include "ul_integer.h"
#include "ul_kernel.h"
#include "ul_random.h"
#include "ul_small_float.h"
#include "ul_weights.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- small floats, by definition ---- */

struct format {
    int exponent_bits, mantissa_bits, bias;
    int has_infinity; /* IEEE: the top exponent is infinity and NaN */
    int finite;       /* FN: only all ones is NaN */
    int unsigned_zero;
};

static const struct format f16 = {5, 10, 15, 1, 0, 0};
static const struct format bf16 = {8, 7, 127, 1, 0, 0};
static const struct format f8e4m3fn = {4, 3, 7, 0, 1, 0};
static const struct format f8e4m3fnuz = {4, 3, 8, 0, 0, 1};
static const struct format f8e5m2 = {5, 2, 15, 1, 0, 0};
static const struct format f8e5m2fnuz = {5, 2, 16, 0, 0, 1};
static const struct format f4e2m1 = {2, 1, 1, 0, 0, 0};
static const struct format f6e2m3 = {2, 3, 1, 0, 0, 0};
static const struct format f6e3m2 = {3, 2, 3, 0, 0, 0};

static double decode(const struct format *f, unsigned code)
{
    unsigned bits = 1u + (unsigned)f->exponent_bits + (unsigned)f->mantissa_bits;
    unsigned mantissa = code & ((1u << f->mantissa_bits) - 1);
    unsigned top = (1u << f->exponent_bits) - 1;
    unsigned exponent = code >> f->mantissa_bits & top;
    double sign = (code >> (bits - 1) & 1) != 0 ? -1.0 : 1.0;
    if (f->unsigned_zero && code == 1u << (bits - 1))
        return (double)NAN;
    if (f->has_infinity && exponent == top)
        return mantissa != 0 ? (double)NAN : sign * HUGE_VAL;
    if (f->finite && exponent == top && mantissa == (1u << f->mantissa_bits) - 1)
        return (double)NAN;
    if (exponent == 0)
        return sign * ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
    return sign * ldexp((double)(mantissa | 1u << f->mantissa_bits),
                        (int)exponent - f->bias - f->mantissa_bits);
}

static int same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static float decode_f8(int which, uint8_t code)
{
    return which == 0   ? ul_f8e4m3fn_to_f32(code)
           : which == 1 ? ul_f8e4m3fnuz_to_f32(code)
           : which == 2 ? ul_f8e5m2_to_f32(code)
           : which == 3 ? ul_f8e5m2fnuz_to_f32(code)
           : which == 4 ? ul_f4e2m1_to_f32(code)
           : which == 5 ? ul_f6e2m3_to_f32(code)
                        : ul_f6e3m2_to_f32(code);
}

static uint8_t encode_f8(int which, float value, int saturate)
{
    return which == 0   ? ul_f32_to_f8e4m3fn(value, saturate)
           : which == 1 ? ul_f32_to_f8e4m3fnuz(value, saturate)
           : which == 2 ? ul_f32_to_f8e5m2(value, saturate)
           : which == 3 ? ul_f32_to_f8e5m2fnuz(value, saturate)
           : which == 4 ? ul_f32_to_f4e2m1(value, saturate)
           : which == 5 ? ul_f32_to_f6e2m3(value, saturate)
                        : ul_f32_to_f6e3m2(value, saturate);
}

static void test_decode(void)
{
    static const struct format *const f8[] = {&f8e4m3fn, &f8e4m3fnuz, &f8e5m2, &f8e5m2fnuz,
                                              &f4e2m1,   &f6e2m3,     &f6e3m2};
    for (unsigned code = 0; code < 65536; code++) {
        CHECK(same((double)ul_f16_to_f32((uint16_t)code), decode(&f16, code)));
        CHECK(same((double)ul_bf16_to_f32((uint16_t)code), decode(&bf16, code)));
    }
    for (int which = 0; which < 7; which++)
        for (unsigned code = 0; code < (which < 4 ? 256 : which == 4 ? 16 : 64); code++)
            CHECK(same((double)decode_f8(which, (uint8_t)code), decode(f8[which], code)));
}

/* Every code survives the way through float. */
static void test_round_trip(void)
{
    for (unsigned code = 0; code < 65536; code++) {
        uint16_t half = (uint16_t)code;
        float wide = ul_f16_to_f32(half);
        int nan = isnan(wide);
        CHECK(nan ? isnan(ul_f16_to_f32(ul_f32_to_f16(wide))) : ul_f32_to_f16(wide) == half);
        CHECK(nan || ul_f64_to_f16((double)wide) == half);
        wide = ul_bf16_to_f32(half);
        nan = isnan(wide);
        CHECK(nan ? isnan(ul_bf16_to_f32(ul_f32_to_bf16(wide))) : ul_f32_to_bf16(wide) == half);
        CHECK(nan || ul_f64_to_bf16((double)wide) == half);
    }
    for (int which = 0; which < 5; which++)
        for (unsigned code = 0; code < (which < 4 ? 256 : 16); code++) {
            float wide = decode_f8(which, (uint8_t)code);
            uint8_t back = encode_f8(which, wide, 0);
            CHECK(isnan(wide) ? isnan(decode_f8(which, back)) : back == code);
        }
}

/* Powers of two, from 2^-127 to 2^127: numbers in between go to the next one, and 0 to the
 * first. */
static void test_scales(void)
{
    for (unsigned code = 0; code < 255; code++) {
        float power = ldexpf(1, (int)code - 127);
        uint8_t next = (uint8_t)(code + 1);
        CHECK(ul_f8e8m0_to_f32((uint8_t)code) == power);
        CHECK(ul_f32_to_f8e8m0(power, 0) == code && ul_f32_to_f8e8m0(-power, 1) == code);
        CHECK(ul_f32_to_f8e8m0(nextafterf(power, HUGE_VALF), 0) == next);
        CHECK(ul_f32_to_f8e8m0(nextafterf(power, 0), 0) == code);
        CHECK(ul_f32_to_f8e8m0(power * 1.5f, 1) == (code == 254 ? 254 : next));
    }
    CHECK(isnan(ul_f8e8m0_to_f32(255)) && ul_f32_to_f8e8m0((float)NAN, 1) == 255);
    CHECK(ul_f32_to_f8e8m0(HUGE_VALF, 1) == 254 && ul_f32_to_f8e8m0(HUGE_VALF, 0) == 255);
    CHECK(ul_f32_to_f8e8m0(0, 1) == 0 && ul_f32_to_f8e8m0(0, 0) == 255);
}

/* Between two neighbours: the middle goes to the even one, a hair to either side to the nearer. */
static void test_rounding_16(void)
{
    for (unsigned code = 0; code < 0x7bff; code++) {
        float low = ul_f16_to_f32((uint16_t)code), high = ul_f16_to_f32((uint16_t)(code + 1));
        float middle = (low + high) / 2;
        unsigned even = (code & 1) == 0 ? code : code + 1;
        CHECK(ul_f32_to_f16(middle) == even);
        CHECK(ul_f32_to_f16(-middle) == (even | 0x8000));
        CHECK(ul_f32_to_f16(nextafterf(middle, -1.0f)) == code);
        CHECK(ul_f32_to_f16(nextafterf(middle, HUGE_VALF)) == code + 1);
        CHECK(ul_f64_to_f16(nextafter((double)middle, -1.0)) == code);
        CHECK(ul_f64_to_f16(nextafter((double)middle, HUGE_VAL)) == code + 1);
        CHECK(ul_f64_to_f16(nextafter((double)-middle, 0.0)) == (code | 0x8000));
    }
    for (unsigned code = 0; code < 0x7f7f; code++) {
        uint32_t middle = (uint32_t)code << 16 | 0x8000;
        unsigned even = (code & 1) == 0 ? code : code + 1;
        CHECK(ul_f32_to_bf16(ul_f32_from_bits(middle)) == even);
        CHECK(ul_f32_to_bf16(ul_f32_from_bits(middle - 1)) == code);
        CHECK(ul_f32_to_bf16(ul_f32_from_bits(middle + 1)) == code + 1);
        double exact = (double)ul_f32_from_bits(middle);
        CHECK(ul_f64_to_bf16(nextafter(exact, 0.0)) == code);
        CHECK(ul_f64_to_bf16(nextafter(exact, HUGE_VAL)) == code + 1);
    }
}

static void test_limits_16(void)
{
    CHECK(ul_f32_to_f16(65504.0f) == 0x7bff);
    CHECK(ul_f32_to_f16(65519.996f) == 0x7bff);
    CHECK(ul_f32_to_f16(65520.0f) == 0x7c00);
    CHECK(ul_f32_to_f16(3.4e38f) == 0x7c00);
    CHECK(ul_f32_to_f16(-HUGE_VALF) == 0xfc00);
    CHECK(ul_f64_to_f16(1e300) == 0x7c00);
    CHECK(ul_f64_to_f16(65519.999999999) == 0x7bff);
    CHECK(ul_f32_to_f16(0x1p-25f) == 0);
    CHECK(ul_f32_to_f16(0x1.000002p-25f) == 1);
    CHECK(ul_f64_to_f16(5e-324) == 0);
    CHECK(ul_f64_to_f16(-5e-324) == 0x8000);
    CHECK(ul_f32_to_bf16(3.4028235e38f) == 0x7f80);
    CHECK(isnan(ul_f16_to_f32(ul_f32_to_f16(ul_f32_from_bits(0x7f800001)))));
    CHECK(isnan(ul_bf16_to_f32(ul_f32_to_bf16(ul_f32_from_bits(0x7f800001)))));
    CHECK(isnan(ul_bf16_to_f32(ul_f64_to_bf16((double)NAN))));
}

/* Neighbours of an 8-bit format by value: the code of the nearest, ties to the even code. */
static void test_rounding_8(void)
{
    static const unsigned largest[] = {0x7e, 0x7f, 0x7b, 0x7f};
    for (int which = 0; which < 4; which++) {
        for (unsigned code = 0; code < largest[which]; code++) {
            float low = decode_f8(which, (uint8_t)code);
            float high = decode_f8(which, (uint8_t)(code + 1));
            float middle = (low + high) / 2;
            unsigned even = (code & 1) == 0 ? code : code + 1;
            CHECK(encode_f8(which, middle, 1) == even);
            CHECK(encode_f8(which, nextafterf(middle, -1.0f), 1) == code);
            CHECK(encode_f8(which, nextafterf(middle, HUGE_VALF), 1) == code + 1);
        }
        float top = decode_f8(which, (uint8_t)largest[which]);
        CHECK(encode_f8(which, top * 2, 1) == largest[which]);
        CHECK(encode_f8(which, HUGE_VALF, 1) == largest[which]);
        CHECK(encode_f8(which, -HUGE_VALF, 1) == (largest[which] | 0x80));
        float over = decode_f8(which, encode_f8(which, top * 2, 0));
        CHECK(which == 2 ? isinf(over) : isnan(over));
        CHECK(isnan(decode_f8(which, encode_f8(which, (float)NAN, 1))));
        CHECK(encode_f8(which, 0x1p-140f, 1) == 0);
        CHECK(encode_f8(which, -0.0f, 1) == (which % 2 == 1 ? 0x00 : 0x80));
    }
}

/* ---- integers ---- */

/* Python's % and //, in arithmetic that cannot overflow. */
static long floor_div(long a, long b)
{
    long quotient = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

static void test_integers_8(void)
{
    for (long a = -128; a < 128; a++)
        for (long b = -128; b < 128; b++) {
            int8_t x = (int8_t)a, y = (int8_t)b;
            uint8_t u = (uint8_t)(a + 128), v = (uint8_t)(b + 128);
            CHECK(ul_add_i8(x, y) == (int8_t)(uint8_t)(a + b));
            CHECK(ul_mul_i8(x, y) == (int8_t)(uint8_t)(a * b));
            CHECK(ul_sub_u8(u, v) == (uint8_t)(a - b));
            if (b != 0) {
                CHECK(ul_div_i8(x, y) == (int8_t)(uint8_t)(a / b));
                CHECK(ul_fmod_i8(x, y) == (int8_t)(a % b));
                CHECK(ul_mod_i8(x, y) == (int8_t)(a - floor_div(a, b) * b));
                CHECK(ul_floor_div_i8(x, y) == (int8_t)(uint8_t)floor_div(a, b));
            }
            if (v != 0)
                CHECK(ul_div_u8(u, v) == u / v && ul_mod_u8(u, v) == u % v);
        }
    CHECK(ul_div_i8(5, 0) == 0 && ul_mod_i8(5, 0) == 0 && ul_div_u8(5, 0) == 0);
}

static void test_integers(void)
{
    CHECK(ul_div_i32(INT32_MIN, -1) == INT32_MIN && ul_fmod_i32(INT32_MIN, -1) == 0);
    CHECK(ul_div_i64(INT64_MIN, -1) == INT64_MIN && ul_mod_i64(INT64_MIN, -1) == 0);
    CHECK(ul_mod_i64(-7, 3) == 2 && ul_mod_i64(7, -3) == -2 && ul_fmod_i64(-7, 3) == -1);
    CHECK(ul_abs_i64(INT64_MIN) == INT64_MIN && ul_neg_i32(INT32_MIN) == INT32_MIN);
    CHECK(ul_mul_i64(INT64_MAX, 2) == -2 && ul_add_i32(INT32_MAX, 1) == INT32_MIN);
    CHECK(ul_mul_u16(65535, 65535) == 1 && ul_mul_i16(-32768, -1) == -32768);
    CHECK(ul_pow_i32(3, 4) == 81 && ul_pow_i32(-2, 3) == -8 &&
          ul_pow_i64(2, 62) == INT64_C(1) << 62);
    CHECK(ul_pow_i32(2, -1) == 0 && ul_pow_i32(-1, -3) == -1 && ul_pow_i32(1, -5) == 1);
    CHECK(ul_pow_i64(-1, INT64_MIN) == 1 && ul_pow_u8(3, 5) == 243);
    CHECK(ul_shl_u8(0xff, 4) == 0xf0 && ul_shl_u8(1, 8) == 0 && ul_shr_u64(UINT64_MAX, 63) == 1);
    CHECK(ul_shr_u32(1, 32) == 0 && ul_shl_u64(1, UINT64_MAX) == 0);
    CHECK(same((double)ul_mod_f32(-7.5f, 2.0f), 0.5) &&
          same((double)ul_mod_f32(7.5f, -2.0f), -0.5));
    CHECK(same(ul_mod_f64(-4.0, 2.0), 0.0) && same(ul_mod_f64(4.0, -2.0), -0.0));
    CHECK(isnan(ul_mod_f64(1.0, 0.0)));
}

static void test_casts(void)
{
    CHECK(ul_f32_to_i8(127.9f) == 127 && ul_f32_to_i8(128.0f) == 127 &&
          ul_f32_to_i8(-129.0f) == -128);
    CHECK(ul_f32_to_i8(-128.9f) == -128 && ul_f32_to_i8(-0.9f) == 0 && ul_f32_to_u8(-0.9f) == 0);
    CHECK(ul_f32_to_u8(-1.0f) == 0 && ul_f32_to_u8(255.9f) == 255 && ul_f32_to_u8(1e9f) == 255);
    CHECK(ul_f32_to_i32(2147483648.0f) == INT32_MAX && ul_f32_to_i32(-2147483648.0f) == INT32_MIN);
    CHECK(ul_f64_to_i32(-2147483648.9) == INT32_MIN && ul_f64_to_i32(2147483647.9) == INT32_MAX);
    CHECK(ul_f32_to_i64(9.3e18f) == INT64_MAX && ul_f32_to_i64(-HUGE_VALF) == INT64_MIN);
    CHECK(ul_f64_to_i64(-0x1p63) == INT64_MIN &&
          ul_f64_to_i64(0x1.fffffffffffffp62) == INT64_C(0x7ffffffffffffc00));
    CHECK(ul_f64_to_u64(0x1.fffffffffffffp63) == UINT64_C(0xfffffffffffff800));
    CHECK(ul_f64_to_u64(HUGE_VAL) == UINT64_MAX && ul_f64_to_u32(4294967296.0) == UINT32_MAX);
    CHECK(ul_f32_to_i64((float)NAN) == 0 && ul_f32_to_u8((float)NAN) == 0);
    CHECK(ul_f32_to_bool((float)NAN) == 1 && ul_f32_to_bool(-0.0f) == 0 &&
          ul_f64_to_bool(1e-300) == 1);
}

static void test_min_max(void)
{
    float nan = (float)NAN;
    CHECK(isnan(ul_max_f32(nan, 1.0f)) && isnan(ul_max_f32(1.0f, nan)));
    CHECK(isnan(ul_min_f32(nan, 1.0f)) && isnan(ul_min_f32(1.0f, nan)));
    CHECK(isnan(ul_max_f64((double)nan, 1.0)) && isnan(ul_min_f64(1.0, (double)nan)));
    CHECK(ul_max_f32(1.0f, 2.0f) == 2.0f && ul_min_f32(-HUGE_VALF, 2.0f) == -HUGE_VALF);
}

/* ---- the rest ---- */

static void test_indexes(void)
{
    struct ul_run run;
    memset(&run, 0, sizeof run);
    run.step = 7;
    CHECK(ul_index(&run, 0, 5) == 0 && ul_index(&run, -5, 5) == 0 && ul_index(&run, -1, 5) == 4);
    CHECK(ul_bound(&run, 4, 5) == 4 && ul_count(&run, 5, 5) == 5);
    CHECK(run.fault == UL_FAULT_NONE);
    CHECK(ul_index(&run, 5, 5) == 4);
    CHECK(run.fault == UL_FAULT_INDEX && run.fault_step == 7 && run.fault_value == 5);
    run.step = 8;
    CHECK(ul_index(&run, INT64_MIN, 5) == 0 && ul_index(&run, INT64_MAX, 5) == 4);
    CHECK(ul_bound(&run, -1, 5) == 0 && ul_count(&run, 6, 5) == 5 && ul_count(&run, -1, 5) == 0);
    CHECK(run.fault_step == 7 && run.fault_limit == 5);
    memset(&run, 0, sizeof run);
    CHECK(ul_index(&run, -6, 5) == 0 && run.fault == UL_FAULT_INDEX && run.fault_value == -6);
    memset(&run, 0, sizeof run);
    CHECK(ul_bound(&run, -1, 5) == 0 && run.fault == UL_FAULT_PLACE && run.fault_value == -1);
}

/* The known answers of the authors' Random123 (kat_vectors, philox4x32 10). */
static void test_random(void)
{
    struct ul_random zero = ul_random_draw(0, 0, 0, 0);
    struct ul_random ones = ul_random_draw(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX);
    struct ul_random pi = ul_random_draw(UINT64_C(0x299f31d0a4093822), 0x13198a2e, 0x03707344,
                                         UINT64_C(0x85a308d3243f6a88));
    CHECK(zero.words[0] == 0x6627e8d5 && zero.words[1] == 0xe169c58d);
    CHECK(zero.words[2] == 0xbc57ac4c && zero.words[3] == 0x9b00dbd8);
    CHECK(ones.words[0] == 0x408f276d && ones.words[1] == 0x41c83b0e);
    CHECK(ones.words[2] == 0xa20bc7c6 && ones.words[3] == 0x6d5451fd);
    CHECK(pi.words[0] == 0xd16cfe09 && pi.words[1] == 0x94fdcceb);
    CHECK(pi.words[2] == 0x5001e420 && pi.words[3] == 0x24126ea1);
}

static void test_distributions(void)
{
    double sum = 0.0, squares = 0.0, uniform = 0.0;
    int ones = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double normal = ul_random_normal_f64(1, 2, 3, i);
        float value = ul_random_uniform_f32(1, 2, 3, i);
        sum += normal;
        squares += normal * normal;
        uniform += (double)value;
        ones += ul_random_bernoulli(1, 2, 3, i, 0.25);
        CHECK(value >= 0.0f && value < 1.0f);
    }
    CHECK(fabs(sum / 1e5) < 0.01 && fabs(squares / 1e5 - 1.0) < 0.02);
    CHECK(fabs(uniform / 1e5 - 0.5) < 0.005 && abs(ones - 25000) < 500);
}

/* The hash does not depend on how the bytes are cut, and depends on every byte and the length. */
static void test_hash(void)
{
    unsigned char bytes[200];
    struct ul_hash whole, cut;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37 + 1);
    ul_hash_init(&whole);
    ul_hash_add(&whole, bytes, sizeof bytes);
    for (size_t step = 1; step < 70; step++) {
        ul_hash_init(&cut);
        for (size_t at = 0; at < sizeof bytes; at += step)
            ul_hash_add(&cut, bytes + at, at + step < sizeof bytes ? step : sizeof bytes - at);
        CHECK(ul_hash_get(&cut) == ul_hash_get(&whole));
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        ul_hash_init(&cut);
        ul_hash_add(&cut, bytes, sizeof bytes);
        CHECK(ul_hash_get(&cut) != ul_hash_get(&whole));
        bytes[i] ^= 1;
    }
    ul_hash_init(&cut);
    ul_hash_add(&cut, bytes, sizeof bytes - 1);
    CHECK(ul_hash_get(&cut) != ul_hash_get(&whole));
}

int main(void)
{
    test_decode();
    test_scales();
    test_round_trip();
    test_rounding_16();
    test_limits_16();
    test_rounding_8();
    test_integers_8();
    test_integers();
    test_casts();
    test_min_max();
    test_indexes();
    test_random();
    test_distributions();
    test_hash();
    return TEST_RESULT();
}
