/* SPDX-License-Identifier: Apache-2.0 */
/* ul_nbits.c against plain sums in double, over random shapes, bits, blocks and kinds of zero
   points: of src as it is, of src rounded to bytes as ul_nbits_bytes.h has it, of src times the
   turned weights, of weights that are floats of 16 bits, and of those of 8 and 4 bits, as they are
   and turned. A call writes its result and its scratch, nothing else, and its bits do not depend on
   the number of threads, planned or used, nor on how many rows there are beside one. */
#define _POSIX_C_SOURCE 200809L

#include "ul_nbits.h"
#include "ul_pack.h"
#include "ul_small_float.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>

static uint64_t random_state = 11;

static int64_t pick(int64_t low, int64_t high)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

static float pick_float(void)
{
    return (float)pick(-8388608, 8388608) / 8388608.0f;
}

/* Bytes with a fence after them. */
enum { FENCE = 128, FENCE_BYTE = 0xa5 };

static void *new_room(uint64_t bytes)
{
    void *place = NULL;
    if (posix_memalign(&place, 64, (size_t)bytes + FENCE) != 0)
        abort();
    memset(place, 0, (size_t)bytes);
    memset((unsigned char *)place + bytes, FENCE_BYTE, FENCE);
    return place;
}

static void free_room(void *place, uint64_t bytes)
{
    for (int i = 0; i < FENCE; i++)
        CHECK(((unsigned char *)place)[bytes + (uint64_t)i] == FENCE_BYTE);
    free(place);
}

/* A call and its arguments. */
struct trial {
    struct ul_call call;
    int64_t rows, depth, columns, blocks, zero_row; /* bytes of a row of packed zero points */
    uint32_t *codes;                                /* [columns][words], as stored */
    float *src, *bias, *scales, *zeros;
    unsigned char *packed_zeros;
};

static float *new_floats(int64_t count)
{
    float *floats = new_room((uint64_t)count * 4);
    for (int64_t i = 0; i < count; i++)
        floats[i] = pick_float();
    return floats;
}

static struct ul_call_tensor matrix(int64_t rows, int64_t columns, int64_t gap)
{
    return (struct ul_call_tensor){
        .type = UL_CALL_F32, .rank = 2, .dims = {rows, columns}, .strides = {columns + gap, 1}};
}

/* How src is multiplied: as it is, rounded to bytes, by the turned weights, or by floats of 16, of
 * 8 or of 4 bits, these as they are or turned. */
enum way { PLAIN, BY_BYTES, TURNED, HALVES, SMALL, SMALL_TURNED };

static uint32_t pick_half(enum ul_call_type type)
{
    const float number = pick_float() * (pick(0, 9) == 0 ? 3e-6f : 1); /* some are subnormal */
    return type == UL_CALL_F16 ? ul_f32_to_f16(number) : ul_f32_to_bf16(number);
}

/* One block, perhaps with an odd number of elements. */
static void make_halves(struct trial *trial)
{
    struct ul_call_nbits *nbits = &trial->call.nbits;
    nbits->bits = 16;
    nbits->code_type = pick(0, 1) == 0 ? UL_CALL_F16 : UL_CALL_BF16;
    nbits->block = pick(1, 600);
    nbits->zeros = UL_NBITS_FIXED;
}

/* The code of a finite float. */
static uint32_t pick_small(enum ul_call_type type)
{
    const float number = pick_float() * (pick(0, 3) == 0 ? 1e-3f : 1); /* some are subnormal */
    return type == UL_CALL_F4E2M1   ? ul_f32_to_f4e2m1(number * 4, 1)
           : type == UL_CALL_F8E5M2 ? ul_f32_to_f8e5m2(number, 1)
                                    : ul_f32_to_f8e4m3fn(number, 1);
}

static void make_small(struct ul_call_nbits *nbits)
{
    static const enum ul_call_type types[] = {UL_CALL_F8E4M3FN, UL_CALL_F8E5M2, UL_CALL_F4E2M1};
    nbits->code_type = types[pick(0, 2)];
    nbits->bits = nbits->code_type == UL_CALL_F4E2M1 ? 4 : 8;
    nbits->block = pick(1, 9) * 32 / (int64_t)nbits->bits;
    nbits->zeros = UL_NBITS_FIXED;
    nbits->zero = 0;
}

static uint32_t pick_word(const struct ul_call_nbits *nbits, enum way way)
{
    uint32_t word = 0;
    if (way == HALVES)
        return pick_half(nbits->code_type) << 16 | pick_half(nbits->code_type);
    if (way != SMALL && way != SMALL_TURNED)
        return (uint32_t)pick(0, 0xffff) << 16 | (uint32_t)pick(0, 0xffff);
    for (uint32_t at = 0; at < 32; at += nbits->bits)
        word |= pick_small(nbits->code_type) << at;
    return word;
}

static void make_trial(struct trial *trial, enum way way)
{
    static const uint32_t bits[] = {2, 4, 4, 8};
    memset(trial, 0, sizeof *trial);
    struct ul_call_nbits *nbits = &trial->call.nbits;
    nbits->bits = bits[pick(0, 3)];
    nbits->block = pick(1, 9) * 32 / (int64_t)nbits->bits;
    nbits->zeros = (enum ul_nbits_zeros)pick(0, 2);
    nbits->zero = (uint32_t)pick(0, (1 << nbits->bits) - 1);
    nbits->by_bytes = way == BY_BYTES;
    nbits->turned = way == TURNED || way == SMALL_TURNED;
    if (way == HALVES)
        make_halves(trial);
    if (way == SMALL || way == SMALL_TURNED)
        make_small(nbits);
    trial->rows = pick(0, 4) == 0 ? pick(60, 200) : pick(1, 21);
    trial->blocks = way == HALVES ? 1 : pick(1, 7);
    trial->depth = trial->blocks * nbits->block;
    trial->columns = pick(1, 150);
    trial->call.kind = UL_CALL_NBITS;
    const int64_t from = nbits->turned ? trial->columns : trial->depth;
    const int64_t to = nbits->turned ? trial->depth : trial->columns;
    trial->call.src = matrix(trial->rows, from, pick(0, 1) * 5);
    trial->call.dst = matrix(trial->rows, to, pick(0, 1) * 3);
    trial->src = new_floats(trial->rows * trial->call.src.strides[0]);
    if (pick(0, 1) == 0)
        trial->call.bias = matrix(1, to, 0);
    trial->bias = trial->call.bias.rank != 0 ? new_floats(to) : NULL;
    if (pick(0, way == HALVES ? 1 : 3) != 0) /* without, all are 1 */
        trial->scales = new_floats(trial->blocks * trial->columns);
    trial->zeros = new_floats(trial->blocks * trial->columns);
    trial->zero_row = (trial->columns * (int64_t)nbits->bits + 7) / 8;
    trial->packed_zeros = new_room((uint64_t)(trial->blocks * trial->zero_row));
    for (int64_t i = 0; i < trial->blocks * trial->zero_row; i++)
        trial->packed_zeros[i] = (unsigned char)pick(0, 255);
    const int64_t words = (trial->columns * trial->depth * (int64_t)nbits->bits + 31) / 32;
    trial->codes = new_room((uint64_t)words * 4);
    for (int64_t i = 0; i < words; i++)
        trial->codes[i] = pick_word(nbits, way);
    if (pick(0, 3) == 0) /* a block of zeros has no size */
        memset(trial->src, 0, (size_t)(nbits->block < from ? nbits->block : from) * 4);
}

static void free_trial(struct trial *trial)
{
    const int64_t tables = trial->blocks * trial->columns * 4;
    free_room(trial->src, (uint64_t)(trial->rows * trial->call.src.strides[0] * 4));
    if (trial->bias != NULL)
        free_room(trial->bias, (uint64_t)trial->call.dst.dims[1] * 4);
    if (trial->scales != NULL)
        free_room(trial->scales, (uint64_t)tables);
    free_room(trial->zeros, (uint64_t)tables);
    free_room(trial->packed_zeros, (uint64_t)(trial->blocks * trial->zero_row));
    const uint64_t codes = (uint64_t)(trial->columns * trial->depth) * trial->call.nbits.bits;
    free_room(trial->codes, (codes + 31) / 32 * 4);
}

/* ---- as it should be ---- */

static double weight(const struct trial *trial, int64_t k, int64_t n)
{
    const struct ul_call_nbits *nbits = &trial->call.nbits;
    const int64_t bits = (int64_t)nbits->bits, at = k / nbits->block * trial->columns + n;
    const double scale = trial->scales != NULL ? (double)trial->scales[at] : 1;
    const uint32_t mask = (1u << nbits->bits) - 1;
    const uint32_t word = trial->codes[(n * trial->depth + k) * bits / 32];
    const int64_t zero_bit = n * bits;
    if (bits == 16) {
        uint16_t half;
        memcpy(&half, (const unsigned char *)trial->codes + (n * trial->depth + k) * 2, 2);
        return scale * (double)(nbits->code_type == UL_CALL_F16 ? ul_f16_to_f32(half)
                                                                : ul_bf16_to_f32(half));
    }
    const uint8_t code = (uint8_t)(word >> k * bits % 32 & mask);
    if (nbits->code_type == UL_CALL_F4E2M1)
        return scale * (double)ul_f4e2m1_to_f32(code);
    if (nbits->code_type == UL_CALL_F8E5M2)
        return scale * (double)ul_f8e5m2_to_f32(code);
    if (nbits->code_type == UL_CALL_F8E4M3FN)
        return scale * (double)ul_f8e4m3fn_to_f32(code);
    double zero = nbits->zero;
    if (nbits->zeros == UL_NBITS_FLOATS)
        zero = trial->zeros[at];
    else if (nbits->zeros == UL_NBITS_PACKED)
        zero = (double)(trial->packed_zeros[k / nbits->block * trial->zero_row + zero_bit / 8] >>
                            zero_bit % 8 &
                        mask);
    return ((double)code - zero) * scale;
}

/* A row as it is multiplied. */
static void take_row(const struct trial *trial, double *to, int64_t row)
{
    const float *src = trial->src + row * trial->call.src.strides[0];
    const int64_t block = trial->call.nbits.block;
    for (int64_t k = 0; k < trial->depth; k++)
        to[k] = src[k];
    for (int64_t b = 0; b < trial->blocks && trial->call.nbits.by_bytes; b++) {
        float most = 0;
        for (int64_t k = b * block; k < (b + 1) * block; k++)
            most = fmaxf(most, fabsf(src[k]));
        const float factor = most > 0 ? 127.0f / most : 0;
        for (int64_t k = b * block; k < (b + 1) * block; k++) {
            const float scaled = src[k] * factor;
            to[k] = nearbyint((double)scaled) * (double)(most / 127.0f);
        }
    }
}

/* The largest number of the codes, or more. */
static int64_t size_of_codes(const struct ul_call_nbits *nbits)
{
    return nbits->code_type == UL_CALL_F4E2M1                     ? 8
           : nbits->bits == 16 || nbits->code_type != UL_CALL_F32 ? 1
                                                                  : 1 << nbits->bits;
}

static void check_row(const struct trial *trial, const float *result, int64_t row)
{
    const int turned = trial->call.nbits.turned != 0;
    const int64_t inner = trial->call.src.dims[1];
    const float *from = trial->src + row * trial->call.src.strides[0];
    double *src = malloc((size_t)inner * sizeof *src);
    for (int64_t i = 0; i < inner && turned; i++)
        src[i] = (double)from[i];
    if (!turned)
        take_row(trial, src, row);
    for (int64_t to = 0; to < trial->call.dst.dims[1]; to++) {
        double sum = trial->bias != NULL ? (double)trial->bias[to] : 0, size = fabs(sum);
        for (int64_t i = 0; i < inner; i++) {
            const int64_t k = turned ? to : i, n = turned ? i : to;
            const int64_t at = k / trial->call.nbits.block * trial->columns + n;
            const int64_t range = size_of_codes(&trial->call.nbits);
            sum += src[i] * weight(trial, k, n);
            size += fabs(src[i]) * (double)range *
                    (trial->scales != NULL ? fabs((double)trial->scales[at]) : 1);
        }
        CHECK(fabs((double)result[row * trial->call.dst.strides[0] + to] - sum) <= 4e-7 * size);
    }
    free(src);
}

/* ---- runs ---- */

static uint32_t *pack(const struct trial *trial, const struct ul_nbits_cut *cut)
{
    uint32_t *packed = new_room(cut->packed_bytes);
    struct ul_pack layout;
    struct ul_packer packer;
    ul_nbits_pack(&layout, cut);
    ul_packer_init(&packer, &layout, (unsigned char *)packed);
    ul_packer_add(&packer, (const unsigned char *)trial->codes,
                  (uint64_t)(layout.dims[0] * layout.dims[1]));
    return packed;
}

/* The result of `rows` rows from `first` on. */
static void run(const struct trial *trial, float *result, int64_t first, int64_t rows,
                uint32_t planned, uint32_t threads)
{
    struct ul_call call = trial->call;
    call.src.dims[0] = call.dst.dims[0] = rows;
    struct ul_nbits_cut cut;
    ul_nbits_cut_init(&cut, &call, planned);
    uint32_t *packed = pack(trial, &cut);
    unsigned char *scratch = new_room(cut.scratch_bytes);
    memset(scratch, 0xff, cut.scratch_bytes); /* NaN */
    const void *args[UL_CALL_ARGS] = {trial->src + first * call.src.strides[0], packed, trial->bias,
                                      result + first * call.dst.strides[0]};
    args[UL_NBITS_ARG_SCALES] = trial->scales;
    if (call.nbits.zeros != UL_NBITS_FIXED)
        args[UL_NBITS_ARG_ZEROS] = call.nbits.zeros == UL_NBITS_PACKED
                                       ? (const void *)trial->packed_zeros
                                       : (const void *)trial->zeros;
    ul_nbits_run(&call, args, scratch, planned, threads);
    free_room(scratch, cut.scratch_bytes);
    free_room(packed, cut.packed_bytes);
}

static void check_trial(const struct trial *trial)
{
    const int64_t pitch = trial->call.dst.strides[0], count = trial->rows * pitch;
    float *first = new_floats(count), *again = new_room((uint64_t)count * 4);
    memcpy(again, first, (size_t)count * sizeof *again);
    run(trial, first, 0, trial->rows, 1, 1);
    for (int64_t r = 0; r < trial->rows; r++) {
        check_row(trial, first, r);
        const int64_t width = trial->call.dst.dims[1];
        CHECK(memcmp(first + r * pitch + width, again + r * pitch + width,
                     (size_t)(pitch - width) * sizeof *first) == 0);
    }
    for (uint32_t planned = 2; planned <= 5; planned += 3) {
        run(trial, again, 0, trial->rows, planned, planned);
        CHECK(memcmp(first, again, (size_t)count * sizeof *first) == 0);
        run(trial, again, 0, trial->rows, planned, planned - 1);
        CHECK(memcmp(first, again, (size_t)count * sizeof *first) == 0);
    }
    const int64_t from = pick(0, trial->rows - 1), rows = pick(1, trial->rows - from);
    run(trial, again, from, rows, 1, 1);
    if (trial->call.nbits.by_bytes || trial->call.nbits.turned)
        CHECK(memcmp(first, again, (size_t)count * sizeof *first) == 0);
    free_room(first, (uint64_t)count * 4);
    free_room(again, (uint64_t)count * 4);
}

/* A block with a value that is not finite gives results that are not finite, next to rows that have
 * only finite ones. */
static void check_not_finite(void)
{
    struct trial trial;
    for (int i = 0; i < 20; i++) {
        make_trial(&trial, BY_BYTES);
        const int64_t count = trial.rows * trial.call.dst.strides[0], row = pick(0, trial.rows - 1);
        float *result = new_floats(count);
        trial.src[row * trial.call.src.strides[0] + pick(0, trial.depth - 1)] =
            i % 2 == 0 ? NAN : -INFINITY;
        run(&trial, result, 0, trial.rows, 1, 1);
        for (int64_t r = 0; r < trial.rows; r++)
            for (int64_t n = 0; n < trial.columns; n++)
                CHECK((r == row) != !!isfinite(result[r * trial.call.dst.strides[0] + n]));
        free_room(result, (uint64_t)count * 4);
        free_trial(&trial);
    }
}

int main(void)
{
    struct trial trial;
    static const enum way ways[] = {PLAIN, BY_BYTES, HALVES, BY_BYTES, TURNED, SMALL, SMALL_TURNED};
    for (int i = 0; i < 280; i++) {
        make_trial(&trial, ways[i % 7]);
        check_trial(&trial);
        free_trial(&trial);
    }
    check_not_finite();
    return TEST_RESULT();
}
