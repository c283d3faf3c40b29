/* Transforms of lines; see signal_fft.h.
 *
 * A pass has transforms of length l, one for each of the n / l interleaved subsequences s, element
 * k of which lies at k * (n / l) + s, and combines r of them each into length l * r:
 *     to[k][s] = sum over q < r of from[k mod l][s + q * n / (l * r)] * w^(q * k * n / (l * r))
 * with w the n-th root of unity and k < l * r. */
#include "ir/ops/signal_fft.h"

#define TAU 6.283185307179586476925286766559

void ul_fft_init(struct ul_fft *fft, struct ul_lower *lower, enum ul_dtype dtype, int64_t length,
                 bool inverse)
{
    struct ul_kernel *k = lower->kernel;
    *fft = (struct ul_fft){.lower = lower, .dtype = dtype, .length = length, .inverse = inverse};
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
    int64_t from, to; /* where the lines begin */
    int64_t length;   /* of the transforms that it finds */
    int64_t radix;
};

/* Adds term q to the sums. */
static void add_term(const struct ul_fft *fft, const struct fft_pass *pass, ul_kx q, ul_kx k_out,
                     ul_kx s, const uint32_t *sums)
{
    struct ul_kernel *k = fft->lower->kernel;
    int64_t before = fft->length / pass->length;
    int64_t after = before / pass->radix;
    ul_kx row = ul_kx_muli(k, ul_kx_modi(k, k_out, pass->length), before);
    ul_kx at =
        ul_kx_addi(k, ul_kx_add(k, ul_kx_add(k, row, s), ul_kx_muli(k, q, after)), pass->from);
    at = ul_ks_let(k, at);
    ul_kx root = ul_kx_modi(k, ul_kx_muli(k, ul_kx_mul(k, q, k_out), after), fft->length);
    root = ul_ks_let(k, root);
    ul_kx x = ul_ks_let(k, ul_kx_load(k, fft->real, at));
    ul_kx y = ul_ks_let(k, ul_kx_load(k, fft->imaginary, at));
    ul_kx c = ul_ks_let(k, ul_kx_load(k, fft->cosines, root));
    ul_kx d = ul_ks_let(k, ul_kx_load(k, fft->sines, root));
    ul_kx real = ul_kx_sub(k, ul_kx_mul(k, x, c), ul_kx_mul(k, y, d));
    ul_kx imaginary = ul_kx_add(k, ul_kx_mul(k, x, d), ul_kx_mul(k, y, c));
    ul_ks_set(k, sums[0], ul_kx_add(k, ul_kx_var(k, sums[0]), real));
    ul_ks_set(k, sums[1], ul_kx_add(k, ul_kx_var(k, sums[1]), imaginary));
}

static void run_pass(const struct ul_fft *fft, const struct fft_pass *pass)
{
    struct ul_kernel *k = fft->lower->kernel;
    int64_t after = fft->length / pass->length / pass->radix;
    ul_kx zero = ul_kx_float(k, fft->dtype, 0.0);
    ul_kx k_out = ul_ks_for(k, pass->length * pass->radix, UL_FOR_PARALLEL);
    ul_kx s = ul_ks_for(k, after, UL_FOR_PARALLEL);
    uint32_t sums[2] = {ul_ks_var(k, fft->dtype, zero), ul_ks_var(k, fft->dtype, zero)};
    ul_kx q = ul_ks_for(k, pass->radix, UL_FOR_REDUCE);
    add_term(fft, pass, q, k_out, s, sums);
    ul_ks_end(k);
    ul_kx out = ul_kx_addi(k, ul_kx_add(k, ul_kx_muli(k, k_out, after), s), pass->to);
    ul_ks_store(k, fft->real, out, ul_kx_var(k, sums[0]));
    ul_ks_store(k, fft->imaginary, out, ul_kx_var(k, sums[1]));
    ul_ks_end(k);
    ul_ks_end(k);
}

/* 4 does the work of two passes of 2 in one; then the smallest prime. */
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
        run_pass(fft, &pass);
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
