/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of DeformConv, by what it is made of: samples of the input at moved places, which
 * GridSample gives again, times the mask, times the filters.
 *
 *     y = W (S mask)    dW = g (S mask)^T    dS = W^T g mask    dmask = sum over channels of W^T g
 * S
 *
 * and of S those of GridSample. */
#include "ir/op_names.h"
#include "ir/ops/check.h"
#include "ir/ops/conv/conv.h"

enum { X, W, OFFSET, BIAS, MASK };

struct deform {
    struct ul_gradient *gradient;
    struct ul_conv conv;
    enum ul_dtype dtype;
    int64_t groups; /* of offsets */
    int64_t channels, taps, pixels;
    ul_value_id x, grid, factors; /* as GridSample has them; elements by an offset of 1 */
    ul_value_id samples, mask;    /* [batch, groups, channels of one, taps, pixels] */
};

static ul_value_id shape(const struct deform *d, ul_value_id value, uint32_t rank,
                         const int64_t *dims)
{
    const struct ul_type type = ul_type_make(d->dtype, rank, dims);
    return ul_build_reshape_to(&d->gradient->build, value, &type);
}

/* Exchanges height and width along the last dimension. */
static ul_value_id exchange(const struct deform *d, ul_value_id value)
{
    static const int64_t places[2] = {1, 0};
    const ul_value_id inputs[2] = {value, ul_build_ints(d->gradient->graph, "", 2, places)};
    ul_node_id node = ul_build_node(&d->gradient->build, UL_OP_Gather, inputs, 2, 1);
    ul_node_set_int(d->gradient->graph, node, "axis",
                    ul_gradient_type(d->gradient, value).rank - 1);
    return ul_build_infer(&d->gradient->build, node);
}

/* The coordinates, in [-1, 1], of all places without their offsets: [taps, rows, columns, (x,
 * y)]. */
static ul_value_id still_places(const struct deform *d)
{
    const struct ul_conv *c = &d->conv;
    const struct ul_type type = {
        .dtype = d->dtype, .rank = 4, .dims = {d->taps, c->out[0], c->out[1], 2}};
    double *numbers = UL_NEW_ARRAY(d->gradient->scratch, double, ul_type_elements(&type) + 1);
    uint64_t at = 0;
    for (int64_t t = 0; t < d->taps; t++)
        for (int64_t p = 0; p < d->pixels; p++) {
            const int64_t tap[2] = {t / c->kernel[1], t % c->kernel[1]};
            const int64_t out[2] = {p / c->out[1], p % c->out[1]};
            for (uint32_t s = 2; s-- > 0;) {
                int64_t place = out[s] * c->stride[s] - c->pad_begin[s] + tap[s] * c->dilation[s];
                numbers[at++] = (double)(2 * place + 1) / (double)c->in[s] - 1;
            }
        }
    return ul_build_numbers(&d->gradient->build, &type, numbers);
}

/* Forms GridSample's inputs, and what it gives. */
static void form_samples(struct deform *d)
{
    static const int64_t inward[5] = {0, 1, 3, 4, 2};
    struct ul_gradient *gradient = d->gradient;
    const struct ul_conv *c = &d->conv;
    int64_t images = c->batch * d->groups, own = d->channels / d->groups;
    const int64_t planes[] = {images, own, c->in[0], c->in[1]};
    const int64_t offsets[] = {images, d->taps, 2, c->out[0], c->out[1]};
    const int64_t rows[] = {images, d->taps * c->out[0], c->out[1], 2};
    const int64_t samples[] = {c->batch, d->groups, own, d->taps, d->pixels};
    const int64_t masks[] = {c->batch, d->groups, 1, d->taps, d->pixels};
    const struct ul_type pair = {.dtype = d->dtype, .rank = 1, .dims = {2}};
    const double factors[2] = {2 / (double)c->in[1], 2 / (double)c->in[0]};
    ul_value_id offset = shape(d, ul_gradient_input(gradient, OFFSET), 5, offsets);
    offset = exchange(d, ul_build_transpose(&gradient->build, offset, inward));
    d->factors = ul_build_numbers(&gradient->build, &pair, factors);
    d->grid = ul_build_binary(&gradient->build, UL_OP_Mul, offset, d->factors);
    d->grid = ul_build_binary(&gradient->build, UL_OP_Add, d->grid, still_places(d));
    d->grid = shape(d, d->grid, 4, rows);
    d->x = shape(d, ul_gradient_input(gradient, X), 4, planes);
    d->samples =
        shape(d, ul_build_binary(&gradient->build, UL_OP_GridSample, d->x, d->grid), 5, samples);
    d->mask = ul_gradient_input(gradient, MASK);
    if (d->mask != UL_NONE)
        d->mask = shape(d, d->mask, 5, masks);
}

static ul_value_id masked(const struct deform *d, ul_value_id value)
{
    return d->mask == UL_NONE ? value
                              : ul_build_binary(&d->gradient->build, UL_OP_Mul, value, d->mask);
}

/* Gives the filters their gradient; returns that of samples times mask. */
static ul_value_id give_filters(const struct deform *d, ul_value_id g)
{
    struct ul_gradient *gradient = d->gradient;
    const struct ul_conv *c = &d->conv;
    int64_t terms = c->in_channels * d->taps;
    const int64_t results[] = {c->batch, c->groups, c->out_channels, d->pixels};
    const int64_t columns[] = {c->batch, c->groups, terms, d->pixels};
    const int64_t filters[] = {c->groups, c->out_channels, terms};
    const int64_t samples[] = {c->batch, d->groups, d->channels / d->groups, d->taps, d->pixels};
    struct ul_type type = ul_gradient_type(gradient, ul_gradient_input(gradient, W));
    g = shape(d, g, 4, results);
    if (ul_gradient_wanted(gradient, W)) {
        ul_value_id each = shape(d, masked(d, d->samples), 4, columns);
        ul_value_id share = ul_build_binary(&gradient->build, UL_OP_MatMul, g,
                                            ul_build_swap(&gradient->build, each));
        ul_gradient_give(
            gradient, W,
            ul_build_reshape_to(&gradient->build, ul_build_sum(&gradient->build, share, 1), &type));
    }
    ul_value_id w = shape(d, ul_gradient_input(gradient, W), 3, filters);
    return shape(
        d, ul_build_binary(&gradient->build, UL_OP_MatMul, ul_build_swap(&gradient->build, w), g),
        5, samples);
}

static ul_value_id grid_node(const struct deform *d, ul_op_id op, ul_value_id x, ul_value_id g)
{
    const ul_value_id inputs[3] = {x, d->grid, g};
    return ul_build_value(&d->gradient->build, op, inputs, 3, NULL);
}

/* Gives the gradients of the input and of the offsets, from the gradient of the samples. */
static void give_places(const struct deform *d, ul_value_id share)
{
    static const int64_t outward[5] = {0, 1, 4, 2, 3};
    struct ul_gradient *gradient = d->gradient;
    const struct ul_conv *c = &d->conv;
    struct ul_type x = ul_gradient_type(gradient, ul_gradient_input(gradient, X));
    struct ul_type offset = ul_gradient_type(gradient, ul_gradient_input(gradient, OFFSET));
    struct ul_type plane = ul_gradient_type(gradient, d->x);
    int64_t images = c->batch * d->groups;
    const int64_t rows[] = {images, d->channels / d->groups, d->taps * c->out[0], c->out[1]};
    const int64_t places[] = {images, d->taps, c->out[0], c->out[1], 2};
    share = shape(d, share, 4, rows);
    if (ul_gradient_wanted(gradient, X)) {
        ul_value_id made =
            grid_node(d, UL_OP_GridSampleGradient, ul_build_zeros(&gradient->build, &plane), share);
        ul_gradient_give(gradient, X, ul_build_reshape_to(&gradient->build, made, &x));
    }
    if (ul_gradient_wanted(gradient, OFFSET)) {
        ul_value_id made = grid_node(d, UL_OP_GridGradient, d->x, share);
        made = ul_build_binary(&gradient->build, UL_OP_Mul, made, d->factors);
        made = exchange(d, shape(d, made, 5, places));
        made = ul_build_transpose(&gradient->build, made, outward);
        ul_gradient_give(gradient, OFFSET, ul_build_reshape_to(&gradient->build, made, &offset));
    }
}

enum ul_status ul_gradient_deform_conv(struct ul_gradient *gradient)
{
    struct ul_type x = ul_gradient_type(gradient, ul_gradient_input(gradient, X));
    struct ul_type w = ul_gradient_type(gradient, ul_gradient_input(gradient, W));
    const struct ul_node *node = ul_gradient_node(gradient);
    struct deform d = {.gradient = gradient, .dtype = x.dtype};
    const char *wrong = ul_conv_read(&d.conv, node, &x, &w);
    UL_ASSERT(wrong == NULL);
    d.groups = ul_node_get_int(node, "offset_group", 1);
    d.channels = d.conv.groups * d.conv.in_channels;
    d.taps = d.conv.kernel[0] * d.conv.kernel[1];
    d.pixels = d.conv.out[0] * d.conv.out[1];
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (ul_gradient_wanted(gradient, BIAS)) {
        struct ul_type bias = ul_gradient_type(gradient, ul_gradient_input(gradient, BIAS));
        ul_value_id sum = ul_build_sum(&gradient->build, g, 13);
        ul_gradient_give(gradient, BIAS, ul_build_reshape_to(&gradient->build, sum, &bias));
    }
    form_samples(&d);
    ul_value_id share = give_filters(&d, g);
    if (ul_gradient_wanted(gradient, MASK)) {
        struct ul_type mask = ul_gradient_type(gradient, ul_gradient_input(gradient, MASK));
        ul_value_id product = ul_build_binary(&gradient->build, UL_OP_Mul, share, d.samples);
        product = ul_build_sum(&gradient->build, product, 4);
        ul_gradient_give(gradient, MASK, ul_build_reshape_to(&gradient->build, product, &mask));
    }
    give_places(&d, masked(&d, share));
    return UL_OK;
}
