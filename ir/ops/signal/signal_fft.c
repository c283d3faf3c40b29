/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of lines; see signal_fft.h.
 *
 * A pass has transforms of length l, one for each of the n / l interleaved subsequences s, element
 * k of which lies at k * (n / l) + s, and combines r of them each into length l * r:
 *     to[k][s] = sum over q < r of from[k mod l][s + q * n / (l * r)] * w^(q * k * n / (l * r))
 * with w the n-th root of unity and k < l * r. */
#include "ir/ops/signal/signal_fft.h"
#include "ir/kernel_build.h"

enum { MAX_WRITTEN_OUT = 8 }; /* passes of a smaller radix have their terms written out */

#define TAU 6.283185307179586476925286766559

void ul_fft_init(struct ul_fft *fft, struct ul_lower *lower, enum ul_dtype dtype, int64_t length,
                 bool inverse)
{
    struct ul_kernel *k = lower->kernel;
    *fft = (struct ul_fft){.lower = lower, .dtype = dtype, .length = length};
    fft->cosines = ul_lower_scratch(lower, dtype, (uint64_t)length);
    fft->sines = ul_lower_scratch(lower, dtype, (uint64_t)length);
    fft->real = ul_lower_scratch(lower, dtype, 2 * (uint64_t)length);
    fft->imaginary = ul_lower_scratch(lower, dtype, 2 * (uint64_t)length);
    double turn = (inverse ? TAU : -TAU) / (double)length;
    ul_kx at = ul_ks_for(k, length, UL_FOR_PARALLEL);
    ul_kx angle =
        ul_ks_let(k, ul_kx_mul(k, ul_kx_cast(k, UL_F64, at), ul_kx_float(k, UL_F64, turn)));
    ul_ks_store(k, fft->cosines, at, ul_kx_cast(k, dtype, ul_kx_unary(k, UL_KX_COS, angle)));
    ul_ks_store(k, fft->sines, at, ul_kx_cast(k, dtype, ul_kx_unary(k, UL_KX_SIN, angle)));
    ul_ks_end(k);
}

void ul_fft_put(const struct ul_fft *fft, ul_kx at, ul_kx real, ul_kx imaginary)
{
    ul_ks_store(fft->lower->kernel, fft->real, at, real);
    ul_ks_store(fft->lower->kernel, fft->imaginary, at, imaginary);
}

struct fft_pass {
    int64_t from, to; /* where the lines that are read and written begin */
    int64_t length;   /* of the transforms that the pass reads */
    int64_t radix;
};

/* Where element (k_out mod length, s + q * after) of the line that the pass reads is. */
static ul_kx source(const struct ul_fft *fft, const struct fft_pass *pass, ul_kx q, ul_kx k_out,
                    ul_kx s)
{
    struct ul_kernel *k = fft->lower->kernel;
    int64_t before = fft->length / pass->length;
    ul_kx row = ul_kx_muli(k, ul_kx_modi(k, k_out, pass->length), before);
    ul_kx column = ul_kx_add(k, s, ul_kx_muli(k, q, before / pass->radix));
    return ul_kx_addi(k, ul_kx_add(k, row, column), pass->from);
}

/* Which root of unity multiplies it. */
static ul_kx root_of(const struct ul_fft *fft, const struct fft_pass *pass, ul_kx q, ul_kx k_out)
{
    struct ul_kernel *k = fft->lower->kernel;
    int64_t after = fft->length / pass->length / pass->radix;
    return ul_kx_modi(k, ul_kx_muli(k, ul_kx_mul(k, q, k_out), after), fft->length);
}

struct complex {
    ul_kx real, imaginary;
};

static struct complex load(const struct ul_fft *fft, uint32_t real, uint32_t imaginary, ul_kx at)
{
    struct ul_kernel *k = fft->lower->kernel;
    return (struct complex){ul_ks_let(k, ul_kx_load(k, real, at)),
                            ul_ks_let(k, ul_kx_load(k, imaginary, at))};
}

static struct complex multiply(struct ul_kernel *k, struct complex a, struct complex b)
{
    return (struct complex){
        ul_kx_sub(k, ul_kx_mul(k, a.real, b.real), ul_kx_mul(k, a.imaginary, b.imaginary)),
        ul_kx_add(k, ul_kx_mul(k, a.real, b.imaginary), ul_kx_mul(k, a.imaginary, b.real))};
}

static void store(const struct ul_fft *fft, const struct fft_pass *pass, ul_kx k_out, ul_kx s,
                  struct complex x)
{
    struct ul_kernel *k = fft->lower->kernel;
    int64_t after = fft->length / pass->length / pass->radix;
    ul_kx at = ul_kx_addi(k, ul_kx_add(k, ul_kx_muli(k, k_out, after), s), pass->to);
    ul_fft_put(fft, at, x.real, x.imaginary);
}

/* With the terms written out, the loop over s is the innermost, and its roots are known before
 * it. */
static void run_small(const struct ul_fft *fft, const struct fft_pass *pass)
{
    struct ul_kernel *k = fft->lower->kernel;
    struct complex roots[MAX_WRITTEN_OUT];
    ul_kx k_out = ul_ks_for(k, pass->length * pass->radix, UL_FOR_PARALLEL);
    for (int64_t q = 1; q < pass->radix; q++)
        roots[q] = load(fft, fft->cosines, fft->sines,
                        ul_ks_let(k, root_of(fft, pass, ul_kx_index_const(k, q), k_out)));
    ul_kx s = ul_ks_for(k, fft->length / pass->length / pass->radix, UL_FOR_PARALLEL);
    ul_kx at = ul_ks_let(k, source(fft, pass, ul_kx_index_const(k, 0), k_out, s));
    struct complex sum = load(fft, fft->real, fft->imaginary, at);
    for (int64_t q = 1; q < pass->radix; q++) {
        at = ul_ks_let(k, source(fft, pass, ul_kx_index_const(k, q), k_out, s));
        struct complex term = load(fft, fft->real, fft->imaginary, at);
        term = multiply(k, term, roots[q]);
        sum.real = ul_kx_add(k, sum.real, term.real);
        sum.imaginary = ul_kx_add(k, sum.imaginary, term.imaginary);
    }
    store(fft, pass, k_out, s, sum);
    ul_ks_end(k);
    ul_ks_end(k);
}

static void run_large(const struct ul_fft *fft, const struct fft_pass *pass)
{
    struct ul_kernel *k = fft->lower->kernel;
    ul_kx zero = ul_kx_float(k, fft->dtype, 0.0);
    ul_kx k_out = ul_ks_for(k, pass->length * pass->radix, UL_FOR_PARALLEL);
    ul_kx s = ul_ks_for(k, fft->length / pass->length / pass->radix, UL_FOR_PARALLEL);
    uint32_t real = ul_ks_var(k, fft->dtype, zero);
    uint32_t imaginary = ul_ks_var(k, fft->dtype, zero);
    ul_kx q = ul_ks_for(k, pass->radix, UL_FOR_REDUCE);
    struct complex root =
        load(fft, fft->cosines, fft->sines, ul_ks_let(k, root_of(fft, pass, q, k_out)));
    struct complex term =
        load(fft, fft->real, fft->imaginary, ul_ks_let(k, source(fft, pass, q, k_out, s)));
    term = multiply(k, term, root);
    ul_ks_set(k, real, ul_kx_add(k, ul_kx_var(k, real), term.real));
    ul_ks_set(k, imaginary, ul_kx_add(k, ul_kx_var(k, imaginary), term.imaginary));
    ul_ks_end(k);
    store(fft, pass, k_out, s, (struct complex){ul_kx_var(k, real), ul_kx_var(k, imaginary)});
    ul_ks_end(k);
    ul_ks_end(k);
}

/* 4 does the work of two passes of 2 in one; after it, the smallest prime. */
static int64_t next_radix(int64_t rest)
{
    if (rest % 4 == 0)
        return 4;
    for (int64_t r = 2; r <= rest / r; r++) {
        if (rest % r == 0)
            return r;
    }
    return rest;
}

void ul_fft_run(struct ul_fft *fft)
{
    struct fft_pass pass = {.from = 0, .to = fft->length, .length = 1};
    for (int64_t rest = fft->length; rest > 1; rest /= pass.radix) {
        pass.radix = next_radix(rest);
        if (pass.radix < MAX_WRITTEN_OUT)
            run_small(fft, &pass);
        else
            run_large(fft, &pass);
        pass.length *= pass.radix;
        int64_t from = pass.from;
        pass.from = pass.to;
        pass.to = from;
    }
    fft->result = pass.from;
}

ul_kx ul_fft_real(const struct ul_fft *fft, ul_kx at)
{
    struct ul_kernel *k = fft->lower->kernel;
    return ul_kx_load(k, fft->real, ul_kx_addi(k, at, fft->result));
}

ul_kx ul_fft_imaginary(const struct ul_fft *fft, ul_kx at)
{
    struct ul_kernel *k = fft->lower->kernel;
    return ul_kx_load(k, fft->imaginary, ul_kx_addi(k, at, fft->result));
}
