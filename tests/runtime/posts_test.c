/* SPDX-License-Identifier: Apache-2.0 */
/* Functions behind a call against libm in double: the errors that ul_posts.c promises, special
 * values, and the same bits for every cut and number of threads. */
#include "ul_posts.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { COUNT = 3 * 7 * 11 * 25 + 2 };

static double wanted(const struct ul_post *post, double x)
{
    switch ((int)post->kind) {
    case UL_POST_SWISH:
        return x / (1.0 + exp(-(double)post->alpha * x));
    case UL_POST_LOGISTIC:
        return 1.0 / (1.0 + exp(-x));
    case UL_POST_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    default:
        return 0.5 * x * erfc(-x * 0.7071067811865476);
    }
}

/* Relative to the right value, in units of 2^-24, for those that keep it; else absolute. */
static double error_of(const struct ul_post *post, float x, float got)
{
    double want = wanted(post, (double)x), error = fabs((double)got - want);
    if (post->kind == UL_POST_SWISH || post->kind == UL_POST_LOGISTIC)
        return fabs(want) < 1e-36 ? error / 1e-36 : error / fabs(want) * 0x1p24;
    return error;
}

static void check_errors(const struct ul_post *post, float max, double limit)
{
    double worst = 0.0;
    for (float x = -max; x <= max; x += max / 65536.0f) {
        float y = x;
        ul_post_apply(post, &y, 1);
        double error = error_of(post, x, y);
        if (!(error <= worst))
            worst = error;
    }
    CHECK(worst <= limit);
    if (!(worst <= limit))
        printf("kind %d to %g: %g\n", (int)post->kind, (double)max, worst);
}

static void check_special(const struct ul_post *post)
{
    float y[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -3e38f, 3e38f, -1000.0f};
    ul_post_apply(post, y, 8);
    CHECK(isnan(y[0]) && isnan(y[1]));
    CHECK(fabsf(y[5]) == 0.0f && fabsf(y[7]) == 0.0f);
    if (post->kind == UL_POST_LOGISTIC) {
        CHECK(y[2] == 1.0f && y[3] == 0.0f && y[4] == 0.5f && y[6] == 1.0f);
        return;
    }
    /* x * 0 */
    CHECK(y[2] == INFINITY && isnan(y[3]) && y[4] == 0.0f && y[6] == 3e38f);
}

/* Every float alone, then all together by several threads. */
static void check_cuts(const struct ul_post *post)
{
    struct ul_call call = {
        .dst = {2, {COUNT, 1}, {1, 1}, UL_CALL_F32}, .post_count = 2, .tail_count = 1};
    float *alone = malloc(COUNT * sizeof(float)), *together = malloc(COUNT * sizeof(float));
    call.posts[0].kind = UL_POST_RELU; /* the library's */
    call.posts[1] = *post;
    for (int i = 0; alone != NULL && i < COUNT; i++) {
        alone[i] = (float)(i % 997) / 50.0f - 10.0f;
        ul_post_apply(post, &alone[i], 1);
    }
    for (uint32_t threads = 1; alone != NULL && together != NULL && threads <= 4; threads++) {
        for (int i = 0; i < COUNT; i++)
            together[i] = (float)(i % 997) / 50.0f - 10.0f;
        ul_posts_run(&call, together, threads);
        CHECK(memcmp(alone, together, COUNT * sizeof(float)) == 0);
    }
    free(alone);
    free(together);
}

int main(void)
{
    static const struct {
        struct ul_post post;
        double limit_near, limit_far; /* for |x| up to 8 and 80 */
    } cases[] = {
        {{.kind = UL_POST_SWISH, .alpha = 1.0f}, 16, 128},
        {{.kind = UL_POST_SWISH, .alpha = 1.702f}, 24, 220},
        {{.kind = UL_POST_LOGISTIC}, 16, 128},
        {{.kind = UL_POST_GELU_TANH}, 7e-7, 5e-6},
        {{.kind = UL_POST_GELU_ERF}, 7e-7, 4e-6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_errors(&cases[i].post, 1.0f, cases[i].limit_near);
        check_errors(&cases[i].post, 8.0f, cases[i].limit_near);
        check_errors(&cases[i].post, 80.0f, cases[i].limit_far);
        check_special(&cases[i].post);
        check_cuts(&cases[i].post);
    }
    return TEST_RESULT();
}
