/* SPDX-License-Identifier: 0BSD */
/*
 * The command line of a generated program, as one call: main.c is
 *     int main(int argc, char **argv) { return ul_program_main(&model_model, argc, argv); }
 * It needs POSIX (files, clock). Its exit codes: 0 ok, 1 usage, 2 invalid file or data,
 * 3 unsupported (this processor lacks what the program was compiled for), 4 the arena does not fit
 * in memory, 5 input or output failed, 6 a verification failed, 70 internal error.
 * main.c and the ul_*.c files must be compiled without -march and the like, so that the check of
 * the processor runs on any machine; model.c may be compiled for one.
 */
#ifndef UL_PROGRAM_H
#define UL_PROGRAM_H

#include "ul_model.h"

int ul_program_main(const struct ul_model *model, int argc, char **argv);

#endif
