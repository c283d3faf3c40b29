/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libraries that programs load: tables of the functions in cublaslt.cc and cudnn.cc.
 */
#include "ul_emulate_libraries.h"

#include "cublasLt.h"
#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

namespace
{

struct function {
    const char *name;
    void *address;
};

struct library {
    const char *name;
    const char *missing; /* the environment's word for it */
    const struct function *functions;
};

#define ROW(name)                                                                                  \
    {                                                                                              \
#name, (void *)&name                                                                       \
    }

const struct function cublas_functions[] = {ROW(cublasLtCreate),
                                            ROW(cublasLtDestroy),
                                            ROW(cublasLtGetVersion),
                                            ROW(cublasLtMatmulDescCreate),
                                            ROW(cublasLtMatmulDescDestroy),
                                            ROW(cublasLtMatmulDescSetAttribute),
                                            ROW(cublasLtMatrixLayoutCreate),
                                            ROW(cublasLtMatrixLayoutDestroy),
                                            ROW(cublasLtMatrixLayoutSetAttribute),
                                            ROW(cublasLtMatmulPreferenceCreate),
                                            ROW(cublasLtMatmulPreferenceDestroy),
                                            ROW(cublasLtMatmulPreferenceSetAttribute),
                                            ROW(cublasLtMatmulAlgoGetHeuristic),
                                            ROW(cublasLtMatmulAlgoCheck),
                                            ROW(cublasLtMatmulAlgoConfigGetAttribute),
                                            ROW(cublasLtMatmul),
                                            {NULL, NULL}};

const struct function cudnn_functions[] = {ROW(cudnnCreate),
                                           ROW(cudnnDestroy),
                                           ROW(cudnnGetVersion),
                                           ROW(cudnnSetStream),
                                           ROW(cudnnBackendCreateDescriptor),
                                           ROW(cudnnBackendDestroyDescriptor),
                                           ROW(cudnnBackendFinalize),
                                           ROW(cudnnBackendSetAttribute),
                                           ROW(cudnnBackendGetAttribute),
                                           ROW(cudnnBackendExecute),
                                           {NULL, NULL}};

const struct library libraries[] = {{"libcublasLt.so.13", "UL_EMULATE_NO_CUBLAS", cublas_functions},
                                    {"libcudnn.so.9", "UL_EMULATE_NO_CUDNN", cudnn_functions}};

} // namespace

void *ul_emulate_load(const char *name)
{
    for (const struct library &library : libraries) {
        if (strcmp(library.name, name) == 0 && getenv(library.missing) == NULL)
            return (void *)&library;
    }
    return NULL;
}

void *ul_emulate_symbol(void *library, const char *name)
{
    const struct function *row = ((const struct library *)library)->functions;
    while (row->name != NULL && strcmp(row->name, name) != 0)
        row++;
    return row->address;
}
