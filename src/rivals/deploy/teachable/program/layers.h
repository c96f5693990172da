/* How a network is written down: a table of steps, and the types of their numbers. */
#ifndef LAYERS_H
#define LAYERS_H

#include <stdint.h>

#include "network.h"

#ifdef TEACH_FLOAT
typedef float teach_weight;   /* of a convolution */
typedef float teach_value;    /* an activation */
typedef float teach_term;     /* an activation as it is multiplied */
typedef float teach_sum;      /* of products, and their bias */
typedef float teach_factor;   /* of the last, triangular matrix */
#else
typedef int8_t teach_weight;
typedef uint8_t teach_value;
typedef int16_t teach_term;
typedef int32_t teach_sum;
typedef int16_t teach_factor;
#endif

#define LAYER_NONE (-1)

/* relu(largest of pool x pool (convolution + bias) + what is added) */
typedef struct {
    int height, width, inputs;          /* of what is read */
    int rows, columns, outputs;         /* of what is written */
    int kernel, stride, padding, pool;
    int32_t source, target, added;      /* places in memory; LAYER_NONE: the image, nothing */
    const teach_weight *weights;        /* output by output: row, column, input */
    const teach_sum *bias;
    const int32_t *multiplier;          /* whole numbers only: a sum times this, shifted, */
    int32_t added_multiplier;           /* and what is added times this */
    int shift;
} layer;

extern const layer network_layers[NETWORK_LAYERS];
extern const teach_sum network_centre[TEACH_FEATURES];
extern const teach_factor network_factor[TEACH_FEATURES * (TEACH_FEATURES + 1) / 2];
extern const uint8_t network_shift[TEACH_FEATURES];
extern const uint32_t network_id; /* a checksum of all these numbers */

#endif
