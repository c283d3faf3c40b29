/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets share. As a libFuzzer program (ULLAGE_FUZZ) a target takes that program's
 * options; else replay.c feeds it the files and folders that it is given. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Ends the program where `what` is wrong. */
void fuzz_require(bool holds, const char *what);

#endif
