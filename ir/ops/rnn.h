/* Hooks of the rnn family. */
#ifndef UL_OPS_RNN_H
#define UL_OPS_RNN_H

#include "ir/lower.h"

#endif
