/* SPDX-License-Identifier: Apache-2.0 */
/* The discrete Fourier transform of one line at a time, in planned scratch.
 *
 * Method: Stockham's self-sorting form of the mixed-radix algorithm (Van Loan, Computational
 * Frameworks for the Fast Fourier Transform, 1992, section 1.7): one pass over two complex lines
 * for each prime factor r of the length, r multiplications an element; so n (r1 + r2 + ...) in all,
 * which for a prime length is the definition itself. Roots of unity are tabled in f64 precision. */
#ifndef UL_OPS_SIGNAL_FFT_H
#define UL_OPS_SIGNAL_FFT_H

#include "ir/lower.h"

struct ul_fft {
    struct ul_lower *lower;
    enum ul_dtype dtype;
    int64_t length;
    uint32_t cosines, sines;
    uint32_t real, imaginary; /* two lines each; the passes go from one to the other */
    int64_t result;           /* where in them the result begins */
};

/* Makes the scratch and, once for all lines, the table. length >= 1. `inverse` concerns the sign;
 * the caller divides by the length. */
void ul_fft_init(struct ul_fft *fft, struct ul_lower *lower, enum ul_dtype dtype, int64_t length,
                 bool inverse);
/* Puts element `at` of the line to be transformed. */
void ul_fft_put(const struct ul_fft *fft, ul_kx at, ul_kx real, ul_kx imaginary);
/* Transforms it. */
void ul_fft_run(struct ul_fft *fft);
ul_kx ul_fft_real(const struct ul_fft *fft, ul_kx at);
ul_kx ul_fft_imaginary(const struct ul_fft *fft, ul_kx at);

#endif
