/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where programs under tests/cuda_emulation find the libraries that they load at run time:
 * cuBLASLt and cuDNN, each a table of functions in the emulation's library.
 */
#ifndef UL_EMULATE_LIBRARIES_H
#define UL_EMULATE_LIBRARIES_H

/* The library "libcublasLt.so.13"; NULL: there is none of this name, or the environment says that
   it is missing (UL_EMULATE_NO_CUBLAS, UL_EMULATE_NO_CUDNN). */
void *ul_emulate_load(const char *name);
/* Its function of that name, or NULL. */
void *ul_emulate_symbol(void *library, const char *name);

#endif
