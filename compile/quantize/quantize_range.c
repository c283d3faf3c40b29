/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the numbers for which the 256 integers of an activation stand.
 *
 * minmax      all that were seen.
 * percentile  all but one of 100,000 at either end.
 * entropy     up to the bound at which the distribution of the kept magnitudes, in as many steps
 *             as there are integers, has the least Kullback-Leibler divergence from the whole
 *             distribution (Migacz, "8-bit inference with TensorRT", 2017). Zeros, which every
 *             choice represents exactly, do not count, and at least KEPT of all others stay below
 *             the bound: with few values a single bin would represent the whole.
 * A range contains 0: padding and the zeros of Relu must be exact. */
#include "compile/quantize/quantize_graph.h"

#include <math.h>
#include <string.h>

enum { BINS = UL_COUNTS_BINS, HALF = BINS / 2, LEVELS = 256 };

static const double TAIL = 1e-5; /* for percentile, at either end */
static const double KEPT = 0.99; /* for entropy */

/* Doubles the range with the same number of bins. */
static void widen(struct ul_counts *counts)
{
    uint64_t wide[BINS] = {0};
    for (uint32_t i = 0; i < BINS; i++)
        wide[BINS / 4 + i / 2] += counts->bins[i];
    memcpy(counts->bins, wide, sizeof wide);
    counts->limit *= 2;
}

static void reach(struct ul_counts *counts, double magnitude)
{
    if (counts->limit == 0) {
        int exponent;
        frexp(magnitude, &exponent);
        counts->limit = ldexp(1, exponent);
    }
    while (counts->limit < magnitude)
        widen(counts);
}

static uint32_t bin_of(const struct ul_counts *counts, double value)
{
    double at = (value / counts->limit + 1) * HALF;
    return at >= BINS ? BINS - 1 : (uint32_t)at;
}

bool ul_counts_add(struct ul_counts *counts, const unsigned char *elements, uint64_t element_count)
{
    for (uint64_t i = 0; i < element_count; i++) {
        float value;
        memcpy(&value, elements + i * sizeof value, sizeof value);
        if (!isfinite(value))
            return false;
        if (value == 0) {
            counts->zero_count++;
            continue;
        }
        reach(counts, fabs((double)value));
        counts->least = fmin(counts->least, (double)value);
        counts->greatest = fmax(counts->greatest, (double)value);
        counts->bins[bin_of(counts, (double)value)]++;
    }
    counts->element_count += element_count;
    return true;
}

/* Where a bin begins. */
static double edge(const struct ul_counts *counts, uint32_t bin)
{
    return counts->limit * ((double)bin / HALF - 1);
}

static void cut_tails(const struct ul_counts *counts, double *low, double *high)
{
    uint64_t most = (uint64_t)(TAIL * (double)counts->element_count), sum = 0;
    uint32_t first = 0, last = BINS;
    while (first < HALF && sum + counts->bins[first] <= most)
        sum += counts->bins[first++];
    sum = 0;
    while (last > HALF && sum + counts->bins[last - 1] <= most)
        sum += counts->bins[--last];
    *low = fmax(counts->least, edge(counts, first));
    *high = fmin(counts->greatest, edge(counts, last));
}

/* The divergence of the magnitudes from what remains of them in `levels` steps below bin `end`. */
static double divergence(const double *magnitudes, uint32_t end, uint32_t bin_count,
                         uint32_t levels)
{
    double whole = 0, kept = 0, beyond = 0, result = 0;
    for (uint32_t i = 0; i < bin_count; i++)
        whole += magnitudes[i];
    for (uint32_t i = 0; i < end; i++)
        kept += magnitudes[i];
    if (kept < KEPT * whole)
        return INFINITY;
    beyond = whole - kept;
    for (uint32_t level = 0; level < levels; level++) {
        uint32_t from = (uint32_t)((uint64_t)level * end / levels);
        uint32_t to = (uint32_t)((uint64_t)(level + 1) * end / levels), used = 0;
        double sum = 0;
        for (uint32_t i = from; i < to; i++) {
            sum += magnitudes[i];
            used += magnitudes[i] > 0;
        }
        for (uint32_t i = from; i < to; i++) {
            double p = (magnitudes[i] + (i + 1 == end ? beyond : 0)) / whole;
            double q = magnitudes[i] > 0 ? sum / used / kept : 1e-9 / whole;
            result += p > 0 ? p * log(p / q) : 0;
        }
    }
    return result;
}

static void cut_by_entropy(const struct ul_counts *counts, double *low, double *high)
{
    double magnitudes[HALF];
    uint32_t used = 0, best = 0;
    uint32_t levels = counts->least < 0 && counts->greatest > 0 ? LEVELS / 2 : LEVELS;
    double least = INFINITY;
    for (uint32_t i = 0; i < HALF; i++) {
        magnitudes[i] = (double)(counts->bins[HALF + i] + counts->bins[HALF - 1 - i]);
        used = magnitudes[i] > 0 ? i + 1 : used;
    }
    best = used;
    uint32_t stride = used > levels ? 1 + (used - levels) / LEVELS : 1;
    for (uint32_t end = levels < used ? levels : used;;
         end = end + stride < used ? end + stride : used) {
        double found = divergence(magnitudes, end, used, levels);
        if (found < least) {
            least = found;
            best = end;
        }
        if (end == used)
            break;
    }
    double bound = best == used ? INFINITY : counts->limit * best / HALF;
    *low = fmax(counts->least, -bound);
    *high = fmin(counts->greatest, bound);
}

struct ul_quantize_step ul_counts_choose(const struct ul_counts *counts, enum ul_calibration method)
{
    double low = counts->least, high = counts->greatest;
    if (method == UL_CALIBRATION_PERCENTILE)
        cut_tails(counts, &low, &high);
    if (method == UL_CALIBRATION_ENTROPY)
        cut_by_entropy(counts, &low, &high);
    low = fmin(low, 0);
    high = fmax(high, 0);
    float scale = (float)((high - low) / (LEVELS - 1));
    if (!(scale > 0)) /* only zeros, or nearly so */
        return (struct ul_quantize_step){.scale = 1, .zero = 0};
    double zero = rint(-low / (double)scale);
    return (struct ul_quantize_step){.scale = scale, .zero = (uint8_t)fmin(zero, LEVELS - 1)};
}
