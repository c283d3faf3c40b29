/* SPDX-License-Identifier: Apache-2.0 */
/* Finds formulas of sizes for numbers that are known at some points.
 *
 * Shapes, strides and counts of rounds are sums of products of dimensions; a dimension follows from
 * one size, and rounds where strides are wider than 1; sums in lanes and tiles round as well. So a
 * few kinds of formulas are tried in turn, each on all terms, and one is taken that has the right
 * value at every point:
 *
 *     c                      a number
 *     c + a t                one product of dimensions, or one size that is rounded
 *     c + a t + b u          two of these
 *     c + a ((b t + r) / p)  a product that is rounded; or a rounded size times a dimension
 *     c + a t + b u + d v    three products
 *
 * The caller sees to it that there are enough points. */
#include "compile/sizes/fit.h"

#include <math.h>
#include <string.h>

enum {
    MAX_FACTORS = 3,
    MAX_PLAIN = 12,   /* factors of products */
    MAX_PERIOD = 64,  /* of a size that is rounded */
    MAX_TRIPLES = 48, /* terms of which three are tried */
    SLOPES = 3        /* tried around the one that two points give */
};

static const int64_t MAX_TERM = (int64_t)1 << 40; /* of a term or a number */

static const int64_t periods[] = {2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, MAX_PERIOD};

/* ---- terms ---- */

static const int64_t *values_of(const struct ul_fit *fit, const struct ul_formula *formula)
{
    int64_t *values = UL_NEW_ARRAY(fit->arena, int64_t, fit->point_count);
    for (uint32_t i = 0; i < fit->point_count; i++)
        if (!ul_formula_eval(formula, fit->points + (size_t)i * fit->size_count, &values[i]))
            return NULL;
    return values;
}

static bool is_equal(const struct ul_fit *fit, const int64_t *a, const int64_t *b)
{
    return memcmp(a, b, fit->point_count * sizeof *a) == 0;
}

static const struct ul_formula *find_equal(const struct ul_fit *fit,
                                           const struct ul_fit_terms *terms, const int64_t *values)
{
    for (uint32_t i = 0; i < terms->count; i++)
        if (is_equal(fit, terms->items[i].values, values))
            return terms->items[i].formula;
    return NULL;
}

/* Numbers beyond these are no sizes. */
static bool is_small(const struct ul_fit *fit, const int64_t *values)
{
    for (uint32_t k = 0; k < fit->point_count; k++)
        if (values[k] > MAX_TERM || values[k] < -MAX_TERM)
            return false;
    return true;
}

/* rest + slope * x, which wraps: what is guessed so is computed once more at every point, with
 * overflow seen, before it is taken. */
static int64_t line(int64_t rest, int64_t slope, int64_t x)
{
    return (int64_t)((uint64_t)rest + (uint64_t)slope * (uint64_t)x);
}

/* Adds a term, unless another has the same values. */
static void add_term(struct ul_fit *fit, struct ul_fit_terms *terms,
                     const struct ul_formula *formula)
{
    const int64_t *values = values_of(fit, formula);
    if (values == NULL || !is_small(fit, values) || find_equal(fit, terms, values) != NULL)
        return;
    UL_GROW(fit->arena, terms->items, terms->count, terms->capacity);
    terms->items[terms->count++] = (struct ul_fit_term){.formula = formula, .values = values};
}

static const struct ul_formula *plus(const struct ul_fit *fit, const struct ul_formula *formula,
                                     int64_t number)
{
    return ul_formula_sum(fit->arena, formula, ul_formula_number(fit->arena, number));
}

static const struct ul_formula *times(const struct ul_fit *fit, const struct ul_formula *formula,
                                      int64_t number)
{
    return ul_formula_product(fit->arena, formula, ul_formula_number(fit->arena, number));
}

/* Products of `factors` more plain terms, in order. */
static void add_products(struct ul_fit *fit, const struct ul_formula *product, uint32_t from,
                         uint32_t factors)
{
    for (uint32_t i = from; factors > 0 && i < fit->plain.count; i++) {
        const struct ul_formula *longer =
            ul_formula_product(fit->arena, product, fit->plain.items[i].formula);
        add_term(fit, &fit->products, longer);
        add_products(fit, longer, i, factors - 1);
    }
}

/* Shorter products come first. */
static void make_products(struct ul_fit *fit)
{
    const struct ul_formula *one = ul_formula_number(fit->arena, 1);
    fit->products.count = 0;
    for (uint32_t factors = 1; factors <= MAX_FACTORS; factors++)
        add_products(fit, one, 0, factors);
}

void ul_fit_init(struct ul_fit *fit, struct ul_arena *arena, uint32_t size_count,
                 const int64_t *points, uint32_t point_count)
{
    *fit = (struct ul_fit){
        .arena = arena, .size_count = size_count, .points = points, .point_count = point_count};
    UL_ASSERT(size_count > 0 && point_count > 0);
    for (uint32_t s = 0; s < size_count; s++) {
        const struct ul_formula *size = ul_formula_size(arena, s);
        add_term(fit, &fit->plain, size);
        for (uint32_t p = 0; p < sizeof periods / sizeof *periods; p++)
            for (int64_t r = 0; r < periods[p]; r++)
                add_term(fit, &fit->rounded,
                         ul_formula_quotient(arena, plus(fit, size, r), periods[p]));
    }
    make_products(fit);
}

void ul_fit_init_like(struct ul_fit *fit, const struct ul_fit *other, const int64_t *points,
                      uint32_t point_count)
{
    ul_fit_init(fit, other->arena, other->size_count, points, point_count);
    for (uint32_t i = 0; i < other->plain.count; i++)
        add_term(fit, &fit->plain, other->plain.items[i].formula);
    make_products(fit);
}

/* ---- kinds of formulas ---- */

/* A point at which the term has another value than at point 0; 0: there is none. */
static uint32_t other_point(const struct ul_fit *fit, const int64_t *values)
{
    for (uint32_t i = fit->point_count; i-- > 1;)
        if (values[i] != values[0])
            return i;
    return 0;
}

static const struct ul_formula *find_one(struct ul_fit *fit, const struct ul_fit_terms *terms,
                                         const int64_t *values)
{
    for (uint32_t t = 0; t < terms->count; t++) {
        const int64_t *term = terms->items[t].values;
        uint32_t i = other_point(fit, term);
        if (i == 0 || (values[i] - values[0]) % (term[i] - term[0]) != 0)
            continue;
        int64_t slope = (values[i] - values[0]) / (term[i] - term[0]);
        int64_t rest = line(values[0], -slope, term[0]);
        bool fits = slope != 0;
        for (uint32_t k = 0; fits && k < fit->point_count; k++)
            fits = values[k] == line(rest, slope, term[k]);
        if (fits)
            return plus(fit, times(fit, terms->items[t].formula, slope), rest);
    }
    return NULL;
}

/* What two terms explain: differences from point 0 are a times those of t plus b times those of u.
 * Doubles only guess a and b. */
static const struct ul_formula *try_two(struct ul_fit *fit, const struct ul_fit_term *t,
                                        const struct ul_fit_term *u, const int64_t *values)
{
    const double most = 1e9;
    uint32_t i = other_point(fit, t->values), j = 0;
    double dt = (double)(t->values[i] - t->values[0]), du = (double)(u->values[i] - u->values[0]);
    double et = 0, eu = 0, det = 0;
    for (uint32_t k = fit->point_count; i > 0 && det == 0 && k-- > 1;) {
        et = (double)(t->values[k] - t->values[0]);
        eu = (double)(u->values[k] - u->values[0]);
        det = dt * eu - du * et;
        j = k;
    }
    if (det == 0)
        return NULL;
    double y = (double)(values[i] - values[0]), z = (double)(values[j] - values[0]);
    double da = (y * eu - du * z) / det, db = (dt * z - y * et) / det;
    if (!(fabs(da) < most && fabs(db) < most))
        return NULL;
    int64_t a = llround(da), b = llround(db);
    for (uint32_t k = 1; k < fit->point_count; k++)
        if (values[k] !=
            line(line(values[0], a, t->values[k] - t->values[0]), b, u->values[k] - u->values[0]))
            return NULL;
    return plus(fit,
                ul_formula_sum(fit->arena, times(fit, t->formula, a), times(fit, u->formula, b)),
                line(line(values[0], -a, t->values[0]), -b, u->values[0]));
}

static const struct ul_formula *find_two(struct ul_fit *fit, const struct ul_fit_terms *first,
                                         const struct ul_fit_terms *second, const int64_t *values)
{
    const struct ul_formula *found = NULL;
    for (uint32_t t = 0; found == NULL && t < first->count; t++)
        for (uint32_t u = first == second ? t + 1 : 0; found == NULL && u < second->count; u++)
            found = try_two(fit, &first->items[t], &second->items[u], values);
    return found;
}

/* rest + (slope t + r) / period. */
static const struct ul_formula *try_rounded(struct ul_fit *fit, const struct ul_fit_term *term,
                                            int64_t slope, int64_t period, const int64_t *values)
{
    for (int64_t r = 0; r < period; r++) {
        int64_t rest = values[0] - line(r, slope, term->values[0]) / period;
        bool fits = true;
        for (uint32_t k = 0; fits && k < fit->point_count; k++)
            fits = values[k] == line(rest, 1, line(r, slope, term->values[k]) / period);
        if (fits)
            return plus(fit,
                        ul_formula_quotient(fit->arena,
                                            plus(fit, times(fit, term->formula, slope), r), period),
                        rest);
    }
    return NULL;
}

static const struct ul_formula *find_rounded(struct ul_fit *fit, const int64_t *values)
{
    const struct ul_formula *found = NULL;
    for (uint32_t t = 0; found == NULL && t < fit->products.count; t++) {
        const struct ul_fit_term *term = &fit->products.items[t];
        uint32_t i = other_point(fit, term->values);
        if (i == 0)
            continue;
        for (uint32_t p = 0; found == NULL && p < sizeof periods / sizeof *periods; p++) {
            int64_t slope =
                (values[i] - values[0]) * periods[p] / (term->values[i] - term->values[0]);
            for (int64_t s = 0; found == NULL && s < SLOPES; s++)
                if (slope + s - 1 > 0)
                    found = try_rounded(fit, term, slope + s - 1, periods[p], values);
        }
    }
    return found;
}

/* Takes each product away in turn, with the factor that two points give where the others are
 * alike; what is left must be two. */
static const struct ul_formula *find_three(struct ul_fit *fit, const int64_t *values)
{
    const struct ul_formula *found = NULL;
    struct ul_fit_terms few = fit->products;
    int64_t *rest = UL_NEW_ARRAY(fit->arena, int64_t, fit->point_count);
    static const int64_t factors[] = {1, 2, 3, 4, 8, 16, 32, 64, -1, -2, -4, -8, -16, -32, -64};
    few.count = few.count < MAX_TRIPLES ? few.count : MAX_TRIPLES;
    for (uint32_t t = 0; found == NULL && t < few.count; t++)
        for (uint32_t f = 0; found == NULL && f < sizeof factors / sizeof *factors; f++) {
            for (uint32_t k = 0; k < fit->point_count; k++)
                rest[k] = values[k] - factors[f] * few.items[t].values[k];
            found = find_two(fit, &few, &few, rest);
            if (found != NULL)
                found =
                    ul_formula_sum(fit->arena, found, times(fit, few.items[t].formula, factors[f]));
        }
    return found;
}

/* ---- all ---- */

/* Sizes that are rounded up or down, times a dimension. */
static const struct ul_fit_terms *rounded_products(struct ul_fit *fit)
{
    struct ul_fit_terms *products = &fit->rounded_products;
    if (products->count > 0)
        return products;
    for (uint32_t s = 0; s < fit->size_count; s++)
        for (uint32_t p = 0; p < sizeof periods / sizeof *periods; p++)
            for (uint32_t up = 0; up < 2; up++)
                for (uint32_t t = 0; t < fit->plain.count; t++)
                    add_term(fit, products,
                             ul_formula_product(
                                 fit->arena,
                                 ul_formula_quotient(fit->arena,
                                                     plus(fit, ul_formula_size(fit->arena, s),
                                                          up == 0 ? 0 : periods[p] - 1),
                                                     periods[p]),
                                 fit->plain.items[t].formula));
    return products;
}

static const struct ul_formula *find(struct ul_fit *fit, const int64_t *values, bool simple)
{
    const struct ul_formula *found = find_one(fit, &fit->products, values);
    if (found == NULL)
        found = find_one(fit, &fit->rounded, values);
    if (found != NULL || simple)
        return found;
    found = find_two(fit, &fit->products, &fit->products, values);
    if (found == NULL)
        found = find_rounded(fit, values);
    if (found == NULL)
        found = find_two(fit, &fit->plain, &fit->rounded, values);
    if (found == NULL)
        found = find_one(fit, rounded_products(fit), values);
    if (found == NULL)
        found = find_two(fit, rounded_products(fit), &fit->products, values);
    if (found == NULL)
        found = find_three(fit, values);
    return found;
}

/* Whether the formula, with all its parts, has these values. */
static bool has_values(const struct ul_fit *fit, const struct ul_formula *formula,
                       const int64_t *values)
{
    for (uint32_t k = 0; k < fit->point_count; k++) {
        int64_t value;
        if (!ul_formula_eval(formula, fit->points + (size_t)k * fit->size_count, &value) ||
            value != values[k])
            return false;
    }
    return true;
}

const struct ul_formula *ul_fit_find(struct ul_fit *fit, const int64_t *values, bool simple)
{
    bool varies = false;
    const struct ul_formula *found = find_equal(fit, &fit->found, values);
    if (found != NULL)
        return found;
    for (uint32_t k = 1; k < fit->point_count; k++)
        varies = varies || values[k] != values[0];
    if (!varies) {
        found = ul_formula_number(fit->arena, values[0]);
        add_term(fit, &fit->found, found);
        return found;
    }
    if (!is_small(fit, values))
        return NULL;
    int64_t step = 0;
    for (uint32_t k = 1; k < fit->point_count; k++)
        step = ul_gcd(step, values[k] - values[0]);
    found = find_equal(fit, &fit->products, values);
    if (found == NULL) { /* a size stays itself where its values have a common divisor */
        int64_t *scaled = UL_NEW_ARRAY(fit->arena, int64_t, fit->point_count);
        for (uint32_t k = 0; k < fit->point_count; k++)
            scaled[k] = (values[k] - values[0]) / step;
        found = find(fit, scaled, simple);
        if (found != NULL)
            found = plus(fit, times(fit, found, step), values[0]);
        if (found != NULL && !has_values(fit, found, values))
            found = NULL;
    }
    if (found == NULL)
        return NULL;
    add_term(fit, &fit->found, found);
    if (simple && fit->plain.count < MAX_PLAIN && find_equal(fit, &fit->products, values) == NULL) {
        add_term(fit, &fit->plain, found);
        make_products(fit);
    }
    return found;
}
