/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the unit tests: cmocka with what it wants included first. */
#ifndef UL_TEST_H
#define UL_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
