/* SPDX-License-Identifier: Apache-2.0 */
/* The few words that the runtime's tests need. They count failures instead of stopping. */
#ifndef UL_RUNTIME_TEST_H
#define UL_RUNTIME_TEST_H

#include <stdio.h>

static int test_failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition) && ++test_failures <= 20)                                                 \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                         \
    } while (0)

/* As the last line of main. */
#define TEST_RESULT() (test_failures == 0 ? 0 : (printf("%d checks failed\n", test_failures), 1))

#endif
