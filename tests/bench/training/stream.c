/* SPDX-License-Identifier: Apache-2.0 */
/* How fast memory is for an update of AdamW: four arrays read, three of them written, 28 bytes an
 * element.
 *
 * usage: stream ELEMENTS
 * prints: the least seconds of ten passes */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 1 << 24;
    float *array[4];
    for (int i = 0; i < 4; i++) {
        array[i] = malloc((size_t)count * sizeof(float));
        if (array[i] == NULL)
            return 5;
#pragma omp parallel for
        for (long k = 0; k < count; k++)
            array[i][k] = (float)(i + 1);
    }
    float *w = array[0], *m = array[1], *v = array[2];
    const float *g = array[3];
    double least = 1e9;
    for (int pass = 0; pass < 10; pass++) {
        double begin = now();
#pragma omp parallel for simd
        for (long k = 0; k < count; k++) {
            m[k] = 0.9f * m[k] + g[k];
            v[k] = 0.5f * v[k] + g[k];
            w[k] = 0.5f * w[k] + m[k];
        }
        double seconds = now() - begin;
        least = seconds < least ? seconds : least;
    }
    printf("%.6g %g\n", least, (double)w[count / 2]);
    return 0;
}
