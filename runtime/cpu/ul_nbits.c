/* SPDX-License-Identifier: 0BSD */
/*
 * Runs products with weights of a few bits; ul_nbits.h has the method, the layouts and the cut.
 */
#include "ul_nbits.h"

#include "ul_kernel.h"
#include "ul_nbits_bytes.h"
#include "ul_posts.h"
#include "ul_small_float.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if UL_VECTOR_BYTES > 0
typedef ul_f32v vec;
typedef ul_f32v_loose loose;
UL_VECTOR(word_vec, uint32_t, UL_VECTOR_BYTES / 4);
UL_VECTOR_LOOSE(word_loose, uint32_t, UL_VECTOR_BYTES / 4);
UL_VECTOR_LOOSE(half_loose, uint16_t, UL_VECTOR_BYTES / 4);
#else
typedef float vec;
typedef float loose;
typedef uint32_t word_vec;
typedef uint32_t word_loose;
#endif

/* The rows and panels of a register tile: as many sums as there are registers for. */
#if UL_VECTOR_BYTES == 64
#define TILE_ROWS 6
#define TILE_PANELS 4
#elif UL_VECTOR_BYTES == 32
#define TILE_ROWS 6
#define TILE_PANELS 1
#elif defined(__aarch64__)
#define TILE_ROWS 5
#define TILE_PANELS 1
#else
#define TILE_ROWS 3
#define TILE_PANELS 1
#endif

enum {
    LANES = UL_LANES(float),
    COLS = UL_NBITS_COLS,
    VECS = COLS / LANES, /* of a panel */
    GROUP = TILE_PANELS * COLS,
    CHAINS = 4 / (VECS < 4 ? VECS : 4),      /* of a column at a time, in a block */
    HALF_CHAINS = 8 / (VECS < 8 ? VECS : 8), /* the same for floats of 16 bits */
    AHEAD = 6                                /* how many blocks */
};

/* The same where rows are bytes: rows and panels of a tile, and panels where rows are fewer. */
#if UL_BV_LANES == 16
#define BYTE_ROWS 8
#define BYTE_PANELS 2
#define BYTE_FEW 4
#else
#define BYTE_ROWS 4
#define BYTE_PANELS 1
#define BYTE_FEW 1
#endif

enum {
    BYTE_VECS = COLS / UL_BV_LANES,
    BYTE_SUMS = BYTE_FEW * BYTE_VECS, /* of a row of a tile, at most */
    BYTE_GROUP = UL_NBITS_GROUP
};

/* Scales of the next blocks are a row apart, where no processor looks for them by itself. */
#if defined(__GNUC__)
#define UL_PREFETCH(place) __builtin_prefetch(place)
#define UL_PREFETCH_TO(place) __builtin_prefetch(place, 1)
#define APART __attribute__((noinline))
#else
#define UL_PREFETCH(place) (void)(place)
#define UL_PREFETCH_TO(place) (void)(place)
#define APART
#endif

struct job {
    const struct ul_call *call;
    struct ul_nbits_cut cut;
    const float *src, *bias;
    const unsigned char *codes;
    const unsigned char *scales, *zeros; /* or NULL */
    float *dst;
    const float *posts[UL_CALL_POSTS]; /* what post-operations read */
    struct ul_nbits_window window;     /* of a convolution */
};

/* ---- numbers ---- */

/* The codes at bits [shift, shift + bits) of each word, with 2^(23 - shift) added: the bits of a
 * float of that exponent. shift + bits <= 16. */
UL_INLINE vec float_of(word_vec words, int shift, int bits)
{
    const uint32_t mask = ((1u << bits) - 1) << shift;
    const word_vec under = (words & mask) | (uint32_t)(150 - shift) << 23;
    vec number;
    memcpy(&number, &under, sizeof number);
    return number;
}

UL_INLINE float number_above(int shift)
{
    return (float)(1 << (23 - shift));
}

/* The format of codes that are floats of 4 or 8 bits; `mantissa` is 0 for other codes. */
static struct ul_f8_format format_of(const struct ul_call_nbits *nbits)
{
    const struct ul_f8_format none = {0, 0, 0, 0, 0, 0};
    switch ((int)nbits->code_type) {
    case UL_CALL_F8E4M3FN:
        return ul_f8e4m3fn();
    case UL_CALL_F8E5M2:
        return ul_f8e5m2();
    case UL_CALL_F4E2M1:
        return ul_f4e2m1();
    default:
        return none;
    }
}

#if UL_VECTOR_BYTES > 0
/* The lesser of two numbers, none of them negative or a NaN. */
UL_INLINE vec lesser(vec a, vec b)
{
#if defined(__AVX512F__) && UL_VECTOR_BYTES == 64
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && UL_VECTOR_BYTES == 32
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    const word_vec is_a = (word_vec)(a < b);
    word_vec of_a, of_b;
    memcpy(&of_a, &a, sizeof of_a);
    memcpy(&of_b, &b, sizeof of_b);
    of_a = (of_a & is_a) | (of_b & ~is_a);
    memcpy(&a, &of_a, sizeof a);
    return a;
#endif
}

/* Looks up floats of 4 bits in a table. False: the processor has no instruction for that. */
UL_INLINE int look_up_small(vec *number, word_vec codes)
{
#if defined(__AVX512F__) && UL_VECTOR_BYTES == 64
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f,
                                        -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    *number = (vec)_mm512_permutexvar_ps((__m512i)codes, table);
    return 1;
#elif defined(__AVX2__) && UL_VECTOR_BYTES == 32
    const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256 sign = (__m256)(codes << 28 & 0x80000000u);
    *number = (vec)_mm256_xor_ps(_mm256_permutevar8x32_ps(table, (__m256i)codes), sign);
    return 1;
#else
    (void)number;
    (void)codes;
    return 0;
#endif
}

/* The floats whose codes are the lowest bits. A code without its sign becomes a float by adding to
 * its exponent. That gives (x + the least normal number) / 2 for a subnormal x, so that x is the
 * lesser of what it gives and of twice that less the least normal number. Numbers that are
 * subnormal in 32 bits would be shorter to write, and slow. */
UL_INLINE vec small_float(word_vec codes, struct ul_f8_format format, int bits)
{
    const word_vec magnitude = codes & ((1u << (bits - 1)) - 1);
    const uint32_t exponent = (uint32_t)(127 - format.bias) << 23;
    const float least = ul_f32_from_bits(exponent + (1u << 23));
    word_vec under = (magnitude << (23 - format.mantissa)) + exponent;
    vec number;
    if (bits == 4 && look_up_small(&number, codes))
        return number;
    memcpy(&number, &under, sizeof number);
    number = lesser(number, number * 2 - least);
    memcpy(&under, &number, sizeof under);
    under |= (word_vec)(magnitude > format.largest) & 0x7f800000u; /* infinities and NaN */
    under |= codes << (32 - bits) & 0x80000000u;
    memcpy(&number, &under, sizeof number);
    return number;
}
#else
UL_INLINE vec small_float(word_vec codes, struct ul_f8_format format, int bits)
{
    const uint32_t code = codes & ((1u << bits) - 1), sign = code >> (bits - 1);
    return ul_f8_decode((uint8_t)((code & ~(sign << (bits - 1))) | sign << 7), format);
}
#endif

/* The zero point that is subtracted as codes become floats; other zero points are given as
 * differences from it. */
static float fixed_zero(const struct ul_call_nbits *nbits)
{
    return nbits->zeros == UL_NBITS_FIXED ? (float)nbits->zero : (float)(1u << (nbits->bits - 1));
}

static float float_of_half(const unsigned char *place)
{
    uint16_t bits;
    memcpy(&bits, place, sizeof bits);
    return ul_f16_to_f32(bits);
}

static float float_of_bf16(const unsigned char *place)
{
    uint16_t bits;
    memcpy(&bits, place, sizeof bits);
    return ul_bf16_to_f32(bits);
}

static int64_t scale_bytes(const struct job *job)
{
    return job->call->nbits.scale_type == UL_CALL_F32 ? 4 : 2;
}

/* Loads the scales of `count` columns from `at` on; zeros fill the panel. */
UL_INLINE void load_scales(float *to, const struct job *job, int64_t at, int64_t count)
{
    const enum ul_call_type type = job->call->nbits.scale_type;
    int64_t i = 0;
    if (job->scales == NULL) {
        const float scale = job->call->nbits.scale;
        for (; i < COLS; i++)
            to[i] = scale != 0 ? scale : 1;
        return;
    }
    if (type == UL_CALL_F32 && count == COLS) { /* a known size needs no call */
        memcpy(to, job->scales + at * 4, COLS * sizeof *to);
        return;
    }
    if (type == UL_CALL_F32) {
        memcpy(to, job->scales + at * 4, (size_t)count * 4);
        i = count;
    }
#if defined(__F16C__)
    for (; type == UL_CALL_F16 && i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                     (const __m128i *)(const void *)(job->scales + (at + i) * 2))));
#endif
    for (; type == UL_CALL_F16 && i < count; i++)
        to[i] = float_of_half(job->scales + (at + i) * 2);
    for (; type == UL_CALL_BF16 && i < count; i++)
        to[i] = float_of_bf16(job->scales + (at + i) * 2);
    for (; i < COLS; i++)
        to[i] = 0;
}

/* Unpacks the zero points of a panel's first `count` columns, which begin a byte. */
UL_INLINE void unpack_zeros(float *to, const unsigned char *from, int64_t count, int bits)
{
    uint64_t words[COLS / 8] = {0};
    if (count == COLS) /* a known size needs no call */
        memcpy(words, from, (size_t)(COLS * bits / 8));
    else
        memcpy(words, from, (size_t)((count * bits + 7) / 8));
    const int per = bits == 8 ? 8 : COLS;
    for (int i = 0; i < COLS; i++) { /* with 2 bits, half a word has them all, which makes shifts
                                        faster */
        const uint32_t moved =
            bits == 2 ? (uint32_t)words[0] >> 2 * i : (uint32_t)(words[i / per] >> i % per * bits);
        to[i] = (float)(int32_t)(moved & ((1u << bits) - 1));
    }
}

/* By how much the zero points of a block are larger than fixed_zero; zeros fill the panel. */
static void load_zeros(float *to, const struct job *job, int64_t block, int64_t first,
                       int64_t count)
{
    const struct ul_call_nbits *nbits = &job->call->nbits;
    const int64_t columns = job->cut.columns, bits = (int64_t)nbits->bits;
    const unsigned char *packed =
        job->zeros + block * ((columns * bits + 7) / 8) + first * bits / 8;
    const float fixed = nbits->code_type == UL_CALL_I8 ? 0 : fixed_zero(nbits);
    float numbers[COLS]; /* which nothing else can be */
    if (nbits->zeros == UL_NBITS_FLOATS)
        memcpy(numbers, job->zeros + (block * columns + first) * 4, (size_t)count * 4);
    else if (bits == 4)
        unpack_zeros(numbers, packed, count, 4);
    else if (bits == 2)
        unpack_zeros(numbers, packed, count, 2);
    else
        unpack_zeros(numbers, packed, count, 8);
    for (int64_t i = 0; nbits->code_type == UL_CALL_I8 && i < COLS; i++)
        numbers[i] -= numbers[i] > INT8_MAX ? 256 : 0;
    for (int64_t i = 0; i < COLS; i++)
        to[i] = i < count ? numbers[i] - fixed : 0;
}

/* Signed bytes become unsigned ones, half the range larger, by an exclusive or with this. */
static uint32_t flip_of(const struct ul_call_nbits *nbits)
{
    return nbits->code_type == UL_CALL_I8 ? 0x80808080u : 0;
}

/* The place of a row of the result: its image, and after that the last three axes of space. */
static void find_place(const struct job *job, int64_t row, int64_t place[4])
{
    const struct ul_call_tensor *dst = &job->call->dst;
    place[1] = place[2] = place[3] = 0;
    for (uint32_t d = dst->rank; d-- > 2;) {
        place[4 + d - dst->rank] = row % dst->dims[d];
        row /= dst->dims[d];
    }
    place[0] = row;
}

/* Element [row, 0] of the source. A row of a convolution that reads one place is that place. */
static const float *source_of(const struct job *job, int64_t row)
{
    const struct ul_nbits_window *window = &job->window;
    int64_t place[4];
    find_place(job, row, place);
    const float *src = job->src + place[0] * job->call->src.strides[0];
    for (int a = 0; a < 3 && ul_nbits_is_window(job->call); a++)
        src += place[a + 1] * window->step[a] * window->src_stride[a];
    return src;
}

/* The codes of a panel. */
static const uint32_t *words_of(const struct job *job, int64_t panel)
{
    return (const uint32_t *)(const void *)(job->codes + panel * job->cut.panel_bytes);
}

static const uint16_t *halves_of(const struct job *job, int64_t panel)
{
    return (const uint16_t *)(const void *)(job->codes + panel * job->cut.panel_bytes);
}

#if UL_VECTOR_BYTES > 0
/* LANES numbers of 16 bits, by one instruction where compilers find several. */
UL_INLINE word_vec words_of_halves(const uint16_t *from)
{
#if defined(__AVX512F__) && UL_VECTOR_BYTES == 64
    return (word_vec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__AVX2__) && UL_VECTOR_BYTES == 32
    return (word_vec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
#else
    return __builtin_convertvector(*(const half_loose *)from, word_vec);
#endif
}

/* LANES floats of 16 bits. */
UL_INLINE vec floats_of_halves(const uint16_t *from, int is_bf16)
{
#if defined(__AVX512F__) && UL_VECTOR_BYTES == 64
    if (!is_bf16)
        return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__F16C__) && UL_VECTOR_BYTES == 32
    if (!is_bf16)
        return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
#endif
    const word_vec wide = words_of_halves(from);
    word_vec bits = wide << 16;
    vec number;
    if (!is_bf16) { /* as ul_f16_to_f32 */
        bits = (wide & 0x7fffu) << 13;
        memcpy(&number, &bits, sizeof number);
        number *= 5192296858534827628530496329220096.0f;
        memcpy(&bits, &number, sizeof number);
        bits |= (word_vec)((wide & 0x7c00u) == 0x7c00u) & 0x7f800000u;
        bits |= (wide & 0x8000u) << 16;
    }
    memcpy(&number, &bits, sizeof number);
    return number;
}
#else
/* A float of 16 bits. */
UL_INLINE vec floats_of_halves(const uint16_t *from, int is_bf16)
{
    return is_bf16 ? ul_bf16_to_f32(*from) : ul_f16_to_f32(*from);
}
#endif

/* ---- after the sums ---- */

#define EACH(expression)                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                          \
        const float a = y[i], b = x[i * step];                                                     \
        y[i] = (expression);                                                                       \
    }                                                                                              \
    break

/* y = y op x; by vectors where step and count are known. */
UL_INLINE void apply_steps(enum ul_post_kind kind, float *UL_RESTRICT y, const float *UL_RESTRICT x,
                           int64_t step, int64_t count)
{
    switch ((int)kind) {
    case UL_POST_SUB:
        EACH(a - b);
    case UL_POST_MUL:
        EACH(a * b);
    case UL_POST_DIV:
        EACH(a / b);
    case UL_POST_MAX:
        EACH(a > b ? a : b);
    case UL_POST_MIN:
        EACH(a < b ? a : b);
    default: /* UL_POST_SUM, UL_POST_ADD */
        EACH(a + b);
    }
}

#undef EACH

static void apply_binary(enum ul_post_kind kind, float *y, const float *x, int64_t step,
                         int64_t count)
{
    if (step == 1 && count == GROUP)
        apply_steps(kind, y, x, 1, GROUP);
    else if (step == 1)
        apply_steps(kind, y, x, 1, count);
    else
        apply_steps(kind, y, x, step, count);
}

/* The element of a tensor at a place of the result: its first column. */
static int64_t element_at(const struct ul_call_tensor *tensor, const int64_t place[4])
{
    int64_t at = tensor->dims[0] == 1 ? 0 : place[0] * tensor->strides[0];
    for (uint32_t d = 2; d < tensor->rank; d++)
        at += tensor->dims[d] == 1 ? 0 : place[4 + d - tensor->rank] * tensor->strides[d];
    return at;
}

/* Applies bias and post-operations to `count` sums of a row, and writes them to the result. */
static void finish(const struct job *job, float *y, int64_t row, int64_t first, int64_t count)
{
    const struct ul_call *call = job->call;
    const int64_t apart = call->dst.dims[1] == 1 ? 1 : call->dst.strides[1];
    int64_t place[4];
    find_place(job, row, place);
    float *to = job->dst + element_at(&call->dst, place) + first * apart;
    if (job->bias != NULL)
        apply_binary(UL_POST_ADD, y, job->bias + first, 1, count);
    for (uint32_t p = 0; p < call->post_count; p++) {
        const struct ul_post *post = &call->posts[p];
        const struct ul_call_tensor *tensor = &post->tensor;
        if (post->kind < UL_POST_SUM) {
            ul_post_apply(post, y, count);
        } else if (post->kind == UL_POST_SUM) {
            apply_binary(post->kind, y, to, apart, count);
        } else {
            const int64_t step = tensor->dims[1] == 1 ? 0 : tensor->strides[1];
            const int64_t at = element_at(tensor, place);
            apply_binary(post->kind, y, job->posts[p] + at + first * step, step, count);
        }
    }
    if (apart == 1)
        memcpy(to, y, (size_t)count * sizeof *y);
    for (int64_t i = 0; apart != 1 && i < count; i++)
        to[i * apart] = y[i];
}

/* ---- few rows ---- */

/* Adds products to sums: `count` words of 16 columns hold floats of 4 or 8 bits, which multiply as
 * many elements of a row. */
UL_INLINE void add_small_floats(vec sums[VECS][CHAINS], const uint32_t *codes, const float *row,
                                int64_t count, struct ul_f8_format format, int bits)
{
    for (int64_t i = 0; i < count; i++, codes += COLS, row += 32 / bits) {
        UL_UNROLL
        for (int v = 0; v < VECS; v++) {
            const word_vec words = *(const word_loose *)(codes + v * LANES);
            UL_UNROLL
            for (int k = 0; k < 32 / bits; k++)
                sums[v][k % CHAINS] += row[k] * small_float(words >> k * bits, format, bits);
        }
    }
}

/* Adds products to sums as add_small_floats does; the words hold integers. */
UL_INLINE void add_words(vec sums[VECS][CHAINS], const uint32_t *codes, const float *row,
                         int64_t count, float zero, uint32_t flip, int bits)
{
    for (int64_t i = 0; i < count; i++, codes += COLS, row += 32 / bits) {
        UL_UNROLL
        for (int v = 0; v < VECS; v++) {
            const word_vec words = *(const word_loose *)(codes + v * LANES) ^ flip;
            UL_UNROLL
            for (int k = 0; k < 32 / bits; k++) {
                const int shift = k * bits % 16;
                const word_vec part = k * bits < 16 ? words : words >> 16;
                sums[v][k % CHAINS] +=
                    row[k] * (float_of(part, shift, bits) - (number_above(shift) + zero));
            }
        }
    }
}

static void add_block(vec sums[VECS][CHAINS], const uint32_t *codes, const float *row,
                      int64_t count, float zero, const struct ul_call_nbits *nbits)
{
    const struct ul_f8_format format = format_of(nbits);
    if (format.mantissa != 0 && nbits->bits == 4)
        add_small_floats(sums, codes, row, count, format, 4);
    else if (format.mantissa != 0)
        add_small_floats(sums, codes, row, count, format, 8);
    else if (nbits->bits == 4)
        add_words(sums, codes, row, count, zero, 0, 4);
    else if (nbits->bits == 2)
        add_words(sums, codes, row, count, zero, 0, 2);
    else
        add_words(sums, codes, row, count, zero, flip_of(nbits), 8);
}

/* Multiplies one row by one panel. */
static void multiply_row(const struct job *job, const float *block_sums, int64_t row, int64_t panel)
{
    const struct ul_call_nbits *nbits = &job->call->nbits;
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t words = nbits->block * (int64_t)nbits->bits / 32, first = panel * COLS;
    const int64_t count = cut->columns - first < COLS ? cut->columns - first : COLS;
    const float *src = source_of(job, row);
    const uint32_t *codes = words_of(job, panel);
    const float zero = fixed_zero(nbits);
    float scales[COLS], zeros[COLS], y[COLS];
    vec total[VECS] = {0};
    for (int64_t b = 0; b < cut->blocks; b++) {
        vec sums[VECS][CHAINS];
        if (job->scales != NULL)
            UL_PREFETCH(job->scales + ((b + AHEAD) * cut->columns + first) * scale_bytes(job));
        memset(sums, 0, sizeof sums);
        add_block(sums, codes + b * words * COLS, src + b * nbits->block, words, zero, nbits);
        load_scales(scales, job, b * cut->columns + first, count);
        if (nbits->zeros != UL_NBITS_FIXED)
            load_zeros(zeros, job, b, first, count);
        for (int v = 0; v < VECS; v++) {
            vec sum = sums[v][0];
            for (int c = 1; c < CHAINS; c++)
                sum += sums[v][c];
            if (nbits->zeros != UL_NBITS_FIXED)
                sum -= *(const loose *)(zeros + v * LANES) * block_sums[b];
            total[v] += sum * *(const loose *)(scales + v * LANES);
        }
    }
    memcpy(y, total, sizeof y);
    finish(job, y, row, first, count);
}

/* Multiplies one row by one panel of floats of 16 bits. */
UL_INLINE void multiply_halves(const struct job *job, int64_t row, int64_t panel, int is_bf16)
{
    const int64_t depth = job->cut.depth, first = panel * COLS;
    const int64_t count = ul_run(job->cut.columns - first, COLS);
    const float *src = source_of(job, row);
    const uint16_t *codes = halves_of(job, panel);
    float scales[COLS], y[COLS];
    vec sums[VECS][HALF_CHAINS], total[VECS];
    int64_t k = 0;
    memset(sums, 0, sizeof sums);
    for (; k + HALF_CHAINS <= depth; k += HALF_CHAINS) {
        UL_UNROLL
        for (int c = 0; c < HALF_CHAINS; c++) {
            UL_UNROLL
            for (int v = 0; v < VECS; v++)
                sums[v][c] +=
                    src[k + c] * floats_of_halves(codes + (k + c) * COLS + v * LANES, is_bf16);
        }
    }
    for (; k < depth; k++)
        for (int v = 0; v < VECS; v++)
            sums[v][0] += src[k] * floats_of_halves(codes + k * COLS + v * LANES, is_bf16);
    load_scales(scales, job, first, count);
    for (int v = 0; v < VECS; v++) {
        total[v] = sums[v][0];
        for (int c = 1; c < HALF_CHAINS; c++)
            total[v] += sums[v][c];
        total[v] *= *(const loose *)(scales + v * LANES);
    }
    memcpy(y, total, sizeof y);
    finish(job, y, row, first, count);
}

/* The sums of each block of a row, by which zero points are multiplied. */
static void sum_blocks(const struct job *job, float *sums)
{
    const int64_t block = job->call->nbits.block, count = job->cut.blocks;
    for (int64_t r = 0; r < job->cut.rows; r++) {
        for (int64_t b = 0; b < count; b++) {
            const float *row = source_of(job, r) + b * block;
            float sum = 0;
            for (int64_t k = 0; k < block; k++)
                sum += row[k];
            sums[r * count + b] = sum;
        }
    }
}

static void run_few(const struct job *job, float *scratch, int64_t begin, int64_t end)
{
    const int64_t count = job->cut.blocks;
    if (job->call->nbits.zeros != UL_NBITS_FIXED)
        sum_blocks(job, scratch);
    for (int64_t panel = begin; panel < end; panel++)
        for (int64_t r = 0; r < job->cut.rows; r++) {
            if (job->call->nbits.bits != 16)
                multiply_row(job, scratch + r * count, r, panel);
            else if (job->call->nbits.code_type == UL_CALL_BF16)
                multiply_halves(job, r, panel, 1);
            else
                multiply_halves(job, r, panel, 0);
        }
}

/* ---- many rows ---- */

/* Unpacks `count` words of a panel, of one block, to floats: rows of k, GROUP apart. */
UL_INLINE void unpack_words(float *to, const uint32_t *codes, int64_t count, const float *scales,
                            const float *zeros, float zero, uint32_t flip, int bits)
{
    for (int64_t i = 0; i < count; i++, codes += COLS) {
        UL_UNROLL
        for (int v = 0; v < VECS; v++) {
            const word_vec words = *(const word_loose *)(codes + v * LANES) ^ flip;
            const vec scale = *(const loose *)(scales + v * LANES);
            const vec more = *(const loose *)(zeros + v * LANES);
            UL_UNROLL
            for (int k = 0; k < 32 / bits; k++) {
                const int shift = k * bits % 16;
                const word_vec part = k * bits < 16 ? words : words >> 16;
                const vec code = float_of(part, shift, bits) - (number_above(shift) + zero);
                *(loose *)(to + (i * (32 / bits) + k) * GROUP + v * LANES) = (code - more) * scale;
            }
        }
    }
}

UL_INLINE void unpack_small_floats(float *to, const uint32_t *codes, int64_t count,
                                   const float *scales, struct ul_f8_format format, int bits)
{
    for (int64_t i = 0; i < count; i++, codes += COLS) {
        UL_UNROLL
        for (int v = 0; v < VECS; v++) {
            const word_vec words = *(const word_loose *)(codes + v * LANES);
            const vec scale = *(const loose *)(scales + v * LANES);
            UL_UNROLL
            for (int k = 0; k < 32 / bits; k++)
                *(loose *)(to + (i * (32 / bits) + k) * GROUP + v * LANES) =
                    small_float(words >> k * bits, format, bits) * scale;
        }
    }
}

/* Unpacks k [first_k, first_k + depth) of a panel of floats of 16 bits. */
UL_INLINE void unpack_halves(const struct job *job, float *to, int64_t panel, int64_t first_k,
                             int64_t depth, int is_bf16)
{
    const uint16_t *codes = halves_of(job, panel) + first_k * COLS;
    const int64_t first = panel * COLS;
    float scales[COLS];
    load_scales(scales, job, first, ul_run(job->cut.columns - first, COLS));
    for (int64_t k = 0; k < depth; k++) {
        UL_UNROLL
        for (int v = 0; v < VECS; v++)
            *(loose *)(to + k * GROUP + v * LANES) =
                floats_of_halves(codes + k * COLS + v * LANES, is_bf16) *
                *(const loose *)(scales + v * LANES);
    }
}

/* Unpacks codes of 2 to 8 bits, integers or floats, as unpack_halves unpacks floats of 16 bits. */
static void unpack_codes(const struct job *job, float *to, int64_t panel, int64_t first_k,
                         int64_t depth)
{
    const struct ul_call_nbits *nbits = &job->call->nbits;
    const int64_t per = 32 / (int64_t)nbits->bits, first = panel * COLS;
    const int64_t cols = job->cut.columns - first < COLS ? job->cut.columns - first : COLS;
    const uint32_t *codes = words_of(job, panel) + first_k / per * COLS;
    const float zero = fixed_zero(nbits);
    const struct ul_f8_format format = format_of(nbits);
    float scales[COLS], zeros[COLS] = {0};
    for (int64_t k = 0, run; k < depth; k += run) {
        const int64_t block = (first_k + k) / nbits->block;
        run = (block + 1) * nbits->block - first_k - k;
        run = run < depth - k ? run : depth - k;
        load_scales(scales, job, block * job->cut.columns + first, cols);
        if (nbits->zeros != UL_NBITS_FIXED)
            load_zeros(zeros, job, block, first, cols);
        float *place = to + k * GROUP;
        const uint32_t *words = codes + k / per * COLS;
        if (format.mantissa != 0 && nbits->bits == 4)
            unpack_small_floats(place, words, run / per, scales, format, 4);
        else if (format.mantissa != 0)
            unpack_small_floats(place, words, run / per, scales, format, 8);
        else if (nbits->bits == 4)
            unpack_words(place, words, run / per, scales, zeros, zero, 0, 4);
        else if (nbits->bits == 2)
            unpack_words(place, words, run / per, scales, zeros, zero, 0, 2);
        else
            unpack_words(place, words, run / per, scales, zeros, zero, flip_of(nbits), 8);
    }
}

static void unpack_panel(const struct job *job, float *to, int64_t panel, int64_t first_k,
                         int64_t depth)
{
    if (job->call->nbits.bits != 16)
        unpack_codes(job, to, panel, first_k, depth);
    else if (job->call->nbits.code_type == UL_CALL_BF16)
        unpack_halves(job, to, panel, first_k, depth, 1);
    else
        unpack_halves(job, to, panel, first_k, depth, 0);
}

/* Sums of `rows` rows and `vecs` vectors of columns, GROUP apart, over `depth` of k. */
UL_INLINE void multiply_tile(float *sums, const float *src, int64_t pitch, const float *weights,
                             int64_t depth, int rows, int vecs)
{
    vec sum[TILE_ROWS][TILE_PANELS * VECS];
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            sum[r][v] = *(const loose *)(sums + r * GROUP + v * LANES);
    }
    for (int64_t k = 0; k < depth; k++) {
        vec w[TILE_PANELS * VECS];
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            w[v] = *(const loose *)(weights + k * GROUP + v * LANES);
        UL_UNROLL
        for (int r = 0; r < rows; r++) {
            const float x = src[r * pitch + k];
            UL_UNROLL
            for (int v = 0; v < vecs; v++)
                sum[r][v] += x * w[v];
        }
    }
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            *(loose *)(sums + r * GROUP + v * LANES) = sum[r][v];
    }
}

UL_INLINE void multiply_rows(float *sums, const float *src, int64_t pitch, const float *weights,
                             int64_t depth, int64_t rows, int vecs)
{
    int64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        multiply_tile(sums + r * GROUP, src + r * pitch, pitch, weights, depth, TILE_ROWS, vecs);
    for (; r + 2 <= rows; r += 2)
        multiply_tile(sums + r * GROUP, src + r * pitch, pitch, weights, depth, 2, vecs);
    for (; r < rows; r++)
        multiply_tile(sums + r * GROUP, src + r * pitch, pitch, weights, depth, 1, vecs);
}

/* Multiplies all rows by `panels` panels from `panel` on. */
static void run_group(const struct job *job, float *scratch, int64_t panel, int64_t panels)
{
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t pitch = job->call->src.strides[0], first = panel * COLS;
    float *sums = scratch + UL_NBITS_DEPTH * GROUP;
    const int64_t left = cut->columns - first;
    for (int64_t row = 0; row < cut->rows; row += cut->row_count) {
        const int64_t rows = cut->rows - row < cut->row_count ? cut->rows - row : cut->row_count;
        memset(sums, 0, (size_t)(rows * GROUP) * sizeof *sums);
        for (int64_t k = 0; k < cut->depth; k += UL_NBITS_DEPTH) {
            const int64_t rest = cut->depth - k;
            const int64_t depth = rest < UL_NBITS_DEPTH ? rest : UL_NBITS_DEPTH;
            const float *src = job->src + row * pitch + k;
            for (int64_t p = 0; p < panels; p++)
                unpack_panel(job, scratch + p * COLS, panel + p, k, depth);
            if (panels == TILE_PANELS)
                multiply_rows(sums, src, pitch, scratch, depth, rows, TILE_PANELS * VECS);
            for (int64_t p = 0; panels < TILE_PANELS && p < panels; p++)
                multiply_rows(sums + p * COLS, src, pitch, scratch + p * COLS, depth, rows, VECS);
        }
        for (int64_t r = 0; r < rows; r++)
            finish(job, sums + r * GROUP, row + r, first,
                   left < panels * COLS ? left : panels * COLS);
    }
}

/* ---- convolutions ---- */

/* A row of the result: where it begins to read, at the first tap, and where it is written. */
struct origin {
    int64_t from, to;
    int32_t at[3];
    int32_t place[4]; /* the image, then the axes of space */
};

/* Some rows of some columns of a group. */
struct piece {
    int64_t row, rows, group, panel, panels;
    float *weights, *sums; /* [unit][k or row][GROUP]: a unit is the panels of a tile */
    const float *zeros;
    struct origin origins[UL_NBITS_ROWS];
    const float *points[UL_NBITS_ROWS]; /* what the rows read at a tap */
};

/* Finds the origins of all rows, each from the one before it, without a division. */
static void find_origins(const struct job *job, struct piece *piece)
{
    const struct ul_nbits_window *window = &job->window;
    int64_t place[4];
    find_place(job, piece->row, place);
    for (int64_t r = 0; r < piece->rows; r++) {
        struct origin *origin = &piece->origins[r];
        origin->from = place[0] * job->call->src.strides[0] + piece->group * window->channels;
        origin->to = place[0] * job->call->dst.strides[0];
        origin->place[0] = (int32_t)place[0];
        for (int a = 0; a < 3; a++) {
            const int64_t at = place[a + 1] * window->step[a] - window->pad[a];
            origin->from += at * window->src_stride[a];
            origin->to += place[a + 1] * window->dst_stride[a];
            origin->at[a] = (int32_t)at;
            origin->place[a + 1] = (int32_t)place[a + 1];
        }
        for (int a = 3; ++place[a] == (a > 0 ? window->out[a - 1] : INT64_MAX);)
            place[a--] = 0;
    }
}

static void find_points(const struct job *job, struct piece *piece, int64_t tap, int64_t channel)
{
    const struct ul_nbits_window *window = &job->window;
    int64_t moved[3], offset = channel;
    for (int a = 3; a-- > 0;) {
        moved[a] = tap % window->kernel[a] * window->dilation[a];
        offset += moved[a] * window->src_stride[a];
        tap /= window->kernel[a];
    }
    for (int64_t r = 0; r < piece->rows; r++) {
        const struct origin *origin = &piece->origins[r];
        const int is_inside = (uint64_t)(origin->at[0] + moved[0]) < (uint64_t)window->in[0] &&
                              (uint64_t)(origin->at[1] + moved[1]) < (uint64_t)window->in[1] &&
                              (uint64_t)(origin->at[2] + moved[2]) < (uint64_t)window->in[2];
        piece->points[r] = is_inside ? job->src + (origin->from + offset) : piece->zeros;
    }
}

/* multiply_tile for rows of the source that are not one after the other. */
UL_INLINE void multiply_points(float *sums, const float *const *points, const float *weights,
                               int64_t depth, int rows, int vecs)
{
    vec sum[TILE_ROWS][TILE_PANELS * VECS];
    const float *src[TILE_ROWS];
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        src[r] = points[r];
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            sum[r][v] = *(const loose *)(sums + r * GROUP + v * LANES);
    }
    for (int64_t k = 0; k < depth; k++) {
        vec w[TILE_PANELS * VECS];
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            w[v] = *(const loose *)(weights + k * GROUP + v * LANES);
        UL_UNROLL
        for (int r = 0; r < rows; r++) {
            const float x = src[r][k];
            UL_UNROLL
            for (int v = 0; v < vecs; v++)
                sum[r][v] += x * w[v];
        }
    }
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            *(loose *)(sums + r * GROUP + v * LANES) = sum[r][v];
    }
}

/* Kept apart from the loops around it, which would take the registers of what its rows read. */
APART static void multiply_full(float *sums, const float *const *points, const float *weights,
                                int64_t depth)
{
    multiply_points(sums, points, weights, depth, TILE_ROWS, TILE_PANELS * VECS);
}

/* Multiplies fewer rows than a tile has. */
static void multiply_rest(float *sums, const float *const *points, const float *weights,
                          int64_t depth, int64_t rows)
{
    enum { ALL = TILE_PANELS * VECS, MOST = TILE_ROWS - 1 };
    if (rows == 1)
        multiply_points(sums, points, weights, depth, 1, ALL);
    else if (rows == 2)
        multiply_points(sums, points, weights, depth, 2, ALL);
    else if (rows == 3)
        multiply_points(sums, points, weights, depth, MOST < 3 ? MOST : 3, ALL);
    else if (rows == 4)
        multiply_points(sums, points, weights, depth, MOST < 4 ? MOST : 4, ALL);
    else if (rows == 5)
        multiply_points(sums, points, weights, depth, MOST < 5 ? MOST : 5, ALL);
}

/* All rows of a piece, with a unit of columns; `dst`: the unit's first column in the result, which
 * is written next, or NULL. */
static void multiply_unit(const struct piece *piece, float *sums, const float *weights,
                          int64_t depth, const float *dst)
{
    int64_t r = 0;
    for (; r + TILE_ROWS <= piece->rows; r += TILE_ROWS) {
        for (int64_t i = r; dst != NULL && i < r + TILE_ROWS; i++)
            UL_PREFETCH_TO(dst + piece->origins[i].to);
        multiply_full(sums + r * GROUP, piece->points + r, weights, depth);
    }
    multiply_rest(sums + r * GROUP, piece->points + r, weights, depth, piece->rows - r);
}

/* sums op tensor, for `count` columns from `first` on. */
static void apply_operand(const struct piece *piece, float *sums, enum ul_post_kind kind,
                          const struct ul_call_tensor *tensor, const float *from, int64_t first,
                          int64_t count)
{
    const int64_t step = tensor->dims[1] == 1 ? 0 : tensor->strides[1];
    from += first * step;
    for (int64_t r = 0; r < piece->rows; r++) {
        const int32_t *at = piece->origins[r].place;
        const int64_t place[4] = {at[0], at[1], at[2], at[3]};
        apply_binary(kind, sums + r * GROUP, from + element_at(tensor, place), step, count);
    }
}

/* sums op what is the same for all rows. */
static void apply_columns(const struct piece *piece, float *sums, enum ul_post_kind kind,
                          const float *from, int64_t count)
{
    for (int64_t r = 0; r < piece->rows; r++)
        apply_binary(kind, sums + r * GROUP, from, 1, count);
}

/* Whether it has one element for each column, side by side. */
static int is_by_column(const struct ul_call_tensor *tensor)
{
    int is_row = tensor->dims[0] == 1 && tensor->dims[1] > 1 && tensor->strides[1] == 1;
    for (uint32_t d = 2; d < tensor->rank; d++)
        is_row = is_row && tensor->dims[d] == 1;
    return is_row;
}

static void store_unit(const struct piece *piece, const float *sums, float *to, int64_t apart,
                       int64_t count)
{
    for (int64_t r = 0; r < piece->rows; r++, sums += GROUP) {
        float *row = to + piece->origins[r].to;
        if (apart == 1 && count == GROUP) /* a known size needs no call */
            memcpy(row, sums, GROUP * sizeof *sums);
        else
            for (int64_t i = 0; i < count; i++)
                row[i * apart] = sums[i];
    }
}

/* Applies bias and post-operations to the sums of a unit, all rows at a time, and writes them to
 * the result. */
static void finish_unit(const struct job *job, const struct piece *piece, int64_t u)
{
    const struct ul_call *call = job->call;
    const int64_t first = piece->panel * COLS + u * GROUP;
    const int64_t end = ul_run((piece->panel + piece->panels) * COLS, job->cut.columns);
    const int64_t count = ul_run(end - first, GROUP);
    const int64_t apart = call->dst.dims[1] == 1 ? 1 : call->dst.strides[1];
    float *sums = piece->sums + u * job->cut.row_count * GROUP;
    if (job->bias != NULL)
        apply_columns(piece, sums, UL_POST_ADD, job->bias + first, count);
    for (uint32_t p = 0; p < call->post_count; p++) {
        const struct ul_post *post = &call->posts[p];
        if (post->kind < UL_POST_SUM)
            ul_post_apply(post, sums, piece->rows * GROUP);
        else if (post->kind == UL_POST_SUM)
            apply_operand(piece, sums, post->kind, &call->dst, job->dst, first, count);
        else if (is_by_column(&post->tensor))
            apply_columns(piece, sums, post->kind, job->posts[p] + first, count);
        else
            apply_operand(piece, sums, post->kind, &post->tensor, job->posts[p], first, count);
    }
    store_unit(piece, sums, job->dst + first * apart, apart, count);
}

/* Adds up a piece over `depth` channels of a tap. */
static void multiply_piece(const struct job *job, struct piece *piece, int64_t tap, int64_t channel,
                           int64_t depth)
{
    const struct ul_nbits_window *window = &job->window;
    const int64_t units = (piece->panels + TILE_PANELS - 1) / TILE_PANELS;
    const int is_last = tap + 1 == window->taps && channel + depth == window->channels;
    const float *dst = job->call->dst.strides[1] == 1 ? job->dst + piece->panel * COLS : NULL;
    find_points(job, piece, tap, channel);
    for (int64_t u = 0; u < units; u++) {
        float *weights = piece->weights + u * UL_NBITS_DEPTH * GROUP;
        const int64_t begin = u * TILE_PANELS, end = ul_run(begin + TILE_PANELS, piece->panels);
        for (int64_t p = begin; p < end; p++)
            unpack_panel(job, weights + (p - begin) * COLS, piece->panel + p,
                         tap * window->channels + channel, depth);
        multiply_unit(piece, piece->sums + u * job->cut.row_count * GROUP, weights, depth,
                      is_last && dst != NULL ? dst + u * GROUP : NULL);
        if (is_last)
            finish_unit(job, piece, u);
    }
}

static void run_piece(const struct job *job, struct piece *piece)
{
    const int64_t units = (piece->panels + TILE_PANELS - 1) / TILE_PANELS;
    const int64_t channels = job->window.channels;
    find_origins(job, piece);
    memset(piece->sums, 0, (size_t)(units * job->cut.row_count * GROUP) * sizeof *piece->sums);
    for (int64_t tap = 0; tap < job->window.taps; tap++)
        for (int64_t channel = 0; channel < channels; channel += UL_NBITS_DEPTH)
            multiply_piece(job, piece, tap, channel, ul_run(channels - channel, UL_NBITS_DEPTH));
}

/* Runs a thread's share of pieces: blocks of rows of some panels of a group. */
static void run_window(const struct job *job, float *scratch, int64_t thread, int64_t threads)
{
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t panels = cut->panel_count / job->window.groups;
    const int64_t cuts = (panels * COLS + UL_NBITS_GROUP - 1) / UL_NBITS_GROUP;
    const int64_t blocks = (cut->rows + cut->row_count - 1) / cut->row_count;
    const int64_t columns = job->window.groups * cuts, count = columns * blocks;
    /* The next piece shares the larger part of this one: its codes or its source. */
    const int keeps_rows = cut->depth * UL_NBITS_GROUP * (int64_t)job->call->nbits.bits / 8 <
                           cut->row_count * job->window.channels * (int64_t)sizeof(float);
    float *sums = scratch + UL_NBITS_DEPTH * UL_NBITS_GROUP;
    float *zeros = sums + cut->row_count * UL_NBITS_GROUP;
    struct piece piece = {.weights = scratch, .sums = sums, .zeros = zeros};
    if (TILE_PANELS > 1) /* a tile may have fewer */
        memset(scratch, 0, (size_t)(UL_NBITS_DEPTH * UL_NBITS_GROUP) * sizeof *scratch);
    memset(zeros, 0, UL_NBITS_DEPTH * sizeof *zeros);
    for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; i++) {
        const int64_t column = keeps_rows ? i % columns : i / blocks;
        const int64_t of_group = column % cuts * (UL_NBITS_GROUP / COLS);
        piece.group = column / cuts;
        piece.panel = piece.group * panels + of_group;
        piece.panels = ul_run(panels - of_group, UL_NBITS_GROUP / COLS);
        piece.row = (keeps_rows ? i / columns : i % blocks) * cut->row_count;
        piece.rows = ul_run(cut->rows - piece.row, cut->row_count);
        run_piece(job, &piece);
    }
}

/* Turns a thread's share of the source, by places along the innermost axis. */
static void turn_source(const struct job *job, float *to, int64_t thread, int64_t threads)
{
    enum { RUN = 16 };
    const struct ul_nbits_window *window = &job->window;
    const struct ul_call_tensor *src = &job->call->src;
    const int64_t channels = src->dims[1], along = window->in[2];
    const int64_t lines = window->images * window->in[0] * window->in[1];
    for (int64_t i = lines * thread / threads; i < lines * (thread + 1) / threads; i++) {
        const int64_t y = i % window->in[1], z = i / window->in[1] % window->in[0];
        const float *from = job->src + i / window->in[1] / window->in[0] * src->strides[0] +
                            z * window->src_stride[0] + y * window->src_stride[1];
        for (int64_t x = 0; x < along; x += RUN)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = x; p < ul_run(x + RUN, along); p++)
                    to[(i * along + p) * channels + c] =
                        from[c * src->strides[1] + p * window->src_stride[2]];
    }
}

/* Makes the job read its source turned channels-last; `call` is a copy of its call. */
static void take_turned(struct job *job, struct ul_call *call, const float *src)
{
    int64_t stride = call->src.dims[1];
    call->src.strides[1] = 1;
    for (uint32_t d = call->src.rank; d-- > 2; stride *= call->src.dims[d])
        call->src.strides[d] = stride;
    call->src.strides[0] = stride;
    ul_nbits_window_init(&job->window, call);
    job->call = call;
    job->src = src;
}

/* ---- turned ---- */

/* Unpacks k [first_k, first_k + depth) of a panel as rows of n, GROUP apart, with 0 after them. It
 * goes by way of `room`, which has them as rows of k. */
static void unpack_turned(const struct job *job, float *to, float *room, int64_t panel,
                          int64_t first_k, int64_t depth)
{
    unpack_panel(job, room, panel, first_k, depth);
    for (int64_t n = 0; n < COLS; n++) {
        for (int64_t k = 0; k < depth; k++)
            to[n * GROUP + k] = room[k * GROUP + n];
        for (int64_t k = depth; k < GROUP; k++)
            to[n * GROUP + k] = 0;
    }
}

/* Runs `depth` of k from `first` on, at most GROUP, for all rows. */
static void run_turned(const struct job *job, float *scratch, int64_t first, int64_t depth)
{
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t pitch = job->call->src.strides[0];
    float *sums = scratch + UL_NBITS_DEPTH * GROUP, *room = sums + cut->row_count * GROUP;
    for (int64_t row = 0; row < cut->rows; row += cut->row_count) {
        const int64_t rows = ul_run(cut->rows - row, cut->row_count);
        memset(sums, 0, (size_t)(rows * GROUP) * sizeof *sums);
        for (int64_t n = 0; n < cut->columns; n += UL_NBITS_DEPTH) {
            const int64_t count = ul_run(cut->columns - n, UL_NBITS_DEPTH);
            for (int64_t p = 0; p * COLS < count; p++)
                unpack_turned(job, scratch + p * COLS * GROUP, room, n / COLS + p, first, depth);
            multiply_rows(sums, job->src + row * pitch + n, pitch, scratch, count, rows,
                          TILE_PANELS * VECS);
        }
        for (int64_t r = 0; r < rows; r++)
            finish(job, sums + r * GROUP, row + r, first, depth);
    }
}

/* ---- rows in bytes ---- */

/* Rows [row, row + count) of src. */
struct byte_rows {
    unsigned char *bytes; /* [row][k] */
    struct ul_bytes_block *blocks;
};

static void take_row(const struct job *job, const struct byte_rows *to, int64_t from, int64_t row)
{
    const struct ul_call_nbits *nbits = &job->call->nbits;
    const int64_t depth = job->cut.depth, count = job->cut.blocks;
    const float *src = job->src + from * job->call->src.strides[0];
    unsigned char *bytes = to->bytes + row * depth;
    for (int64_t b = 0; b < count; b++)
        to->blocks[row * count + b] =
            ul_bytes_take(bytes + b * nbits->block, src + b * nbits->block, nbits->block,
                          (int32_t)fixed_zero(nbits));
    if (nbits->bits == 4)
        ul_bytes_turn(bytes, depth, 4);
    else if (nbits->bits == 2)
        ul_bytes_turn(bytes, depth, 2);
}

/* A tile: some rows, and panels of a group. A single row waits only for memory, and fetches what
 * the next group needs as it goes. */
struct byte_tile {
    const unsigned char *bytes;
    const struct ul_bytes_block *blocks;
    const uint32_t *codes[BYTE_FEW];
    const float *scales, *zeros; /* [block][BYTE_GROUP]; zeros times scales, or NULL */
    const unsigned char *next_scales;
    int64_t next_words; /* distance of the next codes from these */
};

/* Adds a block's words to sums. */
UL_INLINE void add_bytes(ul_bv sums[BYTE_ROWS][BYTE_SUMS], const struct byte_tile *tile,
                         int64_t pitch, int64_t begin, int64_t end, int rows, int panels, int bits)
{
    const int parts = 8 / bits, vecs = panels * BYTE_VECS;
    for (int64_t i = begin; i < end; i++) {
        ul_bv words[BYTE_SUMS], codes[BYTE_SUMS];
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            words[v] =
                ul_bv_load(tile->codes[v / BYTE_VECS] + i * COLS + v % BYTE_VECS * UL_BV_LANES);
        for (int v = 0; rows == 1 && v < panels; v++)
            UL_PREFETCH(tile->codes[v] + tile->next_words + i * COLS);
        UL_UNROLL
        for (int p = 0; p < parts; p++) {
            UL_UNROLL
            for (int v = 0; v < vecs; v++)
                codes[v] = ul_bv_part(words[v], p, bits);
            UL_UNROLL
            for (int r = 0; r < rows; r++) {
                const int32_t four = ul_int_group(tile->bytes + r * pitch + (i * parts + p) * 4);
                UL_UNROLL
                for (int v = 0; v < vecs; v++)
                    sums[r][v] = ul_bv_add(sums[r][v], four, codes[v], bits);
            }
        }
    }
}

/* Multiplies a tile; its rows of y are BYTE_GROUP apart. */
UL_INLINE void multiply_bytes(const struct job *job, float *y, const struct byte_tile *tile,
                              int rows, int panels, int bits)
{
    const int64_t words = job->call->nbits.block * bits / 32, blocks = job->cut.blocks;
    const int vecs = panels * BYTE_VECS;
    ul_bv_floats total[BYTE_ROWS][BYTE_SUMS];
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            total[r][v] = (ul_bv_floats){0};
    }
    for (int64_t b = 0; b < blocks; b++) {
        ul_bv sums[BYTE_ROWS][BYTE_SUMS];
        UL_UNROLL
        for (int r = 0; r < rows; r++) {
            UL_UNROLL
            for (int v = 0; v < vecs; v++)
                sums[r][v] = ul_bv_all(tile->blocks[r * blocks + b].first);
        }
        for (int p = 0; rows == 1 && tile->next_scales != NULL && p < panels; p++)
            UL_PREFETCH(tile->next_scales + (b * job->cut.columns + p * COLS) * scale_bytes(job));
        add_bytes(sums, tile, job->cut.depth, b * words, (b + 1) * words, rows, panels, bits);
        UL_UNROLL
        for (int v = 0; v < vecs; v++) {
            const int64_t at = b * BYTE_GROUP + v * UL_BV_LANES;
            const ul_bv_floats scale = *(const ul_bv_loose *)(tile->scales + at);
            UL_UNROLL
            for (int r = 0; r < rows; r++)
                total[r][v] +=
                    ul_bv_to_floats(sums[r][v]) * (scale * tile->blocks[r * blocks + b].scale);
        }
        for (int v = 0; tile->zeros != NULL && v < vecs; v++) {
            const int64_t at = b * BYTE_GROUP + v * UL_BV_LANES;
            for (int r = 0; r < rows; r++)
                total[r][v] -=
                    *(const ul_bv_loose *)(tile->zeros + at) *
                    (tile->blocks[r * blocks + b].sum * tile->blocks[r * blocks + b].scale);
        }
    }
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vecs; v++)
            *(ul_bv_loose *)(y + r * BYTE_GROUP + v * UL_BV_LANES) = total[r][v];
    }
}

UL_INLINE void multiply_bits(const struct job *job, float *y, const struct byte_tile *tile,
                             int64_t rows, int bits)
{
    if (rows == BYTE_ROWS)
        multiply_bytes(job, y, tile, BYTE_ROWS, BYTE_PANELS, bits);
    else if (rows == BYTE_ROWS / 2)
        multiply_bytes(job, y, tile, BYTE_ROWS / 2, BYTE_PANELS, bits);
    else
        multiply_bytes(job, y, tile, 1, BYTE_FEW, bits);
}

static void run_tile(const struct job *job, float *y, const struct byte_tile *tile, int64_t rows)
{
    if (job->call->nbits.bits == 4)
        multiply_bits(job, y, tile, rows, 4);
    else if (job->call->nbits.bits == 2)
        multiply_bits(job, y, tile, rows, 2);
    else
        multiply_bits(job, y, tile, rows, 8);
}

/* The panel of a group's columns; those after the last panel are the last one once more. */
static int64_t panel_at(const struct job *job, int64_t panel)
{
    return ul_run(panel, job->cut.panel_count - 1);
}

/* Loads one table after the other: a whole vector that was just written in halves would be waited
 * for. */
static void load_tables(const struct job *job, float *scales, float *zeros, int64_t panel)
{
    const int64_t columns = job->cut.columns, blocks = job->cut.blocks;
    for (int64_t p = 0; p < BYTE_GROUP / COLS; p++) {
        const int64_t first = panel_at(job, panel + p) * COLS;
        const int64_t count = ul_run(columns - first, COLS);
        for (int64_t b = 0; b < blocks; b++)
            load_scales(scales + b * BYTE_GROUP + p * COLS, job, b * columns + first, count);
        for (int64_t b = 0; zeros != NULL && b < blocks; b++)
            load_zeros(zeros + b * BYTE_GROUP + p * COLS, job, b, first, count);
    }
    for (int64_t i = 0; zeros != NULL && i < blocks * BYTE_GROUP; i += LANES)
        *(loose *)(zeros + i) *= *(const loose *)(scales + i);
}

/* Runs `count` rows from `first` on, whose bytes are in `rows`, with panels of a group. */
static void run_byte_group(const struct job *job, const struct byte_rows *rows, float *scratch,
                           int64_t first, int64_t count, int64_t panel, int64_t end)
{
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t columns = ul_run(end * COLS, cut->columns) - panel * COLS;
    float y[BYTE_ROWS * BYTE_GROUP];
    float *zeros =
        job->call->nbits.zeros == UL_NBITS_FIXED ? NULL : scratch + cut->blocks * BYTE_GROUP;
    const unsigned char *next = NULL;
    if (job->scales != NULL)
        next = job->scales + (panel * COLS + BYTE_GROUP) * scale_bytes(job);
    load_tables(job, scratch, zeros, panel);
    for (int64_t r = 0, take; r < count; r += take) {
        const int64_t left = count - r;
        take = left >= BYTE_ROWS ? BYTE_ROWS : left >= BYTE_ROWS / 2 ? BYTE_ROWS / 2 : 1;
        for (int64_t p = 0; p < end - panel; p += take == 1 ? BYTE_FEW : BYTE_PANELS) {
            struct byte_tile tile = {.bytes = rows->bytes + r * cut->depth,
                                     .blocks = rows->blocks + r * cut->blocks,
                                     .scales = scratch + p * COLS,
                                     .zeros = zeros == NULL ? NULL : zeros + p * COLS,
                                     .next_scales =
                                         next == NULL ? NULL : next + p * COLS * scale_bytes(job),
                                     .next_words = BYTE_GROUP * cut->words};
            for (int64_t i = 0; i < BYTE_FEW; i++)
                tile.codes[i] = words_of(job, panel_at(job, panel + p + i));
            run_tile(job, y + p * COLS, &tile, take);
        }
        for (int64_t i = 0; i < take; i++)
            finish(job, y + i * BYTE_GROUP, first + r + i, panel * COLS, columns);
    }
}

/* All threads meet: each reads what the others have written. */
static void meet(int64_t threads)
{
    if (threads == 1)
        return;
#ifdef _OPENMP
#pragma omp barrier
#endif
}

static void run_bytes(const struct job *job, unsigned char *scratch, int64_t thread,
                      int64_t threads)
{
    const struct ul_nbits_cut *cut = &job->cut;
    const int64_t panels = cut->panel_count, group = BYTE_GROUP / COLS;
    const int64_t begin = panels * thread / threads, end = panels * (thread + 1) / threads;
    unsigned char *own = scratch + cut->shared_bytes + (uint64_t)thread * cut->thread_bytes;
    struct byte_rows rows = {.bytes = scratch};
    rows.blocks = (struct ul_bytes_block *)(void *)(scratch + cut->rows_bytes);
    for (int64_t row = 0; row < cut->rows; row += cut->row_count) {
        const int64_t count = ul_run(cut->rows - row, cut->row_count);
        for (int64_t r = count * thread / threads; r < count * (thread + 1) / threads; r++)
            take_row(job, &rows, row + r, r);
        meet(threads);
        for (int64_t panel = begin; panel < end; panel += group)
            run_byte_group(job, &rows, (float *)(void *)own, row, count, panel,
                           ul_run(panel + group, end));
        meet(threads);
    }
}

/* ---- threads ---- */

static void run_alike(const struct job *job, unsigned char *scratch, int64_t thread,
                      int64_t threads)
{
    if (job->call->nbits.by_bytes) {
        run_bytes(job, scratch, thread, threads);
        return;
    }
    const int64_t count = job->cut.panel_count;
    float *own = (float *)(void *)(scratch + job->cut.shared_bytes +
                                   (uint64_t)thread * job->cut.thread_bytes);
    if (ul_nbits_is_window(job->call) && !job->cut.few) {
        run_window(job, own, thread, threads);
        return;
    }
    const int64_t begin = count * thread / threads, end = count * (thread + 1) / threads;
    if (job->call->nbits.turned) {
        const int64_t depth = job->cut.depth, groups = (depth + GROUP - 1) / GROUP;
        for (int64_t g = groups * thread / threads; g < groups * (thread + 1) / threads; g++)
            run_turned(job, own, g * GROUP, ul_run(depth - g * GROUP, GROUP));
        return;
    }
    if (job->cut.few) {
        run_few(job, own, begin, end);
        return;
    }
    for (int64_t panel = begin; panel < end; panel += TILE_PANELS)
        run_group(job, own, panel, end - panel < TILE_PANELS ? end - panel : TILE_PANELS);
}

static void run_thread(const struct job *job, unsigned char *scratch, int64_t thread,
                       int64_t threads)
{
    if (!ul_nbits_turns_source(job->call)) {
        run_alike(job, scratch, thread, threads);
        return;
    }
    struct job turned = *job;
    struct ul_call call = *job->call;
    turn_source(job, (float *)(void *)scratch, thread, threads);
    meet(threads);
    take_turned(&turned, &call, (const float *)(const void *)scratch);
    run_alike(&turned, scratch, thread, threads);
}

void ul_nbits_run(const struct ul_call *call, const void *const *args, unsigned char *scratch,
                  uint32_t planned_threads, uint32_t threads)
{
    struct job job = {.call = call,
                      .src = args[0],
                      .codes = args[1],
                      .bias = args[2],
                      .scales = args[UL_NBITS_ARG_SCALES],
                      .zeros = args[UL_NBITS_ARG_ZEROS]};
    uint32_t next = UL_NBITS_FIRST_POST;
    memcpy(&job.dst, &args[3], sizeof job.dst); /* this one is written: without its const */
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].kind >= UL_POST_ADD)
            job.posts[i] = args[next++];
    ul_nbits_cut_init(&job.cut, call, planned_threads);
    if (ul_nbits_is_window(call))
        ul_nbits_window_init(&job.window, call);
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        run_thread(&job, scratch, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)threads;
    run_thread(&job, scratch, 0, 1);
}
